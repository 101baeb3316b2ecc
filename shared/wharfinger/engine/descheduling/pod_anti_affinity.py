"""An index of the pods that an anti-affinity term selects, by node and domain. Built once per
distinct term, updated as pods move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.node import Node, Pod
from wharfinger.engine.descheduling.view import DeschedulingCluster, Group, group_of
from wharfinger.engine.framework.pod_terms import AffinityTerm, own_term


@dataclass(slots=True)
class Meant:
    """Indexes the pods that `term` selects, by uid: per node, and per domain of the term's topology
    key for nodes that have this label."""

    term: AffinityTerm
    by_node: dict[str, dict[str, Pod]] = field(default_factory=dict)
    by_domain: dict[str, dict[str, Pod]] = field(default_factory=dict)

    def add(self, pod: Pod, node: Node) -> None:
        self.by_node.setdefault(node.name, {})[pod.uid] = pod
        if (domain := node.labels.get(self.term.key)) is not None:
            self.by_domain.setdefault(domain, {})[pod.uid] = pod

    def remove(self, pod: Pod, node: Node) -> None:
        self.by_node.get(node.name, {}).pop(pod.uid, None)
        self.by_domain.get(node.labels.get(self.term.key, ""), {}).pop(pod.uid, None)


@dataclass(slots=True)
class Neighbours:
    """Finds the pods that the anti-affinity terms of a pod select, from an index per distinct term.
    `moved` keeps the indexes current.

    `pods`: node -> the pods that count. `now`: uid -> the present node of a pod that moved; None:
    it was evicted.
    """

    cluster: DeschedulingCluster
    pods: Mapping[str, list[Pod]]
    terms: dict[object, Meant] = field(default_factory=dict)
    resolved: dict[str, list[Meant]] = field(default_factory=dict)
    now: dict[str, Node | None] = field(default_factory=dict)
    groups: dict[Group, list[tuple[Pod, Node]]] = field(default_factory=dict)
    meaning: dict[Group, tuple[list[Meant], int]] = field(default_factory=dict)

    def of(self, pod: Pod) -> list[Meant]:
        """Returns one index entry for each anti-affinity term of the pod: the pods that the term
        selects, by node and by domain."""
        found = self.resolved.get(pod.uid)
        if found is None:
            traits = pod.requirements.traits
            own = (own_term(term, traits, self.cluster.namespaces) for term in traits.anti_affinity)
            found = self.resolved[pod.uid] = [self._meant(term) for term in own if term is not None]
        return found

    def moved(self, pod: Pod, source: Node, target: Node | None) -> None:
        """Updates all indexes after the pod left `source`. `target`: its new node; None: the pod
        was evicted and no longer counts."""
        self.now[pod.uid] = target
        for meant in self._meaning(pod):
            meant.remove(pod, source)
            if target is not None:
                meant.add(pod, target)

    def _meant(self, term: AffinityTerm) -> Meant:
        selector, spaces = term.selector, term.namespace_selector
        key = (
            term.key,
            tuple(sorted(selector.match_labels.items())),
            selector.match_expressions,
            term.namespaces,
            None
            if spaces is None
            else (tuple(sorted(spaces.match_labels.items())), spaces.match_expressions),
        )
        found = self.terms.get(key)
        if found is None:
            found = self.terms[key] = Meant(term)
            for alike in self._alike():
                if not self._means(term, alike[0][0]):
                    continue
                for pod, node in alike:
                    if (place := self.now.get(pod.uid, node)) is not None:
                        found.add(pod, place)
        return found

    def _meaning(self, pod: Pod) -> list[Meant]:
        """Returns the indexed terms that select the pod. Cached per group of pods with equal
        labels; recomputed when terms were added since."""
        group = group_of(pod)
        found, seen = self.meaning.get(group, ([], 0))
        if seen < len(self.terms):
            found = [meant for meant in self.terms.values() if self._means(meant.term, pod)]
            self.meaning[group] = found, len(self.terms)
        return found

    def _alike(self) -> Iterable[list[tuple[Pod, Node]]]:
        """Returns all pods with their nodes, grouped by namespace and labels. A term selects all
        pods of a group or none of them."""
        if not self.groups:
            for node in self.cluster.nodes:
                for pod in self.pods[node.name]:
                    self.groups.setdefault(group_of(pod), []).append((pod, node))
        return self.groups.values()

    def _means(self, term: AffinityTerm, pod: Pod) -> bool:
        traits = pod.requirements.traits
        return term.selects(traits, self.cluster.namespaces.get(traits.home, {}))
