"""Which node a series belongs to, and what its value says."""

from __future__ import annotations

import itertools

import pytest

from wharfinger.domain.node import Node
from wharfinger.engine.load.node_loads import LOAD_MAX
from wharfinger.stages.annotator.series import Series, load_of, match

NODES = (
    Node(
        "node-a",
        {},
        addresses=("10.0.0.9", "fd00:0:0::9"),
        labels={"kubernetes.io/hostname": "a.example"},
    ),
    Node("node-b", {}, addresses=("10.0.0.90",)),
    Node("node.c", {}),
)


def labelled(value: float, **labels: str) -> Series:
    return Series(labels, value)


@pytest.mark.parametrize(
    ("instance", "node"),
    [
        ("10.0.0.9", "node-a"),
        ("10.0.0.9:9100", "node-a"),
        ("10.0.0.90:9100", "node-b"),
        ("node-a", "node-a"),
        ("node-a:9100", "node-a"),
        ("a.example:9100", "node-a"),
        ("fd00::9", "node-a"),
        ("[fd00::9]:9100", "node-a"),
        ("[FD00:0::0009]", "node-a"),
        ("node.c:9100", "node.c"),
        ("nodexc:9100", None),
        ("10.0.0.9:http", None),
        ("10.0.0.9x", None),
        ("110.0.0.9:9100", None),
        (":9100", None),
        ("", None),
        ("[", None),
        ("fd00::9:9100", None),
    ],
)
def test_an_instance_names_its_node_by_address_or_name_with_or_without_port(
    instance: str, node: str | None
) -> None:
    matched = match(NODES, [labelled(50, instance=instance)])
    assert matched.loads == ({} if node is None else {node: 50_000})
    assert matched.unmatched == (node is None)


def test_the_node_label_is_believed_before_the_exporters_own_address() -> None:
    assert match(NODES, [labelled(50, node="node-b", instance="10.0.0.9:9100")]).loads == {
        "node-b": 50_000
    }


def test_a_node_label_that_names_no_node_leaves_the_instance_to_decide() -> None:
    assert match(NODES, [labelled(50, node="elsewhere", instance="10.0.0.9:9100")]).loads == {
        "node-a": 50_000
    }


def test_of_several_series_of_a_node_the_largest_counts_in_any_order() -> None:
    series = [
        labelled(v, instance=i) for v, i in ((10, "node-a"), (70, "10.0.0.9:1"), (30, "10.0.0.9:2"))
    ]
    for order in itertools.permutations(series):
        matched = match(NODES, order)
        assert matched.loads == {"node-a": 70_000}
        assert matched.duplicates == 2


def test_an_address_of_two_nodes_is_nobodys() -> None:
    nodes = [Node("x", {}, addresses=("10.0.0.1",)), Node("y", {}, addresses=("10.0.0.1",))]
    for order in (nodes, nodes[::-1]):
        matched = match(
            order, [labelled(50, instance="10.0.0.1:9100"), labelled(20, instance="y:9100")]
        )
        assert matched.loads == {"y": 20_000}
        assert matched.ambiguous == 1


def test_a_nodes_own_name_wins_over_anothers_address() -> None:
    nodes = [Node("x", {}, addresses=("y",)), Node("y", {})]
    for order in (nodes, nodes[::-1]):
        assert match(order, [labelled(50, instance="y:9100")]).loads == {"y": 50_000}


@pytest.mark.parametrize(
    ("percent", "load"),
    [
        (0.0, 0),
        (-0.0, 0),
        (-3.0, 0),
        (65.0, 65_000),
        (12.3456789, 12_346),
        (100.0, 100_000),
        (180.0, 180_000),
        (0.0004, 0),
        (1.5625, 1_562),  # exactly half: to even
        (4.6875, 4_688),
        (44.5699999, 44_570),
        (1e300, LOAD_MAX),
        (float("nan"), None),
        (float("inf"), None),
        (float("-inf"), None),
    ],
)
def test_percent_become_hundred_thousandths(percent: float, load: int | None) -> None:
    assert load_of(percent) == load


def test_what_is_no_number_leaves_the_node_unknown() -> None:
    matched = match(NODES, [labelled(float("nan"), node="node-a"), labelled(5, node="node-b")])
    assert matched.loads == {"node-b": 5_000}
    assert matched.not_finite == 1
