"""What earlier passes found and did, so that later ones do not follow every breath of the load.

Measured load goes up and down for no reason that lasts. Three rules keep that from moving pods to and fro, and none
of them knows anything of the load's shape:

- *steady*: a node gives nothing away before it was found too full by so many passes (or measurements) in a row. -
*resting*: after a pod of a workload was moved, none of it moves again for a while: the first time for the policy's
cool-down, and twice as long after each further bout of moves, up to `REST_MAX_S`. What keeps being moved is not
helped by it. - *return*: no pod goes back to a node that its workload was taken off, for so long that whatever comes
round daily or weekly has come round (two weeks, unless the policy says otherwise).

Whoever runs passes keeps one `Memory` for each cluster and policy, tells it of moves that happened, and may begin
with an empty one: it then names what it would have left alone, and the stage that owns the cluster, which does not
forget, holds it back."""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.domain.descheduling import DeschedulingPolicy

SECOND_US = 1_000_000

REST_MAX_S = 7 * 86_400
"""A workload is never left alone for longer than a week."""

Key = tuple[str, str, str, str]
"""Profile, strategy, what was measured (empty: nothing), node."""


@dataclass(slots=True)
class Moves:
    """Of one workload. `bouts`: how often it was moved, moves within one cool-down taken as one. `left`: node -> when
    a pod of it was last taken off that."""

    bouts: int = 0
    last_us: int = 0
    left: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Memory:
    """`found`: node -> in how many passes in a row a strategy found it too full. `seen`: when what was looked at last
    was measured, and how many measurements in a row were too high; `hot`: those that have been for long enough and
    are not low again yet. `relieved`: when a node was last relieved because of what was measured."""

    steady: int = 1
    cooldown_s: int = 0
    return_s: int = 0
    moves: dict[str, Moves] = field(default_factory=dict)
    found: dict[Key, int] = field(default_factory=dict)
    seen: dict[Key, tuple[int, int]] = field(default_factory=dict)
    hot: set[Key] = field(default_factory=set)
    relieved: dict[str, int] = field(default_factory=dict)

    def follow(self, policy: DeschedulingPolicy) -> None:
        """The numbers of the policy as it is now."""
        self.steady, self.cooldown_s, self.return_s = policy.steady, policy.cooldown_s, policy.return_s

    # Moves.

    def moved(self, binding: str, ordinal: int, source: str, target: str, at: int) -> None:
        """A replica was moved, by whoever and why ever."""
        self.took(f"Binding/{binding}", source, at)

    def took(self, workload: str, node: str, at: int) -> None:
        """A pod of the workload was taken off the node, or is meant to be."""
        moves = self.moves.setdefault(workload, Moves())
        if not moves.bouts or at >= moves.last_us + self.cooldown_s * SECOND_US:
            moves.bouts += 1
        moves.last_us = max(at, moves.last_us)
        moves.left.pop(node, None)  # in the order in which they were left last
        moves.left[node] = at

    def resting(self, workload: str, at: int) -> bool:
        """Pods that one pass takes together do not keep each other waiting."""
        moves = self.moves.get(workload)
        return moves is not None and moves.last_us < at < moves.last_us + self._rest_us(moves.bouts)

    def _rest_us(self, bouts: int) -> int:
        return min(REST_MAX_S, self.cooldown_s << min(max(0, bouts - 1), 20)) * SECOND_US

    def left_lately(self, workload: str, at: int) -> tuple[str, ...]:
        """Nodes that nothing of this workload goes back to, the latest last."""
        moves = self.moves.get(workload)
        if moves is None:
            return ()
        return tuple(node for node, left in moves.left.items() if at < left + self.return_s * SECOND_US)

    def tidy(self, at: int) -> None:
        """Forget workloads that no rule says anything about any more."""
        kept = max(REST_MAX_S, self.return_s) * SECOND_US
        for name in [name for name, moves in self.moves.items() if moves.last_us + kept <= at]:
            del self.moves[name]

    # Findings.

    def steadily(self, profile: str, strategy: str, nodes: list[str]) -> list[str]:
        """Of the nodes that this pass found too full those of which this was so for long enough."""
        before = {key: n for key, n in self.found.items() if key[:2] == (profile, strategy)}
        for key in before:
            del self.found[key]
        for node in nodes:
            key = (profile, strategy, "", node)
            self.found[key] = before.get(key, 0) + 1
        return [node for node in nodes if self.found[profile, strategy, "", node] >= self.steady]

    def sample(self, key: Key, measured_us: int, too_high: bool, low: bool, samples: int) -> bool:
        """One measurement of a node; the same one again changes nothing. True while the node is to be relieved: from
        the last of `samples` in a row that were too high, until one is low."""
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
        """Nothing is known of it now: it starts again from nothing."""
        self.seen.pop(key, None)
        self.hot.discard(key)
