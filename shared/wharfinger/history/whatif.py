"""What if: replays the history under another policy, in a closed loop.

External events are read from the ledger, and replayed at the time and in the order in which they
took effect: clusters, nodes, heartbeats, foreign pods, bindings, policies, operators' proposals.
Events that the stages caused are not replayed but computed again, by the pure functions of all
stages in one order: capacity, assignments, outcomes, the descheduler's proposals, ticks and the
replicas' own pods. Measured load is kept as it was measured.

Three runs are compared: the record, the closed loop with the policies and settings unchanged, and
the closed loop with the changes. In a closed loop no time passes between a cause and its effect, so
the unchanged run differs a little from the record. This drift is the error bar of all results of
the changed run.

Nothing is written. `compare` compares the runs, `run_metrics` measures them, and `propose` turns
better placements into proposals.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.node_pool import CLAIM_LABEL
from wharfinger.domain.placement import Placement
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value, canonical
from wharfinger.events.accepted import Fact, accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
    WaitingPodsObserved,
    WorkloadObserved,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved, FleetHeard
from wharfinger.events.effects import EffectsObserved
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import (
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.registry import EVENT_TYPES, type_of
from wharfinger.events.streams import CLUSTER, DECISIONS, FLEET, POLICIES
from wharfinger.history.changes import Changes, ProfileChanges
from wharfinger.history.compare import (
    BindingDifference,
    Figure,
    Pairing,
    Side,
    binding_differences,
    figures,
    placement_text,
)
from wharfinger.history.points import HistoryPoint, PointError, UnknownPointError, moment_of
from wharfinger.history.prices import PriceList
from wharfinger.history.run_metrics import RunMetrics, Sample, Totals, tenant_by
from wharfinger.history.states import world_at
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Head
from wharfinger.runtime.interpreter import seldom_collect
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.exogenous import ExogenousRound
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.ledger.heads import selected
from wharfinger.runtime.topics import shard_for
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.cluster.profile import ClusterProfile
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.world import World, foreign_pods

GENESIS = HistoryPoint("the beginning", at=-1)
PRESENT = HistoryPoint("now")

OPERATOR = "/wharfinger/command-line"
"""The source of events that a person submitted by a command."""

NAMESPACE = "what-if"
"""The namespace for the ids of messages that are in no recorded history."""

SAMPLES = 121

EXOGENOUS: tuple[type[Value], ...] = (
    ClusterObserved,
    ClusterForgotten,
    FleetHeard,
    NodesObserved,
    NodeImagesObserved,
    PodsObserved,
    WaitingPodsObserved,
    FinishedPodsObserved,
    QuotasObserved,
    ObjectsObserved,
    WorkloadObserved,
    PolicyApplied,
    PolicyRemoved,
    BindingRequested,
    BindingWithdrawn,
    NodeLoadObserved,
    HotValueObserved,
    EffectsObserved,
)
REQUESTS: tuple[type[Value], ...] = (
    FailoverProposed,
    EvictionProposed,
    RescheduleProposed,
    NodeRemovalProposed,
)

_DECISION_TYPES = tuple(t.type for t in EVENT_TYPES if t.topic is DECISIONS)


@dataclass(frozen=True, slots=True)
class WhatIfRun:
    """One of the three. `samples`: evenly spread over the range."""

    totals: Totals
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The result. `id` is derived from the inputs: the same facts, range and changes have the same
    id on any machine.

    `facts`: how many external events were replayed. `rebound`: bindings that the changed policies
    placed otherwise. `differences`: unchanged against changed. `drifted`: recorded against
    unchanged, the bindings that are elsewhere at the end. `placements`: binding -> its clusters at
    the end of the changed run. `notes`: what a reader has to know.
    """

    id: UUID
    asked: tuple[str, ...]
    begin: Micros
    end: Micros
    facts: int
    bindings: int
    rebound: int
    recorded: WhatIfRun
    unchanged: WhatIfRun
    changed: WhatIfRun
    figures: tuple[Figure, ...]
    differences: tuple[BindingDifference, ...]
    drifted: int
    drifted_nodes: int
    placements: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...]

    @property
    def elsewhere(self) -> int:
        """Bindings that the change sends to other clusters."""
        return sum(1 for d in self.differences if not d.same_targets)

    def figure(self, name: str) -> Figure:
        """KeyError: there is none of this name."""
        return {figure.name: figure for figure in self.figures}[name]


