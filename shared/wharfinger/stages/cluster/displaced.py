"""Which missing replicas of a binding had a node before, and why they lost it.

A replica that was preempted, or whose node is gone, is placed on another node of the cluster if one
is feasible. If none is, the cluster gives it back to the fleet. This is a return: nothing was
requested that did not fit. It differs from the refusal of a request by this record, which
lasts until the replicas are placed again, given back, or no longer wanted.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from wharfinger.domain.reasons import Displacement
from wharfinger.events.decisions import DisplacedReplicas
from wharfinger.stages.cluster.state import ClusterStageState

DISPLACEMENTS: dict[str, Displacement] = {reason: reason for reason in get_args(Displacement)}


def follow_displaced(
    state: ClusterStageState, binding: str, replicas: int, reason: str, preemptor: str
) -> None:
    """Adds released replicas to the record if the `reason` of their release is a `Displacement`.
    `preemptor`: the binding for which they were preempted; empty for other reasons."""
    known = DISPLACEMENTS.get(reason)
    if known is not None:
        before = state.displaced.get(binding, ())
        state.displaced[binding] = _joined((*before, DisplacedReplicas(known, replicas, preemptor)))
    follow_missing(state, binding)


def follow_missing(state: ClusterStageState, binding: str) -> None:
    """Limits the record of the binding to the replicas that are missing now. The oldest entries are
    dropped first."""
    if binding not in state.displaced:
        return
    held = state.book.held.get(binding)
    missing = 0 if held is None else max(0, held.desired - len(held.placed))
    kept = _last(state.displaced[binding], missing)
    if kept:
        state.displaced[binding] = kept
    else:
        del state.displaced[binding]


def displaced_among(
    state: ClusterStageState, binding: str, replicas: int
) -> tuple[DisplacedReplicas, ...]:
    """Returns which of the `replicas` that the cluster gives back had a node before."""
    return _last(state.displaced.get(binding, ()), replicas)


def _joined(entries: tuple[DisplacedReplicas, ...]) -> tuple[DisplacedReplicas, ...]:
    """Adds up the entries of one reason and preemptor; the order is that of the latest of each."""
    counts: dict[tuple[Displacement, str], int] = {}
    for entry in entries:
        key = (entry.reason, entry.preemptor)
        counts[key] = counts.pop(key, 0) + entry.replicas
    return tuple([DisplacedReplicas(r, n, preemptor) for (r, preemptor), n in counts.items()])


def _last(entries: tuple[DisplacedReplicas, ...], most: int) -> tuple[DisplacedReplicas, ...]:
    """Returns the latest entries with at most `most` replicas in all."""
    kept: list[DisplacedReplicas] = []
    for entry in reversed(entries):
        if most <= 0:
            break
        kept.append(msgspec.structs.replace(entry, replicas=min(entry.replicas, most)))
        most -= entry.replicas
    return tuple(reversed(kept))
