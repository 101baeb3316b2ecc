"""What the fleet stage remembers, and how facts and its own decisions change it. Decides nothing.

Everything that is to be decided can be read off the state: an unanswered request, a proposal in the queue, targets that are
no longer those last decided, a binding that waits. Nothing is kept in passing, which is why a state that was recovered
(inputs and decisions folded, nothing decided) goes on exactly like the one that decided. Attributes below a line
`derived` follow from the others: indexes and caches, not part of the saved state; they save work and never change an answer.

Of each cluster `clusters` keeps the facts and what still fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

import msgspec
import numpy as np

from wharfinger.domain.binding import Binding, set_key, whole_of
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.policy import Policy
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.domain.value import Value, canonical
from wharfinger.engine.fleet.assign import problem_of
from wharfinger.engine.fleet.estimate import Demand, demand_of, demand_of_set
from wharfinger.engine.fleet.filters import peers
from wharfinger.engine.fleet.taints import Tainting
from wharfinger.engine.fleet.trigger import ours, placement_changed
from wharfinger.events.assignments import Refused
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated, QuotaRoom
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import (
    BindingReleased,
    ClusterRecovered,
    ClusterSilenced,
    FailoverHeld,
    FailoverResumed,
    Leaving,
    PlanCommitted,
    PlanRefused,
    ProposalRefused,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.envelope import Event, derived_id, uuid_of
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.placements import PlacementDecided, PlacementHeld, PlacementReleased
from wharfinger.events.plans import PlanRequested, Step
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.step import decision_id
from wharfinger.stages.agenda import Agenda
from wharfinger.stages.fleet import backoff, columns, quota
from wharfinger.stages.fleet.clusters import SECOND, UNLIMITED, ClusterState, Pending
from wharfinger.stages.fleet.columns import (
    TAKES_LENGTH,
    Array,
    Column,
    Rooms,
    Values,
    counted,
    recount_array,
    recount_list,
    same,
)
from wharfinger.stages.fleet.feasible import Feasible
from wharfinger.stages.fleet.groups import Groups
from wharfinger.stages.fleet.moves import Moves, movable
from wharfinger.stages.fleet.quota import Quotas
from wharfinger.stages.fleet.quota_room import Claim, claim_of
from wharfinger.stages.fleet.selections import STREAM as SELECTING
from wharfinger.stages.fleet.selections import Selections

LOG_LENGTH = 8192
"""After so many touched clusters the log starts anew; who is further behind looks through all clusters."""

CACHED = 4096
"""Size at which a cache is emptied rather than left to grow."""

CACHED_VALUES = 1 << 23
"""How many values all columns together may hold, and how many verdicts all lists of feasible clusters."""

COUNTED = ("class", "totals", "grades", "summary")
"""Where an estimate comes from that a quota may lower."""

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

    `applied_requests`: what each of its replicas was last decided with (see `quota.per_unit`). `attempts`, `pause_until`: see
    `backoff`; `deferred`: something has changed for it during its pause, so it is looked at when that ends. `failback_since`,
    `rebalance_since`: since when it could lie better (0: it could not); `moved_at`: when it was last moved for that. `told`:
    names of the components that its clusters were last told of.

    `leaving`: those of the suspects that are on their way out. `barred`: clusters where it was ill, and until when it keeps out
    of them.
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
    applied_requests: Mapping[str, int] = {}
    attempts: int = 0
    pause_until: Micros = 0
    deferred: bool = False
    failback_since: Micros = 0
    rebalance_since: Micros = 0
    moved_at: Micros = 0
    told: tuple[str, ...] = ()
    leaving: dict[str, Leaving] = {}
    barred: dict[str, Micros] = {}
    # derived
    class_key: str = ""
    claim: Claim | None = None
    plan: Plan = None  # type: ignore[assignment]  # set as soon as the spec is

    @property
    def counted(self) -> bool:
        """False for an object without replicas: it goes to its clusters as it is."""
        return self.spec.replicas > 0 or not self.spec.requirements.empty

    @property
    def sets(self) -> bool:
        """Whether whole sets of several components are placed: a target has one, and counts 0 replicas."""
        return bool(self.spec.components)

    @property
    def divisible(self) -> bool:
        """Whether it fills clusters at all."""
        return self.counted or self.sets

    @property
    def follows(self) -> bool:
        """Whether it goes to every cluster that it may go to. Sets do, where Karmada's way is asked for."""
        plan = self.plan
        return plan.duplicated or not self.divisible or (self.sets and plan.placement.strict)

    @property
    def group(self) -> tuple[bytes, str, str]:
        """Bindings of one group are feasible in the same clusters and estimated alike."""
        return (self.plan.key, self.spec.resource.gvk, self.column_key)

    @property
    def column_key(self) -> str:
        """What is estimated alike: replicas of one class and, where some cluster has quotas for their namespace, of one claim."""
        claim = self.claim
        return self.class_key if claim is None else f"{self.class_key} {claim.namespace} {claim.priority_class}"

    @property
    def only_retold(self) -> bool:
        """Its replicas are to stay where they are: what was asked for last differs only in what others see of its pods, or in what
        their nodes are preferred by. Those who place them have to know that all the same."""
        said_more = self.spec.requirements.pod is not None
        return said_more and bool(self.targets) and not (self.refused or self.shrunk or _asks_otherwise(self))

    @property
    def left_alone(self) -> bool:
        """Nothing is decided about it: it is suspended, or another scheduler's."""
        spec = self.spec
        return spec.suspended or (spec.scheduler != "" and not ours(spec.scheduler))

    @property
    def shrunk(self) -> bool:
        return self.targets != self.before

    @property
    def made_up(self) -> bool:
        """Whether what it counts holds all that is wanted, as far as has been decided: its suspects could go."""
        if self.asked or self.refused or self.shrunk:
            return False
        counted = [n for c, n in self.targets.items() if c not in self.suspect]
        if self.plan.duplicated or not self.counted or self.sets:
            return bool(counted)
        return sum(counted) == self.spec.replicas


