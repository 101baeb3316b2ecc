"""What placements see of the fleet, in columns over its clusters in order of name.

A column answers one question of every cluster: does this selector match, how much memory is allocatable, which score did that
add-on give. It is made when a placement first asks, kept between decisions, and mended where a cluster changed since: a log says
which ones. So a decision reads arrays, and an update of one cluster costs each question asked about it one answer. Nothing that
is kept can show in a result: a fleet told the same things in another order, or told them anew, decides the same.

Only clusters that are managed (`Cluster.managed`) take part. Names are kept in slots that never move; `order` puts the slots into
the order of names. Decided clusters that are not in the fleet have a slot, too, because balance counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from wharfinger.domain.cluster import Cluster, Managed, ManagedTaint
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import ClusterScores, ClusterSet, Selector
from wharfinger.domain.value import canonical
from wharfinger.engine.placement.amounts import approximate
from wharfinger.engine.placement.selectors import SelectorError, Test, compiled

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Names = npt.NDArray[np.object_]

PLACEMENT = "Placement"
CLUSTER_SET = "ManagedClusterSet"
SET_BINDING = "ManagedClusterSetBinding"
SCORES = "AddOnPlacementScore"

SET_LABEL = "cluster.open-cluster-management.io/clusterset"
"""Label of a cluster: the one exclusive set it is in."""
EXCLUSIVE, BY_LABELS = "ExclusiveClusterSetLabel", "LabelSelector"
BY_DEFAULT = "Default"
"""Kind of the built-in set `default`: clusters that are in no other exclusive set."""
BUILT_IN_SETS = {"default": ClusterSet(BY_DEFAULT), "global": ClusterSet(BY_LABELS, Selector())}
"""Sets that there are even when nobody has applied them. Controllers of OCM make them there, and label clusters that have no set
with `default`; a strict placement sees only what was applied."""

NEVER_US = 2**62
_SLOTS_LEAST = 16
_LOG_LEAST = 1024
_COLUMNS_LEAST = 256


@dataclass(slots=True)
class Facts:
    """All that is known of one cluster. `cluster` None: it is only named, in decisions or by scores."""

    name: str
    cluster: Cluster | None = None
    managed: Managed = field(default_factory=Managed)
    scores: dict[str, ClusterScores] = field(default_factory=dict)
    parsed: object = None
    """Its manifest for expressions, once one has asked."""


Answer = Callable[[Facts], Any]


@dataclass(slots=True)
class Column:
    """`values[slot]`: the answer for the cluster in that slot. `told`: how much of the log it has seen; -1: nothing yet. `ranked`:
    the answers in order of name; a change of the order is in the log, too."""

    answer: Answer
    values: npt.NDArray[Any]
    told: int = -1
    ranked: npt.NDArray[Any] | None = None


class PlacementFleet:
    def __init__(self) -> None:
        self._facts: list[Facts] = []
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._log: list[int] = []
        self._logged_before = 0
        """How many entries of the log were let go."""
        self._columns: dict[tuple[object, ...], Column] = {}
        self._columns_max = _COLUMNS_LEAST
        self.epoch = 0
        """Rises when columns are thrown away: whoever keeps one must ask for it again."""
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
            self._facts[slot] = Facts(name, scores=self._facts[slot].scores)
            self._changed_members()
            self._log.append(slot)
            self._release(slot)

    def apply(self, policy: Policy) -> None:
        """A placement, a cluster set, a binding of one, or the scores of a cluster; anything else says nothing here."""
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
        """The standing decision of the placement `key` (`namespace/name`); empty: it has none. A cluster named twice counts
        twice."""
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
        """In order of key."""
        return [self._placements[key] for key in sorted(self._placements)]

    def placement(self, key: str) -> Policy | None:
        return self._placements.get(key)

    def held(self, key: str) -> tuple[str, ...]:
        """The standing decision, as it was told."""
        slots = self._decided.get(key)
        return () if slots is None else tuple(self._facts[slot].name for slot in slots.tolist())

    def names(self) -> Names:
        """All clusters in order of name. Never changed in place: who keeps it keeps the fleet as it was."""
        self._arrange()
        return cast(Names, self._names)

    def bound_sets(self, namespace: str, strict: bool) -> tuple[str, ...]:
        """The existing sets that are bound there, in order of name. `strict`: without those that are built in."""
        known = self._sets if strict else BUILT_IN_SETS | self._sets
        return tuple(sorted(name for name in self._bindings.get(namespace, ()) if name in known))

    def members(self, name: str) -> Column | None:
        """Of a cluster set; None: it has none. Raises SelectorError."""
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

    def alive(self) -> Column:
        """Clusters that are not being deleted."""
        return self.column(("alive",), np.bool_, _alive)

    def matching(self, selector: Selector, of: str) -> Column | None:
        """`of` labels or claims; None: all match. Raises SelectorError."""
        test = compiled(selector)
        if test is None:
            return None
        return self.column((of, canonical(selector)), np.bool_, _asked(test, of))

    def resource(self, name: str) -> Column:
        """Allocatable, as float64; not a number where a cluster does not report it as allocatable and as capacity."""
        return self.column(("resource", name), np.float64, _allocatable(name))

    def score(self, resource: str, score: str) -> Column:
        """As int64; `SCORE_UNKNOWN` where there is none."""
        return self.column(("score", resource, score), np.int64, _score(resource, score))

    def expiry(self, resource: str) -> Column:
        """Until when a cluster's scores of this add-on hold, in microseconds of the epoch."""
        return self.column(("expiry", resource), np.int64, _expiry(resource))

    def taints(self) -> Column:
        """Positions in `taint_groups`; 0: no taints."""
        return self.column(("taints",), np.int64, self._taint_group)

    def column(self, key: tuple[object, ...], kind: type[Any], answer: Answer) -> Column:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = Column(answer, np.zeros(0, kind))
        return column

    def ranked(self, column: Column) -> npt.NDArray[Any]:
        """The answers of all clusters in order of name. Not to be changed."""
        self._arrange()
        order = cast(Ints, self._order)
        if self._tell(column) or column.ranked is None:
            column.ranked = column.values[order]
        return column.ranked

    def counts(self, without: str) -> tuple[Ints, int]:
        """How often each cluster stands in decisions of others than `without`, in order of name, and the most of any name."""
        self._arrange()
        counts = self._counts
        if (own := self._decided.get(without)) is not None:
            counts = counts - np.bincount(own, minlength=len(counts))
        return counts[cast(Ints, self._order)], int(counts.max())

    def held_ranks(self, key: str) -> Ints:
        """Where in order of name the clusters of the standing decision are; those that are gone are left out."""
        self._arrange()
        own = self._decided.get(key)
        if own is None:
            return _NONE
        ranks = cast(Ints, self._ranks)
        if len(ranks) < len(self._counts):  # names that were only decided have come since
            ranks = self._ranks = np.concatenate([ranks, np.full(len(self._counts) - len(ranks), -1, np.int64)])
        ranks = ranks[own]
        return ranks[ranks >= 0]

    def make_room(self) -> None:
        """Throws away what has piled up for placements that are gone. To be called between decisions."""
        if len(self._columns) > self._columns_max or len(self.taint_groups) > 2 * len(self._facts) + _COLUMNS_LEAST:
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
        slot = self._slots.get(name)
        if slot is None:
            if self._free:
                slot = self._free.pop()
                self._facts[slot] = Facts(name)
            else:
                slot = len(self._facts)
                self._facts.append(Facts(name))
                if slot >= len(self._counts):
                    self._counts = np.concatenate([self._counts, np.zeros(len(self._counts), np.int64)])
            self._slots[name] = slot
            self._log.append(slot)
        return slot

    def _release(self, slot: int) -> None:
        """Lets go of a name that nobody speaks of any more."""
        facts = self._facts[slot]
        if facts.cluster is None and not facts.scores and not self._counts[slot] and facts.name in self._slots:
            del self._slots[facts.name]
            self._free.append(slot)
            facts.name = ""

    def _changed_members(self) -> None:
        self._order = None

    def _arrange(self) -> None:
        if self._order is not None:
            return
        present = sorted([(facts.name, slot) for slot, facts in enumerate(self._facts) if facts.cluster is not None])
        self._order = np.array([slot for _, slot in present], np.int64)
        self._names = np.array([name for name, _ in present], np.object_)
        self._ranks = np.full(len(self._counts), -1, np.int64)
        self._ranks[self._order] = np.arange(len(present))

    def _tell(self, column: Column) -> bool:
        """Brings a column up to what is known; whether that changed it."""
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

    def _taint_group(self, facts: Facts) -> int:
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
"""No score was given."""


