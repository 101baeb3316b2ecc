"""What we render we read: decisions as objects of OCM and Karmada, and back again to what they were
made of."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fleets import CLASSES
from tests.hunting import examples

from wharfinger.domain.binding import Binding, Component, TargetCluster
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaLimit,
    ReplicaScheduling,
    SpreadConstraint,
    StaticWeight,
    Steadiness,
)
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.taints import Toleration
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.decisions import DecidedGroup, PlacementDecided, SelectionCondition
from wharfinger.events.rendering import (
    ClusterSelection,
    Scheduled,
    placement,
    placement_decisions,
    put_together,
    resource_binding,
    when,
)
from wharfinger.manifests.karmada import objects as karmada
from wharfinger.manifests.parse import load_manifests, read_object

LABEL = "cluster.open-cluster-management.io/placement"
SATISFIED = SelectionCondition(
    "PlacementSatisfied", "True", "AllDecisionsScheduled", "All cluster decisions scheduled"
)


def a_selection(*sizes: int) -> ClusterSelection:
    """Groups of so many clusters each; the first one has a name."""
    groups, begin = [], 0
    for index, size in enumerate(sizes):
        scores = {f"c{i:04d}": 200 for i in range(begin, begin + size)}
        groups.append(DecidedGroup(index, "" if index else "canary", scores))
        begin += size
    return ClusterSelection(
        "apps/demo", 7, tuple(groups), (SATISFIED,), when(1_750_000_000_000_000)
    )


# --- placement decisions


@given(st.lists(st.integers(0, 250), min_size=1, max_size=4))
@settings(max_examples=examples(15), deadline=None)
def test_decisions_found_by_the_label_give_every_cluster_once_in_slices_of_a_hundred(
    sizes: list[int],
) -> None:
    selection = a_selection(*sizes)
    objects = placement_decisions(selection)
    names = [
        d["clusterName"]
        for o in objects
        if o["metadata"]["labels"][LABEL] == "demo"
        for d in o["status"]["decisions"]
    ]
    assert names == selection.clusters
    assert [o["metadata"]["name"] for o in objects] == [
        f"demo-decision-{n}" for n in range(1, len(objects) + 1)
    ]
    assert all(len(o["status"]["decisions"]) <= 100 for o in objects)
    for o in objects:
        said = o["metadata"]["annotations"]
        assert said["wharfinger.io/generation"] == "7"
        assert said["wharfinger.io/slices"] == str(len(objects))
        assert said["wharfinger.io/complete"] == "true"


def test_decisions_are_labelled_by_group_and_read_again() -> None:
    objects = placement_decisions(a_selection(1, 120))
    groups = [
        (
            o["metadata"]["labels"]["cluster.open-cluster-management.io/decision-group-index"],
            o["metadata"]["labels"]["cluster.open-cluster-management.io/decision-group-name"],
        )
        for o in objects
    ]
    assert groups == [("0", "canary"), ("1", ""), ("1", "")]
    loaded = load_manifests(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), "rendered.json"
    )
    assert not loaded.errors
    assert len(loaded.manifests) == 3


def test_a_placement_has_the_status_of_its_set_and_is_read_again() -> None:
    manifest = {
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "Placement",
        "metadata": {"name": "demo", "namespace": "apps", "generation": 3},
        "spec": {"numberOfClusters": 121},
        "status": {"numberOfSelectedClusters": 5},
    }
    rendered = placement(manifest, a_selection(1, 120))
    status = rendered["status"]
    assert status["numberOfSelectedClusters"] == 121
    assert [
        (g["decisionGroupName"], g["clusterCount"], g["decisions"])
        for g in status["decisionGroups"]
    ] == [("canary", 1, ["demo-decision-1"]), ("", 120, ["demo-decision-2", "demo-decision-3"])]
    (condition,) = status["conditions"]
    assert (condition["reason"], condition["observedGeneration"]) == ("AllDecisionsScheduled", 3)
    assert condition["lastTransitionTime"] == "2025-06-15T15:06:40Z"
    assert rendered["spec"] == manifest["spec"]
    assert not load_manifests(json.dumps(rendered), "rendered.json").errors
    assert "status" not in placement(manifest, None)


# --- parts


def parts(*numbers: int, of: int = 3) -> list[PlacementDecided]:
    return [
        PlacementDecided(
            "apps/demo",
            "FirstSelection",
            2,
            (DecidedGroup(0, "", {f"c{n}": n}),),
            n,
            of,
            n == of,
            conditions=(SATISFIED,) if n == of else (),
        )
        for n in numbers
    ]


def test_parts_are_put_together_in_any_order() -> None:
    selection = put_together(parts(3, 1, 2))
    assert selection is not None
    assert selection.clusters == ["c1", "c2", "c3"]
    assert selection.conditions == (SATISFIED,)


def test_a_part_is_no_set() -> None:
    assert put_together([]) is None
    assert put_together(parts(1, 2)) is None
    assert put_together(parts(2, 3)) is None
    assert put_together([*parts(1, 2), *parts(2, 3)]) is None
    other = msgspec.structs.replace(parts(3)[0], generation=3)
    assert put_together([*parts(1, 2), other]) is None


# --- bindings

names = st.sampled_from(["oslo", "bergen", "genoa"])
labels = st.builds(
    LabelSelector,
    st.dictionaries(st.just("tier"), st.sampled_from(["gold", "tin"]), max_size=1),
    st.lists(
        st.sampled_from([Requirement("zone", "Exists"), Requirement("tier", "NotIn", ("tin",))]),
        max_size=2,
    ).map(tuple),
)
fields = st.lists(
    st.sampled_from(
        [Requirement("region", "In", ("north",)), Requirement("zone", "NotIn", ("n-1",))]
    ),
    max_size=2,
)
affinities = st.builds(
    ClusterAffinity,
    st.just(""),
    st.lists(names, max_size=2).map(tuple),
    st.lists(names, max_size=1).map(tuple),
    st.none() | labels,
    fields.map(tuple),
)


def _named(
    found: list[ClusterAffinity], overflow: list[ClusterAffinity]
) -> tuple[ClusterAffinity, ...]:
    groups = tuple(msgspec.structs.replace(a, name=f"over-{i}") for i, a in enumerate(overflow))
    return tuple(
        msgspec.structs.replace(a, name=f"term-{i}", overflow=() if i else groups)
        for i, a in enumerate(found)
    )


divisions = st.one_of(
    st.just(ReplicaScheduling("Duplicated")),
    st.just(ReplicaScheduling("Divided", "Aggregated")),
    st.just(ReplicaScheduling("Divided", "Weighted", dynamic=True)),
    st.builds(
        lambda a, w, within: ReplicaScheduling(
            "Divided", "Weighted", (StaticWeight(a, w),), within_capacity=within
        ),
        affinities,
        st.integers(1, 9),
        st.booleans(),
    ),
    st.just(
        ReplicaScheduling(
            "Divided",
            "Aggregated",
            remainder="in-order",
            limits=(ReplicaLimit("oslo", 2, 5), ReplicaLimit("*", 1, 9)),
        )
    ),
)
several = st.builds(
    _named, st.lists(affinities, min_size=1, max_size=2), st.lists(affinities, max_size=2)
)
tolerations = st.sampled_from(
    [Toleration("gone", "Exists", effect="NoExecute", seconds=0), Toleration("a", value="b")]
)
spreads = st.sampled_from(
    [
        SpreadConstraint("cluster", "", 1, 2),
        SpreadConstraint("region", "", 2, 0),
        SpreadConstraint("", "rack", 1, 0),
    ]
)
placements = st.builds(
    Placement,
    st.one_of(st.just(()), affinities.map(lambda a: (a,)), several),
    st.lists(tolerations, max_size=2).map(tuple),
    st.lists(spreads, max_size=2).map(tuple),
    divisions,
    st.sampled_from(["", "team"]),
    st.sampled_from(["", "app"]),
    st.sampled_from(["evict", "reserve"]),
    st.sampled_from([Steadiness(), Steadiness(60, 0, 10, 20, 100)]),
    st.booleans(),
)
whole = [c for c in CLASSES if all(d.milli == 1000 and not d.models for d in c.devices)]
terms = Requirements(
    {"cpu": 1}, node_terms=(NodeTerm((Requirement("disk", "In", ("ssd",)),)), NodeTerm())
)
components = st.builds(
    Component, st.sampled_from(["driver", "worker"]), st.integers(0, 9), st.sampled_from(whole)
)
bindings = st.builds(
    Binding,
    st.sampled_from(["shop/web-deployment", "everywhere-namespace"]),
    st.just("uid-1"),
    st.just(ObjectRef("apps/v1", "Deployment", "web", "shop")),
    st.integers(0, 100_000),
    st.sampled_from(
        [*whole, terms, Requirements({"cpu": 1500, "memory": 3 << 29, "example.com/fpga": 2})]
    ),
    placements,
    st.integers(-5, 5),
    st.booleans(),
    st.sampled_from(["", "2026-11-21T08:00:00Z"]),
    st.just(""),
    st.dictionaries(st.just("app"), st.just("web"), max_size=1),
    st.lists(components, max_size=2).map(tuple),
    st.sampled_from(["", "other"]),
    st.sampled_from(["", "blue"]),
    st.sampled_from(["", "red"]),
    st.sampled_from(["", "high"]),
)


@given(
    bindings,
    st.lists(
        st.builds(TargetCluster, names, st.integers(0, 9)),
        max_size=3,
        unique_by=lambda t: t.cluster,
    ),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_binding_is_read_as_it_was_with_the_clusters_it_was_given(
    binding: Binding, targets: list[TargetCluster]
) -> None:
    rendered = resource_binding(
        binding, Scheduled(tuple(targets), time=when(1_750_000_000_000_000))
    )
    model = read_object(json.loads(json.dumps(rendered)), rendered["kind"])
    assert isinstance(model, karmada.ClusterResourceBinding)
    again = model.to_domain()
    assert again.clusters == tuple(targets)
    assert msgspec.structs.replace(again, policy="", clusters=()) == binding
    (condition,) = rendered["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Scheduled",
        "True",
        "Success",
    )


def test_a_refused_binding_keeps_its_clusters_and_says_why() -> None:
    binding = Binding(
        "shop/web-deployment", "u", ObjectRef("apps/v1", "Deployment", "web", "shop"), 3
    )
    rendered = resource_binding(
        binding, Scheduled((TargetCluster("oslo", 2),), "Unschedulable", "1 does not fit")
    )
    assert rendered["spec"]["clusters"] == [{"name": "oslo", "replicas": 2}]
    (condition,) = rendered["status"]["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False",
        "Unschedulable",
        "1 does not fit",
    )
    assert "lastScheduledTime" not in rendered["status"]


def test_a_binding_nobody_has_decided_yet_has_no_status() -> None:
    binding = Binding(
        "shop/web-deployment", "u", ObjectRef("apps/v1", "Deployment", "web", "shop"), 3
    )
    rendered = resource_binding(binding, None)
    assert "status" not in rendered
    assert "clusters" not in rendered["spec"]
