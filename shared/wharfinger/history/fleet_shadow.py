"""Shadow of a hub: each choice of clusters that Karmada's or OCM's scheduler made, held against
what we decide on the facts as they were just before (`stages.fleet.shadow`).

Read from the rounds of the fleet streams alone, as `history.shadow`. Our own decisions of these
bindings and placements were not carried out: after each of them their choice is folded in its
place, so that every comparison starts from what is real. Bindings and placements that others
placed before the hub was joined are not compared until they are placed again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from wharfinger.domain.policy import Policy
from wharfinger.domain.scheduler import DEFAULT_SCHEDULER
from wharfinger.domain.value import Value
from wharfinger.engine.cluster_sets.select import SelectionResult
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.decisions import Explanation, ScheduleAnswer, as_decision
from wharfinger.events.envelope import Event
from wharfinger.events.hub_facts import HUB_SOURCE
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.streams import FLEET, POLICIES
from wharfinger.history.points import HistoryPoint, moment_of, round_of
from wharfinger.history.shadow import GENESIS, WAITS_US, ShadowReport
from wharfinger.history.states import PRESENT, state_at
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.rebase import rebase_of
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.manifests.ocm import DISABLED
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.stages.fleet import FleetDecider, FleetState
from wharfinger.stages.fleet.drafts import schedule
from wharfinger.stages.fleet.fold_bindings import apply_schedule
from wharfinger.stages.fleet.shadow import compare_binding, compare_placement, compared_selection
from wharfinger.stages.fleet.solve import SolveResult
from wharfinger.stages.fleet.state import BindingState
from wharfinger.stages.fleet.state.selections import is_selection, key_of, name_of
from wharfinger.stages.shadow import ShadowDecision

SLICE = "PlacementDecision"

TOGETHER_US = 2_000_000
"""OCM writes a choice of over 100 clusters in several objects. Those that come within this time of
each other are one choice."""

Theirs = Mapping[str, int]


async def fleet_shadow(
    ledger: Ledger,
    hub: str,
    from_: HistoryPoint = GENESIS,
    to: HistoryPoint = PRESENT,
    *,
    schedulers: Collection[str] = (DEFAULT_SCHEDULER,),
    progress: Callable[[int], None] | None = None,
) -> ShadowReport:
    """`schedulers`: names in Karmada's bindings; OCM's scheduler has none and is always compared.
    `progress`: per cent. PointError, LedgerError: it cannot be read."""
    streams = sorted(head.stream for head in await ledger.heads(FLEET))
    if not streams:
        raise LedgerError("there is no fleet stream yet, and so no decision to compare")
    walks = [
        await _walked(ledger, stream, hub, from_, to, schedulers, progress) for stream in streams
    ]
    if not any(walk.heard for walk in walks):
        raise LedgerError(f"no fact came from a hub {hub}: join it with --hub")
    at = await moment_of(ledger, to)
    times = await ledger.first_and_last() if at is None else None
    end = at if at is not None else (0 if times is None else times[1])
    waiting = [one for walk in walks for one in walk.unplaced(end)]
    found = sorted((one for walk in walks for one in walk.found), key=_in_time)
    return ShadowReport(
        hub,
        tuple(schedulers),
        "",
        min(walk.begin for walk in walks),
        end,
        max(len(walk.state.clusters) for walk in walks),
        (*found, *sorted(waiting, key=_in_time)),
        sum(walk.runs for walk in walks),
        sum(walk.run_s for walk in walks),
        hub=True,
    )


def _in_time(one: ShadowDecision) -> tuple[Micros, str, str]:
    return one.at_us, one.namespace, one.name


async def _walked(
    ledger: Ledger,
    stream: str,
    hub: str,
    from_: HistoryPoint,
    to: HistoryPoint,
    schedulers: Collection[str],
    progress: Callable[[int], None] | None,
) -> _FleetWalk:
    first, last = await round_of(ledger, stream, from_), await round_of(ledger, stream, to)
    start = await state_at(ledger, stream, HistoryPoint("", stream, first))
    assert isinstance(start.decider, FleetDecider), "a fleet stream"
    walk = _FleetWalk(stream, start.decider, start.state, f"{HUB_SOURCE}/{hub}", schedulers)
    if first:
        facts = await ledger.facts_at(start.head.at, POLICIES.name)
        walk.start(start.head.at, [event_of(fact) for fact in facts])
    async for recorded in ledger.recorded_rounds(stream, first + 1, last, on_trust=True):
        walk.round(recorded)
        if progress is not None:
            progress(100 * (recorded.round.number - first) // max(1, last - first))
    walk.settle(None)
    return walk


@dataclass(slots=True)
class _Choice:
    """A choice of OCM's scheduler, of which more slices may come. `result`: ours, on the facts at
    its beginning. `created_us`: of the newest slice in it."""

    policy: Policy
    result: SelectionResult
    at: Micros
    waited_us: Micros
    last: Micros


@dataclass(slots=True)
class _FleetWalk:
    """Through the rounds of one fleet stream. `source`: of the hub's facts. `theirs`: binding ->
    what their scheduler wrote. `asked`: binding or placement -> since when it waits for a choice.
    `since`: objects that are older were placed before and are not compared."""

    stream: str
    decider: FleetDecider
    state: FleetState
    source: str
    schedulers: Collection[str]
    theirs: dict[str, Theirs] = field(default_factory=dict)
    slices: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    asked: dict[str, Micros] = field(default_factory=dict)
    choices: dict[str, _Choice] = field(default_factory=dict)
    found: list[ShadowDecision] = field(default_factory=list)
    begin: Micros = 0
    since: Micros = 0
    heard: bool = False
    runs: int = 0
    run_s: float = 0.0

    def start(self, at: Micros, policies: Sequence[Event[Any]]) -> None:
        """From a later round on: what is known by then was there before. `policies`: those that
        held then."""
        self.begin = self.since = at
        for event in policies:
            policy = event.data.policy if isinstance(event.data, PolicyApplied) else None
            if event.source == self.source and policy is not None and policy.chosen is not None:
                key = f"{policy.namespace}/{policy.chosen.placement}"
                name = f"{policy.namespace}/{policy.name}"
                self.slices.setdefault(key, {})[name] = policy.chosen.clusters
        for key in list(self.slices):
            self._record_theirs(key)
        for record in list(self.state.bindings.values()):
            if self._counts(record):
                self.theirs[record.spec.name] = _written(record)

    # --- rounds

    def round(self, recorded: RecordedRound) -> None:
        at = recorded.round.at
        self.begin = self.begin or at
        if rebase_of(recorded.events) is not None:
            self.state = recover(self.decider, self.state, (recorded,))
            return
        self.settle(at)
        seq = recorded.round.first_seq
        new = [made for event in recorded.events if (made := self._take(event, at)) is not None]
        for name, held, event_id in new:
            self._compare_binding(name, held, event_id, at, seq)
        touched: set[str] = set()
        for decision in recorded.round.decisions:
            self.decider.fold_decision(self.state, decision, at)
            seq = decision.seq
            if isinstance(decision.data, ScheduleAnswer):
                touched.add(decision.data.binding)
            elif is_selection(decision.subject):
                self._record_theirs(key_of(decision.subject))
        count = len(recorded.round.decisions)
        self.decider.end_round(self.state, count, recorded.round.profile)
        for name in sorted(touched & self.theirs.keys()):
            self._adopt(name, self.theirs[name], recorded.round.decisions[-1].id, at, seq)

    def _take(self, event: Event[Value], at: Micros) -> tuple[str, Theirs, UUID] | None:
        """Folds an input. Returns a binding that their scheduler placed by it, what it held before
        and the event."""
        data = event.data
        ours = event.source == self.source
        if ours and not self.heard:
            self.heard, self.since = True, self.since or at // 1_000_000 * 1_000_000
        before: BindingState | None = None
        if ours and isinstance(data, BindingRequested):
            before = self.state.bindings.get(data.binding.name)
        spec = None if before is None else before.spec
        self.decider.fold_input(self.state, event, at)
        if not ours:
            return None
        if isinstance(data, PolicyApplied | PolicyRemoved):
            self._take_policy(data, at)
            return None
        if isinstance(data, BindingWithdrawn):
            self.theirs.pop(data.name, None)
            self.asked.pop(data.name, None)
        if not isinstance(data, BindingRequested):
            return None
        record = self.state.bindings.get(data.binding.name)
        if record is None or not self._counts(record):
            return None
        name, now = record.spec.name, _written(record)
        held = self.theirs.get(name, {})
        if spec is None:
            self.asked[name] = record.spec.created_us or at
            old = 0 < record.spec.created_us < self.since
            if now and (old or not record.spec.created_us):
                self.asked.pop(name)
                self.theirs[name] = now
                return None
        elif _demand(spec) != _demand(record.spec):
            self.asked[name] = at
        if now == held or not now or not _complete(record, now):
            self.theirs[name] = now
            return None
        self.theirs[name] = now
        return name, held, event.id

    def _counts(self, record: BindingState) -> bool:
        spec = record.spec
        return not spec.suspended and (spec.scheduler or DEFAULT_SCHEDULER) in self.schedulers

    # --- Karmada

    def _compare_binding(self, name: str, held: Theirs, event: UUID, at: Micros, seq: int) -> None:
        record = self.state.bindings.get(name)
        if record is None or record.withdrawn:
            return
        theirs = self.theirs[name]
        began = time.perf_counter()
        one, affinity = compare_binding(self.state, record, held, theirs)
        self.run_s += time.perf_counter() - began
        self.runs += 1
        asked = self.asked.pop(name, 0)
        waited = max(0, at - asked) if asked else 0
        self.found.append(msgspec.structs.replace(one, at_us=at, waited_us=waited))
        self._adopt(name, theirs, event, at, seq, affinity)

    def _adopt(
        self, name: str, theirs: Theirs, event: UUID, at: Micros, seq: int, affinity: str = ""
    ) -> None:
        """Folds their choice as if it were the decision."""
        record = self.state.bindings.get(name)
        if record is None or record.withdrawn or (dict(theirs) == record.targets and not affinity):
            return
        targets = SolveResult(dict(theirs), affinity or record.affinity, Explanation())
        draft = schedule(record, "ReconcileSchedule", "", targets, (), event)
        kind, data = as_decision(draft.data), draft.data
        assert isinstance(data, ScheduleAnswer), "no other is made of targets"
        decision = Decision(
            self.stream, seq, event, kind.TYPE, name, draft.outcome, event, data, b""
        )
        apply_schedule(self.state, data, decision, at)

    # --- OCM

    def _take_policy(self, data: PolicyApplied | PolicyRemoved, at: Micros) -> None:
        if isinstance(data, PolicyRemoved):
            if data.kind == SLICE:
                for key, slices in self.slices.items():
                    if slices.pop(f"{data.namespace}/{data.name}", None):
                        self._changed(key, at, created=False)
            else:
                self.asked.pop(f"{data.namespace}/{data.name}", None)
            return
        policy = data.policy
        if policy.chosen is not None:
            key = f"{policy.namespace}/{policy.chosen.placement}"
            slices = self.slices.setdefault(key, {})
            name = f"{policy.namespace}/{policy.name}"
            known = name in slices
            if slices.get(name, ()) == policy.chosen.clusters:
                slices.setdefault(name, ())
                return
            if not known and policy.chosen.created_us < self.since:
                slices[name] = policy.chosen.clusters
                self._record_theirs(key)
                self.asked.pop(key, None)
                return
            self._changed(key, at, {name: policy.chosen.clusters})
        elif policy.selection is not None:
            self.asked[name_of(policy)] = at

    def _changed(
        self,
        key: str,
        at: Micros,
        slices: Mapping[str, tuple[str, ...]] | None = None,
        *,
        created: bool = True,
    ) -> None:
        """Begins a choice, or adds to the one that has begun."""
        selections = self.state.selections
        policy = None if selections is None else selections.policy(key)
        choice = self.choices.get(key)
        if choice is not None:
            choice.last = at
        elif created and selections is not None and policy is not None and not _is_ours(policy):
            began = time.perf_counter()
            result = compare_placement(selections.fleet, policy, self._clusters(key), at)
            self.run_s += time.perf_counter() - began
            self.runs += 1
            asked = self.asked.pop(key, 0)
            self.choices[key] = _Choice(policy, result, at, max(0, at - asked) if asked else 0, at)
        self.slices[key].update(slices or {})
        self._record_theirs(key)

    def settle(self, at: Micros | None) -> None:
        """Compares the choices to which nothing was added for a while; None: all."""
        for key, choice in list(self.choices.items()):
            if at is not None and at - choice.last < TOGETHER_US:
                continue
            del self.choices[key]
            if theirs := self._clusters(key):
                one = compared_selection(choice.result, choice.policy, theirs)
                self.found.append(
                    msgspec.structs.replace(one, at_us=choice.at, waited_us=choice.waited_us)
                )

    def _clusters(self, key: str) -> Sequence[str]:
        """What their scheduler chose for a placement, over all slices."""
        slices = self.slices.get(key, {})
        return [cluster for name in sorted(slices) for cluster in slices[name]]

    def _record_theirs(self, key: str) -> None:
        selections = self.state.selections
        policy = None if selections is None else selections.policy(key)
        if selections is not None and policy is not None and not _is_ours(policy):
            selections.fleet.decided(key, self._clusters(key))

    # --- what is left

    def unplaced(self, end: Micros) -> list[ShadowDecision]:
        """What has waited long for their scheduler, and what we would choose now."""
        found: list[ShadowDecision] = []
        for key, since in sorted(self.asked.items()):
            if end - since < WAITS_US:
                continue
            one = self._left(key, end)
            if one is not None and one.verdict == "unplaced":
                found.append(msgspec.structs.replace(one, at_us=end, waited_us=end - since))
        return found

    def _left(self, key: str, end: Micros) -> ShadowDecision | None:
        record = self.state.bindings.get(key)
        if record is not None and self._counts(record) and not self.theirs.get(key):
            self.runs += 1
            return compare_binding(self.state, record, {}, {})[0]
        selections = self.state.selections
        policy = None if selections is None else selections.policy(key)
        if selections is None or policy is None or _is_ours(policy) or self._clusters(key):
            return None
        self.runs += 1
        return compared_selection(compare_placement(selections.fleet, policy, (), end), policy, ())


def _written(record: BindingState) -> Theirs:
    return {target.cluster: max(0, target.replicas) for target in record.spec.clusters}


def _complete(record: BindingState, theirs: Theirs) -> bool:
    """Whether it is a choice of their scheduler: what others take away, as when a cluster is left,
    is none yet."""
    if not record.counted or record.sets or record.parsed.duplicated:
        return True
    return sum(theirs.values()) == record.spec.replicas


def _demand(spec: Value) -> Value:
    """Without what their scheduler writes."""
    return msgspec.structs.replace(spec, clusters=(), unacted=())


def _is_ours(policy: Policy) -> bool:
    """Whether OCM's scheduler leaves the placement alone."""
    if not policy.manifest:
        return False
    said = json.loads(policy.manifest)["metadata"].get("annotations") or {}
    return bool(said.get(DISABLED) == "true")
