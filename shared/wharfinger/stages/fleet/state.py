"""What the fleet stage remembers, and how facts and its own decisions change it. Decides nothing.

Everything that is to be decided can be read off the state: an unanswered request, a proposal in the queue, targets that are
no longer those last decided, a binding that waits. Nothing is kept in passing, which is why a state that was recovered
(inputs and decisions folded, nothing decided) goes on exactly like the one that decided. Attributes below a line
`derived` follow from the others: indexes and caches, not part of the saved state; they save work and never change an answer.

Of each cluster `clusters` keeps the facts and what still fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.assign import problem_of
from wharfinger.engine.fleet.estimate import Demand, demand_of
from wharfinger.engine.fleet.trigger import placement_changed
from wharfinger.events.assignments import Refused
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import (
    BindingReleased,
    ClusterRecovered,
    ClusterSilenced,
    FailoverHeld,
    FailoverResumed,
    PlanCommitted,
    PlanRefused,
    ProposalRefused,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.envelope import Event, derived_id, uuid_of
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.plans import PlanRequested, Step
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.step import decision_id
from wharfinger.stages.agenda import Agenda
from wharfinger.stages.fleet.clusters import UNLIMITED, ClusterState, Column, Pending

LOG_LENGTH = 8192
"""After so many touched clusters the log starts anew and every column is counted afresh when next used."""

CACHED = 4096
"""Size at which a cache is emptied rather than left to grow."""

Proposal = FailoverProposed | EvictionProposed | RescheduleProposed


@dataclass(slots=True)
class Plan:
    """A placement, read once: many bindings share one."""

    key: bytes
    placement: Placement
    problem: str

    @property
    def duplicated(self) -> bool:
        return self.placement.replicas.type == "Duplicated"

    @property
    def by_region(self) -> bool:
        return any(c.field == "region" for c in self.placement.spread)

    @property
    def static(self) -> bool:
        scheduling = self.placement.replicas
        return scheduling.type == "Divided" and scheduling.preference == "Weighted" and not scheduling.dynamic


class BindingState(msgspec.Struct):
    """`targets`: what it holds; `before`: what was last decided, different while a refusal or a lost cluster is not answered.

    `arrival`: the order of requests. `asked`: the present request has not been answered. `applied*`: the placement,
    replicas, class and reschedule token of the last decision (`applied` None: never decided). `assigned_by`: cluster ->
    seq of the decision that last told it its count. `suspect`: silent targets whose replicas are also counted elsewhere;
    `extra`: where, and how many. `evicted`: clusters whose NoExecute taint it did not bear. `refused`: reason of the last
    refusal while it waits. `cause`: id of the event that made the next decision necessary.
    """

    spec: Binding
    arrival: int
    cause: UUID | None
    asked: bool = True
    withdrawn: bool = False
    targets: dict[str, int] = {}
    before: dict[str, int] = {}
    assigned_by: dict[str, int] = {}
    applied: Placement | None = None
    applied_replicas: int = 0
    applied_class: str = ""
    applied_token: str = ""
    affinity: str = ""
    suspect: tuple[str, ...] = ()
    extra: dict[str, int] = {}
    evicted: dict[str, None] = {}
    refused: str = ""
    # derived
    class_key: str = ""
    plan: Plan = None  # type: ignore[assignment]  # set as soon as the spec is

    @property
    def counted(self) -> bool:
        """False for an object without replicas: it goes to its clusters as it is."""
        return self.spec.replicas > 0 or not self.spec.requirements.empty

    @property
    def group(self) -> tuple[bytes, str, str]:
        """Bindings of one group are feasible in the same clusters and estimated alike."""
        return (self.plan.key, self.spec.resource.gvk, self.class_key)

    @property
    def shrunk(self) -> bool:
        return self.targets != self.before


@dataclass(slots=True)
class Feasible:
    """The clusters, in order of name, that a placement's term admits as new targets, and how many fell for which reason."""

    facts: int
    clusters: list[Cluster]
    names: list[str]
    positions: list[int]
    refused: dict[str, int]
    weights: list[int] | None


@dataclass(slots=True)
class Waiting:
    """Bindings of one group that wait, and the estimates and facts under which all of them were last found to have no place."""

    names: dict[str, None] = field(default_factory=dict)
    values: list[int] | None = None
    facts: int = -1


