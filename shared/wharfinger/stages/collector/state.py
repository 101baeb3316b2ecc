"""Folds what is observed of one member cluster, and emits the facts that changed.

An observation changes the state and marks the fact that contains it. A marked fact is due after a
short wait, so that a burst of changes becomes one fact. A due fact is sent only if its canonical
bytes differ from those sent last; data that the domain value leaves out (heartbeats, times of
conditions, addresses of pods) causes no fact.

Nothing is sent before nodes and pods have both been listed completely, except that the rights to
list them are missing (`unlisted`). Facts of another kind are sent only after that kind has been
listed. A broken watch never removes objects: only a complete
list or a watched deletion does.

Images on nodes are in facts of their own, by image, at most every five minutes: they are most of a
node's bytes, and matter for one preference only.

Pods that have finished are in facts of their own, by node: they use nothing of it. When a pod
finishes, the fact without it is sent before the fact that has it as finished.

Pods without a node are in facts of their own, by namespace and bucket. When such a pod is bound,
the fact of its node is sent first: between the two messages the pod is counted twice, but never
missing. No other fact is sent before its time for that.

What was decided here can wait longer than what was not: a pod that our scheduler has bound is
charged to its node since the decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import msgspec

from wharfinger.domain.cluster import FACTS_FRESH, MAY_READ, Cluster, Places, kinds_not_readable
from wharfinger.domain.cluster_objects import ClusterObject, NodeClaimStatus
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.quota import Quota
from wharfinger.domain.scheduler import same_scheduler
from wharfinger.domain.taints import Taint
from wharfinger.domain.time import SECOND, Micros
from wharfinger.domain.value import canonical, stable_hash
from wharfinger.events.accepted import Accepted, Fact, accepted
from wharfinger.events.cluster_state import (
    NODES_BYTES_MAX,
    WAITING_BUCKETS,
    FinishedPodsObserved,
    ImageOnNodes,
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
    WaitingPodsObserved,
    waiting_bucket,
)
from wharfinger.events.clusters import ClusterObserved

AT_ONCE_US = 0
WAITING_US = 50_000
PODS_US = 250_000
SETTLED_US = SECOND
"""Of a pod that waited for our scheduler and is on a node now, and of one that changed without
using more or less of its node, as when it starts. Such facts are due at the next whole second, all
of them together: while many pods are bound, each fact holds several, and each acceptance many
facts."""
NODES_US = SECOND
OBJECTS_US = 5 * SECOND
CLAIMS_US = SECOND // 4
"""Of a NodeClaim that is made, is being deleted or is gone. Karpenter deletes one about a second
after it was made, where its provider has no capacity; a claim that was never reported is waited
for."""
FINISHED_US = 30 * SECOND
"""Finished pods are read by strategies that run every few minutes. A fact holds all finished pods
of a node, and jobs finish often."""

IMAGES_US = 300 * SECOND
"""The shortest time between two reports of images."""
IMAGES_A_BUCKET = 5_000
"""Pairs of an image and a node, about: some 200 kB."""

NODES_A_BUCKET = 40
"""Of a bucket of nodes, about: with few buckets each small change sends much, with many each list
sends many facts."""
BUCKETS_MIN = 8

FRESH = FACTS_FRESH
COMPLETE = "FactsComplete"
REPLACED = "Replaced"
"""Conditions of a cluster, as in Kubernetes `True` or `False`: whether its watches are unbroken,
whether every object could be read, whether another cluster answers under its name."""

NOT_READ = Taint("wharfinger.io/not-read", "NoSchedule")
"""Of a cluster that is known only because it refuses to be read: nothing is assigned to it."""

QUOTA = "ResourceQuota"

ZONE = "topology.kubernetes.io/zone"
"""Label of a node."""

Key = tuple[str, ...]
"""The subject of a fact: `("pods", node)`, `("objects", kind, namespace)`, ..."""


@dataclass(frozen=True, slots=True)
class Sighted:
    """Holds a fact to be sent. `version`: number of facts of this state that were sent before it,
    so of two facts with one key the later one has the greater version."""

    fact: Accepted
    version: int


@dataclass(slots=True)
class _DueKeys:
    """Keys of facts that have changed -> when they are to be sent."""

    at: dict[Key, Micros] = field(default_factory=dict)

    def mark(self, key: Key, at: Micros) -> None:
        before = self.at.get(key)
        if before is None or at < before:
            self.at[key] = at


_CLUSTER: Key = ("cluster",)


class ObservedCluster:
    """Holds the observed state of one member cluster, with the facts that are due.

    `known`: the facts about the cluster that are in the ledger. A fact that no longer holds is sent
    again with the present content, which may be empty. The number of node buckets starts from the
    number in these facts.
    """

    def __init__(self, cluster: Cluster, known: Iterable[Fact] = ()) -> None:
        self._cluster = cluster
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod | WaitingPod] = {}
        self._on: dict[str, dict[str, Pod]] = {}
        self._waiting_in: dict[Key, dict[str, WaitingPod]] = {}
        self._bound_to: dict[Key, set[str]] = {}
        """Key of waiting pods -> nodes that took pods of it since its fact was sent last."""
        self._finished: dict[str, Pod] = {}
        self._finished_on: dict[str, dict[str, Pod]] = {}
        self._objects: dict[Key, dict[str, ClusterObject | Quota]] = {}
        self._members: dict[int, dict[str, Node]] = {}
        self._buckets = BUCKETS_MIN
        self._images: dict[str, dict[str, int]] = {}
        self._image_on: dict[str, dict[str, int]] = {}
        self._image_pairs = 0
        self._image_buckets = 1
        self._images_from: Micros = 0
        self._images_known = False
        self._due = _DueKeys()
        self._sent: dict[str, bytes] = {}
        self._version = 0
        self._listed: set[str] = set()
        self._unreadable: dict[tuple[str, str], str] = {}
        self._listed_before = False
        for fact in known:
            self._remember(fact)

    def _remember(self, fact: Fact) -> None:
        """Creates the entry of a fact that an earlier collector sent. After the first complete list
        the entry is compared, and emptied if its objects no longer exist."""
        if isinstance(fact, ClusterObserved):
            self._cluster = msgspec.structs.replace(self._cluster, zones=fact.cluster.zones)
        elif isinstance(fact, NodesObserved):
            self._listed_before = True
            self._buckets = max(self._buckets, fact.buckets)
        elif isinstance(fact, NodeImagesObserved):
            self._image_buckets = max(self._image_buckets, fact.buckets)
            self._images_known = self._images_known or bool(fact.images)
        elif isinstance(fact, PodsObserved) and fact.pods:
            self._on.setdefault(fact.node, {})
        elif isinstance(fact, WaitingPodsObserved) and fact.pods:
            self._waiting_in.setdefault(("waiting", fact.namespace, str(fact.bucket)), {})
        elif isinstance(fact, FinishedPodsObserved) and fact.pods:
            self._finished_on.setdefault(fact.node, {})
        elif isinstance(fact, ObjectsObserved) and fact.objects:
            self._objects.setdefault(("objects", fact.kind, fact.namespace), {})
        elif isinstance(fact, QuotasObserved) and fact.quotas:
            self._objects.setdefault(("quotas", fact.namespace), {})

    # --- what is observed

    @property
    def complete(self) -> bool:
        """Returns whether nodes and pods have been listed completely."""
        return self._listed >= {"nodes", "pods"}

    @property
    def counts(self) -> Mapping[str, int]:
        """Returns the number of known nodes, of known unfinished pods, and of those without a node
        (`waiting`)."""
        waiting = sum(len(pods) for pods in self._waiting_in.values())
        return {"nodes": len(self._nodes), "pods": len(self._pods), "waiting": waiting}

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    def node(self, name: str) -> Node | None:
        """Returns the node, with its images."""
        node = self._nodes.get(name)
        if node is None or not (images := self._images.get(name)):
            return node
        return msgspec.structs.replace(node, images=images)

    def pod(self, uid: str) -> Pod | WaitingPod | None:
        """Returns an unfinished pod."""
        return self._pods.get(uid)

    def finished(self, uid: str) -> Pod | None:
        return self._finished.get(uid)

    def object(self, kind: str, namespace: str, name: str) -> ClusterObject | Quota | None:
        key: Key = ("quotas", namespace) if kind == QUOTA else ("objects", kind, namespace)
        return self._objects.get(key, {}).get(name)

    @property
    def zones(self) -> tuple[str, ...]:
        """Returns the zones of the nodes, sorted."""
        return tuple(sorted({z for n in self._nodes.values() if (z := n.labels.get(ZONE))}))

    def observe_cluster(self, cluster: Cluster, at: Micros) -> None:
        """Replaces the cluster's own facts. The present values of the conditions `FactsFresh...`,
        `FactsComplete` and `MayRead...` are kept."""
        kept = {
            name: value
            for name, value in self._cluster.conditions.items()
            if name == COMPLETE or name.startswith((FRESH, MAY_READ))
        }
        changed = msgspec.structs.replace(cluster, conditions={**cluster.conditions, **kept})
        if changed != self._cluster or not self._sent.get(self._cluster.name):
            before, self._cluster = self._cluster, changed
            self._due.mark(_CLUSTER, at)
            if _terms(before) != _terms(changed):
                for bucket in range(self._buckets if "nodes" in self._listed else 0):
                    self._due.mark(("nodes", str(bucket)), at)

    def condition(self, name: str, holds: bool, at: Micros) -> None:
        """Sets a condition of the cluster. A condition that holds is removed instead of set to
        `True`, so a healthy cluster has none."""
        said = {n: v for n, v in self._cluster.conditions.items() if n != name}
        if not holds:
            said[name] = "False"
        if said != self._cluster.conditions:
            self._cluster = msgspec.structs.replace(self._cluster, conditions=said)
            self._due.mark(_CLUSTER, at)

    def list_nodes(self, nodes: Sequence[Node], at: Micros) -> None:
        """Replaces all nodes by a complete list. Nodes that are not in the list are deleted."""
        gone = self._nodes.keys() - {node.name for node in nodes}
        first = "nodes" not in self._listed
        self._listed.add("nodes")
        for node in nodes:
            self.see_node(node, at)
        for name in sorted(gone):
            self.lose_node(name, at)
        if first:
            self._cut(at)
            if self._image_on or self._images_known:
                for bucket in range(self._image_buckets):
                    self._due.mark(("images", str(bucket)), at)

    def see_node(self, node: Node, at: Micros) -> None:
        if node.images or node.name in self._images:
            self._see_images(node.name, node.images, at)
            node = msgspec.structs.replace(node, images={})
        before = self._nodes.get(node.name)
        if before == node:
            return
        self._nodes[node.name] = node
        bucket = self._bucket(node.name)
        self._members.setdefault(bucket, {})[node.name] = node
        if len(self._nodes) > NODES_A_BUCKET * self._buckets and "nodes" in self._listed:
            self._cut(at)
        urgent = before is None or _urgent(before) != _urgent(node)
        self._due.mark(("nodes", str(bucket)), at + (AT_ONCE_US if urgent else NODES_US))

    def lose_node(self, name: str, at: Micros) -> None:
        if self._nodes.pop(name, None) is None:
            return
        self._see_images(name, {}, at)
        bucket = self._bucket(name)
        self._members[bucket].pop(name, None)
        self._due.mark(("nodes", str(bucket)), at)

    def _see_images(self, node: str, images: dict[str, int], at: Micros) -> None:
        """Records the images on a node (image -> bytes). Marks the facts of those that changed."""
        before = self._images.get(node, {})
        if before == images:
            return
        due = max(at + OBJECTS_US, self._images_from)
        for image in sorted(before.keys() | images.keys()):
            if before.get(image) == images.get(image):
                continue
            on = self._image_on.setdefault(image, {})
            if image in images:
                on[node] = images[image]
            else:
                del on[node]
                if not on:
                    del self._image_on[image]
            self._due.mark(("images", str(self._image_bucket(image))), due)
        self._image_pairs += len(images) - len(before)
        if images:
            self._images[node] = images
        else:
            del self._images[node]
        if self._image_pairs > IMAGES_A_BUCKET * self._image_buckets:
            self._image_buckets *= 2
            for bucket in range(self._image_buckets):
                self._due.mark(("images", str(bucket)), due)

    def _image_bucket(self, image: str) -> int:
        return stable_hash(image) % self._image_buckets

    def list_pods(
        self, pods: Sequence[Pod | WaitingPod], at: Micros, finished: Sequence[Pod] = ()
    ) -> None:
        """Replaces all pods by a complete list: `pods` are the unfinished pods of the cluster,
        `finished` the others. Known pods that are not in the list are deleted. After the first
        list, the pod facts of all nodes are marked to be sent at `at`. This includes nodes for
        which only an earlier collector process sent pods."""
        gone = self._pods.keys() - {pod.uid for pod in pods}
        gone |= self._finished.keys() - {pod.uid for pod in finished}
        first = "pods" not in self._listed
        self._listed.add("pods")
        for uid in sorted(gone):
            self.lose_pod(uid, at)
        for pod in pods:
            self.see_pod(pod, at)
        for pod in finished:
            self.see_finished(pod, at)
        if first:  # also those of nodes on which an earlier collector saw pods
            for node in self._on:
                self._due.mark(("pods", node), at)
            for key in self._waiting_in:
                self._due.mark(key, at)
            for node in self._finished_on:
                self._due.mark(("finished", node), at)

    def see_pod(self, pod: Pod | WaitingPod, at: Micros) -> None:
        before = self._pods.get(pod.uid)
        if before == pod:
            return
        due = self._due_at(before, pod, at)
        if before is not None and _key_of_pod(before) != _key_of_pod(pod):
            self._leave(before, due)
            if isinstance(before, WaitingPod) and isinstance(pod, Pod):
                self._bound_to.setdefault(_key_of_pod(before), set()).add(pod.node)
        if pod.uid in self._finished:
            self.lose_pod(pod.uid, at)
        self._pods[pod.uid] = pod
        key = _key_of_pod(pod)
        if isinstance(pod, Pod):
            self._on.setdefault(pod.node, {})[pod.uid] = pod
        else:
            self._waiting_in.setdefault(key, {})[pod.uid] = pod
        self._due.mark(key, due)

    def _due_at(self, before: Pod | WaitingPod | None, pod: Pod | WaitingPod, at: Micros) -> Micros:
        """Returns when the facts about a pod are due that has changed `at`."""
        if isinstance(pod, WaitingPod):
            return at + WAITING_US
        if isinstance(before, WaitingPod):
            settled = self._placed_here(before)
        else:
            settled = before is not None and _room(before) == _room(pod)
        return at - at % SETTLED_US + SETTLED_US if settled else at + PODS_US

    def _placed_here(self, pod: WaitingPod) -> bool:
        named = same_scheduler(pod.requirements.traits.scheduler, self._cluster.scheduler)
        return named and self._cluster.places == "pods"

    def see_finished(self, pod: Pod, at: Micros) -> None:
        """Records a pod that has finished. It uses nothing of its node any more."""
        if self._finished.get(pod.uid) == pod:
            return
        self.lose_pod(pod.uid, at)
        self._finished[pod.uid] = pod
        self._finished_on.setdefault(pod.node, {})[pod.uid] = pod
        self._due.mark(("finished", pod.node), at + FINISHED_US)

    def lose_pod(self, uid: str, at: Micros) -> None:
        """Removes a pod that was deleted."""
        if (pod := self._pods.pop(uid, None)) is not None:
            self._leave(pod, at + (PODS_US if isinstance(pod, Pod) else WAITING_US))
        if (pod := self._finished.pop(uid, None)) is not None:
            self._finished_on[pod.node].pop(uid, None)
            self._due.mark(("finished", pod.node), at + FINISHED_US)

    def list_objects(self, kind: str, objects: Sequence[ClusterObject | Quota], at: Micros) -> None:
        """Replaces all objects of one kind by `objects`, a complete list. Known objects that are
        not in the list are deleted. The facts of the first list of a kind are sent at once. The
        facts of later changes are sent after 5 seconds (`OBJECTS_US`), of NodeClaims that come or
        go earlier (`CLAIMS_US`)."""
        first = kind not in self._listed
        self._listed.add(kind)
        there = {(_drawer(kind, found), found.name) for found in objects}
        for found in objects:
            self.see_object(kind, found, at - OBJECTS_US if first else at)
        for key in [key for key in self._objects if _is_of(key, kind)]:
            if first:  # also what an earlier collector saw
                self._due.mark(key, at)
            for name in sorted(self._objects[key]):
                if (key, name) not in there:
                    self.lose_object(kind, key[-1], name, at)

    def see_object(self, kind: str, found: ClusterObject | Quota, at: Micros) -> None:
        key = _drawer(kind, found)
        drawer = self._objects.setdefault(key, {})
        before = drawer.get(found.name)
        if before != found:
            drawer[found.name] = found
            self._due.mark(key, at + (CLAIMS_US if _comes_or_goes(before, found) else OBJECTS_US))

    def lose_object(self, kind: str, namespace: str, name: str, at: Micros) -> None:
        key: Key = ("quotas", namespace) if kind == QUOTA else ("objects", kind, namespace)
        if (gone := self._objects.get(key, {}).pop(name, None)) is not None:
            self._due.mark(key, at + (CLAIMS_US if _comes_or_goes(None, gone) else OBJECTS_US))

    def unreadable(self, kind: str, name: str, why: str, at: Micros) -> None:
        """Records that an object exists but cannot be converted to a value. The last known value is
        kept, and the condition `FactsComplete` becomes `False`."""
        self._unreadable[kind, name] = why
        self.condition(COMPLETE, False, at)

    def readable(self, kind: str, name: str, at: Micros) -> None:
        """Records that an object could be read, or no longer exists. The condition `FactsComplete`
        holds again when no unreadable object is left."""
        if self._unreadable and self._unreadable.pop((kind, name), None) is not None:
            self.condition(COMPLETE, not self._unreadable, at)

    # --- what is to be sent

    def next_at(self) -> Micros | None:
        """Returns the time at which the next fact is due. None if none is due, or nodes and pods
        have not both been listed."""
        if not self.complete:
            return None
        return min(self._due.at.values(), default=None)

    def due(self, at: Micros) -> list[Sighted]:
        """Returns the facts whose time to be sent has come at `at` and whose bytes differ from the
        bytes sent last, in the order in which the caller must send them. Returns an empty list
        until both nodes and pods have been listed.

        Before a fact with pods without a node the changed facts of all nodes are returned that have
        taken pods of it. So a pod that was just bound to a node may be counted twice for a moment,
        but is never missing. Each returned fact is recorded as sent. If a fact was
        not accepted, the caller passes it to `unsent`.
        """
        if not self.complete:
            return []
        ready = [key for key, due_at in self._due.at.items() if due_at <= at]
        first: set[Key] = set()
        for key in ready:
            if key[0] == "finished":  # a pod that finished is off its node first
                first.add(("pods", key[1]))
            elif key[0] == "waiting":  # a pod that was bound is on its node first
                first.update(("pods", node) for node in self._bound_to.pop(key, ()))
        ready += sorted((first & self._due.at.keys()).difference(ready))
        if any(key[0] == "images" for key in ready):
            self._images_from = at + IMAGES_US
        for key in ready:
            del self._due.at[key]
        return [sighted for key in sorted(ready, key=_order) for sighted in self._differs(key)]

    def heartbeat(self) -> Sighted:
        """Returns the fact about the cluster itself, also if nothing has changed."""
        return self._sighted(accepted(ClusterObserved(self._cluster)))

    def unlisted(self, at: Micros) -> list[Sighted]:
        """Returns the fact about a cluster that refuses to show its nodes or pods, if it has
        changed. A cluster that was never listed has the taint `NOT_READ` in it; of any other its
        zones stay as they are in the ledger. Returns an empty list if both have been listed, or if
        no right is missing and nothing of this was returned before."""
        name = self._cluster.name
        if self.complete or not (kinds_not_readable(self._cluster) or name in self._sent):
            return []
        cluster = self._cluster
        if not self._listed_before:
            cluster = msgspec.structs.replace(cluster, taints=(NOT_READ,))
        fact = accepted(ClusterObserved(cluster))
        body = canonical(fact.data)
        if self._sent.get(fact.key) == body:
            return []
        self._sent[fact.key] = body
        self._due.mark(_CLUSTER, at)  # once it is listed, without the taint
        return [self._sighted(fact)]

    def unsent(self, facts: Iterable[Sighted], at: Micros) -> None:
        """Marks facts that were not accepted as due again."""
        for sighted in facts:
            self._sent.pop(sighted.fact.key, None)
            self._due.mark(_key_of(sighted.fact), at)

    def _differs(self, key: Key) -> list[Sighted]:
        fact = accepted(self._fact(key))
        body = canonical(fact.data)
        if self._sent.get(fact.key) == body:
            return []
        self._sent[fact.key] = body
        return [self._sighted(fact)]

    def _sighted(self, fact: Accepted) -> Sighted:
        self._version += 1
        return Sighted(fact, self._version)

    def _fact(self, key: Key) -> Fact:
        name = self._cluster.name
        match key:
            case ("nodes", bucket):
                members = self._members.get(int(bucket), {})
                nodes = tuple([members[node] for node in sorted(members)])
                return NodesObserved(
                    name, int(bucket), self._buckets, nodes, *_terms(self._cluster)
                )
            case ("images", bucket):
                return NodeImagesObserved(
                    name, int(bucket), self._image_buckets, self._images_in(int(bucket))
                )
            case ("objects", kind, namespace):
                drawer = cast("dict[str, ClusterObject]", self._objects[key])
                objects = tuple([drawer[found] for found in sorted(drawer)])
                return ObjectsObserved(name, kind, namespace, objects)
            case ("quotas", namespace):
                quotas = cast("dict[str, Quota]", self._objects[key])
                return QuotasObserved(
                    name, namespace, tuple([quotas[found] for found in sorted(quotas)])
                )
            case ("pods", node):
                here = self._on.get(node, {})
                if not here:
                    self._on.pop(node, None)
                return PodsObserved(name, node, tuple([here[uid] for uid in sorted(here)]))
            case ("waiting", namespace, bucket):
                queue = self._waiting_in.get(key, {})
                if not queue:
                    self._waiting_in.pop(key, None)
                waiting = tuple([queue[uid] for uid in sorted(queue)])
                return WaitingPodsObserved(name, namespace, int(bucket), WAITING_BUCKETS, waiting)
            case ("finished", node):
                here = self._finished_on.get(node, {})
                if not here:
                    self._finished_on.pop(node, None)
                return FinishedPodsObserved(name, node, tuple([here[uid] for uid in sorted(here)]))
            case _:
                return ClusterObserved(self._cluster)

    def _images_in(self, bucket: int) -> tuple[ImageOnNodes, ...]:
        found: list[ImageOnNodes] = []
        for image in sorted(i for i in self._image_on if self._image_bucket(i) == bucket):
            by_size: dict[int, list[str]] = {}
            for node, size in sorted(self._image_on[image].items()):
                by_size.setdefault(size, []).append(node)
            found += [ImageOnNodes(image, s, tuple(on)) for s, on in sorted(by_size.items())]
        return tuple(found)

    def _leave(self, pod: Pod | WaitingPod, due: Micros) -> None:
        key = _key_of_pod(pod)
        if isinstance(pod, Pod):
            self._on[pod.node].pop(pod.uid, None)
        else:
            self._waiting_in[key].pop(pod.uid, None)
        self._due.mark(key, due)

    def _bucket(self, node: str) -> int:
        return stable_hash(node) % self._buckets

    def _cut(self, at: Micros) -> None:
        """Doubles the number of node buckets until two conditions hold: on average there are at
        most 40 nodes per bucket (`NODES_A_BUCKET`), and no bucket with several nodes exceeds the
        byte limit. Then assigns each node to a bucket by hash again, and marks all buckets to be
        sent at `at`. Example: 100 nodes in 1 bucket: 2 buckets would hold 50 nodes on average, so 4
        buckets are used.

        The number of buckets never decreases, because every change of the number sends all nodes
        again.
        """
        while len(self._nodes) > NODES_A_BUCKET * self._buckets or self._too_large():
            self._buckets *= 2
        self._members = {}
        for name, node in self._nodes.items():
            self._members.setdefault(self._bucket(name), {})[name] = node
        for key in [key for key in self._due.at if key[0] == "nodes"]:
            del self._due.at[key]
        for bucket in range(self._buckets):
            self._due.mark(("nodes", str(bucket)), at)

    def _too_large(self) -> bool:
        sizes = [0] * self._buckets
        members = [0] * self._buckets
        for name, node in self._nodes.items():
            bucket = self._bucket(name)
            sizes[bucket] += len(canonical(node))
            members[bucket] += 1
        return any(
            size > NODES_BYTES_MAX and count > 1 for size, count in zip(sizes, members, strict=True)
        )


def _urgent(node: Node) -> tuple[object, ...]:
    """Returns the properties of a node whose change is sent at once, because they forbid new pods:
    ready, unschedulable, taints."""
    return node.ready, node.unschedulable, node.taints


def _terms(cluster: Cluster) -> tuple[Places, str, bool]:
    """What is said of a cluster with its nodes."""
    return cluster.places, cluster.scheduler, cluster.evicts


SENT_IN_ORDER = ("cluster", "nodes", "images", "objects", "pods", "waiting", "quotas", "finished")


def _order(key: Key) -> tuple[int, Key]:
    """Returns the sort key by which due facts are sent: the cluster, the nodes, the images on
    them, the objects that pods need, the pods on nodes, the pods without a node, the quotas that
    count them, and last the finished pods."""
    rank = SENT_IN_ORDER.index(key[0])
    return rank, key


def _key_of_pod(pod: Pod | WaitingPod) -> Key:
    if isinstance(pod, Pod):
        return "pods", pod.node
    return "waiting", pod.requirements.traits.home, str(waiting_bucket(pod.uid))


def _room(pod: Pod) -> tuple[object, ...]:
    """Returns what decides how much of its node a pod uses, and for how long."""
    return pod.node, pod.requirements, pod.priority, pod.devices, pod.terminating


def _drawer(kind: str, found: ClusterObject | Quota) -> Key:
    if isinstance(found, Quota):
        return "quotas", found.namespace
    return "objects", kind, getattr(found, "namespace", "")


def _comes_or_goes(before: ClusterObject | Quota | None, now: ClusterObject | Quota) -> bool:
    """Whether the change is that of a NodeClaim which is made, is being deleted or is gone."""
    if not isinstance(now, NodeClaimStatus):
        return False
    return not isinstance(before, NodeClaimStatus) or before.deleting != now.deleting


def _is_of(key: Key, kind: str) -> bool:
    return key[0] == "quotas" if kind == QUOTA else key[:2] == ("objects", kind)


def _key_of(fact: Accepted) -> Key:
    match fact.data:
        case NodesObserved(bucket=bucket):
            return "nodes", str(bucket)
        case NodeImagesObserved(bucket=bucket):
            return "images", str(bucket)
        case PodsObserved(node=node):
            return "pods", node
        case WaitingPodsObserved(namespace=namespace, bucket=bucket):
            return "waiting", namespace, str(bucket)
        case FinishedPodsObserved(node=node):
            return "finished", node
        case ObjectsObserved(kind=kind, namespace=namespace):
            return "objects", kind, namespace
        case QuotasObserved(namespace=namespace):
            return "quotas", namespace
        case _:
            return _CLUSTER
