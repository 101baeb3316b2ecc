"""Evaluates node facts (labels, taints, names, cordons) for each class of pods, and caches the
verdicts and scores as columns.

Facts change rarely, and most classes have equal claims. So the columns are computed once for all
classes with equal claims, and computed again after any node's facts change.

The rules say which facts matter (`forms.FactColumn`); no rule is known here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, NodeTable
from wharfinger.engine.nodes.forms import FactColumn
from wharfinger.engine.nodes.node_facts import Bools, NodeFacts
from wharfinger.engine.nodes.verdicts import CLOSED, GONE, NodeVerdict, VerdictCodes


@dataclass(slots=True)
class NodeFactVerdicts:
    """The cached verdicts and raw scores of all nodes' facts for one set of claims.

    `log`: position in the table's fact log. `verdicts` int64[capacity]: encoded, 0: feasible.
    `against`, `toward` int64[capacity]: raw scores that lower or raise the total, None: 0
    everywhere. `asked`: requirements with these claims. `facts`: the facts of all nodes.
    """

    log: int
    verdicts: Column
    against: Column | None
    toward: Column | None
    asked: Requirements
    facts: NodeFacts

    @property
    def comparing(self) -> bool:
        """Whether some fact score is normalised over the feasible nodes."""
        return self.against is not None or self.toward is not None


class FactColumns:
    """The rules of one profile that depend on node facts only. `refusing`: filter rule -> column;
    `against`, `toward`: the columns that lower or raise scores, if any."""

    def __init__(
        self,
        refusing: Mapping[str, FactColumn],
        against: FactColumn | None,
        toward: FactColumn | None,
    ) -> None:
        self.refusing = refusing
        self.against = against
        self.toward = toward
        used = dict.fromkeys((*refusing.values(), against, toward))
        self._reads = [
            column.reads for column in used if column is not None and column.reads is not None
        ]

    def key(self, cls: PodClass) -> Hashable:
        """Returns a cache key that is equal for classes whose verdicts and scores of facts are
        equal."""
        if not self._reads:
            return cls.claims
        return (cls.claims, *[reads(cls.requirements) for reads in self._reads])

    def refused(
        self, asked: Requirements, facts: NodeFacts
    ) -> Iterator[tuple[str, Bools, NodeVerdict]]:
        """Yields (rule, bool[slots] of refused nodes, verdict)."""
        for rule, column in self.refusing.items():
            for where, verdict in column.refuses(asked, facts):
                yield rule, where, verdict

    def any_refuses(self, asked: Requirements, facts: NodeFacts) -> Bools:
        """Returns bool[slots]: whether any rule refuses the node. Closed nodes and empty slots are
        not considered."""
        found = np.zeros(facts.size, dtype=np.bool_)
        for _, where, _ in self.refused(asked, facts):
            found |= where
        return found


class FactVerdicts:
    """Computes the fact verdicts of one table under one profile, and caches them by claims. Any
    change of a node's facts makes the cached verdicts invalid."""

    def __init__(self, table: NodeTable, columns: FactColumns, codes: VerdictCodes) -> None:
        self.table = table
        self.columns = columns
        self.codes = codes
        self._known: dict[Hashable, NodeFactVerdicts] = {}

    def of(self, cls: PodClass) -> NodeFactVerdicts:
        key = self.columns.key(cls)
        known = self._known.get(key)
        if known is None or known.log != self.table.facts.end:
            if len(self._known) > 512:
                self._known.clear()
            known = self._known[key] = self._judged(cls.requirements)
        return known

    def _judged(self, asked: Requirements) -> NodeFactVerdicts:
        table, facts, columns = self.table, NodeFacts(self.table), self.columns
        verdicts = np.zeros(table.capacity, dtype=np.int64)
        for rule, where, verdict in columns.refused(asked, facts):
            lower(verdicts, where, self.codes.encoded(rule, verdict))
        lower(verdicts, table.closed, self.codes.at(0, CLOSED))
        verdicts[~table.present] = GONE
        against = None if columns.against is None else columns.against.scores(asked, facts)
        toward = None if columns.toward is None else columns.toward.scores(asked, facts)
        return NodeFactVerdicts(table.facts.end, verdicts, against, toward, asked, facts)


def lower(verdicts: Column, where: Bools, encoded: int) -> None:
    """Sets `verdicts` to `encoded` at the nodes `where`, unless a smaller verdict is there already.
    `encoded` 0 is no verdict and changes nothing."""
    if encoded:
        np.putmask(verdicts, where & ((verdicts == 0) | (verdicts > encoded)), encoded)
