"""The score of the plugin `Devices` over the columns of a table of nodes, kept up to date by what was touched.

A class of pods has one column of costs. A cost depends on its own node only, so after a placement one entry is computed anew, from
the table's change logs; all of them only when the workload is another one, a sort of device is new, or the largest node is another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wharfinger.domain.scheduler import Profile
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.columns import Column, CompiledNeed, DeviceScorer
from wharfinger.engine.devices.strategies import SCORE_MAX
from wharfinger.engine.devices.workload import Workload
from wharfinger.engine.framework.plugins.node_resources_fit import is_ignored
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import CPU, MEMORY, NodeTable

CLASSES_MAX = 256
"""More columns of costs are forgotten all at once, and made again as they are asked for."""


@dataclass(slots=True, eq=False)
class _Costs:
    """`costs` int64[capacity], true up to the positions `usage` and `facts` of the table's logs."""

    scorer: DeviceScorer
    need: CompiledNeed
    costs: Column
    usage: int
    facts: int


class DeviceScores:
    """Of one profile over one table. `workload`: what is typically asked for, set by whoever knows it; None: nobody has said, and
    nothing can be scored here."""

    def __init__(self, table: NodeTable, profile: Profile, workload: Workload | None = None) -> None:
        self.table = table
        self.workload = workload
        self._strategy = profile.arguments.devices.strategy
        self._fit = profile.arguments.fit
        self._weight = next((use.weight for use in profile.at("score") if use.name == "Devices"), 0)
        self._kept: dict[PodClass, _Costs] = {}
        self._scorer: tuple[tuple[int, int], DeviceScorer] | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is anything to add."""
        return bool(self._strategy and self._weight) and self.workload is not None

    def add(self, cls: PodClass, verdicts: Column, scores: Column) -> None:
        """Adds the weighted score to `scores` where `verdicts` is 0. Both by slot."""
        feasible = np.flatnonzero(verdicts[: self.table.size] == 0)
        if not self.wanted or not len(feasible):
            return
        assert self.workload is not None  # or it would not be wanted
        costs = self._costs(cls, self.workload).take(feasible)
        low, high = int(costs.min()), int(costs.max())
        if low == high:
            scores[feasible] += self._weight * SCORE_MAX
        else:
            scores[feasible] += self._weight * ((high - costs) * SCORE_MAX // (high - low))

    def _costs(self, cls: PodClass, workload: Workload) -> Column:
        table, scorer = self.table, self._current(workload)
        kept = self._kept.get(cls)
        if kept is None or kept.scorer is not scorer or len(kept.costs) < table.size:
            if len(self._kept) >= CLASSES_MAX:
                self._kept.clear()
            need = scorer.need(self._looked_at(cls.requirements))
            kept = self._kept[cls] = _Costs(scorer, need, np.zeros(table.capacity, dtype=np.int64), -1, -1)
        slots = self._touched(kept)
        if len(slots):
            kept.costs[slots] = scorer.costs(
                kept.need, table.free[CPU], table.free[MEMORY], table.device_free, table.device_group, slots
            )
        kept.usage, kept.facts = table.usage.end, table.facts.end
        return kept.costs

    def _touched(self, kept: _Costs) -> Column:
        usage = self.table.usage.since(kept.usage) if kept.usage >= 0 else None
        facts = self.table.facts.since(kept.facts) if kept.facts >= 0 else None
        if usage is None or facts is None:
            return np.arange(self.table.size, dtype=np.int64)
        return np.unique(np.concatenate((usage, facts)))

    def _current(self, workload: Workload) -> DeviceScorer:
        table = self.table
        stamp = (table.facts.end, len(table.groups))
        made = self._scorer
        if made is None or made[0] != stamp or made[1].made_of[0] is not workload:
            made = self._scorer = (stamp, self._made(workload, None if made is None else made[1]))
        return made[1]

    def _made(self, workload: Workload, before: DeviceScorer | None) -> DeviceScorer:
        """The scorer before, where it still is the right one."""
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
        """Without what the profile leaves to somebody else."""
        asked = tuple(r for r in requirements.devices if not is_ignored(r.kind, self._fit))
        return Requirements(requirements.requests, asked)
