"""The present facts of the plane: the latest fact under every key. `get` shows them.

The ledger keeps the latest fact under each key at hand, so the cost grows with the number of
present facts, not with the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rich.table import Table
from rich.text import Text

from wharfinger.answers.facts import (
    BindingShown,
    ClusterShown,
    binding_plain,
    bindings_now,
    bindings_then,
    cluster_plain,
    clusters_now,
    clusters_then,
    node_plain,
    nodes_now,
    nodes_then,
    policies_now,
    policies_then,
    policy_plain,
)
from wharfinger.answers.facts import LatestFacts as LatestFacts
from wharfinger.answers.facts import Told as Told
from wharfinger.answers.facts import known_facts as known_facts
from wharfinger.answers.facts import plain as plain
from wharfinger.answers.selection import (
    CORDONED,
    LEAVING,
    SILENT,
    ListSelection,
    ListSelectionError,
    cluster_state,
)
from wharfinger.domain.cluster import kinds_not_readable
from wharfinger.domain.policy import Policy
from wharfinger.domain.resources import Device
from wharfinger.domain.taints import Taint
from wharfinger.domain.text import some
from wharfinger.history.outcomes import WAITING
from wharfinger.history.points import HistoryPoint, point_of
from wharfinger.runtime.ledger import wall_clock
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.decisions import styled_outcome
from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import BAD, DARK, WARN, new_table, show_list
from wharfinger_cli.request import Request

T = TypeVar("T")

EVERYTHING = ListSelection()


UNITS: Sequence[tuple[str, int]] = (
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
)


def get(
    request: Request, what: str, name: str | None, at: str = "", wanted: ListSelection = EVERYTHING
) -> None:
    """CommandError: a state or a label that cannot be."""
    point = point_of(at, wall_clock()) if at else None
    try:
        _get(request, what, name, point, wanted)
    except ListSelectionError as error:
        raise CommandError(f"--{error}") from None


def _get(
    request: Request, what: str, name: str | None, point: HistoryPoint | None, wanted: ListSelection
) -> None:
    match what:
        case "clusters":
            run(_get_clusters(request, name, point, wanted))
        case "nodes":
            run(_get_nodes(request, name, point, wanted))
        case "bindings":
            run(_get_bindings(request, name, point, wanted))
        case _:
            run(_get_policies(request, name, point, wanted))


def _asked(
    request: Request, what: str, point: HistoryPoint | None, wanted: ListSelection
) -> list[Any]:
    """From the server, as it was then. It has filtered what the holder of the token may see."""
    from wharfinger_cli.remote import Remote

    at = "" if point is None else point.text
    found = Remote.of(request).value(
        f"/v1/{what}",
        at=at.replace(":", "@") if "/" in at else at,
        namespace=wanted.namespaces,
        cluster=wanted.clusters,
        policy=wanted.policies,
        state=wanted.states,
        label=wanted.labels,
    )
    return list(found)


async def _get_clusters(
    request: Request, name: str | None, point: HistoryPoint | None, wanted: ListSelection
) -> None:
    if request.server:
        every = _asked(request, "clusters", point, wanted)
    else:
        async with opened_ledger(reached(request)) as ledger:
            known = await (clusters_now(ledger) if point is None else clusters_then(ledger, point))
        every = list(wanted.cluster_list(known))
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
            *(("in zones", "labels") if request.wide else ()),
            right=("nodes", "cpu", "memory", "gpus"),
        )
        for shown in found:
            cluster, nodes = shown.cluster, shown.nodes
            state = cluster_text(shown)
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
                *((", ".join(cluster.zones), label_text(cluster.labels)) if request.wide else ()),
            )
        return out

    items = [cluster_plain(c) for c in found]
    show_list(
        request.format, items, [c.cluster.name for c in found], table, f"no clusters{_then(point)}"
    )


async def _get_nodes(
    request: Request, name: str | None, point: HistoryPoint | None, wanted: ListSelection
) -> None:
    """`name`: a node, or a cluster for all of its nodes."""
    if request.server:
        every = _asked(request, "nodes", point, wanted)
    else:
        async with opened_ledger(reached(request)) as ledger:
            known = await (nodes_now(ledger) if point is None else nodes_then(ledger, point))
        every = list(wanted.nodes(known))
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
            *(("pods", "labels") if request.wide else ()),
            right=("cpu", "memory", "replicas", "pods"),
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
                Text(CORDONED, WARN) if node.unschedulable else "",
                *(
                    (str(node.allocatable.get("pods", "")), label_text(node.labels))
                    if request.wide
                    else ()
                ),
            )
        return out

    items = [node_plain(n) for n in found]
    show_list(request.format, items, [n.node.name for n in found], table, f"no nodes{_then(point)}")


async def _get_bindings(
    request: Request, name: str | None, point: HistoryPoint | None, wanted: ListSelection
) -> None:
    if request.server:
        every = _asked(request, "bindings", point, wanted)
    else:
        async with opened_ledger(reached(request)) as ledger:
            known = await (
                bindings_now(ledger, name) if point is None else bindings_then(ledger, point)
            )
        every = list(wanted.bindings(known))
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
            *(("cpu", "memory", "priority", "labels", "decision") if request.wide else ()),
            right=("replicas", "on nodes", "cpu", "memory", "priority"),
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
                *(_wide_binding(shown) if request.wide else ()),
            )
        return out

    items = [binding_plain(b) for b in found]
    show_list(
        request.format, items, [b.binding.name for b in found], table, f"no bindings{_then(point)}"
    )


async def _get_policies(
    request: Request, name: str | None, point: HistoryPoint | None, wanted: ListSelection
) -> None:
    """`name`: the policy's own name or its whole key."""
    if request.server:
        counted = _asked(request, "policies", point, wanted)
    else:
        async with opened_ledger(reached(request)) as ledger:
            policies, bindings = await (
                policies_now(ledger) if point is None else policies_then(ledger, point)
            )
        bound = Counter(binding.policy for binding in bindings)
        counted = list(wanted.policy_list([(policy, bound[policy.key]) for policy in policies]))
    used = {policy.key: bindings for policy, bindings in counted}
    policies = [policy for policy, _ in counted]
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

    items = [policy_plain(p, used[p.key]) for p in found]
    show_list(request.format, items, [p.key for p in found], table, f"no policies{_then(point)}")


def cluster_text(shown: ClusterShown) -> Text:
    """Returns the state of a cluster for a table; empty: there is nothing to say."""
    parts = [_CLUSTER_STATES.get(cluster_state(shown), Text())]
    if kinds := kinds_not_readable(shown.cluster):
        parts.append(Text(f"may not read {some(kinds)}", WARN))
    return Text("; ").join([part for part in parts if part])


_CLUSTER_STATES = {SILENT: Text(SILENT, WARN), LEAVING: Text(LEAVING, BAD)}


def _wide_binding(shown: BindingShown) -> Sequence[str]:
    binding = shown.binding
    requests = binding.requirements.requests
    return (
        cores(requests["cpu"]) if "cpu" in requests else "",
        amount(requests.get("memory", 0)),
        str(binding.priority or ""),
        label_text(binding.labels),
        shown.decision or "",
    )


def label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _then(point: HistoryPoint | None) -> str:
    return "" if point is None else f" at {point.text}"


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
