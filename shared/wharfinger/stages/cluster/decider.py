"""The rules of a cluster stream, as a `kernel.decider.Decider`.

For each binding that has something open, by priority and then by arrival: what has to go is released, what is missing is
placed on the lowest free ordinals, and what fits nowhere is refused, once and for good: the fleet stage asks again when it
wants to. Requirements that changed replace every replica: all are released, then placed anew in the same round; a
replica whose new shape fits nowhere is refused, it does not keep its old place.

A node that disappeared, or that carries a NoExecute taint its replicas do not (any longer) bear, loses them; they are placed
again elsewhere or refused. Nothing is decided about nodes before every bucket of them has been seen: an unknown cluster
is not an empty one, and a fleet that keeps its own schedulers never reports nodes and gets no node decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import Self
from uuid import UUID

from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.domain.value import Value
from wharfinger.engine.nodes.columns import Ties
from wharfinger.engine.nodes.fit import most_common
from wharfinger.engine.nodes.occupancy import Held, Replica, shares_of, taint_name
from wharfinger.engine.nodes.place import Choice, Diagnosis
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.decisions import (
    NodeRemovalDecided,
    NodeShare,
    PlanCommitted,
    PlanRefused,
    ProposalRefused,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.events.envelope import Event, derived_id, uuid_of
from wharfinger.events.plans import PlanRequested, Step
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.events.streams import FLEET
from wharfinger.kernel.decider import Decision, Draft, Micros
from wharfinger.kernel.step import number
from wharfinger.stages.cluster.explain import NAMED, explained
from wharfinger.stages.cluster.plans import TRIAL, answer_plans, expectation
from wharfinger.stages.cluster.profile import ClusterProfile
from wharfinger.stages.cluster.state import ClusterState, dump, empty_state, load

REPLICAS_MAX = 200_000
"""Replicas of one binding in one cluster; Kubernetes itself supports 150,000 pods a cluster. More are refused untried."""

SHARE_MAX = 10_000
"""Replicas in one decision: it has to fit into one message."""

NODE_GONE, TAINTED, REQUIREMENTS_CHANGED, SCALED_DOWN = (
    "NodeGone",
    "NoExecuteTaint",
    "RequirementsChanged",
    "ScaledDown",
)

_SECOND = 1_000_000


class ClusterDecider:
    """Decides one cluster stream. Holds settings only; everything else is in the state. `ties`: of a history whose names
    were replaced."""

    def __init__(self, profile: ClusterProfile | None = None, ties: Ties | None = None) -> None:
        self._profile = profile or ClusterProfile()
        self._ties = ties

    @classmethod
    def of_profile(cls, text: str, ties: Ties | None = None) -> Self:
        """As a recorded round names it; the default one where the text is unknown."""
        return cls(ClusterProfile.of(text), ties)

    @property
    def profile(self) -> str:
        return self._profile.text

    def initial(self, stream: str) -> ClusterState:
        return empty_state(stream, self._profile.strategy, self._ties)

    def dump(self, state: ClusterState) -> dict[str, bytes]:
        return dump(state)

    def load(self, stream: str, sections: Mapping[str, bytes]) -> ClusterState:
        return load(stream, sections, self._profile.strategy, self._ties)

    # --- fold

    def fold_input(self, state: ClusterState, event: Event[Value], at: Micros) -> None:
        match event.data:
            case NodesObserved() as nodes if nodes.cluster == state.cluster:
                _observe_nodes(state, nodes, event.id, at)
            case PodsObserved() as pods if pods.cluster == state.cluster:
                state.book.observe_pods(pods)
            case AssignmentsDecided() as decided if decided.cluster == state.cluster:
                _take_assignments(state, decided)
            case NodeRemovalProposed() as proposed if proposed.stream == state.stream:
                state.proposals.setdefault(str(event.id), proposed)
            case PlanRequested() as request if request.stream == state.stream:
                state.requested.setdefault(event.id, request)
            case _:
                pass  # ticks bring only the time; anything else is not for this stream

    def fold_decision(self, state: ClusterState, decision: Decision, at: Micros) -> None:
        book = state.book
        match decision.data:
            case ReplicasPlaced() as placed:
                book.place(placed.binding, placed.placed, placed.requirements, at)
            case ReplicasRefused() as refused:
                book.refuse(refused.binding, refused.assignment, refused.count)
            case ReplicasReleased() as released:
                book.release(released.binding, released.released, released.unbound)
                _forget_causes(state)
            case NodeRemovalDecided() as removed:
                book.close(removed.node)
                _forget_proposal(state, removed.proposal)
            case ProposalRefused() as refused_proposal:
                _forget_proposal(state, refused_proposal.proposal)
            case PlanCommitted() if decision.cause is not None:
                _carry_out(state, state.requested.pop(decision.cause).steps, decision.id, at)
            case PlanRefused() if decision.cause is not None:
                del state.requested[decision.cause]
            case _:
                raise AssertionError(f"{state.stream} cannot have decided {decision.type}")

    def is_news(self, state: ClusterState, event: Event[Value]) -> bool:
        data = event.data
        if isinstance(data, AssignmentsDecided):
            return data.through > state.seen.get(data.stream, 0)
        return True

    # --- decide

    def decide(self, state: ClusterState, at: Micros) -> Iterator[Draft]:
        yield from _by_the_rules(state, at)
        if state.requested:
            rules = partial(_by_the_rules, state, at)
            yield from answer_plans(state, partial(self._try, state, at), rules, self.profile)

    def expectation(self, state: ClusterState, request: PlanRequested, at: Micros) -> PlanRequested:
        """A plan's request with what would come of it now. Changes nothing."""
        return expectation(state, request, partial(self._try, state, at), self.profile)

    def _try(self, state: ClusterState, at: Micros, steps: Sequence[Step]) -> tuple[ClusterState, Sequence[Draft]]:
        other = self.load(state.stream, self.dump(state))
        _carry_out(other, steps, TRIAL, at)
        drafts: list[Draft] = []
        for draft in _by_the_rules(other, at):
            drafts.append(draft)
            self.fold_decision(other, number(draft, state.stream, len(drafts)), at)
        return other, drafts

    def rest(self, state: ClusterState, decisions: int, profile: str) -> None:
        """What is open stands in the book; nothing else is remembered between rounds."""

    def next_due(self, state: ClusterState) -> Micros | None:
        if not state.book.known:
            return None
        return min((due for *_, due in _tainted_replicas(state)), default=None)


