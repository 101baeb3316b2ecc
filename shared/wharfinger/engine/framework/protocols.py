"""Defines the extension points as protocols. A plugin has a name and implements one or more of
them. It is created once per profile from its arguments, and it keeps no state between pods: what it
computes once per cycle is in `Cycle.data` under its name.

A user's own plugin is one class with a `name`, any of these methods, and a line in `registry` or an
entry point of the group `wharfinger.plugins`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from wharfinger.domain.node import Pod
from wharfinger.engine.framework.snapshot import NodeInfo, Snapshot
from wharfinger.engine.framework.status import Status

SCORE_MAX = 100


class Filters(Protocol):
    """All filters of a profile. A post-filter uses them to check a node after a change."""

    def refusal(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        """Return the refusal of the first plugin that refuses the node, in the order of the
        profile. None: all plugins accept the node."""

    def pod_added(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        """Update the counts of every plugin. The caller must call this after it has put `other` on
        the node."""

    def pod_removed(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None: ...


@dataclass(slots=True)
class Cycle:
    """Holds the state of one scheduling cycle (kube-scheduler's CycleState). `data`: plugin name ->
    what the plugin computed in pre-filter and pre-score. `skipped`: plugins whose filter (`filter`)
    or score (`score`) does not apply to this pod. `filters`: the filters of the profile, for
    post-filters."""

    snapshot: Snapshot
    data: dict[str, Any] = field(default_factory=dict)
    skipped: dict[Literal["filter", "score"], set[str]] = field(
        default_factory=lambda: {"filter": set(), "score": set()}
    )
    filters: Filters | None = None

    def copy(self) -> Cycle:
        """Return a copy of the cycle on which a caller can try out changes. The data of a plugin is
        copied if it is an object with a method `copy`, such as a list, dict or set. Other data and
        the snapshot are not copied: the cycle and the copy share them."""
        data = {
            name: value.copy() if hasattr(value, "copy") else value
            for name, value in self.data.items()
        }
        return Cycle(
            self.snapshot,
            data,
            {at: set(names) for at, names in self.skipped.items()},
            self.filters,
        )


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A pre-filter's result: only the nodes named in `nodes` can be feasible."""

    nodes: frozenset[str]


class Plugin(Protocol):
    @property
    def name(self) -> str: ...


@runtime_checkable
class PreEnqueue(Protocol):
    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Return why the pod must not enter the scheduling queue yet; None: it may."""


@runtime_checkable
class QueueSort(Protocol):
    def order(self, pod: Pod, queued_at_us: int) -> tuple[Any, ...]:
        """Return the pod's sort key in the queue. The scheduler takes the pod with the lowest key
        first."""


@runtime_checkable
class PreFilter(Protocol):
    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | Narrowed | None:
        """Prepare the filter for the pod. Return a refusal of the pod, the nodes that the search is
        restricted to, `SKIP` where the plugin's filter does not apply to this pod, or None: filter
        all nodes."""


@runtime_checkable
class PodsChange(Protocol):
    """A plugin that counts pods in its pre-filter and can update the counts when a pod is added to
    or removed from a node (kube-scheduler's PreFilterExtensions). The methods are called after the
    node was changed. `pod`: the pod that is being placed. `other`: the pod that was added or
    removed."""

    def pod_added(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None: ...
    def pod_removed(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None: ...


@runtime_checkable
class Filter(Protocol):
    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None: ...


@dataclass(frozen=True, slots=True)
class Nominated:
    """The result of a successful post-filter. `node`: the nominated node. `victims`: the pods to
    evict, the most important first."""

    node: str
    victims: tuple[Pod, ...]


@runtime_checkable
class PostFilter(Protocol):
    def post_filter(
        self, cycle: Cycle, pod: Pod, refused: Mapping[str, Status]
    ) -> Nominated | Status:
        """Try to make a node feasible, for example by preemption. `refused`: node -> why it refuses
        the pod."""


@runtime_checkable
class PreScore(Protocol):
    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        """Prepare the score for the feasible `nodes`. Return `SKIP` where the plugin's score does
        not apply to this pod."""


@runtime_checkable
class Score(Protocol):
    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int: ...


@runtime_checkable
class Normalise(Protocol):
    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        """Scale the raw scores of all feasible nodes to 0..100. `scores`: node -> raw score."""


@runtime_checkable
class Reserve(Protocol):
    def reserve(self, cycle: Cycle, pod: Pod, node: str) -> Status | None: ...
    def unreserve(self, cycle: Cycle, pod: Pod, node: str) -> None:
        """Undo `reserve`. The scheduler calls it in reverse order of the plugins when a later step
        failed. It must also be safe where `reserve` was not called."""


@dataclass(frozen=True, slots=True)
class WaitFor:
    """The pod waits at permit; it is refused after `timeout_s` seconds."""

    timeout_s: int


@runtime_checkable
class Permit(Protocol):
    def permit(self, cycle: Cycle, pod: Pod, node: str) -> Status | WaitFor | None: ...


@runtime_checkable
class PreBind(Protocol):
    def pre_bind(self, cycle: Cycle, pod: Pod, node: str) -> Status | None: ...


@runtime_checkable
class Bind(Protocol):
    def bind(self, cycle: Cycle, pod: Pod, node: str) -> Status | None:
        """Bind the pod to the node. Return `SKIP` to leave it to the next plugin."""


@runtime_checkable
class PostBind(Protocol):
    def post_bind(self, cycle: Cycle, pod: Pod, node: str) -> None: ...


ClusterEvent = Literal[
    "node/add",
    "node/allocatable",
    "node/label",
    "node/taint",
    "node/condition",
    "node/remove",
    "pod/add",
    "pod/label",
    "pod/remove",
    "pod/scale-down",
    "pod/gates",
    "volume",
    "claim",
    "storage-class",
    "csi-node",
    "resource-claim",
    "resource-slice",
    "device-class",
    "namespace",
    "group",
    "load",
    "*",
]
"""What happens in a cluster that may make a refused pod schedulable."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A queueing hint: `event` may make a pod schedulable that this plugin refused. `helps(pod,
    old, new)` returns whether this particular event does; `old` and `new` are the object of the
    event before and after it. None: every such event may help."""

    event: ClusterEvent
    helps: Callable[[Pod, Any, Any], bool] | None = None


@runtime_checkable
class Requeue(Protocol):
    def hints(self) -> tuple[Hint, ...]:
        """Return the events that may make a pod schedulable that this plugin refused. For a plugin
        without this method, any event may help."""
