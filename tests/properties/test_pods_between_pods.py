"""Laws of spread and of affinity between pods: they agree with their plain definition, placing by
them keeps what they promise, and counts that follow are counts made again."""

from __future__ import annotations

import math
from decimal import Context, Decimal

from hypothesis import given
from hypothesis import strategies as st
from tests.framework_world import (
    HOST,
    ZONE,
    a_law,
    a_node,
    a_pod,
    feasible,
    on,
    only,
    pod_labels,
    selectors,
    some_nodes,
    some_pods,
    spread_lists,
    term_lists,
)

from wharfinger.domain.cluster_objects import ClusterObjects, NamespaceLabels
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTerm, PodTraits, TopologySpread, WeightedPodTerm
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.formulas import domains_weight
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.place import Placer
from wharfinger.events.cluster_state import PodsObserved, into_buckets
from wharfinger.rules.nodes.pod_topology_spread import half_away

SPREAD = only("PodTopologySpread")
AFFINITY = only("InterPodAffinity")
BOTH = only("PodTopologySpread", "InterPodAffinity")
OBJECTS = ClusterObjects.of([NamespaceLabels("default", {"team": "x"}), NamespaceLabels("other")])


def means(term: PodTerm, owner: PodTraits, other: PodTraits) -> bool:
    """Whether a term means a pod, in the words of Kubernetes' documentation; both namespaces are
    known."""
    labels = {"default": {"team": "x"}, "other": {}}[other.home]
    if term.namespace_selector is not None and term.namespace_selector.matches(labels):
        within = True
    elif term.namespaces or term.namespace_selector is not None:
        within = other.home in term.namespaces
    else:
        within = other.home == owner.home
    return within and term.selector is not None and term.selector.matches(other.labels)


def together(key: str, a: Node, b: Node) -> bool:
    return key in a.labels and a.labels[key] == b.labels.get(key)


@a_law(100)
@given(st.data())
def test_affinity_between_pods_is_what_its_definition_says(data: st.DataObject) -> None:
    nodes = data.draw(some_nodes())
    pods = data.draw(some_pods(nodes))
    pod = a_pod(
        "new",
        labels=data.draw(pod_labels),
        affinity=data.draw(term_lists),
        anti_affinity=data.draw(term_lists),
    )
    at = {node.name: node for node in nodes}
    mine = pod.requirements.traits

    def wanted(other: Pod) -> bool:
        return all(means(t, mine, other.requirements.traits) for t in mine.affinity)

    def content(node: Node) -> bool:
        if any(t.key not in node.labels for t in mine.affinity):
            return False
        in_domain = [[p for p in pods if together(t.key, node, at[p.node])] for t in mine.affinity]
        if all(any(wanted(p) for p in there) for there in in_domain):
            return True
        counted = [
            p for p in pods if wanted(p) and any(t.key in at[p.node].labels for t in mine.affinity)
        ]
        return not counted and wanted(pod)

    def bothers(node: Node) -> bool:
        for other in pods:
            theirs = other.requirements.traits
            if any(
                together(t.key, node, at[other.node]) and means(t, mine, theirs)
                for t in mine.anti_affinity
            ):
                return True
            if any(
                together(t.key, node, at[other.node]) and means(t, theirs, mine)
                for t in theirs.anti_affinity
            ):
                return True
        return False

    expected = {node.name for node in nodes if content(node) and not bothers(node)}
    assert feasible(AFFINITY, Snapshot.of(nodes, pods, OBJECTS), pod) == expected


@a_law(100)
@given(st.data())
def test_spread_is_what_its_definition_says(data: st.DataObject) -> None:
    nodes = data.draw(some_nodes())
    pods = data.draw(some_pods(nodes))
    pod = a_pod("new", labels=data.draw(pod_labels), spread=data.draw(spread_lists))
    traits = pod.requirements.traits
    hard = [c for c in traits.spread if c.hard]
    domains = [n for n in nodes if all(c.key in n.labels for c in hard)]

    def counted(constraint: TopologySpread, value: str) -> int:
        if constraint.selector is None or constraint.selector == LabelSelector():
            return 0
        there = {n.name for n in domains if n.labels[constraint.key] == value}
        theirs = [p.requirements.traits for p in pods if p.node in there and not p.terminating]
        return sum(t.home == "default" and constraint.selector.matches(t.labels) for t in theirs)

    def even(constraint: TopologySpread, node: Node) -> bool:
        values = {n.labels[constraint.key] for n in domains}
        fewest = min((counted(constraint, v) for v in values), default=0)
        fewest = 0 if len(values) < constraint.min_domains else fewest
        itself = constraint.selector is not None and constraint.selector.matches(traits.labels)
        return (
            counted(constraint, node.labels[constraint.key]) + itself - fewest
            <= constraint.max_skew
        )

    expected = {n.name for n in domains if all(even(c, n) for c in hard)}
    assert feasible(SPREAD, Snapshot.of(nodes, pods, OBJECTS), pod) == expected


