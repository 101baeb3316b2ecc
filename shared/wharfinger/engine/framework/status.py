"""The result of a plugin: a code and reasons in kube-scheduler's words. None instead of a status
means success."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Code = Literal["Error", "Unschedulable", "UnschedulableAndUnresolvable", "Wait", "Skip", "Pending"]
"""Unschedulable: evicting other pods might help. UnschedulableAndUnresolvable: evicting pods cannot
help. Pending: the pod waits for something that does not depend on a node. Wait: the pod is
permitted later. Skip: the plugin does not apply to this pod."""


@dataclass(frozen=True, slots=True)
class Status:
    """The result of a plugin other than success. `plugin`: the name of the plugin that returned it;
    the cycle fills it in."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def rejects(self) -> bool:
        """Return whether the status is a refusal of this pod, and not a failure of the plugin."""
        return self.code in ("Unschedulable", "UnschedulableAndUnresolvable", "Pending")


def unschedulable(*reasons: str) -> Status:
    return Status("Unschedulable", reasons)


def unresolvable(*reasons: str) -> Status:
    return Status("UnschedulableAndUnresolvable", reasons)


SKIP = Status("Skip")
