"""What daemons take of a node before any pod comes to it.

Which daemons a new node will have depends on what it becomes: a daemon may want nodes with a GPU, or of one architecture.
So the overhead is counted for each instance type, and types with the same daemons form a group. A daemon counts where its
selector and one of its required terms can be met; preferences do not keep a daemon away, and neither do taints
PreferNoSchedule. One that asks for more than the whole of a type will not run there and takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.cluster_objects import DaemonPods
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import HostPort
from wharfinger.domain.resources import DeviceRequest, is_of_nodes
from wharfinger.domain.taints import Taint, first_untolerated
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.catalogue import PODS, Ask, Column, Mask, Types
from wharfinger.engine.provisioning.requirements import LabelSet

_BORNE = frozenset(
    "node.kubernetes.io/" + name
    for name in (
        "not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable",
        "network-unavailable",
    )
)  # fmt: skip
"""Taints that the DaemonSet controller lets each of its pods tolerate, without that its template says so."""


@dataclass(frozen=True, slots=True, eq=False)
class DaemonGroup:
    """The daemons `names` (namespace/name) come to each node of the types in `among` (bool[types]) and take `amounts`
    (int64[resources], slots among them), `devices` and `ports`."""

    names: tuple[str, ...]
    among: Mask
    amounts: Column
    devices: Ask = ()
    ports: tuple[HostPort, ...] = ()


def groups(
    types: Types, labels: LabelSet, taints: Sequence[Taint], daemons: Iterable[DaemonPods]
) -> tuple[DaemonGroup, ...]:
    """Every type is in one group, what is sold out as well: nodes of it may be on their way. `labels`, `taints`: of the pool's
    new nodes."""
    coming = [d for d in sorted(daemons, key=lambda d: (d.namespace, d.name)) if tolerates(d.requirements, taints)]
    on = np.array([comes_to(types, labels, d.requirements) for d in coming], dtype=np.bool_).reshape(
        len(coming), len(types)
    )
    members: dict[bytes, list[int]] = {}
    for row in range(len(types)):
        members.setdefault(on[:, row].tobytes(), []).append(row)
    return tuple(_group(types, rows, [coming[i] for i in np.flatnonzero(on[:, rows[0]])]) for rows in members.values())


def tolerates(daemon: Requirements, taints: Sequence[Taint]) -> bool:
    return first_untolerated(taints, daemon.tolerations, ("NoSchedule", "NoExecute")) is None


def comes_to(types: Types, labels: LabelSet, daemon: Requirements) -> Mask:
    """bool[types]: whether a new node of the type, with the pool's `labels`, would get the daemon."""
    found = np.zeros(len(types), dtype=np.bool_)
    amounts = types.amounts(daemon.requests)
    if amounts is None:
        return found
    amounts[PODS] += 1
    for asked in LabelSet.alternatives(daemon):
        if labels.compatible(asked, types.known):
            found |= types.fitting(labels.intersect(asked))
    return found & types.roomy(amounts) & types.holding(daemon.devices)


def _group(types: Types, rows: Sequence[int], daemons: Sequence[DaemonPods]) -> DaemonGroup:
    among = np.zeros(len(types), dtype=np.bool_)
    among[list(rows)] = True
    total = np.zeros(len(types.resources), dtype=np.int64)
    for daemon in daemons:
        amounts = types.amounts(daemon.requirements.requests)
        assert amounts is not None, "a daemon that no type could hold came to one"
        total += amounts
        total[PODS] += 1
    return DaemonGroup(
        tuple(f"{d.namespace}/{d.name}" for d in daemons),
        among,
        total,
        tuple(request for d in daemons for request in d.requirements.devices),
        tuple(port for d in daemons for port in d.requirements.traits.ports),
    )


def still_to_come(node: Node, pods: Iterable[Pod], daemons: Iterable[DaemonPods]) -> tuple[dict[str, int], Ask]:
    """What daemons that belong on a node, and are not there yet, will take of it: amounts, slots among them, and devices.

    Whose pod is whose is not always known, so what the daemons' pods there hold is taken off what all daemons would."""
    labels = LabelSet.of_node(node)
    taints = [t for t in node.taints if t.key not in _BORNE]
    expected = [
        d.requirements
        for d in daemons
        if tolerates(d.requirements, taints)
        and any(labels.compatible(a) for a in LabelSet.alternatives(d.requirements))
    ]
    there = [p.requirements for p in pods if p.upkeep is not None and p.upkeep.of_daemon]
    wanted, held = _sum(expected), _sum(there)
    amounts = {name: amount - held.get(name, 0) for name, amount in sorted(wanted.items())}
    return {name: amount for name, amount in amounts.items() if amount > 0}, _left_over(expected, there)


def _sum(requirements: Iterable[Requirements]) -> dict[str, int]:
    total: dict[str, int] = {}
    for r in requirements:
        total["pods"] = total.get("pods", 0) + 1
        for name, amount in r.requests.items():
            if name != "pods" and is_of_nodes(name):
                total[name] = total.get(name, 0) + amount
    return total


def _left_over(expected: Iterable[Requirements], there: Iterable[Requirements]) -> Ask:
    served: list[DeviceRequest] = [request for r in there for request in r.devices]
    left: list[DeviceRequest] = []
    for request in (request for r in expected for request in r.devices):
        if request in served:
            served.remove(request)
        else:
            left.append(request)
    return tuple(left)
