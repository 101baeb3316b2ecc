"""Memory between two consolidation or descheduling passes over a cluster: commands found, commands
proposed, and which workloads and pools are left alone. It prevents churn.

It is private to this process. After a restart a command may be proposed earlier than otherwise,
under the same id; the stage that owns the cluster validates it anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.descheduling import DeschedulingPolicy
from wharfinger.engine.descheduling.run import Passed, StrategyFailure, passed
from wharfinger.engine.descheduling.steadiness import Memory
from wharfinger.engine.descheduling.view import ClusterView
from wharfinger.engine.disruption.cluster_snapshot import Command, DisruptionVerdict
from wharfinger.kernel.decider import Micros

PAUSE_MAX: Micros = 3600 * 1_000_000
"""The longest pause between two attempts of what is refused or rolled back repeatedly: one hour."""

CommandKey = tuple[str, tuple[str, ...], str]
"""Method, nodes, and a digest of the pods on these nodes."""


@dataclass(frozen=True, slots=True)
class CommandSighting:
    """Holds a command as the last pass found it. `since`: time of the first pass of the series
    without a gap that found it. `contents`: node -> digest of its contents."""

    command: Command
    contents: Mapping[str, str]
    since: Micros


@dataclass(frozen=True, slots=True)
class CommandAttempts:
    """Counts attempts in a row: `times`, and the time of the last one."""

    times: int
    last: Micros

    def again_at(self, pause: Micros) -> Micros:
        """Returns the time of the next allowed attempt (exponential back-off): `pause` after the
        last attempt, doubled with every attempt in a row, up to `PAUSE_MAX` or `pause` if that is
        longer."""
        return self.last + min(max(PAUSE_MAX, pause), pause << min(self.times - 1, 32))


@dataclass(slots=True)
class ClusterWatch:
    """Remembers the consolidation passes over one cluster.

    `looked`: time of the last pass, -1: never. `under_way`: a pass runs and its result has not
    arrived. `held`: why the last pass was skipped; empty: it was not. `found`: commands that the
    last pass found. `tried`: how often and when each command was proposed. `given_up`: pool ->
    consecutive roll-backs of commands on its nodes. `moved`: binding -> how often its replicas
    changed nodes recently; moves within one cool-down count once. `left`: binding -> ordinal -> the
    node from which it was released, and when. `verdicts`: results of the last pass for every node
    of every pool.
    """

    looked: Micros = -1
    under_way: bool = False
    held: str = ""
    found: dict[CommandKey, CommandSighting] = field(default_factory=dict)
    tried: dict[CommandKey, CommandAttempts] = field(default_factory=dict)
    given_up: dict[str, CommandAttempts] = field(default_factory=dict)
    moved: dict[str, CommandAttempts] = field(default_factory=dict)
    left: dict[str, dict[int, tuple[str, Micros]]] = field(default_factory=dict)
    verdicts: tuple[DisruptionVerdict, ...] = ()

    # --- what moved

    def has_moved(self, binding: str, cool_down: Micros, at: Micros) -> None:
        """Records that a replica of the binding moved to another node at `at`. The number of
        counted moves sets how long consolidation excludes the nodes of the binding: `cool_down`,
        doubled with every counted move after the first. Example: 300 s, third counted move: 1,200
        s.

        A move within `cool_down` of the last move updates only the time and is not counted. If the
        last move is at least twice the exclusion time ago, the count starts again at 1.
        """
        before = self.moved.get(binding)
        if before is None or _forgotten(before, cool_down, at):
            self.moved[binding] = CommandAttempts(1, at)
        elif at < before.last + cool_down:
            self.moved[binding] = CommandAttempts(before.times, at)
        else:
            self.moved[binding] = CommandAttempts(before.times + 1, at)

    def resting(self, cool_down: Micros, at: Micros) -> Iterator[tuple[str, CommandAttempts]]:
        """Yields the bindings whose pause after a move has not ended, in order of name. Deletes the
        entries of bindings that have not moved for twice their pause."""
        for binding in [b for b, moved in self.moved.items() if _forgotten(moved, cool_down, at)]:
            del self.moved[binding]
        for binding, moved in sorted(self.moved.items()):
            if at < moved.again_at(cool_down):
                yield binding, moved

    # --- what was tried

    def rolled_back(self, pool: str, at: Micros) -> None:
        before = self.given_up.get(pool)
        self.given_up[pool] = CommandAttempts(1 if before is None else before.times + 1, at)

    def proposed(self, key: CommandKey, at: Micros) -> int:
        """Counts a proposal of the command and returns how often it was proposed before."""
        before = self.tried.get(key)
        times = 0 if before is None else before.times
        self.tried[key] = CommandAttempts(times + 1, at)
        return times

    def forget_tries(self, at: Micros) -> None:
        """Deletes the counts of commands that the last pass did not find and that were not proposed
        for twice the longest pause."""
        for key in [
            k for k, t in self.tried.items() if k not in self.found and t.last + 2 * PAUSE_MAX < at
        ]:
            del self.tried[key]


def _forgotten(moved: CommandAttempts, cool_down: Micros, at: Micros) -> bool:
    """Returns whether twice the pause has passed since the last move, so that the record can be
    deleted."""
    return at >= 2 * moved.again_at(cool_down) - moved.last


@dataclass(slots=True)
class Passes:
    """Remembers the passes of one descheduling policy over one cluster.

    `last`: time of the last pass, -1: never. `held`: why it was skipped; empty: it was not.
    `going`: a pass runs, and only it may write to `memory`. `untold`: moves (binding, ordinal,
    source, target, time) that arrived while a pass ran; `finish` adds them to `memory`. `failures`:
    strategies that failed in the last pass. `proposed`: digests of earlier proposals, by which a
    repetition is recognised.
    """

    last: Micros = -1
    held: str = ""
    going: bool = False
    memory: Memory = field(default_factory=Memory)
    untold: list[tuple[str, int, str, str, Micros]] = field(default_factory=list)
    failures: tuple[StrategyFailure, ...] = ()
    proposed: set[str] = field(default_factory=set)

    def moved(self, binding: str, ordinal: int, source: str, target: str, at: Micros) -> None:
        if self.going:
            self.untold.append((binding, ordinal, source, target, at))
        else:
            self.memory.moved(binding, ordinal, source, target, at)

    def finish(self) -> None:
        self.going = False
        for move in self.untold:
            self.memory.moved(*move)
        self.untold.clear()


@dataclass(frozen=True, slots=True)
class DuePass:
    """Holds one pass of a policy over a cluster that is due, with the snapshot of the cluster."""

    cluster: str
    key: str
    policy: DeschedulingPolicy
    passes: Passes
    view: ClusterView

    def run(self) -> Passed:
        """Runs the strategies on the snapshot and returns the pods that they name. It writes only
        to `passes.memory`, so it may run in another thread while the observer folds events."""
        found = passed(self.policy, self.view, self.passes.memory)
        self.passes.memory.tidy(self.view.at)
        return found
