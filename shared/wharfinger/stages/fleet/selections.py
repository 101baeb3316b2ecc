"""The part of the fleet stage that decides placements: which clusters each selects, remembered, watched and decided anew.

Only the stream `fleet/0` has it: balance between placements needs one who sees all of them. What is to be done can be read off
what was folded. `open` has the placements of which an input changed, in this round: a placement of its own, the clusters of its
sets, its sets, its scores; it is empty when a round has come to rest. Time alone opens a placement when a toleration, a score or
a window ends. The decisions of other placements do not: each would move the next, without end.

A decision is written only where the set, its groups or its conditions change. A set that is asked for is decided at once; where
others have merely come to rank higher, the placement's stabilisation window must pass with that being so all the time. What must
change meanwhile, since a cluster is gone or is not admitted any more, changes with as little else as can be.

A placement that is wrong, or that cannot be decided, tells so in its conditions and keeps what it has, unless it is to do as Open
Cluster Management does. Who is asked is `engine.placement`; nothing here compares clusters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, TypeVar, get_args
from uuid import UUID

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import ClusterSet
from wharfinger.domain.value import Value
from wharfinger.engine.placement.fleet import BUILT_IN_SETS, BY_LABELS, EXCLUSIVE, SET_LABEL, PlacementFleet
from wharfinger.engine.placement.select import Choice, choose
from wharfinger.engine.placement.selectors import SelectorError, compiled
from wharfinger.events.decisions import Explanation, Scored
from wharfinger.events.placements import (
    MISCONFIGURED,
    PART_SIZE,
    SATISFIED,
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
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.agenda import Agenda
from wharfinger.stages.fleet.explain import SHOWN, bounded

if TYPE_CHECKING:
    from wharfinger.stages.fleet.state import FleetState

SECOND = 1_000_000

STREAM = fleet_stream(0)
"""The one that decides placements."""

STAYING = 2**40
"""Points by which a newcomer would have to be better where nothing is to move that need not."""

Membership = Callable[[Mapping[str, str]], bool]

_RANK: dict[SelectionTrigger, int] = {trigger: rank for rank, trigger in enumerate(get_args(SelectionTrigger))}


class Standing(msgspec.Struct):
    """What was decided last about a placement. `held_until`: a better set waits until then; 0: none does. `coming`: the parts of a
    set whose last is still to be folded, which is never so between two rounds."""

    generation: int = 0
    groups: tuple[DecidedGroup, ...] = ()
    unscheduled: int = 0
    conditions: tuple[SelectionCondition, ...] = ()
    held_until: Micros = 0
    decided_at: Micros = 0
    coming: tuple[DecidedGroup, ...] = ()

    @property
    def clusters(self) -> dict[str, None]:
        """In the order of the groups."""
        return {name: None for group in self.groups for name in group.scores}


@dataclass(frozen=True, slots=True)
class Why:
    """What opened a placement."""

    trigger: SelectionTrigger
    cause: UUID | None = None


@dataclass(slots=True)
class Selections:
    """Keys of placements are `<namespace>/<name>`, those of policies as in `domain.policy`."""

    policies: dict[str, Policy] = field(default_factory=dict)
    standing: dict[str, Standing] = field(default_factory=dict)
    clock: Micros = 0
    # derived
    clusters: dict[str, Cluster] = field(default_factory=dict)
    placements: dict[str, dict[str, Policy]] = field(default_factory=dict)
    """Namespace -> key -> the placement."""
    sets: dict[str, Membership] = field(default_factory=dict)
    """Cluster set -> whether a cluster with these labels may be in it."""
    bound: dict[str, dict[str, None]] = field(default_factory=dict)
    """Cluster set -> the namespaces that may use it."""
    holders: dict[str, dict[str, None]] = field(default_factory=dict)
    """Cluster -> the placements that hold it."""
    open: dict[str, Why] = field(default_factory=dict)
    removed: dict[str, UUID] = field(default_factory=dict)
    """Placements that are gone and still have a set -> what removed them."""
    stale: dict[str, None] = field(default_factory=dict)
    """Placements that may be due at another time than `dues` says."""
    dues: Agenda[tuple[str]] = field(default_factory=Agenda)
    _fleet: PlacementFleet | None = None

    @property
    def fleet(self) -> PlacementFleet:
        """Made when a placement first needs it: most fleets have none, and then it would cost for nothing."""
        if self._fleet is None:
            self._fleet = PlacementFleet()
            for name in sorted(self.clusters):
                self._fleet.observe(self.clusters[name])
            for key in sorted(self.policies):
                self._fleet.apply(self.policies[key])
            for key in sorted(self.standing):
                self._fleet.decided(key, list(self.standing[key].clusters))
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
        """A cluster as it is from now on."""
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
        if key in self.standing:
            self.removed[key] = cause

    def _touched_by(self, policy: Policy | None) -> list[str]:
        """The placements that a policy, as it is, has a say in."""
        if policy is None:
            return []
        if policy.selection is not None:
            return [name_of(policy)]
        if policy.scores is not None:
            sets = self._sets_of(self.clusters.get(policy.namespace))
            near = self._near(sets, policy.namespace)
            return [key for key in near if (p := self.policy(key)) is not None and _asks_for(p, policy.name)]
        if policy.set_binding is not None:
            return list(self.placements.get(policy.namespace, ()))
        return self._near((policy.name,))

    def _near(self, sets: Iterable[str], cluster: str = "") -> list[str]:
        """The placements of the namespaces that are bound to one of `sets`, and those that hold `cluster`."""
        if not self.placements:
            return []
        namespaces = {namespace: None for name in sets for namespace in self.bound.get(name, ())}
        near = [key for namespace in namespaces for key in self.placements.get(namespace, ())]
        return [*near, *self.holders.get(cluster, ())]

    def _sets_of(self, cluster: Cluster | None) -> list[str]:
        """The sets that a cluster is in, and those of which nobody can tell."""
        if cluster is None or cluster.managed is None or not self.placements:
            return []
        return [name for name, may_hold in (_BUILT_IN | self.sets).items() if may_hold(cluster.labels)]

    def _open(self, keys: Iterable[str], why: Why, told: bool = False) -> None:
        """`told`: only what is in a cluster's manifest and nowhere else has changed, which expressions alone are asked about."""
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

    def fold_decision(self, data: PlacementDecided | PlacementHeld | PlacementReleased, at: Micros) -> None:
        key = data.placement
        self.stale[key] = None
        match data:
            case PlacementDecided():
                self._decided(self.standing.setdefault(key, Standing()), data, at)
            case PlacementHeld():
                self.standing[key].held_until = data.until_us
            case PlacementReleased():
                self._hold(key, self.standing.pop(key), False)
                self.removed.pop(key, None)
                self.dues.discard((key,))

    def _decided(self, standing: Standing, data: PlacementDecided, at: Micros) -> None:
        """A set counts when its last part has come."""
        groups = joined((*standing.coming, *data.groups))
        if not data.complete:
            standing.coming = groups
            return
        self._hold(data.placement, standing, False)
        standing.coming, standing.held_until, standing.decided_at = (), 0, at
        standing.generation, standing.groups = data.generation, groups
        standing.unscheduled, standing.conditions = data.unscheduled, data.conditions
        self._hold(data.placement, standing, True)

    def _hold(self, key: str, standing: Standing, holds: bool) -> None:
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

    def come_to_rest(self, clock: Micros) -> None:
        """At the end of every round, of one that was decided and of one that was folded: all that was open has been looked at, and
        when to look again follows from what holds now."""
        self.clock = clock
        self.open.clear()
        self.stale.update((key, None) for (key,) in self.dues.pop(clock))  # who only folds has not been woken
        for key in sorted(self.stale):
            due = self._due(key)
            if due is None:
                self.dues.discard((key,))
            else:
                self.dues.set((key,), due)
        self.stale.clear()

    def _due(self, key: str) -> Micros | None:
        """The next moment at which time alone may change the placement's answer."""
        policy, standing = self.policy(key), self.standing.get(key)
        if policy is None or policy.selection is None or standing is None or _asleep(policy):
            return None
        selection = policy.selection
        dues = [standing.held_until] if standing.held_until else []
        if any(t.seconds is not None for t in selection.tolerations) or any(p.addon for p in selection.priorities):
            requeue = choose(self.fleet, policy, self.clock).requeue_at
            dues += [] if requeue is None else [requeue]
        return min((due for due in dues if due > self.clock), default=None)

    # --- copies

    def fork(self) -> Selections:
        """Its columns are left behind: a copy that is asked about placements makes its own."""
        return Selections(
            self.policies.copy(), {key: msgspec.structs.replace(s) for key, s in self.standing.items()}, self.clock,
            self.clusters.copy(), _copied(self.placements), self.sets.copy(), _copied(self.bound),
            _copied(self.holders), self.open.copy(), self.removed.copy(), self.stale.copy(), self.dues.copy(),
        )  # fmt: skip

    def derive(self, clusters: Iterable[Cluster]) -> None:
        """Make every index anew from what was saved, at the end of a round."""
        self.clusters = {cluster.name: cluster for cluster in clusters}
        for policy in self.policies.values():
            self._index(policy)
        for key, standing in self.standing.items():
            self._hold(key, standing, True)
            self.stale[key] = None
        self.come_to_rest(self.clock)


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
    """As it is between two rounds; None: there is nothing to save."""
    if not selections.policies and not selections.standing:
        return None
    standing = [
        SavedStanding(key, s.generation, s.groups, s.unscheduled, s.conditions, s.held_until, s.decided_at)
        for key, s in sorted(selections.standing.items())
    ]
    policies = tuple([selections.policies[key] for key in sorted(selections.policies)])
    return SavedSelections(policies, tuple(standing), selections.clock)


