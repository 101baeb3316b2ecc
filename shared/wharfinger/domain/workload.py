"""What one replica of a workload needs. Equal requirements form a *requirement class*, named by their digest."""

from __future__ import annotations

from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.taints import Toleration
from wharfinger.domain.value import Value, digest


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
        return digest(self)

    @property
    def empty(self) -> bool:
        return not self.requests and not self.devices


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
