"""Extenders: HTTP services of the user that have a say in where a replica goes, by the protocol of kube-scheduler.

A replica that an extender is interested in is placed by itself, in steps: what the plugins call feasible goes from
filter to filter; what is left is prioritised by all of them; and whoever binds is asked last. Where nothing is
feasible and others would have to go, those that want to be asked say on which nodes they may. Each question is a
decision (`ExtenderAsked`), its answer an input (`ExtenderAnswered`), and between the two the binding waits and
everybody else goes on.

An answer holds for the nodes it was asked about. The cluster moves on meanwhile: a node that is no longer feasible is
passed over, and one that has become so was not asked about; where nothing is left of either, the question is put
again. What was bound is placed where it was bound, whatever has happened since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal
from uuid import UUID

import msgspec

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Extender
from wharfinger.engine.framework import extenders
from wharfinger.engine.framework.messages import unavailable
from wharfinger.engine.framework.status import Status
from wharfinger.engine.nodes.columns import NodeRow
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.occupancy import Held
from wharfinger.engine.nodes.place import Choice
from wharfinger.events.decisions import ExtenderAsked
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Ask, Draft, Micros
from wharfinger.stages.cluster.answers import does_not_fit, lowest_free, placed, refused
from wharfinger.stages.cluster.choosing import (
    extenders_of,
    lacking,
    may_provision,
    placer_of,
    room_kept,
    waits_for_claims,
)
from wharfinger.stages.cluster.picture import wanted_pod
from wharfinger.stages.cluster.preempting import candidates, make_room, may_preempt
from wharfinger.stages.cluster.state import ClusterState, Extending, Question

Verb = Literal["filter", "prioritize", "preempt", "bind"]

_Asking = tuple[Extender, Verb, list[str]]
"""Who is asked what, about which nodes."""

LATER: Mapping[str, tuple[str, ...]] = {
    "filter": ("prioritize", "bind"),
    "prioritize": ("bind",),
    "preempt": (),
    "bind": (),
}
"""What has to be asked anew when a question is."""

_NOTHING = Extending()


def settle_extended(
    state: ClusterState, binding: str, at: Micros, handled: set[str], short: dict[str, int]
) -> Iterator[Draft]:
    """Replica by replica, until a question is open or nothing is missing. `short`: who may have nodes made for it, and for how
    many."""
    held = state.book.held[binding]
    handled.add(binding)
    short.pop(binding, None)
    while lacking(held) > 0:
        match _next(state, binding, held):
            case Choice() as choice:
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
    state: ClusterState, binding: str, held: Held, at: Micros, handled: set[str], short: dict[str, int]
) -> Iterator[Draft]:
    """As for everybody, on the nodes on which the extenders let it happen."""
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


def _agreed(state: ClusterState, binding: str, held: Held) -> frozenset[str] | list[_Asking] | None:
    """The nodes that are left when all were asked, None: nobody wants to be; or what is to be asked first, nothing
    new where that is open. One that cannot answer and may be ignored lets everything happen, one that may not,
    nothing."""
    said = state.extending.get(binding, _NOTHING)
    agreed: frozenset[str] | None = None
    for extender in [e for e in extenders_of(state, held) if e.preempt_verb]:
        question, answer = said.about(extender.url, "preempt")
        if question is None:
            nodes = [c.node for c in candidates(state, binding) if agreed is None or c.node in agreed]
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


_Step = Choice | _Refusal | list[_Asking] | None
"""A node; no; questions to put, none of them new where all are open; or there is no room for a replica at all."""


def _next(state: ClusterState, binding: str, held: Held) -> _Step:
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


def _by_priority(has_say: Sequence[Extender], said: Extending, left: Mapping[str, Choice], held: Held) -> _Step:
    """`left` in the order of the plugins' liking. A failure to prioritise counts as no opinion."""
    asking = [e for e in has_say if e.prioritize_verb]
    heard = [said.about(e.url, "prioritize") for e in asking]
    unasked = [e for e, (question, _) in zip(asking, heard, strict=True) if question is None]
    if unasked:
        return [(e, "prioritize", list(left)) for e in unasked]
    if any(answer is None for _, answer in heard):
        return []
    opinions = [(e.weight, _priorities(answer)) for e, (_, answer) in zip(asking, heard, strict=True)]
    totals = extenders.with_priorities({name: choice.score for name, choice in left.items()}, opinions)
    best = max(totals, key=lambda name: totals[name])  # the first of equals: they stand in order
    choice = left[best]
    binder = next((e for e in has_say if e.bind_verb), None)
    if binder is not None:
        return [] if said.about(binder.url, "bind")[0] is not None else [(binder, "bind", [best])]
    return on_row(choice.row, held, choice.score)


