"""Node claims until their node is ready: which are launched, which have timed out, and which are
not needed any more.

A node is matched to its claim by the label `wharfinger.io/node-claim`, or by the claim's status
where the cluster reports it. A claim is given up when it is not launched within five minutes (where
the cluster reports that) or not ready within fifteen (a replacement: ten); its offering is then
avoided for a while [Karpenter's liveness]. Pools of a fixed size get claims without pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

import msgspec

from wharfinger.domain.cluster_objects import NodeClaimStatus
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
from wharfinger.domain.text import dollars
from wharfinger.domain.value import digest
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption.prices import NodePrices
from wharfinger.engine.provisioning.problem import NewClaim, Problem, WantedPods
from wharfinger.engine.provisioning.solve import solve
from wharfinger.events.decisions import (
    ClaimOutcome,
    Explanation,
    NodeClaimEnded,
    NodeClaimRequested,
)
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.explain import cut
from wharfinger.stages.cluster.node_search import lacking, waits_for_rooms
from wharfinger.stages.cluster.other_pods import others_without_room
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.cluster_snapshots import used
from wharfinger.stages.pools import COMES_WITHIN_US, OpenClaim

LAUNCHED_WITHIN_US: Micros = 300 * 1_000_000
"""Time within which a claim must have a machine, in microseconds, where the cluster reports
that."""


# --- asking


def requested(
    state: ClusterStageState,
    claim: NewClaim,
    name: str,
    until: Micros,
    cause: UUID | None,
    note: str,
    command: str = "",
    ceiling: int = 0,
) -> Draft:
    """Drafts the decision to request one node.

    - `claim`: the node to request, as Solve (the simulation that puts pods on nodes) computed it:
      pool, requirements, instance types and pods, among others.
    - `name`: the name of the new node claim.
    - `until`: when the node claim times out.
    - `cause`: the event or decision that led to the request; `note`: a sentence for the record.
    - `command`: the disruption command, if the node is a replacement for the nodes that the command
      removes; empty: the node is no replacement.
    - `ceiling`: the node must cost less than this, in billionths of a dollar an hour; 0: no limit.

    Labels, annotations, taints and lifetimes come from the pool of the node.
    """
    pool = state.policies.of(state.cluster)[claim.pool]
    data = NodeClaimRequested(
        state.cluster,
        name,
        claim.pool,
        claim.requirements,
        claim.instance_types,
        dict(sorted(claim.requests.items())),
        {of: count for of, count in sorted(claim.pods.items()) if of in state.book.held},
        claim.price,
        until,
        ceiling,
        command,
        {**pool.labels, POOL_LABEL: pool.name},
        _annotations(pool),
        pool.taints,
        pool.startup_taints,
        pool.node_class,
        pool.expire_after_s,
        pool.termination_grace_s,
        Explanation(note=cut(note)),
        {
            key: count
            for key, count in sorted(claim.pods.items())
            if key not in state.book.held and key in state.book.waiting.by_class
        },
    )
    return Draft(data, name, "claimed", cause)


def _annotations(pool: NodePoolPolicy) -> dict[str, str]:
    return {**pool.annotations, **({POOL_HASH: pool.digest} if pool.digest else {})}


def name_of(state: ClusterStageState, what: str, after: int = 0) -> str:
    """Returns a name for a claim or command that is unique in this stream. `what`: its prefix.
    `after`: how many names are assigned before it in the same round."""
    return f"{what}-{digest((state.stream, state.named + after), 10)}"


def in_words(claim: NewClaim) -> str:
    types = claim.instance_types
    cheapest = f"{types[0]} at {dollars(claim.price)}" if types else "nothing"
    others = (
        ""
        if len(types) < 2
        else " or 1 other type"
        if len(types) == 2
        else f" or one of {len(types) - 1} other types"
    )
    return f"pool {claim.pool}: {cheapest}{others}"


# --- waiting for them


def follow_claims(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Drafts the end of node claims, in order of name. The outcome is `registered` if the node of
    the claim exists, and `failed` or `timed-out` if the claim is given up. All other claims stay
    open.

    A claim is given up if its node does not exist after 15 minutes; for a replacement in a
    disruption command after 10 minutes. Where the cluster reports the status of claims, a claim is
    also given up if no machine was launched within 5 minutes, and at once if the launch failed or
    the claim is being deleted, or is gone after it was reported. Karpenter deletes a claim for
    which its provider has no capacity.
    """
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


