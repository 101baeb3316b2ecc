"""The input of provisioning and disruption, built from a cluster's occupancy and its pools' facts.

The descheduler builds a snapshot to find commands, the cluster stage to validate them, both with
the same functions: where their inputs agree, their snapshots are equal. Reservations (pending
moves, nominations, pending claims) are included, so that no capacity is promised twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from wharfinger.domain.ids import ClassKey
from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.node_pool import CLAIM_LABEL, INSTANCE_TYPE_LABEL, POOL_LABEL
from wharfinger.domain.value import digest
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption.cluster_snapshot import ClusterSnapshot
from wharfinger.engine.nodes.occupancy import Occupancy, Replica
from wharfinger.engine.provisioning.problem import InFlight, Problem, SolveOptions, WantedPods
from wharfinger.kernel.decider import Micros
from wharfinger.stages.options import least_saving, options_of
from wharfinger.stages.pools import (
    COMES_WITHIN_US,
    OpenClaim,
    PoolFacts,
    PoolPolicies,
    goes_with_node,
)


def scene_of(
    book: Occupancy,
    policies: PoolPolicies,
    facts: PoolFacts,
    cluster: str,
    at: Micros,
    reserved: Sequence[Pod] = (),
    nominated: Iterable[str] = (),
    waiting: Sequence[WantedPods] = (),
    options: SolveOptions | None = None,
) -> ClusterSnapshot:
    """Builds the input of disruption (`ClusterSnapshot`) for one cluster at time `at`.

    - `book`: nodes and pods of the cluster.
    - `policies`: node pools and prices of all clusters.
    - `facts`: node claims, running disruption commands, and idle times of the nodes of the cluster.
    - `reserved`: reserved room, in the form of pods on the nodes that have the reservation.
    - `nominated`: names of nodes on which room is reserved. The function adds two kinds of nodes
      that were created lately: nodes that `facts` still reserves for the pods of their node
      claim, and observed nodes whose node claim is still open.
    - `waiting`: pods without a node.
    - `options`: options of Solve (the simulation that puts pods on nodes); None: the options merged
      from the pools of the cluster.
    """
    types, pools = policies.types, tuple(policies.of(cluster).values())
    return ClusterSnapshot(
        at,
        nodes_of(book),
        tuple(pods_of(book)),
        pools,
        types,
        policies.overlays,
        book.objects,
        in_flight(book, facts),
        dict(sorted(facts.quiet_since.items())),
        facts.nominated(at) | frozenset(nominated) | frozenset(_come(book, facts).values()),
        frozenset(book.closed),
        facts.disrupting(),
        tuple(reserved),
        tuple(waiting),
        used(book, policies, facts, cluster),
        facts.unavailable(types, at),
        options or options_of(pools),
        least_saving(pools),
    )


def problem_of(
    book: Occupancy,
    policies: PoolPolicies,
    facts: PoolFacts,
    cluster: str,
    at: Micros,
    wanted: Sequence[WantedPods],
    reserved: Sequence[Pod] = (),
    options: SolveOptions | None = None,
) -> Problem:
    """Builds the input of provisioning (`Problem`): which nodes to create in one cluster for the
    pods in `wanted`, at time `at`.

    Three things may not be used for these pods:

    - pools with an incomplete catalogue of instance types, or in back-off (the last nodes of the
      pool could not be created);
    - nodes that are being removed;
    - nodes that are not initialised although 15 minutes have passed since the node was first seen
      or since its pods last changed, whichever is later.

    Parameters:

    - `book`: nodes and pods of the cluster.
    - `policies`: node pools and prices of all clusters.
    - `facts`: node claims, running disruption commands, and idle times of the nodes of the cluster.
    - `reserved`: reserved room, in the form of pods on the nodes that have the reservation.
    - `options`: options of Solve (the simulation that puts pods on nodes); None: the options merged
      from all pools of the cluster.
    """
    types, away = policies.types, facts.backing_off(at)
    pools = [
        p for name, p in policies.of(cluster).items() if p.catalogue in types and name not in away
    ]
    late = {name for name, node in book.nodes.items() if not policies.initialized(cluster, node)}
    never = {name for name in late if at - facts.quiet_since.get(name, at) > COMES_WITHIN_US}
    going = {name for name in facts.disrupting() if name in book.nodes}
    return Problem(
        tuple(wanted),
        tuple(pools),
        types,
        policies.overlays,
        nodes_of(book),
        (*pods_of(book), *reserved),
        book.objects,
        in_flight(book, facts),
        frozenset(going | never),
        frozenset(late - never),
        used(book, policies, facts, cluster),
        facts.unavailable(types, at),
        options or options_of(policies.of(cluster).values()),
    )


# --- nodes and pods of a book


def nodes_of(book: Occupancy) -> tuple[Node, ...]:
    """Returns the nodes in order of name. Closed nodes are marked unschedulable."""
    return tuple(
        [
            msgspec.structs.replace(node, unschedulable=True) if name in book.closed else node
            for name, node in sorted(book.nodes.items())
        ]
    )


def pods_of(book: Occupancy) -> Iterator[Pod]:
    """Yields the pods of all nodes, in order of node name. Each placed replica is yielded once as a
    pod of its binding, whether the cluster has reported the pod or not. Every other reported pod is
    yielded as reported. If two reported pods name the same replica, one of the two is taken as the
    replica, and the other is yielded as a separate pod."""
    for name in sorted(book.nodes):
        here = book.on_node.get(name, {})
        seen = {(pod.binding, pod.ordinal): pod for pod in book.pods.get(name, ())}
        for pod in book.pods.get(name, ()):
            key = (pod.binding, pod.ordinal)
            if key in here and seen[key].uid == pod.uid:
                # of two pods that claim one replica, one is it and the other is a pod of its own,
                # as in the book
                continue
            yield msgspec.structs.replace(pod, node=name)
        for (binding, ordinal), replica in sorted(here.items(), key=lambda item: item[0]):
            yield replica_pod(
                book.held[binding].priority, binding, ordinal, replica, seen.get((binding, ordinal))
            )


def replica_pod(
    priority: int, binding: str, ordinal: int, replica: Replica, seen: Pod | None = None
) -> Pod:
    """Returns a placed replica in the form of a pod. `seen`: the pod that the cluster reported for
    this replica; None: no pod was reported. The devices and the observed details (conditions, among
    others) come from `seen`. If `seen` names no devices, the devices that were assigned to the
    replica are used."""
    devices = seen.devices if seen is not None and seen.devices else replica.devices
    return Pod(
        uid_of(binding, ordinal),
        f"{binding}-{ordinal}",
        replica.cls.requirements,
        replica.node,
        binding,
        ordinal,
        tuple(devices),
        priority,
        replica.at,
        False,
        None if seen is None else seen.upkeep,
    )


def reserved_pod(requirements: Requirements, name: str, node: str, priority: int = 0) -> Pod:
    """Returns a pod that occupies the room reserved on a node for a replica that has not arrived
    yet."""
    return Pod(f"promised {name}", f"promised-{name}", requirements, node, priority=priority)


def uid_of(binding: str, ordinal: int) -> str:
    return f"replica {binding} {ordinal}"


def contents_of(book: Occupancy, node: str) -> str:
    """Returns a digest of the pods on a node with their requirements. Pods that belong to the node
    (daemon pods and mirror pods) are left out. Equal digests mean equal pods, for two nodes or for
    one node at two times.

    A placed replica is in the digest by binding and ordinal, whether its pod was reported or not.
    So the digest stays the same when the pod of a placed replica is reported for the first time.
    """
    company = {
        (binding, str(ordinal)): replica.cls.pod_key
        for (binding, ordinal), replica in book.on_node.get(node, {}).items()
    }
    for pod in book.pods.get(node, ()):
        if not goes_with_node(pod):
            key = (
                (pod.binding, str(pod.ordinal))
                if pod.binding and pod.ordinal >= 0
                else ("", pod.uid)
            )
            company.setdefault(key, pod.requirements.pod_key)
    return digest(sorted(company.items()))


# --- claims and limits


def in_flight(book: Occupancy, facts: PoolFacts) -> tuple[InFlight, ...]:
    """Returns the open node claims whose node has not been observed, in order of claim name. Each
    item has the pool, the possible instance types, and the pods for which the node was requested.
    """
    come = _come(book, facts)
    return tuple(
        [
            InFlight(
                claim.claim,
                claim.pool,
                claim.requirements,
                claim.instance_types,
                _pods(book, claim),
            )
            for name, claim in sorted(facts.claims.items())
            if name not in come
        ]
    )


def _come(book: Occupancy, facts: PoolFacts) -> dict[str, str]:
    """Returns open claim -> its node, for claims whose node was observed before the end of the
    claim was folded."""
    if not facts.claims:
        return {}
    labelled = {
        node.labels.get(CLAIM_LABEL, ""): name
        for name, node in sorted(book.nodes.items(), reverse=True)
    }
    return {claim: labelled[claim] for claim in facts.claims if claim in labelled}


def _pods(book: Occupancy, claim: OpenClaim) -> tuple[tuple[Requirements, int], ...]:
    """Returns (requirements, number of replicas) for each binding that the claim is for and that
    still exists, in order of name, and then the same for the waiting pods of other schedulers."""
    ours = [
        (book.held[name].cls.requirements, count)
        for name, count in sorted(claim.replicas.items())
        if name in book.held and count > 0
    ]
    alike = book.waiting.by_class
    return (
        *ours,
        *(
            (next(iter(alike[key].values())).requirements, count)
            for key, count in sorted(claim.others.items())
            if key in alike
        ),
    )


# --- waiting pods of other schedulers

Reserved = Mapping[ClassKey, int]
"""Key of their requirements -> number of pods for which room is reserved."""


def counts(book: Occupancy, pod: WaitingPod) -> bool:
    """Whether the pod waits for a node as a pod of another scheduler: it has none yet, it is no
    replica of a binding that is assigned to this cluster, it has no scheduling gates, and no
    DaemonSet made it for a node of its own. Where waiting pods are placed, those of this scheduler
    count as well until they have a place."""
    traits = pod.requirements.traits
    by_pods = book.places == "pods"
    return (
        book.waits(pod)
        and (pod.uid not in book.replica_of if by_pods else pod.binding not in book.held)
        and not traits.gates
        and traits.owner != "DaemonSet"
    )


def others_of_class(book: Occupancy, key: ClassKey) -> list[WaitingPod]:
    """Returns the waiting pods of other schedulers with these requirements, the oldest first."""
    found = [pod for pod in book.waiting.by_class.get(key, {}).values() if counts(book, pod)]
    return sorted(found, key=lambda pod: (-pod.priority, pod.created_us, pod.uid))


def others_reserved(book: Occupancy, pod: WaitingPod) -> bool:
    """Whether the scheduler of the pod keeps room for it on a node of this cluster."""
    return pod.nominated in book.nodes


def others_in_need(
    book: Occupancy, facts: PoolFacts, reserved: Reserved | None = None
) -> list[WantedPods]:
    """Returns the waiting pods of other schedulers that neither their scheduler nor this plane has
    a place for, as pods for Solve. Left out are as many as an open claim was requested for, and
    `reserved`. One entry for each kind of requirements, in order of their keys; the name of an
    entry is that key. The priority is the highest, and the age that of the oldest."""
    expected = dict(reserved or {})
    for claim in facts.claims.values():
        for key, count in claim.others.items():
            expected[key] = expected.get(key, 0) + count
    wanted: list[WantedPods] = []
    for key in sorted(book.waiting.by_class):
        pods = [pod for pod in others_of_class(book, key) if not others_reserved(book, pod)]
        left = len(pods) - expected.get(key, 0)
        if left > 0:
            oldest = min(pod.created_us for pod in pods)
            wanted.append(WantedPods(key, pods[0].requirements, left, pods[0].priority, oldest))
    return wanted


def used(
    book: Occupancy, policies: PoolPolicies, facts: PoolFacts, cluster: str
) -> dict[str, dict[str, int]]:
    """Returns how much of the limits of each pool is used: pool -> resource -> sum of the
    capacities of the nodes in the pool. The number of nodes is included under the resource name
    `nodes`.

    A node of an unknown instance type is added with its allocatable resources. An open node claim
    whose node was not observed yet is added as one node; for each resource its amount is the
    largest capacity among the possible types of the claim. Example: two observed nodes with 4 CPUs
    each, and a claim for a type with 4 or 8 CPUs: 16 CPUs, 3 nodes. `cluster`: only the pools of
    this cluster are in the result.
    """
    pools, types = policies.of(cluster), policies.types
    known = {name: {t.name: t for t in of_catalogue} for name, of_catalogue in types.items()}
    sums: dict[str, dict[str, int]] = {}

    def add(pool: str, amounts: Mapping[str, int]) -> None:
        into = sums.setdefault(pool, {})
        for resource, amount in (*amounts.items(), ("nodes", 1)):
            into[resource] = into.get(resource, 0) + amount

    for _, node in sorted(book.nodes.items()):
        pool = pools.get(node.labels.get(POOL_LABEL, ""))
        if pool is not None:
            found = known.get(pool.catalogue, {}).get(node.labels.get(INSTANCE_TYPE_LABEL, ""))
            add(pool.name, node.allocatable if found is None else found.capacity)
    come = _come(book, facts)
    for name, claim in sorted(facts.claims.items()):
        if claim.pool in pools and name not in come:
            of_pool = known.get(pools[claim.pool].catalogue, {})
            add(
                claim.pool,
                _largest([of_pool[name] for name in claim.instance_types if name in of_pool]),
            )
    return sums


def _largest(types: Sequence[InstanceType]) -> dict[str, int]:
    most: dict[str, int] = {}
    for found in types:
        for resource, amount in found.capacity.items():
            most[resource] = max(amount, most.get(resource, 0))
    return most
