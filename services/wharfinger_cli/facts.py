"""The present facts of the plane: the latest fact under every key. `get` shows them.

The ledger keeps the latest fact under each key at hand, so the cost grows with the number of
present facts, not with the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import msgspec
from rich.table import Table
from rich.text import Text

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.cluster_objects import ClusterObject
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.policy import Policy
from wharfinger.domain.quota import Quota
from wharfinger.domain.resources import Device
from wharfinger.domain.taints import Taint
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
from wharfinger.events.streams import FLEET
from wharfinger.history.outcomes import WAITING
from wharfinger.history.points import HistoryPoint, point_of
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Ledger, LedgerRow, causality, wall_clock
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.placed_replicas import replicas_on_nodes
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.decisions import styled_outcome
from wharfinger_cli.failures import NotFoundError
from wharfinger_cli.output import BAD, DARK, WARN, Plain, new_table, show_list
from wharfinger_cli.request import Request

if TYPE_CHECKING:
    from wharfinger.history.plane_at import BindingAt

D = TypeVar("D", bound=Value)
T = TypeVar("T")

_DECLINED = types_of(*kinds_about("proposal"))
_SETTLING = types_of(*SETTLING)

UNITS: Sequence[tuple[str, int]] = (
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
)


@dataclass(frozen=True, slots=True)
class Told:
    """The latest message under a key. `id`: of its event; `at`: when it was accepted."""

    id: UUID
    data: Value
    at: Micros


@dataclass(slots=True)
class LatestFacts:
    """`latest`: (topic, key) -> the latest fact."""

    latest: dict[tuple[str, str], Told] = field(default_factory=dict)

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


async def known_facts(ledger: Ledger) -> LatestFacts:
    """The present facts. The cost grows with their number, not with the length of the history."""
    facts = LatestFacts()
    async for fact in ledger.facts():
        event = event_of(fact)
        facts.latest[fact.topic, fact.key] = Told(event.id, event.data, fact.at)
    return facts


def get(request: Request, what: str, name: str | None, at: str = "") -> None:
    point = point_of(at, wall_clock()) if at else None
    match what:
        case "clusters":
            run(_get_clusters(request, name, point))
        case "nodes":
            run(_get_nodes(request, name, point))
        case "bindings":
            run(_get_bindings(request, name, point))
        case _:
            run(_get_policies(request, name, point))


@dataclass(frozen=True, slots=True)
class _ShownCluster:
    cluster: Cluster
    nodes: Sequence[Node]
    silent: bool


@dataclass(frozen=True, slots=True)
class _ShownNode:
    cluster: str
    node: Node
    replicas: int


@dataclass(frozen=True, slots=True)
class _ShownBinding:
    """`said`: where it is, or why nowhere. `decision`: the id of the latest one, where it is at
    hand."""

    binding: Binding
    outcome: str
    said: str
    targets: tuple[TargetCluster, ...]
    placed: int
    decision: str | None = None


async def _get_clusters(request: Request, name: str | None, point: HistoryPoint | None) -> None:
    async with opened_ledger(reached(request)) as ledger:
        every = await (_clusters_now(ledger) if point is None else _clusters_then(ledger, point))
    found = _named(every, name, "cluster", lambda c: c.cluster.name)

    def table() -> Table:
        out = new_table(
            "cluster",
            "provider",
            "region",
            "zones",
            "nodes",
            "cpu",
            "memory",
            "gpus",
            "taints",
            "state",
            right=("nodes", "cpu", "memory", "gpus"),
        )
        for shown in found:
            cluster, nodes = shown.cluster, shown.nodes
            state = (
                Text("silent", WARN)
                if shown.silent
                else Text("leaving", BAD)
                if cluster.deleting
                else ""
            )
            out.add_row(
                cluster.name,
                cluster.provider,
                cluster.region,
                str(len(cluster.zones) or ""),
                str(len(nodes)),
                cores(sum(n.allocatable.get("cpu", 0) for n in nodes)),
                amount(sum(n.allocatable.get("memory", 0) for n in nodes)),
                str(sum(len(n.devices) for n in nodes) or ""),
                taints(cluster.taints),
                state,
            )
        return out

    items = [{**plain(c.cluster), "nodes": len(c.nodes), "silent": c.silent} for c in found]
    show_list(
        request.format, items, [c.cluster.name for c in found], table, f"no clusters{_then(point)}"
    )


async def _clusters_now(ledger: Ledger) -> list[_ShownCluster]:
    facts = await known_facts(ledger)
    nodes = facts.nodes
    silent = {
        row.subject
        for row in await ledger.current(stream=FLEET)
        if isinstance(effect_of(row.data()), HeartbeatEnd)
    }
    return [_ShownCluster(c, nodes.get(c.name, []), c.name in silent) for c in facts.clusters]


async def _clusters_then(ledger: Ledger, point: HistoryPoint) -> list[_ShownCluster]:
    """Those of which there were facts; the nodes of another are not enough to say what it is."""
    # the past needs the stages, the present does not
    from wharfinger.history.plane_at import plane_at

    picture = await plane_at(ledger, point)
    return [
        _ShownCluster(c.facts, [n.node for n in c.nodes], c.silent_since is not None)
        for c in picture.clusters.values()
        if c.facts is not None
    ]


async def _get_nodes(request: Request, name: str | None, point: HistoryPoint | None) -> None:
    """`name`: a node, or a cluster for all of its nodes."""
    async with opened_ledger(reached(request)) as ledger:
        every = await (_nodes_now(ledger) if point is None else _nodes_then(ledger, point))
    found = [n for n in every if name is None or name in (n.cluster, n.node.name)]
    if name is not None and not found:
        raise NotFoundError(f"no node and no cluster with nodes is named {name}{_then(point)}")

    def table() -> Table:
        out = new_table(
            "node",
            "cluster",
            "cpu",
            "memory",
            "gpus",
            "replicas",
            "taints",
            "state",
            right=("cpu", "memory", "replicas"),
        )
        for shown in found:
            node = shown.node
            out.add_row(
                node.name,
                shown.cluster,
                cores(node.allocatable.get("cpu", 0)),
                amount(node.allocatable.get("memory", 0)),
                devices(node.devices),
                str(shown.replicas or ""),
                taints(node.taints),
                Text("cordoned", WARN) if node.unschedulable else "",
            )
        return out

    items = [{"cluster": n.cluster, **plain(n.node), "replicas": n.replicas} for n in found]
    show_list(request.format, items, [n.node.name for n in found], table, f"no nodes{_then(point)}")


async def _nodes_now(ledger: Ledger) -> list[_ShownNode]:
    facts = await known_facts(ledger)
    placed = await _replicas_by_node(ledger)
    return [
        _ShownNode(c, n, placed.get((c, n.name), 0))
        for c, nodes in facts.nodes.items()
        for n in nodes
    ]


async def _nodes_then(ledger: Ledger, point: HistoryPoint) -> list[_ShownNode]:
    # the past needs the stages, the present does not
    from wharfinger.history.plane_at import plane_at

    clusters = (await plane_at(ledger, point)).clusters.values()
    return [_ShownNode(c.name, n.node, sum(n.replicas.values())) for c in clusters for n in c.nodes]


async def _get_bindings(request: Request, name: str | None, point: HistoryPoint | None) -> None:
    async with opened_ledger(reached(request)) as ledger:
        every = await (
            _bindings_now(ledger, name) if point is None else _bindings_then(ledger, point)
        )
    found = _named(every, name, "binding", lambda b: b.binding.name)

    def table() -> Table:
        out = new_table(
            "binding",
            "kind",
            "replicas",
            "on nodes",
            "policy",
            "fleet",
            "where",
            right=("replicas", "on nodes"),
        )
        for shown in found:
            binding, waiting = shown.binding, shown.outcome == WAITING
            out.add_row(
                binding.name,
                binding.resource.kind,
                str(binding.replicas or ""),
                str(shown.placed or ""),
                Text(binding.policy.rpartition("/")[2], DARK),
                Text(WAITING, WARN) if waiting else styled_outcome(shown.outcome),
                shown.said,
            )
        return out

    items = [_binding_plain(b) for b in found]
    show_list(
        request.format, items, [b.binding.name for b in found], table, f"no bindings{_then(point)}"
    )


async def _bindings_now(ledger: Ledger, name: str | None) -> list[_ShownBinding]:
    facts = await known_facts(ledger)
    fleet = {row.subject: row for row in await ledger.current(name or "", FLEET)}
    # A proposal that was refused says nothing of where the binding is: the decision before it does.
    declined = [subject for subject, row in fleet.items() if row.type in _DECLINED]
    fleet |= await causality.latest_of(ledger.database, declined, _SETTLING, FLEET)
    placed = await _placed_replicas(ledger)
    return [_decided(b, fleet.get(b.name), placed.get(b.name, 0)) for b in facts.bindings]


def _decided(binding: Binding, row: LedgerRow | None, placed: int) -> _ShownBinding:
    if row is None:
        return _ShownBinding(binding, WAITING, "", (), placed)
    data = row.data()
    held = data.targets if isinstance(data, ScheduleAnswer) else ()
    return _ShownBinding(
        binding, row.outcome, as_decision(data).sentence(), held, placed, str(row.id)
    )


async def _bindings_then(ledger: Ledger, point: HistoryPoint) -> list[_ShownBinding]:
    """As the fleet stage held them; which decision said so is in `history`."""
    # the past needs the stages, the present does not
    from wharfinger.history.plane_at import plane_at

    bindings = (await plane_at(ledger, point)).bindings.values()
    return [
        _ShownBinding(b.spec, b.outcome, _held(b), b.target_clusters, b.placed) for b in bindings
    ]


def _held(binding: BindingAt) -> str:
    where = targets_text(binding.target_clusters)
    if binding.reason:
        return f"{binding.reason}; keeps {where}" if where else binding.reason
    return f"{where}; silent: {', '.join(binding.suspect)}" if binding.suspect else where


async def _get_policies(request: Request, name: str | None, point: HistoryPoint | None) -> None:
    """`name`: the policy's own name or its whole key."""
    async with opened_ledger(reached(request)) as ledger:
        policies, bindings = await (
            _policies_now(ledger) if point is None else _policies_then(ledger, point)
        )
    used = Counter(binding.policy for binding in bindings)
    found = [p for p in policies if name is None or name in (p.name, p.key)]
    if name is not None and not found:
        raise NotFoundError(f"no policy is named {name}{_then(point)}")

    def table() -> Table:
        out = new_table("policy", "kind", "namespace", "acts on", "bindings", right=("bindings",))
        for policy in found:
            out.add_row(
                policy.name,
                policy.kind,
                policy.namespace,
                _acts_on(policy),
                str(used[policy.key] or ""),
            )
        return out

    items = [{**plain(p), "key": p.key, "bindings": used[p.key]} for p in found]
    show_list(request.format, items, [p.key for p in found], table, f"no policies{_then(point)}")


