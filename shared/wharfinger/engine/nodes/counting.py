"""The constraints of a class that depend on other pods, as counts of pods by topology domain.

A rule with the form `TopologyCounter` gets a `Counting` and adds to its `Relations`; `topology`
converts these into the tables that the kernels read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from wharfinger.domain.pod_traits import TopologySpread
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.engine.nodes.tallies import Counted, TopologyTally
from wharfinger.engine.nodes.verdicts import NodeVerdict

OWN_NODE = ""
"""In place of a topology key: each node is a domain of its own."""


@dataclass(slots=True)
class SpreadCounter:
    """A topology spread constraint of a class. `tally`: counts the pods that match its selector,
    None: no pod matches. `itself`: whether the placed pod matches the selector too."""

    said: TopologySpread
    tally: TopologyTally | None
    itself: bool


Sums = list[tuple[TopologyTally, int]]
"""Tallies with the weight each has in a count."""


@dataclass(slots=True)
class Relations:
    """The constraints of one class on other pods, in the form that `topology` converts into tables.

    - `blocks`: (topology key, tallies, encoded verdict): refuses a node whose domain has any of
      these pods.
    - `joins`: (topology key, tallies): refuses a node whose domain has none of these pods, with the
      verdict `join_verdict`.
    - `content_alone`: the first pod of a group may go to any node.
    - `hard`, `soft`: topology spread constraints.
    - `hard_verdicts`: verdict for a missing label, and verdict for too much skew.
    - `every_label`: nodes that lack the label of any soft constraint are not scored.
    - `likes`: (topology key, tallies): the sums of these tallies are scored.
    """

    blocks: list[tuple[str, Sums, int]] = field(default_factory=list)
    joins: list[tuple[str, Sums]] = field(default_factory=list)
    content_alone: bool = False
    join_verdict: int = 0
    hard: list[SpreadCounter] = field(default_factory=list)
    hard_verdicts: tuple[int, int] = (0, 0)
    soft: list[SpreadCounter] = field(default_factory=list)
    every_label: bool = True
    likes: list[tuple[str, Sums]] = field(default_factory=list)

    @property
    def none(self) -> bool:
        return not (self.blocks or self.joins or self.hard or self.soft or self.likes)


@dataclass(frozen=True, slots=True)
class Counting:
    """The context in which one rule adds its constraints for one class to `relations`. `filters`,
    `scores`: whether the profile uses the rule's filter, its score; `encoded`: encodes its
    verdicts."""

    table: NodeTable
    cls: PodClass
    relations: Relations
    filters: bool
    scores: bool
    encoded: Callable[[NodeVerdict], int]

    def tally(self, key: Hashable, meets: Callable[[Counted], int]) -> TopologyTally:
        """Returns the tally of the pods that `meets` counts, by node. `key`: equal for equal
        questions."""
        return self.table.tally(key, meets)
