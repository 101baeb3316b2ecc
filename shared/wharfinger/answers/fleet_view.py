"""The fleet as it is now: kept in memory, and moved on by the rows of the ledger.

It says the same as `facts.bindings_now`, `clusters_now`, `nodes_now` and `policies_now`, which read
all of it from the database each time. The cost of a row is that of what it changes, and the cost of
an answer is that of what is asked for. A state of it is never changed in place: what was handed out
stays as it was.

A row may be taken in again. Of facts and decisions the later one of a key holds, and where replicas
run is the same after the same rows again. So the view is loaded from tables of the present and then
reads the rows from where the streams stood before that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.answers.facts import (
    DECLINED_TYPES,
    SETTLING_TYPES,
    BindingShown,
    ClusterShown,
    NodeShown,
    binding_shown,
)
from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import KINDS, HeartbeatEnd, effect_of
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.registry import types_of
from wharfinger.events.streams import CLUSTER, FLEET, LEDGER
from wharfinger.runtime.ledger import Fact, IntakeRow, Ledger, LedgerRow, causality
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.placed_replicas import PlacedReplicas

ROWS_MAX = 2000
"""Rows of one query."""

_SHOWN_TYPES = types_of(BindingRequested, ClusterObserved, NodesObserved, PolicyApplied)
_DECISION_TYPES = types_of(*KINDS)


@dataclass(slots=True)
class Changed:
    """Names of what may be shown otherwise than before. Nodes are (cluster, name)."""

    bindings: set[str] = field(default_factory=set)
    clusters: set[str] = field(default_factory=set)
    nodes: set[tuple[str, str]] = field(default_factory=set)
    policies: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.bindings or self.clusters or self.nodes or self.policies)


@dataclass(slots=True)
class _Facts:
    """The latest facts that are shown. `held`: (topic, key) -> seq of its latest fact, and what it
    says."""

    held: dict[tuple[str, str], tuple[int, Value]] = field(default_factory=dict)
    bindings: dict[str, Binding] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    buckets: dict[str, dict[str, tuple[int, NodesObserved]]] = field(default_factory=dict)
    """Cluster -> key -> seq and nodes."""

    def put(self, topic: str, key: str, seq: int, data: Value | None) -> tuple[Value | None, bool]:
        """What was held before under the key, and whether it is replaced: an earlier fact, or the
        same one, changes nothing. `data` None: a fact that is not shown, as one that ends the
        key."""
        known, before = self.held.get((topic, key), (0, None))
        if seq <= known or (data is None and before is None):
            return before, False
        if data is None:
            del self.held[topic, key]
        else:
            self.held[topic, key] = seq, data
        match before:
            case BindingRequested():
                self.bindings.pop(before.binding.name, None)
            case ClusterObserved():
                self.clusters.pop(before.cluster.name, None)
            case PolicyApplied():
                self.policies.pop(before.policy.key, None)
            case NodesObserved():
                self.buckets[before.cluster].pop(key, None)
        match data:
            case BindingRequested():
                self.bindings[data.binding.name] = data.binding
            case ClusterObserved():
                self.clusters[data.cluster.name] = data.cluster
            case PolicyApplied():
                self.policies[data.policy.key] = data.policy
            case NodesObserved():
                self.buckets.setdefault(data.cluster, {})[key] = seq, data
        return before, True


class FleetView:
    """`cursors`: stream -> the last row that was taken in."""

    def __init__(self) -> None:
        self.cursors: dict[str, int] = {}
        self._facts = _Facts()
        self._decided: dict[str, LedgerRow] = {}
        self._settled: dict[str, LedgerRow] = {}
        self._silent: dict[str, set[str]] = {}
        self._returned: set[str] = set()
        self._declined: set[str] = set()
        self._placed = PlacedReplicas()
        self._by_policy: Counter[str] = Counter()
        self._nodes: dict[str, list[NodeShown]] = {}
        self._shown: dict[str, BindingShown] = {}
        self._bindings: list[BindingShown] = []
        self._stale: set[str] = set()
        self._all_nodes: list[NodeShown] | None = None
        self.went_back = False
        """The ledger lost decisions that may have been taken in here: it has to be loaded again."""

    @classmethod
    async def load(cls, ledger: Ledger) -> FleetView:
        """As the ledger is now. The cost grows with what there is, not with the history, but for
        one pass over an index of the decisions."""
        view = cls()
        begins = {head.stream: head.seq for head in await ledger.heads()}
        async for fact in ledger.facts():
            view._take_fact(fact, Changed())
        view._returned.clear()
        shown = [*view._facts.bindings, *view._facts.clusters]
        view._decide(await ledger.current_of(shown, FLEET), Changed())
        await view._look_up(ledger, Changed())
        await view._placed.load(ledger)
        view.cursors = begins
        await view.follow(ledger, Changed())
        return view

    @property
    def decisions(self) -> int:
        """Of all streams together."""
        return sum(self.cursors.values())

    @property
    def complete(self) -> bool:
        """Nothing is still to be looked up for the rows that were taken in: `follow` was not broken
        off."""
        return not self._returned and not self._declined

    async def follow(self, ledger: Ledger, changed: Changed) -> None:
        """Take in what the ledger has beyond the cursors, and add it to `changed`, as far as it
        comes. LedgerError: the rest is still to come."""
        more = True
        while more:
            rows = await ledger.rows_after(self.cursors, ROWS_MAX)
            self._take(rows, changed)
            more = len(rows) == ROWS_MAX
            await self._look_up(ledger, changed)

    def _take(self, rows: Sequence[LedgerRow], changed: Changed) -> None:
        """Rows beyond the cursors, each stream's in order."""
        for row in rows:
            self.cursors[row.stream] = row.seq
            if row.accepted is not None:
                self._take_fact(_fact(row, row.accepted), changed)
            elif row.stream == LEDGER:
                self.went_back = True
            elif row.stream.startswith(FLEET):
                self._decide([row], changed)
            elif row.stream.startswith(CLUSTER):
                for binding, cluster, node in self._placed.take(row):
                    self._forget(binding, changed)
                    self._nodes.pop(cluster, None)
                    self._all_nodes = None
                    changed.nodes.add((cluster, node))

    async def _look_up(self, ledger: Ledger, changed: Changed) -> None:
        """What rows refer to and was not kept: decisions about bindings that were not there and are
        again; and where a binding is whose proposal was refused, which the decision before it
        says."""
        if returned := sorted(self._returned & self._facts.bindings.keys()):
            types = _DECISION_TYPES
            found = await causality.latest_of(ledger.database, returned, types, FLEET)
            self._decide(found.values(), changed)
        self._returned.clear()
        if declined := sorted(
            name for name in self._declined if name in self._decided and name not in self._settled
        ):
            found = await causality.latest_of(ledger.database, declined, SETTLING_TYPES, FLEET)
            for name, row in found.items():
                self._settled[name] = self._decided[name] = row
                self._forget(name, changed)
        self._declined.clear()

    # --- what is shown

    def bindings(self) -> Sequence[BindingShown]:
        """In order of name."""
        if self._stale:
            self._bindings = self._renewed()
            self._stale.clear()
        return self._bindings

    def binding(self, name: str) -> BindingShown | None:
        return self._binding(name) if name in self._facts.bindings else None

    def clusters(self) -> Sequence[ClusterShown]:
        """In order of name."""
        return [self._cluster(name) for name in sorted(self._facts.clusters)]

    def cluster(self, name: str) -> ClusterShown | None:
        return self._cluster(name) if name in self._facts.clusters else None

    def nodes(self) -> Sequence[NodeShown]:
        """In order of cluster and name."""
        if self._all_nodes is None:
            self._all_nodes = [
                node for cluster in sorted(self._facts.buckets) for node in self._of(cluster)
            ]
        return self._all_nodes

    def node(self, cluster: str, name: str) -> NodeShown | None:
        found = self._of(cluster)
        place = bisect_left(found, name, key=lambda shown: shown.node.name)
        return found[place] if place < len(found) and found[place].node.name == name else None

    def policies(self) -> Sequence[Policy]:
        """In order of their keys."""
        return [policy for _, policy in sorted(self._facts.policies.items())]

    @property
    def bound(self) -> Mapping[str, int]:
        """Key of a policy -> how many bindings it places."""
        return self._by_policy

    # --- changes

    def _take_fact(self, fact: Fact, changed: Changed) -> None:
        """One that is not later than what is known of its key changes nothing."""
        data = event_of(fact).data if fact.type in _SHOWN_TYPES else None
        before, replaced = self._facts.put(fact.topic, fact.key, fact.seq, data)
        if not replaced:
            return
        for told in (before, data):
            match told:
                case BindingRequested():
                    self._count(told.binding, 1 if told is data else -1, changed)
                    self._forget(told.binding.name, changed)
                case ClusterObserved():
                    changed.clusters.add(told.cluster.name)
                case PolicyApplied():
                    changed.policies.add(told.policy.key)
                case NodesObserved():
                    self._nodes.pop(told.cluster, None)
                    self._all_nodes = None
                    changed.clusters.add(told.cluster)
                    changed.nodes.update((told.cluster, node.name) for node in told.nodes)
        if isinstance(data, NodesObserved):
            others = self._facts.buckets[data.cluster].values()
            if any(said.buckets != data.buckets for _, said in others):
                # which of them count may have changed
                changed.nodes.update(
                    (data.cluster, node.name) for _, said in others for node in said.nodes
                )
        if isinstance(data, BindingRequested) and not isinstance(before, BindingRequested):
            self._returned.add(data.binding.name)
        elif isinstance(before, BindingRequested) and not isinstance(data, BindingRequested):
            # not shown any more; what was decided about it is read again when it returns
            self._decided.pop(before.binding.name, None)
            self._settled.pop(before.binding.name, None)

    def _count(self, binding: Binding, by: int, changed: Changed) -> None:
        if binding.policy:
            self._by_policy[binding.policy] += by
            changed.policies.add(binding.policy)

    def _forget(self, name: str, changed: Changed) -> None:
        changed.bindings.add(name)
        self._shown.pop(name, None)
        self._stale.add(name)

    def _decide(self, rows: Iterable[LedgerRow], changed: Changed) -> None:
        for row in rows:
            if row.subject in self._facts.bindings:
                self._decide_binding(row, changed)
            elif "/" not in row.subject:
                self._hear(row, changed)

    def _decide_binding(self, row: LedgerRow, changed: Changed) -> None:
        name = row.subject
        if row.type in SETTLING_TYPES:
            self._settled[name] = row
        elif row.type in DECLINED_TYPES:
            self._declined.add(name)
            row = self._settled.get(name, row)
        self._decided[name] = row
        self._forget(name, changed)

    def _hear(self, row: LedgerRow, changed: Changed) -> None:
        """A fleet shard's latest decision about a cluster says whether it is silent there."""
        of = self._silent.setdefault(row.subject, set())
        if isinstance(effect_of(row.data()), HeartbeatEnd) != (row.stream in of):
            of ^= {row.stream}
            changed.clusters.add(row.subject)

    def _renewed(self) -> list[BindingShown]:
        """The list with what has changed since: a copy, because the one before may be in use."""
        there = self._facts.bindings
        if len(self._stale) * 8 > len(self._bindings):
            return [self._binding(name) for name in sorted(there)]
        found = self._bindings.copy()
        for name in self._stale:
            place = bisect_left(found, name, key=_name)
            known = place < len(found) and _name(found[place]) == name
            found[place : place + known] = [self._binding(name)] if name in there else []
        return found

    def _binding(self, name: str) -> BindingShown:
        shown = self._shown.get(name)
        if shown is None:
            shown = self._shown[name] = binding_shown(
                self._facts.bindings[name], self._decided.get(name), self._placed.of_binding(name)
            )
        return shown

    def _cluster(self, name: str) -> ClusterShown:
        nodes = [shown.node for shown in self._of(name)]
        return ClusterShown(self._facts.clusters[name], nodes, bool(self._silent.get(name)))

    def _of(self, cluster: str) -> Sequence[NodeShown]:
        """The nodes of a cluster, in order of name. When it changes its number of buckets, the
        facts of the old buckets are not ended, so they are left out here."""
        found = self._nodes.get(cluster)
        if found is None:
            told = self._facts.buckets.get(cluster, {}).values()
            buckets = max(told, key=lambda one: one[0])[1].buckets if told else 0
            nodes = [node for _, said in told if said.buckets == buckets for node in said.nodes]
            found = self._nodes[cluster] = [
                NodeShown(cluster, node, self._placed.on_node(cluster, node.name))
                for node in sorted(nodes, key=lambda node: node.name)
            ]
        return found


def _name(shown: BindingShown) -> str:
    return shown.binding.name


def _fact(row: LedgerRow, accepted: IntakeRow) -> Fact:
    return Fact(
        accepted.topic,
        accepted.key,
        accepted.partition_key,
        row.seq,
        row.at,
        accepted.id,
        accepted.type,
        accepted.body,
    )
