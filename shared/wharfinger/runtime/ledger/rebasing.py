"""Set the time of streams right whose heads are ahead of the database's clock (`kernel.rebase`,
`events.ledger.ClockRebased`).

A wrong clock has stamped their rounds. While the difference is small the streams wait for the
clock, a little slower than it (`runtime.stream_time`); years cannot be waited for. All of it is one
transaction: the decision in the stream `ledger`, and in each stream the round that begins the right
time. Writers that have stepped from an earlier head are fenced, and recover.

How far the clock was ahead is taken from the latest head: it is ahead now by that, less its own
age, and less a tenth of the time since the clock went right. By that age and that tenth a duration
that was under way can last longer than it should.
"""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.events.decisions import ClockRebased, Rebased
from wharfinger.events.ledger_codec import made
from wharfinger.events.streams import INTAKE, LEDGER
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.hashing import following
from wharfinger.kernel.rebase import rebase_round
from wharfinger.kernel.round import Head, Round
from wharfinger.kernel.step import ENGINE, number
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.days import day_of
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.heads import ensure_streams, lock
from wharfinger.runtime.ledger.incarnations import PROFILE, present, read_went_back
from wharfinger.runtime.ledger.locks import lock_key
from wharfinger.runtime.ledger.rounds import decode_basis
from wharfinger.runtime.ledger.streams_ahead import wrong_of
from wharfinger.runtime.ledger.writer import event_row, write

OUTCOME = "rebased"
SUBJECT = "ledger/rebase-{}"
"""One for each: what is kept of a retired history is the latest decision about each subject."""

_LAST = "select profile, basis from round where stream = $1 and number = $2"

_RAISE = "update stream set epoch = epoch + 1 where name = any($1::text[])"


async def rebase(
    database: Database, reason: str, wanted: str = "", clock: Callable[[], Micros] | None = None
) -> ClockRebased | None:
    """Set the time of the stream `wanted`, or of all that are ahead, to the database's clock. None:
    no stream is ahead. `clock`: used instead of the database's, for a history of another time."""
    await ensure_streams(database, [LEDGER])
    async with database.transaction() as transaction:
        raw = transaction.raw
        await raw.execute("select pg_advisory_xact_lock($1)", lock_key(LEDGER))
        locked = await lock(transaction, await _names(raw))
        wrong = await wrong_of(raw, locked, wanted, clock)
        if not wrong.streams:
            return None
        data = ClockRebased(
            wrong.now,
            wrong.by,
            {
                one.stream: Rebased(one.head.round + 1, one.head.at, one.since)
                for one in wrong.streams
            },
            reason,
        )
        begun = _recorded(locked[LEDGER].head, data, present(await read_went_back(raw)))
        decision = begun.decisions[0]
        event = made(data, id=decision.id, source=f"/wharfinger/{LEDGER}", subject=decision.subject)
        rounds = [[begun]]
        for one in wrong.streams:
            if one.stream != LEDGER:
                id_ = locked[one.stream].id
                row = await raw.fetchrow(_LAST, id_, one.head.round)
                if row is None:
                    raise LedgerError(f"{one.stream}: round {one.head.round} is missing")
                profile, basis = row
                inputs = () if one.stream == INTAKE else (event,)
                made_round = rebase_round(
                    one.head, inputs, wrong.now, decode_basis(basis), profile, one.head.snapshot
                )
                rounds.append([made_round])
        taken_in = any(made_round.inputs for chain in rounds for made_round in chain)
        await write(raw, rounds, [event_row(event, day_of(wrong.now))] if taken_in else [])
        await raw.execute(_RAISE, [one.stream for one in wrong.streams if one.stream != LEDGER])
    return data


async def _names(raw: Raw) -> list[str]:
    return [row[0] for row in await raw.fetch("select name from stream order by name")]


def _recorded(head: Head, data: ClockRebased, incarnation: int) -> Round:
    """The round of the stream `ledger`."""
    at = data.to_us if LEDGER in data.streams else max(head.at, data.to_us)
    draft = Draft(data, SUBJECT.format(head.round + 1), OUTCOME)
    decision = number(draft, LEDGER, head.seq + 1, incarnation)
    return following(head, at, ENGINE, PROFILE, decisions=[decision])
