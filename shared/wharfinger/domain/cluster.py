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
    StreamName,
    Word,
    ZoneName,
)
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value

MAY_READ = "MayRead"
"""Begins the types of conditions that are "False" while the API server refuses to show objects of a
kind, for want of rights: `MayReadService`. What was known of them stays."""

FACTS_FRESH = "FactsFresh"
"""Condition of a cluster, `False` while the watch of nodes or pods of its collector has been broken
for too long: it answers, but what is known of them may be old. Without the condition they are
fresh. `FactsFresh<Kind>`, such as `FactsFreshPodDisruptionBudget`, says the same of each kind."""


class NodeGrade(Value, frozen=True):
    """`count` nodes that each have at least `minimum` free (a grade of a Karmada resource model).
    Units: `domain.resources`."""

    minimum: dict[ResourceName, int]
    count: int


class ResourceSummary(Value, frozen=True):
    """A cluster's totals as its agent reports them, used where no nodes are reported. Units:
    `domain.resources`.

    `grades`: how the free room lies scattered over nodes, where that is reported; empty: it is not.
    `accounted_through`: stream -> the highest seq of its decisions whose replicas are included in
    these numbers; empty: not reported, and all replicas that were assigned before are taken to be.
    """

    allocatable: dict[ResourceName, int] = {}
    allocated: dict[ResourceName, int] = {}
    allocating: dict[ResourceName, int] = {}
    grades: tuple[NodeGrade, ...] = ()
    accounted_through: dict[StreamName, int] = {}


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
    the `schedulerName` of the pods that are placed there in "pods". `evicts`: running pods may be
    evicted there.
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
    evicts: bool = False


def stale_kinds(cluster: Cluster) -> frozenset[str]:
    """Returns the kinds whose watch has been broken for too long. A collector of a time before it
    named them says `FactsFresh` alone."""
    said = {
        name.removeprefix(FACTS_FRESH)
        for name, status in cluster.conditions.items()
        if name.startswith(FACTS_FRESH) and status == "False"
    }
    return frozenset(said - {""} or (("Node", "Pod") if said else ()))


def kinds_not_readable(cluster: Cluster) -> list[str]:
    """Returns the kinds that the collector has no right to read, in order of name."""
    return sorted(
        name.removeprefix(MAY_READ)
        for name, status in cluster.conditions.items()
        if name.startswith(MAY_READ) and status == "False"
    )
