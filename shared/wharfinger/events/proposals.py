"""Topic `wharfinger.proposals`: what the descheduler, a replay or an operator would like changed.

Key = target stream. A proposal binds nobody: the stage that owns the target simulates it again against the present and
commits it as decisions, or refuses it with a reason.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.node_pool import PoolRequirement
from wharfinger.domain.value import Name, Value

DisruptionMethod = Literal[
    "emptiness",
    "expiry",
    "static-drift",
    "static-scale-down",
    "drift",
    "multi-node",
    "single-node",
]
"""How it was found that nodes can go, in the order in which it is looked for."""

EvictionCause = Literal["taint", "unhealthy", "unschedulable", "replaced"]


class FailoverProposed(Value, frozen=True):
    """`cluster` is silent: place the replicas that `binding` has there elsewhere too, and keep the old ones."""

    stream: Name
    binding: Name
    cluster: Name
    reason: str = ""


class EvictionProposed(Value, frozen=True):
    """Let go what `binding` has in `cluster` and place it elsewhere: its NoExecute toleration ended (`taint`), it has
    been ill for longer than its policy bears (`unhealthy`), or `replicas` of it have found no node for so long
    (`unschedulable`; 0: all it has there); or it was let go there already and only waited for what replaces it
    (`replaced`), which stands now. `assignment`: id of the decision by which it had what is to go; empty: not known,
    and not compared."""

    stream: Name
    binding: Name
    cluster: Name
    reason: str = ""
    cause: EvictionCause = "taint"
    replicas: int = 0
    assignment: str = ""


class RescheduleProposed(Value, frozen=True):
    """Decide `binding` afresh; or, where `targets` are named, move it to exactly these.

    `replay`: id of the replay that found them: it becomes the cause of the decision. `objective`: by which they are
    better than what there is (`spread`, `pack`, `cost`, `moves`, `even`; empty: no such claim), checked again against
    the present; `gain`: by how much they were better when that was found, in the objective's own unit. `policy`: key
    of the RebalancePolicy that asks for it, whose gain and budgets are kept (empty: somebody else asks)."""

    stream: Name
    binding: Name
    reason: str = ""
    targets: tuple[TargetCluster, ...] = ()
    replay: str = ""
    objective: str = ""
    gain: int = 0
    policy: Name = ""


class NodeRemovalProposed(Value, frozen=True):
    """`node` holds nothing and may go."""

    stream: Name
    cluster: Name
    node: Name
    reason: str = ""


class NewNode(Value, frozen=True):
    """A node to be made: of which pool, by which requirements beyond the pool's, of which instance types (the
    cheapest first), for which amounts (daemons and what is to go there), and for how much an hour at least
    (billionths of a dollar)."""

    pool: Name
    requirements: tuple[PoolRequirement, ...]
    instance_types: tuple[str, ...]
    requests: dict[str, int]
    price: int


class DisruptionProposed(Value, frozen=True):
    """`nodes` can go, all or none of them, if `replacements` come first. `contents`: node -> a digest of what it held
    when that was found; when it holds something else the proposal is refused. `saving`: billionths of a dollar an
    hour, by the prices known then; `disruption`: thousandths, see `engine.disruption.costs`. `reason`: in words, with
    the arithmetic."""

    stream: Name
    cluster: Name
    method: DisruptionMethod
    nodes: tuple[Name, ...]
    contents: dict[str, str]
    replacements: tuple[NewNode, ...] = ()
    saving: int = 0
    disruption: int = 0
    reason: str = ""


class Unseating(Value, frozen=True):
    """One pod that should leave its node: a replica (`binding` and `ordinal`) or the pod of somebody else (`pod`: its
    uid). `avoid`: nodes it shall not go to, because its workload was taken off them."""

    node: Name
    binding: str = ""
    ordinal: int = -1
    pod: str = ""
    avoid: tuple[Name, ...] = ()


class DeschedulingProposed(Value, frozen=True):
    """What `strategy` of `profile` found: each of `unseatings` by itself should be somewhere else. Each is moved
    where there is a place for it, and stays where there is none. `measured`: its nodes are too full by what is measured,
    not by what is requested.

    What holds of a binding after one of its replicas was moved for it, whoever proposes next: `return_s`: so long
    nothing of it goes back to the node (0: it may); `cooldown_s`: so long none of it is moved again (0: for as long as
    the stage leaves alone whatever was moved)."""

    stream: Name
    cluster: Name
    strategy: str
    profile: str
    unseatings: tuple[Unseating, ...]
    reason: str = ""
    measured: bool = False
    return_s: int = 0
    cooldown_s: int = 0
