"""What the actuator knows of one cluster: standing decisions about objects, and what was observed.

Nothing here is a memory of what was sent. After a restart the standing decisions come from the
ledger and the facts from their topics, and the same effects follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.cluster import stale_kinds
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.time import Micros
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import (
    AssignmentItem,
    AssignmentsDecided,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    PodsPreempted,
    PodsRemoved,
    PreemptionOver,
    Released,
    UnplacedPods,
)
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    NodesObserved,
    PodsObserved,
    WaitingPodsObserved,
)
from wharfinger.events.clusters import ClusterObserved
from wharfinger.stages.actuator.effects import Cause
from wharfinger.stages.cluster.placing import REQUIREMENTS_CHANGED, SCALED_DOWN
from wharfinger.stages.node_buckets import NodeBuckets

EVICTED_US = 3_600_000_000
"""For so long after a release its pods are evicted. What a budget has kept for an hour is left."""

UNPLACED_MAX = 10_000
"""Of so many pods that do not wait it is kept what was said of them."""

RELEASED_MAX = 10_000
"""Of so many pods it is kept where they had been placed."""

CHECKED = ("cpu", "memory", "ephemeral-storage", "pods")
"""The resources of a node that are added up: those that every kubelet checks before it runs a
pod."""

LEFT_TO_OTHERS = ("", SCALED_DOWN, REQUIREMENTS_CHANGED)
"""Reasons of releases after which the workload's own controller removes pods: it chooses which, and
replaces those of an old template. A release without a reason is one of a time before it was
said."""


NO_REQUIREMENTS = Requirements()
"""Of a decision that was recorded before it named them."""


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """`at`: when that was decided, or read. `requirements`: as they were decided about."""

    node: str
    binding: str
    ordinal: int
    cause: Cause
    at: Micros = 0
    requirements: Requirements = NO_REQUIREMENTS


@dataclass(frozen=True, slots=True)
class UnplacedPod:
    """`message`: why it fits nowhere."""

    message: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class PreemptedPods:
    """Pods that are evicted while another one waits without a place. `at`: when that was decided,
    or read."""

    victims: tuple[str, ...]
    cause: Cause
    at: Micros = 0


@dataclass(slots=True)
class ClusterWork:
    """`heard`: when the cluster last answered; 0: never. `stale`: kinds whose watch has been
    broken for too long. `closed`: node -> why it shall take nothing new. `ours`: nodes that a
    decision of this ledger has closed, as far as they were read. `removals`: uid of a
    finished pod -> why its object may go. `placements`: uid of a pod -> where it was placed.
    `evictions`: uid of a pod that was released from its node -> why. `unplaced`: uid of a pod that
    fits nowhere -> why, as it was said last. `preempted`: uid of a pod that waits -> the pods that
    are evicted for it."""

    name: str
    heard: Micros = 0
    stale: frozenset[str] = frozenset()
    nodes: NodeBuckets = field(default_factory=NodeBuckets)
    closed: dict[str, Cause] = field(default_factory=dict)
    ours: set[str] = field(default_factory=set)
    removals: dict[str, Cause] = field(default_factory=dict)
    placements: dict[str, PlacedPod] = field(default_factory=dict)
    evictions: dict[str, Cause] = field(default_factory=dict)
    unplaced: dict[str, UnplacedPod] = field(default_factory=dict)
    preempted: dict[str, PreemptedPods] = field(default_factory=dict)
    released: dict[str, PlacedPod] = field(default_factory=dict)
    """Uid of a pod that is no replica any more -> where it had been placed, of the last
    `RELEASED_MAX` of them: a pod that the kubelet did not admit is released before it is seen to
    have failed."""
    _replicas: dict[tuple[str, int], str] = field(default_factory=dict)
    """Binding and ordinal -> uid of the pod that was placed as this replica."""
    _pods: dict[str, dict[str, Pod]] = field(default_factory=dict)
    _waiting: dict[tuple[str, int], dict[str, WaitingPod]] = field(default_factory=dict)
    _finished: dict[str, dict[str, Pod]] = field(default_factory=dict)
    _requested: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node -> what its pods request, added up when it was last asked for."""
    _through: dict[str, int] = field(default_factory=dict)
    """Stream -> the last decision that was folded."""

    def node_facts(self) -> Iterator[Node]:
        return (node for _, node in self.nodes.nodes.values())

    def running_pods(self) -> Iterator[Pod]:
        """Those on nodes that have not finished."""
        for of_node in self._pods.values():
            yield from of_node.values()

    def on_node(self, uid: str, node: str) -> bool:
        return uid in self._pods.get(node, ())

    def requested_on(self, node: str) -> Mapping[str, int]:
        """What the pods on a node request of the resources in `CHECKED`. A pod that was placed
        there counts as it was decided, as the cluster stage charges it."""
        found = self._requested.get(node)
        if found is None:
            found = self._requested[node] = {}
            for pod in self._pods.get(node, {}).values():
                placed = self.placements.get(pod.uid)
                decided = placed.requirements if placed and placed.node == node else None
                add_requests(found, decided or pod.requirements)
        return found

    def waiting_pods(self) -> Iterator[WaitingPod]:
        for of_bucket in self._waiting.values():
            yield from of_bucket.values()

    def finished_pods(self) -> Iterator[Pod]:
        for of_node in self._finished.values():
            yield from of_node.values()

    # --- facts

    def observe_cluster(self, told: ClusterObserved) -> None:
        self.stale = stale_kinds(told.cluster)

    def observe_nodes(self, told: NodesObserved) -> None:
        """A decision about a node ends with the node: a later one of the same name is another."""
        for name in self.nodes.fold(told).gone:
            self.closed.pop(name, None)

    def observe_finished(self, told: FinishedPodsObserved) -> None:
        if told.pods:
            self._finished[told.node] = {pod.uid: pod for pod in told.pods}
        else:
            self._finished.pop(told.node, None)

    def observe_pods(self, told: PodsObserved) -> None:
        self._requested.pop(told.node, None)
        if told.pods:
            self._pods[told.node] = {pod.uid: pod for pod in told.pods}
        else:
            self._pods.pop(told.node, None)

    def observe_waiting(self, told: WaitingPodsObserved) -> None:
        key = told.namespace, told.bucket
        if told.pods:
            self._waiting[key] = {pod.uid: pod for pod in told.pods}
        else:
            self._waiting.pop(key, None)

    # --- decisions

    def take(self, decided: AssignmentsDecided, at: Micros) -> None:
        """Items come in order of seq; what was folded already is skipped."""
        stream, through = decided.stream, self._through.get(decided.stream, 0)
        for item in decided.items:
            if item.seq > through:
                self._take(stream, item, at)
        self._through[stream] = max(through, decided.through)
        for causes in (self.removals, self.evictions):
            for uid in [uid for uid, cause in causes.items() if cause.until_us <= at]:
                del causes[uid]
        self.preempted = {
            uid: found for uid, found in self.preempted.items() if found.cause.until_us > at
        }

    def release(self, stream: str, item: Released, at: Micros) -> None:
        """The pods of a release may still be there. `at`: when it was decided."""
        if item.reason in LEFT_TO_OTHERS:
            return
        cause = Cause(stream, item.seq, item.decision, at + EVICTED_US)
        for share in item.released:
            for uid in share.pods:
                self.evictions[uid] = cause

    def _take(self, stream: str, item: AssignmentItem, at: Micros) -> None:
        match item:
            case Placed():
                self._place(stream, item, at)
            case Released():
                self._unplace(item)
                self.release(stream, item, at)
            case NodeClosed(node=node):
                self.ours.add(node)
                self.closed[node] = Cause(stream, item.seq, item.decision)
            case Disrupting(nodes=nodes):
                self.ours.update(nodes)
                for node in nodes:
                    self.closed[node] = Cause(stream, item.seq, item.decision)
            case Disrupted(reopened=reopened):
                for node in reopened:
                    self.closed.pop(node, None)
            case PodsRemoved(pods=uids, until_us=until):
                for uid in uids:
                    self.removals[uid] = Cause(stream, item.seq, item.decision, until)
            case PodsPreempted(preemptor=preemptor, victims=victims, until_us=until):
                cause = Cause(stream, item.seq, item.decision, until)
                self.preempted[preemptor] = PreemptedPods(victims, cause, at)
            case PreemptionOver(preemptor=preemptor):
                self.preempted.pop(preemptor, None)
            case UnplacedPods(pods=uids, message=message):
                cause = Cause(stream, item.seq, item.decision)
                for uid in uids:
                    self.unplaced[uid] = UnplacedPod(message, cause)
                self._bound_unplaced()
            case _:
                pass

    def _bound_unplaced(self) -> None:
        """Facts and decisions come on different topics, so a pod that is not known may still come.
        Only where many are kept, those that do not wait are forgotten."""
        if len(self.unplaced) > UNPLACED_MAX:
            waiting = {pod.uid for pod in self.waiting_pods()}
            if len(self.unplaced) > UNPLACED_MAX + len(waiting):
                self.unplaced = {u: said for u, said in self.unplaced.items() if u in waiting}

    def _place(self, stream: str, item: Placed, at: Micros) -> None:
        """A replica that is placed again is another pod, or the same one on another node."""
        cause = Cause(stream, item.seq, item.decision)
        for share in item.placed:
            for ordinal, uid in zip(share.ordinals, share.pods, strict=False):
                self._forget_replica(item.binding, ordinal)
                self._replicas[item.binding, ordinal] = uid
                self.unplaced.pop(uid, None)
                self.preempted.pop(uid, None)
                self._requested.pop(share.node, None)
                self.placements[uid] = PlacedPod(
                    share.node, item.binding, ordinal, cause, at, item.requirements
                )

    def _unplace(self, item: Released) -> None:
        for share in item.released:
            for ordinal in share.ordinals:
                self._forget_replica(item.binding, ordinal)

    def _forget_replica(self, binding: str, ordinal: int) -> None:
        uid = self._replicas.pop((binding, ordinal), None)
        if uid is not None and (placed := self.placements.pop(uid, None)) is not None:
            self._requested.pop(placed.node, None)
            self.released[uid] = placed
            if len(self.released) > RELEASED_MAX:
                del self.released[next(iter(self.released))]


def add_requests(amounts: dict[str, int], requirements: Requirements) -> None:
    """Adds what one pod requests of the resources in `CHECKED`."""
    for name in CHECKED:
        amount = requirements.requests.get(name, 1 if name == "pods" else 0)
        if amount > 0:
            amounts[name] = amounts.get(name, 0) + amount
