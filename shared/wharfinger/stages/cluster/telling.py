"""What a cluster stream is told, and where it is written: nodes, pods and objects, assignments, policies, measurements."""

from __future__ import annotations

from uuid import UUID

import msgspec

from wharfinger.domain.policy import Policy
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved, PodsObserved
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.streams import FLEET
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.extending import forget
from wharfinger.stages.cluster.profile import IMMEDIATE
from wharfinger.stages.cluster.state import ClusterState, count_placed, loads_written, objects_changed
from wharfinger.stages.pools import NOMINATED_US, is_of_pools

# --- assignments


def take_assignments(state: ClusterState, decided: AssignmentsDecided, at: Micros) -> None:
    """A fleet stream's items in order of seq; what was seen before is skipped, and our own decisions come back ignored."""
    if not decided.stream.startswith(FLEET):
        return
    last = state.seen.get(decided.stream, 0)
    highest = last
    for item in decided.items:
        if item.seq <= last:
            continue
        highest = max(highest, item.seq)
        if isinstance(item, Assigned):
            _assign(state, item)
    if highest > last:
        state.seen[decided.stream] = highest
        _gather(state, at)


def _assign(state: ClusterState, item: Assigned) -> None:
    book = state.book
    before = book.held.get(item.binding)
    was = None if before is None else (before.cls.key, before.uid)
    had = 0 if before is None else before.desired
    said_of = None if before is None else (before.cls.pod_key, before.uid)
    book.assign(item.binding, item.uid, item.decision, item.replicas, item.requirements, item.priority)
    now = book.held.get(item.binding)
    state.members.follow(item.binding, now)
    if now is not None:
        state.demand.ask(item.requirements, now.desired - (had if (now.cls.key, now.uid) == was else 0))
    if item.binding in state.nominated and (now is None or (now.cls.key, now.uid) != was):
        del state.nominated[item.binding]  # room was made for something else
    if now is None or (now.cls.pod_key, now.uid) != said_of:
        forget(state, item.binding)


def _gather(state: ClusterState, at: Micros) -> None:
    """A window opens with the first that has to wait, and stays open while more comes."""
    if state.window == IMMEDIATE:
        return
    if state.gathering is None:
        state.gathering = (at, at)
    else:
        state.gathering = (state.gathering[0], at)


# --- nodes and objects


def observe_nodes(state: ClusterState, nodes: NodesObserved, id: UUID, at: Micros) -> None:
    """Take a bucket in, and remember it as the cause where it may drive replicas away."""
    book = state.book
    before, not_yet = set(book.lost), _not_initialized(state)
    if not state.pools.observe_nodes(book, state.policies, state.cluster, nodes, at):
        return
    if not_yet:
        _shorten_promises(state, not_yet - _not_initialized(state), at)
    loads_written(state, [node.name for node in nodes.nodes])
    for node in nodes.nodes:
        if node.name in book.taint_since:
            state.causes[node.name] = str(id)
    for name in sorted(book.lost - before):
        state.causes[name] = str(id)
    forget_causes(state)


def _not_initialized(state: ClusterState) -> set[str]:
    """Nodes on which room is kept, and that are not to be counted on yet."""
    book, policies = state.book, state.policies
    names = {nomination.node for several in state.nominated.values() for nomination in several}
    return {n for n in names if n in book.nodes and not policies.initialized(state.cluster, book.nodes[n])}


def _shorten_promises(state: ClusterState, ready: set[str], at: Micros) -> None:
    """Who waited for these nodes can go to them now; who does not go soon does not fit."""
    until = at + NOMINATED_US
    for binding, several in state.nominated.items():
        state.nominated[binding] = tuple([
            msgspec.structs.replace(n, until=min(n.until, until)) if n.node in ready else n for n in several
        ])  # fmt: skip


def observe_pods(state: ClusterState, pods: PodsObserved, at: Micros) -> None:
    """Whoever was moved and is seen where it was moved to has arrived."""
    if not state.pools.observe_pods(state.book, pods, at):
        return
    for pod in pods.pods:
        motion = state.motion.get(pod.binding, {}).get(pod.ordinal)
        if motion is not None and motion.node == pods.node and not pod.terminating:
            end_motion(state, pod.binding, pod.ordinal)


def end_motion(state: ClusterState, binding: str, ordinal: int) -> None:
    of_binding = state.motion.get(binding, {})
    of_binding.pop(ordinal, None)
    if not of_binding:
        state.motion.pop(binding, None)


def forget_causes(state: ClusterState) -> None:
    book = state.book
    for name in [n for n in state.causes if n not in book.lost and n not in book.taint_since]:
        del state.causes[name]


def take_objects(state: ClusterState, told: ObjectsObserved) -> None:
    if state.objects.observe(told.kind, told.namespace, told.objects):
        objects_changed(state)


# --- policies and measurements


KINDS = frozenset((
    "KubeSchedulerConfiguration", "Policy", "DynamicSchedulerPolicy", "NodePool", "NodeOverlay", "InstanceTypes"
))  # fmt: skip
"""Of the policies that say how pods are placed on nodes, and what nodes there could be."""


def is_about_nodes(state: ClusterState, told: PolicyApplied | PolicyRemoved) -> bool:
    """Most policies are about clusters, and no news here. One that was is news whatever it says now: what else of it may be in
    the same round is not known yet."""
    key, policy = _policy_in(told)
    if policy is not None and (policy.scheduler is not None or policy.load is not None or is_of_pools(policy)):
        return True
    if key.partition("/")[0] in KINDS or state.policies.knows(key):
        return True
    return key in state.profiles.configs or key in state.load.policies


def policy_told(state: ClusterState, told: PolicyApplied | PolicyRemoved) -> None:
    key, policy = _policy_in(told)
    state.profiles.applied(key, None if policy is None else policy.scheduler)
    state.policies.applied(key, policy)
    if state.load.policy_applied(key, None if policy is None else policy.load):
        count_placed(state)


def _policy_in(told: PolicyApplied | PolicyRemoved) -> tuple[str, Policy | None]:
    if isinstance(told, PolicyApplied):
        return told.policy.key, told.policy
    return Policy(told.kind, told.name, told.namespace).key, None


def take_load(state: ClusterState, told: NodeLoadObserved | HotValueObserved) -> None:
    """Measurements count for something once a policy says what."""
    if not state.load.idle:
        state.load.observe(told)
