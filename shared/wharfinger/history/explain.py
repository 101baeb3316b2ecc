"""Why a binding is where it is: the recorded explanation, and everything behind it derived again.

What was recorded with a decision is short. The rest is not stored anywhere: the one decision is taken again, on the state as it
was, and its tracing twin keeps what every cluster or node was asked and answered. That the state was the right one is shown by
the decision's bytes, which come out the same; where they do not, it is said, with the engine that decided then.

Nothing here grows with the history or with the number of bindings. A fleet state is focused on the one binding (`stages.fleet.
focus`): the nearest small sections, the newest version of that binding, and the rounds since, of which only what bears on it is
read. A cluster's state is focused likewise (`stages.cluster.focus`). Only where that does not reproduce the recorded bytes is
the whole state loaded.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.events.decisions import (
    BindingReleased,
    Explanation,
    ReplicasPlaced,
    ReplicasRefused,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.disruption import DisruptionDecided
from wharfinger.events.placements import PlacementDecided
from wharfinger.events.provisioning import NodeClaimRequested
from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.history.names import NEAR_MAX, UnknownNameError, full_name
from wharfinger.history.points import Point, round_of
from wharfinger.history.timeline import in_order
from wharfinger.history.unacted import unacted_at
from wharfinger.kernel.decider import Decider, Decision, Micros
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.step import ENGINE, number
from wharfinger.runtime.ledger import Ledger, LedgerError, LedgerRow, about, trails
from wharfinger.runtime.ledger.about import Glimpse, Wanted
from wharfinger.runtime.ledger.snapshots import Snapshot
from wharfinger.stages.cluster import ClusterDecider, ClusterState
from wharfinger.stages.cluster import focus as cluster_focus
from wharfinger.stages.cluster import trace as cluster_trace
from wharfinger.stages.cluster.trace import NodesTrace
from wharfinger.stages.fleet import FleetDecider, FleetState, saved, selection_trace
from wharfinger.stages.fleet import trace as fleet_trace
from wharfinger.stages.fleet.focus import REQUESTS, SCHEDULED, Focus, earlier
from wharfinger.stages.fleet.places import solve
from wharfinger.stages.fleet.quota import EXCEEDED
from wharfinger.stages.fleet.selection_trace import SelectionsTrace
from wharfinger.stages.fleet.selections import is_selection, key_of
from wharfinger.stages.fleet.state import BindingState
from wharfinger.stages.fleet.trace import FleetTrace

HISTORY = 30
"""Of a binding's decisions so many are shown, the latest."""

NODES_MAX = 100
"""Decisions of clusters that one fleet decision led to, and that are told with it."""

