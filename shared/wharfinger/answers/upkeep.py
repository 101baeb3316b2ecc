"""The fact that scales a binding, or drains a cluster or node, made of what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from wharfinger.answers.facts import LatestFacts, known_facts
from wharfinger.answers.submit import SOURCE, submit
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.drain import drained_cluster, drained_node, undrained_cluster, undrained_node
from wharfinger.domain.node import Node
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.origin import Origin
from wharfinger.history.names import UnknownNameError, meant
from wharfinger.runtime.ledger import Ledger, LedgerError

MakeFact = Callable[[LatestFacts], Accepted]


@dataclass(frozen=True, slots=True)
class UpkeepResult:
    """`result`: changed, or unchanged where nothing new was said about the subject."""

    subject: str
    result: str


async def tell(
    ledger: Ledger, make: MakeFact, *, source: str = SOURCE, origin: Origin | None = None
) -> UpkeepResult:
    """Accept the fact that is made of what is known. LedgerError: it cannot be made."""
    known = await known_facts(ledger)
    fact = make(known)
    done = await submit(ledger, [fact], known, source=source, origin=origin)
    return UpkeepResult(fact.subject, "changed" if done.accepted else "unchanged")


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
