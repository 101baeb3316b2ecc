"""One pod through the plugins of a profile: who is asked what, in which order, and what is kept of
the answers.

The plugins here do one thing each, so that what is seen is the framework's doing. Real ones are in
tests/conformance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import Arguments, PluginUse, Point, Profile
from wharfinger.domain.scheduler_plugins import BUILT_IN
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.cycle import Framework, PluginError
from wharfinger.engine.framework.messages import unavailable
from wharfinger.engine.framework.profile import default_profile, framework
from wharfinger.engine.framework.protocols import Cycle, Narrowed, Nominated
from wharfinger.engine.framework.registry import PLUGINS
from wharfinger.engine.framework.snapshot import NodeInfo, Snapshot
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from wharfinger.manifests.kubernetes.installed_plugins import points_of

POD = Pod("uid", "web", Requirements())


def nodes(*names: str) -> Snapshot:
    return Snapshot.of([Node(name, {"cpu": 4000}) for name in names], [])


@dataclass
class Refusing:
    """Refuses the nodes that it names."""

    name: str
    refuses: Mapping[str, Status] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        self.asked.append(node.name)
        return self.refuses.get(node.name)


@dataclass
class Choosy(Refusing):
    """Has something to say about the pod first."""

    says: Status | Narrowed | None = None

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | Narrowed | None:
        cycle.data[self.name] = [self.name]
        return self.says


@dataclass
class Scoring:
    name: str
    scores: Mapping[str, int] = field(default_factory=dict)
    says: Status | None = None

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        return self.says

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        return self.scores.get(node.name, 0)


@dataclass
class Halving(Scoring):
    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        return {name: score // 2 for name, score in scores.items()}


class Sorting:
    name = "Sorting"

    def order(self, pod: Pod, queued_at_us: int) -> tuple[Any, ...]:
        return (-pod.priority, queued_at_us)


class Binding:
    name = "Binding"

    def bind(self, cycle: Cycle, pod: Pod, node: str) -> Status | None:
        return None


def made(*plugins: Any, weights: Mapping[str, int] | None = None) -> Framework:
    """A framework of these plugins, each at all the points where it works."""
    everyone: list[Any] = [Sorting(), Binding(), *plugins]
    points: dict[Point, tuple[PluginUse, ...]] = {}
    for plugin in everyone:
        for point in points_of(type(plugin)):
            weight = (weights or {}).get(plugin.name, 1) if point == "score" else 0
            points[point] = (*points.get(point, ()), PluginUse(plugin.name, weight))

    def factory(plugin: Any) -> Callable[[Arguments], Any]:
        return lambda arguments: plugin

    return framework(Profile(points=points), {plugin.name: factory(plugin) for plugin in everyone})


# Filters.


def test_every_plugin_is_asked_about_every_node_and_the_first_refusal_is_what_is_told() -> None:
    near = Refusing("Near", {"b": unschedulable("too far")})
    dry = Refusing("Dry", {"b": unresolvable("too wet"), "c": unresolvable("too wet")})
    outcome = made(near, dry).run(nodes("a", "b", "c"), POD)
    assert near.asked == dry.asked == ["a", "b", "c"]
    assert outcome.failures == {
        "Near": {"b": Status("Unschedulable", ("too far",), "Near")},
        "Dry": {
            "b": Status("UnschedulableAndUnresolvable", ("too wet",), "Dry"),
            "c": Status("UnschedulableAndUnresolvable", ("too wet",), "Dry"),
        },
    }
    assert {name: status.plugin for name, status in outcome.first.items()} == {
        "b": "Near",
        "c": "Dry",
    }
    assert outcome.feasible == ("a",)
    assert outcome.message == ""


def test_the_message_counts_the_first_reasons_and_sorts_them_as_texts() -> None:
    names = [f"n{i:02}" for i in range(12)]
    near = Refusing("Near", {name: unschedulable("too far", "too old") for name in names[:10]})
    dry = Refusing("Dry", dict.fromkeys(names, unresolvable("too wet")))
    outcome = made(near, dry).run(nodes(*names), POD)
    assert outcome.message == "0/12 nodes are available: 10 too far, 10 too old, 2 too wet."
    assert outcome.refusing == ("Dry", "Near")


def test_without_nodes_there_is_nothing_to_count() -> None:
    assert made(Refusing("Near")).run(nodes(), POD).message == "no nodes available to schedule pods"
    assert unavailable(2, {}) == "0/2 nodes are available:"


def test_a_plugin_with_nothing_to_say_about_the_pod_is_not_asked_about_nodes() -> None:
    silent = Choosy("Silent", {"a": unschedulable("never said")}, says=SKIP)
    outcome = made(silent).run(nodes("a"), POD)
    assert silent.asked == []
    assert outcome.skipped == ("Silent",)
    assert outcome.feasible == ("a",)


def test_a_pod_that_a_pre_filter_refuses_fits_nowhere_and_the_sentence_is_said_once() -> None:
    strict = Choosy("Strict", says=unresolvable("claim not found"))
    also = Choosy("Also", {"a": unschedulable("full")}, says=unschedulable("asks too much"))
    outcome = made(also, strict).run(nodes("a", "b"), POD)
    assert outcome.feasible == ()
    assert outcome.message == "0/2 nodes are available: claim not found."
    assert outcome.refusing == ("Strict",)
    assert strict.asked == also.asked == []  # who refused the pod has nothing to say about nodes
    assert {
        name: said.code for name, said in outcome.pre_filter.items() if isinstance(said, Status)
    } == {"Also": "Unschedulable", "Strict": "UnschedulableAndUnresolvable"}


def test_nodes_outside_of_what_pre_filters_leave_are_out_for_that() -> None:
    one = Choosy("One", says=Narrowed(frozenset({"a", "b"})))
    two = Choosy("Two", {"b": unschedulable("full")}, says=Narrowed(frozenset({"b", "c"})))
    outcome = made(one, two).run(nodes("a", "b", "c"), POD)
    assert (
        outcome.message
        == "0/3 nodes are available: 1 full, 2 node(s) didn't satisfy plugin(s) [One Two]."
    )
    assert outcome.refusing == ("One", "Two")


def test_pre_filters_that_leave_no_node_together_say_so() -> None:
    one = Choosy("One", says=Narrowed(frozenset({"a"})))
    two = Choosy("Two", says=Narrowed(frozenset({"b"})))
    outcome = made(one, two).run(nodes("a", "b"), POD)
    assert outcome.message == (
        "0/2 nodes are available: node(s) didn't satisfy plugin(s) [One Two] simultaneously."
    )
    assert outcome.refusing == ("One", "Two")


def test_some_nodes_alone_are_refused_as_among_all() -> None:
    one = Choosy("One", {"b": unschedulable("full")}, says=Narrowed(frozenset({"a", "b"})))
    chosen = made(one, Scoring("Two", {"a": 70, "b": 50}))
    whole = chosen.run(nodes("a", "b", "c"), POD)
    outcome = chosen.begin(nodes("a", "b", "c"), POD)
    assert chosen.refusals(outcome, POD, ["c", "b"]) == {
        name: whole.first[name] for name in ("b", "c")
    }
    outcome.feasible = ("a",)
    chosen.score(outcome, POD)
    assert (outcome.totals, outcome.best) == ({"a": 70}, ("a",))
    strict = made(Choosy("Strict", says=unresolvable("claim not found")))
    outcome = strict.begin(nodes("a", "b"), POD)
    assert strict.refusals(outcome, POD, ["a"]) == {"a": outcome.rejected}


def test_a_refusal_that_is_none_is_a_bug_of_the_plugin() -> None:
    with pytest.raises(
        PluginError, match="plugin Near: expected a refusal, got Error disk on fire"
    ):
        made(Refusing("Near", {"a": Status("Error", ("disk on fire",))})).run(nodes("a"), POD)


# Scores.


def test_the_total_is_the_weighted_sum_of_normalised_scores_and_all_of_the_best_are_named() -> None:
    one = Scoring("One", {"a": 10, "b": 40, "c": 40})
    two = Halving("Two", {"a": 100, "b": 20, "c": 20})
    outcome = made(one, two, weights={"One": 3, "Two": 2}).run(nodes("a", "b", "c"), POD)
    assert outcome.totals == {"a": 130, "b": 140, "c": 140}
    assert outcome.best == ("b", "c")
    scored = outcome.scores["Two"]
    assert scored is not None
    assert (scored.weight, scored.raw["a"], scored.normalised["a"]) == (2, 100, 50)


def test_only_feasible_nodes_are_scored() -> None:
    outcome = made(
        Refusing("Near", {"a": unschedulable("too far")}), Scoring("One", {"a": 50})
    ).run(nodes("a", "b"), POD)
    assert outcome.totals == {"b": 0}


def test_a_score_that_is_skipped_adds_nothing() -> None:
    outcome = made(Scoring("One", {"a": 50}, says=SKIP)).run(nodes("a"), POD)
    assert outcome.scores == {"One": None}
    assert outcome.totals == {"a": 0}


@pytest.mark.parametrize("score", [-1, 101])
def test_a_score_outside_of_0_to_100_is_a_bug_of_the_plugin(score: int) -> None:
    with pytest.raises(
        PluginError, match=f"plugin One: expected a score of 0 to 100 for a, got {score}"
    ):
        made(Scoring("One", {"a": score})).run(nodes("a"), POD)


def test_a_pre_score_cannot_refuse() -> None:
    with pytest.raises(PluginError, match="pre-score cannot refuse"):
        made(Scoring("One", says=unschedulable("no"))).run(nodes("a"), POD)


# After a refusal.


@dataclass
class Helping:
    name: str
    finds: Nominated | Status
    asked: int = 0

    def post_filter(
        self, cycle: Cycle, pod: Pod, refused: Mapping[str, Status]
    ) -> Nominated | Status:
        self.asked += 1
        assert set(refused) == {"a"}
        return self.finds


def test_what_post_filters_say_is_added_and_the_first_that_finds_a_node_is_the_last_asked() -> None:
    full = Refusing("Near", {"a": unschedulable("full")})
    no, yes, late = (
        Helping("No", unschedulable("nothing to give back")),
        Helping("Yes", Nominated("a", ())),
        Helping("Late", unschedulable("never asked")),
    )
    chosen = made(full, no, yes, late)
    assert chosen.post_filter(chosen.run(nodes("a"), POD), POD) == (
        Nominated("a", ()),
        "0/1 nodes are available: 1 full.",
    )
    assert (no.asked, yes.asked, late.asked) == (1, 1, 0)
    chosen = made(full, no, Helping("Also", unschedulable("preemption: no victims")))
    assert chosen.post_filter(chosen.run(nodes("a"), POD), POD) == (
        None,
        "0/1 nodes are available: 1 full. nothing to give back, preemption: no victims",
    )


def test_a_pre_filters_refusal_is_every_nodes_for_a_post_filter() -> None:
    strict = Choosy("Strict", says=unschedulable("asks too much"))
    helping = Helping("Yes", Nominated("a", ()))
    chosen = made(strict, helping)
    nominated, _ = chosen.post_filter(chosen.run(nodes("a"), POD), POD)
    assert nominated == Nominated("a", ())


def test_a_copy_of_a_cycle_can_be_tried_on() -> None:
    outcome = made(Choosy("One")).begin(nodes("a"), POD)
    copy = outcome.cycle.copy()
    copy.data["One"].append("more")
    copy.skipped["filter"].add("One")
    assert outcome.cycle.data == {"One": ["One"]}
    assert outcome.cycle.skipped["filter"] == set()


# Profiles.


def test_the_default_profile_is_kube_schedulers_with_ours_added() -> None:
    weights = {use.name: use.weight for use in default_profile().at("score")}
    assert weights == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "Devices": 1,
        "Dynamic": 3,
    }
    filters = [
        use.name for use in default_profile().at("filter") if use.name not in ("Devices", "Dynamic")
    ]
    assert filters == [
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
    ]


def test_every_plugin_works_at_the_points_that_its_line_names() -> None:
    for plugin in BUILT_IN:
        loaded = PLUGINS[plugin.name](Arguments())
        assert loaded.name == plugin.name
        assert set(points_of(type(loaded))) == set(plugin.points), plugin.name
        assert not set(plugin.elsewhere) & set(plugin.points), plugin.name


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ({"filter": (PluginUse("Nobody"),)}, "no plugin is called Nobody"),
        ({"permit": (PluginUse("NodeName"),)}, "plugin NodeName does nothing at permit"),
        ({"queueSort": ()}, "expected one plugin at queueSort, got none"),
        ({"bind": ()}, "expected a plugin at bind"),
    ],
)
def test_a_profile_that_cannot_run_is_refused_in_one_line(
    points: dict[Point, tuple[PluginUse, ...]], said: str
) -> None:
    basic: dict[Point, tuple[PluginUse, ...]] = {
        "queueSort": (PluginUse("PrioritySort"),),
        "bind": (PluginUse("DefaultBinder"),),
    }
    with pytest.raises(ValueError, match=said) as raised:
        framework(Profile("mine", basic | points))
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("profile mine: ")
