"""Placement in a joined cluster: the unit is the pod that exists and waits for this scheduler.

The cluster's controllers make the pods, and webhooks change them. So a pod is placed by its own
requirements, and the replicas that the fleet assigned are not placed before their pods exist. A
placed replica names its pod by uid. It is released when the pod is gone, runs on another node, or
waits while its node does not exist any more or refuses it now (`unbound_pods`); nothing else
releases it: which pods of a workload go is the choice of the cluster's controllers.

A pod belongs to the binding of its workload if the fleet has assigned that to this cluster, else to
a binding of its own (`local_binding`). Its ordinal is its index in a StatefulSet or an indexed Job
where that is free, else the lowest free one. Pods that run already, or that others bound, become
replicas without being placed (`adoption`).

A pod that fits nowhere waits; nodes are requested for it as for pods of other schedulers
(`other_pods`). After `ClusterProfile.unplaced_us` its replica is given back to the fleet, which
makes the workload here smaller; a pod above the assigned number, such as the surge of a rollout,
only waits. The pods of a group are placed when enough of them fit. Where running pods may be
evicted, a pod that fits nowhere preempts others (`pod_preemption`). Pods about which an extender
has a say are not placed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from wharfinger.domain.ids import BindingName, PodUid
from wharfinger.domain.node import WaitingPod
from wharfinger.domain.reasons import ReplicasRefusal
from wharfinger.domain.scheduler import same_scheduler
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework import extenders
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.fit import most_common
from wharfinger.engine.nodes.message import message
from wharfinger.engine.nodes.occupancy import shares_of
from wharfinger.engine.nodes.place import Diagnosis, NodeChoice, PlacementContext, Placer
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.adoption import PODS_MAX, adopt_pods, free_ordinals, local_binding
from wharfinger.stages.cluster.answers import (
    placed_draft,
    refused,
    released_in_place,
    shares_on,
    unknown_load,
)
from wharfinger.stages.cluster.barred_nodes import barred_now, said_of_barred, without_barred
from wharfinger.stages.cluster.explain import RANKED, explained
from wharfinger.stages.cluster.group_members import Group, group_of
from wharfinger.stages.cluster.node_search import charge, placer_for, profile_name, room_kept
from wharfinger.stages.cluster.pod_preemption import end_preemptions, preempt, said_of_preemption
from wharfinger.stages.cluster.provisioning import provision
from wharfinger.stages.cluster.state import ClusterStageState, may_provision
from wharfinger.stages.cluster.unbound_pods import release_refused

POD_GONE, NODE_GONE, BOUND_ELSEWHERE = "PodGone", "NodeGone", "BoundElsewhere"
"""Reasons of a release."""

KINDS_MAX = 500
"""Maximum number of kinds of pods that are placed as one batch."""


@dataclass(slots=True)
class AlikePods:
    """Waiting pods of one binding with equal requirements and priority, the oldest first."""

    binding: BindingName
    cls: PodClass
    pods: list[WaitingPod] = field(default_factory=list)


def settle_pods(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    yield from end_preemptions(state, at)
    elsewhere = frozenset([uid for uid in state.book.astray if uid in state.book.node_of])
    yield from _release_astray(state)
    yield from release_refused(state)
    yield from adopt_pods(state, elsewhere)
    yield from _place_waiting(state, at)
    if state.exhausted:
        return
    if not state.gathers_for_nodes(at):
        yield from provision(state, {}, at)
    yield from _give_back(state, at)


# --- releases


def _release_astray(state: ClusterStageState) -> Iterator[Draft]:
    book = state.book
    found: dict[tuple[BindingName, str], list[int]] = {}
    for uid in sorted(book.astray):
        binding, ordinal = book.replica_of[uid]
        found.setdefault((binding, _why_released(state, uid)), []).append(ordinal)
    if book.without_pod:
        # the cluster was fed without pods before: nothing was made of these
        for binding, held in sorted(book.held.items()):
            ordinals = [ordinal for ordinal, replica in held.placed.items() if not replica.pod]
            if ordinals:
                found.setdefault((binding, POD_GONE), []).extend(ordinals)
    for (binding, reason), ordinals in sorted(found.items()):
        for start in range(0, len(ordinals), PODS_MAX):
            if state.exhausted:
                return
            part = sorted(ordinals)[start : start + PODS_MAX]
            shares = shares_of(book.held[binding].placed, part)
            cause = uuid_of(book.held[binding].assignment)
            yield released_in_place(state, binding, shares, reason, cause)


def _why_released(state: ClusterStageState, uid: PodUid) -> str:
    if uid in state.book.node_of:
        return BOUND_ELSEWHERE
    return NODE_GONE if uid in state.book.waiting.pods else POD_GONE


# --- which pods, and whose


def waits_for_us(state: ClusterStageState, pod: WaitingPod) -> bool:
    """Whether the pod waits to be placed here: it names our scheduler, has no scheduling gates and
    no node, and no place was decided for it."""
    book, traits = state.book, pod.requirements.traits
    return (
        same_scheduler(traits.scheduler, book.scheduler)
        and not traits.gates
        and pod.uid not in book.replica_of
        and book.waits(pod)
    )


def binding_of(state: ClusterStageState, pod: WaitingPod) -> BindingName:
    """Returns the binding that the pod is a replica of."""
    if pod.binding and pod.binding in state.book.held:
        return pod.binding
    workload = pod.binding or f"{pod.requirements.traits.home}/{pod.name}-pod"
    return local_binding(workload, state.cluster)


def pods_to_place(state: ClusterStageState) -> list[WaitingPod]:
    """Returns the pods that wait to be placed here: the highest priority first, then the oldest."""
    pods = [pod for pod in state.book.waiting.pods.values() if waits_for_us(state, pod)]
    pods.sort(key=lambda pod: (-pod.priority, pod.created_us, pod.uid))
    return pods


def alike(state: ClusterStageState, pods: Sequence[WaitingPod]) -> list[AlikePods]:
    """Groups pods of one priority by binding and requirements, in the order of the first of each. A
    pod for which others are evicted, or were in vain, is alone."""
    found: dict[tuple[str, str, str], AlikePods] = {}
    for pod in pods:
        binding = binding_of(state, pod)
        alone = pod.uid in state.preempting or pod.uid in state.in_vain
        key = binding, pod.requirements.pod_key, pod.uid if alone else ""
        if key not in found:
            found[key] = AlikePods(binding, state.book.class_of(pod.requirements))
        found[key].pods.append(pod)
    return list(found.values())


def class_for(
    state: ClusterStageState, binding: BindingName, requirements: Requirements
) -> PodClass:
    """Returns the class by which nodes are searched for such a pod: its own, or one that no barred
    node is feasible for."""
    return state.book.class_of(without_barred(state, binding, requirements))


def searched_class(state: ClusterStageState, kind: AlikePods) -> PodClass:
    """Returns the class by which nodes are searched for these pods."""
    if not barred_now(state, kind.binding):
        return kind.cls
    return class_for(state, kind.binding, kind.cls.requirements)


# --- placements


def _place_waiting(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Places the waiting pods, one priority after the other: first those for which room is made,
    then the others that are placed one by one, then the groups. Those that still have no place
    preempt others. A lower priority gets what is left."""
    pods = pods_to_place(state)
    while pods and not state.exhausted:
        level = [pod for pod in pods if pod.priority == pods[0].priority]
        pods = pods[len(level) :]
        single: list[AlikePods] = []
        groups: dict[Group, list[AlikePods]] = {}
        for kind in alike(state, level):
            if _has_extender(state, kind.cls):
                continue
            group = group_of(kind.cls)
            (single if group is None else groups.setdefault(group, [])).append(kind)
        for kind in single:
            if kind.pods[0].uid in state.preempting:
                yield from _place(state, _within(state, [kind]))
        others = [kind for kind in single if kind.pods[0].uid not in state.book.replica_of]
        others = [kind for kind in others if kind.pods[0].uid not in state.preempting]
        for start in range(0, len(others), KINDS_MAX):
            yield from _place(state, _within(state, others[start : start + KINDS_MAX]))
        for group, kinds in groups.items():
            if not state.exhausted:
                yield from _place(state, kinds, _missing_of(state, group, kinds))
        yield from _preempt(state, single, at)


