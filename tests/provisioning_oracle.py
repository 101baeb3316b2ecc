"""Whether a solution of provisioning is one, found by plain rules over names: nothing here is
shared with what solves.

It looks at the end only: who is where, and whether everybody can be there together. A new node is
every instance type and every offering that it was asked for, so what may not be must not be
possible in any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.instance_types import InstanceType, Offering
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.pod_traits import PodTerm, PodTraits
from wharfinger.domain.resources import add
from wharfinger.domain.taints import first_untolerated
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.problem import NewClaim, Problem, Solution

HOSTNAME = "kubernetes.io/hostname"


@dataclass
class Place:
    """A node, there or to be. `faces`: every set of labels that it may have; `pods`: what is on it,
    with what was before."""

    name: str
    faces: list[dict[str, str]]
    new: list[Requirements] = field(default_factory=list)
    old: list[Requirements] = field(default_factory=list)

    @property
    def pods(self) -> list[Requirements]:
        return [*self.old, *self.new]

    def domains(self, key: str) -> set[str]:
        return {self.name} if key == HOSTNAME else {face[key] for face in self.faces if key in face}


def faults(problem: Problem, solution: Solution) -> list[str]:
    """What is wrong, a sentence each; empty when nothing is."""
    return [
        *_counted(problem, solution),
        *_on_nodes(problem, solution),
        *(fault for i, claim in enumerate(solution.claims) for fault in _claim(problem, i, claim)),
        *_limits(problem, solution),
        *_together(problem, solution),
    ]


def _counted(problem: Problem, solution: Solution) -> Iterator[str]:
    for wanted in problem.wanted:
        somewhere = sum(
            pods.get(wanted.name, 0)
            for pods in (*solution.placed.values(), *solution.joined.values())
        )
        somewhere += sum(claim.pods.get(wanted.name, 0) for claim in solution.claims)
        nowhere = sum(u.count for u in solution.unplaced if u.name == wanted.name)
        if somewhere + nowhere != wanted.count:
            yield f"{wanted.name}: {wanted.count} wanted, {somewhere} placed and {nowhere} not"
    for unplaced in solution.unplaced:
        if not unplaced.reason:
            yield f"{unplaced.name}: is not told why it has no place"


def _of(problem: Problem, name: str) -> Requirements:
    return next(w.requirements for w in problem.wanted if w.name == name)


def _asked(pods: list[Requirements]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in pods:
        total = add(total, {**pod.requests, "pods": 1})
    return total


def _on_nodes(problem: Problem, solution: Solution) -> Iterator[str]:
    for name, pods in solution.placed.items():
        node = next((n for n in problem.nodes if n.name == name), None)
        if node is None or name in problem.avoid or node.unschedulable:
            yield f"{name} takes nothing"
            continue
        there = [p.requirements for p in problem.pods if p.node == name]
        coming = [_of(problem, pod) for pod, count in pods.items() for _ in range(count)]
        for resource, amount in _asked([*there, *coming]).items():
            if resource in node.allocatable and amount > node.allocatable[resource]:
                yield f"{name} has too little {resource}"
        for pod in coming:
            if not _matches(pod, node.labels, name):
                yield f"{name} is not what a pod on it asks for"
            if first_untolerated(node.taints, pod.tolerations, ("NoSchedule", "NoExecute")):
                yield f"a pod on {name} does not tolerate its taints"


def _matches(pod: Requirements, labels: Mapping[str, str], name: str) -> bool:
    if any(labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    return not pod.node_terms or any(term.matches(labels, name) for term in pod.node_terms)


def _pool(problem: Problem, claim: NewClaim) -> NodePoolPolicy:
    return next(p for p in problem.pools if p.name == claim.pool)


def _types(problem: Problem, claim: NewClaim) -> list[InstanceType]:
    known = {t.name: t for t in problem.types[_pool(problem, claim).catalogue]}
    return [known[name] for name in claim.instance_types]


def _says(claim: NewClaim, key: str, value: str | None) -> bool:
    for r in claim.requirements:
        if r.key != key:
            continue
        match r.operator:
            case "In":
                good = value in r.values
            case "NotIn":
                good = value not in r.values
            case "Exists":
                good = value is not None
            case "DoesNotExist":
                good = value is None
            case "Gt" | "Gte" | "Lt" | "Lte":
                bound, number = int(r.values[0]), int(value) if value is not None else None
                good = (
                    number is not None
                    and {
                        "Gt": number > bound,
                        "Gte": number >= bound,
                        "Lt": number < bound,
                        "Lte": number <= bound,
                    }[r.operator]
                )
        if not good:
            return False
    return True


def _offers(claim: NewClaim, of: InstanceType) -> list[Offering]:
    return [
        o
        for o in of.offerings
        if o.available
        and _says(claim, ZONE_LABEL, o.zone)
        and _says(claim, CAPACITY_TYPE_LABEL, o.capacity_type)
    ]


def faces(problem: Problem, claim: NewClaim) -> list[dict[str, str]]:
    """All that the node may be. Of a label that a type has several values of, none is known."""
    found = []
    pool = _pool(problem, claim)
    for of in _types(problem, claim):
        own = {key: values[0] for key, values in of.labels.items() if len(values) == 1}
        named = {r.key: r.values[0] for r in claim.requirements if _names_one(r)}
        for offer in _offers(claim, of):
            found.append(
                {
                    **pool.labels,
                    **named,
                    **own,
                    INSTANCE_TYPE_LABEL: of.name,
                    ZONE_LABEL: offer.zone,
                    CAPACITY_TYPE_LABEL: offer.capacity_type,
                    POOL_LABEL: pool.name,
                }
            )
    return found


def _names_one(requirement: PoolRequirement) -> bool:
    return requirement.operator == "In" and len(requirement.values) == 1


def _claim(problem: Problem, number: int, claim: NewClaim) -> Iterator[str]:
    pool, name = _pool(problem, claim), f"claim {number} of pool {claim.pool}"
    pods = [_of(problem, pod) for pod, count in claim.pods.items() for _ in range(count)]
    if not claim.instance_types:
        yield f"{name} can be nothing"
    asked = _asked(pods)
    for daemon in problem.objects.daemons:
        if not first_untolerated(
            pool.taints, daemon.requirements.tolerations, ("NoSchedule", "NoExecute")
        ):
            asked = add(asked, {**daemon.requirements.requests, "pods": 1})
    for of in _types(problem, claim):
        if any(amount > of.allocatable.get(r, 0) for r, amount in asked.items()):
            yield f"{name}: {of.name} does not hold it"
        if not _offers(claim, of):
            yield f"{name}: {of.name} cannot be bought"
    for face in faces(problem, claim):
        if any(not _matches(pod, face, "") for pod in pods):
            yield f"{name} may become what a pod on it does not ask for: {face}"
    for pod in pods:
        if first_untolerated(pool.taints, pod.tolerations, ("NoSchedule", "NoExecute")):
            yield f"{name}: a pod does not tolerate the pool's taints"
    prices = [o.price for of in _types(problem, claim) for o in _offers(claim, of)]
    if prices and claim.price != min(prices):
        yield f"{name} costs {min(prices)}, not {claim.price}"
    for r in pool.requirements if problem.options.min_values == "Strict" else claim.requirements:
        if (
            r.min_values
            and len({face[r.key] for face in faces(problem, claim) if r.key in face}) < r.min_values
        ):
            yield f"{name} leaves too few values of {r.key}"


def _limits(problem: Problem, solution: Solution) -> Iterator[str]:
    for pool in problem.pools:
        used = dict(problem.used.get(pool.name, {}))
        for claim in solution.claims:
            if claim.pool == pool.name:
                used["nodes"] = used.get("nodes", 0) + 1
                types = _types(problem, claim)
                for resource in pool.limits:
                    if resource != "nodes":
                        most = max(of.capacity.get(resource, 0) for of in types)
                        used[resource] = used.get(resource, 0) + most
        made = any(claim.pool == pool.name for claim in solution.claims)
        for resource, limit in pool.limits.items():
            if made and used.get(resource, 0) > limit:
                yield f"pool {pool.name} passes its limit of {resource}"


# Pods among each other.


def places(problem: Problem, solution: Solution) -> list[Place]:
    found = []
    for node in problem.nodes:
        if node.name in problem.avoid:
            continue
        place = Place(node.name, [dict(node.labels)])
        place.old = [p.requirements for p in problem.pods if p.node == node.name]
        here = solution.placed.get(node.name, {})
        place.new = [_of(problem, pod) for pod, count in here.items() for _ in range(count)]
        found.append(place)
    for i, claim in enumerate(solution.claims):
        place = Place(f"new {i}", faces(problem, claim))
        place.new = [_of(problem, pod) for pod, count in claim.pods.items() for _ in range(count)]
        found.append(place)
    return found


def _selected(term: PodTerm, owner: PodTraits, other: PodTraits) -> bool:
    within = other.home in (term.namespaces or (owner.home,))
    return within and term.selector is not None and term.selector.matches(other.labels)


def _together(problem: Problem, solution: Solution) -> Iterator[str]:
    everywhere = places(problem, solution)
    pods = [(place, pod, True) for place in everywhere for pod in place.new]
    pods += [(place, pod, False) for place in everywhere for pod in place.old]
    yield from _apart(pods)
    yield from _near(pods)
    yield from _ports(everywhere)
    yield from _spread(problem, everywhere, pods)


Here = tuple[Place, Requirements, bool]


def _apart(pods: list[Here]) -> Iterator[str]:
    for i, (place, pod, new) in enumerate(pods):
        for term in pod.traits.anti_affinity:
            for j, (other_place, other, other_new) in enumerate(pods):
                if i != j and (new or other_new) and _selected(term, pod.traits, other.traits):
                    shared = place.domains(term.key) & other_place.domains(term.key)
                    if shared:
                        yield (
                            f"pods on {place.name} and {other_place.name} do not bear each other "
                            f"over {term.key}"
                        )


def _near(pods: list[Here]) -> Iterator[str]:
    """The first of those that want each other's company goes where it likes, and there is one such
    first."""
    founded: dict[bytes, set[str]] = {}
    for i, (place, pod, new) in enumerate(pods):
        for term in pod.traits.affinity if new else ():
            mine = place.domains(term.key)
            if len(mine) != 1:
                yield (
                    f"a pod on {place.name} wants company over {term.key}, "
                    "and its domain is not known"
                )
            others = [
                (p.domains(term.key) == mine, made)
                for j, (p, other, made) in enumerate(pods)
                if j != i and _selected(term, pod.traits, other.traits)
            ]
            if any(near for near, _ in others):
                continue
            if not _selected(term, pod.traits, pod.traits) or not all(made for _, made in others):
                yield f"a pod on {place.name} is not near whom it wants over {term.key}"
            founded.setdefault(canonical((pod.traits.home, term)), set()).update(mine)
    for domains in founded.values():
        if len(domains) > 1:
            yield f"those that want each other's company began in {sorted(domains)}"


def _ports(everywhere: list[Place]) -> Iterator[str]:
    for place in everywhere:
        taken = [(port.port, port.protocol) for pod in place.pods for port in pod.traits.ports]
        if place.new and len(taken) != len(set(taken)):
            yield f"{place.name}: a port is wanted twice"


def _spread(problem: Problem, everywhere: list[Place], pods: list[Here]) -> Iterator[str]:
    """Where all that are counted spread themselves alike: then the end says whether each step was
    right."""
    for _, pod, new in pods:
        for constraint in pod.traits.spread if new else ():
            selector = constraint.selector
            if not constraint.hard or selector is None or not selector.matches(pod.traits.labels):
                continue
            counted = [
                (place, p)
                for place, p, _ in pods
                if p.traits.home == pod.traits.home and selector.matches(p.traits.labels)
            ]
            if any(
                p.traits.spread != pod.traits.spread or _claims(p) != _claims(pod)
                for _, p in counted
            ):
                continue
            if any(
                not made
                for _, p, made in pods
                if p.traits.labels and selector.matches(p.traits.labels)
            ):
                continue  # what was there before need not have been even
            per: dict[str, int] = {}
            for place, _ in counted:
                domains = place.domains(constraint.key)
                if len(domains) != 1:
                    yield (
                        f"a pod on {place.name} is spread over {constraint.key}, "
                        "and its domain is not known"
                    )
                for domain in domains:
                    per[domain] = per.get(domain, 0) + 1
            domains = _universe(problem, constraint.key, pod) or set(per)
            low = (
                0
                if constraint.key == HOSTNAME
                else min((per.get(d, 0) for d in domains), default=0)
            )
            if per and max(per.values()) - low > constraint.max_skew:
                yield (
                    f"spread over {constraint.key} is {per}, more than {constraint.max_skew} "
                    f"above {low}"
                )


def _claims(pod: Requirements) -> tuple[object, ...]:
    return pod.node_selector, pod.node_terms, pod.tolerations


def _universe(problem: Problem, key: str, pod: Requirements) -> set[str]:
    """The domains that there are for sure, to a pod that can go everywhere: of nodes, and of what
    pools can make."""
    found = {
        n.labels[key] for n in problem.nodes if key in n.labels and n.name not in problem.avoid
    }
    if any(_claims(pod)) or key != ZONE_LABEL:
        return set() if any(_claims(pod)) else found
    for pool in problem.pools:
        any_claim = NewClaim(pool.name, pool.requirements, (), 0, 0, {}, {})
        for of in problem.types[pool.catalogue]:
            if not pool.limits and all(
                r.key in (ZONE_LABEL, CAPACITY_TYPE_LABEL) for r in pool.requirements
            ):
                found.update(o.zone for o in _offers(any_claim, of))
    return found
