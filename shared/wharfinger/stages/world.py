"""The whole plane as a function of what it is told: every stage's pure half, in one deterministic order, with no broker between.

What is told is exogenous: clusters, nodes, bindings, policies, an operator's proposals. Everything else (capacity, assignments,
outcomes, the descheduler's proposals, ticks) follows from it here, as it does in a running plane, except that no time passes
between a cause and its effect. After each telling the plane is brought to rest: fleet streams, then cluster streams, each in
order of name; then the estimator, then the descheduler; and again, until nobody has anything to say.

Nodes that are asked for come only if somebody makes them: a world may have a provider of its own (`stages.provider`), which
makes what was claimed and takes away what may go. Without it claims stay claims until they are given up.

`plan` begins one from the present, a what-if from a moment of the past, tests from nothing. A world writes nothing anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from wharfinger.domain.value import Value
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.events.assignments import Assigned, AssignmentItem, AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated, QuotaRoom
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved, PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.fanout import Fanout, InternalMessage, message_id
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.plans import PlanRequested
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import (
    DeschedulingProposed,
    DisruptionProposed,
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.registry import type_of
from wharfinger.events.streams import CLUSTER, FLEET, cluster_stream, fleet_stream
from wharfinger.kernel.decider import Ask, Asking, Decider, Micros
from wharfinger.kernel.observer import Publication
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import empty_head, step, tick
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.cluster import standing as cluster_standing
from wharfinger.stages.cluster.state import ClusterState
from wharfinger.stages.descheduler import DeschedulerObserver
from wharfinger.stages.descheduler.disruption import Looking
from wharfinger.stages.estimator import EstimatorObserver
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet import standing as fleet_standing
from wharfinger.stages.fleet.fork import fork
from wharfinger.stages.fleet.quota_room import QuotasLeft, rooms_left
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.provider import Provider

SECOND: Micros = 1_000_000

TURNS_MAX = 10_000
"""A plane that has not come to rest after so many turns at one moment never will: that is a bug in a stage."""


NOBODY_ASKED = "extenders are not asked about what did not happen"


@dataclass(slots=True)
class Running:
    """A stream of the world. `inbox`: what it has not taken in yet, in order. `known`: ids it took in before it came here; told
    once more they are passed over, as a stage passes them over."""

    decider: Decider[Any]
    state: Any
    head: Head
    inbox: list[Event[Value]] = field(default_factory=list)
    known: Collection[UUID] = frozenset()


class World:
    """`shards`: how many fleet streams there are; `shard_of`: binding -> its shard. `fleet`, `cluster`: the deciders, whose
    profiles are the settings the world runs under. `recorded`: internal messages get their bytes, so that the rounds can be
    written into a ledger; without it they are cheaper and their hashes mean nothing. `repeat_after_s`: see the descheduler;
    None: nobody proposes anything; `looking`: how it looks at clusters as a whole. `namespace`: what the ids of messages are
    derived under, so that those of two worlds differ. `provides_after_s`: a claim becomes a node after so long, and a node that
    may go vanishes; None: nobody makes nodes here.
    """

    def __init__(
        self,
        *,
        shards: int = 1,
        shard_of: Callable[[str], int] = lambda _: 0,
        fleet: FleetDecider | None = None,
        cluster: ClusterDecider | None = None,
        recorded: bool = False,
        repeat_after_s: int | None = 60,
        looking: Looking | None = None,
        provides_after_s: int | None = None,
        namespace: str = "world",
        at: Micros = 0,
    ) -> None:
        self.at = at
        self.streams: dict[str, Running] = {}
        self._shard_of = shard_of
        self._cluster = cluster or ClusterDecider()
        self._recorded = recorded
        self._namespace = namespace
        self._messages = 0
        self._repeat_after_s = repeat_after_s
        self._looking = looking or Looking(repeat_after_s=repeat_after_s or 60)
        self._provides_after_s = provides_after_s
        self._provider = None if provides_after_s is None else Provider(provides_after_s * SECOND)
        self._policies: dict[str, Event[Value]] = {}
        self._told: set[UUID] = set()
        self._capacity = EstimatorObserver()
        self._estimator = self._capacity.initial()
        self._proposing = (
            None if repeat_after_s is None else DeschedulerObserver(shard_of, repeat_after_s, looking=self._looking)
        )
        self._descheduler = None if self._proposing is None else self._proposing.initial()
        for shard in range(shards):
            name, decider = fleet_stream(shard), fleet or FleetDecider()
            self.streams[name] = Running(decider, decider.initial(name), empty_head(name))

    # --- beginning somewhere

    def adopt(
        self, stream: str, decider: Decider[Any], state: Any, head: Head, known: Collection[UUID] = frozenset()
    ) -> None:
        """Let a stream begin where it stood. The state is the world's from now on. `settle_in` when all have been adopted."""
        self.streams[stream] = Running(decider, state, head, known=known)
        self.at = max(self.at, head.at)

    def hand_in(self, messages: Iterable[InternalMessage]) -> None:
        """Outcomes that an adopted fleet stream has not heard of yet. What it knows already changes nothing."""
        for message in messages:
            if isinstance(message, OutcomesDecided):
                self._deliver(self._event(message, message_id(message), message.stream, message.cluster))

    def settle_in(self, policies: Iterable[Event[Value]] = ()) -> list[RecordedRound]:
        """Bring the observers to where the adopted streams stand, hand over what one stream has decided and another not yet
        taken in, and let the plane come to rest."""
        for event in policies:
            self._observe(event)
        for running in self._fleets():
            self._show_fleet(running)
        for running in self._clusters():
            self._show_cluster(running)
        self._adopt_quotas()
        self._hush_known_counts()
        for running in self._fleets():
            self._hand_over(running)
        return list(self._rest())

    def fork(self) -> World:
        """Another world that goes on from here. What becomes of either is nothing to the other. Its observers begin anew from
        what the streams hold, as they do after a restart."""
        other = World(
            shards=0, shard_of=self._shard_of, cluster=self._cluster, repeat_after_s=self._repeat_after_s,
            looking=self._looking, provides_after_s=self._provides_after_s, namespace=self._namespace, at=self.at,
        )  # fmt: skip
        for name, running in self.streams.items():
            decider, state = running.decider, running.state
            own = fork(state) if isinstance(state, FleetState) else decider.load(name, decider.dump(state))
            other.adopt(name, decider, own, running.head)
        if self._provider is not None:
            other._provider = self._provider.fork()
        other.keep_hearing()
        other.settle_in(self._policies.values())
        return other

    def keep_hearing(self) -> None:
        """Suppose that every cluster that is heard of goes on being heard of: no lease ends while time passes. A cluster that is
        told anew has a lease again."""
        for state in self.fleet_states():
            for cluster in state.clusters.values():
                if cluster.silent_since is None:
                    state.leases.discard((cluster.name,))

    # --- telling

    def tell(self, events: Iterable[Event[Value]], at: Micros | None = None) -> list[RecordedRound]:
        """Let time pass until `at`, take in `events`, and come to rest. The rounds that were made on the way, in order.

        An event told before is not told again.
        """
        rounds = [] if at is None else self.wait(at)
        for event in events:
            if event.id not in self._told:
                self._told.add(event.id)
                self._deliver(event if self._provider is None else self._as_it_is(self._provider, event))
        rounds += self._rest()
        return rounds

    def wait(self, until: Micros) -> list[RecordedRound]:
        """Let time pass: whatever falls due on the way is done when it falls due."""
        rounds: list[RecordedRound] = []
        while (due := self.next_due()) is not None and due <= until:
            self.at = max(self.at, due)
            rounds += self._rest()
        self.at = max(self.at, until)
        return rounds

    def next_due(self) -> Micros | None:
        """When time alone will make something happen; None: never."""
        dues = [r.decider.next_due(r.state) for r in self.streams.values()]
        dues.append(self._capacity.next_due(self._estimator))
        if self._proposing is not None and self._descheduler is not None:
            dues.append(self._proposing.next_due(self._descheduler))
        if self._provider is not None:
            dues.append(self._provider.next_due())
        return min((due for due in dues if due is not None), default=None)

    # --- looking

    def fleet_states(self) -> Iterator[FleetState]:
        for running in self._fleets():
            yield running.state

    def cluster_states(self) -> Iterator[ClusterState]:
        for running in self._clusters():
            yield running.state

    def state_of_shard(self, binding: str) -> FleetState:
        state: FleetState = self.streams[fleet_stream(self._shard_of(binding))].state
        return state

    # --- coming to rest

    def _rest(self) -> Iterator[RecordedRound]:
        for _ in range(TURNS_MAX):
            busy = False
            for name in self._in_order():
                made_now = self._step(name)
                if made_now is not None:
                    busy = True
                    yield made_now
            for publication in self._capacity.publish(self._estimator, self.at):
                busy = True
                self._deliver(self._published(publication))
            if self._proposing is not None and self._descheduler is not None:
                for publication in self._proposing.publish(self._descheduler, self.at):
                    busy = True
                    self._deliver(self._published(publication))
            if self._provider is not None:
                for fact in self._provider.act(self.at, self._book):
                    busy = True
                    self._deliver(self._provided(fact))
            if not busy:
                return
        raise RuntimeError(f"the plane does not come to rest at {self.at}")

    def _step(self, name: str) -> RecordedRound | None:
        """One round of a stream, if it has something to take in or something is due."""
        running = self.streams[name]
        decider, state = running.decider, running.state
        inputs = [e for e in running.inbox if e.id not in running.known and decider.is_news(state, e)]
        running.inbox.clear()
        due = decider.next_due(state)
        if due is not None and due <= self.at:
            inputs.append(tick(name, due, running.head.round))
        if not inputs:
            return None
        round_ = step(decider, state, running.head, inputs, max(running.head.at, self.at), {})
        running.head = round_.head()
        if isinstance(decider, Asking):
            running.inbox += [self._unanswered(name, ask) for ask in decider.asks(state)]
        if self._provider is not None:
            for decision in round_.decisions:
                self._provider.decided(decision.data, self.at)
        fanout = Fanout(self._shard_of)
        messages = [m for d in round_.decisions for m in fanout.add(name, d.seq, str(d.id), d.data)]
        for message in (*messages, *fanout.rest()):
            self._deliver(self._event(message, message_id(message), name, message.cluster))
        return RecordedRound(round_, inputs)

    def _unanswered(self, name: str, ask: Ask) -> Event[Value]:
        """Nobody outside is asked: the extender that would have been counts as one that does not answer."""
        data = ExtenderAnswered(name, ask.id, "", NOBODY_ASKED)
        return made(data, id=derived_id("answer", name, ask.id), source=f"/wharfinger/{name}", subject=name)

    def _in_order(self) -> list[str]:
        """Fleet streams, then cluster streams, each in order of name: a fleet round's assignments are placed in the same turn."""
        return [
            *sorted(n for n in self.streams if n.startswith(FLEET)),
            *sorted(n for n in self.streams if n.startswith(CLUSTER)),
        ]

    def _fleets(self) -> Iterator[Running]:
        return (self.streams[name] for name in self._in_order() if name.startswith(FLEET))

    def _clusters(self) -> Iterator[Running]:
        return (self.streams[name] for name in self._in_order() if name.startswith(CLUSTER))

    # --- messages

    def _deliver(self, event: Event[Value]) -> None:
        for name in self._addressed(event.data):
            running = self.streams.get(name)
            if running is None and name.startswith(CLUSTER):  # a cluster's stream begins with its first event
                running = self.streams[name] = Running(self._cluster, self._cluster.initial(name), empty_head(name))
                running.inbox.extend(self._policies.values())  # told first what all were told before it was there
            if running is not None:
                running.inbox.append(event)
        self._observe(event)

    def _observe(self, event: Event[Value]) -> None:
        if isinstance(event.data, PolicyApplied):
            self._policies[event.data.policy.key] = event
        elif isinstance(event.data, PolicyRemoved):
            self._policies.pop(f"{event.data.kind}/{event.data.namespace}/{event.data.name}", None)
        if self._provider is not None and isinstance(event.data, PolicyApplied | PolicyRemoved):
            self._provider.policy_told(event.data)
        self._capacity.fold(self._estimator, event, self.at)
        if self._proposing is not None and self._descheduler is not None:
            self._proposing.fold(self._descheduler, event, self.at)

    def _addressed(self, data: Value) -> Sequence[str]:
        """The streams an event is for, as the topics' partitions and the services' routing have it."""
        match data:
            case BindingRequested(binding=binding):
                return (fleet_stream(self._shard_of(binding.name)),)
            case BindingWithdrawn(name=name):
                return (fleet_stream(self._shard_of(name)),)
            case ClusterObserved() | ClusterForgotten() | CapacityEstimated():
                return [name for name in self.streams if name.startswith(FLEET)]
            case PolicyApplied() | PolicyRemoved():
                return self._in_order()
            case (
                NodesObserved(cluster=cluster) | PodsObserved(cluster=cluster) | ObjectsObserved(cluster=cluster)
                | NodeLoadObserved(cluster=cluster) | HotValueObserved(cluster=cluster)
            ):  # fmt: skip
                return (cluster_stream(cluster),)
            case OutcomesDecided(shard=shard):
                return (fleet_stream(shard),)
            case AssignmentsDecided(cluster=cluster, stream=stream):
                return () if stream.startswith(CLUSTER) else (cluster_stream(cluster),)
            case (
                FailoverProposed() | EvictionProposed() | RescheduleProposed() | NodeRemovalProposed()
                | DisruptionProposed() | DeschedulingProposed() | PlanRequested()
            ):  # fmt: skip
                return (data.stream,)
            case _:
                return ()

    def _as_it_is(self, provider: Provider, event: Event[Value]) -> Event[Value]:
        data = provider.as_it_is(event.data)
        if data == event.data:
            return event
        return self._event(data, event.id, "provider", event.subject)

    def _provided(self, fact: Value) -> Event[Value]:
        self._messages += 1
        id = derived_id(self._namespace, "provided", self._messages)
        return self._event(fact, id, "provider", fact.cluster if isinstance(fact, NodesObserved | PodsObserved) else "")

    def _book(self, cluster: str) -> Occupancy:
        state: ClusterState = self.streams[cluster_stream(cluster)].state
        return state.book

    def _published(self, publication: Publication) -> Event[Value]:
        self._messages += 1
        id = publication.id or derived_id(self._namespace, publication.key, self._messages)
        return self._event(publication.data, id, "observer", publication.subject, publication.cause)

    def _event(self, data: Value, id: UUID, source: str, subject: str, cause: UUID | None = None) -> Event[Value]:
        causation = str(cause) if cause is not None else ""
        if self._recorded:
            return made(data, id=id, source=f"/wharfinger/{source}", subject=subject, causation=causation)
        return Event(id, type_of(data), f"/wharfinger/{source}", subject, data, b"", b"", causation)

    # --- what adopted streams have to show

    def _show(self, data: Value, subject: str) -> None:
        self._messages += 1
        self._observe(self._event(data, derived_id(self._namespace, "standing", self._messages), "standing", subject))

    def _show_fleet(self, running: Running) -> None:
        """A fleet stream's clusters and bindings, and what its clusters were told. Clusters are the same in every shard: the
        observers know them after the first."""
        state: FleetState = running.state
        for name, cluster in sorted(state.clusters.items()):
            if cluster.facts is not None:  # as it said them: taints by policy are everybody's own to see
                self._show(ClusterObserved(state.tainting.told[name]), name)
        for name, record in sorted(state.bindings.items()):
            if not record.withdrawn:
                self._show(BindingRequested(record.spec), name)
        items: dict[str, list[AssignmentItem]] = {}
        for cluster_name, item in fleet_standing.standing(state):
            items.setdefault(cluster_name, []).append(item)
        for cluster_name, silenced in fleet_standing.silenced(state, running.head.seq):
            items.setdefault(cluster_name, []).append(silenced)
        for cluster_name, told in items.items():
            self._show(
                AssignmentsDecided(cluster_name, running.head.stream, running.head.seq, tuple(told)), cluster_name
            )

    def _show_cluster(self, running: Running) -> None:
        state: ClusterState = running.state
        book, name = state.book, state.cluster
        for bucket, nodes in sorted(book.buckets.items()):
            self._show(NodesObserved(name, bucket, book.bucket_count, tuple(nodes.values())), name)
        for node, pods in sorted(book.pods.items()):
            self._show(PodsObserved(name, node, pods), name)
        for (kind, namespace), objects in sorted(state.objects.told.items()):
            self._show(ObjectsObserved(name, kind, namespace, objects), name)
        placed = tuple(cluster_standing.standing(state, running.head.seq))
        self._show(AssignmentsDecided(name, state.stream, running.head.seq, placed), name)

    def _adopt_quotas(self) -> None:
        """No stream keeps the quotas of clusters, only what was last counted to be left of them, less what each decided since."""
        known: dict[str, list[tuple[Sequence[QuotaRoom], QuotasLeft]]] = {}
        for running in self._fleets():
            state: FleetState = running.state
            for name, cluster in sorted(state.clusters.items()):
                if cluster.capacity is not None and cluster.capacity.quotas:
                    known.setdefault(name, []).append((cluster.capacity.quotas, cluster.quotas))
        for name, by_shard in known.items():
            self._estimator.adopt_quotas(name, rooms_left(by_shard))

    def _hush_known_counts(self) -> None:
        """The estimator would count every cluster anew and say so. What the fleet knows already, with nothing decided since
        that it still deducts or waits for, was said before: at rest nothing is to be said."""
        shared = [running.state for running in self._fleets()]
        for publication in self._capacity.publish(self._estimator, self.at):
            if not all(_knows(state, publication.data) for state in shared):
                self._deliver(self._published(publication))

    def _hand_over(self, running: Running) -> None:
        """What a fleet stream has told a cluster that the cluster has not taken in: it was on its way."""
        state: FleetState = running.state
        stream = running.head.stream
        late: dict[str, list[AssignmentItem]] = {}
        for cluster, item in fleet_standing.standing(state):
            if item.seq > self._seen(cluster, stream):
                late.setdefault(cluster, []).append(item)
        for cluster_running in self._clusters():
            cluster_state: ClusterState = cluster_running.state
            name = cluster_state.cluster
            for binding, held in sorted(cluster_state.book.held.items()):
                if held.desired and fleet_stream(self._shard_of(binding)) == stream:
                    record = state.bindings.get(binding)
                    if record is None or name not in record.targets:
                        late.setdefault(name, []).append(_let_go(running.head.seq, held.assignment, binding, held.uid))
        for cluster, items in late.items():
            data = AssignmentsDecided(cluster, stream, running.head.seq, tuple(items))
            self._deliver(self._event(data, derived_id(self._namespace, "late", stream, cluster), stream, cluster))

    def _seen(self, cluster: str, stream: str) -> int:
        running = self.streams.get(cluster_stream(cluster))
        return 0 if running is None else int(running.state.seen.get(stream, 0))


def _knows(state: FleetState, counted: Value) -> bool:
    """Whether the fleet stream has this count already, but for how far it accounts."""
    assert isinstance(counted, CapacityEstimated), "the estimator says nothing else"
    cluster = state.clusters.get(counted.cluster)
    if cluster is None or cluster.capacity is None or cluster.pending or cluster.closed:
        return False
    known = cluster.capacity
    return msgspec.structs.replace(counted, accounted_through=known.accounted_through) == known


def _let_go(seq: int, assignment: str, binding: str, uid: str) -> Assigned:
    return Assigned(seq, assignment, binding, uid, 0)
