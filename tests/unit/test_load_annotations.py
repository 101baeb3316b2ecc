"""Loads written on nodes: what is written is read again, by us and as crane reads it, and nonsense
is no measurement."""

from __future__ import annotations

import json
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.reference.crane import LoadValue, bound, usage
from tests.reference.crane_sync import patches

from wharfinger.domain.ids import Meaning
from wharfinger.domain.node import Node
from wharfinger.domain.policy import HotWindow, LoadLimit, LoadPolicy, SyncPeriod
from wharfinger.engine.load.annotations import (
    annotated,
    go_float,
    read,
    stamp_ns,
    written_hot,
    written_load,
    written_of,
)
from wharfinger.engine.load.node_loads import LoadBook, Written
from wharfinger.engine.load.policy import METRIC
from wharfinger.events.node_load import NodeLoadObserved
from wharfinger.events.rendering import annotated_node
from wharfinger.history.renaming import Collector, Renamer
from wharfinger.manifests.crane import DynamicSchedulerPolicy, read_policy
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.parse import load_manifests

NOON_US = 1_772_366_400_000_000
"""2026-03-01T12:00:00Z."""


def test_a_load_is_written_with_five_decimals_and_the_time_in_utc() -> None:
    assert written_load(65_000, NOON_US + 999_999) == "0.65000,2026-03-01T12:00:00Z"
    assert written_load(137, NOON_US) == "0.00137,2026-03-01T12:00:00Z"
    assert written_hot(3, NOON_US) == "3,2026-03-01T12:00:00Z"
    assert (
        written_load(120_000, NOON_US, timezone(timedelta(hours=8)))
        == "1.20000,2026-03-01T20:00:00Z"
    )


def test_what_stands_on_a_node_is_read_with_its_time() -> None:
    found = read(
        {
            "cpu_usage_avg_5m": "0.25000,2026-03-01T12:00:00Z",
            "node_hot_value": "2,2026-03-01T12:00:00Z",
        }
    )
    assert found == Written({"cpu_usage_avg_5m": (25_000, NOON_US)}, (2, NOON_US))


def test_the_writers_clock_may_be_ahead() -> None:
    found = read({"cpu": "0.5,2026-03-01T20:00:00Z"}, timezone(timedelta(hours=8)))
    assert found == Written({"cpu": (50_000, NOON_US)})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0.5",
        "NaN,2026-03-01T12:00:00Z",
        "Inf,2026-03-01T12:00:00Z",
        "-0.5,2026-03-01T12:00:00Z",
        "much,2026-03-01T12:00:00Z",
        "0.5,yesterday",
        "0.5,2026-13-01T12:00:00Z",
        "0.5,2026-03-01T12:00:00Z,1",
        "true",
    ],
)
def test_what_says_no_finite_load_is_no_measurement(text: str) -> None:
    assert (
        read({"cpu": text, "node_hot_value": text, "kubectl.kubernetes.io/last-applied": text})
        is None
    )


@given(st.integers(0, 10**7), st.integers(0, 4 * 10**15))
def test_what_is_written_is_read_again(load: int, at_us: int) -> None:
    second = at_us // 1_000_000 * 1_000_000
    assert read({"cpu": written_load(load, at_us)}) == Written({"cpu": (load, second)})
    # As crane's scheduler reads it in UTC.
    seen = usage(written_load(load, at_us), 1_000_000_001, at_us * 1000, UTC)
    assert isinstance(seen, LoadValue)
    assert round(seen.share * 100_000) == load


@given(st.text(max_size=40))
@example("0.5,2023-02-30T00:00:00Z")
@example("0x1p99999,2023-02-03T00:00:00Z")
@example("1e999999999999,0000-01-01T00:00:00Z")
def test_no_text_is_too_strange_to_be_looked_at(text: str) -> None:
    usage(text, 480 * 10**9, NOON_US * 1000, timezone(timedelta(hours=14)))
    read({"cpu": text})
    stamp_ns(text.partition(",")[2])
    go_float(text)
    bound(text, 0, 0, 0)


@given(st.text(alphabet="abkimnpst: -[]{}0123.\n\t\"'&*!|>?,%@", max_size=60))
@example("apiVersion: scheduler.policy.crane.io/__internal\nkind: DynamicSchedulerPolicy\n")
@example("- a\n")
@example("apiVersion: 1\nkind: 2\n")
def test_every_text_is_a_policy_or_has_a_fault(text: str) -> None:
    assert isinstance(read_policy(text), DynamicSchedulerPolicy | str)


