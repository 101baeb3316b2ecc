"""The tracing twin of a fleet decision: everything that decided it, for every cluster, when the decision is taken once more.

The rules are not written down a second time. `places.solve` takes down what it was asked; here the same filters, estimates,
selection and division are asked the same again and keep what they say, and a candidate that was not used is asked about with the
inputs changed until it would have been. What is traced reads the state and leaves it as it was, but for caches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.domain.reasons import FleetReason
from wharfinger.domain.workload import Requirements
from wharfinger.engine.changes import (
    Change,
    Way,
    largest,
    left_more,
    less_asked,
    more,
    smallest,
    smallest_first,
)
from wharfinger.engine.fleet.assign import Assigned, assign, ranked, selected, static_weights
from wharfinger.engine.fleet.counterfactual import Admission, admission
from wharfinger.engine.fleet.division import names_descend
from wharfinger.engine.fleet.estimate import demand_of, demand_of_set, scattered
from wharfinger.engine.fleet.filters import all_refusals
from wharfinger.engine.fleet.select import (
    LOCALITY,
    Candidate,
    Unselectable,
    constrained,
    groups_by,
    homes_of,
)
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.clusters import UNLIMITED, ClusterState
from wharfinger.stages.fleet.new_nodes import could_make, shares
from wharfinger.stages.fleet.places import question_of, solve_term, term_of, terms_of
from wharfinger.stages.fleet.quota_room import Claim
from wharfinger.stages.fleet.state import BindingState, FleetState, Solving

SEARCHED_TIMES = 8
"""As many times the replicas are tried, to find with how many a cluster would be used: beyond that it is no small change."""

SEARCHED_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True)
class ClusterTrace:
    """One cluster as it was asked. `refused`: every rule that failed, the first one first; empty: feasible. `estimate`: how many
    more replicas fit, as it went into the division; `source` where that is from; `counted_at` when (None: nobody counted).
    `ways`: what would have let it in, the smallest first; empty where it was used, or nothing would.
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
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupTrace:
    """A group of a spread constraint, `by` region, zone, provider or a label, scored as regions are. `members`: best first; where
    the choice keeps every constraint a cluster over several zones is a member of the one that it counts for."""

    by: str
    name: str
    score: int
    members: tuple[str, ...]
    chosen: bool


@dataclass(frozen=True, slots=True)
class SelectionTrace:
    """`ranking`: clusters, best first. `groups`: of every constraint but that by cluster. `note`: what cannot be met."""

    constraints: tuple[SpreadConstraint, ...]
    ranking: tuple[str, ...]
    groups: tuple[GroupTrace, ...]
    chosen: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ShareTrace:
    """`kept` + what `weight` of all weights gives of the seats. `seats` - floor of that quotient were given by remainder."""

    cluster: str
    kept: int
    weight: int
    seats: int


@dataclass(frozen=True, slots=True)
class DivisionTrace:
    """`how`: the strategy and its case. `seats` were divided over `total` of weights. `prefix`: Aggregated stopped there."""

    how: str
    seats: int
    total: int
    shares: tuple[ShareTrace, ...]
    ties_descend: bool = False


@dataclass(frozen=True, slots=True)
class TermTrace:
    """One affinity term that was tried. `reason` empty: it was this one."""

    name: str
    reason: str
    note: str
    clusters: tuple[ClusterTrace, ...]
    selection: SelectionTrace | None
    division: DivisionTrace | None


@dataclass(frozen=True, slots=True)
class FleetTrace:
    """`terms`: those tried, in order; the last one decided. `ways`: what would have placed a refused binding, smallest first.
    `asked`: requirements of one replica."""

    replicas: int
    asked: Requirements
    held: Mapping[str, int]
    fresh: bool
    without: tuple[str, ...]
    terms: tuple[TermTrace, ...]
    ways: tuple[Way, ...]

    @property
    def term(self) -> TermTrace:
        """The one that decided: the one that held, else the first, whose failure is told."""
        return next((t for t in self.terms if not t.reason), self.terms[0])


