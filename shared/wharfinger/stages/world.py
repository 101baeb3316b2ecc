"""A deterministic in-memory simulation of the whole plane: the pure part of every stage, without a
broker.

Inputs are exogenous facts: clusters, nodes, bindings, policies, an operator's proposals. Everything
else (capacity, assignments, outcomes, proposals, ticks) follows from them as in a running plane,
except that no time passes between a cause and its effect. After each input the stages run until
none has anything to publish. One turn runs the fleet streams, then the cluster streams, each in
order of name; then the estimator, the descheduler and the provider.

Claimed nodes appear only if the world has a simulated provider (`stages.provider`), which creates
claimed nodes and removes released ones. Without it, claims stay open until they time out. Calls to
scheduler extenders fail.

A plan starts a world from the present state, a what-if from a past one, a test from an empty one. A
world performs no IO.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.events.assignments import Assigned, AssignmentItem, AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated, QuotaRoom
from wharfinger.events.cluster_state import (
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    WaitingPodsObserved,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved, FleetHeard
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.fanout import Fanout, InternalMessage, message_id
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.plans import PlanRequested
from wharfinger.events.policies import (
    PolicyApplied,
    PolicyRemoved,
    concerns_every_shard,
    concerns_nodes,
)
from wharfinger.events.promises import plan_answer_id, room_id
from wharfinger.events.proposals import (
    DeschedulingProposed,
    DisruptionProposed,
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.registry import type_of
from wharfinger.events.room import PlanAnswered, RoomTaken
from wharfinger.events.streams import CLUSTER, FLEET, cluster_stream, fleet_stream
from wharfinger.events.versions import Versions
from wharfinger.kernel.decider import Decider, Micros
from wharfinger.kernel.observer import Publication
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import empty_head, fresh_inputs, step, tick
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.cluster import current_assignments as cluster_items
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.descheduler import DeschedulerObserver
from wharfinger.stages.descheduler.disruption import Looking
from wharfinger.stages.estimator import EstimatorObserver
from wharfinger.stages.extender_calls import CallsExtenders, ExtenderCall
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet import current_assignments as fleet_items
from wharfinger.stages.fleet.fork import fork
from wharfinger.stages.fleet.promised import plan_answers_in, promised_in
from wharfinger.stages.fleet.quota_capacity import QuotasLeft, rooms_left
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.provider import Deed, SimulatedProvider

TURNS_MAX = 10_000
"""Maximum number of turns at one moment. A plane that still publishes then has a bug in a stage."""


NOBODY_ASKED = "extenders are not asked about what did not happen"


@dataclass(slots=True)
class WorldStream:
    """Holds one stream of the world. `inbox`: events that it has not folded yet, in order. `known`:
    ids of events that it folded before it was adopted; these are skipped when they are delivered
    again."""

    decider: Decider[Any]
    state: Any
    head: Head
    inbox: list[Event[Value]] = field(default_factory=list)
    known: Collection[UUID] = frozenset()


class World:
    """A simulated plane: its streams, the estimator and descheduler, and an optional node provider.

    `shards`: number of fleet streams; `shard_of`: binding -> its shard. `fleet`, `cluster`: the
    deciders, whose profiles are the settings. `recorded`: internal messages get their encoded
    bytes, so that the rounds can be written into a ledger; without it the world is faster and the
    hashes of its rounds are meaningless. `repeat_after_s`: delay in seconds after which the
    descheduler repeats a proposal; None: no proposals. `looking`: settings of its consolidation
    passes. `namespace`: message ids are derived from it, so that those of two worlds differ.
    `provides_after_s`: delay of the simulated provider in seconds; None: no provider. `at`: the
    start time.
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
        self.streams: dict[str, WorldStream] = {}
        self._shard_of = shard_of
        self._cluster = cluster or ClusterDecider()
        self._recorded = recorded
        self._namespace = namespace
        self._messages = 0
        self._repeat_after_s = repeat_after_s
        self._looking = looking or Looking(repeat_after_s=repeat_after_s or 60)
        self._provides_after_s = provides_after_s
        self._provider = (
            None if provides_after_s is None else SimulatedProvider(provides_after_s * SECOND)
        )
        self._policies: dict[str, Event[Value]] = {}
        self._told: set[UUID] = set()
        self._observed = Versions()
        self._capacity = EstimatorObserver()
        self._estimator = self._capacity.initial()
        self._proposing = (
            None
            if repeat_after_s is None
            else DeschedulerObserver(shard_of, repeat_after_s, looking=self._looking)
        )
        self._descheduler = None if self._proposing is None else self._proposing.initial()
        for shard in range(shards):
            name, decider = fleet_stream(shard), fleet or FleetDecider(ranges=shards)
            self.streams[name] = WorldStream(decider, decider.initial(name), empty_head(name))

    # --- beginning somewhere

    def adopt(
        self,
        stream: str,
        decider: Decider[Any],
        state: Any,
        head: Head,
        known: Collection[UUID] = frozenset(),
    ) -> None:
        """Adds a stream to the simulated world that starts from an existing state and head. The
        world uses `state` itself and changes it; it makes no copy. `known`: ids of events that the
        state already includes; they are skipped when they are delivered again.

        After all streams have been added, call `settle_in`.
        """
        self.streams[stream] = WorldStream(decider, state, head, known=known)
        self.at = max(self.at, head.at)

    def redecide(self, stream: str, decider: Decider[Any]) -> None:
        """Replaces the decider of a stream, as after a restart with other settings. If the profiles
        differ, the state is saved and loaded with the new decider. A cluster decider is also used
        for clusters that are added later."""
        running = self.streams.get(stream)
        if running is not None and running.decider.profile != decider.profile:
            running.state = decider.load(stream, running.decider.dump(running.state))
            running.decider = decider
        if isinstance(decider, ClusterDecider):
            self._cluster = decider

    def hand_in(self, messages: Iterable[InternalMessage]) -> None:
        """Delivers the outcomes that an adopted fleet stream has not folded yet. Outcomes that it
        has folded change nothing. Messages of other types are ignored."""
        for message in messages:
            if isinstance(message, OutcomesDecided):
                self._deliver(
                    self._event(message, message_id(message), message.stream, message.cluster)
                )

    def settle_in(self, policies: Iterable[Event[Value]] = ()) -> list[RecordedRound]:
        """Brings the streams that were added with `adopt` and the observers (estimator,
        descheduler) to a common state. Returns the rounds that this makes. `policies`: the policies
        in force; they are given only to the observers.

        - First, the observers get the state of these streams as events.
        - Then each cluster stream gets the decisions of the fleet streams that it has not folded
          yet.
        - Then all stages run until none has anything to publish.
        """
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
            self._hand_over_promise(running)
        return list(self._rest())

    def fork(self) -> World:
        """Returns an independent copy of the simulated world at this moment.

        The streams and the simulated node provider are copied. The observers (estimator,
        descheduler) are not copied; they get the state of the copied streams, as after a restart.
        In the copy, no cluster becomes silent only because time passes: the lease timers of the
        clusters that are not silent are stopped.
        """
        other = World(
            shards=0,
            shard_of=self._shard_of,
            cluster=self._cluster,
            repeat_after_s=self._repeat_after_s,
            looking=self._looking,
            provides_after_s=self._provides_after_s,
            namespace=self._namespace,
            at=self.at,
        )
        for name, running in self.streams.items():
            decider, state = running.decider, running.state
            own = (
                fork(state)
                if isinstance(state, FleetState)
                else decider.load(name, decider.dump(state))
            )
            other.adopt(name, decider, own, running.head)
        if self._provider is not None:
            other._provider = self._provider.fork()
        other.keep_hearing()
        other.settle_in(self._policies.values())
        return other

    def keep_hearing(self) -> None:
        """Stops the lease timer of every cluster that is not silent, in the fleet streams and in
        the descheduler, so that no cluster becomes silent or stale only because time passes. A new
        observation of a cluster starts its timer again."""
        for state in self.fleet_states():
            for cluster in state.clusters.values():
                if cluster.silent_since is None:
                    state.cluster_index.leases.discard((cluster.name,))
        if self._descheduler is not None:
            for known in self._descheduler.clusters.values():
                if not known.silenced:
                    known.lease_s = None

    def provide(self, deeds: Iterable[tuple[Micros, Deed]]) -> None:
        """Gives the simulated provider what was decided before the world began and is not done yet:
        claims without a node, nodes to be deleted, nodes to be drained, each with the time of its
        decision in microseconds. Without a provider nothing happens."""
        if self._provider is not None:
            for at, deed in deeds:
                self._provider.follows(deed, at)

    # --- delivering events

    def tell(self, events: Iterable[Event[Value]], at: Micros | None = None) -> list[RecordedRound]:
        """Advances the time of the simulated world to `at`, delivers `events`, and runs all stages
        until none has anything to publish. Returns the rounds made, in order. If `at` is None, the
        time stays. An event that was delivered before is skipped."""
        rounds = [] if at is None else self.wait(at)
        for event in events:
            if event.id not in self._told:
                self._told.add(event.id)
                self._deliver(
                    event if self._provider is None else self._as_it_is(self._provider, event)
                )
        rounds += self._rest()
        return rounds

    def wait(self, until: Micros) -> list[RecordedRound]:
        """Advances the time to `until`. Each stage acts at the time at which its work falls due.
        Returns the rounds made."""
        rounds: list[RecordedRound] = []
        while (due := self.next_due()) is not None and due <= until:
            self.at = max(self.at, due)
            rounds += self._rest()
        self.at = max(self.at, until)
        return rounds

    def next_due(self) -> Micros | None:
        """Returns the earliest time at which a stream, an observer or the provider has something to
        do without new input; None if there is no such time."""
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

    def cluster_states(self) -> Iterator[ClusterStageState]:
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
        """Runs one round of the stream `name`, and delivers the messages that follow from its
        decisions. Returns the round with its inputs. None: the stream has no inputs and nothing is
        due.

        Open calls to scheduler extenders are answered with a failure, because a simulation calls no
        external service. The simulated node provider gets the decisions of the round. If there are
        several fleet streams, the other fleet streams receive which capacity the decisions use.
        """
        running = self.streams[name]
        decider, state = running.decider, running.state
        inputs = fresh_inputs(decider, state, running.inbox, running.known)
        running.inbox.clear()
        due = decider.next_due(state)
        if due is not None and due <= self.at:
            inputs.append(tick(name, due, running.head.round))
        if not inputs:
            return None
        round_ = step(decider, state, running.head, inputs, max(running.head.at, self.at), {})
        running.head = round_.head()
        if isinstance(decider, CallsExtenders):
            running.inbox += [self._unanswered(name, ask) for ask in decider.asks(state)]
        if self._provider is not None:
            for decision in round_.decisions:
                self._provider.decided(decision.data, self.at)
        fanout = Fanout(self._shard_of)
        messages = [m for d in round_.decisions for m in fanout.add(name, d.seq, str(d.id), d.data)]
        for message in (*messages, *fanout.rest()):
            self._deliver(self._event(message, message_id(message), name, message.cluster))
        if self._several:
            for one in promised_in(round_):
                self._deliver(self._event(one, room_id(one), name, name))
            for answer in plan_answers_in(round_):
                self._deliver(self._event(answer, plan_answer_id(answer), name, answer.plan))
        return RecordedRound(round_, inputs)

    def _unanswered(self, name: str, ask: ExtenderCall) -> Event[Value]:
        """Returns the answer to an extender call in a simulation: a failure, because no external
        service is called."""
        data = ExtenderAnswered(name, ask.id, "", NOBODY_ASKED)
        return made(
            data, id=derived_id("answer", name, ask.id), source=f"/wharfinger/{name}", subject=name
        )

    def _in_order(self) -> list[str]:
        """Returns the fleet streams, then the cluster streams, each in order of name. So the
        assignments of a fleet round are placed in the same turn."""
        return [
            *sorted(n for n in self.streams if n.startswith(FLEET)),
            *sorted(n for n in self.streams if n.startswith(CLUSTER)),
        ]

    @property
    def _several(self) -> bool:
        """Returns whether there are several fleet streams. They inform each other of the room that
        they promise."""
        return fleet_stream(1) in self.streams

    def _fleets(self) -> Iterator[WorldStream]:
        return (self.streams[name] for name in self._in_order() if name.startswith(FLEET))

    def _clusters(self) -> Iterator[WorldStream]:
        return (self.streams[name] for name in self._in_order() if name.startswith(CLUSTER))

    # --- messages

    def _deliver(self, event: Event[Value]) -> None:
        for name in self._addressed(event.data):
            running = self.streams.get(name)
            if running is None and name.startswith(CLUSTER):
                # a cluster's stream begins with its first event
                running = self.streams[name] = WorldStream(
                    self._cluster, self._cluster.initial(name), empty_head(name)
                )
                # First the policies that were applied before the stream was there.
                running.inbox.extend(
                    policy
                    for policy in self._policies.values()
                    if concerns_nodes(_policy_of(policy))
                )
            if running is not None:
                running.inbox.append(event)
        self._observe(event)

    def _observe(self, event: Event[Value]) -> None:
        if not self._observed.admits(event, self.at):
            return
        if isinstance(event.data, PolicyApplied):
            self._policies[event.data.policy.key] = event
        elif isinstance(event.data, PolicyRemoved):
            self._policies.pop(f"{event.data.kind}/{event.data.namespace}/{event.data.name}", None)
        if self._provider is not None and isinstance(event.data, PolicyApplied | PolicyRemoved):
            self._provider.take_policy(event.data)
        self._capacity.fold(self._estimator, event, self.at)
        if self._proposing is not None and self._descheduler is not None:
            self._proposing.fold(self._descheduler, event, self.at)

    def _addressed(self, data: Value) -> Sequence[str]:
        """Returns the names of the streams that receive an event with this data. Empty: no stream
        receives it. The running system routes the same way, by topic partitions and services.

        - Binding, requested or withdrawn: the fleet stream of its shard. Outcomes of a cluster: the
          fleet stream of the shard that the message names.
        - Facts about nodes, pods and objects of a cluster: the stream of that cluster. Assignments
          of a fleet stream: also the stream of the cluster.
        - Facts about a cluster as a whole, and capacity: all fleet streams.
        - Capacity that the decisions of one fleet stream use: the other fleet streams.
        - Policies: the fleet streams and cluster streams that use the policy.
        - Proposals and plan requests: the stream that they name.
        """
        match data:
            case BindingRequested(binding=binding):
                return (fleet_stream(self._shard_of(binding.name)),)
            case BindingWithdrawn(name=name):
                return (fleet_stream(self._shard_of(name)),)
            case ClusterObserved() | ClusterForgotten() | FleetHeard() | CapacityEstimated():
                return [name for name in self.streams if name.startswith(FLEET)]
            case PolicyApplied() | PolicyRemoved() as policy:
                everywhere, nodes = concerns_every_shard(policy), concerns_nodes(policy)
                shards = [
                    n
                    for n in self._in_order()
                    if n.startswith(FLEET) and (everywhere or n == fleet_stream(0))
                ]
                return [*shards, *(n for n in self._in_order() if n.startswith(CLUSTER) and nodes)]
            case (
                NodesObserved(cluster=cluster)
                | NodeImagesObserved(cluster=cluster)
                | PodsObserved(cluster=cluster)
                | WaitingPodsObserved(cluster=cluster)
                | ObjectsObserved(cluster=cluster)
                | NodeLoadObserved(cluster=cluster)
                | HotValueObserved(cluster=cluster)
            ):
                return (cluster_stream(cluster),)
            case OutcomesDecided(shard=shard):
                return (fleet_stream(shard),)
            case RoomTaken(stream=stream):
                return [n for n in self.streams if n.startswith(FLEET) and n != stream]
            case PlanAnswered(tell=tell):
                return tell
            case AssignmentsDecided(cluster=cluster, stream=stream):
                return () if stream.startswith(CLUSTER) else (cluster_stream(cluster),)
            case (
                FailoverProposed()
                | EvictionProposed()
                | RescheduleProposed()
                | NodeRemovalProposed()
                | DisruptionProposed()
                | DeschedulingProposed()
                | PlanRequested()
            ):
                return (data.stream,)
            case _:
                return ()

    def _as_it_is(self, provider: SimulatedProvider, event: Event[Value]) -> Event[Value]:
        data = provider.as_it_is(event.data)
        if data == event.data:
            return event
        return self._event(data, event.id, "provider", event.subject)

    def _provided(self, fact: Value) -> Event[Value]:
        self._messages += 1
        id = derived_id(self._namespace, "provided", self._messages)
        return self._event(
            fact,
            id,
            "provider",
            fact.cluster if isinstance(fact, NodesObserved | PodsObserved) else "",
        )

    def _book(self, cluster: str) -> Occupancy:
        state: ClusterStageState = self.streams[cluster_stream(cluster)].state
        return state.book

    def _published(self, publication: Publication) -> Event[Value]:
        self._messages += 1
        id = publication.id or derived_id(self._namespace, publication.key, self._messages)
        return self._event(publication.data, id, "observer", publication.subject, publication.cause)

    def _event(
        self, data: Value, id: UUID, source: str, subject: str, cause: UUID | None = None
    ) -> Event[Value]:
        causation = str(cause) if cause is not None else ""
        if self._recorded:
            return made(
                data, id=id, source=f"/wharfinger/{source}", subject=subject, causation=causation
            )
        return Event(id, type_of(data), f"/wharfinger/{source}", subject, data, b"", b"", causation)

    # --- what adopted streams have to show

    def _show(self, data: Value, subject: str) -> None:
        self._messages += 1
        self._observe(
            self._event(
                data, derived_id(self._namespace, "standing", self._messages), "standing", subject
            )
        )

    def _show_fleet(self, running: WorldStream) -> None:
        """Passes the state of a fleet stream to the observers (estimator, descheduler) as events:
        its clusters, bindings, present assignments and silent clusters. Withdrawn bindings are left
        out. A cluster is shown with the taints that it reported, without taints that a policy adds.
        """
        state: FleetState = running.state
        for name, cluster in sorted(state.clusters.items()):
            if cluster.facts is not None:
                # as it said them: taints by policy are everybody's own to see
                self._show(ClusterObserved(state.tainting.told[name]), name)
        for name, record in sorted(state.bindings.items()):
            if not record.withdrawn:
                self._show(BindingRequested(record.spec), name)
        items: dict[str, list[AssignmentItem]] = {}
        for cluster_name, item in fleet_items.current_items(state):
            items.setdefault(cluster_name, []).append(item)
        for cluster_name, silenced in fleet_items.silenced(state, running.head.seq):
            items.setdefault(cluster_name, []).append(silenced)
        for cluster_name, told in items.items():
            self._show(
                AssignmentsDecided(
                    cluster_name, running.head.stream, running.head.seq, tuple(told)
                ),
                cluster_name,
            )

    def _show_cluster(self, running: WorldStream) -> None:
        state: ClusterStageState = running.state
        book, name = state.book, state.cluster
        for bucket, nodes in sorted(book.buckets.items()):
            self._show(NodesObserved(name, bucket, book.bucket_count, tuple(nodes.values())), name)
        for node, pods in sorted(book.pods.items()):
            self._show(PodsObserved(name, node, pods), name)
        for waiting in book.waiting.facts():
            self._show(waiting, name)
        for (kind, namespace), objects in sorted(state.objects.told.items()):
            self._show(ObjectsObserved(name, kind, namespace, objects), name)
        placed = tuple(cluster_items.current_items(state, running.head.seq))
        self._show(AssignmentsDecided(name, state.stream, running.head.seq, placed), name)
        if self._descheduler is not None:
            self._descheduler.cluster(name).pools.adopt_times(state.pools)

    def _adopt_quotas(self) -> None:
        """Sets the remaining amounts of the clusters' quotas in the estimator. They are computed
        from the fleet streams, which do not keep the quotas themselves: the last estimate minus
        what each stream decided since."""
        known: dict[str, list[tuple[Sequence[QuotaRoom], QuotasLeft]]] = {}
        for running in self._fleets():
            state: FleetState = running.state
            for name, cluster in sorted(state.clusters.items()):
                if cluster.capacity is not None and cluster.capacity.quotas:
                    known.setdefault(name, []).append((cluster.capacity.quotas, cluster.quotas))
        for name, by_shard in known.items():
            self._estimator.adopt_quotas(name, rooms_left(by_shard))

    def _hush_known_counts(self) -> None:
        """Runs the estimator once and drops the estimates that every fleet stream already has, so
        that a world at rest starts without new events. Other estimates are delivered."""
        shared = [running.state for running in self._fleets()]
        for publication in self._capacity.publish(self._estimator, self.at):
            if not all(_knows(state, publication.data) for state in shared):
                self._deliver(self._published(publication))

    def _hand_over(self, running: WorldStream) -> None:
        """Delivers to each cluster stream the assignments of one fleet stream that the cluster
        stream has not folded yet. These are the assignments with a seq after the last one that the
        cluster stream has read.

        In addition, if a cluster still has replicas of a binding and the fleet stream no longer
        assigns the binding there, the cluster gets an assignment of 0 replicas.
        """
        state: FleetState = running.state
        stream = running.head.stream
        late: dict[str, list[AssignmentItem]] = {}
        for cluster, item in fleet_items.current_items(state):
            if item.seq > self._seen(cluster, stream):
                late.setdefault(cluster, []).append(item)
        for cluster_running in self._clusters():
            cluster_state: ClusterStageState = cluster_running.state
            name = cluster_state.cluster
            for binding, held in sorted(cluster_state.book.held.items()):
                if held.desired and fleet_stream(self._shard_of(binding)) == stream:
                    record = state.bindings.get(binding)
                    if record is None or name not in record.targets:
                        late.setdefault(name, []).append(
                            _let_go(running.head.seq, held.assignment, binding, held.uid)
                        )
        for cluster, items in late.items():
            data = AssignmentsDecided(cluster, stream, running.head.seq, tuple(items))
            self._deliver(
                self._event(
                    data, derived_id(self._namespace, "late", stream, cluster), stream, cluster
                )
            )

    def _hand_over_promise(self, running: WorldStream) -> None:
        """Delivers what is under way about a plan of several shards that an adopted fleet stream
        has promised: the decision of the plan's coordinator, if there is one, else the promise to
        the coordinator."""
        state: FleetState = running.state
        id = state.joint.promised
        if id is None:
            return
        request, stream, seq = state.proposals.plans[id], running.head.stream, running.head.seq
        leading = self.streams.get(request.coordinator)
        decided = None if leading is None else leading.state.joint.settled.get(request.plan)
        answer = (
            PlanAnswered(stream, seq, request.plan, "promised", (request.coordinator,))
            if decided is None
            else PlanAnswered(request.coordinator, seq, request.plan, decided, (stream,))
        )
        late = derived_id(self._namespace, "late", "plan", stream, request.plan)
        self._deliver(self._event(answer, late, answer.stream, request.plan))

    def _seen(self, cluster: str, stream: str) -> int:
        running = self.streams.get(cluster_stream(cluster))
        return 0 if running is None else int(running.state.seen.get(stream, 0))


