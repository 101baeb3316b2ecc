"""The hot value: how many replicas came to a node lately.

Every `count` replicas placed within a window add one; the windows' shares are summed (crane's hotValue). A replica counts
once, however often its placement is told; one that was released does not count any more; a window or count of zero is
refused instead of dividing by it. A node's records are bounded each by itself, so that a busy node cannot make the
others look cold. (crane's own records are `BindingRecords` in `engine.load.crane`: one list for all nodes.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from wharfinger.domain.policy import HotWindow

Micros = int
"""Microseconds since 1970 in UTC."""

SECOND: Micros = 1_000_000

Replica = tuple[str, int]
"""Binding and ordinal."""

RECORDS_MAX = 1024
"""Of one node. A node holds some hundreds of pods at most; beyond a thousand in an hour it is hot by any policy."""

RETAIN_S = 3600
"""How long records are kept at least, whatever the windows: a policy may be applied, or arrive, after the bindings."""


@dataclass(slots=True)
class HotRecords:
    """The replicas lately placed on one node. `placed`: (time, binding, ordinal), sorted. `dropped`: records that fell
    out because there were too many."""

    placed: list[tuple[Micros, str, int]] = field(default_factory=list)
    when: dict[Replica, Micros] = field(default_factory=dict)
    dropped: int = 0

    def add(self, replica: Replica, at: Micros, records_max: int = RECORDS_MAX) -> bool:
        """Count `replica` from `at` on. False when it is counted here already."""
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
        """Drop what was placed at `at` or before."""
        self._drop(bisect_right(self.placed, at, key=_time))

    def _drop(self, n: int) -> None:
        for _, binding, ordinal in self.placed[:n]:
            del self.when[(binding, ordinal)]
        del self.placed[:n]

    def since(self, at: Micros) -> int:
        """How many were placed later than `at`."""
        return len(self.placed) - bisect_right(self.placed, at, key=_time)

    def value(self, windows: Sequence[HotWindow], at: Micros) -> tuple[int, Micros | None]:
        """The hot value at `at`, and when it will next fall by the passing of time alone (None: never)."""
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
