"""What one replica of a workload needs. Equal requirements form a *requirement class*, named by
their digest."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec

from wharfinger.domain.ids import (
    ApiVersion,
    LabelKey,
    LabelText,
    NamespaceName,
    ResourceName,
    Word,
    WorkloadName,
)
from wharfinger.domain.pod_traits import NO_TRAITS, PodTraits
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.taints import Toleration
from wharfinger.domain.value import Value, canonical


class Requirements(Value, frozen=True):
    """Requests and node claims of one replica.

    `node_selector` and `node_terms` (terms are alternatives, required) restrict nodes;
    `tolerations` are the pod's. `pod`: what else its node depends on; None: nothing, not even
    labels by which others could select it."""

    requests: dict[ResourceName, int] = {}
    devices: tuple[DeviceRequest, ...] = ()
    node_selector: dict[LabelKey, LabelText] = {}
    node_terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    pod: PodTraits | None = None

    @property
    def class_key(self) -> str:
        """The name of this requirement class: as many fit of requirements with equal keys. Pods
        that differ only in what others see of them (labels, images, preferences) are one class."""
        if self.pod is not None and not self.pod.restrictive:
            return _class_key(canonical(msgspec.structs.replace(self, pod=None)))
        return _class_key(canonical(self))

    @property
    def pod_key(self) -> str:
        """The name of everything here: pods with equal keys are interchangeable on every node."""
        return _class_key(canonical(self))

    @property
    def traits(self) -> PodTraits:
        return self.pod or NO_TRAITS

    @property
    def empty(self) -> bool:
        return not self.requests and not self.devices


@lru_cache(maxsize=4096)
def _class_key(requirements: bytes) -> str:
    """As `digest`: of a fleet's many bindings most are of a few classes."""
    return hashlib.sha256(requirements).hexdigest()[:16]


class ObjectRef(Value, frozen=True):
    """The workload a binding places."""

    api_version: ApiVersion
    kind: Word
    name: WorkloadName
    namespace: NamespaceName = ""

    @property
    def gvk(self) -> str:
        """`apps/v1/Deployment`: how a cluster's enabled kinds are listed."""
        return f"{self.api_version}/{self.kind}"
