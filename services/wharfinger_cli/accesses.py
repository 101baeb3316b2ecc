"""`audit access`: who wrote over the HTTP API, was refused, or read what belongs to others."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from wharfinger.answers.accesses import access_plain
from wharfinger.domain.text import as_time
from wharfinger.runtime.ledger.access import AccessQuery, AccessRecord, access_records
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.decisions import since_micros
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import DARK, WARN, as_clock, new_table, show_list
from wharfinger_cli.request import Request

OUTCOMES = ("allowed", "refused")
REMOTE_MAX = 1000


def access(
    request: Request, actors: Sequence[str], outcomes: Sequence[str], since: str, limit: int
) -> None:
    if unknown := sorted(set(outcomes) - set(OUTCOMES)):
        raise CommandError(f"--outcome: expected one of {', '.join(OUTCOMES)}, got {unknown[0]!r}")
    begin = since_micros(since, time.time_ns() // 1000) if since else 0
    query = AccessQuery(tuple(actors), tuple(outcomes), begin, limit=limit)
    found = run(_found(request, query))
    show_list(
        request.format,
        [access_plain(record) for record in found],
        [str(record.seq) for record in found],
        lambda: _table(found),
        "no access records",
    )


async def _found(request: Request, query: AccessQuery) -> Sequence[AccessRecord]:
    if request.server:
        from wharfinger_cli.remote import Remote

        if query.limit > REMOTE_MAX:
            raise CommandError(f"--limit: expected at most {REMOTE_MAX} over --server")
        answer: Sequence[AccessRecord] = Remote.of(request).value(
            "/v1/access",
            actor=query.actors,
            outcome=query.outcomes,
            since=as_time(query.since) if query.since else "",
            limit=query.limit,
        )
        return answer
    async with opened_ledger(reached(request)) as ledger:
        return await access_records(ledger.database, query)


def _table(found: Sequence[AccessRecord]) -> Table:
    table = new_table("time", "who", "what", "about", "outcome", "why", "count", right=("count",))
    for record in found:
        one = record.access
        table.add_row(
            as_clock(record.at),
            one.actor,
            one.action,
            Text(one.target, DARK),
            Text(one.outcome, WARN if one.outcome == "refused" else ""),
            one.reason,
            str(one.count),
        )
    return table
