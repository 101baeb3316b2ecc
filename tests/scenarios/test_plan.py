"""Plans and relocations as the stages answer them: committed as planned, or refused with what
changed, and nothing in between."""

from __future__ import annotations

from random import Random
from uuid import UUID, uuid5

import msgspec
import pytest
from tests.cluster_world import STREAM as CLUSTER_STREAM
from tests.cluster_world import Harness, a_node, needs
from tests.plan_world import a_plane
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DUPLICATED,
    DYNAMIC,
    NO_EXECUTE,
    NO_SCHEDULE,
    STREAM,
    FleetPlane,
    a_binding,
    a_cluster,
    eviction,
    forgotten,
    room,
    static,
    withdrawn,
)

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.drain import drained_node
from wharfinger.domain.node import Node
from wharfinger.domain.placement import ClusterAffinity, Placement, SpreadConstraint
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.engine.fleet.objective import PRICE_LABEL
from wharfinger.events.accepted import accepted
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import (
    PlanCommitted,
    PlannedOutcome,
    PlanRefused,
    ReplicasPlaced,
    ReplicasReleased,
    ScheduleDecided,
)
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.plans import PlanRequested, Step, StepData, step_of
from wharfinger.events.proposals import NodeRemovalProposed, RescheduleProposed
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import number
from wharfinger.stages.fleet.fold import carry_out
from wharfinger.stages.fleet.fork import fork
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.state.proposals import Proposals

PLAN = "0d1f6a52-4c0b-5b0e-8f0e-5c7d1f0a9b11"
REPLAY = "2a44f7de-7a15-5d0b-9d6f-0c5b1a7b3e90"


def planned(plane: FleetPlane, *steps: StepData) -> Event[Value]:
    """A plan made from the plane as it is, ready to be asked for."""
    bare = PlanRequested(STREAM, PLAN, tuple(map(step_of, steps)), seq=plane.head.seq)
    request = plane.decider.expectation(plane.state, bare, plane.at)
    return made(request, id=derived_id("plan", PLAN, STREAM), source="/test", subject=PLAN)


def answer(plane: FleetPlane) -> PlanCommitted | PlanRefused:
    (one,) = [d for d in plane.decided if isinstance(d, PlanCommitted | PlanRefused)]
    return one


def two_clusters() -> FleetPlane:
    """oslo and bergen with room for 10 each, `web` with 4 replicas in oslo."""
    plane = FleetPlane()
    plane.given(a_cluster("oslo"), room("oslo", 10))
    plane.when(a_binding("web", 4, AGGREGATED))
    plane.then_scheduled("web", oslo=4)
    plane.when(a_cluster("bergen"), room("bergen", 10), room("oslo", 6, fleet=plane.head.seq))
    return plane


# --- committed


def test_a_plan_happens_in_the_round_that_answers_it_and_is_the_cause_of_what_follows() -> None:
    plane = two_clusters()
    plane.when(planned(plane, a_binding("api", 2, AGGREGATED)))
    committed, scheduled = plane.last
    assert isinstance(committed.data, PlanCommitted)
    assert committed.cause == derived_id("plan", PLAN, STREAM)
    assert isinstance(scheduled.data, ScheduleDecided)
    assert scheduled.subject == "api"
    assert scheduled.cause == committed.id
    plane.check()


def test_the_facts_of_a_plan_change_nothing_when_they_come() -> None:
    plane = two_clusters()
    request = a_binding("api", 2, AGGREGATED)
    plane.when(planned(plane, request, a_cluster("oslo", NO_SCHEDULE)))
    for fact in (request, a_cluster("oslo", NO_SCHEDULE)):
        before = plane.decider.dump(plane.state)
        plane.when(fact)
        plane.then_nothing()
        assert plane.decider.dump(plane.state) == before


def test_what_was_asked_before_in_the_same_round_is_decided_first() -> None:
    plane = two_clusters()
    request = planned(plane, a_binding("api", 2, AGGREGATED))
    plane.when(a_binding("db", 1, AGGREGATED), request)
    assert [d.subject for d in plane.last] == ["db", PLAN, "api"]
    plane.check()


def test_a_drain_evicts_in_the_same_breath() -> None:
    plane = two_clusters()
    plane.when(planned(plane, a_cluster("oslo", NO_EXECUTE), eviction("web", "oslo")))
    committed, moved = plane.last
    assert plane.holds("web") == {"bergen": 4}
    assert isinstance(moved.data, ScheduleDecided)
    assert moved.cause == committed.id
    assert moved.data.answers  # which proposal it answers is still known
    assert plane.state.proposals == Proposals()
    assert plane.state.bindings["web"].evicted == {"oslo": None}
    plane.check()


