"""A what-if as a page: one file, nothing linked, light or dark as the reader's screen is.

It is read by people who were not there: what was asked, what came of it in one sentence, the
figures with their error bars, what they look like over time, which bindings went another way and
why, and how to ask again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from wharfinger.history.compare import BindingDifference, Figure, Judged, where_text
from wharfinger.history.html_pages import rendered, utc
from wharfinger.history.whatif import WhatIf

BINDINGS_SHOWN_MAX = 200
NAMED_MAX = 2


@dataclass(frozen=True, slots=True)
class ReportCommand:
    """`command`: as it can be typed again. `thresholds`: what it was held against."""

    command: str
    thresholds: Sequence[Judged] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    binding: str
    unchanged: str
    changed: str
    step: str
    unchanged_step: str
    changed_step: str


def page(result: WhatIf, asked: ReportCommand) -> str:
    """The whole page as HTML."""
    # The plotting modules take a second to load; a caller that only needs `verdict` skips that.
    from markupsafe import Markup

    from wharfinger.history.plots import plots, svg

    shown = result.differences[:BINDINGS_SHOWN_MAX]
    return rendered(
        "whatif.html.j2",
        result=result,
        asked=asked,
        verdict=verdict(result),
        tone=tone(result),
        begin=utc(max(0, result.begin)),
        end=utc(result.end),
        figures=[(f, changed_text(f)) for f in result.figures],
        plots=[(p, Markup(svg(p, result))) for p in plots(result)],
        rows=list(_rows(shown)),
        more=len(result.differences) - len(shown),
        tenants=_tenants(result),
        thresholds=[(one, _judged(one)) for one in asked.thresholds],
    )


def verdict(result: WhatIf) -> str:
    """What came of it, in one sentence."""
    worse = [f for f in result.figures if f.verdict == "worse"]
    better = [f for f in result.figures if f.verdict == "better"]
    if not result.differences and not worse and not better:
        return "The change makes no difference: every binding goes where it went."
    others = len(result.figures) - len(worse) - len(better)
    if not worse and not better:
        return (
            (
                "No figure changes by more than the error bar, though "
                f"{_bindings(result.elsewhere)} "
                "in other clusters."
            )
            if result.elsewhere
            else (
                "No figure changes by more than the error bar, and every binding ends in the "
                "clusters where it ended."
            )
        )
    parts = [
        f"{word} {_named(found)}"
        for word, found in (("worse:", worse), ("better:", better))
        if found
    ]
    rest = f"; the other {others} figures within the error bar, or neither" if others else ""
    return (
        f"Under the change {_bindings(result.elsewhere)} in other clusters; "
        f"{'; '.join(parts)}{rest}."
    )


def tone(result: WhatIf) -> str:
    """How the verdict is coloured."""
    verdicts = {f.verdict for f in result.figures}
    return (
        "mixed"
        if {"worse", "better"} <= verdicts
        else next((v for v in ("worse", "better") if v in verdicts), "same")
    )


def changed_text(figure: Figure) -> str:
    """`+723 (+629 %)`"""
    if not figure.delta:
        return ""
    sign = "+" if figure.delta > 0 else "−"
    text = f"{sign}{figure.shown(abs(figure.delta))}"
    if figure.unit.symbol == "%":
        return f"{text.removesuffix(' %')} points"
    if not figure.unchanged:
        return text
    share = (Decimal(100 * abs(figure.delta)) / figure.unchanged).quantize(Decimal(1))
    return f"{text} ({sign}{share:,} %)"


def _bindings(number: int) -> str:
    if not number:
        return "no binding ends"
    return "1 binding ends" if number == 1 else f"{number:,} bindings end"


def _named(found: Sequence[Figure]) -> str:
    named = [f"{f.title} {f.shown(f.unchanged)} → {f.shown(f.changed)}" for f in found[:NAMED_MAX]]
    more = len(found) - NAMED_MAX
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _rows(shown: Sequence[BindingDifference]) -> Iterator[_Row]:
    for d in shown:
        p = d.parting
        steps = (p.step, p.left_step, p.right_step) if p else ("", "", "")
        yield _Row(d.binding, where_text(d.left), where_text(d.right), *steps)


def _tenants(result: WhatIf) -> list[tuple[str, list[str]]]:
    runs = [run.totals.shares for run in (result.recorded, result.unchanged, result.changed)]
    tenants = sorted(
        {t for shares in runs for t in shares}, key=lambda t: (-max(s.get(t, 0) for s in runs), t)
    )
    return (
        [(t, [f"{shares.get(t, 0) / 10:.1f} %" for shares in runs]) for t in tenants]
        if len(tenants) > 1
        else []
    )


def _judged(one: Judged) -> str:
    f = one.figure
    size = (
        "beyond the error bar" if one.beyond else "within the error bar" if f.delta else "no change"
    )
    return f"{f.shown(f.unchanged)} unchanged, {f.shown(f.changed)} changed, {size}"
