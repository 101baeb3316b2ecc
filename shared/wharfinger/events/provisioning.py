"""Decisions of a cluster stream about nodes to be made, on topic `wharfinger.decisions`.

A claim is asked for (`NodeClaimRequested`), and ends once: a node came, none came in time, nobody could make it, or it is needed no
more. Whoever makes nodes (Karpenter's provider, a script, a person) reads the first and labels the node with the claim's name
(`wharfinger.io/node-claim`); what came of it is read off the node.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.node_pool import PoolRequirement
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Name, Value
from wharfinger.events.decisions import Explanation

ClaimOutcome = Literal["registered", "timed-out", "failed", "cancelled"]


class NodeClaimRequested(Value, frozen=True):
    """A node of `pool` shall be made, of any of `instance_types` (the cheapest first, at most 600) that meets `requirements` and
    costs less than `ceiling` (billionths of a dollar an hour; 0: whatever it costs). `price`: of the cheapest offering. `requests`:
    daemons and what is to go there; `replicas`: binding -> how many of its replicas that is. `command`: of the disruption it
    replaces nodes for. It is given up at `until_us`."""

    cluster: str
    claim: Name
    pool: str
    requirements: tuple[PoolRequirement, ...]
    instance_types: tuple[str, ...]
    requests: dict[str, int]
    replicas: dict[str, int]
    price: int
    until_us: int
    ceiling: int = 0
    command: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    node_class: str = ""
    expire_after_s: int | None = None
    termination_grace_s: int | None = None
    explanation: Explanation = Explanation()


class NodeClaimEnded(Value, frozen=True):
    """`node` and what it is, where one came. `price`: of that very offering; 0: not known."""

    cluster: str
    claim: Name
    pool: str
    outcome: ClaimOutcome
    node: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: int = 0
    reason: str = ""
