"""What is known of pools: what policies say of them, and of one cluster which nodes were asked for, which are about to go, since
when each has been quiet, and what could not be bought.

The cluster stage folds it from its own decisions, the descheduler from the same decisions as the assignments topic tells them
(`take`), so that both look at the same thing when one proposes and the other checks (`stages.scenes`). Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from wharfinger.domain.instance_types import Catalogue, InstanceType
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import POOL_LABEL, DisruptionReason, NodeOverlay, NodePoolPolicy, PoolRequirement
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.engine.disruption.scene import REASONS
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.readiness import is_initialized
from wharfinger.events.assignments import (
    AssignmentItem,
    Claimed,
    ClaimEnded,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    Released,
)
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.kernel.decider import Micros

T = TypeVar("T")

NOMINATED_US: Micros = 20 * 1_000_000
"""For so long a node that has just come is promised to whom it was made for (Karpenter: twice its longest batch window)."""

COMES_WITHIN_US: Micros = 900 * 1_000_000
"""How long a node may take to come, and then to be ready to be counted on."""

BACK_OFF_US: Micros = 60 * 1_000_000
BACK_OFF_US_MAX: Micros = 3600 * 1_000_000
"""What could not be bought is not asked for again for a minute, then two, and so on."""


# --- policies


@dataclass(slots=True)
class PoolPolicies:
    """By policy key. `version`: raised by every change."""

    pools: dict[str, NodePoolPolicy] = field(default_factory=dict)
    overlay_of: dict[str, NodeOverlay] = field(default_factory=dict)
    parts: dict[str, Catalogue] = field(default_factory=dict)
    version: int = 0
    _types: dict[str, tuple[InstanceType, ...]] | None = None
    _of: dict[str, dict[str, NodePoolPolicy]] = field(default_factory=dict)

    def applied(self, key: str, policy: Policy | None) -> bool:
        """None: the policy is gone. False: nothing changed."""
        pool = None if policy is None else policy.node_pool
        overlay = None if policy is None else policy.overlay
        part = None if policy is None else policy.catalogue
        if (pool, overlay, part) == (self.pools.get(key), self.overlay_of.get(key), self.parts.get(key)):
            return False
        if part != self.parts.get(key):
            self._types = None
        self._of.clear()
        _write(self.pools, key, pool)
        _write(self.overlay_of, key, overlay)
        _write(self.parts, key, part)
        self.version += 1
        return True

    def knows(self, key: str) -> bool:
        return key in self.pools or key in self.overlay_of or key in self.parts

    @property
    def idle(self) -> bool:
        return not self.pools

    def of(self, cluster: str) -> Mapping[str, NodePoolPolicy]:
        """The pools whose nodes may be in the cluster, by name and in order of it. Of several policies for one pool that of the
        cluster alone holds, then the first by key."""
        known = self._of.get(cluster)
        if known is None:
            found: dict[str, NodePoolPolicy] = {}
            for _, pool in sorted(self.pools.items(), key=lambda item: (item[1].clusters != (cluster,), item[0])):
                if pool.is_of(cluster):
                    found.setdefault(pool.name, pool)
            known = self._of[cluster] = dict(sorted(found.items()))
        return known

    @property
    def overlays(self) -> tuple[NodeOverlay, ...]:
        return tuple([overlay for _, overlay in sorted(self.overlay_of.items())])

    @property
    def types(self) -> Mapping[str, tuple[InstanceType, ...]]:
        """Catalogue -> its instance types in order of name; catalogues of which parts are missing are not known yet."""
        if self._types is None:
            by_name: dict[str, dict[int, Catalogue]] = {}
            for _, part in sorted(self.parts.items()):
                by_name.setdefault(part.name, {})[part.part] = part
            self._types = {name: _joined(parts) for name, parts in sorted(by_name.items()) if _whole(parts)}
        return self._types

    def known(self, cluster: str) -> bool:
        """Whether nodes may be made in the cluster, as far as is known: some pool of it has a whole catalogue."""
        return any(pool.catalogue in self.types for pool in self.of(cluster).values())

    def initialized(self, cluster: str, node: Node) -> bool:
        pool = self.of(cluster).get(node.labels.get(POOL_LABEL, ""))
        return is_initialized(node, () if pool is None else pool.startup_taints)


def is_of_pools(policy: Policy) -> bool:
    return policy.node_pool is not None or policy.overlay is not None or policy.catalogue is not None


def _write(table: dict[str, T], key: str, value: T | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _whole(parts: Mapping[int, Catalogue]) -> bool:
    """All parts of one split are there. A catalogue that is told anew in another number of parts is not whole meanwhile."""
    counts = {part.parts for part in parts.values()}
    return len(counts) == 1 and set(parts) == set(range(max(counts)))


_JOINED_KEPT = 8

_joined_before: list[tuple[tuple[Catalogue, ...], tuple[InstanceType, ...]]] = []
"""Every stream of a process is told the same parts; whoever lays types out knows them again by being the same object."""


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
    """A node that was asked for and has not come. `replicas`: binding -> how many of its replicas it is made for; `command`: of
    the disruption that replaces nodes by it. `asked_us`: when that was seen."""

    claim: str
    pool: str
    requirements: tuple[PoolRequirement, ...]
    instance_types: tuple[str, ...]
    requests: dict[str, int]
    replicas: dict[str, int]
    command: str
    until_us: Micros
    asked_us: Micros = 0


class OpenCommand(Value, frozen=True):
    """Nodes that are about to go, and by which method that was found."""

    command: str
    method: str
    nodes: tuple[str, ...]


class Offer(Value, frozen=True, array_like=True):
    """What a pool could buy. Empty: any."""

    pool: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""


class SoldOut(Value, frozen=True, array_like=True):
    """`times` in a row an offer could not be had; it is not asked for until `until`."""

    times: int
    until: Micros


@dataclass(slots=True)
class PoolFacts:
    """Of one cluster. `claims`, `commands`: those that are open, by name. `quiet_since`: node of a pool -> when a replica or pod
    last came to it or left it, or when it was first seen to be initialised. `promised`: node that has just come -> until when it is
    kept for whom it was made for. `leaving`: node whose removal was decided and that is still there -> why. `sold_out`: what could
    not be had."""

    claims: dict[str, OpenClaim] = field(default_factory=dict)
    commands: dict[str, OpenCommand] = field(default_factory=dict)
    quiet_since: dict[str, Micros] = field(default_factory=dict)
    promised: dict[str, Micros] = field(default_factory=dict)
    leaving: dict[str, DisruptionReason] = field(default_factory=dict)
    sold_out: dict[Offer, SoldOut] = field(default_factory=dict)

    # --- decisions, as items of the assignments topic

    def take(self, book: Occupancy, item: AssignmentItem, at: Micros) -> None:
        """The book is the caller's to write, and is written before: a command closes its nodes there, its end reopens some."""
        match item:
            case Claimed():
                self.claims[item.claim] = OpenClaim(
                    item.claim, item.pool, item.requirements, item.instance_types, item.requests, item.replicas,
                    item.command, item.until_us, at,
                )  # fmt: skip
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
            case _:
                pass

    def _claim_ended(self, ended: ClaimEnded, at: Micros) -> None:
        self.claims.pop(ended.claim, None)
        offer = Offer(ended.pool, ended.instance_type, ended.zone, ended.capacity_type)
        match ended.outcome:
            case "registered":
                self.promised[ended.node] = at + NOMINATED_US
                for known in (offer, Offer(ended.pool)):
                    self.sold_out.pop(known, None)
            case "failed" | "timed-out":
                self._not_to_be_had(offer, at)
            case _:
                pass  # it was needed no more

    def _not_to_be_had(self, offer: Offer, at: Micros) -> None:
        """An offer is forgotten when it has not failed for as long as the longest pause after its own."""
        for old in [o for o, known in self.sold_out.items() if known.until + BACK_OFF_US_MAX < at]:
            del self.sold_out[old]
        before = self.sold_out.get(offer)
        times = 1 if before is None else before.times + 1
        pause = min(BACK_OFF_US_MAX, BACK_OFF_US << min(times - 1, 32))
        self.sold_out[offer] = SoldOut(times, at + pause)

    # --- nodes and pods

    def observe_nodes(
        self, book: Occupancy, policies: PoolPolicies, cluster: str, nodes: NodesObserved, at: Micros
    ) -> bool:
        """Take a bucket into the book, and follow the nodes of pools; True when anything changed."""
        before = [book.nodes[node.name] for node in nodes.nodes if node.name in book.nodes]
        counted_on = {node.name for node in before if policies.initialized(cluster, node)}
        if not book.observe_nodes(nodes, at):
            return False
        there = {name: node for name, node in book.nodes.items() if POOL_LABEL in node.labels}
        self.quiet_since = {name: self.quiet_since.get(name, at) for name in there}
        for node in nodes.nodes:
            now = there.get(node.name)
            if now is not None and node.name not in counted_on and policies.initialized(cluster, now):
                self.quiet_since[node.name] = at
        self.leaving = {name: why for name, why in self.leaving.items() if name in book.nodes or not book.known}
        self.promised = {name: until for name, until in self.promised.items() if name in book.nodes or until > at}
        return True

    def observe_pods(self, book: Occupancy, pods: PodsObserved, at: Micros) -> bool:
        """Take the pods of a node into the book; a pod of a replica that was placed there already is nobody new."""
        before = _company(book, pods.node)
        if not book.observe_pods(pods):
            return False
        if _company(book, pods.node) != before:
            self.stirred(book, (pods.node,), at)
        return True

    def stirred(self, book: Occupancy, names: Iterable[str], at: Micros) -> None:
        """Somebody came to these nodes or left them."""
        for name in names:
            node = book.nodes.get(name)
            if node is not None and POOL_LABEL in node.labels:
                self.quiet_since[name] = at

    # --- looking

    def disrupting(self) -> dict[str, DisruptionReason]:
        """Node that is about to go -> the reason budgets count it under: those of open commands, and those whose removal was
        decided until they are there no more."""
        of_commands = {name: REASONS[c.method] for _, c in sorted(self.commands.items()) for name in c.nodes}
        return {**self.leaving, **of_commands}

    def nominated(self, at: Micros) -> frozenset[str]:
        return frozenset(name for name, until in self.promised.items() if until > at)

    def backing_off(self, at: Micros) -> dict[str, Micros]:
        """Pool that nobody could make nodes of -> until when none is asked for."""
        return {o.pool: s.until for o, s in self.sold_out.items() if s.until > at and not o.instance_type}

    def unavailable(self, types: Mapping[str, Sequence[InstanceType]], at: Micros) -> frozenset[tuple[str, str, str]]:
        """(instance type, zone, capacity type) that are not to be asked for now."""
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


def _is(offer: Offer, name: str, zone: str, capacity_type: str) -> bool:
    return offer.instance_type == name and offer.zone in ("", zone) and offer.capacity_type in ("", capacity_type)


def _company(book: Occupancy, node: str) -> set[tuple[str, int | str]]:
    """Who is on a node, daemons and mirrors apart: they come and go with it."""
    found: set[tuple[str, int | str]] = set(book.on_node.get(node, ()))
    for pod in book.pods.get(node, ()):
        if not goes_with_node(pod):
            found.add((pod.binding, pod.ordinal if pod.binding and pod.ordinal >= 0 else pod.uid))
    return found


def goes_with_node(pod: Pod) -> bool:
    """A daemon's pod, or one that the kubelet runs by itself."""
    if pod.requirements.traits.owner == "DaemonSet":
        return True
    return pod.upkeep is not None and (pod.upkeep.of_daemon or pod.upkeep.static)