def foreign_pods(told: PodsObserved | WaitingPodsObserved) -> PodsObserved | WaitingPodsObserved:
    """The observed pods without those of bindings. In a simulation pods of bindings follow from
    decisions, and no kubelet reports that they have left a node."""
    if not any(pod.binding for pod in told.pods):
        return told
    if isinstance(told, PodsObserved):
        foreign = tuple([pod for pod in told.pods if not pod.binding])
        return msgspec.structs.replace(told, pods=foreign)
    waiting = tuple([pod for pod in told.pods if not pod.binding])
    return msgspec.structs.replace(told, pods=waiting)


def _policy_of(event: Event[Value]) -> PolicyApplied:
    assert isinstance(event.data, PolicyApplied), "only what was applied is kept"
    return event.data


def _knows(state: FleetState, counted: Value) -> bool:
    """Returns whether the fleet stream's last estimate of the cluster equals `counted`, apart from
    `accounted_through`. False if the cluster is closed or has pending or promised replicas."""
    assert isinstance(counted, CapacityEstimated), "the estimator says nothing else"
    cluster = state.clusters.get(counted.cluster)
    if cluster is None or cluster.capacity is None or cluster.pending or cluster.promised:
        return False
    if cluster.closed:
        return False
    known = cluster.capacity
    return msgspec.structs.replace(counted, accounted_through=known.accounted_through) == known


def _let_go(seq: int, assignment: str, binding: str, uid: str) -> Assigned:
    return Assigned(seq, assignment, binding, uid, 0)
