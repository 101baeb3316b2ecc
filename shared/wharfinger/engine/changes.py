"""Changes that would let a refused candidate in, and how the smallest of them are found.

Nothing here knows why something does not fit. A change is made to the inputs, the same question is asked again, and the change is
made smaller for as long as the answer stays yes. The question is a function of the caller's: the fit of a node, the estimate of
a cluster, a whole division. Its answer must not get worse when less is asked for; that is what makes halving right.

`engine.fleet.counterfactual` and `engine.nodes.counterfactual` know which changes there are to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from wharfinger.domain.quantities import format_milli, format_units
from wharfinger.domain.resources import DEVICE_MILLI, DeviceRequest
from wharfinger.domain.workload import Requirements

ChangeKind = Literal[
    "toleration",  # of the workload or its policy
    "affinity",  # the policy names, admits or no longer excludes
    "label",  # of the candidate
    "property",  # region, zone or provider of the cluster
    "kind",  # an API kind enabled there
    "state",  # silent, deleting, evicted, cordoned: it passes, or somebody ends it
    "less",  # asked for by one replica
    "more",  # free there
    "quota",  # left of a quota of the namespace there
    "count",  # a new count of what fits
    "replicas",  # wanted
    "weight",  # of the cluster in the policy
    "spread",  # a bound of the policy
]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that would be otherwise. `what`: of which resource, label, taint. `amount`: how much less or more, in the unit of
    the resource (`domain.resources`); what replaces it where it is a number; 0 where there is nothing to count. `text`: for
    people, to be read after "fits with" or "needs"."""

    kind: ChangeKind
    what: str
    text: str
    amount: int = 0


Way = tuple[Change, ...]
"""Changes that let the candidate in together; none of them could be left out."""


def said(way: Way) -> str:
    return ", ".join(change.text for change in way)


def smallest_first(ways: Iterable[Way], asked: Requirements) -> tuple[Way, ...]:
    """The fewest changes first; of equally many, those of the world and of policies before those of sizes; of sizes the one that
    takes the smallest part of what is asked for."""

    return tuple(sorted(dict.fromkeys(ways), key=lambda way: size(way, asked)))


def size(way: Way, asked: Requirements) -> tuple[int, int, int, str]:
    """By which ways are compared."""
    return (
        len(way),
        max([_RANK.get(c.kind, 0) for c in way], default=0),
        sum([_part(c, asked) for c in way]),
        said(way),
    )


_RANK: dict[str, int] = {"less": 1, "more": 2, "quota": 2, "count": 2, "replicas": 1}


def _part(change: Change, asked: Requirements) -> int:
    """In millionths of what is asked for."""
    return change.amount * 1_000_000 // max(1, asked.requests.get(change.what, 0))


# --- halving


