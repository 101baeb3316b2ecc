"""The rows that no chain covers, held against themselves and against what checkpoints say of them.

Cursors, incarnations and epochs never fall, and the runs of the feed never change. By themselves
they only have to fit the streams; that one was set back, or that runs have changed places, needs a
checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.runtime.ledger.chain import BadRow, bad_row
from wharfinger.runtime.ledger.database import Raw
from wharfinger.runtime.ledger.marks import CURSOR, MarkedRow, MarkedRuns, marked_rows, marked_runs
from wharfinger.runtime.ledger.verify_feed import FEED

_STRAY_CURSOR = """
select consumer, incarnation, c.stream, c.seq from cursor c
where right(consumer, 9) <> '.withheld'
    and (c.seq < 0 or not exists (select from stream s where s.name = c.stream)) order by 1, 2, 3
limit 1
"""

_STRAY_INCARNATION = """
select t, consumer, incarnation, (select coalesce(max(counter), 0) from incarnation) from (
    select 'cursor' as t, consumer, incarnation from cursor
    union all select 'cursor_position', consumer, incarnation from cursor_position
) held where exists (select from incarnation)
    and incarnation > (select max(counter) from incarnation) order by 1, 2, 3 limit 1
"""


@dataclass(slots=True)
class RememberedMarks:
    """Of all checkpoints together. `rows`: (table, key) -> the highest that was signed, and by
    which checkpoint. `runs`: of the feed, each with its checkpoint."""

    rows: dict[tuple[str, str], tuple[MarkedRow, str]] = field(default_factory=dict)
    runs: list[tuple[MarkedRuns, str]] = field(default_factory=list)

    def row(self, row: MarkedRow, by: str) -> None:
        known = self.rows.get((row.table, row.key))
        if known is None or known[0].number <= row.number:
            self.rows[row.table, row.key] = (row, by)


async def verify_marks(raw: Raw, remembered: RememberedMarks) -> BadRow | None:
    """The first row that is wrong, as of the moment that `raw` reads."""
    try:
        await _fitting(raw)
        await _rows(raw, remembered)
        await _runs(raw, remembered)
    except BadRow as caught:
        return caught
    return None


async def _fitting(raw: Raw) -> None:
    row = await raw.fetchrow(_STRAY_CURSOR)
    if row is not None:
        consumer, incarnation, stream, seq = row
        what = f"{consumer}/{incarnation}/{stream} at {seq}"
        raise bad_row("", 0, 0, CURSOR, "a seq of a known stream", what)
    row = await raw.fetchrow(_STRAY_INCARNATION)
    if row is not None:
        table, consumer, incarnation, highest = row
        raise bad_row(
            "", 0, 0, table, f"an incarnation up to {highest}", f"{incarnation} of {consumer}"
        )


async def _rows(raw: Raw, remembered: RememberedMarks) -> None:
    if not remembered.rows:
        return
    found = {(row.table, row.key): row for row in await marked_rows(raw)}
    for (table, key), (row, by) in sorted(remembered.rows.items()):
        here = found.get((table, key))
        what = f"checkpoint: {table}"
        if here is None or here.number < row.number:
            raise bad_row(
                "",
                0,
                0,
                what,
                f"{key} at {row.number} or more ({by})",
                "missing" if here is None else f"{key} at {here.number}",
            )
        if row.digest and here.number == row.number and here.digest != row.digest:
            raise bad_row("", 0, 0, what, f"{key} is {row.digest} ({by})", here.digest)


async def _runs(raw: Raw, remembered: RememberedMarks) -> None:
    """What was retired since is not compared: its runs are gone."""
    row = await raw.fetchrow(
        "select case when exists (select from horizon) then earliest else 0 end from feed_head"
    )
    retired = row[0] if row is not None else 0
    for runs, by in sorted(remembered.runs, key=lambda one: one[0].first):
        if runs.first < retired:
            continue
        found = await marked_runs(raw, runs.first, runs.last)
        if found.digest != runs.digest:
            raise bad_row(
                FEED,
                0,
                runs.first,
                "checkpoint: feed",
                f"positions {runs.first} to {runs.last} with {runs.digest.hex()} ({by})",
                found.digest,
            )
