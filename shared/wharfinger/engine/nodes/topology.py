"""The constraints of a class on other pods, as small tables for the kernels: host ports, affinity,
topology spread.

Each row of a table names a topology key and a range of counters, one for each domain. The counters
are summed from the tallies when a run begins. `bump`: what one pod of the class itself adds to a
counter, so that each pod of a run counts for the next.

Example: a hard spread over 3 zones with 4, 2 and 2 matching pods has one range (4, 2, 2) and bump
1. After a pod was placed in the second zone the range is (4, 3, 2).

The rules state what is counted for a class (`forms.TopologyCounter`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wharfinger.domain.pod_traits import HOSTNAME
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, NodeTable
from wharfinger.engine.nodes.counting import OWN_NODE, Counting, Relations, SpreadCounter, Sums
from wharfinger.engine.nodes.facts import NodeFactVerdicts
from wharfinger.engine.nodes.profile_rules import ProfileRules
from wharfinger.engine.nodes.verdicts import NodeVerdict


@dataclass(slots=True)
class TopologyCounters:
    """The arrays from which the kernels evaluate the constraints of one class on other pods. N:
    slots of the table.

    - `codes` int64[keys, N]: the domain of each node by topology key.
    - `counts` int64: the counters of all constraints, one range after another.
    - `blocks`, `joins`, `joined`, `hard`, `likes`, `soft`: one row per constraint; the docstring of
      `kernels` lists the columns.
    - `admits` int8[hard + soft, N]: 1 where a spread constraint counts the pods on the node.
    - `needs_all`: 1: nodes that lack the label of any soft constraint are not scored.
    - `room`: the largest number of domains of a key.
    """

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
    """Computes the relations of classes to other pods (`Relations`) for one table and profile. They
    are cached by class until new terms are carried, the cluster's objects change or the tallies are
    dropped."""

    def __init__(self, table: NodeTable, rules: ProfileRules) -> None:
        self.table = table
        self.rules = rules
        self._known: dict[PodClass, tuple[object, Relations]] = {}
        self._silent: tuple[object, dict[Hashable, Relations]] = (None, {})
        self._speaks = [counter.speaks for _, counter in rules.counters]

    def of(self, cls: PodClass) -> Relations:
        tallies = self.table.tallies
        tallies.moved_by(cls)  # creates the tallies of the terms that the class carries
        stamp = (tallies.epoch, len(tallies.carried), self.table.objects_changes)
        known = self._known.get(cls)
        if known is not None and known[0] == stamp:
            return known[1]
        if len(self._known) > 4096:
            self._known.clear()
        for speaks in self._speaks:  # a loop, since this runs for each class of a batch
            if speaks(cls.traits):
                break
        else:
            relations = self._of_silent(cls, stamp)
            self._known[cls] = (stamp, relations)
            return relations
        relations = self._found(cls)
        # Creating tallies may have begun a new epoch; then the earlier ones are invalid.
        if tallies.epoch != stamp[0]:
            tallies.moved_by(cls)
            stamp = (tallies.epoch, len(tallies.carried), stamp[2])
            relations = self._found(cls)
        self._known[cls] = (stamp, relations)
        return relations

    def _of_silent(self, cls: PodClass, stamp: object) -> Relations:
        """Returns the relations between a class and other pods. The class itself has no affinity,
        topology spread or host ports. So the relations are only the constraints and preferences of
        other pods that concern the class. The result depends only on the namespace, owner and
        labels of the class. So classes in which these three are equal share one cached result.

        `stamp`: a value that changes when the cached results become invalid.
        """
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
        relations, rules = Relations(), self.rules
        for name, counter in rules.counters:
            scores = rules.scores_counters(name, counter)
            if name in rules.codes.ranks or scores:

                def encoded(verdict: NodeVerdict, name: str = name) -> int:
                    return rules.codes.encoded(name, verdict)

                counter.count(
                    Counting(self.table, cls, relations, name in rules.codes.ranks, scores, encoded)
                )
        return relations

    # --- the tables of a run

    def run(self, cls: PodClass, relations: Relations, facts: NodeFactVerdicts) -> TopologyCounters:
        return _Tables(self.table, cls, facts).made(relations)


class _Tables:
    """Builds the `TopologyCounters` of one class from its relations and the current tallies."""

    def __init__(self, table: NodeTable, cls: PodClass, facts: NodeFactVerdicts) -> None:
        self.table, self.cls, self.facts = table, cls, facts
        self.keys: dict[str, int] = {}
        self.stretches: list[Column] = []
        self.length = 0
        self.room = 0

    def made(self, relations: Relations) -> TopologyCounters:
        blocks = [
            (*self._counted(key, sums), self._bump(sums), verdict)
            for key, sums, verdict in relations.blocks
        ]
        joins = [(*self._counted(key, sums), self._bump(sums)) for key, sums in relations.joins]
        there = sum(
            int(self._stretch(at).sum()) for at in range(len(blocks), len(blocks) + len(joins))
        )
        joined = [there, int(relations.content_alone), relations.join_verdict, 0]
        hard = [self._hard(c, relations) for c in relations.hard]
        admits = [self._admits(c, relations.hard) for c in relations.hard]
        likes = [(*self._counted(key, sums), self._bump(sums)) for key, sums in relations.likes]
        soft = [self._soft(c, relations) for c in relations.soft]
        admits += [
            self._admits(c, relations.soft if relations.every_label else ()) for c in relations.soft
        ]
        codes = [self.table.topology(key).codes for key in self.keys]
        capacity = self.table.capacity
        return TopologyCounters(
            codes=np.stack(codes) if codes else np.zeros((0, capacity), dtype=np.int64),
            counts=np.concatenate(self.stretches)
            if self.stretches
            else np.zeros(0, dtype=np.int64),
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

    def _hard(self, c: SpreadCounter, relations: Relations) -> tuple[int, ...]:
        codes, domains = self._domains(c.said.key)
        admitted = self._admits(c, relations.hard).astype(np.bool_) & (codes >= 0)
        counts = np.full(domains, -1, dtype=np.int64)
        counts[codes[admitted]] = 0
        if c.tally is not None:
            counts += _by_domain(codes, np.where(admitted, c.tally.by_slot, 0), domains)
        bump = 0 if c.tally is None else c.tally.meets(self.cls)
        key, base = self._key(c.said.key), self._lay(counts)
        no_domain, skewed = relations.hard_verdicts
        return (
            key,
            base,
            domains,
            c.said.max_skew,
            int(c.itself),
            c.said.min_domains,
            no_domain,
            skewed,
            bump,
        )

    def _soft(self, c: SpreadCounter, relations: Relations) -> tuple[int, ...]:
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

    def _admits(self, c: SpreadCounter, all_of: Sequence[SpreadCounter]) -> npt.NDArray[np.int8]:
        """Returns int8[N]: 1 for the nodes whose pods the constraint `c` counts. Such a node has
        the labels of all constraints in `all_of`. It also meets the node affinity of the pod, and
        the pod tolerates its taints, where the constraint honours these."""
        admitted = self.table.present.copy()
        for other in all_of:
            admitted &= self.table.topology(other.said.key).codes >= 0
        if c.said.honours_affinity:
            admitted &= self.facts.facts.allowed(self.facts.asked)
        if c.said.honours_taints:
            admitted &= self.facts.facts.tolerated(self.facts.asked)
        return admitted.astype(np.int8)

    def _counted(self, key: str, sums: Sums) -> tuple[int, int]:
        """Adds up counters of pods per node into counters per domain of a topology key (a domain is
        one value of the key, such as one zone). Appends the counters per domain to the array
        `TopologyCounters.counts`. Returns (number of the key, position in `counts` where the new
        counters begin).

        `sums`: pairs (tally, weight): the counters per node, and a factor by which they are
        multiplied. For the key `OWN_NODE` each node is a domain of its own. Then the number is -1
        and there is one counter per slot (array position of a node). Example: the nodes of zone a
        have 1 and 2 pods, the node of zone b has 4. With weight 1 the counters are 3 and 4.
        """
        if key == OWN_NODE:
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
        """Appends a range of counters and returns its start. An empty range gets one counter, so
        that reads by nodes without a domain stay in bounds."""
        base = self.length
        counts = counts if len(counts) else np.zeros(1, dtype=np.int64)
        self.stretches.append(counts)
        self.length += len(counts)
        return base

    def _stretch(self, at: int) -> Column:
        return self.stretches[at]


def _by_domain(codes: Column, here: Column, domains: int) -> Column:
    """Sums a count by domain. `codes` [N]: domain of each node, -1: none; `here` [N]: count on each
    node. Returns int64[domains]; nodes without a domain are left out. The result is exact: all sums
    are far below 2**53, the limit of exact integers in NumPy's doubles."""
    return np.bincount(codes + 1, weights=here, minlength=domains + 1)[1:].astype(np.int64)


def _rows(rows: Sequence[Sequence[int]], width: int) -> Column:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)
