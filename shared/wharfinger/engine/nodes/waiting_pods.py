"""The pods of one cluster that have no node yet, as they were last observed.

They use nothing of any node. Their scheduler may keep room for one on a node (`nominated`).
"""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.ids import BindingName, ClassKey, NamespaceName, PodUid
from wharfinger.domain.node import WaitingPod
from wharfinger.events.cluster_state import WaitingPodsObserved

Bucket = tuple[NamespaceName, int]


class WaitingPods:
    """Records the waiting pods by uid. `by_class`: key of their requirements (`pod_key`) -> the
    pods with these requirements. `by_binding`: the same by binding. `nominated`: those for which
    their scheduler keeps room on a node. A pod that several buckets report is taken as the first of
    them, in order of namespace and bucket, has it: so the order of the reports does not matter."""

    def __init__(self) -> None:
        self.pods: dict[PodUid, WaitingPod] = {}
        self.by_class: dict[ClassKey, dict[PodUid, WaitingPod]] = {}
        self.by_binding: dict[BindingName, dict[PodUid, WaitingPod]] = {}
        self.nominated: dict[PodUid, WaitingPod] = {}
        self._buckets: dict[Bucket, WaitingPodsObserved] = {}
        self._in: dict[Bucket, dict[PodUid, WaitingPod]] = {}
        self._reported_by: dict[PodUid, set[Bucket]] = {}

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


def _take_out(index: dict[str, dict[PodUid, WaitingPod]], key: str, uid: PodUid) -> None:
    pods = index[key]
    del pods[uid]
    if not pods:
        del index[key]