def nodes_by_claim(state: ClusterStageState) -> dict[str, str]:
    """Returns a map from claim to the node whose claim label names it. If two nodes have the same
    label, the first by name counts."""
    found: dict[str, str] = {}
    for name, node in sorted(state.book.nodes.items()):
        if CLAIM_LABEL in node.labels:
            found.setdefault(node.labels[CLAIM_LABEL], name)
    return found


def _told(state: ClusterStageState) -> Mapping[str, NodeClaimStatus]:
    return {status.name: status for status in state.book.objects.node_claims}


def _given_up(
    claim: OpenClaim, status: NodeClaimStatus | None, at: Micros
) -> tuple[ClaimOutcome, str] | None:
    if status is not None and status.launched is not True and status.failure:
        return "failed", status.failure
    if status is not None and status.deleting:
        return "failed", "its cluster takes it away"
    if status is None and claim.observed:
        return "failed", "its cluster has deleted it"
    if at >= claim.until_us:
        return (
            "timed-out",
            f"no node has come within {(claim.until_us - claim.asked_us) // 1_000_000} s",
        )
    if (
        status is not None
        and status.launched is not True
        and at >= claim.asked_us + LAUNCHED_WITHIN_US
    ):
        return "timed-out", f"nothing was launched within {LAUNCHED_WITHIN_US // 1_000_000} s"
    return None


def _registered(state: ClusterStageState, claim: OpenClaim, node: Node) -> Draft:
    labels = node.labels
    data = NodeClaimEnded(
        state.cluster,
        claim.claim,
        claim.pool,
        "registered",
        node.name,
        labels.get(INSTANCE_TYPE_LABEL, ""),
        labels.get(ZONE_LABEL, ""),
        labels.get(CAPACITY_TYPE_LABEL, ""),
        price_of(state, node, claim.pool),
    )
    return Draft(data, claim.claim, "registered")


def price_of(state: ClusterStageState, node: Node, pool: str) -> int:
    """Returns the price of a node by the catalogue of its pool, in billionths of a dollar an hour;
    0 if it is not known."""
    policy = state.policies.of(state.cluster).get(pool)
    if policy is None:
        return 0
    prices = NodePrices(state.policies.types, state.policies.overlays, frozenset())
    return prices.bought(node, policy).price or 0


def ended(
    state: ClusterStageState,
    claim: OpenClaim,
    outcome: ClaimOutcome,
    reason: str,
    status: NodeClaimStatus | None = None,
    cause: UUID | None = None,
) -> Draft:
    bought = (
        ("", "", "")
        if status is None
        else (status.instance_type, status.zone, status.capacity_type)
    )
    data = NodeClaimEnded(
        state.cluster, claim.claim, claim.pool, outcome, "", *bought, reason=reason
    )
    return Draft(data, claim.claim, outcome, cause)


def next_due(state: ClusterStageState) -> Micros | None:
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


# --- claims without replicas


def cancel_unneeded(state: ClusterStageState) -> Iterator[Draft]:
    """Cancels open node claims for which no replica waits any more, because the replicas were
    placed elsewhere or are no longer wanted.

    A replica waits for a claim if it has no node and no reserved room on an existing node; waiting
    pods of other schedulers count as replicas of their requirements. Waiting replicas are assigned
    to the claims of their binding, the claim with the earliest timeout first. A claim without a
    replica is cancelled. Example: 3 replicas wait; three claims were made for 2, 2 and 1 replicas.
    They get 2, 1 and 0, so the third is cancelled.

    Claims of disruption commands, and claims of static pools (pools with a fixed number of nodes),
    are not cancelled here.
    """
    need = {name: lacking(state.book.held[name]) for name in state.book.unsettled}
    for binding in need:
        need[binding] -= waits_for_rooms(state, binding, state.at)
    others = {key for claim in state.pools.claims.values() for key in claim.others}
    need.update({key: others_without_room(state, key) for key in sorted(others)})
    for claim in sorted(state.pools.claims.values(), key=lambda c: (c.until_us, c.claim)):
        if claim.command or not (claim.replicas or claim.others):
            continue
        wanted = {**claim.replicas, **claim.others}
        used_by = {name: min(count, need.get(name, 0)) for name, count in wanted.items()}
        if not any(count > 0 for count in used_by.values()):
            yield ended(state, claim, "cancelled", "nothing waits for it any more")
        for name, count in used_by.items():
            need[name] = need.get(name, 0) - max(0, count)


