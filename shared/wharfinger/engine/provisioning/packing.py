"""A problem as arrays, and one way after another to pack it.

`Yard` is made once: classes and shapes of pods, bins that are there, templates of those to be made, counts of what is there.
`pack` runs the loops over it in one order of pods and by one rule, and leaves the yard as it was but for what it has
learnt. A loop that needs to know what becomes of a node (`states`) stops and says so, and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL
from wharfinger.domain.resources import is_of_nodes
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.fit import free_of, take
from wharfinger.engine.framework.volumes import attachment
from wharfinger.engine.nodes.compiled import Compiler
from wharfinger.engine.nodes.readiness import NOT_YET
from wharfinger.engine.provisioning import kernels as plain
from wharfinger.engine.provisioning import reservations
from wharfinger.engine.provisioning.catalogue import AMOUNT_MAX, Column, Mask
from wharfinger.engine.provisioning.daemons import still_to_come
from wharfinger.engine.provisioning.kernels import SPREAD
from wharfinger.engine.provisioning.limits import NODES, Left
from wharfinger.engine.provisioning.problem import InFlight, Problem, Wanted
from wharfinger.engine.provisioning.requirements import LabelSet, ValueSet
from wharfinger.engine.provisioning.reservations import Reservations
from wharfinger.engine.provisioning.shapes import Shapes
from wharfinger.engine.provisioning.shop import ATTACHED, Shop
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
from wharfinger.engine.provisioning.topology import Group, Topology

STEPS_MAX = 8_000_000
"""So many nodes are looked at to make a packing cheaper, after which it is good enough."""

WORTH_COMPILING = 3_000_000
"""Looks at a node; the plain loops take some seconds for so many, as machine code does to be read or made."""

LOOKS_A_NODE = 20
"""So many looks here are as long as one of those by which it is told when to compile beside the plain loops."""


class Tables(NamedTuple):
    """See `kernels`."""

    ask: Any
    shape_of: Any
    need_of: Any
    next_of: Any
    host_at: Any
    host: Any
    zone_at: Any
    zone: Any
    bump_at: Any
    bump: Any
    hosts: Any
    host_total: Any
    counts: Any
    total: Any
    universe: Any
    key_at: Any
    meet: Any
    narrow: Any
    allows: Any
    signature: Any
    opens: Any
    passes: Any
    row_at: Any
    row_end: Any
    row_alloc: Any
    row_price: Any
    roof: Any
    full_at: Any
    full_end: Any
    full_alloc: Any
    full_bits: Any
    least: Any
    weight: Any
    shift: Any
    tier: Any
    limited: Any
    template_of: Any


class Bins(NamedTuple):
    """See `kernels`."""

    state: Any
    used: Any
    free: Any
    row: Any
    pods: Any
    order: Any
    last: Any
    before: Any
    bin_of: Any
    shape_at: Any
    class_at: Any
    cost: Any
    waste: Any
    cost_state: Any
    cost_row: Any
    resolved: Any
    stamp: Any
    now: Any


@dataclass(frozen=True, slots=True)
class Fixed:
    """A bin that is there: `node`, else `claim` on its way."""

    node: str
    claim: str
    state: int
    free: Column


@dataclass(slots=True)
class Packed:
    """What came of one way to pack. `owner` [pods]: which of the wanted each is; `bin_of`, `shape_at` [pods]: -1 where it is
    nowhere. `state`, `used`, `pods`: of the bins. `price`: of all that are new. `left`: of the pools' limits."""

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
    """Runs of equal pods in the order in which they are tried. `runs` [n, 3]: class, first pod, last + 1; `owner` [pods]."""

    runs: Column
    owner: Column