def _by_the_rules(state: ClusterState, at: Micros) -> Iterator[Draft]:
    """All that is decided but plans; what comes of a plan is decided by the same."""
    if state.book.known:
        yield from _release_driven_away(state, at)
        for binding in _in_order(state, state.book.unsettled):
            yield from _settle(state, binding)
    yield from _answer_proposals(state)


def _carry_out(state: ClusterState, steps: Sequence[Step], cause: UUID, at: Micros) -> None:
    """Take the steps of a plan as if they had come by themselves."""
    for place, taken in enumerate(steps):
        match taken.data:
            case NodesObserved() as nodes:
                _observe_nodes(state, nodes, cause, at)
            case NodeRemovalProposed() as proposed:
                id = str(derived_id("step", str(cause), place))
                state.proposals[id], state.on_behalf[id] = proposed, cause
            case _:
                raise AssertionError(f"{type(taken.data).__name__} is no step of a cluster stream")


def _take_assignments(state: ClusterState, decided: AssignmentsDecided) -> None:
    """A fleet stream's items in order of seq; what was seen before is skipped, and our own decisions come back ignored."""
    if not decided.stream.startswith(FLEET):
        return
    last = state.seen.get(decided.stream, 0)
    highest = last
    for item in decided.items:
        if item.seq <= last:
            continue
        highest = max(highest, item.seq)
        if isinstance(item, Assigned):
            state.book.assign(
                item.binding, item.uid, item.decision, item.replicas, item.requirements, item.priority
            )  # fmt: skip
    if highest > last:
        state.seen[decided.stream] = highest


def _in_order(state: ClusterState, bindings: Mapping[str, object]) -> list[str]:
    """Priority first, then arrival."""
    held = state.book.held

    def place_in_queue(binding: str) -> tuple[int, int, str]:
        return (-held[binding].priority, held[binding].arrival, binding)

    return sorted(bindings, key=place_in_queue)


# --- replicas whose node drives them away


