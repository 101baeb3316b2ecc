"""Whatever is changed behind the ledger's back, verify names the first row that is wrong; what only
a later memory can tell is told by a checkpoint.

All cases start from one database, filled once; after each the tables are put back from copies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from uuid import UUID

import pytest
import pytest_asyncio
from tests.attacker import (
    Change,
    another_decision,
    another_engine,
    another_time,
    cut_off,
    forget,
    rewrite,
)
from tests.backends import fresh_database, in_a_loop
from tests.counter import Counter, Writer, withdrawn

from wharfinger.events.streams import BINDINGS, CLUSTERS
from wharfinger.history.checkpoint import SignedCheckpoint, new_key, read, signed
from wharfinger.history.verification import plane_of, take_checkpoint, verify
from wharfinger.runtime.ledger import (
    FeedAppender,
    FirstBad,
    Ledger,
    SnapshotFollower,
    Submission,
    audit_verify,
    plans,
)
from wharfinger.runtime.ledger import verify as verify_module
from wharfinger.runtime.ledger.marks import read_marks
from wharfinger.runtime.ledger.tokens import make_token, revoke_token
from wharfinger.runtime.replay import worker_pool
from wharfinger_publisher.checkpoints import parts

pytestmark = pytest.mark.integration

TABLES = (
    "stream",
    "round",
    "input",
    "taken",
    "event",
    "decision",
    "fact",
    "snapshot",
    "snapshot_section",
    "retirement",
    "horizon",
    "cursor",
    "cursor_position",
    "incarnation",
    "feed",
    "feed_head",
    "plan",
    "token",
    "subscription",
    "row_record",  # behind the tables whose triggers add to it
)

# One trip and one transaction. Rows are deleted: to truncate so many partitions takes a second.
RESTORE = ";".join(
    f"delete from {table}; insert into {table} overriding system value select * from kept.{table}"
    for table in TABLES
)

PLAN = UUID(int=7)
SUBSCRIPTION = f"""
insert into subscription values ('{UUID(int=8)}', 'pager', 'https://pager.example/', '{{}}', 'key',
    'sealed', '', 0, 'token:ci', '{{}}', '', 1, 1, 'active', '', 0, 0, 0, 0, null, 0)