class Yard:
    """See the module."""

    def __init__(self, problem: Problem, shop: Shop | None = None) -> None:
        """`shop`: laid out for such problems; one of its own without."""
        self.problem = problem
        self.shop = shop or Shop.of(problem)
        assert self.shop.serves(problem), "a problem of other catalogues than the shop's"
        self.templates = self.shop.templates(problem.pools)
        namespaces = {n.name: n.labels for n in problem.objects.namespaces}
        self.topology = Topology(namespaces)
        startup = [t for p in problem.pools for t in p.startup_taints]
        self._startup = {(t.key, t.effect) for t in startup}
        self.shapes = Shapes(self.topology, problem.objects, problem.options, prefers_away(self.templates))
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
        self.opens = np.full((max(len(self.templates), 1), max(len(self.shapes.needs), 1)), UNKNOWN, dtype=np.int64)
        self.refusals: dict[tuple[int, int], str] = {}

    # --- pods

    def _classes(self, wanted: Sequence[Wanted]) -> None:
        """Each of the wanted has a class: a shape and its amounts."""
        named: set[str] = set()
        for one in wanted:
            named.update(one.requirements.requests)
        more = sorted(n for n in named - {"cpu", "memory", "pods"} if is_of_nodes(n))
        bounded = {driver for node in self.problem.objects.csi_nodes for driver in node.limits}
        attached = {d for one in wanted for d, _ in self._attached(one.requirements) if d in bounded}
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
        """CSI driver and handle of each volume of a pod. One that several pods share counts for each of those that come."""
        volumes = requirements.traits.volumes
        for name in dict.fromkeys(use.claim for use in volumes if use.claim) if volumes else ():
            claim = self.problem.objects.claim(requirements.traits.home, name)
            found = attachment(self.problem.objects, claim) if claim is not None else None
            if found is not None:
                yield found

    def _attachable(self, node: Node, pods: Sequence[Pod]) -> Iterator[tuple[int, int]]:
        """For each column of volumes, how many more the node takes."""
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
            self.shop, self.templates, self.shapes.needs, self.topology.filters, self.domains, self.resources,
            self.problem.options.min_values == "Strict",
        )  # fmt: skip
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
                    host.append((g.number, g.kind, row.skew - itself if g.kind == SPREAD else itself, 0))
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

    def _bump(self, group: Group) -> tuple[int, ...]:
        if group.of_host:
            return group.number, -1, group.filter, group.kind
        return group.number, self.key_code[group.key], group.filter, int(group.everywhere)

    # --- what is there

    def _lay_fixed(self) -> None:
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
        claims = sorted(problem.in_flight, key=lambda c: (sum(count for _, count in c.pods), c.claim))
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
        """Nodes that nobody can tell apart are the same."""
        labels = LabelSet((key, values) for key, values in LabelSet.of_node(node).items() if key in keys)
        taints = node.taints
        if node.name in self.problem.not_initialized:
            taints = tuple(t for t in taints if t.key not in NOT_YET and (t.key, t.effect) not in self._startup)
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
        return np.array([min(amounts.get(name, 0), AMOUNT_MAX) for name in self.resources], dtype=np.int64)

    def _fixed_claim(self, claim: InFlight, by_pool: Mapping[str, int]) -> Fixed | None:
        """It may become any of its types: what fits on each of them fits on it. One whose pool is gone takes nothing more."""
        at = by_pool.get(claim.pool)
        if at is None:
            return None
        template = self.templates[at]
        among = np.zeros(len(template.types), dtype=np.bool_)
        among[[template.types.row[name] for name in claim.instance_types if name in template.types.row]] = True
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
        return Fixed("", claim.claim, self.states.number(Coming(at, labels, among.tobytes(), tuple(devices))), room)

    def _count_standing(self) -> None:
        """Pods that are there, in the groups of their nodes and of the domains of those."""
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

    def _count(self, groups: Iterable[Group], state: int, bin: int, times: int) -> None:
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

    def _universe(self, group: Group, keys: frozenset[str]) -> Iterable[tuple[str, str]]:
        """The domains among which a spread compares: of nodes that its pods could be on, there or to be made."""
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
                    found.update((group.key, v) for v in values_of(template, labels, group.key, template.able))
        return sorted(found & set(self.domains))

    # --- templates

    def _weigh(self) -> None:
        """What amounts are worth, which pools go before which, and what bounds them."""
        self.weight, self.shift = self.shop.weights(self.templates, self.resources)
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
        """int8[templates]: 1 where each new node is counted, since so many could reach a limit, or capacity is reserved."""
        found = [
            bool(_could_bind(left, t, nodes) or t.types.reservations)
            for left, t in zip(self.left, self.templates, strict=True)
        ]
        return np.array(found or [False], dtype=np.int8)

    # --- orders

    def queue(self) -> Order:
        """Karpenter's: cpu, then memory, the most first, then the oldest, then by name."""
        wanted = self.problem.wanted
        listed = [i for i in range(len(wanted)) if i not in self.impossible and wanted[i].count > 0]
        listed.sort(key=lambda i: (*self._size(i), wanted[i].created_us, wanted[i].name, i))
        return self._ordered(listed)

    def by_worth(self, dominant: bool) -> Order:
        """What will not share a node with its like goes first, since it says how many nodes there are; then what takes the most: of
        all amounts together, or with `dominant` of the one it takes the most of. Equal pods are together. Where limits may leave
        some without a place, the more important go before all others."""
        wanted = self.problem.wanted
        tight = bool(self.limited.any())
        parts = self.weight * (self.ask >> self.shift)
        worth = parts.max(axis=1) if dominant else parts.sum(axis=1)
        listed = [i for i in range(len(wanted)) if i not in self.impossible and wanted[i].count > 0]
        keys: dict[int, tuple[object, ...]] = {}
        for name, i in sorted((wanted[i].name, i) for i in listed):
            cls = self.class_of[i]
            if cls not in keys:  # of two classes alike in all that counts, the one with the first name goes first
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

    def kernels(self, pods: int) -> Any:
        looks = pods * (len(self.fixed) + pods // 4 + 1)
        if looks > WORTH_COMPILING:
            COMPILER.compile_now()
        return COMPILER.kernels(looks // LOOKS_A_NODE)

    def pack(self, order: Order, mode: int) -> Loop:
        """Limits are kept as each node is made only where they could be reached: it is first packed without those of which
        there seems to be plenty, and once more with them when that was not so."""
        loop = Loop(self, order, mode, self._short)
        loop.pack()
        states = loop.bins.state[len(self.fixed) : loop.bins.now[plain.BINS]]
        made = np.bincount(self.states.template_of[states], minlength=len(self.templates))
        for at in np.flatnonzero(self.limited != self._short):
            if _could_bind(self.left[at], self.templates[at], int(made[at])):
                loop = Loop(self, order, mode, self.limited)
                loop.pack()
                break
        return loop


def _could_bind(left: Left, template: Template, pods: int) -> bool:
    """Whether that many nodes, each as large as can be, would reach a limit."""
    for name, amount in left.amounts.items():
        most = 1 if name == NODES else int(template.types.capacity_of(name)[template.able].max(initial=0))
        if most and amount < most * pods:
            return True
    return False


@dataclass(slots=True)
class Loop:
    """One way to pack, from its begin to its end."""

    yard: Yard
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
        self._begin()
        self.stuck = self._place_all(self.order.runs)
        while self.stuck:
            again = self._place_all(_rows(self.stuck, 3))
            if again == self.stuck:
                break
            self.stuck = again

    @property
    def rank(self) -> tuple[int, int, int]:
        """The less, the better: pods without a place, price, nodes."""
        return sum(end - at for _, at, end in self.stuck), self._price(), int((self._new().pods > 0).sum())

    def _begin(self) -> None:
        yard, fixed = self.yard, len(self.yard.fixed)
        pods, r = len(self.order.owner), len(yard.resources)
        self.left, self.book = list(yard.left), yard.book.copy()
        self.capacity = fixed + min(pods, 256) + 2
        n = self.capacity

        def column(filler: int = 0) -> Column:
            return np.full(n, filler, dtype=np.int64)

        self.hosts = np.zeros((len(yard.hosts), n), dtype=np.int32)
        self.hosts[:, :fixed] = yard.hosts
        self.host_total, self.counts, self.total = yard.host_total.copy(), yard.counts.copy(), yard.total.copy()
        self.opens = yard.opens.copy()
        self.opens[np.flatnonzero(self.limited)] = UNKNOWN
        now = np.zeros(20, dtype=np.int64)
        now[plain.FIXED] = now[plain.BINS] = fixed
        now[plain.MODE], now[plain.TEMPLATES] = self.mode, len(yard.templates)
        self.bins = Bins(
            column(), np.zeros((n, r), dtype=np.int64), np.zeros((n, r), dtype=np.int64), column(), column(), column(), column(-1),
            np.full(pods, -1, dtype=np.int64), np.full(pods, -1, dtype=np.int64), np.full(pods, -1, dtype=np.int64),
            np.full(pods, -1, dtype=np.int64), column(), column(), column(-9), column(), np.zeros(1, dtype=np.int64),
            np.zeros(1, dtype=np.int64), now,
        )  # fmt: skip
        for i, there in enumerate(yard.fixed):
            self.bins.state[i] = there.state
            self.bins.free[i] = there.free
            self.bins.order[i] = i

    def _place_all(self, runs: Column) -> list[tuple[int, int, int]]:
        """The runs, or their ends, that found no place."""
        kernels = self.yard.kernels(len(self.order.owner))
        stuck = np.zeros(len(runs), dtype=np.int64)
        now = self.bins.now
        now[plain.RUN] = now[plain.WARM] = 0
        while not kernels.place_all(self._tables(), self._stamped(), runs, stuck):
            self._answer(int(now[plain.WANT]), int(now[plain.WANT_A]), int(now[plain.WANT_B]))
        return [(int(c), int(at), int(end)) for (c, _, end), at in zip(runs, stuck, strict=True) if at < end]

    def _tables(self) -> Tables:
        y, s = self.yard, self.yard.states
        return Tables(
            y.ask, y.shape_of, y.need_of, y.next_of, y.host_at, y.host, y.zone_at, y.zone, y.bump_at, y.bump, self.hosts,
            self.host_total, self.counts, self.total, y.universe, y.key_at, s.meet, s.narrow, s.allows, s.signature, self.opens,
            s.passes, s.row_at, s.row_end, s.row_alloc, s.row_price, s.roof, s.full_at, s.full_end, s.full_alloc, s.full_bits,
            s.least, y.weight, y.shift, y.tier, self.limited, s.template_of,
        )  # fmt: skip

    def _stamped(self) -> Bins:
        """With room for all states there are."""
        if len(self.bins.stamp) < len(self.yard.states.signature):
            size = len(self.yard.states.signature)
            self.bins = self.bins._replace(
                resolved=np.zeros(size, dtype=np.int64), stamp=np.zeros(size, dtype=np.int64)
            )
        return self.bins

    def _answer(self, want: int, a: int, b: int) -> None:
        match want:
            case plain.MEET:
                self.yard.states.met(a, b)
            case plain.NARROW:
                self.yard.states.narrowed(a, b)
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
            "state", "used", "free", "row", "pods", "order", "last", "cost", "waste", "cost_state", "cost_row"
        ):  # fmt: skip
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
        """Which state a new node of a template begins with for such a pod."""
        yard, template, asked = self.yard, self.yard.templates[at], self.yard.shapes.needs[need]
        state, refusal = NO, template.refusal(asked.tolerations, asked.labels)
        if not refusal:
            state, refusal = self._opening(at, template, need)
        self.opens[at, need] = state
        if not self.limited[at]:
            yard.opens[at, need] = state
        if refusal:
            yard.refusals[at, need] = refusal

    def _opening(self, at: int, template: Template, need: int) -> tuple[int, str]:
        yard, asked = self.yard, self.yard.shapes.needs[need]
        among: Mask = template.able
        if self.limited[at]:
            among = among & self.left[at].within(template.types)
        labels = template.labels.intersect(asked.labels)
        if asked.ports:
            among = among & template.free_of(asked.ports)
        if template.types.reservations:
            usable = among & template.types.fitting(labels)
            strict = self.yard.problem.options.reserved_strict
            holds, refusal = reservations.to_hold(self.book, "", template.types, usable, labels, strict)
            if refusal:
                return NO, refusal
            labels = reservations.launched(labels, holds) if holds else bought(labels, template, usable)
        return yard.states.number(New(at, labels, among.tobytes(), asked.devices)), ""

    def _opened(self, bin: int, state: int) -> None:
        """A new node counts against limits and reservations, as the most it may become."""
        yard = self.yard
        opened = yard.states.states[state]
        assert isinstance(opened, New)
        template = yard.templates[opened.template]
        rows = yard.states.remaining(opened) & (yard.states.room_of(opened.template) >= self.bins.used[bin]).all(axis=1)
        self.left[opened.template] = self.left[opened.template].after(template.types, rows)
        if template.types.reservations:
            usable = reservations.fitting(template.types, rows, opened.labels)
            self.book.hold(f"new {bin}", self.book.could_hold(f"new {bin}", usable))
        for at in np.flatnonzero(self.limited[: len(yard.templates)]):
            self.opens[at] = UNKNOWN

    # --- the end

    def improve(self) -> None:
        """Moves pods between new nodes as long as that saves something. Nodes that need to lose the least go first."""
        now, pods = self.bins.now, len(self.order.owner)
        if now[plain.BINS] == now[plain.FIXED]:
            return
        self._meet_all()
        self.yard.kernels(pods).improve(
            self._tables(), self._stamped(), STEPS_MAX, self._by_excess(), np.zeros(pods, dtype=np.int64),
            np.zeros((pods, 3), dtype=np.int64),
        )  # fmt: skip

    def _by_excess(self) -> Column:
        """New nodes by how much more is on them than the next cheaper type holds."""
        first, end = int(self.bins.now[plain.FIXED]), int(self.bins.now[plain.BINS])
        states, yard = self.yard.states, self.yard
        below = np.maximum(self.bins.row[first:end] - 1, states.row_at[self.bins.state[first:end]])
        over = np.maximum(self.bins.used[first:end] - states.row_alloc[below], 0)
        worth = (yard.weight * (over >> yard.shift)).sum(axis=1)
        return np.asarray(np.argsort(worth, kind="stable") + first, dtype=np.int64)

    def _meet_all(self) -> None:
        """Moving stops for nothing, so what it may ask is looked up first: the states that nodes have, and those next to them."""
        states = self.yard.states
        there = {int(s) for s in self.bins.state[self.bins.now[plain.FIXED] : self.bins.now[plain.BINS]]}
        needs = {int(self.yard.need_of[s]) for s in self.bins.shape_at if s >= 0}
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
        return sum(self.yard.states.row_price[new.row[new.pods > 0]].tolist())

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
    """A node that may not have reserved capacity is bought beside it."""
    if not reservations.fitting(template.types, usable, labels):
        return labels
    return labels.narrowed(CAPACITY_TYPE_LABEL, ValueSet(True, frozenset(("reserved",))))


def _rows(rows: Sequence[tuple[int, ...]], width: int) -> Column:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)


def _warm(kernels: Any) -> None:
    """Every loop once."""
    from wharfinger.engine.provisioning.warm import pack_everything

    pack_everything(kernels)


COMPILER = Compiler(_warm, plain)
