"""A second opinion on solutions of provisioning: pod by pod, type by type, by plain rules, with
overlays, daemons, reservations.

`provisioning_oracle` looks at the end from the nodes' side; this asks of each claim whether all it
says is true. Of what finds solutions nothing is used but the algebra of labels, overlays, and which
daemons come, which have tests of their own. `cheapest` tries every way to share out a few pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from wharfinger.domain.instance_types import InstanceType, Offering
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.pod_traits import PodTraits, TopologySpread, clash
from wharfinger.domain.resources import DEVICE_MILLI, is_of_nodes
from wharfinger.domain.taints import Effect, Taint, first_untolerated
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.fit import free_of, take
from wharfinger.engine.framework.pod_terms import others_term, own_term, spread_selector
from wharfinger.engine.provisioning.daemons import still_to_come, tolerates
from wharfinger.engine.provisioning.launch import LAUNCHED_MAX
from wharfinger.engine.provisioning.overlays import (
    BOUGHT,
    RESERVATION_LABEL,
    concerning,
    described_by,
    ordered,
    overlaid,
    type_labels,
)
from wharfinger.engine.provisioning.problem import NewClaim, Problem, Solution
from wharfinger.engine.provisioning.requirements import WELL_KNOWN, LabelSet, ValueSet
from wharfinger.engine.provisioning.templates import labels_of

HOSTNAME = "kubernetes.io/hostname"
HARD: tuple[Effect, ...] = ("NoSchedule", "NoExecute")
FIRST = ("reserved", "spot", "on-demand")


def second_opinion(problem: Problem, solution: Solution) -> list[str]:
    """What is wrong with it, a line each."""
    return list(_Looking(problem, solution).faults())


@dataclass(frozen=True, slots=True)
class Seat:
    """A pod on a node; `new`: the solution put it there."""

    pod: Requirements
    new: bool


@dataclass(slots=True)
class Place:
    """A node in the end. `may_be`: label -> what it could have."""

    name: str
    seats: list[Seat]
    may_be: Mapping[str, frozenset[str]]
    taints: Sequence[Taint]
    there: bool

    def domain(self, key: str) -> frozenset[str]:
        return frozenset((self.name,)) if key == HOSTNAME else self.may_be.get(key, frozenset())


class PoolOf:
    """A pool with its instance types as overlays leave them."""

    def __init__(self, problem: Problem, pool: NodePoolPolicy) -> None:
        self.problem, self.pool = problem, pool
        self.labels = labels_of(pool).without(HOSTNAME)
        types = problem.types.get(pool.catalogue, ())
        self.described = described_by(types)
        laid = ordered(concerning(problem.overlays, labels_of(pool), self.described.union(BOUGHT)))
        self.types = {t.name: overlaid(t, laid).type for t in types}

    def suited(self, found: InstanceType, labels: LabelSet) -> bool:
        own = type_labels(found)
        for key, values in labels.items():
            if key in own:
                if not any(values.allows(v) for v in own.of(key).values):
                    return False
            elif key in self.described and not values.optional:
                return False
        return True

    def offers(self, found: InstanceType, labels: LabelSet) -> list[Offering]:
        return [
            o
            for o in found.offerings
            if o.available
            and (o.capacity_type != "reserved" or o.left > 0)
            and (found.name, o.zone, o.capacity_type) not in self.problem.sold_out
            and labels.of(ZONE_LABEL).allows(o.zone)
            and labels.of(CAPACITY_TYPE_LABEL).allows(o.capacity_type)
            and labels.of(RESERVATION_LABEL).allows(o.reservation or None)
        ]

    def values(self, found: InstanceType, key: str, labels: LabelSet) -> set[str]:
        """Which values of a label nodes of the type may have."""
        offers = self.offers(found, labels)
        match key:
            case "topology.kubernetes.io/zone":
                values = {o.zone for o in offers}
            case "karpenter.sh/capacity-type":
                values = {str(o.capacity_type) for o in offers}
            case _:
                values = (
                    set(type_labels(found).of(key).values) if key in type_labels(found) else set()
                )
        return {v for v in values if labels.of(key).allows(v)}

    def holds(self, found: InstanceType, pods: Sequence[Requirements]) -> bool:
        daemons = [
            d.requirements
            for d in self.problem.objects.daemons
            if self.comes(found, d.requirements)
        ]
        room = room_of(found)
        if any(amount > room.get(r, 0) for r, amount in summed([*pods, *daemons]).items()):
            return False
        devices = [d for pod in (*daemons, *pods) for d in pod.devices]
        if devices and take(found.devices, [DEVICE_MILLI] * len(found.devices), devices) is None:
            return False
        taken = [port for d in daemons for port in d.traits.ports]
        return not any(clash(pod.traits.ports, taken) for pod in pods)

    def comes(self, found: InstanceType, daemon: Requirements) -> bool:
        room = room_of(found)
        if not tolerates(daemon, self.pool.taints) or any(
            n > room.get(r, 0) for r, n in summed([daemon]).items()
        ):
            return False
        if (
            daemon.devices
            and take(found.devices, [DEVICE_MILLI] * len(found.devices), daemon.devices) is None
        ):
            return False
        known = WELL_KNOWN | self.described | {RESERVATION_LABEL}
        return any(
            labels_of(self.pool).compatible(a, known)
            and self.suited(found, self.labels.intersect(a))
            for a in LabelSet.alternatives(daemon)
        )

    def nodes(
        self, found: InstanceType, labels: LabelSet, pods: Sequence[Requirements]
    ) -> Iterator[dict[str, str]]:
        """The labels of every node that may come of it, as far as the pods look at them."""
        looked_at = {
            key for pod in pods for alternative in LabelSet.alternatives(pod) for key in alternative
        }
        own = type_labels(found)
        for offering in self.offers(found, labels):
            fixed = {
                ZONE_LABEL: offering.zone,
                CAPACITY_TYPE_LABEL: offering.capacity_type,
                POOL_LABEL: self.pool.name,
            }
            if offering.reservation:
                fixed[RESERVATION_LABEL] = offering.reservation
            left: dict[str, list[str | None]] = {}
            for key in sorted(looked_at - set(fixed)):
                said = labels.get(key)
                if key in own:
                    left[key] = [v for v in sorted(own.of(key).values) if labels.of(key).allows(v)]
                elif said is not None and key not in self.described:
                    left[key] = ["(any)"] if said.complement else [*sorted(said.values)]
                    left[key] += [None] if said.optional else []
            for chosen in product(*left.values()):
                yield {
                    **fixed,
                    **{k: v for k, v in zip(left, chosen, strict=True) if v is not None},
                }


class _Looking:
    def __init__(self, problem: Problem, solution: Solution) -> None:
        self.problem, self.solution = problem, solution
        self.wanted = {w.name: w.requirements for w in problem.wanted}
        self.pools = {p.name: PoolOf(problem, p) for p in problem.pools}
        self.namespaces = {n.name: n.labels for n in problem.objects.namespaces}

    def faults(self) -> Iterator[str]:
        yield from self._accounts()
        for name, pods in self.solution.placed.items():
            yield from self._on_node(name, pods)
        for name, pods in self.solution.joined.items():
            yield from self._on_its_way(name, pods)
        for number, claim in enumerate(self.solution.claims):
            yield from (f"claim {number}: {fault}" for fault in self._claim(claim))
        yield from self._limits()
        yield from self._reservations()
        yield from self._each_other(list(self._places()))

    # --- how many, and where

    def _accounts(self) -> Iterator[str]:
        asked: Counter[str] = Counter()
        for wanted in self.problem.wanted:
            asked[wanted.name] += wanted.count
        found: Counter[str] = Counter()
        somewhere = (
            *self.solution.placed.values(),
            *self.solution.joined.values(),
            *(c.pods for c in self.solution.claims),
        )
        for pods in somewhere:
            if not pods or min(pods.values()) < 1:
                yield f"nobody is somewhere: {pods}"
            found.update(pods)
        for unplaced in self.solution.unplaced:
            found[unplaced.name] += unplaced.count
            if not unplaced.reason or unplaced.count < 1:
                yield f"{unplaced.name}: {unplaced.count} are left without a reason"
        if asked != found:
            yield f"{dict(asked)} were wanted and {dict(found)} are accounted for"

    def _on_node(self, name: str, pods: Mapping[str, int]) -> Iterator[str]:
        node = next((n for n in self.problem.nodes if n.name == name), None)
        if node is None or name in self.problem.avoid or node.unschedulable:
            yield f"{name}: takes no pods and got some"
            return
        for wanted in pods:
            if not suits(self.wanted[wanted], node.labels, name):
                yield f"{name}: {wanted} wants other labels"
            if first_untolerated(node.taints, self.wanted[wanted].tolerations, HARD) is not None:
                yield f"{name}: {wanted} does not tolerate it"
        there = [p for p in self.problem.pods if p.node == name]
        coming = self._each(pods)
        later, devices = still_to_come(node, there, self.problem.objects.daemons)
        total = summed([*(p.requirements for p in there), *coming])
        for resource, amount in summed(coming).items():
            room = node.allocatable.get(resource, 2**60 if resource == "pods" else 0)
            if amount and total[resource] + later.get(resource, 0) > room:
                yield (
                    f"{name}: {total[resource]} of {resource} and {later.get(resource, 0)} of "
                    f"daemons on {room}"
                )
        asked = [d for r in coming for d in r.devices]
        if asked and take(node.devices, free_of(node.devices, there), [*asked, *devices]) is None:
            yield f"{name}: its devices do not suffice"

    def _on_its_way(self, name: str, pods: Mapping[str, int]) -> Iterator[str]:
        claim = next((c for c in self.problem.in_flight if c.claim == name), None)
        if claim is None or claim.pool not in self.pools:
            yield f"{name}: is not on its way"
            return
        pool = self.pools[claim.pool]
        labels = pool.labels.intersect(LabelSet.of_pool(claim.requirements))
        seats = [*(r for r, count in claim.pods for _ in range(count)), *self._each(pods)]
        for found in (pool.types[t] for t in claim.instance_types if t in pool.types):
            if not pool.holds(found, seats):
                yield f"{name}: has no room should it become {found.name}"
            yield from (f"{name}: {fault}" for fault in self._unsuited(pool, found, labels, pods))
        yield from self._untolerated(pool, pods)

    def _claim(self, claim: NewClaim) -> Iterator[str]:
        pool = self.pools.get(claim.pool)
        if pool is None or pool.pool.replicas is not None:
            yield f"pool {claim.pool} makes no nodes"
            return
        names = claim.instance_types
        if not 0 < len(set(names)) == len(names) <= LAUNCHED_MAX or not set(names) <= set(
            pool.types
        ):
            yield f"names {len(names)} instance types"
            return
        said = LabelSet.of_pool(claim.requirements)
        labels = pool.labels.intersect(said)
        if labels.with_min_values(dict.fromkeys(labels.min_values, 0)) != said.with_min_values(
            dict.fromkeys(said.min_values, 0)
        ):
            yield "does not say all that its pool does"
        seats = self._each(claim.pods)
        offers: list[Offering] = []
        prices = []
        for found in (pool.types[t] for t in names):
            offered = pool.offers(found, labels)
            if not offered or not pool.suited(found, labels):
                yield f"cannot be launched as {found.name}"
                return
            offers += offered
            prices.append((min(o.price for o in offered), found.name))
            if not pool.holds(found, seats):
                yield f"has no room as {found.name}"
            yield from self._unsuited(pool, found, labels, claim.pods)
        if prices != sorted(prices):
            yield "does not name the cheapest first"
        if claim.price != prices[0][0]:
            yield f"costs {prices[0][0]}, not {claim.price}"
        first = min(FIRST.index(o.capacity_type) for o in offers)
        worst = max(o.price for o in offers if FIRST.index(o.capacity_type) == first)
        if claim.worst_price != worst:
            yield f"costs {worst} at worst, not {claim.worst_price}"
        yield from self._untolerated(pool, claim.pods)
        strict = self.problem.options.min_values == "Strict"
        for key, least in (pool.labels if strict else said).min_values.items():
            values = set().union(*(pool.values(pool.types[t], key, labels) for t in names))
            if len(values) < least:
                yield f"leaves {len(values)} of {least} values of {key}"
        for resource, amount in summed(seats).items():
            if claim.requests.get(resource, 0) < amount:
                yield (
                    f"asks for {claim.requests.get(resource, 0)} of {resource}, "
                    f"its pods for {amount}"
                )

    def _unsuited(
        self, pool: PoolOf, found: InstanceType, labels: LabelSet, pods: Mapping[str, int]
    ) -> Iterator[str]:
        for wanted in pods:
            pod = self.wanted[wanted]
            if not all(suits(pod, node, "") for node in pool.nodes(found, labels, [pod])):
                yield f"{wanted} wants other labels than it may have as {found.name}"

    def _untolerated(self, pool: PoolOf, pods: Mapping[str, int]) -> Iterator[str]:
        for wanted in pods:
            if (
                first_untolerated(pool.pool.taints, self.wanted[wanted].tolerations, HARD)
                is not None
            ):
                yield f"{wanted} does not tolerate pool {pool.pool.name}"

    def _each(self, pods: Mapping[str, int]) -> list[Requirements]:
        return [self.wanted[name] for name, count in pods.items() for _ in range(count)]

    # --- all claims together

    def _limits(self) -> Iterator[str]:
        for name, pool in self.pools.items():
            claims = [c for c in self.solution.claims if c.pool == name]
            used = self.problem.used.get(name, {})
            for resource, limit in pool.pool.limits.items():
                grown = sum(
                    1
                    if resource == "nodes"
                    else max(held(pool.types[t], resource) for t in c.instance_types)
                    for c in claims
                )
                if grown and used.get(resource, 0) + grown > limit:
                    yield (
                        f"pool {name}: {used.get(resource, 0)} + {grown} of {resource} beyond "
                        f"{limit}"
                    )

    def _reservations(self) -> Iterator[str]:
        left: dict[str, int] = {}
        for offering in (
            o
            for p in self.pools.values()
            for t in p.types.values()
            for o in t.offerings
            if o.reservation
        ):
            left[offering.reservation] = min(
                left.get(offering.reservation, offering.left), offering.left
            )
        for name, count in Counter(
            name for claim in self.solution.claims for name in claim.reserved
        ).items():
            if count > left.get(name, 0):
                yield f"reservation {name}: {count} promised of {left.get(name, 0)}"
        for number, claim in enumerate(self.solution.claims):
            pool, labels = self.pools[claim.pool], LabelSet.of_pool(claim.requirements)
            for o in (o for t in claim.instance_types for o in pool.offers(pool.types[t], labels)):
                if o.capacity_type == "reserved" and o.reservation not in claim.reserved:
                    yield (
                        f"claim {number}: counts on reservation {o.reservation} and is promised "
                        "none of it"
                    )

    # --- what pods mean to each other

    def _places(self) -> Iterator[Place]:
        for node in self.problem.nodes:
            if node.name not in self.problem.avoid:
                seats = [
                    Seat(p.requirements, False) for p in self.problem.pods if p.node == node.name
                ]
                seats += [
                    Seat(r, True) for r in self._each(self.solution.placed.get(node.name, {}))
                ]
                yield Place(
                    node.name,
                    seats,
                    {k: frozenset((v,)) for k, v in node.labels.items()},
                    node.taints,
                    True,
                )
        for flight in self.problem.in_flight:
            if flight.pool in self.pools:
                seats = [Seat(r, False) for r, count in flight.pods for _ in range(count)]
                seats += [
                    Seat(r, True) for r in self._each(self.solution.joined.get(flight.claim, {}))
                ]
                yield self._coming(
                    flight.claim, flight.pool, flight.requirements, flight.instance_types, seats
                )
        for number, claim in enumerate(self.solution.claims):
            seats = [Seat(r, True) for r in self._each(claim.pods)]
            yield self._coming(
                f"new {number}", claim.pool, claim.requirements, claim.instance_types, seats
            )

    def _coming(
        self,
        name: str,
        pool_name: str,
        said: Sequence[PoolRequirement],
        types: Sequence[str],
        seats: list[Seat],
    ) -> Place:
        pool = self.pools[pool_name]
        labels = pool.labels.intersect(LabelSet.of_pool(said))
        may_be = {key: values.values for key, values in labels.items() if not values.complement}
        for key in (*pool.described, ZONE_LABEL, CAPACITY_TYPE_LABEL):
            of_each = (pool.values(pool.types[t], key, labels) for t in types if t in pool.types)
            may_be[key] = frozenset(set().union(*of_each))
        return Place(name, seats, may_be, pool.pool.taints, False)

    def _each_other(self, places: Sequence[Place]) -> Iterator[str]:
        for place in places:
            for number, seat in enumerate(place.seats):
                others = [*place.seats[:number], *place.seats[number + 1 :]]
                if seat.new and clash(
                    seat.pod.traits.ports, [port for o in others for port in o.pod.traits.ports]
                ):
                    yield f"{place.name}: two pods take one port of the host"
                everybody = [
                    (p, s)
                    for p in places
                    for i, s in enumerate(p.seats)
                    if p is not place or i != number
                ]
                yield from self._apart(place, seat, everybody)
                if seat.new:
                    yield from self._near(place, seat, everybody)
                    yield from self._spread(places, place, seat)

    def _apart(
        self, place: Place, seat: Seat, everybody: Sequence[tuple[Place, Seat]]
    ) -> Iterator[str]:
        traits = seat.pod.traits
        for said in traits.anti_affinity:
            term = (
                own_term(said, traits, self.namespaces) if seat.new else others_term(said, traits)
            )
            for other, neighbour in everybody if term is not None else ():
                theirs = neighbour.pod.traits
                if (
                    (seat.new or neighbour.new)
                    and term is not None
                    and term.selects(theirs, self.namespaces.get(theirs.home, {}))
                    and place.domain(term.key) & other.domain(term.key)
                ):
                    yield (
                        f"{place.name} and {other.name}: pods that do not bear each other in one "
                        f"{term.key}"
                    )

    def _near(
        self, place: Place, seat: Seat, everybody: Sequence[tuple[Place, Seat]]
    ) -> Iterator[str]:
        traits = seat.pod.traits
        for said in traits.affinity:
            term, domain = own_term(said, traits, self.namespaces), place.domain(said.key)
            if term is None or len(domain) != 1:
                yield (
                    f"{place.name}: it is not known in which {said.key} it will be, "
                    "and it matters to its pods"
                )
                continue
            meant = [
                (p, s)
                for p, s in everybody
                if term.selects(s.pod.traits, self.namespaces.get(s.pod.traits.home, {}))
            ]
            if any(p.domain(said.key) == domain for p, _ in meant):
                continue
            # The first of a group that wants its own company goes anywhere; whoever it means may
            # have come elsewhere later.
            itself = term.selects(traits, self.namespaces.get(traits.home, {}))
            earlier = any(not s.new and len(p.domain(said.key)) == 1 for p, s in meant)
            if not itself or earlier:
                yield f"{place.name}: nobody is near a pod that wants company over {said.key}"

    def _spread(self, places: Sequence[Place], place: Place, seat: Seat) -> Iterator[str]:
        """Of the pods that came to a domain under a constraint the last one found it kept, and it
        is only kept better since: so at least one of them must find it kept now. Where others came
        that do not care, nothing can be said."""
        for constraint in (c for c in seat.pod.traits.spread if c.hard):
            domain = place.domain(constraint.key)
            if len(domain) != 1:
                yield (
                    f"{place.name}: it is not known in which {constraint.key} it will be, "
                    "and its pods are spread by it"
                )
                continue
            here = [
                s.pod for p in places if p.domain(constraint.key) & domain for s in p.seats if s.new
            ]
            careless = [pod for pod in here if constraint not in pod.traits.spread]
            if any(counts(constraint, seat.pod.traits, pod.traits) for pod in careless):
                continue
            mine = [pod for pod in here if constraint in pod.traits.spread]
            if not any(self._kept(places, next(iter(domain)), pod, constraint) for pod in mine):
                yield (
                    f"{place.name}: pods are spread over {constraint.key} by more than "
                    f"{constraint.max_skew}"
                )

    def _kept(
        self, places: Sequence[Place], domain: str, pod: Requirements, constraint: TopologySpread
    ) -> bool:
        key = constraint.key
        counted: Counter[str] = Counter()
        for place in places:
            where = place.domain(key)
            if len(where) == 1 and self._is_domain_to(place, pod, constraint):
                counted[next(iter(where))] += sum(
                    counts(constraint, pod.traits, s.pod.traits) for s in place.seats
                )
        if key == HOSTNAME:
            return counted[domain] <= constraint.max_skew
        possible = set(counted) | self._could_be(pod, constraint)
        least = (
            min(counted[name] for name in possible)
            if len(possible) >= constraint.min_domains
            else 0
        )
        return counted[domain] - least <= constraint.max_skew

    def _is_domain_to(self, place: Place, pod: Requirements, constraint: TopologySpread) -> bool:
        if (
            constraint.honours_taints
            and first_untolerated(place.taints, pod.tolerations, HARD) is not None
        ):
            return False
        said = LabelSet((k, ValueSet(False, v)) for k, v in place.may_be.items() if v)
        if place.there:
            own = {k: next(iter(v)) for k, v in place.may_be.items()}
            return not constraint.honours_affinity or suits(pod, own, place.name)
        return not constraint.honours_affinity or any(
            said.intersects(a) for a in LabelSet.alternatives(pod)
        )

    def _could_be(self, pod: Requirements, constraint: TopologySpread) -> set[str]:
        """Domains in which pools could make nodes for it."""
        found: set[str] = set()
        for pool in self.pools.values():
            tainted = first_untolerated(pool.pool.taints, pod.tolerations, HARD) is not None
            if pool.pool.replicas is not None or (constraint.honours_taints and tainted):
                continue
            for asked in (
                LabelSet.alternatives(pod) if constraint.honours_affinity else (LabelSet(),)
            ):
                if pool.labels.compatible(asked, WELL_KNOWN | pool.described):
                    labels = pool.labels.intersect(asked)
                    for t in pool.types.values():
                        if pool.suited(t, labels) and pool.offers(t, labels):
                            found |= pool.values(t, constraint.key, labels)
        return found


# --- plain rules


def suits(pod: Requirements, labels: Mapping[str, str], name: str) -> bool:
    """As kube-scheduler sees it."""
    if any(
        labels.get(k) != v for k, v in pod.node_selector.items()
    ) or pod.traits.node_name not in ("", name):
        return False
    return not pod.node_terms or any(term.matches(labels, name) for term in pod.node_terms)


def counts(constraint: TopologySpread, traits: PodTraits, other: PodTraits) -> bool:
    selector = spread_selector(constraint, traits.labels)
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return False
    return other.home == traits.home and selector.matches(other.labels)


def room_of(found: InstanceType) -> dict[str, int]:
    room = {"pods": 2**60, **found.allocatable}
    for name, amount in found.capacity.items():
        if name.startswith("hugepages-"):
            room["memory"] = max(0, room.get("memory", 0) - amount)
    return room


def held(found: InstanceType, resource: str) -> int:
    return found.capacity.get(resource, sum(d.kind == resource for d in found.devices))


def summed(pods: Iterable[Requirements]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for pod in pods:
        total["pods"] += 1
        for resource, amount in pod.requests.items():
            if resource != "pods" and is_of_nodes(resource) and amount > 0:
                total[resource] += amount
    return dict(total)


# --- the cheapest there could be


def cheapest(problem: Problem) -> int | None:
    """What new nodes for all wanted pods cost at least, of all ways to share them out; None: some
    pod fits on no new node. For a dozen pods without limits and reservations. Of what pods mean to
    each other it knows who shares no node, so what topology asks besides may make it dearer."""
    looking = _Looking(problem, Solution({}, {}, ()))
    pods = looking._each({w.name: w.count for w in problem.wanted})

    @cache
    def node(members: int) -> int | None:
        chosen = [pod for i, pod in enumerate(pods) if members >> i & 1]
        if _quarrel(looking, chosen):
            return None
        prices = [
            offer.price
            for pool in looking.pools.values()
            if pool.pool.replicas is None and not list(_intolerant(pool, chosen))
            for found in pool.types.values()
            if pool.suited(found, pool.labels) and pool.holds(found, chosen)
            for offer in pool.offers(found, pool.labels)
            if _could_be_for(pool, found, offer, chosen)
        ]
        return min(prices, default=None)

    @cache
    def best(left: int) -> int | None:
        if not left:
            return 0
        first = left & -left
        rest = subset = left ^ first
        least: int | None = None
        while True:
            price = node(first | subset)
            more = None if price is None else best(rest ^ subset)
            if price is not None and more is not None and (least is None or price + more < least):
                least = price + more
            if not subset:
                return least
            subset = (subset - 1) & rest

    return best((1 << len(pods)) - 1)


def _intolerant(pool: PoolOf, pods: Iterable[Requirements]) -> Iterator[Requirements]:
    return (p for p in pods if first_untolerated(pool.pool.taints, p.tolerations, HARD) is not None)


def _could_be_for(
    pool: PoolOf, found: InstanceType, offer: Offering, pods: Sequence[Requirements]
) -> bool:
    bought = LabelSet.of_labels({ZONE_LABEL: offer.zone, CAPACITY_TYPE_LABEL: offer.capacity_type})
    nodes = pool.nodes(found, pool.labels.intersect(bought), pods)
    return any(all(suits(pod, node, "") for pod in pods) for node in nodes)


def _quarrel(looking: _Looking, pods: Sequence[Requirements]) -> bool:
    for i, pod in enumerate(pods):
        others, traits = [*pods[:i], *pods[i + 1 :]], pod.traits
        if any(clash(traits.ports, other.traits.ports) for other in others):
            return True
        terms = [own_term(said, traits, looking.namespaces) for said in traits.anti_affinity]
        if any(t is not None and t.selects(o.traits, {}) for t in terms for o in others):
            return True
    return not _can_be_placed_in_turn(pods)


def _can_be_placed_in_turn(pods: Sequence[Requirements]) -> bool:
    """Whether there is an order in which each pod, when it is placed, is within its spreads over
    hosts. The one placed last has all others beside it; without it the same is asked of the
    rest."""
    left = list(pods)
    while left:
        last = next((pod for pod in left if _within_skew(pod, left)), None)
        if last is None:
            return False
        left.remove(last)
    return True


def _within_skew(pod: Requirements, beside: Sequence[Requirements]) -> bool:
    """`beside`: all pods of the node, `pod` among them."""
    return all(
        sum(counts(c, pod.traits, p.traits) for p in beside) <= c.max_skew
        for c in pod.traits.spread
        if c.hard and c.key == HOSTNAME
    )
