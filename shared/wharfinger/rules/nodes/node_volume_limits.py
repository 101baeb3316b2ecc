"""NodeVolumeLimits: a node can attach a limited number of volumes per CSI driver. A claim that does
not exist refuses the pod. [kube-scheduler]

A volume counts once per node, however many of its pods use it. A volume that will be provisioned
counts for the driver that provisions it. In-tree cloud disks that a pod names without a claim count
for the CSI driver they migrate to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Pod
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.storage import EBS_DRIVER, GCE_DRIVER
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from wharfinger.engine.framework.volumes import (
    MissingClaimError,
    attachment,
    claim_names,
    uses_volumes,
)

REASON = "node(s) exceed max volume count"

TAKEN_OVER = {"awsElasticBlockStore": EBS_DRIVER, "gcePersistentDisk": GCE_DRIVER}
"""Kind of a disk that a pod names -> the CSI driver that attaches it."""

Attached = tuple[str, str]
"""CSI driver and handle."""


class NodeVolumeLimits:
    name = "NodeVolumeLimits"
    reason: NodeReason = "Volumes"
    concerns = staticmethod(uses_volumes)

    def __init__(self, arguments: Arguments) -> None:
        pass

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        uses = pod.requirements.traits.volumes
        return None if any(use.claim or _taken_over(use.disk) for use in uses) else SKIP

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        objects = cycle.snapshot.objects
        for name in claim_names(pod):
            if objects.claim(pod.requirements.traits.home, name) is None:
                where = f"{pod.requirements.traits.home}/{name}"
                return unresolvable(f"looking up PVC {where}: {MissingClaimError(name)}")
        csi_node = objects.csi_node(node.name)
        if csi_node is None or not csi_node.limits:
            return None
        there = dict.fromkeys(
            attached for other in node.pods for attached in _attached(objects, other)
        )
        brought = dict.fromkeys(
            attached for attached in _attached(objects, pod) if attached not in there
        )
        more = Counter(driver for driver, _ in brought)
        count = Counter(driver for driver, _ in there)
        if any(
            count[driver] + more[driver] > csi_node.limits.get(driver, count[driver] + more[driver])
            for driver in more
        ):
            return unschedulable(REASON)
        return None

    def hints(self) -> tuple[Hint, ...]:
        return Hint("csi-node"), Hint("pod/remove", _had_volumes), Hint("claim"), Hint("node/add")


def _taken_over(disk: str) -> str | None:
    return TAKEN_OVER.get(disk.partition("/")[0])


def _attached(objects: ClusterObjects, pod: Pod) -> Iterator[Attached]:
    for use in pod.requirements.traits.volumes:
        if (driver := _taken_over(use.disk)) is not None:
            yield driver, use.disk.partition("/")[2]
        claim = objects.claim(pod.requirements.traits.home, use.claim) if use.claim else None
        if claim is not None and (found := attachment(objects, claim)) is not None:
            yield found


def _had_volumes(pod: Pod, old: object, new: object) -> bool:
    return not isinstance(old, Pod) or bool(old.requirements.traits.volumes)
