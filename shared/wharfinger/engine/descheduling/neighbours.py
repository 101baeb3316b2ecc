"""Which pods a term of anti-affinity means, and where they are: found once for all that say the same, and kept as pods move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.node import Node, Pod
from wharfinger.engine.descheduling.view import Cluster, Group, group_of
from wharfinger.engine.framework.pod_terms import Term, own_term


@dataclass(slots=True)
class Meant:
    """The pods that `term` means, by uid: by node, and by domain of its key, where the node has one."""

    term: Term
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
    """`pods`: node -> the pods that count. `now`: uid -> where a pod is that has moved; gone altogether where None."""

    cluster: Cluster
    pods: Mapping[str, list[Pod]]
    terms: dict[object, Meant] = field(default_factory=dict)
    resolved: dict[str, list[Meant]] = field(default_factory=dict)
    now: dict[str, Node | None] = field(default_factory=dict)
    groups: dict[Group, list[tuple[Pod, Node]]] = field(default_factory=dict)
    meaning: dict[Group, tuple[list[Meant], int]] = field(default_factory=dict)

    def of(self, pod: Pod) -> list[Meant]:
        """One for each of its own terms of anti-affinity."""
        found = self.resolved.get(pod.uid)
        if found is None:
            traits = pod.requirements.traits
            own = (own_term(term, traits, self.cluster.namespaces) for term in traits.anti_affinity)
            found = self.resolved[pod.uid] = [self._meant(term) for term in own if term is not None]
        return found

    def moved(self, pod: Pod, source: Node, target: Node | None) -> None:
        """`target` None: it is in nobody's way any more."""
        self.now[pod.uid] = target
        for meant in self._meaning(pod):
            meant.remove(pod, source)
            if target is not None:
                meant.add(pod, target)

    def _meant(self, term: Term) -> Meant:
        selector, spaces = term.selector, term.namespace_selector
        key = (
            term.key,
            tuple(sorted(selector.match_labels.items())),
            selector.match_expressions,
            term.namespaces,
            None if spaces is None else (tuple(sorted(spaces.match_labels.items())), spaces.match_expressions),
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
        """The terms that were asked for and mean it."""
        group = group_of(pod)
        found, seen = self.meaning.get(group, ([], 0))
        if seen < len(self.terms):
            found = [meant for meant in self.terms.values() if self._means(meant.term, pod)]
            self.meaning[group] = found, len(self.terms)
        return found

    def _alike(self) -> Iterable[list[tuple[Pod, Node]]]:
        """The pods in groups between which terms see no difference."""
        if not self.groups:
            for node in self.cluster.nodes:
                for pod in self.pods[node.name]:
                    self.groups.setdefault(group_of(pod), []).append((pod, node))
        return self.groups.values()

    def _means(self, term: Term, pod: Pod) -> bool:
        traits = pod.requirements.traits
        return term.selects(traits, self.cluster.namespaces.get(traits.home, {}))
