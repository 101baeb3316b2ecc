"""Devices that are claimed by name and quality rather than counted: classes of devices, what
drivers offer on which nodes, and claims for them (Kubernetes' dynamic resource allocation).

Devices that are counted as extended resources (`nvidia.com/gpu`) are in `resources`; the two do not
meet.
"""

from __future__ import annotations

from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.value import Name, Value

Attribute = bool | int | str


class DeviceClass(Value, frozen=True, tag="DeviceClass"):
    """`selectors`: CEL expressions over `device`, all of which hold for a device of the class."""

    name: Name
    selectors: tuple[str, ...] = ()


class OfferedDevice(Value, frozen=True):
    """`attributes`, `versions` (semantic versions), `capacity` (quantities as text): by name, which
    is of the driver's domain where it has no `domain/` before it."""

    name: str
    attributes: dict[str, Attribute] = {}
    versions: dict[str, str] = {}
    capacity: dict[str, str] = {}


class ResourceSlice(Value, frozen=True, tag="ResourceSlice"):
    """What a driver offers of a pool. A pool may be told in `slices` of them; those of an older
    `generation` than the newest do not count any more. Offered on one `node`, on `all_nodes`, or
    where one of `node_terms` matches."""

    name: Name
    driver: str
    pool: str
    generation: int = 0
    slices: int = 1
    node: str = ""
    all_nodes: bool = False
    node_terms: tuple[NodeTerm, ...] = ()
    devices: tuple[OfferedDevice, ...] = ()


class WantedDevices(Value, frozen=True):
    """One request of a claim: `count` devices of the class that meet `selectors` (CEL), or `all` of
    them there are on the node. `monitoring`: access for administrators, to devices that others may
    hold, and without taking them.

    With `alternatives` it is the first of those that can be had; the rest of it says nothing
    then."""

    name: str
    device_class: str = ""
    selectors: tuple[str, ...] = ()
    count: int = 1
    all: bool = False
    monitoring: bool = False
    alternatives: tuple[WantedDevices, ...] = ()


class Alike(Value, frozen=True):
    """All devices for `requests` (none named: for all of the claim) have the same value of
    `attribute` (`domain/name`)."""

    attribute: str
    requests: tuple[str, ...] = ()


class HeldDevice(Value, frozen=True):
    """`monitoring`: looked at, not taken."""

    driver: str
    pool: str
    device: str
    monitoring: bool = False


class ResourceClaim(Value, frozen=True, tag="ResourceClaim"):
    """`allocated`: it has its `devices`, for pods on the nodes that `node_terms` match (None: on
    any). `reserved_for`: uids of the pods that use it."""

    namespace: str
    name: Name
    requests: tuple[WantedDevices, ...] = ()
    constraints: tuple[Alike, ...] = ()
    allocated: bool = False
    devices: tuple[HeldDevice, ...] = ()
    node_terms: tuple[NodeTerm, ...] | None = None
    reserved_for: tuple[str, ...] = ()