def largest(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The largest number from `low` to `high` for which `holds`, which is true up to some number and false from there on."""
    if low > high or not holds(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def smallest(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The smallest number from `low` to `high` for which `holds`, which is false up to some number and true from there on."""
    if low > high:
        return None
    bound, step = low, 1
    while bound < high and not holds(bound):  # near ones first: they are the likely ones, and cost less to try
        low, bound, step = bound + 1, min(high, bound + step), step * 2
    if not holds(bound):
        return None
    while low < bound:
        middle = (low + bound) // 2
        if holds(middle):
            bound = middle
        else:
            low = middle + 1
    return low


# --- asking for less


def less_asked(asked: Requirements, fits: Callable[[Requirements], bool]) -> list[Way]:
    """Ways in which a replica that asks for less would fit: of one resource where that is enough, else of all that are short.
    Each amount is the smallest there is. Empty: not even asking for nothing would help, or it fits as it is."""
    if fits(asked):
        return []
    ways: list[Way] = [
        (change,) for name in sorted(asked.requests) if (change := _less_of(asked, name, fits)) is not None
    ]
    ways += [(change,) for at in range(len(asked.devices)) if (change := _fewer_devices(asked, at, fits)) is not None]
    if ways:
        return ways
    together = _less_of_several(asked, fits)
    return [together] if together else []


def _less_of(asked: Requirements, name: str, fits: Callable[[Requirements], bool]) -> Change | None:
    amount = asked.requests[name]
    most = largest(0, amount - 1, lambda n: fits(with_request(asked, name, n)))
    return None if most is None else less(name, amount - most)


def _less_of_several(asked: Requirements, fits: Callable[[Requirements], bool]) -> Way:
    """Each resource by itself first, with nothing else asked for: that is what it has to come down to in any case."""
    changes: list[Change] = []
    now = asked
    for name in sorted(asked.requests):
        amount = asked.requests[name]
        alone = Requirements({name: amount}, (), asked.node_selector, asked.node_terms, asked.tolerations)
        most = largest(0, amount, lambda n, alone=alone, name=name: fits(with_request(alone, name, n)))  # type: ignore[misc]
        if most is None:
            return ()
        if most < amount:
            changes.append(less(name, amount - most))
            now = with_request(now, name, most)
    for at in range(len(now.devices)):
        if fits(now):
            break
        alone = msgspec.structs.replace(now, requests={}, devices=(now.devices[at],))
        change = _fewer_devices(alone, 0, fits)
        if change is not None:
            changes.append(change)
            now = _with_device(now, at, _changed_device(now.devices[at], change))
    return tuple(changes) if fits(now) else _less_of_all(asked, now, fits)


def _less_of_all(asked: Requirements, now: Requirements, fits: Callable[[Requirements], bool]) -> Way:
    """Each resource is small enough by itself, and together they are not, because one is short here and another there: all come
    down by the same part, in thousandths."""

    def scaled(part: int) -> Requirements:
        return msgspec.structs.replace(now, requests={k: n * (1000 - part) // 1000 for k, n in now.requests.items()})

    part = smallest(1, 1000, lambda part: fits(scaled(part)))
    if part is None:
        return ()
    down = scaled(part).requests
    return tuple(less(name, n - down[name]) for name, n in sorted(asked.requests.items()) if down[name] < n)


def _fewer_devices(asked: Requirements, at: int, fits: Callable[[Requirements], bool]) -> Change | None:
    device = asked.devices[at]
    if device.models and fits(_with_device(asked, at, msgspec.structs.replace(device, models=()))):
        return Change("less", device.kind, f"any model of {device.kind} instead of {' or '.join(device.models)}")
    if device.count > 1:
        count = largest(1, device.count - 1, lambda n: fits(_with_device(asked, at, _counted(device, n))))
        if count is not None:
            return Change("less", device.kind, f"{count} {device.kind} instead of {device.count}", device.count - count)
    elif device.milli > 1:
        milli = largest(1, device.milli - 1, lambda n: fits(_with_device(asked, at, _shared(device, n))))
        if milli is not None:
            share = f"{milli} thousandths of a {device.kind} instead of {device.milli}"
            return Change("less", device.kind, share, device.milli - milli)
    return None


def _counted(device: DeviceRequest, count: int) -> DeviceRequest:
    return msgspec.structs.replace(device, count=count)


def _shared(device: DeviceRequest, milli: int) -> DeviceRequest:
    return msgspec.structs.replace(device, milli=milli)


def _changed_device(device: DeviceRequest, change: Change) -> DeviceRequest:
    if not change.amount:
        return msgspec.structs.replace(device, models=())
    return (
        _counted(device, device.count - change.amount)
        if device.count > 1
        else _shared(device, device.milli - change.amount)
    )


def with_request(asked: Requirements, name: str, amount: int) -> Requirements:
    return msgspec.structs.replace(asked, requests={**asked.requests, name: amount})


def _with_device(asked: Requirements, at: int, device: DeviceRequest) -> Requirements:
    devices = (*asked.devices[:at], device, *asked.devices[at + 1 :])
    return msgspec.structs.replace(asked, devices=devices)


def applied(asked: Requirements, way: Sequence[Change]) -> Requirements:
    """The requirements that a way of `less_asked` leads to."""
    for change in way:
        if change.kind != "less":
            continue
        if change.what in asked.requests:
            asked = with_request(asked, change.what, asked.requests[change.what] - change.amount)
            continue
        for at, device in enumerate(asked.devices):
            if device.kind == change.what:
                asked = _with_device(asked, at, _changed_device(device, change))
                break
    return asked


# --- words


def less(resource: str, amount: int) -> Change:
    return Change("less", resource, f"{sized(resource, amount)} less {resource}", amount)


def more(resource: str, amount: int) -> Change:
    return Change("more", resource, f"{sized(resource, amount)} more {resource} free there", amount)


def left_more(quota: str, resource: str, amount: int) -> Change:
    return Change("quota", resource, f"{sized(resource, amount)} more {resource} left of the quota {quota}", amount)


def sized(resource: str, amount: int) -> str:
    """`500m` of cpu, `512Mi` of memory (rounded up, so that what is said is enough), `3` of anything that is counted."""
    if resource == "cpu":
        return format_milli(amount)
    if resource in ("memory", "ephemeral-storage", "storage") or resource.startswith("hugepages-"):
        unit = 2**20 if amount >= 2**20 else 1
        return format_units(-(-amount // unit) * unit, "BinarySI")
    return f"{amount:,}"


def devices_said(count: int, milli: int, kind: str) -> str:
    return f"{count} {kind}" if milli >= DEVICE_MILLI else f"{milli} thousandths of a {kind}"
