"""Deltas from two writers, one that decides again and one that only folds: each binding has in them
the state that the history gives, however the two are interrupted and whichever is ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest
from tests.fleets import Fleet, a_fleet, committed

from wharfinger.events.streams import FLEET
from wharfinger.history.deciders import DECIDERS
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.recover import recover
from wharfinger.runtime.ledger import DecisionQuery, Ledger, SnapshotFollower
from wharfinger.runtime.ledger.follower import DeltaFollower, SnapshotCadence
from wharfinger.stages.fleet import FleetDecider, saved, saved_bindings
from wharfinger.stages.fleet.state import FleetState

pytestmark = pytest.mark.integration

CADENCE = SnapshotCadence(whole_rows=60, delta_rows=12)
OF_FLEETS = DECIDERS[FLEET]


async def the_stream(ledger: Ledger, fleet: Fleet) -> str:
    """Of the fleet, once it is committed."""
    await committed(ledger, fleet)
    return next(stream for stream in fleet.by_stream() if stream.startswith(FLEET))


async def history(ledger: Ledger, stream: str) -> dict[int, dict[str, bytes]]:
    """After each round the whole state of the stream."""
    states: dict[int, dict[str, bytes]] = {}
    decider: Any = None
    state: Any = None
    async for recorded in ledger.recorded_rounds(stream):
        if decider is None:
            decider = OF_FLEETS(recorded.round.profile)
            state = decider.initial(stream)
        state = recover(decider, state, (recorded,))
        states[recorded.round.number] = decider.dump(state)
    return states


def alone(sections: Mapping[str, bytes], name: str) -> bytes | None:
    """The binding's part of a whole state."""
    return saved_bindings.binding_in(sections[saved_bindings.bucket_of(name)], name)


async def snapshots(ledger: Ledger, stream: str) -> dict[int, tuple[bool, bool]]:
    """Round -> is it whole, and is it replayed."""
    async with ledger.database.reading() as raw:
        rows = await raw.fetch(
            "select n.round, n.whole, n.replayed from snapshot n join stream s on s.id = n.stream "
            "where s.name = $1 order by n.round",
            stream,
        )
    return {row[0]: (row[1], row[2]) for row in rows}


async def written_by_turns(ledger: Ledger, stream: str, last: int, chance: Random) -> None:
    """Both writers, each up to any round, in any order, now and then stopped in between or begun
    again."""

    def until_stopped() -> Any:
        left = chance.randrange(1, last)

        async def may_go_on() -> bool:
            nonlocal left
            left -= 1
            return left >= 0

        return may_go_on

    folding = DeltaFollower(ledger, OF_FLEETS, stream, CADENCE)
    replaying = SnapshotFollower(ledger, OF_FLEETS, stream, cadence=CADENCE)
    for _ in range(14):
        if chance.random() < 0.3:
            folding = DeltaFollower(ledger, OF_FLEETS, stream, CADENCE)
        if chance.random() < 0.3:
            replaying = SnapshotFollower(ledger, OF_FLEETS, stream, cadence=CADENCE)
        to_round = chance.randrange(1, last + 1)
        if chance.random() < 0.5:
            await folding.catch_up(to_round, until_stopped())
        else:
            await replaying.catch_up(to_round, until_stopped())
        assert replaying.divergence is None


async def has_each_binding_as_it_was(
    ledger: Ledger, stream: str, states: Mapping[int, Mapping[str, bytes]]
) -> None:
    """At each snapshot whose bytes are kept."""
    names = {row.subject async for row in ledger.decisions(DecisionQuery(stream))}
    names = {name for name in names if any(alone(state, name) for state in states.values())}
    assert len(names) > 3
    for number in await snapshots(ledger, stream):
        nearest = await ledger.nearest_snapshot(stream, number, saved.SHARED)
        if nearest is None or nearest.round < number:
            continue  # of an older whole one only the digest is kept
        for section, body in nearest.sections.items():
            assert body == states[number][section], (number, section)
        for name in sorted(names):
            version = await ledger.newest_version(
                stream, number, saved_bindings.bucket_of(name), saved_bindings.name_hash(name)
            )
            found = None if version is None else saved_bindings.binding_in(version, name)
            assert found == alone(states[number], name), (number, name)