def test_a_plan_may_take_back_what_is_withdrawn_and_forget_a_cluster() -> None:
    plane = two_clusters()
    plane.when(a_binding("api", 2, AGGREGATED))
    plane.when(planned(plane, withdrawn("api"), forgotten("oslo")))
    assert isinstance(answer(plane), PlanCommitted)
    assert "api" not in plane.state.bindings
    assert plane.holds("web") == {"bergen": 4}
    plane.check()


def test_a_change_that_leaves_the_outcome_as_planned_is_no_obstacle() -> None:
    plane = two_clusters()
    request = planned(plane, a_binding("api", 2, AGGREGATED))
    plane.when(room("bergen", 9, fleet=plane.head.seq), a_cluster("narvik"))
    plane.when(request)
    assert isinstance(answer(plane), PlanCommitted)


def test_asked_again_before_it_is_answered_a_plan_is_answered_once() -> None:
    plane = two_clusters()
    request = planned(plane, a_binding("api", 2, AGGREGATED))
    plane.when(request, request)
    answer(plane)
    plane.check()


def test_an_open_plan_outlives_saving_and_recovery() -> None:
    plane = two_clusters()
    request = planned(plane, a_binding("api", 2, AGGREGATED))
    plane.decider.fold_input(plane.state, request, plane.at)
    loaded = plane.decider.load(STREAM, plane.decider.dump(plane.state))
    first, *_ = plane.decider.decide(loaded, plane.at)
    assert isinstance(first.data, PlanCommitted)


# --- refused


def test_room_that_another_binding_took_is_named_with_the_binding() -> None:
    plane = two_clusters()
    request = planned(plane, a_binding("api", 8, AGGREGATED))
    plane.when(a_binding("db", 7, AGGREGATED))
    plane.then_scheduled("db", bergen=7)
    before = plane.decider.dump(plane.state)
    plane.when(request)
    refused = answer(plane)
    assert isinstance(refused, PlanRefused)
    assert (refused.reason, refused.subject) == ("OutcomeDiffers", "api")
    assert refused.expected == PlannedOutcome("api", "scheduled", {"bergen": 8})
    assert refused.found is not None
    assert refused.found.places != {"bergen": 8}
    assert refused.changed == ("cluster/bergen capacity", "binding/db placement")
    assert plane.decider.dump(plane.state) == before
    assert len(plane.last) == 1
    plane.check()


def test_capacity_that_shrank_is_named() -> None:
    plane = two_clusters()
    request = planned(plane, a_binding("api", 8, AGGREGATED))
    plane.when(room("bergen", 3, fleet=plane.head.seq))
    plane.when(request)
    refused = answer(plane)
    assert isinstance(refused, PlanRefused)
    assert refused.changed == ("cluster/bergen capacity",)


def test_a_cluster_that_changed_is_named_first() -> None:
    plane = two_clusters()
    request = planned(plane, a_binding("api", 8, AGGREGATED))
    plane.when(a_cluster("bergen", NO_SCHEDULE))
    plane.when(request)
    refused = answer(plane)
    assert isinstance(refused, PlanRefused)
    assert refused.found == PlannedOutcome("api", "refused", {}, "Unschedulable")
    assert refused.changed[0] == "cluster/bergen facts"


def test_what_a_step_would_replace_must_be_as_the_plan_saw_it() -> None:
    """The labels somebody gave the cluster since would be lost with the drain, so the outcome does
    not even matter."""
    plane = two_clusters()
    request = planned(plane, a_cluster("oslo", NO_SCHEDULE))
    plane.when(a_cluster("oslo", labels={"tier": "gold"}))
    plane.when(request)
    refused = answer(plane)
    assert isinstance(refused, PlanRefused)
    assert (refused.reason, refused.changed) == ("InputChanged", ("cluster/oslo facts",))


def test_a_binding_that_was_requested_anew_is_not_overwritten() -> None:
    plane = two_clusters()
    request = planned(plane, a_binding("web", 6, AGGREGATED))
    plane.when(a_binding("web", 5, AGGREGATED))
    plane.when(request)
    refused = answer(plane)
    assert isinstance(refused, PlanRefused)
    assert (refused.reason, refused.subject) == ("InputChanged", "binding/web")
    assert sum(plane.holds("web").values()) == 5


