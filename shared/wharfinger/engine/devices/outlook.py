"""A workload compiled for looking at nodes: names of devices become codes, and what may be expected of part of a
device a table.

A *group* is one sort of device, a (kind, model); its code is its position in a list that the caller keeps. Amounts
are brought into a range in which no product of them leaves 64 bits: cpu and KiB of memory below 2^40.

**The table.** Pods come at random, by the workload's weights. A device with `r` thousandths left takes the next one
that fits there, goes on with what is left then, and so on; now and then the end comes first. So over the asks `a`
that fit in `r` it will still be filled with

    fill(r) = sum of weight(a) * (share(a) + fill(r - share(a)))  /  (patience + sum of weight(a))

where the patience, a small part of all weights, is how soon the end comes: a remainder that only rare pods fit is
worth less than one that many do, and 190 thousandths that one pod in a hundred can use are worth little, although
they are not nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wharfinger.domain.resources import DEVICE_MILLI, DeviceRequest
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.fit import asked
from wharfinger.engine.devices.workload import Workload

Group = tuple[str, str]
"""(kind, model)"""

AMOUNT_MAX = 1 << 40
PATIENCE = 50
"""The end is as likely as an ask of a fiftieth of all weights. Between a tenth and a two-hundredth nothing much changes."""

MILLIONTHS = 1000
"""of a device, in a thousandth of it."""


@dataclass(frozen=True, slots=True)
class Typical:
    """One ask. `count` 0: it asks for no device, and `milli` is 0 and `allowed` empty then; `kind`: a code of its own."""

    cpu: int
    memory: int
    count: int
    milli: int
    weight: int
    kind: int
    allowed: frozenset[int]


@dataclass(frozen=True, slots=True)
class Outlook:
    """`kinds`: of each group the code of its kind. `fill`: by kind and thousandths left (0..1000), millionths of a device."""

    asks: tuple[Typical, ...]
    total: int
    patience: int
    kinds: tuple[int, ...]
    fill: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, workload: Workload, groups: Sequence[Group]) -> Outlook:
        names = list(dict.fromkeys(kind for kind, _ in groups))
        kinds = tuple(names.index(kind) for kind, _ in groups)
        asks = tuple(_typical(entry.ask.cpu, entry.ask.memory, entry.ask.device, entry.weight, groups, names)
                     for entry in workload.asks)  # fmt: skip
        total = workload.total
        patience = max(1, total // PATIENCE)
        fill = tuple(_fill([a for a in asks if a.kind == kind], patience) for kind in range(len(names)))
        return cls(asks, total, patience, kinds, fill)


def _typical(
    cpu: int, memory: int, device: DeviceRequest | None, weight: int, groups: Sequence[Group], names: Sequence[str]
) -> Typical:
    cpu, memory = bounded(cpu), kibibytes_asked(memory)
    if device is None or device.milli > DEVICE_MILLI or device.kind not in names:
        return Typical(cpu, memory, 0, 0, weight, -1, frozenset())
    return Typical(
        cpu, memory, device.count, device.milli, weight, names.index(device.kind), _allowed(device, groups)
    )  # fmt: skip


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
class Part:
    """`count` devices of the groups `allowed`, `milli` thousandths of each."""

    count: int
    milli: int
    allowed: frozenset[int]


@dataclass(frozen=True, slots=True)
class Need:
    """What one pod takes of a node, in the order in which its devices are served."""

    cpu: int
    memory: int
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, requirements: Requirements, groups: Sequence[Group]) -> Need:
        amounts = requirements.requests
        return cls(
            bounded(amounts.get("cpu", 0)),
            kibibytes_asked(amounts.get("memory", 0)),
            tuple(Part(min(r.count, 1 << 20), min(r.milli, DEVICE_MILLI + 1), _allowed(r, groups))
                  for r in asked(requirements.devices)),
        )  # fmt: skip


def _allowed(request: DeviceRequest, groups: Sequence[Group]) -> frozenset[int]:
    return frozenset(
        code for code, (kind, model) in enumerate(groups)
        if kind == request.kind and (not request.models or model in request.models)
    )  # fmt: skip


def bounded(amount: int) -> int:
    return max(0, min(amount, AMOUNT_MAX))


def kibibytes_asked(memory: int) -> int:
    """Bytes that are asked for, rounded up."""
    return bounded(-(-memory >> 10))


def kibibytes_left(memory: int) -> int:
    """Bytes that are left, rounded down."""
    return bounded(memory >> 10)
