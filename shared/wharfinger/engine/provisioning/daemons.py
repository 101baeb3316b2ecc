"""Daemon overhead: what DaemonSet pods use of a new node.

Which daemons run on a new node depends on its instance type: a daemon may require a GPU, or an
architecture. So the overhead is computed per instance type, and types with the same daemons form a
group. A daemon counts where its selector and one of its required terms can match; preferences and
PreferNoSchedule taints do not matter. One that requests more than the whole type will not run there
and uses nothing.
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
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    )
)
"""Taints that every DaemonSet pod tolerates: the DaemonSet controller adds these tolerations, even
if the pod template does not have them."""


@dataclass(frozen=True, slots=True, eq=False)
class DaemonGroup:
    """Instance types whose new nodes run the same daemons. `names`: namespace/name of each daemon.
    `among` bool[types]: the types. The daemons of one node together use `amounts`
    (int64[resources], pod slots included), `devices` and host `ports`."""

    names: tuple[str, ...]
    among: Mask
    amounts: Column
    devices: Ask = ()
    ports: tuple[HostPort, ...] = ()


def groups(
    types: Types, labels: LabelSet, taints: Sequence[Taint], daemons: Iterable[DaemonPods]
) -> tuple[DaemonGroup, ...]:
    """Groups instance types by the DaemonSet pods that run on new nodes of the type. Returns the
    groups: the types, and what the daemons of one node use together. Every type is in exactly one
    group. Sold-out types are included, because nodes that were requested earlier may have them.

    - `types`: the instance types. `daemons`: the DaemonSets of the cluster.
    - `labels`, `taints`: labels and taints of the new nodes of the pool.

    Example: one daemon runs everywhere, another only on nodes with a GPU. There are two groups:
    types with a GPU and types without one.
    """
    coming = [
        d
        for d in sorted(daemons, key=lambda d: (d.namespace, d.name))
        if tolerates(d.requirements, taints)
    ]
    on = np.array(
        [comes_to(types, labels, d.requirements) for d in coming], dtype=np.bool_
    ).reshape(len(coming), len(types))
    members: dict[bytes, list[int]] = {}
    for row in range(len(types)):
        members.setdefault(on[:, row].tobytes(), []).append(row)
    return tuple(
        _group(types, rows, [coming[i] for i in np.flatnonzero(on[:, rows[0]])])
        for rows in members.values()
    )


def tolerates(daemon: Requirements, taints: Sequence[Taint]) -> bool:
    return first_untolerated(taints, daemon.tolerations, ("NoSchedule", "NoExecute")) is None


def comes_to(types: Types, labels: LabelSet, daemon: Requirements) -> Mask:
    """Returns on which instance types a daemon would run, as bool[types]. A daemon runs on a new
    node if the node can match the daemon's node selector and one of its required node affinity
    terms, and if the empty node has enough resources and devices for the daemon.

    `labels`: labels of the new nodes of the pool. `daemon`: requirements of one daemon pod.
    """
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


def still_to_come(
    node: Node, pods: Iterable[Pod], daemons: Iterable[DaemonPods]
) -> tuple[dict[str, int], Ask]:
    """Computes how much of an existing node is to be kept for its missing DaemonSet pods. Returns
    (resource -> amount; devices). The amount of the resource "pods" is the number of these pods.

    It is not always known which pod belongs to which DaemonSet. So the result is a difference: the
    requests of all daemons that should run on the node - the requests of the daemon pods on the
    node. Negative amounts are left out.

    `pods`: the pods on the node. `daemons`: all DaemonSets of the cluster. Example: daemons with
    100 and 200 milli-CPU should run on the node, and one daemon pod with 100 is there. The result
    is 200.
    """
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
    return {name: amount for name, amount in amounts.items() if amount > 0}, _left_over(
        expected, there
    )


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
