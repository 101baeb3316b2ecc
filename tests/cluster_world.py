"""What the tests of the node engine, the cluster stage and the estimator share: builders, a
harness, a plain reference.

The reference is written from the rules, with dictionaries and loops, and shares no code with the
engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.resources import GPU, Device, DeviceRequest
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value, stable_hash
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    NodeClosed,
    Placed,
    Refused,
    Released,
)
from wharfinger.events.cluster_state import NodesObserved, PodsObserved, into_buckets
from wharfinger.events.codec import made
from wharfinger.events.decisions import (
    NodeRemovalDecided,
    NodeShare,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Round
from wharfinger.kernel.step import empty_head, step
from wharfinger.stages.cluster import ClusterDecider, ClusterProfile, ClusterStageState

GIB = 2**30
CLUSTER = "oslo"
STREAM = f"cluster/{CLUSTER}"


def a_node(
    name: str,
    cpu: int = 4000,
    memory: int = 16 * GIB,
    gpus: int = 0,
    model: str = "T4",
    pods: int | None = None,
    taints: tuple[Taint, ...] = (),
    labels: dict[str, str] | None = None,
    unschedulable: bool = False,
    extended: dict[str, int] | None = None,
) -> Node:
    allocatable = {"cpu": cpu, "memory": memory, **(extended or {})}
    if pods is not None:
        allocatable["pods"] = pods
    return Node(name, allocatable, (Device(model),) * gpus, labels or {}, taints, unschedulable)


def needs(
    cpu: int = 0, memory: int = 0, gpus: int = 0, milli: int = 1000, models: tuple[str, ...] = ()
) -> Requirements:
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    return Requirements(requests, (DeviceRequest(gpus, milli, models),) if gpus else ())


def event(data: Value, *identity: str | int) -> Event[Value]:
    return made(data, id=derived_id("test", *identity), source="/test", subject="test")


@dataclass
class Harness:
    """One cluster stream, run by the kernel, every round recorded. Each `given` or `when` is one
    round."""

    strategy: str = "least-allocated"
    decider: ClusterDecider = field(init=False)
    state: ClusterStageState = field(init=False)
    rounds: list[RecordedRound] = field(default_factory=list, repr=False)
    at: int = 1_000_000
    seq: int = 0
    events: int = 0

    def __post_init__(self) -> None:
        least = self.strategy == "least-allocated"
        self.decider = ClusterDecider(
            ClusterProfile("least-allocated" if least else "most-allocated")
        )
        self.state = self.decider.initial(STREAM)
        self.head = empty_head(STREAM)

    def feed(self, *data: Value, seconds: int = 0) -> list[Decision]:
        """With nothing to say it is a tick: every round of a plane has an input."""
        events: list[Event[Value]] = []
        for one in data or (Ticked(STREAM, self.at + 1 + seconds * 1_000_000),):
            self.events += 1
            events.append(event(one, self.events))
        return self.feed_events(events, seconds)

    def feed_events(self, events: Sequence[Event[Value]], seconds: int = 0) -> list[Decision]:
        self.at += 1 + seconds * 1_000_000
        round: Round = step(self.decider, self.state, self.head, events, self.at, {})
        self.head = round.head()
        self.rounds.append(RecordedRound(round, events))
        return list(round.decisions)

    def nodes(self, *nodes: Node, buckets: int = 4) -> list[Decision]:
        return self.feed(*into_buckets(CLUSTER, nodes, buckets))

    def pods(self, node: str, *pods: Pod) -> list[Decision]:
        return self.feed(PodsObserved(CLUSTER, node, pods))

    def assign(
        self, binding: str, replicas: int, requirements: Requirements, priority: int = 0
    ) -> list[Decision]:
        return self.feed(self.assigned((binding, replicas, requirements, priority)))

    def assigned(self, *wanted: tuple[str, int, Requirements, int]) -> AssignmentsDecided:
        items: list[AssignmentItem] = []
        for binding, replicas, requirements, priority in wanted:
            self.seq += 1
            id = str(derived_id("fleet", self.seq))
            items.append(
                Assigned(self.seq, id, binding, f"uid-{binding}", replicas, requirements, priority)
            )
        return AssignmentsDecided(CLUSTER, "fleet/0", self.seq, tuple(items))

    def propose_removal(self, node: str) -> list[Decision]:
        return self.feed(NodeRemovalProposed(STREAM, CLUSTER, node, "empty"))

    def where(self, binding: str) -> dict[int, str]:
        held = self.state.book.held.get(binding)
        return {} if held is None else {o: r.node for o, r in sorted(held.placed.items())}


def outcomes(decisions: Iterable[Decision]) -> list[tuple[str, str]]:
    return [(d.outcome, d.subject) for d in decisions]


def as_items(decisions: Iterable[Decision]) -> AssignmentsDecided | None:
    """A cluster stream's decisions as the publisher tells them to the assignments topic."""
    items: list[AssignmentItem] = []
    for d in decisions:
        id = str(d.id)
        match d.data:
            case ReplicasPlaced() as p:
                items.append(Placed(d.seq, id, p.binding, p.placed, p.requirements))
            case ReplicasRefused() as r:
                items.append(
                    Refused(d.seq, id, r.binding, r.assignment, r.count, r.class_key, r.reason)
                )
            case ReplicasReleased() as f:
                items.append(Released(d.seq, id, f.binding, f.released, f.unbound))
            case NodeRemovalDecided() as n:
                items.append(NodeClosed(d.seq, id, n.node))
            case _:
                pass
    return AssignmentsDecided(CLUSTER, STREAM, items[-1].seq, tuple(items)) if items else None


def observed(nodes: Iterable[Node], buckets: int = 4) -> list[NodesObserved]:
    return into_buckets(CLUSTER, nodes, buckets)


