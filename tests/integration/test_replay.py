"""Replay from the ledger equals history, with one worker or several; where it does not, the round is named."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.counter import Counter, Writer, withdrawn

from wharfinger.events.streams import BINDINGS
from wharfinger.kernel.recover import recover
from wharfinger.runtime.ledger import Ledger, SnapshotFollower, Submission
from wharfinger.runtime.replay import replay

pytestmark = pytest.mark.integration

STREAMS = ("fleet/0", "cluster/a", "cluster/b")
ROUNDS = 9
DECIDERS = {"fleet/": Counter.of_profile, "cluster/": Counter.of_profile}


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.open(database_url, "tests")
    await opened.ensure_streams(STREAMS)
    for name, head in (await opened.raise_epoch(STREAMS)).items():
        writer = Writer(head)
        rounds = [writer.step([withdrawn(number * 4 + i) for i in range(4)]) for number in range(ROUNDS)]
        await opened.commit(rounds, writer.events)
        assert name == writer.head.stream
    event = withdrawn(999)
    await opened.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
    yield opened
    await opened.close()


@pytest.mark.parametrize("workers", [1, 2])
async def test_history_is_decided_again_without_divergence(ledger: Ledger, workers: int) -> None:
    done: list[str] = []
    result = await replay(ledger, DECIDERS, workers=workers, on_range=lambda r: done.append(r.stream))
    assert result.divergences == ()
    assert result.streams == tuple(sorted(STREAMS))  # the intake decides nothing
    assert sorted(done) == sorted(STREAMS)
    assert (result.rounds, result.inputs) == (3 * ROUNDS, 3 * ROUNDS * 4)
    assert result.decisions == sum([h.seq for h in await ledger.heads() if h.stream in STREAMS])


async def test_only_what_is_asked_for_is_judged(ledger: Ledger) -> None:
    assert (await replay(ledger, DECIDERS, "cluster/a")).streams == ("cluster/a",)
    part = await replay(ledger, DECIDERS, "fleet", from_round=4, to_round=6)
    assert (part.rounds, part.divergences) == (3, ())
    await SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=5).catch_up()
    late = await replay(ledger, DECIDERS, "fleet", from_round=8)  # from the snapshot at 5
    assert (late.rounds, late.divergences) == (2, ())


async def test_what_would_be_decided_otherwise_today_is_named(ledger: Ledger) -> None:
    result = await replay(ledger, {"fleet/": lambda _: Counter(every=1000)}, "fleet")
    first = result.divergences[0]
    assert (first.stream, first.round, first.seq, first.step) == ("fleet/0", 1, 4, "trigger")
    assert "resumed" in first.recorded
    assert "resumed" not in first.replayed


async def test_each_round_is_decided_again_with_the_profile_it_was_decided_with(ledger: Ledger) -> None:
    """A writer started with other settings goes on from the state that the old ones left."""
    writer = Writer((await ledger.raise_epoch(["cluster/a"]))["cluster/a"], Counter(every=2))
    async for recorded in ledger.recorded_rounds("cluster/a"):
        recover(writer.decider, writer.state, (recorded,))
    rounds = [writer.step([withdrawn(500 + i)]) for i in range(4)]
    await ledger.commit(rounds, writer.events)
    result = await replay(ledger, DECIDERS, "cluster/a", workers=2)
    assert (result.rounds, result.divergences) == (ROUNDS + 4, ())
    unaware = await replay(ledger, {"cluster/": lambda _: Counter()}, "cluster/a")
    assert unaware.divergences[0].round == ROUNDS + 1


@pytest.mark.parametrize("number", [1, 5, ROUNDS])
async def test_a_changed_decision_is_found_at_its_round(ledger: Ledger, number: int) -> None:
    """The hash of the round still says what was decided; the row beside it does not."""
    async with ledger.database.reading() as raw:
        await raw.execute(
            'update decision set body = \'{"binding":"binding-1","uid":"9/9"}\'::bytea, encoding = 0 where (stream, seq) '
            "in (select r.stream, r.first_seq from round r join stream s on s.id = r.stream "
            "where s.name = 'cluster/b' and r.number = $1)",
            number,
        )
    result = await replay(ledger, DECIDERS)
    assert [(d.stream, d.round, d.step) for d in result.divergences] == [("cluster/b", number, "trigger")]
    assert "9/9" in result.divergences[0].recorded


@pytest.mark.parametrize("statement", [
    "update decision set body = 'no json', encoding = 0 where stream = {} and round = 3",
    "update event set body = 'no json', encoding = 0 where id = '{event}'",
    "delete from decision where stream = {} and round = 3",
    "delete from event where id = '{event}'",
])  # fmt: skip
async def test_what_cannot_be_read_is_a_divergence_of_its_stream_alone(ledger: Ledger, statement: str) -> None:
    async with ledger.database.reading() as raw:
        private = withdrawn(500)
        writer = Writer((await ledger.raise_epoch(["cluster/a"]))["cluster/a"])
        async for recorded in ledger.recorded_rounds("cluster/a"):
            for event in recorded.events:
                writer.decider.fold_input(writer.state, event, 0)
            for decision in recorded.round.decisions:
                writer.decider.fold_decision(writer.state, decision, 0)
        await ledger.commit([writer.step([private])], writer.events)
        stream = "(select id from stream where name = 'cluster/a')"
        await raw.execute(statement.format(stream, event=private.id))
    result = await replay(ledger, DECIDERS)
    # A decision's body is only compared, never read, so that bytes which mean nothing are simply other bytes.
    what = "bytes" if statement.startswith("update decision") else "unreadable"
    assert [(d.stream, d.step) for d in result.divergences] == [("cluster/a", what)]
    assert result.divergences[0].round == (ROUNDS + 1 if "event" in statement else 3)
    assert result.streams == tuple(sorted(STREAMS))
