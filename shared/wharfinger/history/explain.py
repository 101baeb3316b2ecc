"""Why a binding is where it is: the recorded explanation, and its details, which are computed
again.

The ledger records only a short explanation with a decision. The rest is not stored: this one
decision is replayed on the state of that time, and its trace shows every step in full, with the
result for every cluster or node. If the replay reproduces the recorded bytes, the state was the
right one. If it does not, the result says so, and names the engine version that decided then.

A request that waits has no decision yet. Why it waits, and until when at the latest, follows from
the state after the last round (`stages.fleet.request_wait`), which is folded in the same way.

The cost does not grow with the history or with the number of bindings. Only the part of the fleet
state that concerns the binding is loaded (`stages.fleet.focus`): the nearest small sections, the
newest version of that binding, and from the rounds since then only the events that concern it. The
same holds for a cluster's state (`stages.cluster.focus`). The whole state is loaded only if this
part does not reproduce the recorded bytes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.engine.fleet.decide import decide
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.decisions import (
    BindingEnd,
    Explanation,
    NodesDecision,
    ScheduleAnswer,
    as_decision,
    effect_of,
    explanation_of,
)
from wharfinger.events.streams import CLUSTER, FLEET, INTAKE, fleet_stream
from wharfinger.history.names import NEAR_MAX, UnknownNameError, full_name, requested_name
from wharfinger.history.points import HistoryPoint, round_of
from wharfinger.history.timeline import in_order
from wharfinger.history.unsupported_fields import unacted_at
from wharfinger.kernel.decider import Decider, Decision, Micros
from wharfinger.kernel.divergence import reworded
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.step import ENGINE, number
from wharfinger.runtime.ledger import Ledger, LedgerError, LedgerRow, causality, decision_queries
from wharfinger.runtime.ledger.decision_queries import Glimpse, SubjectQuery
from wharfinger.runtime.ledger.snapshots import StoredSnapshot
from wharfinger.stages.cluster import ClusterDecider, ClusterStageState
from wharfinger.stages.cluster import focus as cluster_focus
from wharfinger.stages.cluster import trace as cluster_trace
from wharfinger.stages.cluster.trace import NodesTrace
from wharfinger.stages.fleet import FleetDecider, FleetState, saved, saved_bindings, selection_trace
from wharfinger.stages.fleet import trace as fleet_trace
from wharfinger.stages.fleet.focus import (
    ASKING,
    CARRYING_OUT,
    REQUESTS,
    SCHEDULED,
    FleetFocus,
    earlier,
)
from wharfinger.stages.fleet.request_wait import RequestWait, needs_others
from wharfinger.stages.fleet.selection_trace import SelectionsTrace
from wharfinger.stages.fleet.solve import question_of
from wharfinger.stages.fleet.state import BindingState
from wharfinger.stages.fleet.state.quotas import EXCEEDED
from wharfinger.stages.fleet.state.selections import is_selection, key_of
from wharfinger.stages.fleet.trace import FleetTrace

HISTORY = 30
"""Of a binding's decisions so many are shown, the latest."""

NODES_MAX = 100
"""At most so many cluster decisions that a fleet decision led to are shown with it."""

STILL_OPEN = "its request was still to be answered"
"""Why nothing was decided about a binding with an open request."""


@dataclass(frozen=True, slots=True)
class Again:
    """The result of replaying the decision. `same`: reproduced byte for byte. `reworded`:
    reproduced, apart from the explanation, which another version recorded. `engine`: the version
    that decided then. `replayed`: the bytes of the replay, where they differ; empty: the replay
    made no decision about the subject. `whole`: the whole state was needed. `retired`: not
    replayed, because the history before it was retired and only the decision itself is kept."""

    same: bool
    engine: str
    replayed: bytes = b""
    whole: bool = False
    retired: bool = False
    reworded: bool = False

    @property
    def reproduced(self) -> bool:
        return self.same or self.reworded

    @property
    def own_engine(self) -> bool:
        return self.engine == ENGINE


