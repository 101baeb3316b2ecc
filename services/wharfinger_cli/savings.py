"""`savings`: what every consolidation promised, what it came to, and what it cost in moves."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.domain.instance_types import PRICE_UNIT
from wharfinger.domain.text import dollars, some
from wharfinger.history.savings import Account, Reversal, Savings, by_method, savings
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import wall_clock
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.decisions import since_micros
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    WARN,
    Plain,
    as_clock,
    as_time,
    count,
    new_table,
    show,
)
from wharfinger_cli.request import Request

SHOWN_MAX = 20


def show_savings(request: Request, cluster: str, since: str) -> None:
    now = wall_clock()
    found = run(_read(request, now, cluster, since_micros(since, now) if since else None))
    names = [account.decided.command for account in found.accounts]
    show(request.format, savings_plain(found), names, lambda: savings_page(found))


async def _read(request: Request, now: Micros, cluster: str, since: Micros | None) -> Savings:
    async with opened_ledger(reached(request)) as ledger:
        return await savings(ledger, now, cluster, since)


# --- for programs


def savings_plain(found: Savings) -> Plain:
    """Prices in billionths of a dollar an hour, as the decisions have them."""
    return {
        "as_of": as_time(found.until),
        "commands": [account_plain(account, found.until) for account in found.accounts],
        "predicted": found.predicted,
        "realised": found.realised,
        "saved": found.saved,
        "moves": dict(sorted(found.moves.items())),
        "moves_per_dollar": found.moves_per_dollar,
        "reverted": [reversal_plain(reversal) for reversal in found.reversals],
    }


def account_plain(account: Account, until: Micros) -> Plain:
    decided = account.decided
    return {
        "cluster": decided.cluster,
        "command": decided.command,
        "method": decided.method,
        "decided_at": as_time(account.at),
        "ended_at": as_time(account.ended) if account.ended else None,
        "outcome": account.outcome or "running",
        "reason": account.reason or decided.reason,
        "nodes": [node.name for node in decided.nodes],
        "removed": account.removed,
        "moved": account.moved,
        "predicted": account.predicted,
        "realised": account.realised,
        "saved": account.saved(until),
    }


def reversal_plain(reversal: Reversal) -> Plain:
    return {
        "cluster": reversal.cluster,
        "binding": reversal.binding,
        "ordinal": reversal.ordinal,
        "node": reversal.node,
        "left_at": as_time(reversal.left),
        "left_by": reversal.left_by,
        "back_at": as_time(reversal.back),
        "back_by": reversal.back_by,
    }


# --- for people


def savings_page(found: Savings) -> Iterator[RenderableType]:
    if not found.accounts and not found.moves:
        yield Text("no node was consolidated and no replica moved for upkeep yet", DARK)
        return
    yield _headline(found)
    if found.accounts:
        yield ""
        yield _totals(found)
        yield ""
        yield _accounts(found)
    if found.moves:
        yield ""
        yield Text(
            f"moves by reason: {some(f'{why} {n:,}' for why, n in sorted(found.moves.items()))}"
        )
    yield from reversals_text(found)


def _headline(found: Savings) -> Text:
    done, back, running = (
        len(found.done),
        len(found.rolled_back),
        sum(not a.outcome for a in found.accounts),
    )
    said = Text(f"saves {dollars(found.realised)}", GOOD if found.realised > 0 else DARK)
    said.append(
        f" ({dollars(found.predicted)} predicted), {found.saved / PRICE_UNIT:,.2f} $ so far",
        "default",
    )
    said.append(f"  {count(done, 'command')} done, {back} rolled back, {running} running", DARK)
    return said


def _totals(found: Savings) -> Table:
    right = ("commands", "nodes gone", "predicted", "realised", "moves", "moves per $/h")
    table = new_table("method", *right, right=right)
    for method, accounts in by_method(found.done).items():
        realised, moved = sum(a.realised for a in accounts), sum(a.moved for a in accounts)
        table.add_row(
            method,
            f"{len(accounts):,}",
            f"{sum(a.removed for a in accounts):,}",
            dollars(sum(a.predicted for a in accounts)),
            dollars(realised),
            f"{moved:,}",
            f"{moved * PRICE_UNIT / realised:,.1f}" if realised > 0 else "-",
        )
    return table


def _accounts(found: Savings) -> Table:
    table = new_table(
        "command",
        "cluster",
        "decided",
        "outcome",
        "predicted",
        "realised",
        "moves",
        right=("predicted", "realised", "moves"),
    )
    for account in found.accounts[-SHOWN_MAX:]:
        decided = account.decided
        colour = {"done": GOOD, "rolled-back": BAD, "": WARN}[account.outcome]
        outcome = Text(account.outcome or "running", colour)
        if account.outcome == "rolled-back":
            outcome.append(f": {account.reason}", DARK)
        table.add_row(
            decided.command,
            decided.cluster,
            as_clock(account.at),
            outcome,
            dollars(account.predicted),
            dollars(account.realised) if account.outcome == "done" else "-",
            f"{account.moved:,}",
        )
    if len(found.accounts) > SHOWN_MAX:
        table.caption = f"the latest {SHOWN_MAX} of {len(found.accounts):,}"
    return table


def reversals_text(found: Savings) -> Iterator[Text]:
    if not found.reversals:
        yield Text("no move was reverted", GOOD)
        return
    yield Text(f"{count(len(found.reversals), 'move was', 'moves were')} reverted", BAD)
    for r in found.reversals[:SHOWN_MAX]:
        gone = (r.back - r.left) / 1e6
        yield Text(
            f"  {r.binding} {r.ordinal} left {r.node} by {r.left_by} and was back after "
            f"{gone:,.0f} s by {r.back_by}"
        )
