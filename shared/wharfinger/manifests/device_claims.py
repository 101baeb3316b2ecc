"""Kubernetes' dynamic resource allocation: classes of devices, what drivers offer, and claims for them (resource.k8s.io/v1).

What is behind gates that are off by default there (shared counters, taints of devices, capacity taken in parts) is `Unacted`: a
user is told, and devices that share counters are not handed out at all, since they would be handed out twice.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import model_validator

from wharfinger.domain import device_claims as domain
from wharfinger.manifests.cluster_fact import ClusterFact
from wharfinger.manifests.model import Carried, Count, ExpectedError, Int, Model, NotEmpty, Quantity, Unacted, within
from wharfinger.manifests.selectors import NodeSelector

AllocationMode = Literal["ExactCount", "All"]


class Cel(Model):
    expression: NotEmpty


class DeviceSelector(Model):
    cel: Cel


def _expressions(selectors: list[DeviceSelector]) -> tuple[str, ...]:
    return tuple(selector.cel.expression for selector in selectors)


# Classes.


class DeviceClassSpec(Model):
    selectors: list[DeviceSelector] = []
    config: Carried = None
    extended_resource_name: Unacted = None


class DeviceClass(ClusterFact):
    spec: DeviceClassSpec = DeviceClassSpec()

    def to_domain(self) -> domain.DeviceClass:
        return domain.DeviceClass(self.name, _expressions(self.spec.selectors))


# What is offered.


class Pool(Model):
    name: NotEmpty
    generation: Int = 0
    resource_slice_count: Annotated[Int, within(1, 2**63 - 1)] = 1


class Attribute(Model):
    """Exactly one of them."""

    int_: Int | None = None
    bool_: bool | None = None
    string: str | None = None
    version: str | None = None

    @model_validator(mode="after")
    def _has_one_value(self) -> Attribute:
        if sum(v is not None for v in (self.int_, self.bool_, self.string, self.version)) != 1:
            raise ExpectedError("exactly one of int, bool, string and version")
        return self

    @property
    def plain(self) -> domain.Attribute | None:
        """None: it is a version."""
        return next((v for v in (self.int_, self.bool_, self.string) if v is not None), None)


class Capacity(Model):
    value: Quantity
    request_policy: Carried = None


class Device(Model):
    name: NotEmpty
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}
    all_nodes: Unacted = None
    allow_multiple_allocations: Unacted = None
    binding_conditions: Unacted = None
    binding_failure_conditions: Unacted = None
    binds_to_node: Unacted = None
    consumes_counters: Unacted = None
    node_name: Unacted = None
    node_selector: Unacted = None
    taints: Unacted = None

    def to_domain(self) -> domain.OfferedDevice:
        return domain.OfferedDevice(
            self.name,
            {name: plain for name, a in self.attributes.items() if (plain := a.plain) is not None},
            {name: a.version for name, a in self.attributes.items() if a.version is not None},
            {name: c.value for name, c in self.capacity.items()},
        )


class ResourceSliceSpec(Model):
    driver: NotEmpty
    pool: Pool
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    devices: list[Device] = []
    per_device_node_selection: Unacted = None
    shared_counters: Unacted = None

    @model_validator(mode="after")
    def _is_somewhere(self) -> ResourceSliceSpec:
        places = (self.node_name, self.node_selector is not None, self.all_nodes, self.per_device_node_selection)
        if sum(map(bool, places)) != 1:
            raise ExpectedError("exactly one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection")
        return self


class ResourceSlice(ClusterFact):
    travels: ClassVar[bool] = False
    spec: ResourceSliceSpec

    def to_domain(self) -> domain.ResourceSlice:
        spec = self.spec
        return domain.ResourceSlice(
            self.name,
            spec.driver,
            spec.pool.name,
            spec.pool.generation,
            spec.pool.resource_slice_count,
            spec.node_name,
            spec.all_nodes,
            spec.node_selector.to_domain() if spec.node_selector else (),
            tuple(device.to_domain() for device in spec.devices if not device.consumes_counters),
        )


# What is claimed.


class Exactly(Model):
    """Also an alternative of `firstAvailable`, which has a name besides."""

    device_class_name: NotEmpty
    selectors: list[DeviceSelector] = []
    allocation_mode: AllocationMode = "ExactCount"
    count: Annotated[Count, within(1, 2**31 - 1)] | None = None
    admin_access: bool = False
    capacity: Unacted = None
    tolerations: Unacted = None

    @model_validator(mode="after")
    def _counts_or_takes_all(self) -> Exactly:
        if self.count is not None and self.allocation_mode == "All":
            raise ExpectedError("no count where allocationMode is All", "count")
        return self

    def wanted(self, name: str) -> domain.WantedDevices:
        return domain.WantedDevices(
            name,
            self.device_class_name,
            _expressions(self.selectors),
            self.count or 1,
            self.allocation_mode == "All",
            self.admin_access,
        )


class Alternative(Exactly):
    name: NotEmpty


class Request(Model):
    name: NotEmpty
    exactly: Exactly | None = None
    first_available: list[Alternative] = []

    @model_validator(mode="after")
    def _asks_one_way(self) -> Request:
        if (self.exactly is None) != bool(self.first_available):
            raise ExpectedError("either exactly or firstAvailable")
        return self

    def to_domain(self) -> domain.WantedDevices:
        if self.exactly is not None:
            return self.exactly.wanted(self.name)
        alternatives = tuple(a.wanted(f"{self.name}/{a.name}") for a in self.first_available)
        return domain.WantedDevices(self.name, alternatives=alternatives)


class Constraint(Model):
    match_attribute: str = ""
    requests: list[str] = []
    distinct_attribute: Unacted = None


class ClaimedDevices(Model):
    requests: list[Request] = []
    constraints: list[Constraint] = []
    config: Carried = None


class ResourceClaimSpec(Model):
    devices: ClaimedDevices = ClaimedDevices()


class AllocatedDevice(Model):
    request: str = ""
    driver: NotEmpty
    pool: NotEmpty
    device: NotEmpty
    admin_access: bool = False
    binding_conditions: Carried = None
    binding_failure_conditions: Carried = None
    consumed_capacity: Carried = None
    share_id: Carried = None
    tolerations: Carried = None

    def to_domain(self) -> domain.HeldDevice:
        return domain.HeldDevice(self.driver, self.pool, self.device, self.admin_access)


class AllocatedDevices(Model):
    results: list[AllocatedDevice] = []
    config: Carried = None


class Allocation(Model):
    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None
    allocation_timestamp: Carried = None


class Consumer(Model):
    resource: str
    name: str
    uid: str
    api_group: Carried = None


class ResourceClaimStatus(Model):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] = []
    devices: Carried = None


class ResourceClaim(ClusterFact):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    def to_domain(self) -> domain.ResourceClaim:
        wanted, allocation = self.spec.devices, self.status.allocation
        selector = allocation.node_selector if allocation else None
        return domain.ResourceClaim(
            self.namespace,
            self.name,
            tuple(request.to_domain() for request in wanted.requests),
            tuple(domain.Alike(c.match_attribute, tuple(c.requests)) for c in wanted.constraints if c.match_attribute),
            allocation is not None,
            tuple(result.to_domain() for result in allocation.devices.results) if allocation else (),
            None if selector is None else selector.to_domain(),
            tuple(consumer.uid for consumer in self.status.reserved_for),
        )
