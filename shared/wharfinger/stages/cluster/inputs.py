"""The inputs of a cluster stream and how each is folded: nodes, pods, objects, assignments,
policies, measurements."""

from __future__ import annotations

from uuid import UUID

import msgspec

from wharfinger.domain.policy import Policy
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved, PodsObserved
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.streams import FLEET
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster import other_pods
from wharfinger.stages.cluster.displaced import follow_missing
from wharfinger.stages.cluster.extenders import forget
from wharfinger.stages.cluster.profile import IMMEDIATE
from wharfinger.stages.cluster.shrunk_nodes import follow_size
from wharfinger.stages.cluster.state import (
    ClusterStageState,
    count_placed,
    loads_written,
    may_provision,
    objects_changed,
    touch,
    touch_all,
)
from wharfinger.stages.pools import NOMINATED_US

# --- assignments


def take_assignments(state: ClusterStageState, decided: AssignmentsDecided, at: Micros) -> None:
    """Folds the assignments of one message from a fleet stream: how many replicas of each binding
    this cluster has to place. Items whose seq was folded before are skipped. Messages of other
    streams are ignored, such as the decisions of this cluster stream itself.

    New items open the batch window, or extend it. A batch window is the time in which replicas are
    collected to be placed together.
    """
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


def _assign(state: ClusterStageState, item: Assigned) -> None:
    book = state.book
    before = book.held.get(item.binding)
    was = None if before is None else (before.cls.key, before.uid)
    had = 0 if before is None else before.desired
    said_of = None if before is None else (before.cls.pod_key, before.uid)
    book.assign(
        item.binding, item.uid, item.decision, item.replicas, item.requirements, item.priority
    )
    now = book.held.get(item.binding)
    state.members.follow(item.binding, now)
    if now is not None:
        state.demand.ask(
            item.requirements, now.desired - (had if (now.cls.key, now.uid) == was else 0)
        )
    if said_of is not None and now is not None and now.cls.pod_key != said_of[0]:
        touch(state, {replica.node for replica in now.placed.values()})  # they got its class
    if item.binding in state.nominated and (now is None or (now.cls.key, now.uid) != was):
        del state.nominated[item.binding]  # room was made for something else
    if now is None or (now.cls.key, now.uid) != was:
        state.displaced.pop(item.binding, None)  # a new request
    follow_missing(state, item.binding)
    if now is None or (now.cls.pod_key, now.uid) != said_of:
        forget(state, item.binding)


def _gather(state: ClusterStageState, at: Micros) -> None:
    """Updates the batch windows: the first assignment opens them, and each later one extends
    them."""
    if state.window == IMMEDIATE and (state.buying == IMMEDIATE or not may_provision(state)):
        return
    if state.gathering is None:
        state.gathering = (at, at)
    else:
        state.gathering = (state.gathering[0], at)


# --- nodes and objects


def observe_nodes(state: ClusterStageState, nodes: NodesObserved, id: UUID, at: Micros) -> None:
    """Folds one observed bucket (a part of the cluster's nodes) into the state.

    `id`: the id of the event. It becomes the cause of later releases from nodes of the bucket that
    have NoExecute taints, and from nodes that no longer exist. Room that is reserved on a node
    which is now initialized stays reserved for at most 20 seconds from now (`NOMINATED_US`).
    """
    book = state.book
    before, not_yet = set(book.lost), _not_initialized(state)
    had = {name: book.nodes[name] for name in _in_use(book, nodes)}
    all_change = nodes.buckets != book.bucket_count
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
    for name, old in sorted(had.items()):
        follow_size(state, old, book.nodes.get(name), str(id))
    named = book.nodes if all_change else [*had, *(node.name for node in nodes.nodes)]
    touch(state, [name for name in named if book.nodes.get(name) != had.get(name)])


def _in_use(book: Occupancy, nodes: NodesObserved) -> list[str]:
    """Returns the names of the nodes that the event can change and that hold replicas."""
    if nodes.buckets != book.bucket_count:  # may replace all buckets
        return [name for name in book.on_node if name in book.nodes]
    names = [*book.buckets.get(nodes.bucket, ()), *(node.name for node in nodes.nodes)]
    return [name for name in names if name in book.on_node and name in book.nodes]


def _not_initialized(state: ClusterStageState) -> set[str]:
    """Returns the nodes with reserved room that exist but are not initialised yet."""
    book, policies = state.book, state.policies
    reserved = (*state.nominated.values(), *state.expected.values())
    names = {nomination.node for several in reserved for nomination in several}
    return {
        n
        for n in names
        if n in book.nodes and not policies.initialized(state.cluster, book.nodes[n])
    }


def _shorten_promises(state: ClusterStageState, ready: set[str], at: Micros) -> None:
    """Shortens the nominations on the nodes in `ready`, which have just been initialised, to
    `NOMINATED_US` from now. A replica that is not placed there within that time does not fit."""
    until = at + NOMINATED_US
    other_pods.shorten(state, ready, until)
    for binding, several in state.nominated.items():
        state.nominated[binding] = tuple(
            [
                msgspec.structs.replace(n, until=min(n.until, until)) if n.node in ready else n
                for n in several
            ]
        )


def observe_pods(state: ClusterStageState, pods: PodsObserved, at: Micros) -> None:
    """Folds the pods of a node. If a moved replica is reported on its target and is not
    terminating, its move has ended."""
    if not state.pools.observe_pods(state.book, pods, at):
        return
    touch(state, (pods.node,))
    for pod in pods.pods:
        motion = state.motion.get(pod.binding, {}).get(pod.ordinal)
        if motion is not None and motion.node == pods.node and not pod.terminating:
            end_motion(state, pod.binding, pod.ordinal)


def end_motion(state: ClusterStageState, binding: str, ordinal: int) -> None:
    of_binding = state.motion.get(binding, {})
    of_binding.pop(ordinal, None)
    if not of_binding:
        state.motion.pop(binding, None)


def forget_causes(state: ClusterStageState) -> None:
    book = state.book
    for name in [n for n in state.causes if n not in book.lost and n not in book.taint_since]:
        del state.causes[name]


def take_objects(state: ClusterStageState, told: ObjectsObserved) -> None:
    if state.objects.observe(told.kind, told.namespace, told.objects):
        objects_changed(state)
        state.pools.observe_claims(claim.name for claim in state.book.objects.node_claims)


# --- policies and measurements


def take_policy(state: ClusterStageState, told: PolicyApplied | PolicyRemoved) -> None:
    key, policy = _policy_in(told)
    if state.profiles.applied(key, None if policy is None else policy.scheduler):
        touch_all(state)
    if state.policies.applied(key, policy):
        other_pods.pools_changed(state, state.at)
    if state.load.policy_applied(key, None if policy is None else policy.load):
        count_placed(state)


def _policy_in(told: PolicyApplied | PolicyRemoved) -> tuple[str, Policy | None]:
    if isinstance(told, PolicyApplied):
        return told.policy.key, told.policy
    return Policy(told.kind, told.name, told.namespace).key, None


def take_load(state: ClusterStageState, told: NodeLoadObserved | HotValueObserved) -> None:
    """Folds a load measurement. Ignored while no load policy is applied, because then nothing uses
    it."""
    if not state.load.idle:
        state.load.observe(told)