def loaded(saved: SavedSelections) -> Selections:
    """Without what follows from the clusters: see `Selections.derive`."""
    standing = {
        s.placement: Standing(s.generation, s.groups, s.unscheduled, s.conditions, s.held_until, s.decided_at)
        for s in saved.standing
    }
    return Selections({policy.key: policy for policy in saved.policies}, standing, saved.clock)


def name_of(policy: Policy) -> str:
    return f"{policy.namespace}/{policy.name}"


def subject_of(key: str) -> str:
    """What decisions about a placement have as their subject."""
    return f"placement/{key}"


_SUBJECT = re.compile("placement/([^/]+/[^/]+)")


def is_selection(subject: str) -> bool:
    """Whether a decision with this subject is about a placement; bindings have one part less."""
    return _SUBJECT.fullmatch(subject) is not None


def key_of(subject: str) -> str:
    """The placement that a decision is about."""
    return subject.removeprefix("placement/")


def _key(removed: PolicyRemoved) -> str:
    return f"{removed.kind}/{removed.namespace}/{removed.name}"


def _concerns(policy: Policy) -> bool:
    return not (
        policy.selection is None and policy.cluster_set is None and policy.set_binding is None and policy.scores is None
    )


def _trigger(policy: Policy) -> SelectionTrigger:
    if policy.selection is not None:
        return "PlacementChanged"
    return "ScoresChanged" if policy.scores is not None else "SetsChanged"


