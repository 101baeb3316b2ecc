"""Whether a pod's devices fit on a node, on which of them, and what others hold there.

Whole devices are served before shares and named models before any, because what is harder to satisfy should choose
first. Several requests are served one after another from what is left; that is greedy and not a search, and the same
wherever it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wharfinger.domain.node import Pod
from wharfinger.domain.resources import DEVICE_MILLI, Device, DeviceRequest

Taken = tuple[tuple[int, int], ...]
"""(device index, thousandths) for each device a pod holds, by index."""


def asked(requests: Iterable[DeviceRequest]) -> tuple[DeviceRequest, ...]:
    """The requests that ask for something, in the order in which they are served."""
    return tuple(
        sorted(
            (r for r in requests if r.count > 0 and r.milli > 0), key=lambda r: (r.milli < DEVICE_MILLI, not r.models)
        )
    )


def allows(request: DeviceRequest, device: Device) -> bool:
    return device.kind == request.kind and (not request.models or device.model in request.models)


def take(devices: Sequence[Device], free: Sequence[int], requests: Iterable[DeviceRequest]) -> Taken | None:
    """The devices a pod would get; None where they do not suffice. `free`: thousandths left of each device."""
    left = list(free)
    taken: list[tuple[int, int]] = []
    for request in asked(requests):
        fitting = sorted(
            (left[i], i) for i, device in enumerate(devices) if left[i] >= request.milli and allows(request, device)
        )
        if len(fitting) < request.count:
            return None
        for _, index in fitting[: request.count]:
            left[index] -= request.milli
            taken.append((index, request.milli))
    return tuple(sorted(taken))


def could_ever(devices: Sequence[Device], requests: Iterable[DeviceRequest]) -> bool:
    """Whether they would suffice if nobody held any."""
    return take(devices, [DEVICE_MILLI] * len(devices), requests) is not None


def free_of(devices: Sequence[Device], pods: Iterable[Pod]) -> list[int]:
    """Thousandths left of each device, none below 0. Pods that do not say what they hold are charged after those that
    do, to the devices they would best fit on; where none has room to the emptiest, so that they are not forgotten."""
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
    chosen = [i for _, i in sorted((-held[i], i) for i in allowed if held[i] + milli <= DEVICE_MILLI)][: request.count]
    if len(chosen) < request.count:
        rest = sorted((held[i], i) for i in allowed if i not in chosen)
        chosen += [i for _, i in rest[: request.count - len(chosen)]]
    for index in chosen:
        held[index] += milli
