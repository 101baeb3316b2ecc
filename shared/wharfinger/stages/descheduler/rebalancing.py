"""Moves between clusters that a RebalancePolicy asks for: found here, every so often, over all clusters this process knows.

A look takes some of the bindings, in order of name, and goes on with the next ones another time. Looked at are those whose
replicas are divided by what fits, all there, in clusters that are heard of, and of no kind that has its own way of moving
(`rebalance-after-s`, groups of workloads). What is found is one RescheduleProposed a binding, with all its targets; the fleet stage
holds it against the present, and keeps budgets and rests, which are only guessed here: a process that begins anew has forgotten
what it proposed, and the stage has not.

A process that has only some of the clusters (there are several) moves only what lies in these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.domain.value import Value, canonical
from wharfinger.engine.fleet.cycle import terms_of
from wharfinger.engine.fleet.filters import Question, first_refusal, in_force, matches
from wharfinger.engine.fleet.keep import broken
from wharfinger.engine.fleet.objective import Place
from wharfinger.engine.fleet.rebalance import NAMES, Movable, Relocation, prices_of, rebalanced
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.envelope import derived_id
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler.facts import SECOND, DeschedulerState, Sighting
from wharfinger.stages.descheduler.health import Asked
from wharfinger.stages.descheduler.taints import another_schedulers

LOOKED_MAX = 1000
"""So many bindings are looked at at once."""

REST_MAX: Micros = 24 * 3600 * SECOND
"""What came to nothing again and again is proposed once a day."""

MOVES_MAX = 50
"""So many moves come of one look."""


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
    """What each policy whose time has come finds, at most `room` moves together."""
    found: list[Publication] = []
    for key, due in sorted(state.upkeep.runs.items()):
        if due <= at:
            _plan(state, key, at)
            found += _look(state, key, state.upkeep.rebalancing[key], at, min(MOVES_MAX, room - len(found)))
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


def _look(state: DeschedulerState, key: str, policy: RebalancePolicy, at: Micros, most: int) -> list[Publication]:
    assert policy.objective is not None, "without one it is not looked at"
    looking = _Looking(state, policy, at)
    movable = [one for name in _turn(state, key) if (one := looking.movable(state.bindings[name])) is not None]
    fill = looking.fill(movable) if policy.objective == "load" else {}
    moves = rebalanced(policy.objective, policy.gain_percent, movable, fill, looking.budgets(), most)
    return [_proposed(state, key, policy, move, at) for move in moves]


def _turn(state: DeschedulerState, key: str) -> list[str]:
    """The bindings whose turn it is, in order of name."""
    after = state.upkeep.after.get(key, "")
    names = sorted(name for name in state.bindings if name > after)
    state.upkeep.after[key] = names[LOOKED_MAX - 1] if len(names) > LOOKED_MAX else ""
    return names[:LOOKED_MAX]


def _proposed(state: DeschedulerState, key: str, policy: RebalancePolicy, move: Relocation, at: Micros) -> Publication:
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
        stream, move.name, reason, targets, objective=NAMES[policy.objective], gain=move.gain, policy=key
    )
    id = derived_id("proposal", "rebalance", stream, key, move.name, canonical(targets).decode(), at // SECOND)
    return Publication(data, move.name, stream, stream, id)


class _Looking:
    """What one look of one policy sees, asked together for all bindings."""

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
        self.known = {name: (facts, state.upkeep.capacity.get(name)) for name, facts in self.clusters.items()}
        self._homes: dict[tuple[bytes, str, int], list[str]] = {}
        self._forget()

    def _forget(self) -> None:
        upkeep = self.state.upkeep
        for name in [n for n, asked in upkeep.moved.items() if self._is_over(n, asked)]:
            del upkeep.moved[name]
        for name in [*upkeep.proposed]:
            upkeep.proposed[name] = [(at, n) for at, n in upkeep.proposed[name] if at + self.window > self.at]

    def _is_over(self, name: str, asked: Asked) -> bool:
        """It has moved, and rested since; or nothing is known of it any more."""
        return name not in self.state.bindings or (
            asked.held != held_of(self.state, name) and asked.at + self.window <= self.at
        )

    def _rests(self, name: str, held: Mapping[str, int]) -> bool:
        """After a move for the policy's window; where nothing came of what was proposed, twice as long each time."""
        asked = self.state.upkeep.moved.get(name)
        if asked is None:
            return False
        again = asked.times - 1 if asked.held == held else 0
        return self.at < asked.at + min(max(REST_MAX, self.window), self.window << min(again, 32))

    def budgets(self) -> dict[str, int]:
        """Cluster -> how many replicas may leave it still, as far as is known here."""
        budgets: dict[str, int] = {}
        for name in self.clusters:
            gone = sum(n for _, n in self.state.upkeep.proposed.get(name, ()))
            there = sum(share.replicas for share in self.state.clusters[name].shares.values())
            budgets[name] = max(0, -(-there * self.policy.budget_percent // 100) - gone)
        return budgets

    def movable(self, binding: Binding) -> Movable | None:
        """The binding as it may be moved; None: it may not, or not now."""
        if not _of_a_kind(binding):
            return None
        held = held_of(self.state, binding.name)
        if self._rests(binding.name, held):
            return None
        if sum(held.values()) != binding.replicas or not all(name in self.clusters for name in held):
            return None
        homes = self._home(binding, held)
        if homes is None:
            return None
        key, requirements = binding.requirements.class_key, binding.requirements
        room = {
            name: counted.classes.get(key, 0) for name in homes if (counted := self.known[name][1]) is not None
        }  # fmt: skip
        resource = "cpu" if "cpu" in requirements.requests else min(requirements.requests, default="cpu")
        prices = prices_of(held, self.known, key, requirements) if self.policy.objective == "cost" else {}
        return Movable(
            binding.name, held, homes, room, requirements.requests.get(resource, 0), resource, prices,
            self._permits(binding),
        )  # fmt: skip

    def _home(self, binding: Binding, held: Mapping[str, int]) -> list[str] | None:
        """The clusters it may go to, under the first affinity that admits all it has; None: under none."""
        placement = binding.placement
        for place, term in enumerate(terms_of(placement)):
            question = Question(placement, in_force(term, True), binding.resource.gvk)
            if any(first_refusal(question, self.clusters[name], True) is not None for name in held):
                continue
            key = (canonical(placement), binding.resource.gvk, place)
            if key not in self._homes:
                self._homes[key] = [n for n, facts in self.clusters.items() if first_refusal(question, facts) is None]
            return self._homes[key]
        return None

    def _permits(self, binding: Binding) -> Callable[[Mapping[str, int]], bool]:
        limits = {limit.cluster: limit for limit in binding.placement.replicas.limits}
        spread, clusters = binding.placement.spread, self.clusters

        def permits(targets: Mapping[str, int]) -> bool:
            for name, n in targets.items():
                limit = limits.get(name, limits.get("*"))
                if limit is not None and (n < limit.least or (limit.most is not None and n > limit.most)):
                    return False
            return not spread or not broken(spread, [clusters[name] for name in targets], binding.replicas)

        return permits

    def fill(self, movable: list[Movable]) -> dict[str, dict[str, Place]]:
        """Of every resource that is compared: what all bindings use in each cluster, and that with what is free."""
        return {resource: self._filled(resource) for resource in sorted({one.resource for one in movable})}

    def _filled(self, resource: str) -> dict[str, Place]:
        places: dict[str, Place] = {}
        for name, (_, counted) in self.known.items():
            if counted is None:
                continue
            used = 0
            for binding, share in self.state.clusters[name].shares.items():
                facts = self.state.bindings.get(binding)
                used += 0 if facts is None else share.replicas * facts.requirements.requests.get(resource, 0)
            places[name] = Place(used, used + max(0, counted.free.get(resource, 0)))
        return places


def _of_a_kind(binding: Binding) -> bool:
    """Whether bindings like this are moved at all."""
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
    """Cluster -> how many replicas the binding has there."""
    return {name: state.clusters[name].shares[binding].replicas for name in sorted(state.clusters_of(binding))}