Recorded = (
    ScheduleDecided | ScheduleRefused | ReplicasPlaced | ReplicasRefused | PlacementDecided | NodeClaimRequested
    | DisruptionDecided
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Again:
    """The decision taken again. `same`: to the byte. `engine`: which decided then. `replayed`: the bytes that came out now, where
    they differ; empty: nothing was decided about it. `whole`: the whole state was needed. `retired`: it was not taken again,
    because what led to it was retired, and only the decision itself is kept."""

    same: bool
    engine: str
    replayed: bytes = b""
    whole: bool = False
    retired: bool = False

    @property
    def own_engine(self) -> bool:
        return self.engine == ENGINE


@dataclass(frozen=True, slots=True)
class Derived:
    """`row` is the decision, `again` how it came out when it was taken again. `trace`: what was asked on the way; None: nobody was
    asked (a release, a refusal before any cluster), or it did not come out the same."""

    row: LedgerRow
    data: Value
    again: Again
    trace: FleetTrace | NodesTrace | SelectionsTrace | None = None

    @property
    def recorded(self) -> Explanation | None:
        return self.data.explanation if isinstance(self.data, Recorded) else None


@dataclass(frozen=True, slots=True)
class Steady:
    """A moment at which nothing was decided about it. `rule`: why not. `held`: what it had. `fresh`: what a decision would have
    given that was asked for then; None: that would have been refused, for `reason`. `trace`: of that decision. `avoided`: there was
    nothing to be done about it, which Karmada's community calls AvoidSchedule."""

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
    """`decision`: the one explained, or the last before the moment asked for. `steady`: where nothing was decided at that moment.
    `on_nodes`: what the clusters made of a fleet decision; `nodes`: the same derived, where asked for. `history`: the latest
    decisions about the binding in order of time, `total` how many there are. `unacted`: whose manifest -> the fields of it that are
    accepted and not acted on."""

    binding: str
    decision: Derived
    steady: Steady | None
    on_nodes: tuple[LedgerRow, ...]
    nodes: tuple[Derived, ...]
    history: tuple[LedgerRow, ...]
    total: int
    unacted: Mapping[str, tuple[str, ...]]


async def explain(
    ledger: Ledger,
    binding: str,
    at: Point | None = None,
    decision: UUID | None = None,
    every: bool = False,
) -> Explained:
    """Of the latest decision, of the one with an id, or of a moment. `every`: what the clusters made of it is derived, too.

    UnknownNameError: no such binding, or no such decision about it; PointError: no such moment.
    """
    with _uncollected():
        return await _explain(ledger, binding, at, decision, every)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic collector, which finds nothing here: what an explanation makes are trees of values, freed as it ends.
    Their number alone would set off full collections that walk all the process has loaded, for longer than one takes."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


async def _explain(ledger: Ledger, binding: str, at: Point | None, decision: UUID | None, every: bool) -> Explained:
    name, stream = await _meant(ledger, binding, decision)
    steady: Steady | None = None
    if decision is not None:
        row = await _named(ledger, name, decision)
    else:
        moment = await round_of(ledger, stream, at or Point("now"))
        row = await _last(ledger, name, stream, moment, at)
        if at is not None and row.round != moment and stream.startswith(FLEET):
            steady = await _steady(ledger, name, row, moment)
    on_nodes = await _on_nodes(ledger, name, row)
    history = await trails.latest_about(ledger.database, name, HISTORY)
    total = len(history) if len(history) < HISTORY else await trails.count_about(ledger.database, name)
    return Explained(
        name,
        await derive(ledger, row),
        steady,
        on_nodes,
        tuple([await derive(ledger, made) for made in on_nodes]) if every else (),
        tuple(in_order(history)),
        total,
        await unacted_at(ledger, name, row.at),
    )


async def derive(ledger: Ledger, row: LedgerRow, focused: bool = True) -> Derived:
    """One decision about a binding, taken again. `focused` False: on the whole state at once, which gives the same, later."""
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
    """A binding, by as much of its name as only one has; or what a cluster decided about under just this name: a node, a claim, a
    command."""
    if not await trails.decided_about(ledger.database, name, FLEET):
        match await about.streams_of(ledger.database, name, CLUSTER):
            case [only]:
                return name, only
            case [first, *_] if decision is not None:
                return name, first  # which one is meant is said by the decision
            case [_, *_] as several:
                found = ", ".join(stream.removeprefix(CLUSTER) for stream in several[:NEAR_MAX])
                raise LedgerError(f"{name}: expected a name of one cluster, or a decision; it is one in {found}")
    full = await full_name(ledger, name)
    stream = await about.shard_of(ledger.database, full)
    assert stream is not None, "a full name has decisions"
    return full, stream


async def _named(ledger: Ledger, name: str, id_: UUID) -> LedgerRow:
    row = await ledger.decision(id_)
    if row is None or row.subject != name:
        raise UnknownNameError(f"no decision about {name} has the id {id_}")
    return row


async def _last(ledger: Ledger, name: str, stream: str, moment: int, at: Point | None) -> LedgerRow:
    seq = (await ledger.head_at(stream, moment)).seq
    row = await about.last_until(ledger.database, name, stream, seq)
    if row is None:
        text = "" if at is None else at.text
        raise UnknownNameError(f"nothing had been decided about {name} at {text}: its first decision came later")
    return row


async def _on_nodes(ledger: Ledger, name: str, row: LedgerRow) -> tuple[LedgerRow, ...]:
    if not isinstance(row.data(), ScheduleDecided | ScheduleRefused):
        return ()
    made = await trails.caused_about(ledger.database, [name], [row.id], NODES_MAX)
    return tuple(r for r in made if r.stream.startswith(CLUSTER))


# --- a fleet decision


async def _derive_fleet(ledger: Ledger, row: LedgerRow, focused: bool) -> Derived:
    if is_selection(row.subject):  # of placements the whole state is small, and none is there without the others
        return await _again_whole(ledger, row) or Derived(row, row.data(), Again(False, "", retired=True))
    if not focused and (whole := await _again_whole(ledger, row)) is not None:
        return whole
    focus, last = await _focused(ledger, row.stream, row.subject, row.round, row.seq)
    found = _again_fleet(focus.state, row, last)
    if not found.again.same:
        found = await _again_whole(ledger, row) or found
    return found


async def _focused(
    ledger: Ledger, stream: str, binding: str, last: int, before_seq: int | None
) -> tuple[Focus, Glimpse]:
    """The state after round `last`, or within it before the decision `before_seq`; and that round."""
    snapshot = await ledger.nearest_snapshot(stream, last - 1, saved.SHARED)
    if snapshot is None:
        state, begin = FleetState(stream), 0
    else:
        begin = snapshot.round
        bucket = saved.bucket_of(binding)
        version = await ledger.newest_version(stream, begin, bucket, saved.name_hash(binding))
        own = None if version is None else saved.binding_in(version, binding)
        state = saved.load(stream, snapshot.sections if own is None else {**snapshot.sections, bucket: own})
    wanted = Wanted(binding, naming=REQUESTS, skimmed=SCHEDULED)
    rounds = await about.glimpses(ledger.database, stream, begin + 1, last, wanted)
    decisions = [d for seen in rounds for d in seen.decisions if before_seq is None or d.seq < before_seq]
    first_seq = (await ledger.head_at(stream, begin)).seq + 1
    before = await about.requirements_before(ledger.database, stream, earlier(binding, decisions), first_seq)
    focus = Focus(state, binding, before)
    for seen in rounds:
        focus.fold(seen.at, seen.events, [d for d in seen.decisions if before_seq is None or d.seq < before_seq])
    return focus, rounds[-1]


def _again_fleet(state: FleetState, row: LedgerRow, last: Glimpse) -> Derived:
    """Whatever came before in the round is folded as it was recorded, so the decider's next word about the binding is this one."""
    decider = FleetDecider.of_profile(last.profile)
    state.requested.clear()
    state.solving = []
    recorded = next(d for d in last.decisions if d.seq == row.seq)
    made: Decision | None = None
    for draft in decider.decide(state, last.at):
        if draft.subject == row.subject:
            made = number(draft, row.stream, row.seq)
            break
    return _compared(row, recorded, made, last.engine, _fleet_trace(state, made))


def _fleet_trace(state: FleetState, made: Decision | None) -> FleetTrace | None:
    if made is None or not state.solving:
        return None
    if isinstance(made.data, ScheduleRefused) and made.data.reason == EXCEEDED:
        return None  # the clusters would have had it: what was in the way is in the note, with its numbers
    record = state.bindings.get(made.subject)
    if record is None:
        return None
    return fleet_trace.trace(state, record, state.solving[-1])


def _compared(
    row: LedgerRow,
    recorded: Decision,
    made: Decision | None,
    engine: str,
    trace: FleetTrace | NodesTrace | SelectionsTrace | None,
    whole: bool = False,
) -> Derived:
    same = made is not None and made.body == recorded.body and made.cause == recorded.cause
    replayed = b"" if made is None or same else made.body
    return Derived(row, recorded.data, Again(same, engine, replayed, whole), trace if same else None)


async def _again_whole(ledger: Ledger, row: LedgerRow) -> Derived | None:
    """With every binding in the state, and everything of the round decided again up to this decision. None: there is no whole
    state to begin at any more."""
    (last,) = [recorded async for recorded in ledger.recorded_rounds(row.stream, row.round, row.round)]
    decider = FleetDecider.of_profile(last.round.profile)
    try:
        state = await _whole_state(ledger, decider, row.stream, row.round - 1)
    except LedgerError:
        return None
    made = _up_to(decider, state, last, row.seq)
    recorded = next(d for d in last.round.decisions if d.seq == row.seq)
    trace = _selection_trace(state, row, last.round.at) if is_selection(row.subject) else _fleet_trace(state, made)
    return _compared(row, recorded, made, last.round.engine, trace, whole=True)


def _selection_trace(state: FleetState, row: LedgerRow, at: Micros) -> SelectionsTrace | None:
    return None if state.selections is None else selection_trace.trace(state.selections, key_of(row.subject), at)


async def _whole_state(ledger: Ledger, decider: Decider[Any], stream: str, after: int) -> Any:
    snapshot = await ledger.latest_snapshot(stream, after)
    state = decider.initial(stream) if snapshot is None else decider.load(stream, snapshot.sections)
    begin = 0 if snapshot is None else snapshot.round
    if begin < after:
        async for recorded in ledger.recorded_rounds(stream, begin + 1, after):
            recover(decider, state, (recorded,))
    if isinstance(state, FleetState):
        state.solving = []
    return state


def _up_to(decider: Decider[Any], state: Any, last: RecordedRound, seq: int) -> Decision | None:
    """The decision `seq` of the round, decided again with all before it; the state is as it was when it was decided."""
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
    if found is not None and found.again.same:
        return found
    return await _whole_cluster(ledger, row, snapshot, instead=found is not None)


async def _focused_cluster(ledger: Ledger, row: LedgerRow, snapshot: Snapshot | None) -> Derived | None:
    """None: there is more to follow than a focus does."""
    begin, sections = (0, None) if snapshot is None else (snapshot.round, snapshot.sections)
    wanted = Wanted(row.subject, naming=(cluster_focus.ASSIGNMENTS,), skimmed=cluster_focus.SKIMMED)
    rounds = await about.glimpses(ledger.database, row.stream, begin + 1, row.round, wanted)
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
    drafts = (draft for draft in decider.decide(focus.state, last.at) if draft.subject == row.subject)
    draft = next(drafts, None)
    made = None if draft is None else number(draft, row.stream, row.seq)
    recorded = next(d for d in last.decisions if d.seq == row.seq)
    return _compared(row, recorded, made, last.engine, _cluster_trace(focus.state, made))


async def _whole_cluster(ledger: Ledger, row: LedgerRow, snapshot: Snapshot | None, instead: bool) -> Derived:
    """`instead`: of a focus that came out otherwise."""
    begin = 0 if snapshot is None else snapshot.round
    rounds = [recorded async for recorded in ledger.recorded_rounds(row.stream, begin + 1, row.round)]
    last = rounds[-1]
    decider = ClusterDecider.of_profile(last.round.profile)
    state = decider.initial(row.stream) if snapshot is None else decider.load(row.stream, snapshot.sections)
    recover(decider, state, rounds[:-1])
    made = _up_to(decider, state, last, row.seq)
    recorded = next(d for d in last.round.decisions if d.seq == row.seq)
    return _compared(row, recorded, made, last.round.engine, _cluster_trace(state, made), whole=instead)


def _cluster_trace(state: ClusterState, made: Decision | None) -> NodesTrace | None:
    if made is None or not isinstance(made.data, ReplicasPlaced | ReplicasRefused):
        return None
    return cluster_trace.trace(state, made.data)


# --- nothing decided


async def _steady(ledger: Ledger, name: str, row: LedgerRow, moment: int) -> Steady:
    if is_selection(name):
        at = (await ledger.head_at(row.stream, moment)).at
        return Steady(row.stream, moment, at, "it selected what it had, under the same conditions", {})
    focus, last = await _focused(ledger, row.stream, name, moment, None)
    state, record, at = focus.state, focus.state.bindings.get(name), last.at
    if record is None:
        gone = isinstance(row.data(), BindingReleased)
        rule = "it had been withdrawn and everything it held was let go" if gone else "it was not there"
        return Steady(row.stream, moment, at, rule, {})
    held = dict(record.targets)
    state.solving = []
    counted = {c: n for c, n in held.items() if c not in record.suspect}
    verdict = solve(state, record, counted, fresh=True, without=record.suspect)
    trace = fleet_trace.trace(state, record, state.solving[-1])
    fresh = None if verdict.reason else {**verdict.targets, **{c: held[c] for c in record.suspect if c in held}}
    return Steady(
        row.stream,
        moment,
        at,
        _rule(state, record),
        held,
        fresh,
        verdict.explanation.note if verdict.reason else "",
        trace,
        not (record.asked or record.shrunk or record.refused),
    )


def _waited_for(record: BindingState) -> str:
    """Until when the copies on their way out are kept."""
    if not all(one.until_us for one in record.leaving.values()):
        return "keeps its copy until somebody says that it may go"
    return "keeps its copy until what replaces it stands, or has been waited for long enough"


def _rule(state: FleetState, record: BindingState) -> str:
    """Why the stage let it be, in the order in which it asks."""
    if record.spec.suspended:
        return "it is suspended: nothing is decided about it until it is resumed"
    if record.left_alone:
        return f"it belongs to the scheduler {record.spec.scheduler}: it is kept, and nothing is decided about it here"
    if record.asked:
        return "its request was still to be answered"
    if record.shrunk:
        return "replicas it lost were still to be placed anew"
    if record.refused == EXCEEDED:
        return "it waits (QuotaExceeded): it is asked again when something of its namespace is given back or the quota changes"
    if record.deferred:
        return (
            f"it waits ({record.refused}): refused {record.attempts} times in a row, it is left alone for a few seconds"
        )
    if record.refused:
        return f"it waits ({record.refused}): it is asked again when facts or counts change, and silent while the answer stays"
    if record.leaving:
        return f"it is on its way out of {', '.join(record.leaving)}, which {_waited_for(record)}"
    if record.suspect:
        silent = ", ".join(record.suspect)
        return f"its request is answered; what it holds on {silent}, which is silent, is placed elsewhere too until it is heard"
    if record.spec.placement.replicas.type == "Duplicated" or not record.counted:
        return "it follows the fleet, and since the last decision no cluster became feasible or stopped being so"
    if record.failback_since or record.rebalance_since:
        return (
            "its request is answered in full; it could lie better, and is moved when that has been so for long enough"
        )
    return "its request is answered in full, and a steady binding is not moved because capacity changed"
