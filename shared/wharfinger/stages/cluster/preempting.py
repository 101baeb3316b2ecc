"""Room for what fits nowhere, at the cost of what is less important: which replicas have to go, and for whom the node is kept.

Only replicas that this plane has placed itself are ever victims, and only those of lower priority. Pods of others are never
touched, whatever their priority says; a group goes as a whole; and no disruption budget is broken, where kube-scheduler breaks
one when nothing else helps. A victim whose pod is still seen goes on taking its room; the node is then kept for who shall have
it until the pod has gone, for five minutes at most.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from uuid import UUID

import msgspec

from wharfinger.engine.framework import preemption
from wharfinger.engine.nodes.occupancy import shares_of
from wharfinger.events.decisions import ReplicasNominated, ReplicasReleased
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.choosing import placer_of, room_kept
from wharfinger.stages.cluster.picture import is_placed, observed, pictured, wanted_pod
from wharfinger.stages.cluster.state import ClusterState

PREEMPTED = "Preempted"
"""Why replicas were released."""

PREEMPTING = "DefaultPreemption"

KEPT_US: Micros = 300 * 1_000_000
"""How long a node is kept for a replica whose room is not free yet."""

TRIES_MAX = 16
"""Victims of one binding are sought so often in a round; what then has no room is refused, and asked for again."""


def make_room(
    state: ClusterState, binding: str, missing: int, at: Micros, agreed: Container[str] | None = None
) -> list[Draft]:
    """For one replica at least: the releases, and the nomination where the room is not free at once. Empty: nothing can be done.
    `agreed`: the nodes on which others let it happen; None: nobody else is asked."""
    if missing <= 0 or state.tries.get(binding, 0) >= TRIES_MAX or not may_preempt(state, binding):
        return []
    state.tries[binding] = state.tries.get(binding, 0) + 1
    with room_kept(state, binding):
        if placer_of(state, binding).diagnose(state.book.held[binding].cls).feasible:
            return []  # there was room, and the binding has all it may have
    found = next((c for c in candidates(state, binding) if agreed is None or c.node in agreed), None)
    return [] if found is None else _drafts(state, binding, found, at)


def may_preempt(state: ClusterState, binding: str) -> bool:
    """Whether there is any sense in looking for victims."""
    held = state.book.held[binding]
    return not held.cls.requirements.traits.never_preempts and _anybody_below(state, held.priority)


def _anybody_below(state: ClusterState, priority: int) -> bool:
    return any(held.placed and held.priority < priority for held in state.book.held.values())


def candidates(state: ClusterState, binding: str) -> list[preemption.Candidate]:
    """Where it would fit, and whose replicas would have to go; what costs least first."""
    held = state.book.held[binding]
    framework = state.profiles.framework(held.cls.requirements.traits.scheduler)
    if all(plugin.name != PREEMPTING for plugin in framework.at("postFilter")):
        return []  # the profile has switched it off
    snapshot, pod = pictured(state, promised_but_to=binding), wanted_pod(held, binding)
    outcome = framework.run(snapshot, pod)
    arguments = msgspec.structs.replace(framework.profile.arguments.preemption, whole_groups=True)
    found = preemption.find(
        outcome.cycle, pod, framework.refused(outcome), arguments, may_go=lambda other: is_placed(state, other)
    ).candidates
    if outcome.feasible:
        return []
    return sorted((c for c in found if not c.violations and c.node not in state.book.closed), key=preemption.cost)


def _drafts(state: ClusterState, binding: str, found: preemption.Candidate, at: Micros) -> list[Draft]:
    held = state.book.held[binding]
    cause = uuid_of(held.assignment)
    of: dict[str, list[int]] = {}
    for victim in found.victims:
        assert victim.binding in state.book.held, "only replicas of ours are touched"
        assert state.book.held[victim.binding].priority < held.priority, "nobody gives way to his like"
        of.setdefault(victim.binding, []).append(victim.ordinal)
    drafts = [_released(state, name, sorted(ordinals), cause) for name, ordinals in sorted(of.items())]
    if any(observed(state, victim.node, victim.binding, victim.ordinal) for victim in found.victims):
        nominated = ReplicasNominated(state.cluster, binding, held.assignment, found.node, 1, at + KEPT_US)
        drafts.append(Draft(nominated, binding, "nominated", cause))
    return drafts


def _released(state: ClusterState, binding: str, ordinals: Sequence[int], cause: UUID | None) -> Draft:
    held = state.book.held[binding]
    shares = shares_of(held.placed, ordinals)
    data = ReplicasReleased(state.cluster, binding, held.assignment, shares, reason=PREEMPTED)
    return Draft(data, binding, "released", cause)