async def _policies_now(ledger: Ledger) -> tuple[list[Policy], list[Binding]]:
    facts = await known_facts(ledger)
    return facts.policies, facts.bindings


async def _policies_then(ledger: Ledger, point: HistoryPoint) -> tuple[list[Policy], list[Binding]]:
    # the past needs the stages, the present does not
    from wharfinger.history.plane_at import plane_at, policies_at

    bindings = (await plane_at(ledger, point, FLEET)).bindings.values()
    return list((await policies_at(ledger, point)).values()), [b.spec for b in bindings]


def _then(point: HistoryPoint | None) -> str:
    return "" if point is None else f" at {point.text}"


async def _placed_replicas(ledger: Ledger) -> Counter[str]:
    """binding -> replicas that stand on nodes."""
    return Counter(binding for _, binding, _ in await replicas_on_nodes(ledger))


async def _replicas_by_node(ledger: Ledger) -> Counter[tuple[str, str]]:
    """(cluster, node) -> replicas of ours on it."""
    return Counter(
        (cluster, node) for (cluster, _, _), node in (await replicas_on_nodes(ledger)).items()
    )


def _binding_plain(shown: _ShownBinding) -> Plain:
    return {
        **plain(shown.binding),
        "outcome": shown.outcome,
        "decision": shown.decision,
        "targets": [{"cluster": t.cluster, "replicas": t.replicas} for t in shown.targets],
        "placed": shown.placed,
    }


