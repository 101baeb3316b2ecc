"""Whether another node would take a pod: the quick question that is asked of every pod before it is let go.

Node selector and affinity, taints, cordons, amounts and the pod's own anti-affinity; what else decides a place is
asked by the stage that places. One row of free amounts a node, so that the question is put to all nodes at once; what
does not depend on who is where is answered once for all pods that ask the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Effect, first_untolerated
from wharfinger.engine.descheduling.view import Cluster, allocatable
from wharfinger.engine.framework.pod_terms import Term, own_term

Mask = npt.NDArray[np.bool_]

BLOCKING: tuple[Effect, ...] = ("NoSchedule", "NoExecute")


def selects(pod: Pod, node: Node) -> bool:
    """Whether the pod's node selector and required affinity name the node."""
    asked = pod.requirements
    if any(node.labels.get(key) != value for key, value in asked.node_selector.items()):
        return False
    return not asked.node_terms or any(term.matches(node.labels, node.name) for term in asked.node_terms)


def tolerates(pod: Pod, node: Node) -> bool:
    return first_untolerated(node.taints, pod.requirements.tolerations, BLOCKING) is None


@dataclass(slots=True)
class Fit:
    """`free`: int64[nodes, resources], what pods have left; `position`: node -> row. `placed`: pods that this pass
    has found a place for, by row. `by_domain`: anti-affinity looks at the whole domain of its key, not at the one
    node. `rows`: those that count."""

    cluster: Cluster
    nodes: Sequence[Node]
    names: dict[str, int]
    free: npt.NDArray[np.int64]
    open: Mask
    by_domain: bool
    position: dict[str, int]
    answers: dict[object, Mask] = field(default_factory=dict)
    vectors: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)
    placed: dict[int, list[Pod]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, cluster: Cluster, by_domain: bool) -> Fit:
        nodes = cluster.nodes
        sizes = [allocatable(node) for node in nodes]
        found = dict.fromkeys(name for size in sizes for name in size)
        found.update(dict.fromkeys(name for asked in cluster.requests.values() for name in asked))
        names = {name: i for i, name in enumerate(found)}
        free = np.zeros((len(nodes), len(names)), dtype=np.int64)
        for row, (node, size) in enumerate(zip(nodes, sizes, strict=True)):
            for name, amount in size.items():
                free[row, names[name]] = amount
            for pod in cluster.running[node.name]:
                for name, amount in cluster.requests[pod.uid].items():
                    free[row, names[name]] -= amount
        position = {node.name: row for row, node in enumerate(nodes)}
        can_take = np.array([not node.unschedulable for node in nodes], dtype=np.bool_)
        return cls(cluster, nodes, names, free, can_take, by_domain, position)

    def rows(self, nodes: Iterable[str]) -> Mask:
        mask = np.zeros(len(self.nodes), dtype=np.bool_)
        for name in nodes:
            mask[self.position[name]] = True
        return mask

    def selected(self, selector: LabelSelector | None) -> Mask | None:
        if selector is None:
            return None
        return np.array([selector.matches(node.labels) for node in self.nodes], dtype=np.bool_)

    def takers(self, pod: Pod) -> Mask:
        """bool[nodes]: which would take it. Of its own node amounts are not asked: it has them."""
        mask = self._named(pod) & self.open
        own = self.position[pod.node]
        enough = np.all(self.free >= self.vector(pod), axis=1)
        enough[own] = True
        mask &= enough
        if pod.requirements.traits.anti_affinity and mask.any():
            self._without_enemies(pod, mask)
        return mask

    def elsewhere(self, pod: Pod, among: Mask | None = None) -> Mask:
        """Of the other nodes, or of those of `among`."""
        mask = self.takers(pod)
        mask[self.position[pod.node]] = False
        return mask if among is None else mask & among

    def vector(self, pod: Pod) -> npt.NDArray[np.int64]:
        """int64[resources]: what it takes."""
        asked = self.cluster.requests[pod.uid]
        found = self.vectors.get(id(asked))
        if found is None:
            found = np.zeros(len(self.names), dtype=np.int64)
            for name, amount in asked.items():
                found[self.names[name]] = amount
            self.vectors[id(asked)] = found
        return found

    def move(self, pod: Pod, row: int) -> None:
        """The pod is there from now on; what it leaves is left free."""
        self.free[row] -= self.vector(pod)
        self.free[self.position[pod.node]] += self.vector(pod)
        self.placed.setdefault(row, []).append(pod)
        self.gone.add(pod.uid)

    def _named(self, pod: Pod) -> Mask:
        asked = pod.requirements
        key = (tuple(sorted(asked.node_selector.items())), asked.node_terms, asked.tolerations)
        found = self.answers.get(key)
        if found is None:
            found = np.array([selects(pod, node) and tolerates(pod, node) for node in self.nodes], dtype=np.bool_)
            self.answers[key] = found
        return found

    def _without_enemies(self, pod: Pod, mask: Mask) -> None:
        traits = pod.requirements.traits
        terms = [t for term in traits.anti_affinity if (t := own_term(term, traits, self.cluster.namespaces))]
        for term in terms:
            taken = {node.labels.get(term.key) for node in self.nodes if self._clashes(term, pod, node)}
            for row in np.nonzero(mask)[0].tolist():
                node = self.nodes[row]
                if self.by_domain and term.key in node.labels:
                    mask[row] = node.labels[term.key] not in taken
                else:
                    mask[row] = not self._clashes(term, pod, node)

    def _clashes(self, term: Term, pod: Pod, node: Node) -> bool:
        row = self.position[node.name]
        there = (p for p in self.cluster.running[node.name] if p.uid not in self.gone)
        return any(
            other.uid != pod.uid
            and term.selects(other.requirements.traits, self.cluster.namespaces.get(other.requirements.traits.home, {}))
            for other in (*there, *self.placed.get(row, ()))
        )
