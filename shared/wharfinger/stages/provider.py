"""A simulated node provider for what-if and tests: claims become nodes, released nodes are deleted.

A what-if of consolidation is only meaningful if requested nodes come. This provider delivers what
the catalogue offers (`engine.provisioning.simulated_nodes`), always, after a fixed delay; pods of
others are drained as planned once the replacements exist. Recorded node facts of the original
history are adjusted to it: created nodes stay, removed ones stay removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import assert_never

import msgspec

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value, stable_hash
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.provisioning.simulated_nodes import by_name, delivered
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.decisions import (
    BindingEnd,
    DisruptionCommand,
    DisruptionResult,
    Effect,
    HeartbeatEnd,
    NodeClaim,
    NodeClaimResult,
    NodeRemoval,
    PlanEnd,
    ProposalEnd,
    ReplicaChange,
    SelectionEnd,
    SelectionPart,
    TimeCorrection,
    effect_of,
)
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.kernel.decider import Micros
from wharfinger.stages.pools import PoolPolicies

Deed = NodeClaim | NodeRemoval | DisruptionCommand
"""The effects that the provider carries out: create a node, delete a node, drain nodes."""


@dataclass(slots=True)
class SimulatedProvider:
    """Simulates a node provider. It creates claimed nodes, deletes nodes whose removal was decided,
    and drains other pods. `after_us`: delay of a creation or deletion in microseconds; draining
    takes twice as long, so that the replacements exist. `made`: cluster -> node -> its facts.
    `gone`: cluster -> removed nodes. `rehomed`: cluster -> uid -> drained pod on its new node."""

    after_us: Micros
    policies: PoolPolicies = field(default_factory=PoolPolicies)
    made: dict[str, dict[str, Node]] = field(default_factory=dict)
    gone: dict[str, set[str]] = field(default_factory=dict)
    rehomed: dict[str, dict[str, Pod]] = field(default_factory=dict)
    _due: list[tuple[Micros, int, Deed]] = field(default_factory=list)
    _asked: int = 0
    _cancelled: set[tuple[str, str]] = field(default_factory=set)

    def fork(self) -> SimulatedProvider:
        """Returns an independent copy without the policies, which have to be given to it again."""
        other = SimulatedProvider(self.after_us)
        other.made = {cluster: dict(nodes) for cluster, nodes in self.made.items()}
        other.gone = {cluster: set(nodes) for cluster, nodes in self.gone.items()}
        other.rehomed = {cluster: dict(pods) for cluster, pods in self.rehomed.items()}
        other._due, other._asked, other._cancelled = (
            list(self._due),
            self._asked,
            set(self._cancelled),
        )
        return other

    # --- what it hears

    def take_policy(self, told: PolicyApplied | PolicyRemoved) -> None:
        policy = (
            told.policy
            if isinstance(told, PolicyApplied)
            else Policy(told.kind, told.name, told.namespace)
        )
        self.policies.applied(policy.key, policy)

    def decided(self, decision: Value, at: Micros) -> None:
        self.follows(effect_of(decision), at)

    def follows(self, effect: Effect | None, at: Micros) -> None:
        """Takes up what follows from a decision at `at`, in microseconds."""
        match effect:
            case NodeClaim() | NodeRemoval() as deed:
                self._remember(at + self.after_us, deed)
            case DisruptionCommand(moves=moves) as command:
                if any(move.pod for move in moves):
                    self._remember(at + 2 * self.after_us, command)
            case NodeClaimResult(cluster=cluster, claim=claim, outcome=outcome):
                if outcome != "registered":
                    self._cancelled.add((cluster, claim))
            case (
                BindingEnd()
                | HeartbeatEnd()
                | ReplicaChange()
                | DisruptionResult()
                | SelectionPart()
                | SelectionEnd()
                | ProposalEnd()
                | PlanEnd()
                | TimeCorrection()
                | None
            ):
                pass  # not about machines
            case other:
                assert_never(other)

    def _remember(self, due: Micros, deed: Deed) -> None:
        self._asked += 1
        heappush(self._due, (due, self._asked, deed))

    def next_due(self) -> Micros | None:
        return self._due[0][0] if self._due else None

    # --- what it does

    def act(self, at: Micros, book_of: Callable[[str], Occupancy]) -> Iterator[Value]:
        """Performs the actions that are due at `at`: creates claimed nodes, deletes nodes whose
        removal was decided, and drains nodes by moving their pods. Yields the resulting facts about
        nodes and pods. `book_of`: name of a cluster -> its occupancy (nodes and the pods on them).
        """
        while self._due and self._due[0][0] <= at:
            deed = heappop(self._due)[2]
            book = book_of(deed.cluster)
            match deed:
                case NodeClaim():
                    yield from self._make(deed, book, at)
                case NodeRemoval():
                    yield from self._take(deed.cluster, deed.node, book)
                case DisruptionCommand():
                    yield from self._drain(deed, book)
                case other:
                    assert_never(other)

    def _make(self, claim: NodeClaim, book: Occupancy, at: Micros) -> Iterator[Value]:
        pool = self.policies.of(claim.cluster).get(claim.pool)
        if pool is None or (claim.cluster, claim.claim) in self._cancelled:
            return
        types = by_name(self.policies.types.get(pool.catalogue, ()))
        node = delivered(claim, types, at)
        if node is not None:
            self.made.setdefault(claim.cluster, {})[node.name] = node
            yield self._bucket(claim.cluster, node.name, book)

    def _take(self, cluster: str, node: str, book: Occupancy) -> Iterator[Value]:
        self.made.get(cluster, {}).pop(node, None)
        self.gone.setdefault(cluster, set()).add(node)
        if node in book.pods:  # daemons go with it
            yield PodsObserved(cluster, node, ())
        yield self._bucket(cluster, node, book)

    def _drain(self, decided: DisruptionCommand, book: Occupancy) -> Iterator[Value]:
        cluster = decided.cluster
        homes = self.rehomed.setdefault(cluster, {})
        touched: dict[str, None] = {}
        for move in decided.moves:
            pod = next((pod for pod in book.pods.get(move.source, ()) if pod.uid == move.pod), None)
            if pod is not None and move.target in book.nodes:
                homes[pod.uid] = msgspec.structs.replace(pod, node=move.target)
                touched.update({move.source: None, move.target: None})
        for node in touched:
            yield PodsObserved(cluster, node, self._pods(cluster, node, book.pods.get(node, ())))

    def _bucket(self, cluster: str, node: str, book: Occupancy) -> NodesObserved:
        buckets = book.bucket_count or 1
        bucket = stable_hash(node) % buckets
        if node in book.nodes:
            bucket = next((b for b, nodes in sorted(book.buckets.items()) if node in nodes), bucket)
        nodes = self._nodes(cluster, bucket, buckets, book.buckets.get(bucket, {}).values())
        return NodesObserved(cluster, bucket, buckets, nodes)

    # --- what others tell

    def as_it_is(self, told: Value) -> Value:
        """Returns a recorded fact about nodes or pods (`told`), corrected by the actions of this
        simulated provider. Nodes that the provider removed are left out, together with the pods on
        these nodes. Nodes that the provider created are added. Pods that the provider moved from
        drained nodes are on the nodes to which they were moved. Other facts are returned unchanged.
        """
        match told:
            case NodesObserved(cluster, bucket, buckets, nodes):
                return NodesObserved(
                    cluster, bucket, buckets, self._nodes(cluster, bucket, buckets, nodes)
                )
            case PodsObserved(cluster, node, pods):
                return PodsObserved(cluster, node, self._pods(cluster, node, pods))
            case _:
                return told

    def _nodes(
        self, cluster: str, bucket: int, buckets: int, told: Iterable[Node]
    ) -> tuple[Node, ...]:
        gone, made = self.gone.get(cluster, ()), self.made.get(cluster, {})
        nodes = {node.name: node for node in told if node.name not in gone}
        for name, node in made.items():
            if stable_hash(name) % buckets == bucket:
                nodes.setdefault(name, node)
        return tuple([nodes[name] for name in sorted(nodes)])

    def _pods(self, cluster: str, node: str, told: Iterable[Pod]) -> tuple[Pod, ...]:
        if node in self.gone.get(cluster, ()):
            return ()
        homes = self.rehomed.get(cluster, {})
        pods = {pod.uid: pod for pod in told if pod.uid not in homes}
        pods.update({uid: pod for uid, pod in homes.items() if pod.node == node})
        return tuple([pods[uid] for uid in sorted(pods)])
