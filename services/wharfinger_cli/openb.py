"""The public Alibaba openb trace as events: nodes become clusters, pods become bindings in the
order they arrived.

The trace knows one cluster. Its nodes are spread over N by a stable hash of their name, so that the
same N always gives the same fleet. Devices keep their model and stay one by one, and a pod that
shares a GPU asks for thousandths of one device. The trace's times only order the pods: how fast
they are sent is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.resources import DEVICE_MILLI, Device, DeviceRequest
from wharfinger.domain.value import stable_hash
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import buckets_for
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.envelope import derived_id
from wharfinger_cli.tables import TableRow, rows

NAMESPACE = "openb"
NODES_A_BUCKET = 64
MEBIBYTE = 1 << 20

PLACEMENTS: Mapping[str, Placement] = {
    "dynamic": Placement(replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True)),
    "aggregated": Placement(replicas=ReplicaScheduling("Divided", "Aggregated")),
}
"""How the pods' one replica is divided over the clusters: by the caller's choice."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class TracePod:
    """`gpu_milli`: thousandths of each of its `gpus`. `models`: the allowed ones joined by `|`,
    empty for any."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: str


def read_nodes(path: Path) -> list[TraceNode]:
    """The node list, plain or gzipped. CommandError: `file:line: column: what was expected`."""
    return [
        TraceNode(
            row.name("sn"),
            row.number("cpu_milli"),
            row.number("memory_mib"),
            row.devices("gpu"),
            row.optional("model"),
        )
        for row in rows(
            path, required=("sn", "cpu_milli", "memory_mib", "gpu", "model"), unique="sn"
        )
    ]


def read_pods(path: Path) -> list[TracePod]:
    """The pod list in order of arrival: by `creation_time` where the file has it, then as the file
    has them."""
    required = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    arrivals = [
        (row.number("creation_time", default=0), _pod(row))
        for row in rows(path, required, unique="name")
    ]
    arrivals.sort(key=lambda arrival: arrival[0])  # stable: equal times stay in file order
    return [pod for _, pod in arrivals]


def fleet(nodes: list[TraceNode], clusters: int) -> Iterator[Accepted]:
    """The clusters `openb-0` ... and all their nodes. A cluster without nodes is reported too,
    as empty."""
    parts: list[list[Node]] = [[] for _ in range(clusters)]
    for node in nodes:
        parts[stable_hash(node.name) % clusters].append(_node(node))
    for number, part in enumerate(parts):
        cluster = Cluster(name=f"{NAMESPACE}-{number}")
        yield accepted(ClusterObserved(cluster))
        for observed in buckets_for(
            cluster.name, part, at_least=max(1, -(-len(part) // NODES_A_BUCKET))
        ):
            yield accepted(observed)


def bindings(pods: list[TracePod], placement: Placement) -> Iterator[Accepted]:
    """One binding a pod, made as it is asked for."""
    # a few hundred distinct ones, shared
    classes: dict[tuple[int, int, int, int, str], Requirements] = {}
    for pod in pods:
        shape = (pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, pod.models)
        requirements = classes.get(shape)
        if requirements is None:
            requirements = classes[shape] = _requirements(pod)
        name = f"{NAMESPACE}/{pod.name}"
        yield accepted(
            BindingRequested(
                Binding(
                    name=name,
                    uid=str(derived_id("binding", name)),
                    resource=ObjectRef("v1", "Pod", pod.name, NAMESPACE),
                    replicas=1,
                    requirements=requirements,
                    placement=placement,
                )
            )
        )


def _node(node: TraceNode) -> Node:
    return Node(
        name=node.name,
        allocatable={"cpu": node.cpu_milli, "memory": node.memory_mib * MEBIBYTE},
        devices=(Device(model=node.model),) * node.gpus,
    )


def _requirements(pod: TracePod) -> Requirements:
    models = tuple(pod.models.split("|")) if pod.models else ()
    return Requirements(
        requests={"cpu": pod.cpu_milli, "memory": pod.memory_mib * MEBIBYTE},
        devices=(DeviceRequest(pod.gpus, pod.gpu_milli, models),) if pod.gpus else (),
    )


def _pod(row: TableRow) -> TracePod:
    pod = TracePod(
        row.name("name"),
        row.number("cpu_milli"),
        row.number("memory_mib"),
        row.devices("num_gpu"),
        row.number("gpu_milli"),
        row.optional("gpu_spec"),
    )
    if pod.gpus and not 0 < pod.gpu_milli <= DEVICE_MILLI:
        raise row.error(
            "gpu_milli", f"1 to {DEVICE_MILLI} thousandths of a GPU", str(pod.gpu_milli)
        )
    if pod.gpus > 1 and pod.gpu_milli != DEVICE_MILLI:
        raise row.error(
            "gpu_milli", f"{DEVICE_MILLI}, because num_gpu is {pod.gpus}", str(pod.gpu_milli)
        )
    return pod
