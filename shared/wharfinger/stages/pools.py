"""Facts about node pools: the policies, and for each cluster open claims, open disruption commands,
leaving nodes, idle times and sold-out offerings.

The cluster stage folds its own decisions. The descheduler folds the same decisions from the
assignments topic (`PoolFacts.take`). So the snapshot from which one proposes a command and the
other validates it is built from the same facts (`stages.cluster_snapshots`). No decisions are made
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, assert_never

import msgspec

from wharfinger.domain.ids import ClassKey
from wharfinger.domain.instance_types import Catalogue, InstanceType
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import (
    POOL_LABEL,
    DisruptionReason,
    NodeOverlay,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.engine.disruption.cluster_snapshot import REASONS
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.readiness import is_initialized
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    Claimed,
    ClaimEnded,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    PodsPreempted,
    PodsRemoved,
    PreemptionOver,
    Recovered,
    Refused,
    Released,
    Silenced,
    UnplacedPods,
)
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.kernel.decider import Micros

T = TypeVar("T")

NOMINATED_US: Micros = 20 * 1_000_000
"""How long a new node is reserved for the pods for which it was requested (Karpenter: twice its
longest batch window)."""

COMES_WITHIN_US: Micros = 900 * 1_000_000
"""How long a requested node may take to register, and then to become initialised."""

BACK_OFF_US: Micros = 60 * 1_000_000
BACK_OFF_US_MAX: Micros = 3600 * 1_000_000
"""First and longest pause before an offering that was not available is requested again, in
microseconds; the pause doubles with each failure."""


# --- policies


@dataclass(slots=True)
class PoolPolicies:
    """The node pools, overlays and instance type catalogues in force, each by policy key. `parts`:
    parts of catalogues. `version`: incremented by every change."""

    pools: dict[str, NodePoolPolicy] = field(default_factory=dict)
    overlay_of: dict[str, NodeOverlay] = field(default_factory=dict)
    parts: dict[str, Catalogue] = field(default_factory=dict)
    version: int = 0
    _types: dict[str, tuple[InstanceType, ...]] | None = None
    _of: dict[str, dict[str, NodePoolPolicy]] = field(default_factory=dict)

    def applied(self, key: str, policy: Policy | None) -> bool:
        """Sets what one policy says about node pools: the pool, the overlay (other prices or
        capacity of instance types, as Karpenter's NodeOverlay) and the part of an instance type
        catalogue. What the policy no longer contains is removed. Returns whether anything changed.

        `key`: the key of the policy. `policy`: None removes everything that was set under this key.
        """
        pool = None if policy is None else policy.node_pool
        overlay = None if policy is None else policy.overlay
        part = None if policy is None else policy.catalogue
        if (pool, overlay, part) == (
            self.pools.get(key),
            self.overlay_of.get(key),
            self.parts.get(key),
        ):
            return False
        if part != self.parts.get(key):
            self._types = None
        self._of.clear()
        _write(self.pools, key, pool)
        _write(self.overlay_of, key, overlay)
        _write(self.parts, key, part)
        self.version += 1
        return True

    @property
    def idle(self) -> bool:
        return not self.pools

    def of(self, cluster: str) -> Mapping[str, NodePoolPolicy]:
        """Returns the node pools of a cluster: name of the pool -> its policy, in order of name. If
        several policies define a pool of the same name, a policy for this cluster alone comes
        before a policy for several clusters. Among equal policies the first one by key is used."""
        known = self._of.get(cluster)
        if known is None:
            found: dict[str, NodePoolPolicy] = {}
            for _, pool in sorted(
                self.pools.items(), key=lambda item: (item[1].clusters != (cluster,), item[0])
            ):
                if pool.is_of(cluster):
                    found.setdefault(pool.name, pool)
            known = self._of[cluster] = dict(sorted(found.items()))
        return known

    @property
    def overlays(self) -> tuple[NodeOverlay, ...]:
        return tuple([overlay for _, overlay in sorted(self.overlay_of.items())])

    @property
    def types(self) -> Mapping[str, tuple[InstanceType, ...]]:
        """Returns catalogue -> its instance types in order of name. A catalogue with missing parts
        is left out."""
        if self._types is None:
            by_name: dict[str, dict[int, Catalogue]] = {}
            for _, part in sorted(self.parts.items()):
                by_name.setdefault(part.name, {})[part.part] = part
            self._types = {
                name: _joined(parts) for name, parts in sorted(by_name.items()) if _whole(parts)
            }
        return self._types

    def known(self, cluster: str) -> bool:
        """Returns whether nodes can be requested in the cluster: at least one of its pools has a
        complete catalogue."""
        return any(pool.catalogue in self.types for pool in self.of(cluster).values())

    def initialized(self, cluster: str, node: Node) -> bool:
        pool = self.of(cluster).get(node.labels.get(POOL_LABEL, ""))
        return is_initialized(node, () if pool is None else pool.startup_taints)


def _write(table: dict[str, T], key: str, value: T | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _whole(parts: Mapping[int, Catalogue]) -> bool:
    """Returns whether all parts of a catalogue have arrived. If a catalogue is sent again in
    another number of parts, it is incomplete until all new parts have arrived."""
    counts = {part.parts for part in parts.values()}
    return len(counts) == 1 and set(parts) == set(range(max(counts)))


_JOINED_KEPT = 8

_joined_before: list[tuple[tuple[Catalogue, ...], tuple[InstanceType, ...]]] = []
"""Every stream of a process receives the same parts. They are joined once and shared, because the
catalogue caches what it derives from a tuple of types by the identity of the tuple."""


def _joined(of_part: Mapping[int, Catalogue]) -> tuple[InstanceType, ...]:
    parts = tuple([part for _, part in sorted(of_part.items())])
    for known, joined in _joined_before:
        if len(known) == len(parts) and all(a is b for a, b in zip(known, parts, strict=True)):
            return joined
    types = {found.name: found for part in parts for found in part.types}
    made = tuple([types[name] for name in sorted(types)])
    _joined_before.append((parts, made))
    del _joined_before[:-_JOINED_KEPT]
    return made


# --- what goes on in one cluster


class OpenClaim(Value, frozen=True):
    """Describes a node that was requested and has not registered yet. `replicas`: binding -> number
    of its replicas for which the node was requested. `command`: the disruption command whose nodes
    it replaces; empty: none. `asked_us`: time at which the request was folded. `others`: key of
    their requirements -> number of waiting pods of other schedulers for which it was requested.
    `observed`: whether its cluster has reported it since."""

    claim: str
    pool: str
    requirements: tuple[PoolRequirement, ...]
    instance_types: tuple[str, ...]
    requests: dict[str, int]
    replicas: dict[str, int]
    command: str
    until_us: Micros
    asked_us: Micros = 0
    others: dict[ClassKey, int] = {}
    observed: bool = False


class OpenCommand(Value, frozen=True):
    """Describes a disruption command that has not ended. `nodes`: the nodes to be removed.
    `method`: the method that found the command."""

    command: str
    method: str
    nodes: tuple[str, ...]


class PoolOffer(Value, frozen=True, array_like=True):
    """An offering of a pool: instance type, zone and capacity type. An empty field matches any
    value."""

    pool: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""


class SoldOut(Value, frozen=True, array_like=True):
    """Records the back-off of an offering that was not available `times` in a row. It is not
    requested again before `until`."""

    times: int
    until: Micros


@dataclass(slots=True)
class PoolFacts:
    """Folds the facts about the pools of one cluster.

    `claims`, `commands`: the open ones, by name. `quiet_since`: node of a pool -> the latest of
    three times: a pod came or left, the node became initialised, the node was first seen.
    `promised`: new node -> time until which it is reserved for the pods for which it was requested.
    `leaving`: existing node whose removal was decided -> the reason. `sold_out`: offering that was
    not available -> its back-off.
    """

    claims: dict[str, OpenClaim] = field(default_factory=dict)
    commands: dict[str, OpenCommand] = field(default_factory=dict)
    quiet_since: dict[str, Micros] = field(default_factory=dict)
    promised: dict[str, Micros] = field(default_factory=dict)
    leaving: dict[str, DisruptionReason] = field(default_factory=dict)
    sold_out: dict[PoolOffer, SoldOut] = field(default_factory=dict)

    # --- decisions, as items of the assignments topic

    def take(self, book: Occupancy, item: AssignmentItem, at: Micros) -> None:
        """Folds one decision about node claims, disruption or replicas into the facts about pools.
        The decision is an item of the assignments topic. `book`: the occupancy of the cluster (its
        nodes and the pods on them). `at`: the time of the decision.

        The caller must update `book` first, because a disruption command closes nodes in `book` (no
        new pods), and the end of a command reopens the nodes that it did not remove.
        """
        match item:
            case Claimed():
                self.claims[item.claim] = OpenClaim(
                    item.claim,
                    item.pool,
                    item.requirements,
                    item.instance_types,
                    item.requests,
                    item.replicas,
                    item.command,
                    item.until_us,
                    at,
                    item.others,
                )
            case ClaimEnded():
                self._claim_ended(item, at)
            case Disrupting():
                self.commands[item.command] = OpenCommand(item.command, item.method, item.nodes)
            case NodeClosed():
                self.leaving[item.node] = self.disrupting().get(item.node, "Empty")
            case Disrupted():
                self.commands.pop(item.command, None)
            case Placed():
                self.stirred(book, [share.node for share in item.placed], at)
            case Released():
                self.stirred(book, [share.node for share in item.released], at)
            case Assigned() | Refused() | Silenced() | Recovered() | PodsRemoved():
                pass
            case UnplacedPods() | PodsPreempted() | PreemptionOver():
                pass
            case _:
                assert_never(item)

    def _claim_ended(self, ended: ClaimEnded, at: Micros) -> None:
        self.claims.pop(ended.claim, None)
        offer = PoolOffer(ended.pool, ended.instance_type, ended.zone, ended.capacity_type)
        match ended.outcome:
            case "registered":
                self.promised[ended.node] = at + NOMINATED_US
                for known in (offer, PoolOffer(ended.pool)):
                    self.sold_out.pop(known, None)
            case "failed" | "timed-out":
                self._not_to_be_had(offer, at)
            case _:
                pass  # it was needed no more

    def _not_to_be_had(self, offer: PoolOffer, at: Micros) -> None:
        """Records that an offering was not available, with exponential back-off from one minute to
        one hour. Offerings whose back-off ended more than an hour ago are deleted first, so that
        their next failure counts as the first."""
        for old in [o for o, known in self.sold_out.items() if known.until + BACK_OFF_US_MAX < at]:
            del self.sold_out[old]
        before = self.sold_out.get(offer)
        times = 1 if before is None else before.times + 1
        pause = min(BACK_OFF_US_MAX, BACK_OFF_US << min(times - 1, 32))
        self.sold_out[offer] = SoldOut(times, at + pause)

    # --- claims, nodes and pods

    def observe_claims(self, names: Iterable[str]) -> None:
        """Records that the cluster reports these claims."""
        for name in names:
            if (claim := self.claims.get(name)) is not None and not claim.observed:
                self.claims[name] = msgspec.structs.replace(claim, observed=True)

    def observe_nodes(
        self,
        book: Occupancy,
        policies: PoolPolicies,
        cluster: str,
        nodes: NodesObserved,
        at: Micros,
    ) -> bool:
        """Folds observed nodes (one bucket of a cluster's nodes) into the occupancy `book`, and
        updates the facts about these nodes. Returns whether the occupancy changed. `policies`: the
        node pools; they say when a node counts as initialised.

        The idle time of a node in a pool starts when the node is first seen, and starts again when
        the node becomes initialised. Facts about deleted nodes are dropped. A new node can be
        reserved for the pods for which it was requested (`promised`); for a node that is not there
        yet, the reservation is kept until it expires.
        """
        before = [book.nodes[node.name] for node in nodes.nodes if node.name in book.nodes]
        counted_on = {node.name for node in before if policies.initialized(cluster, node)}
        if not book.observe_nodes(nodes, at):
            return False
        there = {name: node for name, node in book.nodes.items() if POOL_LABEL in node.labels}
        self.quiet_since = {name: self.quiet_since.get(name, at) for name in there}
        for node in nodes.nodes:
            now = there.get(node.name)
            if (
                now is not None
                and node.name not in counted_on
                and policies.initialized(cluster, now)
            ):
                self.quiet_since[node.name] = at
        self.leaving = {
            name: why for name, why in self.leaving.items() if name in book.nodes or not book.known
        }
        self.promised = {
            name: until for name, until in self.promised.items() if name in book.nodes or until > at
        }
        return True

    def observe_pods(self, book: Occupancy, pods: PodsObserved, at: Micros) -> bool:
        """Folds the pods of a node into the occupancy. Returns whether the occupancy changed. If
        the set of pods changed, without daemon and static pods, the idle time of the node starts
        again. The observed pod of a replica that is already placed there is not a change."""
        before = _company(book, pods.node)
        if not book.observe_pods(pods):
            return False
        if _company(book, pods.node) != before:
            self.stirred(book, (pods.node,), at)
        return True

    def stirred(self, book: Occupancy, names: Iterable[str], at: Micros) -> None:
        """Restarts the idle time of those of the nodes that belong to a pool, because a pod came or
        left."""
        for name in names:
            node = book.nodes.get(name)
            if node is not None and POOL_LABEL in node.labels:
                self.quiet_since[name] = at

    def adopt_times(self, stage: PoolFacts) -> None:
        """Takes over what current assignments do not contain: since when each node is idle, until
        when it is reserved, why it leaves, and which offerings were not available. `stage`: the
        facts of the stream that owns the cluster."""
        self.quiet_since, self.promised = dict(stage.quiet_since), dict(stage.promised)
        self.leaving, self.sold_out = dict(stage.leaving), dict(stage.sold_out)

    # --- looking

    def disrupting(self) -> dict[str, DisruptionReason]:
        """Returns the nodes that are about to be removed, each with the reason under which
        disruption budgets count it. These are the nodes of open commands, and the existing nodes
        whose removal was decided."""
        of_commands = {
            name: REASONS[c.method] for _, c in sorted(self.commands.items()) for name in c.nodes
        }
        return {**self.leaving, **of_commands}

    def nominated(self, at: Micros) -> frozenset[str]:
        return frozenset(name for name, until in self.promised.items() if until > at)

    def backing_off(self, at: Micros) -> dict[str, Micros]:
        """Returns pool -> the time until which no node of it is requested, for pools whose last
        nodes could not be created."""
        return {
            o.pool: s.until
            for o, s in self.sold_out.items()
            if s.until > at and not o.instance_type
        }

    def unavailable(
        self, types: Mapping[str, Sequence[InstanceType]], at: Micros
    ) -> frozenset[tuple[str, str, str]]:
        """Returns the offerings (instance type, zone, capacity type) that must not be requested
        now, because they were sold out and their back-off has not ended at the time `at`.

        `types`: catalogue -> its instance types. A sold-out record without a zone applies to every
        zone, and one without a capacity type to every capacity type. Example: "m5.large sold out"
        without a zone, offered in two zones, gives two offerings.
        """
        out = [o for o, s in self.sold_out.items() if s.until > at and o.instance_type]
        if not out:
            return frozenset()
        return frozenset(
            (found.name, offering.zone, offering.capacity_type)
            for of_catalogue in types.values()
            for found in of_catalogue
            for offering in found.offerings
            if any(_is(o, found.name, offering.zone, offering.capacity_type) for o in out)
        )


def _is(offer: PoolOffer, name: str, zone: str, capacity_type: str) -> bool:
    return (
        offer.instance_type == name
        and offer.zone in ("", zone)
        and offer.capacity_type in ("", capacity_type)
    )


def _company(book: Occupancy, node: str) -> set[tuple[str, int | str]]:
    """Returns the keys of the replicas and other pods on a node, without daemon and static pods."""
    found: set[tuple[str, int | str]] = set(book.on_node.get(node, ()))
    for pod in book.pods.get(node, ()):
        if not goes_with_node(pod):
            found.add((pod.binding, pod.ordinal if pod.binding and pod.ordinal >= 0 else pod.uid))
    return found


def goes_with_node(pod: Pod) -> bool:
    """Returns whether the pod belongs to its node: a pod of a DaemonSet, or a static pod of the
    kubelet."""
    if pod.requirements.traits.owner == "DaemonSet":
        return True
    return pod.upkeep is not None and (pod.upkeep.of_daemon or pod.upkeep.static)
