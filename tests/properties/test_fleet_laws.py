"""Laws of the fleet stage, over random histories: clusters come, fill, fall silent and go, bindings
change, replicas are refused, proposals are made, and whatever happened the history can be gone
through again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.scenarios.fleet_plane import STREAM, FleetPlane

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster, ResourceSummary
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
    StaticWeight,
)
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated, DeviceTotals
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import (
    BindingReleased,
    ProposalRefused,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.envelope import Event
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.kernel.recover import recover
from wharfinger.rules.clusters.filters import first_refusal
from wharfinger.rules.clusters.rule import ClusterQuery
from wharfinger.stages.fleet.explain import LIMIT

CLUSTERS = ("bergen", "narvik", "oslo", "tromso")
BINDINGS = ("api", "db", "job", "web")
CLASSES = (
    Requirements({"cpu": 1000}),
    Requirements({"cpu": 500, "memory": 1 << 30}),
    Requirements({"cpu": 100}, (DeviceRequest(1, 500),)),
    Requirements(),
)
STRATEGIES = (
    ReplicaScheduling("Duplicated"),
    ReplicaScheduling("Divided", "Aggregated"),
    ReplicaScheduling("Divided", "Weighted", dynamic=True),
    ReplicaScheduling("Divided", "Weighted"),
    ReplicaScheduling(
        "Divided", "Weighted", (StaticWeight(ClusterAffinity(cluster_names=("oslo", "bergen")), 2),)
    ),
)
AFFINITIES: tuple[tuple[ClusterAffinity, ...], ...] = (
    (),
    (ClusterAffinity(exclude=("narvik",)),),
    (ClusterAffinity("near", ("oslo",)), ClusterAffinity("far", ("bergen", "tromso"))),
)
SPREADS: tuple[tuple[SpreadConstraint, ...], ...] = (
    (),
    (),
    (),
    (),
    (SpreadConstraint("cluster", min_groups=1, max_groups=2),),
    (
        SpreadConstraint("region", min_groups=1, max_groups=2),
        SpreadConstraint("cluster", min_groups=1, max_groups=3),
    ),
    (SpreadConstraint("cluster", min_groups=3, max_groups=2),),
)
TAINTS = (Taint("closed", "NoSchedule"), Taint("broken", "NoExecute"))
TOLERATIONS = (
    Toleration("closed", "Exists"),
    Toleration("broken", "Exists", seconds=2),
    Toleration("broken", "Exists"),
)


def some(values: Sequence[Any], most: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.sampled_from(values), max_size=most, unique_by=lambda v: canonical(v)).map(
        tuple
    )


@dataclass(frozen=True)
class RefuseSome:
    """A cluster gives back some of what a binding has there, if it has any."""

    binding: str
    cluster: str
    count: int


@dataclass(frozen=True)
class Wait:
    tenths: int


placements = st.builds(
    Placement,
    st.sampled_from(AFFINITIES),
    some(TOLERATIONS, 2),
    st.sampled_from(SPREADS),
    st.sampled_from(STRATEGIES),
)
bindings = st.builds(
    lambda name, replicas, kind, placement, priority, suspended, token: BindingRequested(
        Binding(
            name,
            f"uid-{name}",
            ObjectRef("apps/v1", "Deployment", name),
            replicas,
            kind,
            placement,
            priority,
            suspended,
            token,
        )
    ),
    st.sampled_from(BINDINGS),
    st.integers(0, 6),
    st.sampled_from(CLASSES),
    placements,
    st.integers(0, 2),
    st.integers(0, 9).map(lambda n: n == 0),
    st.sampled_from(("", "again")),
)
clusters = st.builds(
    lambda name, taints, kinds, lease, deleting, summary: ClusterObserved(
        Cluster(
            name,
            region=name[0],
            taints=taints,
            api_kinds=kinds,
            lease_s=lease,
            deleting=deleting,
            summary=summary,
        )
    ),
    st.sampled_from(CLUSTERS),
    some(TAINTS, 1),
    st.sampled_from((None, None, ("apps/v1/Deployment",), ("batch/v1/Job",))),
    st.sampled_from((None, 1, 2)),
    st.integers(0, 9).map(lambda n: n == 0),
    st.sampled_from(
        (None, ResourceSummary({"cpu": 4000, "memory": 8 << 30, "pods": 5}, {"cpu": 500}))
    ),
)
capacities = st.builds(
    lambda name, cpu, counts, through, own: CapacityEstimated(
        name,
        1,
        {"cpu": cpu * 500, "memory": cpu << 29},
        {c.class_key: n for c, n in zip(CLASSES, counts, strict=False) if n is not None},
        {STREAM: through, f"cluster/{name}": own},
        (DeviceTotals("nvidia.com/gpu", "A", cpu // 4, cpu * 250),),
    ),
    st.sampled_from(CLUSTERS),
    st.integers(0, 16),
    st.lists(st.one_of(st.none(), st.integers(0, 8)), max_size=3),
    st.integers(0, 60),
    st.integers(0, 6),
)
proposals = st.one_of(
    st.builds(
        FailoverProposed, st.just(STREAM), st.sampled_from(BINDINGS), st.sampled_from(CLUSTERS)
    ),
    st.builds(
        EvictionProposed, st.just(STREAM), st.sampled_from(BINDINGS), st.sampled_from(CLUSTERS)
    ),
    st.builds(RescheduleProposed, st.just(STREAM), st.sampled_from(BINDINGS)),
)
happenings = st.one_of(
    bindings,
    bindings,
    clusters,
    capacities,
    capacities,
    proposals,
    st.builds(BindingWithdrawn, st.sampled_from(BINDINGS)),
    st.builds(ClusterForgotten, st.sampled_from(CLUSTERS)),
    st.builds(RefuseSome, st.sampled_from(BINDINGS), st.sampled_from(CLUSTERS), st.integers(1, 3)),
    st.builds(Wait, st.integers(1, 30)),
    proposals,
)
histories = st.lists(st.lists(happenings, min_size=1, max_size=4), min_size=1, max_size=14)


def start(plane: FleetPlane) -> None:
    """Most histories are dull without a fleet and something on it to begin with."""
    for name in CLUSTERS[:3]:
        plane.given(
            ClusterObserved(Cluster(name, region=name[0], lease_s=1 if name == "oslo" else 60)),
            CapacityEstimated(name, 1, {"cpu": 6000, "memory": 8 << 30}, {CLASSES[0].class_key: 6}),
        )
    for name, how in (("web", STRATEGIES[2]), ("db", STRATEGIES[1]), ("api", STRATEGIES[0])):
        tolerations = TOLERATIONS[1:2] if name == "web" else ()
        plane.given(
            BindingRequested(
                Binding(
                    name,
                    f"uid-{name}",
                    ObjectRef("apps/v1", "Deployment", name),
                    3,
                    CLASSES[0],
                    Placement(tolerations=tolerations, replicas=how),
                )
            )
        )


def live(plane: FleetPlane, happened: Sequence[object]) -> None:
    """One round of what happened, with waiting done before it."""
    facts: list[Value] = []
    for one in happened:
        if isinstance(one, Wait):
            plane.wait(one.tenths / 10)
        elif isinstance(one, RefuseSome):
            record = plane.state.bindings.get(one.binding)
            if (
                record is not None
                and one.cluster in record.targets
                and one.cluster in record.assigned_by
            ):
                facts.append(
                    plane.refused(one.cluster, one.binding, one.count, record.spec.requirements)
                )
        else:
            assert isinstance(one, Value)
            facts.append(one)
    if facts:
        plane.when(*facts)


def run(history: Sequence[Sequence[object]]) -> FleetPlane:
    plane = FleetPlane()
    start(plane)
    for happened in history:
        live(plane, happened)
    return plane


many = settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@many
@given(histories)
def test_history_can_be_gone_through_again(history: list[list[object]]) -> None:
    """Recovered equals live, loaded equals dumped, and deciding again decides the same bytes."""
    run(history).check()


@many
@given(histories, histories, st.booleans())
def test_a_loaded_or_recovered_state_goes_on_as_the_live_one(
    before: list[list[object]], after: list[list[object]], recovered: bool
) -> None:
    plane = run(before)
    decider = plane.decider
    if recovered:
        other = recover(decider, decider.initial(STREAM), plane.rounds)
    else:
        other = decider.load(STREAM, decider.dump(plane.state))
    head, known = plane.head, len(plane.rounds)
    for happened in after:
        live(plane, happened)
    plane.check_goes_on_alike(other, head, known)


@many
@given(histories)
def test_redelivery_changes_nothing(history: list[list[object]]) -> None:
    plane = run(history)
    before = plane.decider.dump(plane.state)
    last: dict[tuple[str, str], Event[Value]] = {}
    for recorded in plane.rounds:
        for event in recorded.events:
            key = (
                getattr(event.data, "cluster", None)
                or getattr(event.data, "binding", None)
                or event.data
            )
            name = getattr(key, "name", key)
            last[type(event.data).__name__, str(name)] = event
    for event in last.values():
        if _says_what_holds(plane, event.data) or isinstance(event.data, OutcomesDecided):
            plane.decider.fold_input(plane.state, event, plane.at)
    assert plane.decider.dump(plane.state) == before
    assert list(plane.decider.decide(plane.state, plane.at)) == []


def _says_what_holds(plane: FleetPlane, data: Value) -> bool:
    match data:
        case CapacityEstimated():
            cluster = plane.state.clusters.get(data.cluster)
            return cluster is not None and cluster.capacity == data
        case BindingRequested(binding=spec):
            record = plane.state.bindings.get(spec.name)
            return record is not None and not record.withdrawn and record.spec == spec
        case _:
            return False


@many
@given(histories)
def test_every_decision_keeps_the_laws(history: list[list[object]]) -> None:
    plane = FleetPlane()
    start(plane)
    for happened in history:
        asked = [one.binding for one in happened if isinstance(one, BindingRequested)]
        live(plane, happened)
        for decision in plane.last:
            data = decision.data
            if isinstance(data, ScheduleDecided | ScheduleRefused):
                assert len(canonical(data.explanation)) <= LIMIT
                held = {t.cluster: t.replicas for t in data.targets}
                assert all(n >= 0 for n in held.values())
                assert list(held) == sorted(held)
            if isinstance(data, ScheduleDecided):
                _holds_what_is_wanted(plane, data)
                _new_targets_are_feasible(plane, data)
        wanted = {b.name: b for b in asked}
        for name, spec in wanted.items():
            record = plane.state.bindings.get(name)
            if record is not None and record.spec == spec and not spec.suspended:
                assert not record.asked, "every request is answered in its round"
        assert plane.state.proposals.open == {}, "every proposal is answered in its round"


def _holds_what_is_wanted(plane: FleetPlane, data: ScheduleDecided) -> None:
    spec = plane.state.bindings[data.binding].spec if data.binding in plane.state.bindings else None
    counted = {t.cluster: t.replicas for t in data.targets if t.cluster not in data.suspect}
    if spec is None:
        return
    if spec.placement.replicas.type == "Duplicated" and data.replicas:
        assert set(counted.values()) <= {data.replicas}
    else:
        assert sum(counted.values()) == data.replicas


def _new_targets_are_feasible(plane: FleetPlane, data: ScheduleDecided) -> None:
    record = plane.state.bindings.get(data.binding)
    previous = {t.cluster for t in data.previous}
    for target in data.targets:
        if target.cluster in previous or record is None:
            continue
        facts = plane.state.clusters[target.cluster].facts
        assert facts is not None
        term = next(
            (t for t in record.spec.placement.terms if t.name == data.affinity),
            record.spec.placement.terms[0],
        )
        question = ClusterQuery(record.spec.placement, term, record.spec.resource.gvk)
        assert first_refusal(question, facts) is None


@many
@given(histories, st.sampled_from(STRATEGIES[1:3]), st.integers(1, 5), st.integers(1, 5))
def test_scaling_up_takes_nothing_away(
    history: list[list[object]], how: ReplicaScheduling, replicas: int, more: int
) -> None:
    """What a divided binding holds by capacity stays where it is when it grows."""
    plane = run(history)
    small = Binding(
        "grows",
        "uid",
        ObjectRef("apps/v1", "Deployment", "grows"),
        replicas,
        CLASSES[0],
        Placement(replicas=how),
    )
    plane.when(BindingRequested(small))
    before = plane.holds("grows")
    plane.when(BindingRequested(msgspec.structs.replace(small, replicas=replicas + more)))
    after = plane.holds("grows")
    if before:
        assert all(after.get(name, 0) >= n for name, n in before.items())
        assert sum(after.values()) in (replicas, replicas + more)


@many
@given(
    st.lists(st.one_of(clusters, capacities), min_size=1, max_size=8),
    bindings,
    st.randoms(use_true_random=False),
)
def test_the_order_of_clusters_before_a_binding_changes_nothing(
    facts: list[Value], binding: BindingRequested, random: Any
) -> None:
    """Events of different clusters may arrive in any order; those of one cluster come in theirs."""
    of = {name: [f for f in facts if _cluster(f) == name] for name in CLUSTERS}
    order = [name for name, own in of.items() for _ in own]
    random.shuffle(order)
    left = {name: iter(own) for name, own in of.items()}
    shuffled = [next(left[name]) for name in order]
    answers = []
    for told in (facts, shuffled):
        plane = FleetPlane()
        plane.when(*told, binding)
        answers.append([d.body for d in plane.last])
    assert answers[0] == answers[1]


def _cluster(fact: Value) -> str:
    return fact.cluster.name if isinstance(fact, ClusterObserved) else getattr(fact, "cluster", "")


wild = st.integers(-(2**63), 2**63 - 1)


@many
@given(
    st.lists(
        st.one_of(
            st.builds(
                lambda n, r, cpu, milli, count, w, lo, hi, how: BindingRequested(
                    Binding(
                        n,
                        "u",
                        ObjectRef("v", "K", n),
                        r,
                        Requirements({"cpu": cpu}, (DeviceRequest(count, milli),)),
                        Placement(
                            spread=(SpreadConstraint("cluster", min_groups=lo, max_groups=hi),)
                            if hi % 2
                            else (),
                            replicas=msgspec.structs.replace(
                                how, static=(StaticWeight(ClusterAffinity(), w),)
                            ),
                        ),
                    )
                ),
                st.text(max_size=300),
                wild,
                wild,
                wild,
                wild,
                wild,
                wild,
                wild,
                st.sampled_from(STRATEGIES),
            ),
            st.builds(
                lambda n, lease: ClusterObserved(
                    Cluster(n, lease_s=lease, summary=ResourceSummary({"cpu": lease}))
                ),
                st.sampled_from(("a", "ø" * 250, "\x00" * 250)),
                wild,
            ),
            st.builds(
                lambda n, cpu, count, t: CapacityEstimated(
                    n, 1, {"cpu": cpu}, {CLASSES[0].class_key: count}, {STREAM: t}
                ),
                st.sampled_from(("a", "ø" * 250, "\x00" * 250)),
                wild,
                wild,
                wild,
            ),
        ),
        max_size=8,
    )
)
def test_no_decodable_input_makes_the_stage_raise(facts: list[Value]) -> None:
    plane = FleetPlane()
    plane.when(*facts)
    for data in plane.decided:
        if isinstance(data, ScheduleDecided | ScheduleRefused):
            assert len(canonical(data.explanation)) <= LIMIT
    plane.when(*facts)
    assert not [d for d in plane.decided if isinstance(d, BindingReleased | ProposalRefused)]
    plane.check()
