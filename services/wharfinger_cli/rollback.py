"""`rollback`: what going back would do, and with `--apply` the going back itself.

Ends with 0 where there is nothing to do or it was done, with 1 where something would be done, and
with 2 where it cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.domain.text import some
from wharfinger.history.plan import Applied, PlanRefusal
from wharfinger.history.rollback import RollBack, apply_rollback, plan_rollback
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.diff import moves
from wharfinger_cli.failures import DIFFERENCE, CommandError
from wharfinger_cli.output import (
    DARK,
    GOOD,
    WARN,
    Plain,
    as_clock,
    as_time,
    count,
    messages,
    new_table,
    show,
)
from wharfinger_cli.request import Request

TIMEOUT_S = 30.0
SHOWN_MAX = 50


def rollback(request: Request, what: str, to: str, *, apply: bool) -> None:
    found, applied = run(_rollback(request, what, to, apply=apply))
    show(
        request.format,
        rollback_plain(found, applied),
        [found.subject],
        lambda: rollback_page(found, applied),
    )
    if found.changes and applied is None:
        raise SystemExit(DIFFERENCE)


async def _rollback(
    request: Request, what: str, to: str, *, apply: bool
) -> tuple[RollBack, Applied | None]:
    async with opened_ledger(reached(request)) as ledger:
        found = await plan_rollback(ledger, what, to)
        if not apply or not found.changes:
            return found, None
        with messages().status("waiting for the schedulers"):
            answer = await apply_rollback(ledger, found, TIMEOUT_S)
    if isinstance(answer, PlanRefusal):
        raise CommandError(*_refused(answer))
    return found, answer


def _refused(answer: PlanRefusal) -> Iterator[str]:
    for stream, why in sorted(answer.refusals.items()):
        changed = f": {some(why.changed)}" if why.changed else ""
        yield (
            f"{stream} refused to go back, {why.reason} of {why.subject}{changed}; "
            "nothing was changed there"
        )
    if answer.committed:
        yield f"committed by {', '.join(answer.committed)}"


def rollback_plain(found: RollBack, applied: Applied | None) -> Plain:
    plan = found.plan
    return {
        "subject": found.subject,
        "to": found.to,
        "time": as_time(found.at),
        "changes": found.changes,
        "applied": applied is not None,
        "plan": str(plan.id),
        "fields": list(found.fields),
        "targets": dict(found.targets),
        "moves": [
            {
                "binding": m.binding,
                "before": m.before,
                "after": m.after,
                "nodes_before": m.nodes_before,
                "nodes_after": m.nodes_after,
            }
            for m in plan.moves
        ],
        "refusals": [
            {"binding": r.binding, "reason": r.reason, "missing": r.missing, "before": r.before}
            for r in plan.refusals
        ],
        "requests": [fact.key for fact in found.facts],
        "notes": list(found.notes),
    }


def rollback_page(found: RollBack, applied: Applied | None) -> Iterator[RenderableType]:
    yield _headline(found, applied)
    if found.fields:
        yield f"as it was then: {', '.join(name for name in found.fields if name != 'manifest')}"
    yield from found.notes
    if found.plan.moves:
        yield ""
        yield _moves(found)
    if found.plan.refusals:
        yield ""
        yield _refusals(found)
    if found.changes and applied is None:
        yield ""
        yield Text("nothing was written; --apply does it", DARK)


def _headline(found: RollBack, applied: Applied | None) -> Text:
    said = Text(found.subject, "bold").append("  ", "not bold")
    then = f"{found.to} ({as_clock(found.at)})"
    if not found.changes:
        return said.append("nothing to do", f"not bold {GOOD}").append(
            f": it is as it was at {then}", "not bold"
        )
    what, style = ("would go back", WARN) if applied is None else ("went back", GOOD)
    return said.append(what, f"not bold {style}").append(f" to what it was at {then}", "not bold")


def _moves(found: RollBack) -> Table:
    table = new_table("binding", "before", "after", "nodes")
    for move in found.plan.moves[:SHOWN_MAX]:
        nodes = some(moves(move.nodes_before, move.nodes_after))
        table.add_row(move.binding, _where(move.before), _where(move.after), Text(nodes, DARK))
    if len(found.plan.moves) > SHOWN_MAX:
        table.add_row(f"and {count(len(found.plan.moves) - SHOWN_MAX, 'more binding')}", "", "", "")
    return table


def _where(targets: Mapping[str, int]) -> str:
    return (
        some(f"{cluster} {n}" if n else cluster for cluster, n in sorted(targets.items()))
        or "nowhere"
    )


def _refusals(found: RollBack) -> Table:
    table = new_table("binding", "without a place", "because", "", right=("without a place",))
    for refusal in found.plan.refusals[:SHOWN_MAX]:
        already = Text("as now" if refusal.before else "", DARK)
        table.add_row(refusal.binding, f"{refusal.missing:,}", refusal.reason, already)
    if len(found.plan.refusals) > SHOWN_MAX:
        table.add_row(
            f"and {count(len(found.plan.refusals) - SHOWN_MAX, 'more binding')}", "", "", ""
        )
    return table
