"""The costs of a pod on many nodes at once, over the columns of the node table.

One `DeviceScorer` per strategy and workload. `needs` compiles a class of pods once, `costs`
computes the given slots, `cost` one row by the reference implementation in `strategies`; both give
the same integers. A new group of devices, another workload or another largest node needs a new
scorer and the costs of all slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wharfinger.domain.workload import Requirements
from wharfinger.engine import machine_code
from wharfinger.engine.devices import kernels as plain
from wharfinger.engine.devices import strategies
from wharfinger.engine.devices.expected_use import Group, PodNeed, bounded, kibibytes_left
from wharfinger.engine.devices.strategies import NOWHERE, NodeDevices
from wharfinger.engine.devices.workload import DeviceWorkload

Column = npt.NDArray[np.int64]

KERNELS = machine_code.kernels(plain)
"""The functions of `kernels`, compiled or plain."""

__all__ = ["NOWHERE", "CompiledNeed", "DeviceScorer"]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledNeed:
    """The requests of one pod in two forms: `need` for the reference implementation in
    `strategies`, and the arrays `amounts`, `parts`, `allowed` for `kernels` (there called `need`,
    `parts`, `parts_allowed`)."""

    need: PodNeed
    amounts: Column
    parts: Column
    allowed: Column


class DeviceScorer:
    """Computes the cost of placing a pod on nodes, by one device strategy and workload.

    `groups`: (kind, model) of each group; the position is the group code. `largest`: milli-CPU,
    bytes and number of devices of the largest node, used by best fit.

    Raises ValueError (one line) for an unknown strategy.
    """

    def __init__(
        self,
        strategy: str,
        workload: DeviceWorkload,
        groups: Sequence[Group],
        largest: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        self.strategy = strategies.known(strategy)
        self._groups = tuple(groups)
        self.made_of = (workload, self._groups, largest)
        self.scene = strategies.scene(strategy, workload, self._groups, largest)
        outlook = self.scene.outlook
        self._asks = _rows(
            [(a.cpu, a.memory, a.count, a.milli, a.weight, a.kind) for a in outlook.asks], 6
        )
        self._allowed = self._admitted([a.allowed for a in outlook.asks])
        self._fill = _rows(outlook.fill, 1001)
        self._terms = np.array([outlook.total, outlook.patience], dtype=np.int64)
        self._levels = np.array(strategies.LEVELS, dtype=np.int64)
        self._largest = np.array(
            [self.scene.largest.cpu, self.scene.largest.memory, self.scene.largest.devices],
            dtype=np.int64,
        )

    def need(self, requirements: Requirements) -> CompiledNeed:
        need = PodNeed.of(requirements, self._groups)
        return CompiledNeed(
            need,
            np.array([need.cpu, need.memory], dtype=np.int64),
            _rows([(part.count, part.milli) for part in need.parts], 2),
            self._admitted([part.allowed for part in need.parts]),
        )

    def cost(
        self, need: CompiledNeed, cpu: int, memory: int, free: Sequence[int], groups: Sequence[int]
    ) -> int:
        """Returns the cost of placing the pod on one node. `cpu`, `memory`: free milli-CPU and
        bytes; `free`: free thousandths of each device; `groups`: group code of each device."""
        state = NodeDevices(bounded(cpu), kibibytes_left(memory), tuple(free), tuple(groups))
        return strategies.cost(self.strategy, self.scene, state, need.need)

    def costs(
        self,
        need: CompiledNeed,
        cpu: Column,
        memory: Column,
        device_free: Column,
        device_groups: Column,
        slots: Column,
        kernels: Any = None,
    ) -> Column:
        """Computes the cost of placing one pod on each of several nodes, by the device strategy of
        this scorer (fragmentation, expected fill or best fit). A lower cost is better. Returns
        int64[len(slots)], in the order of `slots`; `NOWHERE` where the node does not have the
        devices that the pod requests.

        N: number of rows of the node table. D: number of devices of the node with most devices.

        - `need`: the requests of the pod, compiled by the method `need`.
        - `cpu`, `memory` [N]: free milli-CPU and free bytes of each node.
        - `device_free` [N, D]: free thousandths of each device, -1 where the node has no such
          device.
        - `device_groups` [N, D]: code of each device's (kind, model), -1 where the node has no such
          device.
        - `slots`: the nodes to compute, as indexes into the arrays above.
        - `kernels`: functions to use instead of `KERNELS`; None: `KERNELS`.
        """
        out = np.empty(len(slots), dtype=np.int64)
        room = np.zeros((6, device_free.shape[1]), dtype=np.int64)
        run = KERNELS if kernels is None else kernels
        run.costs(
            plain.CODES[self.strategy],
            cpu,
            memory,
            device_free,
            device_groups,
            slots,
            *self.arguments(need),
            room,
            out,
        )
        return out

    def arguments(self, need: CompiledNeed) -> tuple[Any, ...]:
        """Returns the nine arguments `need` to `largest` of the function `kernels.costs`, in its
        order:

        - the pod's cpu and memory, its device requests, and the device groups that each request may
          use;
        - the typical workload, the most frequent requests: these requests, the device groups that
          each may use, the table of expected further use of a device, and (sum of weights,
          patience: the weight of the case that no more pods arrive);
        - constants: the thresholds of the strategy fragmentation, and the size of the largest node
          for best fit.

        The arguments before these nine describe the nodes. The arguments after them are a work
        array and the output.
        """
        return (
            need.amounts,
            need.parts,
            need.allowed,
            self._asks,
            self._allowed,
            self._fill,
            self._terms,
            self._levels,
            self._largest,
        )

    def _admitted(self, allowed: Sequence[frozenset[int]]) -> Column:
        # The last column, all 0, is read for the code -1 (no device).
        table = np.zeros((len(allowed), len(self._groups) + 1), dtype=np.int64)
        for row, codes in enumerate(allowed):
            for code in codes:
                table[row, code] = 1
        return table


def _rows(rows: Sequence[Sequence[int]], width: int) -> Column:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)
