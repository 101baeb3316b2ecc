"""What a class asks and how its score is made up, as rows of numbers for the kernels: a profile meets a class.

The rules of which resource counts where are those of the framework's `NodeResourcesFit` and `NodeResourcesBalancedAllocation`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wharfinger.domain.node import Pod
from wharfinger.domain.resources import is_of_nodes
from wharfinger.domain.scheduler import Profile
from wharfinger.engine.framework.plugins.node_resources_fit import SHAPE_UNIT, looked_at
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import CPU, MEMORY, PODS, Column, NodeTable
from wharfinger.engine.nodes.kernels import LEAST, MOST, QUICK_MAX, RATIO
from wharfinger.engine.nodes.standing import SHORT, SHORT_OF_DEVICES, Ranks

Row = tuple[int, ...]

_STRATEGIES = {"LeastAllocated": LEAST, "MostAllocated": MOST, "RequestedToCapacityRatio": RATIO}
_COMMON = ("cpu", "memory", "ephemeral-storage")
_TWO = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Form:
    """See `kernels` for the rows. Rows of `free` from `-1` down are device kinds: -1 - kind."""

    asks: tuple[Row, ...]
    form: Row
    fit: tuple[Row, ...]
    balance: tuple[Row, ...]
    quick: bool
    with_kinds: bool


class Forms:
    """Forms of one table's classes under one profile."""

    def __init__(self, table: NodeTable, profile: Profile, ranks: Ranks) -> None:
        self.table = table
        self.arguments = profile.arguments
        self.weights = {use.name: use.weight for use in profile.at("score")}
        self.checks_fit = "NodeResourcesFit" in ranks.by_name
        self.short = ranks.encoded("NodeResourcesFit", SHORT)
        self.short_of_devices = ranks.encoded("NodeResourcesFit", SHORT_OF_DEVICES)
        fit, balanced = self.arguments.fit, self.arguments.balanced
        self.shape = np.array([(p.utilization, p.score * SHAPE_UNIT) for p in fit.shape], dtype=np.int64).reshape(-1, 2)
        self._plain_fit = (
            tuple(r.name for r in fit.resources) == _TWO
            and all(r.weight > 0 for r in fit.resources)
            and fit.strategy != "RequestedToCapacityRatio"
        )
        self._plain_balance = tuple(r.name for r in balanced.resources) == _TWO and not balanced.by_change
        self._fit_weight = self.weights.get("NodeResourcesFit", 0)
        self._balance_weight = self.weights.get("NodeResourcesBalancedAllocation", 0)
        self._strategy = _STRATEGIES[fit.strategy]
        self._two_weights = (fit.resources[0].weight, fit.resources[1].weight) if self._plain_fit else (0, 0)
        self._ignores = bool(fit.ignored_groups or fit.ignored_resources)
        self._plain = self._plain_fit and self._plain_balance and self.checks_fit and not self._ignores
        self._known: dict[PodClass, Form] = {}
        self._named = (0, 0)
        self._quick_at = -1
        self._quick = False

    def of(self, cls: PodClass) -> Form:
        named = (len(self.table.resources), len(self.table.kinds))
        form = self._known.get(cls)
        if form is None or named != self._named:
            if len(self._known) > 8192 or named != self._named:
                self._known.clear()  # a resource that nobody had may matter to any form now
                self._named = named
            form = self._known[cls] = self._made(cls)
        return form

    def quick_table(self) -> bool:
        """Every node has cpu and memory, and none too much of them."""
        table = self.table
        if self._quick_at != table.facts.end:
            largest = int(table.allocatable[:2, : table.size].max()) if table.size else 0
            self._quick = not table.incomplete and largest <= QUICK_MAX
            self._quick_at = table.facts.end
        return self._quick

    def _made(self, cls: PodClass) -> Form:
        if self._plain and not cls.wholes:
            return self._made_plainly(cls)
        asks = self._asks(cls)
        fit, balance = self._fit(cls), self._balance(cls)
        balance_weight = self._balance_weight if any(row[1] for row in balance) else 0
        form = (
            self._strategy,
            self._fit_weight,
            balance_weight,
            int(self.arguments.balanced.by_change),
            0,
            *cls.scored,
            0,
            0,
        )
        quick = self._plain_fit and self._plain_balance
        kinds = any(row[0] < 0 for row in (*asks, *balance)) or any(row[1] < 0 for row in fit)
        return Form(asks, form, fit, balance, quick, kinds)

    def _made_plainly(self, cls: PodClass) -> Form:
        """What `_made` gives where cpu and memory are all that is scored, without looking them up."""
        cpu = memory = 0
        for code, amount in cls.amounts:
            if code == CPU:
                cpu = amount
            elif code == MEMORY:
                memory = amount
        short = self.short
        one, two = self._two_weights
        balance_weight = self._balance_weight if cpu or memory else 0
        return Form(
            tuple([(row, amount, short) for row, amount in cls.amounts]),
            (self._strategy, self._fit_weight, balance_weight, 0, 0, *cls.scored, 0, 0),
            ((0, CPU, one, cls.scored[0]), (0, MEMORY, two, cls.scored[1])),
            ((CPU, cpu), (MEMORY, memory)),
            quick=True,
            with_kinds=False,
        )

    def _asks(self, cls: PodClass) -> tuple[Row, ...]:
        taken: list[tuple[int, int]] = [*cls.amounts, *((-1 - kind, count) for kind, count in cls.wholes)]
        if not self.checks_fit:
            return tuple((row, amount, 0) for row, amount in taken)
        if self._ignores:
            counted = looked_at(Pod("", "", cls.requirements), self.arguments.fit)
            names = [self.table.resources[row] if row >= 0 else self.table.kinds[-1 - row] for row, _ in taken]
        else:
            counted, names = {"": 1}, [""] * len(taken)
        return tuple(
            (row, amount, 0 if name not in counted else self.short if row >= 0 else self.short_of_devices)
            for (row, amount), name in zip(taken, names, strict=True)
        )

    def _fit(self, cls: PodClass) -> tuple[Row, ...]:
        rows: list[Row] = []
        for resource in self.arguments.fit.resources:
            if resource.name == "cpu":
                rows.append((0, CPU, resource.weight, cls.scored[0]))
            elif resource.name == "memory":
                rows.append((0, MEMORY, resource.weight, cls.scored[1]))
            elif resource.name != "pods":
                found = self._row(cls, resource.name)
                if found is not None:
                    rows.append((1, found[0], resource.weight, found[1]))
        return tuple(rows)

    def _balance(self, cls: PodClass) -> tuple[Row, ...]:
        named = [r.name for r in self.arguments.balanced.resources if r.name != "pods" and is_of_nodes(r.name)]
        return tuple(found for name in named if (found := self._row(cls, name)) is not None)

    def _row(self, cls: PodClass, name: str) -> tuple[int, int] | None:
        """(row, what is asked); None: no node has it, or it is beyond the common ones and not asked for."""
        kind = self.table.kind_codes.get(name)
        asked = 0 if kind is None else dict(cls.wholes).get(kind, 0)
        if asked and kind is not None:
            return -1 - kind, asked
        code = self.table.resource_codes.get(name, PODS)
        if code == PODS:
            return None
        amount = dict(cls.amounts).get(code, 0)
        return (code, amount) if amount or name in _COMMON else None


def rows_of(rows: tuple[Row, ...], width: int) -> Column:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)