def _preempt(state: ClusterStageState, kinds: Sequence[AlikePods], at: Micros) -> Iterator[Draft]:
    """Makes room for pods of these kinds that were not placed. Of each kind one pod after the
    other, until there is no node for the next one."""
    if not state.book.evicts:
        return
    for kind in kinds:
        for pod in kind.pods:
            if state.exhausted or pod.uid in state.book.replica_of:
                continue
            drafts = list(preempt(state, kind.binding, searched_class(state, kind), pod, at))
            yield from drafts
            if not drafts:
                break


def _within(state: ClusterStageState, kinds: Sequence[AlikePods]) -> list[AlikePods]:
    """Returns the kinds with no more pods than the round may still place."""
    left = state.work_left
    if left is None:
        return list(kinds)
    kept: list[AlikePods] = []
    for kind in kinds:
        if left > 0:
            kept.append(AlikePods(kind.binding, kind.cls, kind.pods[:left]))
            left -= len(kind.pods)
    return kept


def _missing_of(state: ClusterStageState, group: Group, kinds: Sequence[AlikePods]) -> int:
    """Returns how many pods of the group have to be placed now so that it reaches its minimum."""
    least = max(kind.cls.requirements.traits.min_count for kind in kinds)
    placed = sum(
        group_of(replica.cls) == group
        for name in state.members.by_group.get(group, ())
        for replica in state.book.held[name].placed.values()
    )
    return max(0, least - placed)


