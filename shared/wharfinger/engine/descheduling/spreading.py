"""RemovePodsViolatingTopologySpreadConstraint: until the constraints of pods hold again.

Each constraint by itself: the domains of its key with their evictable pods, and the fewest moves from the largest to
the smallest that bring all within the skew. A pod that no node of a smaller domain would take stays, and counts as
moved all the same, so that the others are not asked for more. Pods that nothing ties to a node go first.

The descheduler lets the most important go first, against what it says of itself, and counts only pods that may be
evicted. Where the policy is not strict the least important goes first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wharfinger.domain import pod_traits
from wharfinger.domain.descheduling import TopologySpread
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.selectors import LabelSelector, NodeTerm
from wharfinger.domain.taints import Toleration
from wharfinger.engine.descheduling.evictor import Answer, Evictor
from wharfinger.engine.descheduling.fit import Mask, selects, tolerates
from wharfinger.engine.descheduling.view import Group, group_of
from wharfinger.engine.descheduling.violations import concerned
from wharfinger.engine.framework.pod_terms import spread_selector

Groups = dict[Group, list[Pod]]


@dataclass(frozen=True, slots=True)
class Constraint:
    """What makes two constraints one: `selector` has the pod's own labels in it, and which nodes count depends on
    what else the pod asks. `pod`: one that has it."""

    said: pod_traits.TopologySpread
    selector: LabelSelector
    node_selector: tuple[tuple[str, str], ...]
    node_terms: tuple[NodeTerm, ...]
    tolerations: tuple[Toleration, ...]
    pod: Pod

    @property
    def key(self) -> tuple[object, ...]:
        said = self.said
        of = (said.key, said.max_skew, said.hard, said.honours_affinity, said.honours_taints)
        selector = tuple(sorted(self.selector.match_labels.items())), self.selector.match_expressions
        return of, selector, self.node_selector, self.node_terms, self.tolerations

    def counts(self, node: Node) -> bool:
        """Whether the node's domain is one that pods could go to."""
        if self.said.key not in node.labels:
            return False
        if self.said.honours_affinity and not selects(self.pod, node):
            return False
        return not self.said.honours_taints or tolerates(self.pod, node)


def spread(args: TopologySpread, evictor: Evictor) -> None:
    chosen: dict[str, tuple[Pod, str, Mask]] = {}
    for groups in _by_namespace(args, evictor).values():
        for constraint in _constraints(args, (pod for pods in groups.values() for pod in pods)):
            for pod, why, below in _unbalanced(args, constraint, groups, evictor):
                chosen.setdefault(pod.uid, (pod, why, below))
    full: set[str] = set()
    for pod, why, below in chosen.values():
        if pod.node in full or not evictor.lets_go(pod):
            continue
        answer = evictor.evict(pod, why, None if evictor.going.strict else below)
        if answer is Answer.TOTAL_LIMIT:
            return
        if answer is Answer.NODE_LIMIT:
            full.add(pod.node)


def _by_namespace(args: TopologySpread, evictor: Evictor) -> dict[str, Groups]:
    """Those that may be evicted, of each namespace, in groups between which selectors see no difference."""
    found: dict[str, Groups] = {}
    for pod in concerned(evictor.going.cluster.everywhere(), args.namespaces, args.label_selector):
        if evictor.may(pod):
            group = group_of(pod)
            found.setdefault(group[0], {}).setdefault(group, []).append(pod)
    return found


def _constraints(args: TopologySpread, pods: Iterable[Pod]) -> list[Constraint]:
    found: dict[object, Constraint] = {}
    for pod in pods:
        asked = pod.requirements
        for said in asked.traits.spread:
            if not (args.hard if said.hard else args.soft):
                continue
            selector = spread_selector(said, asked.traits.labels)
            if selector is None:
                continue
            terms = tuple(sorted(asked.node_selector.items())), asked.node_terms, asked.tolerations
            constraint = Constraint(said, selector, *terms, pod)
            found.setdefault(constraint.key, constraint)
    return list(found.values())


@dataclass(slots=True)
class Domain:
    value: str
    pods: list[Pod]


def _unbalanced(
    args: TopologySpread, constraint: Constraint, groups: Groups, evictor: Evictor
) -> list[tuple[Pod, str, Mask]]:
    """The pods that have to go, each with why, and where to."""
    domains = _domains(constraint, groups, evictor)
    sizes = [len(d.pods) for d in domains]
    if not domains or max(sizes) - min(sizes) <= constraint.said.max_skew:
        return []
    total = sum(sizes)
    fit, key = evictor.going.fit, constraint.said.key
    small = {d.value for d in domains if len(d.pods) * len(domains) < total}
    nodes = evictor.going.cluster.nodes
    below = fit.rows(n.name for n in nodes if n.labels.get(key) in small and constraint.counts(n))
    fits = {pod.uid: bool(fit.elsewhere(pod, below).any()) for d in domains for pod in d.pods}
    for domain in domains:
        domain.pods.sort(key=lambda pod: _staying(pod, fits[pod.uid], evictor.going.strict), reverse=True)
    why = f"{max(sizes)} pods in one domain of {key} and {min(sizes)} in another, at most {constraint.said.max_skew} apart"
    moved = _moves(sorted(domains, key=lambda d: len(d.pods)), constraint.said.max_skew, total)
    return [(pod, why, below) for pod in moved if fits[pod.uid] or not args.node_fit]


def _domains(constraint: Constraint, groups: Groups, evictor: Evictor) -> list[Domain]:
    nodes = {node.name: node for node in evictor.going.cluster.nodes}
    key = constraint.said.key
    found = {node.labels[key]: Domain(node.labels[key], []) for node in nodes.values() if constraint.counts(node)}
    for pods in groups.values():
        if not constraint.selector.matches(pods[0].requirements.traits.labels):
            continue
        for pod in pods:
            value = nodes[pod.node].labels.get(key)
            if value is not None and not pod.terminating:
                found.setdefault(value, Domain(value, [])).pods.append(pod)
    return list(found.values())


def _staying(pod: Pod, fits: bool, strict: bool) -> tuple[int, ...]:
    """The smaller, the sooner it goes: who has somewhere to go, is tied to nothing, and is important by priority."""
    asked = pod.requirements
    tied = bool(asked.node_selector or asked.node_terms or asked.traits.preferences)
    return (int(not fits), int(tied), -pod.priority if strict else pod.priority)


def _moves(domains: list[Domain], max_skew: int, total: int) -> list[Pod]:
    """Between the smallest and the largest, each time as many as bring neither past the average, rounded up, and no
    more than half of what is too much between the two. `domains`: the smallest first."""
    n = len(domains)
    moved: list[Pod] = []
    i, j = 0, n - 1
    while i < j:
        small, large = domains[i], domains[j]
        if len(large.pods) * n <= total:
            j -= 1
            large = domains[j]
        skew = len(large.pods) - len(small.pods)
        above = -((total - len(large.pods) * n) // n)
        below = -((len(small.pods) * n - total) // n)
        count = min(above, below, -((max_skew - skew) // 2))
        if skew <= max_skew or count <= 0:
            i += 1
            continue
        going = large.pods[-count:]
        moved += going
        del large.pods[-count:]
        small.pods += going
    return moved
