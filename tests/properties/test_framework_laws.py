"""What holds of every cycle: the order in which things were told means nothing, and what is
answered is of one piece."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.cluster_objects import ClusterObjects, NamespaceLabels
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import (
    HostPort,
    PodTerm,
    PodTraits,
    TopologySpread,
    WeightedNodeTerm,
    WeightedPodTerm,
)
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.cycle import CycleOutcome
from wharfinger.engine.framework.profile import default_profile, framework
from wharfinger.engine.framework.snapshot import Snapshot

FRAMEWORK = framework(default_profile())

APPS = st.sampled_from(["web", "db"])
WEB, DB = (LabelSelector({"app": app}) for app in ("web", "db"))
KEYS = st.sampled_from(["zone", "kubernetes.io/hostname"])
SELECTORS = st.sampled_from([WEB, DB, LabelSelector()])
TERMS = st.builds(PodTerm, KEYS, SELECTORS)
SSD = NodeTerm((Requirement("disk", "In", ("ssd",)),))


def few(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=1).map(tuple)


TRAITS = st.builds(
    PodTraits,
    namespace=st.sampled_from(["", "shop"]),
    labels=st.fixed_dictionaries({"app": APPS}),
    images=st.sampled_from([(), ("app:1",)]),
    preferences=st.sampled_from([(), (WeightedNodeTerm(10, SSD),)]),
    ports=st.sampled_from([(), (), (HostPort(80),), (HostPort(80, ip="10.0.0.1"),)]),
    spread=few(st.builds(TopologySpread, KEYS, st.integers(1, 2), st.booleans(), SELECTORS)),
    affinity=few(TERMS),
    anti_affinity=few(TERMS),
    preferred_affinity=few(st.builds(WeightedPodTerm, st.integers(1, 100), TERMS)),
    preferred_anti_affinity=few(st.builds(WeightedPodTerm, st.integers(1, 100), TERMS)),
)
REQUIREMENTS = st.builds(
    Requirements,
    st.fixed_dictionaries(
        {"cpu": st.sampled_from([0, 500, 1500]), "memory": st.sampled_from([0, 2**20])}
    ),
    st.sampled_from([(), (), (DeviceRequest(1),)]),
    st.sampled_from([{}, {}, {"disk": "ssd"}]),
    st.sampled_from([(), (), (SSD,)]),
    st.sampled_from([(), (Toleration("dedicated", "Exists"),)]),
    TRAITS,
)


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    return [
        Node(
            name,
            {
                "cpu": draw(st.sampled_from([1000, 4000])),
                "memory": 2**30,
                "pods": draw(st.sampled_from([2, 110])),
            },
            labels={"kubernetes.io/hostname": name}
            | draw(st.sampled_from([{}, {"zone": "a"}, {"zone": "b", "disk": "ssd"}])),
            taints=draw(
                st.sampled_from(
                    [
                        (),
                        (),
                        (Taint("dedicated", "NoSchedule"),),
                        (Taint("old", "PreferNoSchedule"),),
                    ]
                )
            ),
            unschedulable=draw(st.sampled_from([False, False, False, True])),
            images=draw(st.sampled_from([{}, {"app:1": 300 * 2**20}])),
        )
        for name in [f"n{i}" for i in range(draw(st.integers(1, 5)))]
    ]


@st.composite
def pods(draw: st.DrawFn) -> list[Pod]:
    count = draw(st.integers(0, 6))
    return [
        Pod(
            f"p{i}",
            f"p{i}",
            draw(REQUIREMENTS),
            f"n{draw(st.integers(0, 4))}",
            priority=draw(st.integers(0, 2)),
            terminating=draw(st.sampled_from([False, False, True])),
        )
        for i in range(count)
    ]


OBJECTS = ClusterObjects.of(
    [NamespaceLabels("shop", {"team": "a"}), NamespaceLabels("default", {})]
)
CLUSTERS = st.tuples(nodes(), pods(), REQUIREMENTS)


def told(outcome: CycleOutcome) -> str:
    """Everything that an outcome says, as text."""
    parts = (
        outcome.pre_filter,
        outcome.skipped,
        outcome.failures,
        outcome.first,
        outcome.feasible,
        outcome.scores,
        outcome.totals,
        outcome.best,
        outcome.message,
        outcome.refusing,
    )
    return repr(parts)


@settings(max_examples=examples(120), deadline=None)
@given(CLUSTERS, st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_and_pods_were_told_means_nothing(
    cluster: tuple[list[Node], list[Pod], Requirements], chance: Random
) -> None:
    some, there, requirements = cluster
    pod = Pod("new", "new", requirements, priority=1)
    first = FRAMEWORK.run(Snapshot.of(some, there, OBJECTS), pod)
    shuffled = Snapshot.of(
        chance.sample(some, len(some)), chance.sample(there, len(there)), OBJECTS
    )
    again = framework(default_profile()).run(shuffled, pod)
    assert told(again) == told(first)
    assert FRAMEWORK.post_filter(again, pod) == FRAMEWORK.post_filter(first, pod)


@settings(max_examples=examples(120), deadline=None)
@given(CLUSTERS)
def test_a_node_is_feasible_or_refused_and_only_feasible_ones_are_scored(
    cluster: tuple[list[Node], list[Pod], Requirements],
) -> None:
    some, there, requirements = cluster
    pod = Pod("new", "new", requirements)
    outcome = FRAMEWORK.run(Snapshot.of(some, there, OBJECTS), pod)
    names = [node.name for node in some]
    assert sorted([*outcome.feasible, *outcome.first]) == names
    for refusals in outcome.failures.values():
        assert not set(refusals) & set(outcome.feasible)
    assert set(outcome.totals) == set(outcome.feasible)
    assert (outcome.message == "") == bool(outcome.feasible)
    assert bool(outcome.refusing) == (not outcome.feasible)
    for scored in outcome.scores.values():
        if scored is not None:
            assert set(scored.normalised) == set(outcome.feasible)
    for name in names:  # one plugin at a time as all together
        node = outcome.cycle.snapshot.nodes[name]
        assert FRAMEWORK.refusal(outcome.cycle, pod, node) == outcome.first.get(name)


@settings(max_examples=examples(120), deadline=None)
@given(CLUSTERS, st.integers(0, 5))
def test_counts_follow_a_pod_that_goes_and_comes_back(
    cluster: tuple[list[Node], list[Pod], Requirements], which: int
) -> None:
    """After the last step everything is as if it had been looked at again; and so it is between the
    two."""
    some, there, requirements = cluster
    pod = Pod("new", "new", requirements)
    snapshot = Snapshot.of(some, there, OBJECTS)
    placed = [p for p in there if p.node in snapshot.nodes]
    if not placed:
        return
    gone = placed[which % len(placed)]
    outcome = FRAMEWORK.begin(snapshot, pod)
    node = snapshot.nodes[gone.node]
    snapshot.remove(gone)
    FRAMEWORK.pod_removed(outcome.cycle, pod, gone, node)
    without = Snapshot.of(some, [p for p in there if p is not gone], OBJECTS)
    _as_anew(outcome, without, pod)
    snapshot.add(gone)
    FRAMEWORK.pod_added(outcome.cycle, pod, gone, node)
    _as_anew(outcome, Snapshot.of(some, there, OBJECTS), pod)


def _as_anew(outcome: CycleOutcome, snapshot: Snapshot, pod: Pod) -> None:
    """Each plugin whose filter was not skipped says of each node what it says when asked again."""
    anew = FRAMEWORK.begin(snapshot, pod)
    for plugin in FRAMEWORK.at("filter"):
        if (
            plugin.name in outcome.cycle.skipped["filter"]
            or plugin.name in anew.cycle.skipped["filter"]
        ):
            continue
        if plugin.name in outcome.pre_filter or plugin.name in anew.pre_filter:
            continue
        for name, node in outcome.cycle.snapshot.nodes.items():
            followed = plugin.filter(outcome.cycle, pod, node)  # type: ignore[attr-defined]
            fresh = plugin.filter(anew.cycle, pod, snapshot.nodes[name])  # type: ignore[attr-defined]
            assert followed == fresh, (plugin.name, name)
