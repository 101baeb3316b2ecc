"""Whatever is changed behind the ledger's back, `audit_verify` names the first row that is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.counter import Counter, Writer, withdrawn

from wharfinger.events.streams import BINDINGS
from wharfinger.kernel.round import Round
from wharfinger.runtime.ledger import Ledger, SnapshotFollower, Submission, audit_verify
from wharfinger.runtime.ledger.verify import Remembered

pytestmark = pytest.mark.integration

FLEET = "(select id from stream where name = 'fleet/0')"


@dataclass
class History:
    ledger: Ledger
    rounds: list[Round]


@pytest_asyncio.fixture
async def history(database_url: str) -> AsyncIterator[History]:
    """fleet/0 with 8 rounds of 3 events, snapshots at 3 and 6 and a digest in the chain; fleet/1; some intake."""
    ledger = await Ledger.open(database_url, "tests")
    await ledger.ensure_streams(["fleet/0", "fleet/1"])
    heads = await ledger.raise_epoch(["fleet/0", "fleet/1"])
    writer, other = Writer(heads["fleet/0"]), Writer(heads["fleet/1"])
    rounds: list[Round] = []
    snapshot = b""
    for number in range(8):
        rounds.append(writer.step([withdrawn(number * 3 + i) for i in range(3)], snapshot=snapshot))
        await ledger.commit(rounds[-1:], writer.events)
        await SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=3).catch_up()
        snapshot = (await ledger.heads("fleet/0"))[0].snapshot
    await ledger.commit([other.step([withdrawn(n)]) for n in range(2)], other.events)
    events = [withdrawn(100 + n) for n in range(4)]
    await ledger.accept([Submission(e, BINDINGS.name, e.subject, e.subject) for e in events])
    yield History(ledger, rounds)
    await ledger.close()


async def test_an_untouched_history_is_ok(history: History) -> None:
    result = await audit_verify(history.ledger)
    assert result.ok
    assert (result.streams, result.rounds) == (3, 8 + 2 + 1)
    inputs = sum(len(r.inputs) + len(r.decisions) for r in history.rounds)
    assert result.rows > 8 + inputs
    one = await audit_verify(history.ledger, "fleet/0")
    assert (one.streams, one.rounds, one.rows) == (1, 8, 8 + inputs)


# name, statements, round, place (None: not looked at), what it is called
TAMPERINGS: list[tuple[str, list[str], int, int | None, str]] = [
    ("a decision says something else", [
        f"update decision set body = '{{\"binding\":\"binding-5\",\"uid\":\"9/9\"}}'::bytea, encoding = 0 "
        f"where stream = {FLEET} and seq = 7"], 2, 0, "round: hash"),
    ("a decision is about another", [
        f"update decision set subject = 'binding-x' where stream = {FLEET} and seq = 7"], 2, 0, "round: hash"),
    ("a decision has another outcome", [
        f"update decision set outcome = 'kept' where stream = {FLEET} and seq = 7"], 2, 0, "round: hash"),
    ("a decision has another cause", [
        f"update decision set cause = null where stream = {FLEET} and seq = 5"], 2, 0, "round: hash"),
    ("a decision is not readable", [
        f"update decision set encoding = 1 where stream = {FLEET} and seq = 7"], 2, 7, "decision: body"),
    ("a decision is gone", [
        f"delete from decision where stream = {FLEET} and seq = 7"], 2, 7, "decision"),
    ("the last decision is gone", [
        f"delete from decision where stream = {FLEET} and seq = (select max(seq) from decision where stream = {FLEET})"],
        8, 32, "decision"),
    ("a decision is added at the end", [
        "insert into decision select stream, day, seq + 1, round, gen_random_uuid(), type, subject, outcome, cause, encoding, "
        f"body from decision where stream = {FLEET} order by seq desc limit 1"], 8, None, "decision"),
    ("two decisions change places", [
        f"update decision set seq = -1 where stream = {FLEET} and seq = 5",
        f"update decision set seq = 5 where stream = {FLEET} and seq = 6",
        f"update decision set seq = 6 where stream = {FLEET} and seq = -1"], 2, 5, "decision: id"),
    ("two decisions swap what they say", [
        f"update decision d set body = o.body from decision o where d.stream = {FLEET} and o.stream = d.stream "
        "and ((d.seq = 5 and o.seq = 6) or (d.seq = 6 and o.seq = 5))"], 2, 0, "round: hash"),
    ("a decision moves to another round", [
        f"update decision set round = 3 where stream = {FLEET} and seq = 6"], 2, 6, "decision: round"),
    ("a decision moves to another stream", [
        f"update decision set id = (select id from decision where stream <> {FLEET} order by seq limit 1) "
        f"where stream = {FLEET} and seq = 6"], 2, 6, "decision: id"),
    ("an event says something else", [
        "update event set body = replace(convert_from(body, 'UTF8'), 'binding-4', 'binding-9')::bytea "
        f"where id = '{withdrawn(4).id}'"], 2, 1, "event: body"),
    ("an event is gone", [f"delete from event where id = '{withdrawn(4).id}'"], 2, 1, "event"),
    ("an event is indexed as another", [
        f"update event set subject = 'binding-x' where id = '{withdrawn(4).id}'"], 2, 1, "event: columns"),
    ("an input refers to other bytes", [
        f"update input set sha256 = sha256('x') where stream = {FLEET} and event = '{withdrawn(4).id}'"], 2, 1, "event"),
    ("an input is gone", [
        f"delete from input where stream = {FLEET} and event = '{withdrawn(4).id}'"], 2, 1, "input"),
    ("two inputs change places", [
        f"update input set ordinal = 9 where stream = {FLEET} and round = 2 and ordinal = 0",
        f"update input set ordinal = 0 where stream = {FLEET} and round = 2 and ordinal = 1",
        f"update input set ordinal = 1 where stream = {FLEET} and round = 2 and ordinal = 9"], 2, 0, "round: hash"),
    ("an input is added", [
        f"insert into input select stream, day, 8, 3, gen_random_uuid(), sha256 from input where stream = {FLEET} limit 1"],
        8, 3, "input"),
    ("a round took place at another time", [
        f"update round set at_us = at_us + 1 where stream = {FLEET} and number = 4"], 4, 0, "round: hash"),
    ("a round had read something else", [
        f"update round set basis = '{{\"a/0\":[1,2]}}' where stream = {FLEET} and number = 4"], 4, 0, "round: hash"),
    ("a round was made by another engine", [
        f"update round set engine = 'x' where stream = {FLEET} and number = 4"], 4, 0, "round: hash"),
    ("a round was made under another profile", [
        f"update round set profile = 'x' where stream = {FLEET} and number = 4"], 4, 0, "round: hash"),
    ("a round belongs to another epoch", [
        f"update round set epoch = 0 where stream = {FLEET} and number = 4"], 4, 0, "round: epoch"),
    ("a round has another hash", [
        f"update round set hash = sha256('x') where stream = {FLEET} and number = 4"], 4, 0, "round: hash"),
    ("a round follows another", [
        f"update round set prev_hash = sha256('x') where stream = {FLEET} and number = 4"], 4, 0, "round: previous hash"),
    ("a round is gone", [
        f"delete from round where stream = {FLEET} and number = 4"], 4, 0, "round"),
    ("two rounds change places", [
        f"update round set number = 99 where stream = {FLEET} and number = 3",
        f"update round set number = 3 where stream = {FLEET} and number = 4",
        f"update round set number = 4 where stream = {FLEET} and number = 99"], 3, 0, "round: previous hash"),
    ("the end is cut off", [
        f"delete from round where stream = {FLEET} and number = 8",
        f"delete from input where stream = {FLEET} and round = 8",
        f"delete from decision where stream = {FLEET} and round = 8"], 8, 0, "round"),
    ("the head stands too early", [
        "update stream s set round = 7, seq = r.first_seq - 1 + r.decisions, hash = r.hash, at_us = r.at_us from round r "
        f"where s.id = {FLEET} and r.stream = s.id and r.number = 7"], 7, 0, "round"),
    ("the head has another hash", [f"update stream set hash = sha256('x') where id = {FLEET}"], 8, 0, "head: hash"),
    ("the head has another seq", [f"update stream set seq = seq + 1 where id = {FLEET}"], 8, 0, "head: seq"),
    ("the stream has another name", [f"update stream set name = 'fleet/2' where id = {FLEET}"], 1, 0,
        "round: previous hash"),
    ("a snapshot says something else", [
        f"update snapshot_section set body = '[1,{{}}]', encoding = 0 where stream = {FLEET} and name = 'counts'"],
        6, 0, "snapshot section counts"),
    ("a snapshot with a digest of its own", [
        f"update snapshot_section set body = '[]', sha256 = sha256('[]'), encoding = 0 "
        f"where stream = {FLEET} and round = 3 and name = 'counts'"], 3, 0, "snapshot: digest"),
    ("a snapshot that the chain knows is gone", [
        f"delete from snapshot where stream = {FLEET} and round = 3",
        f"delete from snapshot_section where stream = {FLEET} and round = 3"], 4, 0, "round: snapshot"),
    ("the head forgets its snapshot", [f"update stream set snapshot = '' where id = {FLEET}"], 8, 0, "head: snapshot"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("statements", "number", "place", "what"), [t[1:] for t in TAMPERINGS], ids=[t[0] for t in TAMPERINGS]
)
async def test_the_first_bad_row_is_named(
    history: History, statements: list[str], number: int, place: int | None, what: str
) -> None:
    async with history.ledger.database.reading() as raw:
        for statement in statements:
            assert (await raw.execute(statement)).split()[-1] != "0", "the tampering touched nothing"
    bad = (await audit_verify(history.ledger)).first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == ("fleet/2" if "'fleet/2'" in statements[0] else "fleet/0", number, what)
    assert place is None or bad.place == place
    assert bad.expected != bad.found


async def test_a_tampered_intake_is_found(history: History) -> None:
    async with history.ledger.database.reading() as raw:
        await raw.execute(
            "update decision set body = replace(convert_from(body, 'UTF8'), 'bindings', 'clusters')::bytea "
            "where type like '%accepted%' and seq = 2"
        )
    bad = (await audit_verify(history.ledger)).first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == ("intake", 1, "round: hash")


async def test_rows_of_a_removed_stream_are_found(history: History) -> None:
    async with history.ledger.database.reading() as raw:
        await raw.execute("delete from stream where name = 'fleet/1'")
    bad = (await audit_verify(history.ledger)).first_bad
    assert bad is not None
    assert (bad.what, bad.expected) == ("round", "a known stream")


async def test_a_cut_off_end_with_a_rewritten_head_needs_somebody_who_remembers(history: History) -> None:
    remembered = [Remembered(head) for head in await history.ledger.heads()]
    assert (await audit_verify(history.ledger, remembered=remembered)).ok
    async with history.ledger.database.reading() as raw:
        await raw.execute(
            "update stream s set round = 7, seq = r.first_seq - 1 + r.decisions, hash = r.hash, at_us = r.at_us "
            f"from round r where s.id = {FLEET} and r.stream = s.id and r.number = 7"
        )
        for table, column in (("round", "number"), ("input", "round"), ("decision", "round")):
            await raw.execute(f"delete from {table} where stream = {FLEET} and {column} = 8")
    assert (await audit_verify(history.ledger)).ok
    bad = (await audit_verify(history.ledger, remembered=remembered)).first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what, bad.found) == ("fleet/0", 8, "checkpoint: hash", "missing: the stream ends at round 7")
