"""Topic `wharfinger.proposals`: what the descheduler, a replay or an operator would like changed.

Key = target stream. A proposal binds nobody: the stage that owns the target simulates it again against the present and
commits it as decisions, or refuses it with a reason.
"""

from __future__ import annotations

from wharfinger.domain.value import Value


class FailoverProposed(Value, frozen=True):
    """`cluster` is silent: place the replicas that `binding` has there elsewhere too, and keep the old ones."""

    stream: str
    binding: str
    cluster: str
    reason: str = ""


class EvictionProposed(Value, frozen=True):
    """Let go what `binding` has in `cluster` (its NoExecute toleration ended) and place it elsewhere."""

    stream: str
    binding: str
    cluster: str
    reason: str = ""


class RescheduleProposed(Value, frozen=True):
    """Decide `binding` afresh."""

    stream: str
    binding: str
    reason: str = ""


class NodeRemovalProposed(Value, frozen=True):
    """`node` holds nothing and may go."""

    stream: str
    cluster: str
    node: str
    reason: str = ""
