"""What the estimator says that a cluster's pools could still make, and at which price. Told as
stories."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

import msgspec
from tests.scenarios.test_world_consolidates import GIB, START, S, machine

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster_objects import DaemonPods
from wharfinger.domain.instance_types import Catalogue, InstanceType, Offering
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import INSTANCE_TYPE_LABEL, POOL_LABEL, NodePoolPolicy
from wharfinger.domain.pod_traits import HostPort, PodTraits
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    Claimed,
    ClaimEnded,
)
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved
from wharfinger.events.codec import made
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.kernel.decider import Micros
from wharfinger.stages.estimator import EstimatorObserver
from wharfinger.stages.estimator.observer import EstimatorState
from wharfinger.stages.estimator.provisioning import NODES_MAX

CENT = 10_000_000
TWO = Requirements({"cpu": 2000, "memory": GIB})
TYPES = (machine("large", 8, 40), machine("small", 2, 12))


def pool(name: str = "general", **more: object) -> PolicyApplied:
    return PolicyApplied(
        Policy("NodePool", name, node_pool=msgspec.structs.replace(NodePoolPolicy(name), **more))
    )


def catalogue(*types: InstanceType) -> PolicyApplied:
    return PolicyApplied(
        Policy("InstanceTypes", "0", "default", catalogue=Catalogue("default", types))
    )


def wanted(requirements: Requirements = TWO, name: str = "web") -> BindingRequested:
    return BindingRequested(
        Binding(name, f"uid-{name}", ObjectRef("apps/v1", "Deployment", name), 1, requirements)
    )


@dataclass
class Estimator:
    observer: EstimatorObserver = field(default_factory=EstimatorObserver)
    now: Micros = START
    seq: int = 0
    last: CapacityEstimated | None = None

    def __post_init__(self) -> None:
        self.state: EstimatorState = self.observer.initial()

    def given(self, *facts: Value) -> None:
        for fact in facts:
            self.observer.fold(
                self.state, made(fact, id=uuid4(), source="/test", subject="x"), self.now
            )
        for publication in self.observer.publish(self.state, self.now):
            assert isinstance(publication.data, CapacityEstimated)
            self.last = publication.data

    def wait(self, seconds: int) -> None:
        self.now += seconds * S
        self.given()

    def told(self, requirements: Requirements = TWO) -> tuple[int, int]:
        """How many could be made nodes for, and the price of one in cents; (0, 0): none."""
        assert self.last is not None
        key = requirements.class_key
        return self.last.provisionable.get(key, 0), self.last.price_of.get(key, 0) // CENT

    def decided(self, item: AssignmentItem, stream: str = "cluster/oslo") -> AssignmentsDecided:
        return AssignmentsDecided("oslo", stream, item.seq, (item,))

    def next(self) -> int:
        self.seq += 1
        return self.seq


def in_oslo(*facts: Value, nodes: tuple[Node, ...] = ()) -> Estimator:
    estimator = Estimator()
    estimator.given(NodesObserved("oslo", 0, 1, nodes), *facts)
    return estimator


def test_without_pools_or_before_their_prices_are_known_nothing_is_said() -> None:
    oslo = in_oslo(wanted())
    assert oslo.told() == (0, 0)
    oslo.given(pool())
    assert oslo.told() == (0, 0)
    oslo.given(catalogue(*TYPES))
    assert oslo.told() == (4 * NODES_MAX, 10)
    oslo.given(PolicyRemoved("NodePool", "general"))
    assert oslo.told() == (0, 0)


def test_of_another_cluster_alone_it_makes_nothing_here() -> None:
    assert in_oslo(pool(clusters=("bergen",)), catalogue(*TYPES), wanted()).told() == (0, 0)
    assert in_oslo(pool(clusters=("oslo",)), catalogue(*TYPES), wanted()).told() == (
        4 * NODES_MAX,
        10,
    )


def test_the_type_on_which_a_replica_is_cheapest_is_taken_within_the_limits() -> None:
    assert in_oslo(pool(limits={"nodes": 3}), catalogue(*TYPES), wanted()).told() == (12, 10)
    assert in_oslo(pool(limits={"cpu": 7000}), catalogue(*TYPES), wanted()).told() == (3, 12), (
        "a large one is too large"
    )
    cheap = machine("small", 2, 9)
    assert in_oslo(pool(limits={"nodes": 3}), catalogue(TYPES[0], cheap), wanted()).told() == (3, 9)


def test_what_its_nodes_have_used_up_is_not_there_to_be_made() -> None:
    labels = {POOL_LABEL: "general", INSTANCE_TYPE_LABEL: "large"}
    node = Node("n1", {"cpu": 8000, "memory": 32 * GIB, "pods": 110}, labels=labels)
    oslo = in_oslo(pool(limits={"cpu": 24_000}), catalogue(*TYPES), wanted(), nodes=(node,))
    assert oslo.told() == (8, 10)
    item = Claimed(
        oslo.next(),
        str(uuid4()),
        "c1",
        "general",
        ("large",),
        {"cpu": 2000},
        {},
        "",
        START + 900 * S,
    )
    oslo.given(oslo.decided(item))
    assert oslo.told() == (4, 10)


def test_who_does_not_suit_the_pool_gets_nothing_of_it() -> None:
    tainted = pool(taints=(Taint("dedicated", "NoSchedule", "db"),))
    assert in_oslo(tainted, catalogue(*TYPES), wanted()).told() == (0, 0)
    bears = msgspec.structs.replace(TWO, tolerations=(Toleration("dedicated", "Exists"),))
    assert in_oslo(tainted, catalogue(*TYPES), wanted(bears)).told(bears) == (4 * NODES_MAX, 10)
    here = msgspec.structs.replace(TWO, node_selector={"topology.kubernetes.io/zone": "b"})
    assert in_oslo(pool(), catalogue(*TYPES), wanted(here)).told(here) == (0, 0)
    dear = InstanceType(
        "large",
        TYPES[0].capacity,
        offerings=(Offering("a", "on-demand", 40 * CENT), Offering("b", "spot", 80 * CENT)),
    )
    assert in_oslo(pool(), catalogue(dear), wanted(here)).told(here) == (4 * NODES_MAX, 20)
    too_large = Requirements({"cpu": 9000})
    assert in_oslo(pool(), catalogue(*TYPES), wanted(too_large)).told(too_large) == (0, 0)


def test_daemons_take_their_part_of_every_new_node() -> None:
    oslo = in_oslo(pool(limits={"nodes": 1}), catalogue(*TYPES), wanted())
    assert oslo.told() == (4, 10)
    agent = DaemonPods("agent", "kube-system", Requirements({"cpu": 500}))
    oslo.given(ObjectsObserved("oslo", "DaemonSet", "kube-system", (agent,)))
    assert oslo.told() == (3, 13)


def test_what_waits_without_a_claim_is_taken_off_and_what_has_one_is_not_counted_twice() -> None:
    oslo = in_oslo(pool(limits={"nodes": 2}), catalogue(*TYPES), wanted())
    assert oslo.told() == (8, 10)
    oslo.given(oslo.decided(Assigned(1, str(uuid4()), "web", "uid-web", 3, TWO), "fleet/0"))
    assert oslo.told() == (5, 10)
    claim = Claimed(
        oslo.next(),
        str(uuid4()),
        "c1",
        "general",
        ("large",),
        {"cpu": 6000},
        {"web": 3},
        "",
        START + 900 * S,
    )
    oslo.given(oslo.decided(claim))
    assert oslo.told() == (4, 10)


def test_what_could_not_be_bought_is_not_promised_until_it_may_be_asked_for_again() -> None:
    oslo = in_oslo(pool(), catalogue(*TYPES), wanted())
    assert oslo.told() == (4 * NODES_MAX, 10)
    oslo.given(
        oslo.decided(ClaimEnded(oslo.next(), str(uuid4()), "c1", "general", "timed-out", ""))
    )
    assert oslo.told() == (0, 0)
    assert oslo.observer.next_due(oslo.state) == START + 60 * S
    oslo.wait(60)
    assert oslo.told() == (4 * NODES_MAX, 10)
    assert oslo.observer.next_due(oslo.state) is None


def test_one_a_node_where_replicas_may_not_share_one() -> None:
    with_port = msgspec.structs.replace(TWO, pod=PodTraits(ports=(HostPort(8080),)))
    assert in_oslo(pool(limits={"nodes": 5}), catalogue(TYPES[0]), wanted(with_port)).told(
        with_port
    ) == (5, 40)
