"""How the nodes of a cluster are put together from buckets, and when one is gone."""

from __future__ import annotations

from wharfinger.domain.node import Node
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.stages.node_buckets import NodeBuckets


def bucket(index: int, buckets: int, *names: str) -> NodesObserved:
    return NodesObserved("oslo", index, buckets, tuple(Node(name, {}) for name in names))


def test_a_cluster_is_complete_once_every_bucket_was_seen() -> None:
    known = NodeBuckets()
    assert not known.complete
    known.fold(bucket(1, 2, "b"))
    assert not known.complete
    known.fold(bucket(0, 2))
    assert known.complete
    assert set(known.nodes) == {"b"}


def test_a_node_absent_from_its_bucket_is_gone() -> None:
    known = NodeBuckets()
    known.fold(bucket(0, 2, "a", "b"))
    known.fold(bucket(1, 2, "c"))
    assert known.fold(bucket(0, 2, "b")).gone == ("a",)
    assert set(known.nodes) == {"b", "c"}


def test_a_node_told_in_two_buckets_belongs_to_the_last() -> None:
    known = NodeBuckets()
    known.fold(bucket(0, 2, "a"))
    known.fold(bucket(1, 2, "a"))
    assert known.fold(bucket(0, 2)).gone == ()
    assert known.fold(bucket(1, 2)).gone == ("a",)


def test_the_old_set_stands_until_a_new_number_of_buckets_is_complete() -> None:
    known = NodeBuckets()
    known.fold(bucket(0, 1, "a", "b", "c"))
    assert known.fold(bucket(0, 2, "a")).gone == ()
    assert not known.complete
    assert set(known.nodes) == {"a", "b", "c"}
    assert known.fold(bucket(1, 2, "b")).gone == ("c",)
    assert known.complete
    assert set(known.nodes) == {"a", "b"}


def test_a_node_dropped_while_the_number_of_buckets_changes_goes_at_once() -> None:
    known = NodeBuckets()
    known.fold(bucket(0, 1, "a", "b"))
    known.fold(bucket(0, 3, "a"))
    assert known.fold(bucket(0, 3)).gone == ("a",)
    known.fold(bucket(1, 3))
    assert known.fold(bucket(2, 3)).gone == ("b",)


def test_a_bucket_that_cannot_be_changes_nothing() -> None:
    known = NodeBuckets()
    for index, buckets in ((0, 0), (2, 2), (-1, 2), (0, -1)):
        assert known.fold(bucket(index, buckets, "a")).seen == ()
    assert known == NodeBuckets()
