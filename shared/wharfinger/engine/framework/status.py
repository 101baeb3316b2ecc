"""How a plugin says no: a code, and reasons in the words that users of Kubernetes know. No status at all is success."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Code = Literal["Error", "Unschedulable", "UnschedulableAndUnresolvable", "Wait", "Skip", "Pending"]
"""Unschedulable: evicting other pods might help; UnschedulableAndUnresolvable: it cannot. Pending: the pod waits for something that
is no node's fault. Wait: permitted later. Skip: the plugin has nothing to say about this pod."""


@dataclass(frozen=True, slots=True)
class Status:
    """`plugin`: who said so; filled in by the cycle."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def rejects(self) -> bool:
        """A refusal of this pod, not a failure of the plugin."""
        return self.code in ("Unschedulable", "UnschedulableAndUnresolvable", "Pending")


def unschedulable(*reasons: str) -> Status:
    return Status("Unschedulable", reasons)


def unresolvable(*reasons: str) -> Status:
    return Status("UnschedulableAndUnresolvable", reasons)


SKIP = Status("Skip")