@dataclass(frozen=True, slots=True)
class Derived:
    """`row`: the decision; `again`: the result of its replay. `trace`: the steps of the replay.
    None: no cluster or node was considered (a release, an early refusal), or the replay differs
    from the record."""

    row: LedgerRow
    data: Value
    again: Again
    trace: FleetTrace | NodesTrace | SelectionsTrace | None = None

    @property
    def recorded(self) -> Explanation | None:
        return explanation_of(self.data)


@dataclass(frozen=True, slots=True)
class Steady:
    """A moment at which nothing was decided about it. `rule`: why not. `held`: what it had.
    `fresh`: what a decision would have given that was asked for then; None: that would have been
    refused, for `reason`. `trace`: of that decision. `avoided`: there was nothing to be done about
    it, which Karmada's community calls AvoidSchedule."""

    stream: str
    round: int
    at: Micros
    rule: str
    held: Mapping[str, int]
    fresh: Mapping[str, int] | None = None
    reason: str = ""
    trace: FleetTrace | None = None
    avoided: bool = False

    @property
    def would_move(self) -> bool:
        return self.fresh is not None and dict(self.fresh) != dict(self.held)


@dataclass(frozen=True, slots=True)
class Explained:
    """`decision`: the one explained, or the last before the moment asked for. `steady`: where
    nothing was decided at that moment. `on_nodes`: what the clusters made of a fleet decision;
    `nodes`: the same derived, where asked for. `history`: the latest decisions about the binding in
    order of time, `total` how many there are. `unacted`: whose manifest -> the fields of it that
    are accepted and not acted on. `waiting`: why its present request is not decided yet; None:
    there is no such request."""

    binding: str
    decision: Derived
    steady: Steady | None
    on_nodes: tuple[LedgerRow, ...]
    nodes: tuple[Derived, ...]
    history: tuple[LedgerRow, ...]
    total: int
    unacted: Mapping[str, tuple[str, ...]]
    waiting: RequestWait | None = None


@dataclass(frozen=True, slots=True)
class Undecided:
    """A binding that was requested and about which nothing has been decided. `rule`: why not.
    `stream`: the fleet stream that decides about it. `round`, `at`: its last round at the moment
    asked for. `waiting`: what the request waits for; None where `rule` says all. `unacted`: as in
    `Explained`."""

    binding: str
    stream: str
    round: int
    at: Micros
    rule: str
    waiting: RequestWait | None
    unacted: Mapping[str, tuple[str, ...]]


async def explain(
    ledger: Ledger,
    binding: str,
    at: HistoryPoint | None = None,
    decision: UUID | None = None,
    every: bool = False,
) -> Explained:
    """As `account`, of a binding that was decided about. UnknownNameError: it was not."""
    found = await account(ledger, binding, at, decision, every)
    if isinstance(found, Undecided):
        raise UnknownNameError(f"nothing has been decided about {found.binding}: {found.rule}")
    return found


async def account(
    ledger: Ledger,
    binding: str,
    at: HistoryPoint | None = None,
    decision: UUID | None = None,
    every: bool = False,
) -> Explained | Undecided:
    """Of the latest decision, of the one with an id, or of a moment; and, without an id, of the
    request that waits then. `every`: what the clusters made of the decision is derived, too.

    UnknownNameError: no such binding, or no such decision about it; PointError: no such moment.
    """
    with _uncollected():
        return await _account(ledger, binding, at, decision, every)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic collector, which finds nothing here: what an explanation makes are trees
    of values, freed as it ends. Their number alone would set off full collections that walk all the
    process has loaded, for longer than one takes."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


