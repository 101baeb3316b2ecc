"""RemovePodsViolatingTopologySpreadConstraint: evicts pods until their topology spread constraints
hold again.

For each constraint, the evictable pods are counted by topology domain, and pods are moved from the
largest domains to the smallest until all are within the maximum skew. A pod that no node of a
smaller domain would take stays, but counts as moved, so that the other pods are not moved in its
place. Pods without node selector or affinity go first.

The descheduler evicts the pods with the highest priority first, contrary to its documentation, and
counts only evictable pods. Without `strict` the lowest priority goes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wharfinger.domain import pod_traits
from wharfinger.domain.descheduling import TopologySpread
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.selectors import LabelSelector, NodeTerm
from wharfinger.domain.taints import Toleration
from wharfinger.engine.descheduling.evictor import EvictionResult, Evictor
from wharfinger.engine.descheduling.fit import Mask, selects, tolerates
from wharfinger.engine.descheduling.view import Group, group_of
from wharfinger.engine.descheduling.violations import concerned
from wharfinger.engine.framework.pod_terms import spread_selector

Groups = dict[Group, list[Pod]]


@dataclass(frozen=True, slots=True)
class SpreadConstraintKey:
    """Identifies a topology spread constraint that one or more pods use. Constraints with equal
    `key` are the same.

    `selector` includes the values of the pod's own labels (matchLabelKeys). `node_selector`,
    `node_terms` and `tolerations` are those of the pods, because they determine which nodes are
    eligible. `pod`: one pod that has the constraint.
    """

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
        selector = (
            tuple(sorted(self.selector.match_labels.items())),
            self.selector.match_expressions,
        )
        return of, selector, self.node_selector, self.node_terms, self.tolerations

    def counts(self, node: Node) -> bool:
        """Returns whether the node is eligible: it has the topology key, and, as far as
        nodeAffinityPolicy and nodeTaintsPolicy require, the pods select and tolerate it."""
        if self.said.key not in node.labels:
            return False
        if self.said.honours_affinity and not selects(self.pod, node):
            return False
        return not self.said.honours_taints or tolerates(self.pod, node)


def spread(args: TopologySpread, evictor: Evictor) -> None:
    """Runs RemovePodsViolatingTopologySpreadConstraint: finds the surplus pods of every violated
    topology spread constraint, and evicts each of these pods once.

    Without `strict`, if NodeFit applies (evict only a pod that another node would take), the chosen
    destination is in a domain with fewer pods than the average. When the limit of evictions from a
    node is reached, further pods of this node are skipped. When the limit of the pass is reached,
    the strategy ends.
    """
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
        if answer is EvictionResult.TOTAL_LIMIT:
            return
        if answer is EvictionResult.NODE_LIMIT:
            full.add(pod.node)


def _by_namespace(args: TopologySpread, evictor: Evictor) -> dict[str, Groups]:
    """Returns namespace -> group -> its evictable pods. The pods of a group have equal labels, so a
    selector matches all of them or none."""
    found: dict[str, Groups] = {}
    for pod in concerned(evictor.going.cluster.everywhere(), args.namespaces, args.label_selector):
        if evictor.may(pod):
            group = group_of(pod)
            found.setdefault(group[0], {}).setdefault(group, []).append(pod)
    return found


def _constraints(args: TopologySpread, pods: Iterable[Pod]) -> list[SpreadConstraintKey]:
    found: dict[object, SpreadConstraintKey] = {}
    for pod in pods:
        asked = pod.requirements
        for said in asked.traits.spread:
            if not (args.hard if said.hard else args.soft):
                continue
            selector = spread_selector(said, asked.traits.labels)
            if selector is None:
                continue
            terms = tuple(sorted(asked.node_selector.items())), asked.node_terms, asked.tolerations
            constraint = SpreadConstraintKey(said, selector, *terms, pod)
            found.setdefault(constraint.key, constraint)
    return list(found.values())


@dataclass(slots=True)
class Domain:
    value: str
    pods: list[Pod]


def _unbalanced(
    args: TopologySpread, constraint: SpreadConstraintKey, groups: Groups, evictor: Evictor
) -> list[tuple[Pod, str, Mask]]:
    """Returns the pods to evict because of one topology spread constraint. Empty if the constraint
    holds: the largest and the smallest domain differ by at most maxSkew pods.

    `groups`: the evictable pods of one namespace, grouped by equal labels.

    Each result is (pod, reason, mask). The mask is bool[nodes], the same for all pods: true for
    each node that the constraint counts and whose domain has fewer pods than the average of all
    domains. If `args.node_fit` is set, a pod that none of these nodes would take is left out.
    """
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
        domain.pods.sort(
            key=lambda pod: _staying(pod, fits[pod.uid], evictor.going.strict), reverse=True
        )
    why = (
        f"{max(sizes)} pods in one domain of {key} and {min(sizes)} in another, "
        f"at most {constraint.said.max_skew} apart"
    )
    moved = _moves(sorted(domains, key=lambda d: len(d.pods)), constraint.said.max_skew, total)
    return [(pod, why, below) for pod in moved if fits[pod.uid] or not args.node_fit]


def _domains(constraint: SpreadConstraintKey, groups: Groups, evictor: Evictor) -> list[Domain]:
    nodes = {node.name: node for node in evictor.going.cluster.nodes}
    key = constraint.said.key
    found = {
        node.labels[key]: Domain(node.labels[key], [])
        for node in nodes.values()
        if constraint.counts(node)
    }
    for pods in groups.values():
        if not constraint.selector.matches(pods[0].requirements.traits.labels):
            continue
        for pod in pods:
            value = nodes[pod.node].labels.get(key)
            if value is not None and not pod.terminating:
                found.setdefault(value, Domain(value, [])).pods.append(pod)
    return list(found.values())


def _staying(pod: Pod, fits: bool, strict: bool) -> tuple[int, ...]:
    """Returns the sort key of a pod within its domain; the pod with the smallest key leaves first.
    `fits`: a node of a smaller domain would take the pod. Order: pods that fit before others, then
    pods without node selector or affinity, then by priority, lowest first (highest first with
    `strict`)."""
    asked = pod.requirements
    tied = bool(asked.node_selector or asked.node_terms or asked.traits.preferences)
    return (int(not fits), int(tied), -pod.priority if strict else pod.priority)


def _moves(domains: list[Domain], max_skew: int, total: int) -> list[Pod]:
    """Chooses the pods to move so that the domains of a topology spread constraint get balanced,
    and returns these pods. Two pointers run over the domains: one from the smallest domain upwards,
    one from the largest downwards.

    Each step moves n pods from the large domain to the small one. n is the smallest of three
    numbers, each rounded up: the excess of the large domain over the average, the shortfall of the
    small domain below the average, and (difference of both domains - `max_skew`) / 2.

    `domains`: smallest first; their pod lists are changed. The last pods of a list leave first.
    `max_skew`: the difference that the constraint permits.
    `total`: number of pods in all domains.

    Example: two domains of 1 and 5 pods and `max_skew` 1. The three numbers are 2, 2 and 2, so 2
    pods move, and both domains have 3 pods.
    """
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
