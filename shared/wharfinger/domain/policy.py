"""Policies as the stages read them, whatever manifest kind they came from.

One `Policy` is the whole state of its key (`kind/namespace/name`) on `wharfinger.policies`. Exactly one of its parts
is set; `manifest` keeps the user's own object for `get policies -o yaml`.
"""

from __future__ import annotations

from wharfinger.domain.placement import Placement
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.value import Value


class ResourceSelector(Value, frozen=True):
    """Selects workloads by kind and, where given, namespace, name and labels."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    labels: LabelSelector | None = None


class Propagation(Value, frozen=True):
    """Which workloads a placement is for (Karmada's PropagationPolicy, OCM's Placement).

    `suspended`: the bindings it selects are not scheduled for now.
    """

    selectors: tuple[ResourceSelector, ...]
    placement: Placement
    priority: int = 0
    suspended: bool = False


class SyncPeriod(Value, frozen=True):
    """Ask for `metric` every `period_s` seconds (crane's syncPolicy)."""

    metric: str
    period_s: int


class LoadLimit(Value, frozen=True):
    """A node whose `metric` exceeds `limit` (hundred-thousandths of the whole) is not feasible (crane's predicate)."""

    metric: str
    limit: int


class LoadWeight(Value, frozen=True):
    """`weight` in thousandths (crane's priority)."""

    metric: str
    weight: int


class HotWindow(Value, frozen=True):
    """Every `count` bindings within `window_s` add one to a node's hot value (crane's hotValue)."""

    window_s: int
    count: int


class LoadPolicy(Value, frozen=True):
    """crane's DynamicSchedulerPolicy."""

    sync: tuple[SyncPeriod, ...] = ()
    limits: tuple[LoadLimit, ...] = ()
    weights: tuple[LoadWeight, ...] = ()
    hot: tuple[HotWindow, ...] = ()


class NodePoolPolicy(Value, frozen=True):
    """What of a Karpenter NodePool the descheduler acts on: nodes labelled `karpenter.sh/nodepool=<name>` that stay empty
    for `empty_after_s` are proposed for removal; None: never."""

    name: str
    empty_after_s: int | None = None


class Policy(Value, frozen=True):
    kind: str
    name: str
    namespace: str = ""
    propagation: Propagation | None = None
    load: LoadPolicy | None = None
    node_pool: NodePoolPolicy | None = None
    manifest: str = ""
    """The user's object as JSON text."""

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"
