"""What is counted for replicas that keep a distance to other pods is what their cluster places: no
estimate is refused, and one more would be."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import Harness, a_node, as_items, event, observed
from tests.hunting import examples

from wharfinger.domain.binding import Binding
from wharfinger.domain.node import Node
from wharfinger.domain.pod_traits import HOSTNAME, PodTerm, PodTraits, TopologySpread
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.engine.estimators.trial import keeps_distance
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.decisions import ReplicasPlaced
from wharfinger.stages.estimator import EstimatorObserver
from wharfinger.stages.estimator.cluster import ClusterEstimate

APPS = ("web", "db")
REF = ObjectRef("apps/v1", "Deployment", "web")

keys = st.sampled_from(("zone", HOSTNAME))
apps = st.sampled_from(APPS)
terms = st.builds(lambda key, app: PodTerm(key, LabelSelector({"app": app})), keys, apps)


@st.composite
def traits(draw: st.DrawFn) -> PodTraits:
    app = draw(apps)
    spread = draw(
        st.lists(
            st.builds(
                lambda key, skew: TopologySpread(key, skew, True, LabelSelector({"app": app})),
                keys,
                st.integers(1, 2),
            ),
            max_size=2,
            unique_by=lambda s: s.key,
        )
    )
    return PodTraits(
        labels={"app": app},
        spread=tuple(spread),
        affinity=tuple(draw(st.lists(terms, max_size=1))),
        anti_affinity=tuple(draw(st.lists(terms, max_size=1))),
    )


@st.composite
def some_nodes(draw: st.DrawFn) -> list[Node]:
    zones = draw(st.lists(st.sampled_from(("a", "b", "c", "")), min_size=1, max_size=6))
    return [
        msgspec.structs.replace(
            a_node(f"n{i}", cpu=draw(st.sampled_from((1000, 3000)))),
            labels={HOSTNAME: f"n{i}"} | ({"zone": zone} if zone else {}),
        )
        for i, zone in enumerate(zones)
    ]


@settings(max_examples=examples(150), deadline=None)
@given(some_nodes(), st.lists(st.tuples(traits(), st.integers(0, 8)), min_size=1, max_size=4))
def test_a_cluster_places_what_was_counted_and_no_more(
    nodes: list[Node], wanted: list[tuple[PodTraits, int]]
) -> None:
    plane, observer = Harness("least-allocated"), EstimatorObserver()
    state = observer.initial()
    facts = observed(nodes)
    plane.feed(*facts)
    kinds = [Requirements({"cpu": 500}, pod=traits) for traits, _ in wanted]
    for i, kind in enumerate(kinds):
        asked = BindingRequested(Binding(f"b{i}", f"b{i}", REF, 1, kind))
        observer.fold(state, event(asked, "asked", i), 1)
    for i, fact in enumerate(facts):
        observer.fold(state, event(fact, "fact", i), 1)
    for i, (kind, (_, more)) in enumerate(zip(kinds, wanted, strict=True)):
        observer.publish(state, 1)
        estimate: ClusterEstimate = state.clusters["oslo"]
        assert estimate.published is not None
        count = estimate.published.classes[kind.class_key]
        asked_for = max(1, count + 1 if more > 6 else min(count, more))
        assignment = plane.assigned((f"b{i}", asked_for, kind, 0))
        observer.fold(state, event(assignment, "assigned", i), 1)
        decisions = plane.feed(assignment)
        placed = sum(
            len(share.ordinals)
            for d in decisions
            if isinstance(d.data, ReplicasPlaced)
            for share in d.data.placed
        )
        if keeps_distance(kind.traits):
            assert placed == min(asked_for, count)
        else:  # its labels, which others exclude, are not part of its class
            assert placed <= count
        items = as_items(decisions)
        if items is not None:
            observer.fold(state, event(items, "items", i), 1)