@dataclass(frozen=True, slots=True)
class Solving:
    """The arguments of one call of `places.solve`, taken down when it was made."""

    held: dict[str, int]
    fresh: bool
    without: tuple[str, ...]
    retry: bool


@dataclass(slots=True)
class FleetState:
    stream: str
    clusters: dict[str, ClusterState] = field(default_factory=dict)
    bindings: dict[str, BindingState] = field(default_factory=dict)
    proposals: dict[UUID, Proposal] = field(default_factory=dict)
    requested: dict[UUID, PlanRequested] = field(default_factory=dict)
    """Plans to be answered, by the id of the event that asked."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """Cluster stream -> highest seq of its outcomes taken in."""
    arrivals: int = 0
    held: bool = False
    stirrer: UUID | None = None
    """Id of the last event that may let a waiting binding be placed."""
    unfinished: bool = False
    """The last round was a full one: it may have left something that nobody looked at."""
    # derived
    order: list[ClusterState] = field(default_factory=list)
    facts: int = 0
    """Rises whenever another set of clusters may be feasible."""
    layout: int = 0
    """Rises whenever columns have to be made afresh."""
    log: list[int] = field(default_factory=list)
    """Positions of the clusters whose estimates have changed."""
    columns: dict[str, Column] = field(default_factory=dict)
    demands: dict[str, Demand] = field(default_factory=dict)
    plans: dict[bytes, Plan] = field(default_factory=dict)
    latest: Plan | None = None
    """Of the last binding read: most bindings have the plan of the one before."""
    asked: dict[str, None] = field(default_factory=dict)
    withdrawn: dict[str, None] = field(default_factory=dict)
    open: dict[str, None] = field(default_factory=dict)
    """May need a decision though nobody asked: shrunk, or on a cluster that is being deleted."""
    waiting: dict[tuple[bytes, str, str], Waiting] = field(default_factory=dict)
    everywhere: dict[str, None] = field(default_factory=dict)
    """Bindings whose clusters follow the fleet: Duplicated ones and objects without replicas."""
    everywhere_facts: int = -1
    by_cluster: dict[str, dict[str, None]] = field(default_factory=dict)
    suspected: dict[str, dict[str, None]] = field(default_factory=dict)
    """Cluster -> bindings that count it among their suspects."""
    leases: Agenda[tuple[str]] = field(default_factory=Agenda)
    leased: int = 0
    silent: dict[str, None] = field(default_factory=dict)
    stirred: bool = False
    clock: Micros = 0
    feasible: dict[tuple[bytes, str, int], Feasible] = field(default_factory=dict)
    on_behalf: dict[UUID, UUID] = field(default_factory=dict)
    """Proposal of a plan -> the commitment it came with: the cause of its answer, which the same round gives."""
    touched: dict[str, None] | None = None
    """Bindings that are not what they were when this was last emptied; kept for who makes snapshots of what changed."""
    solving: list[Solving] | None = None
    """What was asked of `places.solve`, for who asks it once more to explain; nobody else keeps it."""

    # Facts

    def is_news(self, event: Event[Value]) -> bool:
        """Whether folding the event would change anything."""
        data = event.data
        match data:
            case BindingRequested(binding=spec):
                record = self.bindings.get(spec.name)
                return record is None or record.withdrawn or record.spec != spec
            case BindingWithdrawn(name=name):
                record = self.bindings.get(name)
                return record is not None and not record.withdrawn
            case CapacityEstimated(cluster=name):
                cluster = self.clusters.get(name)
                return cluster is None or cluster.capacity != data
            case ClusterObserved(cluster=facts):
                cluster = self.clusters.get(facts.name)
                return cluster is None or cluster.facts != facts or cluster.promises
            case ClusterForgotten(name=name):
                cluster = self.clusters.get(name)
                return cluster is not None and cluster.facts is not None
            case OutcomesDecided():
                return data.through > self.outcomes.get(data.stream, 0)
            case FailoverProposed() | EvictionProposed() | RescheduleProposed():
                return data.stream == self.stream and event.id not in self.proposals
            case PlanRequested():
                return data.stream == self.stream and event.id not in self.requested
            case Ticked():
                return True
            case _:
                return False  # policies come with the bindings they place; the rest is not for a fleet stream

    def fold_input(self, event: Event[Value], at: Micros) -> None:
        self.clock = at
        data = event.data
        match data:
            case BindingRequested(binding=spec):
                self._request(spec, event.id)
            case BindingWithdrawn(name=name):
                self._withdraw(name, event.id)
            case CapacityEstimated():
                self._count(data, event.id, at)
            case ClusterObserved(cluster=facts):
                self._observe(facts, event.id, at)
            case ClusterForgotten(name=name):
                self._forget(name, event.id)
            case OutcomesDecided():
                self._learn(data, event.id)
            case FailoverProposed() | EvictionProposed() | RescheduleProposed():
                if data.stream == self.stream:
                    self.proposals.setdefault(event.id, data)
            case PlanRequested():
                if data.stream == self.stream:
                    self.requested.setdefault(event.id, data)
            case _:
                pass  # ticks bring the time, which is kept; for the others see `is_news`

    def _request(self, spec: Binding, cause: UUID) -> None:
        record = self.bindings.get(spec.name)
        if record is None:
            record = BindingState(spec, 0, cause)
            self.bindings[spec.name] = record
            self._ask(record, cause)
            self._read(record)
            self._index(record)
            self._note(spec.name)
            return
        elif record.spec != spec or record.withdrawn:
            self._unindex(record)
            record.withdrawn = False
            record.spec = spec
            self._read(record)
            if _differs(record):
                self._ask(record, cause)
        else:
            return
        self._reindex(record)
        self._look_again(record, cause)
        self._note(spec.name)

    def _withdraw(self, name: str, cause: UUID) -> None:
        record = self.bindings.get(name)
        if record is not None and not record.withdrawn:
            record.withdrawn, record.cause = True, cause
            self._reindex(record)
            self._note(name)

    def _look_again(self, record: BindingState, cause: UUID) -> None:
        """A binding that was told anew and needs no answer was not decided under what holds now: perhaps it was suspended."""
        if record.asked or record.spec.suspended:
            return
        group = self.waiting.get(record.group) if record.refused else None
        if group is not None:
            group.values, group.facts = None, -1
        self.everywhere_facts = -1
        self.stirrer, self.stirred = cause, True

    def _note(self, name: str) -> None:
        if self.touched is not None:
            self.touched[name] = None

    def _ask(self, record: BindingState, cause: UUID) -> None:
        self.arrivals += 1
        record.arrival, record.cause, record.asked = self.arrivals, cause, True

    def _read(self, record: BindingState) -> None:
        spec = record.spec
        record.class_key = spec.requirements.class_key
        if self.latest is None or self.latest.placement != spec.placement:
            self.latest = self._plan_of(spec.placement)
        record.plan = self.latest

    def _plan_of(self, placement: Placement) -> Plan:
        key = canonical(placement)
        plan = self.plans.get(key)
        if plan is None:
            if len(self.plans) >= CACHED:
                self.plans.clear()
            plan = self.plans[key] = Plan(key, placement, problem_of(placement))
        return plan

    def _observe(self, facts: Cluster, cause: UUID, at: Micros) -> None:
        cluster = self.clusters.get(facts.name)
        if cluster is None:
            cluster = self.clusters[facts.name] = ClusterState(facts.name)
        old = cluster.facts
        if old == facts and not cluster.promises:
            return
        cluster.heard_at, cluster.heard_by = at, cause
        if old != facts:
            self._count_lease(cluster, -1)
            cluster.facts = facts
            self._count_lease(cluster, 1)
            cluster.tainted_at = {
                taint.key + "=" + taint.value: cluster.tainted_at.get(taint.key + "=" + taint.value, at)
                for taint in facts.taints
                if taint.effect == "NoExecute"
            }
            if old is None or old.summary != facts.summary:
                if cluster.capacity is None:
                    cluster.pending.clear()  # a new summary is taken to hold what was assigned before it
                cluster.refresh()
            if old is None:
                self._lay_out()
            elif msgspec.structs.replace(old, summary=None) != msgspec.structs.replace(facts, summary=None):
                self.facts += 1
            self.touch(cluster)
            if facts.deleting:
                for name in self.by_cluster.get(facts.name, ()):
                    self.open[name] = None
            self.stirrer, self.stirred = cause, True
        self.watch(cluster)

    def _forget(self, name: str, cause: UUID) -> None:
        cluster = self.clusters.get(name)
        if cluster is None or cluster.facts is None:
            return
        self._count_lease(cluster, -1)
        self.silent.pop(name, None)
        del self.clusters[name]
        self.leases.discard((name,))
        for binding in self.by_cluster.pop(name, {}):
            record = self.bindings[binding]
            del record.targets[name]
            if not record.asked:
                record.cause = cause
            self.open[binding] = None
            self._note(binding)
        self._lay_out()
        self.stirrer, self.stirred = cause, True

    def _count(self, counted: CapacityEstimated, cause: UUID, at: Micros) -> None:
        cluster = self.clusters.get(counted.cluster)
        if cluster is None:
            cluster = self.clusters[counted.cluster] = ClusterState(counted.cluster)
        elif cluster.capacity == counted:
            return
        cluster.count(counted, self.stream)
        cluster.counted_at = at
        self.touch(cluster)
        self.stirrer, self.stirred = cause, True

    def _learn(self, outcomes: OutcomesDecided, cause: UUID) -> None:
        """A refusal takes replicas back and closes the class. What was placed or released is the estimator's to count."""
        seen = self.outcomes.get(outcomes.stream, 0)
        if outcomes.through <= seen:
            return
        cluster = self.clusters.get(outcomes.cluster)
        for item in outcomes.items:
            if item.seq <= seen:
                continue
            seen = item.seq
            if not isinstance(item, Refused) or item.count <= 0:
                continue
            if cluster is not None:
                cluster.closed[item.class_key] = item.seq
                cluster.reopen(item.class_key)
                self.touch(cluster)
                self.stirrer, self.stirred = cause, True
            record = self.bindings.get(item.binding)
            if record is not None and self._answers(record, outcomes.cluster, item.assignment):
                self._shrink(record, outcomes.cluster, item.count, uuid_of(item.decision) or cause)
        self.outcomes[outcomes.stream] = max(seen, outcomes.through)

    def _answers(self, record: BindingState, cluster: str, assignment: str) -> bool:
        """Whether a refusal speaks of what was last said to the cluster. One of an older assignment is out of date, since the
        cluster answers the newer one too; and of one assignment only the first refusal counts until it is recorded."""
        if record.targets.get(cluster) != record.before.get(cluster):
            return False
        seq = record.assigned_by.get(cluster)
        return seq is not None and assignment == str(decision_id(self.stream, seq))

    def _shrink(self, record: BindingState, cluster: str, count: int, cause: UUID) -> None:
        held = record.targets.get(cluster, 0)
        if count <= 0 or held <= 0:
            return
        if count < held:
            record.targets[cluster] = held - count
        else:
            del record.targets[cluster]
            self.by_cluster[cluster].pop(record.spec.name, None)
        if not record.asked:
            record.cause = cause
        self.open[record.spec.name] = None
        self._note(record.spec.name)

    def carry_out(self, steps: Sequence[Step], cause: UUID, at: Micros) -> None:
        """Take the steps of a plan as if they had come by themselves. `cause`: what is decided because of them has it."""
        for place, step in enumerate(steps):
            match step.data:
                case BindingRequested(binding=spec):
                    self._request(spec, cause)
                case BindingWithdrawn(name=name):
                    self._withdraw(name, cause)
                case ClusterObserved(cluster=facts):
                    self._observe(facts, cause, at)
                case ClusterForgotten(name=name):
                    self._forget(name, cause)
                case FailoverProposed() | EvictionProposed() | RescheduleProposed() as proposal:
                    id = derived_id("step", str(cause), place)
                    self.proposals[id], self.on_behalf[id] = proposal, cause
                case _:
                    raise AssertionError(f"{type(step.data).__name__} is no step of a fleet stream")

    # Decisions

    def fold_decision(self, decision: Decision, at: Micros) -> None:
        self.clock = at
        data = decision.data
        match data:
            case ScheduleDecided() | ScheduleRefused():
                self._schedule(data, decision.seq)
            case BindingReleased(binding=name):
                record = self.bindings.pop(name, None)
                self._note(name)
                if record is not None:
                    self._unindex(record)
                    for cluster in record.targets:
                        self.by_cluster[cluster].pop(name, None)
                    self._index_suspects(record, ())
            case ClusterSilenced(cluster=name, silent_since_us=since):
                self._hush(name, since)
            case ClusterRecovered(cluster=name):
                self._hush(name, None)
            case FailoverHeld():
                self.held = True
            case FailoverResumed():
                self.held = False
            case ProposalRefused():
                pass
            case PlanCommitted() if decision.cause is not None:
                self.carry_out(self.requested.pop(decision.cause).steps, decision.id, at)
                return
            case PlanRefused() if decision.cause is not None:
                del self.requested[decision.cause]
                return
            case _:
                raise AssertionError(f"{decision.type} is no decision of a fleet stream")
        answered = _answered(decision)
        if answered is not None and self.proposals:
            proposal = self.proposals.pop(answered, None)
            self.on_behalf.pop(answered, None)
            if isinstance(proposal, EvictionProposed) and not isinstance(data, ProposalRefused):
                self._note(proposal.binding)
                evicted = self.bindings[proposal.binding].evicted
                evicted[proposal.cluster] = None
                for cluster in [c for c in evicted if not self._expels(c)]:
                    del evicted[cluster]

    def _schedule(self, data: ScheduleDecided | ScheduleRefused, seq: int) -> None:
        record = self.bindings[data.binding]
        self._note(data.binding)
        self._unindex(record)
        name, spec = data.binding, record.spec
        same_class = record.applied_class == record.class_key
        decided, shrunk = isinstance(data, ScheduleDecided), record.shrunk
        targets = {t.cluster: t.replicas for t in data.targets}
        held = record.targets
        for cluster, n in targets.items():
            grown = n - held.get(cluster, 0) if same_class else n
            if grown > 0 and cluster in self.clusters:
                self._take(self.clusters[cluster], seq, record, grown)
            if decided or record.before.get(cluster) != n:  # a decision states all its targets, a refusal what changed
                record.assigned_by[cluster] = seq
            if cluster not in held:
                self.by_cluster.setdefault(cluster, {})[name] = None
        for cluster in held:
            if cluster not in targets:
                self.by_cluster[cluster].pop(name, None)
        for cluster in list(record.assigned_by) if len(record.assigned_by) > len(targets) else ():
            if cluster not in targets:
                del record.assigned_by[cluster]
        if isinstance(data, ScheduleDecided):
            if record.suspect or data.suspect:
                self._suspect(record, data.suspect, targets)
            record.refused = ""
        else:
            if record.suspect:
                still = tuple(c for c in record.suspect if c in targets and c in self.silent)
                self._suspect(record, still, targets)
            record.refused = data.reason
        record.targets, record.before = targets, dict(targets)
        record.applied, record.applied_class = spec.placement, record.class_key
        record.applied_replicas, record.applied_token = spec.replicas, spec.reschedule
        record.affinity = data.affinity
        record.asked = False
        self._index(record)
        if record.refused and shrunk:  # it was not allowed to take back what it lost: that is for the next decision
            group = self.waiting.get(record.group)
            if group is not None:
                group.values = None
            self.stirred = True

    def _suspect(self, record: BindingState, suspect: tuple[str, ...], targets: dict[str, int]) -> None:
        """Remember where the replicas of newly suspect clusters were placed a second time."""
        extra = record.extra
        if any(c not in record.suspect for c in suspect):
            for cluster, n in targets.items():
                if n > record.before.get(cluster, 0) and cluster not in suspect:
                    extra[cluster] = extra.get(cluster, 0) + n - record.before.get(cluster, 0)
        record.extra = {c: min(n, targets[c]) for c, n in sorted(extra.items()) if c in targets} if suspect else {}
        self._index_suspects(record, suspect)
        record.suspect = suspect

    def _index_suspects(self, record: BindingState, suspect: tuple[str, ...]) -> None:
        name = record.spec.name
        for cluster in record.suspect:
            names = self.suspected.get(cluster)
            if names is not None:
                names.pop(name, None)
                if not names:
                    del self.suspected[cluster]
        for cluster in suspect:
            self.suspected.setdefault(cluster, {})[name] = None

    def _hush(self, name: str, since: Micros | None) -> None:
        cluster = self.clusters.get(name)
        if cluster is None:
            return
        cluster.silent_since = since
        if since is None:
            self.silent.pop(name, None)
        else:
            self.silent[name] = None
        self.facts += 1
        self.stirred = True
        self.touch(cluster)
        self.watch(cluster)

    def _expels(self, name: str) -> bool:
        cluster = self.clusters.get(name)
        return cluster is not None and cluster.tainted

    def evicted(self, record: BindingState) -> list[str]:
        """Clusters this binding was evicted from, while they keep a NoExecute taint: borne for a time is not borne again."""
        return [c for c in record.evicted if self._expels(c)] if record.evicted else []

    # Indexes

    def touch(self, cluster: ClusterState) -> None:
        if cluster.position < 0:
            return
        if len(self.log) >= LOG_LENGTH:
            self.log.clear()
            self.layout += 1
        cluster.touched = len(self.log)
        self.log.append(cluster.position)

    def _take(self, cluster: ClusterState, seq: int, record: BindingState, replicas: int) -> None:
        requirements, column = record.spec.requirements, self.columns.get(record.class_key)
        demand = column.demand if column is not None else self._demand_of(record.class_key, requirements)
        cluster.take(Pending(seq, record.class_key, replicas, requirements, demand))
        self.touch(cluster)

    def _demand_of(self, class_key: str, requirements: Requirements) -> Demand:
        """Recovery makes no columns, and meets the same few classes again and again."""
        demand = self.demands.get(class_key)
        if demand is None:
            if len(self.demands) >= CACHED:
                self.demands.clear()
            demand = self.demands[class_key] = demand_of(requirements)
        return demand

    def _lay_out(self) -> None:
        """Clusters in order of name: position is tie order, and a column's index."""
        for cluster in self.order:
            cluster.position = -1
        self.order = sorted((c for c in self.clusters.values() if c.facts is not None), key=lambda c: c.name)
        for position, cluster in enumerate(self.order):
            cluster.position = position
        self.layout += 1
        self.facts += 1
        self.log.clear()
        self.columns.clear()

    def _count_lease(self, cluster: ClusterState, times: int) -> None:
        if cluster.lease_us is not None:
            self.leased += times

    def watch(self, cluster: ClusterState) -> None:
        lease = cluster.lease_us
        if lease is None:
            if cluster.silent_since is not None:
                self.leases.set((cluster.name,), cluster.heard_at)  # promised nothing any more: no longer silent
            else:
                self.leases.discard((cluster.name,))
        elif cluster.silent_since is None:
            self.leases.set((cluster.name,), cluster.heard_at + lease)
        elif cluster.heard_at > cluster.silent_since:
            self.leases.set((cluster.name,), cluster.heard_at)
        else:
            self.leases.discard((cluster.name,))

    def _unindex(self, record: BindingState) -> None:
        name = record.spec.name
        self.asked.pop(name, None)
        self.withdrawn.pop(name, None)
        self.everywhere.pop(name, None)
        self.open.pop(name, None)
        if record.refused:
            group = self.waiting.get(record.group)
            if group is not None:
                group.names.pop(name, None)
                if not group.names:
                    del self.waiting[record.group]

    def _reindex(self, record: BindingState) -> None:
        self._unindex(record)
        self._index(record)

    def _index(self, record: BindingState) -> None:
        name = record.spec.name
        if record.withdrawn:
            self.withdrawn[name] = None
            return
        if record.spec.suspended:
            return
        if record.asked:
            self.asked[name] = None
        elif record.refused:
            group = self.waiting.get(record.group)
            now = self._present_values(record)
            if group is None:
                group = self.waiting[record.group] = Waiting(values=now, facts=self.facts)
            elif group.values != now:
                group.values = None  # its others were found without a place under other estimates than this one
            group.names[name] = None
        elif (record.plan.duplicated or not record.counted) and not record.plan.by_region:
            self.everywhere[name] = None
        if self._opened(record):
            self.open[name] = None

    def known(self, name: str) -> bool:
        cluster = self.clusters.get(name)
        return cluster is not None and cluster.facts is not None

    def leaving(self, record: BindingState) -> bool:
        for name in record.targets:
            cluster = self.clusters.get(name)
            if cluster is not None and cluster.deleting:
                return True
        return False

    def come_to_rest(self, unfinished: bool) -> None:
        """Every round ends with this, a live one and a recovered one. What is looked at next follows from what has changed since,
        so it has to be the same for a state that decided and for one that only folded: either all was looked at under what
        holds now, or, after a full round, nobody knows, and all will be."""
        self.unfinished = self.stirred = unfinished
        if unfinished:
            for group in self.waiting.values():
                group.values, group.facts = None, -1
            self.everywhere_facts = -1
            self.open = self._all_opened()
            return
        for group in self.waiting.values():
            group.values, group.facts = list(self.values_of(group)), self.facts
        self.everywhere_facts = self.facts
        self.open.clear()

    def _opened(self, record: BindingState) -> bool:
        """May need a decision though nobody asked."""
        if record.withdrawn or record.spec.suspended:
            return False
        return record.targets != record.before or (not record.refused and self.leaving(record))

    def _all_opened(self) -> dict[str, None]:
        """Asked after every full round, of every binding: what can be told at a glance is."""
        some_leave = any(cluster.deleting for cluster in self.clusters.values())
        return {
            name: None
            for name, record in self.bindings.items()
            if (some_leave or record.targets != record.before) and self._opened(record)
        }

    def values_of(self, group: Waiting) -> Sequence[int]:
        """The present estimates of a waiting group's class, in cluster order; the column's own, which changes with the next."""
        first = self.bindings[next(iter(group.names))]
        return self.column(first.class_key, first.spec.requirements).values

    def _present_values(self, record: BindingState) -> list[int]:
        return list(self.column(record.class_key, record.spec.requirements).values)

    def derive(self) -> None:
        """Make every index anew from what was saved, at the end of a round."""
        for cluster in self.clusters.values():
            cluster.refresh()
            self._count_lease(cluster, 1)
            self.watch(cluster)
            self.clock = max(self.clock, cluster.heard_at)
        self.silent = {name: None for name, c in sorted(self.clusters.items()) if c.silent_since is not None}
        self._lay_out()
        for record in self.bindings.values():
            self._read(record)
            for name in record.targets:
                self.by_cluster.setdefault(name, {})[record.spec.name] = None
            self._index_suspects(record, record.suspect)
            self._reindex(record)
        self.come_to_rest(self.unfinished)

    def column(self, class_key: str, requirements: Requirements) -> Column:
        """The class's estimates, brought up to date: only clusters touched since it was last used are counted again."""
        column = self.columns.get(class_key)
        if column is None or column.layout != self.layout:
            if len(self.columns) >= CACHED:
                self.columns.clear()
            demand = demand_of(requirements)
            values = [c.estimate(class_key, demand) for c in self.order]
            column = Column(demand, self.layout, len(self.log), values, sum(values), UNLIMITED in values)
            self.columns[class_key] = column
        elif column.seen != len(self.log):
            order, values, demand = self.order, column.values, column.demand
            for position in self._touched_since(column.seen):
                n = order[position].estimate(class_key, demand)
                if n != values[position]:
                    column.total += n - values[position]
                    values[position] = n
                    if n == UNLIMITED:
                        column.unlimited = True
            column.seen = len(self.log)
        return column

    def _touched_since(self, seen: int) -> Iterable[int]:
        """Positions of the clusters touched since the log was `seen` long, and perhaps of others. By whichever is shorter, the
        end of the log or the list of clusters: a class that is seldom asked for has much of the log before it."""
        if len(self.log) - seen < len(self.order):
            return dict.fromkeys(self.log[seen:])
        return [cluster.position for cluster in self.order if cluster.touched >= seen]


def _answered(decision: Decision) -> UUID | None:
    """The proposal that a decision may be the answer to: the one it names, else its cause."""
    data = decision.data
    if isinstance(data, ScheduleDecided | ScheduleRefused) and data.answers:
        return uuid_of(data.answers)
    if isinstance(data, ProposalRefused):
        return uuid_of(data.proposal)
    return decision.cause


def _differs(record: BindingState) -> bool:
    """Whether the request asks for something the last decision did not answer. A new name for a policy or another
    priority changes no placement; an unanswered request stays unanswered."""
    spec = record.spec
    if record.asked or record.applied is None:
        return True
    return (
        record.applied_replicas != spec.replicas
        or record.applied_class != record.class_key
        or record.applied_token != spec.reschedule
        or placement_changed(record.applied, spec.placement, record.affinity)
    )
