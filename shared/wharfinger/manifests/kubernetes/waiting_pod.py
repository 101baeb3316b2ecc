"""What a pod without a node says beside its requirements: which binding it is a replica of, which
number it has among the pods of its workload, and why its scheduler has not placed it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wharfinger.domain.node import Pod, WaitingPod
from wharfinger.domain.pod_upkeep import PodCondition
from wharfinger.domain.pod_workload import binding_of, index_of


def waiting(
    pod: Pod,
    controller: tuple[str, str],
    nominated: str,
    conditions: Iterable[PodCondition],
    created_us: int,
) -> WaitingPod:
    """`pod`: without a node, with its traits. `conditions`: of its status."""
    traits = pod.requirements.traits
    found = WaitingPod(
        pod.uid,
        pod.name,
        pod.requirements,
        binding_of(traits.home, pod.name, traits.labels, controller),
        index_of(pod.name, traits.labels, controller),
        pod.priority,
        created_us,
        nominated,
    )
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return msgspec.structs.replace(
                found, condition=condition.reason, since_us=condition.since_us
            )
    return found
