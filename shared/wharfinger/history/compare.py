"""Two runs beside each other, decision by decision and figure by figure.

Decisions about one binding are paired in their order, those of the fleet and those of each cluster by themselves; the first
pair with another outcome is the one where the two runs parted, and its recorded explanations say at which step. Whatever
agreed is forgotten at once, so that two runs that go side by side need no memory for what they have in common.

A figure of the changed run is held against the unchanged one, and that difference against the error bar: how far the
unchanged run itself is from what was recorded.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.value import Value
from wharfinger.events.decisions import (
    BindingReleased,
    Explanation,
    NodeShare,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.streams import FLEET
from wharfinger.history.tally import RESOURCES, Final, Tally, Totals
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.errors import LedgerError

Side = Literal["left", "right"]
Paired = ScheduleDecided | ScheduleRefused | BindingReleased | ReplicasPlaced | ReplicasRefused | ReplicasReleased
NAMED = 4


# --- decisions


@dataclass(frozen=True, slots=True)
class Taken:
    """One decision of one run."""

    at: Micros
    seq: int
    data: Paired


@dataclass(frozen=True, slots=True)
class Parting:
    """The first decision about a binding that came out differently: the seqs are of `stream` in either run (None: that run has
    no such decision). `step` is the first step at which the recorded explanations differ, with what either says of it."""

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
    """The decisions of one stream about one binding that one run has taken and the other not yet."""

    ahead: Side = "left"
    open: deque[Taken] = field(default_factory=deque)


class Pairing:
    """Pairs the decisions of two runs as they come; `partings` has one entry a binding, the fleet's before the clusters'."""

    def __init__(self) -> None:
        self.partings: dict[str, Parting] = {}
        self._threads: dict[tuple[str, str], _Thread] = {}

    def take(self, side: Side, stream: str, at: Micros, seq: int, data: Value) -> None:
        if not isinstance(data, Paired):
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
        if outcome(left.data) != outcome(right.data):
            self.partings[data.binding] = parting(stream, left, right)
        if not thread.open or data.binding in self.partings:
            del self._threads[stream, data.binding]

    def close(self) -> dict[str, Parting]:
        """What one run decided and the other never did is a difference too."""
        for (stream, binding), thread in sorted(self._threads.items(), key=lambda item: (not _fleet(item[0]), item[0])):
            if binding not in self.partings:
                first = thread.open[0]
                left, right = (first, None) if thread.ahead == "left" else (None, first)
                self.partings[binding] = parting(stream, left, right)
        self._threads.clear()
        return self.partings


def _fleet(key: tuple[str, str]) -> bool:
    return key[0].startswith(FLEET)


def outcome(data: Paired) -> tuple[object, ...]:
    """What was decided, without why, when and under which number."""
    match data:
        case ScheduleDecided():
            return "scheduled", data.targets, data.suspect
        case ScheduleRefused():
            return "refused", data.targets, data.reason
        case BindingReleased():
            return ("released",)
        case ReplicasPlaced():
            return "placed", data.placed
        case ReplicasRefused():
            return "refused", data.count, data.reason
        case ReplicasReleased():
            return "released", data.released, data.unbound, data.reason


def parting(stream: str, left: Taken | None, right: Taken | None) -> Parting:
    step, left_step, right_step = first_difference(
        None if left is None else left.data, None if right is None else right.data
    )
    left_place = (None, None) if left is None else (left.at, left.seq)
    right_place = (None, None) if right is None else (right.at, right.seq)
    return Parting(
        stream, _said(left), _said(right), left_place[0], right_place[0], left_place[1], right_place[1], step, left_step,
        right_step,
    )  # fmt: skip


def first_difference(left: Paired | None, right: Paired | None) -> tuple[str, str, str]:
    """(step, left, right): the first step, in the order in which a decision is taken, of which the two say different things."""
    if left is None or right is None:
        return "whether to decide", "nothing" if left is None else "decided", "nothing" if right is None else "decided"
    for (name, mine), (_, theirs) in zip(_steps(left), _steps(right), strict=False):
        if mine != theirs:
            only_mine, only_theirs = [m for m in mine if m not in theirs], [t for t in theirs if t not in mine]
            return name, _few(only_mine or mine) or "none", _few(only_theirs or theirs) or "none"
    return "outcome", described(left), described(right)


def _steps(data: Paired) -> Iterable[tuple[str, list[str]]]:
    """What a decision records of its steps, in their order, each as a list of what it says."""
    if isinstance(data, ScheduleDecided | ScheduleRefused):
        yield "request", [f"{data.replicas} replicas", f"class {data.requirements.class_key}"]
        yield "trigger", [data.trigger]
    if isinstance(data, ScheduleDecided | ScheduleRefused | ReplicasPlaced | ReplicasRefused):
        yield from _explained(data.explanation, data)


def _explained(e: Explanation, data: Paired) -> Iterable[tuple[str, list[str]]]:
    yield "candidates", [f"{e.candidates} looked at"]
    yield "filter", [f"{e.feasible} feasible", *(f"{n} {reason}" for reason, n in sorted(e.refused.items()))]
    named = sorted((*e.chosen, *e.runners_up), key=lambda s: s.name)
    if isinstance(data, ScheduleDecided | ScheduleRefused):
        yield "estimate", [f"{s.name} {s.estimate}" for s in named if s.estimated_by]
        yield "affinity", [data.affinity]
    yield "score", [f"{s.name} {s.score}" for s in named]
    yield "division", [f"{name} {weight}" for name, weight in sorted(e.division.items())]


def _said(taken: Taken | None) -> str:
    return "no decision" if taken is None else described(taken.data)


def described(data: Paired) -> str:
    """An outcome in a few words."""
    match data:
        case ScheduleDecided():
            return targets_text(data.targets)
        case ScheduleRefused():
            kept = f", keeps {targets_text(data.targets)}" if data.targets else ""
            return f"refused: {data.reason}{kept}"
        case BindingReleased():
            return "released"
        case ReplicasPlaced():
            return _nodes_text(data.placed)
        case ReplicasRefused():
            return f"{data.count} refused: {data.reason}"
        case ReplicasReleased():
            return f"let go from {_nodes_text(data.released)}"


def targets_text(targets: Iterable[TargetCluster] | Mapping[str, int]) -> str:
    pairs = targets.items() if isinstance(targets, Mapping) else ((t.cluster, t.replicas) for t in targets)
    return _few([f"{name} {n}" if n else name for name, n in pairs]) or "nowhere"


def placement_text(placement: Placement) -> str:
    """How a policy places, in a few words."""
    how = placement.replicas
    words = [how.type.lower()]
    if how.type == "Divided":
        weighted = "by room" if how.dynamic else "by weights" if how.static else "evenly"
        words.append("packed" if how.preference == "Aggregated" else weighted)
    clusters = [name for affinity in placement.affinities for name in affinity.cluster_names]
    words += [f"on {_few(clusters)}"] if clusters else ["on some clusters"] if placement.affinities else []
    words += [f"spread by {_few([c.field or c.label for c in placement.spread])}"] if placement.spread else []
    return " ".join(words)


def _nodes_text(shares: Sequence[NodeShare]) -> str:
    return _few([f"{s.node} x{len(s.ordinals)}" if len(s.ordinals) > 1 else s.node for s in shares]) or "no node"


def _few(texts: Sequence[str]) -> str:
    rest = len(texts) - NAMED
    return ", ".join(texts[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


# --- where bindings end


@dataclass(frozen=True, slots=True)
class BindingDifference:
    """A binding that went another way. `left`, `right`: where it is at the end of either run; None: it is not there."""

    binding: str
    same_targets: bool
    same_nodes: bool
    left: Final | None
    right: Final | None
    parting: Parting | None

    @property
    def replicas_elsewhere(self) -> int:
        """Replicas that are in another cluster at the end."""
        left, right = self.left.targets if self.left else {}, self.right.targets if self.right else {}
        return max(
            sum(max(0, n - left.get(c, 0)) for c, n in right.items()),
            sum(max(0, n - right.get(c, 0)) for c, n in left.items()),
        )


def binding_differences(left: Tally, right: Tally, partings: Mapping[str, Parting]) -> tuple[BindingDifference, ...]:
    """Those that are elsewhere at the end first, by how much of them is; then those that only went another way."""
    found: list[BindingDifference] = []
    for name in sorted({*left.bindings, *right.bindings, *partings}):
        a, b = left.final(name), right.final(name)
        same_targets = (a.targets if a else None) == (b.targets if b else None)
        same_nodes = (a.nodes if a else None) == (b.nodes if b else None)
        if not same_targets or not same_nodes or name in partings:
            found.append(BindingDifference(name, same_targets, same_nodes, a, b, partings.get(name)))
    return tuple(sorted(found, key=lambda d: (d.same_targets, -d.replicas_elsewhere, d.same_nodes, d.binding)))


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
    """One total of the three runs, all in `unit.divisor`-ths; None where there is nothing to measure.

    `better`: which way is good; empty: neither. `drift` is the error bar, `beyond` says that the change is larger than it.
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
        return f"{Decimal(value) / self.unit.divisor:,.{self.unit.digits}f} {self.unit.symbol}".rstrip()


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


