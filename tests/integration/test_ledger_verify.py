"""What verify looks at, what it counts, and where it begins. What it finds is told in test_tamperings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.counter import Counter, Writer, withdrawn

from wharfinger.events.streams import BINDINGS
from wharfinger.kernel.round import Head, Round
from wharfinger.runtime.ledger import Ledger, SnapshotFollower, Submission, audit_verify
from wharfinger.runtime.ledger import verify as verify_module
from wharfinger.runtime.ledger.verify import Remembered
from wharfinger.runtime.replay import worker_pool

pytestmark = pytest.mark.integration


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
    assert (await audit_verify(history.ledger, "elsewhere")).streams == 0


async def test_heads_and_snapshots_that_were_walked_are_told(history: History) -> None:
    walked = {one.head.stream: one for one in (await audit_verify(history.ledger)).walked}
    heads = {head.stream: head for head in await history.ledger.heads()}
    assert {name: one.head for name, one in walked.items()} == heads
    assert [number for number, _ in walked["fleet/0"].snapshots] == [3, 6]
    assert {one.base.round for one in walked.values()} == {0}


@pytest.mark.parametrize("rows", [1, 7, 20, 1000])
async def test_stretches_come_to_the_same(history: History, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """However the streams are cut: every round is in one stretch."""
    alone = await audit_verify(history.ledger)
    monkeypatch.setattr(verify_module, "STRETCH_ROWS", rows)
    with worker_pool(2) as pool:
        shared = await audit_verify(history.ledger, workers=2, pool=pool)
    assert shared.ok
    assert (shared.rounds, shared.rows, shared.walked) == (alone.rounds, alone.rows, alone.walked)


async def test_what_is_committed_meanwhile_is_not_looked_at(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes see what this one sees: they share its moment, and not the moment at which they begin."""
    cut = verify_module._cut

    async def cut_and_go_on(*arguments: object) -> object:
        event = withdrawn(500)
        await history.ledger.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
        monkeypatch.setattr(verify_module, "_cut", cut)
        return await cut(*arguments)  # type: ignore[arg-type]

    before = (await audit_verify(history.ledger)).rounds
    monkeypatch.setattr(verify_module, "_cut", cut_and_go_on)
    with worker_pool(2) as pool:
        result = await audit_verify(history.ledger, workers=2, pool=pool)
    assert result.ok
    assert result.rounds == before
    assert (await audit_verify(history.ledger)).rounds == before + 1


async def test_a_head_that_somebody_remembers_must_still_be_part_of_its_stream(history: History) -> None:
    remembered = [Remembered(head) for head in await history.ledger.heads()]
    writer = Writer((await history.ledger.raise_epoch(["fleet/1"]))["fleet/1"])
    await history.ledger.commit([writer.step([withdrawn(77)])], writer.events)
    assert (await audit_verify(history.ledger, remembered=remembered)).ok  # the stream has gone on from there
    other = [Remembered(Head("fleet/1", 1, 1, b"x" * 32, 0), by="somebody")]
    bad = (await audit_verify(history.ledger, remembered=other)).first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == ("fleet/1", 1, "checkpoint: hash")
    assert "somebody" in bad.expected