def _observe_nodes(state: ClusterState, nodes: NodesObserved, id: UUID, at: Micros) -> None:
    """Take a bucket in, and remember it as the cause where it may drive replicas away."""
    book = state.book
    before = set(book.lost)
    if not book.observe_nodes(nodes, at):
        return
    for node in nodes.nodes:
        if node.name in book.taint_since:
            state.causes[node.name] = str(id)
    for name in sorted(book.lost - before):
        state.causes[name] = str(id)
    _forget_causes(state)


def _forget_causes(state: ClusterState) -> None:
    book = state.book
    for name in [n for n in state.causes if n not in book.lost and n not in book.taint_since]:
        del state.causes[name]


def _release_driven_away(state: ClusterState, at: Micros) -> Iterator[Draft]:
    """One release a binding and reason, all its nodes in it."""
    book = state.book
    going: dict[str, dict[tuple[str, str], list[int]]] = {}
    for name in sorted(book.lost):
        for binding, ordinal in book.on_node[name]:
            why = (NODE_GONE, state.causes.get(name, ""))
            going.setdefault(binding, {}).setdefault(why, []).append(ordinal)
    for binding, ordinal, name, due in _tainted_replicas(state):
        if due <= at:
            why = (TAINTED, state.causes.get(name, "") if due == 0 else "")
            going.setdefault(binding, {}).setdefault(why, []).append(ordinal)
    for binding in _in_order(state, going):
        for (reason, cause), ordinals in sorted(going[binding].items()):
            yield from _released(state, binding, sorted(ordinals), reason, uuid_of(cause))


def _tainted_replicas(state: ClusterState) -> Iterator[tuple[str, int, str, Micros]]:
    """(binding, ordinal, node, until when the node's NoExecute taints are borne) for each replica that has an end to it."""
    book = state.book
    for name in sorted(book.taint_since):
        for (binding, ordinal), replica in book.on_node.get(name, {}).items():
            until = _borne_until(state, name, replica)
            if until is not None:
                yield binding, ordinal, name, until


def _borne_until(state: ClusterState, name: str, replica: Replica) -> Micros | None:
    """0: not at all. None: for ever. A limited time runs from the taint, or from the placing if that was later."""
    since = state.book.taint_since[name]
    ends: list[Micros] = []
    for taint in state.book.nodes[name].taints:
        if taint.effect != "NoExecute":
            continue
        matching = [t for t in replica.cls.requirements.tolerations if t.tolerates(taint)]
        limits = [t.seconds for t in matching if t.seconds is not None]
        if not matching or any(s <= 0 for s in limits):
            return 0
        if limits:
            ends.append(max(since[taint_name(taint)], replica.at) + min(limits) * _SECOND)
    return min(ends, default=None)


# --- one binding


def _settle(state: ClusterState, binding: str) -> Iterator[Draft]:
    held = state.book.held.get(binding)
    if held is None:
        return
    cause = uuid_of(held.assignment)
    if held.replace:
        yield from _released(state, binding, sorted(held.placed), REQUIREMENTS_CHANGED, cause)
    if len(held.placed) > held.desired:
        surplus = sorted(held.placed)[held.desired :]
        yield from _released(state, binding, surplus, SCALED_DOWN, cause)
    if len(held.placed) < held.desired:
        yield from _place(state, binding, held, cause)
    if len(held.placed) < held.desired:
        yield _refused(state, binding, held, cause)


def _released(
    state: ClusterState, binding: str, ordinals: Sequence[int], reason: str, cause: UUID | None
) -> Iterator[Draft]:
    held = state.book.held[binding]
    for start in range(0, len(ordinals), SHARE_MAX):
        shares = shares_of(held.placed, ordinals[start : start + SHARE_MAX])
        released = ReplicasReleased(state.cluster, binding, held.assignment, shares, reason=reason)
        yield Draft(released, binding, "released", cause)


def _place(state: ClusterState, binding: str, held: Held, cause: UUID | None) -> Iterator[Draft]:
    placer, cls = state.placer, held.cls
    diagnosis = placer.diagnose(cls)
    if not diagnosis.feasible:
        return
    ranked = placer.ranked(cls, NAMED + 1)
    limit = min(held.desired, REPLICAS_MAX) - len(held.placed)
    choices = ranked[:1] if limit == 1 else _choices(state, held, limit)
    explanation = explained(diagnosis, choices, ranked[1:])
    ordinals = _lowest_free(held, len(choices))
    for start in range(0, len(choices), SHARE_MAX):
        shares = _shares(choices[start : start + SHARE_MAX], ordinals[start : start + SHARE_MAX])
        placed = ReplicasPlaced(
            state.cluster, binding, held.assignment, shares, cls.requirements, explanation
        )  # fmt: skip
        yield Draft(placed, binding, "placed", cause)


