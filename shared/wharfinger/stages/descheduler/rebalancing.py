"""Proposes moves of replicas between clusters, as each RebalancePolicy asks for
(RescheduleProposed).

Each policy is evaluated periodically, in one pass over all clusters that this process knows. A pass
evaluates at most `LOOKED_MAX` bindings, in order of name, and the next pass continues after the
last of them. A binding qualifies if capacity divides its replicas, all of them are placed, all in
clusters with a heartbeat, and no other rule moves it (`rebalance-after-s`, `failback-after-s`,
workload groups, another scheduler). Each move is one RescheduleProposed with all targets of the
binding.

The fleet stage validates each proposal and enforces budgets and rest times. Here they are only
estimated, because a restarted process has lost what it proposed. If there are several processes,
each moves only bindings within its own clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value, canonical
from wharfinger.engine.fleet.objective import ObjectiveCluster
from wharfinger.engine.fleet.rebalance import NAMES, Movable, Relocation, prices_of, rebalanced
from wharfinger.engine.fleet.spread_floor import broken
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.envelope import derived_id
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.rules.clusters.affinity import in_force, matches
from wharfinger.rules.clusters.filters import first_refusal
from wharfinger.rules.clusters.rule import ClusterQuery
from wharfinger.stages.descheduler.facts import DeschedulerState, Sighting
from wharfinger.stages.descheduler.health import ProposedMove
from wharfinger.stages.descheduler.taints import another_schedulers

LOOKED_MAX = 1000
"""Maximum number of bindings in one pass."""

REST_MAX: Micros = 24 * 3600 * SECOND
"""The longest rest of a binding whose proposed moves had no effect: one day."""

MOVES_MAX = 50
"""Maximum number of moves that one pass proposes."""


def fold(state: DeschedulerState, data: Value, sighting: Sighting) -> None:
    upkeep = state.upkeep
    match data:
        case CapacityEstimated(cluster=name):
            upkeep.capacity[name] = data
        case ClusterForgotten(name=name):
            upkeep.capacity.pop(name, None)
            upkeep.fares.pop(name, None)
        case PolicyApplied(policy=policy) if policy.rebalancing is not None:
            upkeep.rebalancing[policy.key] = policy.rebalancing
            upkeep.rebalancing = dict(sorted(upkeep.rebalancing.items()))
            _plan(state, policy.key, sighting.at)
        case PolicyApplied(policy=policy):
            _drop(state, policy.key)
        case PolicyRemoved(kind=kind, name=name, namespace=namespace):
            _drop(state, f"{kind}/{namespace}/{name}")
        case _:
            pass


def next_due(state: DeschedulerState) -> Micros | None:
    return min(state.upkeep.runs.values(), default=None)


def publish(state: DeschedulerState, at: Micros, room: int) -> list[Publication]:
    """Evaluates every rebalancing policy that is due, and returns the proposed moves of replicas
    between clusters: at most `room` in all and at most 50 (`MOVES_MAX`) for each policy.

    The policies are evaluated in order of key. Each due policy is scheduled again. When `room`
    moves have been proposed, the remaining due policies make no proposals until they are due again.
    """
    found: list[Publication] = []
    for key, due in sorted(state.upkeep.runs.items()):
        if due <= at:
            _plan(state, key, at)
            found += _look(
                state, key, state.upkeep.rebalancing[key], at, min(MOVES_MAX, room - len(found))
            )
    return found


def _plan(state: DeschedulerState, key: str, at: Micros) -> None:
    policy = state.upkeep.rebalancing[key]
    if policy.objective is None:
        state.upkeep.runs.pop(key, None)
    else:
        state.upkeep.runs[key] = at + max(1, policy.every_s) * SECOND


def _drop(state: DeschedulerState, key: str) -> None:
    if state.upkeep.rebalancing.pop(key, None) is not None:
        state.upkeep.runs.pop(key, None)
        state.upkeep.after.pop(key, None)


# One look


def _look(
    state: DeschedulerState, key: str, policy: RebalancePolicy, at: Micros, most: int
) -> list[Publication]:
    assert policy.objective is not None, "without one it is not looked at"
    looking = _Looking(state, policy, at)
    movable = [
        one
        for name in _turn(state, key)
        if (one := looking.movable(state.bindings[name])) is not None
    ]
    fill = looking.fill(movable) if policy.objective == "load" else {}
    moves = rebalanced(
        policy.objective, policy.gain_percent, movable, fill, looking.budgets(), most
    )
    return [_proposed(state, key, policy, move, at) for move in moves]


def _turn(state: DeschedulerState, key: str) -> list[str]:
    """Returns the bindings that this pass evaluates: up to `LOOKED_MAX` names, in order of name,
    after the last one of the previous pass (round-robin). Stores where the next pass continues;
    after the last name it begins at the first."""
    after = state.upkeep.after.get(key, "")
    names = sorted(name for name in state.bindings if name > after)
    state.upkeep.after[key] = names[LOOKED_MAX - 1] if len(names) > LOOKED_MAX else ""
    return names[:LOOKED_MAX]


def _proposed(
    state: DeschedulerState, key: str, policy: RebalancePolicy, move: Relocation, at: Micros
) -> Publication:
    assert policy.objective is not None, "as above"
    upkeep, stream = state.upkeep, state.clusters[move.source].shares[move.name].stream
    upkeep.moved[move.name] = upkeep.asked(move.name, held_of(state, move.name), at)
    upkeep.proposed.setdefault(move.source, []).append((at, move.replicas))
    targets = tuple(TargetCluster(name, n) for name, n in move.targets.items())
    reason = (
        f"{policy.objective}: {move.replicas:,} replicas go from {move.source} to {move.target}, "
        f"{move.on:,} instead of {move.off:,}"
    )
    data = RescheduleProposed(
        stream,
        move.name,
        reason,
        targets,
        objective=NAMES[policy.objective],
        gain=move.gain,
        policy=key,
    )
    id = derived_id(
        "proposal", "rebalance", stream, key, move.name, canonical(targets).decode(), at // SECOND
    )
    return Publication(data, move.name, stream, stream, id)


class _Looking:
    """The input of one evaluation of a policy, computed once for all bindings.

    `clusters`: the clusters that the policy selects, whose state is known and current
    (`DeschedulerState.held`), with their taints. `known`: the same clusters, each with its last
    capacity estimate (None: none received). Constructing it deletes expired entries of
    `Upkeep.moved` and `Upkeep.proposed`.
    """

    def __init__(self, state: DeschedulerState, policy: RebalancePolicy, at: Micros) -> None:
        self.state, self.policy, self.at = state, policy, at
        self.window = policy.window_s * SECOND
        told = state.tainting.told
        meant = [name for name in sorted(told) if matches(policy.target, told[name])]
        self.clusters = {
            name: state.tainting.effective(name)
            for name in meant
            if name in state.clusters and not state.held(name, at)
        }
        self.known = {
            name: (facts, state.upkeep.capacity.get(name)) for name, facts in self.clusters.items()
        }
        self._homes: dict[tuple[bytes, str, int], list[str]] = {}
        self._forget()

    def _forget(self) -> None:
        upkeep = self.state.upkeep
        for name in [n for n, asked in upkeep.moved.items() if self._is_over(n, asked)]:
            del upkeep.moved[name]
        for name in [*upkeep.proposed]:
            upkeep.proposed[name] = [
                (at, n) for at, n in upkeep.proposed[name] if at + self.window > self.at
            ]

    def _is_over(self, name: str, asked: ProposedMove) -> bool:
        """Returns whether the record `asked` of a proposed move can be deleted: the binding no
        longer exists, or its replicas have changed since and the policy's window has passed."""
        return name not in self.state.bindings or (
            asked.held != held_of(self.state, name) and asked.at + self.window <= self.at
        )

    def _rests(self, name: str, held: Mapping[str, int]) -> bool:
        """Returns whether the binding may not be moved yet (exponential back-off).

        It rests for the policy's window after a proposed move. If its replicas per cluster (`held`)
        are still the same as at the proposal, the rest doubles with every repeated proposal, up to
        the larger of the window and `REST_MAX`.
        """
        asked = self.state.upkeep.moved.get(name)
        if asked is None:
            return False
        again = asked.times - 1 if asked.held == held else 0
        return self.at < asked.at + min(max(REST_MAX, self.window), self.window << min(again, 32))

    def budgets(self) -> dict[str, int]:
        """Returns cluster -> number of replicas that may still be moved out of the cluster. The
        limit is for the policy's time window that ends now.

        The number is `budget_percent` of the replicas assigned to the cluster, rounded up, minus
        the replicas whose move out of the cluster this process proposed within the window; at least
        0. Example: 30 replicas, 10 percent, 1 replica proposed: 3 - 1 = 2.
        """
        budgets: dict[str, int] = {}
        for name in self.clusters:
            gone = sum(n for _, n in self.state.upkeep.proposed.get(name, ()))
            there = sum(share.replicas for share in self.state.clusters[name].shares.values())
            budgets[name] = max(0, -(-there * self.policy.budget_percent // 100) - gone)
        return budgets

    def movable(self, binding: Binding) -> Movable | None:
        """Returns the binding as a candidate for the rebalancing search, or None if it may not be
        moved now.

        The result is None in four cases:

        - the binding is never rebalanced (for example, its replicas are not divided by capacity);
        - a move of the binding was proposed before and the pause after it is not over;
        - not all of its replicas are assigned to clusters to which the rebalancing policy applies;
        - no affinity term allows all its present clusters.

        The result names the clusters that may hold its replicas. `room` is the estimate per
        cluster; it has no entry for a cluster without a capacity estimate. One resource is used to
        compare how full the clusters are: cpu if the pods request cpu, otherwise the first
        requested resource by name. Prices are computed only if the objective of the policy is
        `cost`.
        """
        if not _of_a_kind(binding):
            return None
        held = held_of(self.state, binding.name)
        if self._rests(binding.name, held):
            return None
        if sum(held.values()) != binding.replicas or not all(
            name in self.clusters for name in held
        ):
            return None
        homes = self._home(binding, held)
        if homes is None:
            return None
        key, requirements = binding.requirements.class_key, binding.requirements
        room = {
            name: counted.classes.get(key, 0)
            for name in homes
            if (counted := self.known[name][1]) is not None
        }
        resource = (
            "cpu" if "cpu" in requirements.requests else min(requirements.requests, default="cpu")
        )
        prices = (
            prices_of(held, self.known, key, requirements)
            if self.policy.objective == "cost"
            else {}
        )
        return Movable(
            binding.name,
            held,
            homes,
            room,
            requirements.requests.get(resource, 0),
            resource,
            prices,
            self._permits(binding),
        )

    def _home(self, binding: Binding, held: Mapping[str, int]) -> list[str] | None:
        """Returns the clusters that the binding may use, or None if no affinity term of its
        placement allows all its present clusters.

        The first affinity term that allows every cluster in `held` is taken as the active term. The
        result has all clusters that pass the filters under this term. `held`: cluster -> replicas
        that the binding has there now. Results are cached by placement, group/version/kind of the
        binding's resource, and term.
        """
        placement = binding.placement
        for place, term in enumerate(placement.terms):
            question = ClusterQuery(placement, in_force(term, True), binding.resource.gvk)
            if any(first_refusal(question, self.clusters[name], True) is not None for name in held):
                continue
            key = (canonical(placement), binding.resource.gvk, place)
            if key not in self._homes:
                self._homes[key] = [
                    n
                    for n, facts in self.clusters.items()
                    if first_refusal(question, facts) is None
                ]
            return self._homes[key]
        return None

    def _permits(self, binding: Binding) -> Callable[[Mapping[str, int]], bool]:
        limits = {limit.cluster: limit for limit in binding.placement.replicas.limits}
        spread, clusters = binding.placement.spread, self.clusters

        def permits(targets: Mapping[str, int]) -> bool:
            for name, n in targets.items():
                limit = limits.get(name, limits.get("*"))
                if limit is not None and (
                    n < limit.least or (limit.most is not None and n > limit.most)
                ):
                    return False
            return not spread or not broken(
                spread, [clusters[name] for name in targets], binding.replicas
            )

        return permits

    def fill(self, movable: list[Movable]) -> dict[str, dict[str, ObjectiveCluster]]:
        """Returns resource -> cluster -> its used amount and its total (used plus free), for each
        resource by which a candidate is compared.

        Used is the sum of the requests of all known bindings in the cluster. Clusters without a
        capacity estimate are left out.
        """
        return {
            resource: self._filled(resource)
            for resource in sorted({one.resource for one in movable})
        }

    def _filled(self, resource: str) -> dict[str, ObjectiveCluster]:
        places: dict[str, ObjectiveCluster] = {}
        for name, (_, counted) in self.known.items():
            if counted is None:
                continue
            used = 0
            for binding, share in self.state.clusters[name].shares.items():
                facts = self.state.bindings.get(binding)
                used += (
                    0
                    if facts is None
                    else share.replicas * facts.requirements.requests.get(resource, 0)
                )
            places[name] = ObjectiveCluster(used, used + max(0, counted.free.get(resource, 0)))
        return places


def _of_a_kind(binding: Binding) -> bool:
    """Returns whether a binding may be rebalanced at all. All of these conditions must hold:

    - Its replicas are divided by capacity (dynamic weight or `Aggregated`), and there is at least
      one.
    - It has no components, is not suspended and does not belong to another scheduler.
    - It is in no workload group (bindings that must, or must not, run in the same clusters).
    - Its placement has no `rebalance_after_s` and no `failback_after_s`: so no other setting moves
      it.
    """
    placement, scheduling = binding.placement, binding.placement.replicas
    by_room = scheduling.preference == "Aggregated" or scheduling.dynamic
    return (
        scheduling.type == "Divided"
        and by_room
        and binding.replicas > 0
        and not binding.components
        and not binding.suspended
        and not another_schedulers(binding)
        and not (binding.affinity_group or binding.anti_affinity_group)
        and placement.steadiness.rebalance_after_s is None
        and placement.steadiness.failback_after_s is None
    )


def held_of(state: DeschedulerState, binding: str) -> dict[str, int]:
    """Returns cluster -> number of the binding's replicas assigned there."""
    return {
        name: state.clusters[name].shares[binding].replicas
        for name in sorted(state.clusters_of(binding))
    }
