"""Karmada's cycles, answered by the fleet stage.

The stage is told what Karmada's scheduler saw: the clusters, what fits into each, the binding as it
was when it was last scheduled, with the decision of then, and the binding as it is now. What it
decides then, in its round, is the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import BindingReleased, ScheduleDecided, ScheduleRefused
from wharfinger.events.envelope import derived_id
from wharfinger.kernel.decider import Decision, Draft
from wharfinger.kernel.step import empty_head, number, step
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet.state import BindingState

STREAM = "fleet/0"
START = 1_700_000_000 * 1_000_000
END = 2 * START


class FleetStage:
    """One fleet stream. `at`: microseconds."""

    def __init__(self) -> None:
        self.decider = FleetDecider()
        self.state = self.decider.initial(STREAM)
        self.head = empty_head(STREAM)
        self.at = START
        self.told = 0

    def tell(self, *facts: Value) -> tuple[Decision, ...]:
        """One round with these inputs."""
        self.at += 1000
        events = []
        for fact in facts:
            self.told += 1
            id = derived_id("told", self.told)
            events.append(made(fact, id=id, source="/test", subject="test"))
        round = step(self.decider, self.state, self.head, events, self.at, {})
        self.head = round.head()
        return round.decisions

    def remember(self, binding: Binding, targets: Mapping[str, int], affinity: str) -> None:
        """Its last decision, as it is folded from a ledger: recovery decides nothing."""
        self.told += 1
        fact = BindingRequested(binding)
        event = made(fact, id=derived_id("told", self.told), source="/test", subject="test")
        self.decider.fold_input(self.state, event, self.at)
        given = tuple(TargetCluster(name, n) for name, n in sorted(targets.items()))
        decided = ScheduleDecided(
            binding.name, binding.uid, "FirstSchedule", binding.replicas, given, affinity=affinity
        )
        draft = Draft(decided, binding.name, "scheduled", None)
        decision = number(draft, STREAM, 0)
        self.decider.fold_decision(self.state, decision, self.at)

    def record(self, binding: str) -> BindingState:
        return self.state.bindings[binding]


def cycle(
    binding: Binding,
    clusters: Sequence[Cluster],
    estimates: Mapping[str, int],
    held: Mapping[str, int],
    observed: str,
    *,
    fresh: bool,
    evicted: Collection[str] = (),
) -> ScheduleDecided | ScheduleRefused:
    """What is decided about the binding. One that holds something was scheduled before, with
    another number of replicas: so the stage has to decide. `fresh`: it is to be placed as if it
    held nothing. `evicted`: from where it has been evicted."""
    stage = FleetStage()
    stage.tell(*map(ClusterObserved, clusters))
    now = msgspec.structs.replace(binding, clusters=(), reschedule="again" if fresh else "")
    if held or observed or fresh or evicted:
        before = msgspec.structs.replace(now, replicas=now.replicas + 1, reschedule="")
        stage.remember(before, held, observed)
        stage.record(binding.name).excluded_until = dict.fromkeys(evicted, END)
    counts = [
        CapacityEstimated(
            c.name, 1, {}, {now.requirements.class_key: estimates[c.name]}, {STREAM: 0}
        )
        for c in clusters
    ]
    (decision,) = stage.tell(*counts, BindingRequested(now))
    assert isinstance(decision.data, ScheduleDecided | ScheduleRefused)
    return decision.data


def caused(
    applied: Placement | None,
    binding: Binding,
    clusters: Sequence[Cluster],
    held: Mapping[str, int],
    observed: str,
    *,
    fresh: bool,
    strategy: bool,
    deleted: bool,
) -> str:
    """Why the stage looks at the binding, in Karmada's words. `applied`: the placement of its last
    decision; None: there was none. `fresh`: it is to be placed as if it held nothing. `strategy`
    False: its placement does not say how replicas are divided, so that what it holds does not say
    how many there were. `deleted`: it is withdrawn."""
    stage = FleetStage()
    stage.tell(*[ClusterObserved(msgspec.structs.replace(c, deleting=False)) for c in clusters])
    now = msgspec.structs.replace(
        binding,
        clusters=binding.clusters if applied is None else (),
        suspended=False,  # whether it is left alone is asked apart from the cause
        scheduler="",
        reschedule="again" if fresh else "",
    )
    if applied is not None:
        then = _then(binding, applied, held) if strategy else binding.replicas
        before = msgspec.structs.replace(now, placement=applied, replicas=then, reschedule="")
        stage.remember(before, held, observed)
    facts: list[Value] = [*map(ClusterObserved, clusters), BindingRequested(now)]
    decisions = stage.tell(*facts, *([BindingWithdrawn(binding.name)] if deleted else []))
    record = stage.state.bindings.get(binding.name)
    # of a binding that goes wherever it may Karmada says so, whatever else has happened
    everywhere = "duplicatedOrNonWorkload" if record and record.tracks_all_feasible else ""
    if not decisions:
        return everywhere or "none"
    (data,) = (decision.data for decision in decisions)
    if isinstance(data, BindingReleased):
        return "deleting"
    assert isinstance(data, ScheduleDecided | ScheduleRefused)
    if data.trigger == "FailoverSchedule":
        return everywhere or "targetClusterTerminating"
    return next(cause for why, cause in CAUSES.items() if data.explanation.why.startswith(why))


def _then(binding: Binding, applied: Placement, held: Mapping[str, int]) -> int:
    """How many replicas it had when it was last scheduled, by what it holds."""
    if applied.replicas.type == "Divided":
        return sum(held.values())
    return next((n for n in held.values() if n != binding.replicas), binding.replicas)


CAUSES = {
    "never placed before": "placementChanged",
    "the policy places it otherwise": "placementChanged",
    "scaled from": "replicasChanged",
    "to be placed afresh": "rescheduleRequested",
    "the clusters it may go to have changed": "duplicatedOrNonWorkload",
}
"""How the stage begins to say why -> Karmada's cause."""


def left_alone(binding: Binding) -> bool:
    """Whether the stage decides nothing about it."""
    stage = FleetStage()
    decisions = stage.tell(BindingRequested(binding))
    return not decisions and stage.record(binding.name).left_alone
