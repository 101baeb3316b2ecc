"""`replay --with`: what would have happened, what of it was better, and, when asked for, proposals
of it.

The comparison is `wharfinger.history.whatif`; here it is shown as tables, JSON or a page, and held
against thresholds for CI.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.events.decisions.wording import targets_text
from wharfinger.history.changes import changes_of
from wharfinger.history.compare import (
    BindingDifference,
    Figure,
    Judged,
    Parting,
    judged,
    threshold_of,
    where_text,
)
from wharfinger.history.points import HistoryPoint, point_of
from wharfinger.history.prices import read_prices
from wharfinger.history.propose import Proposed, objective_of, propose
from wharfinger.history.report import ReportCommand, changed_text, page, verdict
from wharfinger.history.run_metrics import Final, Sample
from wharfinger.history.whatif import GENESIS, PRESENT, WhatIf, what_if
from wharfinger.runtime.extras import require
from wharfinger.runtime.ledger import wall_clock
from wharfinger_cli.bulk import bar
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import DIFFERENCE, CommandError
from wharfinger_cli.output import (
    BAD,
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

SHOWN_MAX = 12
STYLES = {"better": GOOD, "worse": BAD, "other": "default", "same": DARK, "within error": DARK}


@dataclass(frozen=True, slots=True)
class WhatIfOptions:
    """What follows `replay --with`. `prices`: a CSV file, with `@REGION` behind it where it has
    several."""

    with_: Sequence[str]
    stream: str = ""
    from_: str = ""
    to: str = ""
    report: Path | None = None
    prices: Path | None = None
    fail_if: Sequence[str] = ()
    propose: bool = False
    only_better: bool = False
    budget: int | None = None
    objective: str = "spread"
    tenant: str = ""


def replay_with(request: Request, options: WhatIfOptions) -> None:
    _refuse_contradictions(options)
    thresholds = [threshold_of(text) for text in options.fail_if]
    result, proposed = run(_what_if(request, options))
    verdicts = [judged(threshold, result.figures) for threshold in thresholds]
    if options.report is not None:
        _write(options.report, page(result, ReportCommand(_command(options), verdicts)))
    names = [d.binding for d in result.differences]
    show(
        request.format,
        whatif_plain(result, verdicts, proposed),
        names,
        lambda: whatif_page(result, verdicts, proposed),
    )
    if options.report is not None:
        messages().print(f"the comparison as a page: {options.report}")
    if any(one.failed for one in verdicts):
        raise SystemExit(DIFFERENCE)


def _refuse_contradictions(options: WhatIfOptions) -> None:
    if options.report is not None:
        require("reports", "matplotlib", "replay --report")
    if not options.with_:
        raise CommandError(
            "replay --propose: expected --with too: what is to be proposed comes from a replay "
            "under it"
        )
    if not options.propose and (options.only_better or options.budget is not None):
        raise CommandError(
            "replay: --only-better and --budget say what to propose; expected --propose with them"
        )


async def _what_if(request: Request, options: WhatIfOptions) -> tuple[WhatIf, Proposed | None]:
    changes = changes_of(options.with_)
    prices = None if options.prices is None else read_prices(str(options.prices))
    now = wall_clock()
    from_, to = _point(options.from_, now, GENESIS), _point(options.to, now, PRESENT)
    async with opened_ledger(reached(request)) as ledger:
        with bar("replaying", 100) as step:
            result = await what_if(
                ledger,
                changes,
                from_,
                to,
                stream=options.stream,
                tenant=options.tenant,
                prices=prices,
                progress=step,
            )
        if not options.propose:
            return result, None
        objective = objective_of(options.objective)
        with messages().status("proposing"):
            return result, await propose(
                ledger, result, objective, only_better=options.only_better, budget=options.budget
            )


def _point(text: str, now: int, otherwise: HistoryPoint) -> HistoryPoint:
    return point_of(text, now) if text else otherwise


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error


def _command(options: WhatIfOptions) -> str:
    """As it can be typed again."""
    words = ["wharfinger", "replay"]
    for text in options.with_:
        words += ["--with", text]
    for flag, value in (
        ("--stream", options.stream),
        ("--from", options.from_),
        ("--to", options.to),
        ("--prices", options.prices),
        ("--tenant", options.tenant),
        ("--report", options.report),
    ):
        words += [flag, str(value)] if value else []
    for text in options.fail_if:
        words += ["--fail-if", text]
    return " ".join(f"'{word}'" if set(word) & set(" <>$&|;*") else word for word in words)


# --- for programs


def whatif_plain(result: WhatIf, verdicts: Sequence[Judged], proposed: Proposed | None) -> Plain:
    plain: dict[str, object] = {
        "id": str(result.id),
        "with": list(result.asked),
        "from": as_time(max(0, result.begin)),
        "to": as_time(result.end),
        "facts": result.facts,
        "bindings": result.bindings,
        "rebound": result.rebound,
        "verdict": verdict(result),
        "figures": {figure.name: _figure_plain(figure) for figure in result.figures},
        "tenants": _tenants_plain(result),
        "drift": {"elsewhere": result.drifted, "other_nodes": result.drifted_nodes},
        "elsewhere": result.elsewhere,
        "differences": [_difference_plain(d) for d in result.differences],
        "over_time": {
            "recorded": [_sample_plain(s) for s in result.recorded.samples],
            "unchanged": [_sample_plain(s) for s in result.unchanged.samples],
            "changed": [_sample_plain(s) for s in result.changed.samples],
        },
        "notes": list(result.notes),
        "fail_if": [
            {"expression": v.threshold.text, "failed": v.failed, "beyond_error": v.beyond}
            for v in verdicts
        ],
    }
    if proposed is not None:
        plain["proposed"] = proposed_plain(proposed)
    return plain


def _figure_plain(figure: Figure) -> Plain:
    """In the unit's own numbers: a figure times `per` is what is counted."""
    return {
        "title": figure.title,
        "unit": figure.unit.symbol,
        "recorded": _scaled(figure, figure.recorded),
        "unchanged": _scaled(figure, figure.unchanged),
        "changed": _scaled(figure, figure.changed),
        "change": _scaled(figure, figure.delta),
        "error": _scaled(figure, figure.drift),
        "verdict": figure.verdict,
    }