async def _account(
    ledger: Ledger, binding: str, at: HistoryPoint | None, decision: UUID | None, every: bool
) -> Explained | Undecided:
    try:
        name, stream = await _meant(ledger, binding, decision)
    except UnknownNameError:
        found = await _undecided(ledger, binding, at) if decision is None else None
        if found is None:
            raise
        return found
    steady: Steady | None = None
    waiting: RequestWait | None = None
    if decision is not None:
        row = await _named(ledger, name, decision)
    else:
        moment = await round_of(ledger, stream, at or HistoryPoint("now"))
        last = await _last(ledger, name, stream, moment)
        if last is None:
            return await _before_its_first(ledger, name, stream, moment, at)
        row = last
        quiet = at is not None and row.round != moment and stream.startswith(FLEET)
        if quiet or await _may_wait(ledger, row, moment):
            after = None if is_selection(name) else await _fleet_after(ledger, stream, name, moment)
            if quiet:
                steady = await _steady(ledger, name, row, moment, after)
            if after is not None:
                waiting = await _waiting(ledger, name, stream, after)
    on_nodes = await _on_nodes(ledger, name, row)
    history = await causality.latest_about(ledger.database, name, HISTORY)
    total = (
        len(history)
        if len(history) < HISTORY
        else await causality.count_about(ledger.database, name)
    )
    return Explained(
        name,
        await derive(ledger, row),
        steady,
        on_nodes,
        tuple([await derive(ledger, made) for made in on_nodes]) if every else (),
        tuple(in_order(history)),
        total,
        await unacted_at(ledger, name, row.at),
        waiting,
    )


async def derive(ledger: Ledger, row: LedgerRow, focused: bool = True) -> Derived:
    """One decision about a binding, taken again. `focused` False: on the whole state at once, which
    gives the same, later."""
    base = (await ledger.bases()).get(row.stream)
    if base is not None and row.round <= base.round:
        return Derived(row, row.data(), Again(False, "", retired=True))
    if row.stream.startswith(FLEET):
        return await _derive_fleet(ledger, row, focused)
    if row.stream.startswith(CLUSTER):
        return await _derive_cluster(ledger, row, focused)
    raise LedgerError(f"{row.stream} decides nothing that could be explained")


# --- which decision


async def _meant(ledger: Ledger, name: str, decision: UUID | None) -> tuple[str, str]:
    """A binding, by as much of its name as only one has; or what a cluster decided about under just
    this name: a node, a claim, a command."""
    if not await causality.decided_about(ledger.database, name, FLEET):
        match await decision_queries.streams_of(ledger.database, name, CLUSTER):
            case [only]:
                return name, only
            case [first, *_] if decision is not None:
                return name, first  # which one is meant is said by the decision
            case [_, *_] as several:
                found = ", ".join(stream.removeprefix(CLUSTER) for stream in several[:NEAR_MAX])
                raise LedgerError(
                    f"{name}: expected a name of one cluster, or a decision; it is one in {found}"
                )
    full = await full_name(ledger, name)
    stream = await decision_queries.shard_of(ledger.database, full)
    assert stream is not None, "a full name has decisions"
    return full, stream


async def _named(ledger: Ledger, name: str, id_: UUID) -> LedgerRow:
    row = await ledger.decision(id_)
    if row is None or row.subject != name:
        raise UnknownNameError(f"no decision about {name} has the id {id_}")
    return row


async def _last(ledger: Ledger, name: str, stream: str, moment: int) -> LedgerRow | None:
    seq = (await ledger.head_at(stream, moment)).seq
    return await decision_queries.last_until(ledger.database, name, stream, seq)


async def _on_nodes(ledger: Ledger, name: str, row: LedgerRow) -> tuple[LedgerRow, ...]:
    if not isinstance(row.data(), ScheduleAnswer):
        return ()
    made = await causality.caused_about(ledger.database, [name], [row.id], NODES_MAX)
    return tuple(r for r in made if r.stream.startswith(CLUSTER))


# --- a fleet decision


async def _derive_fleet(ledger: Ledger, row: LedgerRow, focused: bool) -> Derived:
    if is_selection(row.subject):
        # of placements the whole state is small, and none is there without the others
        return await _again_whole(ledger, row) or Derived(
            row, row.data(), Again(False, "", retired=True)
        )
    if not focused and (whole := await _again_whole(ledger, row)) is not None:
        return whole
    focus, last = await _focused(ledger, row.stream, row.subject, row.round, row.seq)
    found = _again_fleet(focus.state, row, last)
    if not found.again.reproduced:
        found = await _again_whole(ledger, row) or found
    return found


