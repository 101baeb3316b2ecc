"""Decision groups: chosen clusters under a name, in lots of a limited size.

Named groups take first, in order, what they match; the rest has no name. Each is in order of name and cut by length. A group is
written as slices of at most a hundred clusters, numbered through all groups.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.engine.placement.fleet import Bools, Ints, Names

SLICE_MAX = 100
"""Clusters of one PlacementDecision object."""

_PERCENT = re.compile(r"([+-]?[0-9]+)(?:\.([0-9]*))?%")
_DIGITS_MAX = 30


class GroupError(ValueError):
    """A group strategy that says nothing sensible; the text is OCM's."""


@dataclass(frozen=True, slots=True)
class Group:
    """`clusters`: in order of name. `first_slice`: the number of its first slice, from 1."""

    index: int
    name: str
    clusters: tuple[str, ...]
    first_slice: int

    @property
    def slices(self) -> tuple[tuple[str, ...], ...]:
        """At least one, which may be empty."""
        cuts = range(0, max(1, len(self.clusters)), SLICE_MAX)
        return tuple([self.clusters[at : at + SLICE_MAX] for at in cuts])


def length(per_group: int | str, chosen: int, strict: bool = False) -> int:
    """How many clusters a group holds at most, of `chosen` in all; a percentage is rounded up. Raises GroupError.

    `strict`: in double precision as OCM does it, where 7% of 100 are 8.
    """
    if isinstance(per_group, int):
        wanted = per_group
    else:
        percent = _PERCENT.fullmatch(per_group) if len(per_group) <= _DIGITS_MAX else None
        if percent is None:
            raise GroupError(f"{per_group} invalid type: string is not a percentage")
        part = percent[2] or ""
        if strict:
            wanted = math.ceil(float(per_group[:-1]) / 100 * float(chosen))
        else:
            wanted = -(-int(percent[1] + part) * chosen // 10 ** (2 + len(part)))
    return wanted if 0 < wanted <= chosen else chosen


def divided(
    names: Names, chosen: Ints, named: Sequence[tuple[str, Bools | None]], per_group: int, first_only: int | None = None
) -> tuple[Group, ...]:
    """`chosen`: positions in `names`, any order. `named`: names of groups, and whom they match of all clusters (None: everyone).
    `first_only`: that many named groups and nothing after them. Without any group, one that is empty."""
    left = np.sort(chosen)
    lots: list[tuple[str, list[str]]] = []
    for name, matches in named[:first_only]:
        taken = left if matches is None else left[matches[left]]
        left = left[:0] if matches is None else left[~matches[left]]
        lots.append((name, names[taken].tolist()))
    if first_only is None:
        lots.append(("", names[left].tolist()))
    groups: list[Group] = []
    slices = 1
    for name, clusters in lots:
        for at in range(0, len(clusters), per_group or 1):
            lot = tuple(clusters[at : at + per_group])
            groups.append(Group(len(groups), name, lot, slices))
            slices += -(-len(lot) // SLICE_MAX)
    if not groups and first_only is None:
        return (Group(0, "", (), 1),)
    return tuple(groups)
