"""Divides the selected clusters into named decision groups of a limited size.

Named groups take the clusters that they match, in the order of the placement. The remaining
clusters form unnamed groups. Each is sorted by name and cut at the maximum length. A group is
written as slices of at most a hundred clusters, and slices are numbered across all groups.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.engine.cluster_sets.fleet import Bools, Ints, Names

SLICE_MAX = 100
"""Maximum number of clusters in one PlacementDecision object."""

_PERCENT = re.compile(r"([+-]?[0-9]+)(?:\.([0-9]*))?%")
_DIGITS_MAX = 30


class GroupError(ValueError):
    """Raised for an invalid group strategy. The text is OCM's."""


@dataclass(frozen=True, slots=True)
class ClusterGroup:
    """Holds one decision group. `clusters`: the members in order of name. `first_slice`: the number
    of the group's first slice; slices are numbered from 1 across all groups."""

    index: int
    name: str
    clusters: tuple[str, ...]
    first_slice: int

    @property
    def slices(self) -> tuple[tuple[str, ...], ...]:
        """Returns the members in slices of at most `SLICE_MAX`. There is at least one slice, which
        may be empty."""
        cuts = range(0, max(1, len(self.clusters)), SLICE_MAX)
        return tuple([self.clusters[at : at + SLICE_MAX] for at in cuts])


def length(per_group: int | str, chosen: int, strict: bool = False) -> int:
    """Returns the maximum number of clusters in one decision group.

    `per_group`: the policy's limit, as a number or as a percentage of `chosen`. A percentage is
      rounded up.
    `chosen`: the number of selected clusters. If the limit is 0, negative or above `chosen`, the
      result is `chosen`.
    `strict`: compute the percentage in floating point as OCM does. A rounding error can then change
      the result.

    Raises GroupError if `per_group` is a string that is not a percentage, or is longer than 30
    characters.

    Example: 30% of 5 clusters gives 2. 7% of 100 clusters gives 7, and 8 with `strict`.
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
    names: Names,
    chosen: Ints,
    named: Sequence[tuple[str, Bools | None]],
    per_group: int,
    first_only: int | None = None,
) -> tuple[ClusterGroup, ...]:
    """Divides the selected clusters into decision groups of at most `per_group` clusters. Returns
    the groups in order; the clusters of a group are in order of name.

    `names`: the names of all clusters, sorted.
    `chosen`: positions of the selected clusters in `names`, in any order.
    `named`: (name, matches) of each named group, in order. `matches`: bool for every cluster in
      `names`, true if the group matches the cluster; None: the group matches every cluster.
    `first_only`: form only the first `first_only` named groups, and no unnamed groups. None: form
      all named groups, then the unnamed groups.

    A named group takes the clusters that it matches and that no earlier named group took. If these
    are more than `per_group`, they are cut into several groups of the same name. Clusters that no
    named group takes form unnamed groups. If `first_only` is None and no cluster is selected, the
    result is one empty group.

    Example: 5 clusters, one named group that matches 3 of them, `per_group` 2: groups of 2 and 1
    clusters with the name, then one unnamed group of 2.
    """
    left = np.sort(chosen)
    lots: list[tuple[str, list[str]]] = []
    for name, matches in named[:first_only]:
        taken = left if matches is None else left[matches[left]]
        left = left[:0] if matches is None else left[~matches[left]]
        lots.append((name, names[taken].tolist()))
    if first_only is None:
        lots.append(("", names[left].tolist()))
    groups: list[ClusterGroup] = []
    slices = 1
    for name, clusters in lots:
        for at in range(0, len(clusters), per_group or 1):
            lot = tuple(clusters[at : at + per_group])
            groups.append(ClusterGroup(len(groups), name, lot, slices))
            slices += -(-len(lot) // SLICE_MAX)
    if not groups and first_only is None:
        return (ClusterGroup(0, "", (), 1),)
    return tuple(groups)
