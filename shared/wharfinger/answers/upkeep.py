"""The fact that scales a binding, or drains a cluster or node, made of what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from wharfinger.answers.facts import LatestFacts, known_facts
from wharfinger.answers.submit import SOURCE, submit
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.drain import (
    DRAIN,
    drained_cluster,
    drained_node,
    undrained_cluster,
    undrained_node,
)
from wharfinger.domain.node import Node
from wharfinger.domain.value import Value
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import SETTLING, ScheduleAnswer
from wharfinger.events.origin import Origin
from wharfinger.events.registry import types_of
from wharfinger.events.streams import FLEET
from wharfinger.history.names import UnknownNameError, meant
from wharfinger.runtime.ledger import ChangedSinceError, Ledger, LedgerError, causality

_SETTLING = types_of(*SETTLING)

TRIES = 10
"""How often a fact is made again because others have changed its subject in the meantime."""

MakeFact = Callable[[LatestFacts], Accepted]


@dataclass(frozen=True, slots=True)
class UpkeepResult:
    """`result`: changed, or unchanged where nothing new was said about the subject. `facts`:
    (topic, key) of what was said. `leaving`: the bindings that a drained cluster has to lose."""

    subject: str
    result: str
    facts: tuple[tuple[str, str], ...] = ()
    leaving: tuple[str, ...] = ()


async def tell(
    ledger: Ledger,
    make: MakeFact,
    *,
    source: str = SOURCE,
    origin: Origin | None = None,
    since: int | None = None,
) -> UpkeepResult:
    """Accept the fact that is made of what is known. LedgerError: it cannot be made. `since`: the
    seq of the intake up to which the caller has seen the subject: ChangedSinceError if it was
    changed after that. None: the fact is made again of what is known then."""
    if since is not None:
        return await _tell(ledger, make, source, origin, since)
    for _ in range(TRIES - 1):
        try:
            return await _tell(ledger, make, source, origin, await ledger.accepted_seq())
        except ChangedSinceError:
            pass
    return await _tell(ledger, make, source, origin, await ledger.accepted_seq())


async def _tell(
    ledger: Ledger, make: MakeFact, source: str, origin: Origin | None, since: int
) -> UpkeepResult:
    known = await known_facts(ledger)
    fact = make(known)
    leaving = await _leaving(ledger, known, fact)
    done = await submit(ledger, [fact], known, source=source, origin=origin, since=since)
    result = "changed" if done.accepted else "unchanged"
    return UpkeepResult(fact.subject, result, ((fact.topic.name, fact.key),), leaving)


async def _leaving(ledger: Ledger, known: LatestFacts, fact: Accepted) -> tuple[str, ...]:
    data = fact.data
    if not isinstance(data, ClusterObserved) or DRAIN not in data.cluster.taints:
        return ()
    names = [
        spec.name
        for spec in known.bindings
        if not any(one.tolerates(DRAIN) for one in spec.placement.tolerations)
    ]
    rows = await causality.latest_of(ledger.database, names, _SETTLING, FLEET)
    return tuple(
        name for name in names if name in rows and data.cluster.name in _clusters(rows[name].data())
    )


def _clusters(data: Value) -> set[str]:
    return {t.cluster for t in data.targets} if isinstance(data, ScheduleAnswer) else set()


def scaled(known: LatestFacts, binding: str, replicas: int) -> Accepted:
    """LedgerError: there is none, several are meant, or it has no replicas to count."""
    specs = {spec.name: spec for spec in known.bindings}
    spec = specs[meant(binding, specs)]
    if not spec.replicas and spec.requirements == type(spec.requirements)():
        raise LedgerError(f"{spec.name} has no replicas: it goes to its clusters as it is")
    return accepted(BindingRequested(msgspec.structs.replace(spec, replicas=replicas)))


def drained(known: LatestFacts, what: str) -> Accepted:
    """`what`: a cluster, or a node as `cluster/node` or by its name where only one cluster has it.
    LedgerError: none, or several."""
    return _changed(known, what, drained_cluster, drained_node)


def undrained(known: LatestFacts, what: str) -> Accepted:
    """As `drained`, and the way back."""
    return _changed(known, what, undrained_cluster, undrained_node)


def _changed(
    known: LatestFacts,
    what: str,
    of_cluster: Callable[[Cluster], Cluster],
    of_node: Callable[[Node], Node],
) -> Accepted:
    for cluster in known.clusters:
        if cluster.name == what:
            return accepted(ClusterObserved(of_cluster(cluster)))
    buckets = known.buckets
    found = [
        (part, node)
        for part in known.of(NodesObserved)
        if part.buckets == buckets[part.cluster]
        for node in part.nodes
        if what in (node.name, f"{part.cluster}/{node.name}")
    ]
    match found:
        case [(part, node)]:
            nodes = tuple(of_node(n) if n is node else n for n in part.nodes)
            return accepted(msgspec.structs.replace(part, nodes=nodes))
        case []:
            raise UnknownNameError(f"no cluster and no node is called {what}")
        case _:
            several = ", ".join(sorted(f"{part.cluster}/{node.name}" for part, node in found)[:5])
            raise LedgerError(f"{what}: expected one node, got {several}")
