"""Preemption in a cluster stream: which replicas of lower priority are released, and for which
replica their node is reserved.

Victims are only replicas that this plane placed, with lower priority. Other pods are never touched,
at any priority. A group is preempted as a whole, and no disruption budget is violated,
whereas kube-scheduler violates one as a last resort. A victim whose pod is still reported keeps its
resources; the node is then nominated to the new replica until the pod has ended, for five minutes
at most.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from wharfinger.engine.framework import preemption
from wharfinger.engine.nodes.occupancy import shares_of
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.answers import nominated_draft, released_draft
from wharfinger.stages.cluster.framework_view import is_placed, observed, pictured, wanted_pod
from wharfinger.stages.cluster.node_search import placer_of, room_kept
from wharfinger.stages.cluster.state import ClusterStageState

PREEMPTED = "Preempted"
"""Reason of a release: preemption."""

PREEMPTING = "DefaultPreemption"

KEPT_US: Micros = 300 * 1_000_000
"""How long a node is reserved for a replica while its victims still run, in microseconds."""

TRIES_MAX = 16
"""Maximum number of preemptions for one binding in a round. Replicas that then fit on no node are
refused; the fleet may assign them again."""


def make_room(
    state: ClusterStageState,
    binding: str,
    missing: int,
    at: Micros,
    agreed: Container[str] | None = None,
) -> list[Draft]:
    """Drafts the preemption of replicas of lower priority on one node, so that at least one replica
    of the binding fits there. The node is the first of `candidates`, which are in order of cost.
    Returns the releases of the victims. If the pod of a victim is still reported by the cluster, a
    nomination follows, which reserves the room on the node for the binding until the pod has ended,
    at most five minutes.

    Returns an empty list if no replica is missing, if preemption is not allowed, if the binding has
    tried 16 times (`TRIES_MAX`) in this round, if a node is feasible without preemption, or if
    there is no candidate.

    `missing`: the number of replicas that have no node and do not wait for a reserved or requested
    one. `agreed`: the nodes on which scheduler extenders allow preemption; None: no extender takes
    part.
    """
    if missing <= 0 or state.tries.get(binding, 0) >= TRIES_MAX or not may_preempt(state, binding):
        return []
    state.tries[binding] = state.tries.get(binding, 0) + 1
    with room_kept(state, binding):
        if placer_of(state, binding).diagnose(state.book.held[binding].cls).feasible:
            return []  # there was room, and the binding has all it may have
    found = next(
        (c for c in candidates(state, binding) if agreed is None or c.node in agreed), None
    )
    return [] if found is None else _drafts(state, binding, found, at)


def may_preempt(state: ClusterStageState, binding: str) -> bool:
    """Returns whether the binding's pods may preempt and any placed binding has a lower
    priority."""
    held = state.book.held[binding]
    return not held.cls.requirements.traits.never_preempts and any(
        priority < held.priority for priority in state.book.placed_priorities
    )


def candidates(state: ClusterStageState, binding: str) -> list[preemption.PreemptionCandidate]:
    """Returns the nodes on which one replica of the binding fits after replicas of lower priority
    are evicted, each with its victims. The node with the lowest cost comes first. Two nodes are
    compared by the highest priority among their victims, then by the sum of the victims'
    priorities, then by the number of victims, then by start times of victims, then by node name.

    Victims are only replicas that this stage placed. A pod group is evicted as a whole. Nodes that
    are closed to new replicas, and nodes where a PodDisruptionBudget would be violated, are left
    out. Returns an empty list if the scheduler profile has no `DefaultPreemption` plugin, or if a
    node is feasible without preemption.
    """
    held = state.book.held[binding]
    framework = state.profiles.framework(held.cls.requirements.traits.scheduler)
    if all(plugin.name != PREEMPTING for plugin in framework.at("postFilter")):
        return []  # the profile has switched it off
    snapshot, pod = pictured(state, promised_but_to=binding), wanted_pod(held, binding)
    outcome = framework.run(snapshot, pod)
    arguments = msgspec.structs.replace(framework.profile.arguments.preemption, whole_groups=True)
    found = preemption.find(
        outcome.cycle,
        pod,
        framework.refused(outcome),
        arguments,
        may_go=lambda other: is_placed(state, other),
    ).candidates
    if outcome.feasible:
        return []
    return sorted(
        (c for c in found if not c.violations and c.node not in state.book.closed),
        key=preemption.cost,
    )


def _drafts(
    state: ClusterStageState, binding: str, found: preemption.PreemptionCandidate, at: Micros
) -> list[Draft]:
    held = state.book.held[binding]
    cause = uuid_of(held.assignment)
    of: dict[str, list[int]] = {}
    for victim in found.victims:
        assert victim.binding in state.book.held, "only replicas of ours are touched"
        assert state.book.held[victim.binding].priority < held.priority, (
            "nobody gives way to his like"
        )
        of.setdefault(victim.binding, []).append(victim.ordinal)
    drafts = [
        released_draft(
            state,
            name,
            shares_of(state.book.held[name].placed, sorted(ordinals)),
            PREEMPTED,
            cause,
            preemptor=binding,
        )
        for name, ordinals in sorted(of.items())
    ]
    if any(
        observed(state, victim.node, victim.binding, victim.ordinal) for victim in found.victims
    ):
        drafts.append(nominated_draft(state, binding, found.node, 1, at + KEPT_US))
    return drafts
