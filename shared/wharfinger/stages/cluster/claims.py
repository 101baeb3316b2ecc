"""Nodes that were asked for, until they come: which have come, which will not, and which nobody needs any more.

A node is known by the claim's name in its label `wharfinger.io/node-claim`, or by what the cluster says of the claim. One that
is not launched within five minutes (where the cluster says so much) or has not come within fifteen is given up, and what it was
to be is not asked for again for a while [Karpenter's liveness]. A pool of a fixed size is filled up by claims that are for nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

import msgspec

from wharfinger.domain.cluster_objects import NodeClaimStatus
from wharfinger.domain.instance_types import dollars
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    CLAIM_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_HASH,
    POOL_LABEL,
    ZONE_LABEL,
    NodePoolPolicy,
)
from wharfinger.domain.taints import Toleration
from wharfinger.domain.value import digest
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption.prices import Prices
from wharfinger.engine.provisioning.problem import NewClaim, Problem, Wanted
from wharfinger.engine.provisioning.solve import solve
from wharfinger.events.decisions import Explanation
from wharfinger.events.provisioning import ClaimOutcome, NodeClaimEnded, NodeClaimRequested
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.choosing import lacking, waits_for_rooms
from wharfinger.stages.cluster.explain import cut
from wharfinger.stages.cluster.state import ClusterState
from wharfinger.stages.pools import COMES_WITHIN_US, OpenClaim
from wharfinger.stages.scenes import used

LAUNCHED_WITHIN_US: Micros = 300 * 1_000_000
"""How long a claim may be without a machine, where its cluster says whether it has one."""


# --- asking


def requested(
    state: ClusterState,
    claim: NewClaim,
    name: str,
    until: Micros,
    cause: UUID | None,
    note: str,
    command: str = "",
    ceiling: int = 0,
) -> Draft:
    """A claim as it goes to whoever makes nodes: what its pool says of them is in it."""
    pool = state.policies.of(state.cluster)[claim.pool]
    data = NodeClaimRequested(
        state.cluster, name, claim.pool, claim.requirements, claim.instance_types, dict(sorted(claim.requests.items())),
        {of: count for of, count in sorted(claim.pods.items()) if of in state.book.held}, claim.price, until, ceiling,
        command, {**pool.labels, POOL_LABEL: pool.name}, _annotations(pool), pool.taints, pool.startup_taints,
        pool.node_class, pool.expire_after_s, pool.termination_grace_s, Explanation(note=cut(note)),
    )  # fmt: skip
    return Draft(data, name, "claimed", cause)


def _annotations(pool: NodePoolPolicy) -> dict[str, str]:
    return {**pool.annotations, **({POOL_HASH: pool.digest} if pool.digest else {})}


def name_of(state: ClusterState, what: str, after: int = 0) -> str:
    """A name that nothing of this stream has had: `after` so many that are given before it is."""
    return f"{what}-{digest((state.stream, state.named + after), 10)}"


def in_words(claim: NewClaim) -> str:
    types = claim.instance_types
    cheapest = f"{types[0]} at {dollars(claim.price)}" if types else "nothing"
    others = (
        "" if len(types) < 2 else " or 1 other type" if len(types) == 2 else f" or one of {len(types) - 1} other types"
    )
    return f"pool {claim.pool}: {cheapest}{others}"


# --- waiting for them


def follow_claims(state: ClusterState, at: Micros) -> Iterator[Draft]:
    """Those that have come, and those that will not."""
    if not state.pools.claims:
        return
    come, told = nodes_by_claim(state), _told(state)
    for name, claim in sorted(state.pools.claims.items()):
        status = told.get(name)
        node = come.get(name) or ("" if status is None else status.node)
        if node in state.book.nodes:
            yield _registered(state, claim, state.book.nodes[node])
        elif (failed := _given_up(claim, status, at)) is not None:
            outcome, reason = failed
            yield ended(state, claim, outcome, reason, status)


def nodes_by_claim(state: ClusterState) -> dict[str, str]:
    """Of two nodes for one claim the first by name."""
    found: dict[str, str] = {}
    for name, node in sorted(state.book.nodes.items()):
        if CLAIM_LABEL in node.labels:
            found.setdefault(node.labels[CLAIM_LABEL], name)
    return found


def _told(state: ClusterState) -> Mapping[str, NodeClaimStatus]:
    return {status.name: status for status in state.book.objects.node_claims}


def _given_up(claim: OpenClaim, status: NodeClaimStatus | None, at: Micros) -> tuple[ClaimOutcome, str] | None:
    if status is not None and status.launched is not True and status.failure:
        return "failed", status.failure
    if status is not None and status.deleting:
        return "failed", "its cluster takes it away"
    if at >= claim.until_us:
        return "timed-out", f"no node has come within {(claim.until_us - claim.asked_us) // 1_000_000} s"
    if status is not None and status.launched is not True and at >= claim.asked_us + LAUNCHED_WITHIN_US:
        return "timed-out", f"nothing was launched within {LAUNCHED_WITHIN_US // 1_000_000} s"
    return None


def _registered(state: ClusterState, claim: OpenClaim, node: Node) -> Draft:
    labels = node.labels
    data = NodeClaimEnded(
        state.cluster, claim.claim, claim.pool, "registered", node.name, labels.get(INSTANCE_TYPE_LABEL, ""),
        labels.get(ZONE_LABEL, ""), labels.get(CAPACITY_TYPE_LABEL, ""), price_of(state, node, claim.pool),
    )  # fmt: skip
    return Draft(data, claim.claim, "registered")


def price_of(state: ClusterState, node: Node, pool: str) -> int:
    """0: not known."""
    policy = state.policies.of(state.cluster).get(pool)
    if policy is None:
        return 0
    prices = Prices(state.policies.types, state.policies.overlays, frozenset())
    return prices.bought(node, policy).price or 0


def ended(
    state: ClusterState, claim: OpenClaim, outcome: ClaimOutcome, reason: str, status: NodeClaimStatus | None = None,
    cause: UUID | None = None,
) -> Draft:  # fmt: skip
    bought = ("", "", "") if status is None else (status.instance_type, status.zone, status.capacity_type)
    data = NodeClaimEnded(state.cluster, claim.claim, claim.pool, outcome, "", *bought, reason=reason)
    return Draft(data, claim.claim, outcome, cause)


def next_due(state: ClusterState) -> Micros | None:
    claims = state.pools.claims
    if not claims:
        return None
    told = _told(state)
    dues = [claim.until_us for claim in claims.values()]
    for name, claim in claims.items():
        status = told.get(name)
        if status is not None and status.launched is not True:
            dues.append(claim.asked_us + LAUNCHED_WITHIN_US)
    return min(dues)


# --- for nobody


def cancel_unneeded(state: ClusterState) -> Iterator[Draft]:
    """Claims for replicas that have found a place, or are wanted no more. What is needed is counted on the oldest claims first."""
    need = {name: lacking(state.book.held[name]) for name in state.book.unsettled}
    for binding in need:
        need[binding] -= waits_for_rooms(state, binding, state.at)
    for claim in sorted(state.pools.claims.values(), key=lambda c: (c.until_us, c.claim)):
        if claim.command or not claim.replicas:
            continue
        used_by = {name: min(count, need.get(name, 0)) for name, count in claim.replicas.items()}
        if not any(count > 0 for count in used_by.values()):
            yield ended(state, claim, "cancelled", "nothing waits for it any more")
        for name, count in used_by.items():
            need[name] = need.get(name, 0) - max(0, count)


def fill_static_pools(state: ClusterState, at: Micros) -> Iterator[Draft]:
    """A pool of a fixed size has as many nodes and claims as it says. Too many nodes are taken away as a command; too many
    claims are not waited for."""
    for pool in state.policies.of(state.cluster).values():
        if pool.replicas is None:
            continue
        missing = pool.replicas - _there(state, pool) - sum(c.pool == pool.name for c in state.pools.claims.values())
        if missing < 0:
            spare = [c for _, c in sorted(state.pools.claims.items()) if c.pool == pool.name and not c.command]
            for claim in spare[missing:]:
                yield ended(state, claim, "cancelled", f"pool {pool.name} has as many nodes as it says")
        elif missing > 0 and pool.name not in state.pools.backing_off(at):
            yield from _of_static(state, pool, missing, at)


def _there(state: ClusterState, pool: NodePoolPolicy) -> int:
    going = state.pools.disrupting()
    nodes = state.book.nodes.items()
    return sum(node.labels.get(POOL_LABEL) == pool.name and name not in going for name, node in nodes)


def _of_static(state: ClusterState, pool: NodePoolPolicy, missing: int, at: Micros) -> Iterator[Draft]:
    """One after another, so that each is held against what the limits leave. As a pool of any size, since a fixed one makes no
    nodes for pods."""
    anything = Requirements(node_selector={POOL_LABEL: pool.name}, tolerations=(Toleration(operator="Exists"),))
    policies, cluster = state.policies, state.cluster
    open_pool = msgspec.structs.replace(pool, replicas=None)
    for number in range(missing):
        amounts = used(state.book, policies, state.pools, cluster)
        problem = Problem(
            (Wanted(pool.name, anything),), (open_pool,), policies.types, policies.overlays, objects=state.book.objects,
            used=amounts, sold_out=state.pools.unavailable(policies.types, at),
        )  # fmt: skip
        claims = solve(problem).claims if pool.catalogue in policies.types else ()
        if not claims:
            return
        note = f"{in_words(claims[0])}; pool {pool.name} shall have {pool.replicas} nodes and lacks {missing - number}"
        yield requested(state, claims[0], name_of(state, pool.name), at + COMES_WITHIN_US, None, note)


def static_due(state: ClusterState, at: Micros) -> Micros | None:
    """When a pool of a fixed size that could not be filled may be tried again."""
    away = state.pools.backing_off(at)
    pools = state.policies.of(state.cluster).values()
    return min((away[pool.name] for pool in pools if pool.replicas is not None and pool.name in away), default=None)
