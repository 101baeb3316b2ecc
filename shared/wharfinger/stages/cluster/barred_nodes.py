"""Nodes that did not take a pod that was placed there: the pod is placed again, elsewhere.

The answers are facts (`EffectsObserved`): the API server refused the binding, or the kubelet did
not admit the pod. The node is then barred for new pods of the same binding, for `BARRED_US` after
the first failure, twice as long after each further one, and `BARRED_MAX_US` at most. So one bad
node does not make thousands of failed pods (kubernetes#106884). Example: failures at minutes 0, 2
and 5 bar the node until minutes 1, 4 and 9.

A failure while the node is barred is one of a placement from before, and is not counted. A failure
counts as the next one in a row until `REMEMBERED_US` after the last bar ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

import msgspec

from wharfinger.domain.ids import BindingName, ClusterName, NodeName
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.node_facts import NODE_NAME_FIELD
from wharfinger.engine.nodes.occupancy import shares_of
from wharfinger.events.decisions import NodeBarred
from wharfinger.events.effects import EffectAnswer, EffectsObserved
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.answers import released_in_place
from wharfinger.stages.cluster.explain import cut
from wharfinger.stages.cluster.state import BarredNode, ClusterStageState, FailedPlacement

BIND_REFUSED = "BindRefused"
"""Reason of the release of a replica whose pod the API server did not bind. The pod waits on."""

MINUTE_US: Micros = 60_000_000

BARRED_US: Micros = MINUTE_US
BARRED_MAX_US: Micros = 60 * MINUTE_US
REMEMBERED_US: Micros = 60 * MINUTE_US

WORDS_BYTES = 400
"""Of what the server said: it may be of any length."""


# --- facts


def take_answers(state: ClusterStageState, told: EffectsObserved, id: UUID) -> None:
    """Folds answers: what they say against placements is decided about in this round. An answer
    about a replica that is not placed there any more changes nothing."""
    for item in told.items:
        if item.against_placement and item.node in state.book.nodes:
            _take(state, item, id)


def _take(state: ClusterStageState, item: EffectAnswer, id: UUID) -> None:
    key = item.binding, item.node
    before = state.failed.get(key)
    pods = set() if before is None else set(before.pods)
    if item.outcome == "refused":
        if _placed_on(state, item.uid) != item.node:
            return
        pods.add(item.uid)
    reason, message = cut(item.reason, WORDS_BYTES), cut(item.message, WORDS_BYTES)
    event = str(id) if before is None else before.event
    state.failed[key] = FailedPlacement(event, reason, message, tuple(sorted(pods)))


def _placed_on(state: ClusterStageState, uid: str) -> NodeName:
    """Returns the node on which the pod is placed as a replica; "": on none."""
    if uid not in state.book.replica_of:
        return ""
    binding, ordinal = state.book.replica_of[uid]
    return state.book.held[binding].placed[ordinal].node


# --- decisions


def bar_nodes(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Decides about the failures that this round took in: bars the nodes, and releases the replicas
    whose pods were not bound."""
    found: set[tuple[BindingName, NodeName]] = set()
    for (binding, node), failed in sorted(state.failed.items()):
        cause = UUID(failed.event)
        workload = _workload(state, binding)
        before = state.barred.get(workload, {}).get(node)
        if (workload, node) not in found and (before is None or before.until_us <= at):
            found.add((workload, node))
            count = 1 if before is None else before.failures + 1
            until = at + min(BARRED_MAX_US, BARRED_US << min(count - 1, 10))
            data = NodeBarred(
                state.cluster, binding, node, count, until, failed.reason, failed.message
            )
            yield Draft(data, binding, "barred", cause)
        yield from _released(state, binding, node, failed, cause)