def _scaled(figure: Figure, value: int | None) -> int | float | None:
    if value is None or figure.unit.divisor == 1:
        return value
    return round(value / figure.unit.divisor, 6)


def _tenants_plain(result: WhatIf) -> Plain:
    return {
        tenant: {"recorded": recorded / 10, "unchanged": unchanged / 10, "changed": changed / 10}
        for tenant, recorded, unchanged, changed in tenant_shares(result)
    }


def _difference_plain(d: BindingDifference) -> Plain:
    return {
        "binding": d.binding,
        "same_targets": d.same_targets,
        "same_nodes": d.same_nodes,
        "unchanged": _final_plain(d.left),
        "changed": _final_plain(d.right),
        "first": _parting_plain(d.parting),
    }


def _final_plain(final: Final | None) -> Plain | None:
    if final is None:
        return None
    nodes: dict[str, dict[str, int]] = {}
    for (cluster, node), replicas in final.nodes.items():
        nodes.setdefault(cluster, {})[node] = replicas
    wait = None if final.wait is None else round(final.wait / 1e6, 6)
    return {"targets": dict(final.targets), "nodes": nodes, "reason": final.reason, "wait_s": wait}


def _parting_plain(parting: Parting | None) -> Plain | None:
    if parting is None:
        return None
    return {
        "stream": parting.stream,
        "step": parting.step,
        "unchanged": {"seq": parting.left_seq, "outcome": parting.left, "step": parting.left_step},
        "changed": {"seq": parting.right_seq, "outcome": parting.right, "step": parting.right_step},
    }


def _sample_plain(sample: Sample) -> Plain:
    """Shares in per cent."""
    return {
        "at": as_time(max(0, sample.at)),
        "used": {
            cluster: [_percent(share) for share in shares]
            for cluster, shares in sample.used.items()
        },
        "total": [_percent(share) for share in sample.total],
        "deviation": [_percent(share) for share in sample.deviation],
        "tenants": {tenant: _percent(share) for tenant, share in sample.shares.items()},
        "moves": sample.moves,
        "refusals": sample.refusals,
        "nodes": sample.nodes,
        "price_per_hour": sample.price_micro / 1e6,
    }


def _percent(share: int | None) -> float | None:
    return None if share is None else share / 10


def proposed_plain(proposed: Proposed) -> Plain:
    return {
        "replay": str(proposed.replay),
        "objective": proposed.objective,
        "candidates": proposed.candidates,
        "before": proposed.before,
        "answers": [
            {
                "binding": a.binding,
                "proposal": str(a.id),
                "gain": a.gain,
                "from": dict(a.present),
                "to": dict(a.targets),
                "outcome": a.outcome,
                "reason": a.reason,
                "decision": a.decision,
            }
            for a in proposed.answers
        ],
    }


# --- for people


