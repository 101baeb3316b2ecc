"""`ledger retire`: let the oldest history go, and say where each stream begins from now on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from wharfinger.history import checkpoint as file
from wharfinger.history.checkpoint import SignedCheckpoint
from wharfinger.history.retention import Retirement, retire_before
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Ledger, wall_clock
from wharfinger.runtime.ledger.archive import Archived, archive, drop, retired_tables
from wharfinger.runtime.ledger.partitions import shown_day
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.decisions import since_micros
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import (
    DARK,
    GOOD,
    Plain,
    as_clock,
    as_time,
    count,
    messages,
    new_table,
    show,
)
from wharfinger_cli.request import Request


@dataclass(frozen=True, slots=True)
class _Done:
    retirement: Retirement
    horizons: dict[str, Head]
    archived: Sequence[Archived] = ()
    dropped: Sequence[str] = ()
    kept: Sequence[str] = field(default=())


def retire(
    request: Request, before: str, checkpoint: Path, archive_to: Path | None, drop_tables: bool
) -> None:
    now = wall_clock()
    at = since_micros(before, now, "--before")
    try:
        body = checkpoint.read_bytes()
    except OSError as error:
        raise CommandError(f"{checkpoint}: {error.strerror}") from None
    signed = file.read(str(checkpoint), body)
    done = run(_retire(request, at, now, signed, body, archive_to, drop_tables))
    show(request.format, _plain(done), (), lambda: _page(done, before))


async def _retire(
    request: Request,
    at: Micros,
    now: Micros,
    signed: SignedCheckpoint,
    body: bytes,
    to: Path | None,
    drop_tables: bool,
) -> _Done:
    """Detaches first, then archives, then drops. After an interruption the same command continues
    where it stopped."""
    async with opened_ledger(reached(request)) as ledger:
        with messages().status("retiring"):
            retirement = await retire_before(ledger, at, signed, body, now)
            return await _put_away(ledger, retirement, to, drop_tables)


async def _put_away(
    ledger: Ledger, retirement: Retirement, to: Path | None, drop_tables: bool
) -> _Done:
    tables = await retired_tables(ledger.database)
    archived = await archive(ledger.database, tables, to) if to is not None else []
    if drop_tables:
        await drop(ledger.database, tables)
    horizons = await ledger.bases()
    return _Done(
        retirement, horizons, archived, tables if drop_tables else (), () if drop_tables else tables
    )


def _plain(done: _Done) -> Plain:
    retired = done.retirement.done
    return {
        "retired": None
        if retired is None
        else {
            "before": shown_day(retired.before).isoformat(),
            "rounds": retired.rounds,
            "tables": list(retired.tables),
        },
        "signed_by": done.retirement.signed_by,
        "streams": {
            name: {"round": h.round, "seq": h.seq, "hash": h.hash.hex(), "at": as_time(h.at)}
            for name, h in done.horizons.items()
        },
        "archived": [
            {"table": a.table, "file": a.file, "rows": a.rows, "sha256": a.sha256}
            for a in done.archived
        ],
        "dropped": list(done.dropped),
        "kept": list(done.kept),
    }


def _page(done: _Done, before: str) -> Iterator[RenderableType]:
    retired = done.retirement.done
    if retired is None:
        yield Text(f"nothing to retire: no whole partition lies before {before}", DARK)
    else:
        moved = count(len(retired.heads), "stream")
        yield Text(
            f"retired what lies before {shown_day(retired.before)}: "
            f"{count(retired.rounds, 'round')} of {moved}",
            GOOD,
        )
        yield Text(f"vouched for by the checkpoint of key {done.retirement.signed_by}", DARK)
    if done.horizons:
        table = new_table(
            "stream", "begins after round", "seq", "of", right=("begins after round", "seq")
        )
        for name, head in done.horizons.items():
            table.add_row(name, f"{head.round:,}", f"{head.seq:,}", as_clock(head.at))
        yield table
    if done.archived:
        rows = sum(one.rows for one in done.archived)
        yield Text(f"archived {count(rows, 'row')} of {count(len(done.archived), 'table')}")
    if done.dropped:
        yield Text(f"dropped {count(len(done.dropped), 'table')}")
    if done.kept:
        yield Text(f"kept, detached: {', '.join(done.kept)}", DARK)
