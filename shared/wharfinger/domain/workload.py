"""What one replica of a workload needs. Equal requirements form a *requirement class*, named by their digest."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.taints import Toleration
from wharfinger.domain.value import Value, canonical


class Requirements(Value, frozen=True):
    """Requests and node claims of one replica.

    `node_selector` and `node_terms` (terms are alternatives, required) restrict nodes; `tolerations` are the pod's.
    """

    requests: dict[str, int] = {}
    devices: tuple[DeviceRequest, ...] = ()
    node_selector: dict[str, str] = {}
    node_terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    @property
    def class_key(self) -> str:
        """The name of this requirement class: equal requirements, equal key."""
        return _class_key(canonical(self))

    @property
    def empty(self) -> bool:
        return not self.requests and not self.devices


@lru_cache(maxsize=4096)
def _class_key(requirements: bytes) -> str:
    """As `digest`: of a fleet's many bindings most are of a few classes."""
    return hashlib.sha256(requirements).hexdigest()[:16]


class ObjectRef(Value, frozen=True):
    """The workload a binding places."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @property
    def gvk(self) -> str:
        """`apps/v1/Deployment`: how a cluster's enabled kinds are listed."""
        return f"{self.api_version}/{self.kind}"
