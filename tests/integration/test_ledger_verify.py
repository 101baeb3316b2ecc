"""What verify looks at, what it counts, and where it begins. What it finds is told in
test_tamperings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.attacker import another_decision, rewrite
from tests.backends import fresh_database, in_a_loop
from tests.counter import Counter, Writer, withdrawn

from wharfinger.events.streams import BINDINGS
from wharfinger.history.checkpoint import new_key, signed
from wharfinger.history.verification import take_checkpoint, verify
from wharfinger.kernel.round import Head, Round
from wharfinger.runtime.ledger import Ledger, SnapshotFollower, Submission, audit_verify
from wharfinger.runtime.ledger import verify as verify_module
from wharfinger.runtime.ledger.retention import cut, retire
from wharfinger.runtime.ledger.verify import Remembered
from wharfinger.runtime.replay import worker_pool

pytestmark = pytest.mark.integration

KEY = new_key()


@dataclass
class History:
    ledger: Ledger
    rounds: list[Round]


@pytest_asyncio.fixture
async def history(database_url: str) -> AsyncIterator[History]:
    """fleet/0 with 8 rounds of 3 events, snapshots at 3 and 6 and a digest in the chain; fleet/1;
    some intake."""
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
    assert (await audit_verify(history.ledger, "elsewhere")).streams == 0


async def test_heads_and_snapshots_that_were_walked_are_told(history: History) -> None:
    walked = {one.head.stream: one for one in (await audit_verify(history.ledger)).walked}
    heads = {head.stream: head for head in await history.ledger.heads()}
    assert {name: one.head for name, one in walked.items()} == heads
    assert [number for number, _ in walked["fleet/0"].snapshots] == [3, 6]
    assert {one.base.round for one in walked.values()} == {0}


@pytest.mark.parametrize("rows", [1, 7, 20, 1000])
async def test_stretches_come_to_the_same(
    history: History, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """However the streams are cut: every round is in one stretch."""
    alone = await audit_verify(history.ledger)
    monkeypatch.setattr(verify_module, "STRETCH_ROWS", rows)
    with worker_pool(2) as pool:
        shared = await audit_verify(history.ledger, workers=2, pool=pool)
    assert shared.ok
    assert (shared.rounds, shared.rows, shared.walked) == (alone.rounds, alone.rows, alone.walked)


async def test_what_is_committed_meanwhile_is_not_looked_at(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes see what this one sees: they share its moment, and not the moment at which they
    begin."""
    cut = verify_module._cut

    async def cut_and_go_on(*arguments: object) -> object:
        event = withdrawn(500)
        await history.ledger.accept(
            [Submission(event, BINDINGS.name, event.subject, event.subject)]
        )
        monkeypatch.setattr(verify_module, "_cut", cut)
        return await cut(*arguments)  # type: ignore[arg-type]

    before = (await audit_verify(history.ledger)).rounds
    monkeypatch.setattr(verify_module, "_cut", cut_and_go_on)
    with worker_pool(2) as pool:
        result = await audit_verify(history.ledger, workers=2, pool=pool)
    assert result.ok
    assert result.rounds == before
    assert (await audit_verify(history.ledger)).rounds == before + 1


async def test_a_head_that_somebody_remembers_must_still_be_part_of_its_stream(
    history: History,
) -> None:
    remembered = [Remembered(head) for head in await history.ledger.heads()]
    writer = Writer((await history.ledger.raise_epoch(["fleet/1"]))["fleet/1"])
    await history.ledger.commit([writer.step([withdrawn(77)])], writer.events)
    # the stream has gone on from there
    assert (await audit_verify(history.ledger, remembered=remembered)).ok
    other = [Remembered(Head("fleet/1", 1, 1, b"x" * 32, 0), by="somebody")]
    bad = (await audit_verify(history.ledger, remembered=other)).first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == ("fleet/1", 1, "checkpoint: hash")
    assert "somebody" in bad.expected


# --- where the beginning was retired -------------------------------------------------------------

MONTH_US = 30 * 86_400_000_000
SPRING_US = 56 * 365 * 86_400_000_000  # some day in 2025


@pytest.fixture(scope="module")
def retired_database(database_server: str, migrated_database: str) -> Iterator[str]:
    """The name of a database to copy. fleet/0: a round a month for six months; the first ones were
    retired under a checkpoint of all six."""
    with fresh_database(database_server, template=migrated_database) as url:
        in_a_loop(lambda: _retire(url))
        yield url.split("?")[0].rsplit("/", 1)[1]


