"""Applies NodeOverlays: changed prices and additional capacity of instance types.

An overlay selects offerings by the labels of their nodes: those of the type, zone and capacity
type. Its requirements on the pool are checked before (`concerning`). Of several overlays with a
price that match an offering, the first in order of weight applies. The capacity of an overlay is
added to a type only if it matches all offerings of the type, because a node's capacity must not
depend on where it is launched.

Percentages are exact: an adjusted price is rounded half up to a billionth of a dollar and is never
negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from wharfinger.domain.instance_types import PRICE_UNIT, InstanceType, Offering
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    ZONE_LABEL,
    NodeOverlay,
)
from wharfinger.domain.value import Value
from wharfinger.engine.provisioning.requirements import LabelSet, ValueSet, current_key

RESERVATION_LABEL = "karpenter.k8s.aws/capacity-reservation-id"
"""The label of a node in reserved capacity; its value is the id of the reservation."""

BOUGHT = (ZONE_LABEL, CAPACITY_TYPE_LABEL, RESERVATION_LABEL)
"""Labels whose values come from the offering with which a node is bought."""


class OverlayError(ValueError):
    """A price that cannot be parsed. The message is one sentence."""


class Overlaid(Value, frozen=True):
    """An instance type after its overlays are applied. `priced_by`, `widened_by`: the names of the
    overlays that changed its prices, and of those that added capacity."""

    type: InstanceType
    priced_by: tuple[str, ...] = ()
    widened_by: tuple[str, ...] = ()


Laid = tuple[NodeOverlay, LabelSet, LabelSet]
"""An overlay, its requirements on the labels of the type, and those on the labels of the offering.
"""


def ordered(overlays: Iterable[NodeOverlay]) -> tuple[Laid, ...]:
    """Sorts overlays in the order in which they apply: the highest weight first, then by name.
    Returns each overlay with its requirements in two parts: those on labels of the instance type,
    and those on labels of the offering (zone, capacity type, reservation)."""
    found = []
    for overlay in sorted(overlays, key=lambda o: (-o.weight, o.name)):
        asked = LabelSet.of_pool(overlay.requirements)
        found.append(
            (
                overlay,
                asked.without(*BOUGHT),
                LabelSet((k, v) for k, v in asked.items() if k in BOUGHT),
            )
        )
    return tuple(found)


def concerning(
    overlays: Iterable[NodeOverlay], pool: LabelSet, described: frozenset[str]
) -> tuple[NodeOverlay, ...]:
    """Returns the overlays that can apply to nodes of one pool. `pool`: the labels of the pool's
    nodes. `described`: labels that instance types or offerings have.

    An overlay's requirements on labels of the pool are checked here, and are removed from the
    overlay. Requirements on labels in `described`, and on labels that the pool does not have,
    remain in the overlay and are checked for each instance type. Example: the pool has `team=a`. An
    overlay for `team In [a]` and `zone In [z1]` is returned with `zone In [z1]` only. An overlay
    for `team In [b]` is left out.
    """
    kept = []
    for overlay in overlays:
        of_pool = tuple(r for r in overlay.requirements if r.key not in described and r.key in pool)
        if pool.compatible(LabelSet.of_pool(of_pool)):
            rest = tuple(r for r in overlay.requirements if r not in of_pool)
            kept.append(msgspec.structs.replace(overlay, requirements=rest) if of_pool else overlay)
    return tuple(kept)


def overlaid(found: InstanceType, overlays: Sequence[Laid]) -> Overlaid:
    """Applies overlays to one instance type. Returns the changed type, the names of the overlays
    that changed its prices, and the names of those that added capacity. `overlays`: in the order of
    `ordered`. Raises OverlayError if an overlay's price cannot be parsed.

    Each offering gets its price from the first overlay that matches the offering and states a
    price. Capacity is added only by overlays that match all offerings of the type. Example: a type
    costs $1.00 in zone a and in zone b. An overlay for zone a adds 10 % to the price and 1 GPU to
    the capacity. The type then costs $1.10 in zone a and $1.00 in zone b, and gets no GPU. A type
    without a matching overlay is returned unchanged.
    """
    if not overlays or not found.offerings:
        return Overlaid(found)
    labels = type_labels(found)
    of_type = [(overlay, bought) for overlay, asked, bought in overlays if labels.compatible(asked)]
    if not of_type:
        return Overlaid(found)
    matching = [_matching(of_type, bought_labels(offering)) for offering in found.offerings]
    offerings, priced_by = [], set()
    for offering, matched in zip(found.offerings, matching, strict=True):
        by = next((o for o in matched if o.price or o.price_adjustment), None)
        offerings.append(offering if by is None else _priced(offering, by))
        if by is not None:
            priced_by.add(by.name)
    everywhere = [o for o, _ in of_type if o.capacity and all(o in matched for matched in matching)]
    added = _added(everywhere)
    if not priced_by and not added:
        return Overlaid(found)
    capacity = dict(found.capacity)
    for resource, (amount, _) in added.items():
        capacity[resource] = capacity.get(resource, 0) + amount
    return Overlaid(
        InstanceType(
            found.name, capacity, found.overhead, found.labels, tuple(offerings), found.devices
        ),
        tuple(sorted(priced_by)),
        tuple(sorted({by for _, by in added.values()})),
    )


def type_labels(found: InstanceType) -> LabelSet:
    """Returns the labels that nodes of a type can have, without those that depend on the offering
    (zone, capacity type, reservation)."""
    sets = [
        (current_key(key), ValueSet(False, frozenset(values)))
        for key, values in found.labels.items()
    ]
    return LabelSet((*sets, (INSTANCE_TYPE_LABEL, ValueSet(False, frozenset((found.name,))))))


def described_by(types: Iterable[InstanceType]) -> frozenset[str]:
    """Returns the labels that any of these types describes, without those that depend on the
    offering."""
    return frozenset((INSTANCE_TYPE_LABEL, *(current_key(key) for t in types for key in t.labels)))


def bought_labels(offering: Offering) -> dict[str, str]:
    """Returns the labels of a node that come from its offering: zone, capacity type and reservation
    (`BOUGHT`)."""
    labels = {ZONE_LABEL: offering.zone, CAPACITY_TYPE_LABEL: offering.capacity_type}
    if offering.reservation:
        labels[RESERVATION_LABEL] = offering.reservation
    return labels


def adjusted(price: int, adjustment: str) -> int:
    """Adds an adjustment to a price: an amount in dollars such as `+0.05` or `-0.01`, or a
    percentage such as `+10%` or `-5%`. `price` and the result: billionths of a dollar an hour.
    Raises OverlayError."""
    body = adjustment.strip()
    if body.endswith("%"):
        return _rounded(price * (1 + _number(body[:-1], adjustment) / 100))
    return _rounded(price + _number(body, adjustment) * PRICE_UNIT)


def absolute(price: str) -> int:
    """Parses a price in dollars an hour. Returns it in billionths of a dollar an hour. Raises
    OverlayError."""
    return _rounded(_number(price.strip(), price) * PRICE_UNIT)


def _matching(
    overlays: Sequence[tuple[NodeOverlay, LabelSet]], labels: Mapping[str, str]
) -> list[NodeOverlay]:
    return [overlay for overlay, bought in overlays if bought.satisfied_by(labels)]


def _priced(offering: Offering, by: NodeOverlay) -> Offering:
    price = absolute(by.price) if by.price else adjusted(offering.price, by.price_adjustment)
    return Offering(
        offering.zone,
        offering.capacity_type,
        price,
        offering.available,
        offering.reservation,
        offering.left,
    )


def _added(overlays: Sequence[NodeOverlay]) -> Mapping[str, tuple[int, str]]:
    """Returns resource -> (additional amount, name of the overlay). If several overlays add a
    resource, the first one counts."""
    added: dict[str, tuple[int, str]] = {}
    for overlay in overlays:
        for resource, amount in overlay.capacity.items():
            added.setdefault(resource, (amount, overlay.name))
    return added


def _number(text: str, whole: str) -> Fraction:
    body = text[1:] if text[:1] in ("+", "-") else text
    before, _, after = body.partition(".")
    digits = before + after
    if not (digits.isascii() and digits.isdigit()) or len(body) > 40:
        raise OverlayError(
            f"expected a price such as 0.05 or an adjustment such as -5%, got {whole[:40]!r}"
        )
    number = Fraction(int(digits), 10 ** len(after))
    return -number if text[:1] == "-" else number


def _rounded(amount: Fraction) -> int:
    """Rounds half up to an integer that is never below 0."""
    return max(0, (2 * amount.numerator + amount.denominator) // (2 * amount.denominator))
