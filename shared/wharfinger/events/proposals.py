"""Topic `wharfinger.proposals`: changes that the descheduler, a replay or an operator proposes.

Key = target stream. A proposal is not binding: the stage that owns the target simulates it again
against the present state, and commits it as decisions or refuses it with a reason.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.ids import (
    BindingName,
    Bounded,
    ClusterName,
    EventId,
    FleetDecisionId,
    NamespaceName,
    NodeName,
    PodName,
    PodUid,
    PolicyKey,
    Remark,
    StreamName,
    Word,
)
from wharfinger.domain.node_pool import PoolRequirement
from wharfinger.domain.value import Name, Value

DisruptionMethod = Literal[
    "emptiness", "expiry", "static-drift", "static-scale-down", "drift", "multi-node", "single-node"
]
"""How it was found that nodes can go, in the order in which it is looked for."""

EvictionCause = Literal["taint", "unhealthy", "unschedulable", "replaced"]


class FailoverProposed(Value, frozen=True):
    """`cluster` is silent: place the replicas that `binding` has there elsewhere too, and keep the
    old ones."""

    stream: Bounded[StreamName]
    binding: Bounded[BindingName]
    cluster: Bounded[ClusterName]
    reason: Remark = ""


class EvictionProposed(Value, frozen=True):
    """Evict `binding` from `cluster` and place it elsewhere. `cause`: its NoExecute toleration
    ended (`taint`); it has been unhealthy for longer than its policy tolerates (`unhealthy`); no
    node was found in that time for `replicas` of it (`unschedulable`; 0: for all it has there); or
    it was evicted before and kept only until its replacement was ready, which it now is
    (`replaced`). `assignment`: id of the decision that assigned it to the cluster; empty: not
    known, and not compared."""

    stream: Bounded[StreamName]
    binding: Bounded[BindingName]
    cluster: Bounded[ClusterName]
    reason: Remark = ""
    cause: EvictionCause = "taint"
    replicas: int = 0
    assignment: FleetDecisionId = ""


class RescheduleProposed(Value, frozen=True):
    """Decide `binding` afresh; or, where `targets` are named, move it to exactly these.

    `replay`: id of the replay that found them: it becomes the cause of the decision. `objective`:
    by which they are better than what there is (`spread`, `pack`, `cost`, `moves`, `even`; empty:
    no such claim), checked again against the present; `gain`: by how much they were better when
    that was found, in the objective's own unit. `policy`: key of the RebalancePolicy that asks for
    it, whose gain and budgets are kept (empty: none does)."""

    stream: Bounded[StreamName]
    binding: Bounded[BindingName]
    reason: Remark = ""
    targets: tuple[TargetCluster, ...] = ()
    replay: EventId = ""
    objective: Word = ""
    gain: int = 0
    policy: Bounded[PolicyKey] = ""


class NodeRemovalProposed(Value, frozen=True):
    """`node` holds nothing and may go."""

    stream: Bounded[StreamName]
    cluster: Bounded[ClusterName]
    node: Bounded[NodeName]
    reason: Remark = ""


class NewNode(Value, frozen=True):
    """A node to be made: of which pool, by which requirements beyond the pool's, of which instance
    types (the cheapest first), for which amounts (daemons and what is to go there), and for how
    much an hour at least (billionths of a dollar)."""

    pool: Name
    requirements: tuple[PoolRequirement, ...]
    instance_types: tuple[str, ...]
    requests: dict[str, int]
    price: int


class DisruptionProposed(Value, frozen=True):
    """`nodes` can go, all or none of them, if `replacements` come first. `contents`: node -> a
    digest of what it held when that was found; when it holds something else the proposal is
    refused. `saving`: billionths of a dollar an hour, by the prices known then; `disruption`:
    thousandths, see `engine.disruption.costs`. `reason`: in words, with the arithmetic."""

    stream: Name
    cluster: Name
    method: DisruptionMethod
    nodes: tuple[Name, ...]
    contents: dict[str, str]
    replacements: tuple[NewNode, ...] = ()
    saving: int = 0
    disruption: int = 0
    reason: str = ""


class FinishedPod(Value, frozen=True):
    """A pod that has ended and still exists as an object. `phase`: Succeeded or Failed; it never
    changes again."""

    uid: PodUid
    namespace: NamespaceName
    name: PodName
    phase: Word

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.phase})"


class Unseating(Value, frozen=True):
    """One pod that should be evicted from its node: a replica (`binding` and `ordinal`), or a pod
    that this scheduler does not manage (`pod`: its uid). `avoid`: nodes it must not move to,
    because its workload was evicted from them. `finished`: the pod has ended, and only its object
    is to be removed; None: the pod runs."""

    node: Name
    binding: str = ""
    ordinal: int = -1
    pod: str = ""
    avoid: tuple[Name, ...] = ()
    finished: FinishedPod | None = None


class DeschedulingProposed(Value, frozen=True):
    """Evictions that `strategy` of `profile` proposes: each of `unseatings` is one, independent of
    the others. A pod is moved if a place for it is found; otherwise it stays. `measured`: its nodes
    are overloaded by measured usage, not by requests.

    Limits for a binding after one of its replicas was moved for this proposal. They also apply to
    later proposals of others. `return_s`: for how long none of its replicas returns to that node
    (0: no limit). `cooldown_s`: for how long none of its replicas is moved again (0: the stage's
    own minimum)."""

    stream: Name
    cluster: Name
    strategy: str
    profile: str
    unseatings: tuple[Unseating, ...]
    reason: str = ""
    measured: bool = False
    return_s: int = 0
    cooldown_s: int = 0
