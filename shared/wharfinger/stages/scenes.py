"""One cluster as provisioning and disruption look at it, made of its book and of what is known of its pools.

The descheduler makes a scene to find commands, the cluster stage to check them, and both by the same functions: where their books
agree they look at the same thing. What is promised already (moves under way, room that is kept, claims that have not come) is
in it, so that nothing is promised twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import CLAIM_LABEL, INSTANCE_TYPE_LABEL, POOL_LABEL
from wharfinger.domain.value import digest
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption.scene import Scene
from wharfinger.engine.nodes.occupancy import Occupancy, Replica
from wharfinger.engine.provisioning.problem import InFlight, Options, Problem, Wanted
from wharfinger.kernel.decider import Micros
from wharfinger.stages.options import least_saving, options_of
from wharfinger.stages.pools import COMES_WITHIN_US, OpenClaim, PoolFacts, PoolPolicies, goes_with_node


def scene_of(
    book: Occupancy,
    policies: PoolPolicies,
    facts: PoolFacts,
    cluster: str,
    at: Micros,
    reserved: Sequence[Pod] = (),
    nominated: Iterable[str] = (),
    waiting: Sequence[Wanted] = (),
    options: Options | None = None,
) -> Scene:
    """`reserved`: what is promised room on nodes, as pods there. `nominated`: nodes that somebody is promised, besides those
    that have just come for somebody, or whose claim is not said to have ended yet. `options`: None for what the pools say."""
    types, pools = policies.types, tuple(policies.of(cluster).values())
    return Scene(
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
    wanted: Sequence[Wanted],
    reserved: Sequence[Pod] = (),
    options: Options | None = None,
) -> Problem:
    """Pools whose catalogue is not known, or of which nobody can make nodes at present, are left out; nodes that have been there
    for long and are not ready still are not waited for. `options`: None for what all pools of the cluster say."""
    types, away = policies.types, facts.backing_off(at)
    pools = [p for name, p in policies.of(cluster).items() if p.catalogue in types and name not in away]
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
    """In order of name; those that are closed to new replicas are told as unschedulable."""
    return tuple([
        msgspec.structs.replace(node, unschedulable=True) if name in book.closed else node
        for name, node in sorted(book.nodes.items())
    ])  # fmt: skip


def pods_of(book: Occupancy) -> Iterator[Pod]:
    """By node. A placed replica is a pod of its binding, whether or not it was observed already; an observed pod that is no placed
    replica of ours counts as what it was observed to be."""
    for name in sorted(book.nodes):
        here = book.on_node.get(name, {})
        seen = {(pod.binding, pod.ordinal): pod for pod in book.pods.get(name, ())}
        for pod in book.pods.get(name, ()):
            key = (pod.binding, pod.ordinal)
            if key in here and seen[key].uid == pod.uid:
                continue  # of two pods that claim one replica, one is it and the other is a pod of its own, as in the book
            yield msgspec.structs.replace(pod, node=name)
        for (binding, ordinal), replica in sorted(here.items(), key=lambda item: item[0]):
            yield replica_pod(book.held[binding].priority, binding, ordinal, replica, seen.get((binding, ordinal)))


def replica_pod(priority: int, binding: str, ordinal: int, replica: Replica, seen: Pod | None = None) -> Pod:
    """`seen`: as it was observed."""
    devices = seen.devices if seen is not None and seen.devices else replica.devices
    return Pod(
        uid_of(binding, ordinal), f"{binding}-{ordinal}", replica.cls.requirements, replica.node, binding, ordinal,
        tuple(devices), priority, replica.at, False, None if seen is None else seen.upkeep,
    )  # fmt: skip


def reserved_pod(requirements: Requirements, name: str, node: str, priority: int = 0) -> Pod:
    """Room on a node that is promised to somebody who is not there yet."""
    return Pod(f"promised {name}", f"promised-{name}", requirements, node, priority=priority)


def uid_of(binding: str, ordinal: int) -> str:
    return f"replica {binding} {ordinal}"


def contents_of(book: Occupancy, node: str) -> str:
    """A digest of who is on a node and asks for what, daemons and mirrors apart: where it is the same, so is what it holds."""
    company = {
        (binding, str(ordinal)): replica.cls.pod_key
        for (binding, ordinal), replica in book.on_node.get(node, {}).items()
    }
    for pod in book.pods.get(node, ()):
        if not goes_with_node(pod):
            key = (pod.binding, str(pod.ordinal)) if pod.binding and pod.ordinal >= 0 else ("", pod.uid)
            company.setdefault(key, pod.requirements.pod_key)
    return digest(sorted(company.items()))


# --- claims and limits


def in_flight(book: Occupancy, facts: PoolFacts) -> tuple[InFlight, ...]:
    """Claims of which no node is there."""
    come = _come(book, facts)
    return tuple([
        InFlight(claim.claim, claim.pool, claim.requirements, claim.instance_types, _pods(book, claim))
        for name, claim in sorted(facts.claims.items())
        if name not in come
    ])  # fmt: skip


def _come(book: Occupancy, facts: PoolFacts) -> dict[str, str]:
    """Open claim -> its node, which is there already: who folds what others decide may see the node first."""
    if not facts.claims:
        return {}
    labelled = {node.labels.get(CLAIM_LABEL, ""): name for name, node in sorted(book.nodes.items(), reverse=True)}
    return {claim: labelled[claim] for claim in facts.claims if claim in labelled}


def _pods(book: Occupancy, claim: OpenClaim) -> tuple[tuple[Requirements, int], ...]:
    """Of bindings that are still held: what the others asked for is theirs no more."""
    return tuple([
        (book.held[name].cls.requirements, count)
        for name, count in sorted(claim.replicas.items())
        if name in book.held and count > 0
    ])  # fmt: skip


def used(book: Occupancy, policies: PoolPolicies, facts: PoolFacts, cluster: str) -> dict[str, dict[str, int]]:
    """Pool -> what its nodes and claims count against its limits: capacities, and `nodes`. Of a node whose instance type is in no
    catalogue what it can give to pods; of a claim the most that any of its types has, since it may become that."""
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
            add(claim.pool, _largest([of_pool[name] for name in claim.instance_types if name in of_pool]))
    return sums


def _largest(types: Sequence[InstanceType]) -> dict[str, int]:
    most: dict[str, int] = {}
    for found in types:
        for resource, amount in found.capacity.items():
            most[resource] = max(amount, most.get(resource, 0))
    return most
