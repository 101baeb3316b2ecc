"""Laws over histories in which everything happens that a policy may ask for: moves, quotas, taints
by condition, pauses, both ways to fail over. Wherever such a stream is taken up again, it goes on
as it would have."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.scenarios.fleet_plane import STREAM, FleetPlane, a_cluster, room, withdrawn

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling, Steadiness
from wharfinger.domain.policy import ConditionMatch, ConditionTaints, FederatedQuota, Policy
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import ScheduleDecided, ScheduleRefused
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.kernel.recover import recover
from wharfinger.stages.fleet.explain import LIMIT
from wharfinger.stages.fleet.fork import fork

CLUSTERS = ("bergen", "narvik", "oslo")
NAMES = ("shop/api", "shop/db", "web")
SMALL = Requirements({"cpu": 1000})
LARGE = Requirements({"cpu": 2000})

GROUPS: tuple[tuple[ClusterAffinity, ...], ...] = (
    (),
    (ClusterAffinity("near", ("oslo",)), ClusterAffinity("far", ("bergen", "narvik"))),
)
STRATEGIES = (
    ReplicaScheduling("Duplicated"),
    ReplicaScheduling("Divided", "Aggregated"),
    ReplicaScheduling("Divided", "Weighted", dynamic=True),
    ReplicaScheduling("Divided", "Weighted"),
)
STEADY = (
    Steadiness(),
    Steadiness(failback_after_s=5, window_s=0),
    Steadiness(failback_after_s=0, rebalance_after_s=0, window_s=20, gain_percent=1),
    Steadiness(rebalance_after_s=8, window_s=10, budget_percent=50),
)

placements = st.builds(
    Placement,
    affinities=st.sampled_from(GROUPS),
    replicas=st.sampled_from(STRATEGIES),
    failover=st.sampled_from(("evict", "reserve")),
    steadiness=st.sampled_from(STEADY),
)
bindings = st.builds(
    lambda name, replicas, asks, placement, priority, scheduler, token: BindingRequested(
        Binding(
            name,
            f"uid-{name}",
            ObjectRef("apps/v1", "Deployment", name, name.rpartition("/")[0]),
            replicas,
            asks,
            placement,
            priority,
            reschedule=token,
            scheduler=scheduler,
        )
    ),
    st.sampled_from(NAMES),
    st.integers(0, 6),
    st.sampled_from((SMALL, SMALL, LARGE)),
    placements,
    st.integers(0, 2),
    st.sampled_from(("", "", "", "default-scheduler", "volcano")),
    st.sampled_from(("", "", "again")),
)
clusters = st.builds(
    lambda name, ready, lease, deleting: ClusterObserved(
        Cluster(
            name, lease_s=lease, deleting=deleting, conditions={"Ready": ready} if ready else {}
        )
    ),
    st.sampled_from(CLUSTERS),
    st.sampled_from(("", "True", "Unknown", "False")),
    st.sampled_from((None, 9)),
    st.integers(0, 11).map(lambda n: n == 0),
)
quotas = st.builds(
    lambda cpu: PolicyApplied(
        Policy("FederatedResourceQuota", "all", "shop", quota=FederatedQuota({"cpu": cpu}))
    ),
    st.integers(-1, 9).map(lambda n: n * 1000),
)
tainting = st.builds(
    lambda effect: PolicyApplied(
        Policy(
            "ClusterTaintPolicy",
            "health",
            taints=ConditionTaints(
                ClusterAffinity(),
                (Taint("not-ready", effect),),
                (ConditionMatch("Ready", "In", ("False",)),),
                (ConditionMatch("Ready", "In", ("True",)),),
            ),
        )
    ),
    st.sampled_from(("NoSchedule", "NoExecute")),
)


def duplicated(name: str, replicas: int) -> BindingRequested:
    """`replicas` small ones in each cluster."""
    resource = ObjectRef("apps/v1", "Deployment", name, name.rpartition("/")[0])
    everywhere = Placement(replicas=ReplicaScheduling("Duplicated"))
    return BindingRequested(Binding(name, f"uid-{name}", resource, replicas, SMALL, everywhere))


happenings = st.one_of(
    bindings,
    bindings,
    clusters,
    clusters,
    st.builds(room, st.sampled_from(CLUSTERS), st.integers(0, 8)),
    st.builds(room, st.sampled_from(CLUSTERS), st.integers(0, 8)),
    quotas,
    tainting,
    st.just(PolicyRemoved("FederatedResourceQuota", "all", "shop")),
    st.just(PolicyRemoved("ClusterTaintPolicy", "health")),
    st.builds(FailoverProposed, st.just(STREAM), st.sampled_from(NAMES), st.sampled_from(CLUSTERS)),
    st.builds(EvictionProposed, st.just(STREAM), st.sampled_from(NAMES), st.sampled_from(CLUSTERS)),
    st.builds(RescheduleProposed, st.just(STREAM), st.sampled_from(NAMES)),
    st.builds(withdrawn, st.sampled_from(NAMES)),
    st.builds(ClusterForgotten, st.sampled_from(CLUSTERS)),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(CLUSTERS)),
    st.sampled_from((0.5, 3.0, 11.0, 40.0)),
)
histories = st.lists(st.lists(happenings, min_size=1, max_size=4), min_size=1, max_size=14)

many = settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def live(plane: FleetPlane, happened: list[object]) -> None:
    """One round of what happened, with waiting done before it. A pair is a cluster that gives back
    what a binding has there."""
    facts: list[Value] = []
    for one in happened:
        if isinstance(one, float):
            plane.wait(one)
        elif isinstance(one, tuple):
            binding, cluster = one
            record = plane.state.bindings.get(binding)
            if record is not None and cluster in record.targets and cluster in record.assigned_by:
                facts.append(plane.refused(cluster, binding, 1, record.spec.requirements))
        else:
            assert isinstance(one, Value)
            facts.append(one)
    if facts:
        plane.when(*facts)


def begun(history: list[list[object]]) -> FleetPlane:
    plane = FleetPlane()
    plane.given(*(a_cluster(name, lease_s=9 if name == "oslo" else None) for name in CLUSTERS))
    plane.given(*(room(name, 5) for name in CLUSTERS))
    for happened in history:
        live(plane, happened)
    return plane


@many
@given(histories, histories, st.sampled_from(("loaded", "recovered", "copied")))
def test_a_stream_taken_up_anywhere_goes_on_alike(
    before: list[list[object]], after: list[list[object]], how: str
) -> None:
    plane = begun(before)
    decider = plane.decider
    match how:
        case "loaded":
            other = decider.load(STREAM, decider.dump(plane.state))
        case "recovered":
            other = recover(decider, decider.initial(STREAM), plane.rounds)
        case _:
            other = fork(plane.state)
    head, known = plane.head, len(plane.rounds)
    for happened in after:
        live(plane, happened)
    plane.check_goes_on_alike(other, head, known)
    plane.check()


@many
@given(histories)
def test_every_decision_says_why_in_few_bytes_and_no_move_changes_the_count(
    history: list[list[object]],
) -> None:
    for recorded in begun(history).rounds:
        for decision in recorded.round.decisions:
            data = decision.data
            if isinstance(data, ScheduleDecided | ScheduleRefused):
                assert data.explanation.why
                assert data.trigger != "AvoidSchedule"
                assert len(canonical(data.explanation)) <= LIMIT
            if isinstance(data, ScheduleDecided) and data.move:
                assert count(data.targets) == count(data.previous) == data.replicas


@many
@given(histories)
@example([[withdrawn("web")], [room("bergen", 0), duplicated("web", 2)], [duplicated("web", 1)]])
def test_no_refusal_takes_away_what_no_cluster_gave_back(history: list[list[object]]) -> None:
    """Whatever the policy, the quota, the room: a round in which no cluster refuses, expels or
    leaves wipes nothing by refusing. Where fewer replicas are asked for than before, only what is
    too many goes."""
    asked: dict[str, int] = {}
    for recorded in begun(history).rounds:
        unforced = not any(
            isinstance(event.data, OutcomesDecided | ClusterForgotten) for event in recorded.events
        )
        for decision in recorded.round.decisions:
            data = decision.data
            if (
                isinstance(data, ScheduleRefused)
                and data.trigger != "FailoverSchedule"
                and unforced
            ):
                kept = {t.cluster: t.replicas for t in data.targets}
                if data.replicas < asked.get(data.binding, 0):
                    assert count(data.targets) >= min(count(data.previous), data.replicas)
                else:
                    assert all(kept.get(t.cluster, 0) >= t.replicas for t in data.previous)
            if isinstance(data, ScheduleDecided | ScheduleRefused):
                asked[data.binding] = data.replicas


def count(targets: Sequence[TargetCluster]) -> int:
    return sum(t.replicas for t in targets)


@many
@given(histories)
def test_left_to_itself_every_history_comes_to_an_end(history: list[list[object]]) -> None:
    """Pauses end, moves end, and then nothing is due any more but leases."""
    plane = begun(history)
    for _ in range(200):
        due = plane.decider.next_due(plane.state)
        if due is None or (
            plane.state.cluster_index.leases.next() == due and not plane.state.silent
        ):
            break
        plane.wait((due - plane.at) / 1_000_000 + 0.001)
    else:
        raise AssertionError("there was no end")