def _asks_for(placement: Policy, resource: str) -> bool:
    """Whether scores of that name can matter to it: by a prioritizer, or to an expression."""
    assert placement.selection is not None
    named = any(p.addon is not None and p.addon.resource == resource for p in placement.selection.priorities)
    return named or _reads_manifests(placement)


def _reads_manifests(placement: Policy) -> bool:
    return placement.selection is not None and any(p.expressions for p in placement.selection.predicates)


def _alike(old: Cluster, new: Cluster) -> bool:
    """Equal in all that placements go by, but for what only expressions read."""
    return _gone_by(old) == _gone_by(new)


def _gone_by(cluster: Cluster) -> tuple[object, ...]:
    managed = cluster.managed
    return (
        cluster.labels, cluster.deleting, None if managed is None else msgspec.structs.replace(managed, manifest="")
    )  # fmt: skip


def _asleep(policy: Policy) -> bool:
    """Nothing is decided about a placement that is being deleted or says so itself."""
    return policy.selection is None or policy.selection.disabled or policy.selection.deleting


def membership(cluster_set: ClusterSet, name: str) -> Membership:
    """Whether a cluster is in the set, by its labels. Always true where its selector is wrong: somebody must look at it."""
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
    """Take an entry out of an index of indexes, and with the last of them their index."""
    entries = index.get(key)
    if entries is not None and entries.pop(inner, _MISSING) is not _MISSING and not entries:
        del index[key]


