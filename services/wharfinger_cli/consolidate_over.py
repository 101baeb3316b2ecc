"""`plan consolidate --over`: what consolidation would do over time, and the cost after each change.

The simulation is `wharfinger.history.consolidation_timeline`; here its options are read, and it is
shown as a table or for programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.domain.instance_types import PRICE_UNIT
from wharfinger.domain.text import dollars, some
from wharfinger.history.consolidation_timeline import (
    PROVIDES_AFTER_S,
    ClusterOverTime,
    ConsolidationTimeline,
    PoolChange,
    consolidation_timeline,
)
from wharfinger.history.points import HistoryPoint, point_of, span_s
from wharfinger.history.states import PRESENT
from wharfinger.runtime.ledger import wall_clock
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.consolidate import bound_plain, bound_text, consolidate, has_bounds, policies_in
from wharfinger_cli.failures import DIFFERENCE, CommandError
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    WARN,
    Plain,
    as_clock,
    as_seconds,
    as_time,
    count,
    messages,
    new_table,
    show,
)
from wharfinger_cli.request import Request
from wharfinger_cli.savings import reversal_plain, reversals_text

DAY_S = 86_400
OVER_MAX_S = 366 * DAY_S
SHOWN_MAX = 20
COLOURS = {"done": GOOD, "rolled-back": BAD, "running": WARN}


@dataclass(frozen=True, slots=True)
class OverTime:
    """What was typed behind `--over`, `--from` and `--provides-after`; empty: not given."""

    span: str = ""
    from_: str = ""
    provides_after: str = ""


def consolidate_over(
    request: Request, cluster: str, policies: Sequence[str], over: OverTime, *, every: bool
) -> None:
    """Ends with 1 where something would go. A span of nothing that begins now is the plan of now.
    `every`: each change is listed, not the first few."""
    if not over.span:
        raise CommandError("--from and --provides-after: expected --over with them")
    span = _seconds("--over", over.span, 0, OVER_MAX_S)
    provides_after = _provides_after(over)
    if not span and not over.from_:
        consolidate(request, cluster, policies, every=every)
        return
    now = wall_clock()
    begin = point_of(over.from_, now) if over.from_ else PRESENT
    found = run(_simulated(request, cluster, policies, now, span, begin, provides_after))
    names = [name for change in found.changes for name in change.removed]
    show(request.format, timeline_plain(found), names, lambda: timeline_page(found, every=every))
    if names:
        raise SystemExit(DIFFERENCE)


def _provides_after(over: OverTime) -> int:
    if not over.provides_after:
        return PROVIDES_AFTER_S
    return _seconds("--provides-after", over.provides_after, 1, DAY_S)


def _seconds(option: str, text: str, least: int, most: int) -> int:
    seconds = span_s(text)
    if seconds is None:
        raise CommandError(f"{option}: expected a span such as 90s, 10m, 12h or 7d, got {text!r}")
    if not least <= seconds <= most:
        raise CommandError(
            f"{option}: expected a span from {least}s to {most // DAY_S}d, got {text!r}"
        )
    return seconds


async def _simulated(
    request: Request,
    cluster: str,
    filenames: Sequence[str],
    now: int,
    span: int,
    begin: HistoryPoint,
    provides_after: int,
) -> ConsolidationTimeline:
    async with opened_ledger(reached(request)) as ledger:
        policies = await policies_in(ledger, filenames)
        with messages().status("simulating"):
            return await consolidation_timeline(
                ledger,
                now,
                span,
                cluster,
                policies,
                begin=begin,
                provides_after_s=provides_after,
                bounds=has_bounds(),
            )


# --- for programs


def timeline_plain(found: ConsolidationTimeline) -> Plain:
    """Prices in billionths of a dollar an hour; `unchanged`, `spent` and `saved` in billionths of a
    dollar."""
    savings = found.savings
    return {
        "from": as_time(found.begin),
        "to": as_time(found.end),
        "provides_after_s": found.provides_after_s,
        "totals": {
            "nodes_before": sum(one.before.nodes for one in found.clusters),
            "nodes_after": sum(one.after.nodes for one in found.clusters),
            "cost_before": sum(one.before.price for one in found.clusters),
            "cost_after": sum(one.after.cost for one in found.clusters),
            "unchanged": found.unchanged,
            "spent": found.spent,
            "saved": found.saved,
            "predicted": savings.predicted,
            "realised": savings.realised,
            "moves": dict(sorted(savings.moves.items())),
            "reverted": [reversal_plain(reversal) for reversal in savings.reversals],
        },
        "clusters": [_cluster_plain(one) for one in found.clusters],
        "timeline": [_change_plain(change) for change in found.changes],
    }


def _cluster_plain(one: ClusterOverTime) -> Plain:
    return {
        "cluster": one.cluster,
        "nodes_before": one.before.nodes,
        "nodes_after": one.after.nodes,
        "unpriced": one.after.unpriced,
        "cost_before": one.before.price,
        "cost_after": one.after.cost,
        "bound": bound_plain(one.after.bound),
        "spent": one.spent,
        "could_go_then": [name for command in one.after.survey.commands for name in command.nodes],
    }


def _change_plain(change: PoolChange) -> Plain:
    account = change.account
    return {
        "cluster": change.cluster,
        "method": change.method,
        "command": None if account is None else account.decided.command,
        "decided_at": as_time(change.at),
        "finished_at": None if change.finished is None else as_time(change.finished),
        "outcome": change.outcome,
        "reason": "" if account is None else account.reason or account.decided.reason,
        "nodes": change.nodes,
        "removed": change.removed,
        "made": change.made,
        "moves": change.moves,
        "predicted": None if account is None else account.predicted,
        "realised": None if account is None else account.realised,
        "cost_after": None if change.finished is None else change.cost,
    }


# --- for people


def timeline_page(found: ConsolidationTimeline, *, every: bool) -> Iterator[RenderableType]:
    if not found.clusters:
        yield Text("no cluster has nodes of a pool (see `wharfinger get nodepools`)", DARK)
        return
    yield from _headline(found)
    yield ""
    for one in found.clusters:
        yield _cluster(one)
    if found.changes:
        yield ""
        yield _changes(found.changes if every else found.changes[:SHOWN_MAX])
        if not every and len(found.changes) > SHOWN_MAX:
            more = count(len(found.changes) - SHOWN_MAX, "more change")
            yield Text(f"and {more}; --all lists every one", DARK)
        yield ""
        yield from reversals_text(found.savings)
    yield Text(
        f"a node comes, and a removed one is gone, after {found.provides_after_s} s; "
        "workloads, prices and pods of others stay as they are",
        DARK,
    )


def _headline(found: ConsolidationTimeline) -> Iterator[Text]:
    yield Text(f"from {as_clock(found.begin)} to {as_clock(found.end)} UTC", DARK)
    gone = sum(len(change.removed) for change in found.changes)
    if not found.changes:
        nodes = count(sum(one.before.nodes for one in found.clusters), "node")
        yield Text(f"none of {nodes} would go", GOOD)
        return
    made = sum(len(change.made) for change in found.changes)
    outcomes = [change.outcome for change in found.changes]
    said = Text(f"{count(gone, 'node')} would go and {made:,} come", WARN)
    saved = "saves" if found.saved >= 0 else "costs more by"
    said.append(f", {saved} {_money(abs(found.saved))} of {_money(found.unchanged)}", "default")
    counted = ", ".join(f"{outcomes.count(word):,} {word.replace('-', ' ')}" for word in COLOURS)
    yield said.append(f"  {count(len(outcomes), 'change')}: {counted}", DARK)


def _money(amount: int) -> str:
    """`amount`: billionths of a dollar."""
    return f"{amount / PRICE_UNIT:,.2f} $"


def _cluster(one: ClusterOverTime) -> Text:
    after = one.after
    said = Text(one.cluster, "bold").append(
        f"  {count(one.before.nodes, 'node')}, {dollars(one.before.price)}", "not bold"
    )
    said.append(f" -> {count(after.nodes, 'node')}, {dollars(after.cost)}", "not bold " + GOOD)
    if after.bound is not None:
        said.append(bound_text(after.bound, after.cost), "not bold " + DARK)
    if after.unpriced:
        said.append(f"  {count(after.unpriced, 'node')} without a known price", BAD)
    return said


def _changes(changes: Sequence[PoolChange]) -> Table:
    right = ("moves", "saves", "$/h after it")
    table = new_table(
        "decided", "took", "cluster", "method", "goes", "comes", *right, "outcome", right=right
    )
    for change in changes:
        over, account = change.finished is not None, change.account
        outcome = Text(change.outcome.replace("-", " "), COLOURS[change.outcome])
        if account is not None and change.outcome == "rolled-back":
            outcome.append(f": {account.reason}", DARK)
        table.add_row(
            as_clock(change.at),
            as_seconds((change.finished - change.at) / 1e6) if change.finished is not None else "",
            change.cluster,
            change.method,
            some(change.removed or change.nodes) or "-",
            some(change.made) or "-",
            f"{change.moves:,}",
            dollars(account.realised) if account is not None and account.realised else "-",
            dollars(change.cost).removesuffix(" $/h") if over else "-",
            outcome,
        )
    return table
