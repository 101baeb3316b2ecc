"""Kubernetes' dynamic resource allocation: device classes, the devices that drivers offer, and
claims for them (resource.k8s.io/v1).

Fields behind feature gates that are off by default in Kubernetes (shared counters, taints of
devices, partial capacity) are `Unacted`: the user gets a report. Devices that share counters are
never allocated, because they could be allocated twice.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import model_validator

from wharfinger.domain import device_claims as domain
from wharfinger.manifests.cluster_fact import ClusterFact
from wharfinger.manifests.model import Count, ExpectedError, Int, Model, NotEmpty, Quantity, within
from wharfinger.manifests.selectors import NodeSelector

AllocationMode = Literal["ExactCount", "All"]


class Cel(Model):
    expression: NotEmpty


class DeviceSelector(Model):
    cel: Cel


def _expressions(selectors: list[DeviceSelector]) -> tuple[str, ...]:
    return tuple(selector.cel.expression for selector in selectors)


# Classes.


class DeviceClassSpec(Model, carried="config", unacted="extendedResourceName"):
    selectors: list[DeviceSelector] = []


class DeviceClassManifest(ClusterFact):
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


class Capacity(Model, carried="requestPolicy"):
    value: Quantity


class DeviceManifest(
    Model,
    unacted="allNodes allowMultipleAllocations bindingConditions bindingFailureConditions "
    "bindsToNode consumesCounters nodeName nodeSelector taints",
):
    name: NotEmpty
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}

    def to_domain(self) -> domain.OfferedDevice:
        return domain.OfferedDevice(
            self.name,
            {name: plain for name, a in self.attributes.items() if (plain := a.plain) is not None},
            {name: a.version for name, a in self.attributes.items() if a.version is not None},
            {name: c.value for name, c in self.capacity.items()},
        )


class ResourceSliceSpec(Model, unacted="perDeviceNodeSelection sharedCounters"):
    driver: NotEmpty
    pool: Pool
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    devices: list[DeviceManifest] = []

    @model_validator(mode="after")
    def _is_somewhere(self) -> ResourceSliceSpec:
        places = (
            self.node_name,
            self.node_selector is not None,
            self.all_nodes,
            "perDeviceNodeSelection" in self.others,
        )
        if sum(map(bool, places)) != 1:
            raise ExpectedError(
                "exactly one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection"
            )
        return self


class ResourceSliceManifest(ClusterFact):
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
            tuple(
                device.to_domain()
                for device in spec.devices
                if "consumesCounters" not in device.others
            ),
        )


# What is claimed.


class Exactly(Model, unacted="capacity tolerations"):
    """Also an alternative of `firstAvailable`, which has a name besides."""

    device_class_name: NotEmpty
    selectors: list[DeviceSelector] = []
    allocation_mode: AllocationMode = "ExactCount"
    count: Annotated[Count, within(1, 2**31 - 1)] | None = None
    admin_access: bool = False

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


class RequestManifest(Model):
    name: NotEmpty
    exactly: Exactly | None = None
    first_available: list[Alternative] = []

    @model_validator(mode="after")
    def _asks_one_way(self) -> RequestManifest:
        if (self.exactly is None) != bool(self.first_available):
            raise ExpectedError("either exactly or firstAvailable")
        return self

    def to_domain(self) -> domain.WantedDevices:
        if self.exactly is not None:
            return self.exactly.wanted(self.name)
        alternatives = tuple(a.wanted(f"{self.name}/{a.name}") for a in self.first_available)
        return domain.WantedDevices(self.name, alternatives=alternatives)


class ConstraintManifest(Model, unacted="distinctAttribute"):
    match_attribute: str = ""
    requests: list[str] = []


class ClaimedDevices(Model, carried="config"):
    requests: list[RequestManifest] = []
    constraints: list[ConstraintManifest] = []


class ResourceClaimSpec(Model):
    devices: ClaimedDevices = ClaimedDevices()


class AllocatedDevice(
    Model, carried="bindingConditions bindingFailureConditions consumedCapacity shareID tolerations"
):
    request: str = ""
    driver: NotEmpty
    pool: NotEmpty
    device: NotEmpty
    admin_access: bool = False

    def to_domain(self) -> domain.HeldDevice:
        return domain.HeldDevice(self.driver, self.pool, self.device, self.admin_access)


class AllocatedDevices(Model, carried="config"):
    results: list[AllocatedDevice] = []


class Allocation(Model, carried="allocationTimestamp"):
    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class Consumer(Model, carried="apiGroup"):
    resource: str
    name: str
    uid: str


class ResourceClaimStatus(Model, carried="devices"):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] = []


class ResourceClaimManifest(ClusterFact):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    def to_domain(self) -> domain.ResourceClaim:
        wanted, allocation = self.spec.devices, self.status.allocation
        selector = allocation.node_selector if allocation else None
        return domain.ResourceClaim(
            self.namespace,
            self.name,
            tuple(request.to_domain() for request in wanted.requests),
            tuple(
                domain.Alike(c.match_attribute, tuple(c.requests))
                for c in wanted.constraints
                if c.match_attribute
            ),
            allocation is not None,
            tuple(result.to_domain() for result in allocation.devices.results)
            if allocation
            else (),
            None if selector is None else selector.to_domain(),
            tuple(consumer.uid for consumer in self.status.reserved_for),
        )
