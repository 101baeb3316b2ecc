"""Since when a copy is open: since which decision about its workload the member cluster is not as
it was decided.

    since = open_since(object, copies, decisions about its binding)

A copy that is open for another reason has no such decision: its template has changed since, or
somebody has changed the copy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.actuation import COPIED, COPIED_FOR, COPIED_FROM
from wharfinger.domain.time import Micros
from wharfinger.stages.actuator.copied_objects import WORKLOADS, DecidedCopies, said_by
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.hub import HubObjects

_ANY = -1
"""What workloads name is the same for any number of replicas."""


@dataclass(frozen=True, slots=True)
class DecidedReplicas:
    """One decision about a binding. `at`: when it was taken. `clusters`: name -> replicas."""

    at: Micros
    clusters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MemberCopies:
    """Of `hub` in the cluster `member`, as they are decided and as they are `there`. `secrets`:
    namespaces whose Secrets are known and copied."""

    member: str
    hub: str
    decided: DecidedCopies
    there: HubObjects
    secrets: Collection[str] = ()


def binding_of(object: EffectObject, copies: MemberCopies) -> str:
    """The binding for which it is to be there, or is; "": none is known."""
    if (left := copies.decided.left_out.get(object)) is not None:
        return left.binding
    kind, key = object.kind, f"{object.namespace}/{object.name}"
    one = copies.decided.wanted.get((kind, key)) or copies.there.of(kind).get(key)
    return "" if one is None else said_by(one, COPIED_FOR)


def open_since(
    object: EffectObject, copies: MemberCopies, decisions: Sequence[DecidedReplicas]
) -> Micros:
    """When the first of the last `decisions` was taken that all differ from what is there; 0: none
    does. `decisions`: about its binding, the oldest first. Where all that are given differ, the
    copy may be open for longer."""
    kind, key = object.kind, f"{object.namespace}/{object.name}"
    wanted, now = copies.decided.wanted.get((kind, key)), copies.there.of(kind).get(key)
    replicas: int | None = None
    if now is not None and said_by(now, COPIED_FROM) == copies.hub:
        if wanted is not None and said_by(now, COPIED) == said_by(wanted, COPIED):
            return 0
        replicas = int(now["spec"].get("replicas", 1)) if kind in WORKLOADS else _ANY
    since: Micros = 0
    for decision in reversed(decisions):
        decided = decision.clusters.get(copies.member)
        if decided == replicas or (replicas == _ANY and decided is not None):
            break
        since = decision.at
    return since
