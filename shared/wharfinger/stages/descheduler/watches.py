"""What is remembered of a cluster between two looks at it as a whole: what was found, what was tried, what is left alone.

All of it is memory against churn. It is this process's own: after a restart a command may be proposed that would have waited
a little longer, under the id it had before, and the stage that owns the cluster checks it against the present as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.descheduling import DeschedulingPolicy
from wharfinger.engine.descheduling.run import Failure, Passed, passed
from wharfinger.engine.descheduling.steadiness import Memory
from wharfinger.engine.descheduling.view import ClusterView
from wharfinger.engine.disruption.scene import Command, Verdict
from wharfinger.kernel.decider import Micros

PAUSE_MAX: Micros = 3600 * 1_000_000
"""What is refused again and again, or given up again and again, is tried once an hour in the end."""

CommandKey = tuple[str, tuple[str, ...], str]
"""Method, nodes, and a digest of what they hold: who is on them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A command as the last look found it. `since`: the first look in a row that did. `contents`: node -> digest of what it
    holds."""

    command: Command
    contents: Mapping[str, str]
    since: Micros


@dataclass(frozen=True, slots=True)
class Tried:
    """`times` in a row, the last at `last`."""

    times: int
    last: Micros

    def again_at(self, pause: Micros) -> Micros:
        """The pause doubles with every time."""
        return self.last + min(max(PAUSE_MAX, pause), pause << min(self.times - 1, 32))


@dataclass(slots=True)
class Watch:
    """`looked`: when the cluster was looked at last, -1: never; `under_way`: what that finds is not told yet. `held`:
    why it was not, or why nothing follows from it. `found`: the commands it could do with; `tried`: when they were
    proposed. `given_up`: pool -> commands on its nodes that were rolled back in a row. `moved`: binding -> how often
    replicas of it have changed their node lately, moves within one cool-down taken as one; `left`: binding -> ordinal
    -> the node that it stood on before it was released, and when that was. `verdicts`: on every node of every pool,
    of the last look."""

    looked: Micros = -1
    under_way: bool = False
    held: str = ""
    found: dict[CommandKey, Finding] = field(default_factory=dict)
    tried: dict[CommandKey, Tried] = field(default_factory=dict)
    given_up: dict[str, Tried] = field(default_factory=dict)
    moved: dict[str, Tried] = field(default_factory=dict)
    left: dict[str, dict[int, tuple[str, Micros]]] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()

    # --- what moved

    def has_moved(self, binding: str, cool_down: Micros, at: Micros) -> None:
        """A workload that is moved again soon after it was allowed to is left alone for twice as long."""
        before = self.moved.get(binding)
        if before is None or _forgotten(before, cool_down, at):
            self.moved[binding] = Tried(1, at)
        elif at < before.last + cool_down:
            self.moved[binding] = Tried(before.times, at)
        else:
            self.moved[binding] = Tried(before.times + 1, at)

    def resting(self, cool_down: Micros, at: Micros) -> Iterator[tuple[str, Tried]]:
        """Bindings that are left alone, in order of name. What has not moved for long is forgotten."""
        for binding in [b for b, moved in self.moved.items() if _forgotten(moved, cool_down, at)]:
            del self.moved[binding]
        for binding, moved in sorted(self.moved.items()):
            if at < moved.again_at(cool_down):
                yield binding, moved

    # --- what was tried

    def rolled_back(self, pool: str, at: Micros) -> None:
        before = self.given_up.get(pool)
        self.given_up[pool] = Tried(1 if before is None else before.times + 1, at)

    def proposed(self, key: CommandKey, at: Micros) -> int:
        """Notes it, and says how often it was proposed before."""
        before = self.tried.get(key)
        times = 0 if before is None else before.times
        self.tried[key] = Tried(times + 1, at)
        return times

    def forget_tries(self, at: Micros) -> None:
        """Of what is found no more, and was not tried again for as long as the longest pause."""
        for key in [k for k, t in self.tried.items() if k not in self.found and t.last + 2 * PAUSE_MAX < at]:
            del self.tried[key]


def _forgotten(moved: Tried, cool_down: Micros, at: Micros) -> bool:
    """As long again as it was left alone it might have been moved, and was not."""
    return at >= 2 * moved.again_at(cool_down) - moved.last


@dataclass(slots=True)
class Passes:
    """Of a descheduling policy over a cluster. `last`: when the last was, -1: never; `held`: why nothing was looked
    at then; `going`: one is under way. `memory` is its own to write as long as it is: moves are told to it afterwards
    (`untold`: binding, ordinal, source, target, time). `failures`: what could not be judged. `proposed`: digests of
    what was, by which a repetition is told."""

    last: Micros = -1
    held: str = ""
    going: bool = False
    memory: Memory = field(default_factory=Memory)
    untold: list[tuple[str, int, str, str, Micros]] = field(default_factory=list)
    failures: tuple[Failure, ...] = ()
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
    """A policy that is to go over a cluster, as that is at one moment."""

    cluster: str
    key: str
    policy: DeschedulingPolicy
    passes: Passes
    view: ClusterView

    def run(self) -> Passed:
        """Changes what passes remember, and nothing else: it may be done beside everything."""
        found = passed(self.policy, self.view, self.passes.memory)
        self.passes.memory.tidy(self.view.at)
        return found
