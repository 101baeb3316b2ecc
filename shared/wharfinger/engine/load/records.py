"""The hot value: a penalty for recent placements on a node (crane's hotValue).

Every `count` replicas placed within a window add one; the windows are summed. A replica counts
once, even if its placement is reported again, and stops counting when it is released. A window or
count of zero is an error instead of a division by zero. The records are bounded per node, so that a
busy node cannot displace the records of others; crane keeps one list for all nodes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from wharfinger.domain.policy import HotWindow
from wharfinger.domain.time import SECOND

Micros = int
"""Microseconds since 1970 in UTC."""


Replica = tuple[str, int]
"""Binding and ordinal."""

RECORDS_MAX = 1024
"""Limit of records of one node. A node holds some hundreds of pods; with more than a thousand
placements in an hour it is hot by any policy."""

RETAIN_S = 3600
"""How long records are kept at least, even with shorter windows, in seconds: a policy may be
applied, or arrive, after the bindings."""


@dataclass(slots=True)
class HotRecords:
    """The recent placements on one node, from which its hot value is computed. At most
    `RECORDS_MAX` are kept; the oldest are dropped first.

    `placed`: (time, binding, ordinal), sorted; `when`: replica -> its time. `dropped`: number of
    records lost to the bound.
    """

    placed: list[tuple[Micros, str, int]] = field(default_factory=list)
    when: dict[Replica, Micros] = field(default_factory=dict)
    dropped: int = 0

    def add(self, replica: Replica, at: Micros, records_max: int = RECORDS_MAX) -> bool:
        """Records a placement. Returns False if the replica is recorded already."""
        if replica in self.when:
            return False
        self.when[replica] = at
        insort(self.placed, (at, *replica))
        if len(self.placed) > records_max:
            self._drop(1)
            self.dropped += 1
        return True

    def remove(self, replica: Replica) -> bool:
        at = self.when.pop(replica, None)
        if at is None:
            return False
        del self.placed[bisect_left(self.placed, (at, *replica))]
        return True

    def forget_until(self, at: Micros) -> None:
        """Drops placements at `at` or before."""
        self._drop(bisect_right(self.placed, at, key=_time))

    def _drop(self, n: int) -> None:
        for _, binding, ordinal in self.placed[:n]:
            del self.when[(binding, ordinal)]
        del self.placed[:n]

    def since(self, at: Micros) -> int:
        """Returns the number of placements later than `at`."""
        return len(self.placed) - bisect_right(self.placed, at, key=_time)

    def value(self, windows: Sequence[HotWindow], at: Micros) -> tuple[int, Micros | None]:
        """Returns (hot value at time `at`, next time at which it falls). The hot value is the sum
        over the windows of floor(placements within the window / `count`). It falls when placements
        become older than a window; None: it is 0 and cannot fall.

        `windows`: the hot windows of the load policy, each with its length and `count`, the number
        of placements that add 1.

        Example: one window of 5 minutes with `count` 5, and 12 placements within it. The hot value
        is floor(12 / 5) = 2. It falls to 1 when the oldest 3 placements have left the window,
        because then 9 are left.
        """
        hot, falls = 0, None
        for window in windows:
            span = window.window_s * SECOND
            recent = self.since(at - span)
            share, spare = divmod(recent, window.count)
            if share:
                first = len(self.placed) - recent
                hot += share
                # The share falls when one more than the spare records have left the window.
                leaves = self.placed[first + spare][0] + span
                falls = leaves if falls is None else min(falls, leaves)
        return hot, falls


def usable(windows: Sequence[HotWindow]) -> tuple[HotWindow, ...]:
    return tuple(w for w in windows if w.window_s > 0 and w.count > 0)


def _time(record: tuple[Micros, str, int]) -> Micros:
    return record[0]
