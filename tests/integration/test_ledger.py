"""The ledger on a real database: what is committed is there, once, in order, and only by its
stream's writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec
import pytest
import pytest_asyncio
from tests.counter import Counter, Writer, withdrawn
from tests.patience import PATIENCE_S, eventually, in_patience

from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.cluster_state import PodsObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import BindingReleased
from wharfinger.events.envelope import FactVersion, derived_id
from wharfinger.events.origin import AS_IT_CAME, Origin, origin_of
from wharfinger.events.streams import BINDINGS, INTAKE
from wharfinger.kernel.hashing import genesis
from wharfinger.kernel.recover import recover
from wharfinger.kernel.round import Round
from wharfinger.kernel.step import decision_id
from wharfinger.runtime.ledger import (
    CorruptLedger,
    DecisionQuery,
    FeedAppender,
    Ledger,
    LedgerError,
    LedgerRow,
    LedgerUnavailable,
    SnapshotFollower,
    Submission,
    audit_verify,
)
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.days import day_of
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.ledger.heads import lock
from wharfinger.runtime.ledger.writer import BYTES_AT_ONCE, event_row, write

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.open(database_url, "tests", clock=lambda: 5_000_001)
    yield opened
    await opened.close()


async def writer_of(ledger: Ledger, stream: str, padding: int = 0) -> Writer:
    await ledger.ensure_streams([stream])
    return Writer((await ledger.raise_epoch([stream]))[stream], Counter(padding=padding))


async def committed(
    ledger: Ledger, writer: Writer, rounds: int, per_round: int = 2, first: int = 0
) -> list[Round]:
    made = [
        writer.step([withdrawn(first + number * per_round + i) for i in range(per_round)])
        for number in range(rounds)
    ]
    result = await ledger.commit(made, writer.events)
    assert result.fenced == frozenset()
    return made


@asynccontextmanager
async def sql(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, "tests-sql")
    yield database
    await database.close()


async def test_what_was_committed_comes_back_byte_for_byte(ledger: Ledger) -> None:
    # long enough for bodies to be compressed
    writer = await writer_of(ledger, "fleet/0", padding=1500)
    rounds = await committed(ledger, writer, 5, per_round=3)
    back = [recorded async for recorded in ledger.recorded_rounds("fleet/0", batch_rows=4)]
    assert [recorded.round for recorded in back] == rounds
    assert [e for recorded in back for e in recorded.events] == [withdrawn(n) for n in range(15)]
    assert await ledger.heads("fleet/") == [writer.head]
    assert await ledger.head_at("fleet/0", 3) == rounds[2].head()
    assert await ledger.basis("fleet/0", 5) == rounds[4].basis


async def test_taken_at_their_word_the_rounds_are_the_same(ledger: Ledger) -> None:
    writer = await writer_of(ledger, "fleet/0", padding=1500)
    await committed(ledger, writer, 5, per_round=3)
    checked = [recorded async for recorded in ledger.recorded_rounds("fleet/0", batch_rows=4)]
    trusted = [
        recorded
        async for recorded in ledger.recorded_rounds("fleet/0", batch_rows=4, on_trust=True)
    ]
    assert trusted == checked


async def test_a_range_of_rounds_is_just_that_range(ledger: Ledger) -> None:
    rounds = await committed(ledger, await writer_of(ledger, "fleet/0"), 6)
    back = [recorded.round async for recorded in ledger.recorded_rounds("fleet/0", 2, 4)]
    assert back == rounds[1:4]


@pytest.mark.parametrize("bytes_at_once", [BYTES_AT_ONCE, 1000, 1])
async def test_large_rounds_come_back_however_many_statements_they_take(
    ledger: Ledger, bytes_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wharfinger.runtime.ledger.writer.BYTES_AT_ONCE", bytes_at_once)
    writer = await writer_of(ledger, "fleet/0")
    rounds = await committed(ledger, writer, 2, per_round=400)
    assert [recorded.round async for recorded in ledger.recorded_rounds("fleet/0")] == rounds
    assert (await audit_verify(ledger)).ok


async def test_rounds_of_several_streams_are_one_transaction(ledger: Ledger) -> None:
    one, two = await writer_of(ledger, "cluster/oslo"), await writer_of(ledger, "cluster/bergen")
    shared = withdrawn(1)
    rounds = [one.step([shared]), two.step([shared])]
    result = await ledger.commit(rounds, one.events)
    assert result.committed == {"cluster/oslo", "cluster/bergen"}
    async with ledger.database.reading() as raw:
        ids = {row[0] for row in await raw.fetch("select xmin::text from round")}
        bodies = await raw.fetch("select id from event")
    assert len(ids) == 1
    assert [row[0] for row in bodies] == [shared.id]  # the body lies once


@pytest.mark.parametrize("moves", [True, False])
async def test_a_commit_that_waits_for_a_head_sees_where_it_is_then(
    ledger: Ledger, moves: bool
) -> None:
    """Another transaction has locked one of the two heads, and moves it or not."""
    oslo, bergen = (
        await writer_of(ledger, "cluster/oslo"),
        await writer_of(ledger, "cluster/bergen"),
    )
    theirs = Writer(oslo.head).step([withdrawn(1)])
    rounds = [oslo.step([withdrawn(2)]), bergen.step([withdrawn(3)])]
    events = {**oslo.events, **bergen.events}
    async with ledger.database.transaction() as transaction:
        await lock(transaction, ["cluster/oslo"])
        committing = asyncio.create_task(ledger.commit(rounds, events))
        await eventually(lambda: _waits_for_a_lock(ledger))
        if moves:
            await write(transaction.raw, [[theirs]], [event_row(withdrawn(1), day_of(theirs.at))])
    result = await committing
    assert result.committed == ({"cluster/bergen"} if moves else {"cluster/oslo", "cluster/bergen"})
    assert result.fenced == ({"cluster/oslo"} if moves else frozenset())
    found = [recorded.round async for recorded in ledger.recorded_rounds("cluster/oslo")]
    assert found == [theirs if moves else rounds[0]]
    assert (await audit_verify(ledger)).ok


async def _waits_for_a_lock(ledger: Ledger) -> bool:
    async with ledger.database.reading() as raw:
        row = await raw.fetchrow(
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and wait_event_type = 'Lock'"
        )
    return row is not None and row[0] > 0


async def test_a_second_writer_fences_the_first(ledger: Ledger) -> None:
    old = await writer_of(ledger, "fleet/0")
    await committed(ledger, old, 1)
    new = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
    result = await ledger.commit([old.step([withdrawn(50)])], old.events)
    assert not result.committed
    assert result.fenced == {"fleet/0"}
    result = await ledger.commit([new.step([withdrawn(60)])], new.events)
    assert result.committed == {"fleet/0"}
    assert (await audit_verify(ledger)).ok


async def test_a_fenced_stream_takes_its_group_along_and_nobody_else(ledger: Ledger) -> None:
    writers = {
        name: await writer_of(ledger, name) for name in ("cluster/a", "cluster/b", "cluster/c")
    }
    await ledger.raise_epoch(["cluster/a"])
    rounds = [writer.step([withdrawn(n)]) for n, writer in enumerate(writers.values())]
    events = {id_: event for writer in writers.values() for id_, event in writer.events.items()}
    result = await ledger.commit(rounds, events, lambda stream: stream == "cluster/c")
    assert result.fenced == {"cluster/a", "cluster/b"}
    assert result.committed == {"cluster/c"}
    assert {h.stream: h.round for h in await ledger.heads("cluster/")} == {
        "cluster/a": 0,
        "cluster/b": 0,
        "cluster/c": 1,
    }


async def test_a_fenced_stream_does_not_hold_the_others_back(ledger: Ledger) -> None:
    fenced, fine = await writer_of(ledger, "fleet/0"), await writer_of(ledger, "fleet/1")
    await ledger.raise_epoch(["fleet/0"])
    rounds = [fenced.step([withdrawn(1)]), fine.step([withdrawn(2)])]
    result = await ledger.commit(rounds, {**fenced.events, **fine.events})
    assert result.committed == {"fleet/1"}
    assert result.fenced == {"fleet/0"}
    heads = {h.stream: h for h in await ledger.heads("fleet/")}
    assert heads["fleet/0"].round == 0
    assert heads["fleet/1"] == fine.head
    assert await ledger.missing_bodies([withdrawn(1).id, withdrawn(2).id]) == {withdrawn(1).id}


async def test_committing_the_same_rounds_again_changes_nothing(ledger: Ledger) -> None:
    writer = await writer_of(ledger, "fleet/0")
    first = await committed(ledger, writer, 2)
    assert (await ledger.commit(first, writer.events)).committed == {"fleet/0"}
    later = await committed(ledger, writer, 1, first=90)
    # though others follow by now
    assert (await ledger.commit(first, writer.events)).committed == {"fleet/0"}
    assert [r.round async for r in ledger.recorded_rounds("fleet/0")] == first + later


async def test_two_writers_of_one_epoch_never_both_win(ledger: Ledger) -> None:
    """What could only happen if the lock failed: the compare-and-set still lets exactly one
    through."""
    await ledger.ensure_streams(["fleet/0"])
    head = (await ledger.raise_epoch(["fleet/0"]))["fleet/0"]
    rivals = [Writer(head) for _ in range(6)]
    rounds = [rival.step([withdrawn(n)]) for n, rival in enumerate(rivals)]
    results = await asyncio.gather(
        *(ledger.commit([r], w.events) for r, w in zip(rounds, rivals, strict=True))
    )
    assert sorted(len(r.committed) for r in results) == [0, 0, 0, 0, 0, 1]
    assert (await audit_verify(ledger)).ok


async def test_crossing_transactions_do_not_deadlock(ledger: Ledger) -> None:
    names = [f"cluster/{n}" for n in range(8)]
    writers = {name: await writer_of(ledger, name) for name in names}
    shared = [withdrawn(n) for n in range(40)]

    async def commit_all(mine: list[str], events: list[int]) -> None:
        for turn in range(10):
            batch = [shared[(turn * 4 + n) % 40] for n in events]
            rounds = [writers[name].step(batch) for name in mine]
            assert (await ledger.commit(rounds, writers[mine[0]].events)).committed == set(mine)

    await asyncio.gather(
        commit_all(names[0::2], [0, 1, 2, 3]), commit_all(list(reversed(names[1::2])), [3, 2, 1, 0])
    )
    assert (await audit_verify(ledger)).ok


async def test_known_events_are_named_for_each_stream(ledger: Ledger) -> None:
    writer = await writer_of(ledger, "fleet/0")
    await committed(ledger, writer, 1)
    asked = [withdrawn(0).id, withdrawn(1).id, withdrawn(9).id]
    known = await ledger.known({"fleet/0": asked, "fleet/1": asked})
    assert known == {"fleet/0": set(asked[:2]), "fleet/1": set()}


async def test_an_event_taken_in_twice_is_refused_whole(ledger: Ledger) -> None:
    writer = await writer_of(ledger, "fleet/0")
    await committed(ledger, writer, 1)
    before = await ledger.heads()
    with pytest.raises(LedgerError, match="event_stream_day"):
        await ledger.commit([writer.step([withdrawn(0)])], writer.events)
    assert await ledger.heads() == before


async def test_a_round_without_its_bodies_is_refused(ledger: Ledger) -> None:
    writer = await writer_of(ledger, "fleet/0")
    with pytest.raises(LedgerError, match="its body is missing"):
        await ledger.commit([writer.step([withdrawn(1)])], {})
    with pytest.raises(LedgerError, match="unknown stream"):
        await ledger.commit(
            [Writer(writer.head.__class__("fleet/9", 0, 0, genesis("fleet/9"), 0)).step([])], {}
        )


# --- intake --------------------------------------------------------------------------------------


def submission(number: int) -> Submission:
    event = withdrawn(number)
    return Submission(event, BINDINGS.name, event.subject, f"{event.subject}/p")


async def test_an_event_no_broker_would_take_is_refused_before_it_is_recorded(
    ledger: Ledger,
) -> None:
    fits = submission(1)
    big = Submission(
        msgspec.structs.replace(fits.event, body=b"x" * 1_000_001),
        fits.topic,
        fits.key,
        fits.partition_key,
    )
    with pytest.raises(LedgerError, match="1,000,001 bytes; expected at most 1,000,000"):
        await ledger.accept([big])
    assert await ledger.rows_after({}, 10) == []


async def test_intake_accepts_an_id_once(ledger: Ledger) -> None:
    first = await ledger.accept([submission(1), submission(2), submission(1)])
    assert (first.new, first.known) == ((withdrawn(1).id, withdrawn(2).id), (withdrawn(1).id,))
    again = await ledger.accept([submission(2), submission(3)])
    assert (again.new, again.known) == ((withdrawn(3).id,), (withdrawn(2).id,))
    rows = await ledger.rows_after({}, 100)
    assert [(row.stream, row.seq, row.id) for row in rows] == [
        (INTAKE, n, decision_id(INTAKE, n)) for n in (1, 2, 3)
    ]
    accepted = rows[2].accepted
    assert accepted is not None
    assert (accepted.id, accepted.body) == (withdrawn(3).id, withdrawn(3).body)
    assert (accepted.topic, accepted.key, accepted.partition_key) == (
        BINDINGS.name,
        "binding-3",
        "binding-3/p",
    )
    assert rows[2].at == 5_000_001
    assert (await audit_verify(ledger)).ok


async def test_what_is_accepted_says_who_handed_it_in(database_url: str) -> None:
    """The principal that opened the ledger, unless a call names another; the chain holds it."""
    ada, bob = Origin("user", "unix:ada", "why"), Origin("api_key", "token:bob")
    opened = await Ledger.open(database_url, "tests", origin=ada)
    try:
        await opened.accept([submission(1)])
        await opened.accept([submission(2)], bob)
        await opened.accept([submission(3)], AS_IT_CAME)
        again = await opened.accept([submission(1)], bob)
        assert again.known == (withdrawn(1).id,)
        rows = await opened.rows_after({}, 10)
        bodies = [row.accepted.body for row in rows if row.accepted is not None]
        assert [origin_of(body) for body in bodies] == [ada, bob, AS_IT_CAME]
        assert bodies[2] == withdrawn(3).body
        assert (await audit_verify(opened)).ok
    finally:
        await opened.close()


async def test_a_fact_older_than_the_latest_of_its_key_is_refused_and_named(ledger: Ledger) -> None:
    def told(number: int, version: FactVersion, key: str = "web") -> Submission:
        event = made(
            BindingWithdrawn(key),
            id=derived_id("versioned", number),
            source="/tests",
            subject=key,
            version=version,
        )
        return Submission(event, BINDINGS.name, key, key)

    # within one call too
    first = await ledger.accept([told(1, (1, 5)), told(2, (1, 4)), told(3, (1, 4), "db")])
    assert (len(first.new), first.known) == (2, ())
    assert first.outdated == (told(2, (1, 4)).event.id,)
    later = await ledger.accept(
        [told(4, (1, 3)), told(1, (1, 5)), told(5, (2, 1)), told(6, (1, 9)), told(7, (0, 0))]
    )
    assert later.new == (told(5, (2, 1)).event.id, told(7, (0, 0)).event.id)
    assert later.known == (told(1, (1, 5)).event.id,)
    assert later.outdated == (told(4, (1, 3)).event.id, told(6, (1, 9)).event.id)
    facts = {fact.key: event_of(fact).id async for fact in ledger.facts(BINDINGS.name)}
    assert facts == {"web": told(7, (0, 0)).event.id, "db": told(3, (1, 4), "db").event.id}
    assert (await audit_verify(ledger)).ok


async def test_many_appenders_share_the_intake(ledger: Ledger, database_url: str) -> None:
    others = [await Ledger.open(database_url, f"tests-{n}") for n in range(3)]
    try:
        # Each number is offered by two appenders: exactly one of them may have it.
        calls = [
            o.accept([submission(n) for n in range(s, s + 40)])
            for s in range(0, 200, 20)
            for o in others[:2]
        ]
        results = await asyncio.gather(*calls)
    finally:
        for other in others:
            await other.close()
    new = [id_ for result in results for id_ in result.new]
    assert len(new) == len(set(new)) == 220
    rows = await ledger.rows_after({}, 1000)
    assert [row.seq for row in rows] == list(range(1, 221))
    assert (await audit_verify(ledger)).ok


async def test_more_than_a_chunk_is_several_rounds(ledger: Ledger) -> None:
    await ledger.accept([submission(n) for n in range(1500)])
    head = (await ledger.heads(INTAKE))[0]
    assert (head.round, head.seq) == (2, 1500)


# --- rows ----------------------------------------------------------------------------------------


async def test_followers_see_every_row_once_and_streams_in_order(ledger: Ledger) -> None:
    for name in ("fleet/0", "cluster/a", "cluster/b"):
        await committed(ledger, await writer_of(ledger, name), 7)
    await ledger.accept([submission(n) for n in range(10)])
    cursors: dict[str, int] = {}
    seen: dict[str, list[int]] = {}
    while rows := await ledger.rows_after(cursors, 5):
        assert len(rows) <= 5
        for row in rows:
            cursors[row.stream] = row.seq
            seen.setdefault(row.stream, []).append(row.seq)
    ends = {h.stream: h.seq for h in await ledger.heads()}
    assert seen == {name: list(range(1, end + 1)) for name, end in ends.items()}


async def test_decisions_are_found_by_what_is_asked(ledger: Ledger) -> None:
    rounds = await committed(ledger, await writer_of(ledger, "fleet/0"), 4)
    await committed(ledger, await writer_of(ledger, "fleet/01"), 1, first=100)
    await ledger.accept([submission(500)])

    async def asked(query: DecisionQuery) -> list[tuple[str, int]]:
        return [(row.stream, row.seq) async for row in ledger.decisions(query)]

    everything = await asked(DecisionQuery())
    assert len(everything) == sum(h.seq for h in await ledger.heads())
    assert {stream for stream, _ in await asked(DecisionQuery("fleet"))} == {"fleet/0", "fleet/01"}
    # a name before a prefix
    assert {stream for stream, _ in await asked(DecisionQuery("fleet/0"))} == {"fleet/0"}
    later = [d.seq for r in rounds[2:] for d in r.decisions]
    assert [seq for _, seq in await asked(DecisionQuery("fleet/0", since=rounds[2].at))] == later
    assert await asked(DecisionQuery("fleet/0", limit=3)) == [("fleet/0", n) for n in (1, 2, 3)]
    assert await asked(DecisionQuery("fleet/0", after={"fleet/0": rounds[-1].first_seq - 1})) == [
        ("fleet/0", d.seq) for d in rounds[-1].decisions
    ]
    fleet_wide = [d for r in rounds for d in r.decisions if d.subject == "fleet"]
    assert await asked(DecisionQuery("fleet/0", subject="fleet")) == [
        ("fleet/0", d.seq) for d in fleet_wide
    ]
    assert await asked(DecisionQuery("fleet/0", types=[fleet_wide[0].type])) == [
        ("fleet/0", d.seq) for d in fleet_wide
    ]


async def test_pages_of_decisions_have_each_of_them_once_and_in_order(ledger: Ledger) -> None:
    """By any filter, at any length of a page: what is asked for without a limit."""
    for name in ("fleet/0", "cluster/a", "cluster/b"):
        await committed(ledger, await writer_of(ledger, name), 5)
    await ledger.accept([submission(n) for n in range(5)])
    everything = [row async for row in ledger.decisions(DecisionQuery())]
    asked: list[dict[str, Any]] = [
        {},
        {"stream": "cluster"},
        {"subject": "fleet"},
        {"types": [everything[-1].type]},
        {"outcomes": [everything[0].outcome]},
        {"subjects": [everything[0].subject, "fleet"]},
        {"namespaces": [everything[0].subject.partition("/")[0]]},
        {"stream": "no-such"},
    ]
    for filters in asked:
        whole = [row async for row in ledger.decisions(DecisionQuery(**filters))]
        for limit in (1, 2, 3, 1000):
            found: list[LedgerRow] = []
            seqs: dict[str, int] = {}
            while True:
                query = DecisionQuery(**filters, after=seqs, limit=limit)
                page = [row async for row in ledger.decisions(query)]
                assert len(page) <= limit
                if not page:
                    break
                found += page
                seqs.update((row.stream, row.seq) for row in page)
            assert found == whole, filters


async def test_one_decision_by_its_id(ledger: Ledger) -> None:
    rounds = await committed(ledger, await writer_of(ledger, "fleet/0"), 2)
    wanted = rounds[1].decisions[0]
    row = await ledger.decision(wanted.id)
    assert row is not None
    assert (row.stream, row.seq, row.at, row.data()) == (
        "fleet/0",
        wanted.seq,
        rounds[1].at,
        wanted.data,
    )
    assert await ledger.decision(UUID(int=0)) is None


async def test_current_is_the_latest_of_each_subject(ledger: Ledger) -> None:
    rounds = await committed(ledger, await writer_of(ledger, "fleet/0"), 10)
    await ledger.accept([submission(900)])
    latest = {d.subject: d.seq for r in rounds for d in r.decisions}
    assert {row.subject: row.seq for row in await ledger.current()} == latest
    bindings = {s: n for s, n in latest.items() if s.startswith("binding-")}
    assert {row.subject: row.seq for row in await ledger.current("binding-")} == bindings
    data = (await ledger.current("binding-3"))[0].data()
    assert isinstance(data, BindingReleased)


# --- snapshots -----------------------------------------------------------------------------------


async def test_recovery_from_a_snapshot_equals_recovery_from_the_start(ledger: Ledger) -> None:
    writer = await writer_of(ledger, "fleet/0")
    await committed(ledger, writer, 7)
    follower = SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=3)
    assert await follower.catch_up() == [3, 6]
    snapshot = await ledger.latest_snapshot("fleet/0")
    assert snapshot is not None
    assert snapshot.round == 6
    decider = Counter()
    state = decider.load("fleet/0", snapshot.sections)
    async for recorded in ledger.recorded_rounds("fleet/0", 7):
        recover(decider, state, [recorded])
    assert decider.dump(state) == writer.decider.dump(writer.state)
    earlier = await ledger.latest_snapshot("fleet/0", at_most_round=5, names=["counts"])
    assert earlier is not None
    assert (earlier.round, list(earlier.sections)) == (3, ["counts"])


async def test_later_rounds_carry_the_digest_and_writing_one_fences_nobody(ledger: Ledger) -> None:
    writer = await writer_of(ledger, "fleet/0")
    await committed(ledger, writer, 3)
    stepped = writer.step([withdrawn(70)])  # before the snapshot, committed after it
    await SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=3).catch_up()
    snapshot = await ledger.latest_snapshot("fleet/0")
    assert snapshot is not None
    result = await ledger.commit([stepped], writer.events)
    assert result.snapshots == {"fleet/0": snapshot.digest}
    carrying = writer.step([withdrawn(71)], snapshot=result.snapshots["fleet/0"])
    assert (await ledger.commit([carrying], writer.events)).committed == {"fleet/0"}
    assert carrying.snapshot == snapshot.digest
    # begins at the snapshot
    follower = SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=3)
    assert await follower.catch_up() == []
    assert follower.divergence is None
    assert (await audit_verify(ledger)).ok


async def test_a_state_that_has_parted_is_never_stored(ledger: Ledger) -> None:
    await committed(ledger, await writer_of(ledger, "fleet/0"), 4)
    follower = SnapshotFollower(ledger, lambda _: Counter(every=2), "fleet/0", every_rounds=4)
    assert await follower.catch_up() == []
    assert follower.divergence is not None
    assert await ledger.latest_snapshot("fleet/0") is None


async def test_only_the_newest_snapshots_keep_their_bytes(ledger: Ledger) -> None:
    await committed(ledger, await writer_of(ledger, "fleet/0"), 8)
    await SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=2).catch_up()
    assert await ledger.latest_snapshot("fleet/0", 5) is None
    newest = await ledger.latest_snapshot("fleet/0", 7)
    assert newest is not None
    assert newest.round == 6
    assert (await audit_verify(ledger)).ok
    with pytest.raises(LedgerError, match="the two states differ"):
        await ledger.write_snapshot("fleet/0", 8, {"counts": b"other"})


async def test_followers_side_by_side_make_one_snapshot(ledger: Ledger) -> None:
    await committed(ledger, await writer_of(ledger, "fleet/0"), 9)
    followers = [
        SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=3) for _ in range(3)
    ]
    await asyncio.gather(*(follower.catch_up() for follower in followers))
    snapshot = await ledger.latest_snapshot("fleet/0")
    assert snapshot is not None
    assert (await ledger.heads("fleet/"))[0].snapshot == snapshot.digest
    assert (await audit_verify(ledger)).ok


async def test_a_snapshot_whose_bytes_changed_is_not_loaded(ledger: Ledger) -> None:
    await committed(ledger, await writer_of(ledger, "fleet/0"), 2)
    await SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=2).catch_up()
    async with ledger.database.reading() as raw:
        await raw.execute(
            "update snapshot_section set body = $1, encoding = 0 where name = 'counts'", b"[9,{}]"
        )
    with pytest.raises(CorruptLedger, match="counts"):
        await ledger.latest_snapshot("fleet/0")


# --- cursors, incarnations, notifications --------------------------------------------------------


async def test_cursors_belong_to_an_incarnation_and_never_go_back(ledger: Ledger) -> None:
    assert await ledger.cursors("publisher", 1) == ({}, {})
    await ledger.advance("publisher", 1, {"fleet/0": 5, INTAKE: 2}, {"wharfinger.decisions/0": 40})
    await ledger.advance("publisher", 1, {"fleet/0": 9}, {"wharfinger.decisions/1": 3})
    await ledger.advance("publisher", 1, {"fleet/0": 7}, {"wharfinger.decisions/0": 39})
    seqs, positions = await ledger.cursors("publisher", 1)
    assert seqs == {"fleet/0": 9, INTAKE: 2}
    assert positions == {"wharfinger.decisions/0": 40, "wharfinger.decisions/1": 3}
    assert await ledger.cursors("publisher", 2) == ({}, {})


async def test_an_incarnation_ends_when_a_topic_is_made_anew_or_the_broker_forgot(
    ledger: Ledger,
) -> None:
    topics = ["a", "b"]
    assert await ledger.incarnation(topics, {"a", "b"}, "boot-1") == {"a": 1, "b": 1}
    assert await ledger.incarnation(topics, set(), "boot-1") == {"a": 1, "b": 1}
    assert await ledger.incarnation(topics, {"b"}, "boot-1") == {"a": 1, "b": 2}
    # Above all others, so that the highest tells whether any topic began again.
    assert await ledger.incarnation(topics, {"a"}, "boot-2") == {"a": 3, "b": 3}
    assert await ledger.incarnation([*topics, "c"], set(), "boot-2") == {"a": 3, "b": 3, "c": 1}


async def test_a_topic_is_known_by_its_id_where_the_broker_gives_ids(ledger: Ledger) -> None:
    topics, ids = ["a", "b"], {"a": "id:1", "b": "id:2"}
    assert await ledger.incarnation(topics, {"a", "b"}, "") == {"a": 1, "b": 1}
    # A ledger of before, which knows no ids: they are noted, and nothing has begun again.
    assert await ledger.incarnation(topics, set(), "", ids) == {"a": 1, "b": 1}
    assert await ledger.topic_identities() == ids
    # another process has seen it first
    assert await ledger.incarnation(topics, {"a"}, "", ids) == {"a": 1, "b": 1}
    assert await ledger.incarnation(topics, set(), "", {**ids, "b": "id:3"}) == {"a": 1, "b": 2}
    assert await ledger.incarnation(topics, set(), "", {**ids, "b": "id:3"}) == {"a": 1, "b": 2}
    assert await ledger.end_incarnations({"a": 1}) == {"a": 3, "b": 2}
    # a second process that saw the same
    assert await ledger.end_incarnations({"a": 1}) == {"a": 3, "b": 2}


async def test_commits_wake_whoever_listens_even_after_a_lost_connection(ledger: Ledger) -> None:
    wakeup = asyncio.Event()

    async def woken() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await wakeup.wait()
        wakeup.clear()

    listening = asyncio.create_task(ledger.notifications(wakeup))
    await woken()  # once for what was there before
    await ledger.accept([submission(1)])
    await woken()
    async with ledger.database.reading() as raw:
        await raw.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and query ilike 'listen%'"
        )
    await woken()
    await ledger.accept([submission(2)])
    await woken()
    listening.cancel()


class Counted(asyncio.Event):
    """Knows how often it was set."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def set(self) -> None:
        self.times += 1
        super().set()


