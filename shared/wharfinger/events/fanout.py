"""From one decision to the internal messages that carry it: items for the clusters it concerns and
for the fleet shard it answers.

The publisher uses it to relay decisions. Code that loads the current assignments from the ledger
uses it to get the same items that the topic carried. Pure and total: a decision that concerns no
cluster gives no items.

For a workload with several components, a cluster receives one item for each component, under a name
of its own (`domain.binding.part_of`). So the cluster stage need not know that these components
belong together. The answer to such an item goes to the binding's shard.

The fleet stage receives no message about placed replicas. It would change nothing there, because a
replica counts against its cluster from its assignment on, and the ledger records every message that
a stage receives for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from wharfinger.domain.binding import whole_of
from wharfinger.domain.value import Value
from wharfinger.events.assignments import MAX_ITEMS, AssignmentItem, AssignmentsDecided
from wharfinger.events.decisions import as_decision
from wharfinger.events.decisions.kind import ClusterItem
from wharfinger.events.envelope import derived_id
from wharfinger.events.outcomes import OutcomeItem, OutcomesDecided

InternalMessage = AssignmentsDecided | OutcomesDecided

_encode = msgspec.json.Encoder().encode
"""To measure: as long as the canonical form, and faster."""


Item = TypeVar("Item", bound=Value)


@dataclass(slots=True)
class _Gathered(Generic[Item]):
    """Items of the next message, and how many bytes they take as JSON (0 where nothing limits
    them)."""

    items: list[Item] = field(default_factory=list)
    size: int = 0


class Fanout:
    """Gathers what decisions say to clusters and fleet shards into messages of about `MAX_ITEMS`
    items and at most `bytes_max` bytes of them, because the cost of a message is what limits the
    services that read them. `shard_of`: binding -> fleet shard.

    All items of one decision for one cluster are in one message, however many they are: readers
    know what they have had by the decision's seq, so a second message with the same seq would be
    taken for a repetition. Where these items alone take more than `bytes_max`, the message is
    divided when it is made a record (`events.parts`).

    Decisions of several streams may be added, each stream's in order of seq; `rest` gives what is
    not full and starts again.
    """

    def __init__(self, shard_of: Callable[[str], int], bytes_max: int | None = None) -> None:
        self._shard_of = shard_of
        self._bytes_max = bytes_max
        self._assigned: dict[tuple[str, str], _Gathered[AssignmentItem]] = {}
        self._outcomes: dict[tuple[str, str, int], _Gathered[OutcomeItem]] = {}

    def add(self, stream: str, seq: int, decision: str, data: Value) -> list[InternalMessage]:
        """The messages that this decision has filled: mostly none."""
        full: list[InternalMessage] = []
        by_cluster: dict[str, list[AssignmentItem]] = {}
        kind = as_decision(data)
        for cluster, item in kind.assignment_items(seq, decision):
            by_cluster.setdefault(cluster, []).append(item)
        for cluster, items in by_cluster.items():
            assigned = self._assigned.setdefault((stream, cluster), _Gathered())
            full += [_assignments(stream, cluster, part) for part in self._gather(assigned, items)]
        answer = kind.outcome_item(seq, decision)
        if answer is not None:
            cluster, binding, outcome = answer
            shard = self._shard_of(whole_of(binding))
            outcomes = self._outcomes.setdefault((stream, cluster, shard), _Gathered())
            full += [
                _outcomes(stream, cluster, shard, part)
                for part in self._gather(outcomes, [outcome])
            ]
        return full

    def _gather(self, into: _Gathered[Item], items: list[Item]) -> Iterator[list[Item]]:
        """Add the items of one decision. Yields the items of each message that is full with or
        without them."""
        size = 0 if self._bytes_max is None else sum(len(_encode(item)) + 1 for item in items)
        if self._bytes_max is not None and into.items and into.size + size > self._bytes_max:
            yield into.items
            into.items, into.size = [], 0
        into.items += items
        into.size += size
        if len(into.items) >= MAX_ITEMS or (
            self._bytes_max is not None and into.size >= self._bytes_max
        ):
            yield into.items
            into.items, into.size = [], 0

    def rest(self) -> list[InternalMessage]:
        assigned, outcomes = self._assigned, self._outcomes
        self._assigned, self._outcomes = {}, {}
        left: list[InternalMessage] = [
            _assignments(stream, cluster, found.items)
            for (stream, cluster), found in assigned.items()
            if found.items
        ]
        left += [
            _outcomes(stream, cluster, shard, found.items)
            for (stream, cluster, shard), found in outcomes.items()
            if found.items
        ]
        return left


def message_id(message: InternalMessage, incarnation: str = "") -> UUID:
    """Derived from what is in it: the same items make the same message. `incarnation`: of the
    ledger; empty: the first."""
    first = message.items[0].seq
    later = (incarnation,) if incarnation else ()
    if isinstance(message, AssignmentsDecided):
        return derived_id(
            "assignments", message.stream, message.cluster, first, message.through, *later
        )
    return derived_id("outcomes", message.stream, message.shard, first, message.through, *later)


def _assignments(stream: str, cluster: str, items: list[AssignmentItem]) -> AssignmentsDecided:
    return AssignmentsDecided(cluster, stream, items[-1].seq, tuple(items))


def _outcomes(stream: str, cluster: str, shard: int, items: list[OutcomeItem]) -> OutcomesDecided:
    return OutcomesDecided(cluster, shard, stream, items[-1].seq, tuple(items))


def assignment_items(seq: int, decision: str, data: Value) -> Iterator[ClusterItem]:
    """(cluster, item) for every cluster that the decision touches, in order of the targets, then of
    what was left."""
    return as_decision(data).assignment_items(seq, decision)
