"""How many replicas fit of classes that keep a distance to other pods, found by placing them on
trial.

Counting node by node (`engine.nodes.count`) does not see topology spread, affinity, and
anti-affinity over zones. For the classes that have such rules the placing engine places replica
after replica, each visible to the next, until none fits; then everything is taken back. It is the
engine that places them later, so a cluster does not refuse what was counted.

Example: three nodes in two zones have room for 10 replicas each, and replicas exclude each other
from their zone. By nodes 30 fit, on trial 2.

Not seen are what the rules of replicas that have no node yet will forbid, measured load, and
profiles other than the default one. Classes without such rules keep their count by nodes, although
anti-affinity of other pods may exclude them: pods with different labels are one class there.
"""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.domain.pod_traits import PodTraits
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.engine.nodes.place import Placer
from wharfinger.engine.nodes.score import profile_of

VISITS_MAX = 200_000
"""Evaluations of a node for a replica, for all classes of one estimate: some milliseconds."""

REPLICAS_MAX = 1_000
"""Replicas of a class that are placed on trial. A class of which more fit keeps its count by
nodes."""


def keeps_distance(traits: PodTraits) -> bool:
    """Whether the class has a rule about other pods that nodes can fail."""
    return bool(traits.affinity or traits.anti_affinity or any(s.hard for s in traits.spread))


class TrialPlacement:
    """Places classes on trial on one table, under the default profile. The table is unchanged after
    each call."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._placer: Placer | None = None
        self._keeping: list[tuple[int, PodClass]] = []

    def keep(self, classes: Sequence[PodClass]) -> None:
        """Sets the classes that are counted."""
        self._keeping = [(at, cls) for at, cls in enumerate(classes) if keeps_distance(cls.traits)]

    def lowered(self, counts: list[int]) -> list[int]:
        """Returns `counts` (replicas that fit by nodes, for each class), lowered for the classes of
        which fewer can be placed. A count stays where the trial ended at its limit, and for classes
        with rules that need more than the node table (volumes, device claims).

        The cost is at most `VISITS_MAX` evaluations. With n nodes and c such classes, up to
        `VISITS_MAX` / (n c) replicas of each class are placed, at least one and at most
        `REPLICAS_MAX`.
        """
        wanted = [(at, cls) for at, cls in self._keeping if counts[at] > 0]
        if not wanted:
            return counts
        if self._placer is None:
            self._placer = Placer(self.table, profile_of("least-allocated"))
        found = list(counts)
        visits = VISITS_MAX // (len(self.table.rows) * len(wanted))
        limit = max(1, min(REPLICAS_MAX, visits))
        for at, cls in wanted:
            if self._placer.fallback.of(cls) is None:
                most = min(found[at], limit)
                (placed,) = self._placer.place_batch([(cls, most)])
                if len(placed) < most:
                    found[at] = len(placed)
        return found