def _place(state: ClusterStageState, kinds: Sequence[AlikePods], least: int = 0) -> Iterator[Draft]:
    """Places the pods as one batch; none of them if fewer than `least` fit."""
    if not kinds:
        return
    placer = placer_for(state, kinds[0].cls.requirements.traits.scheduler)
    plans = _planned(state, placer, kinds)
    if sum(len(choices) for choices, _ in plans) < least:
        return
    for kind, (choices, seen) in zip(kinds, plans, strict=True):
        for start in range(0, len(choices), PODS_MAX):
            part = choices[start : start + PODS_MAX]
            yield _placed(state, kind, kind.pods[start : start + len(part)], part, seen, placer)


def _planned(
    state: ClusterStageState, placer: Placer, kinds: Sequence[AlikePods]
) -> list[tuple[list[NodeChoice], PlacementContext]]:
    """Chooses nodes for the pods of all kinds, with the situation before each kind was placed.
    Leaves the nodes unchanged."""
    priority = kinds[0].pods[0].priority
    own = {kind.cls.requirements.pod_key for kind in kinds}
    own |= {pod.uid for kind in kinds for pod in kind.pods}
    wants = [(searched_class(state, kind), len(kind.pods)) for kind in kinds]
    with room_kept(state, floor=priority, but=own):
        if len(wants) == 1 and wants[0][1] == 1:
            cls = wants[0][0]
            ranked = placer.ranked(cls, RANKED)
            return [(ranked[:1], PlacementContext(placer.diagnose(cls), ranked))]
        plans: list[tuple[list[NodeChoice], PlacementContext]] = []
        charged: list[tuple[PodClass, NodeChoice]] = []
        for (cls, _), (choices, seen) in zip(
            wants, placer.place_batch_seen(wants, None, RANKED), strict=True
        ):
            if seen is None:
                seen = PlacementContext(placer.diagnose(cls), placer.ranked(cls, RANKED))
            plans.append((choices, seen))
            for choice in choices:
                charged.append((cls, choice))
                charge(state, choice.row, cls, 1, choice.devices)
        for cls, choice in charged:
            back = [(index, -milli) for index, milli in choice.devices]
            charge(state, choice.row, cls, -1, back)
    return plans


def _placed(
    state: ClusterStageState,
    kind: AlikePods,
    pods: Sequence[WaitingPod],
    choices: Sequence[NodeChoice],
    seen: PlacementContext,
    placer: Placer,
) -> Draft:
    held = state.book.held.get(kind.binding)
    assignment = "" if held is None else held.assignment
    taken = () if held is None else held.placed
    ordinals = free_ordinals(taken, [pod.index for pod in pods])
    note = " ".join(
        [
            said
            for said in (unknown_load(state, placer), said_of_barred(state, kind.binding))
            if said
        ]
    )
    why = explained(seen.diagnosis, choices, seen.ranked, note)
    shares = shares_on(choices, ordinals, [pod.uid for pod in pods])
    return placed_draft(
        state, kind.binding, shares, why, uuid_of(assignment), kind.cls.requirements
    )


# --- what is given back


def _unplaced(state: ClusterStageState) -> dict[BindingName, list[WaitingPod]]:
    """Returns the waiting pods of assigned bindings that have no place, in the order of the queue.
    Left out are those for whose requirements a node was requested, and those for which others are
    evicted."""
    asked = {key for claim in state.pools.claims.values() for key in claim.others}
    found: dict[BindingName, list[WaitingPod]] = {}
    for pod in pods_to_place(state):
        held = state.book.held.get(pod.binding)
        waits = pod.requirements.pod_key not in asked and pod.uid not in state.preempting
        if held is not None and held.desired and waits:
            found.setdefault(pod.binding, []).append(pod)
    return found


