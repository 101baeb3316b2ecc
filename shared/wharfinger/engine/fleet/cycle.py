"""One scheduling cycle of a binding: its affinities in order, each filtered and assigned, until one of them holds it.

Of alternatives the one in force is tried first, then those after it; never those before it, unless a fresh decision was asked for.
If all fail, the first failure is told, because that is the affinity the binding should be in.

What a failed binding keeps is where we part from Karmada (`Placement.strict` follows it): there, a binding for which no cluster
is feasible loses what it has and is not tried again, so that a policy with a slip in it, or a first group that is gone while
the second is full, ends what runs. Ours keeps what it has and waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.engine.fleet.assign import Assigned, Refusal, Unassignable, assign
from wharfinger.engine.fleet.filters import Question, first_refusal, in_force
from wharfinger.engine.fleet.trigger import ANY_CLUSTER

T = TypeVar("T")

UNKNOWN = 2**31 - 1
"""How many replicas fit where no estimator knows better."""

Condition = Literal["Success", "NoClusterFit", "Unschedulable", "SchedulerError"]
"""What Karmada's `Scheduled` condition gives as its reason."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A binding as one cycle sees it. `observed`: the name of the affinity in force. The other fields: see `assign.assign` and
    `filters.Question`."""

    placement: Placement
    gvk: str
    replicas: int
    held: Mapping[str, int]
    observed: str = ""
    counted: bool = True
    fresh: bool = False
    uid: str = ""
    sets: bool = False
    empties: bool = False
    evicted: Collection[str] = ()
    together: Collection[str] | None = None
    apart: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Cycled:
    """What the binding holds afterwards, under which affinity, and why. `retry`: it is tried again though nothing changes."""

    clusters: Mapping[str, int]
    observed: str
    condition: Condition
    retry: bool
    note: str = ""


def reconcile(asked: Asked, clusters: Sequence[Cluster], estimates: Mapping[str, int]) -> Cycled:
    """`estimates`: how many more replicas (or whole sets) fit into each cluster."""
    terms = terms_of(asked.placement)
    place, answer = through_terms(
        asked.placement, asked.observed, asked.fresh,
        lambda i: schedule(asked, terms[i], clusters, estimates),
        lambda answer: isinstance(answer, Unassignable),
    )  # fmt: skip
    if isinstance(answer, Assigned):
        return Cycled(answer.replicas, terms[place].name or asked.observed, "Success", False)
    condition, retry = condition_of(answer.reason)
    kept = left_standing(asked.placement, answer.reason, asked.held)
    return Cycled(kept, asked.observed, condition, retry, answer.note)


def schedule(
    asked: Asked, affinity: ClusterAffinity, clusters: Sequence[Cluster], estimates: Mapping[str, int]
) -> Assigned | Unassignable:
    """Under one affinity: which clusters are feasible, and how the replicas go to them."""
    affinity = in_force(affinity, asked.counted or asked.sets)
    question = Question(
        asked.placement, affinity, asked.gvk, (), asked.evicted, asked.together, asked.apart
    )  # fmt: skip
    feasible = [c for c in clusters if first_refusal(question, c, c.name in asked.held) is None]
    return assign(
        asked.placement, feasible, [estimates.get(c.name, 0) for c in feasible], asked.held, asked.replicas,
        counted=asked.counted, fresh=asked.fresh, uid=asked.uid, affinity=affinity, sets=asked.sets,
        empties=asked.empties,
    )  # fmt: skip


def least_of(
    estimators: Sequence[Mapping[str, int]], names: Sequence[str], replicas: int, *, components: bool = False
) -> dict[str, int]:
    """Of several estimators the least of those that know a cluster; where nobody knows (no entry, or -1), what is wanted. An object
    with neither replicas nor components takes nothing, so nobody is asked. Over-used is nothing, not debt."""
    out = {}
    for name in names:
        known = [n for e in estimators if (n := e.get(name, -1)) != -1] if replicas or components else []
        fits = min(known, default=UNKNOWN)
        out[name] = replicas if fits >= UNKNOWN else max(0, fits)
    return out


def terms_of(placement: Placement) -> Sequence[ClusterAffinity]:
    return placement.affinities or (ANY_CLUSTER,)


def first_term(placement: Placement, observed: str, fresh: bool) -> int:
    """Where to begin: the affinity in force; the first, if there is none, or it is gone, or a fresh decision was asked for."""
    terms = placement.affinities
    if fresh or len(terms) <= 1:
        return 0
    return next((i for i, term in enumerate(terms) if term.name == observed), 0)


def through_terms(
    placement: Placement, observed: str, fresh: bool, attempt: Callable[[int], T], failed: Callable[[T], bool]
) -> tuple[int, T]:
    """The place and answer of the first affinity that did not fail; if all did, of the first that was tried."""
    start = first_term(placement, observed, fresh)
    first: T | None = None
    for place in range(start, len(terms_of(placement))):
        answer = attempt(place)
        if not failed(answer):
            return place, answer
        first = answer if first is None else first
    assert first is not None, "there is always an affinity"
    return start, first


def condition_of(reason: Refusal) -> tuple[Condition, bool]:
    """A refusal in Karmada's words, and whether the binding goes back to its queue. A spread that cannot be kept and a policy that
    is wrong are errors there."""
    match reason:
        case "NoClusterFit":
            return "NoClusterFit", False
        case "Unschedulable":
            return "Unschedulable", True
        case "SpreadConstraint" | "InvalidPlacement":
            return "SchedulerError", True


def left_standing(placement: Placement, reason: str, held: Mapping[str, int]) -> dict[str, int]:
    """What a binding keeps that was refused."""
    return {} if placement.strict and reason == "NoClusterFit" else dict(held)
