"""Which replicas the summary of a cluster without reported nodes includes already.

Such a cluster reports totals only. A summary with `accounted_through` says up to which decision of
each stream its numbers include the replicas that were assigned: those are deducted no more, and all
later ones still are, whether the decisions are read before or after the summary. A summary without
it is taken to include everything that was read before it.

Example: 5 replicas are assigned at seq 3 and 2 more at seq 4. A summary through seq 3 includes 5,
so 2 are still deducted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from wharfinger.domain.cluster import ResourceSummary
from wharfinger.domain.ids import ClassKey, StreamName

CHANGES_MAX = 4096
"""Changes that are kept of one stream. Beyond that, the two oldest become one: it is included as
soon as the later of the two is."""

Unbound = tuple[ClassKey, int]
"""The class of a binding, and how many of its replicas are assigned without a node."""

Change = tuple[int, dict[ClassKey, int]]
"""seq of a decision, and by how many it changed the assigned replicas without a node, by class."""


class SummaryContents:
    """`included`: class -> number of the assigned replicas without a node that the latest summary
    includes. `through`: its `accounted_through`."""

    def __init__(self) -> None:
        self.included: dict[ClassKey, int] = {}
        self.through: dict[StreamName, int] = {}
        self._later: dict[StreamName, deque[Change]] = {}

    def summarise(self, summary: ResourceSummary | None, assigned: Mapping[ClassKey, int]) -> None:
        """Takes a new summary. `assigned`: class -> number of all replicas without a node that were
        assigned in the decisions that were read."""
        self.included = dict(assigned)
        self.through = {} if summary is None else summary.accounted_through
        if not self.through:
            self._later.clear()
            return
        for stream, changes in self._later.items():
            while changes and changes[0][0] <= self.through.get(stream, 0):
                changes.popleft()
            for _, change in changes:
                self._include(change, -1)

    def change(self, stream: StreamName, seq: int, before: Unbound, after: Unbound) -> None:
        """Takes what one decision about a binding changed, in order of `seq` within a stream."""
        change: dict[ClassKey, int] = {}
        for (key, number), sign in ((before, -1), (after, 1)):
            change[key] = change.get(key, 0) + sign * number
        if seq <= self.through.get(stream, 0):
            self._include(change, 1)
            return
        changes = self._later.setdefault(stream, deque())
        changes.append((seq, change))
        if len(changes) > CHANGES_MAX:
            _, first = changes.popleft()
            later, second = changes.popleft()
            changes.appendleft((later, _sum(first, second)))

    def through_both(self, read: Mapping[StreamName, int]) -> dict[StreamName, int]:
        """Returns the highest seq of each stream up to which the replicas are either included or
        read. `read`: stream -> highest seq that was read."""
        return {
            stream: max(self.through.get(stream, 0), read.get(stream, 0))
            for stream in sorted({*self.through, *read})
        }

    def _include(self, change: Mapping[ClassKey, int], times: int) -> None:
        self.included = _sum(self.included, {key: times * n for key, n in change.items()})


def _sum(one: Mapping[ClassKey, int], other: Mapping[ClassKey, int]) -> dict[ClassKey, int]:
    keys = sorted({*one, *other})
    return {key: n for key in keys if (n := one.get(key, 0) + other.get(key, 0))}
