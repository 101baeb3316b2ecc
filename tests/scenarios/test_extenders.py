"""Extenders have a say in where replicas go: what the cluster stage asks them, and what it makes of
their answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.cluster_world import GIB, STREAM, Harness, a_node, needs, outcomes

from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.policy import Policy
from wharfinger.domain.scheduler import Extender, ManagedResource, SchedulerConfig
from wharfinger.domain.scheduler_points import default_profile
from wharfinger.domain.workload import Requirements
from wharfinger.events.decisions import ExtenderAsked, ReplicasPlaced, ReplicasRefused
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.policies import PolicyApplied
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.extender_calls import ExtenderCall

SMALL = needs(cpu=1000, memory=GIB)
LICENCES = Extender("http://licences", filter_verb="filter", node_cache_capable=True)
TASTE = Extender("http://taste", prioritize_verb="prioritize", weight=5, node_cache_capable=True)
BINDER = Extender("http://binder", bind_verb="bind")

Answers = Callable[[ExtenderCall], Any]


class Extended:
    """A cluster whose scheduler has extenders; `answer` asks whoever plays them, until nothing is
    open."""

    def __init__(self, *extenders: Extender) -> None:
        self.plane = Harness()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.plane.nodes(a_node("a"), a_node("b"), a_node("c"))
        config = SchedulerConfig((default_profile(),), extenders)
        self.plane.feed(
            PolicyApplied(Policy("KubeSchedulerConfiguration", "default", scheduler=config))
        )

    def open(self) -> list[ExtenderCall]:
        return list(self.plane.decider.asks(self.plane.state))

    def answer(self, say: Answers) -> list[Decision]:
        """What is decided until nothing is open any more."""
        decided: list[Decision] = []
        while asks := self.open():
            for ask in asks:
                self.asked.append((f"{ask.extender.url}/{ask.verb}", json.loads(ask.body)))
            decided += self.plane.feed(*[_answered(ask, say(ask)) for ask in asks])
        return decided

    def where(self, binding: str) -> list[str]:
        return sorted(self.plane.where(binding).values())


def _answered(ask: ExtenderCall, said: Any) -> ExtenderAnswered:
    if isinstance(said, Exception):
        return ExtenderAnswered(STREAM, ask.id, "", str(said))
    return ExtenderAnswered(STREAM, ask.id, said if isinstance(said, str) else json.dumps(said))


def lets_pass(*names: str, **failed: str) -> Answers:
    return lambda ask: {
        "NodeNames": [n for n in names if n in json.loads(ask.body)["NodeNames"]],
        "FailedNodes": failed,
    }


def test_a_filter_leaves_the_nodes_it_names() -> None:
    cluster = Extended(LICENCES)
    (asked,) = cluster.plane.assign("shop/web", 1, SMALL)
    assert isinstance(asked.data, ExtenderAsked)
    assert (asked.outcome, asked.data.verb, sorted(asked.data.nodes)) == (
        "asked",
        "filter",
        ["a", "b", "c"],
    )
    cluster.answer(lets_pass("c", a="no licence", b="no licence"))
    assert cluster.where("shop/web") == ["c"]
    (url, body) = cluster.asked[0]
    assert url == "http://licences/filter"
    assert body["Pod"]["metadata"]["name"] == "web-0"


def test_each_replica_is_asked_about_by_itself() -> None:
    cluster = Extended(LICENCES)
    cluster.plane.assign("shop/web", 3, SMALL)
    cluster.answer(lets_pass("a", "b"))
    assert len(cluster.asked) == 3
    assert set(cluster.where("shop/web")) <= {"a", "b"}
    assert len(cluster.where("shop/web")) == 3


def test_where_no_node_passes_the_reasons_are_told() -> None:
    cluster = Extended(LICENCES)
    cluster.plane.assign("shop/web", 2, SMALL)
    decided = cluster.answer(lets_pass(a="no licence", b="no licence", c="wrong rack"))
    (refused,) = [d.data for d in decided if isinstance(d.data, ReplicasRefused)]
    assert (refused.reason, refused.count) == ("Extender", 2)
    assert (
        refused.explanation.note
        == "extenders: 0/3 nodes are available: 1 wrong rack, 2 no licence."
    )


def test_a_priority_moves_the_choice_and_a_failure_to_prioritise_is_no_opinion() -> None:
    cluster = Extended(TASTE)
    cluster.plane.assign("shop/web", 1, SMALL)
    cluster.answer(
        lambda _: [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 10}, {"Host": "c", "Score": 3}]
    )
    assert cluster.where("shop/web") == ["b"]
    cluster.plane.assign("shop/api", 1, SMALL)
    cluster.answer(lambda _: ValueError("answered with status 500"))
    assert len(cluster.where("shop/api")) == 1


def test_the_binder_is_asked_last_and_its_word_stands() -> None:
    cluster = Extended(LICENCES, BINDER)
    cluster.plane.assign("shop/web", 1, SMALL)

    def said(ask: ExtenderCall) -> Any:
        return {"Error": ""} if ask.verb == "bind" else lets_pass("b")(ask)

    cluster.answer(said)
    assert [url for url, _ in cluster.asked] == ["http://licences/filter", "http://binder/bind"]
    assert cluster.asked[1][1]["Node"] == "b"
    assert cluster.where("shop/web") == ["b"]
    cluster.plane.assign("shop/api", 1, SMALL)
    decided = cluster.answer(
        lambda ask: {"Error": "node is drained"} if ask.verb == "bind" else lets_pass("b")(ask)
    )
    assert outcomes(decided)[-1] == ("refused", "shop/api")
    assert cluster.where("shop/api") == []


def test_what_was_bound_is_placed_there_although_the_node_has_filled_up_since() -> None:
    cluster = Extended(LICENCES, BINDER)
    cluster.plane.assign("shop/web", 1, needs(cpu=3000))
    (ask,) = cluster.open()
    cluster.plane.feed(_answered(ask, {"NodeNames": ["b"]}))
    (bind,) = cluster.open()
    assert bind.verb == "bind"
    cluster.plane.nodes(a_node("a"), a_node("b", cpu=1000), a_node("c"))
    cluster.plane.feed(_answered(bind, {}))
    assert cluster.where("shop/web") == ["b"]


@pytest.mark.parametrize(
    "said", [ValueError("no answer within 5000 ms"), "not JSON", "[]", {"Error": "out of order"}]
)
def test_a_failing_filter_refuses_the_replica_unless_it_may_be_ignored(said: Any) -> None:
    cluster = Extended(LICENCES)
    cluster.plane.assign("shop/web", 1, SMALL)
    (refused,) = [
        d.data for d in cluster.answer(lambda _: said) if isinstance(d.data, ReplicasRefused)
    ]
    assert refused.reason == "Extender"
    assert refused.explanation.note.startswith("extender http://licences: ")
    easy = Extended(
        Extender("http://licences", filter_verb="filter", node_cache_capable=True, ignorable=True)
    )
    easy.plane.assign("shop/web", 1, SMALL)
    easy.answer(lambda _: said)
    assert len(easy.where("shop/web")) == 1


def test_nobody_is_asked_about_pods_that_do_not_ask_for_what_an_extender_manages() -> None:
    foxes = Extender(
        "http://foxes", filter_verb="filter", resources=(ManagedResource("example.com/fox"),)
    )
    cluster = Extended(foxes)
    assert outcomes(cluster.plane.assign("shop/web", 1, SMALL)) == [("placed", "shop/web")]
    wants = Requirements({"cpu": 100, "example.com/fox": 1})
    cluster.plane.nodes(a_node("a", extended={"example.com/fox": 2}), a_node("b"), a_node("c"))
    assert outcomes(cluster.plane.assign("shop/den", 1, wants)) == [("asked", "shop/den")]


def test_others_go_on_while_one_waits_and_the_answer_holds_for_the_nodes_it_was_asked_about() -> (
    None
):
    foxes = Extender(
        "http://foxes",
        filter_verb="filter",
        node_cache_capable=True,
        resources=(ManagedResource("example.com/fox"),),
    )
    cluster = Extended(foxes)
    roomy = {"example.com/fox": 2}
    cluster.plane.nodes(a_node("a", extended=roomy), a_node("b", extended=roomy), a_node("c"))
    cluster.plane.assign("shop/den", 1, Requirements({"cpu": 3000, "example.com/fox": 1}))
    (ask,) = cluster.open()
    assert outcomes(cluster.plane.assign("shop/web", 1, needs(cpu=500))) == [("placed", "shop/web")]
    assert [a.id for a in cluster.open()] == [ask.id], "the same question until it is answered"
    cluster.plane.nodes(
        a_node("a", cpu=100, extended=roomy),
        a_node("b", extended=roomy),
        a_node("c", extended=roomy),
    )
    cluster.plane.feed(_answered(ask, {"NodeNames": ["a", "b"]}))
    assert cluster.where("shop/den") == ["b"]


def test_where_nothing_is_left_of_what_was_asked_about_the_question_is_put_again() -> None:
    cluster = Extended(LICENCES)
    cluster.plane.assign("shop/web", 1, SMALL)
    (ask,) = cluster.open()
    cluster.plane.nodes(a_node("d"))
    (again,) = cluster.plane.feed(_answered(ask, {"NodeNames": ["a", "b", "c"]}))
    assert isinstance(again.data, ExtenderAsked)
    assert again.data.nodes == ("d",)
    cluster.answer(lets_pass("d"))
    assert cluster.where("shop/web") == ["d"]


def test_a_binding_that_is_withdrawn_meanwhile_is_not_asked_about_any_more() -> None:
    cluster = Extended(LICENCES)
    cluster.plane.assign("shop/web", 1, SMALL)
    (ask,) = cluster.open()
    cluster.plane.assign("shop/web", 0, SMALL)
    assert cluster.open() == []
    assert cluster.plane.feed(_answered(ask, {"NodeNames": ["a"]})) == []


def test_a_configuration_without_the_extender_sets_the_waiting_free() -> None:
    cluster = Extended(LICENCES)
    cluster.plane.assign("shop/web", 1, SMALL)
    config = SchedulerConfig((default_profile(),))
    told = PolicyApplied(Policy("KubeSchedulerConfiguration", "default", scheduler=config))
    assert outcomes(cluster.plane.feed(told)) == [("placed", "shop/web")]


def test_a_recovered_stream_has_the_same_questions_open_and_a_replay_the_same_bytes() -> None:
    cluster = Extended(LICENCES, TASTE)
    plane = cluster.plane
    plane.assign("shop/web", 2, SMALL)
    plane.feed(*[_answered(ask, {"NodeNames": ["a", "b"]}) for ask in cluster.open()])
    decider = ClusterDecider()
    recovered = decider.initial(STREAM)
    recover(decider, recovered, plane.rounds)
    assert [(a.id, a.body) for a in decider.asks(recovered)] == [
        (a.id, a.body) for a in cluster.open()
    ]
    loaded = decider.load(STREAM, decider.dump(plane.state))
    assert [(a.id, a.body) for a in decider.asks(loaded)] == [
        (a.id, a.body) for a in cluster.open()
    ]
    cluster.answer(lambda ask: [] if ask.verb == "prioritize" else {"NodeNames": ["a"]})
    assert len(plane.where("shop/web")) == 2
    result = audit(
        ClusterDecider(), ClusterDecider().initial(STREAM), empty_head(STREAM), plane.rounds
    )
    assert result.divergences == []


def test_a_profile_of_another_configuration_has_not_these_extenders() -> None:
    cluster = Extended(LICENCES)
    profile = default_profile()
    other = SchedulerConfig((type(profile)("quiet", profile.points, profile.arguments),))
    cluster.plane.feed(
        PolicyApplied(Policy("KubeSchedulerConfiguration", "quiet", scheduler=other))
    )
    quiet = Requirements({"cpu": 1000}, pod=PodTraits(scheduler="quiet"))
    (placed,) = cluster.plane.assign("shop/web", 1, quiet)
    assert isinstance(placed.data, ReplicasPlaced)


def test_an_extender_says_on_which_nodes_others_may_have_to_go() -> None:
    guard = Extender("http://guard", preempt_verb="preempt", node_cache_capable=True)
    cluster = Extended(guard)
    for name in ("low-1", "low-2", "low-3"):
        cluster.plane.assign(f"shop/{name}", 1, needs(cpu=3000))
    (asked,) = cluster.plane.assign("shop/high", 1, needs(cpu=3000), priority=100)
    assert isinstance(asked.data, ExtenderAsked)
    assert (asked.data.verb, sorted(asked.data.nodes)) == ("preempt", ["a", "b", "c"])
    victims = cluster.plane.where("shop/low-2")

    def only_low_2(ask: ExtenderCall) -> Any:
        told = json.loads(ask.body)["NodeNameToMetaVictims"]
        assert all(len(said["Pods"]) == 1 for said in told.values())
        return {
            "NodeNameToMetaVictims": {
                node: said for node, said in told.items() if node == victims[0]
            }
        }

    cluster.answer(only_low_2)
    assert cluster.where("shop/high") == [victims[0]]
    assert cluster.where("shop/low-2") == []
    assert len(cluster.where("shop/low-1")) == len(cluster.where("shop/low-3")) == 1


def test_where_an_extender_lets_nobody_go_the_replica_is_refused() -> None:
    guard = Extender("http://guard", preempt_verb="preempt", node_cache_capable=True)
    cluster = Extended(guard)
    for name in ("low-1", "low-2", "low-3"):
        cluster.plane.assign(f"shop/{name}", 1, needs(cpu=3000))
    cluster.plane.assign("shop/high", 1, needs(cpu=3000), priority=100)
    decided = cluster.answer(lambda _: {"NodeNameToMetaVictims": {}})
    assert outcomes(decided) == [("refused", "shop/high")]
    cluster.plane.assign("shop/high", 1, needs(cpu=3000), priority=100)
    assert outcomes(cluster.answer(lambda _: ValueError("no answer"))) == [("refused", "shop/high")]
    assert len(cluster.where("shop/low-1")) == 1
