"""Random fleets with a past, random changes of them, and the plane a change then happens on. Shared
by the tests of plans.

The plane that lives (`Plane.live`) has been told everything since the beginning. What a plan is
made from begins from states that were recovered from its rounds, as a plan of a real plane does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.drain import drained_cluster, drained_node
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.events.accepted import Accepted, Fact, accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import decode, made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.history.plan_records import HORIZON_US, Plan, fact_event, request_event
from wharfinger.history.planning import planned
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.world import World
from wharfinger_cli.generate import FleetPlan, generate

START = 1_700_000_000_000_000
SECOND = 1_000_000

Change = tuple[list[Accepted], list[RescheduleProposed]]
Layout = dict[str, tuple[dict[str, int], dict[str, int]]]
"""binding -> (cluster -> replicas, cluster/node -> replicas)"""


@dataclass
class Plane:
    """A world that lives, and everything it has recorded."""

    live: World
    rounds: list[RecordedRound] = field(default_factory=list)
    told: int = 0

    def tell(self, *data: Value, after_s: float = 1.0) -> list[RecordedRound]:
        events = [self._event(one) for one in data]
        new = self.live.tell(events, self.live.at + int(after_s * SECOND))
        self.rounds += new
        return new

    def _event(self, data: Value) -> Event[Value]:
        self.told += 1
        return made(data, id=derived_id("told", self.told), source="/test", subject="test")

    @property
    def fleet(self) -> FleetState:
        (state,) = self.live.fleet_states()
        return state

    def recovered(self) -> World:
        """A world begun from what the rounds say, with observers that know only what the streams
        hold."""
        world = World(at=self.live.at)
        for name, running in self.live.streams.items():
            own = [r for r in self.rounds if r.round.stream == name]
            state = recover(running.decider, running.decider.initial(name), own)
            world.adopt(name, running.decider, state, own[-1].round.head())
        # it looks at what waits once more, and finds nothing
        assert all(not r.round.decisions for r in world.settle_in())
        return world

    def plan(
        self, facts: Sequence[Accepted], proposals: Sequence[RescheduleProposed] = (), id: int = 1
    ) -> Plan:
        return planned(self.recovered(), facts, proposals, UUID(int=id), self.live.at)

    def ask(self, plan: Plan, after_s: float = 1.0) -> list[Decision]:
        """The streams are asked, by messages that went over a wire. What each decided in the round
        in which it answered."""
        events = [decode(request_event(part).body) for part in plan.parts]
        rounds = self.live.tell(events, self.live.at + int(after_s * SECOND))
        self.rounds += rounds
        asked = {event.id for event in events}
        return [d for r in rounds if asked & {e.id for e in r.events} for d in r.round.decisions]

    def carry_out(self, plan: Plan) -> list[Decision]:
        """All of it: asked, committed, the facts handed in, and time to come to rest."""
        decisions = self.ask(plan)
        self.rounds += self.live.tell(
            [fact_event(plan.id, f.accepted) for f in plan.facts], self.live.at
        )
        self.rounds += self.live.wait(self.live.at + HORIZON_US)
        return decisions

    def layout(self) -> Layout:
        return layout(self.live)


def layout(world: World) -> Layout:
    found: Layout = {}
    for state in world.fleet_states():
        for name, record in state.bindings.items():
            if record.targets:
                found.setdefault(name, ({}, {}))[0].update(record.targets)
    for book in world.cluster_states():
        for name, held in book.book.held.items():
            nodes = found.setdefault(name, ({}, {}))[1] if held.placed else {}
            for replica in held.placed.values():
                place = f"{book.cluster}/{replica.node}"
                nodes[place] = nodes.get(place, 0) + 1
    return found


def after(before: Layout, plan: Plan) -> Layout:
    """Where everything lies once the plan's moves have been made."""
    found = dict(before)
    for move in plan.moves:
        assert before.get(move.binding, ({}, {})) == (move.before, move.nodes_before)
        found[move.binding] = (move.after, move.nodes_after)
    return {name: places for name, places in found.items() if places != ({}, {})}


# --- random fleets


def a_plane(random: Random) -> Plane:
    """A few clusters, mostly tight, and bindings that came, changed and went."""
    size = FleetPlan(
        random.randint(2, 4), random.randint(6, 16), random.randint(8, 24), random.randrange(10**6)
    )
    plane = Plane(World(recorded=True, at=START))
    facts = [fact.data for fact in generate(size)]
    late = [data for data in facts if isinstance(data, BindingRequested) and random.random() < 0.4]
    plane.tell(*(data for data in facts if data not in late))
    for _ in range(random.randint(0, 4)):
        plane.tell(*(f.data for f in a_change(random, plane)[0]))
    plane.tell(*late)
    plane.rounds += plane.live.wait(plane.live.at + HORIZON_US)
    return plane


def a_change(random: Random, plane: Plane) -> Change:
    kind = random.choice(CHANGES)
    said = list(kind(random, plane))
    return [accepted(f) for f in said if isinstance(f, Fact)], [
        f for f in said if isinstance(f, RescheduleProposed)
    ]


