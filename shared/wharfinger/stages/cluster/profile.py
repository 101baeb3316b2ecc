"""The settings that reach the decisions of a cluster stream. Their text is hashed with every round.

Which plugins place pods is no setting: scheduler configurations are policies, and come as inputs. What stands here is what
holds where none says otherwise.
"""

from __future__ import annotations

import re
from typing import Self, get_args

import msgspec

from wharfinger.domain.scheduler import FitArgs, Profile
from wharfinger.domain.scheduler_points import default_profile
from wharfinger.domain.value import Value
from wharfinger.engine.nodes.score import Strategy

_TEXT = re.compile(r"cluster\(strategy=(?P<strategy>[a-z-]+)(?: window=(?P<idle>\d+)us/(?P<longest>\d+)us)?\)")

_LEAST: Strategy = "least-allocated"


class Window(Value, frozen=True):
    """How long what is to be placed waits for company: until nothing more has come for `idle_us`, and for `longest_us` at most.
    With a `longest_us` of 0 it does not wait. (Karpenter's batch window, 1 s and 10 s there.)"""

    idle_us: int = 0
    longest_us: int = 0

    def ends(self, first_us: int, last_us: int) -> int:
        """When a window closes in which something came first and last."""
        return min(last_us + self.idle_us, first_us + self.longest_us)


IMMEDIATE = Window()


class ClusterProfile(Value, frozen=True):
    """`strategy`: spread replicas over emptier nodes (`least-allocated`) or fill nodes up (`most-allocated`), where no scheduler
    configuration says how. `window`: in which replicas are gathered and placed together."""

    strategy: Strategy = _LEAST
    window: Window = IMMEDIATE

    @property
    def text(self) -> str:
        if self.window == IMMEDIATE:
            return f"cluster(strategy={self.strategy})"
        return f"cluster(strategy={self.strategy} window={self.window.idle_us}us/{self.window.longest_us}us)"

    @classmethod
    def of(cls, text: str) -> Self:
        """The profile with this text; the default one when there is none."""
        found = _TEXT.fullmatch(text)
        strategy = next((s for s in get_args(Strategy) if found is not None and s == found["strategy"]), None)
        if found is None or strategy is None:
            return cls()
        return cls(strategy, Window(int(found["idle"]), int(found["longest"])) if found["idle"] else IMMEDIATE)

    @property
    def scheduler(self) -> Profile:
        """How pods are placed that no configuration speaks of."""
        profile = default_profile()
        if self.strategy == _LEAST:
            return profile
        arguments = msgspec.structs.replace(profile.arguments, fit=FitArgs(strategy="MostAllocated"))
        return msgspec.structs.replace(profile, arguments=arguments)
