"""The priority and the pod group of a workload that names them.

They are looked up when the workload is applied, and their values go with its binding: a decision
then needs nothing but the binding. As in Kubernetes, workloads keep their priority when their class
is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.policy import Policy, PriorityLevel
from wharfinger.domain.workload import Requirements
from wharfinger.manifests.kubernetes.cluster_objects import SYSTEM_CLASSES
from wharfinger.manifests.kubernetes.pod import PodSpec

Asked = tuple[Requirements, int, str]
"""What a workload asks for: its requirements, its priority, the name of its priority class."""


class Levels:
    def __init__(self, policies: Iterable[Policy]) -> None:
        known = sorted(policies, key=lambda p: p.key)
        self._classes = SYSTEM_CLASSES | {
            p.name: p.priority_level for p in known if p.priority_level is not None
        }
        self._groups = {
            (p.namespace, name): count
            for p in known
            if p.pod_groups is not None
            for name, count in p.pod_groups.min_counts.items()
        }

    def __contains__(self, priority_class: str) -> bool:
        return priority_class in self._classes

    def of(self, said: PodSpec, namespace: str, requirements: Requirements) -> Asked:
        """Of pods of the spec `said`. A number that it has already is taken as it is. A class that
        is not known counts for nothing."""
        name = said.priority_class_name or self._default
        level = self._classes.get(name, PriorityLevel(0))
        priority = level.value if said.priority is None else said.priority
        if level.never_preempts and said.preemption_policy is None:
            requirements = _with_traits(requirements, namespace, never_preempts=True)
        return self._grouped(requirements, namespace), priority, name

    def value_of(self, pods: PodSpec) -> int:
        """The priority of pods of this spec, for any owner."""
        if pods.priority is not None:
            return pods.priority
        level = self._classes.get(pods.priority_class_name or self._default)
        return level.value if level else 0

    def levelled(self, binding: Binding, policy: Policy | None) -> Binding:
        """A known binding with the present priority and pod group. A priority that a policy sets
        for its bindings stays."""
        requirements = self._grouped(binding.requirements, binding.resource.namespace)
        level = self._classes.get(binding.priority_class)
        ranked = (
            policy is not None
            and policy.propagation is not None
            and policy.propagation.binding_priority is not None
        )
        priority = binding.priority if level is None or ranked else level.value
        return msgspec.structs.replace(binding, requirements=requirements, priority=priority)

    @property
    def _default(self) -> str:
        """The class of pods that name none: of several that claim to be it the one of the lowest
        value, as in Kubernetes."""
        claim = [
            (level.value, name) for name, level in self._classes.items() if level.global_default
        ]
        return min(claim)[1] if claim else ""

    def _grouped(self, requirements: Requirements, namespace: str) -> Requirements:
        """A copy of a group of a Workload (`workload/group/key`) is as large as the group."""
        group = requirements.traits.group
        named = "/".join(group.split("/")[:2])
        if not group or (count := self._groups.get((namespace, named))) is None:
            return requirements
        return _with_traits(requirements, namespace, min_count=count)


def _with_traits(requirements: Requirements, namespace: str, **traits: object) -> Requirements:
    """Traits that say something say their namespace, too."""
    pod = requirements.pod or PodTraits(namespace=namespace)
    return msgspec.structs.replace(requirements, pod=msgspec.structs.replace(pod, **traits))
