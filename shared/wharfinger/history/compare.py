"""Compares two runs, decision by decision and metric by metric.

Decisions about one binding are paired in their order, separately for the fleet and for each
cluster. The first pair with different outcomes is the first difference of the two runs, and the
recorded explanations show at which step. Equal pairs are dropped at once, so two runs that are
compared while they advance need no memory for their equal part.

A metric of the changed run is compared with that of the unchanged run, and the difference with the
error bar: how far the unchanged run itself is from the record.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, get_args

from wharfinger.domain.placement import Placement
from wharfinger.domain.reasons import Displacement
from wharfinger.domain.text import some
from wharfinger.domain.value import Value
from wharfinger.events.decisions import COMPARED, ComparedKind
from wharfinger.events.decisions.steps import NOTHING, difference
from wharfinger.events.decisions.wording import targets_text
from wharfinger.events.streams import FLEET
from wharfinger.history.run_metrics import RESOURCES, Final, RunMetrics, Totals
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.errors import LedgerError

Side = Literal["left", "right"]


# --- decisions


@dataclass(frozen=True, slots=True)
class Taken:
    """One decision of one run."""

    at: Micros
    seq: int
    data: ComparedKind


@dataclass(frozen=True, slots=True)
class Parting:
    """The first decision about a binding that came out differently: the seqs are of `stream` in
    either run (None: that run has no such decision). `step` is the first step at which the recorded
    explanations differ, with what either says of it."""

    stream: str
    left: str
    right: str
    left_at: Micros | None
    right_at: Micros | None
    left_seq: int | None
    right_seq: int | None
    step: str
    left_step: str
    right_step: str


@dataclass(slots=True)
class _Thread:
    """The decisions of one stream about one binding that one run has taken and the other not
    yet."""

    ahead: Side = "left"
    open: deque[Taken] = field(default_factory=deque)


class Pairing:
    """Pairs the decisions of two runs as they come; `partings` has one entry a binding, the fleet's
    before the clusters'."""

    def __init__(self) -> None:
        self.partings: dict[str, Parting] = {}
        self._threads: dict[tuple[str, str], _Thread] = {}

    def take(self, side: Side, stream: str, at: Micros, seq: int, data: Value) -> None:
        if not isinstance(data, COMPARED):
            return
        parted = self.partings.get(data.binding)
        if parted is not None and (parted.stream.startswith(FLEET) or not stream.startswith(FLEET)):
            self._threads.pop((stream, data.binding), None)
            return
        thread = self._threads.setdefault((stream, data.binding), _Thread())
        taken = Taken(at, seq, data)
        if not thread.open or thread.ahead == side:
            thread.ahead = side
            thread.open.append(taken)
            return
        other = thread.open.popleft()
        left, right = (taken, other) if side == "left" else (other, taken)
        if left.data.result() != right.data.result():
            self.partings[data.binding] = parting(stream, left, right)
        if not thread.open or data.binding in self.partings:
            del self._threads[stream, data.binding]

    def close(self) -> dict[str, Parting]:
        """What one run decided and the other never did is a difference too."""
        for (stream, binding), thread in sorted(
            self._threads.items(), key=lambda item: (not _fleet(item[0]), item[0])
        ):
            if binding not in self.partings:
                first = thread.open[0]
                left, right = (first, None) if thread.ahead == "left" else (None, first)
                self.partings[binding] = parting(stream, left, right)
        self._threads.clear()
        return self.partings


def _fleet(key: tuple[str, str]) -> bool:
    return key[0].startswith(FLEET)


def parting(stream: str, left: Taken | None, right: Taken | None) -> Parting:
    step, left_step, right_step = _differing_step(left, right)
    left_place = (None, None) if left is None else (left.at, left.seq)
    right_place = (None, None) if right is None else (right.at, right.seq)
    return Parting(
        stream,
        _described(left),
        _described(right),
        left_place[0],
        right_place[0],
        left_place[1],
        right_place[1],
        step,
        left_step,
        right_step,
    )


def _differing_step(left: Taken | None, right: Taken | None) -> tuple[str, str, str]:
    """(step, left, right): the first step of the two decisions with another result, ids of events
    left out."""
    if left is None or right is None:
        return (
            "trigger",
            NOTHING if left is None else "decided",
            NOTHING if right is None else "decided",
        )
    found = difference(left.data.step_results(None), right.data.step_results(None), same_run=False)
    return (
        ("selection", NOTHING, NOTHING) if found is None else (found.step, found.left, found.right)
    )


RETURNED = frozenset(get_args(Displacement))
"""Reasons of decisions that give replicas back because they lost their node."""


