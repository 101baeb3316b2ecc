"""Resource amounts and devices.

An amount map (`Amounts`) goes from a Kubernetes resource name to an integer: `cpu` in milli-cores,
everything else in its base unit (bytes for memory and ephemeral-storage, counts for pods and
extended resources). GPUs are not in the map: they are a vector of devices, because a sum per node
would admit packings that cannot be. A device holds 1000 thousandths; a shared request takes some
thousandths of one device, a whole request takes `count` devices that are entirely free.
"""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.ids import DeviceModel, ResourceName
from wharfinger.domain.quantities import format_milli, format_units
from wharfinger.domain.value import Value

Amounts = Mapping[str, int]

QUANTITY_MAX = 2**63 - 1
"""As in Kubernetes: a quantity that would be larger is this. Arrays and messages hold no more."""

DEVICE_MILLI = 1000
"""What one whole device holds, in thousandths."""

GPU = "nvidia.com/gpu"


def saturated(amounts: Mapping[str, int]) -> dict[str, int]:
    """The same amounts, each within -QUANTITY_MAX..QUANTITY_MAX: sums of reported amounts may lie
    beyond it."""
    return {name: max(-QUANTITY_MAX, min(QUANTITY_MAX, n)) for name, n in amounts.items()}


class Device(Value, frozen=True):
    """One accelerator of a node. `kind` is the extended resource name under which pods ask for
    it."""

    model: DeviceModel = ""
    kind: ResourceName = GPU


class DeviceRequest(Value, frozen=True):
    """`count` devices of `kind`, `milli` thousandths of each (below 1000 only when `count` is 1).

    `models`: the allowed models; empty allows any.
    """

    count: int
    milli: int = DEVICE_MILLI
    models: tuple[DeviceModel, ...] = ()
    kind: ResourceName = GPU


def is_of_nodes(name: str) -> bool:
    """Whether nodes have this resource, so that it bounds what fits on one. `storage` and the like
    are asked of somebody else: a name of Kubernetes' own that no node reports is not looked at, as
    the kube-scheduler has it."""
    if "/" in name:
        return not name.startswith("kubernetes.io/")
    return name in _OF_NODES or name.startswith(("hugepages-", "attachable-volumes-"))


_OF_NODES = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


def quantity_of(name: str, amount: int) -> str:
    """An amount as Kubernetes writes it, exactly: `500m` of cpu, `512Mi` of memory, `3` of what is
    counted."""
    if name == "cpu":
        return format_milli(amount)
    return format_units(
        amount, "BinarySI" if name in ("memory", "ephemeral-storage") else "DecimalSI"
    )


def add(a: Amounts, b: Amounts, times: int = 1) -> dict[str, int]:
    """a + times * b, over the union of names."""
    out = dict(a)
    for name, amount in b.items():
        out[name] = out.get(name, 0) + times * amount
    return out
