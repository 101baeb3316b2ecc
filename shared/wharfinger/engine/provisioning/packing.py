"""Converts a provisioning problem into the arrays of the kernels and packs it, with several
strategies.

`PackingProblem` is built once: classes and shapes of pods, existing bins, templates of new bins,
and topology counts. `PackingProblem.pack` runs the kernels over it with one order of pods and one
strategy. A run works on copies; only new states and their transitions are added to the problem. A
kernel that needs an unknown transition of a node (`states`) returns, and is called again once it is
known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL
from wharfinger.domain.resources import is_of_nodes
from wharfinger.domain.workload import Requirements
from wharfinger.engine import machine_code
from wharfinger.engine.devices.fit import free_of, take
from wharfinger.engine.framework.volumes import attachment
from wharfinger.engine.nodes.readiness import NOT_YET
from wharfinger.engine.provisioning import kernels as plain
from wharfinger.engine.provisioning import reservations
from wharfinger.engine.provisioning.catalogue import AMOUNT_MAX, Column, Mask
from wharfinger.engine.provisioning.daemons import still_to_come
from wharfinger.engine.provisioning.kernels import SPREAD, Bins, KernelTables
from wharfinger.engine.provisioning.limits import NODES, Left
from wharfinger.engine.provisioning.problem import InFlight, Problem, WantedPods
from wharfinger.engine.provisioning.requirements import LabelSet, ValueSet
from wharfinger.engine.provisioning.reservations import Reservations
from wharfinger.engine.provisioning.shapes import Shapes
from wharfinger.engine.provisioning.states import (
    NO,
    UNKNOWN,
    Coming,
    New,
    States,
    There,
    domains_of,
    values_of,
)
from wharfinger.engine.provisioning.templates import Template, prefers_away
from wharfinger.engine.provisioning.topology import Topology, TopologyGroup
from wharfinger.engine.provisioning.type_index import ATTACHED, InstanceTypeIndex

STEPS_MAX = 8_000_000
"""The maximum number of nodes that the local search examines. After that, the packing is good
enough."""

KERNELS = machine_code.kernels(plain)
"""The functions of the kernels, compiled or plain."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A bin that exists before packing. `node`: the name of an existing node, or else `claim`: the
    name of a pending one. `state`: its number in `States`. `free` int64[resources]: its free
    amounts."""

    node: str
    claim: str
    state: int
    free: Column


@dataclass(slots=True)
class Packed:
    """The result of one packing run; all arrays are int64.

    `owner` [pods]: the index in `Problem.wanted` to which a pod belongs. `bin_of`, `shape_at`
    [pods]: the bin of a pod, and its shape after relaxation; -1 without a place. `state` [bins],
    `used` [bins, resources], `pods` [bins]: state of a bin, requests of the pods put on it, and
    their number. `price`: of all new bins, billionths of a dollar an hour. `left`: what remains of
    the limits, for each template.
    """

    owner: Column
    bin_of: Column
    shape_at: Column
    state: Column
    used: Column
    pods: Column
    price: int
    left: list[Left]


@dataclass(slots=True)
class Order:
    """The order in which pods are packed, as runs of equal pods. `runs` int64[n, 3]: (class, first
    pod, last pod + 1). `owner` int64[pods]: the index in `Problem.wanted` to which a pod belongs.
    """

    runs: Column
    owner: Column


class PackingProblem:
    """The arrays of one problem for the kernels (`KernelTables`), and the orders in which its pods
    can be packed (`queue`, `by_worth`)."""

    def __init__(self, problem: Problem, type_index: InstanceTypeIndex | None = None) -> None:
        """Builds the arrays for the packing loops from `problem` (wanted pods, nodes, pools,
        instance types).

        `type_index`: a cache of the templates of the pools and of what is computed from them; it
        must have been built from the same instance types, overlays, daemons and sold-out offerings
        as `problem`. None: a new cache is built. Raises OverlayError if an overlay's price cannot
        be parsed.
        """
        self.problem = problem
        self.type_index = type_index or InstanceTypeIndex.of(problem)
        assert self.type_index.serves(problem), (
            "a problem of other catalogues than the type_index's"
        )
        self.templates = self.type_index.templates(problem.pools)
        namespaces = {n.name: n.labels for n in problem.objects.namespaces}
        self.topology = Topology(namespaces)
        startup = [t for p in problem.pools for t in p.startup_taints]
        self._startup = {(t.key, t.effect) for t in startup}
        self.shapes = Shapes(
            self.topology, problem.objects, problem.options, prefers_away(self.templates)
        )
        self.impossible: dict[int, str] = {}
        self._classes(problem.wanted)
        self._standing = [p for p in problem.pods if p.node and p.node not in problem.avoid]
        for pod in self._standing:
            self.topology.know(pod.requirements.traits)
        for claim in problem.in_flight:
            for requirements, _ in claim.pods:
                self.topology.know(requirements.traits)
        self.shapes.finish()
        self._lay_domains()
        self._lay_shapes()
        self._lay_fixed()
        self._count_standing()
        self._weigh()
        self.opens = np.full(
            (max(len(self.templates), 1), max(len(self.shapes.needs), 1)), UNKNOWN, dtype=np.int64
        )
        self.refusals: dict[tuple[int, int], str] = {}

    # --- pods

    def _classes(self, wanted: Sequence[WantedPods]) -> None:
        """Assigns each entry of `wanted` the number of its class in `class_of`, and stores the
        requested amounts of each class in `ask`, int64[classes, resources].

        Two pods have the same class if they have equal requested amounts and an equal shape. The
        shape is all other requirements. Example: pods of 1 CPU and pods of 2 CPU with the same node
        selector have one shape and two classes. A pod that can never run on a node gets class -1,
        and the reason goes to `impossible`.

        `resources` gets the names of the columns: cpu, memory, pods, then other node resources that
        some pod requests. If a node limits how many volumes of a CSI driver it attaches, the number
        of these volumes is a column too. The last row of `ask` is zero: a pod that requests
        nothing.
        """
        named: set[str] = set()
        for one in wanted:
            named.update(one.requirements.requests)
        more = sorted(n for n in named - {"cpu", "memory", "pods"} if is_of_nodes(n))
        bounded = {driver for node in self.problem.objects.csi_nodes for driver in node.limits}
        attached = {
            d for one in wanted for d, _ in self._attached(one.requirements) if d in bounded
        }
        more += sorted(ATTACHED + driver for driver in attached)
        self.resources = ("cpu", "memory", "pods", *more)
        column = {name: i for i, name in enumerate(self.resources)}
        numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self.class_of: list[int] = []
        asks: list[tuple[int, ...]] = []
        shape_of: list[int] = []
        for at, one in enumerate(wanted):
            shape = self.shapes.first(one.requirements)
            if isinstance(shape, str):
                self.impossible[at] = shape
                self.class_of.append(-1)
                continue
            ask = [0] * len(self.resources)
            for name, amount in one.requirements.requests.items():
                if name in column:
                    ask[column[name]] = min(max(amount, 0), AMOUNT_MAX)
            for driver, _ in self._attached(one.requirements):
                if ATTACHED + driver in column:
                    ask[column[ATTACHED + driver]] += 1
            ask[2] = 1
            key = shape, tuple(ask)
            cls = numbers.setdefault(key, len(numbers))
            if cls == len(asks):
                asks.append(key[1])
                shape_of.append(shape)
            self.class_of.append(cls)
        # The last row is of a pod that asks for nothing.
        asks.append((0,) * len(self.resources))
        self.ask = np.array(asks, dtype=np.int64).reshape(len(asks), len(self.resources))
        self.shape_of = np.array(shape_of, dtype=np.int64)

    def _attached(self, requirements: Requirements) -> Iterator[tuple[str, str]]:
        """Yields (CSI driver, volume handle) for each volume of a pod. If several wanted pods share
        a volume, it counts once for each of them."""
        volumes = requirements.traits.volumes
        for name in dict.fromkeys(use.claim for use in volumes if use.claim) if volumes else ():
            claim = self.problem.objects.claim(requirements.traits.home, name)
            found = attachment(self.problem.objects, claim) if claim is not None else None
            if found is not None:
                yield found

    def _attachable(self, node: Node, pods: Sequence[Pod]) -> Iterator[tuple[int, int]]:
        """Yields (column, how many more volumes the node can attach) for each CSI driver that has a
        resource column. `pods`: the pods on the node."""
        limits = self.problem.objects.csi_node(node.name)
        there = {found for pod in pods for found in self._attached(pod.requirements)}
        for at, name in enumerate(self.resources):
            if name.startswith(ATTACHED):
                driver = name.removeprefix(ATTACHED)
                limit = limits.limits.get(driver, AMOUNT_MAX) if limits is not None else AMOUNT_MAX
                yield at, limit - sum(d == driver for d, _ in there)

    def _lay_domains(self) -> None:
        nodes = [n.labels for n in self.problem.nodes if n.name not in self.problem.avoid]
        asked = [need.labels for need in self.shapes.needs]
        claims = [LabelSet.of_pool(c.requirements) for c in self.problem.in_flight]
        self.domains = domains_of(self.topology.keys, self.templates, nodes, (*asked, *claims))
        self.states = States(
            self.type_index,
            self.templates,
            self.shapes.needs,
            self.topology.filters,
            self.domains,
            self.resources,
            self.problem.options.min_values == "Strict",
        )
        codes = {key: i for i, key in enumerate(self.topology.keys)}
        self.key_code = codes
        starts = [0] * (len(codes) + 1)
        for key, _ in self.domains:
            starts[codes[key] + 1] += 1
        self.key_at = np.cumsum(np.array(starts, dtype=np.int64))

    def _lay_shapes(self) -> None:
        host: list[tuple[int, ...]] = []
        zone: list[tuple[int, ...]] = []
        bump: list[tuple[int, ...]] = []
        host_at, zone_at, bump_at = [0], [0], [0]
        for shape in self.shapes.shapes:
            for row in shape.rows:
                g, itself = row.group, int(row.itself)
                if g.of_host:
                    host.append(
                        (g.number, g.kind, row.skew - itself if g.kind == SPREAD else itself, 0)
                    )
                else:
                    key = self.key_code[g.key]
                    zone.append((key, g.number, g.kind, row.skew, itself, row.min_domains))
            bump += [self._bump(g) for g in shape.bumps]
            host_at.append(len(host))
            zone_at.append(len(zone))
            bump_at.append(len(bump))
        self.need_of = np.array([s.need for s in self.shapes.shapes], dtype=np.int64)
        self.next_of = np.array([s.next for s in self.shapes.shapes], dtype=np.int64)
        self.host, self.host_at = _rows(host, 4), np.array(host_at, dtype=np.int64)
        self.zone, self.zone_at = _rows(zone, 6), np.array(zone_at, dtype=np.int64)
        self.bump, self.bump_at = _rows(bump, 4), np.array(bump_at, dtype=np.int64)

    def _bump(self, group: TopologyGroup) -> tuple[int, ...]:
        if group.of_host:
            return group.number, -1, group.filter, group.kind
        return group.number, self.key_code[group.key], group.filter, int(group.everywhere)

    # --- what is there

    def _lay_fixed(self) -> None:
        """Fills `fixed` with the bins that exist before packing. A bin is a node on which pods are
        packed.

        First come the bins of existing nodes: initialized nodes, then the other nodes, both sorted
        by name. Unschedulable nodes get no bin, nor do nodes that count as removed (`avoid` of the
        problem). Then come the bins of pending nodes (node claims without a node yet), those with
        the fewest pods first, then by name. A pending node whose pool or instance types no longer
        exist gets no bin.
        """
        problem = self.problem
        on: dict[str, list[Pod]] = {}
        for pod in self._standing:
            on.setdefault(pod.node, []).append(pod)
        self._on = on
        able = [n for n in problem.nodes if n.name not in problem.avoid and not n.unschedulable]
        able.sort(key=lambda n: (n.name in problem.not_initialized, n.name))
        keys = self._keys_looked_at()
        self.fixed = [self._fixed_node(node, on.get(node.name, ()), keys) for node in able]
        by_pool = {t.name: i for i, t in enumerate(self.templates)}
        claims = sorted(
            problem.in_flight, key=lambda c: (sum(count for _, count in c.pods), c.claim)
        )
        self._in_flight: list[InFlight] = []
        for claim in claims:
            made = self._fixed_claim(claim, by_pool)
            if made is not None:
                self.fixed.append(made)
                self._in_flight.append(claim)

    def _keys_looked_at(self) -> frozenset[str]:
        keys = {key for need in self.shapes.needs for key in need.labels}
        for chosen in self.topology.filters:
            keys.update(key for labels in chosen.alternatives or () for key in labels)
        return frozenset(keys | set(self.topology.keys))

    def _there(self, node: Node, keys: frozenset[str], free: tuple[int, ...] = ()) -> There:
        """Returns the labels, taints and free devices of an existing node as its state (`There`).

        Only labels at `keys` are kept. So nodes that differ only in labels that no pod looks at get
        equal states. If the node is not initialized yet, its startup taints and its not-ready
        taints are left out, because they will be removed. `free`: free thousandths of each device,
        in the order of the node's devices; empty: the state has no devices.
        """
        labels = LabelSet(
            (key, values) for key, values in LabelSet.of_node(node).items() if key in keys
        )
        taints = node.taints
        if node.name in self.problem.not_initialized:
            taints = tuple(
                t for t in taints if t.key not in NOT_YET and (t.key, t.effect) not in self._startup
            )
        return There(labels, taints, node.devices if free else (), free)

    def _fixed_node(self, node: Node, pods: Sequence[Pod], keys: frozenset[str]) -> Fixed:
        amounts, devices = still_to_come(node, pods, self.problem.objects.daemons)
        free = self._amounts(node.allocatable)
        if "pods" not in node.allocatable:
            free[2] = AMOUNT_MAX
        free -= self._amounts(amounts)
        for pod in pods:
            free -= self._of_pod(pod)
        for at, amount in self._attachable(node, pods):
            free[at] = amount
        left: tuple[int, ...] = ()
        if node.devices:
            whole = free_of(node.devices, pods)
            for index, milli in take(node.devices, whole, devices) or ():
                whole[index] -= milli
            left = tuple(whole)
        return Fixed(node.name, "", self.states.number(self._there(node, keys, left)), free)

    def _of_pod(self, pod: Pod) -> Column:
        found = self._amounts(pod.requirements.requests)
        found[2] = 1
        return found

    def _amounts(self, amounts: Mapping[str, int]) -> Column:
        return np.array(
            [min(amounts.get(name, 0), AMOUNT_MAX) for name in self.resources], dtype=np.int64
        )

    def _fixed_claim(self, claim: InFlight, by_pool: Mapping[str, int]) -> Fixed | None:
        """Returns the bin of a pending node (a node claim without a node yet), or None if its pool
        or all of its instance types no longer exist. A pending node without a bin takes no pods.

        The pending node may become any of its instance types. So the free amount of each resource
        is the minimum over these types, less the requests of the pods that the node is reserved
        for. Example: types with room for 4 and for 8 CPU, one reserved pod of 1 CPU: 3 CPU are
        free. `by_pool`: pool -> index of the pool's template (what its new nodes look like).
        """
        at = by_pool.get(claim.pool)
        if at is None:
            return None
        template = self.templates[at]
        among = np.zeros(len(template.types), dtype=np.bool_)
        among[
            [
                template.types.row[name]
                for name in claim.instance_types
                if name in template.types.row
            ]
        ] = True
        if not among.any():
            return None
        room: Column = self.states.room_of(at)[among].min(axis=0)
        devices = []
        for requirements, count in claim.pods:
            ask = self._amounts(requirements.requests)
            ask[2] = 1
            room = room - count * ask
            devices += [request for request in requirements.devices for _ in range(count)]
        labels = LabelSet.of_pool(claim.requirements).intersect(template.labels)
        return Fixed(
            "",
            claim.claim,
            self.states.number(Coming(at, labels, among.tobytes(), tuple(devices))),
            room,
        )

    def _count_standing(self) -> None:
        """Sets the topology counters to the pods that are there before packing: the pods on
        existing nodes, and the pods that pending nodes are reserved for.

        A topology group is the set of pods that one topology spread, affinity or anti-affinity
        counts, or that use one host port. `hosts` [groups, nodes] counts the pods of a group on
        each existing and pending node, and `host_total` on all of them. `counts` [groups, domains]
        counts the pods of a group in each domain (such as a zone), and `total` in all domains. Also
        sets `universe` [groups, domains]: 1 for each domain that a topology spread compares.
        """
        topology = self.topology
        hosts, zones = max(len(topology.host), 1), max(len(topology.zone), 1)
        self.hosts = np.zeros((hosts, len(self.fixed)), dtype=np.int32)
        self.host_total = np.zeros(hosts, dtype=np.int64)
        self.counts = np.zeros((zones, max(len(self.domains), 1)), dtype=np.int64)
        self.total = np.zeros(zones, dtype=np.int64)
        bins = {f.node: i for i, f in enumerate(self.fixed) if f.node}
        keys = self._keys_looked_at()
        code = {domain: i for i, domain in enumerate(self.domains)}
        if topology.host or topology.zone:
            for node in self.problem.nodes:
                if node.name in self.problem.avoid:
                    continue
                state = self.states.number(self._there(node, keys))
                for pod in self._on.get(node.name, ()):
                    groups = topology.counting(pod.requirements.traits, pod.terminating)
                    self._count(groups, state, bins.get(node.name, -1), 1)
            for i, claim in enumerate(self._in_flight, start=len(bins)):
                for requirements, count in claim.pods:
                    groups = topology.counting(requirements.traits)
                    self._count(groups, self.fixed[i].state, i, count)
        self.universe = np.zeros((zones, max(len(self.domains), 1)), dtype=np.int8)
        for group in topology.zone:
            if group.kind == SPREAD:
                for key, value in self._universe(group, keys):
                    self.universe[group.number, code[key, value]] = 1

    def _count(self, groups: Iterable[TopologyGroup], state: int, bin: int, times: int) -> None:
        for group in groups:
            if not self.states.passes[group.filter, state]:
                continue
            if group.of_host:
                if bin >= 0:
                    self.hosts[group.number, bin] += times
                self.host_total[group.number] += times
                continue
            key = self.key_code[group.key]
            first, last = self.key_at[key], self.key_at[key + 1]
            allowed = np.flatnonzero(self.states.allows[state, first:last]) + first
            if len(allowed) == 1 or (group.everywhere and len(allowed)):
                self.counts[group.number, allowed] += times
                self.total[group.number] += times

    def _universe(self, group: TopologyGroup, keys: frozenset[str]) -> Iterable[tuple[str, str]]:
        """Returns the topology domains between which a spread constraint compares its counts, as
        sorted (topology key, value) pairs.

        These are the domains of existing nodes, and the domains in which pools can create nodes. A
        node that the node affinity policy or the node taints policy of the constraint excludes adds
        no domain. Example: nodes in zones a and b, a pool for zones b and c: a, b and c.

        `group`: the topology group of the constraint. `keys`: the node labels that some pod or
        constraint looks at.
        """
        chosen = self.topology.filters[group.filter]
        found: set[tuple[str, str]] = set()
        for node in self.problem.nodes:
            if node.name not in self.problem.avoid and group.key in node.labels:
                state = self.states.number(self._there(node, keys))
                if self.states.passes[group.filter, state]:
                    found.add((group.key, node.labels[group.key]))
        for at, template in enumerate(self.templates):
            start = New(at, template.labels, template.able.tobytes())
            number = self.states.number(start)
            if number == NO or not self.states.passes[group.filter, number]:
                continue
            for alternative in chosen.alternatives or (LabelSet(),):
                if template.labels.compatible(alternative, template.types.known):
                    labels = template.labels.intersect(alternative)
                    found.update(
                        (group.key, v)
                        for v in values_of(template, labels, group.key, template.able)
                    )
        return sorted(found & set(self.domains))

    # --- templates

    def _weigh(self) -> None:
        """Computes what the packing loops need to compare nodes and to check limits.

        - `weight`, `shift`: the price of one unit of each resource (see
          `InstanceTypeIndex.weights`).
        - `tier`: for each template (the new nodes of one pool) a number: 0 for the pools of the
          highest weight, 1 for the next weight, and so on.
        - `left`: what remains of the limits of each pool. `book`: how many instances are left of
          each capacity reservation.
        - `limited`: 1 for each template whose pool can use a capacity reservation, or could exceed
          a limit with one new node for each wanted pod. `_short`: the same, but the limit could be
          exceeded with a single new node.
        """
        self.weight, self.shift = self.type_index.weights(self.templates, self.resources)
        tiers: list[int] = []
        for i, template in enumerate(self.templates):
            new = i == 0 or template.pool.weight != self.templates[i - 1].pool.weight
            tiers.append((tiers[-1] + 1 if tiers else 0) if new else tiers[-1])
        self.tier = np.array(tiers or [0], dtype=np.int64)
        pods = sum(w.count for w in self.problem.wanted)
        self.left = [Left.of(t.pool, self.problem.used.get(t.name, {})) for t in self.templates]
        self.book = Reservations(t.types for t in self.templates)
        self.limited, self._short = self._limited(pods), self._limited(1)

    def _limited(self, nodes: int) -> Any:
        """Returns int8[templates]: 1 where every new node of a template has to be checked. That is
        where this number of new nodes could reach a limit of the pool, or where the pool can use
        reserved capacity."""
        found = [
            bool(_could_bind(left, t, nodes) or t.types.reservations)
            for left, t in zip(self.left, self.templates, strict=True)
        ]
        return np.array(found or [False], dtype=np.int8)

    # --- orders

    def queue(self) -> Order:
        """Returns the pods in Karpenter's order for first-fit decreasing: by cpu, then by memory,
        the largest first. Ties: the oldest first, then by name."""
        wanted = self.problem.wanted
        listed = [i for i in range(len(wanted)) if i not in self.impossible and wanted[i].count > 0]
        listed.sort(key=lambda i: (*self._size(i), wanted[i].created_us, wanted[i].name, i))
        return self._ordered(listed)

    def by_worth(self, dominant: bool) -> Order:
        """Returns the pods in the order in which they are packed. First come the pods that exclude
        each other on a node, because they determine the number of nodes. Then come all other pods.
        Each of the two parts is sorted by price, the highest first.

        The price of a pod is computed from its requests: each requested amount is multiplied by the
        price of its unit. The price of the pod is the sum of these products, or with `dominant` the
        largest of them. Example: CPU for $4 and memory for $3 an hour: $7, with `dominant` $4.

        Pods with equal prices are sorted by cpu and memory (largest first), then by the first name
        in the class, then by age (oldest first), then by name. Pods of one class are adjacent. If a
        pool could reach a limit, some pods may get no node. Then the pods are sorted by priority
        first; the order above applies within one priority.
        """
        wanted = self.problem.wanted
        tight = bool(self.limited.any())
        parts = self.weight * (self.ask >> self.shift)
        worth = parts.max(axis=1) if dominant else parts.sum(axis=1)
        listed = [i for i in range(len(wanted)) if i not in self.impossible and wanted[i].count > 0]
        keys: dict[int, tuple[object, ...]] = {}
        for name, i in sorted((wanted[i].name, i) for i in listed):
            cls = self.class_of[i]
            if cls not in keys:
                # of two classes alike in all that counts, the one with the first name goes first
                apart = self.shapes.shapes[int(self.shape_of[cls])].apart
                keys[cls] = (-int(apart), -int(worth[cls]), *self._size(i), name)
        listed.sort(
            key=lambda i: (
                -wanted[i].priority if tight else 0,
                *keys[self.class_of[i]],
                wanted[i].created_us,
                wanted[i].name,
                i,
            )
        )
        return self._ordered(listed)

    def _size(self, i: int) -> tuple[int, int]:
        ask = self.ask[self.class_of[i]]
        return -int(ask[0]), -int(ask[1])

    def _ordered(self, listed: Sequence[int]) -> Order:
        runs: list[list[int]] = []
        owner: list[int] = []
        for i in listed:
            cls, count = self.class_of[i], self.problem.wanted[i].count
            if runs and runs[-1][0] == cls:
                runs[-1][2] += count
            else:
                runs.append([cls, len(owner), len(owner) + count])
            owner += [i] * count
        return Order(_rows([tuple(r) for r in runs], 3), np.array(owner, dtype=np.int64))

    # --- packing

    def pack(self, order: Order, mode: int) -> PackingRun:
        """Packs the pods in the given order and returns the run with its result. `mode`:
        `FIRST_FIT` (each pod goes to the first node that can take it: existing nodes, then pending,
        then new) or `PRICED` (each pod goes where it raises the price least).

        Checking the limits of a pool for each new node is slow. So the first run checks only limits
        that a single node could exceed. If the run created so many nodes that another limit could
        be exceeded, all pods are packed again with all limits checked. Example: a limit of 100 CPU
        and types of at most 16 CPU. The limit is not checked at first. If 7 nodes were created,
        which may have 112 CPU, the pods are packed again.
        """
        loop = PackingRun(self, order, mode, self._short)
        loop.pack()
        states = loop.bins.state[len(self.fixed) : loop.bins.now[plain.BINS]]
        made = np.bincount(self.states.template_of[states], minlength=len(self.templates))
        for at in np.flatnonzero(self.limited != self._short):
            if _could_bind(self.left[at], self.templates[at], int(made[at])):
                loop = PackingRun(self, order, mode, self.limited)
                loop.pack()
                break
        return loop


def _could_bind(left: Left, template: Template, pods: int) -> bool:
    """Returns whether new nodes for this many pods could exceed a limit of the pool, with one node
    for each pod and each node as large as possible."""
    for name, amount in left.amounts.items():
        most = (
            1
            if name == NODES
            else int(template.types.capacity_of(name)[template.able].max(initial=0))
        )
        if most and amount < most * pods:
            return True
    return False


@dataclass(slots=True)
class PackingRun:
    """One run of one packing strategy over a `PackingProblem`, with its own counters, limits,
    reservations and bins. `pack` places the pods; `improve` runs the local search; `packed` returns
    the result. `limited` int8[templates]: 1 where each new node is checked against the limits of
    its pool."""

    packing: PackingProblem
    order: Order
    mode: int
    limited: Any
    left: list[Left] = field(init=False)
    book: Reservations = field(init=False)
    bins: Bins = field(init=False)
    hosts: Any = field(init=False)
    host_total: Any = field(init=False)
    counts: Any = field(init=False)
    total: Any = field(init=False)
    opens: Any = field(init=False)
    capacity: int = field(init=False)
    stuck: list[tuple[int, int, int]] = field(init=False)

    def pack(self) -> None:
        """Places all pods in the order of the run. Then tries the pods without a place again, until
        no further pod finds a place."""
        self._begin()
        self.stuck = self._place_all(self.order.runs)
        while self.stuck:
            again = self._place_all(_rows(self.stuck, 3))
            if again == self.stuck:
                break
            self.stuck = again

    @property
    def rank(self) -> tuple[int, int, int]:
        """Returns the quality of the result, smaller is better: (pods without a place, price,
        number of new nodes)."""
        return (
            sum(end - at for _, at, end in self.stuck),
            self._price(),
            int((self._new().pods > 0).sum()),
        )

    def _begin(self) -> None:
        packing, fixed = self.packing, len(self.packing.fixed)
        pods, r = len(self.order.owner), len(packing.resources)
        self.left, self.book = list(packing.left), packing.book.copy()
        self.capacity = fixed + min(pods, 256) + 2
        n = self.capacity

        def column(filler: int = 0) -> Column:
            return np.full(n, filler, dtype=np.int64)

        self.hosts = np.zeros((len(packing.hosts), n), dtype=np.int32)
        self.hosts[:, :fixed] = packing.hosts
        self.host_total, self.counts, self.total = (
            packing.host_total.copy(),
            packing.counts.copy(),
            packing.total.copy(),
        )
        self.opens = packing.opens.copy()
        self.opens[np.flatnonzero(self.limited)] = UNKNOWN
        now = np.zeros(20, dtype=np.int64)
        now[plain.FIXED] = now[plain.BINS] = fixed
        now[plain.MODE], now[plain.TEMPLATES] = self.mode, len(packing.templates)
        self.bins = Bins(
            column(),
            np.zeros((n, r), dtype=np.int64),
            np.zeros((n, r), dtype=np.int64),
            column(),
            column(),
            column(),
            column(-1),
            np.full(pods, -1, dtype=np.int64),
            np.full(pods, -1, dtype=np.int64),
            np.full(pods, -1, dtype=np.int64),
            np.full(pods, -1, dtype=np.int64),
            column(),
            column(),
            column(-9),
            column(),
            np.zeros(1, dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            now,
        )
        for i, there in enumerate(packing.fixed):
            self.bins.state[i] = there.state
            self.bins.free[i] = there.free
            self.bins.order[i] = i

    def _place_all(self, runs: Column) -> list[tuple[int, int, int]]:
        """Places pods with the compiled loop `place_all`. Returns the pods without a place as
        (class, first pod, last pod + 1).

        `runs` int64[n, 3]: pods of one class that are packed one after another, also as (class,
        first pod, last pod + 1). Example: of the run (4, 0, 10) the loop places 7 pods: returns (4,
        7, 10). The loop stops when it needs a value that is not computed yet, such as what a node
        becomes with a certain pod. This function computes the value and calls the loop again.
        """
        stuck = np.zeros(len(runs), dtype=np.int64)
        now = self.bins.now
        now[plain.RUN] = now[plain.WARM] = 0
        while not KERNELS.place_all(self._tables(), self._stamped(), runs, stuck):
            self._answer(int(now[plain.WANT]), int(now[plain.WANT_A]), int(now[plain.WANT_B]))
        return [
            (int(c), int(at), int(end))
            for (c, _, end), at in zip(runs, stuck, strict=True)
            if at < end
        ]

    def _tables(self) -> KernelTables:
        y, s = self.packing, self.packing.states
        return KernelTables(
            y.ask,
            y.shape_of,
            y.need_of,
            y.next_of,
            y.host_at,
            y.host,
            y.zone_at,
            y.zone,
            y.bump_at,
            y.bump,
            self.hosts,
            self.host_total,
            self.counts,
            self.total,
            y.universe,
            y.key_at,
            s.meet,
            s.narrow,
            s.allows,
            s.signature,
            self.opens,
            s.passes,
            s.row_at,
            s.row_end,
            s.row_alloc,
            s.row_price,
            s.roof,
            s.full_at,
            s.full_end,
            s.full_alloc,
            s.full_bits,
            s.least,
            y.weight,
            y.shift,
            y.tier,
            self.limited,
            s.template_of,
        )

    def _stamped(self) -> Bins:
        """Returns the bins. Their caches per state are lengthened before, if states were added."""
        if len(self.bins.stamp) < len(self.packing.states.signature):
            size = len(self.packing.states.signature)
            self.bins = self.bins._replace(
                resolved=np.zeros(size, dtype=np.int64), stamp=np.zeros(size, dtype=np.int64)
            )
        return self.bins

    def _answer(self, want: int, a: int, b: int) -> None:
        match want:
            case plain.MEET:
                self.packing.states.met(a, b)
            case plain.NARROW:
                self.packing.states.narrowed(a, b)
            case plain.OPEN:
                self._open(a, b)
            case plain.OPENED:
                self._opened(a, b)
            case plain.ROOM:
                self._more_room()
            case _:
                raise AssertionError(f"a loop of Solve stopped for no reason: {want}")

    def _more_room(self) -> None:
        old, n = self.capacity, 2 * self.capacity
        self.capacity = n
        replaced = {}
        for name in (
            "state",
            "used",
            "free",
            "row",
            "pods",
            "order",
            "last",
            "cost",
            "waste",
            "cost_state",
            "cost_row",
        ):
            array = getattr(self.bins, name)
            longer = np.zeros((n, *array.shape[1:]), dtype=np.int64)
            longer[:old] = array
            replaced[name] = longer
        replaced["last"][old - 1 :] = -1
        replaced["cost_state"][old - 1 :] = -9
        self.bins = self.bins._replace(**replaced)
        hosts = np.zeros((len(self.hosts), n), dtype=np.int32)
        hosts[:, :old] = self.hosts
        self.hosts = hosts

    # --- new nodes

    def _open(self, at: int, need: int) -> None:
        """Computes the state of a new node of a pool with its first pod, and stores the number of
        that state in `opens`. A state holds the labels, the possible instance types and the
        requested devices of a node. `opens` gets `NO` if no new node of the pool can take the pod;
        the reason then goes to `refusals`.

        `at`: index of the pool's template. `need`: what the first pod requires of a node (labels,
        tolerations, devices, host ports), as an index in `Shapes.needs`.
        """
        packing, template, asked = (
            self.packing,
            self.packing.templates[at],
            self.packing.shapes.needs[need],
        )
        state, refusal = NO, template.refusal(asked.tolerations, asked.labels)
        if not refusal:
            state, refusal = self._opening(at, template, need)
        self.opens[at, need] = state
        if not self.limited[at]:
            packing.opens[at, need] = state
        if refusal:
            packing.refusals[at, need] = refusal

    def _opening(self, at: int, template: Template, need: int) -> tuple[int, str]:
        packing, asked = self.packing, self.packing.shapes.needs[need]
        among: Mask = template.able
        if self.limited[at]:
            among = among & self.left[at].within(template.types)
        labels = template.labels.intersect(asked.labels)
        if asked.ports:
            among = among & template.free_of(asked.ports)
        if template.types.reservations:
            usable = among & template.types.fitting(labels)
            strict = self.packing.problem.options.reserved_strict
            holds, refusal = reservations.to_hold(
                self.book, "", template.types, usable, labels, strict
            )
            if refusal:
                return NO, refusal
            labels = (
                reservations.launched(labels, holds) if holds else bought(labels, template, usable)
            )
        return packing.states.number(New(at, labels, among.tobytes(), asked.devices)), ""

    def _opened(self, bin: int, state: int) -> None:
        """Subtracts a new node from the limits and the capacity reservations of its pool.

        The instance type of the node is not known yet. So the largest amount that any of its
        possible types has is subtracted from each limit. Example: types with 4 and with 16 CPU are
        possible: 16 CPU are subtracted. The node holds one instance of every reservation that it
        could use.

        Afterwards less is left for further nodes of limited pools. So the states in `opens` of new
        nodes of these pools are set to unknown, and are computed again when they are needed. `bin`:
        the new node. `state`: the number of its state (labels, possible instance types, devices).
        """
        packing = self.packing
        opened = packing.states.states[state]
        assert isinstance(opened, New)
        template = packing.templates[opened.template]
        rows = packing.states.remaining(opened) & (
            packing.states.room_of(opened.template) >= self.bins.used[bin]
        ).all(axis=1)
        self.left[opened.template] = self.left[opened.template].after(template.types, rows)
        if template.types.reservations:
            usable = reservations.fitting(template.types, rows, opened.labels)
            self.book.hold(f"new {bin}", self.book.could_hold(f"new {bin}", usable))
        for at in np.flatnonzero(self.limited[: len(packing.templates)]):
            self.opens[at] = UNKNOWN

    # --- the end

    def improve(self) -> None:
        """Lowers the total price of the new nodes by local search: moves pods between new nodes as
        long as a move lowers the price, up to `STEPS_MAX` examined nodes.

        For each node, the amounts by which its pods exceed the next cheaper instance type are added
        up, each times the price of its unit. Nodes with the lowest sum are tried first. Example: a
        node with pods of 9 CPU exceeds the cheaper 8-CPU type by 1 CPU, a node with pods of 12 CPU
        by 4. The first node is tried first.
        """
        now, pods = self.bins.now, len(self.order.owner)
        if now[plain.BINS] == now[plain.FIXED]:
            return
        self._meet_all()
        KERNELS.improve(
            self._tables(),
            self._stamped(),
            STEPS_MAX,
            self._by_excess(),
            np.zeros(pods, dtype=np.int64),
            np.zeros((pods, 3), dtype=np.int64),
        )

    def _by_excess(self) -> Column:
        """Returns the new nodes in the order in which the local search tries them: those that come
        closest to a cheaper instance type first. The distance is the value of the amounts by which
        a node's pods exceed the next cheaper type."""
        first, end = int(self.bins.now[plain.FIXED]), int(self.bins.now[plain.BINS])
        states, packing = self.packing.states, self.packing
        below = np.maximum(self.bins.row[first:end] - 1, states.row_at[self.bins.state[first:end]])
        over = np.maximum(self.bins.used[first:end] - states.row_alloc[below], 0)
        worth = (packing.weight * (over >> packing.shift)).sum(axis=1)
        return np.asarray(np.argsort(worth, kind="stable") + first, dtype=np.int64)

    def _meet_all(self) -> None:
        """Computes for each new node and each need of the pods the state of the node after it takes
        a pod with that need. A need is what a pod requires of a node: labels, tolerations, devices,
        host ports. The results go to `States.meet`.

        The local search does not stop for missing results, so they must be there before it runs.
        Does nothing if there are more than `MEETINGS_MAX` (20,000) pairs of a node state and a
        need. Pairs that are not computed are then not tried by the local search.
        """
        states = self.packing.states
        there = {
            int(s) for s in self.bins.state[self.bins.now[plain.FIXED] : self.bins.now[plain.BINS]]
        }
        needs = {int(self.packing.need_of[s]) for s in self.bins.shape_at if s >= 0}
        if len(there) * len(needs) > MEETINGS_MAX:
            return
        for state in sorted(there):
            for need in sorted(needs):
                if states.meet[state, need] == UNKNOWN:
                    states.met(state, need)

    def _new(self) -> Bins:
        first, end = int(self.bins.now[plain.FIXED]), int(self.bins.now[plain.BINS])
        return self.bins._replace(row=self.bins.row[first:end], pods=self.bins.pods[first:end])

    def _price(self) -> int:
        new = self._new()
        return sum(self.packing.states.row_price[new.row[new.pods > 0]].tolist())

    def packed(self) -> Packed:
        n, bins = int(self.bins.now[plain.BINS]), self.bins
        return Packed(
            self.order.owner,
            bins.bin_of,
            bins.shape_at,
            bins.state[:n],
            bins.used[:n],
            bins.pods[:n],
            self._price(),
            self.left,
        )


MEETINGS_MAX = 20_000


def bought(labels: LabelSet, template: Template, usable: Mask) -> LabelSet:
    """Excludes reserved capacity from the labels of a new node, if its types at `usable`
    (bool[types]) have reserved offerings. Used for a node that gets no reservation."""
    if not reservations.fitting(template.types, usable, labels):
        return labels
    return labels.narrowed(CAPACITY_TYPE_LABEL, ValueSet(True, frozenset(("reserved",))))


def _rows(rows: Sequence[tuple[int, ...]], width: int) -> Column:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)