async def test_rounds_without_decisions_wake_only_who_wants_all(ledger: Ledger) -> None:
    """Notifications of a connection come in the order of the commits."""
    every, decided = Counted(), Counted()

    async def woken(*wakeups: Counted) -> None:
        async with asyncio.timeout(PATIENCE_S):
            for wakeup in wakeups:
                await wakeup.wait()
                wakeup.clear()

    listening = [
        asyncio.create_task(ledger.notifications(every)),
        asyncio.create_task(ledger.notifications(decided, decided=True)),
    ]
    await woken(every, decided)  # once for what was there before
    writer = await writer_of(ledger, "fleet/0")
    fact = made(PodsObserved("oslo", "n1", ()), id=derived_id("f"), source="/tests", subject="oslo")
    round_ = writer.step([fact])
    assert not round_.decisions
    await ledger.commit([round_], writer.events)
    await woken(every)
    await committed(ledger, writer, 1)
    await woken(every, decided)
    await ledger.accept([submission(1)])
    await woken(every, decided)
    assert (every.times, decided.times) == (4, 3)
    for task in listening:
        task.cancel()


async def listeners(ledger: Ledger) -> int:
    """How many connections listen."""
    async with ledger.database.reading() as raw:
        found = await raw.fetchrow(
            "select count(*) from pg_stat_activity "
            "where datname = current_database() and query ilike 'listen%'"
        )
    assert found is not None
    return int(found[0])