def fill_static_pools(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Keeps each static pool (a pool with a fixed number of nodes) at its number: drafts requests
    for the missing nodes, and cancels node claims beyond the number. Example: 5 wanted, 3 nodes and
    1 open claim: 1 node is requested.

    Nodes that are being removed are not counted. If there are too many nodes and claims, only
    claims that belong to no disruption command are cancelled, starting with the last in order of
    name; nodes are removed elsewhere, by disruption commands. For a pool in back-off (its last
    nodes could not be created) nothing is requested.
    """
    for pool in state.policies.of(state.cluster).values():
        if pool.replicas is None:
            continue
        missing = (
            pool.replicas
            - _there(state, pool)
            - sum(c.pool == pool.name for c in state.pools.claims.values())
        )
        if missing < 0:
            spare = [
                c
                for _, c in sorted(state.pools.claims.items())
                if c.pool == pool.name and not c.command
            ]
            for claim in spare[missing:]:
                yield ended(
                    state, claim, "cancelled", f"pool {pool.name} has as many nodes as it says"
                )
        elif missing > 0 and pool.name not in state.pools.backing_off(at):
            yield from _of_static(state, pool, missing, at)


def _there(state: ClusterStageState, pool: NodePoolPolicy) -> int:
    going = state.pools.disrupting()
    nodes = state.book.nodes.items()
    return sum(
        node.labels.get(POOL_LABEL) == pool.name and name not in going for name, node in nodes
    )


def _of_static(
    state: ClusterStageState, pool: NodePoolPolicy, missing: int, at: Micros
) -> Iterator[Draft]:
    """Drafts up to `missing` requests for nodes of a static pool (a pool with a fixed number of
    nodes). Each node is computed by one call of `solve` (the simulation that puts pods on nodes).

    `solve` creates no nodes of static pools. So `solve` gets the pool without its fixed number, and
    one pod that requests nothing and selects the pool. The caller folds each request before the
    next node is computed, so that the new node counts against the limits of the pool. Stops when
    `solve` cannot create a node.
    """
    anything = Requirements(
        node_selector={POOL_LABEL: pool.name}, tolerations=(Toleration(operator="Exists"),)
    )
    policies, cluster = state.policies, state.cluster
    open_pool = msgspec.structs.replace(pool, replicas=None)
    for number in range(missing):
        amounts = used(state.book, policies, state.pools, cluster)
        problem = Problem(
            (WantedPods(pool.name, anything),),
            (open_pool,),
            policies.types,
            policies.overlays,
            objects=state.book.objects,
            used=amounts,
            sold_out=state.pools.unavailable(policies.types, at),
        )
        claims = solve(problem).claims if pool.catalogue in policies.types else ()
        if not claims:
            return
        note = (
            f"{in_words(claims[0])}; pool {pool.name} shall have {pool.replicas} nodes and lacks "
            f"{missing - number}"
        )
        yield requested(
            state, claims[0], name_of(state, pool.name), at + COMES_WITHIN_US, None, note
        )


def static_due(state: ClusterStageState, at: Micros) -> Micros | None:
    """Returns the earliest time at which the back-off of a static pool ends and its missing nodes
    are requested again; None if no static pool is in back-off."""
    away = state.pools.backing_off(at)
    pools = state.policies.of(state.cluster).values()
    return min(
        (away[pool.name] for pool in pools if pool.replicas is not None and pool.name in away),
        default=None,
    )
