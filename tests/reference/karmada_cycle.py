"""One scheduling cycle as Karmada reports it. What is decided is decided by `engine.fleet.decide`;
the words are Karmada's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ANY_CLUSTER, ClusterAffinity, Placement
from wharfinger.engine.fleet.assign import Refusal, ReplicaDivision, Unassignable, assign
from wharfinger.engine.fleet.decide import decide, decide_term
from wharfinger.engine.fleet.feasible import plain
from wharfinger.engine.fleet.question import Question, Term
from wharfinger.rules.clusters.affinity import in_force
from wharfinger.rules.clusters.filters import first_refusal
from wharfinger.rules.clusters.rule import ClusterQuery

UNKNOWN = 2**31 - 1
"""How many replicas fit where no estimator knows better."""

Condition = Literal["Success", "NoClusterFit", "Unschedulable", "SchedulerError"]
"""What Karmada's `Scheduled` condition gives as its reason."""

RETRIED: Mapping[str, tuple[Condition, bool]] = {
    "NoClusterFit": ("NoClusterFit", False),
    "Unschedulable": ("Unschedulable", True),
    "SpreadConstraint": ("SchedulerError", True),
    "InvalidPlacement": ("SchedulerError", True),
}
"""Our refusals: Karmada's condition, and whether the binding goes back to its queue."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A binding as one cycle sees it. `observed`: the name of the affinity in force. The other
    fields: see `question.Question` and `ClusterQuery`."""

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
    """What the binding holds afterwards, under which affinity, and why. `retry`: it is tried again
    though nothing changes."""

    clusters: Mapping[str, int]
    observed: str
    condition: Condition
    retry: bool
    note: str = ""


def reconcile(asked: Asked, clusters: Sequence[Cluster], estimates: Mapping[str, int]) -> Cycled:
    """`estimates`: how many more replicas (or whole sets) fit into each cluster."""
    answer = decide(question_of(asked, clusters, estimates)).answer
    if not answer.reason:
        return Cycled(answer.targets, answer.affinity or asked.observed, "Success", False)
    condition, retry = RETRIED[answer.reason]
    return Cycled(answer.targets, asked.observed, condition, retry, answer.note)


def schedule(
    asked: Asked,
    affinity: ClusterAffinity,
    clusters: Sequence[Cluster],
    estimates: Mapping[str, int],
) -> ReplicaDivision | Unassignable:
    """Under one affinity: which clusters are feasible, and how the replicas go to them."""
    term = filtered(asked, affinity, clusters, estimates)
    outcome = decide_term(question_of(asked, clusters, estimates), term).outcome
    return Unassignable("NoClusterFit", "no cluster is feasible") if outcome is None else outcome


def question_of(
    asked: Asked, clusters: Sequence[Cluster], estimates: Mapping[str, int]
) -> Question:
    return Question(
        asked.placement,
        asked.replicas,
        asked.held,
        tuple(filtered(asked, affinity, clusters, estimates) for affinity in asked.placement.terms),
        asked.observed,
        asked.uid,
        counted=asked.counted,
        sets=asked.sets,
        fresh=asked.fresh,
        empties=asked.empties,
    )


def filtered(
    asked: Asked,
    affinity: ClusterAffinity,
    clusters: Sequence[Cluster],
    estimates: Mapping[str, int],
) -> Term:
    """One term, with the clusters that pass the filters."""
    affinity = in_force(affinity, asked.counted or asked.sets)
    query = ClusterQuery(
        asked.placement, affinity, asked.gvk, (), asked.evicted, asked.together, asked.apart
    )
    feasible = plain(
        clusters, asked.placement, [first_refusal(query, c, c.name in asked.held) for c in clusters]
    )
    fits = [estimates.get(c.name, 0) for c in feasible.clusters]
    return Term(affinity, feasible, fits, lambda: (query, clusters))


def all_admitted(
    asked: Asked,
    clusters: Sequence[Cluster],
    estimates: Mapping[str, int],
    affinity: ClusterAffinity = ANY_CLUSTER,
) -> tuple[Question, Term]:
    """Of clusters that no filter is asked about."""
    query = ClusterQuery(asked.placement, affinity, asked.gvk)
    term = Term(
        affinity,
        plain(clusters, asked.placement),
        [estimates[c.name] for c in clusters],
        lambda: (query, clusters),
    )
    question = Question(
        asked.placement,
        asked.replicas,
        asked.held,
        (term,),
        asked.observed,
        asked.uid,
        counted=asked.counted,
        sets=asked.sets,
        fresh=asked.fresh,
        empties=asked.empties,
    )
    return question, term


def assigned(
    asked: Asked,
    clusters: Sequence[Cluster],
    estimates: Mapping[str, int],
    affinity: ClusterAffinity = ANY_CLUSTER,
) -> ReplicaDivision | Unassignable:
    """The division over clusters that no filter is asked about."""
    return assign(*all_admitted(asked, clusters, estimates, affinity))


def least_of(
    estimators: Sequence[Mapping[str, int]],
    names: Sequence[str],
    replicas: int,
    *,
    components: bool = False,
) -> dict[str, int]:
    """Of several estimators the least of those that know a cluster; where none does (no entry, or
    -1), what is wanted. An object with neither replicas nor components takes nothing, so none is
    asked. Over-used is nothing, not debt."""
    out = {}
    for name in names:
        known = (
            [n for e in estimators if (n := e.get(name, -1)) != -1]
            if replicas or components
            else []
        )
        fits = min(known, default=UNKNOWN)
        out[name] = replicas if fits >= UNKNOWN else max(0, fits)
    return out


def condition_of(reason: Refusal) -> tuple[Condition, bool]:
    """A refusal in Karmada's words, and whether the binding goes back to its queue."""
    return RETRIED[reason]
