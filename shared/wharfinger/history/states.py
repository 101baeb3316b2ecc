"""The plane as it was: the state of any stream at any point, and a world begun there.

A state is the nearest whole snapshot before the point and, folded into it, the rounds since;
nothing is decided on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from wharfinger.events.decisions import RETURNING
from wharfinger.events.envelope import Event
from wharfinger.events.fanout import Fanout
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.registry import types_of
from wharfinger.events.streams import CLUSTER, FLEET, POLICIES
from wharfinger.history.deciders import decider_of
from wharfinger.history.points import HistoryPoint, moment_of, round_of
from wharfinger.kernel.decider import Decider, Micros
from wharfinger.kernel.recover import recover
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import DecisionQuery, Ledger
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.world import World

PRESENT = HistoryPoint("now")


@dataclass(frozen=True, slots=True)
class StreamAt:
    """A stream after round `head.round`. `state` is not shared: the caller may change it.
    `decider`: of the profile of that round."""

    decider: Decider[Any]
    state: Any
    head: Head


async def state_at(ledger: Ledger, stream: str, point: HistoryPoint = PRESENT) -> StreamAt:
    """PointError: no such stream or round. LedgerError: the stream decides nothing. CorruptLedger:
    it cannot be read."""
    number = await round_of(ledger, stream, point)
    decider = decider_of(stream, await ledger.profile_at(stream, number))
    if decider is None:
        raise LedgerError(f"{stream} decides nothing and has no state")
    snapshot = await ledger.latest_snapshot(stream, number)
    if snapshot is None:
        state, after = decider.initial(stream), 0
    else:
        state, after = decider.load(stream, snapshot.sections), snapshot.round
    if number > after:
        async for recorded in ledger.recorded_rounds(stream, after + 1, number, on_trust=True):
            state = recover(decider, state, (recorded,))
    return StreamAt(decider, state, await ledger.head_at(stream, number))


async def world_at(
    ledger: Ledger,
    point: HistoryPoint = PRESENT,
    *,
    fleet: FleetDecider | None = None,
    cluster: ClusterDecider | None = None,
    repeat_after_s: int | None = 60,
    provides_after_s: int | None = None,
    namespace: str = "world",
    not_before: Micros | None = None,
) -> World:
    """The plane at that point, with nothing left to process and ready for new events. Its streams
    are cut at the same moment. Messages that one stream had sent and another had not yet received
    are delivered first.

    `fleet`, `cluster`: other deciders than those of the recorded profiles. The rounds of these
    deliveries are part of the world and of no ledger. `not_before`: the world begins then at the
    earliest, in microseconds, with the clusters that were not silent at the point; None: it begins
    at the point.
    """
    from wharfinger.runtime.topics import shard_for  # with the driver of the broker

    at = await moment_of(ledger, point)
    heads = await _cut(ledger, at)
    shards = [head for head in heads if head.stream.startswith(FLEET)]
    shard_of = partial(shard_for, shards=max(1, len(shards)))
    world = World(
        shards=max(1, len(shards)),
        shard_of=shard_of,
        fleet=fleet,
        cluster=cluster,
        repeat_after_s=repeat_after_s,
        provides_after_s=provides_after_s,
        namespace=namespace,
        at=max(at or 0, not_before or 0),
    )
    for head in heads:
        stream = await state_at(ledger, head.stream, HistoryPoint("", head.stream, head.round))
        other = fleet if head.stream.startswith(FLEET) else cluster
        decider, state = stream.decider, stream.state
        if other is not None and other.profile != decider.profile:
            decider, state = other, other.load(head.stream, decider.dump(state))
        world.adopt(head.stream, decider, state, stream.head)
    await _unheard_outcomes(ledger, world, shard_of)
    if not_before is not None:
        world.keep_hearing()
    world.settle_in(await _policies(ledger, at))
    return world


async def _cut(ledger: Ledger, at: Micros | None) -> list[Head]:
    """Where each deciding stream stood at `at`; None: now, all as of one query."""
    heads = [head for head in await ledger.heads() if head.stream.startswith((FLEET, CLUSTER))]
    if at is None:
        return heads
    return [
        await ledger.head_at(head.stream, await ledger.round_at(head.stream, at)) for head in heads
    ]


async def _unheard_outcomes(ledger: Ledger, world: World, shard_of: Callable[[str], int]) -> None:
    """Delivers the outcomes of cluster streams that the fleet streams had not yet received."""
    heard: dict[str, int] = {}
    for state in world.fleet_states():
        for stream, seq in state.outcomes.items():
            heard[stream] = min(seq, heard.get(stream, seq))
    ends = {name: running.head.seq for name, running in world.streams.items()}
    fanout = Fanout(shard_of)
    types = types_of(*RETURNING)
    async for row in ledger.decisions(DecisionQuery(CLUSTER, types=types, after=heard)):
        if row.seq <= ends.get(row.stream, 0):
            world.hand_in(fanout.add(row.stream, row.seq, str(row.id), row.data()))
    world.hand_in(fanout.rest())


async def _policies(ledger: Ledger, at: Micros | None) -> list[Event[Any]]:
    """The policies that held then; only the observers ask for them."""
    if at is None:
        facts = [fact async for fact in ledger.facts(POLICIES.name)]
    else:
        facts = await ledger.facts_at(at, POLICIES.name)
    events = [event_of(fact) for fact in facts]
    return [event for event in events if isinstance(event.data, PolicyApplied)]