def trace(state: FleetState, record: BindingState, solving: Solving) -> FleetTrace | None:
    """Of the decision that came of `solving`. None: no cluster was asked about, because the request itself was wrong, or wanted
    nothing."""
    spec = record.spec
    if spec.replicas < 0 or record.plan.problem or (spec.replicas == 0 and record.counted):
        return None
    terms = terms_of(record)
    start = 0
    if len(terms) > 1 and not solving.fresh:
        start = next((i for i, term in enumerate(terms) if term.name == record.affinity), 0)
    traced: list[TermTrace] = []
    asking: list[_Asking] = []
    for place in range(start, len(terms)):
        one = _Asking(state, record, solving, place)
        asking.append(one)
        traced.append(one.traced())
        if not traced[-1].reason:
            break
    failed = all(term.reason for term in traced)
    ways = asking[0].ways_for_all() if failed else ()
    return FleetTrace(
        spec.replicas, spec.requirements, solving.held, solving.fresh, solving.without, tuple(traced), ways
    )


class _Asking:
    """One affinity term of one decision, ready to be asked again with something changed."""

    def __init__(self, state: FleetState, record: BindingState, solving: Solving, term: int) -> None:
        self.state, self.record, self.solving = state, record, solving
        self.term, self.affinity = term, term_of(record, term)
        self.spec, self.held = record.spec, solving.held
        self.without = (*solving.without, *state.evicted(record))
        self.placement = record.plan.placement
        # Clusters that hold replicas are asked with those to be left out, newcomers too: as `places` does.
        self.question = question_of(state, record, self.affinity, self.without)
        self.clusters = [c for c in state.order if c.facts is not None]
        self.demand = demand_of_set(self.spec.components) if record.sets else demand_of(self.spec.requirements)
        self.refused = {c.name: all_refusals(self.question, _facts(c), c.name in self.held) for c in self.clusters}
        self.feasible = [c for c in self.clusters if not self.refused[c.name]]
        self._with_replicas: dict[int, Collection[str]] = {}
        self.estimates = {c.name: self._estimate(c) for c in self.clusters}
        if state.makers:
            self._raise()

    # --- what was asked, and the answers

    def _estimate(self, cluster: ClusterState) -> int:
        n = self.state.fits(self.record, cluster)
        return self._seen(cluster.name, n)

    def _raise(self) -> None:
        """Where free room does not hold it: the estimates as `new_nodes` raises them."""
        names = {c.name for c in self.feasible}
        made = [m for m in could_make(self.state, self.record) if m.name in names]
        if not made or self.assigned() is not None:
            return
        kept = sum(n for name, n in self.held.items() if name in names)
        missing = self.spec.replicas - kept - sum(self.estimates[name] for name in names)
        for given in (shares(made, missing), {m.name: m.count for m in made}):
            more = {name: n + given.get(name, 0) for name, n in self.estimates.items()}
            if self.assigned(estimates=more) is not None:
                self.estimates = more
                return

    def _seen(self, name: str, n: int) -> int:
        """As the division sees it: what has no bound holds all that is wanted, and what was just lost there is not asked again."""
        record = self.record
        lost = name in record.before and record.targets.get(name, -1) < record.before[name]
        if record.shrunk and lost:
            return 0
        return (1 if record.sets else self.spec.replicas) if n == UNLIMITED else n

    def assigned(
        self,
        *,
        clusters: Sequence[Cluster] | None = None,
        estimates: Mapping[str, int] | None = None,
        replicas: int | None = None,
        placement: Placement | None = None,
    ) -> dict[str, int] | None:
        """The targets that the engine gives with these things otherwise; None: it refuses."""
        answer = self._answer(clusters, estimates, replicas, placement)
        return None if answer is None else answer.replicas

    def _answer(
        self,
        clusters: Sequence[Cluster] | None = None,
        estimates: Mapping[str, int] | None = None,
        replicas: int | None = None,
        placement: Placement | None = None,
    ) -> Assigned | None:
        facts = [_facts(c) for c in self.feasible] if clusters is None else clusters
        fits = self.estimates if estimates is None else estimates
        answer = assign(
            placement or self.placement, facts, [fits[c.name] for c in facts], self.held,
            self.spec.replicas if replicas is None else replicas, counted=self.record.counted, fresh=self.solving.fresh,
            uid=self.spec.uid, affinity=self.affinity, sets=self.record.sets,
        )  # fmt: skip
        return answer if isinstance(answer, Assigned) else None

    def traced(self) -> TermTrace:
        verdict = solve_term(
            self.state, self.record, self.held, self.term, self.solving.fresh, self.without, self.solving.retry
        )
        reason = verdict.reason
        selection = self._selection()
        facts = [_facts(c) for c in self.feasible]
        chosen = {c.name for c in facts} if selection is None or selection.note else set(selection.chosen)
        clusters = tuple(self._cluster(c, chosen, verdict.targets, reason) for c in self.clusters)
        division = None if reason or not self.record.counted else self._division(facts, chosen, selection)
        return TermTrace(self.affinity.name, reason, verdict.explanation.note, clusters, selection, division)

    def _cluster(
        self, cluster: ClusterState, selected: Collection[str], targets: Mapping[str, int], reason: str
    ) -> ClusterTrace:
        name, key = cluster.name, self.record.class_key
        used = name in targets and not self.refused[name]
        return ClusterTrace(
            name, _facts(cluster).region, self.held.get(name, 0), tuple(self.refused[name]),
            LOCALITY if name in self.held else 0, self.estimates[name], self.state.estimated_by(self.record, cluster),
            None if cluster.capacity is None else cluster.counted_at, cluster.taken.get(key, 0),
            name in selected and not self.refused[name], targets.get(name, 0), used,
            () if used else self.ways_for(cluster, alone=bool(reason)),
        )  # fmt: skip

    def _selection(self) -> SelectionTrace | None:
        if not (constrained(self.placement) or self.record.sets) or not self.feasible:
            return None
        facts = [_facts(c) for c in self.feasible]
        fits = [self.estimates[c.name] for c in facts]
        order = ranked(facts, fits, self.held, self.affinity)
        chosen = selected(
            self.placement, facts, fits, self.held, self.spec.replicas, affinity=self.affinity, sets=self.record.sets,
            fresh=self.solving.fresh,
        )  # fmt: skip
        names = () if isinstance(chosen, Unselectable) else tuple(c.name for c in chosen)
        note = chosen.note if isinstance(chosen, Unselectable) else ""
        return SelectionTrace(
            self.placement.spread, tuple(c.name for c in order), self._groups(order, names), names, note
        )

    def _groups(self, order: Sequence[Candidate], chosen: Collection[str]) -> tuple[GroupTrace, ...]:
        divided, replicas = self.placement.replicas.type == "Divided", self.spec.replicas
        cluster = next((c for c in self.placement.spread if c.field == "cluster"), SpreadConstraint())
        traced: list[GroupTrace] = []
        for constraint in self.placement.spread:
            if constraint.field == "cluster":
                continue
            home = dict(zip([c.name for c in order], homes_of(order, constraint), strict=True))
            for group in groups_by(order, constraint, cluster, replicas, divided):
                members = [c.name for c in group.members if self.placement.strict or home[c.name] == group.name]
                if members:
                    used = any(name in chosen for name in members)
                    by = constraint.field or constraint.label
                    traced.append(GroupTrace(by, group.name, group.score, tuple(members), used))
        return tuple(traced)

    def _division(
        self, facts: Sequence[Cluster], chosen: Collection[str], selection: SelectionTrace | None
    ) -> DivisionTrace:
        """The weights and seats, as `engine.fleet.division` has them case by case; the outcome is what it gave."""
        scheduling, replicas = self.placement.replicas, self.spec.replicas
        given = self.assigned() or {}
        names = [c.name for c in facts if c.name in chosen]
        if selection is not None:
            names = list(selection.chosen)
        descend = names_descend(self.spec.uid)
        if (self.affinity.overflow or scheduling.bounded) and scheduling.type == "Divided":
            return self._otherwise_divided(names, given, descend)
        if scheduling.type == "Duplicated":
            return DivisionTrace("Duplicated: every cluster gets all", replicas, 0, _shares(names, {}, {}, given))
        if scheduling.preference == "Weighted" and not scheduling.dynamic:
            weights = dict(zip([c.name for c in facts], static_weights(self.placement, facts), strict=True))
            if not any(weights.values()):
                weights = dict.fromkeys(weights, 1)
            shares = _shares(names, {}, weights, given)
            return DivisionTrace("static weights", replicas, sum(weights.values()), shares, descend)
        kept = {name: n for name, n in self.held.items() if name in names}
        how = "Aggregated" if scheduling.preference == "Aggregated" else "dynamic weights"
        fits = {name: self.estimates[name] for name in names}
        assigned = sum(kept.values())
        base: dict[str, int] = {}
        if self.solving.fresh:
            case, weights, seats = "afresh, by what fits and what is held", _sum(fits, kept), replicas
        elif assigned > replicas:
            case, weights, seats = "scaled down, by what is held", kept, replicas
        elif assigned < replicas:
            case = "scaled up, the missing ones by what fits" if kept else "by what fits"
            base, weights, seats = kept, fits, replicas - assigned
        else:
            return DivisionTrace(f"{how}: nothing to divide, all stay", 0, 0, _shares(names, kept, {}, given))
        shares = _shares(names, base, weights, given)
        if scheduling.preference == "Aggregated":
            shares = tuple(s for s in shares if s.seats or s.kept)  # the shortest list that holds them all
        return DivisionTrace(f"{how}: {case}", seats, sum(s.weight for s in shares), shares, descend)

    def _otherwise_divided(self, names: Sequence[str], given: Mapping[str, int], descend: bool) -> DivisionTrace:
        """By tiers or within bounds, where no single quotient says what came of it: what was kept, and the weights used."""
        answer = self._answer()
        weights = {} if answer is None else answer.weights
        kept = {name: min(self.held.get(name, 0), given.get(name, 0)) for name in names}
        tiers = "the affinity's own clusters, then its overflow groups" if self.affinity.overflow else ""
        bounds = "within limits, or remainders in order" if self.placement.replicas.bounded else ""
        how = "; ".join(said for said in (tiers, bounds) if said)
        seats = sum(given.values()) - sum(kept.values())
        return DivisionTrace(how, seats, sum(weights.values()), _shares(names, kept, weights, given), descend)

    # --- what would have to be otherwise

    def ways_for(self, cluster: ClusterState, alone: bool = False) -> tuple[Way, ...]:
        """What would have let a cluster in that is not used. `alone`: nothing was placed, so being able to take one is all."""
        facts = _facts(cluster)
        admitted = admission(self.question, facts, cluster.name in self.held)
        if admitted is None:
            return ()
        if cluster.silent_since is not None:  # nothing is known of what fits into it
            return (admitted.way,) if admitted.way else ()
        if self._has_room(cluster):
            if admitted.way or alone:
                found = [admitted.way] if admitted.way else []
                return smallest_first(
                    [*found, *(() if found or alone else self._to_be_used(cluster, admitted))], self.spec.requirements
                )
            return smallest_first(self._to_be_used(cluster, admitted), self.spec.requirements)
        room = self.ways_to_room(cluster)
        return smallest_first([(*admitted.way, *way) for way in room], self.spec.requirements)

    def _looks_at_room(self) -> bool:
        scheduling = self.placement.replicas
        static = scheduling.type == "Divided" and scheduling.preference == "Weighted" and not scheduling.dynamic
        return self.record.counted and scheduling.type == "Divided" and (not static or self.solving.retry)

    def _has_room(self, cluster: ClusterState) -> bool:
        return not self._looks_at_room() or self.estimates[cluster.name] > 0

    def ways_to_room(self, cluster: ClusterState) -> list[Way]:
        """So that one replica would fit: it asks for less, more is free, or more is counted."""
        asked = self.spec.requirements
        if cluster.name in self.record.before and self.record.shrunk and self._room_of(cluster, asked) > 0:
            change = Change(
                "state", cluster.name, "asking it again: what it has just refused waits for the next decision"
            )
            return [(change,)]
        if cluster.room is None:
            return [(Change("count", cluster.name, "a count of what is free there: nothing is known"),)]
        key, claim = self.record.class_key, self.record.claim
        if claim is not None and cluster.estimate(key, self.demand) > 0:
            return self._more_quota(cluster, claim)
        if cluster.estimated_by(key) in ("class", "refused") and self._by_totals(cluster, asked) > 0:
            counted = self._more_counted(cluster)
            return [(counted,)] if counted is not None else []
        ways = less_asked(asked, lambda other: self._by_totals(cluster, other) > 0)
        extra = self._more_free(cluster)
        return [*ways, extra] if extra else ways

    def _room_of(self, cluster: ClusterState, asked: Requirements) -> int:
        return cluster.estimate(asked.class_key, demand_of(asked), self.record.claim)

    def _more_quota(self, cluster: ClusterState, claim: Claim) -> list[Way]:
        """The cluster has room: what is missing for one replica is missing in quotas."""
        short = cluster.quotas.short_of(claim, self.demand)
        return [tuple(left_more(f"{claim.namespace}/{quota}", name, amount) for quota, name, amount in short)]

    def _by_totals(self, cluster: ClusterState, asked: Requirements) -> int:
        """How other requirements are estimated: nobody has counted their class."""
        assert cluster.room is not None, "asked of known room only"
        demand = demand_of(asked)
        return scattered(cluster.grades, demand, cluster.room.fits(demand))

    def _more_counted(self, cluster: ClusterState) -> Change | None:
        """What a later count would have to show. The free amounts suffice together, and lie scattered over its nodes."""
        key = self.record.class_key
        doubted = cluster.closed.get(key)
        least = smallest(1, 2**31, lambda n: self._recounted(cluster, n) > 0)
        if least is None:
            return None
        if doubted is not None:
            text = f"a count after its refusal (number {doubted:,}) that shows room for {least:,} or more"
        else:
            counted = 0 if cluster.capacity is None else cluster.capacity.classes.get(key, 0)
            text = f"a count of {least:,} instead of {counted:,}: what is free lies scattered over its nodes, or is taken already"
        return Change("count", cluster.name, text, least)

    def _recounted(self, cluster: ClusterState, count: int) -> int:
        """The estimate if this had been counted, with every refusal accounted for."""
        assert cluster.capacity is not None, "classes are counted by estimators only"
        key = self.record.class_key
        capacity = msgspec.structs.replace(cluster.capacity, classes={**cluster.capacity.classes, key: count})
        other = replace(
            cluster, capacity=capacity, _room=cluster.room, _taken=cluster.taken, _deducted=len(cluster.pending),
            closed={k: seq for k, seq in cluster.closed.items() if k != key or count <= cluster.doubt.get(k, 0)},
        )  # fmt: skip
        return other.estimate(key, self.demand, self.record.claim)

    def _more_free(self, cluster: ClusterState) -> Way:
        """Of every resource that is short what is missing for one replica, each the smallest amount."""
        assert cluster.room is not None, "asked of known room only"
        room, changes = cluster.room, []
        added = replace(room, left=dict(room.left))
        for name, amount in (
            *self.demand.amounts,
            *((("pods", 1),) if self.demand.is_pod and "pods" in room.left else ()),
        ):
            left = room.left.get(name, 0)

            def holds(extra: int, name: str = name, left: int = left, amount: int = amount) -> bool:
                return (left + extra) // amount >= 1

            extra = smallest(0, amount - min(0, left), holds)
            if extra:
                changes.append(more(name, extra))
                added.left[name] = left + extra
        return tuple(changes) if changes and scattered(cluster.grades, self.demand, added.fits(self.demand)) > 0 else ()

    def _to_be_used(self, cluster: ClusterState, admitted: Admission) -> list[Way]:
        """It is feasible, has room, and others were taken: what would have made it one of them."""
        facts = [_facts(c) for c in self.clusters if not self.refused[c.name] or c.name == cluster.name]
        facts = [admitted.cluster if f.name == cluster.name else f for f in facts]
        name, wanted = cluster.name, self.spec.replicas

        def uses(found: Mapping[str, int] | None) -> bool:
            return found is not None and name in found

        ways: list[Way] = []
        weight = self._weight(facts, name)
        if weight is not None:
            ways.append((Change("weight", name, f"a weight of {weight:,} in the policy", weight),))
        if self._looks_at_room():
            feasible = not admitted.way
            most = wanted * SEARCHED_TIMES
            count = smallest(
                wanted + 1,
                most,
                lambda n: name in self._used_with(n) if feasible else uses(self.assigned(clusters=facts, replicas=n)),
            )
            if count is not None:
                ways.append((Change("replicas", name, f"{count:,} replicas instead of {wanted:,}", count),))
        return ways + self._widening(facts, uses)

    def _widening(self, facts: Sequence[Cluster], found: Callable[[Mapping[str, int] | None], bool]) -> list[Way]:
        """The smallest larger maxGroups, one constraint at a time, with which the division is as wanted."""
        ways: list[Way] = []
        for place, constraint in enumerate(self.placement.spread):
            if constraint.max_groups <= 0 and not self.placement.strict:
                continue

            def holds(n: int, place: int = place) -> bool:
                return found(self.assigned(clusters=facts, placement=_bounded(self.placement, place, max_groups=n)))

            count = smallest(constraint.max_groups + 1, constraint.max_groups + len(facts), holds)
            if count is not None:
                by = constraint.field or constraint.label
                text = f"maxGroups {count} instead of {constraint.max_groups or 'none'} by {by}"
                ways.append((Change("spread", by, text, count),))
        return ways

    def _lessening(self) -> list[Way]:
        """The largest smaller minGroups, one constraint at a time, with which there is a division."""
        ways: list[Way] = []
        for place, constraint in enumerate(self.placement.spread):

            def holds(n: int, place: int = place) -> bool:
                return self.assigned(placement=_bounded(self.placement, place, min_groups=n)) is not None

            count = largest(0, constraint.min_groups - 1, holds)
            if count is not None:
                by = constraint.field or constraint.label
                text = f"minGroups {count} instead of {constraint.min_groups} by {by}"
                ways.append((Change("spread", by, text, count),))
        return ways

    def _used_with(self, replicas: int) -> Collection[str]:
        """The clusters used if so many replicas were wanted: asked for every unused cluster, and the same for all of them."""
        found = self._with_replicas.get(replicas)
        if found is None:
            found = self._with_replicas[replicas] = frozenset(self.assigned(replicas=replicas) or ())
        return found

    def _weight(self, facts: Sequence[Cluster], name: str) -> int | None:
        """The smallest static weight that gives it a replica; None where weights do not decide."""
        scheduling = self.placement.replicas
        if scheduling.type != "Divided" or scheduling.preference != "Weighted" or scheduling.dynamic:
            return None
        weights = static_weights(self.placement, facts)
        at = next(i for i, c in enumerate(facts) if c.name == name)

        def wins(weight: int) -> bool:
            tried = [*weights[:at], weight, *weights[at + 1 :]]
            answer = assign(
                self.placement, facts, [0] * len(facts), {}, self.spec.replicas, uid=self.spec.uid, weights=tried,
            )  # fmt: skip
            return isinstance(answer, Assigned) and name in answer.replicas

        return smallest(weights[at] + 1, weights[at] + SEARCHED_WEIGHT, wins)

    def ways_for_all(self) -> tuple[Way, ...]:
        """What would have placed the binding that was refused."""
        wanted, asked = self.spec.replicas, self.spec.requirements
        ways: list[Way] = []
        if self.feasible and self._looks_at_room():
            count = largest(1, wanted - 1, lambda n: self.assigned(replicas=n) is not None)
            if count is not None:
                change = Change("replicas", "", f"{wanted - count:,} fewer replicas ({count:,} fit)", wanted - count)
                ways.append((change,))
            ways += less_asked(asked, self._placed_with)
            missing = smallest(1, wanted, self._placed_with_room)
            if missing is not None:
                text = f"room for {missing:,} more replicas in {self._roomiest()}"
                ways.append((Change("count", self._roomiest(), text, missing),))
        if self.feasible and constrained(self.placement):
            ways += self._widening([_facts(c) for c in self.feasible], lambda found: found is not None)
            ways += self._lessening()
        elif not self.feasible:
            ways += [c.ways[0] for c in self.traced().clusters if c.ways]
        return smallest_first(ways, asked)

    def _placed_with(self, asked: Requirements) -> bool:
        if asked == self.spec.requirements:
            return self.assigned() is not None
        estimates = {c.name: self._seen(c.name, self._room_of(c, asked)) for c in self.feasible}
        return self.assigned(estimates=estimates) is not None

    def _roomiest(self) -> str:
        return max(self.feasible, key=lambda c: (c.name in self.held, self.estimates[c.name])).name

    def _placed_with_room(self, extra: int) -> bool:
        name = self._roomiest()
        return self.assigned(estimates={**self.estimates, name: max(0, self.estimates[name]) + extra}) is not None


def _facts(cluster: ClusterState) -> Cluster:
    assert cluster.facts is not None, "only known clusters are laid out"
    return cluster.facts


def _sum(fits: Mapping[str, int], kept: Mapping[str, int]) -> dict[str, int]:
    return {name: n + kept.get(name, 0) for name, n in fits.items()}


def _shares(
    names: Sequence[str], base: Mapping[str, int], weights: Mapping[str, int], given: Mapping[str, int]
) -> tuple[ShareTrace, ...]:
    return tuple(
        ShareTrace(n, base.get(n, 0), weights.get(n, 0), given.get(n, 0) - base.get(n, 0))
        for n in names
        if n in given or weights.get(n, 0) > 0
    )


def _bounded(placement: Placement, place: int, **bound: int) -> Placement:
    """With one bound of one constraint otherwise: `min_groups` or `max_groups`."""
    spread = list(placement.spread)
    spread[place] = msgspec.structs.replace(spread[place], **bound)
    return msgspec.structs.replace(placement, spread=tuple(spread))
