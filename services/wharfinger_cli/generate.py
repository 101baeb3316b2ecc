"""A fleet made up from a seed: clusters in regions, zones and clouds, mixed nodes, bindings of
every placement.

For demonstrations, tests and measurements where no trace is at hand. The same seed and counts give
the same events, byte for byte, on any machine: the generator has a random source of its own, names
are counted, and nothing is read from outside. Shares (how many nodes have GPUs, how many clusters
are tainted) are near what real fleets show, not a model of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
    StaticWeight,
)
from wharfinger.domain.policy import Policy, Propagation, ResourceSelector
from wharfinger.domain.resources import DEVICE_MILLI, GPU, Device, DeviceRequest
from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import buckets_for
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.envelope import derived_id
from wharfinger.events.policies import PolicyApplied

GIBIBYTE = 1 << 30
NODES_A_BUCKET = 64
NAMESPACES = ("shop", "search", "media", "ledger", "lab")
API_KINDS = ("v1/Pod", "v1/ConfigMap", "apps/v1/Deployment", "apps/v1/StatefulSet", "batch/v1/Job")


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """How much of everything, in all. `lease_s`: how long a cluster's silence is normal; None: it
    promises nothing."""

    clusters: int
    nodes: int
    bindings: int
    seed: int
    lease_s: int | None = None


@dataclass(frozen=True, slots=True)
class _Town:
    """A harbour town and the cloud region it lies in."""

    town: str
    provider: str
    region: str


PLACES = (
    _Town("oslo", "fjord", "eu-north"),
    _Town("bergen", "fjord", "eu-north"),
    _Town("hamburg", "hansa", "eu-west"),
    _Town("rotterdam", "hansa", "eu-west"),
    _Town("genoa", "hansa", "eu-south"),
    _Town("halifax", "atlantic", "ca-east"),
    _Town("boston", "atlantic", "us-east"),
    _Town("oakland", "pacific", "us-west"),
    _Town("yokohama", "pacific", "ap-north"),
    _Town("singapore", "pacific", "ap-south"),
)


@dataclass(frozen=True, slots=True)
class _Machine:
    """A kind of node; `share` of a hundred nodes are of it."""

    name: str
    cpu_milli: int
    memory_gib: int
    gpus: int
    model: str
    share: int


MACHINES = (
    _Machine("s4", 4_000, 16, 0, "", 30),
    _Machine("m8", 8_000, 32, 0, "", 30),
    _Machine("l16", 16_000, 64, 0, "", 18),
    _Machine("r16", 16_000, 128, 0, "", 8),
    _Machine("g16", 16_000, 64, 1, "T4", 8),
    _Machine("g64", 64_000, 512, 8, "A100", 6),
)

GPU_TAINT = Taint("nvidia.com/gpu", "NoSchedule", "present")
GPU_TOLERATION = Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule")
EDGE_TAINT = Taint("wharfinger.io/edge", "NoSchedule")


@dataclass(frozen=True, slots=True)
class _Rule:
    """A placement users have, under its policy's name; `share` of a hundred bindings follow it."""

    name: str
    share: int
    placement: Placement


RULES = (
    _Rule(
        "by-room", 40, Placement(replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True))
    ),
    _Rule("packed", 25, Placement(replicas=ReplicaScheduling("Divided", "Aggregated"))),
    _Rule(
        "two-to-one",
        15,
        Placement(
            replicas=ReplicaScheduling(
                "Divided",
                "Weighted",
                static=(
                    StaticWeight(
                        ClusterAffinity(
                            fields=(Requirement("region", "In", ("eu-north", "eu-west")),)
                        ),
                        2,
                    ),
                    StaticWeight(ClusterAffinity(), 1),
                ),
            )
        ),
    ),
    _Rule(
        "production-everywhere",
        10,
        Placement(
            affinities=(ClusterAffinity(labels=LabelSelector({"environment": "production"})),)
        ),
    ),
    _Rule(
        "up-to-three",
        10,
        Placement(
            tolerations=(Toleration(EDGE_TAINT.key, "Exists"),),
            spread=(SpreadConstraint(field="cluster", min_groups=1, max_groups=3),),
            replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True),
        ),
    ),
)


def generate(plan: FleetPlan) -> Iterator[Accepted]:
    """Clusters, then their nodes, then policies, then bindings: the order in which a plane would
    like to hear it."""
    # Each part draws from its own source, so that asking for more bindings leaves the fleet as it
    # was.
    fleet = list(clusters(plan))
    yield from (accepted(ClusterObserved(cluster)) for cluster in fleet)
    yield from nodes(plan, fleet)
    yield from policies()
    yield from bindings(plan)


