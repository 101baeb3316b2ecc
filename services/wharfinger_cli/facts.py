"""What the plane was told, and what of it holds now: the latest fact under every key. `get` shows it.

Read from the intake, where every accepted message stands first. The cost grows with the length of the intake; commands are
run by people, and a person does not notice the second that a hundred thousand messages take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

import msgspec
from rich.table import Table
from rich.text import Text

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.policy import Policy
from wharfinger.domain.resources import Device
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value
from wharfinger.events.acceptance import MessageAccepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import (
    ClusterSilenced,
    ReplicasPlaced,
    ReplicasReleased,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.streams import CLUSTER, FLEET, INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow
from wharfinger_cli.app import Request
from wharfinger_cli.connection import opened_ledger, run, settings_of
from wharfinger_cli.decisions import styled_outcome
from wharfinger_cli.failures import NotFoundError
from wharfinger_cli.output import BAD, DARK, WARN, Plain, new_table, show_list
from wharfinger_cli.summary import summary

D = TypeVar("D", bound=Value)

UNITS: Sequence[tuple[str, int]] = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


@dataclass(frozen=True, slots=True)
class Told:
    """The latest message under a key. `id`: of its event; `at`: when it was accepted."""

    id: UUID
    data: Value
    at: Micros


@dataclass(slots=True)
class Facts:
    """(topic, key) -> what was told last."""

    latest: dict[tuple[str, str], Told] = field(default_factory=dict)

    def of(self, kind: type[D]) -> Iterator[D]:
        """What holds now: a key whose last message ended it is not among them."""
        return (told.data for told in self.latest.values() if isinstance(told.data, kind))

    @property
    def clusters(self) -> list[Cluster]:
        return sorted((c.cluster for c in self.of(ClusterObserved)), key=lambda c: c.name)

    @property
    def buckets(self) -> dict[str, int]:
        """Cluster -> into how many buckets its nodes are cut, as it was told last."""
        found: dict[str, int] = {}
        for told in sorted(self.latest.values(), key=lambda told: told.at):
            if isinstance(told.data, NodesObserved):
                found[told.data.cluster] = told.data.buckets
        return found

    @property
    def nodes(self) -> dict[str, list[Node]]:
        """Without the buckets of a cluster that was cut otherwise since: nobody ends those."""
        buckets = self.buckets
        found: dict[str, list[Node]] = {}
        for observed in self.of(NodesObserved):
            if observed.buckets == buckets[observed.cluster]:
                found.setdefault(observed.cluster, []).extend(observed.nodes)
        return {name: sorted(nodes, key=lambda n: n.name) for name, nodes in sorted(found.items())}

    @property
    def policies(self) -> list[Policy]:
        return sorted((p.policy for p in self.of(PolicyApplied)), key=lambda p: p.key)

    @property
    def bindings(self) -> list[Binding]:
        return sorted((b.binding for b in self.of(BindingRequested)), key=lambda b: b.name)


async def known_facts(ledger: Ledger) -> Facts:
    facts = Facts()
    async for recorded in ledger.recorded_rounds(INTAKE):
        for event, decision in zip(recorded.events, recorded.round.decisions, strict=True):
            if isinstance(decision.data, MessageAccepted):
                place = (decision.data.topic, decision.data.key)
                facts.latest[place] = Told(event.id, event.data, recorded.round.at)
    return facts


def get(request: Request, what: str, name: str | None) -> None:
    match what:
        case "clusters":
            run(_get_clusters(request, name))
        case "nodes":
            run(_get_nodes(request, name))
        case "bindings":
            run(_get_bindings(request, name))
        case _:
            run(_get_policies(request, name))


async def _get_clusters(request: Request, name: str | None) -> None:
    async with opened_ledger(settings_of(request)) as ledger:
        facts = await known_facts(ledger)
        silent = {row.subject for row in await ledger.current(stream=FLEET) if isinstance(row.data(), ClusterSilenced)}
    found = _named(facts.clusters, name, "cluster", lambda c: c.name)
    nodes = facts.nodes

    def table() -> Table:
        out = new_table("cluster", "provider", "region", "zones", "nodes", "cpu", "memory", "gpus", "taints", "state",
                        right=("nodes", "cpu", "memory", "gpus"))  # fmt: skip
        for cluster in found:
            members = nodes.get(cluster.name, [])
            state = Text("silent", WARN) if cluster.name in silent else Text("leaving", BAD) if cluster.deleting else ""
            out.add_row(
                cluster.name, cluster.provider, cluster.region, str(len(cluster.zones) or ""), str(len(members)),
                cores(sum(n.allocatable.get("cpu", 0) for n in members)),
                amount(sum(n.allocatable.get("memory", 0) for n in members)),
                str(sum(len(n.devices) for n in members) or ""), taints(cluster.taints), state,
            )  # fmt: skip
        return out

    items = [{**plain(c), "nodes": len(nodes.get(c.name, [])), "silent": c.name in silent} for c in found]
    show_list(request.format, items, [c.name for c in found], table, "no clusters")


async def _get_nodes(request: Request, name: str | None) -> None:
    """`name`: a node, or a cluster for all of its nodes."""
    async with opened_ledger(settings_of(request)) as ledger:
        facts = await known_facts(ledger)
        placed = await _replicas_by_node(ledger)
    every = [(cluster, node) for cluster, nodes in facts.nodes.items() for node in nodes]
    found = [(c, n) for c, n in every if name is None or name in (c, n.name)]
    if name is not None and not found:
        raise NotFoundError(f"no node and no cluster with nodes is named {name}")

    def table() -> Table:
        out = new_table("node", "cluster", "cpu", "memory", "gpus", "replicas", "taints", "state",
                        right=("cpu", "memory", "replicas"))  # fmt: skip
        for cluster, node in found:
            out.add_row(
                node.name, cluster, cores(node.allocatable.get("cpu", 0)), amount(node.allocatable.get("memory", 0)),
                devices(node.devices), str(placed.get((cluster, node.name), "")), taints(node.taints),
                Text("cordoned", WARN) if node.unschedulable else "",
            )  # fmt: skip
        return out

    items = [{"cluster": c, **plain(n), "replicas": placed.get((c, n.name), 0)} for c, n in found]
    show_list(request.format, items, [n.name for _, n in found], table, "no nodes")


async def _get_bindings(request: Request, name: str | None) -> None:
    async with opened_ledger(settings_of(request)) as ledger:
        facts = await known_facts(ledger)
        fleet = {row.subject: row for row in await ledger.current(name or "", FLEET)}
        placed = await _placed_replicas(ledger, name)
    found = _named(facts.bindings, name, "binding", lambda b: b.name)

    def table() -> Table:
        out = new_table("binding", "kind", "replicas", "on nodes", "policy", "fleet", "where",
                        right=("replicas", "on nodes"))  # fmt: skip
        for binding in found:
            row = fleet.get(binding.name)
            out.add_row(
                binding.name, binding.resource.kind, str(binding.replicas or ""), str(placed.get(binding.name, "")),
                Text(binding.policy.rpartition("/")[2], DARK), styled_outcome(row.outcome) if row else Text("waiting", WARN),
                summary(row.data()) if row else "",
            )  # fmt: skip
        return out

    items = [_binding_plain(b, fleet.get(b.name), placed.get(b.name, 0)) for b in found]
    show_list(request.format, items, [b.name for b in found], table, "no bindings")


async def _get_policies(request: Request, name: str | None) -> None:
    """`name`: the policy's own name or its whole key."""
    async with opened_ledger(settings_of(request)) as ledger:
        facts = await known_facts(ledger)
    used: dict[str, int] = {}
    for binding in facts.bindings:
        used[binding.policy] = used.get(binding.policy, 0) + 1
    found = [p for p in facts.policies if name is None or name in (p.name, p.key)]
    if name is not None and not found:
        raise NotFoundError(f"no policy is named {name}")

    def table() -> Table:
        out = new_table("policy", "kind", "namespace", "acts on", "bindings", right=("bindings",))
        for policy in found:
            out.add_row(policy.name, policy.kind, policy.namespace, _acts_on(policy), str(used.get(policy.key, "")))
        return out

    items = [{**plain(p), "key": p.key, "bindings": used.get(p.key, 0)} for p in found]
    show_list(request.format, items, [p.key for p in found], table, "no policies")


