"""Folds what is observed of the objects of a hub, and emits the facts that changed.

As with a member cluster (`state`), a change marks facts that are due after a short wait, a fact is
sent only if its canonical bytes differ from those sent last, and only a complete list or a watched
deletion takes an object away. A cluster that is joined itself is left to the collector of that
cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from wharfinger.domain.time import SECOND, Micros
from wharfinger.domain.value import canonical
from wharfinger.events.accepted import Accepted, Fact, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import WorkloadObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.hub_facts import HubObject, withdrawn
from wharfinger.events.policies import PolicyApplied
from wharfinger.stages.collector.state import Sighted

_RANK = {
    kind: rank
    for rank, kind in enumerate(
        (ClusterObserved, PolicyApplied, BindingRequested, WorkloadObserved)
    )
}

WAIT_US = SECOND // 4
"""How long a changed object waits for more changes of it."""

ObjectKey = tuple[str, str]
"""Kind, and namespace and name."""


class ObservedHub:
    """`known`: the facts that earlier collectors sent of this hub and that hold in the ledger. What
    they state is taken back once the kind was listed and its object is gone. `joined`: clusters
    that are joined themselves."""

    def __init__(self, known: Iterable[Fact] = (), joined: Collection[str] = ()) -> None:
        self._joined = frozenset(joined)
        self._objects: dict[ObjectKey, HubObject] = {}
        self._stated: dict[str, tuple[str, Accepted]] = {}
        """Key of a fact that holds -> its object ("": not seen yet), and the fact."""
        self._sent: dict[str, bytes] = {}
        self._due: dict[ObjectKey, Micros] = {}
        self._stale: dict[str, Micros] = {}
        """Keys of facts that hold and whose objects are gone -> when that is sent."""
        self._again: dict[str, tuple[Micros, Accepted]] = {}
        """Facts that were not accepted."""
        self._listed: set[str] = set()
        self._unreadable: dict[ObjectKey, str] = {}
        self._version = 0
        for fact in known:
            if isinstance(fact, ClusterObserved | BindingRequested | PolicyApplied):
                self._stated[accepted(fact).key] = "", accepted(fact)

    # --- what is observed

    @property
    def unreadable(self) -> Mapping[ObjectKey, str]:
        """Objects that cannot be turned into facts -> why. What was known of them stays."""
        return self._unreadable

    def list_objects(
        self, kind: str, objects: Mapping[str, HubObject], unread: Mapping[str, str], at: Micros
    ) -> None:
        """Replaces all objects of a kind by a complete list: by namespace and name. `unread`: those
        that cannot be read -> why."""
        self._listed.add(kind)
        for name, why in unread.items():
            self.see_unreadable(kind, name, why)
        for name in [n for k, n in self._objects if k == kind and n not in objects]:
            if name not in unread:
                self.lose(kind, name, at)
        for key in [k for k in self._unreadable if k[0] == kind and k[1] not in unread]:
            del self._unreadable[key]
        for name, found in objects.items():
            self.see(kind, name, found, at)

    def see(self, kind: str, name: str, found: HubObject, at: Micros) -> None:
        self._unreadable.pop((kind, name), None)
        if self._objects.get((kind, name)) != found:
            self._objects[kind, name] = found
            for key in [accepted(fact).key for fact in found.facts]:
                if key in self._stated and not self._stated[key][0]:
                    self._stated[key] = _owner(kind, name), self._stated[key][1]
            self._due.setdefault((kind, name), at + WAIT_US)

    def see_unreadable(self, kind: str, name: str, why: str) -> None:
        self._unreadable[kind, name] = why

    def lose(self, kind: str, name: str, at: Micros) -> None:
        """Removes an object that was deleted."""
        self._unreadable.pop((kind, name), None)
        if self._objects.pop((kind, name), None) is not None:
            self._due.setdefault((kind, name), at + WAIT_US)

    def listed(self, kinds: Collection[str], at: Micros) -> None:
        """All of these kinds, and so all that the hub has, were listed: what is known from earlier
        and stated by no object any more is taken back. Nothing happens before."""
        if self._listed >= set(kinds):
            present = {
                accepted(fact).key for found in self._objects.values() for fact in found.facts
            }
            held = {key for key, (owner, _) in self._stated.items() if not owner}
            for key in sorted(held - present):
                if not self._unreadable:  # it may be the object that cannot be read
                    self._stale.setdefault(key, at)

    # --- what is to be sent

    def next_at(self) -> Micros | None:
        """Returns when the next fact is due."""
        again = [at for at, _ in self._again.values()]
        return min((*self._due.values(), *self._stale.values(), *again), default=None)

    def due(self, at: Micros) -> list[Sighted]:
        """Returns the facts that are to be sent now: clusters, policies, bindings, how they fare,
        and what is gone last. Each is recorded as sent; one that was not accepted is passed to
        `unsent`."""
        facts: list[Accepted] = []
        gone: list[Accepted] = []
        for key in sorted(k for k, due_at in self._due.items() if due_at <= at):
            del self._due[key]
            found = self._objects.get(key)
            now = {} if found is None else {(a := accepted(f)).key: a for f in self._own(found)}
            for fact_key, fact in now.items():
                self._stated[fact_key] = _owner(*key), fact
                self._stale.pop(fact_key, None)
                facts.append(fact)
            owner = _owner(*key)
            for fact_key in [k for k, (of, _) in self._stated.items() if of == owner]:
                if fact_key not in now:
                    gone += self._take_back(fact_key)
        for fact_key in sorted(k for k, due_at in self._stale.items() if due_at <= at):
            del self._stale[fact_key]
            gone += self._take_back(fact_key)
        newer = {fact.key for fact in (*facts, *gone)}
        for fact_key, (due_at, fact) in list(self._again.items()):
            if due_at <= at or fact_key in newer or fact_key in self._sent:
                del self._again[fact_key]
                if fact_key not in newer and fact_key not in self._sent:
                    facts.append(fact)
        facts.sort(key=lambda fact: (_RANK.get(type(fact.data), len(_RANK)), fact.key))
        return [self._sighted(fact) for fact in (*facts, *gone) if self._differs(fact)]

    def unsent(self, facts: Iterable[Sighted], at: Micros) -> None:
        """Marks facts that were not accepted as due again."""
        for sighted in facts:
            self._sent.pop(sighted.fact.key, None)
            self._again[sighted.fact.key] = at, sighted.fact

    def _own(self, found: HubObject) -> list[Fact]:
        return [
            fact
            for fact in found.facts
            if not (isinstance(fact, ClusterObserved) and fact.cluster.name in self._joined)
        ]

    def _take_back(self, key: str) -> list[Accepted]:
        _, fact = self._stated.pop(key)
        gone = withdrawn(fact.data)  # type: ignore[arg-type]
        return [] if gone is None else [accepted(gone)]

    def _differs(self, fact: Accepted) -> bool:
        body = type(fact.data).__name__.encode() + canonical(fact.data)
        if self._sent.get(fact.key) == body:
            return False
        self._sent[fact.key] = body
        return True

    def _sighted(self, fact: Accepted) -> Sighted:
        self._version += 1
        return Sighted(fact, self._version)


def _owner(kind: str, name: str) -> str:
    return f"{kind}/{name}"
