"""Computes a lower bound on the price of the new nodes, from two linear programming relaxations.

It decides nothing. It is recorded beside a decision, outside its hash, to show the distance from
the optimum. Both programs relax the packing problem, so their optimum is never above that of any
solution that places the same pods. The solver uses doubles, so a small amount is subtracted
(`SLACK`).

Existing and pending nodes cost nothing; the programs treat them as one pool of capacity that every
pod may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wharfinger.engine.provisioning.catalogue import NO_PRICE, Column
from wharfinger.engine.provisioning.kernels import BLOCK, SPREAD
from wharfinger.engine.provisioning.packing import PackingProblem
from wharfinger.engine.provisioning.problem import Problem, Solution
from wharfinger.engine.provisioning.shapes import Shape
from wharfinger.engine.provisioning.states import NO, New

SLACK = 10**6
"""The solver's result is lowered by one part in SLACK, against rounding errors."""

RELAXATION = (
    "nodes are bought in fractions and pods are cut; each pod only where its labels, taints, "
    "devices and size let it be; of pods"
    " that keep each other off their nodes there is one a node; who else shares with whom, "
    "topology other than of host names,"
    " and limits are not looked at"
)

Kind = tuple[int, int]
"""The kind of a new node: (index of its template, row of its instance type)."""


@dataclass(frozen=True, slots=True)
class PriceBounds:
    """Lower bounds on the price of any solution that places these pods, billionths of a dollar an
    hour.

    `resources_only`: nodes may be bought, and pods divided, in fractions. `with_anti_affinity`: in
    addition, pods that exclude each other on a node need one node each. `relaxation`: what the
    second bound takes into account, in words.
    """

    resources_only: int
    with_anti_affinity: int
    relaxation: str = RELAXATION

    def gap(self, price: int) -> float:
        """Returns how far a price is above the better bound, relative to this bound. Example: price
        110 and bound 100 give 0.1. For display only. `price`: billionths of a dollar an hour."""
        return price / self.with_anti_affinity - 1.0 if self.with_anti_affinity else 0.0


def lower_bound(problem: Problem, solution: Solution | None = None) -> PriceBounds:
    """Computes the bounds for all wanted pods that a new node could hold alone. With a `solution`,
    only the pods that it placed count. Raises OverlayError."""
    missing: dict[str, int] = {}
    for unplaced in solution.unplaced if solution is not None else ():
        missing[unplaced.name] = missing.get(unplaced.name, 0) + unplaced.count
    return bound_of(PackingProblem(problem), missing)


def bound_of(packing: PackingProblem, missing: Mapping[str, int] | None = None) -> PriceBounds:
    """Computes the bounds for a packing problem. `missing`: name of wanted pods -> how many of them
    to leave out."""
    lots = _lots(packing, missing or {})
    if not lots:
        return PriceBounds(0, 0)
    program = _Program(packing, lots)
    alone = program.solved()
    program.keep_apart()
    return PriceBounds(alone, max(alone, program.solved()))


@dataclass(slots=True)
class _PodGroup:
    """Pods that may use the same kinds of new nodes. `kinds`: these kinds with the lowest price of
    each. `total` int64[resources]: the requests of all these pods together. `apart`: topology group
    per host -> how many of these pods belong to it; at most one pod of such a group may be on a
    node."""

    kinds: dict[Kind, int]
    total: Column
    apart: dict[int, int] = field(default_factory=dict)


def _lots(packing: PackingProblem, missing: Mapping[str, int]) -> list[_PodGroup]:
    found: dict[tuple[tuple[Kind, int], ...], _PodGroup] = {}
    kinds_of = _Kinds(packing)
    left_out = dict(missing)
    for at, wanted in enumerate(packing.problem.wanted):
        out = min(left_out.get(wanted.name, 0), wanted.count)
        left_out[wanted.name] = left_out.get(wanted.name, 0) - out
        count = wanted.count - out
        if at in packing.impossible or count <= 0:
            continue
        ask, first = packing.ask[packing.class_of[at]], int(packing.shape_of[packing.class_of[at]])
        kinds = kinds_of.of(first, ask)
        if not kinds:
            continue
        lot = found.setdefault(
            tuple(kinds.items()), _PodGroup(kinds, np.zeros(len(ask), dtype=np.int64))
        )
        lot.total = lot.total + count * ask
        for group in _lonely(_last(packing, first)):
            lot.apart[group] = lot.apart.get(group, 0) + count
    return list(found.values())


