"""The steps of a decision, and the first of them at which two decisions differ.

A decision is made in steps: a trigger, the request, what is held already, filter, estimate, score,
selection, division. What a decision records (its data and its explanation) shows the result of each
step. The first step with different results is where to look: all later differences follow from it.
Used to compare a replay with the record, and one run with another.

Example: two decisions with `filter: feasible 4` and `filter: feasible 3` differ at `filter`,
even if their targets are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeVar
from uuid import UUID

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.value import canonical
from wharfinger.events.decisions.explanation import Explanation, ScoredCandidate
from wharfinger.events.node_share import NodeShare

StepName = Literal[
    "trigger",
    "request",
    "held",
    "filter",
    "estimate",
    "score",
    "selection",
    "division",
    "ordinals",
    "devices",
    "explanation",
]
"""In the order in which a decision is made. `explanation`: text that decides nothing."""

NOTHING = "nothing"
PARTS_SHOWN = 6
VALUE_LENGTH = 120

_NONE: Mapping[str, str] = MappingProxyType({})
_UNSCORED: Mapping[str, int] = MappingProxyType({})

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step: its parts by name. `sampled`: only a few of the candidates are
    recorded, and later steps choose which, so only parts that both sides have are compared. `ids`:
    names of parts that are ids of events and decisions, which are other ones in another run."""

    step: StepName
    parts: Mapping[str, str]
    sampled: bool = False
    ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StepDifference:
    """The first step with different results, and its differing parts on either side."""

    step: StepName
    left: str
    right: str


def difference(
    left: Iterable[StepResult], right: Iterable[StepResult], *, same_run: bool = True
) -> StepDifference | None:
    """The first step, in the order of `left`, whose results differ; None: none does. A step that
    one side does not have is not compared. `same_run`: False: ids of events and decisions are not
    compared."""
    others = {result.step: result for result in right}
    for mine in left:
        theirs = others.get(mine.step)
        if theirs is not None and (names := differing(mine, theirs, same_run=same_run)):
            return StepDifference(mine.step, shown(mine.parts, names), shown(theirs.parts, names))
    return None


def differing(left: StepResult, right: StepResult, *, same_run: bool = True) -> list[str]:
    """The names of the parts that differ: those of `left` in their order, then those that only
    `right` has."""
    names = list(differing_keys(left.parts, right.parts))
    if left.sampled:
        names = [name for name in names if name in left.parts and name in right.parts]
    return (
        names
        if same_run
        else [name for name in names if name not in left.ids and name not in right.ids]
    )


def differing_keys(left: Mapping[K, V], right: Mapping[K, V]) -> Iterator[K]:
    """The keys whose values differ, or that only one side has."""
    return (key for key in dict.fromkeys((*left, *right)) if left.get(key) != right.get(key))


def shown(parts: Mapping[str, str], names: Sequence[str]) -> str:
    """`oslo 3, bergen 1`: the named parts, as far as they are there."""
    there = [name for name in names if name in parts]
    texts = [f"{name} {cut(parts[name])}".rstrip() for name in there[:PARTS_SHOWN]]
    if len(there) > PARTS_SHOWN:
        texts.append(f"and {len(there) - PARTS_SHOWN} more")
    return ", ".join(texts) or NOTHING


def cut(text: str) -> str:
    return text if len(text) <= VALUE_LENGTH else text[: VALUE_LENGTH - 3] + "..."


# --- results that several kinds have


def trigger(
    cause: UUID | None, why: Mapping[str, str] = _NONE, *, ids: Mapping[str, str] = _NONE
) -> StepResult:
    """`why`: what made the decision necessary. `ids`: of the proposal, plan or assignment that it
    answers."""
    return StepResult(
        "trigger", {**ids, **why, "cause": because(cause)}, ids=frozenset((*ids, "cause"))
    )


def because(cause: UUID | None) -> str:
    return "time" if cause is None else str(cause)


def filtered(why: Explanation, besides: Mapping[str, str]) -> StepResult:
    counts = {"candidates": str(why.candidates), "feasible": str(why.feasible)}
    return StepResult(
        "filter",
        {**besides, **counts, **{reason: str(n) for reason, n in sorted(why.refused.items())}},
    )


def scored(
    candidates: Iterable[ScoredCandidate], best: Mapping[str, int] = _UNSCORED
) -> StepResult:
    """`best`: candidate -> score."""
    scores = {one.name: one.score for one in candidates} | dict(best)
    return StepResult("score", {name: str(n) for name, n in scores.items()}, sampled=True)


def explained(why: Explanation) -> StepResult:
    """What the explanation holds besides: which candidates it names, and the text."""
    names = {"chosen": why.chosen, "runners-up": why.runners_up}
    named = {k: ", ".join([c.name for c in v]) for k, v in names.items() if v}
    if why.best:
        named["best"] = ", ".join(why.best)
    sets = {"failover": encoded(why.failover)} if why.failover is not None else {}
    return StepResult(
        "explanation", {**named, "note": why.note, **sets, **({"why": why.why} if why.why else {})}
    )


def counts(targets: Sequence[TargetCluster]) -> dict[str, str]:
    return {target.cluster: str(target.replicas) for target in targets}


def shared(shares: Sequence[NodeShare], besides: Mapping[str, str]) -> Iterator[StepResult]:
    """Of replicas on nodes: how many, which ordinals, which devices."""
    yield StepResult(
        "division", {**{share.node: str(len(share.ordinals)) for share in shares}, **besides}
    )
    order = {"nodes in order": ", ".join([share.node for share in shares])}
    yield StepResult(
        "ordinals", {**{share.node: _ordinals(share.ordinals) for share in shares}, **order}
    )
    yield StepResult(
        "devices",
        {
            f"{share.node} #{ordinal}": " ".join([f"{index}:{milli}m" for index, milli in devices])
            for share in shares
            for ordinal, devices in zip(share.ordinals, share.devices, strict=False)
        },
    )


def _ordinals(numbers: Sequence[int]) -> str:
    """`0-3 7`: runs of neighbours as they stand."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return " ".join(["-".join(map(str, run)) for run in runs])


def encoded(value: object) -> str:
    """A value as one text: its canonical JSON."""
    return canonical(value).decode(errors="replace")
