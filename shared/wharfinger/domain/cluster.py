"""What is known of a member cluster."""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.ids import (
    AmountText,
    ApiKind,
    Bounded,
    ClusterName,
    LabelKey,
    LabelText,
    Manifest,
    PolicyName,
    ProviderName,
    RegionName,
    ResourceName,
    Word,
    ZoneName,
)
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value

FACTS_FRESH = "FactsFresh"
"""Condition of a cluster, `False` while a watch of its collector has been broken for too long: it
answers, but what is known of its nodes and pods may be old. Without the condition they are
fresh."""


class NodeGrade(Value, frozen=True):
    """`count` nodes that each have at least `minimum` free (a grade of a Karmada resource model).
    Units: `domain.resources`."""

    minimum: dict[ResourceName, int]
    count: int


class ResourceSummary(Value, frozen=True):
    """A cluster's totals as its agent reports them, used where no nodes are reported. Units:
    `domain.resources`.

    `grades`: how the free room lies scattered over nodes, where that is reported; empty: it is not.
    """

    allocatable: dict[ResourceName, int] = {}
    allocated: dict[ResourceName, int] = {}
    allocating: dict[ResourceName, int] = {}
    grades: tuple[NodeGrade, ...] = ()


class ManagedTaint(Value, frozen=True):
    """OCM's taint. `added_us`: since when, in microseconds of the epoch; None: not said."""

    key: LabelKey
    effect: Word
    value: LabelText = ""
    added_us: int | None = None


class ManagedClusterFacts(Value, frozen=True):
    """What Open Cluster Management's placements read of a cluster beyond its labels.

    `allocatable` and `capacity` are quantities as they were written; `manifest` is the whole
    ManagedCluster as JSON text, which CEL expressions are asked about.
    """

    claims: dict[LabelKey, LabelText] = {}
    taints: tuple[ManagedTaint, ...] = ()
    allocatable: dict[ResourceName, AmountText] = {}
    capacity: dict[ResourceName, AmountText] = {}
    manifest: Manifest = ""


Places = Literal["", "none", "shadow", "pods"]
"""What the cluster stage places on the nodes of a cluster.

"": the assigned replicas, before their pods exist. "none", "shadow": nothing; the cluster's own
scheduler binds its pods (in "shadow" its choices are compared with ours). "pods": the pods that
wait for our scheduler, by their own requirements.
"""


class Cluster(Value, frozen=True):
    """A member cluster's facts: the whole state of its key on `wharfinger.clusters`.

    `api_kinds`: enabled kinds as `group/version/Kind` (`v1/Pod`, `apps/v1/Deployment`); None: not
    reported, so unknown and not filtered on. `conditions`: type -> status, by which taint policies
    go. `managed`: where it is a ManagedCluster. `lease_s`: how long its silence is normal; None: it
    promised nothing and is never called silent. `places`: what is placed on its nodes. `scheduler`:
    the `schedulerName` of the pods that are placed there in "pods".
    """

    name: Bounded[ClusterName]
    labels: dict[LabelKey, LabelText] = {}
    provider: ProviderName = ""
    region: RegionName = ""
    zones: tuple[ZoneName, ...] = ()
    taints: tuple[Taint, ...] = ()
    api_kinds: tuple[ApiKind, ...] | None = None
    lease_s: int | None = None
    deleting: bool = False
    summary: ResourceSummary | None = None
    conditions: dict[LabelKey, LabelText] = {}
    managed: ManagedClusterFacts | None = None
    places: Places = ""
    scheduler: PolicyName = ""
