"""Which streams are ahead of the database's clock, and which were set right before. `rebasing` sets
them right."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from wharfinger.events.decisions import ClockRebased
from wharfinger.events.ledger_codec import decode_data
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import LEDGER
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger.bodies import unpack
from wharfinger.runtime.ledger.clock import AHEAD_MAX_US
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.heads import Locked, glance

TYPE = LATEST[ClockRebased].type

# Behind the last round that is not ahead: what was set right earlier stays as it is.
_SINCE = """
select min(at_us) from round where stream = $1 and at_us > $2
and number > coalesce((select max(number) from round where stream = $1 and at_us <= $2), 0)
"""

_REBASED = """
select d.encoding, d.body from decision d join stream s on s.id = d.stream
where s.name = $1 and d.type = $2 order by d.seq
"""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A stream whose head is ahead. `since`: the first time that the wrong clock has stamped."""

    stream: str
    head: Head
    since: Micros


@dataclass(frozen=True, slots=True)
class Wrong:
    """The streams that are ahead of the database's clock, which is at `now`. `by`: what has to be
    added to their time, negative."""

    now: Micros
    by: int
    streams: tuple[Ahead, ...]


async def wrong_times(database: Database, wanted: str = "") -> Wrong:
    """What `rebase` would set right now: of the stream `wanted`, or of all."""
    async with database.transaction() as transaction:
        locked = await glance(transaction)
        return await wrong_of(transaction.raw, locked, wanted, None)


async def wrong_of(
    raw: Raw, locked: Mapping[str, Locked], wanted: str, clock: Callable[[], Micros] | None
) -> Wrong:
    now = clock() if clock is not None else max(one.now for one in locked.values())
    ahead = {name: one for name, one in locked.items() if one.head.at > now + AHEAD_MAX_US}
    by = now - max((one.head.at for one in ahead.values()), default=now)
    streams = []
    for name in _wanted(ahead, wanted):
        row = await raw.fetchrow(_SINCE, ahead[name].id, now)
        since = ahead[name].head.at if row is None or row[0] is None else int(row[0])
        streams.append(Ahead(name, ahead[name].head, since))
    return Wrong(now, by, tuple(streams))


def _wanted(names: Collection[str], wanted: str) -> list[str]:
    return [name for name in sorted(names) if not wanted or name == wanted]


async def read_rebased(raw: Raw) -> list[ClockRebased]:
    """Every time that was set right, in order."""
    found: list[ClockRebased] = []
    for encoding, body in await raw.fetch(_REBASED, LEDGER, TYPE):
        data = decode_data(TYPE, unpack(encoding, body))
        assert isinstance(data, ClockRebased), "of that type"
        found.append(data)
    return found


def rounds_of(history: Sequence[ClockRebased], stream: str) -> dict[int, Micros]:
    """The rounds of a stream that may be earlier than the one before, and their times."""
    return {one.streams[stream].round: one.to_us for one in history if stream in one.streams}