def _copied(index: Mapping[str, dict[str, V]]) -> dict[str, dict[str, V]]:
    return {key: entries.copy() for key, entries in index.items()}


_MISSING: Any = object()


# --- deciding


def decide_placements(state: FleetState, at: Micros) -> Iterator[Draft]:
    """What was removed is let go, then every placement that is open, in order of name: balance sees those before it."""
    selections = state.selections
    if selections is None:
        return
    for key in sorted(selections.removed):
        standing = selections.standing[key]
        released = PlacementReleased(key, standing.generation, len(standing.clusters))
        yield Draft(released, subject_of(key), "released", selections.removed[key])
    selections.wake(at)
    for key in sorted(selections.open):
        why, policy = selections.open.pop(key), selections.policy(key)
        if policy is not None and not _asleep(policy):
            yield from _decided(selections, policy, why, at)


def next_selection(state: FleetState) -> Micros | None:
    """When time alone may change what a placement selects."""
    return None if state.selections is None else state.selections.dues.next()


def _decided(selections: Selections, policy: Policy, why: Why, at: Micros) -> Iterator[Draft]:
    key, fleet = name_of(policy), selections.fleet
    before = selections.standing.get(key)
    if before is None:
        before, why = Standing(), Why("FirstSelection", why.cause)
    wish = now = _looked(fleet, policy, before, at)
    until = before.held_until
    held = PlacementHeld(key)
    if _may_be_held(policy, why) and not wish.kept:
        calm = _looked(fleet, _staying(policy), before, at)
        until = until or at + _window(policy)
        if calm.clusters.keys() != wish.clusters.keys() and at < until:
            now, held = calm, _held(key, until, calm, wish)
    yield from _written(key, now, before, why)
    standing = selections.standing.get(key)  # one that was written anew is not held
    if standing is not None and held.until_us != standing.held_until:
        yield Draft(held, subject_of(key), "held" if held.until_us else "settled", why.cause)


def _may_be_held(policy: Policy, why: Why) -> bool:
    """What was asked for is done at once."""
    return _window(policy) > 0 and why.trigger not in ("FirstSelection", "PlacementChanged")


def _window(policy: Policy) -> Micros:
    return 0 if policy.selection is None else policy.selection.window_s * SECOND


def _staying(policy: Policy) -> Policy:
    """The placement as if whatever it holds were to stay while it may."""
    assert policy.selection is not None
    return msgspec.structs.replace(policy, selection=msgspec.structs.replace(policy.selection, hysteresis=STAYING))


def _held(key: str, until: Micros, calm: Looked, wish: Looked) -> PlacementHeld:
    better = [name for name in wish.clusters if name not in calm.clusters]
    worse = [name for name in calm.clusters if name not in wish.clusters]
    return PlacementHeld(key, until, tuple(better[:SHOWN]), tuple(worse[:SHOWN]))


@dataclass(frozen=True, slots=True)
class Looked:
    """What a placement selects now. `kept`: that could not be found out, and what stands stays."""

    layout: tuple[_Group, ...]
    unscheduled: int
    conditions: tuple[SelectionCondition, ...]
    choice: Choice
    kept: bool = False

    @property
    def clusters(self) -> dict[str, None]:
        return {name: None for _, _, clusters in self.layout for name in clusters}

    def groups(self, before: Standing) -> tuple[DecidedGroup, ...]:
        """With the totals by which they were chosen; those that are kept with the ones from then."""
        if self.kept:
            return before.groups
        totals = self.choice.total_of
        return tuple([DecidedGroup(i, name, {c: totals[c] for c in clusters}) for i, name, clusters in self.layout])


_Group = tuple[int, str, tuple[str, ...]]
"""Index, name and clusters, without the scores: they alone are no news."""


