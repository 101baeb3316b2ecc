"""Counterfactual explanations: what would have to change so that a cluster is used, or a refused
binding is placed. Each suggestion is verified with `decide`.

A change is applied to the question, `decide` is called, and binary search finds the smallest change
with which the result holds. Each filter computes what undoes its refusal (`rules.clusters`); this
module covers capacity, weights and spread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.assign import Offer, divide
from wharfinger.engine.fleet.decide import Steps, decide_term
from wharfinger.engine.fleet.division import Shares
from wharfinger.engine.fleet.estimate import demand_of, demand_of_set
from wharfinger.engine.fleet.question import Question, Term
from wharfinger.engine.fleet.select import constrained
from wharfinger.engine.fleet.weights import static_weights
from wharfinger.rules.changes import (
    Change,
    ChangeSet,
    largest,
    less_asked,
    smallest,
    smallest_first,
)
from wharfinger.rules.clusters.admission import Admission, admission
from wharfinger.stages.fleet.capacity_shortfall import room_for, ways_to_room
from wharfinger.stages.fleet.solve import lost
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.state.clusters import UNLIMITED

SEARCHED_TIMES = 8
"""How many times the wanted replicas are tried at most, to find with how many replicas a cluster
would be used. A larger number would not be a small change."""

SEARCHED_WEIGHT = 1_000_000
"""How much more weight is tried at most."""


class Suggestions:
    """Computes the suggestions for one affinity term of one decision: for an unused cluster
    (`for_cluster`), or for a refused binding (`for_all`)."""

    def __init__(
        self, state: FleetState, record: BindingState, question: Question, steps: Steps
    ) -> None:
        self.state, self.record, self.question, self.steps = state, record, question, steps
        self.spec, self.placement, self.term = record.spec, question.placement, steps.term
        self.query, _ = steps.term.asked()
        self.feasible = steps.term.feasible.clusters
        self.demand = (
            demand_of_set(self.spec.components)
            if record.sets
            else demand_of(self.spec.requirements)
        )
        self._with_replicas: dict[int, Collection[str]] = {}

    def estimate(self, name: str) -> int:
        """Return the estimate of a cluster as the division used it: how many more replicas fit. For
        a cluster that is not feasible, return the estimate that the division would have used."""
        at = self.term.feasible.at(name)
        if at >= 0:
            return int(self.term.estimates[at])
        return self._seen(name, self.state.fits(self.record, self.state.clusters[name]))

    def _seen(self, name: str, n: int) -> int:
        if self.record.shrunk and lost(self.record, name):
            return 0
        return (1 if self.record.sets else self.question.replicas) if n == UNLIMITED else n

    def targets(
        self,
        *,
        term: Term | None = None,
        replicas: int | None = None,
        placement: Placement | None = None,
    ) -> Mapping[str, int] | None:
        """Decide the binding's question again with some parts changed, and return the targets as
        cluster -> replicas. None: the changed question is refused.
        `term`: another affinity term with its feasible clusters and estimates. `replicas`: another
        number of wanted replicas. `placement`: another placement. A part that is None stays
        unchanged."""
        question = msgspec.structs.replace(
            self.question,
            replicas=self.question.replicas if replicas is None else replicas,
            placement=placement or self.placement,
        )
        answer = decide_term(question, term or self.term).answer
        return None if answer.reason else answer.targets

    # --- one cluster

    def for_cluster(self, facts: Cluster) -> tuple[ChangeSet, ...]:
        """Return what would have to change so that an unused cluster gets replicas of the binding.
        The result has alternative sets of changes, smallest first; each set is sufficient. Empty:
        none is known. `facts`: the facts of the cluster.
        - If filters refuse the cluster: the changes with which all filters pass.
        - If no replica fits: in addition, the changes with which a replica fits. For a silent
          cluster this is not known, so only the changes for the filters are returned.
        - If the cluster is feasible and a replica fits: a change of its weight, the number of
          replicas or a spread constraint. Empty where the decision placed nothing."""
        cluster, alone = self.state.clusters[facts.name], bool(self.steps.answer.reason)
        admitted = admission(self.query, facts, facts.name in self.question.held)
        if admitted is None:
            return ()
        asked = self.spec.requirements
        if cluster.silent_since is not None:  # nothing is known of what fits into it
            return (admitted.way,) if admitted.way else ()
        if self._looks_at_room() and self.estimate(facts.name) <= 0:
            ways = ways_to_room(self.record, self.demand, cluster)
            return smallest_first([(*admitted.way, *way) for way in ways], asked)
        if admitted.way:
            return (admitted.way,)
        return () if alone else smallest_first(self._to_be_used(admitted), asked)

    def _looks_at_room(self) -> bool:
        static = self.placement.replicas.weighed and not self.question.retry
        return self.question.counted and self.placement.replicas.type == "Divided" and not static

    def _to_be_used(self, admitted: Admission) -> list[ChangeSet]:
        """Return changes that would make the decision select a cluster that is feasible and has
        capacity. Each set of the result has one change and is sufficient: a larger static weight of
        the cluster, more wanted replicas, or a larger maxGroups of a spread constraint. Each change
        is the smallest one that is sufficient; the number of replicas is tried up to
        `SEARCHED_TIMES` times the wanted number. `admitted.cluster`: the cluster."""
        name, wanted = admitted.cluster.name, self.question.replicas
        ways: list[ChangeSet] = []
        weight = self._weight(name)
        if weight is not None:
            ways.append((Change("weight", name, f"a weight of {weight:,} in the policy", weight),))
        if self._looks_at_room():
            count = smallest(
                wanted + 1, wanted * SEARCHED_TIMES, lambda n: name in self._used_with(n)
            )
            if count is not None:
                ways.append(
                    (Change("replicas", name, f"{count:,} replicas instead of {wanted:,}", count),)
                )
        return ways + self._widening(lambda targets: targets is not None and name in targets)

    def _widening(self, wanted: Callable[[Mapping[str, int] | None], bool]) -> list[ChangeSet]:
        """Find for each spread constraint the smallest increase of maxGroups that is sufficient.
        Return one set with this one change for each constraint; constraints for which no increase
        is sufficient are left out. Only one constraint is changed at a time.
        `wanted`: returns whether an outcome is sufficient. Its argument is the targets (cluster ->
        replicas), or None where the changed question is refused. Example: `wanted` is false with
        maxGroups 2 and true with 3: the change is maxGroups 3."""
        ways: list[ChangeSet] = []
        for place, constraint in enumerate(self.placement.spread):
            if constraint.max_groups <= 0 and not self.placement.strict:
                continue

            def holds(n: int, place: int = place) -> bool:
                return wanted(self.targets(placement=_bounded(self.placement, place, max_groups=n)))

            count = smallest(
                constraint.max_groups + 1, constraint.max_groups + len(self.feasible), holds
            )
            if count is not None:
                by = constraint.field or constraint.label
                text = f"maxGroups {count} instead of {constraint.max_groups or 'none'} by {by}"
                ways.append((Change("spread", by, text, count),))
        return ways

    def _lessening(self) -> list[ChangeSet]:
        """Find for each spread constraint the smallest decrease of minGroups with which the binding
        can be placed. Return one set with this one change for each constraint; constraints for
        which no decrease is sufficient are left out. Only one constraint is changed at a time.
        Example: minGroups 3 refuses the binding, 2 and 1 would place it: the change is minGroups 2.
        """
        ways: list[ChangeSet] = []
        for place, constraint in enumerate(self.placement.spread):

            def holds(n: int, place: int = place) -> bool:
                return (
                    self.targets(placement=_bounded(self.placement, place, min_groups=n))
                    is not None
                )

            count = largest(0, constraint.min_groups - 1, holds)
            if count is not None:
                by = constraint.field or constraint.label
                text = f"minGroups {count} instead of {constraint.min_groups} by {by}"
                ways.append((Change("spread", by, text, count),))
        return ways

    def _used_with(self, replicas: int) -> Collection[str]:
        """Return the clusters that would be used if this number of replicas were wanted. The result
        is cached, because each unused cluster needs it."""
        found = self._with_replicas.get(replicas)
        if found is None:
            found = self._with_replicas[replicas] = frozenset(self.targets(replicas=replicas) or ())
        return found

    def _weight(self, name: str) -> int | None:
        """Return the smallest static weight with which the cluster `name` would get a replica, if
        no other weight changed and the binding had no replicas. None: the placement does not
        divide by static weights, or adding `SEARCHED_WEIGHT` to the present weight is not enough.
        Example: 4 replicas, and one other cluster with weight 10. With weight 1 the cluster `name`
        gets nothing; with weight 2 it gets one replica. The result is 2."""
        if not self.placement.replicas.weighed:
            return None
        weights = static_weights(self.placement, self.feasible)
        names = [c.name for c in self.feasible]
        at, nothing_held = names.index(name), msgspec.structs.replace(self.question, held={})

        def wins(weight: int) -> bool:
            tried = [*weights[:at], weight, *weights[at + 1 :]]
            shares = divide(
                nothing_held,
                Offer(self.feasible, names, [0] * len(names), tried),
                self.question.replicas,
            )
            return isinstance(shares, Shares) and name in shares.replicas

        return smallest(weights[at] + 1, weights[at] + SEARCHED_WEIGHT, wins)

    # --- the whole binding

    def for_all(self) -> tuple[ChangeSet, ...]:
        """Return what would have to change so that a refused binding is placed. The result has
        alternative sets of changes, smallest first; each set is sufficient.
        - If no cluster is feasible, only this: for each cluster, the smallest set that
          `for_cluster` returns.
        - If replicas are divided by capacity: fewer replicas, smaller requests, or more capacity in
          one cluster. This is the cluster with the largest estimate; clusters that hold replicas of
          the binding are preferred.
        - If the placement has spread constraints: a larger maxGroups or a smaller minGroups."""
        wanted, asked = self.question.replicas, self.spec.requirements
        ways: list[ChangeSet] = []
        if not self.feasible:
            _, clusters = self.term.asked()
            return smallest_first(
                [found[0] for c in clusters if (found := self.for_cluster(c))], asked
            )
        if self._looks_at_room():
            count = largest(1, wanted - 1, lambda n: self.targets(replicas=n) is not None)
            if count is not None:
                change = Change(
                    "replicas",
                    "",
                    f"{wanted - count:,} fewer replicas ({count:,} fit)",
                    wanted - count,
                )
                ways.append((change,))
            ways += less_asked(asked, self._placed_with)
            missing = smallest(1, wanted, self._placed_with_room)
            if missing is not None:
                text = f"room for {missing:,} more replicas in {self._roomiest()}"
                ways.append((Change("count", self._roomiest(), text, missing),))
        if constrained(self.placement):
            ways += self._widening(lambda targets: targets is not None) + self._lessening()
        return smallest_first(ways, asked)

    def _placed_with(self, asked: Requirements) -> bool:
        if asked == self.spec.requirements:
            return self.targets() is not None
        clusters, claim = self.state.clusters, self.record.claim
        fits = [self._seen(c.name, room_for(clusters[c.name], asked, claim)) for c in self.feasible]
        return self.targets(term=msgspec.structs.replace(self.term, estimates=fits)) is not None

    def _roomiest(self) -> str:
        return max(
            self.feasible, key=lambda c: (c.name in self.question.held, self.estimate(c.name))
        ).name

    def _placed_with_room(self, extra: int) -> bool:
        name = self._roomiest()
        fits = [
            max(0, n) + extra if c.name == name else n
            for c in self.feasible
            for n in (self.estimate(c.name),)
        ]
        return self.targets(term=msgspec.structs.replace(self.term, estimates=fits)) is not None


def _bounded(placement: Placement, place: int, **bound: int) -> Placement:
    """Return a copy of the placement in which `min_groups` or `max_groups` of the spread constraint
    with index `place` is changed."""
    spread = list(placement.spread)
    spread[place] = msgspec.structs.replace(spread[place], **bound)
    return msgspec.structs.replace(placement, spread=tuple(spread))
