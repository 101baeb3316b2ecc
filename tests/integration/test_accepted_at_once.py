"""The intake is written in two statements: a look at its head, and a write where the head is still
the same. Other appenders and lost connections in between change nothing: each event is accepted
once, and each caller gets the right answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.counter import withdrawn
from tests.hunting import examples

from wharfinger.events.streams import BINDINGS, INTAKE
from wharfinger.runtime.ledger import (
    AcceptResult,
    AsSeen,
    ChangedSinceError,
    Ledger,
    LedgerError,
    Submission,
    Transient,
    audit_verify,
    heads,
)
from wharfinger.runtime.ledger import intake as module
from wharfinger.runtime.ledger.heads import Locked
from wharfinger.runtime.ledger.writer import MovedHeads, RoundRows

pytestmark = pytest.mark.integration

Between = Callable[[], Awaitable[object]]


def submission(number: int, key: str = "") -> Submission:
    event = withdrawn(number)
    return Submission(event, BINDINGS.name, key or event.subject, "p")


def ids(*numbers: int) -> tuple[UUID, ...]:
    return tuple(withdrawn(number).id for number in numbers)


def between(patch: pytest.MonkeyPatch, work: Between) -> None:
    """`work` is done after the next look at the head, before the write."""
    made = module._made

    async def slowly(raw: Any, head: Locked, *rest: Any) -> Any:
        found = await made(raw, head, *rest)
        patch.setattr(module, "_made", made)
        await work()
        return found

    patch.setattr(module, "_made", slowly)


def cut(patch: pytest.MonkeyPatch, *, written: bool, skipped: int = 0) -> None:
    """The connection is cut at the next write but `skipped`: before the database gets it, or after
    it has written and before it answers."""
    write, writes = RoundRows.write, count()

    async def cut_off(rows: RoundRows, *arguments: Any, **named: Any) -> MovedHeads | None:
        if next(writes) < skipped:
            return await write(rows, *arguments, **named)
        patch.setattr(RoundRows, "write", write)
        if written:
            await write(rows, *arguments, **named)
        raise Transient("database: cut")

    patch.setattr(RoundRows, "write", cut_off)


def transactions(patch: pytest.MonkeyPatch, behind_max_us: int = 1 << 62) -> list[object]:
    """An entry for each head that is locked. `behind_max_us`: how long before it is written a round
    may be stamped; by default however busy the machine is."""
    patch.setattr(module, "BEHIND_MAX_US", behind_max_us)
    locked: list[object] = []

    async def counted(*arguments: Any) -> Any:
        locked.append(arguments)
        return await heads.lock(*arguments)

    patch.setattr(module, "lock", counted)
    return locked


async def test_two_statements_do_where_no_other_is_first(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = transactions(monkeypatch)
    assert (await ledger.accept([submission(1), submission(2)])).new == ids(1, 2)
    again = await ledger.accept([submission(2), submission(3)])
    assert (again.new, again.known, again.seq) == (ids(3), ids(2), 3)
    assert (await ledger.accept([submission(3)])).known == ids(3)
    assert not locked


async def test_another_is_first_with_other_events(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = transactions(monkeypatch)
    between(monkeypatch, lambda: ledger.accept([submission(1)]))
    found = await ledger.accept([submission(2)])
    assert (found.new, found.seq) == (ids(2), 2)
    assert len(locked) == 1


async def test_another_is_first_with_the_same_event(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    between(monkeypatch, lambda: ledger.accept([submission(1)]))
    found = await ledger.accept([submission(1), submission(2)])
    assert (found.new, found.known) == (ids(2), ids(1))


async def test_another_is_first_under_the_same_key(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fact is the one that was accepted last."""
    between(monkeypatch, lambda: ledger.accept([submission(1, "web")]))
    await ledger.accept([submission(2, "web")])
    assert [(fact.id, fact.seq) async for fact in ledger.facts()] == [(ids(2)[0], 2)]


