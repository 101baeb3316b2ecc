"""Laws of placing by traits, over random clusters: what users rely on, whatever happens in which
order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node, needs, observed
from tests.hunting import examples
from tests.properties.test_cluster_stage import check_capacity

from wharfinger.domain.cluster_objects import DisruptionBudget, NamespaceLabels, PodSelecting
from wharfinger.domain.node import Node, Pod
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
from wharfinger.domain.scheduler import Arguments, FitArgs, Profile, SchedulerConfig
from wharfinger.domain.scheduler_points import default_points
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import ObjectsObserved, PodsObserved
from wharfinger.events.decisions import ReplicasPlaced, ReplicasReleased
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head, step
from wharfinger.stages.cluster import ClusterDecider, ClusterProfile, ClusterStageState
from wharfinger.stages.cluster.preemption import PREEMPTED
from wharfinger.stages.cluster.profile import IMMEDIATE, Window

BINDINGS = tuple("abcdef")
SECOND = 1_000_000
APPS = tuple(LabelSelector({"app": app}) for app in "xyz")
BY_ZONE = tuple(TopologySpread("zone", skew, selector=APPS[0]) for skew in (1, 2))


def shaped(app: str, cpu: int = 500, **traits: object) -> Requirements:
    return msgspec.structs.replace(needs(cpu), pod=PodTraits(labels={"app": app}, **traits))  # type: ignore[arg-type]


SPREAD = tuple(shaped("x", 300, spread=(one,)) for one in BY_ZONE[:1])
APART = shaped("y", 200, anti_affinity=(PodTerm("host", APPS[1]),))
SHY = shaped("z", 200, anti_affinity=(PodTerm("zone", APPS[1]),))
TOGETHER = shaped("w", 100, affinity=(PodTerm("zone", APPS[1]),))
LISTENING = shaped("l", 100, ports=(HostPort(80),))
LOCALLY = shaped("l", 100, ports=(HostPort(80, ip="10.0.0.1"), HostPort(443)))
CROWD = shaped("c", 700, group="crowd", min_count=3)
CROWD_TOO = shaped("d", 300, group="crowd", min_count=3)
PACKED = shaped("p", 400, scheduler="packer")
LOST = shaped("q", 400, scheduler="nobody")
GATED = shaped("g", gates=("wait",))
LIKING = shaped("v", 100, preferred_affinity=(WeightedPodTerm(10, PodTerm("host", APPS[1])),))
PLAIN = needs(1500)
CLASSES = (
    *SPREAD,
    APART,
    SHY,
    TOGETHER,
    LISTENING,
    LOCALLY,
    CROWD,
    CROWD,
    CROWD_TOO,
    PACKED,
    LOST,
    GATED,
    LIKING,
    PLAIN,
    PLAIN,
)

PACKER = PolicyApplied(
    Policy(
        "KubeSchedulerConfiguration",
        "ours",
        scheduler=SchedulerConfig(
            (Profile("packer", default_points(), Arguments(fit=FitArgs("MostAllocated"))),)
        ),
    )
)
LOAD = PolicyApplied(
    Policy(
        "DynamicSchedulerPolicy",
        "load",
        load=LoadPolicy(
            (SyncPeriod("cpu", 2),),
            (LoadLimit("cpu", 80_000),),
            (LoadWeight("cpu", 1000),),
            (HotWindow(5, 2),),
        ),
    )
)


def some_nodes(draw: st.DrawFn) -> list[Node]:
    return [
        a_node(
            f"n{i}",
            cpu=draw(st.sampled_from((1000, 2000, 4000))),
            labels={"zone": f"z{i % 3}", "host": f"n{i}"},
        )
        for i in range(draw(st.integers(2, 6)))
    ]


def some_pods(draw: st.DrawFn, state: ClusterStageState, node: str) -> PodsObserved:
    """Foreign pods, and of our own replicas there some that run; of those that were let go a few
    still run."""
    own = [
        Pod(f"{b}-{o}", f"{b}-{o}", r.cls.requirements, node, b, o)
        for (b, o), r in sorted(state.book.on_node.get(node, {}).items())
        if draw(st.booleans())
    ]
    before = [p for p in state.book.pods.get(node, ()) if p.binding and draw(st.booleans())]
    foreign = [
        Pod(
            f"{node}-f{i}",
            f"f{i}",
            draw(st.sampled_from((APART, LISTENING, PLAIN, *SPREAD))),
            node,
            priority=-5,
        )
        for i in range(draw(st.integers(0, 1)))
    ]
    return PodsObserved(CLUSTER, node, (*own, *before, *foreign))


def some_event(draw: st.DrawFn, plane: Harness, nodes: list[Node]) -> Iterable[Value]:
    what = draw(st.integers(0, 13))
    if what <= 6:
        plane.seq += 1
        item = Assigned(
            plane.seq,
            f"d{plane.seq}",
            draw(st.sampled_from(BINDINGS)),
            "uid",
            draw(st.integers(0, 4)),
            draw(st.sampled_from(CLASSES)),
            draw(st.integers(0, 3)),
        )
        return [AssignmentsDecided(CLUSTER, "fleet/0", plane.seq, (item,))]
    node = draw(st.sampled_from(nodes))
    if what == 7:
        return [some_pods(draw, plane.state, node.name)]
    if what == 8:
        if len(nodes) > 2 and draw(st.booleans()):
            nodes.remove(node)
        else:
            changed = msgspec.structs.replace(node, unschedulable=not node.unschedulable)
            nodes[nodes.index(node)] = changed
        return observed(nodes)
    if what == 9:
        return [
            draw(st.sampled_from((PACKER, PolicyRemoved("KubeSchedulerConfiguration", "ours"))))
        ]
    if what == 10:
        return [draw(st.sampled_from((LOAD, PolicyRemoved("DynamicSchedulerPolicy", "load"))))]
    if what == 11:
        loads = {
            n.name: draw(st.sampled_from((10_000, 50_000, 90_000)))
            for n in nodes
            if draw(st.integers(0, 4))
        }
        return [
            NodeLoadObserved(CLUSTER, "cpu", 2, plane.at, loads),
            HotValueObserved(CLUSTER, plane.at, {node.name: 3}),
        ]
    if what == 12:
        budget = DisruptionBudget(
            "", "x", draw(st.sampled_from(APPS)), allowed=draw(st.integers(0, 1))
        )
        return [
            ObjectsObserved(
                CLUSTER, "PodDisruptionBudget", "", (budget,) if draw(st.booleans()) else ()
            ),
            ObjectsObserved(
                CLUSTER, "Namespace", "", (NamespaceLabels("default", {"kind": "own"}),)
            ),
            ObjectsObserved(CLUSTER, "Service", "", (PodSelecting("Service", "", "y", APPS[1]),)),
        ]
    return [Ticked(STREAM, plane.at)]


@st.composite
def stories(draw: st.DrawFn) -> Harness:
    """A plane after some rounds; each was checked as it was made."""
    window = draw(st.sampled_from((IMMEDIATE, IMMEDIATE, Window(SECOND, 3 * SECOND))))
    plane = Harness()
    plane.decider = ClusterDecider(ClusterProfile(window=window))
    plane.state = plane.decider.initial(STREAM)
    nodes = some_nodes(draw)
    plane.feed(*observed(nodes))
    for _ in range(draw(st.integers(2, 9))):
        events = [e for _ in range(draw(st.integers(1, 3))) for e in some_event(draw, plane, nodes)]
        before = {b: h.priority for b, h in plane.state.book.held.items()}
        decisions = plane.feed(*events, seconds=draw(st.sampled_from((0, 0, 1, 2, 400))))
        checked(plane, before, decisions)
    return plane


def checked(plane: Harness, before: Mapping[str, int], decisions: list[Decision]) -> None:
    state = plane.state
    if not any(state.book.pods.values()):
        check_capacity(state)
    new = {
        (d.data.binding, ordinal)
        for d in decisions
        if isinstance(d.data, ReplicasPlaced)
        for share in d.data.placed
        for ordinal in share.ordinals
    }
    check_ports(state, new)
    check_apart(state, new)
    check_skew(state, decisions, new)
    check_groups(state)
    check_victims(state, before, decisions)
    due = plane.decider.next_due(state)
    assert due is None or due > plane.at, "what is due now was decided now"


def pods_on(state: ClusterStageState, node: str) -> list[tuple[tuple[str, int], PodTraits]]:
    own = [(key, r.cls.requirements.traits) for key, r in state.book.on_node.get(node, {}).items()]
    seen = {key for key, _ in own}
    others = [
        ((p.uid, -1), p.requirements.traits)
        for p in state.book.pods.get(node, ())
        if (p.binding, p.ordinal) not in seen
    ]
    return [*own, *others]


def check_ports(state: ClusterStageState, new: set[tuple[str, int]]) -> None:
    for node in state.book.nodes:
        for (one, a), (two, b) in combinations(pods_on(state, node), 2):
            if one not in new and two not in new:
                continue
            for p in a.ports:
                for q in b.ports:
                    same = (p.port, p.protocol) == (q.port, q.protocol)
                    assert not (same and (not p.ip or not q.ip or p.ip == q.ip)), (node, one, two)


def check_apart(state: ClusterStageState, new: set[tuple[str, int]]) -> None:
    """Neither does who came stand where it minds others, nor where others mind it."""
    everybody = [
        (key, traits, state.book.nodes[n].labels)
        for n in state.book.nodes
        for key, traits in pods_on(state, n)
    ]
    for (one, a, here), (two, b, there) in combinations(everybody, 2):
        if one in new or two in new:
            for mine, other in ((a, b), (b, a)):
                for term in mine.anti_affinity:
                    assert term.selector is not None
                    near = term.key in here and here.get(term.key) == there.get(term.key)
                    assert not (near and term.selector.matches(other.labels)), (one, two)


def check_skew(
    state: ClusterStageState, decisions: list[Decision], new: set[tuple[str, int]]
) -> None:
    """Where nothing but placing happened: who came stands in no domain that is too far ahead."""
    if not all(isinstance(d.data, ReplicasPlaced) for d in decisions):
        return
    counts: dict[str, int] = {}
    arrived: set[str] = set()
    for name, node in state.book.nodes.items():
        zone = node.labels["zone"]
        counts.setdefault(zone, 0)
        for key, traits in pods_on(state, name):
            if traits.labels.get("app") == "x":
                counts[zone] += 1
                if key in new:
                    arrived.add(zone)
    for zone in arrived:
        assert counts[zone] - min(counts.values()) <= BY_ZONE[0].max_skew


def check_groups(state: ClusterStageState) -> None:
    there = least = 0
    for held in state.book.held.values():
        if held.cls.requirements.traits.group:
            there += len(held.placed)
            least = held.cls.requirements.traits.min_count
    assert there == 0 or there >= least or state.gathering is not None


def check_victims(
    state: ClusterStageState, before: Mapping[str, int], decisions: list[Decision]
) -> None:
    told = {str(h.assignment): h.priority for h in state.book.held.values()}
    for d in decisions:
        if (
            isinstance(d.data, ReplicasReleased)
            and d.data.reason == PREEMPTED
            and str(d.cause) in told
        ):
            assert before.get(d.data.binding, told.get(d.data.assignment, 0)) < told[
                str(d.cause)
            ] or (told[d.data.assignment] < told[str(d.cause)])


@settings(max_examples=examples(120), deadline=None)
@given(stories())
def test_what_users_rely_on_holds_after_every_round(plane: Harness) -> None:
    """The checks are made on the way; here, that all of it is one history."""
    decider = plane.decider
    live = decider.dump(plane.state)
    assert (
        audit(decider, decider.initial(STREAM), empty_head(STREAM), plane.rounds).divergences == []
    )
    assert decider.dump(recover(decider, decider.initial(STREAM), plane.rounds)) == live
    for recorded in plane.rounds:
        for d in recorded.round.decisions:
            assert len(canonical(getattr(d.data, "explanation", None))) <= 2048


@settings(max_examples=examples(80), deadline=None)
@given(stories(), st.integers(1, 9))
def test_a_state_stored_anywhere_goes_on_alike(plane: Harness, cut: int) -> None:
    decider = plane.decider
    before, after = plane.rounds[:cut], plane.rounds[cut:]
    half = recover(decider, decider.initial(STREAM), before)
    loaded = decider.load(STREAM, decider.dump(half))
    assert decider.dump(loaded) == decider.dump(half)
    assert decider.next_due(loaded) == decider.next_due(half)
    head = before[-1].round.head()
    for recorded in after:
        again = step(decider, loaded, head, recorded.events, recorded.round.at, {})
        assert again.decisions == recorded.round.decisions
        head = again.head()
    assert decider.dump(loaded) == decider.dump(plane.state)
