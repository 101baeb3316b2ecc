"""The work lists of a fleet stream: which bindings must be evaluated, and when. They list bindings
with an open request, bindings that lost replicas, and bindings that wait for a place.

The lists are derived from the binding records and from the last evaluation of each waiting group.
Every round ends with `end_round`, whether this process decided it or only folded it. To change a
record, call `forget` before and `add` after the change; in between the binding is in no list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.domain.binding import Binding
from wharfinger.kernel.decider import Micros
from wharfinger.stages.due_times import Agenda
from wharfinger.stages.fleet.columns import EstimateColumn, Values, same
from wharfinger.stages.fleet.moves import RebalanceState, movable
from wharfinger.stages.fleet.state import quotas as quota
from wharfinger.stages.fleet.state.bindings import NOTHING, BindingState
from wharfinger.stages.fleet.state.estimates import Estimates
from wharfinger.stages.fleet.state.indexes import BindingIndex
from wharfinger.stages.fleet.state.quotas import Quotas

GroupKey = tuple[bytes, str, str]
"""See `BindingState.group`."""


@dataclass(slots=True)
class WaitingGroup:
    """Holds the bindings without a place that share feasible clusters and estimates
    (`BindingState.group`), with the estimates and facts under which they were last evaluated. While
    these are unchanged, none of them needs an evaluation. `values` None and `facts` -1: an
    evaluation is due."""

    names: dict[str, None] = field(default_factory=dict)
    values: Values | None = None
    made: tuple[int, ...] = ()
    """The numbers of `Estimates.makeable` that belong to `values`."""
    facts: int = -1
    choices: tuple[object, ...] = ()
    """`Feasible.choice` of each affinity term when it was last compared. Not saved: after a restart
    the group is evaluated."""

    def look_again(self) -> None:
        self.values, self.facts = None, -1

    def fork(self) -> WaitingGroup:
        return WaitingGroup(self.names.copy(), self.values, self.made, self.facts, self.choices)


@dataclass(frozen=True, slots=True)
class StandingBinding:
    """What the last evaluation of a binding in `WaitingBindings.everywhere` read, where it left the
    binding as it is. While all of it is the same, an evaluation would change nothing again.

    `choices`: index of each affinity term that could be tried -> its `Feasible.choice`.
    `values`: the estimates; None: they were not read.
    """

    choices: tuple[tuple[int, object], ...]
    values: Values | None


@dataclass(slots=True)
class WaitingBindings:
    """Holds the lists of bindings to be evaluated. Each list is an ordered dict of binding names,
    in order of arrival. A binding can be in several lists."""

    bindings: Mapping[str, BindingState]
    index: BindingIndex
    estimates: Estimates
    quotas: Quotas
    moves: RebalanceState
    asked: dict[str, None] = field(default_factory=dict)
    """Bindings with a request that has not been answered."""
    withdrawn: dict[str, None] = field(default_factory=dict)
    open: dict[str, None] = field(default_factory=dict)
    """Bindings that may need a decision without a request: they lost replicas, or a cluster of
    theirs is being deleted."""
    groups: dict[GroupKey, WaitingGroup] = field(default_factory=dict)
    everywhere: dict[str, None] = field(default_factory=dict)
    """Bindings that go to every feasible cluster: Duplicated ones and objects without replicas."""
    everywhere_facts: int = -1
    """`Estimates.facts` when the bindings in `everywhere` were last evaluated."""
    standing: dict[str, StandingBinding] = field(default_factory=dict)
    """Bindings in `everywhere` that an evaluation left as they are, since their records changed
    last. Not saved, because it only saves evaluations that would change nothing."""
    paused: dict[str, None] = field(default_factory=dict)
    """Bindings without a place that are not evaluated until their back-off pause ends."""
    pauses: Agenda[tuple[str]] = field(default_factory=Agenda)
    """End of the pause of each deferred binding."""
    graces: Agenda[tuple[str]] = field(default_factory=Agenda)
    """The next time at which a grace period of a leaving copy ends, or a waiting binding may return
    to a cluster where it was unhealthy."""
    retry_due: bool = False
    """Something changed that may allow a waiting binding to be placed."""
    regrouped: bool = False
    """The targets of a member of a workload group changed, so the other members are evaluated once
    more after this round."""

    # Records

    def add(self, record: BindingState, deleting: Mapping[str, None], clock: Micros) -> None:
        """Add a new or changed binding to every work list that it belongs to. The lists say which
        bindings must be evaluated, for example because of an open request, a refusal, lost
        replicas, or a better placement that may exist.
        A withdrawn binding is in the list `withdrawn` only. A binding that is suspended or belongs
        to another scheduler is in no list. `deleting`: the clusters that are being deleted.
        `clock`: the present time in microseconds."""
        name = record.spec.name
        if record.withdrawn:
            self.withdrawn[name] = None
            return
        if record.left_alone:
            return
        if record.asked:
            self.asked[name] = None
        elif record.refused == quota.EXCEEDED:
            self.quotas.wait(record.spec)
        elif record.refused:
            self._wait(record)
            if record.pause_until > clock:
                self.paused[name] = None
        elif record.tracks_all_feasible and not record.parsed.by_region:
            self.everywhere[name] = None
        if record.leaving or record.excluded_until:
            self.await_grace(record)
        if not record.asked and not record.refused and movable(record.spec, record.affinity):
            self.moves.consider(
                name, record.spec, record.failback_since, record.rebalance_since, record.moved_at
            )
        if is_open(record, deleting):
            self.open[name] = None

    def _wait(self, record: BindingState) -> None:
        group, now = self.groups.get(record.group), self.estimates.column(record).values
        if group is None:
            made, facts = self.estimates.makeable(record), self.estimates.facts
            group = self.groups[record.group] = WaitingGroup(values=now, facts=facts, made=made)
        elif not same(group.values, now) or group.made != self.estimates.makeable(record):
            group.values = (
                None  # the others were found without a place under other estimates than this one
            )
        group.names[record.spec.name] = None

    def forget(self, record: BindingState) -> None:
        name = record.spec.name
        self.asked.pop(name, None)
        self.withdrawn.pop(name, None)
        self.everywhere.pop(name, None)
        self.standing.pop(name, None)
        self.open.pop(name, None)
        self.paused.pop(name, None)
        self.moves.drop(name)
        if record.leaving or record.excluded_until:
            self.graces.discard((name,))
        if record.deferred:
            record.deferred = False
            self.pauses.discard((name,))
        if record.refused == quota.EXCEEDED:
            self.quotas.stop_waiting(record.spec)
        elif record.refused and (group := self.groups.get(record.group)) is not None:
            group.names.pop(name, None)
            if not group.names:
                del self.groups[record.group]

    def await_grace(self, record: BindingState) -> None:
        """Set or remove the time in `graces` (binding -> time) at which the binding must be
        evaluated next because a period ends. It is the earliest of these times:
        - the end of the grace period of replicas in a cluster from which the binding moves away,
          if all wanted replicas are assigned to its other clusters (`fully_assigned`);
        - while the binding is refused, the end of its exclusion from a cluster where it was
          unhealthy.
        A binding that is withdrawn, suspended or of another scheduler has no time in `graces`."""
        name = (record.spec.name,)
        dues = (
            [one.until_us for one in record.leaving.values() if one.until_us]
            if record.fully_assigned
            else []
        )
        if record.refused:
            dues += record.excluded_until.values()
        if dues and not record.left_alone and not record.withdrawn:
            self.graces.set(name, min(dues))
        else:
            self.graces.discard(name)

    def defer(self, record: BindingState) -> None:
        """Postpone the evaluation of a binding that is in its back-off pause to the end of the
        pause."""
        self.paused.pop(record.spec.name, None)
        record.deferred = True
        self.pauses.set((record.spec.name,), record.pause_until)

    def rebuild(self, deleting: Mapping[str, None], clock: Micros) -> None:
        """Build all work lists again from the binding records, as after loading a snapshot.
        `deleting`: the clusters that are being deleted. `clock`: the present time in microseconds.
        Call `end_round` afterwards. It records the estimates under which the waiting bindings were
        last evaluated."""
        for names in (self.asked, self.withdrawn, self.open, self.everywhere, self.paused):
            names.clear()
        self.groups.clear()
        self.pauses, self.graces = Agenda(), Agenda()
        for record in self.bindings.values():
            deferred = record.deferred
            self.add(record, deleting, clock)
            if deferred:
                self.defer(record)

    # What happened

    def look_again(self, record: BindingState) -> None:
        """Mark the binding for evaluation, together with its group. Use this for a changed request
        that needs no answer, where the binding was not evaluated under the present facts, for
        example because it was suspended."""
        if record.refused == quota.EXCEEDED:
            self.quotas.ask_again(record.spec)
        if record.refused and (group := self.groups.get(record.group)) is not None:
            group.look_again()
        self.everywhere_facts = -1

    def peers_moved(self, spec: Binding) -> bool:
        """Mark for evaluation the bindings that share a workload group with `spec`, because the
        targets of `spec` changed. A workload group has bindings that must run in the same clusters,
        or bindings that must not. Return whether a binding was marked.
        Only two sorts of members are marked: bindings that wait after a refusal, and bindings that
        go to every feasible cluster. They are evaluated in this round, and once more in the next
        round (`regrouped`), because a member may have been evaluated before `spec` moved."""
        if not spec.affinity_group and not spec.anti_affinity_group:
            return False
        any_waits = False
        for name in (*self.index.groups.with_(spec), *self.index.groups.against(spec)):
            record = self.bindings[name]
            if not record.refused and not record.tracks_all_feasible:
                continue
            any_waits = True
            if record.refused and (group := self.groups.get(record.group)) is not None:
                group.look_again()
        if any_waits:
            self.regrouped, self.everywhere_facts = True, -1
        return any_waits

    # The end of a round

    def end_exclusions(self, clock: Micros) -> list[str]:
        """Remove the exclusions that have ended by the time `clock`. An exclusion keeps a binding
        away from a cluster where it was unhealthy; afterwards the binding may return. Return the
        names of the bindings whose exclusions changed."""
        changed: list[str] = []
        for (name,) in self.graces.pop(clock):
            record = self.bindings[name]
            left = {c: until for c, until in record.excluded_until.items() if until > clock}
            if len(left) < len(record.excluded_until):
                record.excluded_until = left or NOTHING
                changed.append(name)
            self.await_grace(record)
        return changed

    def defer_paused(self, unfinished: bool, clock: Micros) -> list[str]:
        """Update the back-off pauses at the end of a round. A refused binding in a pause is not
        evaluated, even if something changes. Return the names of the changed bindings.
        - If estimates or facts changed since the last evaluation of a paused binding, its next
          evaluation is postponed to the end of the pause.
        - A postponement ends when the pause is over; then the binding is evaluated.
        `unfinished`: the round did not evaluate everything. Then the evaluation of every paused
        binding is postponed, and no postponement ends. `clock`: the present time in microseconds.
        """
        changed: list[str] = []
        if not unfinished:
            for (name,) in self.pauses.pop(clock):
                self.bindings[name].deferred = False
                changed.append(name)
        for name in list(self.paused):
            record = self.bindings[name]
            if record.pause_until <= clock:
                del self.paused[name]
                continue
            group = self.groups[record.group]
            otherwise = group.facts != self.estimates.facts or not same(
                group.values, self.column_of(group).values
            )
            if unfinished or otherwise or group.made != self.estimates.makeable(record):
                self.defer(record)
                changed.append(name)
        return changed

    def end_round(self, unfinished: bool, deleting: Mapping[str, None]) -> None:
        """End a round: record that all waiting bindings were evaluated under the present estimates
        and facts. They are evaluated again only when estimates or facts change.
        Exception: while a cluster has replicas that were decided but not yet counted, the estimates
        are not recorded. The next capacity event then causes an evaluation.
        `unfinished`: the round did not evaluate everything; all waiting bindings and all bindings
        with lost replicas are evaluated again. `deleting`: the clusters that are being deleted."""
        self.retry_due = unfinished
        if unfinished:
            for group in self.groups.values():
                group.look_again()
            self.everywhere_facts = -1
            self.open = {
                name: None for name, record in self.bindings.items() if is_open(record, deleting)
            }
            return
        facts = self.estimates.facts
        deducted = bool(self.groups) and any(c.pending for c in self.estimates.clusters.values())
        for group in self.groups.values():
            group.values = None if deducted else self.column_of(group).values
            group.facts = facts
            if self.estimates.index.provisioning or group.made:
                group.made = self.estimates.makeable(self.bindings[next(iter(group.names))])
        self.everywhere_facts = facts
        self.open.clear()

    def column_of(self, group: WaitingGroup) -> EstimateColumn:
        """Return the present estimates of the group's class."""
        return self.estimates.column(self.bindings[next(iter(group.names))])

    def fork(
        self,
        bindings: Mapping[str, BindingState],
        index: BindingIndex,
        estimates: Estimates,
        quotas: Quotas,
        moves: RebalanceState,
    ) -> WaitingBindings:
        return WaitingBindings(
            bindings,
            index,
            estimates,
            quotas,
            moves,
            self.asked.copy(),
            self.withdrawn.copy(),
            self.open.copy(),
            {key: group.fork() for key, group in self.groups.items()},
            self.everywhere.copy(),
            self.everywhere_facts,
            self.standing.copy(),
            self.paused.copy(),
            self.pauses.copy(),
            self.graces.copy(),
            self.retry_due,
            self.regrouped,
        )


def is_open(record: BindingState, deleting: Mapping[str, None]) -> bool:
    """Return whether the binding may need a decision without a request: it lost replicas, or, while
    it is not refused, it has targets in a cluster that is being deleted. False for a binding that
    is withdrawn, suspended, or belongs to another scheduler."""
    if record.targets == record.before and not (
        deleting and any(name in deleting for name in record.targets)
    ):
        return False
    if record.withdrawn or record.left_alone:
        return False
    return record.shrunk or not record.refused