@a_law(60)
@given(st.data())
def test_who_is_placed_by_the_filter_keeps_the_skew(data: st.DataObject) -> None:
    """Over all zones, however the feasible node is chosen."""
    zones = data.draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=6))
    nodes = [a_node(f"n{i}", zone) for i, zone in enumerate(zones)]
    skew = data.draw(st.integers(1, 3))
    spread = (TopologySpread(ZONE, skew, selector=LabelSelector({"app": "a"})),)
    snapshot = Snapshot.of(nodes, [])
    placed = dict.fromkeys(zones, 0)
    for i in range(data.draw(st.integers(1, 12))):
        pod = a_pod(f"p{i}", labels={"app": "a"}, spread=spread)
        nodes_left = sorted(feasible(SPREAD, snapshot, pod))
        chosen = data.draw(st.sampled_from(nodes_left))  # the emptiest zone is always allowed
        snapshot.add(on(pod, chosen))
        placed[snapshot.nodes[chosen].node.labels[ZONE]] += 1
        assert max(placed.values()) - min(placed.values()) <= skew


@a_law(80)
@given(st.data())
def test_anti_affinity_is_symmetric(data: st.DataObject) -> None:
    """Of two pods it does not matter which one comes first: where the second may not join the
    first, the first may not join the second."""
    nodes = data.draw(some_nodes())
    one, two = (
        a_pod(
            name,
            namespace=data.draw(st.sampled_from(("default", "other"))),
            labels=data.draw(pod_labels),
            anti_affinity=data.draw(term_lists),
        )
        for name in ("one", "two")
    )
    for node in nodes:
        after_one = feasible(AFFINITY, Snapshot.of(nodes, [on(one, node.name)], OBJECTS), two)
        for other in nodes:
            after_two = feasible(AFFINITY, Snapshot.of(nodes, [on(two, other.name)], OBJECTS), one)
            assert (other.name in after_one) == (node.name in after_two)


@a_law(60)
@given(st.data())
def test_counts_that_follow_are_counts_made_anew(data: st.DataObject) -> None:
    """A cycle's counts, while pods go and come, refuse what counts of the changed cluster
    refuse."""
    nodes = data.draw(some_nodes())
    pods = data.draw(some_pods(nodes))
    pod = a_pod(
        "new",
        labels=data.draw(pod_labels),
        affinity=data.draw(term_lists),
        anti_affinity=data.draw(term_lists),
        spread=data.draw(spread_lists),
    )
    snapshot = Snapshot.of(nodes, pods, OBJECTS)
    cycle = BOTH.begin(snapshot, pod).cycle

    def agrees() -> None:
        anew = BOTH.begin(snapshot, pod).cycle
        for info in snapshot.nodes.values():
            assert BOTH.refusal(cycle, pod, info) == BOTH.refusal(anew, pod, info)

    gone = [p for p in pods if data.draw(st.booleans())]
    for other in gone:
        agrees()
        snapshot.remove(other)
        BOTH.pod_removed(cycle, pod, other, snapshot.nodes[other.node])
    for other in data.draw(st.permutations(gone)):
        agrees()
        snapshot.add(other)
        BOTH.pod_added(cycle, pod, other, snapshot.nodes[other.node])
    agrees()


@a_law(60)
@given(
    st.lists(st.sampled_from(("n0", "n1", "n2")), max_size=4),
    st.lists(st.integers(0, 3), max_size=8),
    st.integers(1, 2),
)
def test_the_emptiest_zone_is_known_while_pods_come_and_go(
    on_nodes: list[str], moved: list[int], skew: int
) -> None:
    """Each of `moved` goes, if it is there, and comes back, if it is not."""
    nodes = [a_node("n0", "x"), a_node("n1", "y"), a_node("n2", "y")]
    pods = [a_pod(f"p{i}", node, labels={"app": "a"}) for i, node in enumerate(on_nodes)]
    spread = (TopologySpread(ZONE, skew, selector=LabelSelector({"app": "a"})),)
    pod = a_pod("new", labels={"app": "a"}, spread=spread)
    snapshot = Snapshot.of(nodes, pods)
    cycle = SPREAD.begin(snapshot, pod).cycle
    away: set[str] = set()
    for other in (pods[i] for i in moved if i < len(pods)):
        if other.uid in away:
            snapshot.add(other)
            SPREAD.pod_added(cycle, pod, other, snapshot.nodes[other.node])
        else:
            snapshot.remove(other)
            SPREAD.pod_removed(cycle, pod, other, snapshot.nodes[other.node])
        away ^= {other.uid}
        passed = {
            name
            for name, info in snapshot.nodes.items()
            if SPREAD.refusal(cycle, pod, info) is None
        }
        assert passed == feasible(SPREAD, snapshot, pod)


