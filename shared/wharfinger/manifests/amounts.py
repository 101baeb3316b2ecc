"""Quantities by resource name to the plane's integers, and which of them count devices."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.quantities import parse_milli, parse_units
from wharfinger.domain.quota import in_milli
from wharfinger.domain.resources import DEVICE_MILLI, GPU, DeviceRequest

DEVICES_MAX = 1024
"""Of one kind on a node; above any real one, and low enough that a slip of the pen fills no
memory."""

_DEVICES = frozenset({"gpu.intel.com/i915", "gpu.intel.com/xe"})


def is_device(name: str) -> bool:
    """Whether an extended resource counts GPUs: `nvidia.com/gpu`, `amd.com/gpu` and any vendor's,
    and Intel's by driver.

    Slices a device plugin hands out on its own (`nvidia.com/mig-1g.5gb`) stay plain counts.
    """
    return name.endswith("/gpu") or name in _DEVICES


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """cpu in milli, everything else in units."""
    return {
        name: parse_milli(q) if name == "cpu" else parse_units(q) for name, q in quantities.items()
    }


def quota_amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """As `amounts`, by the names quotas have: `requests.cpu` is in milli, too."""
    return {
        name: parse_milli(q) if in_milli(name) else parse_units(q) for name, q in quantities.items()
    }


def split_devices(all_amounts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Amounts without devices, and how many devices of each kind."""
    plain = {name: amount for name, amount in all_amounts.items() if not is_device(name)}
    return plain, {name: amount for name, amount in all_amounts.items() if is_device(name)}


def _larger(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: max(a.get(name, 0), b.get(name, 0)) for name in {**a, **b}}


def device_requests(
    devices: Mapping[str, int], milli: int = DEVICE_MILLI, models: tuple[str, ...] = ()
) -> tuple[DeviceRequest, ...]:
    """One request a kind; `milli` and `models` are for GPUs of the kind `nvidia.com/gpu`."""
    return tuple(
        DeviceRequest(count, milli, models, kind)
        if kind == GPU
        else DeviceRequest(count, kind=kind)
        for kind, count in sorted(devices.items())
        if count > 0
    )
