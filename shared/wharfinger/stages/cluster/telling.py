"""What a cluster stream is told, and where it is written: nodes, pods and objects, assignments, policies, measurements."""

from __future__ import annotations

from uuid import UUID

from wharfinger.domain.policy import Policy
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.streams import FLEET
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.extending import forget
from wharfinger.stages.cluster.profile import IMMEDIATE
from wharfinger.stages.cluster.state import ClusterState, count_placed, loads_written, objects_changed

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
    before = set(book.lost)
    if not book.observe_nodes(nodes, at):
        return
    loads_written(state, [node.name for node in nodes.nodes])
    for node in nodes.nodes:
        if node.name in book.taint_since:
            state.causes[node.name] = str(id)
    for name in sorted(book.lost - before):
        state.causes[name] = str(id)
    forget_causes(state)


def forget_causes(state: ClusterState) -> None:
    book = state.book
    for name in [n for n in state.causes if n not in book.lost and n not in book.taint_since]:
        del state.causes[name]


def take_objects(state: ClusterState, told: ObjectsObserved) -> None:
    if state.objects.observe(told.kind, told.namespace, told.objects):
        objects_changed(state)


# --- policies and measurements


KINDS = frozenset(("KubeSchedulerConfiguration", "Policy", "DynamicSchedulerPolicy"))
"""Of the policies that say how pods are placed on nodes."""


def is_about_nodes(state: ClusterState, told: PolicyApplied | PolicyRemoved) -> bool:
    """Most policies are about clusters, and no news here. One that was is news whatever it says now: what else of it may be in
    the same round is not known yet."""
    key, policy = _policy_in(told)
    if policy is not None and (policy.scheduler is not None or policy.load is not None):
        return True
    return key.partition("/")[0] in KINDS or key in state.profiles.configs or key in state.load.policies


def policy_told(state: ClusterState, told: PolicyApplied | PolicyRemoved) -> None:
    key, policy = _policy_in(told)
    state.profiles.applied(key, None if policy is None else policy.scheduler)
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
