"""In which order instance types are asked for, how many of them, and what the node may cost in the end.

Whoever makes the node takes the cheapest it can get, of reserved capacity first, then spot, then on demand, and may have to go
down the list. A node that is to replace others is held against the dearest it may become: a saving must not depend on luck.
That is also why a replacement that might be bought in two ways is bound to one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from wharfinger.domain.instance_types import CapacityType, dollars
from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL
from wharfinger.engine.provisioning.catalogue import NO_PRICE, PREFERENCE, Mask, Types, mask_of
from wharfinger.engine.provisioning.filtering import MinValues, too_few_values
from wharfinger.engine.provisioning.requirements import LabelSet, ValueSet

LAUNCHED_MAX: Final = 600
"""So many instance types at most are handed to whoever launches."""

SPOT_OPTIONS: Final = 15
"""One spot node is replaced by spot only with so many cheaper types to choose from, and launched with no more: with fewer
the market would soon take it back, with more the next pass would find a cheaper one still."""


@dataclass(frozen=True, slots=True)
class Launch:
    """`instance_types`: the cheapest first. `refusal`: why it cannot be launched so; empty when it can. `lowered`: label ->
    minValues that is kept instead."""

    instance_types: tuple[str, ...]
    refusal: str = ""
    lowered: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Price:
    """Of one node that is yet to be launched, in billionths of a dollar an hour. `least`: of the cheapest offering; `worst`: of
    the dearest in `capacity_type`, which is the one that is launched first."""

    least: int
    worst: int
    capacity_type: CapacityType


@dataclass(frozen=True, slots=True, eq=False)
class Cheaper:
    """What is left of a replacement that must cost less than `ceiling`: its labels, bound to one capacity type where it
    could have been several, and its types (bool[types]). `refusal`: why nothing is left; empty when something is."""

    labels: LabelSet
    among: Mask
    ceiling: int
    price: Price | None = None
    refusal: str = ""


def ordered(types: Types, among: Mask, labels: LabelSet) -> tuple[int, ...]:
    """The rows at `among` that can be bought, by their cheapest offering, then by name."""
    cheapest = types.cheapest(labels)
    rows = np.flatnonzero(among & (cheapest < NO_PRICE))
    return tuple(rows[np.argsort(cheapest[rows], kind="stable")].tolist())


def truncated(
    types: Types, among: Mask, labels: LabelSet, min_values: MinValues = "Strict", limit: int = LAUNCHED_MAX
) -> Launch:
    """The cheapest `limit` types. Where they alone would be too few values of some label, dearer types that have what is
    missing stand in for the dearest of them; where that does not help either, minValues are lowered or the launch is refused."""
    rows = ordered(types, among, labels)
    kept = rows[:limit]
    if len(rows) > limit and labels.min_values:
        needed = _needed(types, rows, labels)[:limit]
        others = [row for row in rows if row not in set(needed)]
        chosen = {*needed, *others[: limit - len(needed)]}
        kept = tuple(row for row in rows if row in chosen)
    names = tuple(types.names[row] for row in kept)
    short = too_few_values(types, mask_of(types, names), labels) if labels.min_values else ()
    if short and min_values == "Strict":
        said = ", ".join(f'"{key}" ({have} of {want})' for key, have, want in short)
        return Launch(
            (), f"minValues requirement is not met by the {len(names)} instance types at most launched, for {said}"
        )
    return Launch(names, "", tuple((key, have) for key, have, _ in short))


def price_of(types: Types, among: Mask, labels: LabelSet) -> Price | None:
    """What a node that will be one of `among` may cost; None: it cannot be bought at all."""
    offered = types.offered(labels) & among[types.of_type]
    if not offered.any():
        return None
    mode = int(types.mode[offered].min())
    worst = types.price[offered & (types.mode == mode)].max()
    return Price(int(types.price[offered].min()), int(worst), PREFERENCE[mode])


def worst_launch_price(types: Types, name: str, labels: LabelSet) -> int:
    """The dearest a type may come to, in the capacity type it is launched in first; `NO_PRICE` where it is not offered."""
    row = types.row.get(name)
    return NO_PRICE if row is None else int(types.worst(labels)[row])


def cheaper_than(
    types: Types, among: Mask, labels: LabelSet, ceiling: int, min_values: MinValues = "Strict"
) -> Cheaper:
    """The types that cost less than `ceiling` however they are launched. Of capacity types that are all allowed the first
    that leaves any is settled on: otherwise a node that was to be spot could be launched on demand and cost more."""
    return _first_of(types, among, labels, ceiling, min_values, PREFERENCE)


def replacing_spot(
    types: Types,
    among: Mask,
    labels: LabelSet,
    ceiling: int,
    nodes: int,
    *,
    allowed: bool,
    min_values: MinValues = "Strict",
) -> Cheaper:
    """As `cheaper_than`, where all `nodes` nodes that go are spot. `allowed`: whether spot may be replaced by spot. For a
    single node there must be `SPOT_OPTIONS` cheaper types, and it is launched with the cheapest so many, or as many as
    minValues need."""
    reserved = _first_of(types, among, labels, ceiling, min_values, ("reserved",))
    if not reserved.refusal:
        return reserved
    spot = _first_of(types, among, labels, ceiling, min_values, ("spot",))
    if not spot.refusal:
        spot = _few_enough(types, spot, nodes, min_values) if allowed else _refused(spot, _SPOT_OFF)
    if not spot.refusal:
        return spot
    on_demand = _first_of(types, among, labels, ceiling, min_values, ("on-demand",))
    return spot if on_demand.refusal else on_demand


def same_type_ceiling(types: Types, among: Mask, going: Iterable[tuple[str, int]]) -> int | None:
    """`going`: (instance type, price) of nodes that go together. The least price among those whose own type could replace
    them: what replaces them must cost less still, or one of them might as well have stayed. None: there is no such type."""
    prices = [price for name, price in going if name in types.row and among[types.row[name]]]
    return min(prices, default=None)


def values_needed(types: Types, rows: Sequence[int], labels: LabelSet) -> int | None:
    """How many of the first of `rows` have all the values that minValues ask for; 0 where nothing is asked, None where all
    rows together do not."""
    missing = dict(labels.min_values)
    if not missing:
        return 0
    seen: dict[str, set[str]] = {key: set() for key in missing}
    for count, row in enumerate(rows, start=1):
        for key, values in seen.items():
            values |= types.values_of(row, key, labels)
        if all(len(seen[key]) >= want for key, want in missing.items()):
            return count
    return None


def _needed(types: Types, rows: Sequence[int], labels: LabelSet) -> list[int]:
    """The first rows that each bring a value of which there were too few, until there are enough."""
    wanted = labels.min_values
    seen: dict[str, set[str]] = {key: set() for key in wanted}
    needed = []
    for row in rows:
        brings = False
        for key, values in seen.items():
            new = types.values_of(row, key, labels) - values
            if new and len(values) < wanted[key]:
                values |= new
                brings = True
        if brings:
            needed.append(row)
    return needed


_SPOT_OFF = "spot nodes are not replaced by spot nodes, that is off"


def _first_of(
    types: Types, among: Mask, labels: LabelSet, ceiling: int, min_values: MinValues, modes: Sequence[CapacityType]
) -> Cheaper:
    refusal = "no offering of an instance type that could replace it"
    allowed = labels.of(CAPACITY_TYPE_LABEL)
    least: int | None = None
    for mode in modes:
        if not allowed.allows(mode):
            continue
        bound = labels.narrowed(CAPACITY_TYPE_LABEL, ValueSet(False, frozenset((mode,))))
        worst = types.worst(bound)
        cheaper = among & (worst < min(ceiling, NO_PRICE))
        if not cheaper.any():
            offered = worst[among & (worst < NO_PRICE)]
            if len(offered):
                least = int(offered.min()) if least is None else min(least, int(offered.min()))
            continue
        short = too_few_values(types, cheaper, bound)
        if short and min_values == "Strict":
            key, have, want = short[0]
            refusal = f'minValues requirement is not met by cheaper instance types for "{key}" ({have} of {want})'
            continue
        return Cheaper(bound, cheaper, ceiling, price_of(types, cheaper, bound))
    if least is not None:
        refusal = (
            f"can't replace with a cheaper node: the cheapest may cost {dollars(least)}, not below {dollars(ceiling)}"
        )
    return Cheaper(labels, np.zeros_like(among), ceiling, None, refusal)


def _few_enough(types: Types, found: Cheaper, nodes: int, min_values: MinValues) -> Cheaper:
    if nodes > 1:
        return found
    rows = ordered(types, found.among, found.labels)
    if len(rows) < SPOT_OPTIONS:
        return _refused(
            found, f"{SPOT_OPTIONS} cheaper instance types are needed to replace spot by spot, got {len(rows)}"
        )
    needed = values_needed(types, rows, found.labels)
    count = SPOT_OPTIONS if needed is None else max(SPOT_OPTIONS, needed)
    among = np.zeros_like(found.among)
    among[list(rows[:count])] = True
    return Cheaper(found.labels, among, found.ceiling, price_of(types, among, found.labels))


def _refused(found: Cheaper, why: str) -> Cheaper:
    return Cheaper(found.labels, np.zeros_like(found.among), found.ceiling, None, why)
