"""The binding cycle: reserve, permit, pre-bind, bind, post-bind, and unreserve when one of them
fails. [kube-scheduler]

What is compared with: a plane decides where pods go and binds none itself.

A plugin that reserves anything is told to let go of it, whichever step failed later: all of them,
in reverse order, also those whose turn had not come. A plugin may have the pod wait before it is
bound, until it allows it or its time is up; what waits is a value, and time is an argument.
[kube-scheduler]"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import msgspec

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Point
from wharfinger.engine.framework.cycle import Framework
from wharfinger.engine.framework.protocols import (
    Bind,
    Cycle,
    Permit,
    Plugin,
    PostBind,
    PreBind,
    Reserve,
    WaitFor,
)
from wharfinger.engine.framework.status import Status, unschedulable

US_PER_S = 10**6


@dataclass(frozen=True, slots=True)
class BindResult:
    """`plugin`: which of them bound it."""

    node: str
    plugin: str


@dataclass(frozen=True, slots=True)
class Failed:
    """`at`: the step. Everything that was reserved has been let go. A status of `Error` is a
    plugin's failure, not a refusal."""

    node: str
    at: Point
    status: Status


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A reserved pod that waits since `since_us`. `plugins`: permit plugin -> timeout in
    seconds."""

    node: str
    since_us: int
    plugins: dict[str, int]

    def allowed(self, plugin: str) -> WaitingPod:
        """One plugin less to wait for; with none left the pod is to be bound (`finish`)."""
        return replace(
            self, plugins={name: s for name, s in self.plugins.items() if name != plugin}
        )

    @property
    def ends_us(self) -> int | None:
        """When the first plugin's time is up; None: nobody is waited for."""
        return min((self.since_us + s * US_PER_S for s in self.plugins.values()), default=None)

    def expired(self, now_us: int) -> Status | None:
        """Why it is to be given up, once a plugin's time is up: of several the one whose time was
        up first."""
        ends, name, seconds = min(
            ((self.since_us + s * US_PER_S, name, s) for name, s in self.plugins.items()),
            default=(now_us + 1, "", 0),
        )
        if ends > now_us:
            return None
        refused = unschedulable(
            f"rejected due to timeout after waiting {seconds}s at plugin {name}"
        )
        return Status(refused.code, refused.reasons, name)


def place(
    framework: Framework, cycle: Cycle, pod: Pod, node: str, now_us: int
) -> BindResult | WaitingPod | Failed:
    """Reserve, ask for permission, and bind where nobody has to be waited for."""
    if (failed := reserve(framework, cycle, pod, node)) is not None:
        return failed
    match permit(framework, cycle, pod, node, now_us):
        case WaitingPod(plugins=plugins) as waiting if plugins:
            return waiting
        case Failed() as failed:
            return failed
    return finish(framework, cycle, pod, node)


def reserve(framework: Framework, cycle: Cycle, pod: Pod, node: str) -> Failed | None:
    """From here on the snapshot has the pod on the node, so that whoever counts pods counts it."""
    cycle.snapshot.add(msgspec.structs.replace(pod, node=node))
    for plugin in framework.at("reserve"):
        if (status := cast(Reserve, plugin).reserve(cycle, pod, node)) is not None:
            return _given_up(framework, cycle, pod, node, "reserve", plugin, status)
    return None


def permit(
    framework: Framework, cycle: Cycle, pod: Pod, node: str, now_us: int
) -> WaitingPod | Failed:
    """All are asked, unless one refuses. With no plugin in it nothing has to be waited for."""
    waits: dict[str, int] = {}
    for plugin in framework.at("permit"):
        match cast(Permit, plugin).permit(cycle, pod, node):
            case WaitFor(timeout_s=seconds):
                waits[plugin.name] = seconds
            case Status() as status:
                return _given_up(framework, cycle, pod, node, "permit", plugin, status)
    return WaitingPod(node, now_us, waits)


def finish(framework: Framework, cycle: Cycle, pod: Pod, node: str) -> BindResult | Failed:
    """Pre-bind, bind and post-bind of a permitted pod. The first bind plugin that does not return
    Skip binds it."""
    for plugin in framework.at("preBind"):
        if (status := cast(PreBind, plugin).pre_bind(cycle, pod, node)) is not None:
            return _given_up(framework, cycle, pod, node, "preBind", plugin, status)
    for plugin in framework.at("bind"):
        status = cast(Bind, plugin).bind(cycle, pod, node)
        if status is None:
            for told in framework.at("postBind"):
                cast(PostBind, told).post_bind(cycle, pod, node)
            return BindResult(node, plugin.name)
        if status.code != "Skip":
            return _given_up(framework, cycle, pod, node, "bind", plugin, status)
    unreserve(framework, cycle, pod, node)
    return Failed(node, "bind", Status("Error", ("no plugin binds this pod",)))


def unreserve(framework: Framework, cycle: Cycle, pod: Pod, node: str) -> None:
    """Everything that `reserve` did, undone."""
    for plugin in reversed(framework.at("reserve")):
        cast(Reserve, plugin).unreserve(cycle, pod, node)
    cycle.snapshot.remove(msgspec.structs.replace(pod, node=node))


def _given_up(
    framework: Framework,
    cycle: Cycle,
    pod: Pod,
    node: str,
    at: Point,
    plugin: Plugin,
    status: Status,
) -> Failed:
    unreserve(framework, cycle, pod, node)
    return Failed(node, at, Status(status.code, status.reasons, plugin.name))
