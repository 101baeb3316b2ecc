"""Verdicts: the reason why a node is refused, as a number that a kernel can compare.

As in kube-scheduler, the first rule of the profile that refuses a node is reported. So an encoded
verdict is rank * 64 + detail: the rank is the position of the rule among the profile's filters (1,
2, ...), the detail the number of the verdict among all verdicts of the profile's rules. The
smallest encoded verdict of a node is reported. Rank 0 is for refusals before all filters: an empty
slot, a closed node, a pre-filter.

Example: the third filter refuses a node with verdict number 5: 3 * 64 + 5 = 197.

The rules define their verdicts (`wharfinger.rules.nodes`); this module only numbers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import get_args

from wharfinger.domain.reasons import NodeReason
from wharfinger.engine.load.columns import LoadColumns
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, NodeTable

DETAIL = 64
"""More than one profile has verdicts; a power of two (`kernels.tally_of`)."""

GONE = 1
"""The verdict of a slot without a node: smaller than all others, so that none replaces it."""

LAST = 60
"""A rank after the filters of any profile."""

REASONS: tuple[NodeReason, ...] = get_args(NodeReason)
_PLACE_OF = {reason: place for place, reason in enumerate(REASONS)}


@dataclass(frozen=True, slots=True)
class RefusedNodes:
    """The nodes (`slots`) to which one verdict applies for a class, as input of its message.

    `checked`: rows of amounts that the profile checks for the class (`resources`); `loads`: the
    measured loads; `answers`: node -> sentences of a rule evaluated node by node.
    """

    table: NodeTable
    cls: PodClass
    slots: Column
    checked: frozenset[int]
    loads: LoadColumns | None
    answers: Mapping[str, tuple[str, ...]]


Words = Callable[[RefusedNodes], Mapping[str, int]]
"""Sentence -> number of nodes that it is true of."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeVerdict:
    """One reason for which a rule refuses a node.

    `reason`: the category under which the node is counted. `text`: kube-scheduler's message;
    `words`: computes the messages where they differ between nodes. `before_filters`: found before
    any filter runs. `of_pod`: the pod contradicts itself; the message is given once, without a
    number of nodes.
    """

    reason: NodeReason
    text: str = ""
    words: Words | None = None
    before_filters: bool = False
    of_pod: bool = False


CLOSED = NodeVerdict("Unschedulable", "node(s) were unschedulable", before_filters=True)
"""The node takes no new pods, also none that tolerate its cordon: its removal was decided."""


class VerdictCodes:
    """Numbers the verdicts of one profile. `filters`: names of the rules at the filter point, in
    order; the position is the rank."""

    def __init__(self, filters: Iterable[str]) -> None:
        self.ranks = {name: rank for rank, name in enumerate(filters, 1)}
        self.by_detail: list[NodeVerdict | None] = [None, None, CLOSED]
        self._details: dict[NodeVerdict, int] = {CLOSED: 2}

    def add(self, *verdicts: NodeVerdict) -> None:
        """Numbers the verdicts in order. If a rule refuses a node by two verdicts, the lower number
        is reported."""
        for verdict in verdicts:
            if verdict not in self._details:
                self._details[verdict] = len(self.by_detail)
                self.by_detail.append(verdict)
        assert len(self.by_detail) <= DETAIL, "one profile has fewer than 64 verdicts"

    def encoded(self, rule: str, verdict: NodeVerdict) -> int:
        """Returns the encoded verdict of a rule; 0: the rule is not among the filters of the
        profile."""
        rank = self.ranks.get(rule)
        if rank is None:
            return 0
        return self._details[verdict] + (0 if verdict.before_filters else rank * DETAIL)

    def at(self, rank: int, verdict: NodeVerdict) -> int:
        """Returns the encoded verdict with this rank."""
        return rank * DETAIL + self._details[verdict]

    def counted(self, details: Sequence[int]) -> dict[NodeReason, int]:
        """Returns reason -> number of nodes, in the order of `NodeReason`. `details`: number of
        nodes by verdict number."""
        found: dict[NodeReason, int] = {}
        # most counts are 0: `compress` passes over them
        for verdict, count in compress(zip(self.by_detail, details, strict=False), details):
            if verdict is not None:
                found[verdict.reason] = found.get(verdict.reason, 0) + count
        return {reason: found[reason] for reason in sorted(found, key=_PLACE_OF.__getitem__)}


def answered(refused: RefusedNodes) -> dict[str, int]:
    """Returns sentence -> number of nodes, for the refusals of a rule evaluated node by node."""
    found: dict[str, int] = {}
    for slot in refused.slots.tolist():
        row = refused.table.by_slot[slot]
        for text in () if row is None else refused.answers[row.name]:
            found[text] = found.get(text, 0) + 1
    return found
