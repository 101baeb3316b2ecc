"""The actuator's tables: what an answer means, when a request is sent again, and which request is
sent at all."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from tests.cluster_world import event

from wharfinger.domain.actuation import CLOSED_BY, VERBS, Verb
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.pod_upkeep import PodUpkeep
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import (
    AssignmentsDecided,
    NodeClosed,
    Placed,
    Released,
    UnplacedPods,
)
from wharfinger.events.cluster_state import FinishedPodsObserved, NodesObserved, WaitingPodsObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.envelope import Event
from wharfinger.events.node_share import NodeShare
from wharfinger.runtime.kube.rights import actuator_rules, own_rules
from wharfinger.stages.actuator import ActuatorObserver, StandingClosures
from wharfinger.stages.actuator.answers import (
    DISRUPTION_BUDGET,
    NAMESPACE_TERMINATING,
    NO_ANSWER,
    ApiAnswer,
    Outcome,
    outcome_of,
)
from wharfinger.stages.actuator.attempts import (
    CHANGES_MAX,
    EVICTIONS_A_MINUTE,
    FACT_S,
    FORBIDDEN_S,
    MINUTE_US,
    Attempts,
)
from wharfinger.stages.actuator.effects import Cause, Effect, EffectObject
from wharfinger.stages.actuator.observed import Rejections, reported
from wharfinger.stages.actuator.pacing import LEAST, MOST, PAUSE_S_MAX, Concurrency
from wharfinger.stages.actuator.plan import (
    UNSCHEDULABLE,
    WAITING_FOR_NODE,
    changed_marks,
    closed_by_another_ledger,
    on_fresh_facts,
    open_effects,
    reopened_by_hand,
)
from wharfinger.stages.actuator.pod_events import BURST, EVERY_US, NOTE_MAX, EventBudget, event_of
from wharfinger.stages.actuator.requests import (
    ApiRequest,
    NodeNow,
    PodNow,
    mark_request,
    node_request,
    pod_request,
)
from wharfinger.stages.actuator.state import ClusterWork

CAUSE = Cause("cluster/oslo", 12, "d12")
CLOSE = Effect("oslo", "close-node", EffectObject("Node", "", "n1", created_us=5), CAUSE)
REOPEN = Effect("oslo", "reopen-node", EffectObject("Node", "", "n1", created_us=5))
REMOVE = Effect("oslo", "remove-pod", EffectObject("Pod", "shop", "web", "u1"), CAUSE)
BIND = Effect(
    "oslo",
    "bind-pod",
    EffectObject("Pod", "shop", "web", "u1"),
    CAUSE,
    target="n1",
    binding="shop/web",
)
GATED = msgspec.structs.replace(BIND, target="n2")
BINDS: tuple[Verb, ...] = ("bind",)
MARK = Effect(
    "oslo",
    "mark-pod",
    EffectObject("Pod", "shop", "web", "u1"),
    CAUSE,
    reason=UNSCHEDULABLE,
    message="0/2 nodes fit",
)
OURS = "cluster/oslo:12"


@pytest.mark.parametrize(
    ("verb", "code", "outcome"),
    [
        ("bind", 201, Outcome.SENT),
        ("bind", 404, Outcome.SUPERSEDED),
        ("bind", 409, Outcome.SUPERSEDED),
        ("evict", 200, Outcome.SENT),
        ("evict", 201, Outcome.SENT),
        ("evict", 404, Outcome.REPEATED),
        ("evict", 409, Outcome.SUPERSEDED),
        ("nodes", 404, Outcome.SUPERSEDED),
        ("nodes", 409, Outcome.CHANGED),
        *[
            (verb, code, outcome)
            for verb in VERBS
            for code, outcome in (
                (401, Outcome.FORBIDDEN),
                (403, Outcome.FORBIDDEN),
                (422, Outcome.REFUSED),
                (418, Outcome.REFUSED),
                (429, Outcome.SLOWED),
                (500, Outcome.UNKNOWN),
                (504, Outcome.UNKNOWN),
                (NO_ANSWER, Outcome.UNKNOWN),
            )
        ],
    ],
)
def test_what_an_answer_means(verb: Verb, code: int, outcome: Outcome) -> None:
    assert outcome_of(verb, ApiAnswer(code)) is outcome


def test_a_budget_blocks_and_too_many_requests_slow() -> None:
    budget = ApiAnswer(429, "TooManyRequests", causes=(DISRUPTION_BUDGET,))
    assert outcome_of("evict", budget) is Outcome.BLOCKED
    attempts = Attempts()
    pauses = []
    for _ in range(6):
        pauses.append(attempts.answered(REMOVE, budget, 0).due / SECOND)
    assert pauses == [5, 10, 20, 40, 60, 60]


def test_a_pod_with_scheduling_gates_is_blocked() -> None:
    gated = ApiAnswer(409, "Conflict", "pod web has non-empty .spec.schedulingGates")
    assert outcome_of("bind", gated) is Outcome.BLOCKED


@pytest.mark.parametrize(
    ("conditions", "sent"),
    [
        ({}, [BIND, CLOSE]),
        ({"FactsFreshService": "False"}, [BIND, CLOSE]),
        ({"FactsFresh": "False", "FactsFreshPod": "False"}, [CLOSE]),
        ({"FactsFresh": "False", "FactsFreshNode": "False"}, []),
        ({"FactsFresh": "False"}, []),
    ],
    ids=["fresh", "services", "pods", "nodes", "an earlier collector"],
)
def test_an_effect_waits_for_the_watches_that_it_needs(
    conditions: dict[str, str], sent: list[Effect]
) -> None:
    observer = ActuatorObserver(frozenset({"oslo"}))
    state = observer.initial()
    told = ClusterObserved(Cluster("oslo", conditions=conditions))
    observer.fold(state, event(told), 0)
    assert on_fresh_facts(state["oslo"], [BIND, CLOSE]) == sent


@pytest.mark.parametrize(
    ("code", "message", "outcome"),
    [
        (403, 'pods is forbidden: User "oslo" cannot create resource', Outcome.FORBIDDEN),
        (403, 'pods "web" is forbidden: exceeded quota: small', Outcome.REFUSED),
        (403, 'admission webhook "policy.test" denied the request: no', Outcome.REFUSED),
        (403, "Forbidden", Outcome.FORBIDDEN),
        (401, "Unauthorized", Outcome.FORBIDDEN),
        (401, 'admission webhook "policy.test" denied the request: no', Outcome.REFUSED),
    ],
    ids=["right", "quota", "webhook", "proxy", "credentials", "webhook, 401"],
)
def test_only_a_missing_right_stops_a_verb(code: int, message: str, outcome: Outcome) -> None:
    answer = ApiAnswer(code, "Forbidden", message)
    attempts = Attempts()
    assert attempts.answered(REMOVE, answer, 0).outcome is outcome
    assert bool(attempts.stopped) is (outcome is Outcome.FORBIDDEN)


def test_a_namespace_that_ends_stops_nothing_in_others() -> None:
    said = 'deployments.apps "web" is forbidden: unable to create: namespace is being terminated'
    answer = ApiAnswer(403, "Forbidden", said, (NAMESPACE_TERMINATING,))
    for verb in VERBS:
        assert outcome_of(verb, answer) is Outcome.BLOCKED


def test_what_is_accepted_and_changes_nothing_is_sent_less_and_less_often() -> None:
    attempts = Attempts()
    pauses = [attempts.answered(REMOVE, ApiAnswer(201), 0).due / SECOND for _ in range(7)]
    assert pauses == [10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize("code", [429, 503])
def test_a_pause_that_the_server_asks_for_is_kept(code: int) -> None:
    attempts = Attempts()
    asked = ApiAnswer(code, retry_after_s=7.0)
    assert attempts.answered(REMOVE, asked, 0).due == 7 * SECOND
    a_day = ApiAnswer(code, retry_after_s=86400.0)
    assert attempts.answered(REMOVE, a_day, 0).due <= 60 * SECOND


def test_of_a_workload_one_pod_is_evicted_at_a_time_and_of_a_cluster_ten_a_minute() -> None:
    def evict(name: str, workload: str) -> Effect:
        named = EffectObject("Pod", "shop", name, name)
        return Effect("oslo", "evict-pod", named, CAUSE, workload=workload)

    web = [evict(f"web-{i}", "web") for i in range(3)]
    attempts = Attempts()
    assert attempts.due(web, 0) == web[:1]
    assert attempts.due(web, 0, evicted={"web"}) == []
    attempts.answered(web[0], ApiAnswer(201), 0)
    assert attempts.due(web, 1) == []
    # Gone: the next one.
    assert attempts.due(web[1:], 2) == [web[1]]
    others = [evict(f"other-{i}", f"other-{i}") for i in range(20)]
    assert len(attempts.due(others, 3)) == EVICTIONS_A_MINUTE - 1
    assert len(attempts.due(others, MINUTE_US)) == EVICTIONS_A_MINUTE


def test_an_accepted_request_is_sent_again_only_where_no_fact_follows() -> None:
    attempts = Attempts()
    assert attempts.due([CLOSE], 0) == [CLOSE]
    attempts.answered(CLOSE, ApiAnswer(200), 0)
    assert attempts.due([CLOSE], int(FACT_S * SECOND) - 1) == []
    assert attempts.due([CLOSE], int(FACT_S * SECOND)) == [CLOSE]


def test_an_effect_that_was_done_and_is_open_again_is_sent_at_once() -> None:
    attempts = Attempts()
    attempts.answered(CLOSE, ApiAnswer(200), 0)
    assert attempts.due([], 1) == []
    assert attempts.due([CLOSE], 2) == [CLOSE]


def test_a_missing_right_stops_the_verb_and_no_other() -> None:
    attempts = Attempts()
    attempts.answered(CLOSE, ApiAnswer(403), 0)
    assert attempts.due([CLOSE, REOPEN, REMOVE], 1) == [REMOVE]
    assert attempts.due([REOPEN], int(FORBIDDEN_S * SECOND)) == [REOPEN]


def test_a_pod_that_cannot_be_marked_keeps_no_other_from_being_bound() -> None:
    attempts = Attempts()
    attempts.answered(MARK, ApiAnswer(403), 0)
    assert attempts.due([MARK, BIND], 1) == [BIND]


def test_a_node_that_another_ledger_has_closed_is_left() -> None:
    """Its annotation names the cluster as we do; no decision of ours ever closed it."""
    observer = ActuatorObserver(frozenset({"oslo"}))
    state = observer.initial()
    cordoned = Node("n1", {"cpu": 1000}, unschedulable=True, annotations={CLOSED_BY: OURS})
    observer.fold(state, event(NodesObserved("oslo", 0, 1, (cordoned,))), 1)
    work = state["oslo"]
    assert open_effects(work, VERBS, 1) == []
    assert closed_by_another_ledger(work) == [cordoned]
    data: Value = StandingClosures("oslo", ("n1",))
    closed = Event(UUID(int=1), "", "", "", data, b"", b"")
    observer.fold(state, closed, 1)
    (reopened,) = open_effects(work, VERBS, 1)
    assert reopened.action == "reopen-node"
    assert closed_by_another_ledger(work) == []


def test_a_waiting_pod_is_marked_with_what_was_said_of_it_and_only_when_that_changes() -> None:
    work = ClusterWork("oslo")
    said = UnplacedPods(1, "d1", "shop/web", ("u1",), "InsufficientResources", "0/2 nodes fit")
    work.take(AssignmentsDecided("oslo", "cluster/oslo", 1, (said,)), 0)
    assert open_effects(work, BINDS, 0) == [], "no fact has it"
    waits = WaitingPod("u1", "web-1", Requirements(pod=PodTraits(namespace="shop")), "shop/web")

    def observed(condition: str) -> None:
        pod = msgspec.structs.replace(waits, condition=condition)
        work.observe_waiting(WaitingPodsObserved("oslo", "shop", 0, 32, (pod,)))

    observed("")
    (mark,) = open_effects(work, BINDS, 0)
    assert (mark.action, mark.reason, mark.message) == ("mark-pod", UNSCHEDULABLE, "0/2 nodes fit")
    assert str(mark.cause) == "cluster/oslo:1"
    (ours,) = open_effects(work, ("bind", "claims"), 0)
    assert ours.reason == WAITING_FOR_NODE, "others would make nodes for it, too"
    assert open_effects(work, [], 0) == []
    observed("SchedulingGated")
    assert open_effects(work, BINDS, 0) == []
    observed(UNSCHEDULABLE)
    assert open_effects(work, BINDS, 0) == []
    assert changed_marks(work, BINDS, {"u1": "0/2 nodes fit"}) == []
    assert changed_marks(work, BINDS, {"u1": "0/1 nodes fit"}) == [mark]
    assert changed_marks(work, BINDS, {}) == [mark], "it is not known what was written"
    placed = Placed(2, "d2", "shop/web", (NodeShare("n1", (0,), pods=("u1",)),))
    work.take(AssignmentsDecided("oslo", "cluster/oslo", 2, (placed,)), 0)
    observed("")
    assert open_effects(work, BINDS, 0) == [], "its node is not known yet"


def test_a_mark_is_written_at_the_version_that_was_read_and_never_on_a_bound_pod() -> None:
    waits = PodNow("7", "u1")
    request = mark_request(MARK, waits, 1_795_507_200_000_000)
    assert isinstance(request, ApiRequest)
    assert request.path == "/api/v1/namespaces/shop/pods/web/status"
    assert request.body["metadata"] == {"uid": "u1", "resourceVersion": "7"}
    (condition,) = request.body["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "reason": UNSCHEDULABLE,
        "message": "0/2 nodes fit",
        "lastTransitionTime": "2026-11-24T08:00:00Z",
    }
    before = PodNow("8", "u1", reason=UNSCHEDULABLE, message="0/1 nodes fit", since="then")
    again = mark_request(MARK, before, 0)
    assert isinstance(again, ApiRequest)
    assert again.body["status"]["conditions"][0]["lastTransitionTime"] == "then"
    same = PodNow("9", "u1", reason=UNSCHEDULABLE, message="0/2 nodes fit")
    assert mark_request(MARK, same, 0) is Outcome.REPEATED
    assert mark_request(MARK, PodNow("9", "u1", "n1"), 0) is Outcome.SUPERSEDED
    assert mark_request(MARK, PodNow("9", "u2"), 0) is Outcome.SUPERSEDED


def test_an_event_says_the_same_under_the_same_name() -> None:
    bound, waits = event_of(BIND), event_of(MARK)
    assert bound is not None
    assert waits is not None
    assert (bound.type, bound.reason) == ("Normal", "Scheduled")
    assert bound.note == "Successfully assigned shop/web to n1 by cluster/oslo:12"
    assert (waits.type, waits.reason, waits.note) == (
        "Warning",
        "FailedScheduling",
        "0/2 nodes fit",
    )
    assert event_of(REMOVE) is None
    other = event_of(msgspec.structs.replace(MARK, message="0/3 nodes fit"))
    assert other is not None
    assert len({bound.name, waits.name, other.name}) == 3
    longest = msgspec.structs.replace(MARK.object, name="p" * 253)
    long = event_of(msgspec.structs.replace(MARK, object=longest, message="ä" * 2_000))
    assert long is not None
    assert len(long.name) <= 253
    assert len(long.note.encode()) <= NOTE_MAX


def test_events_are_limited_and_come_again_with_time() -> None:
    budget = EventBudget()
    waits = [budget.take(SECOND) for _ in range(BURST + 3)]
    assert waits == [0] * BURST + [EVERY_US, 2 * EVERY_US, 3 * EVERY_US]
    assert budget.take(SECOND + 3 * EVERY_US) == EVERY_US, "those before it were sent meanwhile"
    assert [budget.take(MINUTE_US) for _ in range(2 * BURST)].count(0) == BURST


def test_an_object_that_always_changes_is_refused() -> None:
    attempts = Attempts()
    outcomes = [attempts.answered(CLOSE, ApiAnswer(409), 0).outcome for _ in range(CHANGES_MAX + 1)]
    assert outcomes == [Outcome.CHANGED] * CHANGES_MAX + [Outcome.REFUSED]
    assert attempts.due([CLOSE], 1) == []


def test_fewer_requests_are_under_way_after_too_many() -> None:
    paced, at = Concurrency(), SECOND
    paced.answered(Outcome.SLOWED, at)
    assert paced.allowed == MOST // 2
    paced.answered(Outcome.SLOWED, at + 1)  # one of the same burst
    assert paced.allowed == MOST // 2
    for second in range(2, 100):
        paced.answered(Outcome.SLOWED, second * SECOND)
    assert paced.allowed == LEAST
    for second in range(100, 300):
        paced.answered(Outcome.SENT, second * SECOND)
    assert paced.allowed == MOST


def test_one_refusal_among_many_answers_halves_and_a_quiet_second_raises() -> None:
    paced = Concurrency()
    for tenth in range(100):
        slow = tenth % 10 == 5
        outcome = Outcome.SLOWED if slow else Outcome.SENT
        paced.answered(outcome, (10 + tenth) * SECOND // 10)
    assert paced.allowed == LEAST, "once in each second"
    for tenth in range(110, 150):
        paced.answered(Outcome.SENT, tenth * SECOND // 10)
    assert paced.allowed > LEAST, "it comes back"


def test_no_request_is_begun_in_a_pause_that_the_server_asks_for() -> None:
    paced, at = Concurrency(), 100 * SECOND
    paced.answered(Outcome.SLOWED, at, asked_s=3.0)
    assert paced.paused(at + 3 * SECOND - 1)
    assert not paced.paused(at + 3 * SECOND)
    paced.answered(Outcome.SLOWED, at, asked_s=86400.0)
    assert not paced.paused(at + int(PAUSE_S_MAX * SECOND)), "a proxy may name a day"
    assert not paced.paused(at + 60 * SECOND)


def test_no_other_pod_of_a_workload_is_evicted_while_one_may_be() -> None:
    def evict(name: str) -> Effect:
        pod = EffectObject("Pod", "shop", name, f"uid-{name}")
        return Effect("oslo", "evict-pod", pod, CAUSE, workload="web")

    first, second = evict("web-a"), evict("web-b")
    attempts = Attempts()
    made = attempts.answered(first, ApiAnswer(NO_ANSWER), 0)
    assert attempts.due([first, second], made.due - 1) == []
    assert attempts.due([first, second], made.due) == [first]
    attempts.answered(first, ApiAnswer(504), made.due)
    assert len(attempts.evicted_at) == 1, "the same one"
    assert attempts.due([second], made.due) == [second], "the first one is gone"


def test_a_pod_is_named_by_its_uid() -> None:
    request = pod_request(REMOVE)
    assert request.path == "/api/v1/namespaces/shop/pods/web/eviction"
    assert request.body["deleteOptions"] == {"preconditions": {"uid": "u1"}}


def test_a_pod_is_bound_with_the_decision_in_the_same_write() -> None:
    bind = Effect(
        "oslo",
        "bind-pod",
        EffectObject("Pod", "shop", "web", "u1"),
        CAUSE,
        target="n1",
        binding="shop/web-deployment",
        ordinal=3,
    )
    request = pod_request(bind)
    assert request.path == "/api/v1/namespaces/shop/pods/web/binding"
    assert request.body["target"]["name"] == "n1"
    assert request.body["metadata"]["uid"] == "u1"
    assert request.body["metadata"]["annotations"] == {
        "wharfinger.io/binding": "shop/web-deployment",
        "wharfinger.io/ordinal": "3",
        "wharfinger.io/decision": "d12",
        "wharfinger.io/seq": OURS,
    }


def test_a_node_is_changed_at_the_version_that_was_read() -> None:
    request = node_request(CLOSE, NodeNow("77", 5, unschedulable=False, closed_by=""))
    assert isinstance(request, ApiRequest)
    assert request.body == {
        "metadata": {"resourceVersion": "77", "annotations": {CLOSED_BY: OURS}},
        "spec": {"unschedulable": True},
    }


@pytest.mark.parametrize(
    ("effect", "now", "outcome"),
    [
        (CLOSE, NodeNow("77", 6, False, ""), Outcome.SUPERSEDED),  # another node of the name
        (CLOSE, NodeNow("77", 5, True, ""), Outcome.REPEATED),  # by somebody else
        (CLOSE, NodeNow("77", 5, False, OURS), Outcome.REPEATED),  # uncordoned by somebody else
        (REOPEN, NodeNow("77", 5, True, ""), Outcome.REPEATED),
        (REOPEN, NodeNow("77", 5, True, "cluster/other:12"), Outcome.REPEATED),
    ],
)
def test_nothing_is_sent_for_a_node_that_others_have_changed(
    effect: Effect, now: NodeNow, outcome: Outcome
) -> None:
    assert node_request(effect, now) is outcome


def test_a_node_that_was_uncordoned_by_hand_only_loses_the_annotation() -> None:
    request = node_request(REOPEN, NodeNow("77", 5, unschedulable=False, closed_by=OURS))
    assert isinstance(request, ApiRequest)
    assert "spec" not in request.body
    assert request.body["metadata"]["annotations"] == {CLOSED_BY: None}


def test_a_node_that_was_uncordoned_by_hand_is_not_cordoned_a_second_time() -> None:
    work = ClusterWork("oslo")
    node = Node("n1", {}, annotations={CLOSED_BY: OURS})
    work.observe_nodes(NodesObserved("oslo", 0, 1, (node,)))
    closed = AssignmentsDecided("oslo", "cluster/oslo", 12, (NodeClosed(12, "d12", "n1"),))
    work.take(closed, 0)
    assert open_effects(work, VERBS, 0) == []
    assert reopened_by_hand(work) == ["n1"]


def test_a_decision_about_a_node_ends_with_the_node() -> None:
    work = ClusterWork("oslo")
    work.observe_nodes(NodesObserved("oslo", 0, 1, (Node("n1", {}, created_us=5),)))
    closed = AssignmentsDecided("oslo", "cluster/oslo", 12, (NodeClosed(12, "d12", "n1"),))
    work.take(closed, 0)
    assert [effect.action for effect in open_effects(work, VERBS, 0)] == ["close-node"]
    work.observe_nodes(NodesObserved("oslo", 0, 1, ()))
    work.observe_nodes(NodesObserved("oslo", 0, 1, (Node("n1", {}, created_us=9),)))
    assert open_effects(work, VERBS, 0) == []


def test_rights_grow_by_verb_and_hold_no_secret() -> None:
    only_nodes: tuple[Verb, ...] = ("nodes",)
    base = {str(rule) for rule in actuator_rules(())}
    assert base < {str(rule) for rule in actuator_rules(only_nodes)}
    for rule in [*actuator_rules(VERBS), *own_rules()]:
        assert "secrets" not in rule["resources"]  # type: ignore[operator]
        assert "*" not in str(rule)


@pytest.mark.parametrize(
    ("effect", "code", "after_s", "outcome"),
    [
        (BIND, 201, 0, "done"),
        (BIND, 404, 0, "gone"),
        (BIND, 409, 0, "conflict"),
        (BIND, 422, 0, "refused"),
        (BIND, 403, 0, "forbidden"),
        (BIND, 429, 0, None),
        (BIND, 500, 0, None),
        (MARK, 422, 0, None),
        (REMOVE, 404, 0, "gone"),
        (CLOSE, 409, 0, None),
        (GATED, 409, 29, None),
        (GATED, 409, 30, "blocked"),
    ],
)
def test_what_is_reported_of_an_answer(
    effect: Effect, code: int, after_s: int, outcome: str | None
) -> None:
    message = "non-empty .spec.schedulingGates" if effect is GATED else "why"
    attempts, at = Attempts(), after_s * SECOND
    for when in dict.fromkeys((0, at)):
        made = attempts.answered(effect, ApiAnswer(code, "Reason", message), when)
    found = reported(effect, made, at)
    assert (None if found is None else found.outcome) == outcome
    if found is not None:
        assert (found.stream, found.seq, found.uid) == ("cluster/oslo", 12, "u1")
        assert (found.code, found.reason, found.after_us) == (code, "Reason", at)
        assert found.against_placement is (outcome == "refused")


def test_a_pod_that_its_kubelet_did_not_admit_is_reported_once() -> None:
    work, rejections = ClusterWork("oslo"), Rejections()
    work.take(AssignmentsDecided("oslo", "cluster/oslo", 5, (a_placement(5, "u1"),)), 0)
    work.observe_finished(FinishedPodsObserved("oslo", "n1", (failed("u1", "OutOfcpu"),)))
    (found,) = rejections.new(work)
    assert (found.outcome, found.node, found.binding) == ("rejected", "n1", "shop/web")
    assert found.against_placement
    assert rejections.new(work) == []
    # The stage has released it before it was seen to have failed.
    gone = Released(6, "d6", "shop/web", (NodeShare("n1", (0,)),), reason="PodGone")
    work.take(AssignmentsDecided("oslo", "cluster/oslo", 6, (gone,)), 0)
    assert [item.uid for item in Rejections().new(work)] == ["u1"]


@pytest.mark.parametrize(
    ("uid", "node", "reason"),
    [("u1", "n1", "Evicted"), ("u1", "n2", "OutOfcpu"), ("u2", "n1", "OutOfcpu")],
)
def test_other_failed_pods_are_not_reported(uid: str, node: str, reason: str) -> None:
    """It ran, it was bound by others, or it is none of ours."""
    work = ClusterWork("oslo")
    work.take(AssignmentsDecided("oslo", "cluster/oslo", 5, (a_placement(5, "u1"),)), 0)
    pod = msgspec.structs.replace(failed(uid, reason), node=node)
    work.observe_finished(FinishedPodsObserved("oslo", node, (pod,)))
    assert Rejections().new(work) == []


def a_placement(seq: int, uid: str) -> Placed:
    return Placed(seq, f"d{seq}", "shop/web", (NodeShare("n1", (0,), pods=(uid,)),), Requirements())


def failed(uid: str, reason: str) -> Pod:
    upkeep = PodUpkeep(phase="Failed", reason=reason)
    return Pod(uid, uid, Requirements(), "n1", upkeep=upkeep)