def test_where_only_time_has_passed_the_time_is_named() -> None:
    plane = two_clusters()
    plane.when(a_cluster("oslo", NO_EXECUTE))
    placement = Placement(
        tolerations=(Toleration("broken", "Exists", seconds=30),), replicas=AGGREGATED
    )
    plane.when(a_binding("calm", 1, placement=placement))
    plane.when(a_cluster("bergen", NO_EXECUTE))
    (held,) = plane.holds("calm")
    request = planned(plane, eviction("calm", held))
    plane.at += 60_000_000
    plane.when(request)
    refused = answer(plane)
    assert isinstance(refused, PlanRefused)
    assert refused.expected == PlannedOutcome("calm", "declined", reason="TolerationNotEnded")
    assert refused.changed == ("time",)


def test_a_step_that_no_fleet_stream_can_take_is_refused_and_not_died_of() -> None:
    plane = two_clusters()
    for step in (
        Step(),
        Step(nodes=NodesObserved("oslo", 0, 1, ())),
        step_of(RescheduleProposed("fleet/9", "web")),
    ):
        request = PlanRequested(STREAM, PLAN, (step,))
        plane.when(made(request, id=uuid5(UUID(PLAN), repr(step)), source="/test", subject=PLAN))
        refused = answer(plane)
        assert isinstance(refused, PlanRefused)
        assert refused.reason == "NotPlannable"
    plane.check()


def test_a_plan_for_another_stream_is_not_answered() -> None:
    plane = two_clusters()
    plane.when(PlanRequested("fleet/1", PLAN, (step_of(a_binding("api", 2)),)))
    plane.then_nothing()


# --- trying leaves no trace


@pytest.mark.parametrize("seed", range(8))
def test_a_copy_decides_as_the_original_and_the_original_does_not_notice(seed: int) -> None:
    random = Random(seed)
    state = a_plane(random).fleet
    plane = FleetPlane()
    decider, before = plane.decider, plane.decider.dump(state)
    other, loaded = fork(state), decider.load(STREAM, before)
    assert decider.dump(other) == before
    facts = [c.facts for c in state.order if c.facts is not None]
    gone, lost = random.sample(facts, 2)
    drained = msgspec.structs.replace(gone, taints=(NO_EXECUTE,))
    names = random.sample(sorted(state.bindings), 3)
    requests = [
        msgspec.structs.replace(state.bindings[n].spec, replicas=random.randint(0, 40))
        for n in names
    ]
    steps = [
        step_of(ClusterObserved(drained)),
        Step(forgotten=lost.name),
        *(Step(binding=request) for request in requests),
    ]
    decided = []
    for copy in (other, loaded):
        carry_out(copy, steps, UUID(int=0), state.clock)
        decided.append([d.data for d in _all(plane, copy, state.clock)])
        assert decider.dump(copy) != before
    assert decided[0] == decided[1]
    assert decider.dump(other) == decider.dump(loaded)
    assert decider.dump(state) == before


def _all(plane: FleetPlane, state: FleetState, at: Micros) -> list[Decision]:
    decisions: list[Decision] = []
    for seq, draft in enumerate(plane.decider.decide(state, at), 1000):
        decisions.append(number(draft, STREAM, seq))
        plane.decider.fold_decision(state, decisions[-1], at)
    return decisions


# --- relocations


def to(binding: str, replay: str = "", objective: str = "", **targets: int) -> RescheduleProposed:
    wanted = tuple(TargetCluster(name, n) for name, n in targets.items())
    return RescheduleProposed(STREAM, binding, "test", wanted, replay, objective)


def test_a_binding_goes_exactly_where_it_is_told() -> None:
    plane = two_clusters()
    plane.when(to("web", oslo=1, bergen=3))
    plane.then_scheduled("web", oslo=1, bergen=3)
    assert plane.state.proposals.open == {}
    plane.check()


def test_all_that_came_of_a_replay_has_it_as_its_cause() -> None:
    plane = two_clusters()
    plane.when(to("web", REPLAY, bergen=4), to("web", REPLAY, oslo=99))
    moved, declined = plane.last
    assert moved.cause == declined.cause == UUID(REPLAY)
    assert isinstance(moved.data, ScheduleDecided)
    assert moved.data.answers
    assert plane.state.proposals.open == {}
    plane.check()