def _named(items: Sequence[T], name: str | None, kind: str, name_of: Callable[[T], str]) -> list[T]:
    found = [item for item in items if name is None or name_of(item) == name]
    if name is not None and not found:
        raise NotFoundError(f"no {kind} is named {name}")
    return found


def _acts_on(policy: Policy) -> str:
    if policy.propagation is not None:
        return (
            "placement of "
            f"{', '.join(dict.fromkeys(s.kind for s in policy.propagation.selectors)) or 'nothing'}"
        )
    if policy.load is not None:
        return "load of nodes"
    if policy.quota is not None:
        return "requests of a namespace"
    if policy.taints is not None:
        return "taints of clusters"
    if policy.selection is not None:
        return "which clusters are selected"
    if (
        policy.cluster_set is not None
        or policy.set_binding is not None
        or policy.scores is not None
    ):
        return "placements"
    if policy.scheduler is not None:
        return "which nodes are chosen"
    if policy.priority_level is not None:
        return "priority of workloads"
    if policy.pod_groups is not None:
        return "what is placed together"
    if policy.node_pool is not None:
        return "nodes that are made and go"
    if policy.overlay is not None or policy.catalogue is not None:
        return "what nodes can be bought"
    if policy.descheduling is not None:
        return "pods that leave their nodes"
    return (
        "replicas that change clusters"
        if policy.rebalancing is not None
        else "nothing in this version"
    )


def plain(value: Value) -> dict[str, object]:
    """A domain value as JSON has it."""
    encoded: dict[str, object] = msgspec.json.decode(msgspec.json.encode(value))
    return encoded


def cores(milli: int) -> str:
    return f"{milli / 1000:,.0f}" if milli % 1000 == 0 else f"{milli / 1000:,.1f}"


def amount(number_of_bytes: int) -> str:
    """`262,144 Mi` reads worse than `256 Gi`."""
    for unit, size in UNITS:
        if number_of_bytes >= 10 * size:
            return f"{number_of_bytes / size:,.0f} {unit}"
    return f"{number_of_bytes:,} B" if number_of_bytes else ""


def devices(found: Iterable[Device]) -> str:
    counted: dict[str, int] = {}
    for device in found:
        counted[device.model or device.kind] = counted.get(device.model or device.kind, 0) + 1
    return ", ".join(f"{count} {model}" for model, count in counted.items())


def taints(found: Iterable[Taint]) -> str:
    return ", ".join(f"{t.key}{f'={t.value}' if t.value else ''}:{t.effect}" for t in found)