def clusters(plan: FleetPlan) -> Iterator[Cluster]:
    random = Random(f"{plan.seed}/clusters")
    for number in range(plan.clusters):
        place = PLACES[number % len(PLACES)]
        again = number // len(PLACES)
        yield Cluster(
            name=f"{place.town}-{again + 1}" if again else place.town,
            labels={"environment": "staging" if random.random() < 0.2 else "production"},
            provider=place.provider,
            region=place.region,
            zones=tuple(f"{place.region}-{zone}" for zone in "abc"[: random.randint(1, 3)]),
            taints=(EDGE_TAINT,) if number > 1 and random.random() < 0.1 else (),
            api_kinds=API_KINDS,
            lease_s=plan.lease_s,
        )


def nodes(plan: FleetPlan, fleet: Sequence[Cluster]) -> Iterator[Accepted]:
    """Every cluster's nodes in buckets. Clusters differ in size: each node goes to one of them by a
    drawn weight."""
    random = Random(f"{plan.seed}/nodes")
    if not fleet:
        return
    weights = [random.uniform(0.5, 2.0) for _ in fleet]
    parts: dict[str, list[Node]] = {cluster.name: [] for cluster in fleet}
    for number in range(plan.nodes):
        # The first nodes go round, so that a small fleet has no empty cluster.
        cluster = fleet[number] if number < len(fleet) else random.choices(fleet, weights)[0]
        part = parts[cluster.name]
        part.append(_node(f"{cluster.name}-{len(part):04d}", cluster, random))
    for name, part in parts.items():
        for observed in buckets_for(name, part, at_least=max(1, -(-len(part) // NODES_A_BUCKET))):
            yield accepted(observed)


def policies() -> Iterator[Accepted]:
    for rule in RULES:
        selector = ResourceSelector(
            "apps/v1", "Deployment", labels=LabelSelector({"placement": rule.name})
        )
        policy = Policy(
            "ClusterPropagationPolicy",
            rule.name,
            propagation=Propagation((selector,), rule.placement),
        )
        yield accepted(PolicyApplied(policy))


def bindings(plan: FleetPlan) -> Iterator[Accepted]:
    random = Random(f"{plan.seed}/bindings")
    shares = [rule.share for rule in RULES]
    for number in range(plan.bindings):
        namespace = random.choice(NAMESPACES)
        rule = random.choices(RULES, shares)[0]
        yield accepted(BindingRequested(_binding(f"app-{number:05d}", namespace, rule, random)))


def _node(name: str, cluster: Cluster, random: Random) -> Node:
    machine = random.choices(MACHINES, [m.share for m in MACHINES])[0]
    labels = {
        "node.kubernetes.io/instance-type": machine.name,
        "topology.kubernetes.io/zone": random.choice(cluster.zones),
    }
    if machine.model:
        labels["nvidia.com/gpu.product"] = machine.model
    return Node(
        name=name,
        allocatable={
            "cpu": machine.cpu_milli,
            "memory": machine.memory_gib * GIBIBYTE,
            "pods": 110,
        },
        devices=(Device(model=machine.model, kind=GPU),) * machine.gpus,
        labels=labels,
        taints=(GPU_TAINT,) if machine.gpus else (),
        unschedulable=random.random() < 0.01,
    )


def _binding(name: str, namespace: str, rule: _Rule, random: Random) -> Binding:
    full_name = f"{namespace}/{name}-deployment"
    cpu_milli = random.choice((50, 100, 250, 500, 1_000, 2_000))
    requirements = Requirements(
        requests={"cpu": cpu_milli, "memory": cpu_milli * random.choice((1, 2, 4)) * (1 << 20)},
        devices=_devices(random),
    )
    if requirements.devices:
        requirements = Requirements(
            requirements.requests, requirements.devices, tolerations=(GPU_TOLERATION,)
        )
    return Binding(
        name=full_name,
        uid=str(derived_id("binding", full_name)),
        resource=ObjectRef("apps/v1", "Deployment", name, namespace),
        replicas=1 if requirements.devices else random.choice((1, 2, 3, 3, 5, 8)),
        requirements=requirements,
        placement=rule.placement,
        priority=random.choice((0, 0, 0, 100)),
        policy=f"ClusterPropagationPolicy//{rule.name}",
        labels={"placement": rule.name},
    )


def _devices(random: Random) -> tuple[DeviceRequest, ...]:
    """One workload in ten asks for GPUs: mostly a share of one, sometimes whole ones of a model."""
    draw = random.random()
    if draw < 0.06:
        return (DeviceRequest(1, random.choice((200, 250, 500))),)
    if draw < 0.09:
        return (DeviceRequest(1, DEVICE_MILLI),)
    if draw < 0.10:
        return (DeviceRequest(random.choice((2, 4)), DEVICE_MILLI, ("A100",)),)
    return ()
