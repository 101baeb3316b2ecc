"""How far behind the plane is, as the ledger knows it: rows not yet relayed, streams without a
fresh snapshot, the clocks.

Read by `status`, `doctor` and the services' figures. Nothing is written and nothing is locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.clock import DatabaseClock, read
from wharfinger.runtime.ledger.database import Database

PUBLISHER = "publisher"
"""The consumer whose cursors are the relay's."""

BEHIND_MAX = 200
"""Streams whose oldest row is looked up; a plane with more of them behind has been behind for long
on each."""

# Where the relay stands in the newest life of the broker that it has cursors of, and the round of
# the row behind each cursor.
_OLDEST = """
with behind as (
    select s.id, greatest(coalesce(c.seq, 0), coalesce(h.seq, 0)) as seq, s.seq as head
    from stream s left join horizon h on h.stream = s.id
    left join cursor c on c.stream = s.name and c.consumer = $1
        and c.incarnation = (select max(incarnation) from cursor where consumer = $1)
    where s.seq > greatest(coalesce(c.seq, 0), coalesce(h.seq, 0))
)
select (select coalesce(sum(head - seq), 0) from behind)::bigint, (
    select min(r.at_us) from (select * from behind limit $2) b
    cross join lateral (
        select d.round from decision d where d.stream = b.id and d.seq = b.seq + 1 limit 1
    ) d
    cross join lateral (select at_us from round where stream = b.id and number = d.round limit 1) r
)
"""

_SNAPSHOTS = """
select s.name, s.round + s.seq - coalesce(n.round, 0) - coalesce(r.first_seq - 1 + r.decisions, 0),
    r.at_us
from stream s
left join lateral (
    select round from snapshot where stream = s.id and replayed order by round desc limit 1
) n on true
left join lateral (
    select at_us, first_seq, decisions from round
    where stream = s.id and number = n.round limit 1
) r on true
where s.name <> $1 and s.round > 0 order by s.name
"""


class Unrelayed(NamedTuple):
    """`rows` of the ledger that no topic has yet; `oldest_at`: the time of the first one's round,
    None: there is none."""

    rows: int
    oldest_at: Micros | None


class SnapshotAge(NamedTuple):
    """`rows`: rounds and decisions since the newest snapshot of `stream`. `at`: the time of its
    round; None: none was made, or the round was retired."""

    stream: str
    rows: int
    at: Micros | None


@dataclass(frozen=True, slots=True)
class Freshness:
    """`now`: by the database's clock. `skew_us`: this process's clock less the database's."""

    now: Micros
    skew_us: int
    unrelayed: Unrelayed
    snapshots: Sequence[SnapshotAge]

    @property
    def oldest_unrelayed_s(self) -> float:
        """Age of the oldest row that is not relayed; 0 where there is none."""
        oldest = self.unrelayed.oldest_at
        return 0.0 if oldest is None else max(0.0, (self.now - oldest) / 1e6)

    def snapshot_age_s(self, snapshot: SnapshotAge) -> float | None:
        return None if snapshot.at is None else max(0.0, (self.now - snapshot.at) / 1e6)


async def freshness(database: Database) -> Freshness:
    clock = DatabaseClock()
    clock.note(*await read(database))
    async with database.reading() as raw:
        oldest = await raw.fetchrow(_OLDEST, PUBLISHER, BEHIND_MAX)
    assert oldest is not None, "an aggregate is always one row"
    return Freshness(clock(), clock.skew_us, Unrelayed(*oldest), await snapshot_ages(database))


async def snapshot_ages(database: Database) -> list[SnapshotAge]:
    """Of every stream that has rounds, in order of name."""
    async with database.reading() as raw:
        return [SnapshotAge(*record) for record in await raw.fetch(_SNAPSHOTS, INTAKE)]
