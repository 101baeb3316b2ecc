"""Chooses which instance types a new node is requested with, in which order and how many, and
computes the highest price it may have.

A provider creates the cheapest type it can get: reserved capacity first, then spot, then on-demand,
and falls back along the list. So a replacement is priced at the most expensive type in the list:
the saving must not depend on availability. For the same reason a replacement that could be bought
with several capacity types is restricted to one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from wharfinger.domain.instance_types import CapacityType
from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL
from wharfinger.domain.text import dollars
from wharfinger.engine.provisioning.catalogue import NO_PRICE, PREFERENCE, Mask, Types, mask_of
from wharfinger.engine.provisioning.filtering import MinValues, too_few_values
from wharfinger.engine.provisioning.requirements import LabelSet, ValueSet

LAUNCHED_MAX: Final = 600
"""Maximum number of instance types in a request for a node."""

SPOT_OPTIONS: Final = 15
"""A single spot node is replaced by spot only if there are this many cheaper types to choose from.
The request for the replacement then has no more types than this. With fewer, the market would soon
take the node back; with more, the next pass would find a still cheaper one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The instance types with which a node is requested, the cheapest first. `refusal`: why the
    node cannot be requested; empty if it can. `lowered`: (label, lowered minValues), where the
    types have fewer values than minValues requires."""

    instance_types: tuple[str, ...]
    refusal: str = ""
    lowered: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Price:
    """The price range of one new node, in billionths of a dollar an hour. `least`: of the cheapest
    offering. `worst`: of the most expensive offering with `capacity_type`. `capacity_type`: the one
    that is launched first."""

    least: int
    worst: int
    capacity_type: CapacityType


@dataclass(frozen=True, slots=True, eq=False)
class Cheaper:
    """What is left of a replacement that must cost less than `ceiling` (billionths of a dollar an
    hour). `labels`: its labels, restricted to one capacity type if several were possible. `among`
    bool[types]: the types left. `refusal`: why no type is left; empty if there is one."""

    labels: LabelSet
    among: Mask
    ceiling: int
    price: Price | None = None
    refusal: str = ""


def ordered(types: Types, among: Mask, labels: LabelSet) -> tuple[int, ...]:
    """Returns the rows of the types at `among` (bool[types]) that can be bought with these labels.
    They are sorted by the price of their cheapest offering, then by name."""
    cheapest = types.cheapest(labels)
    rows = np.flatnonzero(among & (cheapest < NO_PRICE))
    return tuple(rows[np.argsort(cheapest[rows], kind="stable")].tolist())


def truncated(
    types: Types,
    among: Mask,
    labels: LabelSet,
    min_values: MinValues = "Strict",
    limit: int = LAUNCHED_MAX,
) -> Launch:
    """Selects the instance types for the request of a new node: the cheapest `limit` of the types
    in `among` (bool[types]) that can be bought with the node's `labels`. Returns a `Launch` with
    the names of the types, the cheapest first.

    minValues is the least number of values of a label that the selected types must offer together.
    If the cheapest types offer too few values, the most expensive selected types are replaced by
    the cheapest types that offer more values. Example: `limit` 2, minValues 2 for the instance
    family, types m1 at $1, m2 at $2 and r1 at $3: m1 and r1 are selected.

    If the values still do not suffice, `min_values` decides. With `Strict` the `Launch` has no
    types and a refusal. With `BestEffort` it has the types, and minValues is lowered to what the
    types offer.
    """
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
            (),
            f"minValues requirement is not met by the {len(names)} instance types at most "
            f"launched, for {said}",
        )
    return Launch(names, "", tuple((key, have) for key, have, _ in short))


def price_of(types: Types, among: Mask, labels: LabelSet) -> Price | None:
    """Returns the price range of a node that will be one of the types at `among` (bool[types]);
    None: none of them can be bought with these labels."""
    offered = types.offered(labels) & among[types.of_type]
    if not offered.any():
        return None
    mode = int(types.mode[offered].min())
    worst = types.price[offered & (types.mode == mode)].max()
    return Price(int(types.price[offered].min()), int(worst), PREFERENCE[mode])


def cheaper_than(
    types: Types, among: Mask, labels: LabelSet, ceiling: int, min_values: MinValues = "Strict"
) -> Cheaper:
    """Restricts a replacement to the types that cost less than `ceiling` however they are launched,
    and to one capacity type. It is the first in `PREFERENCE` for which a type remains. Without this
    restriction, a node meant to be spot could be launched on demand and cost more.

    `among` bool[types]: the types to choose from. `ceiling`: exclusive, billionths of a dollar an
    hour.
    """
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
    """Selects the instance types for the replacement of spot nodes. Each selected type costs less
    than `ceiling` (billionths of a dollar an hour). Returns a `Cheaper` with the types and one
    capacity type, or with a refusal.

    Capacity types are tried in the order reserved, spot, on-demand; the first for which instance
    types can be selected is used. A type is selected only if its most expensive available offering
    of that capacity type costs less than `ceiling`. Example: ceiling $1.00; a type that costs $0.40
    as spot in zone a and $1.10 in zone b is left out.

    Spot is used only if `allowed`. If `nodes`, the number of removed spot nodes, is 1, spot also
    needs at least `SPOT_OPTIONS` (15) types below the ceiling. Then only the cheapest 15 are
    selected, or more if minValues (the least number of values of a label) needs more.

    `among` bool[types]: the types to choose from. `labels`: those of the replacement. `min_values`:
    with `Strict`, a capacity type whose types do not meet minValues is skipped.
    """
    reserved = _first_of(types, among, labels, ceiling, min_values, ("reserved",))
    if not reserved.refusal:
        return reserved
    spot = _first_of(types, among, labels, ceiling, min_values, ("spot",))
    if not spot.refusal:
        spot = _few_enough(types, spot, nodes) if allowed else _refused(spot, _SPOT_OFF)
    if not spot.refusal:
        return spot
    on_demand = _first_of(types, among, labels, ceiling, min_values, ("on-demand",))
    return spot if on_demand.refusal else on_demand


def same_type_ceiling(types: Types, among: Mask, going: Iterable[tuple[str, int]]) -> int | None:
    """Computes the price below which the replacement of several nodes must stay. It is the lowest
    price among the removed nodes whose own instance type could replace them. A replacement that
    costs no less is pointless: that node could simply stay. Returns None if there is no such node.

    `among` bool[types]: the types of the replacement. `going`: (instance type, price in billionths
    of a dollar an hour) of each removed node.
    """
    prices = [price for name, price in going if name in types.row and among[types.row[name]]]
    return min(prices, default=None)


def values_needed(types: Types, rows: Sequence[int], labels: LabelSet) -> int | None:
    """Returns the smallest n such that the first n types of `rows` meet minValues of all `labels`.
    minValues is the least number of values of a label that the selected types must offer together.

    0: no label has minValues. None: even all types of `rows` do not meet minValues. `rows`: indices
    in `types`, in the order in which the types are selected. Example: minValues 2 for the instance
    family and types of the families m, m, r: 3.
    """
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
    """Returns the rows (indices of instance types) that help to meet minValues, the least number of
    values of a label that the selected types must offer together.

    Goes through `rows` once, in order. Keeps a type if a label still has too few values and the
    type offers a new value of that label. Example: minValues 2 for the instance family and types of
    the families m, m, r: keeps the first and the third.
    """
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
    types: Types,
    among: Mask,
    labels: LabelSet,
    ceiling: int,
    min_values: MinValues,
    modes: Sequence[CapacityType],
) -> Cheaper:
    """Selects, for the first possible capacity type in `modes`, the instance types that cost less
    than `ceiling`. Returns a `Cheaper` with these types, or with a refusal if no capacity type is
    possible.

    A capacity type is skipped in three cases: `labels` excludes it; no type in `among` costs less
    than `ceiling` at its most expensive available offering of that capacity type; `min_values` is
    `Strict` and the types below `ceiling` offer fewer values of a label than minValues requires.
    Example: ceiling $1.00, `modes` (spot, on-demand), the only type costs $1.20 as spot and $0.90
    on demand: on-demand is used.

    `among` bool[types]: the types to choose from. `ceiling`: billionths of a dollar an hour; a
    price equal to the ceiling is too high.
    """
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
            refusal = (
                f'minValues requirement is not met by cheaper instance types for "{key}" ({have} '
                f"of {want})"
            )
            continue
        return Cheaper(bound, cheaper, ceiling, price_of(types, cheaper, bound))
    if least is not None:
        refusal = (
            f"can't replace with a cheaper node: the cheapest may cost {dollars(least)}, "
            f"not below {dollars(ceiling)}"
        )
    return Cheaper(labels, np.zeros_like(among), ceiling, None, refusal)


def _few_enough(types: Types, found: Cheaper, nodes: int) -> Cheaper:
    if nodes > 1:
        return found
    rows = ordered(types, found.among, found.labels)
    if len(rows) < SPOT_OPTIONS:
        return _refused(
            found,
            f"{SPOT_OPTIONS} cheaper instance types are needed to replace spot by spot, "
            f"got {len(rows)}",
        )
    needed = values_needed(types, rows, found.labels)
    count = SPOT_OPTIONS if needed is None else max(SPOT_OPTIONS, needed)
    among = np.zeros_like(found.among)
    among[list(rows[:count])] = True
    return Cheaper(found.labels, among, found.ceiling, price_of(types, among, found.labels))


def _refused(found: Cheaper, why: str) -> Cheaper:
    return Cheaper(found.labels, np.zeros_like(found.among), found.ceiling, None, why)