@a_law(60)
@given(st.data())
def test_neither_the_order_of_pods_nor_that_of_nodes_is_seen(data: st.DataObject) -> None:
    nodes = data.draw(some_nodes())
    pods = data.draw(some_pods(nodes))
    weighted = tuple(WeightedPodTerm(w, t) for w, t in enumerate(data.draw(term_lists), 1))
    pod = a_pod(
        "new", labels={"app": "a"}, spread=data.draw(spread_lists), preferred_affinity=weighted
    )
    one = BOTH.run(Snapshot.of(nodes, pods, OBJECTS), pod)
    other = BOTH.run(
        Snapshot.of(data.draw(st.permutations(nodes)), data.draw(st.permutations(pods)), OBJECTS),
        pod,
    )
    assert (one.first, one.totals, one.best, one.message) == (
        other.first,
        other.totals,
        other.best,
        other.message,
    )


@a_law(60)
@given(st.lists(st.sampled_from("xyz"), min_size=2, max_size=6), st.data())
def test_a_soft_spread_prefers_the_emptier_zone(zones: list[str], data: st.DataObject) -> None:
    nodes = [a_node(f"n{i}", zone) for i, zone in enumerate(zones)]
    pods = [
        a_pod(f"p{i}", data.draw(st.sampled_from([n.name for n in nodes])), labels={"app": "a"})
        for i in range(data.draw(st.integers(0, 8)))
    ]
    spread = (TopologySpread(ZONE, 1, hard=False, selector=LabelSelector({"app": "a"})),)
    outcome = SPREAD.run(Snapshot.of(nodes, pods), a_pod("new", labels={"app": "a"}, spread=spread))
    there = {n.name: sum(zones[int(p.node[1:])] == n.labels[ZONE] for p in pods) for n in nodes}
    for a in nodes:
        for b in nodes:
            if there[a.name] < there[b.name]:
                assert outcome.totals[a.name] > outcome.totals[b.name]


@given(st.integers(0, 200_000))
def test_the_weight_of_domains_is_the_double_nearest_to_the_logarithm(domains: int) -> None:
    context = Context(prec=80)
    exact = context.ln(Decimal(domains + 2))
    weight = domains_weight(domains)
    off = abs(Decimal(weight) - exact)
    assert off <= abs(Decimal(math.nextafter(weight, math.inf)) - exact)
    assert off <= abs(Decimal(math.nextafter(weight, 0.0)) - exact)


@given(st.integers(-(10**9), 10**9), st.sampled_from((-0.5, -0.25, 0.0, 0.25, 0.5)))
def test_halves_go_away_from_zero(whole: int, part: float) -> None:
    x = whole + part
    rounded = half_away(x)
    assert abs(rounded - x) <= 0.5
    assert abs(part) != 0.5 or abs(rounded) >= abs(x)


@given(selectors, st.sampled_from((ZONE, HOST)))
def test_a_pod_alone_in_a_cluster_may_go_anywhere(selector: LabelSelector | None, key: str) -> None:
    """Nothing that is said of others keeps the first pod from an empty cluster, but affinity to
    what it is not itself."""
    nodes = [a_node("n0", "x"), a_node("n1", "y")]
    pod = a_pod(
        "new",
        labels={"app": "a"},
        anti_affinity=(PodTerm(key, selector),),
        spread=(TopologySpread(key, 1, selector=selector),),
    )
    assert feasible(BOTH, Snapshot.of(nodes, []), pod) == {"n0", "n1"}


def test_objects_that_changed_twice_are_seen() -> None:
    """What was derived from earlier objects does not count for later ones. The memory of the first
    is free when the third are made, so their address tells nothing."""
    book = Occupancy()
    for event in into_buckets("oslo", [Node(n, {"cpu": 4000}, labels={HOST: n}) for n in "ab"], 1):
        book.observe_nodes(event, 0)
    db = Requirements({"cpu": 100}, pod=PodTraits(namespace="data", labels={"app": "db"}))
    book.observe_pods(PodsObserved("oslo", "a", (Pod("u", "p", db, "a"),)))
    term = PodTerm(
        HOST, LabelSelector({"app": "db"}), namespace_selector=LabelSelector({"team": "x"})
    )
    beside = Requirements({"cpu": 100}, pod=PodTraits(namespace="shop", affinity=(term,)))
    cls, placer = book.class_of(beside), Placer(book.table, "least-allocated")
    for _ in range(20):
        book.observe_objects(ClusterObjects.of([NamespaceLabels("data", {"team": "x"})]))
        assert placer.choose(cls) is not None
        book.observe_objects(ClusterObjects.of([NamespaceLabels("data", {"team": "y"})]))
        book.observe_objects(ClusterObjects.of([NamespaceLabels("data", {"team": "z"})]))
        assert placer.choose(cls) is None
