"""The occupancy of one cluster: its nodes, the pods observed on them, and which binding holds which
replicas where.

What is free on a node is a function of four facts: its allocatable amounts, its pods, the replicas
placed on it, and whether it is closed. So the order of facts does not matter, and a restored
snapshot equals the original state. Placing and releasing adjust the columns incrementally; every
other fact rebuilds the node's row.

A replica is counted once in each phase: *assigned* (wanted here, without a node), *placed* (charged
to its node), *observed* (a pod with the same binding and ordinal on that node is the same replica
and is not charged again; the devices it reports replace the planned ones). A pod of a released
replica is charged until it is no longer reported.

A replica may name its pod by uid (`NodeShare.pods`). That pod is then this replica as soon as it is
observed on the node, no matter which binding and ordinal it reports; it need not report any.

A pod that requests devices without reporting which it holds is charged, after all others, to the
devices it would fit best. This is recomputed with each change of its node.

The cluster stage and the estimator maintain the same occupancy from different sources: from the
stage's own decisions, and from the assignments topic. Neither decides anything here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar, assert_never

import msgspec

from wharfinger.domain.cluster import Places
from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.ids import BindingName, ClassKey, NamespaceName, PodUid, PolicyName
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.pod_workload import workload_of
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.taints import Taint
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.classes import DeviceNeed, PodClass, compile_class
from wharfinger.engine.nodes.columns import NodeRow, NodeTable, Taken, Ties
from wharfinger.engine.nodes.node_images import NodeImages
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    Claimed,
    ClaimEnded,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    PodsPreempted,
    PodsRemoved,
    PreemptionOver,
    Recovered,
    Refused,
    Released,
    Silenced,
    UnplacedPods,
)
from wharfinger.events.cluster_state import (
    NodeImagesObserved,
    NodesObserved,
    PodsObserved,
    WaitingPodsObserved,
)
from wharfinger.events.decisions import NodeShare

K = TypeVar("K")
V = TypeVar("V")

_CLASSES_KNOWN = 4096

ReplicaKey = tuple[str, int]
"""Binding and ordinal."""


NodeTerms = tuple[Places, PolicyName, bool]
"""What is placed on the nodes of a bucket, the name of the scheduler whose pods that are, and
whether running pods may be evicted."""

AS_ASSIGNED: NodeTerms = ("", "", False)


WorkloadOfScheduler = tuple[BindingName, PolicyName]
"""A workload, and the name of the scheduler that its pods ask for."""

WaitingBucket = tuple[NamespaceName, int]
"""Namespace and bucket of waiting pods."""


class Replica(msgspec.Struct, frozen=True):
    """A placed replica. `at`: the time of the placement, in the round's microseconds. `pod`: uid of
    the pod that it is; empty: it was placed before its pod existed."""

    node: str
    cls: PodClass
    devices: Taken
    at: int
    pod: str = ""


class WaitingPods:
    """Records the pods that have no node yet, by uid. They use nothing of any node.

    `by_class`: key of their requirements (`pod_key`) -> the pods with these requirements.
    `by_binding`: the same by binding. `nominated`: those for which their scheduler keeps room on a
    node. A pod that several buckets report is taken as the first of them, in order of namespace and
    bucket, has it: so the order of the reports does not matter."""

    def __init__(self) -> None:
        self.pods: dict[PodUid, WaitingPod] = {}
        self.by_class: dict[ClassKey, dict[PodUid, WaitingPod]] = {}
        self.by_binding: dict[BindingName, dict[PodUid, WaitingPod]] = {}
        self.nominated: dict[PodUid, WaitingPod] = {}
        self._buckets: dict[WaitingBucket, WaitingPodsObserved] = {}
        self._in: dict[WaitingBucket, dict[PodUid, WaitingPod]] = {}
        self._reported_by: dict[PodUid, set[WaitingBucket]] = {}

    def observe(self, event: WaitingPodsObserved) -> bool:
        """Replaces the pods of one bucket of a namespace. Returns whether anything changed."""
        bucket = event.namespace, event.bucket
        known = self._buckets.get(bucket)
        before = () if known is None else known.pods
        if before == event.pods:
            return False
        if event.pods:
            self._buckets[bucket] = event
            self._in[bucket] = {pod.uid: pod for pod in event.pods}
        else:
            del self._buckets[bucket], self._in[bucket]
        for pod in before:
            self._reported_by[pod.uid].discard(bucket)
        for pod in event.pods:
            self._reported_by.setdefault(pod.uid, set()).add(bucket)
        for uid in dict.fromkeys(pod.uid for pod in (*before, *event.pods)):
            self._settle(uid)
        return True

    def in_bucket(self, event: WaitingPodsObserved) -> tuple[WaitingPod, ...]:
        """Returns the pods that the bucket of this report has now."""
        known = self._buckets.get((event.namespace, event.bucket))
        return () if known is None else known.pods

    def facts(self) -> Iterator[WaitingPodsObserved]:
        """Yields the reports that make up the present state, in order of namespace and bucket."""
        for _, event in sorted(self._buckets.items(), key=lambda item: item[0]):
            yield event

    def _settle(self, uid: PodUid) -> None:
        """Sets the pod to what the first of the buckets that report it has, or removes it."""
        self._drop(uid)
        reported_by = self._reported_by[uid]
        if not reported_by:
            del self._reported_by[uid]
            return
        pod = self.pods[uid] = self._in[min(reported_by)][uid]
        self.by_class.setdefault(pod.requirements.pod_key, {})[uid] = pod
        if pod.binding:
            self.by_binding.setdefault(pod.binding, {})[uid] = pod
        if pod.nominated:
            self.nominated[uid] = pod

    def _drop(self, uid: PodUid) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self.nominated.pop(uid, None)
        _take_out(self.by_class, pod.requirements.pod_key, uid)
        if pod.binding:
            _take_out(self.by_binding, pod.binding, uid)


class HeldBinding(msgspec.Struct):
    """The desired and actual state of one binding in this cluster: `desired` replicas of class
    `cls`, and those that are `placed`, by ordinal.

    `assignment`: id of the latest fleet decision about it; refusals refer to it. `replace`: the
    placed replicas have other requirements or belong to another incarnation of the binding (uid),
    and have to be released. `arrival`: sequence number of the latest assignment. `counted_unbound`:
    its part of `Occupancy.unbound`. `counted_priority`: the priority under which it counts in
    `Occupancy.placed_priorities`; None: nothing of it is placed.
    """

    cls: PodClass
    uid: str = ""
    assignment: str = ""
    desired: int = 0
    priority: int = 0
    arrival: int = 0
    replace: bool = False
    placed: dict[int, Replica] = {}
    counted_unbound: int = 0
    counted_priority: int | None = None

    @property
    def settled(self) -> bool:
        return self.desired == len(self.placed) and not self.replace


class Occupancy:
    """Records the nodes, observed pods and held replicas of one cluster, and derives the node table
    from them.

    `known`: all buckets of nodes were received. `version`: incremented by every change of columns
    or unbound counts. `reported`: the observed pods of each node as they were reported; `pods`: the
    same with the binding and ordinal of the replicas that they are. `node_of`: uid of an observed
    pod -> its node. `replica_of`: uid of a pod -> the replica that it is. `astray`: those of these
    pods that neither wait nor are on the node of their replica. `strangers`: the pods that are on a
    node and no replica there, with their node, by workload; kept where waiting pods are placed, and
    only of pods whose workload is known. `without_pod`: number of placed replicas that name no pod.
    `waiting`: the pods without a node. `lost`: nodes that hold replicas but do not exist (any
    more). `unsettled`: bindings whose placed replicas differ from the desired ones. `unbound`:
    class key -> assigned replicas that neither are placed nor have an observed pod.
    `placed_priorities`: priority -> number of bindings of it that have placed replicas. `ties`: see
    `NodeTable`.
    """

    def __init__(self, ties: Ties | None = None) -> None:
        self.table = NodeTable(ties=ties)
        self.version = 0
        self.buckets: dict[int, dict[str, Node]] = {}
        self.bucket_count = 0
        self.incoming: dict[int, dict[str, Node]] = {}
        self.incoming_count = 0
        self.terms: dict[int, NodeTerms] = {}
        self.incoming_terms: dict[int, NodeTerms] = {}
        self.images = NodeImages()
        self.nodes: dict[str, Node] = {}
        self.closed: set[str] = set()
        self.taint_since: dict[str, dict[str, int]] = {}
        self.pods: dict[str, tuple[Pod, ...]] = {}
        self.reported: dict[str, tuple[Pod, ...]] = {}
        self.node_of: dict[str, str] = {}
        self.replica_of: dict[PodUid, ReplicaKey] = {}
        self.astray: dict[PodUid, None] = {}
        self.strangers: dict[WorkloadOfScheduler, dict[PodUid, str]] = {}
        self.without_pod = 0
        self._by_uid = False
        self.waiting = WaitingPods()
        self.held: dict[str, HeldBinding] = {}
        self.on_node: dict[str, dict[ReplicaKey, Replica]] = {}
        self.objects = ClusterObjects()
        self.lost: set[str] = set()
        self.unsettled: dict[str, None] = {}
        self.unbound: dict[str, int] = {}
        self.placed_priorities: dict[int, int] = {}
        self.arrivals = 0
        self._unbound_classes: dict[str, PodClass] = {}
        self._classes: dict[tuple[str, bool], PodClass] = {}
        self._in_buckets: dict[str, set[int]] = {}
        self._own_pods: dict[str, dict[ReplicaKey, Pod]] = {}
        self._floating: set[str] = set()
        self._seen: dict[str, dict[int | str, int]] = {}

    @property
    def known(self) -> bool:
        return self.bucket_count > 0 and len(self.buckets) == self.bucket_count

    @property
    def places(self) -> Places:
        """Returns what is placed on the nodes of this cluster. "none" while its buckets disagree:
        that changes, and was not reported of all of them yet."""
        said = self._said_of_nodes()
        return "none" if said is None else said[0]

    @property
    def scheduler(self) -> str:
        """Returns the `schedulerName` of the pods that are placed where `places` is "pods"."""
        said = self._said_of_nodes()
        return "" if said is None else said[1]

    @property
    def evicts(self) -> bool:
        """Returns whether running pods of this cluster may be evicted."""
        said = self._said_of_nodes()
        return said is not None and said[2]

    def _said_of_nodes(self) -> NodeTerms | None:
        if not self.terms:
            return AS_ASSIGNED
        said = {self.terms.get(bucket, AS_ASSIGNED) for bucket in self.buckets}
        return said.pop() if len(said) == 1 else None

    def class_of(self, requirements: Requirements, terminating: bool = False) -> PodClass:
        """Returns the compiled class shared by all pods that are interchangeable on every node.
        `terminating`: the pod is being deleted."""
        key = (requirements.pod_key, terminating)
        cls = self._classes.get(key)
        if cls is None:
            if len(self._classes) >= _CLASSES_KNOWN:
                self._classes.clear()  # replicas keep their class; this is only a cache
            cls = self._classes[key] = compile_class(
                self.table, requirements, requirements.class_key, key[0], terminating
            )
        return cls

    def observe_objects(self, objects: ClusterObjects) -> bool:
        """Replaces all other objects of the cluster. Returns whether anything changed."""
        if objects == self.objects:
            return False
        self.objects = self.table.objects = objects
        self.version += 1
        return True

    def unbound_of(self, binding: BindingName) -> tuple[ClassKey, int]:
        """Returns the class of a binding, and its part of `unbound`."""
        held = self.held.get(binding)
        return ("", 0) if held is None else (held.cls.key, held.counted_unbound)

    def unbound_classes(self) -> list[tuple[PodClass, int]]:
        """Returns each class with replicas in `unbound`, and their number, ordered by class key."""
        return [(self._unbound_classes[key], n) for key, n in sorted(self.unbound.items())]

    def tells_of(self, binding: str) -> bool:
        """Whether any pod of the binding is observed. If so, a replica of the binding without an
        observed pod is not running yet."""
        return binding in self._seen

    # --- facts: nodes

    def observe_nodes(self, event: NodesObserved, at: int) -> bool:
        """Applies a report about one bucket of nodes. The nodes of a cluster are split into
        `event.buckets` buckets; a report contains all nodes of one bucket and replaces what was
        known of this bucket. Returns whether anything was stored.

        - If `event.buckets` differs from earlier reports, the new buckets are only collected at
          first. They replace the old ones when all of them were received.
        - A report with an invalid bucket index is ignored.
        - If a report has two nodes of the same name, the first is used.

        `at`: time of the round in microseconds.
        """
        if not 0 <= event.bucket < event.buckets:
            return False
        nodes: dict[str, Node] = {}
        for node in event.nodes:
            nodes.setdefault(node.name, node)
        if self.bucket_count in (0, event.buckets):
            self.bucket_count = event.buckets
            before = self.buckets.get(event.bucket)
            changed = self._take_terms(self.terms, event)
            if before == nodes:
                self._identify_pods()
                return changed
            self._take_bucket(event.bucket, nodes)
            self._merge({*(before or ()), *nodes}, at)
            self._identify_pods()
            return True
        return self._observe_rebucketed(event, nodes, at)

    def _observe_rebucketed(self, event: NodesObserved, nodes: dict[str, Node], at: int) -> bool:
        """Collects the reports after the number of buckets changed (the nodes of a cluster are
        split into buckets, and each report has one bucket). The old nodes stay until all new
        buckets are received. Then the new buckets replace the old ones at once, because with a part
        of the buckets it would look as if nodes were lost. Returns whether anything was stored.

        If the number of buckets changes again before all are received, collecting starts again.
        `nodes`: the nodes of the received bucket by name. `at`: time of the round in microseconds.
        """
        if event.buckets != self.incoming_count:
            self.incoming.clear()
            self.incoming_terms.clear()
            self.incoming_count = event.buckets
        changed = self._take_terms(self.incoming_terms, event)
        if self.incoming.get(event.bucket) == nodes:
            return changed
        self.incoming[event.bucket] = nodes
        if len(self.incoming) < event.buckets:
            return True
        names = set(self.nodes)
        self.buckets, self.bucket_count = {}, event.buckets
        self._in_buckets.clear()
        for bucket, said in sorted(self.incoming.items()):
            self._take_bucket(bucket, said)
            names.update(said)
        self.incoming.clear()
        self.incoming_count = 0
        self.terms, self.incoming_terms = self.incoming_terms, {}
        self._merge(names, at)
        self._identify_pods()
        return True

    def _identify_pods(self) -> None:
        """Reads the reported pods of all nodes again if they are told apart in another way now: by
        uid where waiting pods are placed, else by binding and ordinal."""
        by_uid = self.places == "pods"
        if by_uid != self._by_uid:
            self._by_uid = by_uid
            for name in sorted(self.reported):
                self._take_pods(name)

    @staticmethod
    def _take_terms(terms: dict[int, NodeTerms], event: NodesObserved) -> bool:
        """Records what is placed on the nodes of a bucket. Returns whether that changed."""
        said = event.places, event.scheduler, event.evicts
        before = terms.pop(event.bucket, AS_ASSIGNED)
        if said != AS_ASSIGNED:
            terms[event.bucket] = said
        return said != before

    def _take_bucket(self, bucket: int, nodes: dict[str, Node]) -> None:
        for name in self.buckets.get(bucket, ()):
            sayers = self._in_buckets[name]
            sayers.discard(bucket)
            if not sayers:
                del self._in_buckets[name]
        self.buckets[bucket] = nodes
        for name in nodes:
            self._in_buckets.setdefault(name, set()).add(bucket)

    def _merge(self, names: set[str], at: int) -> None:
        """Updates the nodes named `names` from the buckets (the nodes of a cluster are split into
        buckets, and each report has one bucket). A node that is in no bucket is removed.

        If several buckets have a node of the same name, the node of the bucket with the lowest
        index is used. So the result does not depend on the order in which buckets arrive. `at`:
        time of the round in microseconds; it is recorded as the start of new NoExecute taints.
        """
        for name in sorted(names):
            sayers = self._in_buckets.get(name)
            if sayers is None:
                self._forget_node(name)
                continue
            node = self._with_images(self.buckets[min(sayers)][name])
            if self.nodes.get(name) != node:
                self._take_node(node, at)
        if self.known:
            self.closed.intersection_update(self.nodes)

    def observe_images(self, event: NodeImagesObserved, at: int) -> None:
        """Applies a report about images on nodes. `at`: as in `observe_nodes`."""
        changed = self.images.observe(event)
        self._merge(changed & self.nodes.keys(), at)

    def _with_images(self, node: Node) -> Node:
        """Returns the node with the images that were reported apart from it, unless its own report
        has images."""
        if node.images or not (images := self.images.on(node.name)):
            return node
        return msgspec.structs.replace(node, images=images)

    def _take_node(self, node: Node, at: int) -> None:
        self.nodes[node.name] = node
        since = self.taint_since.pop(node.name, {})
        now = {
            taint_name(t): since.get(taint_name(t), at)
            for t in node.taints
            if t.effect == "NoExecute"
        }
        if now:
            self.taint_since[node.name] = now
        self.table.put(node, node.name in self.closed)
        self.lost.discard(node.name)
        self._write(node.name)
        if self.replica_of:
            here = self.on_node.get(node.name, {})
            self._follow_pods([replica.pod for replica in here.values()])

    def _forget_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is None:
            return
        self.taint_since.pop(name, None)
        self.closed.discard(name)
        self.table.drop(name)
        if name in self.on_node:
            self.lost.add(name)
            self._follow_pods([replica.pod for replica in self.on_node[name].values()])
        self.version += 1

    def close(self, name: str) -> None:
        """Closes a node to new replicas, until it is reopened or removed."""
        if name in self.closed or (self.known and name not in self.nodes):
            return
        self.closed.add(name)
        node = self.nodes.get(name)
        if node is not None:
            self.table.put(node, True)
            self._write(name)

    def reopen(self, name: str) -> None:
        """Ends `close`. The node takes new replicas again unless it is cordoned."""
        if name not in self.closed:
            return
        self.closed.discard(name)
        node = self.nodes.get(name)
        if node is not None:
            self.table.put(node, False)
            self._write(name)

    # --- facts: pods

    def observe_pods(self, event: PodsObserved) -> bool:
        """Replaces the observed pods of one node and computes the usage of the node again. Returns
        whether anything changed.

        Several pods with the same uid count as one. A report about pods without a node is ignored,
        because such pods use nothing. The number of unbound replicas (desired, but without a node
        and without an observed pod) is computed again for each binding that has one of the old or
        new pods.
        """
        name = event.node
        if not name:
            return False
        # One pod per uid, in order of uid: the order of the report has no meaning.
        pods = tuple(sorted({pod.uid: pod for pod in event.pods}.values(), key=lambda pod: pod.uid))
        if self.reported.get(name, ()) == pods:
            return False
        if pods:
            self.reported[name] = pods
        else:
            del self.reported[name]
        self._take_pods(name)
        return True

    def _take_pods(self, name: str, unsettled: str = "") -> None:
        """Computes again what follows from the reported pods of a node and from the replicas that
        name them. `unsettled`: a binding that the caller settles."""
        before = self.pods.get(name, ())
        pods = self.reported.get(name, ())
        if self.replica_of or self._by_uid:
            pods = tuple([self._as_replica(pod, name) for pod in pods])
        for pod in before:
            self._unsee(pod)
            if self.node_of.get(pod.uid) == name:
                del self.node_of[pod.uid]
        if pods:
            self.pods[name] = pods
        else:
            self.pods.pop(name, None)
        own = {(pod.binding, pod.ordinal): pod for pod in pods if pod.binding and pod.ordinal >= 0}
        if own:
            self._own_pods[name] = own
        else:
            self._own_pods.pop(name, None)
        for pod in pods:
            self._see(pod)
            self.node_of[pod.uid] = name
        for binding in sorted({pod.binding for pod in (*before, *pods) if pod.binding}):
            if binding != unsettled:
                self._settle(binding)
        self._write(name)
        self._follow_pods([pod.uid for pod in (*before, *pods)])
        if self._by_uid or self.strangers:
            self._follow_strangers(name, before, pods)

    def _follow_strangers(self, node: str, before: Iterable[Pod], pods: Iterable[Pod]) -> None:
        """Updates `strangers` after the pods of a node became others, or other replicas."""
        for pod in before:
            key = _workload_key(pod)
            known = self.strangers.get(key, {})
            if known.get(pod.uid) == node:
                _take_out(self.strangers, key, pod.uid)
        for pod in pods if self._by_uid else ():
            if pod.ordinal < 0 and not pod.terminating and (key := _workload_key(pod))[0]:
                self.strangers.setdefault(key, {})[pod.uid] = node

    def _as_replica(self, pod: Pod, node: str) -> Pod:
        """Returns a pod reported on `node` with the binding and ordinal of the replica that it is.
        One that no replica names is none, with any ordinal."""
        key = self.replica_of.get(pod.uid)
        if key is None or self.held[key[0]].placed[key[1]].node != node:
            return pod if pod.ordinal < 0 else msgspec.structs.replace(pod, ordinal=-1)
        if key == (pod.binding, pod.ordinal):
            return pod
        return msgspec.structs.replace(pod, binding=key[0], ordinal=key[1])

    def _follow_pods(self, uids: Iterable[PodUid]) -> None:
        """Updates `astray` for these pods."""
        for uid in uids if self.replica_of else ():
            key = self.replica_of.get(uid)
            if key is not None and not self._is_there(uid, self.held[key[0]].placed[key[1]].node):
                self.astray[uid] = None
            else:
                self.astray.pop(uid, None)

    def _is_there(self, uid: PodUid, node: str) -> bool:
        """Whether the pod is on `node`, or waits and the node exists."""
        on = self.node_of.get(uid)
        if on is None:
            return uid in self.waiting.pods and (node in self.nodes or not self.known)
        return on == node

    def observe_waiting(self, event: WaitingPodsObserved) -> bool:
        """Replaces the waiting pods of one bucket of a namespace. Returns whether anything changed.
        A waiting pod uses nothing."""
        before = self.waiting.in_bucket(event)
        changed = self.waiting.observe(event)
        if changed:
            self._follow_pods([pod.uid for pod in (*before, *event.pods)])
        return changed

    def waits(self, pod: WaitingPod) -> bool:
        """Whether the pod has no node. One that was bound is reported on its node first, and for a
        moment still as waiting."""
        return pod.uid not in self.node_of

    def _see(self, pod: Pod) -> None:
        if pod.binding:
            seen = self._seen.setdefault(pod.binding, {})
            key: int | str = pod.ordinal if pod.ordinal >= 0 else pod.uid
            seen[key] = seen.get(key, 0) + 1

    def _unsee(self, pod: Pod) -> None:
        if pod.binding:
            seen = self._seen[pod.binding]
            key: int | str = pod.ordinal if pod.ordinal >= 0 else pod.uid
            seen[key] -= 1
            if not seen[key]:
                del seen[key]
            if not seen:
                del self._seen[pod.binding]

    # --- the book

    def take(self, item: AssignmentItem, at: int) -> None:
        """Applies one decision about this cluster from the assignments topic. A decision assigns,
        places, refuses or releases replicas, or it closes or reopens nodes (a closed node takes no
        new replicas). Decisions about heartbeats (`Silenced`, `Recovered`), node claims and
        finished pods change nothing here. `at`: time of the round in microseconds."""
        match item:
            case Assigned():
                self.assign(
                    item.binding,
                    item.uid,
                    item.decision,
                    item.replicas,
                    item.requirements,
                    item.priority,
                )
            case Placed():
                self.place(item.binding, item.placed, item.requirements, at)
            case Refused():
                self.refuse(item.binding, item.assignment, item.count)
            case Released():
                self.release(item.binding, item.released, item.unbound)
            case NodeClosed():
                self.close(item.node)
            case Disrupting():
                for node in item.nodes:
                    self.close(node)
            case Disrupted():
                for node in item.reopened:
                    self.reopen(node)
            case Silenced() | Recovered() | Claimed() | ClaimEnded() | PodsRemoved():
                pass
            case UnplacedPods() | PodsPreempted() | PreemptionOver():
                pass  # a victim is charged as long as it is observed
            case _:
                assert_never(item)

    def assign(
        self,
        binding: str,
        uid: str,
        assignment: str,
        replicas: int,
        requirements: Requirements,
        priority: int,
    ) -> None:
        """Sets how many replicas a binding should have in this cluster. `replicas` is the total,
        not an increment. With 0 replicas, `requirements` and `uid` are ignored.

        If the binding is known here, nothing is released by this function, but its placed replicas
        are treated as follows:

        - The requests or the uid differ from before: the placed replicas are marked for
          replacement.
        - Only properties that other pods see differ, such as labels: the placed replicas stay where
          they are and get the new requirements.

        `assignment`: id of the decision of the fleet. `uid`: Kubernetes uid of the workload; a new
        one means that the workload was deleted and created again. `priority`: priority of the
        replicas.
        """
        replicas = max(0, replicas)
        held = self.held.get(binding)
        if held is None:
            if not replicas:
                return
            held = self.held[binding] = HeldBinding(self.class_of(requirements), uid)
        elif replicas:
            cls = self.class_of(requirements)
            if cls.key != held.cls.key or uid != held.uid:
                held.replace = bool(held.placed)
                self._uncount(held)
                held.cls, held.uid = cls, uid
            elif cls is not held.cls:
                self._relabel(binding, held, cls)
        else:
            held.replace = False  # all replicas are released anyway
        held.assignment, held.desired, held.priority = assignment, replicas, priority
        self.arrivals += 1
        held.arrival = self.arrivals
        self._settle(binding)

    def _relabel(self, binding: str, held: HeldBinding, cls: PodClass) -> None:
        """Gives a binding and its placed replicas a new class. The replicas stay on their nodes.
        The requests of the new class equal the old ones; only properties that other pods see
        differ, such as labels. So the tallies are updated on each node that holds one of the
        replicas.

        `held`: the state of the binding. `cls`: the new class.
        """
        self._uncount(held)
        held.cls = cls
        for ordinal, replica in list(held.placed.items()):
            new = msgspec.structs.replace(replica, cls=cls)
            held.placed[ordinal] = self.on_node[replica.node][(binding, ordinal)] = new
            row = self.table.rows.get(replica.node)
            if row is None:
                continue
            if replica.node in self._floating or replica.node in self._own_pods:
                self._write(replica.node)
            else:
                self.table.charge(row, replica.cls, -1, ())
                self.table.charge(row, cls, 1, ())
                self.version += 1

    def restore(
        self,
        binding: str,
        requirements: Requirements,
        uid: str,
        assignment: str,
        desired: int,
        priority: int,
        arrival: int,
        replace: bool,
    ) -> None:
        """Restores from a snapshot what a binding should have in this cluster. The caller has to
        restore the placed replicas before, by `place`.

        - `uid`: Kubernetes uid of the workload. `assignment`: id of the last decision of the fleet.
        - `desired`: number of replicas that the binding should have. `priority`: priority of the
          replicas.
        - `arrival`: number of the last assignment of the binding; the assignments of a cluster are
          numbered in order of arrival.
        - `replace`: the placed replicas have old requirements and must be released.
        """
        cls = self.class_of(requirements)
        held = self.held.setdefault(binding, HeldBinding(cls))
        self._uncount(held)
        held.cls, held.uid, held.assignment = cls, uid, assignment
        held.desired, held.priority, held.arrival, held.replace = (
            desired,
            priority,
            arrival,
            replace,
        )
        self._settle(binding)

    def refuse(self, binding: str, assignment: str, count: int) -> None:
        """Reduces the desired replicas of a binding by `count`. The refusal is ignored if
        `assignment` is not the latest assignment: a newer one states a total, which replaces the
        refused one."""
        held = self.held.get(binding)
        if held is not None and held.assignment == assignment and count > 0:
            held.desired = max(0, held.desired - count)
            self._settle(binding)

    def place(
        self, binding: str, shares: Iterable[NodeShare], requirements: Requirements, at: int
    ) -> None:
        held = self.held.get(binding)
        if held is None:
            held = self.held[binding] = HeldBinding(self.class_of(requirements))
            cls = held.cls
        elif requirements is held.cls.requirements or requirements == held.cls.requirements:
            cls = held.cls
        else:
            cls = self.class_of(requirements)
        for share in shares:
            self._place_share(binding, held, share, cls, at)
        self._settle(binding)

    def _place_share(
        self, binding: str, held: HeldBinding, share: NodeShare, cls: PodClass, at: int
    ) -> None:
        devices: dict[int, Taken] = {}
        pods = dict(zip(share.ordinals, share.pods, strict=False))
        for uid in pods.values():
            self._release_pod(uid, binding)
        for i, ordinal in enumerate(share.ordinals):
            devices.setdefault(ordinal, share.devices[i] if i < len(share.devices) else ())
            if ordinal in held.placed:  # placed again: it leaves its old node first
                self._remove(binding, held, ordinal)
        if not devices:
            return
        here = self.on_node.setdefault(share.node, {})
        for ordinal, taken in devices.items():
            replica = Replica(share.node, cls, taken, at, pods.get(ordinal, ""))
            held.placed[ordinal] = here[(binding, ordinal)] = replica
            if replica.pod:
                self.replica_of[replica.pod] = binding, ordinal
            else:
                self.without_pod += 1
        row = self.table.rows.get(share.node)
        if row is None:
            self.lost.add(share.node)
        elif share.node in self._floating or share.node in self._own_pods:
            self._write(share.node)
        else:
            charged = (
                [pair for taken in devices.values() for pair in sane(taken)]
                if share.devices
                else ()
            )
            self.table.charge(row, cls, len(devices), charged)
            self.version += 1
        if pods:
            if any(self.node_of.get(uid) == share.node for uid in pods.values()):
                self._take_pods(share.node, binding)
            self._follow_pods(pods.values())

    def _release_pod(self, uid: PodUid, binding: str) -> None:
        """Takes a pod off the replica that it is, before it becomes a replica of `binding`."""
        key = self.replica_of.get(uid)
        if key is not None:
            self._remove(key[0], self.held[key[0]], key[1])
            if key[0] != binding:
                self._settle(key[0])

    def release(self, binding: str, shares: Iterable[NodeShare], unbound: int = 0) -> None:
        """Releases replicas of a binding. A replica is released if its ordinal is in `shares` and
        it is placed on the node that is named with the ordinal. An unknown binding is ignored.

        `shares`: (node, ordinals) to release. `unbound`: the number of replicas that are given up
        without having a node. Only `unbound` lowers the desired number of replicas. Example: 5
        replicas are desired, the ordinals 0, 1 and 2 are placed. Releasing ordinal 2 with `unbound`
        1 leaves 4 desired and 2 placed.
        """
        held = self.held.get(binding)
        if held is None:
            return
        for share in shares:
            for ordinal in share.ordinals:
                replica = held.placed.get(ordinal)
                if replica is not None and replica.node == share.node:
                    self._remove(binding, held, ordinal)
        if unbound > 0:
            held.desired = max(0, held.desired - unbound)
        if not held.placed:
            held.replace = False
        self._settle(binding)

    def _remove(self, binding: str, held: HeldBinding, ordinal: int) -> None:
        replica = held.placed.pop(ordinal)
        here = self.on_node[replica.node]
        del here[(binding, ordinal)]
        if not here:
            del self.on_node[replica.node]
            self.lost.discard(replica.node)
        if not replica.pod:
            self.without_pod -= 1
        else:
            del self.replica_of[replica.pod]
            self.astray.pop(replica.pod, None)
            if self.node_of.get(replica.pod) == replica.node:
                self._take_pods(replica.node, binding)
                return
        row = self.table.rows.get(replica.node)
        if row is None:
            return
        if replica.node in self._floating or replica.node in self._own_pods:
            self._write(replica.node)
        else:
            self.table.charge(
                row, replica.cls, -1, [(i, -milli) for i, milli in sane(replica.devices)]
            )
            self.version += 1

    def _settle(self, binding: str) -> None:
        """Computes again what follows from the state of one binding: the number of its unbound
        replicas, and whether its placed replicas differ from the desired ones. Removes the binding
        if it has no replicas and needs none.

        A replica is unbound if it is desired and neither placed nor observed as a pod. Example: 5
        replicas are desired, ordinals 0, 1 and 2 are placed, and a pod with ordinal 3 is observed.
        Then 5 - 3 - 1 = 1 replica is unbound.
        """
        held = self.held.get(binding)
        if held is None:
            return
        placed, desired = held.placed, held.desired
        bound = len(placed)
        seen = self._seen.get(binding)
        if seen:
            bound += sum(1 for key in seen if key not in placed)
        if held.counted_unbound:
            self._uncount(held)
        priority = held.priority if placed else None
        if priority != held.counted_priority:
            self._count_priority(held, priority)
        if desired > bound:
            held.counted_unbound = desired - bound
            key = held.cls.key
            self.unbound[key] = self.unbound.get(key, 0) + desired - bound
            self._unbound_classes[key] = held.cls
        if desired == len(placed) and not held.replace:
            # the same as `settled`, inlined because this runs at every change
            self.unsettled.pop(binding, None)
            if not desired:
                del self.held[binding]
        else:
            self.unsettled[binding] = None
        self.version += 1

    def _uncount(self, held: HeldBinding) -> None:
        if held.counted_unbound:
            left = self.unbound[held.cls.key] - held.counted_unbound
            held.counted_unbound = 0
            if left:
                self.unbound[held.cls.key] = left
            else:
                del self.unbound[held.cls.key], self._unbound_classes[held.cls.key]

    def _count_priority(self, held: HeldBinding, priority: int | None) -> None:
        counts, before = self.placed_priorities, held.counted_priority
        if before is not None:
            counts[before] -= 1
            if not counts[before]:
                del counts[before]
        if priority is not None:
            counts[priority] = counts.get(priority, 0) + 1
        held.counted_priority = priority

    # --- one node's row, from the book

    def _write(self, name: str) -> None:
        row = self.table.rows.get(name)
        self._floating.discard(name)
        if row is None:
            return
        held: dict[PodClass, int] = {}
        devices = [0] * len(row.groups)
        own = self._own_pods.get(name, {})
        here = self.on_node.get(name, {})
        for key, replica in here.items():
            held[replica.cls] = held.get(replica.cls, 0) + 1
            pod = own.get(key)
            _hold(devices, pod.devices if pod is not None and pod.devices else replica.devices)
        floating: list[PodClass] = []
        for pod in self.pods.get(name, ()):
            key = (pod.binding, pod.ordinal)
            if key in here and own[key].uid == pod.uid:
                continue  # if two pods claim one replica, the other one is charged
            cls = self.class_of(pod.requirements, pod.terminating)
            held[cls] = held.get(cls, 0) + 1
            _hold(devices, pod.devices)
            if cls.needs and not pod.devices:
                floating.append(cls)
        if floating:
            self._floating.add(name)
            for cls in floating:
                for need in cls.needs:
                    _reserve(row, devices, need)
        self.table.set_usage(row, held, devices)
        self.version += 1


def taint_name(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}"


def shares_of(placed: Mapping[int, Replica], ordinals: Iterable[int]) -> tuple[NodeShare, ...]:
    """Groups placed replicas by node. Returns one share per node, in the order in which `ordinals`
    names them first."""
    by_node: dict[str, list[int]] = {}
    for ordinal in ordinals:
        by_node.setdefault(placed[ordinal].node, []).append(ordinal)
    return tuple(
        NodeShare(
            node,
            tuple(own),
            _devices([placed[o].devices for o in own]),
            _pods([placed[o].pod for o in own]),
        )
        for node, own in by_node.items()
    )


def _devices(taken: list[Taken]) -> tuple[Taken, ...]:
    return tuple(taken) if any(taken) else ()


def _pods(pods: list[PodUid]) -> tuple[PodUid, ...]:
    return tuple(pods) if any(pods) else ()


def sane(devices: Taken) -> list[tuple[int, int]]:
    """Returns the entries (device index, thousandths) that are charged to a node: those above 0,
    each limited to one whole device."""
    if not devices:
        return []
    return [
        (index, milli if milli < DEVICE_MILLI else DEVICE_MILLI)
        for index, milli in devices
        if milli > 0
    ]


def _hold(devices: list[int], taken: Taken) -> None:
    for index, milli in sane(taken):
        if 0 <= index < len(devices):
            devices[index] += milli


def _reserve(row: NodeRow, devices: list[int], need: DeviceNeed) -> None:
    """Adds a device request to the used thousandths of the devices of a node, for a pod that does
    not report which devices it uses. The devices are chosen by best fit: of the allowed devices
    with enough free thousandths, the devices with the least free are taken first. If too few have
    enough free, the request is completed on the other allowed devices, the least used first. So
    these devices can get more than 1000 used thousandths.

    `row`: the node. `devices`: used thousandths of each device; changed in place. `need`: the
    request: allowed devices, number of devices, thousandths of each. Example: 600, 300 and 0 are
    used. A request for 500 thousandths of one device changes 300 to 800.
    """
    milli = min(need.milli, DEVICE_MILLI)
    allowed = [i for i, group in enumerate(row.groups) if group in need.view.groups]
    fitting = sorted((-devices[i], i) for i in allowed if devices[i] + milli <= DEVICE_MILLI)
    # Best fit: the fullest devices with room come first in the order of -held.
    chosen = [i for _, i in fitting][: need.count]
    if len(chosen) < need.count:
        rest = sorted((devices[i], i) for i in allowed if i not in chosen)
        chosen += [i for _, i in rest[: need.count - len(chosen)]]
    for index in chosen:
        devices[index] += milli


def _workload_key(pod: Pod) -> WorkloadOfScheduler:
    return workload_of(pod), pod.requirements.traits.scheduler


def _take_out(index: dict[K, dict[PodUid, V]], key: K, uid: PodUid) -> None:
    pods = index[key]
    del pods[uid]
    if not pods:
        del index[key]
