"""Stores the fleet as placements read it: columns over the clusters, in order of name.

A column caches one predicate or value for every cluster, for example whether a selector matches,
how much memory is allocatable, or an add-on's score. The fleet computes a column when a placement
first needs it, and keeps it between decisions. Later it updates only the clusters that a change log
names. So a decision reads arrays, and an update of one cluster recomputes one entry per column.
Caching never changes a result: the same facts in another order, or repeated, give the same
decision.

Only managed clusters (`Cluster.managed`) take part. A cluster keeps its slot, an index into all
columns; `order` sorts the slots by name. A cluster that was selected but has left the fleet keeps a
slot, because the balance score counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from wharfinger.domain.cluster import Cluster, ManagedClusterFacts, ManagedTaint
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import ClusterScores, ClusterSet, Selector
from wharfinger.domain.value import canonical
from wharfinger.engine.cluster_sets.amounts import approximate
from wharfinger.engine.cluster_sets.selectors import SelectorError, Test, compiled

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Names = npt.NDArray[np.object_]

PLACEMENT = "Placement"
CLUSTER_SET = "ManagedClusterSet"
SET_BINDING = "ManagedClusterSetBinding"
SCORES = "AddOnPlacementScore"

SET_LABEL = "cluster.open-cluster-management.io/clusterset"
"""Cluster label that names the one exclusive cluster set of the cluster."""
EXCLUSIVE, BY_LABELS = "ExclusiveClusterSetLabel", "LabelSelector"
BY_DEFAULT = "Default"
"""Type of the built-in set `default`: the clusters that are in no other exclusive set."""
BUILT_IN_SETS = {"default": ClusterSet(BY_DEFAULT), "global": ClusterSet(BY_LABELS, Selector())}
"""Sets that exist even when no user has applied them. In OCM, controllers make them and label the
clusters that have no set with `default`. A strict placement sees only sets that were applied."""

NEVER_US = 2**62
_SLOTS_LEAST = 16
_LOG_LEAST = 1024
_COLUMNS_LEAST = 256


@dataclass(slots=True)
class OcmClusterFacts:
    """Holds all facts about one cluster. `cluster` None: the cluster is not in the fleet, only
    decisions or scores name it."""

    name: str
    cluster: Cluster | None = None
    managed: ManagedClusterFacts = field(default_factory=ManagedClusterFacts)
    scores: dict[str, ClusterScores] = field(default_factory=dict)
    parsed: object = None
    """The cluster's manifest as expressions read it; None until an expression reads it."""


Answer = Callable[[OcmClusterFacts], Any]


@dataclass(slots=True)
class AnswerColumn:
    """Caches one predicate or value for every cluster.

    `answer`: computes the value of one cluster from its facts.
    `values`: array over slots; `values[slot]` is the value of the cluster in that slot.
    `told`: the position in the change log up to which `values` is current; -1: not computed yet.
    `ranked`: the values in order of cluster name; None: not computed yet.
    """

    answer: Answer
    values: npt.NDArray[Any]
    told: int = -1
    ranked: npt.NDArray[Any] | None = None


