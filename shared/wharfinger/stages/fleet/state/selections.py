"""The state of the OCM placements: their policies, their current selections of clusters, and which
placements must be evaluated next.

Only the stream `fleet/0` has it, because balancing between placements needs a view of all of them.
`open` lists the placements with an input that changed in this round: the placement itself, the
clusters of its cluster sets, the sets, or its scores. It is empty after a round. The end of a
toleration, of a score's validity or of a stabilisation window also opens a placement. A decision on
another placement does not: each decision would trigger the next, without end.

`stages.fleet.selections` makes the decisions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args
from uuid import UUID

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import ClusterSet
from wharfinger.domain.value import Value
from wharfinger.engine.cluster_sets.fleet import (
    BUILT_IN_SETS,
    BY_LABELS,
    EXCLUSIVE,
    SET_LABEL,
    PlacementFleet,
)
from wharfinger.engine.cluster_sets.select import choose
from wharfinger.engine.cluster_sets.selectors import SelectorError, compiled
from wharfinger.events.decisions import (
    DecidedGroup,
    PlacementDecided,
    PlacementHeld,
    PlacementReleased,
    SelectionCondition,
    SelectionTrigger,
    joined,
)
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.streams import fleet_stream
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.folds import DecisionFolds
from wharfinger.stages.due_times import Agenda

STREAM = fleet_stream(0)
"""The stream that decides placements."""

Membership = Callable[[Mapping[str, str]], bool]

_RANK: dict[SelectionTrigger, int] = {
    trigger: rank for rank, trigger in enumerate(get_args(SelectionTrigger))
}


class SelectionRecord(msgspec.Struct):
    """Holds the last decision on one placement. `held_until`: end of the stabilisation window in
    microseconds; 0: there is none. `coming`: the groups of a multi-part decision whose last part is
    not folded yet; empty between rounds."""

    generation: int = 0
    groups: tuple[DecidedGroup, ...] = ()
    unscheduled: int = 0
    conditions: tuple[SelectionCondition, ...] = ()
    held_until: Micros = 0
    decided_at: Micros = 0
    coming: tuple[DecidedGroup, ...] = ()

    @property
    def clusters(self) -> dict[str, None]:
        """Return the selected clusters, in the order of the groups."""
        return {name: None for group in self.groups for name in group.scores}


@dataclass(frozen=True, slots=True)
class Why:
    """Why a placement must be evaluated: the trigger, and the event that caused it."""

    trigger: SelectionTrigger
    cause: UUID | None = None


@dataclass(slots=True)
class Selections:
    """Holds all placements, cluster sets, set bindings and scores of the fleet, and the last
    decision on each placement. Inputs and decisions are folded into it, and open the placements
    that they affect.

    Keys of placements are `<namespace>/<name>`; keys of policies are as in `domain.policy`.
    `policies`, `active` and `clock` are saved. The rest is derived from these and from the clusters
    (`derive`).
    """

    policies: dict[str, Policy] = field(default_factory=dict)
    active: dict[str, SelectionRecord] = field(default_factory=dict)
    clock: Micros = 0
    # derived
    clusters: dict[str, Cluster] = field(default_factory=dict)
    placements: dict[str, dict[str, Policy]] = field(default_factory=dict)
    """Namespace -> key -> the placement."""
    sets: dict[str, Membership] = field(default_factory=dict)
    """Cluster set -> predicate: whether a cluster with these labels may be a member."""
    bound: dict[str, dict[str, None]] = field(default_factory=dict)
    """Cluster set -> the namespaces that may use it."""
    holders: dict[str, dict[str, None]] = field(default_factory=dict)
    """Cluster -> the placements that select it."""
    open: dict[str, Why] = field(default_factory=dict)
    removed: dict[str, UUID] = field(default_factory=dict)
    """Deleted placements whose selection is not released yet -> the event that deleted them."""
    stale: dict[str, None] = field(default_factory=dict)
    """Placements whose entry in `dues` must be computed again."""
    dues: Agenda[tuple[str]] = field(default_factory=Agenda)
    _fleet: PlacementFleet | None = None

    @property
    def fleet(self) -> PlacementFleet:
        """Return the engine's view of clusters and placements. It is built on first use, because
        most fleets have no placements and do not need it."""
        if self._fleet is None:
            self._fleet = PlacementFleet()
            for name in sorted(self.clusters):
                self._fleet.observe(self.clusters[name])
            for key in sorted(self.policies):
                self._fleet.apply(self.policies[key])
            for key in sorted(self.active):
                self._fleet.decided(key, list(self.active[key].clusters))
        return self._fleet

    # --- facts

    def is_news(self, data: PolicyApplied | PolicyRemoved) -> bool:
        if isinstance(data, PolicyRemoved):
            return _key(data) in self.policies
        return _concerns(data.policy) and self.policies.get(data.policy.key) != data.policy

    def fold_policy(self, data: PolicyApplied | PolicyRemoved, cause: UUID) -> None:
        if not self.is_news(data):
            return
        if isinstance(data, PolicyApplied):
            self._apply(data.policy, cause)
        else:
            self._remove(self.policies[_key(data)], cause)

    def observe(self, facts: Cluster, cause: UUID) -> None:
        """Record the present facts of a cluster, and mark for evaluation the OCM placements that
        the change may affect. If the facts are unchanged, nothing is marked.
        - A placement is marked if its namespace is bound to a cluster set that has the cluster
          before or after the change, or if the placement selects the cluster now.
        - If only the cluster's manifest changed, only placements with CEL expressions are marked,
          because only expressions read the manifest.
        `cause`: the id of the event with the facts."""
        old = self.clusters.get(facts.name)
        self.clusters[facts.name] = facts
        if old == facts:
            return
        if self._fleet is not None:
            self._fleet.observe(facts)
        if not self.placements:
            return
        told = old is not None and _alike(old, facts)
        near = self._near((*self._sets_of(old), *self._sets_of(facts)), facts.name)
        self._open(near, Why("ClustersChanged", cause), told)

    def forget(self, name: str, cause: UUID) -> None:
        old = self.clusters.pop(name, None)
        if self._fleet is not None:
            self._fleet.forget(name)
        self._open(self._near(self._sets_of(old), name), Why("ClustersChanged", cause))

    def _apply(self, policy: Policy, cause: UUID) -> None:
        before = self._touched_by(self.policies.get(policy.key))
        self.policies[policy.key] = policy
        self._index(policy)
        if self._fleet is not None:
            self._fleet.apply(policy)
        self._open([*before, *self._touched_by(policy)], Why(_trigger(policy), cause))

    def _index(self, policy: Policy) -> None:
        name, namespace = policy.name, policy.namespace
        if policy.selection is not None:
            self.placements.setdefault(namespace, {})[name_of(policy)] = policy
            self.removed.pop(name_of(policy), None)
        elif policy.cluster_set is not None:
            self.sets[name] = membership(policy.cluster_set, name)
        elif policy.set_binding is not None:
            self.bound.setdefault(name, {})[namespace] = None

    def _remove(self, policy: Policy, cause: UUID) -> None:
        before = self._touched_by(policy)
        del self.policies[policy.key]
        name, namespace = policy.name, policy.namespace
        if self._fleet is not None:
            self._fleet.remove(policy.kind, namespace, name)
        if policy.selection is not None:
            self._remove_placement(name_of(policy), namespace, cause)
            return
        if policy.cluster_set is not None:
            del self.sets[name]
        elif policy.set_binding is not None:
            _drop(self.bound, name, namespace)
        self._open(before, Why(_trigger(policy), cause))

    def _remove_placement(self, key: str, namespace: str, cause: UUID) -> None:
        _drop(self.placements, namespace, key)
        self.open.pop(key, None)
        self.dues.discard((key,))
        if key in self.active:
            self.removed[key] = cause

    def _touched_by(self, policy: Policy | None) -> list[str]:
        """Return the keys of the OCM placements that a policy affects. If `policy` is None, the
        result is empty. A policy is one of these:
        - a placement: affects itself;
        - scores of one cluster (AddOnPlacementScore): the placements that read these scores and may
          select the cluster;
        - a set binding (ManagedClusterSetBinding): all placements of its namespace;
        - a cluster set: the placements of all namespaces that are bound to the set."""
        if policy is None:
            return []
        if policy.selection is not None:
            return [name_of(policy)]
        if policy.scores is not None:
            sets = self._sets_of(self.clusters.get(policy.namespace))
            near = self._near(sets, policy.namespace)
            return [
                key
                for key in near
                if (p := self.policy(key)) is not None and _asks_for(p, policy.name)
            ]
        if policy.set_binding is not None:
            return list(self.placements.get(policy.namespace, ()))
        return self._near((policy.name,))

    def _near(self, sets: Iterable[str], cluster: str = "") -> list[str]:
        """Return the keys of the placements in namespaces that are bound to one of `sets`, followed
        by the placements that select `cluster`. A placement can occur twice."""
        if not self.placements:
            return []
        namespaces = {namespace: None for name in sets for namespace in self.bound.get(name, ())}
        near = [key for namespace in namespaces for key in self.placements.get(namespace, ())]
        return [*near, *self.holders.get(cluster, ())]

    def _sets_of(self, cluster: Cluster | None) -> list[str]:
        """Return the names of the cluster sets that may contain the cluster, by its labels. A set
        with an invalid selector may contain any cluster. Empty for a cluster that OCM does not
        manage, and where there are no placements."""
        if cluster is None or cluster.managed is None or not self.placements:
            return []
        return [
            name for name, may_hold in (_BUILT_IN | self.sets).items() if may_hold(cluster.labels)
        ]

    def _open(self, keys: Iterable[str], why: Why, told: bool = False) -> None:
        """Mark the OCM placements `keys` for evaluation, with the trigger and the event that made
        it necessary (`why`). If a placement has several triggers, the first in the order of
        `SelectionTrigger` is kept. Unknown keys are ignored.
        `told`: only the manifest of a cluster changed. Then only placements with CEL expressions
        are marked, because only expressions read manifests."""
        for key in keys:
            policy = self.policy(key)
            if policy is None or (told and not _reads_manifests(policy)):
                continue
            there = self.open.get(key)
            if there is None or _RANK[why.trigger] < _RANK[there.trigger]:
                self.open[key] = why
            self.stale[key] = None

    def policy(self, key: str) -> Policy | None:
        return self.placements.get(key.partition("/")[0], {}).get(key)

    # --- decisions

    def decided(self, data: PlacementDecided, at: Micros) -> None:
        """Record a decision, or one part of it, on an OCM placement. A decision with many clusters
        has several parts. The parts are collected; the new selection replaces the present one when
        the last part (`complete`) arrives. `at`: the time of the round."""
        self.stale[data.placement] = None
        standing = self.active.setdefault(data.placement, SelectionRecord())
        groups = joined((*standing.coming, *data.groups))
        if not data.complete:
            standing.coming = groups
            return
        self._hold(data.placement, standing, False)
        standing.coming, standing.held_until, standing.decided_at = (), 0, at
        standing.generation, standing.groups = data.generation, groups
        standing.unscheduled, standing.conditions = data.unscheduled, data.conditions
        self._hold(data.placement, standing, True)

    def held_until(self, key: str, until: Micros) -> None:
        self.stale[key] = None
        self.active[key].held_until = until

    def released(self, key: str) -> None:
        self.stale[key] = None
        self._hold(key, self.active.pop(key), False)
        self.removed.pop(key, None)
        self.dues.discard((key,))

    def _hold(self, key: str, standing: SelectionRecord, holds: bool) -> None:
        clusters = standing.clusters
        for name in clusters:
            if holds:
                self.holders.setdefault(name, {})[key] = None
            else:
                _drop(self.holders, name, key)
        if self._fleet is not None:
            self._fleet.decided(key, list(clusters) if holds else ())

    # --- time

    def wake(self, at: Micros) -> None:
        for (key,) in self.dues.pop(at):
            self._open((key,), Why("TimePassed"))

    def end_round(self, clock: Micros) -> None:
        """End a round at the time `clock`, whether this process decided the round or only folded
        it. All placements that were marked for evaluation count as evaluated.
        For each placement that changed in the round, compute again when it must be evaluated next
        because of time alone, such as the end of a toleration. If there is no such time, the old
        one is dropped."""
        self.clock = clock
        self.open.clear()
        # who only folds has not been woken
        self.stale.update((key, None) for (key,) in self.dues.pop(clock))
        for key in sorted(self.stale):
            due = self._due(key)
            if due is None:
                self.dues.discard((key,))
            else:
                self.dues.set((key,), due)
        self.stale.clear()

    def _due(self, key: str) -> Micros | None:
        """Return the next time, in microseconds, at which the selection of the placement may change
        although no input changes. This is the earliest of: the end of its stabilisation window (it
        keeps its clusters until then), the end of a toleration with a time limit, and the end of
        the validity of a score. None: there is no such time, nothing was decided about the
        placement yet, or it is disabled or being deleted."""
        policy, standing = self.policy(key), self.active.get(key)
        if policy is None or policy.selection is None or standing is None or asleep(policy):
            return None
        selection = policy.selection
        dues = [standing.held_until] if standing.held_until else []
        if any(t.seconds is not None for t in selection.tolerations) or any(
            p.addon for p in selection.priorities
        ):
            requeue = choose(self.fleet, policy, self.clock).requeue_at
            dues += [] if requeue is None else [requeue]
        return min((due for due in dues if due > self.clock), default=None)

    # --- copies

    def fork(self) -> Selections:
        """Return an independent copy of the placements, cluster sets, scores and last decisions,
        for a simulation. The prepared form of clusters and placements that the engine selects from
        (`fleet`) is not copied; the copy builds it on first use."""
        return Selections(
            self.policies.copy(),
            {key: msgspec.structs.replace(s) for key, s in self.active.items()},
            self.clock,
            self.clusters.copy(),
            _copied(self.placements),
            self.sets.copy(),
            _copied(self.bound),
            _copied(self.holders),
            self.open.copy(),
            self.removed.copy(),
            self.stale.copy(),
            self.dues.copy(),
        )

    def derive(self, clusters: Iterable[Cluster]) -> None:
        """Build every index from the saved fields and `clusters`. Call this between two rounds, on
        a state without indexes."""
        self.clusters = {cluster.name: cluster for cluster in clusters}
        for policy in self.policies.values():
            self._index(policy)
        for key, standing in self.active.items():
            self._hold(key, standing, True)
            self.stale[key] = None
        self.end_round(self.clock)


FOLDS = DecisionFolds[Selections]()
"""The folds of decisions about placements."""


@FOLDS.of(PlacementDecided)
def _decided(state: Selections, data: PlacementDecided, decision: Decision, at: Micros) -> None:
    state.decided(data, at)


@FOLDS.of(PlacementHeld)
def _held(state: Selections, data: PlacementHeld, decision: Decision, at: Micros) -> None:
    state.held_until(data.placement, data.until_us)


@FOLDS.of(PlacementReleased)
def _released(state: Selections, data: PlacementReleased, decision: Decision, at: Micros) -> None:
    state.released(data.placement)


class SavedStanding(Value, frozen=True):
    placement: str
    generation: int
    groups: tuple[DecidedGroup, ...]
    unscheduled: int = 0
    conditions: tuple[SelectionCondition, ...] = ()
    held_until: Micros = 0
    decided_at: Micros = 0


class SavedSelections(Value, frozen=True):
    policies: tuple[Policy, ...]
    standing: tuple[SavedStanding, ...]
    clock: Micros


def saved(selections: Selections) -> SavedSelections | None:
    """Return what a snapshot stores of the placements: the policies and the last decision on each
    placement, each in order of key, and the time of the last round. All other parts are derived
    again when the snapshot is loaded. None: there are no policies and no decisions."""
    if not selections.policies and not selections.active:
        return None
    standing = [
        SavedStanding(
            key, s.generation, s.groups, s.unscheduled, s.conditions, s.held_until, s.decided_at
        )
        for key, s in sorted(selections.active.items())
    ]
    policies = tuple([selections.policies[key] for key in sorted(selections.policies)])
    return SavedSelections(policies, tuple(standing), selections.clock)


def loaded(saved: SavedSelections) -> Selections:
    """Load saved selections, without the parts that are derived from the clusters
    (`Selections.derive`)."""
    standing = {
        s.placement: SelectionRecord(
            s.generation, s.groups, s.unscheduled, s.conditions, s.held_until, s.decided_at
        )
        for s in saved.standing
    }
    return Selections({policy.key: policy for policy in saved.policies}, standing, saved.clock)


def name_of(policy: Policy) -> str:
    return f"{policy.namespace}/{policy.name}"


def subject_of(key: str) -> str:
    """Return the subject of decisions about a placement."""
    return f"placement/{key}"


_SUBJECT = re.compile("placement/([^/]+/[^/]+)")


def is_selection(subject: str) -> bool:
    """Return whether a decision with this subject is about a placement. The name of a binding has
    one part less."""
    return _SUBJECT.fullmatch(subject) is not None


def key_of(subject: str) -> str:
    """Return the key of the placement that a decision with this subject is about."""
    return subject.removeprefix("placement/")


def _key(removed: PolicyRemoved) -> str:
    return f"{removed.kind}/{removed.namespace}/{removed.name}"


def _concerns(policy: Policy) -> bool:
    return not (
        policy.selection is None
        and policy.cluster_set is None
        and policy.set_binding is None
        and policy.scores is None
    )


def _trigger(policy: Policy) -> SelectionTrigger:
    if policy.selection is not None:
        return "PlacementChanged"
    return "ScoresChanged" if policy.scores is not None else "SetsChanged"


def _asks_for(placement: Policy, resource: str) -> bool:
    """Return whether scores of that name can matter to the placement: a prioritizer names them, or
    an expression may read them."""
    assert placement.selection is not None
    named = any(
        p.addon is not None and p.addon.resource == resource for p in placement.selection.priorities
    )
    return named or _reads_manifests(placement)


def _reads_manifests(placement: Policy) -> bool:
    return placement.selection is not None and any(
        p.expressions for p in placement.selection.predicates
    )


def _alike(old: Cluster, new: Cluster) -> bool:
    """Return whether the facts are equal in everything that placements read, except what only
    expressions read."""
    return _gone_by(old) == _gone_by(new)


def _gone_by(cluster: Cluster) -> tuple[object, ...]:
    managed = cluster.managed
    return (
        cluster.labels,
        cluster.deleting,
        None if managed is None else msgspec.structs.replace(managed, manifest=""),
    )


def asleep(policy: Policy) -> bool:
    """Return whether the placement must not be decided: it is being deleted, or its scheduling is
    disabled."""
    return policy.selection is None or policy.selection.disabled or policy.selection.deleting


def membership(cluster_set: ClusterSet, name: str) -> Membership:
    """Return a predicate for one OCM cluster set: labels of a cluster -> whether a cluster with
    these labels may be a member. `name`: the name of the set.
    - Set with a label selector: true where the selector matches; without a selector it is never
      true.
    - Exclusive set (also the default): true where the cluster's cluster set label is `name`.
    - Invalid selector or unknown type of set: always true. A change of any cluster then causes an
      evaluation of the placements that use the set."""
    if cluster_set.kind == BY_LABELS:
        if cluster_set.selector is None:
            return lambda labels: False
        try:
            return compiled(cluster_set.selector) or (lambda labels: True)
        except SelectorError:
            return lambda labels: True
    if cluster_set.kind in (EXCLUSIVE, ""):
        return lambda labels: labels.get(SET_LABEL) == name
    return lambda labels: True


_BUILT_IN = {name: membership(cluster_set, name) for name, cluster_set in BUILT_IN_SETS.items()}


V = TypeVar("V")


def _drop(index: dict[str, dict[str, V]], key: str, inner: str) -> None:
    """Remove the entry `inner` from the inner index under `key`. If the inner index is then empty,
    remove it too."""
    entries = index.get(key)
    if entries is not None and entries.pop(inner, _MISSING) is not _MISSING and not entries:
        del index[key]


def _copied(index: Mapping[str, dict[str, V]]) -> dict[str, dict[str, V]]:
    return {key: entries.copy() for key, entries in index.items()}


_MISSING: Any = object()
