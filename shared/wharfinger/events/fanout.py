"""From one decision to the internal messages that carry it: items for the clusters it touches and for the fleet shard it
answers.

The publisher uses it to relay, and whoever loads current assignments from the ledger uses it to see the very items that
the topic carried. Pure and total: a decision that concerns no cluster gives no items.

Of a workload with several kinds of pods a cluster gets one item a component, under a name of its own (`domain.binding.part_of`):
whoever places pods need not know that they belong together. What is answered to such an item goes to the binding's shard.

Replicas that were placed are not sent back to the fleet stage: it would change nothing there, since a replica counts
against its cluster from the assignment on, and every message a stage takes in is recorded for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from wharfinger.domain.binding import TargetCluster, part_of, whole_of
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import (
    MAX_ITEMS,
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    Claimed,
    ClaimEnded,
    Disrupted,
    Disrupting,
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
from wharfinger.events.disruption import DisruptionDecided, DisruptionEnded
from wharfinger.events.envelope import derived_id
from wharfinger.events.outcomes import OutcomeItem, OutcomesDecided
from wharfinger.events.provisioning import NodeClaimEnded, NodeClaimRequested

InternalMessage = AssignmentsDecided | OutcomesDecided


class Fanout:
    """Gathers what decisions say to clusters and fleet shards into messages of up to `MAX_ITEMS`, because the cost of a message
    is what limits the services that read them. `shard_of`: binding -> fleet shard.

    Decisions of several streams may be added, each stream's in order of seq; `rest` gives what is not full and begins anew.
    """

    def __init__(self, shard_of: Callable[[str], int]) -> None:
        self._shard_of = shard_of
        self._assigned: dict[tuple[str, str], list[AssignmentItem]] = {}
        self._outcomes: dict[tuple[str, str, int], list[OutcomeItem]] = {}

    def add(self, stream: str, seq: int, decision: str, data: Value) -> list[InternalMessage]:
        """The messages that this decision has filled: mostly none."""
        full: list[InternalMessage] = []
        for cluster, item in assignment_items(seq, decision, data):
            items = self._assigned.setdefault((stream, cluster), [])
            items.append(item)
            if len(items) >= MAX_ITEMS:
                full.append(_assignments(stream, cluster, items))
                items.clear()
        answer = outcome_item(seq, decision, data)
        if answer is not None:
            cluster, binding, outcome = answer
            shard = self._shard_of(whole_of(binding))
            answers = self._outcomes.setdefault((stream, cluster, shard), [])
            answers.append(outcome)
            if len(answers) >= MAX_ITEMS:
                full.append(_outcomes(stream, cluster, shard, answers))
                answers.clear()
        return full

    def rest(self) -> list[InternalMessage]:
        assigned, outcomes = self._assigned, self._outcomes
        self._assigned, self._outcomes = {}, {}
        left: list[InternalMessage] = [
            _assignments(stream, cluster, items) for (stream, cluster), items in assigned.items() if items
        ]
        left += [_outcomes(stream, cluster, shard, its) for (stream, cluster, shard), its in outcomes.items() if its]
        return left


def message_id(message: InternalMessage) -> UUID:
    """Derived from what is in it: the same items make the same message."""
    first = message.items[0].seq
    if isinstance(message, AssignmentsDecided):
        return derived_id("assignments", message.stream, message.cluster, first, message.through)
    return derived_id("outcomes", message.stream, message.shard, first, message.through)


def _assignments(stream: str, cluster: str, items: list[AssignmentItem]) -> AssignmentsDecided:
    return AssignmentsDecided(cluster, stream, items[-1].seq, tuple(items))


def _outcomes(stream: str, cluster: str, shard: int, items: list[OutcomeItem]) -> OutcomesDecided:
    return OutcomesDecided(cluster, shard, stream, items[-1].seq, tuple(items))


def assignment_items(seq: int, decision: str, data: Value) -> Iterator[tuple[str, AssignmentItem]]:
    """(cluster, item) for every cluster that the decision touches, in order of the targets, then of what was left."""
    match data:
        case ScheduleDecided() | ScheduleRefused():
            if data.former or (isinstance(data, ScheduleDecided) and data.components):
                yield from _of_components(seq, decision, data)
            else:
                yield from _assigned(
                    seq, decision, data.binding, data.uid, data.targets, data.previous, data.requirements,
                    data.priority, isinstance(data, ScheduleDecided),
                )  # fmt: skip
        case BindingReleased():
            for name in (data.binding, *(part_of(data.binding, c) for c in data.former)):
                yield from _assigned(seq, decision, name, data.uid, (), data.previous, Requirements(), 0, False)
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
        case NodeClaimRequested():
            yield data.cluster, Claimed(
                seq, decision, data.claim, data.pool, data.instance_types, data.requests, data.replicas, data.command,
                data.until_us, data.requirements,
            )  # fmt: skip
        case NodeClaimEnded():
            yield data.cluster, ClaimEnded(
                seq, decision, data.claim, data.pool, data.outcome, data.node, data.instance_type, data.zone,
                data.capacity_type,
            )  # fmt: skip
        case DisruptionDecided():
            names = tuple([node.name for node in data.nodes])
            yield data.cluster, Disrupting(seq, decision, data.command, data.method, names)
        case DisruptionEnded():
            reopened = tuple([name for name in data.nodes if name not in data.removed])
            yield data.cluster, Disrupted(seq, decision, data.command, data.method, data.outcome, reopened, data.reason)
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


def _of_components(seq: int, decision: str, data: ScheduleDecided | ScheduleRefused) -> Iterator[tuple[str, Assigned]]:
    """To each target its set, of whatever else the cluster was told of nothing; to each cluster that is none any more nothing."""
    components = data.components if isinstance(data, ScheduleDecided) else ()
    before = {t.cluster: t.replicas for t in data.previous}

    def item(name: str, replicas: int, requirements: Requirements = data.requirements) -> Assigned:
        return Assigned(seq, decision, name, data.uid, replicas, requirements, data.priority)

    for target in data.targets:
        if not isinstance(data, ScheduleDecided):
            before.pop(target.cluster, None)
            continue  # a refusal changes nothing where the binding stays
        yield from (
            (target.cluster, item(part_of(data.binding, c.name), c.replicas, c.requirements)) for c in components
        )
        yield from ((target.cluster, item(part_of(data.binding, name), 0)) for name in data.former)
        if before.pop(target.cluster, 0) or not components:
            yield target.cluster, item(data.binding, target.replicas)
    for cluster, replicas in before.items():
        for name in (*(c.name for c in components), *data.former):
            yield cluster, item(part_of(data.binding, name), 0)
        if replicas:
            yield cluster, item(data.binding, 0)


def _refused(seq: int, decision: str, data: ReplicasRefused) -> Refused:
    return Refused(seq, decision, data.binding, data.assignment, data.count, data.class_key, data.reason)


def _released(seq: int, decision: str, data: ReplicasReleased) -> Released:
    return Released(seq, decision, data.binding, data.released, data.unbound)
