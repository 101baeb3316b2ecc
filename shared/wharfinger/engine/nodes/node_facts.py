"""Node facts as columns: labels, taints, names and cordons, evaluated for many nodes at once.

A predicate is evaluated once for each distinct label value or set of taints, not once per node: 3
times for 5,000 nodes in 3 zones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.taints import Taint, first_untolerated
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.columns import Column, NodeTable

Bools = npt.NDArray[np.bool_]

NODE_NAME_FIELD = "metadata.name"


class NodeFacts:
    """The facts of the nodes in `slots`; None: all slots of the table. The results of its methods
    have one element per slot: bool[slots] or int64[slots].

    One object serves one class of requirements, because it caches the result of `allowed`. It is
    valid until the facts of a node change.
    """

    def __init__(self, table: NodeTable, slots: Column | None = None) -> None:
        self.table = table
        self.slots = slots
        self.size = table.capacity if slots is None else len(slots)
        self._allowed: Bools | None = None

    @property
    def cordoned(self) -> Bools:
        """Whether the node is cordoned or closed."""
        return self.table.cordoned if self.slots is None else self.table.cordoned[self.slots]

    def named(self, names: Iterable[str]) -> Bools:
        """Returns for each node whether it has one of these names."""
        found = np.zeros(self.table.capacity, dtype=np.bool_)
        for name in names:
            row = self.table.rows.get(name)
            if row is not None:
                found[row.slot] = True
        return found if self.slots is None else found[self.slots]

    def taints(self, holds: Callable[[tuple[Taint, ...]], bool]) -> Bools:
        """Returns for each node whether `holds` is true of its taints."""
        return np.array([holds(taints) for taints in self.table.taint_sets], dtype=np.bool_)[
            self._codes()
        ]

    def taint_scores(self, score: Callable[[tuple[Taint, ...]], int]) -> Column | None:
        """Returns for each node the `score` of its taints; None: it is 0 on all nodes."""
        scores = [score(taints) for taints in self.table.taint_sets]
        return np.array(scores, dtype=np.int64)[self._codes()] if any(scores) else None

    def labels(self, requirement: Requirement) -> Bools:
        """Evaluates a label requirement, such as `zone In (a, b)`, on many nodes. Returns
        bool[slots], one element per node: True where the labels of the node meet the requirement.

        The requirement is evaluated once for each distinct value of the label, and once for nodes
        without the label. If the label has more values than there are nodes to evaluate, the
        requirement is evaluated once for each node instead. Example: 5,000 nodes in 3 zones need 4
        evaluations.
        """
        key, topology = requirement.key, self.table.topology(requirement.key)
        codes = topology.codes if self.slots is None else topology.codes[self.slots]
        if len(codes) >= len(topology.values):
            holds = [requirement.holds({key: value}) for value in topology.values]
            # at -1, which is the code of nodes without the label
            holds.append(requirement.holds({}))
            return np.array(holds, dtype=np.bool_)[codes]
        values = list(topology.values)  # many domains and few nodes: one evaluation a node
        has = [
            requirement.holds({key: values[code]} if code >= 0 else {}) for code in codes.tolist()
        ]
        return np.array(has, dtype=np.bool_)

    def allowed(self, asked: Requirements) -> Bools:
        """Returns for each node whether it meets the node selector and required node terms of the
        pod. Caches the result."""
        if self._allowed is None:
            self._allowed = self._selected(asked.node_selector)
            if asked.node_terms:
                self._allowed &= self.meets_any(asked.node_terms)
        return self._allowed

    def tolerated(self, asked: Requirements) -> Bools:
        """Returns for each node whether the pod tolerates all its taints with the effect NoSchedule
        or NoExecute."""
        tolerations = asked.tolerations
        return self.taints(
            lambda taints: (
                first_untolerated(taints, tolerations, ("NoSchedule", "NoExecute")) is None
            )
        )

    def meets_any(self, terms: Iterable[NodeTerm]) -> Bools:
        """Returns for each node whether it meets at least one of the terms. An empty term is met by
        no node."""
        found = np.zeros(self.size, dtype=np.bool_)
        for term in terms:
            if term.expressions or term.fields:
                found |= self._meets(term)
        return found

    def _meets(self, term: NodeTerm) -> Bools:
        holds = np.ones(self.size, dtype=np.bool_)
        for expression in term.expressions:
            holds &= self.labels(expression)
        for expression in term.fields:
            names = [
                row.name
                for row in self.table.rows.values()
                if expression.holds({NODE_NAME_FIELD: row.name})
            ]
            holds &= self.named(names)
        return holds

    def _selected(self, labels: Mapping[str, str]) -> Bools:
        holds = np.ones(self.size, dtype=np.bool_)
        for key, value in labels.items():
            topology = self.table.topology(key)
            codes = topology.codes if self.slots is None else topology.codes[self.slots]
            holds &= codes == topology.values.get(value, -2)
        return holds

    def _codes(self) -> Column:
        return self.table.taint_code if self.slots is None else self.table.taint_code[self.slots]