def _lowest_free(held: Held, wanted: int) -> list[int]:
    if not held.placed:
        return list(range(wanted))
    return list(islice((i for i in count() if i not in held.placed), wanted))


def _choices(state: ClusterState, held: Held, limit: int) -> list[Choice]:
    """Nodes for the missing replicas, each chosen in sight of the last. The table is left as it was: what is decided is
    charged when the decision is folded."""
    cls = held.cls
    choices = list(state.placer.fill(cls, limit))
    by_node: dict[str, list[Choice]] = {}
    for choice in choices:
        by_node.setdefault(choice.row.name, []).append(choice)
    for on_node in by_node.values():
        back = [(index, -milli) for choice in on_node for index, milli in choice.devices]
        state.book.table.charge(on_node[0].row, cls.amounts, -len(on_node), back)
    return choices


def _shares(choices: Sequence[Choice], ordinals: Sequence[int]) -> tuple[NodeShare, ...]:
    """Nodes in the order in which they were first chosen."""
    if len(choices) == 1:
        (choice,) = choices
        return (NodeShare(choice.row.name, tuple(ordinals), (choice.devices,) if choice.devices else ()),)
    by_node: dict[str, list[int]] = {}
    for at, choice in enumerate(choices):
        by_node.setdefault(choice.row.name, []).append(at)
    return tuple(
        NodeShare(
            name,
            tuple([ordinals[at] for at in chosen]),
            tuple([choices[at].devices for at in chosen]) if choices[chosen[0]].devices else (),
        )
        for name, chosen in by_node.items()
    )


def _refused(state: ClusterState, binding: str, held: Held, cause: UUID | None) -> Draft:
    diagnosis = state.placer.diagnose(held.cls)
    refused = ReplicasRefused(
        state.cluster, binding, held.assignment, held.desired - len(held.placed), held.cls.key,
        most_common(diagnosis.refused), explained(diagnosis, note=_note(diagnosis)),
    )  # fmt: skip
    return Draft(refused, binding, "refused", cause)


def _note(diagnosis: Diagnosis) -> str:
    if not diagnosis.candidates:
        return "the cluster has no nodes"
    if diagnosis.feasible:
        return f"one binding is given at most {REPLICAS_MAX} replicas in a cluster"
    return ""


# --- proposals


def _answer_proposals(state: ClusterState) -> Iterator[Draft]:
    """After placing, so that a node that has just been given replicas is not taken away from under them."""
    for id, proposed in list(state.proposals.items()):
        no, cause = _why_not_remove(state, proposed), state.on_behalf.get(id) or uuid_of(id)
        if no is None:
            removed = NodeRemovalDecided(state.cluster, proposed.node, proposed.reason, id)
            yield Draft(removed, proposed.node, "removed", cause)
        else:
            reason, detail = no
            refused = ProposalRefused(id, "NodeRemovalProposed", proposed.node, reason, detail)
            yield Draft(refused, proposed.node, "refused", cause)


def _forget_proposal(state: ClusterState, id: str) -> None:
    state.proposals.pop(id, None)
    state.on_behalf.pop(id, None)


def _why_not_remove(state: ClusterState, proposed: NodeRemovalProposed) -> tuple[ProposalRefusal, str] | None:
    book, name = state.book, proposed.node
    if proposed.cluster != state.cluster:
        return "UnknownTarget", "the node is said to be in another cluster"
    if not book.known:
        return "UnknownTarget", "not all nodes of the cluster have been seen yet"
    if name not in book.nodes:
        return "UnknownTarget", "no such node"
    if name in book.closed:
        return "NothingToDo", "the node is closed already"
    if name in book.on_node or name in book.pods:
        return "NodeNotEmpty", f"{len(book.on_node.get(name, {}))} placed, {len(book.pods.get(name, ()))} observed"
    return None
