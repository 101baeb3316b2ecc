"""From one decision to the internal messages that carry it: items for the clusters it touches and for the fleet shard it
answers.

The publisher uses it to relay, and whoever loads current assignments from the ledger uses it to see the very items that
the topic carried. Pure and total: a decision that concerns no cluster gives no items.

Replicas that were placed are not sent back to the fleet stage: it would change nothing there, since a replica counts
against its cluster from the assignment on, and every message a stage takes in is recorded for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    NodeClosed,
    Placed,
    Recovered,
    Refused,
    Released,
    Silenced,
)
from wharfinger.events.decisions import (
    BindingReleased,
    ClusterRecovered,
    ClusterSilenced,
    NodeRemovalDecided,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.outcomes import OutcomeItem


def assignment_items(seq: int, decision: str, data: Value) -> Iterator[tuple[str, AssignmentItem]]:
    """(cluster, item) for every cluster that the decision touches, in order of the targets, then of what was left."""
    match data:
        case ScheduleDecided() | ScheduleRefused():
            yield from _assigned(
                seq, decision, data.binding, data.uid, data.targets, data.previous, data.requirements, data.priority,
                isinstance(data, ScheduleDecided),
            )  # fmt: skip
        case BindingReleased():
            yield from _assigned(seq, decision, data.binding, data.uid, (), data.previous, Requirements(), 0, False)
        case ClusterSilenced():
            yield data.cluster, Silenced(seq, decision)
        case ClusterRecovered():
            yield data.cluster, Recovered(seq, decision)
        case ReplicasPlaced():
            yield data.cluster, Placed(seq, decision, data.binding, data.placed, data.requirements)
        case ReplicasRefused():
            yield data.cluster, _refused(seq, decision, data)
        case ReplicasReleased():
            yield data.cluster, _released(seq, decision, data)
        case NodeRemovalDecided():
            yield data.cluster, NodeClosed(seq, decision, data.node)
        case _:
            return


def outcome_item(seq: int, decision: str, data: Value) -> tuple[str, str, OutcomeItem] | None:
    """(cluster, binding, item) for the binding's fleet shard; None when the fleet stage need not know."""
    match data:
        case ReplicasRefused():
            return data.cluster, data.binding, _refused(seq, decision, data)
        case ReplicasReleased():
            return data.cluster, data.binding, _released(seq, decision, data)
        case _:
            return None


def _assigned(
    seq: int,
    decision: str,
    binding: str,
    uid: str,
    targets: tuple[TargetCluster, ...],
    previous: tuple[TargetCluster, ...],
    requirements: Requirements,
    priority: int,
    unchanged_too: bool,
) -> Iterator[tuple[str, Assigned]]:
    """`unchanged_too`: requirements may have changed though the count did not, so say it again."""
    before = {t.cluster: t.replicas for t in previous}
    for target in targets:
        if unchanged_too or before.get(target.cluster) != target.replicas:
            yield target.cluster, Assigned(seq, decision, binding, uid, target.replicas, requirements, priority)
        before.pop(target.cluster, None)
    for cluster in before:
        yield cluster, Assigned(seq, decision, binding, uid, 0, requirements, priority)


def _refused(seq: int, decision: str, data: ReplicasRefused) -> Refused:
    return Refused(seq, decision, data.binding, data.assignment, data.count, data.class_key, data.reason)


def _released(seq: int, decision: str, data: ReplicasReleased) -> Released:
    return Released(seq, decision, data.binding, data.released, data.unbound)
