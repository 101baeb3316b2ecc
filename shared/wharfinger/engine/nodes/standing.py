"""What a node's facts mean to a class of pods: whether they speak against it, and how much it is preferred.

Facts change rarely, and most classes claim the same, so that the columns are made once for all classes with the same
claims and made anew when any node's facts have changed: an expression is asked about each distinct value of its
labels, not about each node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Profile
from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.taints import Taint, Toleration, first_untolerated
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.plugins.node_affinity import narrowed
from wharfinger.engine.nodes.classes import PodClass, bears_cordon, bears_taints
from wharfinger.engine.nodes.columns import Column, NodeTable

Bools = npt.NDArray[np.bool_]

DETAIL = 64

GONE = 1
"""The verdict of a slot without a node: smaller than all others, so that none takes its place."""

(
    CORDONED, NARROWED, CONFLICT, NODE_NAME, TAINTED, NOT_ADDED, NOT_CLAIMED, PORTS, SHORT, SHORT_OF_DEVICES, NO_DEVICES, LOADED,
    NO_DOMAIN, SKEWED, NOT_WITH, AVOIDED, MINDED, VOLUMES, CLAIMS, PLUGIN,
) = range(2, 22)  # fmt: skip
"""Why a node is refused, in more detail than a `NodeReason`. An encoded verdict is rank x 64 + detail: of several the
smallest is what the first plugin of the profile says, which is the one that counts. Rank 0 is before all plugins."""

REASON_OF: tuple[NodeReason, ...] = (
    "Unschedulable", "Unschedulable", "Unschedulable", "NodeAffinity", "NodeAffinity", "NodeName", "TaintToleration",
    "NodeAffinity", "NodeAffinity", "NodePorts", "InsufficientResources", "InsufficientDevices", "InsufficientDevices",
    "LoadTooHigh", "PodTopologySpread", "PodTopologySpread", "InterPodAffinity", "InterPodAffinity", "InterPodAffinity",
    "Volumes", "DynamicResources", "Plugin",
)  # fmt: skip
"""By detail; the first two are none."""

NODE_NAME_FIELD = "metadata.name"


@dataclass(slots=True)
class Ranks:
    """Where the filters of a profile stand: name -> 1, 2, ...; those that do not stand are not asked."""

    by_name: dict[str, int]

    @classmethod
    def of(cls, profile: Profile) -> Ranks:
        return cls({use.name: rank for rank, use in enumerate(profile.at("filter"), 1)})

    def encoded(self, plugin: str, detail: int) -> int:
        """0: the plugin has no say."""
        rank = self.by_name.get(plugin)
        return 0 if rank is None else rank * DETAIL + detail


@dataclass(slots=True)
class Standing:
    """`verdicts` int64[capacity]: encoded, 0: nothing against it. `claimed`, `borne`: node claims hold; taints are
    tolerated (as the domains of spread go by). `taints`, `preferences` int64[capacity]: how many preferred taints are
    not borne, the weight of node preferences that hold; None: none anywhere. `facts`: as of which change."""

    facts: int
    verdicts: Column
    claimed: Bools
    borne: Bools
    taints: Column | None
    preferences: Column | None


class Standings:
    """The standings of one table under one profile, by claims."""

    def __init__(self, table: NodeTable, profile: Profile) -> None:
        self.table = table
        self.ranks = Ranks.of(profile)
        self.added = profile.arguments.node_affinity
        self.scores_affinity = any(use.name == "NodeAffinity" for use in profile.at("score"))
        self._known: dict[bytes, Standing] = {}

    def of(self, cls: PodClass) -> Standing:
        known = self._known.get(cls.claims)
        if known is None or known.facts != self.table.facts.end:
            if len(self._known) > 512:
                self._known.clear()
            known = self._known[cls.claims] = self._judged(cls.requirements)
        return known

    def _judged(self, asked: Requirements) -> Standing:
        table = self.table
        encoded = self.ranks.encoded
        verdicts = np.zeros(table.capacity, dtype=np.int64)
        claimed = self._claimed(asked)
        borne, taints, tolerated = self._taints(asked.tolerations)
        if not bears_cordon(asked.tolerations):
            _against(verdicts, table.cordoned, encoded("NodeUnschedulable", CORDONED))
        if name := asked.traits.node_name:
            _against(verdicts, ~self._named((name,)), encoded("NodeName", NODE_NAME))
        _against(verdicts, ~tolerated, encoded("TaintToleration", TAINTED))
        if self.added.required is not None:
            _against(verdicts, ~self._any(self.added.required), encoded("NodeAffinity", NOT_ADDED))
        _against(verdicts, ~claimed, encoded("NodeAffinity", NOT_CLAIMED))
        if "NodeAffinity" in self.ranks.by_name:
            names = narrowed(asked.node_terms)
            if names is not None:
                _against(verdicts, ~self._named(names), NARROWED if names else CONFLICT)
        _against(verdicts, table.closed, CORDONED)
        verdicts[~table.present] = GONE
        return Standing(table.facts.end, verdicts, claimed, borne, taints, self._preferences(asked))

    def _preferences(self, asked: Requirements) -> Column | None:
        preferred = (*self.added.preferred, *asked.traits.preferences)
        if not preferred or not self.scores_affinity:
            return None
        raw = np.zeros(self.table.capacity, dtype=np.int64)
        for preference in preferred:
            raw += preference.weight * self._any((preference.term,))
        return raw if raw.any() else None

    def _claimed(self, asked: Requirements) -> Bools:
        holds = np.ones(self.table.capacity, dtype=np.bool_)
        for key, value in asked.node_selector.items():
            topology = self.table.topology(key)
            code = topology.values.get(value, -2)
            holds &= topology.codes == code
        if asked.node_terms:
            holds &= self._any(asked.node_terms)
        return holds

    def _any(self, terms: Iterable[NodeTerm]) -> Bools:
        found = np.zeros(self.table.capacity, dtype=np.bool_)
        for term in terms:
            if term.expressions or term.fields:
                found |= self._all(term)
        return found

    def _all(self, term: NodeTerm) -> Bools:
        holds = np.ones(self.table.capacity, dtype=np.bool_)
        for expression in term.expressions:
            topology = self.table.topology(expression.key)
            by_code = [expression.holds({expression.key: value}) for value in topology.values]
            by_code.append(expression.holds({}))  # at -1
            holds &= np.array(by_code, dtype=np.bool_)[topology.codes]
        for expression in term.fields:
            names = [row.name for row in self.table.rows.values() if expression.holds({NODE_NAME_FIELD: row.name})]
            holds &= self._named(names)
        return holds

    def _named(self, names: Iterable[str]) -> Bools:
        found = np.zeros(self.table.capacity, dtype=np.bool_)
        for name in names:
            row = self.table.rows.get(name)
            if row is not None:
                found[row.slot] = True
        return found

    def _taints(self, tolerations: tuple[Toleration, ...]) -> tuple[Bools, Column | None, Bools]:
        sets = self.table.taint_sets
        preferring = [t for t in tolerations if t.effect in ("", "PreferNoSchedule")]
        codes = self.table.taint_code
        borne = [first_untolerated(s, tolerations, ("NoSchedule", "NoExecute")) is None for s in sets]
        raw = [_unwelcome(s, preferring) for s in sets]
        tolerated = np.array([bears_taints(s, tolerations) for s in sets])[codes]
        taints = np.array(raw, dtype=np.int64)[codes] if any(raw) else None
        return np.array(borne)[codes], taints, tolerated


def _unwelcome(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
    return sum(t.effect == "PreferNoSchedule" and not any(o.tolerates(t) for o in tolerations) for t in taints)


def _against(verdicts: Column, where: Bools, encoded: int) -> None:
    """Where the verdict is not an earlier plugin's already."""
    if encoded:
        np.putmask(verdicts, where & ((verdicts == 0) | (verdicts > encoded)), encoded)