def _described(taken: Taken | None) -> str:
    """With the outcome word, which no column beside it holds: `refused: Unschedulable; keeps oslo
    2`."""
    if taken is None:
        return "no decision"
    word = "returned" if taken.data.refusal() in RETURNED else taken.data.OUTCOMES[0]
    return f"{word}: {taken.data.sentence()}"


def where_text(final: Final | None) -> str:
    """Where a binding is at the end: `oslo 3, bergen 1`, and why it is not fully placed."""
    if final is None:
        return "not there"
    where = targets_text(final.targets) or "nowhere"
    return f"{where} ({final.reason})" if final.reason else where


def placement_text(placement: Placement) -> str:
    """How a policy places, in a few words."""
    how = placement.replicas
    words = [how.type.lower()]
    if how.type == "Divided":
        weighted = "by room" if how.dynamic else "by weights" if how.static else "evenly"
        words.append("packed" if how.preference == "Aggregated" else weighted)
    clusters = [name for affinity in placement.affinities for name in affinity.cluster_names]
    words += (
        [f"on {some(clusters)}"]
        if clusters
        else ["on some clusters"]
        if placement.affinities
        else []
    )
    words += (
        [f"spread by {some([c.field or c.label for c in placement.spread])}"]
        if placement.spread
        else []
    )
    return " ".join(words)


# --- where bindings end


@dataclass(frozen=True, slots=True)
class BindingDifference:
    """A binding that went another way. `left`, `right`: where it is at the end of either run; None:
    it is not there."""

    binding: str
    same_targets: bool
    same_nodes: bool
    left: Final | None
    right: Final | None
    parting: Parting | None

    @property
    def replicas_elsewhere(self) -> int:
        """Replicas that are in another cluster at the end."""
        left, right = (
            self.left.targets if self.left else {},
            self.right.targets if self.right else {},
        )
        return max(
            sum(max(0, n - left.get(c, 0)) for c, n in right.items()),
            sum(max(0, n - right.get(c, 0)) for c, n in left.items()),
        )


def binding_differences(
    left: RunMetrics, right: RunMetrics, partings: Mapping[str, Parting]
) -> tuple[BindingDifference, ...]:
    """Those that are elsewhere at the end first, by how much of them is; then those that only went
    another way."""
    found: list[BindingDifference] = []
    for name in sorted({*left.bindings, *right.bindings, *partings}):
        a, b = left.final(name), right.final(name)
        same_targets = (a.targets if a else None) == (b.targets if b else None)
        same_nodes = (a.nodes if a else None) == (b.nodes if b else None)
        if not same_targets or not same_nodes or name in partings:
            found.append(
                BindingDifference(name, same_targets, same_nodes, a, b, partings.get(name))
            )
    return tuple(
        sorted(
            found, key=lambda d: (d.same_targets, -d.replicas_elsewhere, d.same_nodes, d.binding)
        )
    )


# --- figures


@dataclass(frozen=True, slots=True)
class Unit:
    """`divisor`: how many of what is counted make one of what is shown."""

    symbol: str
    divisor: int
    digits: int


COUNT = Unit("", 1, 0)
PERCENT = Unit("%", 10, 1)
SECONDS = Unit("s", 1_000_000, 3)
HOURS = Unit("h", 3_600_000_000, 2)
CORE_HOURS = Unit("core h", 3_600_000_000, 2)
MONEY = Unit("", 1_000_000, 4)


@dataclass(frozen=True, slots=True)
class Figure:
    """One total of the three runs, all in `unit.divisor`-ths; None where there is nothing to
    measure.

    `better`: which way is good; empty: neither. `drift` is the error bar, `beyond` says that the
    change is larger than it.
    """

    name: str
    title: str
    unit: Unit
    better: Literal["less", "more", ""]
    recorded: int | None
    unchanged: int | None
    changed: int | None

    @property
    def drift(self) -> int:
        return abs((self.unchanged or 0) - (self.recorded or 0))

    @property
    def delta(self) -> int:
        return (self.changed or 0) - (self.unchanged or 0)

    @property
    def beyond(self) -> bool:
        return abs(self.delta) > self.drift

    @property
    def verdict(self) -> Literal["better", "worse", "same", "within error", "other"]:
        if not self.delta:
            return "same"
        if not self.beyond:
            return "within error"
        if not self.better:
            return "other"
        return "better" if (self.delta < 0) == (self.better == "less") else "worse"

    def shown(self, value: int | None) -> str:
        if value is None:
            return "-"
        number = Decimal(value) / self.unit.divisor
        return f"{number:,.{self.unit.digits}f} {self.unit.symbol}".rstrip()


_Better = Literal["less", "more", ""]