async def _retire(url: str) -> None:
    ledger = await Ledger.open(url, "tests", clock=lambda: SPRING_US)
    event = withdrawn(100)
    await ledger.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
    await ledger.ensure_streams(["fleet/0"])
    writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
    for number in range(6):
        inputs = [withdrawn(number * 2 + n) for n in range(2)]
        await ledger.commit([writer.step(inputs, at=SPRING_US + number * MONTH_US)], writer.events)
    _, made = await take_checkpoint(ledger, SPRING_US + 6 * MONTH_US)
    assert made is not None
    found = await cut(ledger.database, SPRING_US + 3 * MONTH_US)
    assert found is not None
    await retire(
        ledger.database,
        found,
        {"fleet/0": {"state": b"{}"}},
        signed(made, KEY),
        SPRING_US + 6 * MONTH_US,
    )
    await ledger.close()


@pytest_asyncio.fixture
async def retired(database_server: str, retired_database: str) -> AsyncIterator[Ledger]:
    with fresh_database(database_server, template=retired_database) as url:
        ledger = await Ledger.open(url, "tests")
        yield ledger
        await ledger.close()


async def test_a_stream_whose_beginning_was_retired_is_verified_from_there(retired: Ledger) -> None:
    found = await verify(retired, trusted=KEY.public_key())
    assert found.ok, found.ledger.first_bad
    bases = {one.base.stream: one.base.round for one in found.ledger.walked}
    assert bases["intake"] == 1
    assert 0 < bases["fleet/0"] < 6
    assert found.ledger.rounds == 6 - bases["fleet/0"]
    assert len(found.checkpoints) == 1


BASE = "(select h.round from horizon h join stream s on s.id = h.stream where s.name = 'fleet/0')"
OF_FLEET = "stream = (select id from stream where name = 'fleet/0')"


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (f"update horizon set hash = sha256('x') where {OF_FLEET}", "horizon"),
        (f"update horizon set round = round + 1 where {OF_FLEET}", "horizon"),
        (f"update horizon set seq = seq - 1 where {OF_FLEET}", "horizon"),
        (f"delete from round where {OF_FLEET} and number = {BASE}", "horizon: round"),
        (f"delete from snapshot where {OF_FLEET} and round = {BASE}", "horizon: snapshot"),
        (f"delete from snapshot_section where {OF_FLEET}", "snapshot: digest"),
        (
            f"update round set prev_hash = sha256('x') where {OF_FLEET} and number = {BASE} + 1",
            "round: previous hash",
        ),
        (f"delete from horizon where {OF_FLEET}", "round"),
        (
            f"update decision set id = gen_random_uuid() where {OF_FLEET} and round <= {BASE}",
            "decision: id",
        ),
        (f"update decision set round = 1 where {OF_FLEET} and round = {BASE}", "decision"),
        (
            "update event set body = body || ' ' "
            f"where (id, day) in (select event, day from input where {OF_FLEET} and "
            f"round <= {BASE})",
            "event: body",
        ),
        ("update retirement set checkpoint = checkpoint || ' '", "horizon"),
        ("delete from retirement", "horizon"),
    ],
)
async def test_what_a_retirement_left_is_held_together(
    retired: Ledger, statement: str, what: str
) -> None:
    async with retired.database.reading() as raw:
        assert (await raw.execute(statement)).split()[-1] != "0", "the tampering touched nothing"
    bad = (await verify(retired, "fleet/0")).ledger.first_bad
    assert bad is not None
    assert (bad.stream, bad.what) == ("fleet/0", what)


async def test_a_rewritten_base_is_found_by_the_checkpoint_it_was_retired_under(
    retired: Ledger,
) -> None:
    base = next(one.base.round for one in (await audit_verify(retired, "fleet/0")).walked)
    await rewrite(retired, "fleet/0", base + 1, another_decision)
    assert (await audit_verify(retired)).ok
    bad = (await verify(retired)).ledger.first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == ("fleet/0", 6, "checkpoint: hash")


async def test_a_base_that_nobody_trusted_signed_is_named(retired: Ledger) -> None:
    bad = (await verify(retired, trusted=new_key().public_key())).ledger.first_bad
    assert bad is not None
    assert bad.what == "horizon"
    assert "and not by the key that was asked for" in bad.found
