"""Damping: what earlier passes found and did, so that pods do not follow short fluctuations of
measured load.

Three rules prevent oscillation. None depends on the pattern of the load:

- *steady*: a node is relieved only after so many passes (or measurements) in a row found it
  overutilised.
- *resting*: after a pod of a workload was moved, no pod of it moves for a cool-down. The pause
  doubles with each further series of moves, up to `REST_MAX_S` (exponential back-off).
- *return*: no pod goes back to a node that its workload was moved off for two weeks, unless the
  policy sets another time. That covers daily and weekly cycles.

The caller keeps one `Memory` per cluster and policy and records the moves that happened. It may
start with an empty one after a restart: the pass then names pods that it would have left alone, and
the cluster stage, whose memory is durable, refuses them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.domain.descheduling import DeschedulingPolicy
from wharfinger.domain.time import SECOND

REST_MAX_S = 7 * 86_400
"""Longest cool-down of a workload, in seconds: one week."""

Key = tuple[str, str, str, str]
"""Profile, strategy, metric (empty: none), node."""


@dataclass(slots=True)
class MoveHistory:
    """Records the moves of one workload. `bouts`: number of series of moves; moves within one
    cool-down are one series. `last_us`: time of the last move. `left`: node -> time at which a pod
    of the workload last left it, in microseconds."""

    bouts: int = 0
    last_us: int = 0
    left: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Memory:
    """Remembers what earlier passes found and did in one cluster under one policy. It damps the
    next pass: see `steadily`, `resting`, `left_lately` and `sample`.

    `steady`: passes in a row before a node is relieved. `cooldown_s`: seconds for which a workload
    rests after a move; `return_s`: seconds for which it does not return to a node that it left.
    `moves`: workload -> its moves. A key is (profile, strategy, metric, node). `found`: number of
    passes in a row that found the node overutilised. `seen`: (time of the last measurement in
    microseconds, number of measurements in a row that were too high). `hot`: nodes to be relieved:
    too high often enough in a row, and not low since. `relieved`: node -> time when it was last
    relieved because of measured load, in microseconds.
    """

    steady: int = 1
    cooldown_s: int = 0
    return_s: int = 0
    moves: dict[str, MoveHistory] = field(default_factory=dict)
    found: dict[Key, int] = field(default_factory=dict)
    seen: dict[Key, tuple[int, int]] = field(default_factory=dict)
    hot: set[Key] = field(default_factory=set)
    relieved: dict[str, int] = field(default_factory=dict)

    def follow(self, policy: DeschedulingPolicy) -> None:
        """Takes over the limits of the current policy."""
        self.steady, self.cooldown_s, self.return_s = (
            policy.steady,
            policy.cooldown_s,
            policy.return_s,
        )

    # Moves.

    def moved(self, binding: str, ordinal: int, source: str, target: str, at: int) -> None:
        """Records that a replica of a binding was moved off `source`, for any reason."""
        self.took(f"Binding/{binding}", source, at)

    def took(self, workload: str, node: str, at: int) -> None:
        """Records that a pod of the workload was evicted from the node, or named for it. A move
        after the cool-down starts a new series of moves."""
        moves = self.moves.setdefault(workload, MoveHistory())
        if not moves.bouts or at >= moves.last_us + self.cooldown_s * SECOND:
            moves.bouts += 1
        moves.last_us = max(at, moves.last_us)
        moves.left.pop(node, None)  # in the order in which they were left last
        moves.left[node] = at

    def resting(self, workload: str, at: int) -> bool:
        """Returns whether the workload is in its cool-down, which doubles with each series of
        moves. Moves at the time `at` itself do not count, so pods of one pass do not block each
        other."""
        moves = self.moves.get(workload)
        return moves is not None and moves.last_us < at < moves.last_us + self._rest_us(moves.bouts)

    def _rest_us(self, bouts: int) -> int:
        return min(REST_MAX_S, self.cooldown_s << min(max(0, bouts - 1), 20)) * SECOND

    def left_lately(self, workload: str, at: int) -> tuple[str, ...]:
        """Returns the nodes to which no pod of the workload may return yet, latest left last."""
        moves = self.moves.get(workload)
        if moves is None:
            return ()
        return tuple(
            node for node, left in moves.left.items() if at < left + self.return_s * SECOND
        )

    def tidy(self, at: int) -> None:
        """Drops workloads whose last move no rule considers any more."""
        kept = max(REST_MAX_S, self.return_s) * SECOND
        for name in [name for name, moves in self.moves.items() if moves.last_us + kept <= at]:
            del self.moves[name]

    # Findings.

    def steadily(self, profile: str, strategy: str, nodes: list[str]) -> list[str]:
        """Records the nodes that this pass found overutilised. Returns those found in at least
        `steady` passes in a row, this one included."""
        before = {key: n for key, n in self.found.items() if key[:2] == (profile, strategy)}
        for key in before:
            del self.found[key]
        for node in nodes:
            key = (profile, strategy, "", node)
            self.found[key] = before.get(key, 0) + 1
        return [node for node in nodes if self.found[profile, strategy, "", node] >= self.steady]

    def sample(self, key: Key, measured_us: int, too_high: bool, low: bool, samples: int) -> bool:
        """Records one measurement of a node, and returns whether the node has to be relieved of
        pods (hysteresis).

        The answer becomes true after `samples` measurements in a row that were `too_high`. It stays
        true until one measurement is `low`.

        `key`: profile, strategy, metric and node.
        `measured_us`: time of the measurement in microseconds. A measurement that is not newer than
          the last recorded one changes nothing.
        `too_high`: the load is above the high watermark. `low`: the load is at or below the low
          watermark.

        Example with `samples` 3: the measurements too high, too high, too high, neither, low give
        false, false, true, true, false.
        """
        last, row = self.seen.get(key, (-1, 0))
        if measured_us > last:
            row = row + 1 if too_high else 0
            self.seen[key] = (measured_us, row)
            if row >= samples:
                self.hot.add(key)
            elif low:
                self.hot.discard(key)
        return key in self.hot

    def forget(self, key: Key) -> None:
        """Drops the measurements of a key, after its load became unknown. Counting starts again
        from 0."""
        self.seen.pop(key, None)
        self.hot.discard(key)