# Name, title, unit, which way is better, and where it is found.
_FIGURES: tuple[tuple[str, str, Unit, _Better], ...] = (
    ("decisions", "decisions", COUNT, ""),
    ("moves", "replicas moved to another cluster", COUNT, "less"),
    ("refusals", "refusals", COUNT, "less"),
    ("unplaced", "replicas not in place at the end", COUNT, "less"),
    ("waiting", "requests still waiting at the end", COUNT, "less"),
    ("wait-p50", "wait, median", SECONDS, "less"),
    ("wait-p99", "wait, 99th percentile", SECONDS, "less"),
    ("cpu-used", "cpu in use, mean", PERCENT, ""),
    ("memory-used", "memory in use, mean", PERCENT, ""),
    ("gpu-used", "gpu in use, mean", PERCENT, ""),
    ("cpu-balance", "cpu, deviation between clusters", PERCENT, "less"),
    ("memory-balance", "memory, deviation between clusters", PERCENT, "less"),
    ("gpu-balance", "gpu, deviation between clusters", PERCENT, "less"),
    ("node-hours", "node hours in use", HOURS, "less"),
    ("core-hours", "core hours in use", CORE_HOURS, ""),
    ("cost", "cost of the nodes in use", MONEY, "less"),
)
FIGURES = tuple(name for name, *_ in _FIGURES)


def figures(
    recorded: Totals, unchanged: Totals, changed: Totals, currency: str = ""
) -> tuple[Figure, ...]:
    """Those that there is something to say about."""
    values = [_values(totals) for totals in (recorded, unchanged, changed)]
    found: list[Figure] = []
    for name, title, unit, better in _FIGURES:
        three = [by_name[name] for by_name in values]
        if any(value is not None for value in three):
            unit = Unit(currency, unit.divisor, unit.digits) if unit is MONEY else unit
            found.append(Figure(name, title, unit, better, *three))
    return tuple(found)


def _values(totals: Totals) -> dict[str, int | None]:
    return {
        "decisions": totals.decisions,
        "moves": totals.moves,
        "refusals": totals.refusals,
        "unplaced": totals.unplaced,
        "waiting": totals.waiting,
        "wait-p50": totals.wait_p50,
        "wait-p99": totals.wait_p99,
        **{f"{r}-used": value for r, value in zip(RESOURCES, totals.used, strict=True)},
        **{f"{r}-balance": value for r, value in zip(RESOURCES, totals.deviation, strict=True)},
        "node-hours": totals.node_us,
        "core-hours": totals.core_us,
        "cost": totals.cost_micro,
    }


# --- thresholds


class ThresholdError(LedgerError):
    """A `--fail-if` that says nothing we can test: one line."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """`moves>5%`: fails when the changed run has over 5 % more than the unchanged one. `moves>100`:
    when it has over 100."""

    text: str
    name: str
    sign: str
    bound: Decimal
    percent: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """`failed`: the threshold is crossed; `beyond`: and by more than the drift could have done
    it."""

    threshold: Threshold
    figure: Figure
    failed: bool
    beyond: bool


_THRESHOLD = re.compile(r"\s*([a-z0-9-]+)\s*(>=|<=|>|<)\s*([+-]?\d{1,15}(?:\.\d{1,6})?)\s*(%?)\s*")


def threshold_of(text: str) -> Threshold:
    match = _THRESHOLD.fullmatch(text)
    if match is None:
        raise ThresholdError(
            f"--fail-if {text!r}: expected NAME, one of > >= < <=, and a number or percentage, "
            "as in moves>5%"
        )
    name, sign, bound, percent = match.groups()
    if name not in FIGURES:
        raise ThresholdError(f"--fail-if {name}: expected one of {', '.join(FIGURES)}")
    return Threshold(text, name, sign, Decimal(bound), bool(percent))


def judged(threshold: Threshold, all_figures: Sequence[Figure]) -> Judged:
    """ThresholdError: these runs have no such figure (no prices, no GPUs)."""
    figure = next((f for f in all_figures if f.name == threshold.name), None)
    if figure is None:
        hint = "; give --prices" if threshold.name == "cost" else ": nothing in this history has it"
        raise ThresholdError(
            f"--fail-if {threshold.text}: there is no figure {threshold.name} here{hint}"
        )
    left, right = _sides(threshold, figure)
    failed = {">": left > right, ">=": left >= right, "<": left < right, "<=": left <= right}[
        threshold.sign
    ]
    return Judged(threshold, figure, failed, figure.beyond)


def _sides(threshold: Threshold, figure: Figure) -> tuple[Decimal, Decimal]:
    """What is compared. A percentage is of the unchanged run: of nothing it is nothing, so any
    growth is over it. A figure that is a share itself (`cpu-used`) is taken in hundredths of it all
    the same."""
    if threshold.percent:
        return Decimal(100 * figure.delta), threshold.bound * (figure.unchanged or 0)
    return Decimal(figure.changed or 0), threshold.bound * figure.unit.divisor
