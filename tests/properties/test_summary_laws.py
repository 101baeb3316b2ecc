"""Laws of a cluster that reports totals only: its summaries and the decisions of two fleet streams
arrive in any order, and a decision that a summary includes is not deducted once more, and one that
it does not include is."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, event
from tests.hunting import examples

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster, ResourceSummary
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.engine.fleet.estimate import demand_of
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterObserved
from wharfinger.stages.estimator import EstimatorObserver
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.fleet.state.clusters import ClusterState, Pending

OWN, OTHER = STREAMS = ("fleet/0", "fleet/1")
CLASSES = (Requirements({"cpu": 100}), Requirements({"cpu": 700}))
ROOM = 1_000_000
OBSERVER = EstimatorObserver()
REF = ObjectRef("apps/v1", "Deployment", "web")


@dataclass(frozen=True)
class Decision:
    """`replicas`: the total of the binding. `more`: than before."""

    stream: str
    seq: int
    binding: str
    requirements: Requirements
    replicas: int
    more: int


@st.composite
def decisions(draw: st.DrawFn, shrinking: bool) -> list[Decision]:
    found: list[Decision] = []
    seqs, totals = dict.fromkeys(STREAMS, 0), dict[str, int]()
    for _ in range(draw(st.integers(1, 12))):
        stream = draw(st.sampled_from(STREAMS))
        which = draw(st.integers(0, 2))
        binding = f"{stream}/{which}"
        before = totals.get(binding, 0)
        lowest = -before if shrinking else 1
        more = draw(st.integers(lowest, 5))
        seqs[stream] += draw(st.integers(1, 3))
        totals[binding] = before + more
        found.append(
            Decision(stream, seqs[stream], binding, CLASSES[which % 2], before + more, more)
        )
    return found


def used(taken: Sequence[Decision], through: dict[str, int]) -> int:
    """cpu of all bindings as of these decisions."""
    last = {one.binding: one for one in taken if one.seq <= through.get(one.stream, 0)}
    return sum(one.replicas * one.requirements.requests["cpu"] for one in last.values())


def summary_of(taken: Sequence[Decision], through: dict[str, int]) -> Cluster:
    summary = ResourceSummary(
        {"cpu": ROOM}, {"cpu": used(taken, through)}, accounted_through=through
    )
    return Cluster(CLUSTER, summary=summary)


@dataclass
class Fleet:
    """One fleet stream and the estimator, and what is under way to each of them, in order."""

    taken: Sequence[Decision]
    chance: random.Random
    estimated: bool
    known: ClusterState = field(default_factory=lambda: ClusterState(CLUSTER))
    decided: dict[str, int] = field(default_factory=dict)
    heard: int = 0
    """The last seq of the other stream that this one took in."""
    contained: dict[str, int] = field(default_factory=dict)
    """Of the last summary."""

    def __post_init__(self) -> None:
        self.estimator = OBSERVER.initial()
        self._count = 0
        self.ways: dict[str, deque[Callable[[], None]]] = {}
        for i, requirements in enumerate(CLASSES):
            self.estimate(BindingRequested(Binding(f"b{i}", f"b{i}", REF, 1, requirements)))

    # --- what happens

    def decide(self, one: Decision) -> None:
        self.decided[one.stream] = one.seq
        entry = Pending(
            one.seq,
            one.requirements.class_key,
            one.more,
            one.requirements,
            demand_of(one.requirements),
            Claim("shop", ""),
        )
        if one.stream == OWN:
            self.known.take(entry)
        else:
            self._later("promises", partial(self._promised, one, entry))
        item = Assigned(one.seq, str(one.seq), one.binding, "u", one.replicas, one.requirements)
        decided = AssignmentsDecided(CLUSTER, one.stream, one.seq, (item,))
        self._later(one.stream, partial(self.estimate, decided))

    def report(self) -> None:
        """The cluster's agent includes in its totals what it has seen of each stream."""
        seqs = {
            stream: [0, *(d.seq for d in self.taken if d.stream == stream)] for stream in STREAMS
        }
        through = {
            stream: self.chance.choice(
                [
                    seq
                    for seq in seqs[stream]
                    if self.contained.get(stream, 0) <= seq <= self.decided.get(stream, 0)
                ]
            )
            for stream in STREAMS
        }
        self.contained = through
        cluster = summary_of(self.taken, through)
        if self.estimated:
            self._later("summaries", partial(self.estimate, ClusterObserved(cluster)))
        else:
            self._later("facts", partial(self._told, cluster))

    def deliver(self) -> bool:
        """One of what is under way. False: nothing is."""
        ways = sorted(name for name, waiting in self.ways.items() if waiting)
        if not ways:
            return False
        self.ways[self.chance.choice(ways)].popleft()()
        return True

    # --- who takes it in

    def estimate(self, data: Value) -> None:
        self._count += 1
        OBSERVER.fold(self.estimator, event(data, "estimator", self._count), 1)
        for publication in OBSERVER.publish(self.estimator, 1):
            counted = publication.data
            assert isinstance(counted, CapacityEstimated)
            self.check_estimate(counted)
            self._later("capacity", partial(self.known.count, counted, OWN))

    def check_estimate(self, counted: CapacityEstimated) -> None:
        assert counted.free["cpu"] == ROOM - used(self.taken, counted.accounted_through)

    def _promised(self, one: Decision, entry: Pending) -> None:
        self.heard = one.seq
        self.known.deduct_promised(OTHER, entry)

    def _told(self, cluster: Cluster) -> None:
        self.known.facts = cluster
        self.known.summarised(OWN)
        self.known.refresh()

    def _later(self, way: str, what: Callable[[], None]) -> None:
        self.ways.setdefault(way, deque()).append(what)

    # --- what is believed, and what is true

    @property
    def believed(self) -> int | None:
        return None if self.known.room is None else self.known.room.left["cpu"]

    @property
    def true(self) -> int:
        """As far as it can be known: of the other stream what was heard, or is included."""
        included = self.known.included.get(OTHER, 0)
        through = {OWN: self.decided.get(OWN, 0), OTHER: max(self.heard, included)}
        return ROOM - used(self.taken, through)