def _layout(standing: Standing) -> tuple[_Group, ...]:
    return tuple([(group.index, group.name, tuple(group.scores)) for group in standing.groups])


def _looked(fleet: PlacementFleet, policy: Policy, before: Standing, at: Micros) -> Looked:
    choice = choose(fleet, policy, at)
    told = tuple([SelectionCondition(c.type, c.status, c.reason, c.message) for c in choice.conditions])
    if choice.keeps:
        return Looked(_layout(before), before.unscheduled, told or before.conditions, choice, kept=True)
    layout = tuple([(group.index, group.name, group.clusters) for group in choice.groups])
    return Looked(layout, choice.unscheduled, told, choice)


def _written(key: str, now: Looked, before: Standing, why: Why) -> Iterator[Draft]:
    """Nothing where all is as it was."""
    same = now.kept or (before.generation > 0 and now.layout == _layout(before))
    if same and now.conditions == before.conditions and now.unscheduled == before.unscheduled:
        return
    generation = before.generation if same else before.generation + 1
    for part in _parts(key, now, before, why.trigger, generation):
        yield Draft(part, subject_of(key), _outcome(now), why.cause)


def _outcome(now: Looked) -> str:
    told = {condition.type: condition.status for condition in now.conditions}
    if told.get(MISCONFIGURED) == "True":
        return "misconfigured"
    return "selected" if told.get(SATISFIED) == "True" else "unsatisfied"


def _parts(
    key: str, now: Looked, before: Standing, trigger: SelectionTrigger, generation: int
) -> Iterator[PlacementDecided]:
    old, new = before.clusters, now.clusters
    pieces = list(_pieces(now.groups(before)))
    added = [name for name in new if name not in old]
    removed = [name for name in old if name not in new]
    parts = max(len(pieces), _shares(added), _shares(removed))
    for part in range(parts):
        here = pieces[part] if part < len(pieces) else ()
        decided = PlacementDecided(
            key,
            trigger,
            generation,
            here,
            part + 1,
            parts,
            False,
            added=_share(added, part),
            removed=_share(removed, part),
        )
        if part == parts - 1:
            decided = msgspec.structs.replace(
                decided, complete=True, unscheduled=now.unscheduled, conditions=now.conditions,
                explanation=_explained(now.choice),
            )  # fmt: skip
        yield decided


def _explained(choice: Choice) -> Explanation:
    """Who was asked, who fell where, and the best of those that were and were not taken."""
    available, matched, passed = (
        None if c is None else len(c) for c in (choice.available, choice.matched, choice.passed)
    )
    fell = {
        "Predicate": 0 if available is None or matched is None else available - matched,
        "TaintToleration": 0 if matched is None or passed is None else matched - passed,
    }
    totals, taken = choice.total_of, set(choice.selected)
    others = nsmallest(SHOWN, [name for name in totals if name not in taken], key=lambda name: (-totals[name], name))
    return bounded(
        Explanation(
            candidates=available or 0,
            feasible=passed or 0,
            refused={reason: n for reason, n in fell.items() if n},
            chosen=tuple([Scored(name, totals[name]) for name in choice.selected[:SHOWN]]),
            runners_up=tuple([Scored(name, totals[name]) for name in others]),
            note=choice.status_trouble.message,
        )
    )


def _pieces(groups: Iterable[DecidedGroup]) -> Iterator[tuple[DecidedGroup, ...]]:
    """The groups, cut where a part has as many clusters as it may."""
    piece: list[DecidedGroup] = []
    room = PART_SIZE
    for group in groups:
        names = list(group.scores)
        while True:
            if not room:
                yield tuple(piece)
                piece, room = [], PART_SIZE
            taken, names = names[:room], names[room:]
            piece.append(DecidedGroup(group.index, group.name, {name: group.scores[name] for name in taken}))
            room -= len(taken)
            if not names:
                break
    yield tuple(piece)


def _shares(names: Sequence[str]) -> int:
    return -(-len(names) // PART_SIZE)


def _share(names: Sequence[str], part: int) -> tuple[str, ...]:
    return tuple(names[part * PART_SIZE : (part + 1) * PART_SIZE])
