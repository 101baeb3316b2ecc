"""Somebody who owns the database and knows this code: history is rewritten with right hashes, or
cut off with its head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wharfinger.domain.value import canonical
from wharfinger.events.decisions import BindingReleased
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.hashing import round_hash
from wharfinger.kernel.round import Round
from wharfinger.runtime.ledger import FeedAppender, Ledger

Change = Callable[[Round], Round]


def another_decision(round_: Round) -> Round:
    """The round's first decision says something else."""
    first = round_.decisions[0]
    data = BindingReleased("binding-x", "9/9")
    return replace(round_, decisions=(_saying(first, data, canonical(data)), *round_.decisions[1:]))


def _saying(decision: Decision, data: BindingReleased, body: bytes) -> Decision:
    return Decision(
        decision.stream,
        decision.seq,
        decision.id,
        decision.type,
        decision.subject,
        decision.outcome,
        decision.cause,
        data,
        body,
    )


def another_time(round_: Round) -> Round:
    return replace(round_, at=round_.at + 1)


def another_engine(round_: Round) -> Round:
    return replace(round_, engine="wharfinger/9")


async def rewrite(ledger: Ledger, stream: str, from_round: int, change: Change) -> None:
    """Change round `from_round`, and make all that follows it right again: every hash, and the
    head."""
    prev = (await ledger.head_at(stream, from_round - 1)).hash
    rounds = [recorded.round async for recorded in ledger.recorded_rounds(stream, from_round)]
    async with ledger.database.reading() as raw:
        of_stream = "stream = (select id from stream where name = $1)"
        for place, found in enumerate(rounds):
            r = change(found) if place == 0 else found
            hash_ = round_hash(
                prev,
                stream,
                r.number,
                r.epoch,
                r.at,
                r.engine,
                r.profile,
                r.inputs,
                r.basis,
                r.decisions,
                r.snapshot,
            )
            await raw.execute(
                "update round set prev_hash = $3, hash = $4, at_us = $5, "
                f"engine = $6 where {of_stream} and number = $2",
                stream,
                r.number,
                prev,
                hash_,
                r.at,
                r.engine,
            )
            for d in r.decisions:
                await raw.execute(
                    f"update decision set body = $3, encoding = 0 where {of_stream} and seq = $2",
                    stream,
                    d.seq,
                    d.body,
                )
            prev = hash_
            last = r
        await raw.execute(
            "update stream set hash = $2, at_us = $3 where name = $1", stream, prev, last.at
        )
    await _number_again(ledger)


async def cut_off(ledger: Ledger, stream: str, last: int) -> None:
    """Nothing behind round `last` is left, and the head says that nothing ever was. The cursors are
    turned back as well."""
    head = await ledger.head_at(stream, last)
    async with ledger.database.reading() as raw:
        of_stream = "stream = (select id from stream where name = $1)"
        for table, column in (
            ("round", "number"),
            ("input", "round"),
            ("decision", "round"),
            ("snapshot", "round"),
            ("snapshot_section", "round"),
        ):
            await raw.execute(
                f"delete from {table} where {of_stream} and {column} > $2", stream, last
            )
        await raw.execute(
            "delete from event e where not exists (select from input i where i.event = e.id and "
            "i.sha256 = e.sha256)"
        )
        await raw.execute(
            "update stream set round = $2, seq = $3, hash = $4, at_us = $5, snapshot = coalesce("
            "(select digest from snapshot where stream = stream.id order by snapshot.round desc "
            "limit 1), '') where name = $1",
            stream,
            head.round,
            head.seq,
            head.hash,
            head.at,
        )
        await raw.execute(
            "update cursor set seq = least(seq, $2) where stream = $1", stream, head.seq
        )
    await _number_again(ledger)


async def forget(ledger: Ledger, stream: str) -> None:
    """As if the stream had never been."""
    await cut_off(ledger, stream, 0)
    async with ledger.database.reading() as raw:
        await raw.execute("delete from cursor where stream = $1", stream)
        await raw.execute("delete from stream where name = $1", stream)


async def _number_again(ledger: Ledger) -> None:
    """The feed as it would be had nothing else ever been decided."""
    async with ledger.database.reading() as raw:
        await raw.execute("delete from feed")
        await raw.execute("update feed_head set position = 0, earliest = 1")
    appender = FeedAppender(ledger.database)
    while await appender.append():
        pass