def test_a_wrong_duration_comes_before_other_types_and_those_before_unknown_keys() -> None:
    head = "apiVersion: scheduler.policy.crane.io/v1alpha1\nkind: DynamicSchedulerPolicy\nspec:\n"
    unknown, typed = "  more: 1\n", "  predicate: [{name: cpu, maxLimitPecent: half}]\n"
    duration = "  syncPolicy: [{name: cpu, period: 3 minutes}]\n"
    assert read_policy(head + unknown + typed + duration) == "bad-duration"
    assert read_policy(head + unknown + typed) == "type-mismatch"
    assert read_policy(head + unknown) == "unknown-field"


def test_patches_replace_what_is_there_and_add_what_is_not() -> None:
    assert patches({"cpu": "1", "a/b": "2"}, ["cpu"]) == (
        {"op": "replace", "path": "/metadata/annotations/cpu", "value": "1"},
        {"op": "add", "path": "/metadata/annotations/a~1b", "value": "2"},
    )


def test_a_node_that_crane_annotates_brings_its_load_with_it() -> None:
    node = loaded_node(
        {
            "cpu_usage_avg_5m": "0.25000,2026-03-01T12:00:00Z",
            "zone": "z1",
            "csi/volume": "a,2026-03-01T12:00:00Z",
        }
    )
    assert node.measured == {"cpu_usage_avg_5m": "0.25000,2026-03-01T12:00:00Z"}
    assert written_of(node) == Written({"cpu_usage_avg_5m": (25_000, NOON_US)})
    assert written_of(loaded_node({"zone": "z1"})) is None


def loaded_node(annotations: dict[str, str]) -> Node:
    manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "annotations": annotations},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}},
    }
    (found,) = load_manifests(json.dumps(manifest), "node.json").manifests
    assert isinstance(found.model, kubernetes.NodeManifest)
    return found.model.to_domain()


def test_what_a_plane_has_measured_is_written_as_crane_writes_it_and_read_back_from_a_node() -> (
    None
):
    book = LoadBook()
    book.policy_applied("p", LoadPolicy(hot=(HotWindow(300, 1),)))
    book.observe(
        NodeLoadObserved(
            "oslo", "cpu_usage_avg_5m", 60, NOON_US - 60_000_000, {"a": 25_000, "b": 137}
        )
    )
    book.observe(NodeLoadObserved("oslo", "mem_usage_avg_5m", 60, NOON_US, {"a": 50_000}))
    book.placed("a", ("web", 0), NOON_US - 1_000_000)
    written = annotated(book, ["b", "a"], NOON_US)
    assert written == {
        "a": {
            "cpu_usage_avg_5m": "0.25000,2026-03-01T11:59:00Z",
            "mem_usage_avg_5m": "0.50000,2026-03-01T12:00:00Z",
            "node_hot_value": "1,2026-03-01T12:00:00Z",
        },
        "b": {
            "cpu_usage_avg_5m": "0.00137,2026-03-01T11:59:00Z",
            "node_hot_value": "0,2026-03-01T12:00:00Z",
        },
    }
    shown = annotated_node("oslo", "a", written["a"])
    node = loaded_node(shown["metadata"]["annotations"])
    assert written_of(node) == Written(
        {"cpu_usage_avg_5m": (25_000, NOON_US - 60_000_000), "mem_usage_avg_5m": (50_000, NOON_US)},
        (1, NOON_US),
    )


def test_a_measurement_on_the_node_counts_when_it_is_newer_and_no_time_of_another_zone() -> None:
    book = LoadBook()
    book.policy_applied("p", LoadPolicy((SyncPeriod("cpu", 60),), (LoadLimit("cpu", 65_000),)))
    book.observe(NodeLoadObserved("oslo", "cpu", 60, NOON_US, {"a": 10_000}))
    for seconds, load in ((-60, 10_000), (60, 90_000), (8 * 3600, 10_000)):
        book.written_on("a", Written({"cpu": (90_000, NOON_US + seconds * 1_000_000)}))
        assert book.load("cpu", "a", NOON_US + 61_000_000) == load


def test_a_metric_whose_name_was_replaced_can_still_be_one() -> None:
    """Else a history without names would be decided otherwise: what cannot be a metric is measured
    by nobody."""
    renamed = Renamer(b"k" * 32, Collector()).text(Meaning.METRIC, "cpu_usage_avg_5m")
    assert METRIC.fullmatch(renamed)
    assert read({renamed: "0.5,2026-03-01T12:00:00Z"}) == Written({renamed: (50_000, NOON_US)})
