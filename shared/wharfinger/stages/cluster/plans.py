"""Plans for one cluster: node changes are applied to a copy of the state, and the stage's own rules
say which replicas move. As in the fleet stage, this comes after all other decisions of the round.

The copy is made by saving and loading: a cluster has a few thousand nodes, and plans are rare.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from uuid import UUID

import msgspec

from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.decisions import PlanAnswer, PlannedOutcome, as_decision
from wharfinger.events.plans import PlanRequested, Step
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.kernel.decider import Draft
from wharfinger.kernel.step import ENGINE
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.plans import (
    ENGINE_NAME,
    answer_requests,
    node_name,
    nodes_name,
    not_plannable,
    placement_name,
    refusal,
    replaced,
    short_digest,
)

TRIAL = UUID(int=0)
"""Takes the place of the commitment's id where a plan is only tried."""

Trial = Callable[[Sequence[Step]], tuple[ClusterStageState, Sequence[Draft]]]
"""Applies steps to a copy of the state; returns the copy and the decisions that it made then."""


def answer_plans(
    state: ClusterStageState, trial: Trial, rules: Callable[[], Iterator[Draft]], profile: str
) -> Iterator[Draft]:
    return answer_requests(
        state.requested, lambda request: _why_not(state, request, trial, profile), rules
    )


def expectation(
    state: ClusterStageState, request: PlanRequested, trial: Trial, profile: str
) -> PlanRequested:
    """Returns the plan request with two fields filled: `expected`, the expected outcomes, and
    `basis`, a digest of each thing on which the outcomes depend.

    `trial` applies the steps of the plan to a copy of the state and returns the decisions made
    there. For each binding, node or claim that a decision is about, the expected outcome is the
    last decision about it. Digests are taken of the inputs that the steps of the plan replace
    (such as a bucket, which is a part of the nodes of the cluster), all buckets, the placements of
    the bindings with an expected outcome, the nodes where these bindings have replicas after the
    trial, and the engine with its `profile`. When the plan is committed later, a digest that
    differs shows what has changed since.
    """
    expected = outcomes(*trial(request.steps))
    book, cluster = state.book, state.cluster
    names = {name for step in request.steps if (name := replaced(step.data)) is not None}
    names.update(nodes_name(cluster, bucket) for bucket in book.buckets)
    names.update(placement_name(o.subject) for o in expected if o.subject in book.held)
    names.update(node_name(cluster, node) for o in expected for node in o.places)
    basis = {name: _digest(state, name, profile) for name in (*sorted(names), ENGINE_NAME)}
    return msgspec.structs.replace(request, expected=expected, basis=basis)


def outcomes(after: ClusterStageState, drafts: Sequence[Draft]) -> tuple[PlannedOutcome, ...]:
    """Returns the outcome of each subject that was decided, in order of name: its last decision,
    the nodes of its replicas with counts, and the reason if it was refused."""
    found: dict[str, PlannedOutcome] = {}
    for draft in drafts:
        decided = as_decision(draft.data)
        reason = decided.refusal() if decided.ABOUT == "binding" else ""
        found[draft.subject] = PlannedOutcome(
            draft.subject, draft.outcome, _nodes_of(after, draft.subject), reason
        )
    return tuple([found[subject] for subject in sorted(found)])


def _nodes_of(state: ClusterStageState, binding: str) -> dict[str, int]:
    held = state.book.held.get(binding)
    places: dict[str, int] = {}
    for replica in held.placed.values() if held is not None else ():
        places[replica.node] = places.get(replica.node, 0) + 1
    return dict(sorted(places.items()))


def _why_not(
    state: ClusterStageState, request: PlanRequested, trial: Trial, profile: str
) -> PlanAnswer | None:
    foreign = next((step for step in request.steps if not _is_ours(state, step)), None)
    if foreign is not None or not state.book.known:
        what = "" if foreign is None or foreign.empty else type(foreign.data).__name__
        return not_plannable(request, what)
    found = outcomes(*trial(request.steps))
    now = {name: _digest(state, name, profile) for name in request.basis}
    changed = [name for name, was in request.basis.items() if now[name] != was]
    return refusal(request, now, found, _come_since(state, request, changed))


def _is_ours(state: ClusterStageState, step: Step) -> bool:
    if step.empty:
        return False
    match step.data:
        case NodesObserved(cluster=cluster):
            return cluster == state.cluster
        case NodeRemovalProposed(stream=stream):
            return stream == state.stream
        case _:
            return False


def _come_since(
    state: ClusterStageState, request: PlanRequested, changed: Collection[str]
) -> Iterator[str]:
    """Yields placement names of bindings that may have taken the room on which the plan relied. A
    binding is one of these if it has a replica on a changed node, and the expected outcomes of the
    plan (`request`) do not mention the binding.

    `changed`: the names of the things that have changed since the plan was computed; all except
    nodes are ignored.
    """
    planned = {outcome.subject for outcome in request.expected}
    prefix = node_name(state.cluster, "")
    for name in changed:
        if name.startswith(prefix):
            here = state.book.on_node.get(name.removeprefix(prefix), {})
            yield from (
                placement_name(binding) for binding in sorted({b for b, _ in here} - planned)
            )


def _digest(state: ClusterStageState, name: str, profile: str) -> str:
    """Returns a short digest of one thing on which a plan depends, as it is at present; empty if
    the thing does not exist. `name` says which thing:

    - the engine: digest of the engine and `profile`;
    - a node: digest of its replicas, its pods, and whether it is closed to new replicas;
    - the placement of a binding: digest of the wanted number, the class, whether all replicas are
      being replaced, and the number of replicas on each node;
    - a bucket of nodes: digest of all its nodes.
    """
    book = state.book
    if name == ENGINE_NAME:
        return short_digest((ENGINE, profile))
    if name.startswith(prefix := node_name(state.cluster, "")):
        node = name.removeprefix(prefix)
        return short_digest(
            (sorted(book.on_node.get(node, {})), book.pods.get(node, ()), node in book.closed)
        )
    if name.startswith("binding/"):
        binding = name.removeprefix("binding/").removesuffix(" placement")
        held = book.held.get(binding)
        return (
            ""
            if held is None
            else short_digest((held.desired, held.cls.key, held.replace, _nodes_of(state, binding)))
        )
    bucket = name.removeprefix(nodes_name(state.cluster, 0)[:-1])
    nodes = book.buckets.get(int(bucket)) if bucket.isascii() and bucket.isdecimal() else None
    return "" if nodes is None else short_digest(sorted(nodes.items()))