@dataclass(slots=True)
class Waiting:
    """Bindings of one group that wait, and the estimates and facts under which all of them were last found to have no place."""

    names: dict[str, None] = field(default_factory=dict)
    values: Values | None = None
    made: tuple[int, ...] = ()
    """As `FleetState.makeable`, with the values."""
    facts: int = -1
    choices: tuple[object, ...] = ()
    """`Feasible.choice` of every term, when that was last asked. Not saved: who does not know looks."""


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
    quotas: Quotas = field(default_factory=Quotas)
    moves: Moves = field(default_factory=Moves)
    rebalancing: dict[str, RebalancePolicy] = field(default_factory=dict)
    """By key of the policy."""
    tainting: Tainting = field(default_factory=Tainting)
    """What clusters said of themselves; `ClusterState.facts` are the same with the taints that policies give them."""
    selections: Selections | None = None
    """Placements of clusters; only the one stream that decides them has it."""
    # derived
    _order: list[ClusterState] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    facts: int = 0
    """Rises whenever another set of clusters may be feasible."""
    facts_log: list[int] = field(default_factory=list)
    """Positions of the clusters whose facts have changed, one for each rise of `facts` since `facts_from`."""
    facts_from: int = 0
    layout: int = 0
    """Rises whenever there are other clusters than before: columns and what is feasible have to be made afresh."""
    laid_out: bool = True
    log: list[int] = field(default_factory=list)
    """Positions of the clusters whose estimates may have changed, since touch number `log_from`."""
    log_from: int = 0
    rooms: Rooms | None = None
    takes: list[Array] = field(default_factory=list)
    """Positions of the clusters that decisions have given replicas, since such decision number `takes_from`; of large fleets."""
    takes_from: int = 0
    columns: dict[str, Column] = field(default_factory=dict)
    """By `BindingState.column_key`."""
    quoted: dict[str, int] = field(default_factory=dict)
    """Namespace -> how many clusters have quotas in it."""
    demands: dict[str, Demand] = field(default_factory=dict)
    plans: dict[bytes, Plan] = field(default_factory=dict)
    kinds: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
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
    paused: dict[str, None] = field(default_factory=dict)
    """Waiting bindings that are left alone for a while."""
    pauses: Agenda[tuple[str]] = field(default_factory=Agenda)
    """When those of them that are deferred are looked at."""
    _by_cluster: dict[str, dict[str, None]] = field(default_factory=dict)
    _unindexed: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """Bindings whose targets are others than `_by_cluster` has them, and what it has. A decision over thousands of clusters is
    indexed when somebody asks who is where, which is seldom, and of several such decisions only the last."""
    groups: Groups = field(default_factory=Groups)
    """Who wants to be with whom, and who must not meet whom."""
    regrouped: bool = False
    """A member of a group was placed otherwise: the others may be placed otherwise, too, once all have been looked at."""
    suspected: dict[str, dict[str, None]] = field(default_factory=dict)
    """Cluster -> bindings that count it among their suspects."""
    outgoing: dict[str, dict[str, None]] = field(default_factory=dict)
    """Cluster with a taint -> bindings that are on their way out because of it."""
    graces: Agenda[tuple[str]] = field(default_factory=Agenda)
    """When a copy on its way out has been waited for long enough, or a binding that waits may return to where it was ill."""
    makers: dict[str, None] = field(default_factory=dict)
    """Clusters whose pools could make nodes for some class, as they were last counted."""
    leases: Agenda[tuple[str]] = field(default_factory=Agenda)
    leased: int = 0
    silent: dict[str, None] = field(default_factory=dict)
    going: dict[str, None] = field(default_factory=dict)
    """Clusters that are being deleted."""
    stirred: bool = False
    clock: Micros = 0
    feasible: dict[tuple[bytes, str, int], Feasible] = field(default_factory=dict)
    on_behalf: dict[UUID, UUID] = field(default_factory=dict)
    """Proposal of a plan -> the commitment it came with: the cause of its answer, which the same round gives."""
    touched: dict[str, None] | None = None
    """Bindings that are not what they were when this was last emptied; kept for who makes snapshots of what changed."""
    solving: list[Solving] | None = None
    """What was asked of `places.solve`, for who asks it once more to explain; nobody else keeps it."""

    def __post_init__(self) -> None:
        if self.stream == SELECTING and self.selections is None:
            self.selections = Selections()

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
                return cluster is None or self.tainting.told.get(facts.name) != facts or cluster.promises
            case ClusterForgotten(name=name):
                cluster = self.clusters.get(name)
                return cluster is not None and cluster.facts is not None
            case OutcomesDecided():
                return data.through > self.outcomes.get(data.stream, 0)
            case FailoverProposed() | EvictionProposed() | RescheduleProposed():
                return data.stream == self.stream and event.id not in self.proposals
            case PlanRequested():
                return data.stream == self.stream and event.id not in self.requested
            case PolicyApplied() | PolicyRemoved() if self.selections is not None and self.selections.is_news(data):
                return True
            case PolicyApplied(policy=policy):
                return self._is_news(policy.key, policy)
            case PolicyRemoved(kind=kind, name=name, namespace=namespace):
                return self._is_news(Policy(kind, name, namespace).key, None)
            case Ticked():
                return True
            case _:
                return False  # the rest is not for a fleet stream

    def _is_news(self, key: str, policy: Policy | None) -> bool:
        """What propagates comes with the bindings that it places; quotas, taints and how to rebalance come as policies."""
        before = self.quotas.policies.get(key)
        return (
            (before and before.quota) != (policy and policy.quota)
            or self.tainting.rules.get(key) != (policy and policy.taints)
            or self.rebalancing.get(key) != (policy and policy.rebalancing)
        )

    def fold_input(self, event: Event[Value], at: Micros) -> None:
        self.clock = at
        data = event.data
        if self.selections is not None and isinstance(data, PolicyApplied | PolicyRemoved):
            self.selections.fold_policy(data, event.id)
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
            case PolicyApplied(policy=policy):
                self._apply_policy(policy.key, policy, event.id, at)
            case PolicyRemoved(kind=kind, name=name, namespace=namespace):
                self._apply_policy(Policy(kind, name, namespace).key, None, event.id, at)
            case _:
                pass  # ticks bring the time, which is kept; for the others see `is_news`

    def _request(self, spec: Binding, cause: UUID) -> None:
        record = self.bindings.get(spec.name)
        if record is None:
            record = BindingState(spec, 0, cause)
            self.bindings[spec.name] = record
            self.groups.join(spec)
            if spec.clusters:
                self._take_over(record)
            self._ask(record, cause)
            self._read(record)
            self._index(record)
            self._note(spec.name)
            return
        elif record.spec != spec or record.withdrawn:
            self._unindex(record)
            record.withdrawn = False
            self._change_groups(record.spec, spec, cause)
            retold = _told_otherwise(record.spec, spec)
            record.spec = spec
            self._read(record)
            if retold or _differs(record):
                self._ask(record, cause)
        else:
            return
        self._reindex(record)
        self._look_again(record, cause)
        self._note(spec.name)

    def _take_over(self, record: BindingState) -> None:
        """A binding that runs somewhere already when it is first heard of holds that, so that nothing moves that need not."""
        held = {target.cluster: max(0, target.replicas) for target in record.spec.clusters}
        record.targets, record.before = held, dict(held)
        self._unindexed.setdefault(record.spec.name, {})

    def together(self, record: BindingState) -> set[str] | None:
        """The clusters that all others of its affinity group are in; None: there are none, or they are nowhere yet."""
        return peers(self.bindings[name].targets for name in self.groups.with_(record.spec))

    def apart(self, record: BindingState) -> set[str]:
        """The clusters that some other of its anti-affinity group is in."""
        return {c for name in self.groups.against(record.spec) for c in self.bindings[name].targets}

    def _regroup_peers(self, spec: Binding, cause: UUID) -> None:
        """One of a group is placed otherwise than before, so those that wait and those that go wherever they may are looked at
        again: now, and, because some may have been looked at already in this round, once more after it."""
        if not spec.affinity_group and not spec.anti_affinity_group:
            return
        for name in (*self.groups.with_(spec), *self.groups.against(spec)):
            record = self.bindings[name]
            if not record.refused and not record.follows:
                continue
            self.regrouped = True
            group = self.waiting.get(record.group) if record.refused else None
            if group is not None:
                group.values, group.facts = None, -1
            self.everywhere_facts = -1
            self.stirrer, self.stirred = cause, True

    def _change_groups(self, before: Binding, now: Binding, cause: UUID) -> None:
        self.groups.leave(before)
        self.groups.join(now)
        if (before.affinity_group, before.anti_affinity_group) != (now.affinity_group, now.anti_affinity_group):
            self._regroup_peers(before, cause)
            self._regroup_peers(now, cause)

    def _withdraw(self, name: str, cause: UUID) -> None:
        record = self.bindings.get(name)
        if record is not None and not record.withdrawn:
            record.withdrawn, record.cause = True, cause
            self._reindex(record)
            self._note(name)

    def _look_again(self, record: BindingState, cause: UUID) -> None:
        """A binding that was told anew and needs no answer was not decided under what holds now: perhaps it was suspended."""
        if record.asked or record.left_alone:
            return
        if record.refused == quota.EXCEEDED:
            self.quotas.ask_again(record.spec)
        group = self.waiting.get(record.group) if record.refused else None
        if group is not None:
            group.values, group.facts = None, -1
        self.everywhere_facts = -1
        self.stirrer, self.stirred = cause, True

    def changed(self, name: str) -> None:
        """What is remembered of a binding is another than before."""
        self._note(name)

    def _note(self, name: str) -> None:
        self.quotas.touch(name)
        if self.touched is not None:
            self.touched[name] = None

    def _ask(self, record: BindingState, cause: UUID) -> None:
        self.arrivals += 1
        record.arrival, record.cause, record.asked = self.arrivals, cause, True

    def _read(self, record: BindingState) -> None:
        spec = record.spec
        record.class_key = set_key(spec.components) if spec.components else spec.requirements.class_key
        record.claim = claim_of(spec) if spec.resource.namespace in self.quoted else None
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

    def _apply_policy(self, key: str, policy: Policy | None, cause: UUID, at: Micros) -> None:
        if self.quotas.set(key, policy, self.bindings):
            self.stirrer = cause
        if policy is not None and policy.rebalancing is not None:
            self.rebalancing[key] = policy.rebalancing
        else:
            self.rebalancing.pop(key, None)
        if self.tainting.set(key, None if policy is None else policy.taints):
            for name in sorted(self.tainting.told):
                cluster = self.clusters[name]
                self._see(cluster, self.tainting.judge(name), cause, at)
                self.watch(cluster)

    def _observe(self, told: Cluster, cause: UUID, at: Micros) -> None:
        cluster = self.clusters.get(told.name)
        if cluster is None:
            cluster = self.clusters[told.name] = ClusterState(told.name)
        if self.tainting.told.get(told.name) == told and not cluster.promises:
            return
        told = self._sharing_kinds(told)
        cluster.heard_at, cluster.heard_by = at, cause
        if self.selections is not None:
            self.selections.observe(told, cause)
        self._see(cluster, self.tainting.tell(told), cause, at)
        self.watch(cluster)

    def _sharing_kinds(self, told: Cluster) -> Cluster:
        """Clusters that enable the same kinds have one list of them: it is long, and what is asked of it is asked once."""
        kinds = told.api_kinds
        if kinds is None:
            return told
        if len(self.kinds) >= CACHED:
            self.kinds.clear()
        known = self.kinds.setdefault(kinds, kinds)
        return told if known is kinds else msgspec.structs.replace(told, api_kinds=known)

    def _see(self, cluster: ClusterState, facts: Cluster, cause: UUID, at: Micros) -> None:
        """The facts of a cluster as they are now, with the taints that policies give it."""
        old = cluster.facts
        if old != facts:
            self._count_lease(cluster, -1)
            cluster.facts = facts
            self._note_going(cluster)
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
                self._lay_out_anew()
            elif msgspec.structs.replace(old, summary=None) != msgspec.structs.replace(facts, summary=None):
                self.facts_changed(cluster)
            self.touch(cluster)
            if facts.deleting:
                for name in self.by_cluster.get(facts.name, ()):
                    self.open[name] = None
            self.stirrer, self.stirred = cause, True

    def _note_going(self, cluster: ClusterState) -> None:
        if cluster.deleting:
            self.going[cluster.name] = None
        else:
            self.going.pop(cluster.name, None)

    def _forget(self, name: str, cause: UUID) -> None:
        cluster = self.clusters.get(name)
        if cluster is None or cluster.facts is None:
            return
        self._count_lease(cluster, -1)
        self.going.pop(name, None)
        self.makers.pop(name, None)
        self.silent.pop(name, None)
        self.tainting.forget(name)
        if self.selections is not None:
            self.selections.forget(name, cause)
        del self.clusters[name]
        self._requote(() if cluster.capacity is None else cluster.capacity.quotas, ())
        self.leases.discard((name,))
        for binding in self.by_cluster.pop(name, {}):
            record = self.bindings[binding]
            del record.targets[name]
            self._regroup_peers(record.spec, cause)
            if not record.asked:
                record.cause = cause
            self.open[binding] = None
            self._note(binding)
        self._lay_out_anew()
        self.stirrer, self.stirred = cause, True

    def _count(self, counted: CapacityEstimated, cause: UUID, at: Micros) -> None:
        cluster = self.clusters.get(counted.cluster)
        if cluster is None:
            cluster = self.clusters[counted.cluster] = ClusterState(counted.cluster)
        elif cluster.capacity == counted:
            return
        before = () if cluster.capacity is None else cluster.capacity.quotas
        cluster.count(counted, self.stream)
        cluster.counted_at = at
        self._note_maker(cluster)
        self.touch(cluster)
        if before or counted.quotas:
            self._requote(before, counted.quotas)
        self.stirrer, self.stirred = cause, True

    def _note_maker(self, cluster: ClusterState) -> None:
        if cluster.capacity is not None and cluster.capacity.provisionable:
            if cluster.name not in self.makers:
                self.makers[cluster.name] = None
                self.makers = dict(sorted(self.makers.items()))
        else:
            self.makers.pop(cluster.name, None)

    def _requote(self, before: Sequence[QuotaRoom], now: Sequence[QuotaRoom]) -> None:
        """Some cluster's quotas were these and are those. Where a namespace has got its first or lost its last, its bindings are
        estimated otherwise than before."""
        were = dict(self.quoted)
        for rooms, sign in ((before, -1), (now, 1)):
            for namespace in {room.namespace: None for room in rooms}:
                self.quoted[namespace] = self.quoted.get(namespace, 0) + sign
                if not self.quoted[namespace]:
                    del self.quoted[namespace]
        if were.keys() != self.quoted.keys():
            changed = were.keys() ^ self.quoted.keys()
            for record in self.bindings.values():
                if record.spec.resource.namespace in changed:
                    self._regroup(record)

    def _regroup(self, record: BindingState) -> None:
        """Another claim, another group: nobody has looked yet under what it is estimated by now."""
        deferred = record.deferred
        self._unindex(record)
        self._read(record)
        self._index(record)
        group = self.waiting.get(record.group)
        if group is not None:
            group.values = None
        if deferred:
            self._put_off(record)

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
                self._close(cluster, item.class_key, item.seq, cause)
            record = self.bindings.get(whole_of(item.binding))
            if record is not None and self._answers(record, outcomes.cluster, item.assignment):
                if record.sets and cluster is not None:  # one component that does not fit takes its whole set back
                    self._close(cluster, record.class_key, item.seq, cause)
                self._shrink(record, outcomes.cluster, item.count, uuid_of(item.decision) or cause)
        self.outcomes[outcomes.stream] = max(seen, outcomes.through)

    def _close(self, cluster: ClusterState, class_key: str, seq: int, cause: UUID) -> None:
        cluster.closed[class_key] = seq
        cluster.reopen(class_key)
        self.touch(cluster)
        self.stirrer, self.stirred = cause, True

    def _answers(self, record: BindingState, cluster: str, assignment: str) -> bool:
        """Whether a refusal speaks of what was last said to the cluster. One of an older assignment is out of date, since the
        cluster answers the newer one too; and of one assignment only the first refusal counts until it is recorded."""
        if record.targets.get(cluster) != record.before.get(cluster):
            return False
        seq = record.assigned_by.get(cluster)
        return seq is not None and assignment == str(decision_id(self.stream, seq))

    def _shrink(self, record: BindingState, cluster: str, count: int, cause: UUID) -> None:
        held = record.targets.get(cluster, 0)
        if record.sets and cluster in record.targets:
            held = count  # a set is whole or not there
        if count <= 0 or held <= 0:
            return
        if count < held:
            record.targets[cluster] = held - count
        else:
            self.by_cluster[cluster].pop(record.spec.name, None)
            del record.targets[cluster]
            self._regroup_peers(record.spec, cause)
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
                self._schedule(data, decision.seq, decision.id)
            case BindingReleased(binding=name):
                record = self.bindings.pop(name, None)
                self._note(name)
                if record is not None:
                    self._unindex(record)
                    self._unindexed.setdefault(name, record.targets)
                    self._index_suspects(record, ())
                    self.groups.leave(record.spec)
                    self._regroup_peers(record.spec, decision.id)
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
            case PlacementDecided() | PlacementHeld() | PlacementReleased():
                if self.selections is not None:
                    self.selections.fold_decision(data, at)
                return
            case PlanCommitted() if decision.cause is not None:
                self.carry_out(self.requested.pop(decision.cause).steps, decision.id, at)
                return
            case PlanRefused() if decision.cause is not None:
                del self.requested[decision.cause]
                return
            case _:
                raise AssertionError(f"{decision.type} is no decision of a fleet stream")
        if self.proposals and (answered := _answered(decision)) is not None:
            proposal = self.proposals.pop(answered, None)
            self.on_behalf.pop(answered, None)
            if isinstance(proposal, EvictionProposed) and not isinstance(data, ProposalRefused):
                self._note(proposal.binding)
                self._keep_out(self.bindings[proposal.binding], proposal, decision.id)

    def _keep_out(self, record: BindingState, proposal: EvictionProposed, id: UUID) -> None:
        """It has to go from there, and does not return at once: while the taint is there; for as long as it bore being ill; where
        there was no node for some, before the cluster's count shows more than it did."""
        name = proposal.cluster
        match proposal.cause:
            case "taint":
                record.evicted[name] = None
                for other in [c for c in record.evicted if not self._expels(c)]:
                    del record.evicted[other]
            case "unhealthy":
                application = record.spec.placement.application
                if application is not None:
                    away_s = application.toleration_s + application.grace_s
                    record.barred[name] = self.clock + away_s * SECOND
                    self._await_grace(record)
            case "unschedulable":
                cluster = self.clusters.get(name)
                if cluster is not None:
                    cluster.disprove(record.class_key)
                    self.touch(cluster)
                    self.stirrer, self.stirred = id, True
            case "replaced":
                pass

    def _schedule(self, data: ScheduleDecided | ScheduleRefused, seq: int, id: UUID) -> None:
        record = self.bindings[data.binding]
        self._note(data.binding)
        self._unindex(record)
        name, spec = data.binding, record.spec
        # What was taken over runs already: it is no news to the cluster's count.
        same_class = record.applied_class == record.class_key or record.applied is None
        decided, shrunk = isinstance(data, ScheduleDecided), record.shrunk
        targets = {t.cluster: t.replicas for t in data.targets}
        held = record.targets
        grown = {c: n - held.get(c, 0) for c, n in targets.items()} if held and same_class else targets
        if record.sets and decided:
            grown = {c: int(not (same_class and c in held)) for c in targets}
        if grown:
            self._take(record, seq, grown)
        self._unindexed.setdefault(name, held)
        if decided:  # a decision states all its targets, a refusal what changed
            record.assigned_by = dict.fromkeys(targets, seq)
        else:
            for cluster, n in targets.items():
                if record.before.get(cluster) != n:
                    record.assigned_by[cluster] = seq
            for cluster in list(record.assigned_by) if len(record.assigned_by) > len(targets) else ():
                if cluster not in targets:
                    del record.assigned_by[cluster]
        if isinstance(data, ScheduleDecided):
            if record.suspect or data.suspect:
                record.leaving = {one.cluster: one for one in data.leaving}
                self._suspect(record, data.suspect, targets)
            record.refused = ""
        else:
            if record.suspect:
                record.leaving = {c: one for c, one in record.leaving.items() if c in targets}
                still = tuple(c for c in record.suspect if c in targets and (c in self.silent or c in record.leaving))
                self._suspect(record, still, targets)
            record.refused = data.reason
            record.attempts, record.pause_until = backoff.refused(
                record.attempts, record.pause_until, self.clock, record.asked
            )
        if isinstance(data, ScheduleDecided) and data.move:
            record.moved_at = self.clock
            self.moves.count(self.clock)
            if self.rebalancing:
                window_s = max([policy.window_s for policy in self.rebalancing.values()])
                self.moves.depart(record.before, targets, self.clock, window_s * SECOND)
        record.failback_since = record.rebalance_since = 0
        if isinstance(data, ScheduleDecided):
            record.told = tuple([c.name for c in data.components])
        if decided or any(n > record.before.get(cluster, 0) for cluster, n in targets.items()):
            record.applied_requests = quota.per_unit(spec)  # what a refusal leaves as it was goes on with what it had
        record.targets, record.before = targets, dict(targets)
        record.applied, record.applied_class = spec.placement, record.class_key
        record.applied_replicas, record.applied_token = spec.replicas, spec.reschedule
        record.affinity = data.affinity
        record.asked = False
        self._index(record)
        if targets.keys() != held.keys():
            self._regroup_peers(spec, id)
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
                before = record.before.get(cluster, -1 if record.spec.components else 0)  # a set counts no replicas
                if n > before and cluster not in suspect:
                    extra[cluster] = extra.get(cluster, 0) + n - max(0, before)
        record.extra = {c: min(n, targets[c]) for c, n in sorted(extra.items()) if c in targets} if suspect else {}
        self._index_suspects(record, suspect)
        record.suspect = suspect

    def _index_suspects(self, record: BindingState, suspect: tuple[str, ...]) -> None:
        name = record.spec.name
        for index in (self.suspected, self.outgoing):
            for cluster in record.suspect:
                names = index.get(cluster)
                if names is not None:
                    names.pop(name, None)
                    if not names:
                        del index[cluster]
        for cluster in suspect:
            leaving = record.leaving.get(cluster)
            if leaving is None:
                self.suspected.setdefault(cluster, {})[name] = None
            elif leaving.cause == "taint":
                self.outgoing.setdefault(cluster, {})[name] = None

    def _hush(self, name: str, since: Micros | None) -> None:
        cluster = self.clusters.get(name)
        if cluster is None:
            return
        cluster.silent_since = since
        if since is None:
            self.silent.pop(name, None)
        else:
            self.silent[name] = None
        self.facts_changed(cluster)
        self.stirred = True
        self.touch(cluster)
        self.watch(cluster)

    def _expels(self, name: str) -> bool:
        cluster = self.clusters.get(name)
        return cluster is not None and cluster.tainted

    def evicted(self, record: BindingState) -> list[str]:
        """Clusters this binding was evicted from, while they keep a NoExecute taint: borne for a time is not borne again; and those
        where it was ill of late."""
        out = [c for c in record.evicted if self._expels(c)] if record.evicted else []
        if record.barred:
            out += [c for c, until in sorted(record.barred.items()) if until > self.clock and c not in out]
        return out

    # Indexes

    @property
    def by_cluster(self) -> dict[str, dict[str, None]]:
        """Cluster -> the bindings that have targets there. Ask before their targets are changed in place."""
        if self._unindexed:
            self._index_targets()
        return self._by_cluster

    @by_cluster.setter
    def by_cluster(self, found: dict[str, dict[str, None]]) -> None:
        self._by_cluster, self._unindexed = found, {}

    def _index_targets(self) -> None:
        by_cluster = self._by_cluster
        for name, before in self._unindexed.items():
            record = self.bindings.get(name)
            now = {} if record is None else record.targets
            for cluster in now:
                if cluster not in before:
                    by_cluster.setdefault(cluster, {})[name] = None
            for cluster in before:
                if cluster not in now:
                    by_cluster[cluster].pop(name, None)
        self._unindexed.clear()

    @property
    def order(self) -> list[ClusterState]:
        """The known clusters in order of name: position is tie order, and a column's index."""
        if not self.laid_out:
            self._lay_out()
        return self._order

    @property
    def cached_max(self) -> int:
        """How many columns, and how many lists of feasible clusters, are kept."""
        return min(CACHED, max(1, CACHED_VALUES // max(1, len(self.order))))

    @property
    def wide(self) -> bool:
        """Whether clusters are counted in arrays."""
        return len(self.order) >= columns.FEW

    def facts_changed(self, cluster: ClusterState) -> None:
        """Something that filters look at is otherwise for this cluster."""
        if self.facts_from + len(self.facts_log) != self.facts or len(self.facts_log) >= LOG_LENGTH:
            self.facts_log.clear()
            self.facts_from = self.facts
        self.facts += 1
        self.facts_log.append(cluster.position)

    def changed_since(self, facts: int) -> list[int] | None:
        """Positions of the clusters whose facts are not what they were then; None: it cannot be told."""
        if facts < self.facts_from or self.facts_from + len(self.facts_log) != self.facts:
            return None
        return list(dict.fromkeys(self.facts_log[facts - self.facts_from :]))

    def touch(self, cluster: ClusterState) -> None:
        """Something that its estimates follow from is otherwise."""
        self.moves.stale = True
        if cluster.position < 0 or not self.laid_out:
            return
        if len(self.log) >= LOG_LENGTH:
            self.log_from += len(self.log)
            self.log.clear()
        cluster.touched = self.log_from + len(self.log)
        self.log.append(cluster.position)
        if self.rooms is not None:
            self.rooms.stale[cluster.position] = None

    def _take(self, record: BindingState, seq: int, grown: Mapping[str, int]) -> None:
        """Deduct what a decision gives these clusters beyond what they hold, as far as they are known and it is any."""
        if len(grown) == 1:  # as most bindings: what follows, without looking at the order of all clusters
            ((name, n),) = grown.items()
            cluster = self.clusters.get(name)
            if cluster is not None and n > 0:
                self._deduct(record, seq, [cluster], [n], everywhere=False)
            return
        counts = list(grown.values())
        everywhere = self.laid_out and len(counts) == len(self._names) and list(grown) == self._names
        taken = self._order if everywhere else list(map(self.clusters.get, grown))
        if min(counts) <= 0 or not (everywhere or all(taken)):
            some = [(c, n) for c, n in zip(taken, counts, strict=True) if c and n > 0]
            taken, counts, everywhere = [c for c, _ in some], [n for _, n in some], False
            if not some:
                return
        self._deduct(record, seq, cast("list[ClusterState]", taken), counts, everywhere=everywhere)

    def _deduct(
        self,
        record: BindingState,
        seq: int,
        clusters: Sequence[ClusterState],
        counts: Sequence[int],
        *,
        everywhere: bool,
    ) -> None:
        """`everywhere`: the clusters are all there are, in their order."""
        self.moves.stale = True
        requirements, column = record.spec.requirements, self.columns.get(record.class_key)
        demand = column.demand if column is not None else self._demand_of(record)
        class_key, claim, components = record.class_key, claim_of(record.spec), record.spec.components
        entries = {
            n: Pending(seq, class_key, n, requirements, demand, claim, components) for n in dict.fromkeys(counts)
        }
        for cluster, entry in zip(clusters, map(entries.__getitem__, counts), strict=True):
            cluster.pending.append(entry)  # deducted when somebody asks, see `ClusterState`
        if self.rooms is None or not self.laid_out or max(entries) > UNLIMITED:
            for cluster in clusters:
                self.touch(cluster)
        else:
            positions = np.arange(len(clusters)) if everywhere else np.array([c.position for c in clusters], np.int64)
            self._take_from_rooms(self.rooms, demand, column, positions, np.array(counts, np.int64))

    def _take_from_rooms(
        self, rooms: Rooms, demand: Demand, column: Column | None, positions: Array, replicas: Array
    ) -> None:
        if int(positions.min()) < 0:  # clusters that were never heard of have no place among the others
            replicas = replicas[positions >= 0]
            positions = positions[positions >= 0]
            if not positions.size:
                return
        rooms.take(demand, positions, replicas)
        if column is not None:
            column.take(self.layout, positions, replicas)
        if len(self.takes) >= TAKES_LENGTH:
            self.takes_from += len(self.takes)
            self.takes.clear()
        self.takes.append(positions)

    def _demand_of(self, record: BindingState) -> Demand:
        """Of one replica, or one set. Recovery makes no columns, and meets the same few classes again and again."""
        class_key, spec = record.class_key, record.spec
        demand = self.demands.get(class_key)
        if demand is None:
            if len(self.demands) >= CACHED:
                self.demands.clear()
            demand = demand_of_set(spec.components) if spec.components else demand_of(spec.requirements)
            self.demands[class_key] = demand
        return demand

    def _lay_out_anew(self) -> None:
        """There is another set of clusters; they are put in order when somebody asks for it."""
        self.moves.stale = True
        self.laid_out = False
        self.layout += 1
        self.facts += 1

    def _lay_out(self) -> None:
        for cluster in self._order:
            cluster.position = -1
        self._order = sorted((c for c in self.clusters.values() if c.facts is not None), key=lambda c: c.name)
        for position, cluster in enumerate(self._order):
            cluster.position = position
        self._names = [cluster.name for cluster in self._order]
        self.laid_out = True
        self.facts_log.clear()
        self.facts_from = self.facts
        self.log_from += len(self.log)
        self.log.clear()
        self.takes_from += len(self.takes)
        self.takes.clear()
        self.columns.clear()
        self.rooms = None

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
        self.paused.pop(name, None)
        self.moves.drop(name)
        if record.leaving or record.barred:
            self.graces.discard((name,))
        if record.deferred:
            record.deferred = False
            self.pauses.discard((name,))
        if record.refused == quota.EXCEEDED:
            self.quotas.stop_waiting(record.spec)
        elif record.refused:
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
        if record.left_alone:
            return
        if record.asked:
            self.asked[name] = None
        elif record.refused == quota.EXCEEDED:
            self.quotas.wait(record.spec)
        elif record.refused:
            group = self.waiting.get(record.group)
            now = self.column(record).values
            if group is None:
                group = self.waiting[record.group] = Waiting(values=now, facts=self.facts, made=self.makeable(record))
            elif not same(group.values, now) or group.made != self.makeable(record):
                group.values = None  # its others were found without a place under other estimates than this one
            group.names[name] = None
            if record.pause_until > self.clock:
                self.paused[name] = None
        elif record.follows and not record.plan.by_region:
            self.everywhere[name] = None
        if record.leaving or record.barred:
            self._await_grace(record)
        if not record.asked and not record.refused and movable(record.spec, record.affinity):
            self.moves.consider(name, record.spec, record.failback_since, record.rebalance_since, record.moved_at)
        if record.targets != record.before or (not record.refused and self.leaving(record)):  # as `_opened`
            self.open[name] = None

    def _await_grace(self, record: BindingState) -> None:
        """Put down when its copies on their way out have been waited for long enough, as soon as what replaces them is decided in
        full; and, while it waits for a place, when it may return to where it was ill."""
        name = (record.spec.name,)
        dues = [one.until_us for one in record.leaving.values() if one.until_us] if record.made_up else []
        if record.refused:
            dues += record.barred.values()
        if dues and not record.left_alone and not record.withdrawn:
            self.graces.set(name, min(dues))
        else:
            self.graces.discard(name)

    def known(self, name: str) -> bool:
        cluster = self.clusters.get(name)
        return cluster is not None and cluster.facts is not None

    def leaving(self, record: BindingState) -> bool:
        return bool(self.going) and any(name in self.going for name in record.targets)

    def leaves(self, record: BindingState) -> list[str]:
        """The targets that are being deleted."""
        return [name for name in record.targets if name in self.going] if self.going else []

    def come_to_rest(self, unfinished: bool) -> None:
        """Every round ends with this, a live one and a recovered one. What is looked at next follows from what has changed since,
        so it has to be the same for a state that decided and for one that only folded: either all was looked at under what
        holds now, or, after a full round, nobody knows, and all will be."""
        unfinished, self.regrouped = unfinished or self.regrouped, False
        self._let_return()
        self._defer(unfinished)
        self._rest(unfinished)
        if self.selections is not None:
            self.selections.come_to_rest(self.clock)

    def _let_return(self) -> None:
        """Whoever has kept out of a cluster for long enough keeps out of it no more."""
        for (name,) in self.graces.pop(self.clock):
            record = self.bindings[name]
            over = [c for c, until in record.barred.items() if until <= self.clock]
            for cluster in over:
                del record.barred[cluster]
            if over:
                self._note(name)
            self._await_grace(record)

    def _rest(self, unfinished: bool) -> None:
        self.unfinished = self.stirred = unfinished
        self.quotas.come_to_rest(self.bindings, self.facts, unfinished)
        if unfinished:
            for group in self.waiting.values():
                group.values, group.facts = None, -1
            self.everywhere_facts = -1
            self.open = self._all_opened()
            return
        for group in self.waiting.values():
            group.values, group.facts = self.column_of(group).values, self.facts
            if self.makers or group.made:
                group.made = self.makeable(self.bindings[next(iter(group.names))])
        self.everywhere_facts = self.facts
        self.open.clear()

    def _defer(self, unfinished: bool) -> None:
        """Whoever was passed over because of its pause, though something had changed for it, is looked at when the pause ends."""
        if not unfinished:
            for (name,) in self.pauses.pop(self.clock):
                self.bindings[name].deferred = False
                self._note(name)
        for name in list(self.paused):
            record = self.bindings[name]
            if record.pause_until <= self.clock:
                del self.paused[name]
                continue
            group = self.waiting[record.group]
            otherwise = group.facts != self.facts or not same(group.values, self.column_of(group).values)
            if unfinished or otherwise or group.made != self.makeable(record):
                self._put_off(record)
                self._note(name)

    def _put_off(self, record: BindingState) -> None:
        self.paused.pop(record.spec.name, None)
        record.deferred = True
        self.pauses.set((record.spec.name,), record.pause_until)

    def _opened(self, record: BindingState) -> bool:
        """May need a decision though nobody asked."""
        if record.withdrawn or record.left_alone:
            return False
        return record.targets != record.before or (not record.refused and self.leaving(record))

    def _all_opened(self) -> dict[str, None]:
        """Asked after every full round, of every binding: what can be told at a glance is."""
        some_leave = bool(self.going)
        return {
            name: None
            for name, record in self.bindings.items()
            if (some_leave or record.targets != record.before) and self._opened(record)
        }

    def column_of(self, group: Waiting) -> Column:
        """The present estimates of a waiting group's class."""
        first = self.bindings[next(iter(group.names))]
        return self.column(first)

    def fits(self, record: BindingState, cluster: ClusterState) -> int:
        """How many more of its replicas fit there, as its column has it."""
        demand = self._demand_of(record)
        return cluster.estimate(record.class_key, demand, record.claim)

    def makeable(self, record: BindingState) -> tuple[int, ...]:
        """How many more of its replicas would fit on new nodes, for each of `makers`. Nothing for who follows Karmada strictly, and
        for sets."""
        if not self.makers or record.sets or not record.counted or record.plan.placement.strict:
            return ()
        demand = self._demand_of(record)
        return tuple([self.clusters[c].makeable(record.class_key, demand, record.claim) for c in self.makers])

    def estimated_by(self, record: BindingState, cluster: ClusterState) -> str:
        """Where that estimate is from."""
        by = cluster.estimated_by(record.class_key)
        if record.claim is not None and by in COUNTED:
            demand = self._demand_of(record)
            if cluster.estimate(record.class_key, demand, record.claim) < cluster.estimate(record.class_key, demand):
                return "quota"
        return by

    def derive(self) -> None:
        """Make every index anew from what was saved, at the end of a round."""
        for cluster in self.clusters.values():
            if told := self.tainting.told.get(cluster.name):
                self.tainting.told[cluster.name] = self._sharing_kinds(told)
                cluster.facts = self.tainting.effective(cluster.name)
            cluster.refresh()
            self._note_going(cluster)
            self._note_maker(cluster)
            self._count_lease(cluster, 1)
            self.watch(cluster)
            self.clock = max(self.clock, cluster.heard_at)
        self.silent = {name: None for name, c in sorted(self.clusters.items()) if c.silent_since is not None}
        self._lay_out_anew()
        for cluster in self.clusters.values():
            for namespace in cluster.quotas.by_namespace:
                self.quoted[namespace] = self.quoted.get(namespace, 0) + 1
        for record in self.bindings.values():
            self._read(record)
            self.groups.join(record.spec)
            if record.targets:
                self._unindexed[record.spec.name] = {}
            self._index_suspects(record, record.suspect)
            deferred = record.deferred
            self._reindex(record)
            if deferred:
                self._put_off(record)
        self.quotas.begin(self.bindings)
        if self.selections is not None:
            self.selections.derive(self.tainting.told.values())
        self._rest(self.unfinished)

    def column(self, record: BindingState) -> Column:
        """The estimates for a binding, brought up to date: only clusters touched since they were last used are counted again."""
        order, class_key = self.order, record.class_key
        column = self.columns.get(record.column_key)
        if column is None or column.layout != self.layout:
            return self._new_column(record)
        touched_to, taken_to = self.log_from + len(self.log), self.takes_from + len(self.takes)
        if column.seen == touched_to and column.takes_seen == taken_to:
            return column
        touched = self._touched_since(column.seen)
        if self.rooms is None:
            changed = recount_list(column, class_key, order, touched)
        else:
            self.rooms.catch_up(order)
            behind = column.takes_seen - self.takes_from
            taken = self.takes[behind:] if behind >= 0 else None
            changed = recount_array(column, class_key, order, self.rooms, touched, taken)
        if changed:
            column.add_up()
        column.seen, column.takes_seen = touched_to, taken_to
        return column

    def _new_column(self, record: BindingState) -> Column:
        order, class_key = self.order, record.class_key
        if len(self.columns) >= self.cached_max:
            self.columns.clear()
        if len(order) >= columns.FEW:
            if self.rooms is None:
                self.rooms = Rooms.of(order)
            self.rooms.catch_up(order)
        demand = self._demand_of(record)
        column = self.columns[record.column_key] = counted(class_key, demand, record.claim, order, self.rooms)
        column.add_up()
        column.layout = self.layout
        column.seen, column.takes_seen = self.log_from + len(self.log), self.takes_from + len(self.takes)
        return column

    def _touched_since(self, seen: int) -> Iterable[int]:
        """Positions of the clusters touched since that touch, and perhaps of others. By whichever is shorter, the end of the log
        or the list of clusters: a class that is seldom asked for has much of the log before it."""
        if seen >= self.log_from and self.log_from + len(self.log) - seen < len(self.order):
            return dict.fromkeys(self.log[seen - self.log_from :])
        return [cluster.position for cluster in self.order if cluster.touched >= seen]


def _answered(decision: Decision) -> UUID | None:
    """The proposal that a decision may be the answer to: the one it names, else its cause."""
    data = decision.data
    if isinstance(data, ScheduleDecided | ScheduleRefused) and data.answers:
        return uuid_of(data.answers)
    if isinstance(data, ProposalRefused):
        return uuid_of(data.proposal)
    return decision.cause


def _told_otherwise(before: Binding, now: Binding) -> bool:
    """Whether the clusters that hold it have to be told something, though nothing moves: what others see of its pods, or, where
    pods are told of at all, whom they may ask to go."""
    ranked = now.requirements.pod is not None and before.priority != now.priority
    return ranked or before.requirements != now.requirements


def _differs(record: BindingState) -> bool:
    """Whether the request asks for something the last decision did not answer. A new name for a policy or another
    priority changes no placement; an unanswered request stays unanswered."""
    return record.asked or _asks_otherwise(record)


def _asks_otherwise(record: BindingState) -> bool:
    """Whether its replicas would be placed by something else than the last decision placed them by."""
    spec = record.spec
    if record.applied is None:
        return True
    return (
        record.applied_replicas != spec.replicas
        or record.applied_class != record.class_key
        or record.applied_token != spec.reschedule
        or record.told != tuple([c.name for c in spec.components])
        or placement_changed(record.applied, spec.placement, record.affinity)
    )