def follow_unplaced(state: ClusterStageState) -> None:
    """Records since when each of these pods has had no place, at the end of a round."""
    since = state.unplaced
    uids = sorted(pod.uid for pods in _unplaced(state).values() for pod in pods)
    state.unplaced = {uid: since.get(uid, state.at) for uid in uids}


def _unplaced_after(state: ClusterStageState) -> Micros:
    """Returns how long a pod fits nowhere before its replica is given back: where nodes can be
    requested, not before that was due for it."""
    if may_provision(state):
        return max(state.unplaced_us, state.buying.longest_us)
    return state.unplaced_us


def given_back_next(state: ClusterStageState) -> Micros | None:
    """Returns when the replica of another waiting pod is given back; None: not without news."""
    after = _unplaced_after(state)
    dues = [since + after for since in state.unplaced.values()]
    return min((due for due in dues if due > state.at), default=None)


def _give_back(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Gives the replicas of pods that have fitted nowhere for `unplaced_us` back to the fleet. Of a
    binding no more than it lacks: replicas that are wanted here and have no pod on a node."""
    after = _unplaced_after(state)
    if not state.unplaced and after:
        return
    for binding, pods in sorted(_unplaced(state).items()):
        late = [p for p in pods if state.unplaced.get(p.uid, at) + after <= at]
        held = state.book.held[binding]
        count = min(len(late), held.counted_unbound)
        if count <= 0:
            continue
        cls = class_for(state, binding, late[0].requirements)
        own = {late[0].requirements.pod_key, *(pod.uid for pod in late)}
        with room_kept(state, floor=late[0].priority, but=own):
            diagnosis = placer_for(state, cls.requirements.traits.scheduler).diagnose(cls)
        reason: ReplicasRefusal = most_common(diagnosis.refused) if diagnosis.refused else "Gated"
        note = f"{late[0].name}: {why_waits(state, late[0])}"
        yield refused(state, binding, count, reason, note, diagnosis)


# --- why a pod waits


def _has_extender(state: ClusterStageState, cls: PodClass) -> bool:
    wants = cls.requirements
    asked = state.profiles.extenders(profile_name(state, wants.traits.scheduler))
    return any(extenders.interested(extender, wants) for extender in asked)


class WhyUnplaced(msgspec.Struct, frozen=True):
    """Why a waiting pod has no node. `sentence`: for people; empty: it would be placed in the next
    round. `reason`: that of most nodes, or one of the pod itself."""

    sentence: str
    reason: ReplicasRefusal = "InsufficientResources"
    diagnosis: Diagnosis = Diagnosis(0, 0, {})


def why_unplaced(state: ClusterStageState, pod: WaitingPod) -> WhyUnplaced:
    """Returns why the pod, which waits for this scheduler, has no node."""
    traits = pod.requirements.traits
    if traits.gates:
        gates = ", ".join(traits.gates)
        return WhyUnplaced(f"it waits for its scheduling gates: {gates}", "Gated")
    binding = binding_of(state, pod)
    cls = class_for(state, binding, pod.requirements)
    if _has_extender(state, cls):
        sentence = "an extender has a say about it, and none is asked about waiting pods"
        return WhyUnplaced(sentence, "Extender")
    placer = placer_for(state, traits.scheduler)
    own = {pod.requirements.pod_key, pod.uid}
    with room_kept(state, floor=pod.priority, but=own):
        diagnosis = placer.diagnose(cls)
        if not placer.ranked(cls, 1):
            sentence = message(placer, cls)
            for more in (said_of_barred(state, binding), said_of_preemption(state, pod.uid)):
                sentence = f"{sentence} {more}" if more else sentence
            return WhyUnplaced(sentence, most_common(diagnosis.refused), diagnosis)
    group = group_of(cls)
    if group is None:
        return WhyUnplaced("", diagnosis=diagnosis)
    sentence = f"too few pods of group {group[1]} have room"
    return WhyUnplaced(sentence, "GangDoesNotFit", diagnosis)


def why_waits(state: ClusterStageState, pod: WaitingPod) -> str:
    """Returns the sentence of `why_unplaced`."""
    return why_unplaced(state, pod).sentence