async def _focused(
    ledger: Ledger, stream: str, binding: str, last: int, before_seq: int | None
) -> tuple[FleetFocus, Glimpse]:
    """The state after round `last`, or within it before the decision `before_seq`; and that
    round."""
    snapshot = await ledger.nearest_snapshot(stream, last - 1, saved.SHARED)
    if snapshot is None:
        state, begin = FleetState(stream), 0
    else:
        begin = snapshot.round
        bucket = saved_bindings.bucket_of(binding)
        version = await ledger.newest_version(
            stream, begin, bucket, saved_bindings.name_hash(binding)
        )
        own = None if version is None else saved_bindings.binding_in(version, binding)
        state = saved.load(
            stream, snapshot.sections if own is None else {**snapshot.sections, bucket: own}
        )
    wanted = SubjectQuery(binding, naming=REQUESTS, skimmed=SCHEDULED)
    rounds = await decision_queries.glimpses(ledger.database, stream, begin + 1, last, wanted)
    decisions = [
        d for seen in rounds for d in seen.decisions if before_seq is None or d.seq < before_seq
    ]
    first_seq = (await ledger.head_at(stream, begin)).seq + 1
    before = await decision_queries.requirements_before(
        ledger.database, stream, earlier(binding, decisions), first_seq
    )
    focus = FleetFocus(state, binding, before)
    for seen in rounds:
        focus.fold(
            seen.at,
            seen.events,
            [d for d in seen.decisions if before_seq is None or d.seq < before_seq],
        )
    return focus, rounds[-1]


def _again_fleet(state: FleetState, row: LedgerRow, last: Glimpse) -> Derived:
    """Replays one decision. The earlier decisions of its round are folded as recorded, so the
    decider's next decision about the binding is this one."""
    decider = FleetDecider.of_profile(last.profile)
    state.proposals.plans.clear()
    state.questions = []
    recorded = next(d for d in last.decisions if d.seq == row.seq)
    made: Decision | None = None
    for draft in decider.decide(state, last.at):
        if draft.subject == row.subject:
            made = number(draft, row.stream, row.seq)
            break
    return _compared(row, recorded, made, last.engine, _fleet_trace(state, made))


def _fleet_trace(state: FleetState, made: Decision | None) -> FleetTrace | None:
    if made is None or not state.questions:
        return None
    if as_decision(made.data).refusal() == EXCEEDED:
        # the clusters would have had it: what was in the way is in the note, with its numbers
        return None
    record = state.bindings.get(made.subject)
    if record is None:
        return None
    return fleet_trace.trace(state, record, state.questions[-1])


def _compared(
    row: LedgerRow,
    recorded: Decision,
    made: Decision | None,
    engine: str,
    trace: FleetTrace | NodesTrace | SelectionsTrace | None,
    whole: bool = False,
) -> Derived:
    same = made is not None and made.body == recorded.body and made.cause == recorded.cause
    other = made is not None and not same and engine != ENGINE and reworded([recorded], [made])
    again = Again(same, engine, b"" if made is None or same else made.body, whole, reworded=other)
    return Derived(row, recorded.data, again, trace if again.reproduced else None)


async def _again_whole(ledger: Ledger, row: LedgerRow) -> Derived | None:
    """With every binding in the state, and everything of the round decided again up to this
    decision. None: there is no whole state to begin at any more."""
    (last,) = [
        recorded async for recorded in ledger.recorded_rounds(row.stream, row.round, row.round)
    ]
    decider = FleetDecider.of_profile(last.round.profile)
    try:
        state = await _whole_state(ledger, decider, row.stream, row.round - 1)
    except LedgerError:
        return None
    made = _up_to(decider, state, last, row.seq)
    recorded = next(d for d in last.round.decisions if d.seq == row.seq)
    trace = (
        _selection_trace(state, row, last.round.at)
        if is_selection(row.subject)
        else _fleet_trace(state, made)
    )
    return _compared(row, recorded, made, last.round.engine, trace, whole=True)


