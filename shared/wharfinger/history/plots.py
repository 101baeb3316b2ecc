"""The plots of a what-if: drawn once, as SVG for a page that is light or dark, or as one PNG for a
document.

Drawn by matplotlib without a display. Colours of the SVG are CSS variables of the page it stands
in, and its text is text, so that it takes the page's font and can be selected. The same result
gives the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from wharfinger.history.compare import Figure
from wharfinger.history.run_metrics import RESOURCES, Sample
from wharfinger.history.whatif import WhatIf, WhatIfRun

INCHES = (4.4, 2.5)
TENANTS = 6
CHANGE_MAX = 200  # per cent: what changed by more is drawn at the edge

# What is drawn with, and the CSS variable that takes its place in a page.
INK, GRID, RECORDED, UNCHANGED, CHANGED = "#24292f", "#d0d7de", "#8c959f", "#1f6feb", "#d9730d"
_VARIABLES = {
    INK: "ink",
    GRID: "grid",
    RECORDED: "recorded",
    UNCHANGED: "unchanged",
    CHANGED: "changed",
}
_TENANTS = ("#1f6feb", "#d9730d", "#2da44e", "#a475f9", "#cf222e", "#0598bc")

_STYLE: dict[str, object] = {
    "svg.fonttype": "none",
    "font.size": 8.5,
    "font.family": ["DejaVu Sans"],
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.6,
    "path.simplify": True,
}

_UNITS: tuple[tuple[int, str], ...] = (
    (2 * 86_400_000_000, "d"),
    (2 * 3_600_000_000, "h"),
    (2 * 60_000_000, "min"),
    (2_000_000, "s"),
    (0, "ms"),
)
_MICROS = {"d": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1000}

_RUNS: tuple[tuple[Literal["recorded", "unchanged", "changed"], str, str], ...] = (
    ("recorded", RECORDED, ":"),
    ("unchanged", UNCHANGED, "-"),
    ("changed", CHANGED, "-"),
)


@dataclass(frozen=True, slots=True)
class Plot:
    """`about`: what is to be seen, in one sentence, for who cannot see it."""

    name: str
    about: str
    draw: Callable[[Axes, WhatIf], None]


def plots(result: WhatIf) -> list[Plot]:
    """Those that this result has something to show in, in the order in which they are looked at."""
    chosen = [
        Plot(
            "change",
            "Change of each figure in per cent of the unchanged run, with its error bar.",
            _changes,
        )
    ]
    for r, resource in enumerate(RESOURCES):
        if any(s.total[r] is not None for s in result.unchanged.samples):
            chosen.append(
                Plot(f"{resource}-used", f"{resource} in use over time, in per cent.", _used(r))
            )
    for r, resource in enumerate(RESOURCES):
        if len(result.unchanged.samples[-1].used) > 1 and any(
            s.deviation[r] is not None for s in result.unchanged.samples
        ):
            about = (
                f"Standard deviation of {resource} use between clusters over time: low is balanced."
            )
            chosen.append(Plot(f"{resource}-balance", about, _balance(r)))
    chosen.append(
        Plot(
            "moves",
            "Replicas moved to another cluster, so far.",
            _counted("moves", "replicas moved, so far"),
        )
    )
    chosen.append(Plot("refusals", "Refusals, so far.", _counted("refusals", "refusals, so far")))
    chosen.append(Plot("cost", "Nodes in use over time, or what they cost an hour.", _cost))
    chosen.append(
        Plot("waits", "How long requests waited until all replicas were in place.", _waits)
    )
    if len(_tenants(result)) > 1:
        chosen.append(
            Plot("tenants", "Dominant share of each tenant over time, in per cent.", _shares)
        )
    return chosen


def svg(plot: Plot, result: WhatIf) -> str:
    """An `<svg>` element to stand inline in a page."""
    with rc_context({**_STYLE, "svg.hashsalt": plot.name}):  # type: ignore[dict-item]
        # margins by hand: to find them, all would have to be drawn twice
        canvas = Canvas(figsize=INCHES)
        plot.draw(canvas.add_subplot(), result)
        canvas.subplots_adjust(
            left=0.25 if plot.name == "change" else 0.11, right=0.98, top=0.89, bottom=0.19
        )
        out = io.StringIO()
        canvas.savefig(
            out, format="svg", metadata={"Date": None, "Creator": None}, facecolor="none"
        )
    return _inline(out.getvalue(), plot)


def png(result: WhatIf, path: Path, *, columns: int = 3, dpi: int = 110) -> None:
    """The plots beside each other in one picture, for a document."""
    chosen = plots(result)
    rows = -(-len(chosen) // columns)
    with rc_context(_STYLE):  # type: ignore[arg-type]
        canvas = Canvas(
            figsize=(INCHES[0] * columns, INCHES[1] * rows), layout="constrained", facecolor="white"
        )
        for place, plot in enumerate(chosen, 1):
            axes = canvas.add_subplot(rows, columns, place)
            axes.set_facecolor("white")
            plot.draw(axes, result)
        canvas.savefig(path, format="png", dpi=dpi, metadata={"Software": None})


def _inline(document: str, plot: Plot) -> str:
    element = document[document.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r' (width|height)="[\d.]+pt"', "", element, count=2)
    element = re.sub(
        r"font: [\d.]+px [^;\"]*", lambda m: re.sub(r"px .*", "px var(--font)", m.group()), element
    )
    for colour, name in _VARIABLES.items():
        element = element.replace(colour, f"var(--{name})")
    return element.replace("<svg ", f'<svg role="img" aria-label="{plot.about}" class="plot" ', 1)


# --- the plots


def _changes(axes: Axes, result: WhatIf) -> None:
    """Where the unchanged run has nothing there is no per cent; the table has such figures."""
    known = [f for f in result.figures if f.unchanged]
    axes.set_title("change, % of the unchanged run")
    axes.axvline(0, color=INK, linewidth=0.8)
    for place, figure in enumerate(reversed(known)):
        error = min(CHANGE_MAX, 100 * figure.drift / (figure.unchanged or 1))
        change = 100 * figure.delta / (figure.unchanged or 1)
        axes.barh(
            place, 2 * error, left=-error, height=0.62, color=RECORDED, alpha=0.3, linewidth=0
        )
        axes.plot(
            [max(-CHANGE_MAX, min(CHANGE_MAX, change))], [place], "o", color=CHANGED, markersize=4.5
        )
    axes.set_yticks(range(len(known)), [f.name for f in reversed(known)], fontsize=7)
    axes.grid(visible=False, axis="y")
    widest = max((_reach(f) for f in known), default=1.0)
    axes.set_xlim(-min(CHANGE_MAX, widest) * 1.08, min(CHANGE_MAX, widest) * 1.08)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:+.0f}" if x else "0"))


def _reach(figure: Figure) -> float:
    return max(2.0, 100 * max(abs(figure.delta), figure.drift) / (figure.unchanged or 1))


def _used(resource: int) -> Callable[[Axes, WhatIf], None]:
    def draw(axes: Axes, result: WhatIf) -> None:
        axes.set_title(f"{RESOURCES[resource]} in use, %")
        for name, colour, dash in _RUNS:
            samples = getattr(result, name).samples
            times, unit = _times(result, samples)
            axes.plot(times, _shares_of(samples, resource), dash, color=colour, label=name)
            if name != "recorded":
                low, high = _range(samples, resource)
                axes.fill_between(times, low, high, color=colour, alpha=0.07, linewidth=0)
        _finish(axes, unit, "clusters, lowest to highest, are the shaded range")

    return draw


def _balance(resource: int) -> Callable[[Axes, WhatIf], None]:
    def draw(axes: Axes, result: WhatIf) -> None:
        axes.set_title(f"{RESOURCES[resource]}, deviation between clusters, % points")
        for name, colour, dash in _RUNS:
            samples = getattr(result, name).samples
            times, unit = _times(result, samples)
            axes.plot(
                times,
                [_tenth(s.deviation[resource]) for s in samples],
                dash,
                color=colour,
                label=name,
            )
        _finish(axes, unit)

    return draw


def _counted(what: Literal["moves", "refusals"], title: str) -> Callable[[Axes, WhatIf], None]:
    def draw(axes: Axes, result: WhatIf) -> None:
        axes.set_title(title)
        for name, colour, dash in _RUNS:
            samples = getattr(result, name).samples
            times, unit = _times(result, samples)
            axes.plot(
                times,
                [getattr(s, what) for s in samples],
                dash,
                color=colour,
                label=name,
                drawstyle="steps-post",
            )
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        _finish(axes, unit)
        axes.set_ylim(top=max(1.0, axes.get_ylim()[1]))

    return draw


def _cost(axes: Axes, result: WhatIf) -> None:
    priced = result.unchanged.totals.cost_micro is not None
    axes.set_title("price of the nodes in use, an hour" if priced else "nodes in use")
    for name, colour, dash in _RUNS:
        samples = getattr(result, name).samples
        times, unit = _times(result, samples)
        values = [s.price_micro / 1e6 if priced else s.nodes for s in samples]
        axes.plot(times, values, dash, color=colour, label=name, drawstyle="steps-post")
    _finish(axes, unit)


def _waits(axes: Axes, result: WhatIf) -> None:
    axes.set_title("wait until in place, s")
    runs: list[tuple[str, str, WhatIfRun]] = [(n, c, getattr(result, n)) for n, c, _ in _RUNS]
    for place, (name, colour, run) in enumerate(runs):
        values = [run.totals.wait_p50 / 1e6, run.totals.wait_p99 / 1e6]
        bars = axes.bar(
            [0 + place * 0.26, 1 + place * 0.26], values, 0.24, color=colour, label=name
        )
        axes.bar_label(bars, [f"{value:,.2f}" for value in values], fontsize=7, padding=1)
    axes.set_xticks([0.26, 1.26], ["median", "99th percentile"])
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")


def _shares(axes: Axes, result: WhatIf) -> None:
    axes.set_title("dominant share by tenant, %")
    for tenant, colour in zip(_tenants(result), _TENANTS, strict=False):
        for name, dash in (("unchanged", ":"), ("changed", "-")):
            samples = getattr(result, name).samples
            times, unit = _times(result, samples)
            label = tenant if name == "changed" else None
            axes.plot(
                times,
                [s.shares.get(tenant, 0) / 10 for s in samples],
                dash,
                color=colour,
                label=label,
            )
    _finish(axes, unit, "dotted: unchanged")


def _tenants(result: WhatIf) -> list[str]:
    shares: Mapping[str, int] = {**result.unchanged.totals.shares, **result.changed.totals.shares}
    return sorted(shares, key=lambda tenant: (-shares[tenant], tenant))[:TENANTS]


# --- axes


def _times(result: WhatIf, samples: Sequence[Sample]) -> tuple[list[float], str]:
    """Since the beginning, in the largest unit that leaves more than two of it."""
    span = result.end - result.begin
    unit = next(name for least, name in _UNITS if span >= least)
    return [(s.at - result.begin) / _MICROS[unit] for s in samples], unit


def _finish(axes: Axes, unit: str, remark: str = "") -> None:
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.set_xlabel(f"{unit} since the beginning" + (f"; {remark}" if remark else ""), fontsize=7)
    axes.legend(loc="best", handlelength=1.6)


def _tenth(share: int | None) -> float:
    return float("nan") if share is None else share / 10


def _shares_of(samples: Sequence[Sample], resource: int) -> list[float]:
    return [_tenth(s.total[resource]) for s in samples]


def _range(samples: Sequence[Sample], resource: int) -> tuple[list[float], list[float]]:
    low: list[float] = []
    high: list[float] = []
    for sample in samples:
        known = [
            share for shares in sample.used.values() if (share := shares[resource]) is not None
        ]
        low.append(min(known) / 10 if known else float("nan"))
        high.append(max(known) / 10 if known else float("nan"))
    return low, high
