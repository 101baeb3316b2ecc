"""Pools of nodes that may be made and taken away: Karpenter's NodePool and NodeOverlay, as the
stages read them.

Every cluster may have nodes of a pool; which node belongs to which is said by the node's label
`karpenter.sh/nodepool`. Prices are in billionths of a dollar an hour, as everywhere
(`domain.instance_types`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from wharfinger.domain.ids import AmountText, ClusterName, LabelKey, LabelText, ResourceName, Token
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value

POOL_LABEL = "karpenter.sh/nodepool"
CAPACITY_TYPE_LABEL = "karpenter.sh/capacity-type"
INITIALIZED_LABEL = "karpenter.sh/initialized"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"
CLAIM_LABEL = "wharfinger.io/node-claim"
"""On a node: the claim it was made for."""
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
POOL_HASH = "karpenter.sh/nodepool-hash"
"""Annotation of a node: `NodePoolPolicy.digest` as it was when the node was asked for."""
OUR_DIGEST = "w"
"""How a digest begins that we have made; Karpenter's own are decimal numbers."""

LEAST_SAVING = 1_000_000
"""A tenth of a cent an hour."""

PoolOperator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]

DisruptionReason = Literal["Empty", "Underutilized", "Drifted"]
"""By which budgets tell disruptions apart."""


class PoolRequirement(Value, frozen=True):
    """What a label of the nodes must be. Gt, Lt, Gte and Lte compare with the one integer of
    `values`, the last two inclusively.

    `min_values`: at least so many values of the label must remain among the instance types that
    could be launched."""

    key: LabelKey
    operator: PoolOperator
    values: tuple[LabelText, ...] = ()
    min_values: int = 0


CRON_NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""Schedules that have a name, by crontab(5)."""


class NodeBudget(Value, frozen=True):
    """How many nodes of a pool may be disrupted at once: a number, or a share as `10%`, rounded up.
    `reasons`: empty for all. `schedule`: cron in UTC, from whose hits on the budget holds for
    `duration_s`; empty: always."""

    nodes: AmountText = "10%"
    reasons: tuple[DisruptionReason, ...] = ()
    schedule: AmountText = ""
    duration_s: int = 0


class NodePoolPolicy(Value, frozen=True):
    """A Karpenter NodePool: nodes labelled `karpenter.sh/nodepool=<name>`.

    `empty_after_s`: consolidateAfter; a node may be consolidated when for so long no pod has come
    to it or left it (None: never). `consolidation`: which nodes are. `expire_after_s`,
    `termination_grace_s`: None is never. `limits`: of the capacities of its nodes together; `nodes`
    is their number. `weight`: a heavier pool is tried first. `replicas`: a pool of exactly so many
    nodes, which is not consolidated. `catalogue`: which catalogue of instance types it takes from.
    `clusters`: where nodes of it may be made; empty: in every cluster. `digest`: of what a node is
    made by; a node that was made by another has drifted.

    How its nodes are asked for and consolidated; what several pools of a cluster say together is in
    `stages.options`. `min_values`: Strict refuses what BestEffort lowers. `preferences`: whether
    preferred affinities and soft spread are tried to be kept. `reserved`: under Strict a pod waits
    rather than to go where reserved capacity could have been used and is all taken. `spot_to_spot`:
    whether spot nodes may be replaced by spot. `packing`: `first-fit` is Karpenter's, `priced`
    looks ahead. `least_saving`: no command that saves less an hour (billionths of a dollar)."""

    name: LabelText
    empty_after_s: int | None = None
    requirements: tuple[PoolRequirement, ...] = ()
    labels: dict[LabelKey, LabelText] = {}
    annotations: dict[LabelKey, LabelText] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    node_class: Token = ""
    expire_after_s: int | None = None
    termination_grace_s: int | None = None
    consolidation: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] = "WhenEmpty"
    budgets: tuple[NodeBudget, ...] = (NodeBudget(),)
    limits: dict[ResourceName, int] = {}
    weight: int = 0
    replicas: int | None = None
    catalogue: Token = "default"
    clusters: tuple[ClusterName, ...] = ()
    digest: LabelText = ""
    min_values: Literal["Strict", "BestEffort"] = "Strict"
    preferences: Literal["Respect", "Ignore"] = "Respect"
    reserved: Literal["Strict", "Fallback"] = "Strict"
    spot_to_spot: bool = False
    packing: Literal["first-fit", "priced"] = "priced"
    least_saving: int = LEAST_SAVING

    def is_of(self, cluster: str) -> bool:
        return not self.clusters or cluster in self.clusters

    def has_drifted(self, annotations: Mapping[str, str]) -> bool:
        """Whether a node, by its annotations, was made by another template. Digests of two makers
        say nothing of each other, and a node that has none says nothing at all."""
        made_by = annotations.get(POOL_HASH, "")
        comparable = bool(made_by and self.digest) and made_by.startswith(
            OUR_DIGEST
        ) == self.digest.startswith(OUR_DIGEST)
        return comparable and made_by != self.digest


class NodeOverlay(Value, frozen=True):
    """Karpenter's NodeOverlay: instance types that `requirements` match cost and hold otherwise
    than their catalogue says.

    `price`: in its stead, in dollars an hour; `price_adjustment`: added to it, as `+0.05`, `-0.01`,
    `+10%` or `-5%`. One of both, or none. `capacity`: in addition. Of several that match the
    heaviest counts, of equal ones the first by name."""

    name: str
    requirements: tuple[PoolRequirement, ...] = ()
    weight: int = 0
    price: str = ""
    price_adjustment: str = ""
    capacity: dict[str, int] = {}