def _selection_trace(state: FleetState, row: LedgerRow, at: Micros) -> SelectionsTrace | None:
    return (
        None
        if state.selections is None
        else selection_trace.trace(state.selections, key_of(row.subject), at)
    )


async def _whole_state(ledger: Ledger, decider: Decider[Any], stream: str, after: int) -> Any:
    snapshot = await ledger.latest_snapshot(stream, after)
    state = decider.initial(stream) if snapshot is None else decider.load(stream, snapshot.sections)
    begin = 0 if snapshot is None else snapshot.round
    if begin < after:
        async for recorded in ledger.recorded_rounds(stream, begin + 1, after):
            state = recover(decider, state, (recorded,))
    if isinstance(state, FleetState):
        state.questions = []
    return state


def _up_to(decider: Decider[Any], state: Any, last: RecordedRound, seq: int) -> Decision | None:
    """The decision `seq` of the round, decided again with all before it; the state is as it was
    when it was decided."""
    at = last.round.at
    for event in last.events:
        decider.fold_input(state, event, at)
    for place, draft in enumerate(decider.decide(state, at), last.round.first_seq):
        made = number(draft, last.round.stream, place)
        if place == seq:
            return made
        decider.fold_decision(state, made, at)
    return None


# --- a cluster's decision


async def _derive_cluster(ledger: Ledger, row: LedgerRow, focused: bool) -> Derived:
    snapshot = await ledger.nearest_snapshot(row.stream, row.round - 1)
    found = await _focused_cluster(ledger, row, snapshot) if focused else None
    if found is not None and found.again.reproduced:
        return found
    return await _whole_cluster(ledger, row, snapshot, instead=found is not None)


async def _focused_cluster(
    ledger: Ledger, row: LedgerRow, snapshot: StoredSnapshot | None
) -> Derived | None:
    """None: there is more to follow than a focus does."""
    begin, sections = (0, None) if snapshot is None else (snapshot.round, snapshot.sections)
    wanted = SubjectQuery(
        row.subject, naming=(cluster_focus.ASSIGNMENTS,), skimmed=cluster_focus.SKIMMED
    )
    rounds = await decision_queries.glimpses(
        ledger.database, row.stream, begin + 1, row.round, wanted
    )
    if not cluster_focus.follows([(seen.types, seen.decisions) for seen in rounds]):
        return None
    last = rounds[-1]
    decider = ClusterDecider.of_profile(last.profile)
    focus = cluster_focus.focused(decider, row.stream, sections, row.subject)
    if focus is None:
        return None
    for seen in rounds:
        focus.fold(seen.at, seen.events, [d for d in seen.decisions if d.seq < row.seq])
    if not focus.sound:
        return None
    drafts = (
        draft for draft in decider.decide(focus.state, last.at) if draft.subject == row.subject
    )
    draft = next(drafts, None)
    made = None if draft is None else number(draft, row.stream, row.seq)
    recorded = next(d for d in last.decisions if d.seq == row.seq)
    return _compared(row, recorded, made, last.engine, _cluster_trace(focus.state, made))


async def _whole_cluster(
    ledger: Ledger, row: LedgerRow, snapshot: StoredSnapshot | None, instead: bool
) -> Derived:
    """`instead`: of a focus that came out otherwise."""
    begin = 0 if snapshot is None else snapshot.round
    rounds = [
        recorded async for recorded in ledger.recorded_rounds(row.stream, begin + 1, row.round)
    ]
    last = rounds[-1]
    decider = ClusterDecider.of_profile(last.round.profile)
    state = (
        decider.initial(row.stream)
        if snapshot is None
        else decider.load(row.stream, snapshot.sections)
    )
    state = recover(decider, state, rounds[:-1])
    made = _up_to(decider, state, last, row.seq)
    recorded = next(d for d in last.round.decisions if d.seq == row.seq)
    return _compared(
        row, recorded, made, last.round.engine, _cluster_trace(state, made), whole=instead
    )


