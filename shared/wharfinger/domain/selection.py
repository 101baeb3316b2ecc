"""What users say of choosing clusters as clusters: Open Cluster Management's Placement and what it
refers to.

A placement selects a set of clusters and says nothing of replicas. It can hold every value that the
API server of that system accepts, also wrong ones: an unknown mode, or a selector with an unknown
operator. `engine.cluster_sets` reports those as a condition of the placement; reading does not
refuse them.

`Selection` is the placement; `ClusterSet`, `SetBinding` and `ClusterScores` are the other things it
depends on, `ChosenClusters` what another scheduler made of it. All of them come as parts of a
`Policy` under the keys of their manifests.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.ids import ClusterName, PolicyName
from wharfinger.domain.value import Value


class Condition(Value, frozen=True):
    """One `matchExpressions` entry. `operator`: as written, not validated."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Selector(Value, frozen=True):
    """All of `labels` and all of `conditions`; with neither everything matches."""

    labels: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class Predicate(Value, frozen=True):
    """All three parts hold: labels, claims, and every one of the CEL expressions."""

    labels: Selector = Selector()
    claims: Selector = Selector()
    expressions: tuple[str, ...] = ()


class ClusterToleration(Value, frozen=True):
    """OCM's toleration. `operator`: Equal, Exists or what else was written; an empty `effect`:
    every effect. `seconds`: for how long since the taint was put on; None forever."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class AddOnScore(Value, frozen=True):
    """The score `score` of the AddOnPlacementScore `resource` in the cluster's namespace."""

    resource: str
    score: str


class Priority(Value, frozen=True):
    """One prioritizer with its weight. `type`: BuiltIn or AddOn; empty: no coordinate was given at
    all."""

    type: str = "BuiltIn"
    builtin: str = ""
    addon: AddOnScore | None = None
    weight: int = 1


class DecisionGroup(Value, frozen=True):
    """Chosen clusters that `labels` and `claims` match are decided under the name of the group."""

    name: str
    labels: Selector = Selector()
    claims: Selector = Selector()


class Selection(Value, frozen=True):
    """OCM's Placement.

    `cluster_sets`: of the bound sets only these; empty: all. `wanted`: how many clusters; None: all
    that pass. `predicates` are alternatives. `mode`: Additive (the default priorities, changed by
    these) or Exact (only these). `per_group`: how many clusters a decision group holds: a number,
    or `"<percent>%"` of the chosen. `disabled`: nothing is decided while its annotation says so.

    Beyond OCM, by annotation: `expired_scores`: what a score is worth that is past its time: 0 as
    there, or as if it had never been given (`unknown`). `hysteresis`: a newcomer takes the place of
    a cluster that is held only when it is better by more than so many points. `window_s`: how long
    others must have ranked higher, without a break, before the set moves to them. `strict`: as OCM
    does it, where we do better.
    """

    cluster_sets: tuple[str, ...] = ()
    wanted: int | None = None
    predicates: tuple[Predicate, ...] = ()
    tolerations: tuple[ClusterToleration, ...] = ()
    mode: str = "Additive"
    priorities: tuple[Priority, ...] = ()
    per_group: int | str = "100%"
    groups: tuple[DecisionGroup, ...] = ()
    disabled: bool = False
    deleting: bool = False
    expired_scores: Literal["zero", "unknown"] = "zero"
    hysteresis: int = 0
    window_s: int = 0
    strict: bool = False


class ClusterSet(Value, frozen=True):
    """OCM's ManagedClusterSet. `kind`: ExclusiveClusterSetLabel (the clusters labelled with its
    name) or LabelSelector (those that `selector` matches; None matches none)."""

    kind: str = "ExclusiveClusterSetLabel"
    selector: Selector | None = None


class SetBinding(Value, frozen=True):
    """OCM's ManagedClusterSetBinding: placements of its namespace may use the set that has the
    binding's own name, as OCM has it; `cluster_set` is what its spec says, which must be the same
    there."""

    cluster_set: str = ""


class ScoreValue(Value, frozen=True):
    name: str
    value: int


class ClusterScores(Value, frozen=True):
    """OCM's AddOnPlacementScore: the cluster is the namespace of its key. `until_us`: past it the
    scores are expired; microseconds of the epoch, None: never."""

    scores: tuple[ScoreValue, ...] = ()
    until_us: int | None = None


class ChosenClusters(Value, frozen=True):
    """OCM's PlacementDecision: clusters, or one slice of them, that OCM's own scheduler chose for
    the placement of this name in its namespace. Nothing is decided by it; it is compared with what
    we decide. `created_us`: when the object was created; 0 where it is not known."""

    placement: PolicyName
    clusters: tuple[ClusterName, ...] = ()
    created_us: int = 0
