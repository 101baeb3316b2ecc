"""The present facts of the plane, the latest under every key, and what was decided about them; as
values, and as JSON.

The ledger keeps the latest fact under each key at hand, so the cost grows with the number of
present facts, not with the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import msgspec

from wharfinger.answers.decisions import Plain
from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.cluster_objects import ClusterObject
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.policy import Policy
from wharfinger.domain.quota import Quota
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
    WaitingPodsObserved,
)
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import (
    SETTLING,
    HeartbeatEnd,
    ScheduleAnswer,
    as_decision,
    effect_of,
    kinds_about,
)
from wharfinger.events.decisions.wording import targets_text
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.registry import types_of
from wharfinger.events.streams import BINDINGS, CLUSTER, FLEET
from wharfinger.history.outcomes import WAITING
from wharfinger.history.points import HistoryPoint
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Fact, Ledger, LedgerRow, causality
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.ledger.facts import latest
from wharfinger.runtime.placed_replicas import replicas_on_nodes

if TYPE_CHECKING:
    from wharfinger.history.plane_at import BindingAt

D = TypeVar("D", bound=Value)


DECLINED_TYPES = types_of(*kinds_about("proposal"))


SETTLING_TYPES = types_of(*SETTLING)


@dataclass(frozen=True, slots=True)
class Told:
    """The latest message under a key. `id`: of its event; `at`: when it was accepted."""

    id: UUID
    data: Value
    at: Micros


@dataclass(slots=True)
class LatestFacts:
    """`latest`: (topic, key) -> the latest fact. `seq`, `at`: of the last one that was read."""

    latest: dict[tuple[str, str], Told] = field(default_factory=dict)
    seq: int = 0
    at: Micros = 0

    def take(self, facts: Iterable[Fact]) -> None:
        """Facts that the ledger has as the latest under their keys."""
        for fact in facts:
            event = event_of(fact)
            self.latest[fact.topic, fact.key] = Told(event.id, event.data, fact.at)

    def of(self, kind: type[D]) -> Iterator[D]:
        """The facts that hold now, without keys that their last message ended."""
        return (told.data for told in self.latest.values() if isinstance(told.data, kind))

    @property
    def clusters(self) -> list[Cluster]:
        return sorted((c.cluster for c in self.of(ClusterObserved)), key=lambda c: c.name)

    @property
    def buckets(self) -> dict[str, int]:
        """Cluster -> the number of buckets its nodes are divided into, by its latest node fact."""
        found: dict[str, int] = {}
        for told in sorted(self.latest.values(), key=lambda told: told.at):
            if isinstance(told.data, NodesObserved):
                found[told.data.cluster] = told.data.buckets
        return found

    @property
    def nodes(self) -> dict[str, list[Node]]:
        """Cluster -> its nodes. When a cluster changes its number of buckets, the facts of the old
        buckets are not ended, so they are left out here."""
        buckets = self.buckets
        found: dict[str, list[Node]] = {}
        for observed in self.of(NodesObserved):
            if observed.buckets == buckets[observed.cluster]:
                found.setdefault(observed.cluster, []).extend(observed.nodes)
        return {name: sorted(nodes, key=lambda n: n.name) for name, nodes in sorted(found.items())}

    @property
    def quotas(self) -> dict[tuple[str, str], tuple[Quota, ...]]:
        """(cluster, namespace) -> its quotas."""
        return {
            (observed.cluster, observed.namespace): observed.quotas
            for observed in self.of(QuotasObserved)
        }

    @property
    def objects(self) -> dict[tuple[str, str, str], tuple[ClusterObject, ...]]:
        """(cluster, kind, namespace) -> its objects."""
        return {
            (found.cluster, found.kind, found.namespace): found.objects
            for found in self.of(ObjectsObserved)
        }

    @property
    def pods(self) -> dict[tuple[str, str], tuple[Pod, ...]]:
        """(cluster, node) -> the pods reported on it."""
        return {
            (observed.cluster, observed.node): observed.pods for observed in self.of(PodsObserved)
        }

    @property
    def finished(self) -> dict[tuple[str, str], tuple[Pod, ...]]:
        """(cluster, node) -> the finished pods reported there."""
        return {
            (observed.cluster, observed.node): observed.pods
            for observed in self.of(FinishedPodsObserved)
        }

    @property
    def waiting(self) -> dict[tuple[str, str, str], tuple[WaitingPod, ...]]:
        """(cluster, namespace, bucket) -> the waiting pods reported there."""
        return {
            (observed.cluster, observed.namespace, str(observed.bucket)): observed.pods
            for observed in self.of(WaitingPodsObserved)
        }

    @property
    def policies(self) -> list[Policy]:
        return sorted((p.policy for p in self.of(PolicyApplied)), key=lambda p: p.key)

    @property
    def bindings(self) -> list[Binding]:
        return sorted((b.binding for b in self.of(BindingRequested)), key=lambda b: b.name)


async def known_facts(ledger: Ledger, topic: str | None = None) -> LatestFacts:
    """The present facts, or those of one topic. The cost grows with their number, not with the
    length of the history."""
    facts = LatestFacts()
    async for fact in ledger.facts(topic):
        facts.take([fact])
        facts.seq, facts.at = fact.seq, fact.at
    return facts


@dataclass(frozen=True, slots=True)
class ClusterShown:
    cluster: Cluster
    nodes: Sequence[Node]
    silent: bool


@dataclass(frozen=True, slots=True)
class NodeShown:
    cluster: str
    node: Node
    replicas: int


@dataclass(frozen=True, slots=True)
class BindingShown:
    """`said`: where it is, or why nowhere. `decision`: the id of the latest one, where it is at
    hand."""

    binding: Binding
    outcome: str
    said: str
    targets: tuple[TargetCluster, ...]
    placed: int
    decision: str | None = None


async def clusters_now(ledger: Ledger) -> list[ClusterShown]:
    facts = await known_facts(ledger)
    nodes = facts.nodes
    silent = {
        row.subject
        for row in await ledger.current(stream=FLEET)
        if isinstance(effect_of(row.data()), HeartbeatEnd)
    }
    return [ClusterShown(c, nodes.get(c.name, []), c.name in silent) for c in facts.clusters]


async def clusters_then(ledger: Ledger, point: HistoryPoint) -> list[ClusterShown]:
    """Those of which there were facts; the nodes of another are not enough to say what it is."""
    # the past needs the stages, the present does not
    from wharfinger.history.plane_at import plane_at

    picture = await plane_at(ledger, point)
    return [
        ClusterShown(c.facts, [n.node for n in c.nodes], c.silent_since is not None)
        for c in picture.clusters.values()
        if c.facts is not None
    ]


async def nodes_now(ledger: Ledger) -> list[NodeShown]:
    facts = await known_facts(ledger)
    placed = await _replicas_by_node(ledger)
    return [
        NodeShown(c, n, placed.get((c, n.name), 0))
        for c, nodes in facts.nodes.items()
        for n in nodes
    ]


async def nodes_then(ledger: Ledger, point: HistoryPoint) -> list[NodeShown]:
    # the past needs the stages, the present does not
    from wharfinger.history.plane_at import plane_at

    clusters = (await plane_at(ledger, point)).clusters.values()
    return [NodeShown(c.name, n.node, sum(n.replicas.values())) for c in clusters for n in c.nodes]


async def bindings_now(ledger: Ledger, name: str | None) -> list[BindingShown]:
    facts = await known_facts(ledger)
    fleet = {row.subject: row for row in await ledger.current(name or "", FLEET)}
    # A proposal that was refused says nothing of where the binding is: the decision before it does.
    declined = [subject for subject, row in fleet.items() if row.type in DECLINED_TYPES]
    fleet |= await causality.latest_of(ledger.database, declined, SETTLING_TYPES, FLEET)
    placed = await _placed_replicas(ledger)
    return [binding_shown(b, fleet.get(b.name), placed.get(b.name, 0)) for b in facts.bindings]


def binding_shown(binding: Binding, row: LedgerRow | None, placed: int) -> BindingShown:
    if row is None:
        return BindingShown(binding, WAITING, "", (), placed)
    data = row.data()
    held = data.targets if isinstance(data, ScheduleAnswer) else ()
    return BindingShown(
        binding, row.outcome, as_decision(data).sentence(), held, placed, str(row.id)
    )


async def binding_now(ledger: Ledger, name: str) -> BindingShown | None:
    """One binding, as `bindings_now` shows it. The cost grows with what was decided about it, and
    with the clusters that have had it; not with the other bindings. None: it is not there."""
    found = [event_of(fact).data for fact in await latest(ledger.database, [(BINDINGS.name, name)])]
    if not found or not isinstance(found[0], BindingRequested):
        return None
    rows = await ledger.current_of([name], "")
    row = next((row for row in reversed(rows) if row.stream.startswith(FLEET)), None)
    if row is not None and row.type in DECLINED_TYPES:
        settled = await causality.latest_of(ledger.database, [name], SETTLING_TYPES, FLEET)
        row = settled.get(name, row)
    streams = {row.stream for row in rows if row.stream.startswith(CLUSTER)}
    placed = await replicas_on_nodes(ledger, streams) if streams else {}
    return binding_shown(found[0].binding, row, sum(one == name for _, one, _ in placed))


async def bindings_then(ledger: Ledger, point: HistoryPoint) -> list[BindingShown]:
    """As the fleet stage held them; which decision said so is in `history`."""
    # the past needs the stages, the present does not
    from wharfinger.history.plane_at import plane_at

    bindings = (await plane_at(ledger, point)).bindings.values()
    return [
        BindingShown(b.spec, b.outcome, _held(b), b.target_clusters, b.placed) for b in bindings
    ]


def _held(binding: BindingAt) -> str:
    where = targets_text(binding.target_clusters)
    if binding.reason:
        return f"{binding.reason}; keeps {where}" if where else binding.reason
    return f"{where}; silent: {', '.join(binding.suspect)}" if binding.suspect else where


async def policies_now(ledger: Ledger) -> tuple[list[Policy], list[Binding]]:
    facts = await known_facts(ledger)
    return facts.policies, facts.bindings


async def policies_then(ledger: Ledger, point: HistoryPoint) -> tuple[list[Policy], list[Binding]]:
    # the past needs the stages, the present does not
    from wharfinger.history.plane_at import plane_at, policies_at

    bindings = (await plane_at(ledger, point, FLEET)).bindings.values()
    return list((await policies_at(ledger, point)).values()), [b.spec for b in bindings]


async def _placed_replicas(ledger: Ledger) -> Counter[str]:
    """binding -> replicas that stand on nodes."""
    return Counter(binding for _, binding, _ in await replicas_on_nodes(ledger))


async def _replicas_by_node(ledger: Ledger) -> Counter[tuple[str, str]]:
    """(cluster, node) -> replicas of ours on it."""
    return Counter(
        (cluster, node) for (cluster, _, _), node in (await replicas_on_nodes(ledger)).items()
    )


def binding_plain(shown: BindingShown) -> Plain:
    return {
        **plain(shown.binding),
        "outcome": shown.outcome,
        "decision": shown.decision,
        "targets": [{"cluster": t.cluster, "replicas": t.replicas} for t in shown.targets],
        "placed": shown.placed,
    }


BINDING_MEMBERS = frozenset(Binding.__struct_encode_fields__) | {
    "outcome",
    "decision",
    "targets",
    "placed",
}
CLUSTER_MEMBERS = frozenset(Cluster.__struct_encode_fields__) | {"nodes", "silent"}
NODE_MEMBERS = frozenset(Node.__struct_encode_fields__) | {"cluster", "replicas"}
POLICY_MEMBERS = frozenset(Policy.__struct_encode_fields__) | {"key", "bindings"}
"""Of the JSON of each, where it has a value."""


def cluster_plain(shown: ClusterShown) -> Plain:
    return {**plain(shown.cluster), "nodes": len(shown.nodes), "silent": shown.silent}


def node_plain(shown: NodeShown) -> Plain:
    return {"cluster": shown.cluster, **plain(shown.node), "replicas": shown.replicas}


def policy_plain(policy: Policy, bindings: int) -> Plain:
    """`bindings`: how many are placed by it."""
    return {**plain(policy), "key": policy.key, "bindings": bindings}


def plain(value: Value) -> dict[str, object]:
    """A domain value as JSON has it."""
    encoded: dict[str, object] = msgspec.json.decode(msgspec.json.encode(value))
    return encoded
