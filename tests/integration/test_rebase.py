"""Streams that a wrong clock has put years ahead are set right, while they run and afterwards. Real
ledger."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest
from tests.apps import until
from tests.counter import Counter, Counts, withdrawn
from tests.loops import Acks, a_loop, loop_running, messages

from wharfinger.domain.cluster import Cluster
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import BindingReleased, ClockRebased, ClusterSilenced
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import BINDINGS, INTAKE, LEDGER
from wharfinger.history.states import state_at
from wharfinger.kernel.audit import Audit
from wharfinger.kernel.step import step, tick
from wharfinger.runtime.ledger import (
    DecisionQuery,
    Ledger,
    SnapshotFollower,
    Submission,
    audit_verify,
    wall_clock,
)
from wharfinger.runtime.ledger.decision_rows import Days, rows_after
from wharfinger.stages.fleet import FleetDecider

pytestmark = pytest.mark.integration

SECOND = 1_000_000
DAY = 86_400 * SECOND
YEARS = 7 * 365 * DAY


class Clock:
    """Years ahead for as long as it is `wrong`."""

    wrong = False

    def __call__(self) -> int:
        return wall_clock() + (YEARS if self.wrong else 0)


async def accept(ledger: Ledger, clock: Clock, *numbers: int) -> None:
    stamped = Ledger(ledger.database, clock)
    await stamped.accept(
        [Submission(withdrawn(n), BINDINGS.name, f"k{n}", f"k{n}") for n in numbers]
    )


async def released(ledger: Ledger) -> list[str]:
    rows = ledger.decisions(DecisionQuery(stream="fleet/"))
    return sorted([row.subject async for row in rows if isinstance(row.data(), BindingReleased)])


async def test_a_stage_goes_on_from_the_right_time(ledger: Ledger) -> None:
    clock, acks, days = Clock(), Acks(), Days()
    seen: dict[str, int] = {}

    async def read() -> list[tuple[str, int]]:
        """As the publisher does: from where it was, with what it knows of the days."""
        found = []
        while rows := await rows_after(ledger.database, seen, 3, days):
            found += [(row.stream, row.seq) for row in rows]
            seen.update((row.stream, row.seq) for row in rows)
        return found

    loop = a_loop(ledger, clock=clock)
    async with loop_running(loop, 0):
        for number, clock.wrong in enumerate((False, True, True)):
            await accept(ledger, clock, number)
            await loop.offer(messages([number], acks, first=number))
            await until(lambda n=number: len(acks.done) == n + 1)
        clock.wrong = False
        assert len(await read()) == 7  # the third decision of the counter brings another
        before = {head.stream: head for head in await ledger.heads()}
        assert min(before["fleet/0"].at, before[INTAKE].at) > wall_clock() + YEARS - DAY

        data = await ledger.rebase("the host had a wrong clock")
        assert data is not None
        assert set(data.streams) == {"fleet/0", INTAKE}
        assert data.streams["fleet/0"].since_us > wall_clock() + YEARS - DAY
        assert await ledger.rebase("again") is None

        for number in (3, 4):
            await accept(ledger, clock, number)
            await loop.offer(messages([number], acks, first=number))
            await until(lambda n=number: len(acks.done) == n + 1)
        assert loop.fatal == ""
    for limit in (1, 2, 3, 5, 100):
        # each decision in a page, and once
        paged: list[tuple[str, int]] = []
        after: dict[str, int] = {}
        while page := [r async for r in ledger.decisions(DecisionQuery(after=after, limit=limit))]:
            paged += [(row.stream, row.seq) for row in page]
            after.update((row.stream, row.seq) for row in page)
        assert sorted(paged) == sorted(
            [(row.stream, row.seq) async for row in ledger.decisions(DecisionQuery())]
        )
        # each stream in its own order, however few rows are read at once
        reached: dict[str, int] = {}
        while rows := await rows_after(ledger.database, reached, limit):
            for row in rows:
                assert row.seq == reached.get(row.stream, 0) + 1
                reached[row.stream] = row.seq
        assert reached == {"fleet/0": 6, INTAKE: 5, LEDGER: 1}
    heads = {head.stream: head for head in await ledger.heads()}
    assert all(abs(heads[name].at - wall_clock()) < DAY for name in ("fleet/0", INTAKE, LEDGER))
    assert await released(ledger) == [f"binding-{n}" for n in range(5)]
    assert sorted(await read()) == sorted(
        [("fleet/0", 5), ("fleet/0", 6), (INTAKE, 4), (INTAKE, 5), (LEDGER, 1)]
    )

    rounds = [recorded async for recorded in ledger.recorded_rounds("fleet/0")]
    audit = Audit(Counter(), Counts(), await ledger.head_at("fleet/0", 0), Counter.of_profile)
    for recorded in rounds:
        audit.replay(recorded)
    assert audit.result.divergences == []
    assert [
        r.round.number for r in rounds if any(isinstance(e.data, ClockRebased) for e in r.events)
    ] == [4]
    assert (await audit_verify(ledger)).ok
    # The state as of a time: of before, of the wrong time, of now.
    assert await ledger.round_at("fleet/0", rounds[0].round.at) == 1
    assert await ledger.round_at("fleet/0", wall_clock() + YEARS) == 3
    assert await ledger.round_at("fleet/0", wall_clock()) == 6


async def test_verify_refuses_a_time_that_goes_back_without_a_record(ledger: Ledger) -> None:
    clock = Clock()
    clock.wrong = True
    await accept(ledger, clock, 1)
    assert await ledger.rebase("a wrong clock") is not None
    await accept(ledger, Clock(), 2)
    assert (await audit_verify(ledger)).ok
    async with ledger.database.reading() as raw:
        await raw.execute(
            "update decision set type = 'io.wharfinger.clock.other' "
            "where type like '%clock.rebased%'"
        )
    bad = (await audit_verify(ledger, stream=INTAKE)).first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == (INTAKE, 2, "round: time")


async def test_a_lease_has_as_much_left_as_it_had(ledger: Ledger) -> None:
    """A cluster was observed under the wrong clock. After the rebase it is silent after its lease,
    and not years later."""
    decider, clock = FleetDecider(), Clock()
    clock.wrong = True
    head = (await ledger.ensure_streams(["fleet/0"]))["fleet/0"]
    state = decider.initial("fleet/0")
    event = made(
        ClusterObserved(Cluster("oslo", lease_s=40)),
        id=derived_id("test", "oslo"),
        source="/tests",
        subject="oslo",
    )
    at = clock()
    first = step(decider, state, head, [event], at, {"b/0": (1, 7)})
    await ledger.commit([first], {event.id: event})
    lease = decider.next_due(state)
    assert lease is not None
    clock.wrong = False

    data = await ledger.rebase("a wrong clock")
    assert data is not None
    found = await state_at(ledger, "fleet/0")
    assert found.decider.next_due(found.state) == data.to_us + (lease - at)
    assert (await ledger.basis("fleet/0", found.head.round)) == {"b/0": (1, 7)}
    due = data.to_us + (lease - at)
    [head] = (await ledger.raise_epoch(["fleet/0"])).values()
    ticked = tick("fleet/0", due, head.round)
    silenced = step(decider, found.state, head, [ticked], due, {})
    assert [type(decision.data) for decision in silenced.decisions][:1] == [ClusterSilenced]
    assert (await ledger.commit([silenced], {ticked.id: ticked})).committed == {"fleet/0"}
    assert (await audit_verify(ledger)).ok
    follower = SnapshotFollower(ledger, FleetDecider.of_profile, "fleet/0", every_rounds=1)
    assert await follower.catch_up() == [1, 2, 3]  # replayed through it
    assert follower.divergence is None


async def test_the_command_shows_first_and_then_does_it(ledger: Ledger, database_url: str) -> None:
    clock = Clock()
    clock.wrong = True
    await accept(ledger, clock, 1)

    async def command(*arguments: str) -> dict[str, object]:
        environment = {**os.environ, "WHARFINGER_DATABASE": database_url}
        run = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "wharfinger_cli", "ledger", "rebase", *arguments, "-o", "json"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        found: dict[str, object] = json.loads(run.stdout)
        return found

    shown = await command()
    assert (shown["rebased"], list(shown["streams"])) == (False, [INTAKE])  # type: ignore[call-overload]
    [head] = await ledger.heads(INTAKE)
    assert head.at > wall_clock() + YEARS - DAY
    assert (await command("--apply", "--reason", "a test"))["rebased"] is True
    [head] = await ledger.heads(INTAKE)
    assert abs(head.at - wall_clock()) < DAY
    assert (await command())["streams"] == {}
