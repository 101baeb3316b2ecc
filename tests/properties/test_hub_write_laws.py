"""Laws of what is written to a hub: it ends as decided after few writes, and every field that is
not ours is as others left it.

The hub of the test applies merge patches as an API server does: at the resourceVersion that is in
them, with status and spec apart, and with a new generation for each change of the spec.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.decisions import DecidedGroup, SelectionCondition
from wharfinger.events.rendering import (
    ClusterSelection,
    Rendered,
    Scheduled,
    placement,
    placement_decisions,
    resource_binding,
)
from wharfinger.manifests.ocm import DISABLED
from wharfinger.manifests.wharfinger.options import DRIFT, SCHEDULER
from wharfinger.stages.actuator.hub import (
    APPLIED_PLACEMENT,
    HubObjects,
    HubWrite,
    binding_writes,
    drifted_bindings,
    name_of,
    path_of,
    placement_writes,
)

OURS = "wharfinger"


class Hub:
    """`conflicts`: requests that came for a version that is no longer there."""

    def __init__(self, *objects: Rendered) -> None:
        self.objects = HubObjects()
        self.conflicts = self.writes = 0
        self._version = 0
        for one in objects:
            self._store(one)

    def edit(self, kind: str, name: str, change: Rendered) -> None:
        """By somebody else."""
        self._patch(self.objects.of(kind)[name], change)

    def take(self, write: HubWrite) -> None:
        self.writes += 1
        request = write.request
        if request.method == "POST":
            one = {k: v for k, v in request.body.items() if k != "status"}
            self._store(copy.deepcopy(one))
            return
        path, _, sub = request.path.partition("/status")
        kind, now = next(
            (kind, one)
            for kind, known in self.objects.known.items()
            for one in known.values()
            if path_of(one) == path
        )
        said = request.body.get("preconditions") or request.body["metadata"]
        if said["resourceVersion"] != now["metadata"]["resourceVersion"]:
            self.conflicts += 1
        elif request.method == "DELETE":
            del self.objects.of(kind)[name_of(now)]
        else:
            assert bool(sub or request.path.endswith("/status")) == ("status" in request.body)
            self._patch(now, request.body)

    def _patch(self, now: Rendered, change: Rendered) -> None:
        after = _merged(now, change)
        if after["spec"] != now["spec"] if "spec" in now else False:
            after["metadata"]["generation"] += 1
        self._store(after)

    def _store(self, one: Rendered) -> None:
        self._version += 1
        one["metadata"].setdefault("generation", 1)
        one["metadata"].setdefault("uid", f"uid-{name_of(one)}")
        one["metadata"]["resourceVersion"] = str(self._version)
        self.objects.of(one["kind"])[name_of(one)] = one


def _merged(now: Any, change: Any) -> Any:
    """RFC 7386."""
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    found = copy.deepcopy(now) if isinstance(now, dict) else {}
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


# --- Karmada

targets = st.dictionaries(st.sampled_from("abc"), st.integers(0, 5), max_size=3)


def decided_binding(
    clusters: dict[str, int], reason: str = "Success", replicas: int = 5
) -> Rendered:
    binding = Binding(
        "shop/web",
        "uid-shop/web",
        ObjectRef("apps/v1", "Deployment", "web", "shop"),
        replicas,
        placement=Placement((ClusterAffinity(cluster_names=("a",)),)),
        scheduler=OURS,
    )
    targets = tuple(TargetCluster(name, count) for name, count in clusters.items())
    refused = "" if reason == "Success" else reason
    return resource_binding(binding, Scheduled(targets, refused, time="2026-11-24T08:00:00Z"))


def stored_binding(scheduler: str, clusters: dict[str, int], **annotations: str) -> Rendered:
    return {
        "kind": "ResourceBinding",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "annotations": {"team": "shop", **annotations},
        },
        "spec": {
            "resource": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "namespace": "shop",
                "name": "web",
            },
            "replicas": 5,
            "schedulerName": scheduler,
            "placement": {"clusterAffinity": {"clusterNames": ["a"]}},
            "clusters": [{"name": n, "replicas": r} for n, r in clusters.items()],
            "gracefulEvictionTasks": [{"fromCluster": "z"}],
        },
        "status": {"conditions": [{"type": "FullyApplied", "status": "True"}]},
    }


def settle(hub: Hub, decided: Rendered, undecided: Collection[str] = ()) -> int:
    """Writes until none is open; how many."""
    before = hub.writes
    while writes := binding_writes([decided], hub.objects, OURS, undecided):
        assert len(writes) == 1
        hub.take(writes[0])
        assert hub.writes - before <= 4, "it does not come to an end"
    return hub.writes - before


@settings(max_examples=examples(100))
@given(targets, targets, st.sampled_from(["Success", "NoClusterFit"]))
def test_a_binding_ends_as_decided_and_keeps_what_others_wrote(
    before: dict[str, int], wanted: dict[str, int], reason: str
) -> None:
    hub = Hub(stored_binding(OURS, before))
    assert settle(hub, decided_binding(wanted, reason)) <= 2
    now = hub.objects.of("ResourceBinding")["shop/web"]
    assert {c["name"]: c.get("replicas", 0) for c in now["spec"]["clusters"]} == wanted
    assert now["spec"]["gracefulEvictionTasks"] == [{"fromCluster": "z"}]
    assert now["metadata"]["annotations"]["team"] == "shop"
    assert APPLIED_PLACEMENT in now["metadata"]["annotations"]
    conditions = {c["type"]: c["status"] for c in now["status"]["conditions"]}
    assert conditions == {
        "FullyApplied": "True",
        "Scheduled": "True" if reason == "Success" else "False",
    }
    assert named(hub) == generation(hub)


@settings(max_examples=examples(50))
@given(targets, targets)
def test_a_binding_of_another_scheduler_is_never_written(
    before: dict[str, int], wanted: dict[str, int]
) -> None:
    hub = Hub(stored_binding("default-scheduler", before))
    assert binding_writes([decided_binding(wanted)], hub.objects, OURS) == []


@settings(max_examples=examples(100))
@given(targets, targets, targets, st.booleans())
def test_a_change_by_others_is_accepted_until_the_next_decision_unless_it_shall_not_be(
    first: dict[str, int], foreign: dict[str, int], second: dict[str, int], restore: bool
) -> None:
    """Also by a process that knows nothing of what was written."""
    annotations = {DRIFT: "restore"} if restore else {}
    hub = Hub(stored_binding(OURS, {}, **annotations))
    settle(hub, decided_binding(first))
    clusters = [{"name": n, "replicas": r} for n, r in foreign.items()]
    hub.edit("ResourceBinding", "shop/web", {"spec": {"clusters": clusters}})
    drifted = drifted_bindings([decided_binding(first)], hub.objects, OURS)
    assert drifted == (["shop/web"] if foreign != first else [])
    settle(hub, decided_binding(first))
    assert _clusters(hub) == (first if restore else foreign)
    settle(hub, decided_binding(second))
    assert _clusters(hub) == (second if second != first or restore else foreign)


def _clusters(hub: Hub) -> dict[str, int]:
    now = hub.objects.of("ResourceBinding")["shop/web"]
    return {c["name"]: c.get("replicas", 0) for c in now["spec"]["clusters"]}


@settings(max_examples=examples(50))
@given(targets, targets, st.integers(6, 9))
def test_a_generation_is_named_once_what_it_asks_for_is_decided(
    first: dict[str, int], second: dict[str, int], replicas: int
) -> None:
    hub = Hub(stored_binding(OURS, {}))
    settle(hub, decided_binding(first))
    hub.edit("ResourceBinding", "shop/web", {"spec": {"replicas": replicas}})
    asked = hub.objects.of("ResourceBinding")["shop/web"]["metadata"]["generation"]

    settle(hub, decided_binding(first))  # the request has not come yet
    assert named(hub) < asked
    requested = decided_binding(first, replicas=replicas)
    settle(hub, requested, undecided=["shop/web"])  # it has come, and the decision has not
    assert named(hub) < asked
    settle(hub, decided_binding(second, replicas=replicas))
    assert named(hub) == generation(hub) >= asked


@settings(max_examples=examples(50))
@given(targets, st.sampled_from([{"suspension": {"dispatching": True}}, {"replicas": "many"}]))
def test_a_generation_that_asks_for_nothing_new_is_named_and_one_that_cannot_be_read_is_not(
    wanted: dict[str, int], change: Rendered
) -> None:
    hub = Hub(stored_binding(OURS, {}))
    settle(hub, decided_binding(wanted))
    hub.edit("ResourceBinding", "shop/web", {"spec": change})
    settle(hub, decided_binding(wanted))
    assert (named(hub) == generation(hub)) == ("suspension" in change)


def named(hub: Hub) -> int:
    status = hub.objects.of("ResourceBinding")["shop/web"]["status"]
    return int(status["schedulerObservedGeneration"])


def generation(hub: Hub) -> int:
    return int(hub.objects.of("ResourceBinding")["shop/web"]["metadata"]["generation"])


@settings(max_examples=examples(50))
@given(targets, targets)
def test_a_write_at_an_older_version_loses_no_word_of_others(
    before: dict[str, int], wanted: dict[str, int]
) -> None:
    hub = Hub(stored_binding(OURS, before))
    writes = binding_writes([decided_binding(wanted)], hub.objects, OURS)
    hub.edit("ResourceBinding", "shop/web", {"spec": {"suspension": {"dispatching": True}}})
    for write in writes:
        hub.take(write)
    assert hub.conflicts == len(writes)
    settle(hub, decided_binding(wanted))
    now = hub.objects.of("ResourceBinding")["shop/web"]
    assert now["spec"]["suspension"] == {"dispatching": True}
    assert _clusters(hub) == wanted


# --- Open Cluster Management

clusters = st.lists(st.integers(0, 400), max_size=250, unique=True).map(
    lambda numbers: [f"c{number}" for number in sorted(numbers)]
)


def stored_placement(disabled: bool) -> Rendered:
    annotations = {DISABLED: "true", SCHEDULER: "wharfinger"} if disabled else {}
    return {
        "kind": "Placement",
        "metadata": {"name": "all", "namespace": "shop", "annotations": annotations},
        "spec": {},
    }


def decisions_in(one: Rendered) -> list[Rendered]:
    """A slice without clusters may have no status yet."""
    found: list[Rendered] = one.get("status", {}).get("decisions", [])
    return found


def selection(names: list[str], generation: int) -> ClusterSelection:
    satisfied = SelectionCondition("PlacementSatisfied", "True", "AllDecisionsScheduled", "")
    group = DecidedGroup(0, "", dict.fromkeys(names, 0))
    return ClusterSelection("shop/all", generation, (group,), (satisfied,))


def place(hub: Hub, chosen: ClusterSelection) -> None:
    manifest = {"metadata": {"name": "all", "namespace": "shop", "generation": 1}, "spec": {}}
    status = {**placement(manifest, chosen), "kind": "Placement"}
    for _ in range(12):
        writes = placement_writes(placement_decisions(chosen), [status], hub.objects)
        if not writes:
            return
        for write in writes:
            hub.take(write)
    raise AssertionError("it does not come to an end")


@settings(max_examples=examples(40))
@given(clusters, clusters)
def test_slices_end_as_decided_and_those_that_are_too_many_go_last(
    first: list[str], second: list[str]
) -> None:
    hub = Hub(stored_placement(True))
    for generation, names in enumerate((first, second), 1):
        place(hub, selection(names, generation))
        slices = hub.objects.of("PlacementDecision").values()
        found = [d["clusterName"] for one in slices for d in decisions_in(one)]
        assert sorted(found) == sorted(names)
        now = hub.objects.of("Placement")["shop/all"]
        assert now["status"]["numberOfSelectedClusters"] == len(names)
        (group,) = now["status"]["decisionGroups"]
        assert sorted(f"shop/{name}" for name in group["decisions"]) == sorted(
            hub.objects.of("PlacementDecision")
        )
        assert all(
            one["metadata"]["annotations"]["wharfinger.io/generation"] == str(generation)
            for one in slices
        )


def test_a_placement_of_another_scheduler_is_never_written() -> None:
    hub = Hub(stored_placement(False))
    chosen = selection(["c1"], 1)
    manifest = {"metadata": {"name": "all", "namespace": "shop"}, "spec": {}}
    decided = {**placement(manifest, chosen), "kind": "Placement"}
    assert placement_writes(placement_decisions(chosen), [decided], hub.objects) == []