def _cluster_trace(state: ClusterStageState, made: Decision | None) -> NodesTrace | None:
    if made is None or not isinstance(made.data, NodesDecision):
        return None
    return cluster_trace.trace(state, made.data)


# --- nothing decided


@dataclass(frozen=True, slots=True)
class _After:
    """The part of a fleet state that concerns one binding, after a round."""

    state: FleetState
    round: Glimpse


async def _may_wait(ledger: Ledger, row: LedgerRow, moment: int) -> bool:
    """Whether the binding may have an open request after round `moment`, when `row` was the last
    decision about it. Most bindings have none, and no state is needed to say so."""
    if not row.stream.startswith(FLEET) or is_selection(row.subject):
        return False
    begin, answers = row.round, _answers(row)
    if begin == moment and answers:
        return False
    snapshot = await ledger.nearest_snapshot(row.stream, moment, names=())
    if snapshot is not None and (snapshot.round >= begin or not answers):
        begin, bucket = snapshot.round, saved_bindings.bucket_of(row.subject)
        version = await ledger.newest_version(
            row.stream, begin, bucket, saved_bindings.name_hash(row.subject)
        )
        if version is not None and saved_bindings.is_asked(version, row.subject):
            return True
    elif not answers:
        return True
    return await decision_queries.concerned(
        ledger.database, row.stream, range(begin + 1, moment + 1), row.subject, ASKING, CARRYING_OUT
    )


def _answers(row: LedgerRow) -> bool:
    """Whether it answered all that was asked until its round."""
    data = row.data()
    return isinstance(data, ScheduleAnswer) or isinstance(effect_of(data), BindingEnd)


async def _fleet_after(ledger: Ledger, stream: str, binding: str, moment: int) -> _After | None:
    """None: there is no such round, or not any more."""
    base = (await ledger.bases()).get(stream)
    if not moment or (base is not None and moment <= base.round):
        return None
    focus, last = await _focused(ledger, stream, binding, moment, None)
    return _After(focus.state, last)


async def _waiting(ledger: Ledger, binding: str, stream: str, after: _After) -> RequestWait | None:
    record = after.state.bindings.get(binding)
    if record is None or not record.asked:
        return None
    decider, state = FleetDecider.of_profile(after.round.profile), after.state
    if needs_others(record):
        try:
            state = await _whole_state(ledger, decider, stream, after.round.number)
        except LedgerError:
            pass  # what led to it was retired: by what is known of this binding alone
    return decider.wait_of(state, binding, len(after.round.decisions))


async def _undecided(ledger: Ledger, binding: str, at: HistoryPoint | None) -> Undecided | None:
    """A binding that no decision was ever taken about; None: it was not requested."""
    from wharfinger.runtime.topics import shard_for  # with the driver of the broker

    name, shards = await requested_name(ledger, binding), await ledger.heads(FLEET)
    if not shards:
        return None
    stream = fleet_stream(shard_for(name, len(shards)))
    moment = await round_of(ledger, stream, at or HistoryPoint("now"))
    after = await _fleet_after(ledger, stream, name, moment)
    if after is not None and name in after.state.bindings:
        return await _open(ledger, name, stream, after)
    # where its rounds were retired it is not known what the stage has read
    known = at is None and (after is not None or not moment)
    told = await _accepted(ledger, name) if known else None
    if told is None:
        return None
    return Undecided(
        name,
        stream,
        moment,
        (await ledger.head_at(stream, moment)).at,
        STILL_OPEN,
        RequestWait("reading", (), told),
        await unacted_at(ledger, name, told),
    )


async def _before_its_first(
    ledger: Ledger, name: str, stream: str, moment: int, at: HistoryPoint | None
) -> Undecided:
    """At a moment before the first decision about it. UnknownNameError: it had not been requested
    either."""
    after = await _fleet_after(ledger, stream, name, moment)
    if after is None or name not in after.state.bindings:
        text = "" if at is None else at.text
        raise UnknownNameError(
            f"nothing had been decided about {name} at {text}: its first decision came later"
        )
    return await _open(ledger, name, stream, after)


