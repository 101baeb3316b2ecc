"""How many more replicas fit into a cluster, from totals: used where nobody has counted node by node.

A quotient of totals is an upper bound, because what is free may lie scattered. That is why it is marked as what it is
(`totals`, `summary`) in every explanation, and why the cluster stage has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wharfinger.domain.cluster import ResourceSummary
from wharfinger.domain.resources import DEVICE_MILLI, Amounts, DeviceRequest
from wharfinger.domain.workload import Requirements
from wharfinger.events.capacity import DeviceTotals

PODS = "pods"


def fits_totals(
    requirements: Requirements,
    free: Amounts,
    devices: Sequence[DeviceTotals] = (),
    taken: Amounts | None = None,
    taken_milli: Mapping[str, int] | None = None,
    taken_pods: int = 0,
) -> int | None:
    """floor(free / request), the least over everything requested; None when nothing is requested or counted.

    `taken`, `taken_milli` (by device kind) and `taken_pods`: what was assigned since `free` was counted. Where the cluster
    counts pods, a replica is one pod.
    """
    fits: int | None = None
    for name, amount in requirements.requests.items():
        if amount <= 0:
            continue
        left = free.get(name, 0) - (taken.get(name, 0) if taken else 0)
        n = left // amount if left > 0 else 0
        if fits is None or n < fits:
            fits = n
    if PODS in free and PODS not in requirements.requests:
        n = max(0, free[PODS] - taken_pods)
        if fits is None or n < fits:
            fits = n
    for request in requirements.devices:
        n = _device_fits(request, devices, taken_milli.get(request.kind, 0) if taken_milli else 0)
        if n is not None and (fits is None or n < fits):
            fits = n
    return fits


def _device_fits(request: DeviceRequest, devices: Sequence[DeviceTotals], taken_milli: int) -> int | None:
    """Which models the taken thousandths lie on is unknown here, so they are taken from the allowed ones."""
    if request.count <= 0 or request.milli <= 0:
        return None
    whole = milli = 0
    for total in devices:
        if total.kind == request.kind and (not request.models or total.model in request.models):
            whole += total.whole
            milli += total.milli
    if request.milli < DEVICE_MILLI:
        return max(0, milli - taken_milli) // request.milli
    return max(0, whole - -(-taken_milli // DEVICE_MILLI)) // request.count


def free_of(summary: ResourceSummary) -> dict[str, int]:
    """What a cluster's own summary leaves free: allocatable less allocated and allocating. Over-used is zero, not debt."""
    return {
        name: max(0, amount - summary.allocated.get(name, 0) - summary.allocating.get(name, 0))
        for name, amount in summary.allocatable.items()
    }


def devices_of(requirements: Requirements, free: Amounts) -> tuple[DeviceTotals, ...]:
    """A summary counts whole devices as plain resources of their kind and knows no models."""
    kinds = dict.fromkeys(request.kind for request in requirements.devices)
    return tuple(
        DeviceTotals(kind, model, free.get(kind, 0), DEVICE_MILLI * free.get(kind, 0))
        for kind in kinds
        for model in _one_model(requirements, kind)
    )


def _one_model(requirements: Requirements, kind: str) -> tuple[str, ...]:
    """The model is unknown, so the first allowed one is assumed: the cluster stage refuses where that was wrong."""
    for request in requirements.devices:
        if request.kind == kind and request.models:
            return request.models[:1]
    return ("",)
