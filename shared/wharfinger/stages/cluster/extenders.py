"""Scheduler extenders (HTTP services of the user): how their answers become part of placement.
[kube-scheduler's protocol]

A replica that an extender is interested in is placed alone, in steps: the feasible nodes pass
through the filter of each extender, all extenders score what is left, and the binding extender
binds. Where no node is feasible, extenders with a preempt verb restrict the nodes for preemption.
Each call is a decision (`ExtenderAsked`), its answer an input (`ExtenderAnswered`). Meanwhile the
binding waits and the others continue.

An answer is about certain nodes, and the cluster changes meanwhile. Nodes that became infeasible
are dropped; nodes that became feasible are not in the answer. If nothing is left, the call is made
again. A bound replica is placed where it was bound in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Extender
from wharfinger.engine.framework import extenders
from wharfinger.engine.framework.messages import unavailable
from wharfinger.engine.framework.status import Status
from wharfinger.engine.nodes.columns import NodeRow
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.occupancy import HeldBinding
from wharfinger.engine.nodes.place import NodeChoice
from wharfinger.events.decisions import ExtenderAsked
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Decision, Draft, Micros
from wharfinger.kernel.folds import DecisionFolds
from wharfinger.stages.cluster.answers import does_not_fit, lowest_free, placed, refused
from wharfinger.stages.cluster.framework_view import wanted_pod
from wharfinger.stages.cluster.node_search import (
    extenders_of,
    lacking,
    placer_of,
    room_kept,
    waits_for_claims,
)
from wharfinger.stages.cluster.preemption import candidates, make_room, may_preempt
from wharfinger.stages.cluster.state import (
    ClusterStageState,
    ExtenderQuestion,
    Extending,
    may_provision,
)
from wharfinger.stages.extender_calls import ExtenderCall

Verb = Literal["filter", "prioritize", "preempt", "bind"]

FOLDS = DecisionFolds[ClusterStageState]()
"""The folds of decisions to call an extender."""

_Asking = tuple[Extender, Verb, list[str]]
"""One call: the extender, the verb, and the nodes that it is about."""

LATER: Mapping[str, tuple[str, ...]] = {
    "filter": ("prioritize", "bind"),
    "prioritize": ("bind",),
    "preempt": (),
    "bind": (),
}
"""Verb -> the later verbs whose calls are dropped when a call with this verb is made again."""

_NOTHING = Extending()


def settle_extended(
    state: ClusterStageState, binding: str, at: Micros, handled: set[str], short: dict[str, int]
) -> Iterator[Draft]:
    """Places the missing replicas of one binding that uses scheduler extenders, one replica after
    another.

    Ends in one of four cases. No replica is missing. The answer of an extender has to be awaited.
    An extender refuses: the missing replicas are then refused. The next replica fits on no node:
    preemption is then tried (`_make_room`).

    `handled`: bindings that the round has processed; this binding is added. `short`: binding ->
    number of replicas for which the round requests new nodes; updated here.
    """
    held = state.book.held[binding]
    handled.add(binding)
    short.pop(binding, None)
    while lacking(held) > 0:
        match _next(state, binding, held):
            case NodeChoice() as choice:
                yield from placed(state, binding, [choice])
            case _Refusal(note):
                yield refused(state, binding, lacking(held), "Extender", note)
                return
            case [*questions]:
                yield from [_asked(state, binding, held, *question) for question in questions]
                return
            case None:
                yield from _make_room(state, binding, held, at, handled, short)
                return


def _make_room(
    state: ClusterStageState,
    binding: str,
    held: HeldBinding,
    at: Micros,
    handled: set[str],
    short: dict[str, int],
) -> Iterator[Draft]:
    """Tries preemption for a binding that uses scheduler extenders and whose next replica fits on
    no node. Victims are searched only on nodes that the extenders allow.

    If an extender must be asked first, drafts that call and ends. Also ends while such a call waits
    for its answer. If preemption is not possible, new nodes are requested for the missing replicas
    (through `short`). Where the cluster cannot create nodes, the missing replicas are refused.
    Neither is done for replicas whose node is requested but not there yet.

    `handled`: bindings that the round has processed. After a preemption, this binding and the
    bindings of its victims are removed from it, so that the round processes them again. `short`:
    binding -> number of replicas for which the round requests new nodes.
    """
    agreed = _agreed(state, binding, held) if may_preempt(state, binding) else frozenset[str]()
    if isinstance(agreed, list):
        yield from [_asked(state, binding, held, *question) for question in agreed]
        return
    waiting = waits_for_claims(state, binding)
    room = make_room(state, binding, lacking(held) - waiting, at, agreed)
    yield from room
    if not room and lacking(held) > waiting:
        if may_provision(state):
            short[binding] = lacking(held) - waiting
        else:
            yield does_not_fit(state, binding, lacking(held) - waiting)
    if room:  # who has let go is looked at again, and so is the one they went for
        handled.difference_update([binding, *[draft.subject for draft in room]])


def _agreed(
    state: ClusterStageState, binding: str, held: HeldBinding
) -> frozenset[str] | list[_Asking] | None:
    """Returns the nodes on which all extenders with a preempt verb allow preemption. Example: one
    extender allows a and b, another one b and c: b.

    Returns None if no extender has a preempt verb. Returns a list if an answer is missing: the call
    to make first, or an empty list while a call waits for its answer. If the call of an extender
    failed, the extender allows all nodes of that call if it is `ignorable`, otherwise no node.
    """
    said = state.extending.get(binding, _NOTHING)
    agreed: frozenset[str] | None = None
    for extender in [e for e in extenders_of(state, held) if e.preempt_verb]:
        question, answer = said.about(extender.url, "preempt")
        if question is None:
            nodes = [
                c.node for c in candidates(state, binding) if agreed is None or c.node in agreed
            ]
            return [(extender, "preempt", nodes)] if nodes else frozenset()
        if answer is None:
            return []
        try:
            left = frozenset(extenders.preempt_nodes(_said(answer))) & frozenset(question.nodes)
        except ValueError:
            if not extender.ignorable:
                return frozenset()
            left = frozenset(question.nodes)
        agreed = left if agreed is None else agreed & left
    return agreed


class _Refusal(msgspec.Struct, frozen=True):
    note: str


_Step = NodeChoice | _Refusal | list[_Asking] | None
"""The next step for a replica: a node; a refusal; the calls to make, empty while all needed calls
are open; or None, because the replica fits on no node."""


def _next(state: ClusterStageState, binding: str, held: HeldBinding) -> _Step:
    has_say = extenders_of(state, held)
    said = state.extending.get(binding, _NOTHING)
    if (bound := _bound(state, held, has_say, said)) is not None:
        return bound
    with room_kept(state, binding):
        ranked = placer_of(state, binding).ranked(held.cls, len(state.book.table.rows))
    if not ranked:
        return None
    left = [choice.row.name for choice in ranked]
    why: dict[str, Status] = {}
    for extender in has_say:
        if not extender.filter_verb:
            continue
        question, answer = said.about(extender.url, "filter")
        if question is None:
            return [(extender, "filter", left)]
        if answer is None:
            return []
        try:
            passed, no = extenders.filtered(question.nodes, _filter_answer(extender, answer))
        except ValueError as error:
            if extender.ignorable:
                continue
            return _Refusal(f"extender {extender.url}: {error}")
        why |= no
        passing = frozenset(passed)
        before, left = left, [name for name in left if name in passing]
        if not left:
            if frozenset(before) <= frozenset(question.nodes):
                return _Refusal(f"extenders: {unavailable(len(ranked), why)}")
            return [(extender, "filter", before)]
    by_name = {choice.row.name: choice for choice in ranked}
    return _by_priority(has_say, said, {name: by_name[name] for name in left}, held)


def _by_priority(
    has_say: Sequence[Extender], said: Extending, left: Mapping[str, NodeChoice], held: HeldBinding
) -> _Step:
    """Chooses the node with the highest total score. The total is the score by the scheduler's
    plugins plus, for each extender, its score (0 to 10) times its weight times 10. Example: plugins
    60, one extender with score 7 and weight 2: 60 + 140 = 200. Of equal totals the first node in
    `left` is chosen. An extender whose call failed adds nothing.

    Returns the chosen node, or the calls to make before: first the missing prioritize calls, then
    the bind call if an extender binds pods. The list of calls is empty while a call waits for its
    answer.

    `has_say`: the extenders of the pod. `said`: their calls and answers so far. `left`: node name
    -> choice with its score, for the nodes that passed all filters, best first.
    """
    asking = [e for e in has_say if e.prioritize_verb]
    heard = [said.about(e.url, "prioritize") for e in asking]
    unasked = [e for e, (question, _) in zip(asking, heard, strict=True) if question is None]
    if unasked:
        return [(e, "prioritize", list(left)) for e in unasked]
    if any(answer is None for _, answer in heard):
        return []
    opinions = [
        (e.weight, _priorities(answer)) for e, (_, answer) in zip(asking, heard, strict=True)
    ]
    totals = extenders.with_priorities(
        {name: choice.score for name, choice in left.items()}, opinions
    )
    best = max(totals, key=lambda name: totals[name])  # the first of equals: they stand in order
    choice = left[best]
    binder = next((e for e in has_say if e.bind_verb), None)
    if binder is not None:
        return [] if said.about(binder.url, "bind")[0] is not None else [(binder, "bind", [best])]
    return on_row(choice.row, held, choice.score)


def _bound(
    state: ClusterStageState, held: HeldBinding, has_say: Sequence[Extender], said: Extending
) -> _Step:
    """Returns the result of the bind call to an extender for the next replica of the binding.

    - A choice: the node to which the extender bound the replica.
    - A refusal: the call failed, or the node no longer exists.
    - None: no extender binds pods, or the bind call was not made yet.
    - An empty list: the call waits for its answer.

    `has_say`: the extenders of the pod; `said`: their calls and answers so far.
    """
    binder = next((e for e in has_say if e.bind_verb), None)
    question, answer = said.about(binder.url, "bind") if binder is not None else (None, None)
    if binder is None or question is None:
        return None
    if answer is None:
        return []
    try:
        error = _said(answer) and extenders.bind_answer(_said(answer))
    except ValueError as wrong:
        error = str(wrong)
    (node,) = question.nodes
    row = state.book.table.rows.get(node)
    if error or row is None:
        return _Refusal(
            f"extender {binder.url}: {error or f'it was bound to {node}, which is gone'}"
        )
    return on_row(row, held, 0)


def on_row(row: NodeRow, held: HeldBinding, score: int) -> NodeChoice:
    """Returns the node as a choice for one replica, with the devices that the replica gets there.
    If not enough devices are free, the choice has no devices."""
    return NodeChoice(
        row, score, (take_devices(row, held.cls.needs) or ()) if held.cls.needs else ()
    )


class _NoAnswerError(ValueError):
    """Raised when the call to an extender failed. The message is one line."""


def _said(answer: tuple[str, str]) -> str:
    text, error = answer
    if error:
        raise _NoAnswerError(error)
    return text


def _filter_answer(extender: Extender, answer: tuple[str, str]) -> extenders.ExtenderFilterResult:
    said = extenders.filter_answer(_said(answer), extender)
    if said.error:
        raise _NoAnswerError(said.error)
    return said


def _priorities(answer: tuple[str, str] | None) -> Mapping[str, int]:
    try:
        return extenders.priorities_answer(_said(answer)) if answer is not None else {}
    except ValueError:
        return {}


def _asked(
    state: ClusterStageState,
    binding: str,
    held: HeldBinding,
    extender: Extender,
    verb: Verb,
    nodes: Sequence[str],
) -> Draft:
    data = ExtenderAsked(state.cluster, binding, held.assignment, extender.url, verb, tuple(nodes))
    return Draft(data, binding, "asked", uuid_of(held.assignment))


# --- what is folded


@FOLDS.of(ExtenderAsked)
def take_question(
    state: ClusterStageState, asked: ExtenderAsked, decision: Decision, at: Micros
) -> None:
    said = state.extending.get(asked.binding, _NOTHING)
    gone = {
        (asked.extender, asked.verb),
        *((q.url, q.verb) for q in said.questions if q.verb in LATER[asked.verb]),
    }
    kept = tuple(q for q in said.questions if (q.url, q.verb) not in gone)
    question = ExtenderQuestion(str(decision.id), asked.extender, asked.verb, asked.nodes)
    answers = {q.id: said.answers[q.id] for q in kept if q.id in said.answers}
    state.extending[asked.binding] = Extending((*kept, question), answers)


def take_answer(state: ClusterStageState, ask: str, answer: str, error: str) -> None:
    """Stores the answer to an open extender call. An answer to a call that is not open any more is
    ignored."""
    state.open_asks.pop(ask, None)
    for binding, said in state.extending.items():
        if any(question.id == ask for question in said.questions):
            state.extending[binding] = Extending(
                said.questions, {**said.answers, ask: (answer, error)}
            )
            return


def forget(state: ClusterStageState, binding: str) -> None:
    """Drops the extender calls and answers of a binding, because they concerned a replica that has
    been decided."""
    for question in state.extending.pop(binding, _NOTHING).questions:
        state.open_asks.pop(question.id, None)


# --- what is open


def asks(state: ClusterStageState) -> list[ExtenderCall]:
    """Returns the extender calls that wait for an answer, in order of binding. Calls to extenders
    that are no longer configured are left out. The request body of a call is built once and then
    cached."""
    found: list[ExtenderCall] = []
    for binding, said in sorted(state.extending.items()):
        held = state.book.held.get(binding)
        if held is None:
            continue
        by_url = {extender.url: extender for extender in extenders_of(state, held)}
        for question in said.questions:
            if question.id in said.answers or question.url not in by_url:
                continue
            ask = state.open_asks.get(question.id)
            if ask is None:
                ask = state.open_asks[question.id] = _ask(
                    state, binding, held, question, by_url[question.url]
                )
            found.append(ask)
    return found


def _ask(
    state: ClusterStageState,
    binding: str,
    held: HeldBinding,
    question: ExtenderQuestion,
    extender: Extender,
) -> ExtenderCall:
    pod = _pod(binding, held)
    if question.verb == "bind":
        return ExtenderCall(
            question.id,
            extender,
            extender.bind_verb,
            extenders.bind_body(pod, question.nodes[0]).decode(),
        )
    if question.verb == "preempt":
        victims = {
            c.node: (c.victims, c.violations)
            for c in candidates(state, binding)
            if c.node in question.nodes
        }
        body = extenders.preempt_body(extender, pod, victims)
        return ExtenderCall(question.id, extender, extender.preempt_verb, body.decode())
    verb = extender.filter_verb if question.verb == "filter" else extender.prioritize_verb
    nodes = [state.book.nodes[name] for name in question.nodes if name in state.book.nodes]
    return ExtenderCall(
        question.id, extender, verb, extenders.nodes_body(extender, pod, nodes).decode()
    )


def _pod(binding: str, held: HeldBinding) -> Pod:
    """Returns the next missing replica as a pod in its namespace."""
    (ordinal,) = lowest_free(held, 1)
    return msgspec.structs.replace(
        wanted_pod(held, binding, ordinal), name=f"{binding.rpartition('/')[2]}-{ordinal}"
    )
