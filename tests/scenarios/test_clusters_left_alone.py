"""Clusters that report their nodes and keep their own scheduler, told as stories: nothing is
decided about their nodes and pods."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node, needs, observed, outcomes
from tests.hunting import examples

from wharfinger.domain.cluster import Places
from wharfinger.domain.node import Node, Pod
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.decisions import ProposalRefused
from wharfinger.events.proposals import (
    DeschedulingProposed,
    DisruptionProposed,
    NodeRemovalProposed,
    Unseating,
)
from wharfinger.kernel.audit import audit
from wharfinger.kernel.step import empty_head

NODES = tuple([a_node(f"n{number}") for number in range(6)])


def said(places: Places, nodes: Sequence[Node] = NODES, buckets: int = 4) -> list[NodesObserved]:
    return [
        msgspec.structs.replace(bucket, places=places, scheduler="wharfinger")
        for bucket in observed(nodes, buckets)
    ]


@pytest.fixture
def plane() -> Harness:
    return Harness()


@pytest.mark.parametrize("places", ["none", "shadow"])
def test_assigned_replicas_are_left_to_the_cluster(plane: Harness, places: Places) -> None:
    plane.feed(*said(places))
    assert plane.assign("shop/web", 3, needs(500)) == []
    assert plane.assign("shop/huge", 3, needs(64_000)) == [], "nothing is refused either"
    assert plane.pods("n1", Pod("u1", "web-1", needs(500), "n1", "shop/web")) == []
    assert plane.decider.next_due(plane.state) is None
    assert sum(count for _, count in plane.state.book.unbound_classes()) == 2 + 3


def test_replicas_are_placed_once_the_cluster_is_placed_by_this_plane(plane: Harness) -> None:
    plane.feed(*said("none"))
    plane.assign("shop/web", 3, needs(500))
    first, *rest = said("")
    assert plane.feed(first) == [], "its buckets disagree"
    assert outcomes(plane.feed(*rest)) == [("placed", "shop/web")]


def test_what_was_placed_stays_when_the_cluster_takes_over(plane: Harness) -> None:
    plane.feed(*said(""))
    assert outcomes(plane.assign("shop/web", 2, needs(500))) == [("placed", "shop/web")]
    assert plane.feed(*said("none")) == []
    assert plane.feed(*said("none", NODES[:1])) == [], "lost nodes are the cluster's affair"
    assert plane.decider.next_due(plane.state) is None


def test_more_buckets_say_the_same(plane: Harness) -> None:
    plane.feed(*said("none", buckets=2))
    first, *rest = said("none", buckets=4)
    plane.feed(first)
    assert plane.state.book.places == "none"
    plane.feed(*rest)
    assert plane.state.book.places == "none"
    assert plane.state.book.scheduler == "wharfinger"
    assert plane.assign("shop/web", 1, needs(500)) == []


def test_proposals_are_refused(plane: Harness) -> None:
    plane.feed(*said("none"))
    decided = plane.feed(
        NodeRemovalProposed(STREAM, CLUSTER, "n0", "empty"),
        DisruptionProposed(STREAM, CLUSTER, "emptiness", ("n1",), {}),
        DeschedulingProposed(
            STREAM, CLUSTER, "RemoveDuplicates", "default", (Unseating("n2", "a/b", 0),)
        ),
    )
    refusals = [d.data for d in decided if isinstance(d.data, ProposalRefused)]
    assert [refusal.reason for refusal in refusals] == ["Held"] * 3
    assert "its own scheduler" in refusals[0].detail
    assert len(decided) == 3


def test_the_mode_is_in_snapshots_and_replays(plane: Harness) -> None:
    plane.feed(*said("none", buckets=2))
    plane.feed(said("pods", buckets=4)[1])
    plane.assign("shop/web", 1, needs(500))
    sections = plane.decider.dump(plane.state)
    again = plane.decider.load(STREAM, sections)
    assert plane.decider.dump(again) == sections
    assert again.book.places == "none"
    assert again.book.incoming_terms == {1: ("pods", "wharfinger", False)}
    replayed = audit(plane.decider, plane.decider.initial(STREAM), empty_head(STREAM), plane.rounds)
    assert replayed.divergences == []


@given(st.permutations(range(8)), st.integers(0, 8))
@settings(max_examples=examples(30), deadline=None)
def test_the_order_of_buckets_does_not_matter(order: list[int], cut: int) -> None:
    """Two reports of all buckets, the second in another mode, in any order and cut into rounds
    anywhere: the mode is the same at the end, and no replica is placed on the way."""
    plane = Harness()
    plane.feed(*said("none", buckets=8))
    plane.assign("shop/web", 2, needs(500))
    second = said("shadow", buckets=8)
    buckets = [second[number] for number in order]
    for part in (buckets[:cut], buckets[cut:], buckets[cut:]):
        assert plane.feed(*part) == []
    assert plane.state.book.places == "shadow"
    assert plane.state.book.terms == dict.fromkeys(range(8), ("shadow", "wharfinger", False))
