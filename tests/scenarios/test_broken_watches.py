"""A watch of one cluster breaks, or the cluster is not read for a while: for how long nothing is
proposed for it, and that nothing else waits for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.descheduling import DeschedulerProfile, DeschedulingPolicy, NodeTaints
from wharfinger.domain.instance_types import Catalogue, InstanceType, Offering
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import POOL_LABEL, NodePoolPolicy
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption.cluster_snapshot import (
    ClusterSnapshot,
    Command,
    ConsolidationResult,
)
from wharfinger.events.assignments import Assigned, AssignmentItem, AssignmentsDecided, Placed
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved, FleetHeard
from wharfinger.events.codec import made
from wharfinger.events.decisions import NodeShare
from wharfinger.events.envelope import derived_id
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.proposals import (
    DeschedulingProposed,
    DisruptionProposed,
    NodeRemovalProposed,
)
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler import DeschedulerObserver
from wharfinger.stages.descheduler.disruption import Looking
from wharfinger.stages.descheduler.facts import NEEDED

S = 1_000_000
START = 1_700_000_000 * S
FLEET = ("bergen", "hamburg", "oslo")
HEARTBEAT_S = 10
ALL = {"consolidation", "descheduling", "empty node"}
SMALL = Requirements({"cpu": 100})
ROT = Taint("rot", "NoSchedule")
PRICED = Catalogue(
    "default", (InstanceType("m5", {"cpu": 4000}, offerings=(Offering("a", "on-demand", 10),)),)
)
TIDY = DeschedulingPolicy(
    (DeschedulerProfile("p", deschedule=(NodeTaints(),)),), every_s=60, cooldown_s=60
)


def survey(scene: ClusterSnapshot) -> ConsolidationResult:
    """Node n1 is always found to be too many."""
    return ConsolidationResult((Command("multi-node", ("n1",), (), (), 5, 1000, "cheaper"),), ())


def cluster(name: str, *stale: str) -> ClusterObserved:
    return ClusterObserved(
        Cluster(name, lease_s=40, conditions={f"FactsFresh{kind}": "False" for kind in stale})
    )


class Fleet:
    """Three clusters of one collector. In each, a node is to be consolidated (n1), a replica is to
    leave a tainted node (n2), and a node of a pool without prices is empty (n3). Everything is
    folded and asked every ten seconds, so that two fleets can be compared."""

    def __init__(self) -> None:
        self.observer = DeschedulerObserver(
            lambda _: 0, looking=Looking(survey=survey, repeat_after_s=60)
        )
        self.state = self.observer.initial()
        self.now = START
        self.unread: set[str] = set()
        self.published: list[tuple[int, Publication]] = []
        spot = NodePoolPolicy("spot", 30, catalogue="none")
        priced = NodePoolPolicy("priced", 30)
        self.fold(PolicyApplied(Policy("NodePool", "spot", node_pool=spot)))
        self.fold(PolicyApplied(Policy("NodePool", "priced", node_pool=priced)))
        self.fold(PolicyApplied(Policy("InstanceTypes", "0", "default", catalogue=PRICED)))
        self.fold(PolicyApplied(Policy("DeschedulerPolicy", "tidy", descheduling=TIDY)))
        for name in FLEET:
            self.fold(cluster(name), self.nodes(name))
            assigned = Assigned(1, str(derived_id(name, 1)), "web", "u", 1, SMALL)
            placed = Placed(2, str(derived_id(name, 2)), "web", (NodeShare("n2", (0,)),), SMALL)
            self.fold(self.decided(name, assigned), self.decided(name, placed))

    def nodes(self, name: str) -> NodesObserved:
        room = {"cpu": 4000, "pods": 100}
        return NodesObserved(
            name,
            0,
            1,
            (
                Node("n1", room, labels={POOL_LABEL: "priced"}),
                Node("n2", room, taints=(ROT,)),
                Node("n3", room, labels={POOL_LABEL: "spot"}),
            ),
        )

    def decided(self, name: str, item: AssignmentItem) -> AssignmentsDecided:
        return AssignmentsDecided(name, f"cluster/{name}", item.seq, (item,))

    def fold(self, *facts: Value) -> None:
        for fact in facts:
            event = made(fact, id=derived_id(str(fact)), source="/test", subject="x")
            self.observer.fold(self.state, event, self.now)

    def run(self, seconds: int) -> list[Publication]:
        """The collector sends its heartbeats, and the descheduler is asked with each."""
        before = len(self.published)
        for _ in range(seconds // HEARTBEAT_S):
            self.now += HEARTBEAT_S * S
            heard = tuple([name for name in FLEET if name not in self.unread])
            self.fold(FleetHeard("collector-0", HEARTBEAT_S, heard))
            self.published += [
                (self.now, found) for found in self.observer.publish(self.state, self.now)
            ]
        return [found for _, found in self.published[before:]]

    def of(self, *names: str) -> list[bytes]:
        """All that was proposed for these clusters: when, what, and under which id."""
        return [
            canonical((at, str(one.id), one.key, type(one.data).__name__, one.data))
            for at, one in self.published
            if cluster_of(one) in names
        ]


def cluster_of(one: Publication) -> str:
    data = one.data
    assert isinstance(data, DisruptionProposed | DeschedulingProposed | NodeRemovalProposed)
    return data.cluster


def about(found: Sequence[Publication], name: str) -> set[str]:
    """Which kinds of proposals were made for the cluster."""
    words = {
        DisruptionProposed: "consolidation",
        DeschedulingProposed: "descheduling",
        NodeRemovalProposed: "empty node",
    }
    return {words[type(one.data)] for one in found if cluster_of(one) == name}


@pytest.mark.parametrize("kind", ["Pod", "PodDisruptionBudget", "CSINode"])
def test_nothing_is_proposed_for_a_cluster_while_a_watch_that_moves_need_is_broken(
    kind: str,
) -> None:
    fleet = Fleet()
    assert about(fleet.run(300), "oslo") == ALL
    fleet.fold(cluster("oslo", kind))
    broken = fleet.run(3600)
    assert about(broken, "oslo") == set()
    assert {name for name in FLEET if about(broken, name) == ALL} == {"bergen", "hamburg"}
    assert fleet.state.watches["oslo"].held == f"the facts of cluster oslo are not fresh: {kind}"
    fleet.fold(cluster("oslo"))
    # what was proposed often before rests for up to an hour
    assert about(fleet.run(2 * 3600), "oslo") == ALL


def test_a_broken_watch_of_another_kind_stops_nothing() -> None:
    """As where the collector has no right to read services, which does not change by itself."""
    fleet, whole = Fleet(), Fleet()
    fleet.fold(cluster("oslo", "Service", "ReplicaSet", "ResourceQuota"))
    assert about(fleet.run(900), "oslo") == ALL
    whole.run(900)
    assert fleet.of(*FLEET) == whole.of(*FLEET)


def test_a_cluster_that_is_not_read_is_left_alone_until_it_is_read_again() -> None:
    fleet = Fleet()
    fleet.run(300)
    fleet.unread = {"oslo"}
    fleet.run(300)  # so long its facts count
    unread = fleet.run(3600)
    assert about(unread, "oslo") == set()
    assert {name for name in FLEET if about(unread, name) == ALL} == {"bergen", "hamburg"}
    fleet.unread = set()
    assert about(fleet.run(2 * 3600), "oslo") == ALL


def test_all_clusters_but_one_are_unread_and_the_one_is_tidied_as_before() -> None:
    fleet, whole = Fleet(), Fleet()
    fleet.unread = {"bergen", "hamburg"}
    fleet.run(1200)
    whole.run(1200)
    assert fleet.of("oslo") == whole.of("oslo")
    assert len(fleet.of("oslo")) > 3


spells = st.lists(
    st.tuples(
        st.integers(1, 40),
        st.sampled_from(["unread", "read", "broken", "mended", "changed"]),
        st.sets(st.sampled_from(sorted(NEEDED | {"Service"})), min_size=1, max_size=3),
    ),
    max_size=8,
)


@given(spells)
def test_what_happens_to_the_watches_of_one_cluster_changes_no_proposal_for_another(
    story: list[tuple[int, str, set[str]]],
) -> None:
    fleet, whole = Fleet(), Fleet()
    for beats, what, kinds in [*story, (30, "mended", {"Pod"})]:
        match what:
            case "unread":
                fleet.unread = {"oslo"}
            case "read":
                fleet.unread = set()
            case "broken":
                fleet.fold(cluster("oslo", *kinds))
            case "mended":
                fleet.fold(cluster("oslo"))
            case _:
                fleet.fold(fleet.nodes("oslo"))
        held = fleet.state.held("oslo", fleet.now)
        found = fleet.run(beats * HEARTBEAT_S)
        whole.run(beats * HEARTBEAT_S)
        if held and what == "broken" and kinds & NEEDED:
            assert about(found, "oslo") == set()
    assert fleet.of("bergen", "hamburg") == whole.of("bergen", "hamburg")
    assert whole.of("bergen")
