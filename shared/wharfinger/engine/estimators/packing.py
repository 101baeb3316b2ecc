"""First-fit packing of whole sets of pods: each kind of pod in a set goes to the first nodes that
have room, set after set, until one set does not fit completely.

First fit depends on the order of nodes and can miss an optimal packing, which is NP-hard; the later
placement goes node by node, too. Identical nodes are kept as one *group* with a number of copies,
so that "a million nodes of this size" costs no more than one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

D = TypeVar("D")
D_contra = TypeVar("D_contra", contravariant=True)

SETS_MAX = 10_000
"""At most so many whole sets are counted. It is far more than one workload requests, and bounds the
computing time."""


class Bin(Protocol[D_contra]):
    """A node, or a description of one, into which pods are packed."""

    def fits(self, demand: D_contra, most: int, /) -> int:
        """Returns how many more pods fit, at most `most`; below 0 if the node is over-used."""
        ...

    def take(self, demand: D_contra, times: int, /) -> None: ...

    def copy(self) -> Self: ...


@dataclass(slots=True)
class NodeGroup(Generic[D]):
    """`copies` nodes with the same room."""

    room: Bin[D]
    copies: int


class Packing(Generic[D]):
    """Packs pods by first fit into groups of identical nodes, in the given order of groups. Packed
    pods stay, so that several calls accumulate. `groups`: (bin, number of identical nodes); groups
    without nodes are dropped, and the given bins are copied."""

    def __init__(self, groups: Iterable[tuple[Bin[D], int]]) -> None:
        self._groups = [NodeGroup(room.copy(), copies) for room, copies in groups if copies > 0]

    def room_for(self, demand: D, most: int) -> int:
        """Returns how many pods of one kind fit, at most `most`."""
        total = 0
        for group in self._groups:
            total += group.copies * max(0, group.room.fits(demand, most))
            if total >= most:
                return most
        return total

    def put(self, demand: D, replicas: int) -> bool:
        """Packs as many of the replicas as fit. Returns whether all of them fit."""
        return self._put(demand, replicas, [0], 0)

    def sets(self, parts: Sequence[tuple[D, int]], most: int) -> int:
        """Packs whole sets of pods by first fit, one set after another, until one does not fit
        completely. Returns the number of sets that fit, at most `most` and `SETS_MAX`. `parts`:
        (kind of pod, number of such pods in a set). The pods of the incomplete set stay packed."""
        # Room only shrinks: a group without room for a kind will not have room in the next set.
        first = [0] * len(parts)
        most = min(most, SETS_MAX)
        for done in range(most):
            for part, (demand, replicas) in enumerate(parts):
                if not self._put(demand, replicas, first, part):
                    return done
        return max(0, most)

    def _put(self, demand: D, replicas: int, first: list[int], part: int) -> bool:
        """Packs up to `replicas` equal pods into the nodes by first fit, and returns whether all of
        these pods fit.

        Nodes with the same free resources are stored together as one group. The pods go into the
        first group with room, then into the next one. If only some nodes of a group get pods, the
        group is split in two, because its nodes are no longer equal.

        `demand`: what one of the pods requests.
        `part`: the index of this kind of pod (of this component) among the kinds in a set.
        `first`: `first[part]` is the index of the first group that may still have room for this
          kind of pod. It is updated, so that full groups are not tried again.

        Example: 10 replicas, and a group of 5 nodes with room for 3 replicas each. Three nodes get
        3 replicas each and become one group; a fourth node gets the last replica.
        """
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
        """Splits a group: `copies` nodes stay, the others become a new group behind it. Adjusts the
        indexes in `first`."""
        group = self._groups[at]
        self._groups.insert(at + 1, NodeGroup(group.room.copy(), group.copies - copies))
        group.copies = copies
        for part, begin in enumerate(first):
            if begin > at:
                first[part] += 1
