"""Decisions of a cluster stream about nodes that go, on topic `wharfinger.decisions`.

A command is decided whole (`DisruptionDecided`): which nodes, what replaces them, where each replica on them goes.
Its nodes take nothing new from then on. Replacements are asked for in the same round (`NodeClaimRequested`), waited
for, and only then replicas move, as many at a time as their budgets allow: released there and placed here in one
round. When a node holds nothing any more its removal is decided. The command ends once (`DisruptionEnded`): done, or
rolled back, and then its nodes take replicas again."""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.value import Name, Value
from wharfinger.events.decisions import Explanation
from wharfinger.events.proposals import DisruptionMethod

DisruptionOutcome = Literal["done", "rolled-back"]


class PricedNode(Value, frozen=True):
    """`price`: billionths of a dollar an hour of its very offering; 0: not known. `disruption`: thousandths."""

    name: Name
    pool: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: int = 0
    disruption: int = 0


class ReplicaMove(Value, frozen=True, array_like=True):
    """`target`: a node, or a claim that is to become one. `pod`: its uid, where it is none of ours; then nobody here moves
    it, and only room is kept for it."""

    binding: str
    ordinal: int
    source: str
    target: str
    pod: str = ""


class DisruptionDecided(Value, frozen=True):
    """`command`: its name. `claims`: the replacements. `moves`: where every replica goes, as found when it was
    decided; when its turn comes another place will do as well. `saving`: what the nodes cost less what the
    replacements do at most. `proposal`: what this answers. It is given up at `until_us`."""

    cluster: str
    command: Name
    method: DisruptionMethod
    nodes: tuple[PricedNode, ...]
    until_us: int
    claims: tuple[str, ...] = ()
    moves: tuple[ReplicaMove, ...] = ()
    saving: int = 0
    disruption: int = 0
    reason: str = ""
    proposal: str = ""
    explanation: Explanation = Explanation()


class DisruptionEnded(Value, frozen=True):
    """`nodes`: those of the command; `removed`: those whose removal was decided. `predicted` and `realised`: the
    saving as it was decided, and by what the replacements that came do cost (billionths of a dollar an hour).
    `moved`: replicas that changed their node."""

    cluster: str
    command: Name
    method: DisruptionMethod
    outcome: DisruptionOutcome
    nodes: tuple[str, ...]
    removed: tuple[str, ...] = ()
    predicted: int = 0
    realised: int = 0
    moved: int = 0
    reason: str = ""