@pytest.mark.parametrize(
    ("proposal", "reason", "detail"),
    [
        (to("web", oslo=4), "NothingToDo", "it lies there already"),
        (to("web", oslo=3), "ReplicasDiffer", "4 replicas are asked for, the targets hold 3"),
        (to("web", oslo=4, bergen=0), "ReplicasDiffer", "every target needs at least one replica"),
        (to("web", oslo=2, narvik=2), "UnknownTarget", "no such cluster: narvik"),
        (to("web", closed=4), "ClusterInfeasible", "closed: TaintToleration"),
        (to("web", full=4), "NoRoom", "full: 4 more replicas, 1 fit"),
        (
            to("web", objective="luck", bergen=4),
            "NotBetter",
            "unknown objective luck; there are spread, pack, cost, moves, even",
        ),
        (to("web", objective="moves", bergen=4), "NotBetter", "by moves it would be 4, it is 0"),
        (
            to("web", objective="cost", bergen=4),
            "NotBetter",
            "by cost it cannot be told: a price is not known",
        ),
        (
            to("everywhere", oslo=2),
            "ClusterInfeasible",
            "it goes wherever it may; no targets can be chosen for it",
        ),
        (to("nobody", oslo=2), "UnknownTarget", "no such binding is placed"),
    ],
)
def test_targets_that_do_not_hold_are_refused(
    proposal: RescheduleProposed, reason: str, detail: str
) -> None:
    plane = two_clusters()
    plane.when(
        a_cluster("closed", NO_SCHEDULE), room("closed", 10), a_cluster("full"), room("full", 2)
    )
    plane.when(a_binding("everywhere", 1, DUPLICATED))
    plane.when(proposal)
    assert plane.then_declined(reason).detail == detail
    plane.check()


def test_a_relocation_keeps_the_spread_that_the_policy_wants() -> None:
    plane = two_clusters()
    placement = Placement(
        spread=(SpreadConstraint("cluster", min_groups=2, max_groups=2),), replicas=DYNAMIC
    )
    plane.when(a_binding("wide", 4, placement=placement))
    plane.when(to("wide", oslo=4))
    assert plane.then_declined("SpreadConstraint").detail == "1 by cluster, 2 to 2 wanted"
    plane.check()


def test_a_relocation_may_use_any_term_of_the_affinity_and_names_it() -> None:
    plane = two_clusters()
    terms = (ClusterAffinity("home", ("oslo",)), ClusterAffinity("away", ("bergen",)))
    plane.when(a_binding("choosy", 2, placement=Placement(terms, replicas=AGGREGATED)))
    assert plane.holds("choosy") == {"oslo": 2}
    plane.when(to("choosy", bergen=2))
    assert plane.then_scheduled("choosy", bergen=2).affinity == "away"
    plane.when(to("choosy", bergen=1, oslo=1))
    plane.then_declined("ClusterInfeasible")
    plane.check()


def test_better_by_spread_is_asked_of_the_present() -> None:
    plane = two_clusters()
    plane.when(to("web", objective="spread", oslo=2, bergen=2))
    moved = plane.then_scheduled("web", oslo=2, bergen=2)
    assert moved.explanation.note.startswith("to the targets that were proposed: spread ")
    plane.when(to("web", objective="spread", bergen=4))
    plane.then_declined("NotBetter")
    plane.when(to("web", objective="pack", bergen=4))
    plane.then_scheduled("web", bergen=4)
    plane.check()


def test_better_by_cost_follows_the_price_on_the_clusters() -> None:
    plane = two_clusters()
    plane.when(
        a_cluster("oslo", labels={PRICE_LABEL: "0.04"}),
        a_cluster("bergen", labels={PRICE_LABEL: "0.031"}),
    )
    plane.when(to("web", objective="cost", bergen=4))
    plane.then_scheduled("web", bergen=4)
    plane.when(to("web", objective="cost", oslo=4))
    plane.then_declined("NotBetter")
    plane.check()


def test_a_plan_may_ask_for_a_new_binding_at_named_targets() -> None:
    """Rolling back a withdrawal: what was deleted comes back where it was, and not where there is
    most room."""
    plane = two_clusters()
    plane.when(planned(plane, a_binding("old", 3, static(oslo=1)), to("old", bergen=1, oslo=2)))
    assert plane.holds("old") == {"bergen": 1, "oslo": 2}
    (decided,) = [d.data for d in plane.last if isinstance(d.data, ScheduleDecided)]
    assert decided.trigger == "FirstSchedule"
    plane.check()


# --- nodes


def two_nodes() -> Harness:
    """n1 and n2 with four cores each; `web` has three replicas of one core."""
    cluster = Harness()
    cluster.feed(nodes())
    assigned = Assigned(1, "d1", "web", "web", 3, needs(1000))
    cluster.feed(AssignmentsDecided("oslo", "fleet/0", 1, (assigned,)))
    return cluster


