"""A fleet stage on its own, told of the world in the domain's words and asked what it decided.

Each `when` is one round. `check` then recovers the state from the recorded rounds, dumps, loads and
replays it, so that every scenario also proves that history can be gone through again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling, StaticWeight
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.assignments import Refused
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import ProposalRefused, ScheduleDecided, ScheduleRefused
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import decision_id, empty_head, step, tick
from wharfinger.stages.fleet import FleetDecider, FleetState
from wharfinger.stages.fleet.solve import question_of
from wharfinger.stages.fleet.trace import trace

STREAM = "fleet/0"
SECOND = 1_000_000

SMALL = Requirements({"cpu": 1000})
DYNAMIC = ReplicaScheduling("Divided", "Weighted", dynamic=True)
AGGREGATED = ReplicaScheduling("Divided", "Aggregated")
DUPLICATED = ReplicaScheduling("Duplicated")

NO_EXECUTE = Taint("broken", "NoExecute")
NO_SCHEDULE = Taint("closed", "NoSchedule")


def static(**weights: int) -> ReplicaScheduling:
    rules = tuple(
        StaticWeight(ClusterAffinity(cluster_names=(name,)), weight)
        for name, weight in weights.items()
    )
    return ReplicaScheduling("Divided", "Weighted", rules)


def a_cluster(
    name: str,
    *taints: Taint,
    lease_s: int | None = None,
    region: str = "",
    deleting: bool = False,
    labels: dict[str, str] | None = None,
) -> ClusterObserved:
    return ClusterObserved(
        Cluster(
            name, labels or {}, region=region, taints=taints, lease_s=lease_s, deleting=deleting
        )
    )


def forgotten(name: str) -> ClusterForgotten:
    return ClusterForgotten(name)


def room(
    cluster: str, replicas: int, requirements: Requirements = SMALL, fleet: int = 0, own: int = 0
) -> CapacityEstimated:
    """The cluster has room for `replicas`; `fleet` and `own`: seq of the fleet's and of its own
    stream counted in."""
    through = {STREAM: fleet, f"cluster/{cluster}": own}
    return CapacityEstimated(
        cluster,
        1,
        {r: n * replicas for r, n in requirements.requests.items()},
        {requirements.class_key: replicas},
        through,
    )


def totals(cluster: str, cpu_milli: int, fleet: int = 0) -> CapacityEstimated:
    """Only what is free all told is known: no class has been counted."""
    return CapacityEstimated(cluster, 1, {"cpu": cpu_milli}, {}, {STREAM: fleet})


def a_binding(
    name: str,
    replicas: int = 1,
    how: ReplicaScheduling = DYNAMIC,
    *,
    placement: Placement | None = None,
    requirements: Requirements = SMALL,
    priority: int = 0,
    suspended: bool = False,
    reschedule: str = "",
) -> BindingRequested:
    namespace, _, short = name.rpartition("/")
    return BindingRequested(
        Binding(
            name,
            f"uid-of-{name}",
            ObjectRef("apps/v1", "Deployment", short, namespace),
            replicas,
            requirements,
            placement if placement is not None else Placement(replicas=how),
            priority,
            suspended,
            reschedule,
        )
    )


def withdrawn(name: str) -> BindingWithdrawn:
    return BindingWithdrawn(name)


def failover(binding: str, cluster: str) -> FailoverProposed:
    return FailoverProposed(STREAM, binding, cluster)


def eviction(binding: str, cluster: str) -> EvictionProposed:
    return EvictionProposed(STREAM, binding, cluster)


def fresh(binding: str) -> RescheduleProposed:
    return RescheduleProposed(STREAM, binding)


@dataclass
class FleetPlane:
    """One stream, its state, and its history."""

    decider: FleetDecider = field(default_factory=FleetDecider)
    at: Micros = 1_700_000_000 * SECOND
    told: int = 0

    def __post_init__(self) -> None:
        self.state = self.decider.initial(STREAM)
        self.head = empty_head(STREAM)
        self.rounds: list[RecordedRound] = []
        self.decided: list[Value] = []
        self.last: tuple[Decision, ...] = ()
        self.outcome_seq: dict[str, int] = {}

    def given(self, *facts: Value) -> None:
        self.when(*facts)

    def when(self, *facts: Value | Event[Value], after_s: float = 0.01) -> None:
        """One round with these inputs, `after_s` seconds after the last."""
        self.at += int(after_s * SECOND)
        self.round([f if isinstance(f, Event) else self.event(f) for f in facts])

    def event(self, data: Value) -> Event[Value]:
        self.told += 1
        return made(data, id=derived_id("told", self.told), source="/test", subject="test")

    def round(self, events: Sequence[Event[Value]]) -> None:
        made_round = step(
            self.decider, self.state, self.head, events, self.at, {"t/0": (0, self.told)}
        )
        self.rounds.append(RecordedRound(made_round, list(events)))
        self.head = made_round.head()
        self.last = made_round.decisions
        self.decided = [d.data for d in made_round.decisions]

    def estimated_by(self, binding: str) -> dict[str, str]:
        """Cluster -> where the estimate is from that its replicas were asked for by now."""
        record = self.state.bindings[binding]
        traced = trace(self.state, record, question_of(self.state, record, {}))
        assert traced is not None
        return {cluster.name: cluster.source for cluster in traced.term.clusters}

    def wait(self, seconds: float) -> None:
        """Time passes: whatever falls due meanwhile is decided by ticks, as the stage loop would
        feed them."""
        end = self.at + int(seconds * SECOND)
        said: list[Value] = []
        while (due := self.decider.next_due(self.state)) is not None and due <= end:
            self.at = max(self.at, due)
            self.round([tick(STREAM, due)])
            said += self.decided
        self.at, self.decided = end, said

    def refused(
        self, cluster: str, binding: str, count: int, requirements: Requirements = SMALL
    ) -> OutcomesDecided:
        """The cluster gives back `count` replicas of what the last decision on the binding gave
        it."""
        record = self.state.bindings[binding]
        assignment = str(decision_id(STREAM, record.assigned_by[cluster]))
        seq = self.outcome_seq[cluster] = self.outcome_seq.get(cluster, 0) + 1
        stream = f"cluster/{cluster}"
        item = Refused(
            seq,
            str(decision_id(stream, seq)),
            binding,
            assignment,
            count,
            requirements.class_key,
            "InsufficientResources",
        )
        return OutcomesDecided(cluster, 0, stream, seq, (item,))

    def holds(self, binding: str) -> dict[str, int]:
        return dict(self.state.bindings[binding].targets)

    def schedule(self, binding: str) -> ScheduleDecided | ScheduleRefused:
        """What the last round decided for the binding; exactly one."""
        (one,) = [
            d
            for d in self.decided
            if isinstance(d, ScheduleDecided | ScheduleRefused) and d.binding == binding
        ]
        return one

    def then_scheduled(self, binding: str, **targets: int) -> ScheduleDecided:
        decision = self.schedule(binding)
        assert isinstance(decision, ScheduleDecided), decision
        assert {t.cluster: t.replicas for t in decision.targets} == targets
        return decision

    def then_refused(self, binding: str, reason: str, **keeps: int) -> ScheduleRefused:
        decision = self.schedule(binding)
        assert isinstance(decision, ScheduleRefused), decision
        assert decision.reason == reason
        assert {t.cluster: t.replicas for t in decision.targets} == keeps
        return decision

    def then_declined(self, reason: str) -> ProposalRefused:
        (one,) = [d for d in self.decided if isinstance(d, ProposalRefused)]
        assert one.reason == reason, one
        return one

    def then_nothing(self) -> None:
        assert self.decided == []

    def check_goes_on_alike(self, other: FleetState, head: Head, known: int) -> None:
        """`other`, a state of the moment when `known` rounds had led to `head`, decides everything
        since as it was decided."""
        for recorded in self.rounds[known:]:
            r = recorded.round
            again = step(self.decider, other, head, recorded.events, r.at, r.basis)
            assert [(d.outcome, d.cause, d.body) for d in again.decisions] == [
                (d.outcome, d.cause, d.body) for d in r.decisions
            ]
            head = again.head()
        assert self.decider.dump(other) == self.decider.dump(self.state)

    def check(self) -> None:
        """History holds: recovered equals live, loaded equals dumped, decided again equals
        decided."""
        live = self.decider.dump(self.state)
        recovered = recover(self.decider, self.decider.initial(STREAM), self.rounds)
        assert self.decider.dump(recovered) == live
        assert self.decider.dump(self.decider.load(STREAM, live)) == live
        result = audit(self.decider, self.decider.initial(STREAM), empty_head(STREAM), self.rounds)
        assert result.divergences == []
