"""What overlays make of instance types: other prices, more capacity.

An overlay speaks of offerings by the labels that a node of them would have: those of the type, zone and capacity
type; what it asks of the pool was seen to before (`concerning`). Its price counts where it matches an offering. Its
capacity counts for a type when it matches every offering that there is, since what a node holds must not depend on
where it happens to be launched.

Percentages are exact: an adjusted price is rounded to a billionth of a dollar, halves up, and is never below zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from wharfinger.domain.instance_types import PRICE_UNIT, InstanceType, Offering
from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL, NodeOverlay
from wharfinger.domain.value import Value
from wharfinger.engine.provisioning.requirements import LabelSet, ValueSet, current_key

RESERVATION_LABEL = "karpenter.k8s.aws/capacity-reservation-id"
"""The label of a node in reserved capacity: of which reservation."""

BOUGHT = (ZONE_LABEL, CAPACITY_TYPE_LABEL, RESERVATION_LABEL)
"""Labels that follow from the offering."""


class OverlayError(ValueError):
    """A price that cannot be read; the text is one sentence."""


class Overlaid(Value, frozen=True):
    """An instance type as its overlays leave it, with their names by what they changed."""

    type: InstanceType
    priced_by: tuple[str, ...] = ()
    widened_by: tuple[str, ...] = ()


Laid = tuple[NodeOverlay, LabelSet, LabelSet]
"""An overlay, what it asks of the type, and what of the offering."""


def ordered(overlays: Iterable[NodeOverlay]) -> tuple[Laid, ...]:
    """In the order in which they count: the heaviest first, equally heavy ones by name."""
    found = []
    for overlay in sorted(overlays, key=lambda o: (-o.weight, o.name)):
        asked = LabelSet.of_pool(overlay.requirements)
        found.append((overlay, asked.without(*BOUGHT), LabelSet((k, v) for k, v in asked.items() if k in BOUGHT)))
    return tuple(found)


def concerning(overlays: Iterable[NodeOverlay], pool: LabelSet, described: frozenset[str]) -> tuple[NodeOverlay, ...]:
    """Those that speak of the nodes of a pool with these labels, and what they ask besides. `described`: labels by which
    instance types are told apart."""
    kept = []
    for overlay in overlays:
        of_pool = tuple(r for r in overlay.requirements if r.key not in described and r.key in pool)
        if pool.compatible(LabelSet.of_pool(of_pool)):
            rest = tuple(r for r in overlay.requirements if r not in of_pool)
            kept.append(msgspec.structs.replace(overlay, requirements=rest) if of_pool else overlay)
    return tuple(kept)


def overlaid(found: InstanceType, overlays: Sequence[Laid]) -> Overlaid:
    """`overlays`: as `ordered` gives them."""
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
        InstanceType(found.name, capacity, found.overhead, found.labels, tuple(offerings), found.devices),
        tuple(sorted(priced_by)),
        tuple(sorted({by for _, by in added.values()})),
    )


def type_labels(found: InstanceType) -> LabelSet:
    """What nodes of a type can be, before it is said where they are bought."""
    sets = [(current_key(key), ValueSet(False, frozenset(values))) for key, values in found.labels.items()]
    return LabelSet((*sets, (INSTANCE_TYPE_LABEL, ValueSet(False, frozenset((found.name,))))))


def described_by(types: Iterable[InstanceType]) -> frozenset[str]:
    """The labels by which any of these types is described, those of offerings left out."""
    return frozenset((INSTANCE_TYPE_LABEL, *(current_key(key) for t in types for key in t.labels)))


def bought_labels(offering: Offering) -> dict[str, str]:
    """What a node has of `BOUGHT`."""
    labels = {ZONE_LABEL: offering.zone, CAPACITY_TYPE_LABEL: offering.capacity_type}
    if offering.reservation:
        labels[RESERVATION_LABEL] = offering.reservation
    return labels


def adjusted(price: int, adjustment: str) -> int:
    """`price` (billionths of a dollar an hour) with `+0.05`, `-0.01` dollars, or `+10%`, `-5%` added to it.
    Raises OverlayError."""
    body = adjustment.strip()
    if body.endswith("%"):
        return _rounded(price * (1 + _number(body[:-1], adjustment) / 100))
    return _rounded(price + _number(body, adjustment) * PRICE_UNIT)


def absolute(price: str) -> int:
    """A price in dollars an hour, as billionths. Raises OverlayError."""
    return _rounded(_number(price.strip(), price) * PRICE_UNIT)


def _matching(overlays: Sequence[tuple[NodeOverlay, LabelSet]], labels: Mapping[str, str]) -> list[NodeOverlay]:
    return [overlay for overlay, bought in overlays if bought.satisfied_by(labels)]


def _priced(offering: Offering, by: NodeOverlay) -> Offering:
    price = absolute(by.price) if by.price else adjusted(offering.price, by.price_adjustment)
    return Offering(
        offering.zone, offering.capacity_type, price, offering.available, offering.reservation, offering.left
    )


def _added(overlays: Sequence[NodeOverlay]) -> Mapping[str, tuple[int, str]]:
    """Resource -> how much of it and by which overlay: of several the first that names it."""
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
        raise OverlayError(f"expected a price such as 0.05 or an adjustment such as -5%, got {whole[:40]!r}")
    number = Fraction(int(digits), 10 ** len(after))
    return -number if text[:1] == "-" else number


def _rounded(amount: Fraction) -> int:
    """Halves up; never below zero."""
    return max(0, (2 * amount.numerator + amount.denominator) // (2 * amount.denominator))
