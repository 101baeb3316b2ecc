"""Costs of a pod on many nodes at once, over the columns of a table of nodes.

One `DeviceScorer` a strategy and outlook. `needs` compile once a class of pods, `costs` looks at the slots it is
given, `cost` at one row by the plain truth of `strategies`; both give the same integers. When a group is new, the
workload was exchanged or the largest node is another one, make a new scorer and ask for all slots again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wharfinger.domain.resources import GPU
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices import kernels as plain
from wharfinger.engine.devices import strategies
from wharfinger.engine.devices.outlook import Group, Need, bounded, kibibytes_left
from wharfinger.engine.devices.strategies import NOWHERE, State
from wharfinger.engine.devices.workload import Workload
from wharfinger.engine.nodes.compiled import Compiler

Column = npt.NDArray[np.int64]

__all__ = ["NOWHERE", "CompiledNeed", "DeviceScorer"]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledNeed:
    """What a pod asks, as `strategies` takes it and as arrays (see `kernels`)."""

    need: Need
    amounts: Column
    parts: Column
    allowed: Column


class DeviceScorer:
    """`groups`: (kind, model) of each group's code. `largest`: milli-cpu, bytes and devices of the largest node, for best fit.

    Raises ValueError, one line, for a strategy that is not there."""

    def __init__(
        self, strategy: str, workload: Workload, groups: Sequence[Group], largest: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        self.strategy = strategies.known(strategy)
        self._groups = tuple(groups)
        self.made_of = (workload, self._groups, largest)
        self.scene = strategies.scene(strategy, workload, self._groups, largest)
        outlook = self.scene.outlook
        self._asks = _rows([(a.cpu, a.memory, a.count, a.milli, a.weight, a.kind) for a in outlook.asks], 6)
        self._allowed = self._admitted([a.allowed for a in outlook.asks])
        self._fill = _rows(outlook.fill, 1001)
        self._terms = np.array([outlook.total, outlook.patience], dtype=np.int64)
        self._levels = np.array(strategies.LEVELS, dtype=np.int64)
        self._largest = np.array(
            [self.scene.largest.cpu, self.scene.largest.memory, self.scene.largest.devices], dtype=np.int64
        )

    def need(self, requirements: Requirements) -> CompiledNeed:
        need = Need.of(requirements, self._groups)
        return CompiledNeed(
            need,
            np.array([need.cpu, need.memory], dtype=np.int64),
            _rows([(part.count, part.milli) for part in need.parts], 2),
            self._admitted([part.allowed for part in need.parts]),
        )

    def cost(self, need: CompiledNeed, cpu: int, memory: int, free: Sequence[int], groups: Sequence[int]) -> int:
        """On one node. `cpu` (milli) and `memory` (bytes) left of it, `free`: thousandths of each device."""
        state = State(bounded(cpu), kibibytes_left(memory), tuple(free), tuple(groups))
        return strategies.cost(self.strategy, self.scene, state, need.need)

    def costs(
        self, need: CompiledNeed, cpu: Column, memory: Column, device_free: Column, device_groups: Column, slots: Column,
        kernels: Any = None,
    ) -> Column:  # fmt: skip
        """On the nodes at `slots`, `NOWHERE` where the pod's devices do not fit. `cpu`, `memory` [N]: milli and bytes
        left; `device_free`, `device_groups` [N, D]: thousandths left and codes, -1 where there is no device.
        `kernels`: which functions, when not those that are ready."""
        out = np.empty(len(slots), dtype=np.int64)
        room = np.zeros((6, device_free.shape[1]), dtype=np.int64)
        run = compiler.kernels(len(slots) * (1 + len(self._asks))) if kernels is None else kernels
        run.costs(
            plain.CODES[self.strategy], cpu, memory, device_free, device_groups, slots, *self.arguments(need), room, out
        )
        return out

    def arguments(self, need: CompiledNeed) -> tuple[Any, ...]:
        """What the kernels take between the node and the scratch space."""
        return (need.amounts, need.parts, need.allowed, self._asks, self._allowed, self._fill, self._terms, self._levels,
                self._largest)  # fmt: skip

    def _admitted(self, allowed: Sequence[frozenset[int]]) -> Column:
        # One column more than there are groups: -1, the code of no device, must mean something.
        table = np.zeros((len(allowed), len(self._groups) + 1), dtype=np.int64)
        for row, codes in enumerate(allowed):
            for code in codes:
                table[row, code] = 1
        return table


def _rows(rows: Sequence[Sequence[int]], width: int) -> Column:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)


def _warm(made: Any) -> None:
    """Calls every kernel once."""
    for strategy in plain.CODES:
        scorer = DeviceScorer(strategy, Workload(), [(GPU, "")])
        column, devices = np.zeros(1, dtype=np.int64), np.zeros((1, 1), dtype=np.int64)
        scorer.costs(scorer.need(Requirements()), column, column, devices, devices, column, made)


compiler = Compiler(_warm, plain)
"""`compiler.kernels(nodes)`: the functions of `kernels`, as machine code once that was worth it."""