class _Kinds:
    """Looks up the kinds of new nodes (template, instance type) that can hold a single pod, with
    the lowest price of each. The results are cached by the pod's requests and by its needs over all
    relaxations."""

    def __init__(self, packing: PackingProblem) -> None:
        self.packing = packing
        self._reach: dict[tuple[int, ...], dict[Kind, int]] = {}
        self._held: dict[tuple[tuple[int, ...], bytes], dict[Kind, int]] = {}

    def of(self, shape: int, ask: Column) -> dict[Kind, int]:
        needs = tuple(_needs(self.packing, shape))
        if needs not in self._reach:
            self._reach[needs] = _reach(self.packing, needs)
        key = needs, ask.tobytes()
        if key not in self._held:
            self._held[key] = {
                kind: price
                for kind, price in self._reach[needs].items()
                if _holds(self.packing, kind, ask)
            }
        return self._held[key]


def _needs(packing: PackingProblem, number: int) -> Iterable[int]:
    while number >= 0:
        yield packing.shapes.shapes[number].need
        number = packing.shapes.shapes[number].next


def _holds(packing: PackingProblem, kind: Kind, ask: Column) -> bool:
    return bool((packing.states.room_of(kind[0])[kind[1]] >= ask).all())


def _last(packing: PackingProblem, number: int) -> Shape:
    """Returns the fully relaxed shape: the one with all preferences given up. `number`: the shape
    to begin with."""
    while packing.shapes.shapes[number].next >= 0:
        number = packing.shapes.shapes[number].next
    return packing.shapes.shapes[number]


def _lonely(shape: Shape) -> Iterable[int]:
    """Yields the numbers of the topology groups per host of which two pods of this shape can never
    share a node. These are anti-affinity to pods like itself and own host ports, and a topology
    spread over host names with a maximum skew of 1."""
    for row in shape.rows:
        one = row.group.kind == BLOCK or (row.group.kind == SPREAD and row.skew == 1)
        if row.itself and row.group.of_host and one:
            yield row.group.number


def _reach(packing: PackingProblem, needs: Iterable[int]) -> dict[Kind, int]:
    """Finds the kinds of new nodes that a pod may use, by labels, taints and devices. A kind is a
    pool with an instance type. Requests are not checked. Returns (number of the pool, row of the
    instance type) -> lowest price in billionths of a dollar an hour, in order of pool and type.

    `packing`: the problem: pods, pools and instance types. `needs`: what the pod requires of a
    node's labels, taints and devices: with all preferences, then with one preference after another
    given up. Each is an index in `Shapes.needs`. A kind of node that meets at least one of these is
    returned.
    """
    found: dict[Kind, int] = {}
    for need in dict.fromkeys(needs):
        for at, template in enumerate(packing.templates):
            start = packing.states.number(New(at, template.labels, template.able.tobytes()))
            met = NO if start == NO else packing.states.met(start, need)
            if met == NO:
                continue
            state = packing.states.states[met]
            assert isinstance(state, New), "a node to be made became another kind of node"
            prices = template.types.cheapest(state.labels)
            for row in np.flatnonzero(
                packing.states.remaining(state) & (prices < NO_PRICE)
            ).tolist():
                found[at, row] = min(int(prices[row]), found.get((at, row), NO_PRICE))
    return dict(sorted(found.items()))


