"""What a plugin is at each extension point. A plugin has a name and one or more of these; it is made once a profile, from its
arguments, and keeps nothing between pods: what a cycle computes once lies in `Cycle.data` under the plugin's name.

A user's own plugin is one class with a `name`, any of these methods, and one line in `registry` or an entry point of the group
`wharfinger.plugins`.
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
    """All filters of a profile, as a post-filter tries its ideas on them."""

    def refusal(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        """That of the first plugin that refuses the node, in order of the profile; None: it passes."""

    def pod_added(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        """To be called after `other` was put on the node, so that every plugin's counts follow."""

    def pod_removed(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None: ...


@dataclass(slots=True)
class Cycle:
    """The shared metadata of one cycle: `data` holds what each plugin computed in its pre-filter and pre-score, by plugin name.
    `skipped`: plugins whose filter (`filter`) or score (`score`) has nothing to say about this pod. `filters`: those of the
    profile."""

    snapshot: Snapshot
    data: dict[str, Any] = field(default_factory=dict)
    skipped: dict[Literal["filter", "score"], set[str]] = field(
        default_factory=lambda: {"filter": set(), "score": set()}
    )
    filters: Filters | None = None

    def copy(self) -> Cycle:
        """To try something on: what the plugins computed is copied where it can be (`copy` of a list, dict, set, or their own),
        and shared where it cannot. The snapshot is the same."""
        data = {name: value.copy() if hasattr(value, "copy") else value for name, value in self.data.items()}
        return Cycle(self.snapshot, data, {at: set(names) for at, names in self.skipped.items()}, self.filters)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Only these nodes need be looked at."""

    nodes: frozenset[str]


class Plugin(Protocol):
    @property
    def name(self) -> str: ...


@runtime_checkable
class PreEnqueue(Protocol):
    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Whether the pod may be tried at all."""


@runtime_checkable
class QueueSort(Protocol):
    def order(self, pod: Pod, queued_at_us: int) -> tuple[Any, ...]:
        """What pods are sorted by; the lowest goes first."""


@runtime_checkable
class PreFilter(Protocol):
    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | Narrowed | None:
        """`SKIP`: the filter need not be asked."""


@runtime_checkable
class PodsChange(Protocol):
    """A plugin whose pre-filter counted pods: how the count follows when one is added to or taken from a node of the snapshot.
    Called after the node was changed."""

    def pod_added(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None: ...
    def pod_removed(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None: ...


@runtime_checkable
class Filter(Protocol):
    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None: ...


@dataclass(frozen=True, slots=True)
class Nominated:
    """What a post-filter found: the node, and who has to go from there, the most important first."""

    node: str
    victims: tuple[Pod, ...]


@runtime_checkable
class PostFilter(Protocol):
    def post_filter(self, cycle: Cycle, pod: Pod, refused: Mapping[str, Status]) -> Nominated | Status:
        """`refused`: node -> why it was refused."""


@runtime_checkable
class PreScore(Protocol):
    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        """`SKIP`: the score need not be asked."""


@runtime_checkable
class Score(Protocol):
    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int: ...


@runtime_checkable
class Normalise(Protocol):
    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        """Raw scores of all feasible nodes to 0..100."""


@runtime_checkable
class Reserve(Protocol):
    def reserve(self, cycle: Cycle, pod: Pod, node: str) -> Status | None: ...
    def unreserve(self, cycle: Cycle, pod: Pod, node: str) -> None:
        """Called in reverse order when anything after the reservation failed; must be safe without one."""


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Permitted later, or refused after `timeout_s`."""

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
        """`SKIP`: the next plugin binds."""


@runtime_checkable
class PostBind(Protocol):
    def post_bind(self, cycle: Cycle, pod: Pod, node: str) -> None: ...


ClusterEvent = Literal[
    "node/add", "node/allocatable", "node/label", "node/taint", "node/condition", "node/remove", "pod/add", "pod/label",
    "pod/remove", "pod/scale-down", "pod/gates", "volume", "claim", "storage-class", "csi-node", "resource-claim",
    "resource-slice", "device-class", "namespace", "group", "load", "*",
]  # fmt: skip
"""What happens in a cluster that may make a refused pod schedulable."""


@dataclass(frozen=True, slots=True)
class Hint:
    """After `event` a pod that this plugin refused may be tried again; `helps`, where given, looks whether it would
    (old, new: what the event is about)."""

    event: ClusterEvent
    helps: Callable[[Pod, Any, Any], bool] | None = None


@runtime_checkable
class Requeue(Protocol):
    def hints(self) -> tuple[Hint, ...]:
        """Without this method any event may help."""
