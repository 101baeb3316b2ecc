"""The plane as it was, out of a real ledger."""

from __future__ import annotations

import pytest
import pytest_asyncio
from tests.scenarios.test_world import SECOND, START, by_stream, story

from wharfinger.events.bindings import BindingRequested
from wharfinger.history.points import PointError, point_of
from wharfinger.history.states import state_at, world_at
from wharfinger.kernel.recover import RecordedRound
from wharfinger.runtime.ledger import Ledger
from wharfinger.stages.world import World

pytestmark = pytest.mark.integration


async def written(ledger: Ledger, rounds: list[RecordedRound]) -> None:
    await ledger.ensure_streams(list(by_stream(rounds)))
    for recorded in rounds:
        result = await ledger.commit([recorded.round], {e.id: e for e in recorded.events})
        assert not result.fenced


@pytest_asyncio.fixture
async def past(ledger: Ledger) -> tuple[Ledger, World, dict[str, int]]:
    """A fleet that was scheduled, and scaled a minute later. The rounds that stood in between are
    returned."""
    world = World(recorded=True, at=START)
    first = world.tell(story(), START)
    await written(ledger, first)
    between = {name: running.head.round for name, running in world.streams.items()}
    more = [e for e in story(bindings=90) if isinstance(e.data, BindingRequested)][60:]
    await written(ledger, world.tell(more, START + 60 * SECOND))
    return ledger, world, between


async def test_every_stream_can_be_had_as_it_is_and_as_it_was(
    past: tuple[Ledger, World, dict[str, int]],
) -> None:
    ledger, world, between = past
    for name, running in world.streams.items():
        now = await state_at(ledger, name)
        assert now.decider.dump(now.state) == running.decider.dump(running.state)
        then = await state_at(ledger, name, point_of("2023-11-14T22:13:25Z", 0))
        assert then.head.round == between[name]
    early = await state_at(ledger, "fleet/0", point_of(f"fleet/0:{between['fleet/0']}", 0))
    assert len(early.state.bindings) == 60


async def test_a_world_of_the_present_goes_on_as_the_plane_would(
    past: tuple[Ledger, World, dict[str, int]],
) -> None:
    ledger, world, _ = past
    other = await world_at(ledger)
    new = [e for e in story(bindings=110) if isinstance(e.data, BindingRequested)][90:]
    for plane in (world, other):
        plane.tell(new, START + 90 * SECOND)
    (one,), (two,) = world.fleet_states(), other.fleet_states()
    assert len(one.bindings) == 110
    assert {n: r.targets for n, r in one.bindings.items()} == {
        n: r.targets for n, r in two.bindings.items()
    }


async def test_a_world_of_the_past_knows_nothing_of_later(
    past: tuple[Ledger, World, dict[str, int]],
) -> None:
    ledger, _, between = past
    then = await world_at(ledger, point_of(f"fleet/0:{between['fleet/0']}", 0))
    (fleet,) = then.fleet_states()
    assert len(fleet.bindings) == 60


@pytest.mark.parametrize("text", ["yesterday", "fleet/0:x", "12:30 o'clock", "fleet:3"])
def test_what_is_no_point_is_one_line(text: str) -> None:
    with pytest.raises(PointError, match="expected a round such as"):
        point_of(text, 0)


async def test_a_round_that_never_was_is_named(past: tuple[Ledger, World, dict[str, int]]) -> None:
    ledger, _, _ = past
    with pytest.raises(PointError, match="fleet/0: there is no round 999; the last one is"):
        await state_at(ledger, "fleet/0", point_of("fleet/0:999", 0))
    with pytest.raises(PointError, match="unknown stream fleet/7"):
        await state_at(ledger, "fleet/7", point_of("now", 0))


async def test_policies_are_the_observers_business(ledger: Ledger) -> None:
    """A ledger in which nothing was decided yet gives an empty world, not an error."""
    world = await world_at(ledger)
    assert list(world.cluster_states()) == []