async def test_the_followers_of_a_process_share_a_connection(ledger: Ledger) -> None:
    """Whenever they come and go, and after it was lost."""
    rounds, decided, positions = Counted(), Counted(), Counted()

    async def woken(*wakeups: Counted) -> None:
        async with asyncio.timeout(PATIENCE_S):
            for wakeup in wakeups:
                await wakeup.wait()
                wakeup.clear()

    first = asyncio.create_task(ledger.notifications(rounds))
    await woken(rounds)
    second = asyncio.create_task(ledger.feed_news(positions))
    third = asyncio.create_task(ledger.notifications(decided, decided=True))
    await woken(positions, decided)
    assert await listeners(ledger) == 1
    appender = FeedAppender(ledger.database)
    await appender.begin()
    await ledger.accept([submission(1)])
    await woken(rounds, decided)
    assert await appender.append() == 1
    await woken(positions)
    first.cancel()
    async with ledger.database.reading() as raw:
        await raw.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and query ilike 'listen%'"
        )
    await woken(positions, decided)
    await ledger.accept([submission(2)])
    await woken(decided)
    assert rounds.times == 2
    for task in (second, third):
        task.cancel()

    async def none_listens() -> bool:
        return not await listeners(ledger)

    await eventually(none_listens)
    again = asyncio.create_task(ledger.notifications(rounds))
    await woken(rounds)
    await ledger.accept([submission(3)])
    await woken(rounds)
    again.cancel()


