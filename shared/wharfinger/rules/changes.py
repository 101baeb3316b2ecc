"""Counterfactuals: the smallest changes that would make a refused candidate feasible, found by
binary search.

A change is applied to the inputs, the predicate is evaluated again, and the range of the change is
halved until the smallest change is found for which the predicate holds. The caller supplies the
predicate: the fit of a node, the estimate of a cluster, a whole division. The predicate must be
monotonic: a smaller request must never make it false. Otherwise binary search would be wrong.

Each rule computes which changes undo its refusal: the method `undo` in `rules.clusters` and
`rules.nodes`.

Example: a pod requests 4 cores, and a node has 2.5 free. The smallest change is a request of 2500
milli-cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from wharfinger.domain.quantities import format_milli, format_units
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements

ChangeKind = Literal[
    "toleration",  # of the workload or its policy
    "affinity",  # the policy names, admits or no longer excludes
    "label",  # of the candidate
    "property",  # region, zone or provider of the cluster
    "kind",  # an API kind enabled there
    "state",  # silent, deleting, evicted, cordoned: it ends by itself or is ended
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
    """One change to a policy, a cluster, a node or a request that helps a refused candidate.
    `what`: the resource, label, taint or property that it concerns. `amount`: how much less or
    more, in the unit of the resource (`domain.resources`), or the new number; 0 where there is
    none. `text`: for users, to be read after "fits with" or "needs"."""

    kind: ChangeKind
    what: str
    text: str
    amount: int = 0


ANYTHING = "anything"
"""The value that stands for any value of a label or property."""

ChangeSet = tuple[Change, ...]
"""Changes that make the candidate feasible together. None of them can be left out."""


def said(way: ChangeSet) -> str:
    return ", ".join(change.text for change in way)


def smallest_first(ways: Iterable[ChangeSet], asked: Requirements) -> tuple[ChangeSet, ...]:
    """Sort alternative sets of changes by `size`, smallest first, and drop duplicates. `asked`: the
    requirements of one replica."""

    return tuple(sorted(dict.fromkeys(ways), key=lambda way: size(way, asked)))


def size(way: ChangeSet, asked: Requirements) -> tuple[int, int, int, str]:
    """Return the sort key of a set of changes, the smallest first. It compares in this order: the
    number of changes; the kind (changes of policy or state, then smaller requests or fewer
    replicas, then more capacity); the sum of the amounts relative to the requests; the text."""
    return (
        len(way),
        max([_RANK.get(c.kind, 0) for c in way], default=0),
        sum([_part(c, asked) for c in way]),
        said(way),
    )


_RANK: dict[str, int] = {"less": 1, "more": 2, "quota": 2, "count": 2, "replicas": 1}


def _part(change: Change, asked: Requirements) -> int:
    """Return the amount of the change in millionths of the requested amount."""
    return change.amount * 1_000_000 // max(1, asked.requests.get(change.what, 0))


# --- halving


def largest(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """Binary search: return the largest number from `low` to `high` for which `holds` is true.
    None: there is none. `holds` must be true up to some number and false above it."""
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
    """Return the smallest number from `low` to `high` for which `holds` is true. None: there is
    none. `holds` must be false up to some number and true above it.
    The search doubles its steps from `low` until `holds` is true, because the answer is usually
    near `low`. Then it is a binary search.
    Example: from 3 to 20, with `holds` true from 11 on: it tries 3, 4, 6, 10 and 18, then 14, 12
    and 11. The result is 11."""
    if low > high:
        return None
    bound, step = low, 1
    while bound < high and not holds(bound):
        # near ones first: they are the likely ones, and cost less to try
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


def less_asked(asked: Requirements, fits: Callable[[Requirements], bool]) -> list[ChangeSet]:
    """Return smaller requests with which a replica would fit, as alternative sets of changes.
    `asked`: the present requirements. `fits`: returns whether a replica with given requirements
    fits. Empty: the replica fits with `asked`, or smaller requests do not help.
    - If a smaller request of one resource is sufficient: one set for each such resource, with the
      smallest reduction that is sufficient.
    - Otherwise: one set that reduces several resources (`_less_of_several`).
    Example: requests of 4 CPUs and 8 GiB. On a node with 2.5 CPUs and 8 GiB free, the result is
    "1500m CPU less". With 6 GiB free, it is one set: 1500m CPU less and 2 GiB less."""
    if fits(asked):
        return []
    ways: list[ChangeSet] = [
        (change,)
        for name in sorted(asked.requests)
        if (change := _less_of(asked, name, fits)) is not None
    ]
    ways += [
        (change,)
        for at in range(len(asked.devices))
        if (change := _fewer_devices(asked, at, fits)) is not None
    ]
    if ways:
        return ways
    together = _less_of_several(asked, fits)
    return [together] if together else []


def _less_of(asked: Requirements, name: str, fits: Callable[[Requirements], bool]) -> Change | None:
    amount = asked.requests[name]
    most = largest(0, amount - 1, lambda n: fits(with_request(asked, name, n)))
    return None if most is None else less(name, amount - most)


def _fits_with(
    fits: Callable[[Requirements], bool], alone: Requirements, name: str, amount: int
) -> bool:
    return fits(with_request(alone, name, amount))


def _less_of_several(asked: Requirements, fits: Callable[[Requirements], bool]) -> ChangeSet:
    """Find one set of changes that reduces several resources, for a pod that no single reduction
    makes fit. Empty: there is no such set. `asked`: the present requirements of the pod. `fits`:
    returns whether a pod with given requirements fits.

    For each resource, take the largest request with which the pod would fit if it requested nothing
    else. Then, while the pod does not fit, take fewer devices. If the pod fits now, these are the
    changes. Otherwise reduce all these requests by the same share as well (`_less_of_all`).

    Example: requests of 4 CPUs and 8 GiB, and a node with 2.5 CPUs and 6 GiB free. Alone, 2.5 CPUs
    and 6 GiB fit, and they fit together: 1500m CPU less and 2 GiB less.
    """
    amounts: list[Change] = []
    devices: list[Change] = []
    now = asked
    for name in sorted(asked.requests):
        amount = asked.requests[name]
        alone = Requirements(
            {name: amount}, (), asked.node_selector, asked.node_terms, asked.tolerations
        )
        most = largest(0, amount, partial(_fits_with, fits, alone, name))
        if most is None:
            return ()
        if most < amount:
            amounts.append(less(name, amount - most))
            now = with_request(now, name, most)
    for at in range(len(now.devices)):
        if fits(now):
            break
        alone = msgspec.structs.replace(now, requests={}, devices=(now.devices[at],))
        change = _fewer_devices(alone, 0, fits)
        if change is not None:
            devices.append(change)
            now = _with_device(now, at, _changed_device(now.devices[at], change))
    if not fits(now):
        amounts = list(_less_of_all(asked, now, fits))
        if not amounts:
            return ()
    return (*amounts, *devices)


def _less_of_all(
    asked: Requirements, now: Requirements, fits: Callable[[Requirements], bool]
) -> ChangeSet:
    """Reduce all requests of `now` by the same share, and return the reductions compared with
    `asked`. The share is the smallest one, in thousandths, with which the pod fits. Empty: no share
    makes the pod fit. `asked`: the requirements of the pod. `now`: a copy in which single requests
    were reduced already, which is not enough. `fits`: returns whether a pod with given requirements
    fits.
    This is for a pod whose requests fit one by one but not together, because one node is short of
    one resource and another node of another.
    Example: with a share of 250 thousandths, a request of 4 cores becomes 3."""

    def scaled(part: int) -> Requirements:
        return msgspec.structs.replace(
            now, requests={k: n * (1000 - part) // 1000 for k, n in now.requests.items()}
        )

    part = smallest(1, 1000, lambda part: fits(scaled(part)))
    if part is None:
        return ()
    down = scaled(part).requests
    return tuple(
        less(name, n - down[name]) for name, n in sorted(asked.requests.items()) if down[name] < n
    )


def _fewer_devices(
    asked: Requirements, at: int, fits: Callable[[Requirements], bool]
) -> Change | None:
    device = asked.devices[at]
    if device.models and fits(_with_device(asked, at, msgspec.structs.replace(device, models=()))):
        return Change(
            "less",
            device.kind,
            f"any model of {device.kind} instead of {' or '.join(device.models)}",
        )
    if device.count > 1:
        count = largest(
            1, device.count - 1, lambda n: fits(_with_device(asked, at, _counted(device, n)))
        )
        if count is not None:
            return Change(
                "less",
                device.kind,
                f"{count} {device.kind} instead of {device.count}",
                device.count - count,
            )
    elif device.milli > 1:
        milli = largest(
            1, device.milli - 1, lambda n: fits(_with_device(asked, at, _shared(device, n)))
        )
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
    """Return the requirements after the changes of kind "less" (smaller requests, fewer devices) in
    `way`. Changes of other kinds, such as a toleration, are ignored. `asked`: the requirements
    before the changes. Example: a request of 4 cores and "1500m less cpu" give a request of 2.5
    cores."""
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


# --- taints and labels


def tolerating(taint: Taint) -> Toleration:
    return Toleration(taint.key, "Equal", taint.value, taint.effect)


def toleration(taint: Taint) -> Change:
    return Change("toleration", taint_text(taint), f"toleration {taint_text(taint)}")


def taint_text(taint: Taint) -> str:
    """Return `key=value:effect`, or `key:effect` where the taint has no value."""
    return (
        f"{taint.key}={taint.value}:{taint.effect}"
        if taint.value
        else f"{taint.key}:{taint.effect}"
    )


def label(key: str, value: str) -> Change:
    return Change("label", key, f"label {key}={value}")


def satisfying(requirement: Requirement) -> tuple[Change, str | None] | None:
    """Find the label change with which a node or cluster satisfies one requirement of a selector.
    Return (the change, the value of the label after the change). The value is None if the label
    must be absent, or is removed (DoesNotExist, NotIn).
    Return None instead of the pair if no value satisfies the requirement, such as In without
    values.
    Examples: "zone In (a, b)" gives the value a; "x Gt 5" gives 6."""
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In" if len(values) == 1:
            return label(key, values[0]), values[0]
        case "In" if values:
            return Change("label", key, f"label {key} in {', '.join(values)}"), values[0]
        case "Exists":
            return Change("label", key, f"label {key}"), ANYTHING
        case "DoesNotExist":
            return Change("label", key, f"no label {key}"), None
        case "NotIn":
            return Change("label", key, f"label {key} not in {', '.join(values)}"), None
        case "Gt" | "Lt" if len(values) == 1 and values[0].lstrip("+-").isdecimal():
            bound, above = int(values[0]), requirement.operator == "Gt"
            text = f"label {key} {'above' if above else 'below'} {bound}"
            return Change("label", key, text), str(bound + 1 if above else bound - 1)
        case _:
            return None


# --- words


def less(resource: str, amount: int) -> Change:
    return Change("less", resource, f"{sized(resource, amount)} less {resource}", amount)


def more(resource: str, amount: int) -> Change:
    return Change("more", resource, f"{sized(resource, amount)} more {resource} free there", amount)


def left_more(quota: str, resource: str, amount: int) -> Change:
    return Change(
        "quota",
        resource,
        f"{sized(resource, amount)} more {resource} left of the quota {quota}",
        amount,
    )


def sized(resource: str, amount: int) -> str:
    """Format an amount of a resource for users: `500m` of cpu, `512Mi` of memory (rounded up, so
    that the amount is sufficient), `3` of anything else."""
    if resource == "cpu":
        return format_milli(amount)
    if resource in ("memory", "ephemeral-storage", "storage") or resource.startswith("hugepages-"):
        unit = 2**20 if amount >= 2**20 else 1
        return format_units(-(-amount // unit) * unit, "BinarySI")
    return f"{amount:,}"
