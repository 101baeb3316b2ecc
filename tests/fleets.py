"""Fleets with faults, made up from a seed: everything that can happen to a plane, in one
deterministic world.

`a_fleet(number)` gives the rounds of all its streams in the order in which they were made, ready to
be committed to a ledger or audited as they are. Fleets of different numbers share no names and no
ids, so that many lie in one ledger: number is the fleet shard, and the beginning of every cluster's
name. Choices come from a `Random`, which may be hypothesis's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster, NodeGrade, ResourceSummary
from wharfinger.domain.cluster_objects import DisruptionBudget, NamespaceLabels, PodSelecting
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
    StaticWeight,
)
from wharfinger.domain.pod_traits import (
    HostPort,
    PodTerm,
    PodTraits,
    TopologySpread,
    WeightedPodTerm,
)
from wharfinger.domain.policy import (
    HotWindow,
    LoadLimit,
    LoadPolicy,
    LoadWeight,
    Policy,
    SyncPeriod,
)
from wharfinger.domain.quota import Quota
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.scheduler import Arguments, FitArgs, Profile, SchedulerConfig
from wharfinger.domain.scheduler_points import default_points
from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import (
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
    into_buckets,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import (
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.streams import cluster_stream, fleet_stream
from wharfinger.kernel.decider import Decider
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster import ClusterDecider, ClusterProfile
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.world import World

if TYPE_CHECKING:
    from wharfinger.runtime.ledger import Ledger

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
GIB = 1 << 30
BUCKETS = 2

TOWNS = (
    ("oslo", "north"),
    ("bergen", "north"),
    ("genoa", "south"),
    ("izmir", "south"),
    ("halifax", "west"),
)
LEASES_S = (None, 15, 30, 60)
CLUSTER_TAINTS = (Taint("closed", "NoSchedule"), Taint("broken", "NoExecute"))
NODE_TAINTS = (Taint("gpu", "NoSchedule"), Taint("dying", "NoExecute"))
KINDS = (None, None, None, ("apps/v1/Deployment",), ("apps/v1/Deployment", "batch/v1/Job"))
CLASSES = (
    Requirements({"cpu": 1000, "memory": GIB}),
    Requirements({"cpu": 250}),
    Requirements(
        {"cpu": 500}, (DeviceRequest(1, 500),), tolerations=(Toleration("gpu", "Exists"),)
    ),
    Requirements(
        {"cpu": 2000},
        (DeviceRequest(2, models=("A100",)),),
        tolerations=(Toleration("gpu", "Exists"),),
    ),
    Requirements({"cpu": 100}, node_selector={"disk": "ssd"}),
    Requirements({"cpu": 300}, tolerations=(Toleration("dying", "Exists", seconds=20),)),
    Requirements(),
)
APPS = tuple(LabelSelector({"app": app}) for app in "xy")
TRAITS = (
    PodTraits(labels={"app": "x"}, spread=(TopologySpread("disk", 1, selector=APPS[0]),)),
    PodTraits(
        labels={"app": "x"}, spread=(TopologySpread("disk", 1, hard=False, selector=APPS[0]),)
    ),
    PodTraits(labels={"app": "y"}, anti_affinity=(PodTerm("host", APPS[1]),)),
    PodTraits(labels={"app": "z"}, anti_affinity=(PodTerm("disk", APPS[1]),)),
    PodTraits(labels={"app": "y"}, affinity=(PodTerm("disk", APPS[1]),)),
    PodTraits(
        labels={"app": "v"}, preferred_affinity=(WeightedPodTerm(10, PodTerm("disk", APPS[1])),)
    ),
    PodTraits(labels={"app": "l"}, ports=(HostPort(80),)),
    PodTraits(labels={"app": "g"}, group="crew", min_count=3),
    PodTraits(labels={"app": "p"}, never_preempts=True),
    PodTraits(labels={"app": "w"}, gates=("example.com/wait",)),
)
TRAITED = tuple(Requirements({"cpu": 400}, pod=traits) for traits in TRAITS)
LOAD_POLICY = PolicyApplied(
    Policy(
        "DynamicSchedulerPolicy",
        "load",
        load=LoadPolicy(
            (SyncPeriod("cpu", 15),),
            (LoadLimit("cpu", 80_000),),
            (LoadWeight("cpu", 1000),),
            (HotWindow(60, 2),),
        ),
    )
)
PACKER = PolicyApplied(
    Policy(
        "KubeSchedulerConfiguration",
        "packer",
        scheduler=SchedulerConfig(
            (Profile("packer", default_points(), Arguments(fit=FitArgs("MostAllocated"))),)
        ),
    )
)
PACKED = Requirements({"cpu": 400}, pod=PodTraits(scheduler="packer"))
DIVISIONS = (
    ReplicaScheduling("Duplicated"),
    ReplicaScheduling("Divided", "Aggregated"),
    ReplicaScheduling("Divided", "Weighted", dynamic=True),
    ReplicaScheduling("Divided", "Weighted"),
    ReplicaScheduling(
        "Divided",
        "Weighted",
        (StaticWeight(ClusterAffinity(labels=LabelSelector({"tier": "gold"})), 3),),
    ),
)
SPREADS: tuple[tuple[SpreadConstraint, ...], ...] = (
    (),
    (),
    (),
    (SpreadConstraint("cluster", min_groups=1, max_groups=2),),
    (
        SpreadConstraint("region", min_groups=1, max_groups=2),
        SpreadConstraint("cluster", min_groups=1, max_groups=3),
    ),
)
AFFINITIES: tuple[tuple[ClusterAffinity, ...], ...] = (
    (),
    (),
    (ClusterAffinity(labels=LabelSelector({"tier": "gold"})),),
    (
        ClusterAffinity("near", fields=(Requirement("region", "In", ("north",)),)),
        ClusterAffinity("far", fields=(Requirement("region", "NotIn", ("north",)),)),
    ),
)
TOLERATIONS: tuple[tuple[Toleration, ...], ...] = (
    (),
    (Toleration("closed", "Exists"),),
    (Toleration("broken", "Exists", seconds=10),),
    (Toleration("broken", "Exists"),),
)


@dataclass(slots=True)
class Fleet:
    """`facts`: what its clusters last said of themselves, `nodes` of their nodes; `bindings`: those
    requested and not withdrawn; `mute`: clusters that say nothing at present. `rounds`: all that
    was decided, in order. `quotas`: its bindings lie in namespaces, and its clusters have quotas
    and grades. `traits`: its pods mind each other and wait for each other, and there are load
    policies and objects; `configured`: there are configurations of schedulers as well."""

    number: int
    random: Random
    quotas: bool = False
    traits: bool = False
    configured: bool = False
    world: World = field(init=False)
    rounds: list[RecordedRound] = field(default_factory=list)
    facts: dict[str, Cluster] = field(default_factory=dict)
    nodes: dict[str, dict[str, Node]] = field(default_factory=dict)
    bindings: dict[str, Binding] = field(default_factory=dict)
    mute: dict[str, None] = field(default_factory=dict)
    said: list[Value] = field(default_factory=list)
    told: int = 0
    restarts: int = 0

    def __post_init__(self) -> None:
        self.world = self._new_world()
        self._adopt(self.stream, FleetDecider(), [])

    @property
    def stream(self) -> str:
        return fleet_stream(self.number)

    def by_stream(self) -> dict[str, list[RecordedRound]]:
        found: dict[str, list[RecordedRound]] = {}
        for recorded in self.rounds:
            found.setdefault(recorded.round.stream, []).append(recorded)
        return found

    def tell(self, facts: Iterable[Value], after_s: float = 0.0) -> None:
        """Whatever clusters are not mute are heard too; in any order, but for what is about one
        thing."""
        at = self.world.at + int(after_s * SECOND)
        new = list(facts)
        self.said += new
        beats = [ClusterObserved(c) for name, c in self.facts.items() if name not in self.mute]
        events = [self._event(data) for data in (*beats, *new)]
        self.rounds += self.world.tell(events, at)

    def restart(self, fleet: FleetDecider, cluster: ClusterDecider) -> None:
        """Everything again from what was recorded; `fleet` and `cluster` may have other settings
        than before."""
        before, self.restarts = self.world, self.restarts + 1
        self.world = self._new_world(cluster)
        self.world.at = before.at
        recorded = self.by_stream()
        for name in before.streams:
            decider: Decider[Any] = fleet if name == self.stream else cluster
            self._adopt(name, decider, recorded.get(name, []))
        self.rounds += self.world.settle_in()

    def _new_world(self, cluster: ClusterDecider | None = None) -> World:
        number = self.number
        return World(
            shards=0,
            shard_of=lambda _: number,
            cluster=cluster,
            recorded=True,
            repeat_after_s=45,
            namespace=f"fleet-{number}-{self.restarts}",
            at=START,
        )

    def _adopt(self, name: str, decider: Decider[Any], recorded: Sequence[RecordedRound]) -> None:
        state = recover(decider, decider.initial(name), recorded)
        head = recorded[-1].round.head() if recorded else empty_head(name)
        self.world.adopt(
            name, decider, state, head, {event.id for r in recorded for event in r.events}
        )

    def _event(self, data: Value) -> Event[Value]:
        self.told += 1
        return made(
            data,
            id=derived_id("fleets", self.number, self.told),
            source="/tests/fleets",
            subject="fleet",
        )

    # --- choosing

    def chance(self, of: int) -> bool:
        return self.random.randrange(of) == 0

    def one(self, names: Iterable[str]) -> str:
        """One of the names; one that nobody has where there are none."""
        there = sorted(names)
        return self.random.choice(there) if there else f"{self.number:03d}-nobody"


def a_fleet(
    number: int,
    random: Random | None = None,
    happenings: int = 24,
    quotas: bool = False,
    traits: bool = False,
    configured: bool = False,
) -> Fleet:
    """The same number, the same story, byte for byte; with `random` the choices are its."""
    fleet = Fleet(number, random or Random(f"fleet {number}"), quotas, traits, configured)
    fleet.tell(_clusters(fleet))
    fleet.tell(_bindings(fleet, 4 + fleet.random.randrange(8)), after_s=0.5)
    for _ in range(happenings):
        happening = fleet.random.choice(
            (
                *HAPPENINGS,
                *(OF_QUOTAS if quotas else ()),
                *(OF_TRAITS if traits else ()),
                *(CONFIGURED if configured else ()),
            )
        )
        fleet.tell(happening(fleet), after_s=fleet.random.choice((0.01, 0.2, 1, 5, 20)))
    return fleet


async def committed(ledger: Ledger, fleet: Fleet) -> None:
    """Commits all rounds of the fleet to a ledger that has none of its streams."""
    await ledger.ensure_streams(fleet.by_stream())
    events = {event.id: event for recorded in fleet.rounds for event in recorded.events}
    result = await ledger.commit([recorded.round for recorded in fleet.rounds], events)
    assert result.committed == frozenset(fleet.by_stream())


# --- the beginning


def _clusters(fleet: Fleet) -> list[Value]:
    facts: list[Value] = []
    for town, region in fleet.random.sample(TOWNS, 2 + fleet.random.randrange(4)):
        name = f"{fleet.number:03d}-{town}"
        own = _nodes(fleet, name) if not fleet.chance(5) else {}
        summary = (
            None
            if own
            else ResourceSummary({"cpu": 16_000, "memory": 64 * GIB, "pods": 40}, {"cpu": 1000})
        )
        fleet.facts[name] = Cluster(
            name,
            {"tier": fleet.random.choice(("gold", "tin"))},
            "fjord",
            region,
            (f"{region}-1",),
            (CLUSTER_TAINTS[0],) if fleet.chance(6) else (),
            fleet.random.choice(KINDS),
            fleet.random.choice(LEASES_S),
            summary=summary,
        )
        facts.append(ClusterObserved(fleet.facts[name]))
        if own:
            fleet.nodes[name] = own
            facts += into_buckets(name, own.values(), BUCKETS)
    fleet.random.shuffle(facts)
    return facts


def _nodes(fleet: Fleet, cluster: str) -> dict[str, Node]:
    return {
        node.name: node
        for node in (_node(fleet, f"{cluster}-n{i}") for i in range(1 + fleet.random.randrange(6)))
    }


def _node(fleet: Fleet, name: str) -> Node:
    gpus = fleet.random.choice((0, 0, 2, 4))
    return Node(
        name,
        {
            "cpu": fleet.random.choice((2000, 4000, 8000)),
            "memory": 16 * GIB,
            "pods": fleet.random.choice((5, 20)),
        },
        (Device(fleet.random.choice(("T4", "A100"))),) * gpus,
        {"disk": fleet.random.choice(("ssd", "hdd")), **({"host": name} if fleet.traits else {})},
        (NODE_TAINTS[0],) if gpus and fleet.chance(2) else (),
    )


def _bindings(fleet: Fleet, count: int) -> list[Value]:
    return [
        _requested(fleet, f"{fleet.number:03d}/app-{len(fleet.bindings) + i}") for i in range(count)
    ]


def _classes(fleet: Fleet) -> tuple[Requirements, ...]:
    more = (*(TRAITED if fleet.traits else ()), *((PACKED,) if fleet.configured else ()))
    return (*CLASSES, *more)


def _requested(fleet: Fleet, name: str) -> BindingRequested:
    choice = fleet.random.choice
    placement = Placement(
        choice(AFFINITIES), choice(TOLERATIONS), choice(SPREADS), choice(DIVISIONS)
    )
    fleet.bindings[name] = Binding(
        name,
        f"uid-{name}",
        ObjectRef("apps/v1", choice(("Deployment", "Job")), name),
        fleet.random.randrange(9),
        choice(_classes(fleet)),
        placement,
        fleet.random.randrange(3),
        fleet.chance(12),
    )
    if fleet.quotas:
        ref = ObjectRef("apps/v1", "Deployment", name.partition("/")[2], name.partition("/")[0])
        priority_class = choice(("", "high", "low"))
        fleet.bindings[name] = msgspec.structs.replace(
            fleet.bindings[name], resource=ref, priority_class=priority_class
        )
    return BindingRequested(fleet.bindings[name])


# --- what happens to it


def new_bindings(fleet: Fleet) -> list[Value]:
    return _bindings(fleet, 1 + fleet.random.randrange(4))


def binding_changed(fleet: Fleet) -> list[Value]:
    """Other replicas, another shape, or asked to be looked at afresh."""
    name = fleet.one(fleet.bindings)
    if name not in fleet.bindings:
        return []
    changes: tuple[dict[str, Any], ...] = (
        {"replicas": fleet.random.randrange(14)},
        {"requirements": fleet.random.choice(_classes(fleet))},
        {"reschedule": f"again-{fleet.told}"},
        {"suspended": not fleet.bindings[name].suspended},
        {
            "placement": msgspec.structs.replace(
                fleet.bindings[name].placement, replicas=fleet.random.choice(DIVISIONS)
            )
        },
    )
    fleet.bindings[name] = msgspec.structs.replace(
        fleet.bindings[name], **fleet.random.choice(changes)
    )
    return [BindingRequested(fleet.bindings[name])]


def withdrawn(fleet: Fleet) -> list[Value]:
    name = fleet.one(fleet.bindings)
    fleet.bindings.pop(name, None)
    return [BindingWithdrawn(name)]


def cluster_silent(fleet: Fleet) -> list[Value]:
    """Nothing more is heard of it; if its lease is short, others notice before long."""
    fleet.mute[fleet.one(fleet.facts)] = None
    return []


def cluster_back(fleet: Fleet) -> list[Value]:
    fleet.mute.pop(fleet.one(fleet.mute), None)
    return []


def cluster_changed(fleet: Fleet) -> list[Value]:
    """A taint comes or goes, or the cluster is being deleted, or not after all."""
    name = fleet.one(fleet.facts)
    if name not in fleet.facts:
        return []
    facts = fleet.facts[name]
    changes: tuple[dict[str, Any], ...] = (
        {"taints": () if facts.taints else (fleet.random.choice(CLUSTER_TAINTS),)},
        {"taints": () if facts.taints else (CLUSTER_TAINTS[1],)},
        {"deleting": not facts.deleting},
        {"labels": {"tier": fleet.random.choice(("gold", "tin"))}},
    )
    fleet.facts[name] = msgspec.structs.replace(facts, **fleet.random.choice(changes))
    return [ClusterObserved(fleet.facts[name])]


def cluster_forgotten(fleet: Fleet) -> list[Value]:
    name = fleet.one(fleet.facts)
    fleet.facts.pop(name, None)
    fleet.nodes.pop(name, None)
    return [ClusterForgotten(name)]


def node_changed(fleet: Fleet) -> list[Value]:
    """Tainted, cordoned, gone, or a new one."""
    cluster = fleet.one(fleet.nodes)
    own = fleet.nodes.get(cluster)
    if own is None:
        return []
    name = fleet.one(own)
    what = fleet.random.randrange(5)
    if what == 0 or name not in own:
        new = f"{cluster}-n{fleet.told}"
        own[new] = _node(fleet, new)
    elif what == 1:
        del own[name]
    elif what == 2:
        own[name] = msgspec.structs.replace(own[name], unschedulable=not own[name].unschedulable)
    else:
        taints = () if own[name].taints else (fleet.random.choice(NODE_TAINTS),)
        own[name] = msgspec.structs.replace(own[name], taints=taints)
    return [*into_buckets(cluster, own.values(), BUCKETS)]


def pods_seen(fleet: Fleet) -> list[Value]:
    """Pods that somebody else has put there."""
    cluster = fleet.one(fleet.nodes)
    own = fleet.nodes.get(cluster)
    if not own:
        return []
    node = fleet.one(own)
    pods = [
        Pod(
            f"{node}-p{i}",
            f"p{i}",
            fleet.random.choice((*CLASSES[:2], *_classes(fleet)[len(CLASSES) :])),
            node,
        )
        for i in range(fleet.random.randrange(4))
    ]
    return [PodsObserved(cluster, node, tuple(pods))]


def said_again(fleet: Fleet) -> list[Value]:
    """Old facts come once more, late and in another order: told under a new id, as a collector that
    re-lists tells them."""
    old = [fleet.random.choice(fleet.said) for _ in range(4)] if fleet.said else []
    return [one for one in old if not isinstance(one, ClusterForgotten | BindingWithdrawn)]


def proposed(fleet: Fleet) -> list[Value]:
    """By an operator, who need not know what is the case."""
    binding, cluster = fleet.one(fleet.bindings), fleet.one(fleet.facts)
    node = fleet.one(fleet.nodes.get(cluster, ()))
    return [
        fleet.random.choice(
            (
                FailoverProposed(fleet.stream, binding, cluster, "drill"),
                EvictionProposed(fleet.stream, binding, cluster, "drill"),
                RescheduleProposed(fleet.stream, binding, "drill"),
                NodeRemovalProposed(cluster_stream(cluster), cluster, node, "drill"),
            )
        )
    ]


def time_passed(fleet: Fleet) -> list[Value]:
    """Long enough for leases and tolerations to end; who is heard meanwhile is heard."""
    for _ in range(4):
        fleet.tell((), after_s=12)
    return []


def restarted(fleet: Fleet) -> list[Value]:
    fleet.restart(FleetDecider(), ClusterDecider())
    return []


def restarted_with_other_settings(fleet: Fleet) -> list[Value]:
    strategy = fleet.random.choice(
        (ClusterProfile("least-allocated"), ClusterProfile("most-allocated"))
    )
    fleet.restart(FleetDecider(round_limit=fleet.random.choice((3, 500))), ClusterDecider(strategy))
    return []


def quotas_seen(fleet: Fleet) -> list[Value]:
    cluster, namespace = fleet.one(fleet.facts), f"{fleet.number:03d}"
    scopes = (
        (),
        (),
        (Requirement("PriorityClass", "In", ("high",)),),
        (Requirement("PriorityClass", "Exists"),),
    )
    quotas = tuple(
        Quota(
            namespace,
            f"quota-{i}",
            {"requests.cpu": fleet.random.choice((500, 2000, 9000)), "pods": 12},
            {"requests.cpu": fleet.random.choice((0, 0, 1500)), "pods": fleet.random.randrange(4)},
            fleet.random.choice(scopes),
        )
        for i in range(fleet.random.randrange(3))
    )
    return [QuotasObserved(cluster, namespace, quotas)] if cluster in fleet.facts else []


def grades_seen(fleet: Fleet) -> list[Value]:
    """Of a cluster that reports no nodes; the others are heard to have some, which nobody looks
    at."""
    name = fleet.one(fleet.facts)
    if name not in fleet.facts:
        return []
    grades = tuple(
        NodeGrade({"cpu": cpu, "memory": 8 * GIB}, fleet.random.randrange(4))
        for cpu in (500, 2000, 4000)
    )
    summary = ResourceSummary({"cpu": 16_000, "memory": 64 * GIB, "pods": 40}, grades=grades)
    fleet.facts[name] = msgspec.structs.replace(fleet.facts[name], summary=summary)
    return [ClusterObserved(fleet.facts[name])]


def load_measured(fleet: Fleet) -> list[Value]:
    """Of some nodes; of one cluster; or the policy that makes anything of it comes or goes."""
    cluster = fleet.one(fleet.nodes)
    if fleet.chance(3):
        return [LOAD_POLICY if fleet.chance(2) else PolicyRemoved("DynamicSchedulerPolicy", "load")]
    loads = {
        n: fleet.random.choice((5_000, 40_000, 90_000))
        for n in sorted(fleet.nodes.get(cluster, ()))
        if not fleet.chance(4)
    }
    hot = {n: 2 for n in loads if fleet.chance(3)}
    return [
        NodeLoadObserved(cluster, "cpu", 15, fleet.world.at, loads),
        HotValueObserved(cluster, fleet.world.at, hot),
    ]


def objects_seen(fleet: Fleet) -> list[Value]:
    cluster = fleet.one(fleet.nodes)
    budget = DisruptionBudget(
        "", "app", fleet.random.choice(APPS), allowed=fleet.random.randrange(2)
    )
    return [
        ObjectsObserved(cluster, "PodDisruptionBudget", "", (budget,) if fleet.chance(2) else ()),
        ObjectsObserved(cluster, "Namespace", "", (NamespaceLabels("default", {"tier": "gold"}),)),
        ObjectsObserved(
            cluster,
            "Service",
            "",
            (PodSelecting("Service", "", "y", APPS[1]),) if fleet.chance(2) else (),
        ),
    ]


def replicas_run(fleet: Fleet) -> list[Value]:
    """What was placed on a node is seen there, or some of it, or what was let go still is."""
    states = [s for s in fleet.world.cluster_states() if s.book.on_node]
    if not states:
        return []
    state = fleet.random.choice(states)
    node = fleet.random.choice(sorted({*state.book.on_node, *state.book.pods}))
    own = [
        Pod(f"{b}-{o}", f"pod-{o}", r.cls.requirements, node, b, o, tuple(r.devices))
        for (b, o), r in sorted(state.book.on_node.get(node, {}).items())
        if not fleet.chance(3)
    ]
    late = [pod for pod in state.book.pods.get(node, ()) if pod.binding and fleet.chance(2)]
    return [PodsObserved(state.cluster, node, tuple({p.uid: p for p in (*late, *own)}.values()))]


def scheduler_configured(fleet: Fleet) -> list[Value]:
    return [
        PACKER if not fleet.chance(3) else PolicyRemoved("KubeSchedulerConfiguration", "packer")
    ]


Happening = Callable[[Fleet], list[Value]]

OF_TRAITS: tuple[Happening, ...] = (
    load_measured,
    load_measured,
    objects_seen,
    replicas_run,
    replicas_run,
    replicas_run,
)

CONFIGURED: tuple[Happening, ...] = (scheduler_configured,)

OF_QUOTAS: tuple[Happening, ...] = (quotas_seen, quotas_seen, quotas_seen, grades_seen)

HAPPENINGS: tuple[Happening, ...] = (
    new_bindings,
    new_bindings,
    binding_changed,
    binding_changed,
    binding_changed,
    withdrawn,
    cluster_silent,
    cluster_back,
    cluster_changed,
    cluster_forgotten,
    node_changed,
    node_changed,
    pods_seen,
    said_again,
    proposed,
    proposed,
    time_passed,
    restarted,
    restarted_with_other_settings,
)
"""What happens more often stands there more often."""
