"""Topic `wharfinger.proposals`: what the descheduler, a replay or an operator would like changed.

Key = target stream. A proposal binds nobody: the stage that owns the target simulates it again against the present and
commits it as decisions, or refuses it with a reason.
"""

from __future__ import annotations

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.value import Name, Value


class FailoverProposed(Value, frozen=True):
    """`cluster` is silent: place the replicas that `binding` has there elsewhere too, and keep the old ones."""

    stream: Name
    binding: Name
    cluster: Name
    reason: str = ""


class EvictionProposed(Value, frozen=True):
    """Let go what `binding` has in `cluster` (its NoExecute toleration ended) and place it elsewhere."""

    stream: Name
    binding: Name
    cluster: Name
    reason: str = ""


class RescheduleProposed(Value, frozen=True):
    """Decide `binding` afresh; or, where `targets` are named, move it to exactly these.

    `replay`: id of the replay that found them: it becomes the cause of the decision. `objective`: by which they are better than
    what there is (`spread`, `pack`, `cost`, `moves`; empty: no such claim), checked again against the present; `gain`: by how much
    they were better when that was found, in the objective's own unit.
    """

    stream: Name
    binding: Name
    reason: str = ""
    targets: tuple[TargetCluster, ...] = ()
    replay: str = ""
    objective: str = ""
    gain: int = 0


class NodeRemovalProposed(Value, frozen=True):
    """`node` holds nothing and may go."""

    stream: Name
    cluster: Name
    node: Name
    reason: str = ""
