"""Small clusters for tests of the scheduling framework: nodes in zones, pods with labels, profiles
of few plugins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tests import hunting

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTerm, PodTraits, TopologySpread
from wharfinger.domain.scheduler import Arguments, PluginUse, Point, Profile
from wharfinger.domain.scheduler_plugins import BUILT_IN
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.cycle import Framework
from wharfinger.engine.framework.pod_terms import Labels
from wharfinger.engine.framework.profile import framework
from wharfinger.engine.framework.snapshot import Snapshot

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def only(*names: str, arguments: Arguments | None = None) -> Framework:
    """A profile with these plugins at all their points, besides those that no profile can be
    without."""
    used = {*names, "PrioritySort", "DefaultBinder"}
    points: dict[Point, tuple[PluginUse, ...]] = {}
    for plugin in BUILT_IN:
        for point in plugin.points if plugin.name in used else ():
            use = PluginUse(plugin.name, plugin.weight if point == "score" else 0)
            points[point] = (*points.get(point, ()), use)
    return framework(Profile(points=points, arguments=arguments or Arguments()))


def a_node(name: str, zone: str = "", cpu: int = 4000, pods: int = 110) -> Node:
    labels = {HOST: name, ZONE: zone} if zone else {HOST: name}
    return Node(name, {"cpu": cpu, "memory": 2**34, "pods": pods}, labels=labels)


def a_pod(
    name: str,
    node: str = "",
    cpu: int = 0,
    priority: int = 0,
    started_s: int = 0,
    labels: Labels | None = None,
    terminating: bool = False,
    **traits: object,
) -> Pod:
    """`traits`: further fields of PodTraits."""
    said = PodTraits(labels=dict(labels or {}), **traits)  # type: ignore[arg-type]
    requirements = Requirements({"cpu": cpu} if cpu else {}, pod=said)
    return Pod(
        name,
        name,
        requirements,
        node,
        priority=priority,
        started_us=started_s * 1_000_000,
        terminating=terminating,
    )


def on(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, node=node)


def selecting(**labels: str) -> LabelSelector:
    return LabelSelector(labels)


def feasible(plugins: Framework, snapshot: Snapshot, pod: Pod) -> set[str]:
    return set(plugins.run(snapshot, pod).feasible)


def reasons(plugins: Framework, snapshot: Snapshot, pod: Pod) -> dict[str, tuple[str, ...]]:
    return {node: status.reasons for node, status in plugins.run(snapshot, pod).first.items()}


def a_law(examples: int) -> settings:
    """So many examples, however slow the machine is."""
    return settings(
        max_examples=hunting.examples(examples),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


# What hypothesis draws from. Few values, so that things meet.

APPS = ("a", "b")
selectors = st.one_of(
    st.none(),
    st.just(LabelSelector()),
    st.builds(lambda app: LabelSelector({"app": app}), st.sampled_from(APPS)),
)
pod_labels = st.one_of(st.just({}), st.builds(lambda app: {"app": app}, st.sampled_from(APPS)))
terms = st.builds(
    PodTerm,
    st.sampled_from((ZONE, HOST)),
    selectors,
    st.sampled_from(((), ("default",), ("other",))),
    st.one_of(st.none(), st.just(LabelSelector()), st.just(LabelSelector({"team": "x"}))),
)
term_lists = st.lists(terms, max_size=2).map(tuple)
spreads = st.builds(
    TopologySpread,
    st.sampled_from((ZONE, HOST)),
    st.integers(1, 2),
    st.booleans(),
    selectors,
    st.integers(1, 4),
    honours_affinity=st.booleans(),
    honours_taints=st.booleans(),
)
spread_lists = st.lists(spreads, max_size=2, unique_by=lambda s: (s.key, s.hard)).map(tuple)


@st.composite
def some_nodes(draw: st.DrawFn, most: int = 5, cpu: int = 4000) -> list[Node]:
    zones = draw(st.lists(st.sampled_from(("x", "y", "")), min_size=1, max_size=most))
    return [a_node(f"n{i}", zone, cpu) for i, zone in enumerate(zones)]


def some_pods(nodes: Sequence[Node], most: int = 6) -> st.SearchStrategy[list[Pod]]:
    """Pods on these nodes, with anything that the framework's plugins between pods look at."""
    one = st.fixed_dictionaries(
        {
            "node": st.sampled_from([node.name for node in nodes]),
            "namespace": st.sampled_from(("", "default", "other")),
            "labels": pod_labels,
            "affinity": term_lists,
            "anti_affinity": term_lists,
            "spread": spread_lists,
            "terminating": st.booleans(),
            "priority": st.integers(0, 3),
            "started_s": st.integers(0, 3),
            "cpu": st.integers(0, 4).map(lambda cores: cores * 500),
        }
    )
    return st.lists(one, max_size=most).map(
        lambda said: [a_pod(f"p{i}", **p) for i, p in enumerate(said)]
    )


def uids(pods: Iterable[Pod]) -> set[str]:
    return {pod.uid for pod in pods}
