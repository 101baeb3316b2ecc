"""What other pods mean to a class of pods, as rows of small tables that a kernel reads: ports taken, affinity,
spread.

Each row names a topology key and a stretch of counts, one a domain, summed from tallies when a run begins; `bump`
says by how much a pod of the class itself moves them, so that a run of equal pods sees itself. The rules are those of
the framework's plugins `InterPodAffinity`, `PodTopologySpread` and `NodePorts`; the resolution of terms is theirs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import PodTraits, TopologySpread
from wharfinger.domain.scheduler import Profile
from wharfinger.domain.selectors import LabelSelector
from wharfinger.engine.framework.plugins.pod_topology_spread import BUILT_IN, HOSTNAME
from wharfinger.engine.framework.pod_terms import Term, application, own_term, spread_selector
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, NodeTable
from wharfinger.engine.nodes.standing import (
    AVOIDED,
    MINDED,
    NO_DOMAIN,
    NOT_WITH,
    PORTS,
    SKEWED,
    Ranks,
    Standing,
)
from wharfinger.engine.nodes.tallies import Tally, ports_taken, selected_by_all, selector_key, spread_counts

_OWN_NODE = ""
"""In place of a topology key: each slot is a domain of its own."""


@dataclass(slots=True)
class Spread:
    """A constraint as it is asked. `tally` None: it counts nobody. `itself`: it matches the pod that is placed."""

    said: TopologySpread
    tally: Tally | None
    itself: bool


Sums = list[tuple[Tally, int]]
"""Tallies with the weight each has in a count."""


@dataclass(slots=True)
class Relations:
    """`blocks`: (topology key, tallies, encoded verdict): a node in a domain with any is refused. `joins`: of the
    pod's affinity. `hard`, `soft`: spread; `every_label`: a node that lacks a label of a soft one is not scored.
    `likes`: weights by topology key."""

    blocks: list[tuple[str, Sums, int]] = field(default_factory=list)
    joins: list[tuple[str, Sums]] = field(default_factory=list)
    content_alone: bool = False
    join_verdict: int = 0
    hard: list[Spread] = field(default_factory=list)
    hard_verdicts: tuple[int, int] = (0, 0)
    soft: list[Spread] = field(default_factory=list)
    every_label: bool = True
    likes: list[tuple[str, Sums]] = field(default_factory=list)

    @property
    def none(self) -> bool:
        return not (self.blocks or self.joins or self.hard or self.soft or self.likes)


@dataclass(slots=True)
class Run:
    """The tables of one run. `codes` [keys, N]; `counts`: all stretches; the others as `kernels.weigh` reads them; `admits`
    int8[hard + soft, N]; `room`: the most domains of a stretch."""

    codes: Column
    counts: Column
    blocks: Column
    joins: Column
    joined: Column
    hard: Column
    admits: npt.NDArray[np.int8]
    likes: Column
    soft: Column
    needs_all: int
    room: int


class Relating:
    """Finds the relations of classes, of one table under one profile. Kept until terms, objects or the tallies' epoch
    change."""

    def __init__(self, table: NodeTable, profile: Profile, ranks: Ranks) -> None:
        self.table = table
        self.ranks = ranks
        self.arguments = profile.arguments
        self.filters = {use.name for use in profile.at("filter")}
        self.scores = {use.name for use in profile.at("score")}
        self._known: dict[PodClass, tuple[object, Relations]] = {}
        self._silent: tuple[object, dict[Hashable, Relations]] = (None, {})

    def of(self, cls: PodClass) -> Relations:
        tallies = self.table.tallies
        tallies.moved_by(cls)  # what it carries itself is known from here on
        stamp = (tallies.epoch, len(tallies.carried), id(self.table.objects))
        known = self._known.get(cls)
        if known is not None and known[0] == stamp:
            return known[1]
        if len(self._known) > 4096:
            self._known.clear()
        if _says_nothing(cls.traits):
            relations = self._of_silent(cls, stamp)
            self._known[cls] = (stamp, relations)
            return relations
        relations = self._found(cls)
        # Making tallies may have begun a new epoch, and what was made before it is then of no use.
        if tallies.epoch != stamp[0]:
            tallies.moved_by(cls)
            stamp = (tallies.epoch, len(tallies.carried), stamp[2])
            relations = self._found(cls)
        self._known[cls] = (stamp, relations)
        return relations

    def _of_silent(self, cls: PodClass, stamp: object) -> Relations:
        """Of classes that say nothing of others themselves, those with the same labels are the same to others."""
        if self._silent[0] != stamp:
            self._silent = (stamp, {})
        traits = cls.traits
        key = (traits.home, traits.owner, tuple(traits.labels.items()))
        relations = self._silent[1].get(key)
        if relations is None:
            relations = self._found(cls)
            if len(self._silent[1]) < 4096:
                self._silent[1][key] = relations
        return relations

    def _found(self, cls: PodClass) -> Relations:
        relations = Relations()
        if cls.traits.ports and "NodePorts" in self.filters:
            tally = self.table.tally(("ports", cls.traits.ports), ports_taken(cls.traits.ports))
            relations.blocks.append((_OWN_NODE, [(tally, 1)], self.ranks.encoded("NodePorts", PORTS)))
        if "InterPodAffinity" in self.filters:
            self._required(cls, relations)
        if "InterPodAffinity" in self.scores:
            self._preferred(cls, relations)
        if "PodTopologySpread" in self.filters:
            relations.hard = self._spread(cls, hard=True)
            verdicts = (self.ranks.encoded("PodTopologySpread", d) for d in (NO_DOMAIN, SKEWED))
            relations.hard_verdicts = (next(verdicts), next(verdicts))
        if "PodTopologySpread" in self.scores:
            relations.soft = self._spread(cls, hard=False)
            relations.every_label = bool(cls.traits.spread) or not self.arguments.spread.system
        return relations

    # --- affinity between pods

    def _required(self, cls: PodClass, relations: Relations) -> None:
        table, traits, encoded = self.table, cls.traits, self.ranks.encoded
        namespaces = {n.name: n.labels for n in table.objects.namespaces}
        wanted = [own_term(term, traits, namespaces) for term in traits.affinity]
        if wanted:
            terms = tuple(term for term in wanted if term is not None)
            tally = None
            if len(terms) == len(wanted):
                tally = self._tally(("all", tuple(map(_selected, terms))), terms)
                relations.content_alone = bool(tally.meets(cls))
            for said in traits.affinity:
                relations.joins.append((said.key, [] if tally is None else [(tally, 1)]))
            relations.join_verdict = encoded("InterPodAffinity", NOT_WITH)
        avoided: dict[str, Sums] = {}
        for said in traits.anti_affinity:
            term = own_term(said, traits, namespaces)
            if term is not None:
                avoided.setdefault(term.key, []).append((self._tally(("all", (_selected(term),)), (term,)), 1))
        relations.blocks += [(key, sums, encoded("InterPodAffinity", AVOIDED)) for key, sums in avoided.items()]
        minded: dict[str, Sums] = {}
        labels = namespaces.get(traits.home, {})
        for carried, tally in table.tallies.carried.values():
            if carried.kind == "avoids" and carried.term.selects(traits, labels):
                minded.setdefault(carried.term.key, []).append((tally, 1))
        relations.blocks += [(key, sums, encoded("InterPodAffinity", MINDED)) for key, sums in minded.items()]

    def _preferred(self, cls: PodClass, relations: Relations) -> None:
        traits, arguments = cls.traits, self.arguments.inter_pod
        prefers = bool(traits.preferred_affinity or traits.preferred_anti_affinity)
        if arguments.ignores_preferences_of_others and not prefers:
            return
        namespaces = {n.name: n.labels for n in self.table.objects.namespaces}
        likes: dict[str, Sums] = {}
        for terms, sign in ((traits.preferred_affinity, 1), (traits.preferred_anti_affinity, -1)):
            for said in terms:
                term = own_term(said.term, traits, namespaces)
                if term is not None:
                    tally = self._tally(("all", (_selected(term),)), (term,))
                    likes.setdefault(term.key, []).append((tally, sign * said.weight))
        labels = namespaces.get(traits.home, {})
        for carried, tally in self.table.tallies.carried.values():
            weight = arguments.hard_weight if carried.kind == "requires" else carried.weight
            if carried.kind != "avoids" and weight and carried.term.selects(traits, labels):
                likes.setdefault(carried.term.key, []).append((tally, weight))
        relations.likes = list(likes.items())

    def _tally(self, key: tuple[Hashable, ...], terms: tuple[Term, ...]) -> Tally:
        return self.table.tally(key, selected_by_all(terms))

    # --- spread

    def _spread(self, cls: PodClass, hard: bool) -> list[Spread]:
        traits = cls.traits
        said: list[tuple[TopologySpread, LabelSelector | None]] = []
        if traits.spread:
            said = [(c, spread_selector(c, traits.labels)) for c in traits.spread if c.hard == hard]
        else:
            spread = self.arguments.spread
            defaults = [c for c in (BUILT_IN if spread.system else spread.constraints) if c.hard == hard]
            if defaults and self.table.objects.selecting:
                selector = application(Pod("", "", cls.requirements), self.table.objects)
                said = [(c, selector) for c in defaults] if selector is not None else []
        found: list[Spread] = []
        for constraint, selector in said:
            tally = None
            if selector is not None:
                key = ("spread", traits.home, selector_key(selector))
                tally = self.table.tally(key, spread_counts(selector, traits.home))
            found.append(Spread(constraint, tally, selector is not None and selector.matches(traits.labels)))
        return found

    # --- the tables of a run

    def run(self, cls: PodClass, relations: Relations, standing: Standing) -> Run:
        return _Tables(self.table, cls, standing).made(relations)


class _Tables:
    """Lays the rows and stretches of one run."""

    def __init__(self, table: NodeTable, cls: PodClass, standing: Standing) -> None:
        self.table, self.cls, self.standing = table, cls, standing
        self.keys: dict[str, int] = {}
        self.stretches: list[Column] = []
        self.length = 0
        self.room = 0

    def made(self, relations: Relations) -> Run:
        blocks = [(*self._counted(key, sums), self._bump(sums), verdict) for key, sums, verdict in relations.blocks]
        joins = [(*self._counted(key, sums), self._bump(sums)) for key, sums in relations.joins]
        there = sum(int(self._stretch(at).sum()) for at in range(len(blocks), len(blocks) + len(joins)))
        joined = [there, int(relations.content_alone), relations.join_verdict, 0]
        hard = [self._hard(c, relations) for c in relations.hard]
        admits = [self._admits(c, relations.hard) for c in relations.hard]
        likes = [(*self._counted(key, sums), self._bump(sums)) for key, sums in relations.likes]
        soft = [self._soft(c, relations) for c in relations.soft]
        admits += [self._admits(c, relations.soft if relations.every_label else ()) for c in relations.soft]
        codes = [self.table.topology(key).codes for key in self.keys]
        capacity = self.table.capacity
        return Run(
            codes=np.stack(codes) if codes else np.zeros((0, capacity), dtype=np.int64),
            counts=np.concatenate(self.stretches) if self.stretches else np.zeros(0, dtype=np.int64),
            blocks=_rows(blocks, 4),
            joins=_rows(joins, 3),
            joined=np.array(joined, dtype=np.int64),
            hard=_rows(hard, 9),
            admits=np.stack(admits) if admits else np.zeros((0, capacity), dtype=np.int8),
            likes=_rows(likes, 3),
            soft=_rows(soft, 6),
            needs_all=int(relations.every_label),
            room=self.room,
        )

    def _hard(self, c: Spread, relations: Relations) -> tuple[int, ...]:
        codes, domains = self._domains(c.said.key)
        admitted = self._admits(c, relations.hard).astype(np.bool_) & (codes >= 0)
        counts = np.full(domains, -1, dtype=np.int64)
        counts[codes[admitted]] = 0
        if c.tally is not None:
            counts += _by_domain(codes, np.where(admitted, c.tally.by_slot, 0), domains)
        bump = 0 if c.tally is None else c.tally.meets(self.cls)
        key, base = self._key(c.said.key), self._lay(counts)
        no_domain, skewed = relations.hard_verdicts
        return key, base, domains, c.said.max_skew, int(c.itself), c.said.min_domains, no_domain, skewed, bump

    def _soft(self, c: Spread, relations: Relations) -> tuple[int, ...]:
        codes, domains = self._domains(c.said.key)
        own = c.said.key == HOSTNAME
        here = np.zeros(self.table.capacity, dtype=np.int64) if c.tally is None else c.tally.by_slot
        if own:
            counts = here
        else:
            admitted = self._admits(c, relations.soft if relations.every_label else ())
            counts = _by_domain(codes, np.where(admitted, here, 0), domains)
        bump = 0 if c.tally is None else c.tally.meets(self.cls)
        return self._key(c.said.key), self._lay(counts), domains, c.said.max_skew, bump, int(own)

    def _admits(self, c: Spread, all_of: Sequence[Spread]) -> npt.NDArray[np.int8]:
        """Nodes whose pods the constraint counts."""
        admitted = self.table.present.copy()
        for other in all_of:
            admitted &= self.table.topology(other.said.key).codes >= 0
        if c.said.honours_affinity:
            admitted &= self.standing.claimed
        if c.said.honours_taints:
            admitted &= self.standing.borne
        return admitted.astype(np.int8)

    def _counted(self, key: str, sums: Sums) -> tuple[int, int]:
        """The key's number and where the counts begin."""
        if key == _OWN_NODE:
            counts = np.zeros(self.table.capacity, dtype=np.int64)
            for tally, weight in sums:
                counts += weight * tally.by_slot
            return -1, self._lay(counts)
        codes, domains = self._domains(key)
        counts = np.zeros(domains, dtype=np.int64)
        for tally, weight in sums:
            counts += weight * _by_domain(codes, tally.by_slot, domains)
        return self._key(key), self._lay(counts)

    def _bump(self, sums: Sums) -> int:
        return sum(weight * tally.meets(self.cls) for tally, weight in sums)

    def _domains(self, key: str) -> tuple[Column, int]:
        topology = self.table.topology(key)
        self.room = max(self.room, len(topology.values))
        return topology.codes, len(topology.values)

    def _key(self, key: str) -> int:
        return self.keys.setdefault(key, len(self.keys))

    def _lay(self, counts: Column) -> int:
        """A stretch has one count at least, which a node in no domain reads and does not use."""
        base = self.length
        counts = counts if len(counts) else np.zeros(1, dtype=np.int64)
        self.stretches.append(counts)
        self.length += len(counts)
        return base

    def _stretch(self, at: int) -> Column:
        return self.stretches[at]


def _says_nothing(traits: PodTraits) -> bool:
    return not (
        traits.ports
        or traits.spread
        or traits.affinity
        or traits.anti_affinity
        or traits.preferred_affinity
        or traits.preferred_anti_affinity
    )


def _by_domain(codes: Column, here: Column, domains: int) -> Column:
    """Sums of whole numbers far below 2**53: exact in the doubles that NumPy counts in, in any order."""
    return np.bincount(codes + 1, weights=here, minlength=domains + 1)[1:].astype(np.int64)


def _rows(rows: Sequence[Sequence[int]], width: int) -> Column:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)


def _selected(term: Term) -> Hashable:
    """The pods that a term means, wherever they are: without its topology key."""
    return selector_key(term.selector), tuple(sorted(term.namespaces)), selector_key(term.namespace_selector)