def _released(
    state: ClusterStageState,
    binding: BindingName,
    node: NodeName,
    failed: FailedPlacement,
    cause: UUID,
) -> Iterator[Draft]:
    book = state.book
    found: dict[BindingName, list[int]] = {}
    for uid in failed.pods:
        # a fact may be newer than the answer: it runs there
        if _placed_on(state, uid) == node and uid not in book.node_of:
            of, ordinal = book.replica_of[uid]
            # the fleet may have assigned the workload since the pod was placed
            if _workload(state, of) == _workload(state, binding):
                found.setdefault(of, []).append(ordinal)
    for of, ordinals in sorted(found.items()):
        shares = shares_of(book.held[of].placed, sorted(ordinals))
        yield released_in_place(state, of, shares, BIND_REFUSED, cause)


def fold_barred(state: ClusterStageState, data: NodeBarred) -> None:
    state.barred.setdefault(_workload(state, data.binding), {})[data.node] = BarredNode(
        data.failures, data.until_us, data.reason, data.message
    )


# --- what follows


@dataclass(frozen=True, slots=True)
class BarInForce:
    """For readers of decisions. `why`: the sentence of the decision."""

    cluster: ClusterName
    binding: BindingName
    node: NodeName
    failures: int
    until_us: Micros
    why: str


def bar_in_force(decided: Value, at: Micros) -> BarInForce | None:
    """Returns the bar that a decision has set, if it has set one that is in force at `at`."""
    if not isinstance(decided, NodeBarred) or decided.until_us <= at:
        return None
    return BarInForce(
        decided.cluster,
        decided.binding,
        decided.node,
        decided.failures,
        decided.until_us,
        decided.sentence(),
    )


def barred_now(state: ClusterStageState, binding: BindingName) -> Mapping[NodeName, BarredNode]:
    """Returns the nodes on which no pod of the binding is placed now, in order of name."""
    of_workload = state.barred.get(_workload(state, binding))
    if not of_workload:
        return {}
    return {name: bar for name, bar in sorted(of_workload.items()) if bar.until_us > state.at}


def _workload(state: ClusterStageState, binding: BindingName) -> BindingName:
    """Returns the name under which bars are kept. The same pods are replicas of `shop/web@oslo`
    before a binding `shop/web` is assigned to the cluster, and of that one afterwards: the node
    that did not take them stays barred."""
    return binding.removesuffix(f"@{state.cluster}")


def without_barred(
    state: ClusterStageState, binding: BindingName, wants: Requirements
) -> Requirements:
    """Returns the requirements by which nodes are searched for a pod of the binding: its own, and
    none of the barred nodes."""
    names = tuple(barred_now(state, binding))
    if not names:
        return wants
    other = Requirement(NODE_NAME_FIELD, "NotIn", names)
    terms = tuple(
        # a term with nothing in it matches no node, and would with this
        msgspec.structs.replace(term, fields=(*term.fields, other))
        if term.expressions or term.fields
        else term
        for term in wants.node_terms
    )
    if not terms:
        terms = (NodeTerm(fields=(other,)),)
    return msgspec.structs.replace(wants, node_terms=terms)


def said_of_barred(state: ClusterStageState, binding: BindingName) -> str:
    """Returns a sentence with the barred nodes, for people; "": there are none."""
    found = barred_now(state, binding)
    if not found:
        return ""
    said = "; ".join([f"{name} ({why_barred(bar)})" for name, bar in list(found.items())[:3]])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"Barred for this workload: {said}{more}."


def why_barred(bar: BarredNode) -> str:
    return ": ".join([said for said in (bar.reason, bar.message) if said]) or "it took no pod"


def bars_end(state: ClusterStageState) -> Micros | None:
    """Returns when the next node takes pods again; None: none is barred."""
    dues = [bar.until_us for nodes in state.barred.values() for bar in nodes.values()]
    return min((due for due in dues if due > state.at), default=None)


def follow_barred(state: ClusterStageState) -> None:
    """At the end of a round: forgets the failures, which were decided about, the nodes that are
    gone, and bars that ended long ago."""
    state.failed.clear()
    if not state.barred:
        return
    nodes, at = state.book.nodes, state.at
    kept = {
        binding: {
            name: bar
            for name, bar in of_binding.items()
            if name in nodes and bar.until_us + REMEMBERED_US > at
        }
        for binding, of_binding in state.barred.items()
    }
    state.barred = {binding: of_binding for binding, of_binding in kept.items() if of_binding}
