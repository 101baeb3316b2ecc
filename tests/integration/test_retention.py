"""Old history goes, and everything that is asked of the rest is answered as before: on a real
database, over several months."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio
import zstandard
from tests.backends import in_a_loop
from tests.feeds import numbered
from tests.patience import eventually, in_patience
from tests.scenarios.fleet_plane import DYNAMIC
from tests.told_plane import SECOND, START, ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.placement import Placement
from wharfinger.events.streams import CLUSTERS, INTAKE
from wharfinger.history.checkpoint import new_key, read, signed
from wharfinger.history.deciders import DECIDERS
from wharfinger.history.explain import explain
from wharfinger.history.retention import RetentionError, Retirement, retire_before
from wharfinger.history.states import state_at
from wharfinger.history.verification import take_checkpoint, verify
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import (
    DecisionQuery,
    FeedAppender,
    FeedFilter,
    FeedRetiredError,
    Ledger,
    LedgerError,
    Submission,
    Transient,
    partitions,
    retention,
)
from wharfinger.runtime.ledger.archive import archive, drop, retired_tables
from wharfinger.runtime.ledger.database import Raw, Transaction
from wharfinger.runtime.ledger.days import DAY_US, day_of
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.ledger.heads import lock
from wharfinger.runtime.ledger.partitions import spans
from wharfinger.runtime.placed_replicas import replicas_on_nodes
from wharfinger.runtime.replay import replay
from wharfinger_cli.facts import known_facts

pytestmark = pytest.mark.integration

MONTH_S = 30 * 86_400
MONTHS = 4
KEY = new_key()
POLICY = a_policy("by-room", Placement(replicas=DYNAMIC))
QUIET = a_binding("quiet", 2, POLICY)
STREAMS = ("cluster/bergen", "cluster/oslo", "fleet/0", INTAKE)


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    """Two clusters and a binding that are told once, and another one that is told something else
    twice a month."""
    told = await ToldPlane.opened(database_url)
    await told.tell(a_cluster("oslo"), a_cluster("bergen"), POLICY)
    await told.tell(*nodes("oslo", "o1", "o2"), *nodes("bergen", "b1"))
    await told.tell(QUIET)
    for turn in range(2 * MONTHS):
        await told.tell(a_binding("busy", 1 + turn % 5, POLICY), after_s=MONTH_S / 2)
    yield told
    await told.ledger.close()


Counts = Callable[[], Awaitable[dict[str, int]]]
Also = Callable[[], Awaitable[None]]


@pytest.fixture
def tables(plane: ToldPlane) -> Counts:
    """Rows by table, all partitions of one together."""

    async def count() -> dict[str, int]:
        async with plane.ledger.database.reading() as raw:
            names = await raw.fetch(
                "select relname from pg_class where relkind in ('r', 'p') and not relispartition "
                "and relnamespace = 'public'::regnamespace order by 1"
            )
            return {name: await _count(raw, name) for (name,) in names}

    return count


async def _count(raw: Raw, table: str) -> int:
    row = await raw.fetchrow(f'select count(*) from "{table}"')
    assert row is not None
    return int(row[0])


def months(number: float) -> Micros:
    """So many months after the plane began."""
    return START + int(number * MONTH_S) * SECOND


async def retired(plane: ToldPlane, before: Micros, checkpoint: bytes | None = None) -> Retirement:
    body = checkpoint or await a_checkpoint(plane.ledger)
    return await retire_before(plane.ledger, before, read("june.json", body), body, plane.time.at)


async def a_checkpoint(ledger: Ledger) -> bytes:
    found, made = await take_checkpoint(ledger, months(MONTHS))
    assert made is not None, found.ledger.first_bad
    return signed(made, KEY)


async def sound(ledger: Ledger) -> None:
    """Verified from its bases on, and decided again from its snapshots."""
    found = await verify(ledger)
    assert found.ok, found.ledger.first_bad
    again = await replay(ledger, DECIDERS)
    assert again.divergences == ()
    assert again.decisions > 0


async def dumps(ledger: Ledger) -> dict[str, dict[str, bytes]]:
    streams = [name for name in STREAMS if name != INTAKE]
    found = [await state_at(ledger, name) for name in streams]
    return {name: at.decider.dump(at.state) for name, at in zip(streams, found, strict=True)}


async def answers(ledger: Ledger) -> tuple[object, ...]:
    """The states, where the streams stand (but for the newest snapshot), and what holds."""
    heads = [(h.stream, h.round, h.seq, h.hash, h.at) for h in await ledger.heads()]
    return (
        await dumps(ledger),
        heads,
        (await known_facts(ledger)).latest,
        await replicas_on_nodes(ledger),
    )


async def latest_of_each_kind(ledger: Ledger) -> dict[tuple[str, str, str], tuple[UUID, bytes]]:
    """A binding that was refused something is still where the decision before it put it."""
    rows = [row async for row in ledger.decisions(DecisionQuery(after={INTAKE: 1_000_000}))]
    return {(row.stream, row.subject, row.type): (row.id, row.body) for row in rows}


async def fetched(ledger: Ledger, query: str, *args: object) -> list[tuple[object, ...]]:
    async with ledger.database.reading() as raw:
        return [tuple(row) for row in await raw.fetch(query, *args)]


async def test_what_remains_is_what_was(plane: ToldPlane) -> None:
    ledger = plane.ledger
    before = await answers(ledger)
    current = {(row.subject, row.stream): row.id for row in await ledger.current()}
    of_each_kind = await latest_of_each_kind(ledger)
    done = (await retired(plane, months(2.5))).done
    assert done is not None
    assert months(1) < done.before * DAY_US <= months(2.5)
    assert await answers(ledger) == before
    assert {(row.subject, row.stream): row.id for row in await ledger.current()} == current
    assert await latest_of_each_kind(ledger) == of_each_kind
    await sound(ledger)


async def test_only_what_counts_is_left_of_the_old_days(plane: ToldPlane) -> None:
    done = (await retired(plane, months(2.5))).done
    assert done is not None
    old = await fetched(
        plane.ledger,
        "select s.name, d.subject from decision d join stream s on s.id = d.stream where day < $1",
        done.before,
    )
    of_quiet = QUIET.binding.name
    assert ("fleet/0", of_quiet) in old
    assert all(subject != "shop/busy-deployment" for stream, subject in old if stream == "fleet/0")
    bodies = await fetched(
        plane.ledger,
        "select subject from event where day < $1 and type like '%cluster.observed%'",
        done.before,
    )
    assert sorted(bodies) == [("bergen",), ("oslo",)]
    of_rounds = [table for table in done.tables if table.startswith("retired_round")]
    async with plane.ledger.database.reading() as raw:
        assert sum([await _count(raw, table) for table in of_rounds]) == done.rounds


async def test_old_decisions_are_explained_by_what_was_recorded_and_later_ones_whole(
    plane: ToldPlane,
) -> None:
    await retired(plane, months(2.5))
    old = await explain(plane.ledger, QUIET.binding.name)
    assert (old.decision.again.retired, old.decision.trace) == (True, None)
    assert old.decision.recorded is not None
    assert {row.stream for row in old.on_nodes} == {"cluster/bergen", "cluster/oslo"}
    later = await explain(plane.ledger, "busy")
    assert (later.decision.again.retired, later.decision.again.same) == (False, True)
    assert later.decision.trace is not None


async def test_positions_stay_and_the_feed_begins_behind_what_was_retired(plane: ToldPlane) -> None:
    """Also of decisions that an appender has read and not yet numbered when they are retired."""
    ledger, late = plane.ledger, FeedAppender(plane.ledger.database, page=1)
    await numbered(ledger)
    before = (await ledger.feed_page(0, 10_000, FeedFilter(facts=True))).entries
    assert before[-1].position == len(before) > 30
    await plane.tell(a_binding("late", 1, POLICY))
    await late.append()
    done = (await retired(plane, months(2.5))).done
    assert done is not None
    await plane.tell(a_binding("later", 1, POLICY))
    while await late.append():
        pass
    earliest = (await ledger.feed_head()).earliest
    assert 1 < earliest < len(before)
    with pytest.raises(FeedRetiredError, match=f"the earliest is {earliest}"):
        await ledger.feed_page(earliest - 2, 1)
    after = (await ledger.feed_page(earliest - 1, 10_000, FeedFilter(facts=True))).entries
    assert after[: len(before) - earliest + 1] == before[earliest - 1 :]
    assert [entry.position for entry in after] == list(range(earliest, earliest + len(after)))
    assert len(after) > len(before) - earliest + 1
    last = before[earliest - 2].row
    assert day_of(last.at) < done.before
    await sound(ledger)


async def test_a_ledger_that_was_never_numbered_begins_behind_what_was_retired(
    plane: ToldPlane,
) -> None:
    await retired(plane, months(2.5))
    await numbered(plane.ledger)
    page = await plane.ledger.feed_page(0, 10_000, FeedFilter(facts=True))
    bases = await plane.ledger.bases()
    assert {INTAKE, "fleet/0"} < {entry.row.stream for entry in page.entries} <= set(STREAMS)
    assert all(entry.row.seq > bases[entry.row.stream].seq for entry in page.entries)
    await sound(plane.ledger)


async def test_a_stream_begins_at_its_horizon(plane: ToldPlane) -> None:
    done = (await retired(plane, months(2.5))).done
    assert done is not None
    bases = await plane.ledger.bases()
    assert bases.keys() == set(STREAMS)
    assert all(day_of(base.at) < done.before for base in bases.values())
    base = bases["fleet/0"]
    with pytest.raises(LedgerError, match=f"fleet/0: the rounds up to {base.round} were retired"):
        [r async for r in plane.ledger.recorded_rounds("fleet/0")]
    first = (await anext(plane.ledger.recorded_rounds("fleet/0", base.round + 1))).round
    assert (first.prev_hash, first.first_seq) == (base.hash, base.seq + 1)
    assert (await plane.ledger.head_at("fleet/0", base.round)).hash == base.hash
    snapshot = await plane.ledger.latest_snapshot("fleet/0", base.round)
    assert snapshot is not None
    assert (snapshot.round, snapshot.digest) == (base.round, base.snapshot)
    # Who reads rows from the beginning gets them from there.
    rows = [row for row in await plane.ledger.rows_after({}, 10_000) if row.stream == "fleet/0"]
    assert rows[0].seq == base.seq + 1


async def test_retired_again_and_again_nothing_is_lost(plane: ToldPlane) -> None:
    facts = (await known_facts(plane.ledger)).latest
    rounds = 0
    for month in (1.5, 2.6, 3.7):
        done = (await retired(plane, months(month))).done
        assert done is not None
        rounds += done.rounds
        await sound(plane.ledger)
        assert (await known_facts(plane.ledger)).latest == facts
    gone = sum(head.round for head in (await plane.ledger.bases()).values())
    assert rounds == gone
    async with plane.ledger.database.reading() as raw:
        thin = [span for span in await spans(raw) if span.suffix.startswith("until_")]
    assert len(thin) == 1  # what one retirement kept, the next one sorts through


async def test_the_plane_goes_on_from_there(plane: ToldPlane) -> None:
    await retired(plane, plane.time.at)
    rounds = await plane.tell(a_binding("busy", 7, POLICY), after_s=60)
    assert rounds
    await plane.tell(a_cluster("tromso"), *nodes("tromso", "t1"))
    await sound(plane.ledger)
    # An id that was accepted in the days that are gone is still known.
    event = next(
        event_of(f) for f in [f async for f in plane.ledger.facts(CLUSTERS.name)] if f.key == "oslo"
    )
    result = await plane.ledger.accept([Submission(event, CLUSTERS.name, "oslo", "oslo")])
    assert result.new == ()


async def test_nothing_old_enough_is_nothing_done(plane: ToldPlane) -> None:
    assert (await retired(plane, START)).done is None
    await retired(plane, months(2.5))
    assert (await retired(plane, months(2.5))).done is None
    with pytest.raises(RetentionError, match="in the past"):
        await retired(plane, plane.time.at + 1)


async def test_a_checkpoint_that_does_not_reach_is_refused(
    plane: ToldPlane, tables: Counts
) -> None:
    early = await a_checkpoint(plane.ledger)
    await plane.tell(a_binding("busy", 9, POLICY), after_s=2 * MONTH_S)
    await plane.tell(a_binding("busy", 8, POLICY), after_s=2 * MONTH_S)
    before = await tables()
    with pytest.raises(
        RetentionError, match=r"^june\.json: reaches round \d+ of .*: take a newer checkpoint$"
    ):
        await retired(plane, months(MONTHS + 3), early)
    assert await tables() == before


async def test_a_checkpoint_of_another_history_is_refused(plane: ToldPlane, tables: Counts) -> None:
    _, made = await take_checkpoint(plane.ledger, months(MONTHS))
    assert made is not None
    heads = {mark.stream: mark for mark in made.streams}
    swapped = type(made)(
        made.version,
        made.plane,
        made.made_at_us,
        tuple(
            type(m)(m.stream, m.round, m.seq, heads["cluster/oslo"].hash, m.at_us)
            for m in made.streams
        ),
    )
    before = await tables()
    with pytest.raises(RetentionError, match="a checkpoint of another history"):
        await retired(plane, months(2.5), signed(swapped, KEY))
    assert await tables() == before


async def test_what_is_not_published_stays(plane: ToldPlane) -> None:
    body = await a_checkpoint(plane.ledger)
    await plane.ledger.advance("publisher", 1, dict.fromkeys(STREAMS, 1), {})
    with pytest.raises(RetentionError, match="has been published yet"):
        await retired(plane, months(2.5), body)
    await plane.ledger.advance(
        "publisher", 1, {h.stream: h.seq for h in await plane.ledger.heads()}, {}
    )
    assert (await retired(plane, months(2.5), body)).done is not None


async def test_whoever_is_killed_half_way_has_done_nothing(
    plane: ToldPlane, tables: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, before = await a_checkpoint(plane.ledger), await tables()
    for step in (
        "_keep_facts",
        "_keep_snapshot",
        "_fill",
        "_name_snapshots",
        "_exchange",
        "_record",
    ):
        with monkeypatch.context() as patched:
            patched.setattr(retention, step, _then_killed(getattr(retention, step)))
            with pytest.raises(asyncio.CancelledError):
                await retired(plane, months(2.5), body)
        assert await tables() == before, step
    assert (await retired(plane, months(2.5), body)).done is not None
    await sound(plane.ledger)


def _then_killed(step: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    async def cut_off(*args: object) -> object:
        await step(*args)
        raise asyncio.CancelledError

    return cut_off


async def test_who_writes_meanwhile_loses_nothing_and_hardly_waits(plane: ToldPlane) -> None:
    body = await a_checkpoint(plane.ledger)
    told = 0
    begun, over = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        nonlocal told
        while not over.is_set():
            await plane.tell(a_binding(f"new-{told}", 1, POLICY))
            told += 1
            begun.set()

    writing = asyncio.create_task(write())
    try:
        await in_patience(begun.wait())
        before = told
        done = (await retired(plane, months(2.5), body)).done
        meanwhile = told - before
    finally:
        over.set()
        await in_patience(writing)
    assert done is not None
    assert meanwhile, "the retirement was to take place while somebody writes"
    names = {row.subject for row in await plane.ledger.current(stream="fleet/0")}
    assert {f"shop/new-{turn}-deployment" for turn in range(told)} <= names
    await sound(plane.ledger)


async def test_the_retirement_has_no_head_while_it_waits_for_the_tables(
    plane: ToldPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement that writes uses the tables before it locks the head: each would wait for the
    other."""
    body = await a_checkpoint(plane.ledger)
    real = partitions.lock_history
    replicas = itertools.count(6)

    async def beside(transaction: Transaction, *also: Also) -> None:
        await in_patience(plane.tell(a_binding("busy", next(replicas), POLICY)))
        await real(transaction, *also)

    monkeypatch.setattr(partitions, "lock_history", beside)
    assert (await retired(plane, months(2.5), body)).done is not None
    await sound(plane.ledger)


