"""How little the nodes to be made could cost at best, as two linear programs tell.

Nothing is decided by it: it stands beside a decision, outside its hash, and says how far that is from the cheapest there could
be. Both programs are relaxations, so what they find is never above the cheapest solution that places the same pods; a
solver works with doubles, so a little is taken off besides (`SLACK`).

Nodes that are there, or on their way, cost nothing: to the programs they are one heap of room that every pod may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wharfinger.engine.provisioning.catalogue import NO_PRICE, Column
from wharfinger.engine.provisioning.kernels import BLOCK, SPREAD
from wharfinger.engine.provisioning.packing import Yard
from wharfinger.engine.provisioning.problem import Problem, Solution
from wharfinger.engine.provisioning.shapes import Shape
from wharfinger.engine.provisioning.states import NO, New

SLACK = 10**6
"""One part in so many is taken off what the solver says."""

RELAXATION = (
    "nodes are bought in fractions and pods are cut; each pod only where its labels, taints, devices and size let it be; of pods"
    " that keep each other off their nodes there is one a node; who else shares with whom, topology other than of host names,"
    " and limits are not looked at"
)

Kind = tuple[int, int]
"""Of a node to be made: its template, and the row of its instance type."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Billionths of a dollar an hour, never above what the cheapest solution costs that places these pods. `resources_only`:
    nodes are bought in fractions and pods are cut. `with_anti_affinity`: besides, pods that do not bear each other on a node
    are on as many nodes. `relaxation`: what the latter looks at and what not, in words."""

    resources_only: int
    with_anti_affinity: int
    relaxation: str = RELAXATION

    def gap(self, price: int) -> float:
        """How far a price is above the better bound, as a share of that; for people to read."""
        return price / self.with_anti_affinity - 1.0 if self.with_anti_affinity else 0.0


def lower_bound(problem: Problem, solution: Solution | None = None) -> Bound:
    """Of all wanted pods that some node could hold alone; with a `solution`, of those that it placed. Raises OverlayError."""
    missing: dict[str, int] = {}
    for unplaced in solution.unplaced if solution is not None else ():
        missing[unplaced.name] = missing.get(unplaced.name, 0) + unplaced.count
    return bound_of(Yard(problem), missing)


def bound_of(yard: Yard, missing: Mapping[str, int] | None = None) -> Bound:
    """`missing`: how many of a name are left out."""
    lots = _lots(yard, missing or {})
    if not lots:
        return Bound(0, 0)
    program = _Program(yard, lots)
    alone = program.solved()
    program.keep_apart()
    return Bound(alone, max(alone, program.solved()))


@dataclass(slots=True)
class _Lot:
    """Pods that may be on the same kinds of nodes. `total`: their amounts together. `apart`: of how many, by the group of the host
    that says so, there is at most one a node."""

    kinds: dict[Kind, int]
    total: Column
    apart: dict[int, int] = field(default_factory=dict)


def _lots(yard: Yard, missing: Mapping[str, int]) -> list[_Lot]:
    found: dict[tuple[tuple[Kind, int], ...], _Lot] = {}
    kinds_of = _Kinds(yard)
    left_out = dict(missing)
    for at, wanted in enumerate(yard.problem.wanted):
        out = min(left_out.get(wanted.name, 0), wanted.count)
        left_out[wanted.name] = left_out.get(wanted.name, 0) - out
        count = wanted.count - out
        if at in yard.impossible or count <= 0:
            continue
        ask, first = yard.ask[yard.class_of[at]], int(yard.shape_of[yard.class_of[at]])
        kinds = kinds_of.of(first, ask)
        if not kinds:
            continue
        lot = found.setdefault(tuple(kinds.items()), _Lot(kinds, np.zeros(len(ask), dtype=np.int64)))
        lot.total = lot.total + count * ask
        for group in _lonely(_last(yard, first)):
            lot.apart[group] = lot.apart.get(group, 0) + count
    return list(found.values())


class _Kinds:
    """The kinds of nodes that hold a pod alone; pods of the same needs and amounts have the same."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self._reach: dict[tuple[int, ...], dict[Kind, int]] = {}
        self._held: dict[tuple[tuple[int, ...], bytes], dict[Kind, int]] = {}

    def of(self, shape: int, ask: Column) -> dict[Kind, int]:
        needs = tuple(_needs(self.yard, shape))
        if needs not in self._reach:
            self._reach[needs] = _reach(self.yard, needs)
        key = needs, ask.tobytes()
        if key not in self._held:
            self._held[key] = {
                kind: price for kind, price in self._reach[needs].items() if _holds(self.yard, kind, ask)
            }
        return self._held[key]


