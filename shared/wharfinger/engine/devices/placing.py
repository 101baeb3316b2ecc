"""The device score as one column per class of pods, updated incrementally.

A cost depends only on the state of one node. So a placement changes one entry of a column; the
change logs of the table say which. The whole column is computed again only when the workload, the
groups of devices or the largest node change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.columns import Column, CompiledNeed, DeviceScorer
from wharfinger.engine.devices.strategies import SCORE_MAX
from wharfinger.engine.devices.workload import DeviceWorkload
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import CPU, MEMORY, NodeTable
from wharfinger.engine.nodes.forms import DeviceColumn

CLASSES_MAX = 256
"""With more cached columns of costs, all are dropped; they are computed again when needed."""


@dataclass(slots=True, eq=False)
class _Costs:
    """The cached costs of one class. `costs` int64[capacity]: the cost on each node. `usage`,
    `facts`: positions in the table's change logs up to which the costs are current."""

    scorer: DeviceScorer
    need: CompiledNeed
    costs: Column
    usage: int
    facts: int


class DeviceScores:
    """Computes the device scores of one profile for the nodes of a table. The score is the cost of
    `DeviceScorer`, min-max normalised over the feasible nodes: the lowest cost scores 100, the
    highest 0, and all score 100 if the costs are equal. Costs are cached per class of pods and
    recomputed only for nodes that changed.

    `devices`: the profile's strategy and the device kinds that it ignores; None: there is no device
    score. `weight`: weight of the score. `workload`: the typical requests; None: they are not known
    yet, so there is no device score.
    """

    def __init__(
        self,
        table: NodeTable,
        devices: DeviceColumn | None,
        weight: int,
        workload: DeviceWorkload | None = None,
    ) -> None:
        self.table = table
        self.workload = workload
        self._strategy = "" if devices is None else devices.strategy
        self._ignores = (lambda kind: False) if devices is None else devices.ignores
        self._weight = weight
        self._kept: dict[PodClass, _Costs] = {}
        self._scorer: tuple[tuple[int, int], DeviceScorer] | None = None

    @property
    def wanted(self) -> bool:
        """Whether `add` changes scores: the profile has a strategy and a weight above 0, and the
        workload is known."""
        return bool(self._strategy and self._weight) and self.workload is not None

    def add(self, cls: PodClass, verdicts: Column, scores: Column) -> None:
        """Adds the weighted device score of each feasible node to `scores`. A device score is 0 to
        100: (highest cost - cost of the node) * 100 // (highest cost - lowest cost), over the
        feasible nodes; 100 if all costs are equal.

        `cls`: the class of the pod.
        `verdicts`: one entry for each row of the node table; 0: the node is feasible.
        `scores`: the total score of each row; it is changed.

        Example: costs 10, 20 and 15 and weight 2 add 200, 0 and 100.
        """
        feasible = np.flatnonzero(verdicts[: self.table.size] == 0)
        if not self.wanted or not len(feasible):
            return
        assert self.workload is not None  # else `wanted` is False
        costs = self._costs(cls, self.workload).take(feasible)
        low, high = int(costs.min()), int(costs.max())
        if low == high:
            scores[feasible] += self._weight * SCORE_MAX
        else:
            scores[feasible] += self._weight * ((high - costs) * SCORE_MAX // (high - low))

    def _costs(self, cls: PodClass, workload: DeviceWorkload) -> Column:
        table, scorer = self.table, self._current(workload)
        kept = self._kept.get(cls)
        if kept is None or kept.scorer is not scorer or len(kept.costs) < table.size:
            if len(self._kept) >= CLASSES_MAX:
                self._kept.clear()
            need = scorer.need(self._looked_at(cls.requirements))
            kept = self._kept[cls] = _Costs(
                scorer, need, np.zeros(table.capacity, dtype=np.int64), -1, -1
            )
        slots = self._touched(kept)
        if len(slots):
            kept.costs[slots] = scorer.costs(
                kept.need,
                table.free[CPU],
                table.free[MEMORY],
                table.device_free,
                table.device_group,
                slots,
            )
        kept.usage, kept.facts = table.usage.end, table.facts.end
        return kept.costs

    def _touched(self, kept: _Costs) -> Column:
        usage = self.table.usage.since(kept.usage) if kept.usage >= 0 else None
        facts = self.table.facts.since(kept.facts) if kept.facts >= 0 else None
        if usage is None or facts is None:
            return np.arange(self.table.size, dtype=np.int64)
        return np.unique(np.concatenate((usage, facts)))

    def _current(self, workload: DeviceWorkload) -> DeviceScorer:
        table = self.table
        stamp = (table.facts.end, len(table.groups))
        made = self._scorer
        if made is None or made[0] != stamp or made[1].made_of[0] is not workload:
            made = self._scorer = (stamp, self._made(workload, None if made is None else made[1]))
        return made[1]

    def _made(self, workload: DeviceWorkload, before: DeviceScorer | None) -> DeviceScorer:
        """Returns the object (`DeviceScorer`) that computes for each node the cost of placing a pod
        there, by the device strategy. It is made for the present device groups (kind, model) and
        the present maxima over all nodes of cpu, memory and number of devices.

        `workload`: the most frequent requests of pods, with their shares of all pods.
        `before`: the previous scorer; None: there is none. If the previous scorer was made from
          equal inputs, it is returned, because the costs computed with it stay valid.
        """
        table = self.table
        groups = tuple((table.kinds[kind], model) for kind, model in table.groups)
        largest = (
            int(table.allocatable[CPU].max(initial=0)),
            int(table.allocatable[MEMORY].max(initial=0)),
            int((table.device_group >= 0).sum(axis=1).max(initial=0)),
        )
        if before is not None and before.made_of == (workload, groups, largest):
            return before
        return DeviceScorer(self._strategy, workload, groups, largest)

    def _looked_at(self, requirements: Requirements) -> Requirements:
        """Returns the requirements without the device kinds that the profile ignores."""
        asked = tuple(r for r in requirements.devices if not self._ignores(r.kind))
        return Requirements(requirements.requests, asked)
