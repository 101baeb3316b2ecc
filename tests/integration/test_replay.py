"""Replay from the ledger equals history, with one worker or several; where it does not, the round
is named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from tests.counter import Counter, Counts, Writer, withdrawn

from wharfinger.events.decisions import BindingReleased
from wharfinger.events.streams import BINDINGS
from wharfinger.kernel.decider import Draft
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import step
from wharfinger.runtime.ledger import Ledger, LedgerError, SnapshotFollower, Submission
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
        rounds = [
            writer.step([withdrawn(number * 4 + i) for i in range(4)]) for number in range(ROUNDS)
        ]
        await opened.commit(rounds, writer.events)
        assert name == writer.head.stream
    event = withdrawn(999)
    await opened.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
    yield opened
    await opened.close()


@pytest.mark.parametrize("workers", [1, 2])
async def test_history_is_decided_again_without_divergence(ledger: Ledger, workers: int) -> None:
    done: list[str] = []
    result = await replay(
        ledger, DECIDERS, workers=workers, on_range=lambda r: done.append(r.stream)
    )
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


async def test_a_time_is_a_round_of_each_stream(ledger: Ledger) -> None:
    """The rounds of these writers lie a millisecond apart, beginning at one."""
    some = await replay(ledger, DECIDERS, "cluster", since=3_000, until=5_999)
    assert (some.rounds, some.streams) == (2 * 3, ("cluster/a", "cluster/b"))
    assert (await replay(ledger, DECIDERS, "cluster/a", since=8_500)).rounds == 1
    assert (await replay(ledger, DECIDERS, "cluster/a", from_round=2, until=4_000)).rounds == 3


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"prefix": "fleets"},
            (
                "no stream of decisions is named fleets or begins with it; there are cluster/a, "
                "cluster/b, fleet/0"
            ),
        ),
        ({"prefix": "intake"}, "no stream of decisions is named intake"),
        ({"prefix": "fleet/0", "from_round": 10}, "there is no round 10: fleet/0 ends at round 9"),
        ({"from_round": 10}, "there is no round 10: the longest of 3 streams, "),
        ({"since": 9_001}, "there is no round between these two points: the longest of 3 streams"),
        (
            {"prefix": "fleet/0", "until": 999},
            "there is no round between these two points: fleet/0 has rounds 1 to 9",
        ),
    ],
)
async def test_what_is_not_there_is_said_in_one_line(
    ledger: Ledger, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(LedgerError) as refused:
        await replay(ledger, DECIDERS, **asked)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_one_stream_is_cut_at_its_snapshots(ledger: Ledger) -> None:
    await SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=3).catch_up()
    alone = await replay(ledger, DECIDERS, "fleet")
    shared = await replay(ledger, DECIDERS, "fleet", workers=2)
    # of the snapshots at 3, 6 and 9 the last two are kept
    assert (alone.ranges, shared.ranges) == (1, 2)
    assert (shared.rounds, shared.decisions, shared.inputs) == (
        alone.rounds,
        alone.decisions,
        alone.inputs,
    )
    assert shared.divergences == alone.divergences == ()
    late = await replay(ledger, DECIDERS, "fleet", from_round=5, workers=2)
    assert (late.ranges, late.rounds, late.divergences) == (2, 5, ())


async def test_a_range_must_arrive_at_the_snapshot_where_the_next_begins(ledger: Ledger) -> None:
    """A state that nobody has decided, stored as properly as a true one."""
    decider = Counter()
    state = decider.initial("fleet/0")
    async for recorded in ledger.recorded_rounds("fleet/0", 1, 5):
        recover(decider, state, (recorded,))
    await ledger.write_snapshot(
        "fleet/0", 5, decider.dump(Counts(state.total + 1, state.by_binding, state.waiting))
    )
    found = (await replay(ledger, DECIDERS, "fleet", workers=2)).divergences
    assert (found[0].round, found[0].step, found[0].subject) == (5, "snapshot", "")
    assert found[1].round == 6  # and who began there went on from what was not so


async def test_a_snapshot_may_say_the_same_state_in_other_bytes(ledger: Ledger) -> None:
    decider = Counter()
    state = decider.initial("fleet/0")
    async for recorded in ledger.recorded_rounds("fleet/0", 1, 5):
        recover(decider, state, (recorded,))
    sections = {name: body + b" " for name, body in decider.dump(state).items()}
    await ledger.write_snapshot("fleet/0", 5, sections)
    found = await replay(ledger, DECIDERS, "fleet", workers=2)
    assert (found.ranges, found.divergences) == (2, ())


async def test_what_was_retired_is_no_hole_and_is_not_asked_for_in_vain(ledger: Ledger) -> None:
    """As `ledger retire` leaves a stream: a base, the state there, and nothing before."""
    await SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=3).catch_up()
    async with ledger.database.reading() as raw:
        await raw.execute(
            "insert into horizon (stream, round, seq, hash, epoch, at_us, snapshot, retirement) "
            "select r.stream, r.number, r.first_seq - 1 + r.decisions, r.hash, r.epoch, r.at_us, "
            "r.snapshot, '' "
            "from round r join stream s on s.id = r.stream where s.name = 'fleet/0' "
            "and r.number = 6"
        )
        await raw.execute(
            "delete from decision where round < 6 "
            "and stream = (select id from stream where name = 'fleet/0')"
        )
    left = await replay(ledger, DECIDERS, "fleet", workers=2)
    assert (left.rounds, left.divergences) == (3, ())
    with pytest.raises(
        LedgerError, match="fleet/0: the rounds up to 6 were retired, its history begins at round 7"
    ):
        await replay(ledger, DECIDERS, "fleet", from_round=4)
    async with ledger.database.reading() as raw:
        await raw.execute("delete from snapshot_section where round = 6")
    with pytest.raises(
        LedgerError, match="fleet/0: there is no snapshot to begin at before round 7"
    ):
        await replay(ledger, DECIDERS, "fleet")


async def test_what_another_version_decided_is_reported_apart(ledger: Ledger) -> None:
    """The same result counts as such; another one is shown, and is no fault of this history."""
    writer = Writer((await ledger.raise_epoch(["cluster/a"]))["cluster/a"], Counter(every=2))
    async for recorded in ledger.recorded_rounds("cluster/a"):
        recover(writer.decider, writer.state, (recorded,))
    rounds = []
    for i in range(4):
        events = [withdrawn(500 + 2 * i), withdrawn(501 + 2 * i)]
        writer.events.update({e.id: e for e in events})
        head = writer.head
        rounds.append(
            step(
                writer.decider,
                writer.state,
                head,
                events,
                head.at + 1_000,
                {},
                engine="wharfinger/0.0.1",
            )
        )
        writer.head = rounds[-1].head()
    await ledger.commit(rounds, writer.events)
    same = await replay(ledger, DECIDERS, "cluster/a")
    assert same.divergences == ()
    (older,) = same.other_engines
    assert (older.engine, older.rounds, older.same, older.divergences) == (
        "wharfinger/0.0.1",
        4,
        True,
        (),
    )

    deaf = {"cluster/": Deaf.of_profile}
    (other,) = (await replay(ledger, deaf, "cluster/a", from_round=ROUNDS + 1)).other_engines
    assert (other.same, other.rounds) == (False, 4)
    assert [d.round for d in other.divergences] == [ROUNDS + 1, ROUNDS + 2, ROUNDS + 3, ROUNDS + 4]
    assert {(d.step, d.blame, d.follows) for d in other.divergences} == {
        ("trigger", "decider", False)
    }
    assert other.divergences[0].replayed == "no such decision"


class Deaf(Counter):
    """A version that does not say when the rounds are full."""

    def decide(self, state: Counts, at: int) -> Iterator[Draft]:
        return (
            draft for draft in super().decide(state, at) if isinstance(draft.data, BindingReleased)
        )


async def test_a_decider_that_raises_is_a_divergence_and_its_stream_goes_on(ledger: Ledger) -> None:
    result = await replay(ledger, {"fleet/": Stumbling.of_profile, "cluster/": Counter.of_profile})
    assert [(d.stream, d.round, d.step) for d in result.divergences] == [("fleet/0", 4, "failure")]
    assert result.divergences[0].replayed.startswith("AssertionError: it stumbled")
    assert result.rounds == 3 * ROUNDS


class Stumbling(Counter):
    def decide(self, state: Counts, at: int) -> Iterator[Draft]:
        assert at != 4_000, "it stumbled"
        return super().decide(state, at)


async def test_two_inputs_exchanged_in_the_ledger_are_named(ledger: Ledger) -> None:
    async with ledger.database.reading() as raw:
        await raw.execute(
            "update input set ordinal = 1 - ordinal + 100 where ordinal < 2 and round = 3 "
            "and stream = (select id from stream where name = 'cluster/b')"
        )
        await raw.execute("update input set ordinal = ordinal - 100 where ordinal >= 100")
    (found,) = (await replay(ledger, DECIDERS)).divergences
    assert (found.stream, found.round, found.step, found.blame) == (
        "cluster/b",
        3,
        "input order",
        "record",
    )


async def test_nothing_is_written(ledger: Ledger) -> None:
    before = await everything(ledger)
    await SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=3).catch_up()
    assert await everything(ledger) != before, "or the comparison sees nothing"
    before = await everything(ledger)
    await replay(ledger, DECIDERS, workers=2)
    await replay(ledger, {"fleet/": Deaf.of_profile}, workers=2)
    assert await everything(ledger) == before


async def everything(ledger: Ledger) -> dict[str, str]:
    """Every row of every table, digested."""
    async with ledger.database.reading() as raw:
        tables = [
            row[0]
            for row in await raw.fetch(
                "select c.relname::text from pg_class c "
                "join pg_namespace n on n.oid = c.relnamespace "
                "where n.nspname = 'public' and c.relkind in ('r', 'p') and not c.relispartition"
            )
        ]
        found = {}
        for table in tables:
            row = await raw.fetchrow(
                "select md5(coalesce(string_agg(t::text, '' order by t::text), '')) "
                f'from "{table}" t'
            )
            assert row is not None
            found[table] = str(row[0])
        return found


async def test_what_would_be_decided_otherwise_today_is_named(ledger: Ledger) -> None:
    result = await replay(ledger, {"fleet/": lambda _: Counter(every=1000)}, "fleet")
    first = result.divergences[0]
    assert (first.stream, first.round, first.seq, first.step) == ("fleet/0", 1, 4, "trigger")
    assert "resumed" in first.recorded
    assert "resumed" not in first.replayed


async def test_each_round_is_decided_again_with_the_profile_it_was_decided_with(
    ledger: Ledger,
) -> None:
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
            'update decision set body = \'{"binding":"binding-1","uid":"9/9"}\'::bytea, '
            "encoding = 0 where (stream, seq) "
            "in (select r.stream, r.first_seq from round r join stream s on s.id = r.stream "
            "where s.name = 'cluster/b' and r.number = $1)",
            number,
        )
    result = await replay(ledger, DECIDERS)
    assert [(d.stream, d.round, d.step) for d in result.divergences] == [
        ("cluster/b", number, "trigger")
    ]
    assert "9/9" in result.divergences[0].recorded


@pytest.mark.parametrize(
    "statement",
    [
        "update decision set body = 'no json', encoding = 0 where stream = {} and round = 3",
        "update event set body = 'no json', encoding = 0 where id = '{event}'",
        "delete from decision where stream = {} and round = 3",
        "delete from event where id = '{event}'",
    ],
)
async def test_what_cannot_be_read_is_a_divergence_of_its_stream_alone(
    ledger: Ledger, statement: str
) -> None:
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
    # A decision's body is only compared, never read, so that bytes which mean nothing are simply
    # other bytes.
    what = "bytes" if statement.startswith("update decision") else "unreadable"
    assert [(d.stream, d.step) for d in result.divergences] == [("cluster/a", what)]
    assert result.divergences[0].round == (ROUNDS + 1 if "event" in statement else 3)
    assert result.streams == tuple(sorted(STREAMS))
