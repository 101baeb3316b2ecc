"""The user's policy: which clusters may be chosen and how replicas are divided over them.

Field for field what Karmada's `spec.placement` says, in our spelling.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.domain.taints import Toleration
from wharfinger.domain.value import Value


class ClusterAffinity(Value, frozen=True):
    """Clusters by name, exclusion, label and field (`provider`, `region`, `zone`). Everything unset allows all.

    `name` is the group's name where a placement lists several affinities, else empty.
    """

    name: str = ""
    cluster_names: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    labels: LabelSelector | None = None
    fields: tuple[Requirement, ...] = ()


class StaticWeight(Value, frozen=True):
    """A weight for the clusters that `target` matches."""

    target: ClusterAffinity
    weight: int


class SpreadConstraint(Value, frozen=True):
    """`field` is cluster, region, zone or provider; or `label` names a label. 0 for `max_groups` is unset."""

    field: str = ""
    label: str = ""
    min_groups: int = 0
    max_groups: int = 0


class ReplicaScheduling(Value, frozen=True):
    """How replicas go to the chosen clusters.

    Duplicated: each gets all. Divided: Aggregated packs into as few as hold them; Weighted divides by `static` weights,
    or, with `dynamic`, by available replicas; Weighted with neither gives all clusters the weight 1.
    """

    type: Literal["Duplicated", "Divided"] = "Duplicated"
    preference: Literal["Aggregated", "Weighted"] = "Weighted"
    static: tuple[StaticWeight, ...] = ()
    dynamic: bool = False


class Placement(Value, frozen=True):
    """`affinities` are alternatives in order, the first that schedules wins; empty: any cluster."""

    affinities: tuple[ClusterAffinity, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    replicas: ReplicaScheduling = ReplicaScheduling()
