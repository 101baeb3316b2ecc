"""Makes plans on the present state of a plane. Making one writes nothing to any stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

import msgspec

from wharfinger.domain.drain import drained_cluster, drained_node
from wharfinger.domain.node import Node
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.history.names import UnknownNameError, full_name
from wharfinger.history.plan_records import Plan, Proposed
from wharfinger.history.planning import planned
from wharfinger.history.states import world_at
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Ledger, wall_clock
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.world import World

Said = Callable[[str], None]
"""Called with what begins: `reading` the state of the plane, `planning` on it."""


def _silent(step: str) -> None:
    pass


async def make_plan(
    ledger: Ledger,
    facts: Sequence[Accepted],
    proposals: Sequence[Proposed] = (),
    at: Micros | None = None,
    said: Said = _silent,
) -> Plan:
    """What `facts` and `proposals` would do to the plane as it is. `at`: when it is made, None:
    now. LedgerError: one line."""
    return _planned(await _present(ledger, said), facts, proposals, at)


async def drain(ledger: Ledger, what: str, at: Micros | None = None, said: Said = _silent) -> Plan:
    """Everything off a cluster, or off a node (`cluster/node`, or its name where only one cluster
    has it). UnknownNameError: there is none."""
    world = await _present(ledger, said)
    return _planned(world, _drained(world, what), (), at)


async def scale(
    ledger: Ledger, binding: str, replicas: int, at: Micros | None = None, said: Said = _silent
) -> Plan:
    """So many replicas of a binding, by its full name or as much of it as only one has."""
    name = await full_name(ledger, binding)
    world = await _present(ledger, said)
    record = world.state_of_shard(name).bindings.get(name)
    if record is None or record.withdrawn:
        raise LedgerError(f"{name} is not there any more")
    if not record.counted:
        raise LedgerError(f"{name} has no replicas: it goes to its clusters as it is")
    spec = msgspec.structs.replace(record.spec, replicas=replicas)
    return _planned(world, [accepted(BindingRequested(spec))], (), at)


async def _present(ledger: Ledger, said: Said) -> World:
    said("reading")
    world = await world_at(ledger)
    said("planning")
    return world


def _planned(
    world: World, facts: Sequence[Accepted], proposals: Sequence[Proposed], at: Micros | None
) -> Plan:
    _refuse_unknown(world, facts, proposals)
    for state in world.fleet_states():
        if (id := state.joint.promised) is not None:
            under_way = state.proposals.plans[id].plan
            raise LedgerError(
                f"{state.stream} is carrying out plan {under_way}: try again in a moment"
            )
    return planned(world, facts, proposals, uuid4(), wall_clock() if at is None else at)


def _refuse_unknown(world: World, facts: Sequence[Accepted], proposals: Sequence[Proposed]) -> None:
    for proposal in proposals:
        if proposal.stream not in world.streams:
            raise LedgerError(f"unknown stream {proposal.stream}")
    twice = {fact.key for fact in facts if isinstance(fact.data, BindingRequested)} & {
        fact.key for fact in facts if isinstance(fact.data, BindingWithdrawn)
    }
    if twice:
        raise LedgerError(
            f"{min(twice)}: expected it to be requested or withdrawn, got both in one plan"
        )


def _drained(world: World, what: str) -> list[Accepted]:
    for fleet in world.fleet_states():
        told = fleet.tainting.told.get(what)
        if told is not None:
            return [accepted(ClusterObserved(drained_cluster(told)))]
    found = [
        (state, node) for state in world.cluster_states() for node in _nodes_called(state, what)
    ]
    match found:
        case [(state, node)]:
            return [accepted(_with_drained(state, node))]
        case []:
            raise UnknownNameError(f"no cluster and no node is called {what}")
        case _:
            several = ", ".join(f"{state.cluster}/{node.name}" for state, node in found[:5])
            raise LedgerError(f"{what}: expected one node, got {several}")


def _nodes_called(state: ClusterStageState, what: str) -> list[Node]:
    node = state.book.nodes.get(what) or state.book.nodes.get(
        what.removeprefix(f"{state.cluster}/")
    )
    return [] if node is None else [node]


def _with_drained(state: ClusterStageState, node: Node) -> NodesObserved:
    """The bucket the node is in, as it is but for the node."""
    book = state.book
    bucket = min(b for b, nodes in book.buckets.items() if node.name in nodes)
    nodes = {**book.buckets[bucket], node.name: drained_node(node)}
    return NodesObserved(state.cluster, bucket, book.bucket_count, tuple(nodes.values()))
