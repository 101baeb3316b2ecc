"""Copies that are there and not decided any more: which of them go, and which stay.

A workload goes when its binding has left the cluster. A ConfigMap, Secret or ServiceAccount goes
when its binding has left, or its template names it no more. It stays as long as a workload of the
member names it, ours or not, and while pods of an earlier template may be there. A claim stays in
any case: it may hold data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from wharfinger.domain.actuation import COPIED_FOR, COPIED_FROM
from wharfinger.events.rendering import Rendered
from wharfinger.stages.actuator.copied_objects import (
    CLAIM,
    ROOTS,
    WORKLOADS,
    DecidedCopies,
    ends,
    named,
    said_by,
)
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.hub import HubObjects
from wharfinger.stages.actuator.pod_references import workload_references

Place = tuple[str, str]
"""Kind, and namespace and name."""


@dataclass(frozen=True, slots=True)
class RemainingCopy:
    """As it is `now` in the member. `why`: it stays; "": it is to be removed."""

    object: EffectObject
    now: Rendered
    why: str = ""


def remaining_copies(
    decided: DecidedCopies, observed: HubObjects, hub: str, ours: Collection[str]
) -> Iterator[RemainingCopy]:
    """Workloads before what they name. `ours`: as of `copy_writes`. Without those of bindings whose
    template is not in the hub: what it names is not known."""
    unknown = {left.binding for left in decided.left_out.values()}
    leaving: set[Place] = set()
    needs: _Needs | None = None
    for kind in reversed(ROOTS):
        for key, now in sorted(observed.of(kind).items()):
            of = said_by(now, COPIED_FOR)
            if said_by(now, COPIED_FROM) != hub or ends(now) or of not in ours:
                continue
            if (kind, key) in decided.wanted or kind in decided.unread:
                continue
            if kind in WORKLOADS:
                if of not in decided.bindings:
                    leaving.add((kind, key))
                    yield RemainingCopy(named(now), now)
            elif of not in unknown:
                needs = needs or _needs(decided, observed, hub, leaving)
                yield RemainingCopy(named(now), now, _why_kept((kind, key), needs, hub, decided))


@dataclass(frozen=True, slots=True)
class _Needs:
    """`named`: what workloads name -> the first of them. `rolling`: namespace -> a copy there of
    which pods of an earlier template may be there."""

    named: dict[Place, EffectObject]
    rolling: dict[str, EffectObject]


def _why_kept(place: Place, needs: _Needs, hub: str, decided: DecidedCopies) -> str:
    kind, key = place
    if (by := needs.named.get(place)) is not None:
        return f"named by {by}, and no longer copied from {hub}"
    if kind == CLAIM:
        return "no workload names it any more; it may hold data, so it is yours to delete"
    if kind == "Secret" and "ServiceAccount" in decided.unread:
        return "a ServiceAccount may name it, and they may not be read"
    if (by := needs.rolling.get(key.partition("/")[0])) is not None:
        return f"pods of an earlier template of {by} may need it"
    return ""


def _needs(
    decided: DecidedCopies, observed: HubObjects, hub: str, leaving: Collection[Place]
) -> _Needs:
    """Of the workloads that are decided, and of those that are there but for the `leaving`."""
    found = _Needs({}, {})
    accounts = decided.accounts(observed)
    there = [
        (now, said_by(now, COPIED_FROM) == hub and not _is_rolled_out(now))
        for kind in WORKLOADS
        for key, now in sorted(observed.of(kind).items())
        if (kind, key) not in leaving
    ]
    wanted = [
        (one, False) for (kind, _), one in sorted(decided.wanted.items()) if kind in WORKLOADS
    ]
    for workload, rolling in [*there, *wanted]:
        by = named(workload)
        if rolling:
            found.rolling.setdefault(by.namespace, by)
        for kind, name in workload_references(workload, accounts):
            found.named.setdefault((kind, f"{by.namespace}/{name}"), by)
    return found


def _is_rolled_out(now: Rendered) -> bool:
    """All of its pods are of its present template."""
    status = now.get("status") or {}
    if status.get("observedGeneration", 0) != now["metadata"].get("generation", 0):
        return False
    return bool(status.get("replicas", 0) == status.get("updatedReplicas", 0))