async def test_the_retirement_gives_way_to_who_has_a_head_and_waits_for_the_tables(
    plane: ToldPlane,
) -> None:
    body = await a_checkpoint(plane.ledger)
    async with plane.ledger.database.transaction(patient=True) as transaction:
        await lock(transaction, ["fleet/0"])
        retiring = asyncio.create_task(retired(plane, months(2.5), body))
        await eventually(lambda: exclusively_locked(plane.ledger, "decision"))
        await transaction.raw.execute("select count(*) from decision")
    assert (await retiring).done is not None
    await sound(plane.ledger)


async def exclusively_locked(ledger: Ledger, table: str) -> bool:
    async with ledger.database.reading() as raw:
        return bool(
            await raw.fetch(
                "select from pg_locks where relation = $1::regclass and granted "
                "and mode = 'AccessExclusiveLock' and database = "
                "(select oid from pg_database where datname = current_database())",
                table,
            )
        )


async def test_a_reader_who_holds_the_tables_makes_no_writer_wait_for_long(
    plane: ToldPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_TRIES", 3)
    body = await a_checkpoint(plane.ledger)
    assert await retention.cut(plane.ledger.database, months(2.5)) is not None
    async with plane.ledger.database.transaction() as transaction:
        await transaction.raw.execute("select count(*) from decision")
        retiring = asyncio.create_task(retired(plane, months(2.5), body))
        await in_patience(plane.tell(a_binding("busy", 9, POLICY)))
        with pytest.raises(Transient, match="in use all the time: nothing was changed"):
            await retiring
    assert (await retired(plane, months(2.5), body)).done is not None


async def test_a_stream_still_written_before_the_cut_is_not_cut(
    plane: ToldPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer's clock is months behind, and it comes between the look and the lock."""
    body = await a_checkpoint(plane.ledger)
    real = partitions.lock_history

    async def late(transaction: Transaction, *also: Also) -> None:
        late_ledger = await Ledger.open(plane.ledger.database.url, "late", clock=lambda: months(1))
        await late_ledger.ensure_streams(["fleet/7"])
        async with late_ledger.database.reading() as raw:
            await raw.execute(
                "insert into round select (select id from stream "
                "where name = 'fleet/7'), day, 1, epoch, at_us, engine, profile, "
                "basis, 1, 0, 0, snapshot, prev_hash, hash from round where day < $1 limit 1",
                day_of(months(1)),
            )
        await late_ledger.close()
        await real(transaction, *also)

    assert await retention.cut(plane.ledger.database, months(2.5)) is not None
    monkeypatch.setattr(partitions, "lock_history", late)
    with pytest.raises(LedgerError, match="still being written before"):
        await retired(plane, months(2.5), body)


async def test_retired_tables_are_archived_once_and_dropped(
    plane: ToldPlane, tmp_path: Path
) -> None:
    done = (await retired(plane, months(2.5))).done
    assert done is not None
    assert await retired_tables(plane.ledger.database) == sorted(done.tables)
    archived = await archive(plane.ledger.database, done.tables, tmp_path)
    of_rounds = [one for one in archived if one.table.startswith("retired_round")]
    assert sum(one.rows for one in of_rounds) == done.rounds
    lines = (
        zstandard.ZstdDecompressor()
        .decompressobj()
        .decompress((tmp_path / of_rounds[0].file).read_bytes())
    )
    assert lines.startswith(b"stream,day,number,epoch,at_us")
    assert lines.count(b"\n") == of_rounds[0].rows + 1
    written = _changed(tmp_path)
    assert await archive(plane.ledger.database, done.tables, tmp_path) == archived
    assert _changed(tmp_path) == written
    await drop(plane.ledger.database, done.tables)
    assert await retired_tables(plane.ledger.database) == []
    await sound(plane.ledger)


def _changed(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in directory.glob("*.zst")}


# --- the command ---------------------------------------------------------------------------------


def test_the_command_retires_archives_and_drops_and_says_so(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from wharfinger_cli.__main__ import main

    def ask(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["wharfinger", *arguments])
        code = main()
        out, err = capsys.readouterr()
        return code, out, err

    in_a_loop(lambda: _some_months(database_url))
    monkeypatch.setenv("WHARFINGER_DATABASE", database_url)
    key, checkpoint, archived = (
        str(tmp_path / name) for name in ("key.pem", "june.json", "archive")
    )
    assert ask("audit", "key", key)[0] == 0
    assert ask("audit", "checkpoint", "--key", key, "--out", checkpoint)[0] == 0
    before = ask("get", "bindings")[1]
    retire = ("ledger", "retire", "--before", "2025-09-01", "--checkpoint", checkpoint)
    code, out, _ = ask(*retire, "--archive", archived, "--drop")
    assert (code, out.splitlines()[0].startswith("retired what lies before 2025-08-10: ")) == (
        0,
        True,
    )
    assert "dropped 8 tables" in out
    assert (tmp_path / "archive" / "MANIFEST.json").exists()
    assert ask("get", "bindings")[1] == before
    assert ask("audit", "verify")[0] == 0
    assert ask("replay")[0] == 0
    assert ask(*retire)[1].startswith("nothing to retire")
    for wrong, said in (
        (("--before", "soon", "--checkpoint", checkpoint), "--before: expected a time"),
        (("--before", "2025-09-01", "--checkpoint", key), f"{key}: expected a checkpoint"),
        (("--before", "2025-09-01", "--checkpoint", f"{key}.none"), "No such file"),
        (("--before", "2925-09-01", "--checkpoint", checkpoint), "expected a time in the past"),
    ):
        code, out, err = ask("ledger", "retire", *wrong)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err


async def _some_months(database_url: str) -> None:
    told = await ToldPlane.opened(database_url)
    await told.tell(a_cluster("oslo"), POLICY, *nodes("oslo", "o1"))
    await told.tell(QUIET)
    for turn in range(MONTHS):
        await told.tell(a_binding("busy", 1 + turn % 2, POLICY), after_s=MONTH_S)
    await told.ledger.close()