async def test_a_cancellation_that_is_lost_leaves_no_one_listening(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver says that the connection was cut, where it should say that it was cancelled."""
    began = asyncio.Event()

    async def dedicated(deadline_s: float | None = None) -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("cut") from None

    monkeypatch.setattr(ledger.database, "dedicated", dedicated)
    follower = asyncio.create_task(ledger.notifications(asyncio.Event()))
    await in_patience(began.wait())
    follower.cancel()
    await eventually(
        lambda: not [t for t in asyncio.all_tasks() if t.get_name() == "ledger-notifications"]
    )


# --- opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://postgres:secret@127.0.0.1:1/nowhere", "127.0.0.1:1/nowhere"),
        ("mysql://root@localhost/x", "postgresql://"),
        ("no url at all", "postgresql://"),
    ],
)
async def test_a_wrong_url_is_one_clear_line(url: str, said: str) -> None:
    with pytest.raises(LedgerUnavailable) as caught:
        await Ledger.open(url, "tests")
    message = str(caught.value)
    assert said in message
    assert "secret" not in message
    assert "\n" not in message


async def test_a_database_without_a_ledger_says_so(empty_database_url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="no ledger in this database"):
        await Ledger.open(empty_database_url, "tests")


async def test_a_ledger_of_another_version_says_so(database_url: str) -> None:
    async with sql(database_url) as database, database.reading() as raw:
        await raw.execute("update alembic_version set version_num = '9999'")
    with pytest.raises(LedgerUnavailable, match="version 9999, this program needs"):
        await Ledger.open(database_url, "tests")
