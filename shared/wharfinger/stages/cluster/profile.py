"""The settings that reach the decisions of a cluster stream. Their canonical text is hashed with
every round.

Which plugins place pods is not a setting: scheduler configurations are policies and come as inputs.
The values here apply where none is given.
"""

from __future__ import annotations

import re
from typing import Self, get_args

import msgspec

from wharfinger.domain.scheduler import FitArgs, Profile
from wharfinger.domain.scheduler_points import default_profile
from wharfinger.domain.value import Value
from wharfinger.engine.nodes.score import Strategy

_TEXT = re.compile(
    r"cluster\(strategy=(?P<strategy>[a-z-]+)(?: window=(?P<idle>\d+)us/(?P<longest>\d+)us)?"
    r"(?: buy=(?P<buy_idle>\d+)us/(?P<buy_longest>\d+)us)?(?: work=(?P<work>\d+))?"
    r"(?: unplaced=(?P<unplaced>\d+)us)?\)"
)

_LEAST: Strategy = "least-allocated"

UNPLACED_US = 20 * 1_000_000
"""Default of `ClusterProfile.unplaced_us`."""


class Window(Value, frozen=True):
    """Defines a batch window, as Karpenter has it (1 s and 10 s there). It closes when no
    assignment has arrived for `idle_us`, and at the latest `longest_us` after the first one. A
    `longest_us` of 0 means no window. Both in microseconds."""

    idle_us: int = 0
    longest_us: int = 0

    def ends(self, first_us: int, last_us: int) -> int:
        """Returns the time at which the window closes. `first_us`, `last_us`: arrival times of the
        first and of the last assignment in it."""
        return min(last_us + self.idle_us, first_us + self.longest_us)


IMMEDIATE = Window()


class ClusterProfile(Value, frozen=True):
    """Holds the settings of a cluster stream that affect its decisions.

    `strategy`: `least-allocated` or `most-allocated`; used where no scheduler configuration
    applies. `window`: replicas that arrive within this batch window are placed together. `buying`:
    nodes are requested together for the replicas that arrive within this batch window and fit on no
    node; placing does not wait for it. `work`: maximum number of replicas placed, released or
    refused in one round, after which the next round is due at once; 0: no bound. `unplaced_us`:
    where waiting pods are placed, the replica of a pod that has fitted nowhere for so long is given
    back to the fleet; 0: at once. Recorded profiles without a setting have its default.
    """

    strategy: Strategy = _LEAST
    window: Window = IMMEDIATE
    buying: Window = IMMEDIATE
    work: int = 0
    unplaced_us: int = UNPLACED_US

    @property
    def text(self) -> str:
        windows = "".join(
            f" {name}={window.idle_us}us/{window.longest_us}us"
            for name, window in (("window", self.window), ("buy", self.buying))
            if window != IMMEDIATE
        )
        work = f" work={self.work}" if self.work else ""
        unplaced = "" if self.unplaced_us == UNPLACED_US else f" unplaced={self.unplaced_us}us"
        return f"cluster(strategy={self.strategy}{windows}{work}{unplaced})"

    @classmethod
    def of(cls, text: str) -> Self:
        """Converts the text of a profile into the profile. Example:
        `cluster(strategy=least-allocated work=500)`. A setting that the text does not have gets its
        default. Returns the default profile if the text cannot be parsed, or if it names an unknown
        strategy."""
        found = _TEXT.fullmatch(text)
        strategy = next(
            (s for s in get_args(Strategy) if found is not None and s == found["strategy"]), None
        )
        if found is None or strategy is None:
            return cls()
        window, buying = (
            Window(int(idle), int(longest)) if idle else IMMEDIATE
            for idle, longest in (
                found.group("idle", "longest"),
                found.group("buy_idle", "buy_longest"),
            )
        )
        after = found["unplaced"]
        return cls(
            strategy,
            window,
            buying,
            int(found["work"] or 0),
            UNPLACED_US if after is None else int(after),
        )

    @property
    def scheduler(self) -> Profile:
        """Returns the scheduler profile for pods that no applied scheduler configuration covers."""
        profile = default_profile()
        if self.strategy == _LEAST:
            return profile
        arguments = msgspec.structs.replace(
            profile.arguments, fit=FitArgs(strategy="MostAllocated")
        )
        return msgspec.structs.replace(profile, arguments=arguments)