async def _placed_replicas(ledger: Ledger, name: str | None) -> dict[str, int]:
    """binding -> replicas that stand on nodes: what was placed less what was let go."""
    placed: dict[str, int] = {}
    async for row in ledger.decisions(DecisionQuery(CLUSTER, subject=name)):
        match row.data():
            case ReplicasPlaced() as data:
                placed[data.binding] = placed.get(data.binding, 0) + sum(len(s.ordinals) for s in data.placed)
            case ReplicasReleased() as data:
                placed[data.binding] = placed.get(data.binding, 0) - sum(len(s.ordinals) for s in data.released)
    return placed


async def _replicas_by_node(ledger: Ledger) -> dict[tuple[str, str], int]:
    """(cluster, node) -> replicas of ours on it."""
    held: dict[tuple[str, str], int] = {}
    async for row in ledger.decisions(DecisionQuery(CLUSTER)):
        match row.data():
            case ReplicasPlaced() as data:
                for share in data.placed:
                    held[data.cluster, share.node] = held.get((data.cluster, share.node), 0) + len(share.ordinals)
            case ReplicasReleased() as data:
                for share in data.released:
                    held[data.cluster, share.node] = held.get((data.cluster, share.node), 0) - len(share.ordinals)
    return {place: count for place, count in held.items() if count}


def _binding_plain(binding: Binding, row: LedgerRow | None, placed: int) -> Plain:
    decided = row.data() if row else None
    targets = decided.targets if isinstance(decided, ScheduleDecided | ScheduleRefused) else ()
    return {
        **plain(binding),
        "outcome": row.outcome if row else "waiting",
        "decision": str(row.id) if row else None,
        "targets": [{"cluster": t.cluster, "replicas": t.replicas} for t in targets],
        "placed": placed,
    }


def _named(items: Sequence[D], name: str | None, kind: str, name_of: Callable[[D], str]) -> list[D]:
    found = [item for item in items if name is None or name_of(item) == name]
    if name is not None and not found:
        raise NotFoundError(f"no {kind} is named {name}")
    return found


def _acts_on(policy: Policy) -> str:
    if policy.propagation is not None:
        return f"placement of {', '.join(dict.fromkeys(s.kind for s in policy.propagation.selectors)) or 'nothing'}"
    if policy.load is not None:
        return "load of nodes"
    return "empty nodes" if policy.node_pool is not None else "nothing in this version"


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
