"""Builds the full explanation of a fleet decision for `wharfinger explain`: the steps of `decide`,
cluster by cluster.

Nothing is decided here. `decide` is called once more with the decision's question and full detail,
and its steps are converted for display; `suggestions` calls it with changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.domain.reasons import FleetReason
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.assign import ReplicaDivision, Unassignable
from wharfinger.engine.fleet.decide import FullSteps, GroupStep, Steps, decide
from wharfinger.engine.fleet.division import Case, Shares
from wharfinger.engine.fleet.question import Detail, Question
from wharfinger.kernel.decider import Micros
from wharfinger.rules.changes import ChangeSet
from wharfinger.rules.clusters.locality import locality
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.suggestions import Suggestions

CASES: Mapping[Case, str] = {
    "duplicated": "every cluster gets all",
    "static": "",
    "within room": "within what fits",
    "first": "by what fits",
    "scale up": "scaled up, the missing ones by what fits",
    "scale down": "scaled down, by what is held",
    "equal": "nothing to divide, all stay",
    "fresh": "a fresh division, by what fits and what is held",
    "mended": "within a new limit, by what fits and what is held",
}


@dataclass(frozen=True, slots=True)
class ClusterTrace:
    """One cluster in the explanation of a decision.

    `held`: replicas of the binding before the decision; `replicas`: after it.
    `refused`: every rule that refused the cluster, the first one first; empty: feasible.
    `estimate`: how many more replicas fit, as used in the division. `source`: where the estimate
    comes from. `counted_at`: when the cluster was counted; None: it was not. `pending`: replicas of
    the class that no count includes yet.
    `selected`: the division considered the cluster. `used`: the cluster is feasible and a target.
    `ways`: sets of changes that would have made the cluster used, smallest first; empty: it was
    used, or no change was found.
    """

    name: str
    region: str
    held: int
    refused: tuple[FleetReason, ...]
    locality: int
    estimate: int
    source: str
    counted_at: Micros | None
    pending: int
    selected: bool
    replicas: int
    used: bool
    ways: tuple[ChangeSet, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectionTrace:
    """The selection of clusters under spread constraints. `ranking`: clusters, best first.
    `groups`: the groups of every constraint except that by cluster. `chosen`: the selected
    clusters. `note`: which constraint cannot be met; empty: all are met."""

    constraints: tuple[SpreadConstraint, ...]
    ranking: tuple[str, ...]
    groups: tuple[GroupStep, ...]
    chosen: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ShareTrace:
    """One cluster's share of a division: it keeps `kept` replicas and gets `seats` more. `weight`:
    the weight by which it got them. Its exact share is the number of all divided replicas *
    `weight` / the sum of the weights. What `seats` has beyond the exact share rounded down was
    given by the remainder."""

    cluster: str
    kept: int
    weight: int
    seats: int


@dataclass(frozen=True, slots=True)
class DivisionTrace:
    """One division of replicas. `how`: the strategy and its case. `seats`: how many replicas were
    divided. `total`: the sum of the weights. `shares`: the share of each cluster."""

    how: str
    seats: int
    total: int
    shares: tuple[ShareTrace, ...]


@dataclass(frozen=True, slots=True)
class TermTrace:
    """One affinity term that the decision tried. `reason`: why it could not be used; empty: it was
    used. `divisions`: one for each tier of clusters that got replicas."""

    name: str
    reason: str
    note: str
    clusters: tuple[ClusterTrace, ...]
    selection: SelectionTrace | None
    divisions: tuple[DivisionTrace, ...]


@dataclass(frozen=True, slots=True)
class FleetTrace:
    """The explanation of a fleet decision. `terms`: the affinity terms that were tried, in order.
    `without`: excluded clusters. `asked`: requirements of one replica. `ways`: changes that would
    have placed a refused binding, smallest first."""

    replicas: int
    asked: Requirements
    held: Mapping[str, int]
    fresh: bool
    without: tuple[str, ...]
    terms: tuple[TermTrace, ...]
    ways: tuple[ChangeSet, ...]

    @property
    def term(self) -> TermTrace:
        """Return the affinity term that was used. If none was, return the first one, whose failure
        is reported."""
        return next((t for t in self.terms if not t.reason), self.terms[0])


def trace(state: FleetState, record: BindingState, question: Question) -> FleetTrace | None:
    """Decide the question of a binding again, and return the explanation with full detail: for each
    affinity term that was tried, every cluster with its filters, scores and replicas, and what
    would have to change for another result.
    None: no cluster was evaluated, because the request was invalid or wanted no replicas."""
    solution = decide(question, Detail.FULL)
    if not solution.steps:
        return None
    suggestions = [Suggestions(state, record, question, steps) for steps in solution.steps]
    terms = tuple(
        _term(question, steps, suggest)
        for steps, suggest in zip(solution.steps, suggestions, strict=True)
    )
    ways = suggestions[0].for_all() if solution.answer.reason else ()
    query, _ = solution.steps[0].term.asked()
    return FleetTrace(
        question.replicas,
        record.spec.requirements,
        question.held,
        question.fresh,
        tuple(query.evicted),
        terms,
        ways,
    )


def _term(question: Question, steps: Steps, suggest: Suggestions) -> TermTrace:
    outcome, answer, full = steps.outcome, steps.answer, steps.full
    assert full is not None, "asked for in full"
    selected = _selected(steps)
    return TermTrace(
        answer.affinity,
        answer.reason,
        answer.note,
        tuple(
            _cluster(facts, refused, steps, selected, suggest) for facts, refused in full.refusals
        ),
        _selection(question.placement, outcome, full),
        _divisions(question, outcome)
        if isinstance(outcome, ReplicaDivision) and not answer.reason
        else (),
    )


def _selected(steps: Steps) -> Collection[str]:
    """Return the clusters over which the replicas were divided. Where no clusters were selected,
    return all feasible ones."""
    chosen = None if steps.outcome is None else steps.outcome.chosen
    return {c.name for c in chosen} if chosen else steps.term.feasible.names


def _cluster(
    facts: Cluster,
    refused: tuple[FleetReason, ...],
    steps: Steps,
    selected: Collection[str],
    suggest: Suggestions,
) -> ClusterTrace:
    name, state, record, held = facts.name, suggest.state, suggest.record, suggest.question.held
    cluster, targets = state.clusters[name], steps.answer.targets
    used = name in targets and not refused
    estimate, source = suggest.estimate(name), state.estimated_by(record, cluster)
    if name in state.cluster_index.provisioning and estimate > state.fits(record, cluster):
        source = "pools"
    return ClusterTrace(
        name=name,
        region=facts.region,
        held=held.get(name, 0),
        refused=refused,
        locality=locality(name, held),
        estimate=estimate,
        source=source,
        counted_at=None if cluster.capacity is None else cluster.counted_at,
        pending=cluster.taken.get(record.class_key, 0),
        selected=not refused and name in selected,
        replicas=targets.get(name, 0),
        used=used,
        ways=() if used else suggest.for_cluster(facts),
    )


def _selection(
    placement: Placement, outcome: ReplicaDivision | Unassignable | None, full: FullSteps
) -> SelectionTrace | None:
    if outcome is None or outcome.chosen is None:
        return None
    chosen = tuple(c.name for c in outcome.chosen)
    note = "" if chosen or isinstance(outcome, ReplicaDivision) else outcome.note
    return SelectionTrace(
        placement.spread, tuple(c.name for c in full.ranking), full.groups, chosen, note
    )


def _divisions(question: Question, outcome: ReplicaDivision) -> tuple[DivisionTrace, ...]:
    tiers = len(outcome.shares) > 1
    moved = _moved(outcome)
    found: list[DivisionTrace] = []
    for place, shares in enumerate(outcome.shares):
        tier = f" ({'first' if not place else 'next'} clusters of the affinity)" if tiers else ""
        how = f"{_strategy(question.placement, shares.case)}{tier}{moved}"
        found.append(
            DivisionTrace(how, shares.seats, sum(int(n) for n in shares.by), _shares(shares))
        )
    return tuple(found)


STATIC = "static weights"


def _strategy(placement: Placement, case: Case) -> str:
    scheduling = placement.replicas
    name = {"duplicated": "Duplicated", "static": STATIC, "within room": STATIC}.get(case)
    if name is None:
        name = "Aggregated" if scheduling.preference == "Aggregated" else "dynamic weights"
    bounds = (
        (scheduling.limits, "within limits"),
        (scheduling.within_capacity, "within what fits"),
    )
    notes = [text for holds, text in bounds if holds]
    notes += (
        ["remainders in order"]
        if scheduling.remainder == "in-order" and case != "duplicated"
        else []
    )
    return "; ".join((f"{name}: {CASES[case]}".removesuffix(": "), *notes))


def _shares(shares: Shares) -> tuple[ShareTrace, ...]:
    weights = dict(zip(shares.among, map(int, shares.by), strict=False))
    names = dict.fromkeys([*shares.kept, *shares.among])
    return tuple(
        ShareTrace(
            n,
            shares.kept.get(n, 0),
            weights.get(n, 0),
            shares.replicas.get(n, 0) - shares.kept.get(n, 0),
        )
        for n in names
        if n in shares.replicas or weights.get(n, 0) > 0
    )


def _moved(outcome: ReplicaDivision) -> str:
    """Describe which replicas were moved after the division, to give a replica to every group that
    needs one under the spread constraints. Empty: none were moved."""
    divided = {name: n for shares in outcome.shares for name, n in shares.replicas.items()}
    changes: Sequence[tuple[str, int]] = [
        (name, n - divided.get(name, 0))
        for name, n in sorted({**dict.fromkeys(divided, 0), **outcome.replicas}.items())
    ]
    told = ", ".join(f"{name} {change:+}" for name, change in changes if change)
    return f"; then moved for the spread: {told}" if told else ""