def _some(random: Random, plane: Plane, most: int = 3) -> list[Binding]:
    known = [r.spec for _, r in sorted(plane.fleet.bindings.items()) if not r.withdrawn]
    return random.sample(known, min(len(known), random.randint(1, most)))


def _scaled(random: Random, plane: Plane) -> Iterator[BindingRequested]:
    for spec in _some(random, plane):
        if spec.replicas or not spec.requirements.empty:
            yield BindingRequested(msgspec.structs.replace(spec, replicas=random.randint(0, 30)))


def _new(random: Random, plane: Plane) -> Iterator[BindingRequested]:
    for spec in _some(random, plane):
        name = f"{spec.name}-new{random.randrange(1000)}"
        yield BindingRequested(
            msgspec.structs.replace(spec, name=name, uid=name, priority=random.randint(0, 3))
        )


def _withdrawn(random: Random, plane: Plane) -> Iterator[BindingWithdrawn]:
    return (BindingWithdrawn(spec.name) for spec in _some(random, plane))


def _under_another_policy(random: Random, plane: Plane) -> Iterator[BindingRequested]:
    placement = Placement(
        random.choice(
            [(), (ClusterAffinity(exclude=(random.choice(sorted(plane.fleet.clusters)),)),)]
        ),
        random.choice([(), (Toleration("wharfinger.io/drain", "Exists", seconds=300),)]),
        replicas=random.choice(
            [
                ReplicaScheduling("Duplicated"),
                ReplicaScheduling("Divided", "Aggregated"),
                ReplicaScheduling("Divided", "Weighted", dynamic=True),
                ReplicaScheduling("Divided", "Weighted"),
            ]
        ),
    )
    return (
        BindingRequested(msgspec.structs.replace(s, placement=placement, policy="p/new"))
        for s in _some(random, plane, 8)
    )


def _cluster_drained(random: Random, plane: Plane) -> Iterator[ClusterObserved]:
    facts = [c.facts for c in plane.fleet.order if c.facts is not None]
    yield ClusterObserved(drained_cluster(random.choice(facts)))


def _cluster_changed(random: Random, plane: Plane) -> Iterator[ClusterObserved]:
    facts = random.choice([c.facts for c in plane.fleet.order if c.facts is not None])
    taints = random.choice([(), (Taint("closed", "NoSchedule"),)])
    deleting = random.random() < 0.3
    yield ClusterObserved(msgspec.structs.replace(facts, taints=taints, deleting=deleting))


def _cluster_gone(random: Random, plane: Plane) -> Iterator[ClusterForgotten]:
    if len(plane.fleet.order) > 2:
        yield ClusterForgotten(random.choice(plane.fleet.order).name)


def _nodes(random: Random, plane: Plane) -> Iterator[NodesObserved]:
    """Of one bucket: a node drained, gone, or grown."""
    states = [s for s in plane.live.cluster_states() if s.book.nodes]
    if not states:
        return
    book = (state := random.choice(states)).book
    name = random.choice(sorted(book.nodes))
    bucket = min(b for b, nodes in book.buckets.items() if name in nodes)
    nodes = dict(book.buckets[bucket])
    match random.randint(0, 3):
        case 0:
            del nodes[name]
        case 1:
            bigger = {resource: 2 * n for resource, n in nodes[name].allocatable.items()}
            nodes[name] = msgspec.structs.replace(
                nodes[name], allocatable=bigger, unschedulable=False, taints=()
            )
        case _:
            nodes[name] = drained_node(nodes[name])
    yield NodesObserved(state.cluster, bucket, book.bucket_count, tuple(nodes.values()))


def _relocated(random: Random, plane: Plane) -> Iterator[RescheduleProposed]:
    clusters = [c.name for c in plane.fleet.order]
    for spec in _some(random, plane):
        if spec.replicas and clusters:
            names = random.sample(clusters, min(len(clusters), spec.replicas, random.randint(1, 2)))
            share = spec.replicas // len(names)
            counts = [share] * (len(names) - 1) + [spec.replicas - share * (len(names) - 1)]
            targets = tuple(TargetCluster(n, c) for n, c in zip(names, counts, strict=True))
            yield RescheduleProposed("fleet/0", spec.name, "test", targets)


def _several(random: Random, plane: Plane) -> Iterator[Value]:
    """Of several kinds, nothing said twice."""
    seen: set[str] = set()
    for kind in random.sample(CHANGES[:-1], 3):
        for data in kind(random, plane):
            key = accepted(data).key if isinstance(data, Fact) else f"move {data}"
            if key not in seen:
                seen.add(key)
                yield data


CHANGES: tuple[Callable[[Random, Plane], Iterator[Value]], ...] = (
    _scaled,
    _new,
    _withdrawn,
    _under_another_policy,
    _cluster_drained,
    _cluster_changed,
    _cluster_gone,
    _nodes,
    _relocated,
    _several,
)
