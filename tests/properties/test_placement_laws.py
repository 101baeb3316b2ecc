"""Laws of placements, whatever the fleet and whatever was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.reference.ocm_objects import difference, objects

from wharfinger.domain.cluster import Cluster, ManagedClusterFacts, ManagedTaint
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import (
    AddOnScore,
    ClusterScores,
    ClusterSet,
    ClusterToleration,
    Condition,
    DecisionGroup,
    Predicate,
    Priority,
    ScoreValue,
    Selection,
    Selector,
    SetBinding,
)
from wharfinger.engine.cluster_sets.fleet import BY_LABELS, PlacementFleet
from wharfinger.engine.cluster_sets.groups import SLICE_MAX
from wharfinger.engine.cluster_sets.select import DISLIKED, SelectionResult, choose

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND
NAMES = [f"c{n}" for n in range(12)] + ["x" * 253]

EFFECTS = st.sampled_from(["NoSelect", "NoSelectIfNew", "PreferNoSelect"])
LABELS = st.dictionaries(
    st.sampled_from(["env", "region", "cluster.open-cluster-management.io/clusterset"]),
    st.sampled_from(["a", "b", "default"]),
)
AMOUNTS = st.fixed_dictionaries(
    {}, optional={"memory": st.sampled_from(["1Gi", "2000M", "3.5Gi", "0", "-1"])}
)
TAINTS = st.builds(
    ManagedTaint,
    st.sampled_from(["lost", "repair"]),
    EFFECTS,
    st.sampled_from(["", "x"]),
    st.one_of(st.none(), st.integers(-5, 5).map(lambda s: NOW + s * SECOND)),
)


@st.composite
def managed(draw: st.DrawFn, name: str) -> Cluster:
    amounts = draw(AMOUNTS)
    return Cluster(
        name,
        labels=draw(LABELS),
        deleting=draw(st.integers(0, 9)) == 0,
        managed=ManagedClusterFacts(
            draw(LABELS), tuple(draw(st.lists(TAINTS, max_size=2))), amounts, amounts
        ),
    )


CLUSTERS = st.lists(st.sampled_from(NAMES), unique=True, max_size=len(NAMES)).flatmap(
    lambda names: st.tuples(*(managed(name) for name in names))
)
SELECTORS = st.builds(
    Selector,
    st.dictionaries(st.sampled_from(["env", "region"]), st.sampled_from(["a", "b"]), max_size=1),
    st.lists(
        st.builds(
            Condition,
            st.sampled_from(["env", "region"]),
            st.sampled_from(["In", "NotIn"]),
            st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2).map(tuple),
        ),
        max_size=1,
    ).map(tuple),
)
TOLERATIONS = st.builds(
    ClusterToleration,
    st.sampled_from(["lost", "repair"]),
    st.sampled_from(["Equal", "Exists"]),
    st.just(""),
    st.one_of(st.just(""), EFFECTS),
    st.one_of(st.none(), st.integers(-3, 8)),
)
PRIORITIES = st.one_of(
    st.builds(
        Priority,
        st.just("BuiltIn"),
        st.sampled_from(
            ["Balance", "Steady", "ResourceAllocatableMemory", "ResourceAllocatableCPU"]
        ),
        weight=st.integers(-10, 10),
    ),
    st.builds(
        Priority,
        st.just("AddOn"),
        addon=st.builds(AddOnScore, st.just("load"), st.just("s")),
        weight=st.integers(-10, 10),
    ),
)
SELECTIONS = st.builds(
    Selection,
    cluster_sets=st.sampled_from([(), ("global",), ("labelled",), ("nobody's",)]),
    wanted=st.one_of(st.none(), st.integers(0, 15), st.just(2**31 - 1)),
    predicates=st.lists(st.builds(Predicate, SELECTORS, SELECTORS), max_size=2).map(tuple),
    tolerations=st.lists(TOLERATIONS, max_size=2).map(tuple),
    mode=st.sampled_from(["Additive", "Exact"]),
    priorities=st.lists(PRIORITIES, max_size=3).map(tuple),
    per_group=st.one_of(st.integers(-1, 20), st.sampled_from(["100%", "7%", "33%", "250%", "0%"])),
    groups=st.lists(
        st.builds(DecisionGroup, st.sampled_from(["first", "second"]), SELECTORS), max_size=2
    ).map(tuple),
    expired_scores=st.sampled_from(["zero", "unknown"]),
    hysteresis=st.sampled_from([0, 0, 50, 150]),
    strict=st.booleans(),
)
SCORES = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(
        lambda value, until: ClusterScores((ScoreValue("s", value),), until),
        st.integers(-100, 100),
        st.one_of(st.none(), st.integers(-3, 3).map(lambda s: NOW + s * SECOND)),
    ),
)
DECIDED = st.dictionaries(
    st.sampled_from(["shop/p", "shop/other", "far/p"]),
    st.lists(st.sampled_from([*NAMES, "far-away"]), max_size=6),
    max_size=3,
)


def a_placement(selection: Selection, name: str = "p") -> Policy:
    return Policy("Placement", name, "shop", selection=selection)


def policies() -> list[Policy]:
    return [
        Policy(
            "ManagedClusterSet",
            "labelled",
            cluster_set=ClusterSet(BY_LABELS, Selector({"env": "a"})),
        ),
        Policy("ManagedClusterSetBinding", "labelled", "shop", set_binding=SetBinding("labelled")),
        Policy("ManagedClusterSetBinding", "global", "shop", set_binding=SetBinding("global")),
        Policy("ManagedClusterSet", "global", cluster_set=ClusterSet(BY_LABELS, Selector())),
    ]


def a_fleet(
    clusters: Sequence[Cluster],
    scores: dict[str, ClusterScores] | None = None,
    decided: dict[str, list[str]] | None = None,
    chance: Random | None = None,
) -> PlacementFleet:
    """Told everything once, in an order of `chance`."""
    told: list[tuple[str, Any]] = [("cluster", c) for c in clusters]
    told += [("policy", p) for p in policies()]
    told += [
        ("policy", Policy("AddOnPlacementScore", "load", name, scores=s))
        for name, s in (scores or {}).items()
    ]
    told += [("decided", pair) for pair in (decided or {}).items()]
    if chance is not None:
        chance.shuffle(told)
    fleet = PlacementFleet()
    for what, value in told:
        match what:
            case "cluster":
                fleet.observe(value)
            case "policy":
                fleet.apply(value)
            case _:
                fleet.decided(*value)
    return fleet


def picture(choice: SelectionResult) -> dict[str, Any]:
    """All that a choice says."""
    return {
        "sets": (choice.valid_bindings, choice.eligible_sets, choice.sets_trouble),
        "stages": [choice.named(at) for at in (choice.available, choice.matched, choice.passed)],
        "scores": [(s.name, s.weight, choice.scores_of(s)) for s in choice.scores or ()],
        "totals": dict(choice.total_of),
        "selected": choice.selected,
        "rest": (
            choice.unscheduled,
            choice.status,
            choice.group_trouble,
            choice.groups,
            choice.requeue_at,
        ),
        "told": (choice.conditions, choice.keeps),
    }


@settings(max_examples=examples(60), deadline=None)
@given(
    clusters=CLUSTERS, scores=SCORES, decided=DECIDED, selection=SELECTIONS, seed=st.integers(0, 99)
)
def test_the_order_in_which_things_are_told_changes_nothing(
    clusters: tuple[Cluster, ...],
    scores: dict[str, ClusterScores],
    decided: dict[str, list[str]],
    selection: Selection,
    seed: int,
) -> None:
    placement = a_placement(selection)
    one = choose(a_fleet(clusters, scores, decided), placement, NOW)
    other = choose(a_fleet(clusters, scores, decided, Random(seed)), placement, NOW)
    assert picture(one) == picture(other)


FEW = NAMES[:4]


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """A life of a small fleet, in which the same clusters come up again and again."""
    out: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(2, 12))):
        what = draw(
            st.sampled_from(
                [*["cluster"] * 3, *["decided"] * 3, "forget", "scores", "no scores", "bind"]
            )
        )
        name = draw(st.sampled_from(FEW))
        match what:
            case "cluster":
                out.append((what, draw(managed(name))))
            case "scores":
                out.append(
                    (what, (name, ClusterScores((ScoreValue("s", draw(st.integers(-100, 100))),))))
                )
            case "decided":
                key = draw(st.sampled_from(["shop/p", "shop/other", "shop/other"]))
                out.append((what, (key, draw(st.lists(st.sampled_from(FEW), max_size=4)))))
            case "bind":
                out.append((what, draw(st.booleans())))
            case _:
                out.append((what, name))
    return out


BOUND = Policy("ManagedClusterSetBinding", "labelled", "shop", set_binding=SetBinding("labelled"))


@settings(max_examples=examples(60), deadline=None)
@given(life=steps(), first=SELECTIONS, second=SELECTIONS)
def test_what_is_kept_between_decisions_never_shows(
    life: list[tuple[str, Any]], first: Selection, second: Selection
) -> None:
    """A fleet that has lived, and was asked after every step, decides as one that is told where it
    has come to."""
    lived = a_fleet(())
    clusters: dict[str, Cluster] = {}
    scores: dict[str, ClusterScores] = {}
    decided: dict[str, list[str]] = {}
    bound = True
    for i, (what, value) in enumerate(life):
        match what:
            case "cluster":
                lived.observe(value)
                clusters[value.name] = value
            case "forget":
                lived.forget(value)
                clusters.pop(value, None)
            case "scores":
                name, scores[name] = value
                lived.apply(Policy("AddOnPlacementScore", "load", name, scores=scores[name]))
            case "no scores":
                lived.remove("AddOnPlacementScore", value, "load")
                scores.pop(value, None)
            case "decided":
                lived.decided(*value)
                decided[value[0]] = value[1]
            case _:
                bound = value
                if bound:
                    lived.apply(BOUND)
                else:
                    lived.remove(BOUND.kind, BOUND.namespace, BOUND.name)
        fresh = a_fleet(tuple(clusters.values()), scores, decided)
        if not bound:
            fresh.remove(BOUND.kind, BOUND.namespace, BOUND.name)
        for selection in (first, second):
            placement, at = a_placement(selection), NOW + i * SECOND
            assert picture(choose(lived, placement, at)) == picture(choose(fresh, placement, at))


@settings(max_examples=examples(60), deadline=None)
@given(clusters=CLUSTERS, scores=SCORES, decided=DECIDED, selection=SELECTIONS)
def test_who_is_selected_was_available_matched_and_passed(
    clusters: tuple[Cluster, ...],
    scores: dict[str, ClusterScores],
    decided: dict[str, list[str]],
    selection: Selection,
) -> None:
    choice = choose(a_fleet(clusters, scores, decided), a_placement(selection), NOW)
    assert not choice.keeps
    available, matched, passed = (
        set(choice.named(at)) for at in (choice.available, choice.matched, choice.passed)
    )
    assert (
        set(choice.selected)
        <= passed
        <= matched
        <= available
        <= {c.name for c in clusters if not c.deleting}
    )
    assert len(set(choice.selected)) == len(choice.selected)
    wanted = len(passed) if selection.wanted is None else selection.wanted
    assert len(choice.selected) == min(wanted, len(passed))
    assert choice.unscheduled == wanted - len(choice.selected)


@settings(max_examples=examples(60), deadline=None)
@given(clusters=CLUSTERS, scores=SCORES, decided=DECIDED, selection=SELECTIONS)
def test_the_best_are_selected_and_ties_are_broken_by_name(
    clusters: tuple[Cluster, ...],
    scores: dict[str, ClusterScores],
    decided: dict[str, list[str]],
    selection: Selection,
) -> None:
    """A held cluster has its lead, and where there is one, also every tie."""
    choice = choose(a_fleet(clusters, scores, decided), a_placement(selection), NOW)
    lead = 0 if selection.strict else selection.hysteresis
    held = set(decided.get("shop/p", ()))

    def rank(name: str) -> tuple[int, bool, str]:
        return (
            -choice.total_of[name] - (lead if name in held else 0),
            bool(lead) and name not in held,
            name,
        )

    assert list(choice.selected) == sorted(choice.total_of, key=rank)[: len(choice.selected)]


@settings(max_examples=examples(60), deadline=None)
@given(clusters=CLUSTERS, decided=DECIDED, selection=SELECTIONS)
def test_every_selected_cluster_is_in_one_group_and_one_slice(
    clusters: tuple[Cluster, ...], decided: dict[str, list[str]], selection: Selection
) -> None:
    choice = choose(a_fleet(clusters, {}, decided), a_placement(selection), NOW)
    grouped = [name for group in choice.groups for name in group.clusters]
    assert sorted(grouped) == sorted(choice.selected)
    assert [group.index for group in choice.groups] == list(range(len(choice.groups)))
    for group in choice.groups:
        assert list(group.clusters) == sorted(group.clusters)
        if isinstance(selection.per_group, int) and selection.per_group > 0:
            assert len(group.clusters) <= selection.per_group
    made = objects("p", choice.groups)
    assert [name for one in made for name in one.clusters] == grouped
    assert [one.name for one in made] == [f"p-decision-{n + 1}" for n in range(len(made))]


@settings(max_examples=examples(20), deadline=None)
@given(
    clusters=st.integers(0, 450),
    per_group=st.one_of(st.integers(-2, 500), st.sampled_from(["1%", "50%", "100%"])),
    wanted=st.one_of(st.none(), st.integers(0, 500)),
)
def test_no_object_holds_more_than_a_hundred_clusters(
    clusters: int, per_group: int | str, wanted: int | None
) -> None:
    fleet = a_fleet([Cluster(f"c{n:03}", managed=ManagedClusterFacts()) for n in range(clusters)])
    placement = a_placement(Selection(wanted=wanted, per_group=per_group, cluster_sets=("global",)))
    choice = choose(fleet, placement, NOW)
    made = objects("p", choice.groups)
    assert all(len(one.clusters) <= SLICE_MAX for one in made)
    assert sum(len(one.clusters) for one in made) == len(choice.selected)
    first = difference(choice, ())
    again = difference(choice, first.after)
    assert first.after == made
    assert (again.writes, again.events) == ((), ())


@settings(max_examples=examples(60), deadline=None)
@given(clusters=CLUSTERS, scores=SCORES, decided=DECIDED, selection=SELECTIONS)
def test_what_was_decided_is_decided_again(
    clusters: tuple[Cluster, ...],
    scores: dict[str, ClusterScores],
    decided: dict[str, list[str]],
    selection: Selection,
) -> None:
    """Unless holding a cluster is to count against it, or makes it bear what newcomers do not, a
    decision comes to rest at once."""
    assume(all(p.weight >= 0 for p in selection.priorities if p.builtin == "Steady"))
    calm = [_without_soft_taints(c) for c in clusters]
    fleet = a_fleet(calm, scores, decided)
    first = choose(fleet, a_placement(selection), NOW)
    fleet.decided("shop/p", first.selected)
    second = choose(fleet, a_placement(selection), NOW)
    fleet.decided("shop/p", second.selected)
    assert set(choose(fleet, a_placement(selection), NOW).selected) == set(second.selected)


def _without_soft_taints(cluster: Cluster) -> Cluster:
    assert cluster.managed is not None
    hard = tuple(t for t in cluster.managed.taints if t.effect == "NoSelect")
    return msgspec.structs.replace(
        cluster, managed=msgspec.structs.replace(cluster.managed, taints=hard)
    )


@settings(max_examples=examples(80), deadline=None)
@given(
    scores=st.lists(st.integers(-10, 10), min_size=2, max_size=6),
    held=st.sets(st.integers(0, 5), min_size=1, max_size=4),
    wanted=st.integers(1, 4),
    points=st.integers(0, 12),
)
def test_a_newcomer_must_be_better_by_more_than_the_hysteresis(
    scores: list[int], held: set[int], wanted: int, points: int
) -> None:
    """And where it is, it takes the place; without hysteresis a tie goes to the earlier name, held
    or not."""
    names = NAMES[: len(scores)]
    mine = [names[i] for i in sorted(held) if i < len(names)]
    given_scores = {
        name: ClusterScores((ScoreValue("s", score),))
        for name, score in zip(names, scores, strict=True)
    }
    fleet = a_fleet(
        [Cluster(name, managed=ManagedClusterFacts()) for name in names],
        given_scores,
        {"shop/p": mine},
    )
    load = Priority("AddOn", addon=AddOnScore("load", "s"))
    selection = Selection(mode="Exact", priorities=(load,), wanted=wanted, hysteresis=points)
    choice = choose(fleet, a_placement(selection), NOW)
    score = dict(zip(names, scores, strict=True))
    for displaced in set(mine) - set(choice.selected):
        for newcomer in set(choice.selected) - set(mine):
            assert score[newcomer] > score[displaced] + points or (
                not points and (-score[newcomer], newcomer) < (-score[displaced], displaced)
            )
    for kept in set(mine) & set(choice.selected):
        for refused in set(names) - set(mine) - set(choice.selected):
            assert score[refused] <= score[kept] + points


@settings(max_examples=examples(60), deadline=None)
@given(clusters=CLUSTERS, selection=SELECTIONS, scores=SCORES)
def test_a_cluster_that_had_better_not_be_selected_comes_after_all_others(
    clusters: tuple[Cluster, ...], selection: Selection, scores: dict[str, ClusterScores]
) -> None:
    fleet = a_fleet(clusters, scores)
    kind = msgspec.structs.replace(selection, strict=False, tolerations=())
    choice = choose(fleet, a_placement(kind), NOW)
    by_name = {c.name: c for c in clusters}

    def soft(name: str) -> bool:
        facts = by_name[name].managed
        return facts is not None and any(t.effect == "PreferNoSelect" for t in facts.taints)

    marks = [soft(name) for name in choice.selected]
    assert marks == sorted(marks)
    assert all((choice.total_of[name] < -DISLIKED // 2) == soft(name) for name in choice.total_of)
    strict = choose(fleet, a_placement(msgspec.structs.replace(kind, strict=True)), NOW)
    assert all(abs(total) < DISLIKED // 2 for total in strict.total_of.values())


WRONG: list[Selection] = [
    Selection(wanted=-1),
    Selection(per_group="5"),
    Selection(per_group="all"),
    Selection(mode="exact"),
    Selection(predicates=(Predicate(Selector(conditions=(Condition("env", "Like", ("a",)),))),)),
    Selection(predicates=(Predicate(expressions=("managedCluster.",)),)),
    Selection(groups=(DecisionGroup("first", Selector({"no such key!": "a"})),)),
    Selection(tolerations=(ClusterToleration("", "Equal"),)),
    Selection(priorities=(Priority(builtin="Spread"),)),
    Selection(priorities=(Priority("AddOn"),)),
    Selection(priorities=(Priority("", weight=1),)),
]


@settings(max_examples=examples(40), deadline=None)
@given(clusters=CLUSTERS, decided=DECIDED, wrong=st.sampled_from(WRONG))
def test_a_wrong_placement_never_takes_away_what_stands(
    clusters: tuple[Cluster, ...], decided: dict[str, list[str]], wrong: Selection
) -> None:
    """It is told wrong whether there are candidates or not, and nothing is written."""
    fleet = a_fleet(clusters, {}, decided)
    placement = a_placement(wrong)
    choice = choose(fleet, placement, NOW)
    standing = objects("p", choose(a_fleet(clusters), a_placement(Selection()), NOW).groups)
    left = difference(choice, standing)
    assert choice.keeps
    assert left.writes == ()
    assert left.after == standing
    (told,) = [c for c in choice.conditions if c.type == "PlacementMisconfigured"]
    assert told.status == "True"
    assert fleet.held("shop/p") == tuple(decided.get("shop/p", ()))


@settings(max_examples=examples(20), deadline=None)
@given(clusters=CLUSTERS, length=st.integers(64, 253))
def test_a_placement_whose_name_no_label_holds_is_told_so(
    clusters: tuple[Cluster, ...], length: int
) -> None:
    choice = choose(a_fleet(clusters), a_placement(Selection(), "p" * length), NOW)
    assert choice.keeps
    assert "must be no more than 63 bytes" in choice.status.message


@settings(max_examples=examples(80), deadline=None)
@given(
    added=st.lists(st.integers(-6, 3), min_size=1, max_size=4),
    seconds=st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=3),
    until=st.integers(-1, 6),
    asked=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    unknown=st.booleans(),
)
def test_nothing_changes_by_time_alone_before_it_was_said_to(
    added: list[int], seconds: list[int | None], until: int, asked: list[int], unknown: bool
) -> None:
    """Tolerations and scores end. A fleet that was asked before, at whatever times, answers as one
    that never was."""
    taints = [ManagedTaint("lost", "NoSelect", added_us=NOW + s * SECOND) for s in added]
    clusters = [
        Cluster(name, managed=ManagedClusterFacts({}, (t,)))
        for name, t in zip(NAMES, taints, strict=False)
    ]
    scores = {
        c.name: ClusterScores((ScoreValue("s", 7 + i),), NOW + until * SECOND)
        for i, c in enumerate(clusters)
    }
    selection = Selection(
        tolerations=tuple(ClusterToleration("lost", "Exists", seconds=s) for s in seconds),
        priorities=(Priority("AddOn", addon=AddOnScore("load", "s")),),
        expired_scores="unknown" if unknown else "zero",
    )
    lived = a_fleet(clusters, scores)
    for after in asked:
        now = choose(lived, a_placement(selection), NOW + after * SECOND)
        assert picture(now) == picture(
            choose(a_fleet(clusters, scores), a_placement(selection), NOW + after * SECOND)
        )
        last = NOW + 20 * SECOND if now.requeue_at is None else now.requeue_at - 1
        then = choose(a_fleet(clusters, scores), a_placement(selection), last)
        assert (then.selected, dict(then.total_of)) == (now.selected, dict(now.total_of))