class PlacementFleet:
    def __init__(self) -> None:
        self._facts: list[OcmClusterFacts] = []
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._log: list[int] = []
        self._logged_before = 0
        """How many entries of the log were dropped."""
        self._columns: dict[tuple[object, ...], AnswerColumn] = {}
        self._columns_max = _COLUMNS_LEAST
        self.epoch = 0
        """Grows when columns are dropped: a plan that keeps a column must look it up again."""
        self._order: Ints | None = None
        self._names: Names | None = None
        self._ranks: Ints | None = None
        self._counts: Ints = np.zeros(_SLOTS_LEAST, np.int64)
        self._decided: dict[str, Ints] = {}
        self._sets: dict[str, ClusterSet] = {}
        self._bindings: dict[str, set[str]] = {}
        self._placements: dict[str, Policy] = {}
        self.sets_version = 0
        self.taint_groups: list[tuple[ManagedTaint, ...]] = [()]
        self._taint_ids: dict[bytes, int] = {b"[]": 0}
        self.plans: dict[str, dict[int, object]] = {}
        """What `plans` has compiled of each placement, by hysteresis."""

    # What happens.

    def observe(self, cluster: Cluster) -> None:
        if cluster.managed is None:
            self.forget(cluster.name)
            return
        slot = self._slot(cluster.name)
        facts = self._facts[slot]
        if facts.cluster is None:
            self._changed_members()
        facts.cluster, facts.managed, facts.parsed = cluster, cluster.managed, None
        self._log.append(slot)

    def forget(self, name: str) -> None:
        slot = self._slots.get(name)
        if slot is not None and self._facts[slot].cluster is not None:
            self._facts[slot] = OcmClusterFacts(name, scores=self._facts[slot].scores)
            self._changed_members()
            self._log.append(slot)
            self._release(slot)

    def apply(self, policy: Policy) -> None:
        """Stores one policy object that was created or changed. Four kinds of object are stored:
        Placement, ManagedClusterSet, ManagedClusterSetBinding (it allows a namespace to use a
        cluster set) and AddOnPlacementScore (the scores that an add-on gives one cluster). Objects
        of any other kind are ignored."""
        if policy.selection is not None:
            key = f"{policy.namespace}/{policy.name}"
            if self._placements.get(key) != policy:
                self._placements[key] = policy
                self.plans.pop(key, None)
        elif policy.cluster_set is not None:
            self._sets[policy.name] = policy.cluster_set
            self.sets_version += 1
        elif policy.set_binding is not None:
            self._bindings.setdefault(policy.namespace, set()).add(policy.name)
            self.sets_version += 1
        elif policy.scores is not None:
            slot = self._slot(policy.namespace)
            self._facts[slot].scores[policy.name] = policy.scores
            self._log.append(slot)

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Removes the stored policy object with this kind, namespace and name. `kind`: Placement,
        ManagedClusterSet, ManagedClusterSetBinding or AddOnPlacementScore. For another kind, or an
        object that is not stored, nothing happens."""
        match kind:
            case "Placement":
                self._placements.pop(f"{namespace}/{name}", None)
                self.plans.pop(f"{namespace}/{name}", None)
            case "ManagedClusterSet":
                if self._sets.pop(name, None) is not None:
                    self.sets_version += 1
            case "ManagedClusterSetBinding":
                if name in (bound := self._bindings.get(namespace, set())):
                    bound.remove(name)
                    self.sets_version += 1
            case "AddOnPlacementScore":
                slot = self._slots.get(namespace)
                if slot is not None and self._facts[slot].scores.pop(name, None) is not None:
                    self._log.append(slot)
                    self._release(slot)

    def decided(self, key: str, clusters: Sequence[str]) -> None:
        """Records the present decision of one placement, in place of its previous decision. Updates
        for each cluster how many decisions name it; the prioritizer Balance uses these numbers.

        `key`: the placement, as `namespace/name`.
        `clusters`: the names of the selected clusters; empty: the placement has no decision. A
          cluster that is listed twice counts twice.
        """
        before = self._decided.pop(key, None)
        slots = np.array([self._slot(name) for name in clusters], np.int64)
        if before is not None:
            np.subtract.at(self._counts, before, 1)
        if len(slots):
            self._decided[key] = slots
            np.add.at(self._counts, slots, 1)
        if before is not None:
            for slot in before.tolist():
                self._release(slot)

    # What is asked.

    def placements(self) -> list[Policy]:
        """Returns all placements in order of `namespace/name`."""
        return [self._placements[key] for key in sorted(self._placements)]

    def placement(self, key: str) -> Policy | None:
        return self._placements.get(key)

    def held(self, key: str) -> tuple[str, ...]:
        """Returns the present decision of the placement, in the recorded order."""
        slots = self._decided.get(key)
        return () if slots is None else tuple(self._facts[slot].name for slot in slots.tolist())

    def names(self) -> Names:
        """Returns all clusters in order of name. The array is never changed in place, so it stays a
        snapshot."""
        self._arrange()
        return cast(Names, self._names)

    def bound_sets(self, namespace: str, strict: bool) -> tuple[str, ...]:
        """Returns the cluster sets that exist and are bound to the namespace, in order of name.
        `strict`: a built-in set counts only if a user has applied it."""
        known = self._sets if strict else BUILT_IN_SETS | self._sets
        return tuple(sorted(name for name in self._bindings.get(namespace, ()) if name in known))

    def members(self, name: str) -> AnswerColumn | None:
        """Returns the members of the cluster set `name`, as a column: one bool for each cluster,
        true if the cluster is a member.

        Returns None if the set selects clusters by labels but has no selector: then no cluster is a
        member. Raises SelectorError if the selector of the set is invalid or its selector type is
        unknown.
        """
        cluster_set = self._sets.get(name) or BUILT_IN_SETS[name]
        if cluster_set.kind == BY_DEFAULT:
            return self.column(("default set",), np.bool_, _in_default_set)
        if cluster_set.kind in (EXCLUSIVE, ""):
            return self.column(("set", name), np.bool_, _labelled(SET_LABEL, name))
        if cluster_set.kind != BY_LABELS:
            raise SelectorError(f"selectorType is not right: {cluster_set.kind}")
        if cluster_set.selector is None:
            return None
        return self.matching(cluster_set.selector, "labels") or self.alive()

    def alive(self) -> AnswerColumn:
        """Returns the column of clusters that are not being deleted."""
        return self.column(("alive",), np.bool_, _alive)

    def matching(self, selector: Selector, of: str) -> AnswerColumn | None:
        """Returns the column that says for each cluster whether the selector matches it. `of`: what
        the selector reads, `labels` or `claims` of the cluster. Returns None if the selector is
        empty and so matches every cluster. Raises SelectorError if the selector is invalid."""
        test = compiled(selector)
        if test is None:
            return None
        return self.column((of, canonical(selector)), np.bool_, _asked(test, of))

    def resource(self, name: str) -> AnswerColumn:
        """Returns the column of allocatable amounts of a resource, as float64. The value is NaN
        unless the cluster reports the resource both as allocatable and as capacity."""
        return self.column(("resource", name), np.float64, _allocatable(name))

    def score(self, resource: str, score: str) -> AnswerColumn:
        """Returns the column of one add-on score, as int64. The value is `SCORE_UNKNOWN` where the
        cluster has no such score."""
        return self.column(("score", resource, score), np.int64, _score(resource, score))

    def expiry(self, resource: str) -> AnswerColumn:
        """Returns the column of times at which a cluster's scores of this add-on expire, in
        microseconds since the epoch; `NEVER_US`: never."""
        return self.column(("expiry", resource), np.int64, _expiry(resource))

    def taints(self) -> AnswerColumn:
        """Returns the column of taints. The value is an index into `taint_groups`; 0: the cluster
        has no taints."""
        return self.column(("taints",), np.int64, self._taint_group)

    def column(self, key: tuple[object, ...], kind: type[Any], answer: Answer) -> AnswerColumn:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = AnswerColumn(answer, np.zeros(0, kind))
        return column

    def ranked(self, column: AnswerColumn) -> npt.NDArray[Any]:
        """Returns the column's values for all clusters in order of name. Callers must not change
        the array."""
        self._arrange()
        order = cast(Ints, self._order)
        if self._tell(column) or column.ranked is None:
            column.ranked = column.values[order]
        return column.ranked

    def counts(self, without: str) -> tuple[Ints, int]:
        """Returns (int64[clusters], maximum): how many decisions name each cluster, in order of
        name, and the largest such number. Decisions of the placement `without` are not counted. The
        maximum includes clusters that have left the fleet."""
        self._arrange()
        counts = self._counts
        if (own := self._decided.get(without)) is not None:
            counts = counts - np.bincount(own, minlength=len(counts))
        return counts[cast(Ints, self._order)], int(counts.max())

    def held_ranks(self, key: str) -> Ints:
        """Returns the clusters in the present decision of a placement, as int64 positions in
        `names()`, the array of all clusters in order of name. Clusters that have left the fleet are
        omitted. The order is that of the decision. Empty if the placement has no decision.

        `key`: the placement, as `namespace/name`.

        Example: the fleet is a, b, c, and the decision is c, x, a. Cluster x has left. The result
        is [2, 0].
        """
        self._arrange()
        own = self._decided.get(key)
        if own is None:
            return _NONE
        ranks = cast(Ints, self._ranks)
        if len(ranks) < len(self._counts):  # names that were only decided have come since
            ranks = self._ranks = np.concatenate(
                [ranks, np.full(len(self._counts) - len(ranks), -1, np.int64)]
            )
        ranks = ranks[own]
        return ranks[ranks >= 0]

    def make_room(self) -> None:
        """Bounds the memory of the caches. Call it between decisions only.

        A column caches one value for each cluster, for example whether a selector matches. If there
        are too many columns or too many distinct sets of taints, all columns, compiled placements
        and sets of taints are dropped. The number `epoch` then grows by 1, so that callers look up
        their columns again.

        The change log lists the clusters that have changed. If it is too long, its older half is
        dropped.
        """
        if (
            len(self._columns) > self._columns_max
            or len(self.taint_groups) > 2 * len(self._facts) + _COLUMNS_LEAST
        ):
            self._columns.clear()
            self.plans.clear()
            self.taint_groups, self._taint_ids = [()], {b"[]": 0}
            self.epoch += 1
            self._columns_max = max(_COLUMNS_LEAST, 8 * len(self._placements) + 8 * len(self._sets))
        if len(self._log) > max(_LOG_LEAST, 4 * len(self._facts)):
            dropped = len(self._log) // 2
            del self._log[:dropped]
            self._logged_before += dropped

    # Within.

    def _slot(self, name: str) -> int:
        """Returns the slot of the cluster `name`: its index in all columns (a column has one cached
        value for each cluster). A cluster without a slot gets a free slot, or a new one if none is
        free."""
        slot = self._slots.get(name)
        if slot is None:
            if self._free:
                slot = self._free.pop()
                self._facts[slot] = OcmClusterFacts(name)
            else:
                slot = len(self._facts)
                self._facts.append(OcmClusterFacts(name))
                if slot >= len(self._counts):
                    self._counts = np.concatenate(
                        [self._counts, np.zeros(len(self._counts), np.int64)]
                    )
            self._slots[name] = slot
            self._log.append(slot)
        return slot

    def _release(self, slot: int) -> None:
        """Frees the slot of a cluster, so that another cluster can get it. `slot`: the cluster's
        index in all columns (a column has one cached value for each cluster). Does nothing if the
        cluster is still in the fleet, or a score or a decision still names it."""
        facts = self._facts[slot]
        if (
            facts.cluster is None
            and not facts.scores
            and not self._counts[slot]
            and facts.name in self._slots
        ):
            del self._slots[facts.name]
            self._free.append(slot)
            facts.name = ""

    def _changed_members(self) -> None:
        self._order = None

    def _arrange(self) -> None:
        if self._order is not None:
            return
        present = sorted(
            [
                (facts.name, slot)
                for slot, facts in enumerate(self._facts)
                if facts.cluster is not None
            ]
        )
        self._order = np.array([slot for _, slot in present], np.int64)
        self._names = np.array([name for name, _ in present], np.object_)
        self._ranks = np.full(len(self._counts), -1, np.int64)
        self._ranks[self._order] = np.arange(len(present))

    def _tell(self, column: AnswerColumn) -> bool:
        """Brings a column (one cached value for each cluster) up to date with the change log, the
        list of clusters that have changed. Returns whether the column was out of date.

        It recomputes only the clusters that were logged since the column's last update. It
        recomputes all clusters in two cases: some of these log entries were dropped, or there are
        more of these entries than clusters.
        """
        now = self._logged_before + len(self._log)
        if column.told == now:
            return False
        capacity = len(self._counts)
        news: Sequence[int]
        if column.told < self._logged_before or now - column.told > len(self._facts):
            column.values = np.zeros(capacity, column.values.dtype)
            news = range(len(self._facts))
        else:
            news = self._log[column.told - self._logged_before :]
            if len(column.values) < capacity:
                grown = np.zeros(capacity, column.values.dtype)
                grown[: len(column.values)] = column.values
                column.values = grown
        values, answer = column.values, column.answer
        for slot in news:
            facts = self._facts[slot]
            if facts.cluster is not None:
                values[slot] = answer(facts)
        column.told = now
        return True

    def _taint_group(self, facts: OcmClusterFacts) -> int:
        taints = facts.managed.taints
        if not taints:
            return 0
        key = canonical(taints)
        found = self._taint_ids.get(key)
        if found is None:
            found = self._taint_ids[key] = len(self.taint_groups)
            self.taint_groups.append(taints)
        return found


_NONE: Ints = np.zeros(0, np.int64)

SCORE_UNKNOWN = -(2**62)
"""Value of a cluster that has no score."""


def _alive(facts: OcmClusterFacts) -> bool:
    return not cast(Cluster, facts.cluster).deleting


def _labelled(key: str, value: str) -> Answer:
    return lambda facts: cast(Cluster, facts.cluster).labels.get(key) == value


def _in_default_set(facts: OcmClusterFacts) -> bool:
    return cast(Cluster, facts.cluster).labels.get(SET_LABEL, "default") == "default"


def _asked(test: Test, of: str) -> Answer:
    if of == "labels":
        return lambda facts: test(cast(Cluster, facts.cluster).labels)
    return lambda facts: test(facts.managed.claims)


def _allocatable(name: str) -> Answer:
    def answer(facts: OcmClusterFacts) -> float:
        if name not in facts.managed.allocatable or name not in facts.managed.capacity:
            return np.nan
        amount = approximate(facts.managed.allocatable[name])
        return np.nan if amount is None else amount

    return answer


def _score(resource: str, score: str) -> Answer:
    def answer(facts: OcmClusterFacts) -> int:
        given = facts.scores.get(resource)
        if given is None:
            return SCORE_UNKNOWN
        return next((s.value for s in reversed(given.scores) if s.name == score), SCORE_UNKNOWN)

    return answer


def _expiry(resource: str) -> Answer:
    def answer(facts: OcmClusterFacts) -> int:
        given = facts.scores.get(resource)
        return NEVER_US if given is None or given.until_us is None else given.until_us

    return answer