def _bound(state: ClusterState, held: Held, has_say: Sequence[Extender], said: Extending) -> _Step:
    """What came of binding it; None: nobody was asked to."""
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
        return _Refusal(f"extender {binder.url}: {error or f'it was bound to {node}, which is gone'}")
    return on_row(row, held, 0)


def on_row(row: NodeRow, held: Held, score: int) -> Choice:
    """With the devices it gets there; where none are free any more, none."""
    return Choice(row, score, (take_devices(row, held.cls.needs) or ()) if held.cls.needs else ())


class _NoAnswerError(ValueError):
    """In one line."""


def _said(answer: tuple[str, str]) -> str:
    text, error = answer
    if error:
        raise _NoAnswerError(error)
    return text


def _filter_answer(extender: Extender, answer: tuple[str, str]) -> extenders.Filtered:
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
    state: ClusterState, binding: str, held: Held, extender: Extender, verb: Verb, nodes: Sequence[str]
) -> Draft:
    data = ExtenderAsked(state.cluster, binding, held.assignment, extender.url, verb, tuple(nodes))
    return Draft(data, binding, "asked", uuid_of(held.assignment))


# --- what is folded


def take_question(state: ClusterState, asked: ExtenderAsked, decision: UUID) -> None:
    said = state.extending.get(asked.binding, _NOTHING)
    gone = {(asked.extender, asked.verb), *((q.url, q.verb) for q in said.questions if q.verb in LATER[asked.verb])}
    kept = tuple(q for q in said.questions if (q.url, q.verb) not in gone)
    question = Question(str(decision), asked.extender, asked.verb, asked.nodes)
    answers = {q.id: said.answers[q.id] for q in kept if q.id in said.answers}
    state.extending[asked.binding] = Extending((*kept, question), answers)


def take_answer(state: ClusterState, ask: str, answer: str, error: str) -> None:
    """One that nobody waits for any more is passed over."""
    state.open_asks.pop(ask, None)
    for binding, said in state.extending.items():
        if any(question.id == ask for question in said.questions):
            state.extending[binding] = Extending(said.questions, {**said.answers, ask: (answer, error)})
            return


def forget(state: ClusterState, binding: str) -> None:
    """What was said is of the replica that has just been decided about."""
    for question in state.extending.pop(binding, _NOTHING).questions:
        state.open_asks.pop(question.id, None)


# --- what is open


def asks(state: ClusterState) -> list[Ask]:
    """Bodies are made once a question."""
    found: list[Ask] = []
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
                ask = state.open_asks[question.id] = _ask(state, binding, held, question, by_url[question.url])
            found.append(ask)
    return found


def _ask(state: ClusterState, binding: str, held: Held, question: Question, extender: Extender) -> Ask:
    pod = _pod(binding, held)
    if question.verb == "bind":
        return Ask(question.id, extender, extender.bind_verb, extenders.bind_body(pod, question.nodes[0]).decode())
    if question.verb == "preempt":
        victims = {c.node: (c.victims, c.violations) for c in candidates(state, binding) if c.node in question.nodes}
        body = extenders.preempt_body(extender, pod, victims)
        return Ask(question.id, extender, extender.preempt_verb, body.decode())
    verb = extender.filter_verb if question.verb == "filter" else extender.prioritize_verb
    nodes = [state.book.nodes[name] for name in question.nodes if name in state.book.nodes]
    return Ask(question.id, extender, verb, extenders.nodes_body(extender, pod, nodes).decode())


def _pod(binding: str, held: Held) -> Pod:
    """The replica as a pod of its namespace."""
    (ordinal,) = lowest_free(held, 1)
    return msgspec.structs.replace(wanted_pod(held, binding, ordinal), name=f"{binding.rpartition('/')[2]}-{ordinal}")
