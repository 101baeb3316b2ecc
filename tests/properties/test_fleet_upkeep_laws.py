"""Laws over histories in which bindings fall ill, wait for their replacement, find no node and are
moved for a price: taken up anywhere they go on alike, nothing is left with nothing, budgets hold,
and they come to an end."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.properties.test_fleet_behaviour_laws import CLUSTERS, LARGE, NAMES, SMALL, live, many
from tests.scenarios.fleet_plane import STREAM, FleetPlane, a_binding, a_cluster, room, withdrawn

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ApplicationFailover, Placement, ReplicaScheduling
from wharfinger.domain.policy import Policy
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import ScheduleDecided, ScheduleRefused
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.kernel.recover import recover
from wharfinger.stages.fleet.explain import LIMIT
from wharfinger.stages.fleet.fork import fork

PRICE = "wharfinger.io/price-per-core"
KEY = "RebalancePolicy//steady"

placements = st.builds(
    Placement,
    replicas=st.sampled_from(
        (
            ReplicaScheduling("Duplicated"),
            ReplicaScheduling("Divided", "Aggregated"),
            ReplicaScheduling("Divided", "Weighted", dynamic=True),
            ReplicaScheduling("Divided", "Weighted"),
        )
    ),
    failover=st.sampled_from(("evict", "reserve")),
    application=st.sampled_from(
        (
            None,
            ApplicationFailover(1, "Gracefully", 10),
            ApplicationFailover(1, "Directly", 10),
            ApplicationFailover(1, "Never"),
        )
    ),
    cluster_purge=st.sampled_from(("Directly", "Gracefully")),
)
bindings = st.builds(
    lambda name, replicas, asks, placement, token: BindingRequested(
        Binding(
            name,
            f"uid-{name}",
            ObjectRef("apps/v1", "Deployment", name),
            replicas,
            asks,
            placement,
            reschedule=token,
        )
    ),
    st.sampled_from(NAMES),
    st.integers(0, 6),
    st.sampled_from((SMALL, SMALL, LARGE)),
    placements,
    st.sampled_from(("", "", "again")),
)
clusters = st.builds(
    lambda name, lease, price, tainted: ClusterObserved(
        Cluster(
            name,
            {PRICE: price} if price else {},
            lease_s=lease,
            taints=(Taint("broken", "NoExecute"),) if tainted else (),
        )
    ),
    st.sampled_from(CLUSTERS),
    st.sampled_from((None, 9)),
    st.sampled_from(("", "0.1", "0.2")),
    st.booleans(),
)


def counted(name: str, free: int, made: int, price: int) -> CapacityEstimated:
    """Room for both classes, and what pools could make."""
    classes = {SMALL.class_key: free, LARGE.class_key: free // 2}
    made_of = {SMALL.class_key: made, LARGE.class_key: made // 2} if made else {}
    return CapacityEstimated(
        name,
        1,
        {"cpu": 1000 * free},
        classes,
        provisionable=made_of,
        price_of=dict.fromkeys(made_of, price),
    )


capacities = st.builds(
    counted,
    st.sampled_from(CLUSTERS),
    st.integers(0, 8),
    st.sampled_from((0, 0, 2, 9)),
    st.integers(1, 3),
)
evictions = st.builds(
    EvictionProposed,
    st.just(STREAM),
    st.sampled_from(NAMES),
    st.sampled_from(CLUSTERS),
    st.just(""),
    st.sampled_from(("taint", "unhealthy", "unhealthy", "unschedulable", "replaced")),
    st.integers(0, 3),
)
targets = st.dictionaries(st.sampled_from(CLUSTERS), st.integers(1, 4), min_size=1).map(
    lambda named: tuple(TargetCluster(c, n) for c, n in sorted(named.items()))
)
moves = st.builds(
    RescheduleProposed,
    st.just(STREAM),
    st.sampled_from(NAMES),
    st.just("by a policy"),
    targets,
    st.just(""),
    st.sampled_from(("cost", "spread", "even")),
    st.just(0),
    st.just(KEY),
)
policies = st.builds(
    lambda objective, budget: PolicyApplied(
        Policy(
            "RebalancePolicy",
            "steady",
            rebalancing=RebalancePolicy(
                objective, gain_percent=1, budget_percent=budget, window_s=20
            ),
        )
    ),
    st.sampled_from(("cost", "load", "spread", None)),
    st.sampled_from((10, 50, 100)),
)
happenings = st.one_of(
    bindings,
    bindings,
    clusters,
    capacities,
    capacities,
    evictions,
    evictions,
    moves,
    policies,
    st.just(PolicyRemoved("RebalancePolicy", "steady")),
    st.builds(FailoverProposed, st.just(STREAM), st.sampled_from(NAMES), st.sampled_from(CLUSTERS)),
    st.builds(withdrawn, st.sampled_from(NAMES)),
    st.builds(ClusterForgotten, st.sampled_from(CLUSTERS)),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(CLUSTERS)),
    st.sampled_from((0.5, 3.0, 11.0, 700.0)),
)
histories = st.lists(st.lists(happenings, min_size=1, max_size=4), min_size=1, max_size=14)


def begun(history: Sequence[list[object]]) -> FleetPlane:
    plane = FleetPlane()
    plane.given(*(a_cluster(name, lease_s=9 if name == "oslo" else None) for name in CLUSTERS))
    plane.given(*(counted(name, 5, 0, 0) for name in CLUSTERS))
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
def test_what_leaves_is_among_the_suspects_and_is_decided_in_full_elsewhere(
    history: list[list[object]],
) -> None:
    for recorded in begun(history).rounds:
        for decision in recorded.round.decisions:
            data = decision.data
            if not isinstance(data, ScheduleDecided):
                continue
            assert len(canonical(data.explanation)) <= LIMIT
            assert (
                {one.cluster for one in data.leaving}
                <= set(data.suspect)
                <= {t.cluster for t in data.targets}
            )
            if data.replicas and {t.replicas for t in data.targets} != {data.replicas}:
                # not a copy each
                assert (
                    sum(t.replicas for t in data.targets if t.cluster not in data.suspect)
                    == data.replicas
                )


@many
@given(histories)
def test_nothing_but_a_taint_takes_what_has_no_other_place(history: list[list[object]]) -> None:
    """An eviction for illness, for want of a node, or because a copy has been replaced is never
    answered by a refusal to place."""
    for recorded in begun(history).rounds:
        proposed = {e.id: e.data for e in recorded.events if isinstance(e.data, EvictionProposed)}
        for decision in recorded.round.decisions:
            proposal = proposed.get(decision.cause) if decision.cause is not None else None
            if proposal is not None and proposal.cause != "taint":
                assert not isinstance(decision.data, ScheduleRefused)


@many
@given(histories)
def test_left_to_itself_every_history_comes_to_an_end(history: list[list[object]]) -> None:
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


@many
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 4), st.sampled_from((0.1, 4.0, 21.0))),
        max_size=25,
    ),
    st.sampled_from((10, 25, 40)),
    st.integers(0, 24),
)
def test_no_more_leaves_a_cluster_within_the_window_than_its_budget_whoever_takes_the_stream_up(
    asked: list[tuple[int, int, float]], budget: int, restart: int
) -> None:
    """Six bindings of four replicas in oslo, which nothing ever comes to: everything that moves
    leaves it."""
    plane = FleetPlane()
    policy = RebalancePolicy("cost", gain_percent=1, budget_percent=budget, window_s=20)
    plane.given(PolicyApplied(Policy("RebalancePolicy", "steady", rebalancing=policy)))
    plane.given(a_cluster("oslo", labels={PRICE: "0.2"}), room("oslo", 24))
    plane.given(*(a_binding(f"web-{i}", 4) for i in range(6)))
    plane.given(a_cluster("bergen", labels={PRICE: "0.1"}), room("bergen", 99))
    left: list[tuple[int, int, int]] = []
    for turn, (which, stay, after) in enumerate(asked):
        if turn == restart:
            plane.state = recover(plane.decider, plane.decider.initial(STREAM), plane.rounds)
        there = sum(plane.holds(f"web-{i}").get("oslo", 0) for i in range(6))
        named = {"bergen": 4 - stay, "oslo": stay}
        wanted = tuple(TargetCluster(c, n) for c, n in named.items() if n)
        before = plane.holds(f"web-{which}").get("oslo", 0)
        plane.when(
            RescheduleProposed(
                STREAM, f"web-{which}", "cheaper", wanted, objective="cost", policy=KEY
            ),
            after_s=after,
        )
        gone = before - plane.holds(f"web-{which}").get("oslo", 0)
        assert gone >= 0, "it never goes back to where it costs more"
        window = sum(n for at, n, _ in left if at + 20_000_000 > plane.at)
        assert window + gone <= -(-(there + window) * budget // 100)
        left.append((plane.at, gone, there))


def test_samples_of_histories_do_what_they_are_for() -> None:
    """The laws above hold of nothing if nothing happens: the strategies can make all that is to be
    looked at."""
    ill = Placement(
        replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True),
        application=ApplicationFailover(1, "Gracefully", 10),
    )
    asked = BindingRequested(
        Binding("web", "uid-web", ObjectRef("apps/v1", "Deployment", "web"), 2, SMALL, ill)
    )
    plane = begun(
        [[asked], [EvictionProposed(STREAM, "web", c, "", "unhealthy") for c in CLUSTERS[:1]]]
    )
    data: list[Value] = [d.data for r in plane.rounds for d in r.round.decisions]
    assert any(isinstance(d, ScheduleDecided) and d.leaving for d in data)