async def what_if(
    ledger: Ledger,
    changes: Changes,
    from_: HistoryPoint = GENESIS,
    to: HistoryPoint = PRESENT,
    *,
    stream: str = "",
    tenant: str = "",
    prices: PriceList | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> WhatIf:
    """Go through the history after `from_` until `to`, as it was and with `changes`. The present is
    the last recorded moment, so that a plane at rest gives the same answer to the same question for
    ever.

    `stream`: a stream or the beginning of its name; only its decisions, moves, refusals and
    differences are counted. `tenant`: the label that says whose a binding is, else its namespace.
    `progress` hears hundredths of the range as they are done.

    LedgerError: the ledger is empty, the range is none, or the stream is unknown.
    """
    seldom_collect()
    heads = await _heads(ledger, stream)
    if from_ == GENESIS:
        from_ = await _beginning(ledger)
    begin, end = await _range(ledger, from_, to)
    beside = await _begin(
        ledger, changes, from_, begin, end, stream, Tallying(tenant, prices), heads
    )
    async for taken_in in _from_outside(ledger, begin, end, from_):
        await beside.go_on(taken_in, progress)
    await beside.finish(end)
    return beside.result()


@dataclass(frozen=True, slots=True)
class Tallying:
    tenant: str
    prices: PriceList | None


async def _heads(ledger: Ledger, stream: str) -> list[Head]:
    heads = [head for head in await ledger.heads() if head.stream.startswith((FLEET, CLUSTER))]
    if not any(head.round for head in heads):
        raise LedgerError("nothing has been decided yet: there is no history to ask about")
    if not selected([head.stream for head in heads], stream):
        raise UnknownPointError(f"no stream of decisions is named {stream} or begins with it")
    return heads


async def _beginning(ledger: Ledger) -> HistoryPoint:
    """Of all that is left: where the oldest part of the history was retired, the moment from which
    on every stream has its own."""
    bases = await ledger.bases()
    return (
        HistoryPoint("the oldest that was not retired", at=max(h.at for h in bases.values()))
        if bases
        else GENESIS
    )


async def _range(ledger: Ledger, from_: HistoryPoint, to: HistoryPoint) -> tuple[Micros, Micros]:
    span = await ledger.first_and_last()
    assert span is not None, "there are rounds"
    begin, end = await moment_of(ledger, from_), await moment_of(ledger, to)
    begin = span[0] - 1 if from_ == GENESIS else span[1] if begin is None else begin
    end = span[1] if end is None else end
    if begin >= end:
        raise PointError(f"expected --from to be before --to, got {from_.text} and {to.text}")
    return begin, end


async def _from_outside(
    ledger: Ledger, begin: Micros, end: Micros, from_: HistoryPoint
) -> AsyncIterator[ExogenousRound]:
    after = -1 if from_ == GENESIS else begin
    observed = _types(
        (
            NodesObserved,
            NodeImagesObserved,
            PodsObserved,
            WaitingPodsObserved,
            FinishedPodsObserved,
            QuotasObserved,
            ObjectsObserved,
            WorkloadObserved,
        )
    )
    async for taken_in in ledger.taken_in(
        _types(EXOGENOUS), _types(REQUESTS), OPERATOR, after, end, observed
    ):
        yield taken_in


def _types(classes: Sequence[type[Value]]) -> list[str]:
    return [type_.type for type_ in EVENT_TYPES if type_.data in classes]


# --- the runs


async def _begin(
    ledger: Ledger,
    changes: Changes,
    from_: HistoryPoint,
    begin: Micros,
    end: Micros,
    stream: str,
    tallying: Tallying,
    heads: Sequence[Head],
) -> Beside:
    """Two worlds as they stood at the beginning of the range, the three books, and the reader of
    what was recorded."""
    switches = await _switches(ledger, heads, begin, end)
    worlds = [
        await _world(ledger, from_, begin, heads, settings, f"{NAMESPACE} {name}")
        for name, settings in (
            ("unchanged", changes.settings.of_both),
            ("changed", changes.settings),
        )
    ]
    policies = {} if from_ == GENESIS else await _policies(ledger, begin)
    books = [
        RunMetrics(begin, end, SAMPLES, tenant_by(tallying.tenant), tallying.prices)
        for _ in range(3)
    ]
    for book, world in zip(books, (worlds[0], *worlds), strict=True):
        book.adopt(world)
    after = (
        {}
        if from_ == GENESIS
        else {h.stream: (await _head(ledger, h.stream, begin)).seq for h in heads}
    )
    recorded = _Recorded(ledger.decisions(DecisionQuery(types=_DECISION_TYPES, after=after)), end)
    currency = tallying.prices.currency if tallying.prices is not None else ""
    beside = Beside(
        changes, begin, end, stream, worlds, books, recorded, policies, switches, currency
    )
    beside.begin()
    return beside


async def _world(
    ledger: Ledger,
    from_: HistoryPoint,
    begin: Micros,
    heads: Sequence[Head],
    settings: ProfileChanges,
    namespace: str,
) -> World:
    """`settings` over what the first rounds of the range were decided under."""
    profiles = {head.stream: await _profile(ledger, head, begin) for head in heads}
    fleets = [name for name in profiles if name.startswith(FLEET)]
    clusters = [name for name in profiles if name.startswith(CLUSTER)]
    fleet = _fleet_decider(profiles[fleets[0]] if fleets else "", settings)
    cluster = _cluster_decider(profiles[clusters[0]] if clusters else "", settings)
    repeat_after_s = settings.repeat_after_s or 60
    if from_ != GENESIS:
        point = HistoryPoint(from_.text, at=begin)
        return await world_at(
            ledger,
            point,
            fleet=fleet,
            cluster=cluster,
            repeat_after_s=repeat_after_s,
            provides_after_s=settings.provides_after_s,
            namespace=namespace,
        )
    shards = max(1, len(fleets))
    return World(
        shards=shards,
        shard_of=partial(shard_for, shards=shards),
        fleet=fleet,
        cluster=cluster,
        repeat_after_s=repeat_after_s,
        provides_after_s=settings.provides_after_s,
        namespace=namespace,
        at=begin,
    )


def _fleet_decider(profile: str, settings: ProfileChanges) -> FleetDecider:
    """`settings` over the recorded `profile`."""
    fleet = FleetDecider.of_profile(profile)
    if settings.round_limit is None:
        return fleet
    return FleetDecider(
        settings.round_limit, fleet.shards, fleet.work, fleet.ranges, fleet.patience_s
    )


def _cluster_decider(profile: str, settings: ProfileChanges) -> ClusterDecider:
    if settings.strategy is None:
        return ClusterDecider.of_profile(profile)
    return ClusterDecider(ClusterProfile(settings.strategy))


@dataclass(frozen=True, slots=True)
class ProfileSwitch:
    """From `at` on the stream's recorded rounds were decided under another profile."""

    at: Micros
    stream: str
    profile: str

    def decider(self, settings: ProfileChanges) -> FleetDecider | ClusterDecider:
        if self.stream.startswith(FLEET):
            return _fleet_decider(self.profile, settings)
        return _cluster_decider(self.profile, settings)


async def _switches(
    ledger: Ledger, heads: Sequence[Head], begin: Micros, end: Micros
) -> list[ProfileSwitch]:
    """Those on the way, in order."""
    found = [
        ProfileSwitch(at, head.stream, profile)
        for head in heads
        for at, profile in await ledger.profile_changes(head.stream, begin, end)
    ]
    return sorted(found, key=lambda switch: (switch.at, switch.stream))


async def _profile(ledger: Ledger, head: Head, begin: Micros) -> str:
    """Of the first round after `begin`; of the last one where none came after."""
    number = await ledger.round_at(head.stream, begin)
    return await ledger.profile_at(head.stream, min(number + 1, head.round))


def _profile_notes(switches: Sequence[ProfileSwitch]) -> list[str]:
    if not switches:
        return []
    changed = ", ".join(dict.fromkeys(switch.stream for switch in switches))
    return [f"settings changed on the way in {changed}: so they do in the closed loops"]


async def _head(ledger: Ledger, stream: str, at: Micros) -> Head:
    return await ledger.head_at(stream, await ledger.round_at(stream, at))


async def _policies(ledger: Ledger, until: Micros) -> dict[str, Policy]:
    """Those that held at `until`."""
    held: dict[str, Policy] = {}
    for fact in await ledger.facts_at(until, POLICIES.name):
        _hold(held, event_of(fact).data)
    return held


def _hold(policies: dict[str, Policy], data: Value) -> None:
    if isinstance(data, PolicyApplied):
        policies[data.policy.key] = data.policy
    elif isinstance(data, PolicyRemoved):
        policies.pop(f"{data.kind}/{data.namespace}/{data.name}", None)


class _Recorded:
    """What was recorded, a decision at a time, never ahead of the time that is asked for."""

    def __init__(self, rows: AsyncIterator[LedgerRow], end: Micros) -> None:
        self._rows = rows
        self._end = end
        self._next: LedgerRow | None = None
        self._over = False

    async def before(self, at: Micros) -> AsyncIterator[LedgerRow]:
        while True:
            if self._next is None and not self._over:
                self._next = await anext(self._rows, None)
                self._over = self._next is None
            row = self._next
            if row is None or row.at >= at or row.at > self._end:
                return
            self._next = None
            yield row


class Beside:
    """The three runs side by side. `drift` pairs recorded with unchanged, `change` unchanged with
    changed."""

    def __init__(
        self,
        changes: Changes,
        begin: Micros,
        end: Micros,
        stream: str,
        worlds: Sequence[World],
        books: Sequence[RunMetrics],
        recorded: _Recorded,
        policies: dict[str, Policy],
        switches: Sequence[ProfileSwitch],
        currency: str,
    ) -> None:
        self._changes = changes
        self._begin, self._end = begin, end
        self._stream = stream
        self._unchanged, self._changed = worlds
        self._books = books
        self._recorded = recorded
        self._policies = policies
        self._notes = _profile_notes(switches)
        self._switches = deque(switches)
        self._currency = currency
        self._drift, self._change = Pairing(), Pairing()
        self._facts = 0
        self._rebound: dict[str, tuple[Placement, Placement]] = {}
        self._loads = 0
        self._said: dict[tuple[str, str], bytes] = {}
        self._question = hashlib.sha256(
            canonical((changes.policies, changes.settings.said, stream))
        )
        self._done = 0
        self._claimed = _claimed_before(self._unchanged)

    def begin(self) -> None:
        """Tell the changed world the policies, and what stands already that they would have
        otherwise."""
        book = self._books[2]
        events = [
            self._made(PolicyApplied(policy), policy.key) for policy in self._changes.policies
        ]
        for state in self._changed.fleet_states():
            for name, record in sorted(state.bindings.items()):
                wanted = self._changes.requested(record.spec, self._policies)
                if wanted != record.spec and not record.withdrawn:
                    self._rebound[name] = (record.spec.placement, wanted.placement)
                    book.restate(wanted)
                    events.append(self._made(BindingRequested(wanted), name))
        self._note(self._changed, book, self._changed.tell(events))

    async def go_on(self, taken_in: ExogenousRound, progress: Callable[[int], object]) -> None:
        """Bring all three to the time of the next events from outside, and tell them."""
        at = taken_in.at
        await self._pass_recorded(at)
        self._pass_both(at)
        events = [_without_our_pods(event) for event in taken_in.events]
        for event in events:
            self._identify(event)
            _tell_book(self._books[0], at, event.data)
        if self._changes.settings.provides_after_s is not None:
            events = [_without_claimed_nodes(event, self._claimed) for event in events]
        self._tell(self._unchanged, self._books[1], events)
        self._tell(
            self._changed, self._books[2], [e for event in events for e in self._as_changed(event)]
        )
        self._facts += len(events)
        done = 100 * (at - self._begin) // (self._end - self._begin)
        progress(done - self._done)
        self._done = done

    async def finish(self, end: Micros) -> None:
        await self._pass_recorded(end + 1)
        self._pass_both(end)

    # --- passing time and telling

    async def _pass_recorded(self, at: Micros) -> None:
        book = self._books[0]
        async for row in self._recorded.before(at):
            data = row.data()
            book.advance(row.at)
            book.decided(data, counted=self._counts(row.stream))
            self._pair(self._drift, "left", row.stream, row.at, row.seq, data)

    def _pass_both(self, at: Micros) -> None:
        """Let time pass in both closed loops. Settings change when they did."""
        settings = self._changes.settings
        while self._switches and self._switches[0].at <= at:
            switch = self._switches.popleft()
            self._pass(self._unchanged, self._books[1], switch.at - 1)
            self._unchanged.redecide(switch.stream, switch.decider(settings.of_both))
            self._pass(self._changed, self._books[2], switch.at - 1)
            self._changed.redecide(switch.stream, switch.decider(settings))
        self._pass(self._unchanged, self._books[1], at)
        self._pass(self._changed, self._books[2], at)

    def _pass(self, world: World, book: RunMetrics, at: Micros) -> None:
        self._note(world, book, world.wait(at))

    def _tell(self, world: World, book: RunMetrics, events: Sequence[Event[Value]]) -> None:
        for event in events:
            _tell_book(book, world.at, event.data)
        self._note(world, book, world.tell(events))

    def _note(self, world: World, book: RunMetrics, rounds: Iterable[RecordedRound]) -> None:
        """Enter what a world decided into its book, and pair it with the run beside it."""
        for recorded in rounds:
            round_ = recorded.round
            book.advance(round_.at)
            if self._changes.settings.provides_after_s is not None:
                # nodes as they are in this world, with those that its claims brought
                for event in recorded.events:
                    if isinstance(event.data, NodesObserved):
                        book.fact(event.data)
            counts = self._counts(round_.stream)
            for d in round_.decisions:
                book.decided(d.data, counted=counts)
                if world is self._unchanged:
                    self._pair(self._drift, "right", round_.stream, round_.at, d.seq, d.data)
                    self._pair(self._change, "left", round_.stream, round_.at, d.seq, d.data)
                else:
                    self._pair(self._change, "right", round_.stream, round_.at, d.seq, d.data)

    def _pair(
        self, pairing: Pairing, side: Side, stream: str, at: Micros, seq: int, data: Value
    ) -> None:
        if self._counts(stream):
            pairing.take(side, stream, at, seq, data)

    def _counts(self, stream: str) -> bool:
        return not self._stream or bool(selected([stream], self._stream))

    # --- the changed world hears of other policies

    def _as_changed(self, event: Event[Value]) -> Iterable[Event[Value]]:
        match event.data:
            case PolicyApplied(policy=policy) as policy_applied if policy.key in self._changes.keys:
                _hold(self._policies, policy_applied)
                return ()  # ours stands in its place, all the time
            case PolicyRemoved(kind=kind, namespace=namespace, name=name) if (
                f"{kind}/{namespace}/{name}" in self._changes.keys
            ):
                return ()
            case PolicyApplied() | PolicyRemoved():
                _hold(self._policies, event.data)
                return (event,)
            case BindingRequested(binding=binding):
                return (self._request(event, binding),)
            case _:
                return (event,)

    def _request(self, event: Event[Value], binding: Binding) -> Event[Value]:
        wanted = self._changes.requested(binding, self._policies)
        if wanted == binding:
            return event
        self._rebound[binding.name] = (binding.placement, wanted.placement)
        return self._made(BindingRequested(wanted), str(event.id))

    def _made(self, data: Value, what: str) -> Event[Value]:
        """An event that no history has."""
        id = derived_id(NAMESPACE, what, type_of(data))
        return Event(id, type_of(data), f"/wharfinger/{NAMESPACE}", what, data, b"", b"")

    # --- which question this is

    def _identify(self, event: Event[Value]) -> None:
        """Facts make the question; a fact said again (a heartbeat) does not make it another one."""
        data = event.data
        if isinstance(data, NodeLoadObserved | HotValueObserved | EffectsObserved):
            self._loads += 1
            return
        if isinstance(data, Fact):
            keyed = accepted(data)
            place, said = (keyed.topic.name, keyed.key), hashlib.sha256(canonical(data)).digest()
            if self._said.get(place) == said:
                return
            self._said[place] = said
        self._question.update(event.id.bytes)

    def result(self) -> WhatIf:
        recorded, unchanged, changed = (
            WhatIfRun(book.finish(self._end), tuple(book.samples)) for book in self._books
        )
        partings = self._change.close()
        for name, (before, after) in self._rebound.items():
            if (parting := partings.get(name)) is not None:
                # before anything else, it was asked for otherwise
                said = (placement_text(before), placement_text(after))
                partings[name] = replace(
                    parting, step="policy", left_step=said[0], right_step=said[1]
                )
        differences = binding_differences(self._books[1], self._books[2], partings)
        drift = binding_differences(self._books[0], self._books[1], self._drift.close())
        if self._stream:
            differences = tuple(d for d in differences if d.parting is not None)
        return WhatIf(
            derived_id(NAMESPACE, self._question.hexdigest()),
            self._changes.texts,
            self._begin,
            self._end,
            self._facts,
            len(self._books[2].bindings),
            len(self._rebound),
            recorded,
            unchanged,
            changed,
            figures(recorded.totals, unchanged.totals, changed.totals, self._currency),
            differences,
            sum(1 for d in drift if not d.same_targets),
            sum(1 for d in drift if not d.same_nodes),
            {
                name: final.targets
                for name in self._books[2].bindings
                if (final := self._books[2].final(name))
            },
            tuple(self._all_notes(changed.totals)),
        )

    def _all_notes(self, totals: Totals) -> Iterable[str]:
        yield from self._notes
        after_s = self._changes.settings.provides_after_s
        if after_s is not None:
            yield (
                f"in both closed loops a node claim is a node after {after_s} s; "
                "nodes that came for recorded claims are left out"
            )
        elif any(state.pools.claims for state in self._changed.cluster_states()):
            yield (
                "node claims of the changed run are open at the end: --with provides-after=SECONDS "
                "has nodes come of them"
            )
        if self._changes.policies and not self._rebound:
            yield (
                "no binding is placed otherwise by these policies: they select none, "
                "or say what held already"
            )
        if self._loads:
            yield (
                f"{self._loads:,} measurements of load are kept as they were; "
                "under another placement they would be others"
            )
        if totals.unpriced:
            unnamed = "nodes without an instance type" if "" in totals.unpriced else ""
            named = ", ".join(kind for kind in totals.unpriced if kind)
            yield (
                "no price, and counted as free: "
                f"{', '.join(part for part in (named, unnamed) if part)}"
            )


def _tell_book(book: RunMetrics, at: Micros, data: Value) -> None:
    book.advance(at)
    book.fact(data)


def _without_our_pods(event: Event[Value]) -> Event[Value]:
    """Pods of bindings are a consequence of decisions; what else runs or waits is given."""
    if not isinstance(event.data, PodsObserved | WaitingPodsObserved):
        return event
    foreign = foreign_pods(event.data)
    return event if foreign is event.data else msgspec.structs.replace(event, data=foreign)


def _claimed_before(world: World) -> frozenset[str]:
    """The claims of which nodes stood when the world began, and those that were open then: what
    came of them is not of its making."""
    found = {
        node.labels[CLAIM_LABEL]
        for state in world.cluster_states()
        for node in state.book.nodes.values()
        if CLAIM_LABEL in node.labels
    }
    return frozenset(found.union(*(state.pools.claims for state in world.cluster_states())))


def _without_claimed_nodes(event: Event[Value], kept: Collection[str]) -> Event[Value]:
    """Nodes that came for claims are a consequence of decisions, where a closed loop makes nodes of
    its own claims. `kept`: claims of before."""
    data = event.data
    if not isinstance(data, NodesObserved):
        return event
    given = tuple(
        [n for n in data.nodes if n.labels.get(CLAIM_LABEL) in kept or CLAIM_LABEL not in n.labels]
    )
    if len(given) == len(data.nodes):
        return event
    return msgspec.structs.replace(event, data=msgspec.structs.replace(data, nodes=given))