"""

F0, F1, IN = (
    f"(select id from stream where name = '{name}')" for name in ("fleet/0", "fleet/1", "intake")
)


@dataclass(frozen=True)
class History:
    """`earlier`: a checkpoint of when fleet/0 had 5 rounds; `later`: of all there is. `shipped`: as
    a plane ships it, after all was published."""

    url: str
    earlier: SignedCheckpoint
    later: SignedCheckpoint
    shipped: SignedCheckpoint


@pytest.fixture(scope="module")
def history(database_server: str, migrated_database: str) -> Iterator[History]:
    """fleet/0: 8 rounds of 3 events, snapshots of rounds 3 and 6, whose digests are in the chain.
    fleet/1: 3 rounds of two of the same events. intake: 2 rounds of 3 events, one key told
    twice."""
    with fresh_database(database_server, template=migrated_database) as url:
        yield in_a_loop(lambda: _fill(url))


async def _fill(url: str) -> History:
    ledger = await Ledger.open(url, "tests")
    await ledger.ensure_streams(["fleet/0", "fleet/1"])
    heads = await ledger.raise_epoch(["fleet/0", "fleet/1"])
    writer, other = Writer(heads["fleet/0"]), Writer(heads["fleet/1"])
    for told in (("a", "b", "c"), ("a", "d", "e")):
        await ledger.accept([_submission(f"{name}{told[1]}", name) for name in told])
    await ledger.commit(
        [other.step([withdrawn(2 * n), withdrawn(2 * n + 1)]) for n in range(3)], other.events
    )
    for number in range(8):
        if number == 5:
            earlier = await _signed(ledger, "earlier", 1)
        snapshot = (await ledger.heads("fleet/0"))[0].snapshot
        await ledger.commit(
            [writer.step([withdrawn(number * 3 + i) for i in range(3)], snapshot=snapshot)],
            writer.events,
        )
        await SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=3).catch_up()
    appender = FeedAppender(ledger.database)
    while await appender.append():
        pass
    await ledger.incarnation(["a"], [], "id:a")
    await ledger.incarnation(["a"], [], "id:b")
    await ledger.advance("publisher", 2, {"fleet/0": 30, "fleet/1": 6}, {"a/0": 7})
    await ledger.raise_epoch(["fleet/1"])
    await plans.save(ledger.database, PLAN, 1, b"{}", "token:ci")
    for name in ("ci", "old"):
        _, token = await make_token(ledger.database, name, ["viewer"], "uid:0", lifetime_s=0)
    await revoke_token(ledger.database, token.id)
    async with ledger.database.reading() as raw:
        await raw.execute(SUBSCRIPTION)
    later = await _signed(ledger, "later", 2)
    history = History(url, earlier, later, await _shipped(ledger, 3))
    async with ledger.database.reading() as raw:
        await raw.execute("create schema kept")
        for table in TABLES:
            await raw.execute(f"create table kept.{table} as select * from public.{table}")
    await ledger.close()
    return history


def _submission(text: str, key: str) -> Submission:
    event = withdrawn(int.from_bytes(text.encode()), f"told-{text}")
    return Submission(event, (BINDINGS if key < "d" else CLUSTERS).name, key, key)


async def _signed(ledger: Ledger, name: str, at: int) -> SignedCheckpoint:
    _, made = await take_checkpoint(ledger, at)
    assert made is not None
    return read(name, signed(made, new_key()))


async def _shipped(ledger: Ledger, at: int) -> SignedCheckpoint:
    found = await read_marks(ledger.database, 0)
    plane = await plane_of(ledger)
    (made,) = parts(plane or "", at, found)
    return read("shipped", signed(made, new_key()))


@pytest_asyncio.fixture
async def ledger(history: History) -> AsyncIterator[Ledger]:
    """The history as it was written, whatever the case before has done to it."""
    opened = await Ledger.open(history.url, "tests")
    async with opened.database.reading() as raw:
        await raw.execute(RESTORE)
    yield opened
    await opened.close()


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor | None]:
    with worker_pool(2) as made:
        yield made


async def test_the_history_itself_is_whole(ledger: Ledger, history: History) -> None:
    found = await verify(ledger, checkpoints=[history.earlier, history.later, history.shipped])
    assert found.ok, found.ledger.first_bad
    assert (found.ledger.streams, found.ledger.rounds) == (3, 8 + 3 + 2)


def change(table: str, column: str, value: str, where: str) -> str:
    return f"update {table} set {column} = {value} where {where}"


NO_INDEX = "drop index if exists ix_input_event_stream_day"
"""Which would not let an input be changed into one that is there."""

UNSEEN = "set session_replication_role = replica"
"""No trigger is fired by what follows in the session."""

R4 = f"stream = {F0} and number = 4"
D7 = f"stream = {F0} and seq = 7"
I4 = f"stream = {F0} and round = 2 and ordinal = 1"
# the second input of round 2 of fleet/0, the first of round 3 of fleet/1
E4 = f"id = '{withdrawn(4).id}'"
COUNTS3 = f"stream = {F0} and round = 3 and name = 'counts'"
OTHER = "sha256('x')"
LIES = """'{"binding":"binding-5","uid":"9/9"}'::bytea"""

# what is done, statements, where it is found: stream, round, place, what
# The records of rows: the plan, two tokens, the revocation of the second, the subscription.
TAMPERINGS: list[tuple[str, list[str], tuple[str, int, int, str]]] = [
    (
        "a plan is added",
        [UNSEEN, "insert into plan select gen_random_uuid(), 1, body, made_by from plan"],
        ("rows", 0, 0, "plan"),
    ),
    ("a plan does something else", [UNSEEN, "update plan set body = '[]'"], ("rows", 1, 0, "plan")),
    (
        "a plan was made by another",
        [UNSEEN, "update plan set made_by = ''"],
        ("rows", 1, 0, "plan"),
    ),
    ("a plan is gone", [UNSEEN, "delete from plan"], ("rows", 1, 0, "plan")),
    (
        "a token may do more",
        [UNSEEN, "update token set roles = '{admin}' where name = 'ci'"],
        ("rows", 2, 0, "token"),
    ),
    (
        "a token belongs to another secret",
        [UNSEEN, f"update token set sha256 = {OTHER} where name = 'ci'"],
        ("rows", 2, 0, "token"),
    ),
    (
        "a revoked token holds again",
        [UNSEEN, "update token set revoked_at_us = 0"],
        ("rows", 4, 0, "token"),
    ),
    (
        "a token is added",
        [
            UNSEEN,
            f"insert into token select gen_random_uuid(), {OTHER}, 'new', roles, namespaces, "
            "sources, made_by, made_at_us, 0, 0, false from token where name = 'ci'",
        ],
        ("rows", 0, 0, "token"),
    ),
    (
        "a subscription sends elsewhere",
        [UNSEEN, "update subscription set url = 'https://attacker.example/'"],
        ("rows", 5, 0, "subscription"),
    ),
    (
        "a subscription has another maker",
        [UNSEEN, """update subscription set maker = '{"way":"oidc","name":"eve","groups":[]}'"""],
        ("rows", 5, 0, "subscription"),
    ),
    (
        "a token is added, and its record taken away again",
        [
            f"insert into token select gen_random_uuid(), {OTHER}, 'new', roles, namespaces, "
            "sources, made_by, made_at_us, 0, 0, false from token where name = 'ci'",
            "delete from row_record where seq = 6",
        ],
        ("rows", 0, 0, "token"),
    ),
    (
        "a record of a row has another digest",
        [f"update row_record set sha256 = {OTHER} where seq = 2"],
        ("rows", 2, 0, "row record: hash"),
    ),
    (
        "a record of a row is gone",
        ["delete from row_record where seq = 2"],
        ("rows", 2, 0, "row record: seq"),
    ),
    (
        "a row is recorded earlier",
        ["update row_record set at_us = 1 where seq = 2"],
        ("rows", 2, 0, "row record: time"),
    ),
    # --- the feed: fleet/0 and fleet/1 in turns, then rounds 4 to 8 of fleet/0, then the intake
    (
        "the last run of the feed is gone",
        ["delete from feed where first_position = 41"],
        ("feed", 0, 46, "feed: head"),
    ),
    (
        "the last run of the feed is gone, and the head says so",
        [
            "delete from feed where first_position = 41",
            "update feed_head set position = 40",
            "insert into cursor values ('publisher', 1, 'intake', 6)",
        ],
        ("intake", 0, 1, "feed"),
    ),
    (
        "a run in the middle of the feed is gone",
        ["delete from feed where first_position = 11"],
        ("feed", 0, 14, "feed: first position"),
    ),
    (
        "two positions are one",
        ["update feed set first_position = 4 where first_position = 5"],
        ("feed", 0, 4, "feed: first position"),
    ),
    (
        "a decision has two positions",
        ["update feed set first_seq = 4 where first_position = 7"],
        ("feed", 0, 7, "feed: seq of fleet/0"),
    ),
    (
        "two runs of one stream have changed places",
        [
            f"update feed set first_position = {to} where first_position = {of}"
            for of, to in ((1, 1000), (7, 1), (1000, 7))
        ],
        ("feed", 0, 1, "feed: seq of fleet/0"),
    ),
    (
        "the feed is longer than its streams",
        [
            "update feed set count = 7, correlations = correlations || substr(correlations, 1, 16) "
            "where first_position = 41",
            "update feed_head set position = 47",
        ],
        ("feed", 0, 41, "feed: seq of intake"),
    ),
    (
        "a run of the feed has another time",
        ["update feed set at_us = at_us + 1 where first_position = 11"],
        ("feed", 0, 11, "feed: time"),
    ),
    (
        "a position has another first cause",
        [
            "update feed set correlations = overlay(correlations placing '\\x00' from 20) "
            "where first_position = 7"
        ],
        ("feed", 0, 8, "feed: correlation"),
    ),
    ("the feed has lost its head", ["delete from feed_head"], ("feed", 0, 0, "feed: head")),
    # --- rounds
    (
        "a round has another number",
        [change("round", "number", "99", R4)],
        ("fleet/0", 4, 0, "round"),
    ),
    (
        "a round belongs to an earlier epoch",
        [change("round", "epoch", "0", R4)],
        ("fleet/0", 4, 0, "round: epoch"),
    ),
    (
        "a round belongs to a later epoch",
        [change("round", "epoch", "9", R4)],
        ("fleet/0", 4, 0, "round: hash"),
    ),
    (
        "a round took place later",
        [change("round", "at_us", "at_us + 1", R4)],
        ("fleet/0", 4, 0, "round: hash"),
    ),
    (
        "a round took place before the one before",
        [change("round", "at_us", "1", R4)],
        ("fleet/0", 4, 0, "round: time"),
    ),
    (
        "a round lies in another day",
        [change("round", "day", "1", R4)],
        ("fleet/0", 4, 0, "round: day"),
    ),
    (
        "a round was made by another engine",
        [change("round", "engine", "'x'", R4)],
        ("fleet/0", 4, 0, "round: hash"),
    ),
    (
        "a round was made under another profile",
        [change("round", "profile", "'x'", R4)],
        ("fleet/0", 4, 0, "round: hash"),
    ),
    (
        "a round had read something else",
        [change("round", "basis", """'{"a/0":[1,2]}'""", R4)],
        ("fleet/0", 4, 0, "round: hash"),
    ),
    (
        "what a round had read is spelt otherwise",
        [change("round", "basis", "basis || ' '", R4)],
        ("fleet/0", 4, 0, "round: basis"),
    ),
    (
        "what a round had read is unreadable",
        [change("round", "basis", "'no'", R4)],
        ("fleet/0", 4, 0, "round: basis"),
    ),
    (
        "a round begins at another seq",
        [change("round", "first_seq", "first_seq + 1", R4)],
        ("fleet/0", 4, 0, "round: first seq"),
    ),
    (
        "a round has an input less",
        [change("round", "inputs", "2", R4)],
        ("fleet/0", 4, 0, "round: hash"),
    ),
    ("a round has an input more", [change("round", "inputs", "4", R4)], ("fleet/0", 4, 3, "input")),
    (
        "a round has a decision less",
        [change("round", "decisions", "decisions - 1", R4)],
        ("fleet/0", 4, 0, "round: hash"),
    ),
    (
        "a round has a decision more",
        [change("round", "decisions", "decisions + 1", R4)],
        ("fleet/0", 4, 17, "decision: round"),
    ),
    (
        "a round has less than nothing",
        [change("round", "decisions", "-1", R4)],
        ("fleet/0", 4, 13, "decision"),
    ),
    (
        "a round forgets its snapshot",
        [change("round", "snapshot", "''", f"stream = {F0} and number = 5")],
        ("fleet/0", 5, 0, "round: hash"),
    ),
    (
        "a round carries an unknown snapshot",
        [change("round", "snapshot", OTHER, R4)],
        ("fleet/0", 4, 0, "round: snapshot"),
    ),
    (
        "a round follows another",
        [change("round", "prev_hash", OTHER, R4)],
        ("fleet/0", 4, 0, "round: previous hash"),
    ),
    (
        "a round has another hash",
        [change("round", "hash", OTHER, R4)],
        ("fleet/0", 4, 0, "round: hash"),
    ),
    ("a round is gone", [f"delete from round where {R4}"], ("fleet/0", 4, 0, "round")),
    (
        "two rounds change places",
        [
            change("round", "number", "99", f"stream = {F0} and number = 3"),
            change("round", "number", "3", R4),
            change("round", "number", "4", f"stream = {F0} and number = 99"),
        ],
        ("fleet/0", 3, 0, "round: previous hash"),
    ),
    (
        "a round is there twice",
        [
            "insert into round select stream, 1, number, epoch, at_us, engine, profile, basis, "
            "first_seq, inputs, decisions, "
            f"snapshot, prev_hash, hash from round where {R4}"
        ],
        ("fleet/0", 5, 0, "round"),
    ),
    (
        "a round is added at the end",
        [
            "insert into round select stream, day, 9, epoch, at_us, engine, profile, basis, "
            "first_seq, inputs, decisions, "
            f"snapshot, prev_hash, hash from round where {R4}"
        ],
        ("fleet/0", 8, 0, "round"),
    ),
    (
        "a round of another stream",
        [
            f"delete from round where stream = {F0} and number = 2",
            change("round", "stream", F0, f"stream = {F1} and number = 2"),
        ],
        ("fleet/0", 2, 0, "round: previous hash"),
    ),
    # --- inputs and events
    (
        "an input refers to another event",
        [NO_INDEX, change("input", "event", f"'{withdrawn(9).id}'", I4)],
        ("fleet/0", 2, 1, "event"),
    ),
    (
        "an input refers to other bytes",
        [change("input", "sha256", OTHER, I4)],
        ("fleet/0", 2, 1, "event"),
    ),
    (
        "an input lies in another day",
        [change("input", "day", "1", I4)],
        ("fleet/0", 2, 1, "input: day"),
    ),
    (
        "an input moves to another round",
        [change("input", "(round, ordinal)", "(3, 3)", I4)],
        ("fleet/0", 2, 1, "input"),
    ),
    ("an input is gone", [f"delete from input where {I4}"], ("fleet/0", 2, 1, "input")),
    (
        "an input is added at the end of a round",
        [
            (
                "insert into input select stream, day, 8, 3, gen_random_uuid(), sha256 from input "
                f"where {I4}"
            )
        ],
        ("fleet/0", 8, 3, "input"),
    ),
    (
        "an input is there twice",
        [
            (
                "insert into input select stream, 1, round, ordinal, event, sha256 from input "
                f"where {I4}"
            )
        ],
        ("fleet/0", 2, 2, "input"),
    ),
    (
        "two inputs change places",
        [
            change("input", "ordinal", "9", f"stream = {F0} and round = 2 and ordinal = 0"),
            change("input", "ordinal", "0", I4),
            change("input", "ordinal", "1", f"stream = {F0} and round = 2 and ordinal = 9"),
        ],
        ("fleet/0", 2, 0, "round: hash"),
    ),
    (
        "two inputs of two streams change places",
        [
            NO_INDEX,
            "update input a set event = b.event, sha256 = b.sha256 from input b "
            f"where a.stream in ({F0}, {F1}) and b.stream in "
            f"({F0}, {F1}) and a.stream <> b.stream and a.round = 2 and b.round = 2 and "
            "a.ordinal = 0 and b.ordinal = 0",
        ],
        ("fleet/0", 2, 0, "round: hash"),
    ),
    (
        "an event says something else",
        [
            (
                "update event set body = replace(convert_from(body, 'UTF8'), 'binding-4', "
                f"'binding-9')::bytea where {E4}"
            )
        ],
        ("fleet/0", 2, 1, "event: body"),
    ),
    (
        "an event is of another type",
        [change("event", "type", "'x'", E4)],
        ("fleet/0", 2, 1, "event: columns"),
    ),
    (
        "an event is about another",
        [change("event", "subject", "'x'", E4)],
        ("fleet/0", 2, 1, "event: columns"),
    ),
    (
        "an event is from elsewhere",
        [change("event", "source", "'x'", E4)],
        ("fleet/0", 2, 1, "event: columns"),
    ),
    (
        "an event has another id",
        [
            change("event", "id", f"'{withdrawn(999).id}'", E4),
            change("input", "event", f"'{withdrawn(999).id}'", f"event = '{withdrawn(4).id}'"),
        ],
        ("fleet/0", 2, 1, "event: id"),
    ),
    (
        "an event has another sha256",
        [change("event", "sha256", OTHER, E4)],
        ("fleet/0", 2, 1, "event"),
    ),
    (
        "an event is not readable",
        [change("event", "encoding", "1", E4)],
        ("fleet/0", 2, 1, "event: body"),
    ),
    (
        "an event lies in another day",
        [change("event", "day", "day + 1", E4)],
        ("fleet/0", 2, 1, "event"),
    ),
    ("an event is gone", [f"delete from event where {E4}"], ("fleet/0", 2, 1, "event")),
    (
        "an event is added that nobody took in",
        [
            (
                "insert into event select day, gen_random_uuid(), sha256, type, subject, source, "
                f"encoding, body from event where {E4}"
            )
        ],
        ("", 0, 0, "event"),
    ),
    (
        "an event will not be taken in",
        [f"insert into taken values ({F0}, gen_random_uuid(), 0)"],
        ("fleet/0", 8, 0, "taken"),
    ),
    # --- decisions
    (
        "a decision says something else",
        [change("decision", "(body, encoding)", f"({LIES}, 0)", D7)],
        ("fleet/0", 2, 0, "round: hash"),
    ),
    (
        "a decision is of another type",
        [change("decision", "type", "'x'", D7)],
        ("fleet/0", 2, 0, "round: hash"),
    ),
    (
        "a decision is about another",
        [change("decision", "subject", "'x'", D7)],
        ("fleet/0", 2, 0, "round: hash"),
    ),
    (
        "a decision has another outcome",
        [change("decision", "outcome", "'kept'", D7)],
        ("fleet/0", 2, 0, "round: hash"),
    ),
    (
        "a decision has another cause",
        [change("decision", "cause", "gen_random_uuid()", D7)],
        ("fleet/0", 2, 0, "round: hash"),
    ),
    (
        "a decision has no cause any more",
        [change("decision", "cause", "null", f"stream = {F0} and seq = 5")],
        ("fleet/0", 2, 0, "round: hash"),
    ),
    (
        "a decision has another id",
        [change("decision", "id", "gen_random_uuid()", D7)],
        ("fleet/0", 2, 7, "decision: id"),
    ),
    (
        "a decision is not readable",
        [change("decision", "encoding", "1", D7)],
        ("fleet/0", 2, 7, "decision: body"),
    ),
    (
        "a decision is encoded in a way of its own",
        [change("decision", "encoding", "7", D7)],
        ("fleet/0", 2, 7, "decision: body"),
    ),
    (
        "a decision lies in another day",
        [change("decision", "day", "1", D7)],
        ("fleet/0", 2, 7, "decision: day"),
    ),
    (
        "a decision moves to another round",
        [change("decision", "round", "3", D7)],
        ("fleet/0", 2, 7, "decision: round"),
    ),
    (
        "a decision moves to another stream",
        [change("decision", "stream", F1, f"stream = {F0} and seq = 32")],
        ("fleet/0", 8, 32, "decision"),
    ),
    ("a decision is gone", [f"delete from decision where {D7}"], ("fleet/0", 2, 7, "decision")),
    (
        "the last decision is gone",
        [f"delete from decision where stream = {F0} and seq = 32"],
        ("fleet/0", 8, 32, "decision"),
    ),
    (
        "a decision is there twice",
        [
            "insert into decision select stream, 1, seq, round, id, type, subject, outcome, "
            "cause, encoding, body "
            f"from decision where {D7}"
        ],
        ("fleet/0", 2, 8, "decision"),
    ),
    (
        "a decision is added at the end",
        [
            "insert into decision select stream, day, 33, round, gen_random_uuid(), type, "
            "subject, outcome, cause, encoding, body "
            f"from decision where stream = {F0} and seq = 32"
        ],
        ("fleet/0", 8, 0, "decision"),
    ),
    (
        "a decision is added before all",
        [
            "insert into decision select stream, day, 0, round, gen_random_uuid(), type, "
            "subject, outcome, cause, encoding, body "
            f"from decision where {D7}"
        ],
        ("fleet/0", 8, 0, "decision"),
    ),
    (
        "two decisions change places",
        [
            change("decision", "seq", "-1", f"stream = {F0} and seq = 5"),
            change("decision", "seq", "5", f"stream = {F0} and seq = 6"),
            change("decision", "seq", "6", f"stream = {F0} and seq = -1"),
        ],
        ("fleet/0", 2, 5, "decision: id"),
    ),
    (
        "two decisions change what they say",
        [
            f"update decision d set body = o.body from decision o where d.stream = {F0} "
            "and o.stream = d.stream "
            "and ((d.seq = 5 and o.seq = 6) or (d.seq = 6 and o.seq = 5))"
        ],
        ("fleet/0", 2, 0, "round: hash"),
    ),
    (
        "two decisions of two streams change places",
        [
            change("decision", "stream", "-1", f"stream = {F0} and seq = 2"),
            change("decision", "stream", F0, f"stream = {F1} and seq = 2"),
            change("decision", "stream", F1, "stream = -1"),
        ],
        ("fleet/0", 1, 2, "decision: id"),
    ),
    # --- heads
    (
        "the head has another hash",
        [change("stream", "hash", OTHER, "name = 'fleet/0'")],
        ("fleet/0", 8, 0, "head: hash"),
    ),
    (
        "the head has another seq",
        [change("stream", "seq", "seq + 1", "name = 'fleet/0'")],
        ("fleet/0", 8, 0, "head: seq"),
    ),
    (
        "the head stands at another time",
        [change("stream", "at_us", "at_us + 1", "name = 'fleet/0'")],
        ("fleet/0", 8, 0, "head: time"),
    ),
    (
        "the head belongs to an earlier epoch",
        [change("stream", "epoch", "0", "name = 'fleet/0'")],
        ("fleet/0", 8, 0, "head: epoch"),
    ),
    (
        "the head stands at a later round",
        [change("stream", "round", "9", "name = 'fleet/0'")],
        ("fleet/0", 9, 0, "round"),
    ),
    (
        "the head stands at an earlier round",
        [
            "update stream s set round = 7, seq = r.first_seq - 1 + r.decisions, hash = r.hash, "
            "at_us = r.at_us from round r "
            f"where s.id = {F0} and r.stream = s.id and r.number = 7",
            "delete from cursor where stream = 'fleet/0'",
        ],
        ("fleet/0", 7, 0, "round"),
    ),
    (
        "the head stands behind what was published",
        ["insert into cursor values ('publisher', 1, 'fleet/0', 40)"],
        ("fleet/0", 8, 0, "head: seq"),
    ),
    (
        "the head forgets its snapshot",
        [change("stream", "snapshot", "''", "name = 'fleet/0'")],
        ("fleet/0", 8, 0, "head: snapshot"),
    ),
    (
        "the stream has another name",
        [change("stream", "name", "'fleet/2'", "name = 'fleet/0'")],
        ("fleet/2", 1, 0, "round: previous hash"),
    ),
    (
        "two streams change names",
        [
            change("stream", "name", "'fleet/x'", "name = 'fleet/0'"),
            change("stream", "name", "'fleet/0'", "name = 'fleet/1'"),
            change("stream", "name", "'fleet/1'", "name = 'fleet/x'"),
        ],
        ("fleet/0", 1, 0, "round: previous hash"),
    ),
    (
        "a stream is gone, its rows are not",
        ["delete from stream where name = 'fleet/1'"],
        ("", 0, 0, "round"),
    ),
    (
        "the end is cut off",
        [
            f"delete from {table} where stream = {F0} and {column} = 8"
            for table, column in (("round", "number"), ("input", "round"), ("decision", "round"))
        ],
        ("fleet/0", 8, 0, "round"),
    ),
    # --- snapshots
    (
        "a snapshot has another digest",
        [change("snapshot", "digest", OTHER, f"stream = {F0} and round = 3")],
        ("fleet/0", 3, 0, "snapshot: digest"),
    ),
    (
        "a snapshot is of a later round",
        [
            change(table, "round", "5", f"stream = {F0} and round = 3")
            for table in ("snapshot", "snapshot_section")
        ],
        ("fleet/0", 4, 0, "round: snapshot"),
    ),
    (
        "a snapshot is not whole any more",
        [change("snapshot", "whole", "false", f"stream = {F0} and round = 3")],
        ("fleet/0", 4, 0, "round: snapshot"),
    ),
    (
        "a snapshot is of a round to come",
        [
            (
                "insert into snapshot select stream, 99, digest, false from snapshot "
                f"where stream = {F0} and round = 3"
            )
        ],
        ("fleet/0", 8, 0, "snapshot"),
    ),
    (
        "a snapshot is gone",
        [
            f"delete from {table} where stream = {F0} and round = 3"
            for table in ("snapshot", "snapshot_section")
        ],
        ("fleet/0", 4, 0, "round: snapshot"),
    ),
    (
        "the newest snapshot is gone",
        [
            f"delete from {table} where stream = {F0} and round = 6"
            for table in ("snapshot", "snapshot_section")
        ],
        ("fleet/0", 7, 0, "round: snapshot"),
    ),
    (
        "a section says something else",
        [change("snapshot_section", "(body, encoding)", "('[1,{}]', 0)", COUNTS3)],
        ("fleet/0", 3, 0, "snapshot section counts"),
    ),
    (
        "a section says something else, under its own hash",
        [
            change(
                "snapshot_section", "(body, sha256, encoding)", "('[]', sha256('[]'), 0)", COUNTS3
            )
        ],
        ("fleet/0", 3, 0, "snapshot: digest"),
    ),
    (
        "a section has another name",
        [change("snapshot_section", "name", "'x'", COUNTS3)],
        ("fleet/0", 3, 0, "snapshot: digest"),
    ),
    (
        "a section is not readable",
        [change("snapshot_section", "encoding", "1", COUNTS3)],
        ("fleet/0", 3, 0, "snapshot section counts: body"),
    ),
    (
        "a section is gone",
        [f"delete from snapshot_section where {COUNTS3}"],
        ("fleet/0", 3, 0, "snapshot: digest"),
    ),
    (
        "all sections of a snapshot are gone",
        [f"delete from snapshot_section where stream = {F0} and round = 6"],
        ("fleet/0", 6, 0, "snapshot: digest"),
    ),
    (
        "a section belongs to nothing",
        [
            (
                "insert into snapshot_section select stream, 5, name, sha256, encoding, body "
                f"from snapshot_section where {COUNTS3}"
            )
        ],
        ("fleet/0", 5, 0, "snapshot section counts"),
    ),
    # --- rows that no chain covers
    (
        "something was published of a stream that never was",
        ["insert into cursor values ('publisher', 1, 'fleet/9', 1)"],
        ("", 0, 0, "cursor"),
    ),
    (
        "something was published before all",
        ["update cursor set seq = -1 where stream = 'fleet/1'"],
        ("", 0, 0, "cursor"),
    ),
    (
        "topics are in an incarnation that never began",
        ["insert into cursor_position values ('publisher', 3, 'a/0', 1)"],
        ("", 0, 0, "cursor_position"),
    ),
    # --- the intake
    (
        "what was accepted goes elsewhere",
        [
            "update decision set body = replace(convert_from(body, 'UTF8'), 'bindings', "
            "'clusters')::bytea "
            f"where stream = {IN} and seq = 2"
        ],
        ("intake", 1, 2, "fact"),
    ),
    (
        "what was accepted has no decision",
        [change("decision", "cause", "gen_random_uuid()", f"stream = {IN} and seq = 2")],
        ("intake", 1, 0, "intake"),
    ),
    (
        "an older word under a key holds again",
        [
            "update fact f set (event, sha256, seq, at_us) = (select i.event, i.sha256, 1, "
            "r.at_us from input i join round r on "
            f"r.stream = i.stream and r.number = i.round where i.stream = {IN} and i.round = 1 "
            "and i.ordinal = 0) where key = 'a'"
        ],
        ("intake", 2, 4, "fact"),
    ),
    (
        "a fact is another one",
        [change("fact", "event", f"'{withdrawn(4).id}'", "key = 'b'")],
        ("intake", 1, 2, "fact"),
    ),
    (
        "a fact goes elsewhere",
        [change("fact", "partition_key", "'x'", "key = 'b'")],
        ("intake", 1, 2, "fact"),
    ),
    ("a fact is gone", ["delete from fact where key = 'b'"], ("intake", 1, 2, "fact")),
    (
        "a fact was never told",
        [
            (
                "insert into fact select topic, 'z', partition_key, event, sha256, seq, at_us "
                "from fact where key = 'b'"
            )
        ],
        ("intake", 2, 2, "fact"),
    ),
    (
        "a fact is from the future",
        [
            (
                "insert into fact select topic, 'z', partition_key, event, sha256, 99, at_us "
                "from fact where key = 'b'"
            )
        ],
        ("intake", 2, 99, "fact"),
    ),
]


@pytest.mark.parametrize(
    ("statements", "where"), [t[1:] for t in TAMPERINGS], ids=[t[0] for t in TAMPERINGS]
)
async def test_the_first_bad_row_is_named(
    ledger: Ledger,
    pool: Executor | None,
    monkeypatch: pytest.MonkeyPatch,
    statements: list[str],
    where: tuple[str, int, int, str],
) -> None:
    async with ledger.database.reading() as raw:
        for statement in statements:
            assert (await raw.execute(statement)).split()[-1] != "0", (
                "the tampering touched nothing"
            )
    bad = (await audit_verify(ledger)).first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.place, bad.what) == where
    assert bad.expected != bad.found
    monkeypatch.setattr(verify_module, "STRETCH_ROWS", 10)
    again = (await audit_verify(ledger, workers=2, pool=pool)).first_bad
    assert again is not None
    assert (again.stream, again.round, again.place, again.what) == where


# What fits the streams, and is found by what a plane has shipped.
SET_BACK: list[tuple[str, list[str], tuple[str, int, str, str]]] = [
    (
        "less was published",
        ["update cursor set seq = 5 where stream = 'fleet/0'"],
        ("", 0, "checkpoint: cursor", "publisher/2/fleet/0 at 5"),
    ),
    (
        "a cursor is gone",
        ["delete from cursor where stream = 'fleet/1'"],
        ("", 0, "checkpoint: cursor", "missing"),
    ),
    (
        "a topic ended earlier",
        ["update cursor_position set end_offset = 3"],
        ("", 0, "checkpoint: cursor_position", "publisher/2/a/0 at 3"),
    ),
    (
        "an incarnation never began",
        [
            "update incarnation set counter = 1",
            "update cursor set incarnation = 1",
            "update cursor_position set incarnation = 1",
        ],
        ("", 0, "checkpoint: cursor", "missing"),
    ),
    (
        "a topic was another one",
        ["update incarnation set boot_id = 'id:x'"],
        ("", 0, "checkpoint: incarnation", "id:x"),
    ),
    (
        "a stream is in an earlier epoch",
        ["update stream set epoch = 1 where name = 'fleet/1'"],
        ("", 0, "checkpoint: epoch", "fleet/1 at 1"),
    ),
    (
        "runs of two streams have changed places in the feed",
        [
            f"update feed set first_position = {to} where first_position = {of}"
            for of, to in ((5, 1000), (7, 5), (1000, 9))
        ],
        ("feed", 1, "checkpoint: feed", ""),
    ),
]


@pytest.mark.parametrize(
    ("statements", "where"), [t[1:] for t in SET_BACK], ids=[t[0] for t in SET_BACK]
)
async def test_what_fits_the_streams_needs_a_checkpoint_that_was_shipped(
    ledger: Ledger, history: History, statements: list[str], where: tuple[str, int, str, str]
) -> None:
    async with ledger.database.reading() as raw:
        for statement in statements:
            assert (await raw.execute(statement)).split()[-1] != "0"
    assert (await audit_verify(ledger)).first_bad is None
    bad = (await verify(ledger, checkpoints=[history.shipped])).ledger.first_bad
    assert bad is not None
    assert (bad.stream, bad.place, bad.what) == where[:3]
    assert where[3] in bad.found


def test_there_are_enough_of_them() -> None:
    assert len({name for name, _, _ in TAMPERINGS}) == len(TAMPERINGS) >= 50


# --- by somebody who knows this code -------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "from_round", "what", "found_at"),
    [
        ("fleet/0", 2, another_decision, 5),  # the earlier checkpoint is the first to disagree
        ("fleet/0", 6, another_decision, 8),
        ("fleet/0", 8, another_time, 8),
        ("fleet/0", 1, another_engine, 5),
        ("fleet/1", 1, another_decision, 3),
        ("intake", 1, another_time, 2),  # which makes it a plane of another name, too
    ],
)
async def test_a_chain_rewritten_from_a_round_on_needs_somebody_who_remembers(
    ledger: Ledger, history: History, stream: str, from_round: int, what: Change, found_at: int
) -> None:
    await rewrite(ledger, stream, from_round, what)
    if stream == "intake":
        async with ledger.database.reading() as raw:
            await raw.execute("update fact set at_us = at_us + 1 where seq <= 3 and key <> 'a'")
    assert (await audit_verify(ledger)).first_bad is None
    bad = (await verify(ledger, checkpoints=[history.later, history.earlier])).ledger.first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == (stream, found_at, "checkpoint: hash")
    # the first that remembers otherwise
    assert ("later" if found_at == 8 else "earlier") in bad.expected


async def test_an_end_that_was_cut_off_with_its_head_needs_somebody_who_remembers(
    ledger: Ledger, history: History
) -> None:
    await cut_off(ledger, "fleet/0", 7)
    assert (await audit_verify(ledger)).first_bad is None
    assert (await verify(ledger, checkpoints=[history.earlier])).ok  # it is older than what is gone
    bad = (await verify(ledger, checkpoints=[history.later])).ledger.first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.found) == (
        "fleet/0",
        8,
        "missing: the stream ends at round 7",
    )


async def test_a_stream_that_was_forgotten_needs_somebody_who_remembers(
    ledger: Ledger, history: History
) -> None:
    await forget(ledger, "fleet/1")
    assert (await audit_verify(ledger)).first_bad is None
    bad = (await verify(ledger, checkpoints=[history.later])).ledger.first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what, bad.found) == (
        "fleet/1",
        3,
        "checkpoint: stream",
        "missing",
    )
    assert (await verify(ledger, "fleet/0", [history.later])).ok


async def test_a_snapshot_that_was_made_another_needs_somebody_who_remembers(
    ledger: Ledger, history: History
) -> None:
    """Its digest is in the chain, the round it belongs to is not."""
    async with ledger.database.reading() as raw:
        for table in ("snapshot", "snapshot_section"):
            await raw.execute(f"update {table} set round = 2 where stream = {F0} and round = 3")
    assert (await audit_verify(ledger)).first_bad is None
    bad = (await verify(ledger, checkpoints=[history.later])).ledger.first_bad
    assert isinstance(bad, FirstBad)
    assert (bad.stream, bad.round, bad.what, bad.found) == (
        "fleet/0",
        3,
        "checkpoint: snapshot",
        "missing",
    )
