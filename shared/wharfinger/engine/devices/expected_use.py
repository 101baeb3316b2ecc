"""A workload compiled for scoring nodes: device names become codes, and the expected use of a
partly free device becomes a table (dynamic programming).

A *group* is the devices of one (kind, model); its code is its position in a list that the caller
keeps. Amounts are scaled so that no product overflows 64 bits: cpu and KiB of memory below 2^40.

**The table.** Requests arrive at random, distributed by the workload's weights. A device with `r`
free thousandths takes the next request that fits, continues with what is left, and so on; with some
probability the arrivals end first. So, over the requests `a` that fit in `r`, the expected further
use is

    fill(r) = sum of weight(a) * (share(a) + fill(r - share(a)))  /  (patience + sum of weight(a))

where the patience, a small part of all weights, sets how soon arrivals end. A remainder that only
rare pods fit is therefore worth less than one that many pods fit.

Example: 190 free thousandths that one pod in a hundred can use have a small value, but not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wharfinger.domain.resources import DEVICE_MILLI, DeviceRequest
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.fit import asked
from wharfinger.engine.devices.workload import DeviceWorkload

Group = tuple[str, str]
"""(kind, model)"""

AMOUNT_MAX = 1 << 40
PATIENCE = 50
"""The end of arrivals is as likely as a request with a fiftieth of all weights. Values between a
tenth and a two-hundredth give much the same results."""

MILLIONTHS = 1000
"""Millionths of a device in a thousandth of it."""


@dataclass(frozen=True, slots=True)
class Typical:
    """One typical request of a workload.

    `cpu` in milli, `memory` in KiB. `count`: number of devices; `milli`: thousandths of each.
    `weight`: how frequent the request is. `kind`: number of the device kind. `allowed`: codes of
    the groups that may serve it. A request without devices has `count` and `milli` 0, `kind` -1 and
    `allowed` empty.
    """

    cpu: int
    memory: int
    count: int
    milli: int
    weight: int
    kind: int
    allowed: frozenset[int]


@dataclass(frozen=True, slots=True)
class Outlook:
    """A workload compiled for a list of device groups.

    `asks`: the typical requests. `total`: sum of their weights. `patience`: weight with which
    arrivals end. `kinds`: number of the device kind, by group code. `fill[kind][free]`: expected
    further use of a device with `free` free thousandths (0..1000), in millionths of a device.
    """

    asks: tuple[Typical, ...]
    total: int
    patience: int
    kinds: tuple[int, ...]
    fill: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, workload: DeviceWorkload, groups: Sequence[Group]) -> Outlook:
        names = list(dict.fromkeys(kind for kind, _ in groups))
        kinds = tuple(names.index(kind) for kind, _ in groups)
        asks = tuple(
            _typical(entry.ask.cpu, entry.ask.memory, entry.ask.device, entry.weight, groups, names)
            for entry in workload.asks
        )
        total = workload.total
        patience = max(1, total // PATIENCE)
        fill = tuple(
            _fill([a for a in asks if a.kind == kind], patience) for kind in range(len(names))
        )
        return cls(asks, total, patience, kinds, fill)


def _typical(
    cpu: int,
    memory: int,
    device: DeviceRequest | None,
    weight: int,
    groups: Sequence[Group],
    names: Sequence[str],
) -> Typical:
    cpu, memory = bounded(cpu), kibibytes_asked(memory)
    if device is None or device.milli > DEVICE_MILLI or device.kind not in names:
        return Typical(cpu, memory, 0, 0, weight, -1, frozenset())
    return Typical(
        cpu,
        memory,
        device.count,
        device.milli,
        weight,
        names.index(device.kind),
        _allowed(device, groups),
    )


def _fill(asks: Sequence[Typical], patience: int) -> tuple[int, ...]:
    by_share: dict[int, int] = {}
    for ask in asks:
        by_share[ask.milli] = by_share.get(ask.milli, 0) + ask.weight
    shares = sorted(by_share.items())
    table = [0] * (DEVICE_MILLI + 1)
    for left in range(shares[0][0] if shares else DEVICE_MILLI + 1, DEVICE_MILLI + 1):
        gained, end = 0, patience
        for milli, weight in shares:
            if milli > left:
                break
            gained += weight * (milli * MILLIONTHS + table[left - milli])
            end += weight
        table[left] = gained // end
    return tuple(table)


@dataclass(frozen=True, slots=True)
class DevicePart:
    """A request for `count` devices of the groups `allowed`, with `milli` thousandths of each."""

    count: int
    milli: int
    allowed: frozenset[int]


@dataclass(frozen=True, slots=True)
class PodNeed:
    """The requests of one pod: `cpu` in milli, `memory` in KiB, and its device requests in the
    order in which they are allocated."""

    cpu: int
    memory: int
    parts: tuple[DevicePart, ...]

    @classmethod
    def of(cls, requirements: Requirements, groups: Sequence[Group]) -> PodNeed:
        amounts = requirements.requests
        return cls(
            bounded(amounts.get("cpu", 0)),
            kibibytes_asked(amounts.get("memory", 0)),
            tuple(
                DevicePart(
                    min(r.count, 1 << 20), min(r.milli, DEVICE_MILLI + 1), _allowed(r, groups)
                )
                for r in asked(requirements.devices)
            ),
        )


def _allowed(request: DeviceRequest, groups: Sequence[Group]) -> frozenset[int]:
    return frozenset(
        code
        for code, (kind, model) in enumerate(groups)
        if kind == request.kind and (not request.models or model in request.models)
    )


def bounded(amount: int) -> int:
    """Clips an amount to 0..`AMOUNT_MAX`."""
    return max(0, min(amount, AMOUNT_MAX))


def kibibytes_asked(memory: int) -> int:
    """Converts requested bytes to KiB, rounded up."""
    return bounded(-(-memory >> 10))


def kibibytes_left(memory: int) -> int:
    """Converts free bytes to KiB, rounded down."""
    return bounded(memory >> 10)
