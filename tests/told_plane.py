"""A plane without a broker and without waiting, on a real ledger: what it is told is accepted into
the intake, a `World` makes the rounds that follow, and they are committed. Time is an argument, so
that a history of hours is written in a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from wharfinger.answers.submit import SOURCE, submission
from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.placement import Placement
from wharfinger.domain.policy import Policy, Propagation, ResourceSelector
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.accepted import Fact, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import NodesObserved, into_buckets
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import decode, made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.streams import INTAKE, PROPOSALS
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.recover import RecordedRound
from wharfinger.runtime.ledger import Ledger, Submission
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.world import World
from wharfinger_cli.facts import Told

SECOND = 1_000_000
START = 1_750_000_000 * SECOND  # 2025-06-15T15:06:40Z
BUCKETS = 2
RELAY_S = 0.01
DEPLOYMENT = "apps/v1"


def a_cluster(
    name: str, lease_s: int | None = None, *, deleting: bool = False, region: str = ""
) -> ClusterObserved:
    return ClusterObserved(Cluster(name, lease_s=lease_s, deleting=deleting, region=region))


def nodes(cluster: str, *names: str, cpu: int = 4000) -> list[NodesObserved]:
    return into_buckets(
        cluster, [Node(name, {"cpu": cpu, "memory": 2**34}) for name in names], BUCKETS
    )


def a_policy(name: str, placement: Placement, namespace: str = "shop") -> PolicyApplied:
    selects = (ResourceSelector(DEPLOYMENT, "Deployment", namespace),)
    return PolicyApplied(
        Policy("PropagationPolicy", name, namespace, Propagation(selects, placement))
    )


def a_binding(name: str, replicas: int, policy: PolicyApplied, cpu: int = 1000) -> BindingRequested:
    """Under the policy, as applying the workload would request it: `web` is
    `shop/web-deployment`."""
    assert policy.policy.propagation is not None
    namespace = policy.policy.namespace
    return BindingRequested(
        Binding(
            f"{namespace}/{name}-deployment",
            f"uid-of-{name}",
            ObjectRef(DEPLOYMENT, "Deployment", name, namespace),
            replicas,
            Requirements({"cpu": cpu}),
            policy.policy.propagation.placement,
            policy=policy.policy.key,
        )
    )


@dataclass
class ToldPlane:
    """`ledger` must have been opened with `clock` of this plane, which `opened` does."""

    ledger: Ledger
    world: World
    time: _Time
    told: dict[tuple[str, str], Told] = field(default_factory=dict)
    proposed: int = 0
    relayed: int = 0

    @classmethod
    async def opened(cls, database_url: str, fleet: FleetDecider | None = None) -> ToldPlane:
        time = _Time(START)
        ledger = await Ledger.open(database_url, "tests", clock=lambda: time.at)
        return cls(ledger, World(recorded=True, at=START, fleet=fleet), time)

    async def tell(self, *facts: Fact, after_s: float = 1.0) -> list[RecordedRound]:
        """Let time pass, accept the facts, and let the plane come to rest."""
        rounds = await self.wait(after_s)
        return rounds + await self.take_in(await self.accept(*facts))

    async def accept(self, *facts: Fact) -> list[Event[Value]]:
        """Nothing is decided about them yet."""
        submissions = [self._submission(fact) for fact in facts]
        await self.ledger.accept(submissions)
        return [one.event for one in submissions]

    async def take_in(self, events: Sequence[Event[Value]]) -> list[RecordedRound]:
        return await self._written(self.world.tell(events, self.time.at))

    async def propose(self, stream: str, data: Value) -> Event[Value]:
        """An operator's proposal, by the intake as everything else."""
        self.proposed += 1
        event = made(
            data,
            id=derived_id("proposed", self.proposed),
            source=SOURCE,
            subject=stream,
            key=stream,
        )
        await self.ledger.accept([Submission(event, PROPOSALS.name, stream, stream)])
        await self._written(self.world.tell([event], self.time.at))
        return event

    async def hear(self, data: Value) -> list[RecordedRound]:
        """What another service of the plane tells, say a measurement."""
        self.proposed += 1
        event = made(data, id=derived_id("heard", self.proposed), source=SOURCE, subject="heard")
        return await self._written(self.world.tell([event], self.time.at))

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Inside, the plane takes in what others hand to the intake, as a running one would."""
        over = asyncio.Event()
        relaying = asyncio.create_task(self._relay(over))
        try:
            yield
        finally:
            over.set()  # not cancelled: a round that was made must be written
            await relaying

    async def _relay(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self.relay()
            await asyncio.sleep(RELAY_S)
        await self.relay()

    async def relay(self) -> None:
        """Take in what was accepted and not told by this plane."""
        while True:
            ends = {
                head.stream: head.seq for head in await self.ledger.heads() if head.stream != INTAKE
            }
            rows = await self.ledger.rows_after({**ends, INTAKE: self.relayed}, 1000)
            if not rows:
                return
            self.relayed = rows[-1].seq
            events = [decode(row.accepted.body) for row in rows if row.accepted is not None]
            await self._written(self.world.tell(events, self.time.at))
            for event in events:
                if isinstance(event.data, Fact):
                    keyed = accepted(event.data)
                    self.told[keyed.topic.name, keyed.key] = Told(
                        event.id, event.data, self.time.at
                    )

    async def wait(self, seconds: float) -> list[RecordedRound]:
        self.time.at += int(seconds * SECOND)
        return await self._written(self.world.wait(self.time.at))

    def _submission(self, fact: Fact) -> Submission:
        keyed = accepted(fact)
        place = (keyed.topic.name, keyed.key)
        found = submission(keyed, self.told.get(place))
        self.told[place] = Told(found.event.id, fact, self.time.at)
        return found

    async def _written(self, rounds: Iterable[RecordedRound]) -> list[RecordedRound]:
        every = list(rounds)
        await self.ledger.ensure_streams({recorded.round.stream for recorded in every})
        for recorded in every:
            result = await self.ledger.commit([recorded.round], {e.id: e for e in recorded.events})
            assert not result.fenced
        return every


@dataclass
class _Time:
    at: Micros
