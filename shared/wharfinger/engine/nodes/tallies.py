"""Counts of pods per node for every selector that a rule uses, maintained incrementally.

A pod with spread constraints or affinity needs: how many pods does *this* selector match in each
domain? Each distinct selector is a `TopologyTally`: one counter per node, adjusted whenever a
replica comes or goes, so that pods are never counted again. The terms of existing pods
(anti-affinity, preferences) that apply to new pods are tallies too: counts of the pods that carry
the term.

Which tallies a class of pods affects is computed once per class, and again only for new tallies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.selectors import LabelSelector
from wharfinger.engine.framework.pod_terms import AffinityTerm, others_term

Column = npt.NDArray[np.int64]

_ALL = LabelSelector()

CarriedKind = Literal["avoids", "requires", "prefers"]


class Counted(Protocol):
    """A class of pods, as tallies see it. `tallies`: the tallies that count its pods, each with the
    number by which one pod counts. `looked`: (epoch, number of tallies) up to which `tallies` is
    complete."""

    traits: PodTraits
    terminating: bool
    tallies: list[tuple[TopologyTally, int]]
    looked: tuple[int, int]


class TopologyTally:
    """Counts certain pods by node. `by_slot` int64[slots]: the count on each node; `meets`: returns
    by how much one pod of a class counts."""

    __slots__ = ("by_slot", "meets")

    def __init__(self, capacity: int, meets: Callable[[Counted], int]) -> None:
        self.by_slot: Column = np.zeros(capacity, dtype=np.int64)
        self.meets = meets


@dataclass(frozen=True, slots=True)
class Carried:
    """An affinity term of existing pods. `weight`: signed weight of a preference, 0 for a required
    term."""

    kind: CarriedKind
    term: AffinityTerm
    weight: int

    @property
    def key(self) -> Hashable:
        return self.kind, term_key(self.term), self.weight


TALLIES_MAX = 4096
"""With more tallies, all are dropped, and created again when needed: many of them belong to
workloads that no longer exist."""


class Tallies:
    """Creates and stores all tallies of one table. `epoch`: incremented when all are dropped, so
    that callers drop what they derived. `carried`: the affinity terms of pods that run or have run,
    each with its tally."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.epoch = 0
        self.all: list[TopologyTally] = []
        self.carried: dict[Hashable, tuple[Carried, TopologyTally]] = {}
        self._found: dict[Hashable, TopologyTally] = {}

    def grow(self, capacity: int) -> None:
        self.capacity = capacity
        for tally in self.all:
            more = np.zeros(capacity - len(tally.by_slot), dtype=np.int64)
            tally.by_slot = np.concatenate((tally.by_slot, more))

    @property
    def full(self) -> bool:
        return len(self.all) >= TALLIES_MAX

    def forget(self) -> None:
        self.epoch += 1
        self.all, self.carried, self._found = [], {}, {}

    def moved_by(self, cls: Counted) -> list[tuple[TopologyTally, int]]:
        """Returns the tallies (counters of selected pods per node) that change when a pod of the
        class is placed or removed, each with the number by which one pod changes it.

        The result is stored in the class. Tallies that are created later are added to it at the
        next call. If pods of the class have affinity terms that no pod had before, the tallies of
        these terms are created first. Example: a tally counts pods with app=web, and pods of the
        class have this label: (the tally, 1).
        """
        epoch, number = cls.looked
        if epoch == self.epoch and number == len(self.all):
            return cls.tallies
        if epoch != self.epoch:
            cls.tallies, number = [], 0
            self._carry(cls.traits)
        cls.tallies = cls.tallies + [
            (t, times) for t in self.all[number:] if (times := t.meets(cls))
        ]
        cls.looked = (self.epoch, len(self.all))
        return cls.tallies

    def _carry(self, traits: PodTraits) -> None:
        for carried in carried_by(traits):
            if carried.key not in self.carried:
                self.carried[carried.key] = (carried, self._new(_carries(carried.key)))

    def _new(self, meets: Callable[[Counted], int]) -> TopologyTally:
        tally = TopologyTally(self.capacity, meets)
        self.all.append(tally)
        return tally

    def asked(self, key: Hashable, meets: Callable[[Counted], int]) -> tuple[TopologyTally, bool]:
        """Returns the tally with this key, and whether it is new. The caller has to count the
        existing pods into a new one."""
        tally = self._found.get(key)
        if tally is not None:
            return tally, False
        tally = self._found[key] = self._new(meets)
        return tally, True


def carried_by(traits: PodTraits) -> list[Carried]:
    """Returns the inter-pod affinity terms of an existing pod by which it influences where new pods
    are placed: its required anti-affinity, its required affinity, and its preferences. A preference
    keeps its weight, with a minus sign for anti-affinity; required terms have weight 0.

    Terms without a label selector select no pod and are left out. `traits`: properties of the
    existing pod, such as labels and affinity. Example: preferred anti-affinity with weight 10 gives
    a term with weight -10.
    """
    if not (
        traits.anti_affinity
        or traits.affinity
        or traits.preferred_affinity
        or traits.preferred_anti_affinity
    ):
        return []
    said = [
        Carried("avoids", term, 0) for t in traits.anti_affinity if (term := others_term(t, traits))
    ]
    said += [
        Carried("requires", term, 0) for t in traits.affinity if (term := others_term(t, traits))
    ]
    for terms, sign in ((traits.preferred_affinity, 1), (traits.preferred_anti_affinity, -1)):
        for t in terms:
            term = others_term(t.term, traits)
            if term is not None:
                said.append(Carried("prefers", term, sign * t.weight))
    return said


def _carries(key: Hashable) -> Callable[[Counted], int]:
    return lambda cls: sum(carried.key == key for carried in carried_by(cls.traits))


def term_key(term: AffinityTerm) -> Hashable:
    """Returns a hashable key of a term. Two terms that mean the same but are written differently
    have different keys, and so separate tallies."""
    return (
        term.key,
        selector_key(term.selector),
        tuple(sorted(term.namespaces)),
        selector_key(term.namespace_selector),
    )


def selector_key(selector: LabelSelector | None) -> Hashable:
    if selector is None:
        return None
    return tuple(sorted(selector.match_labels.items())), selector.match_expressions


def selected_by_all(terms: tuple[AffinityTerm, ...]) -> Callable[[Counted], int]:
    return lambda cls: int(all(term.selects(cls.traits, {}) for term in terms))