def figures(recorded: Totals, unchanged: Totals, changed: Totals, currency: str = "") -> tuple[Figure, ...]:
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
    """`moves>5%`: fails when the changed run has over 5 % more than the unchanged one. `moves>100`: when it has over 100."""

    text: str
    name: str
    sign: str
    bound: Decimal
    percent: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """`failed`: the threshold is crossed; `beyond`: and by more than the drift could have done it."""

    threshold: Threshold
    figure: Figure
    failed: bool
    beyond: bool


_THRESHOLD = re.compile(r"\s*([a-z0-9-]+)\s*(>=|<=|>|<)\s*([+-]?\d{1,15}(?:\.\d{1,6})?)\s*(%?)\s*")


def threshold_of(text: str) -> Threshold:
    match = _THRESHOLD.fullmatch(text)
    if match is None:
        raise ThresholdError(
            f"--fail-if {text!r}: expected NAME, one of > >= < <=, and a number or percentage, as in moves>5%"
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
        raise ThresholdError(f"--fail-if {threshold.text}: there is no figure {threshold.name} here{hint}")
    left, right = _sides(threshold, figure)
    failed = {">": left > right, ">=": left >= right, "<": left < right, "<=": left <= right}[threshold.sign]
    return Judged(threshold, figure, failed, figure.beyond)


def _sides(threshold: Threshold, figure: Figure) -> tuple[Decimal, Decimal]:
    """What is compared. A percentage is of the unchanged run: of nothing it is nothing, so any growth is over it. A figure that
    is a share itself (`cpu-used`) is taken in hundredths of it all the same."""
    if threshold.percent:
        return Decimal(100 * figure.delta), threshold.bound * (figure.unchanged or 0)
    return Decimal(figure.changed or 0), threshold.bound * figure.unit.divisor