@pytest.mark.parametrize("seed", range(6))
async def test_each_binding_is_as_of_each_round_with_deltas_of_both_writers(
    ledger: Ledger, seed: int
) -> None:
    stream = await the_stream(ledger, a_fleet(seed, happenings=40))
    states = await history(ledger, stream)
    await written_by_turns(ledger, stream, max(states), Random(f"deltas {seed}"))
    stored = await snapshots(ledger, stream)
    assert {whole for whole, _ in stored.values()} == {True, False}
    await has_each_binding_as_it_was(ledger, stream, states)


async def rows_until(ledger: Ledger, stream: str, number: int) -> int:
    return sum(
        [
            len(recorded.events) + len(recorded.round.decisions)
            async for recorded in ledger.recorded_rounds(stream, 1, number)
        ]
    )


@pytest.mark.parametrize("at_the_whole_one", [True, False])
async def test_what_changed_before_a_whole_snapshot_is_not_thrown_away_with_it(
    ledger: Ledger, at_the_whole_one: bool
) -> None:
    """The first delta is due at a round that has a whole snapshot, or a whole one is all that there
    is. Later the whole one goes."""
    stream = await the_stream(ledger, a_fleet(4, happenings=40))
    states = await history(ledger, stream)
    rows = await rows_until(ledger, stream, 10) if at_the_whole_one else 1
    folding = DeltaFollower(ledger, OF_FLEETS, stream, SnapshotCadence(10**6, rows))
    if at_the_whole_one:
        assert await folding.catch_up(9) == []
    replaying = SnapshotFollower(ledger, OF_FLEETS, stream, every_rounds=10)
    assert await replaying.catch_up(10) == [10]
    assert await folding.catch_up(11) == [11]
    assert await replaying.catch_up() == [*range(20, max(states) + 1, 10)]
    assert await ledger.latest_snapshot(stream, 19) is None
    await has_each_binding_as_it_was(ledger, stream, states)


@pytest.mark.parametrize("seed", range(6))
async def test_what_was_only_folded_is_decided_again_before_the_next_whole_snapshot(
    ledger: Ledger, seed: int
) -> None:
    fleet = a_fleet(seed, happenings=40)
    stream = await the_stream(ledger, fleet)
    states = await history(ledger, stream)
    last, chance = max(states), Random(f"replayed {seed}")
    folding = DeltaFollower(ledger, OF_FLEETS, stream, CADENCE)
    folded_to = chance.randrange(last // 2, last)
    deltas = await folding.catch_up(folded_to)
    assert len(deltas) > 2
    assert await snapshots(ledger, stream) == dict.fromkeys(deltas, (False, False))
    assert await ledger.replayed_to(stream) == 0
    part = chance.randrange(1, folded_to)
    replaying = SnapshotFollower(ledger, OF_FLEETS, stream, cadence=CADENCE)
    await replaying.catch_up(part)
    for number, (_, replayed) in (await snapshots(ledger, stream)).items():
        assert replayed == (number <= part)
    # another one begins where this one has ended
    made = await SnapshotFollower(ledger, OF_FLEETS, stream, cadence=CADENCE).catch_up()
    found = await snapshots(ledger, stream)
    assert all(replayed for _, replayed in found.values())
    assert set(deltas) | set(made) <= found.keys()
    newest = await ledger.latest_snapshot(stream)
    assert newest is not None
    assert newest.sections == states[newest.round]


class Unable(FleetDecider):
    """It folds, and cannot decide."""

    def decide(self, state: FleetState, at: Micros) -> Iterator[Draft]:
        raise AssertionError(f"decided at {at}")


async def test_deltas_are_made_without_deciding(ledger: Ledger) -> None:
    stream = await the_stream(ledger, a_fleet(3, happenings=40))

    [head] = await ledger.heads(stream)
    assert await DeltaFollower(ledger, Unable.of_profile, stream, CADENCE).catch_up(head.round)