class _Program:
    """The linear program that relaxes the packing problem.

    Variables: the number of nodes of each kind; and, for each group of pods, the fraction that goes
    to each kind and to existing nodes. Constraints: every pod is placed, and no kind of node is
    used beyond its capacity. `keep_apart` adds minimum numbers of nodes. The objective is the total
    price.
    """

    def __init__(self, packing: PackingProblem, lots: list[_PodGroup]) -> None:
        self.packing, self.lots = packing, lots
        prices: dict[Kind, int] = {}
        for lot in lots:
            for kind, price in lot.kinds.items():
                prices[kind] = min(price, prices.get(kind, NO_PRICE))
        self.kinds = sorted(prices)
        self.at = {kind: i for i, kind in enumerate(self.kinds)}
        self.unit = max(1, *prices.values())
        self.costs = [prices[kind] / self.unit for kind in self.kinds]
        self.rows: list[tuple[float, float, list[int], list[float]]] = []
        self._place_all()

    def _place_all(self) -> None:
        columns = len(self.kinds)
        of_lot: list[dict[Kind | None, int]] = []
        for lot in self.lots:
            of_lot.append({kind: columns + i for i, kind in enumerate((*lot.kinds, None))})
            columns += len(lot.kinds) + 1
        self.columns = columns
        for shares in of_lot:
            self.rows.append((1.0, _MANY, list(shares.values()), [1.0] * len(shares)))
        most = np.maximum(1, np.array([lot.total for lot in self.lots]).max(axis=0))
        for kind in (*self.kinds, None):
            room = self._there() if kind is None else self.packing.states.room_of(kind[0])[kind[1]]
            for d in range(len(most)):
                using = [
                    (shares[kind], int(lot.total[d]))
                    for lot, shares in zip(self.lots, of_lot, strict=True)
                    if kind in shares
                ]
                terms = [(column, amount / int(most[d])) for column, amount in using if amount]
                if not terms:
                    continue
                bound = int(room[d]) / int(most[d])
                columns_of, values = [c for c, _ in terms], [v for _, v in terms]
                if kind is None:
                    self.rows.append((-_MANY, bound, columns_of, values))
                else:
                    self.rows.append((-_MANY, 0.0, [*columns_of, self.at[kind]], [*values, -bound]))

    def _there(self) -> Column:
        """Returns the free amounts of all existing and pending nodes together, int64[resources]."""
        free = [np.maximum(fixed.free, 0) for fixed in self.packing.fixed]
        return (
            np.sum(free, axis=0) if free else np.zeros(len(self.packing.resources), dtype=np.int64)
        )

    def keep_apart(self) -> None:
        """Adds constraints to the linear program for sets of pods of which a node takes at most one
        (by anti-affinity or host ports). A kind of node is a pool with an instance type. For each
        of these sets of pods, and each set of kinds that one of the pods can use, the constraint is
        a minimum number of new nodes of these kinds: one for each pod of the set that can use no
        other kind. The number of existing and pending nodes is subtracted from the minimum, because
        each of these nodes can take one of the pods for free.

        Example: 5 of these pods and 2 existing nodes need at least 5 - 2 = 3 new nodes.
        """
        for group in sorted({g for lot in self.lots for g in lot.apart}):
            for within in self.lots:
                if group not in within.apart:
                    continue
                kinds = within.kinds.keys()
                nodes = sum(
                    lot.apart.get(group, 0) for lot in self.lots if lot.kinds.keys() <= kinds
                )
                nodes -= len(self.packing.fixed)
                if nodes > 0:
                    columns = [self.at[kind] for kind in within.kinds]
                    self.rows.append((float(nodes), _MANY, columns, [1.0] * len(columns)))

    def solved(self) -> int:
        """Solves the linear program with HiGHS. Returns the lowest total price of the new nodes in
        billionths of a dollar an hour; 0: the solver finds no optimum.

        The solver computes with doubles, so the result is lowered by one part in `SLACK` (a
        millionth) and by 1 against rounding errors. Example: an optimum of 5,000,000 gives
        4,999,994.
        """
        import highspy  # which only those pay for who ask how good a solution is

        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.columns, len(self.rows)
        lp.col_cost_ = np.array(self.costs + [0.0] * (self.columns - len(self.kinds)))
        lp.col_lower_, lp.col_upper_ = np.zeros(self.columns), np.full(self.columns, _MANY)
        lp.row_lower_ = np.array([row[0] for row in self.rows])
        lp.row_upper_ = np.array([row[1] for row in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row[2]) for row in self.rows)])
        lp.a_matrix_.index_ = np.array([c for row in self.rows for c in row[2]], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([v for row in self.rows for v in row[3]])
        solver.passModel(lp)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return 0
        found: Any = solver.getInfo().objective_function_value
        price = int(found * self.unit)
        return max(0, price - price // SLACK - 1)


_MANY = float("inf")
