"""How many pods of a sort stand on each node, for every sort that somebody asks about.

A pod that spreads, seeks others or avoids them asks: how many pods that *this* selects are in each domain? Each
distinct question is a `Tally`: one count a node, which follows every replica that comes or goes, so that nothing is
ever counted anew from pods. What a pod that is there says about those to come (its anti-affinity, its preferences) is
a tally too: of those who carry the term.

Which tallies a class of pods moves is found once for the class, and again only for tallies that came since."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from wharfinger.domain.pod_traits import HostPort, PodTraits
from wharfinger.domain.selectors import LabelSelector
from wharfinger.engine.framework.plugins.node_ports import clash
from wharfinger.engine.framework.pod_terms import Term, others_term

Column = npt.NDArray[np.int64]

_ALL = LabelSelector()

CarriedKind = Literal["avoids", "requires", "prefers"]


class Counted(Protocol):
    """A class of pods, as far as tallies know it. `tallies`: those it moves, and by how much a pod; `looked`: which
    of them it has looked at: (epoch, number)."""

    traits: PodTraits
    terminating: bool
    tallies: list[tuple[Tally, int]]
    looked: tuple[int, int]


class Tally:
    """`by_slot` int64[slots]: how often it is met on each node."""

    __slots__ = ("by_slot", "meets")

    def __init__(self, capacity: int, meets: Callable[[Counted], int]) -> None:
        self.by_slot: Column = np.zeros(capacity, dtype=np.int64)
        self.meets = meets


@dataclass(frozen=True, slots=True)
class Carried:
    """A term of pods that are there. `weight`: of a preference, signed."""

    kind: CarriedKind
    term: Term
    weight: int

    @property
    def key(self) -> Hashable:
        return self.kind, term_key(self.term), self.weight


TALLIES_MAX = 4096
"""More are forgotten all at once, and made again as they are asked for: those of workloads that have long gone are
among them."""


class Tallies:
    """All tallies of one table. `epoch`: raised when they are forgotten. `carried`: the terms of pods that are or
    were there."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.epoch = 0
        self.all: list[Tally] = []
        self.carried: dict[Hashable, tuple[Carried, Tally]] = {}
        self._found: dict[Hashable, Tally] = {}

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

    def moved_by(self, cls: Counted) -> list[tuple[Tally, int]]:
        """The tallies that a pod of the class moves. A class that carries terms nobody has carried so far makes
        tallies for them."""
        epoch, number = cls.looked
        if epoch == self.epoch and number == len(self.all):
            return cls.tallies
        if epoch != self.epoch:
            cls.tallies, number = [], 0
            self._carry(cls.traits)
        cls.tallies = cls.tallies + [(t, times) for t in self.all[number:] if (times := t.meets(cls))]
        cls.looked = (self.epoch, len(self.all))
        return cls.tallies

    def _carry(self, traits: PodTraits) -> None:
        for carried in carried_by(traits):
            if carried.key not in self.carried:
                self.carried[carried.key] = (carried, self._new(_carries(carried.key)))

    def _new(self, meets: Callable[[Counted], int]) -> Tally:
        tally = Tally(self.capacity, meets)
        self.all.append(tally)
        return tally

    def asked(self, key: Hashable, meets: Callable[[Counted], int]) -> tuple[Tally, bool]:
        """The tally of a question, and whether it is new: then whoever keeps the pods has to count those that are there."""
        tally = self._found.get(key)
        if tally is not None:
            return tally, False
        tally = self._found[key] = self._new(meets)
        return tally, True


def carried_by(traits: PodTraits) -> list[Carried]:
    """What a pod that is there says of those that come."""
    if not (traits.anti_affinity or traits.affinity or traits.preferred_affinity or traits.preferred_anti_affinity):
        return []
    said = [Carried("avoids", term, 0) for t in traits.anti_affinity if (term := others_term(t, traits))]
    said += [Carried("requires", term, 0) for t in traits.affinity if (term := others_term(t, traits))]
    for terms, sign in ((traits.preferred_affinity, 1), (traits.preferred_anti_affinity, -1)):
        for t in terms:
            term = others_term(t.term, traits)
            if term is not None:
                said.append(Carried("prefers", term, sign * t.weight))
    return said


def _carries(key: Hashable) -> Callable[[Counted], int]:
    return lambda cls: sum(carried.key == key for carried in carried_by(cls.traits))


def term_key(term: Term) -> Hashable:
    """A term as what can be looked up; where two mean the same and are written otherwise, each has its own tally."""
    return term.key, selector_key(term.selector), tuple(sorted(term.namespaces)), selector_key(term.namespace_selector)


def selector_key(selector: LabelSelector | None) -> Hashable:
    if selector is None:
        return None
    return tuple(sorted(selector.match_labels.items())), selector.match_expressions


def spread_counts(selector: LabelSelector, namespace: str) -> Callable[[Counted], int]:
    """Pods that spread counts: of the namespace, not about to end; a selector that selects by nothing counts nobody."""

    def meets(cls: Counted) -> int:
        if cls.terminating or selector == _ALL:
            return 0
        traits = cls.traits
        return int(traits.home == namespace and selector.matches(traits.labels))

    return meets


def selected_by_all(terms: tuple[Term, ...]) -> Callable[[Counted], int]:
    return lambda cls: int(all(term.selects(cls.traits, {}) for term in terms))


def ports_taken(ports: tuple[HostPort, ...]) -> Callable[[Counted], int]:
    return lambda cls: int(clash(ports, cls.traits.ports))
