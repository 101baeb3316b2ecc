"""The user's policy: which clusters may be chosen and how replicas are divided over them.

Field for field what Karmada's `spec.placement` says, in our spelling; what goes beyond it is said
by annotations of the policy and is off where nothing is said.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.ids import AffinityName, ClusterName, LabelKey, SpreadField
from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.domain.taints import Toleration
from wharfinger.domain.value import Value


class ClusterAffinity(Value, frozen=True):
    """Clusters by name, exclusion, label and field (`provider`, `region`, `zone`). Everything unset
    allows all.

    `name` is the group's name where a placement lists several affinities, else empty. `overflow`:
    clusters that are used, group after group, for what the affinity's own clusters do not hold.
    """

    name: AffinityName = ""
    cluster_names: tuple[ClusterName, ...] = ()
    exclude: tuple[ClusterName, ...] = ()
    labels: LabelSelector | None = None
    fields: tuple[Requirement, ...] = ()
    overflow: tuple[ClusterAffinity, ...] = ()


class StaticWeight(Value, frozen=True):
    """A weight for the clusters that `target` matches."""

    target: ClusterAffinity
    weight: int


class SpreadConstraint(Value, frozen=True):
    """`field` is cluster, region, zone or provider; or `label` names a label. 0 for `max_groups` is
    unset."""

    field: SpreadField = ""
    label: LabelKey = ""
    min_groups: int = 0
    max_groups: int = 0


class ReplicaLimit(Value, frozen=True):
    """A cluster that is used gets at least `least` replicas and at most `most` (None: any number).
    `cluster` `*`: every cluster that has no limit of its own."""

    cluster: str
    least: int = 0
    most: int | None = None


class ReplicaScheduling(Value, frozen=True):
    """How replicas go to the chosen clusters.

    Duplicated: each gets all. Divided: Aggregated packs into as few as hold them; Weighted divides
    by `static` weights, or, with `dynamic`, by available replicas; Weighted with neither gives all
    clusters the weight 1. An empty preference, which only a binding written by hand can hold, says
    not how and cannot be followed.

    `remainder`: how what is left of exact shares is handed out: by Webster's method, or one more
    each in rank order. `within_capacity`: static weights that do not fit in full wait in full;
    without it, what fits is given and the rest waits. `limits`: how many replicas single clusters
    get at least and at most.
    """

    type: Literal["Duplicated", "Divided"] = "Duplicated"
    preference: Literal["Aggregated", "Weighted", ""] = "Weighted"
    static: tuple[StaticWeight, ...] = ()
    dynamic: bool = False
    remainder: Literal["webster", "in-order"] = "webster"
    within_capacity: bool = False
    limits: tuple[ReplicaLimit, ...] = ()

    @property
    def weighed(self) -> bool:
        """Whether the policy's own weights divide the replicas."""
        return self.type == "Divided" and self.preference == "Weighted" and not self.dynamic

    @property
    def bounded(self) -> bool:
        """Whether anything but the weights says how many replicas a cluster gets."""
        return bool(self.limits) or self.within_capacity or self.remainder == "in-order"


class Steadiness(Value, frozen=True):
    """Moves that are neither requested nor caused by a failure. All are off by default: the binding
    stays where it is.

    `failback_after_s`: an earlier affinity than the one in force is returned to when it could have
    held all replicas for so long without a break. `rebalance_after_s`: replicas are moved to
    clusters that have become feasible or roomy when that has been so for so long. None: never.
    `window_s`: the least time between two such moves of one binding. `gain_percent`: a rebalance
    must lessen the distance from the wanted division by at least so much of the replicas.
    `budget_percent`: of the replicas that one such move may touch, rounded up to at least one."""

    failback_after_s: int | None = None
    rebalance_after_s: int | None = None
    window_s: int = 300
    gain_percent: int = 10
    budget_percent: int = 25


class ApplicationFailover(Value, frozen=True):
    """What runs in a cluster and has been ill there for longer than `toleration_s` leaves it.

    `purge`: `Directly`, its copy goes at once; `Gracefully`, when what replaces it stands, or after
    `grace_s` at the latest; `Never`, when somebody says so."""

    toleration_s: int = 300
    purge: Literal["Directly", "Gracefully", "Never"] = "Gracefully"
    grace_s: int = 600


ANY_CLUSTER = ClusterAffinity()
"""The term of a placement that names none."""


class Placement(Value, frozen=True):
    """`affinities` are alternatives in order, the first that schedules wins; empty: any cluster.

    `affinity_label` and `anti_affinity_label`: workloads with equal values of this label go to the
    same clusters, or to none that another has. `failover`: `evict` lets go and refills; `reserve`
    keeps the healthy targets as they are and replaces the failed ones by as many candidates, or
    does nothing. `strict`: as Karmada does it, where we would do better.

    `application`: whether, and how, a binding leaves a cluster where it is ill (None: never).
    `cluster_purge`: how it leaves one whose NoExecute taint it does not bear any more; Gracefully
    waits for its replacement, ten minutes at most."""

    affinities: tuple[ClusterAffinity, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    replicas: ReplicaScheduling = ReplicaScheduling()
    affinity_label: LabelKey = ""
    anti_affinity_label: LabelKey = ""
    failover: Literal["evict", "reserve"] = "evict"
    steadiness: Steadiness = Steadiness()
    strict: bool = False
    application: ApplicationFailover | None = None
    cluster_purge: Literal["Directly", "Gracefully"] = "Directly"

    @property
    def terms(self) -> tuple[ClusterAffinity, ...]:
        """The affinity terms; one that admits every cluster where there are none."""
        return self.affinities or (ANY_CLUSTER,)