def _alive(facts: Facts) -> bool:
    return not cast(Cluster, facts.cluster).deleting


def _labelled(key: str, value: str) -> Answer:
    return lambda facts: cast(Cluster, facts.cluster).labels.get(key) == value


def _in_default_set(facts: Facts) -> bool:
    return cast(Cluster, facts.cluster).labels.get(SET_LABEL, "default") == "default"


def _asked(test: Test, of: str) -> Answer:
    if of == "labels":
        return lambda facts: test(cast(Cluster, facts.cluster).labels)
    return lambda facts: test(facts.managed.claims)


def _allocatable(name: str) -> Answer:
    def answer(facts: Facts) -> float:
        if name not in facts.managed.allocatable or name not in facts.managed.capacity:
            return np.nan
        amount = approximate(facts.managed.allocatable[name])
        return np.nan if amount is None else amount

    return answer


def _score(resource: str, score: str) -> Answer:
    def answer(facts: Facts) -> int:
        given = facts.scores.get(resource)
        if given is None:
            return SCORE_UNKNOWN
        return next((s.value for s in reversed(given.scores) if s.name == score), SCORE_UNKNOWN)

    return answer


def _expiry(resource: str) -> Answer:
    def answer(facts: Facts) -> int:
        given = facts.scores.get(resource)
        return NEVER_US if given is None or given.until_us is None else given.until_us

    return answer
