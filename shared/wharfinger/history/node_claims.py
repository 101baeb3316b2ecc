"""Nodes that were requested and what came of it, and nodes that may be taken away: what was
recorded, nothing decided.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.time import Micros
from wharfinger.events.decisions import (
    NodeClaim,
    NodeClaimResult,
    NodeRemoval,
    effect_of,
    kinds_about,
)
from wharfinger.events.registry import types_of
from wharfinger.events.streams import CLUSTER
from wharfinger.runtime.ledger import DecisionQuery, Ledger

OPEN, REGISTERED = "open", "registered"

_OF_CLAIMS = types_of(*kinds_about("claim"))
_OF_NODES = types_of(*kinds_about("node"))


@dataclass(frozen=True, slots=True)
class RequestedClaim:
    claim: NodeClaim
    ended: NodeClaimResult | None

    @property
    def state(self) -> str:
        return self.ended.outcome if self.ended is not None else OPEN


async def requested_claims(
    ledger: Ledger, cluster: str = "", since: Micros | None = None, until: Micros | None = None
) -> list[RequestedClaim]:
    """Every claim that was asked for in that time, in the order in which they were. `cluster`: only
    of this one."""
    found: dict[tuple[str, str], RequestedClaim] = {}
    query = DecisionQuery(f"{CLUSTER}{cluster}", types=_OF_CLAIMS, since=since)
    async for row in ledger.decisions(query):
        if until is not None and row.at > until:
            continue
        match effect_of(row.data()):
            case NodeClaim() as claim:
                found[claim.cluster, claim.claim] = RequestedClaim(claim, None)
            case NodeClaimResult() as ended if (ended.cluster, ended.claim) in found:
                claim = found[ended.cluster, ended.claim].claim
                found[ended.cluster, ended.claim] = RequestedClaim(claim, ended)
    return [one for one in found.values() if not cluster or one.claim.cluster == cluster]


async def removed_nodes(ledger: Ledger, cluster: str, since: Micros) -> dict[str, Micros]:
    """Nodes of the cluster that may be taken away -> when that was last decided."""
    found: dict[str, Micros] = {}
    query = DecisionQuery(f"{CLUSTER}{cluster}", types=_OF_NODES, since=since)
    async for row in ledger.decisions(query):
        effect = effect_of(row.data())
        if isinstance(effect, NodeRemoval) and effect.cluster == cluster:
            found[effect.node] = row.at
    return found