async def test_what_was_seen_is_changed_between_the_statements(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await ledger.accept([submission(1, "web"), submission(2, "db")])
    seen = AsSeen(first.seq, [(BINDINGS.name, "web")])
    between(monkeypatch, lambda: ledger.accept([submission(3, "web")]))
    with pytest.raises(ChangedSinceError):
        await ledger.accept([submission(4, "other")], seen=seen)
    between(monkeypatch, lambda: ledger.accept([submission(5, "db")]))
    now = AsSeen(3, [(BINDINGS.name, "web")])
    assert (await ledger.accept([submission(4, "other")], seen=now)).new == ids(4)
    with pytest.raises(ChangedSinceError):  # long before the first of them
        await ledger.accept([submission(6, "other")], seen=seen)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(
    ("others", "skipped"),
    [((), 0), ((2,), 0), ((1,), 0), ((2,), 1), ((1,), 1)],
    ids=["alone", "other", "same", "other-in-the-transaction", "same-in-the-transaction"],
)
async def test_the_connection_is_cut(
    ledger: Ledger,
    written: bool,
    others: tuple[int, ...],
    skipped: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the write, after another appender was first or not, or at the write of the transaction
    that follows: the call answers as if it had not been."""

    async def first() -> None:
        if others:
            await ledger.accept([submission(number) for number in others])
        cut(monkeypatch, written=written, skipped=skipped)

    between(monkeypatch, first)
    found = await ledger.accept([submission(1), submission(3)])
    assert (found.new, found.known) == (ids(3), ids(1)) if 1 in others else (ids(1, 3), ())
    accepted = [row.accepted.id for row in await ledger.rows_after({}, 10) if row.accepted]
    assert sorted(accepted) == sorted(ids(*{1, 3, *others}))
    assert (await audit_verify(ledger)).ok


async def test_a_process_that_was_frozen_after_the_look_stamps_its_round_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was said of the time when it was frozen stays true."""
    locked, later = transactions(monkeypatch, behind_max_us=50_000), list[int]()

    async def frozen() -> None:
        await asyncio.sleep(0.1)
        async with ledger.database.reading() as raw:
            now = await raw.fetchrow("select (extract(epoch from now()) * 1000000)::bigint")
        later.extend(now or ())

    between(monkeypatch, frozen)
    found = await ledger.accept([submission(1)])
    assert found.new == ids(1)
    assert len(locked) == 1
    assert found.at >= later[0]


async def test_a_round_that_one_statement_cannot_hold_is_written_in_a_transaction(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wharfinger.runtime.ledger.writer.BYTES_AT_ONCE", 1)
    locked = transactions(monkeypatch)
    assert (await ledger.accept([submission(1), submission(2)])).new == ids(1, 2)
    assert len(locked) == 1
    assert (await audit_verify(ledger)).ok


async def test_an_intake_that_is_not_there_is_said(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ledger.database.transaction() as transaction:
        await transaction.raw.execute("delete from stream where name = $1", INTAKE)
    with pytest.raises(LedgerError, match="unknown stream intake"):
        await ledger.accept([submission(1)])


STEPS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 6), min_size=1, max_size=3),
        st.sampled_from(("", "before", "after")),
        st.lists(st.integers(0, 6), max_size=2),
        st.sampled_from(("a", "b", "c")),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
async def test_each_event_is_accepted_once_with_anything_in_between(
    ledger: Ledger, steps: list[tuple[list[int], str, list[int], str]]
) -> None:
    """Events that come again, other appenders between the statements, connections that are cut: the
    answers, the rows and the facts are those of a list of events in the order of their rows."""
    base = next(_NUMBERS) * 1000
    before = len(await ledger.rows_after({}, 10_000))
    told: dict[UUID, int] = {}
    keys: dict[UUID, str] = {}

    async def accept(numbers: list[int], key: str) -> AcceptResult:
        wanted = [submission(base + number, f"{base}/{key}") for number in numbers]
        found = await ledger.accept(wanted)
        for id_ in found.new:
            assert id_ not in told, "accepted twice"
            told[id_], keys[id_] = len(told), key
        assert sorted((*found.new, *found.known)) == sorted(one.event.id for one in wanted)
        return found

    for numbers, how, others, key in steps:
        with pytest.MonkeyPatch.context() as patch:

            async def first(
                others: list[int] = others,
                key: str = key,
                how: str = how,
                patch: pytest.MonkeyPatch = patch,
            ) -> None:
                if others:
                    await accept(others, key)
                if how:
                    cut(patch, written=how == "after")

            if others or how:
                between(patch, first)
            await accept(numbers, key)
    rows = (await ledger.rows_after({}, 10_000))[before:]
    assert [row.accepted.id for row in rows if row.accepted] == list(told)
    last = {f"{base}/{key}": id_ for id_, key in keys.items()}
    facts = {fact.key: fact.id async for fact in ledger.facts()}
    assert {key: facts[key] for key in last} == last
    assert (await audit_verify(ledger)).ok


_NUMBERS = count(1)