def whatif_page(
    result: WhatIf, verdicts: Sequence[Judged], proposed: Proposed | None
) -> Iterator[RenderableType]:
    yield Text(f"what if {', '.join(result.asked)}", "bold")
    yield Text(
        f"{as_clock(max(0, result.begin))} to {as_clock(result.end)}, "
        f"{count(result.facts, 'fact')} told again,"
        f" {count(result.bindings, 'binding')}"
        + (f", {result.rebound:,} of them placed otherwise by policy" if result.rebound else ""),
        DARK,
    )
    yield ""
    yield figures_table(result.figures)
    yield Text(
        "error: how far the closed loop with nothing changed is from what was recorded", DARK
    )
    yield ""
    yield verdict(result)
    shares = tenant_shares(result)
    if len(shares) > 1:
        yield ""
        yield _tenants_table(shares)
    if result.differences:
        yield ""
        yield from _differences(result)
    for note in result.notes:
        yield Text(f"note: {note}", WARN)
    if verdicts:
        yield ""
        yield from (_judged(one) for one in verdicts)
    if proposed is not None:
        yield ""
        yield from proposed_page(proposed)


def figures_table(figures: Sequence[Figure]) -> Table:
    table = new_table(
        "",
        "recorded",
        "unchanged",
        "changed",
        "change",
        "error",
        "",
        right=("recorded", "unchanged", "changed", "change", "error"),
    )
    for f in figures:
        table.add_row(
            f.title,
            f.shown(f.recorded),
            f.shown(f.unchanged),
            f.shown(f.changed),
            changed_text(f),
            f"±{f.shown(f.drift)}" if f.drift else "",
            Text(f.verdict, STYLES[f.verdict]),
        )
    return table


def tenant_shares(result: WhatIf) -> list[tuple[str, int, int, int]]:
    """(tenant, recorded, unchanged, changed): mean dominant shares in thousandths, the largest
    first."""
    runs: list[Mapping[str, int]] = [
        run.totals.shares for run in (result.recorded, result.unchanged, result.changed)
    ]
    tenants = {tenant for shares in runs for tenant in shares}
    rows = [(t, runs[0].get(t, 0), runs[1].get(t, 0), runs[2].get(t, 0)) for t in tenants]
    return sorted(rows, key=lambda row: (-max(row[1:]), row[0]))


def _tenants_table(shares: Sequence[tuple[str, int, int, int]]) -> Table:
    table = new_table(
        "tenant, dominant share",
        "recorded",
        "unchanged",
        "changed",
        right=("recorded", "unchanged", "changed"),
    )
    for tenant, *three in shares:
        table.add_row(tenant, *(f"{share / 10:.1f} %" for share in three))
    return table


def _differences(result: WhatIf) -> Iterator[RenderableType]:
    yield (
        f"{result.elsewhere:,} of {count(result.bindings, 'binding')} end in other clusters,"
        f" {len(result.differences):,} went another way at some point;"
        f" by drift alone {result.drifted:,} end in other clusters"
    )
    table = new_table(
        "binding", "unchanged", "changed", "parted at", "unchanged said", "changed said"
    )
    for d in result.differences[:SHOWN_MAX]:
        parted = d.parting
        table.add_row(
            d.binding,
            where_text(d.left),
            where_text(d.right),
            Text(parted.step if parted else "", DARK),
            Text(_short(parted.left_step) if parted else "", DARK),
            Text(_short(parted.right_step) if parted else "", DARK),
        )
    yield table
    if len(result.differences) > SHOWN_MAX:
        yield Text(
            f"and {len(result.differences) - SHOWN_MAX:,} more; -o json has all of them", DARK
        )


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _judged(one: Judged) -> Text:
    f = one.figure
    values = f"{f.shown(f.unchanged)} unchanged, {f.shown(f.changed)} changed"
    bar_ = (
        "beyond the error bar" if one.beyond else "within the error bar" if f.delta else "no change"
    )
    word, style = ("FAILED", BAD) if one.failed else ("passed", GOOD)
    return Text(f"{word}  ", style).append(f"{one.threshold.text}: {values}, {bar_}", "default")


def proposed_page(proposed: Proposed) -> Iterator[RenderableType]:
    yield Text(f"proposals by {proposed.objective}, replay {proposed.replay}", "bold")
    if not proposed.answers:
        yield f"nothing to propose: {proposed.why_none}"
        return
    table = new_table("binding", "from", "to", "gain", "outcome", "", right=("gain",))
    for a in proposed.answers:
        style = GOOD if a.outcome == "committed" else WARN if a.outcome == "refused" else BAD
        gain = "" if a.gain is None else f"{a.gain:,}"
        outcome = Text(a.outcome, style)
        present, targets = (
            targets_text(a.present) or "nowhere",
            targets_text(a.targets) or "nowhere",
        )
        table.add_row(a.binding, present, targets, gain, outcome, a.reason)
    yield table
    committed = sum(1 for a in proposed.answers if a.outcome == "committed")
    before = f" ({proposed.before:,} of them before)" if proposed.before else ""
    left = proposed.candidates - len(proposed.answers) + proposed.before
    more = f"; {left:,} more would be worth it" if left > 0 else ""
    yield f"{count(len(proposed.answers), 'proposal')}{before}, {committed:,} committed{more}"