# --- the reference


class PlainCluster:
    """Nodes with what is free on them, in dictionaries; chooses by trying every node, as the
    default profile has it for pods that mind no others."""

    def __init__(self, nodes: Iterable[Node], strategy: str = "least-allocated") -> None:
        self.strategy = strategy
        self.nodes = {n.name: n for n in nodes}
        self.free = {n.name: dict(n.allocatable) for n in self.nodes.values()}
        self.devices = {n.name: [1000] * len(n.devices) for n in self.nodes.values()}
        self.scored = {n.name: [0, 0] for n in self.nodes.values()}

    def place(self, r: Requirements) -> tuple[str, tuple[tuple[int, int], ...]] | None:
        """Where the next replica goes; it is put there."""
        seed = stable_hash(r.class_key)
        feasible = [name for name in self.nodes if self.why_not(name, r) is None]
        if not feasible:
            return None
        unwelcome = {name: self.unwelcome(name, r) for name in feasible}
        most = max(unwelcome.values())

        def total(name: str) -> int:
            welcome = 100 - 100 * unwelcome[name] // most if most else 100
            return 3 * welcome + self.fit(name, r) + self.balance(name, r)

        name = max(feasible, key=lambda name: (total(name), stable_hash(name) ^ seed, name))
        taken = self.pick(name, r)
        assert taken is not None
        self.put(name, r, taken)
        return name, taken

    def put(
        self, name: str, r: Requirements, taken: Iterable[tuple[int, int]], sign: int = 1
    ) -> None:
        free = self.free[name]
        for resource, amount in r.requests.items():
            free[resource] = free.get(resource, 0) - sign * max(0, amount)
        if "pods" in free and "pods" not in r.requests:
            free["pods"] -= sign
        for index, milli in taken:
            self.devices[name][index] -= sign * milli
        for i, amount in enumerate(self.stand_ins(r)):
            self.scored[name][i] += sign * amount

    def why_not(self, name: str, r: Requirements) -> str | None:
        node = self.nodes[name]
        cordon = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
        if node.unschedulable and not any(t.tolerates(cordon) for t in r.tolerations):
            return "Unschedulable"
        for taint in node.taints:
            if taint.effect != "PreferNoSchedule" and not any(
                t.tolerates(taint) for t in r.tolerations
            ):
                return "TaintToleration"
        if any(node.labels.get(k) != v for k, v in r.node_selector.items()):
            return "NodeAffinity"
        if r.node_terms and not any(t.matches(node.labels, name) for t in r.node_terms):
            return "NodeAffinity"
        for resource, amount in r.requests.items():
            if amount > 0 and self.free[name].get(resource, 0) < amount:
                return "InsufficientResources"
        if "pods" in self.free[name] and self.free[name]["pods"] < r.requests.get("pods", 1):
            return "InsufficientResources"
        return "InsufficientDevices" if self.pick(name, r) is None else None

    def pick(self, name: str, r: Requirements) -> tuple[tuple[int, int], ...] | None:
        left = list(self.devices[name])
        taken: list[tuple[int, int]] = []
        for d in sorted(r.devices, key=lambda d: (d.milli < 1000, d.models == ())):
            fitting = [
                (left[i], i)
                for i, device in enumerate(self.nodes[name].devices)
                if device.kind == d.kind
                and (not d.models or device.model in d.models)
                and left[i] >= d.milli
            ]
            fitting.sort()
            if len(fitting) < d.count:
                return None
            for _, i in fitting[: d.count]:
                left[i] -= d.milli
                taken.append((i, d.milli))
        return tuple(sorted(taken))

    def unwelcome(self, name: str, r: Requirements) -> int:
        borne = [t for t in r.tolerations if t.effect in ("", "PreferNoSchedule")]
        preferred = [t for t in self.nodes[name].taints if t.effect == "PreferNoSchedule"]
        return sum(not any(t.tolerates(taint) for t in borne) for taint in preferred)

    @staticmethod
    def stand_ins(r: Requirements) -> tuple[int, int]:
        return max(0, r.requests.get("cpu", 100)), max(0, r.requests.get("memory", 200 * 2**20))

    def fit(self, name: str, r: Requirements) -> int:
        shares: list[int] = []
        for i, resource in enumerate(("cpu", "memory")):
            whole = self.nodes[name].allocatable.get(resource, 0)
            taken = self.scored[name][i] + self.stand_ins(r)[i]
            if whole:
                least = self.strategy == "least-allocated"
                shares.append(
                    (max(0, whole - taken) if least else min(whole, taken)) * 100 // whole
                )
        return sum(shares) // len(shares) if shares else 0

    def balance(self, name: str, r: Requirements) -> int:
        asked = [r.requests.get(resource, 0) for resource in ("cpu", "memory")]
        if not any(asked):
            return 0
        shares: list[float] = []
        for resource, amount in zip(("cpu", "memory"), asked, strict=True):
            whole = self.nodes[name].allocatable.get(resource, 0)
            if whole:
                shares.append(min(1.0, (whole - self.free[name][resource] + amount) / whole))
        return int((1 - abs(shares[0] - shares[1]) / 2) * 100) if len(shares) == 2 else 100


def replicas_in(shares: Iterable[NodeShare]) -> list[tuple[str, int, tuple[tuple[int, int], ...]]]:
    """(node, ordinal, devices) for each replica."""
    return [
        (s.node, ordinal, s.devices[i] if s.devices else ())
        for s in shares
        for i, ordinal in enumerate(s.ordinals)
    ]


def some_id(n: int) -> UUID:
    return derived_id("some", n)


__all__ = ["CLUSTER", "GIB", "GPU", "STREAM", "Harness", "PlainCluster"]
