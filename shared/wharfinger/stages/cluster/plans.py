"""A plan, held against one cluster as it is: nodes change or go on a copy of the book, and the stage's own rules say which replicas
move. As in the fleet stage, the copy is asked after everything else of the round has been decided.

The copy is made by storing and loading. A cluster has thousands of nodes at most, and plans are rare.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from uuid import UUID

import msgspec

from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.decisions import Outcome, PlanCommitted, PlanRefused, ReplicasRefused
from wharfinger.events.plans import PlanRequested, Step
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.kernel.decider import Draft
from wharfinger.kernel.step import ENGINE
from wharfinger.stages.cluster.state import ClusterState
from wharfinger.stages.plans import (
    ENGINE_NAME,
    node_name,
    nodes_name,
    placement_name,
    refusal,
    replaced,
    short_digest,
)

TRIAL = UUID(int=0)
"""Stands for the commitment where a plan is only tried."""

Trial = Callable[[Sequence[Step]], tuple[ClusterState, Sequence[Draft]]]
"""A copy of the state that has taken the steps and what it decided then."""


def answer_plans(
    state: ClusterState, trial: Trial, rules: Callable[[], Iterator[Draft]], profile: str
) -> Iterator[Draft]:
    for id, request in list(state.requested.items()):
        no = _why_not(state, request, trial, profile)
        if no is not None:
            yield Draft(no, request.plan, "refused", id)
            continue
        yield Draft(PlanCommitted(request.plan, len(request.steps)), request.plan, "committed", id)
        yield from rules()


def expectation(state: ClusterState, request: PlanRequested, trial: Trial, profile: str) -> PlanRequested:
    """The request with what comes of its steps now as what is expected, and with what was looked at."""
    expected = outcomes(*trial(request.steps))
    book, cluster = state.book, state.cluster
    names = {name for step in request.steps if (name := replaced(step.data)) is not None}
    names.update(nodes_name(cluster, bucket) for bucket in book.buckets)
    names.update(placement_name(o.subject) for o in expected if o.subject in book.held)
    names.update(node_name(cluster, node) for o in expected for node in o.places)
    basis = {name: _digest(state, name, profile) for name in (*sorted(names), ENGINE_NAME)}
    return msgspec.structs.replace(request, expected=expected, basis=basis)


def outcomes(after: ClusterState, drafts: Sequence[Draft]) -> tuple[Outcome, ...]:
    """Where each binding of which something was decided lies then; why not all of it, if so."""
    found: dict[str, Outcome] = {}
    for draft in drafts:
        reason = draft.data.reason if isinstance(draft.data, ReplicasRefused) else ""
        found[draft.subject] = Outcome(draft.subject, draft.outcome, _nodes_of(after, draft.subject), reason)
    return tuple([found[subject] for subject in sorted(found)])


def _nodes_of(state: ClusterState, binding: str) -> dict[str, int]:
    held = state.book.held.get(binding)
    places: dict[str, int] = {}
    for replica in held.placed.values() if held is not None else ():
        places[replica.node] = places.get(replica.node, 0) + 1
    return dict(sorted(places.items()))


def _why_not(state: ClusterState, request: PlanRequested, trial: Trial, profile: str) -> PlanRefused | None:
    foreign = next((step for step in request.steps if not _is_ours(state, step)), None)
    if foreign is not None or not state.book.known:
        what = "" if foreign is None or foreign.empty else type(foreign.data).__name__
        return PlanRefused(request.plan, "NotPlannable", what)
    found = outcomes(*trial(request.steps))
    now = {name: _digest(state, name, profile) for name in request.basis}
    changed = [name for name, was in request.basis.items() if now[name] != was]
    return refusal(request, now, found, _come_since(state, request, changed))


def _is_ours(state: ClusterState, step: Step) -> bool:
    if step.empty:
        return False
    match step.data:
        case NodesObserved(cluster=cluster):
            return cluster == state.cluster
        case NodeRemovalProposed(stream=stream):
            return stream == state.stream
        case _:
            return False


def _come_since(state: ClusterState, request: PlanRequested, changed: Collection[str]) -> Iterator[str]:
    """Bindings on nodes that hold something else than they did: among them is who took the room."""
    planned = {outcome.subject for outcome in request.expected}
    prefix = node_name(state.cluster, "")
    for name in changed:
        if name.startswith(prefix):
            here = state.book.on_node.get(name.removeprefix(prefix), {})
            yield from (placement_name(binding) for binding in sorted({b for b, _ in here} - planned))


def _digest(state: ClusterState, name: str, profile: str) -> str:
    """Of what `name` stands for, as it is now; of nothing: empty."""
    book = state.book
    if name == ENGINE_NAME:
        return short_digest((ENGINE, profile))
    if name.startswith(prefix := node_name(state.cluster, "")):
        node = name.removeprefix(prefix)
        return short_digest((sorted(book.on_node.get(node, {})), book.pods.get(node, ()), node in book.closed))
    if name.startswith("binding/"):
        binding = name.removeprefix("binding/").removesuffix(" placement")
        held = book.held.get(binding)
        return (
            "" if held is None else short_digest((held.desired, held.cls.key, held.replace, _nodes_of(state, binding)))
        )
    bucket = name.removeprefix(nodes_name(state.cluster, 0)[:-1])
    nodes = book.buckets.get(int(bucket)) if bucket.isascii() and bucket.isdecimal() else None
    return "" if nodes is None else short_digest(sorted(nodes.items()))
