"""Whole sets of pods, first fit: each kind of pod of a set goes to the first nodes that have room for it, set after set, until one
does not fit whole.

First fit depends on the order of nodes and finds no more than what an exact search would: packing is hard, and whoever places the
set later goes node by node, too. Nodes that are alike are kept as one *group* of so many copies, so that what is told as
"a million nodes of this size" costs no more than one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

D = TypeVar("D")
D_contra = TypeVar("D_contra", contravariant=True)

SETS_MAX = 10_000
"""No more whole sets are counted: it is far more than one workload asks for, and bounds the work."""


class Bin(Protocol[D_contra]):
    """What holds pods: a node, or what is known of one."""

    def fits(self, demand: D_contra, most: int, /) -> int:
        """How many more fit, at most `most`; below zero where it is over-used."""
        ...

    def take(self, demand: D_contra, times: int, /) -> None: ...

    def copy(self) -> Self: ...


@dataclass(slots=True)
class Group(Generic[D]):
    """`copies` nodes with the same room."""

    room: Bin[D]
    copies: int


class Packing(Generic[D]):
    """Nodes in order. What is put in stays in."""

    def __init__(self, groups: Iterable[tuple[Bin[D], int]]) -> None:
        self._groups = [Group(room.copy(), copies) for room, copies in groups if copies > 0]

    def room_for(self, demand: D, most: int) -> int:
        """How many of one kind fit, at most `most`."""
        total = 0
        for group in self._groups:
            total += group.copies * max(0, group.room.fits(demand, most))
            if total >= most:
                return most
        return total

    def put(self, demand: D, replicas: int) -> bool:
        """Put in as many as fit; False when that was not all of them."""
        return self._put(demand, replicas, [0], 0)

    def sets(self, parts: Sequence[tuple[D, int]], most: int) -> int:
        """How many times all of `parts` (kind, how many of it in a set) fit, at most `most` or `SETS_MAX`."""
        # Room only shrinks: where a kind has found none, it will find none for the next set.
        first = [0] * len(parts)
        most = min(most, SETS_MAX)
        for done in range(most):
            for part, (demand, replicas) in enumerate(parts):
                if not self._put(demand, replicas, first, part):
                    return done
        return max(0, most)

    def _put(self, demand: D, replicas: int, first: list[int], part: int) -> bool:
        """`first`: for each part from which group on it may find room."""
        while replicas > 0 and first[part] < len(self._groups):
            at = first[part]
            group = self._groups[at]
            each = group.room.fits(demand, replicas)
            if each <= 0:
                first[part] += 1
                continue
            filled = min(group.copies, replicas // each)
            if filled < group.copies:
                self._split(at, filled, first)
            self._groups[at].room.take(demand, each)
            replicas -= each * filled
        return replicas <= 0

    def _split(self, at: int, copies: int, first: list[int]) -> None:
        """Leave only so many copies in the group, the others in a group behind it."""
        group = self._groups[at]
        self._groups.insert(at + 1, Group(group.room.copy(), group.copies - copies))
        group.copies = copies
        for part, begin in enumerate(first):
            if begin > at:
                first[part] += 1
