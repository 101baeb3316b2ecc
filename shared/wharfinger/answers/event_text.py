"""What an event says and who sent it, in a few words: the counterpart of `summary`, which does this
for decisions."""

from __future__ import annotations

from wharfinger.answers.decisions import short_type
from wharfinger.domain.binding import Binding
from wharfinger.domain.text import count, some
from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    WaitingPodsObserved,
    WorkloadObserved,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved, FleetHeard
from wharfinger.events.decisions import as_decision
from wharfinger.events.envelope import Event
from wharfinger.events.origin import SERVICE, Origin, origin_of
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.plans import PlanRequested
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import (
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.registry import type_of
from wharfinger.events.room import PlanAnswered, RoomTaken
from wharfinger.events.ticks import HeldEventsLaidAside
from wharfinger.history.timeline import DecisionCause
from wharfinger.runtime.ledger import LedgerRow

OURS = "/wharfinger/"
COMMAND_LINE = f"{OURS}command-line"


def because(cause: DecisionCause) -> str:
    """The cause of a decision: `asked for 5 replicas (was 3), by the command line`."""
    if cause.event is not None:
        return told(cause.event, cause.before)
    if cause.decision is not None:
        return decided(cause.decision)
    return "time passed" if cause.id is None else f"{cause.id}, of which this ledger has no record"


def told(event: Event[Value], before: Binding | None = None) -> str:
    """What an event says, and by whom it was sent."""
    what = said(event.data, before)
    unsaid = isinstance(event.data, PlanRequested) and not origin_of(event.body).authid
    return what if unsaid else f"{what}, {sent_by(event)}"


def said(data: Value, before: Binding | None = None) -> str:
    """`before`: what a request replaces."""
    match data:
        case BindingRequested(binding=binding):
            return f"asked for {asked(binding, before)}"
        case BindingWithdrawn():
            return "withdrawn"
        case PolicyApplied(policy=policy):
            return f"policy {policy.key} applied"
        case PolicyRemoved(kind=kind, namespace=namespace, name=name):
            return f"policy {kind}/{namespace}/{name} removed"
        case ClusterObserved(cluster=cluster):
            return (
                f"cluster {cluster.name} is leaving"
                if cluster.deleting
                else f"facts of cluster {cluster.name}"
            )
        case ClusterForgotten(name=name):
            return f"cluster {name} is gone"
        case FleetHeard(heard=heard):
            return f"heartbeat of {count(len(heard), 'cluster')}"
        case NodesObserved(cluster=cluster):
            return f"nodes of {cluster}"
        case NodeImagesObserved(cluster=cluster):
            return f"images on nodes of {cluster}"
        case PodsObserved(cluster=cluster, node=node):
            return f"pods on {node} of {cluster}"
        case WaitingPodsObserved(cluster=cluster, namespace=namespace):
            return f"waiting pods of {cluster}/{namespace}"
        case FinishedPodsObserved(cluster=cluster, node=node):
            return f"finished pods on {node} of {cluster}"
        case ObjectsObserved(cluster=cluster, kind=kind, namespace=namespace):
            return f"{kind}s of {cluster}/{namespace}".removesuffix("/")
        case WorkloadObserved(cluster=cluster, binding=binding_name):
            return f"how {binding_name} fares in {cluster}"
        case CapacityEstimated(cluster=cluster):
            return f"room in {cluster} counted"
        case FailoverProposed() | EvictionProposed() | RescheduleProposed() | NodeRemovalProposed():
            return _proposed(data)
        case PlanRequested():
            return _planned(data)
        case AssignmentsDecided():
            return f"{count(len(data.items), 'assignment')} of {data.stream} to {data.cluster}"
        case OutcomesDecided():
            return f"{count(len(data.items), 'outcome')} of {data.stream} to fleet/{data.shard}"
        case RoomTaken():
            return f"room in {count(len(data.items), 'cluster')} that {data.stream} took"
        case PlanAnswered():
            return f"{data.stream} {data.outcome} its part of a plan"
        case HeldEventsLaidAside(events=events):
            return f"{count(len(events), 'event')} laid aside that were held back"
        case _:
            return short_type(type_of(data))


def _planned(data: PlanRequested) -> str:
    """A plan to relocate says why: `a plan of 2 steps: roll back to fleet/0 12`."""
    reasons = dict.fromkeys(
        step.reschedule.reason for step in data.steps if step.reschedule is not None
    )
    why = some(reason for reason in reasons if reason)
    return f"a plan of {count(len(data.steps), 'step')}{f': {why}' if why else ''}"


def _proposed(
    data: FailoverProposed | EvictionProposed | RescheduleProposed | NodeRemovalProposed,
) -> str:
    match data:
        case FailoverProposed():
            what = f"failover from {data.cluster} proposed"
        case EvictionProposed():
            what = f"eviction from {data.cluster} proposed"
        case RescheduleProposed():
            what = "a fresh decision proposed"
        case NodeRemovalProposed():
            what = f"removal of {data.node} proposed"
    return f"{what}: {data.reason}" if data.reason else what


def asked(binding: Binding, before: Binding | None = None) -> str:
    """`5 replicas (was 3), another placement`: what is asked for, and what of it is new."""
    wanted = count(binding.replicas, "replica") if binding.replicas else "a place"
    if before is None:
        return wanted
    if before.replicas != binding.replicas:
        wanted += f" (was {before.replicas})"
    changes = [
        ("other requirements", before.requirements != binding.requirements),
        ("another placement", before.placement != binding.placement),
        ("another policy", before.policy != binding.policy),
        ("another priority", before.priority != binding.priority),
        ("a fresh decision", before.reschedule != binding.reschedule),
        (
            "a pause" if binding.suspended else "no pause any more",
            before.suspended != binding.suspended,
        ),
    ]
    return ", ".join([wanted, *(what for what, changed in changes if changed)])


def decided(row: LedgerRow) -> str:
    """A decision as the cause of another one: `scheduled: oslo 3 (fleet/0 12)`."""
    return f"{row.outcome}: {as_decision(row.data()).sentence()} ({row.stream} {row.seq})"


def sent_by(event: Event[Value]) -> str:
    """`by unix:ada from a plan (release 1.4)`: the user, what they used if it is not the command
    line, then reason and revision. Of events that name no user: `by the command line`."""
    origin = origin_of(event.body)
    source, notes = _source_of(event), _notes_of(origin)
    if not origin.authid or origin.authid.startswith(SERVICE):
        return f"by {source}{notes}"
    plain = event.source == COMMAND_LINE or isinstance(event.data, PlanRequested)
    via = "" if plain else f" from {source}"
    return f"by {origin.authid}{via}{notes}"


def _source_of(event: Event[Value]) -> str:
    """`the command line`; what is not ours is named as it names itself."""
    if not event.source.startswith(OURS):
        return event.source
    name = event.source.removeprefix(OURS).replace("-", " ")
    return name if "/" in name else f"{'a' if name == 'plan' else 'the'} {name}"


def _notes_of(origin: Origin) -> str:
    notes = [note for note in (origin.changereason, origin.changerevision) if note]
    return f" ({', '.join(notes)})" if notes else ""
