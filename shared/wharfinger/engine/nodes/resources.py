"""The requests and score formula of a class as rows of numbers for the kernels, under one profile.

The rules say which resources are checked and scored, and how (`forms.AmountFit`,
`forms.AmountBalance`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wharfinger.domain.resources import is_of_nodes
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import CPU, MEMORY, PODS, Column, NodeTable
from wharfinger.engine.nodes.kernels import LEAST, MOST, QUICK_MAX, RATIO
from wharfinger.engine.nodes.profile_rules import ProfileRules

Row = tuple[int, ...]

_STRATEGIES = {"LeastAllocated": LEAST, "MostAllocated": MOST, "RequestedToCapacityRatio": RATIO}
_COMMON = ("cpu", "memory", "ephemeral-storage")
_TWO = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class ResourceRows:
    """The resource requests and score formulas of one class as rows of numbers; `kernels` defines
    their columns. A row number below 0 means a device kind: -1 - kind."""

    asks: tuple[Row, ...]
    form: Row
    fit: tuple[Row, ...]
    balance: tuple[Row, ...]
    quick: bool
    with_kinds: bool

    @property
    def checked(self) -> frozenset[int]:
        """The rows that the profile compares with free amounts."""
        return frozenset(row for row, _, short in self.asks if short)


class ResourceForms:
    """Computes and caches the `ResourceRows` of one table's classes under one profile."""

    def __init__(self, table: NodeTable, rules: ProfileRules) -> None:
        self.table = table
        fit_name, fit = rules.fit or (None, None)
        balance_name, balance = rules.balance or (None, None)
        self.fit, self.balance = fit, balance
        self.short = (
            0 if fit is None or fit_name is None else rules.codes.encoded(fit_name, fit.short)
        )
        self.short_of_devices = (
            0
            if fit is None or fit_name is None
            else rules.codes.encoded(fit_name, fit.short_of_devices)
        )
        self.shape = np.array([] if fit is None else fit.shape, dtype=np.int64).reshape(-1, 2)
        self._plain_fit = (
            fit is not None
            and tuple(r.name for r in fit.resources) == _TWO
            and all(r.weight > 0 for r in fit.resources)
            and fit.strategy != "RequestedToCapacityRatio"
        )
        self._plain_balance = (
            balance is not None and balance.resources == _TWO and not balance.by_change
        )
        self._fit_weight, self._balance_weight = rules.weight(fit_name), rules.weight(balance_name)
        self._by_change = int(balance is not None and balance.by_change)
        self._strategy = LEAST if fit is None else _STRATEGIES[fit.strategy]
        self._two_weights = (0, 0)
        if fit is not None and self._plain_fit:
            self._two_weights = (fit.resources[0].weight, fit.resources[1].weight)
        self._ignores = None if fit is None else fit.ignores
        self._plain = (
            self._plain_fit and self._plain_balance and bool(self.short) and self._ignores is None
        )
        self._known: dict[PodClass, ResourceRows] = {}
        self._named = (0, 0)
        self._quick_at = -1
        self._quick = False

    def of(self, cls: PodClass) -> ResourceRows:
        named = (len(self.table.resources), len(self.table.kinds))
        form = self._known.get(cls)
        if form is None or named != self._named:
            if len(self._known) > 8192 or named != self._named:
                self._known.clear()  # a resource that no node had may matter to any class now
                self._named = named
            form = self._known[cls] = self._made(cls)
        return form

    def quick_table(self) -> bool:
        """Whether every node has cpu and memory of at most `QUICK_MAX`, which the fast score path
        requires."""
        table = self.table
        if self._quick_at != table.facts.end:
            largest = int(table.allocatable[:2, : table.size].max()) if table.size else 0
            self._quick = not table.incomplete and largest <= QUICK_MAX
            self._quick_at = table.facts.end
        return self._quick

    def _made(self, cls: PodClass) -> ResourceRows:
        if self._plain and not cls.wholes:
            return self._made_plainly(cls)
        asks = self._asks(cls)
        fit, balance = self._fit(cls), self._balance(cls)
        balance_weight = self._balance_weight if any(row[1] for row in balance) else 0
        form = (
            self._strategy,
            self._fit_weight,
            balance_weight,
            self._by_change,
            0,
            *cls.scored,
            0,
            0,
        )
        quick = self._plain_fit and self._plain_balance
        kinds = any(row[0] < 0 for row in (*asks, *balance)) or any(row[1] < 0 for row in fit)
        return ResourceRows(asks, form, fit, balance, quick, kinds)

    def _made_plainly(self, cls: PodClass) -> ResourceRows:
        """Returns the requests of a class and the score formula of the profile as rows of numbers
        for the kernels (compiled loops). The result equals that of the general `_made`, but is
        computed faster. It may be used only for classes that request no whole devices, under a
        profile that scores only cpu and memory, which is the usual case."""
        cpu = memory = 0
        for code, amount in cls.amounts:
            if code == CPU:
                cpu = amount
            elif code == MEMORY:
                memory = amount
        short = self.short
        one, two = self._two_weights
        balance_weight = self._balance_weight if cpu or memory else 0
        return ResourceRows(
            tuple([(row, amount, short) for row, amount in cls.amounts]),
            (self._strategy, self._fit_weight, balance_weight, 0, 0, *cls.scored, 0, 0),
            ((0, CPU, one, cls.scored[0]), (0, MEMORY, two, cls.scored[1])),
            ((CPU, cpu), (MEMORY, memory)),
            quick=True,
            with_kinds=False,
        )

    def _asks(self, cls: PodClass) -> tuple[Row, ...]:
        taken: list[tuple[int, int]] = [
            *cls.amounts,
            *((-1 - kind, count) for kind, count in cls.wholes),
        ]
        return tuple((row, amount, self._verdict(row)) for row, amount in taken)

    def _verdict(self, row: int) -> int:
        """Returns the encoded verdict for a node with too little of this row; 0: the profile
        charges the resource but does not check it."""
        name = self.table.resources[row] if row >= 0 else self.table.kinds[-1 - row]
        if self._ignores is not None and (not is_of_nodes(name) or self._ignores(name)):
            return 0
        return self.short if row >= 0 else self.short_of_devices

    def _fit(self, cls: PodClass) -> tuple[Row, ...]:
        rows: list[Row] = []
        for resource in () if self.fit is None else self.fit.resources:
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
        resources = () if self.balance is None else self.balance.resources
        named = [name for name in resources if name != "pods" and is_of_nodes(name)]
        return tuple(found for name in named if (found := self._row(cls, name)) is not None)

    def _row(self, cls: PodClass, name: str) -> tuple[int, int] | None:
        """Returns (row, requested amount) of the resource `name`: where the kernels (compiled
        loops) find the resource among the free amounts, and how much the class requests. The row of
        a kind of device is below 0: it is `-1 - number of the kind`.

        Returns None if no node has the resource, if it is `pods`, or if the class does not request
        it. Cpu, memory and ephemeral storage have a row even if the class does not request them.
        Example: cpu is row 0 and 500 milli-CPU are requested: (0, 500).
        """
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