def _needs(yard: Yard, number: int) -> Iterable[int]:
    while number >= 0:
        yield yard.shapes.shapes[number].need
        number = yard.shapes.shapes[number].next


def _holds(yard: Yard, kind: Kind, ask: Column) -> bool:
    return bool((yard.states.room_of(kind[0])[kind[1]] >= ask).all())


def _last(yard: Yard, number: int) -> Shape:
    """A shape with all given up that may be."""
    while yard.shapes.shapes[number].next >= 0:
        number = yard.shapes.shapes[number].next
    return yard.shapes.shapes[number]


def _lonely(shape: Shape) -> Iterable[int]:
    """The groups of which two such pods can never be on one node. A spread of one a node is among them, where the pods spread
    themselves."""
    for row in shape.rows:
        one = row.group.kind == BLOCK or (row.group.kind == SPREAD and row.skew == 1)
        if row.itself and row.group.of_host and one:
            yield row.group.number


def _reach(yard: Yard, needs: Iterable[int]) -> dict[Kind, int]:
    """The kinds of nodes that a pod may be on with any of these needs, in order, and for how little."""
    found: dict[Kind, int] = {}
    for need in dict.fromkeys(needs):
        for at, template in enumerate(yard.templates):
            start = yard.states.number(New(at, template.labels, template.able.tobytes()))
            met = NO if start == NO else yard.states.met(start, need)
            if met == NO:
                continue
            state = yard.states.states[met]
            assert isinstance(state, New), "a node to be made became another kind of node"
            prices = template.types.cheapest(state.labels)
            for row in np.flatnonzero(yard.states.remaining(state) & (prices < NO_PRICE)).tolist():
                found[at, row] = min(int(prices[row]), found.get((at, row), NO_PRICE))
    return dict(sorted(found.items()))


class _Program:
    """Columns: how many nodes of each kind; then, for each lot, which share of it goes to each kind and to what is there."""

    def __init__(self, yard: Yard, lots: list[_Lot]) -> None:
        self.yard, self.lots = yard, lots
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
            room = self._there() if kind is None else self.yard.states.room_of(kind[0])[kind[1]]
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
        """What is free of all nodes there and on their way."""
        free = [np.maximum(fixed.free, 0) for fixed in self.yard.fixed]
        return np.sum(free, axis=0) if free else np.zeros(len(self.yard.resources), dtype=np.int64)

    def keep_apart(self) -> None:
        """Those that are on nodes of few kinds only need as many of just these."""
        for group in sorted({g for lot in self.lots for g in lot.apart}):
            for within in self.lots:
                if group not in within.apart:
                    continue
                kinds = within.kinds.keys()
                nodes = sum(lot.apart.get(group, 0) for lot in self.lots if lot.kinds.keys() <= kinds)
                nodes -= len(self.yard.fixed)
                if nodes > 0:
                    columns = [self.at[kind] for kind in within.kinds]
                    self.rows.append((float(nodes), _MANY, columns, [1.0] * len(columns)))

    def solved(self) -> int:
        """The least price, a little below what the solver says. 0 where it does not find one."""
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
