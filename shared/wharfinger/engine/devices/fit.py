"""Whether a pod's devices fit on a node, which devices it gets, and which devices other pods hold.

Greedy best fit: whole devices before shares, named models before any model, because the more
constrained request should choose first. Several requests are allocated one after another from what
is left. This is not a search; it gives the same result everywhere it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wharfinger.domain.node import Pod
from wharfinger.domain.resources import DEVICE_MILLI, Device, DeviceRequest

Taken = tuple[tuple[int, int], ...]
"""(device index, thousandths) for each device a pod holds, by index."""


def asked(requests: Iterable[DeviceRequest]) -> tuple[DeviceRequest, ...]:
    """Returns the requests for more than 0 devices and thousandths, in the order of allocation:
    requests for whole devices before requests for a part of a device, and then requests that name
    models before the others."""
    return tuple(
        sorted(
            (r for r in requests if r.count > 0 and r.milli > 0),
            key=lambda r: (r.milli < DEVICE_MILLI, not r.models),
        )
    )


def allows(request: DeviceRequest, device: Device) -> bool:
    return device.kind == request.kind and (not request.models or device.model in request.models)


def take(
    devices: Sequence[Device], free: Sequence[int], requests: Iterable[DeviceRequest]
) -> Taken | None:
    """Allocates devices of one node to one pod by greedy best fit. Returns (device index,
    thousandths) for each allocated device, sorted by index; None if the devices do not suffice.

    The requests are allocated one after another: requests for whole devices before requests for a
    part of a device, and among these the ones that name models first. A request for k devices takes
    k allowed devices that have enough free thousandths: those with the least free thousandths, the
    lowest index first on ties.

    `free`: free thousandths of each device in `devices`; it is not changed.

    Example: 1000, 400 and 200 thousandths are free. A request for 300 thousandths of one device
    gets the device with index 1: ((1, 300),).
    """
    left = list(free)
    taken: list[tuple[int, int]] = []
    for request in asked(requests):
        fitting = sorted(
            (left[i], i)
            for i, device in enumerate(devices)
            if left[i] >= request.milli and allows(request, device)
        )
        if len(fitting) < request.count:
            return None
        for _, index in fitting[: request.count]:
            left[index] -= request.milli
            taken.append((index, request.milli))
    return tuple(sorted(taken))


def could_ever(devices: Sequence[Device], requests: Iterable[DeviceRequest]) -> bool:
    """Returns whether the devices would suffice on the empty node, without any other pod."""
    return take(devices, [DEVICE_MILLI] * len(devices), requests) is not None


NOT_ENOUGH_LEFT = "node(s) had no devices with enough left"
NOT_THERE = "node(s) didn't have the requested devices"


def why_not(devices: Sequence[Device], requests: Iterable[DeviceRequest]) -> str:
    """Returns the message for a node whose free devices do not suffice."""
    return NOT_ENOUGH_LEFT if could_ever(devices, requests) else NOT_THERE


def free_of(devices: Sequence[Device], pods: Iterable[Pod]) -> list[int]:
    """Computes the free thousandths of each device of a node, in the order of `devices`, never
    below 0. `pods`: the pods on the node.

    First, the devices that pods report to hold are subtracted. Then each device request of the pods
    that report no devices is assigned by best fit: to the fullest allowed devices that still have
    enough free. If too few devices have enough free, the emptiest other allowed devices are used
    instead, so that the use by these pods is not lost.

    Example: two devices of 1000 thousandths. A pod reports 600 thousandths of device 0. Another pod
    requests 300 thousandths and reports nothing. It is assigned to device 0, and the result is
    [100, 1000].
    """
    held = [0] * len(devices)
    silent: list[Pod] = []
    for pod in pods:
        for index, milli in pod.devices:
            if 0 <= index < len(held) and milli > 0:
                held[index] += min(milli, DEVICE_MILLI)
        if not pod.devices and pod.requirements.devices:
            silent.append(pod)
    for pod in silent:
        for request in asked(pod.requirements.devices):
            _charge(devices, held, request)
    return [max(0, DEVICE_MILLI - used) for used in held]


def _charge(devices: Sequence[Device], held: list[int], request: DeviceRequest) -> None:
    milli = min(request.milli, DEVICE_MILLI)
    allowed = [i for i, device in enumerate(devices) if allows(request, device)]
    chosen = [
        i for _, i in sorted((-held[i], i) for i in allowed if held[i] + milli <= DEVICE_MILLI)
    ][: request.count]
    if len(chosen) < request.count:
        rest = sorted((held[i], i) for i in allowed if i not in chosen)
        chosen += [i for _, i in rest[: request.count - len(chosen)]]
    for index in chosen:
        held[index] += milli