def nodes(*changed: Node) -> NodesObserved:
    found = {n.name: n for n in (a_node("n1"), a_node("n2"), *changed)}
    return NodesObserved("oslo", 0, 1, tuple(found.values()))


def of_nodes(cluster: Harness, *steps: StepData) -> Event[Value]:
    bare = PlanRequested(CLUSTER_STREAM, PLAN, tuple(map(step_of, steps)), seq=cluster.head.seq)
    request = cluster.decider.expectation(cluster.state, bare, cluster.at)
    return made(request, id=derived_id("plan", PLAN, CLUSTER_STREAM), source="/test", subject=PLAN)


def test_draining_a_node_moves_its_replicas_with_the_plan_as_cause() -> None:
    cluster = two_nodes()
    request = of_nodes(cluster, nodes(drained_node(a_node("n1"))))
    committed, released, placed = cluster.feed_events([request])
    assert isinstance(committed.data, PlanCommitted)
    assert isinstance(released.data, ReplicasReleased)
    assert released.cause == committed.id
    assert isinstance(placed.data, ReplicasPlaced)
    assert {share.node for share in placed.data.placed} == {"n2"}
    assert isinstance(request.data, PlanRequested)
    assert request.data.expected == (PlannedOutcome("web", "placed", {"n2": 3}),)
    again = recover(cluster.decider, cluster.decider.initial(CLUSTER_STREAM), cluster.rounds)
    assert cluster.decider.dump(again) == cluster.decider.dump(cluster.state)


def test_room_that_was_taken_on_the_other_node_refuses_the_drain() -> None:
    cluster = two_nodes()
    request = of_nodes(cluster, nodes(drained_node(a_node("n1"))))
    more = Assigned(2, "d2", "db", "db", 4, needs(1000))
    cluster.feed(AssignmentsDecided("oslo", "fleet/0", 2, (more,)))
    before = cluster.decider.dump(cluster.state)
    (refused,) = cluster.feed_events([request])
    assert isinstance(refused.data, PlanRefused)
    assert refused.data.reason == "OutcomeDiffers"
    assert "binding/db placement" in refused.data.changed
    assert "node/oslo/n2" in refused.data.changed
    assert cluster.decider.dump(cluster.state) == before


def test_nodes_that_were_told_anew_are_not_overwritten() -> None:
    cluster = two_nodes()
    request = of_nodes(cluster, nodes(drained_node(a_node("n1"))))
    cluster.feed(nodes(a_node("n2", cpu=8000)))
    (refused,) = cluster.feed_events([request])
    assert isinstance(refused.data, PlanRefused)
    assert (refused.data.reason, refused.data.changed) == (
        "InputChanged",
        ("cluster/oslo nodes/0",),
    )


def test_a_node_is_emptied_and_removed_in_one_plan() -> None:
    """The removal is answered after the placing, so the node is empty by then."""
    cluster = two_nodes()
    steps = (
        nodes(drained_node(a_node("n1"))),
        NodeRemovalProposed(CLUSTER_STREAM, "oslo", "n1", "too old"),
    )
    committed, *rest = cluster.feed_events([of_nodes(cluster, *steps)])
    assert isinstance(committed.data, PlanCommitted)
    assert [d.outcome for d in rest] == ["released", "placed", "removed"]
    assert rest[-1].cause == committed.id
    assert cluster.state.proposals == cluster.state.on_behalf == {}


def test_a_stream_whose_nodes_were_never_seen_cannot_plan() -> None:
    cluster = Harness()
    request = PlanRequested(CLUSTER_STREAM, PLAN, (step_of(nodes()),))
    (refused,) = cluster.feed(request)
    assert isinstance(refused.data, PlanRefused)
    assert refused.data.reason == "NotPlannable"


# --- clusters that promise to be heard


def test_a_plan_supposes_that_who_is_heard_goes_on_being_heard() -> None:
    """Looking an hour ahead must not make every cluster with a lease fall silent."""
    plane = a_plane(Random(3))
    leased = [
        msgspec.structs.replace(c.facts, lease_s=5)
        for c in plane.fleet.order
        if c.facts is not None
    ]
    plane.tell(*map(ClusterObserved, leased))
    drained = msgspec.structs.replace(leased[0], taints=(Taint("slow", "NoExecute"),))
    plan = plane.plan([accepted(ClusterObserved(drained))])
    (part,) = plan.parts
    assert plan.changes
    assert {o.outcome for o in part.expected} <= {"scheduled", "refused"}