async def _open(ledger: Ledger, name: str, stream: str, after: _After) -> Undecided:
    last = after.round
    return Undecided(
        name,
        stream,
        last.number,
        last.at,
        _rule(after.state.bindings[name]),
        await _waiting(ledger, name, stream, after),
        await unacted_at(ledger, name, last.at),
    )


async def _accepted(ledger: Ledger, name: str) -> Micros | None:
    """When the intake recorded the last request about the binding; None: none is open there."""
    until = 1 + max([head.round for head in await ledger.heads(INTAKE)], default=0)
    told = await causality.told_before(ledger.database, {(name, until)})
    for event, at in told.values():
        return at if isinstance(event.data, BindingRequested) else None
    return None


async def _steady(
    ledger: Ledger, name: str, row: LedgerRow, moment: int, after: _After | None
) -> Steady:
    if is_selection(name):
        at = (await ledger.head_at(row.stream, moment)).at
        return Steady(
            row.stream, moment, at, "it selected what it had, under the same conditions", {}
        )
    if after is None:
        raise LedgerError(
            f"{row.stream}: round {moment} was retired, and the state after it with it"
        )
    state, at = after.state, after.round.at
    record = state.bindings.get(name)
    if record is None:
        gone = isinstance(effect_of(row.data()), BindingEnd)
        rule = (
            "it had been withdrawn and everything it held was let go"
            if gone
            else "it was not there"
        )
        return Steady(row.stream, moment, at, rule, {})
    held = dict(record.targets)
    counted = {c: n for c, n in held.items() if c not in record.suspect}
    question = question_of(state, record, counted, fresh=True, without=record.suspect)
    answer = decide(question).answer
    trace = fleet_trace.trace(state, record, question)
    fresh = (
        None
        if answer.reason
        else {**answer.targets, **{c: held[c] for c in record.suspect if c in held}}
    )
    return Steady(
        row.stream,
        moment,
        at,
        _rule(record),
        held,
        fresh,
        answer.note if answer.reason else "",
        trace,
        not (record.asked or record.shrunk or record.refused),
    )


def _waited_for(record: BindingState) -> str:
    """Until when the copies on their way out are kept."""
    if not all(one.until_us for one in record.leaving.values()):
        return "keeps its copy until somebody says that it may go"
    return "keeps its copy until what replaces it stands, or has been waited for long enough"


def _rule(record: BindingState) -> str:
    """Why the stage let it be, in the order in which it asks."""
    if record.spec.suspended:
        return "it is suspended: nothing is decided about it until it is resumed"
    if record.left_alone:
        return (
            f"it belongs to the scheduler {record.spec.scheduler}: it is kept, "
            "and nothing is decided about it here"
        )
    if record.asked:
        return STILL_OPEN
    if record.shrunk:
        return "replicas it lost were still to be placed again"
    if record.refused == EXCEEDED:
        return (
            "it waits (QuotaExceeded): it is asked again when something of its namespace is "
            "given back or the quota changes"
        )
    if record.deferred:
        return (
            f"it waits ({record.refused}): refused {record.attempts} times in a row, "
            "it is left alone for a few seconds"
        )
    if record.refused:
        return (
            f"it waits ({record.refused}): it is asked again when facts or counts change, "
            "and silent while the answer stays"
        )
    if record.leaving:
        return f"it is on its way out of {', '.join(record.leaving)}, which {_waited_for(record)}"
    if record.suspect:
        silent = ", ".join(record.suspect)
        return (
            f"its request is answered; what it holds on {silent}, which is silent, "
            "is placed elsewhere too until it is heard"
        )
    if record.spec.placement.replicas.type == "Duplicated" or not record.counted:
        return (
            "it follows the fleet, and since the last decision no cluster became feasible or "
            "stopped being so"
        )
    if record.failback_since or record.rebalance_since:
        return (
            "its request is answered in full; it could lie better, "
            "and is moved when that has been so for long enough"
        )
    return (
        "its request is answered in full, and a steady binding is not moved because capacity "
        "changed"
    )