@settings(max_examples=examples(150), deadline=None)
@given(decisions(shrinking=False), st.randoms(use_true_random=False), st.booleans())
def test_what_is_believed_free_is_the_truth_in_any_order_of_arrival(
    taken: list[Decision], chance: random.Random, estimated: bool
) -> None:
    fleet = Fleet(taken, chance, estimated)
    for one in taken:
        fleet.decide(one)
        if chance.random() < 0.5:
            fleet.report()
        while chance.random() < 0.6 and fleet.deliver():
            assert fleet.believed is None or fleet.believed == fleet.true
    fleet.report()
    while fleet.deliver():
        assert fleet.believed is None or fleet.believed == fleet.true
    through = {one.stream: one.seq for one in taken}
    assert fleet.believed == ROOM - used(taken, through), "everything has arrived"


class _Shrinking(Fleet):
    """A summary may include replicas that were given up since."""

    def check_estimate(self, counted: CapacityEstimated) -> None:
        assert counted.free["cpu"] <= ROOM - used(self.taken, counted.accounted_through)


@settings(max_examples=examples(150), deadline=None)
@given(decisions(shrinking=True), st.randoms(use_true_random=False))
def test_no_estimate_exceeds_the_truth_and_it_is_reached(
    taken: list[Decision], chance: random.Random
) -> None:
    fleet = _Shrinking(taken, chance, estimated=True)
    for one in taken:
        fleet.decide(one)
        if chance.random() < 0.5:
            fleet.report()
        while chance.random() < 0.6 and fleet.deliver():
            pass
    fleet.contained = through = {one.stream: one.seq for one in taken}
    fleet.report()
    while fleet.deliver():
        pass
    last = fleet.estimator.clusters[CLUSTER].published
    assert last is not None
    assert last.free["cpu"] == ROOM - used(taken, through)
