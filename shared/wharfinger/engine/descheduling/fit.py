"""Whether another node would take a pod: the quick question that is asked of every pod before it is let go.

Node selector and affinity, taints, cordons, amounts and the pod's own anti-affinity; what else decides a place is
asked by the stage that places. One row of free amounts a node, so that the question is put to all nodes at once; what
does not depend on who is where is answered once for all pods that ask the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Effect, first_untolerated
from wharfinger.engine.descheduling.neighbours import Neighbours
from wharfinger.engine.descheduling.view import Cluster, allocatable

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
    """`free`: int64[nodes, resources], what pods have left; `position`: node -> row. `by_domain`: anti-affinity looks
    at the whole domain of its key, not at the one node. `roomy`, `answers`: who takes pods that ask the same, with
    and without a look at amounts; `touched`: rows in the order in which these changed."""

    cluster: Cluster
    nodes: Sequence[Node]
    names: dict[str, int]
    free: npt.NDArray[np.int64]
    open: Mask
    by_domain: bool
    position: dict[str, int]
    neighbours: Neighbours
    answers: dict[object, Mask] = field(default_factory=dict)
    roomy: dict[tuple[object, object], tuple[Mask, int]] = field(default_factory=dict)
    touched: list[int] = field(default_factory=list)
    keys: dict[str, tuple[object, object]] = field(default_factory=dict)
    vectors: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)
    codes: dict[str, tuple[npt.NDArray[np.int64], dict[str, int]]] = field(default_factory=dict)

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
        return cls(cluster, nodes, names, free, can_take, by_domain, position, Neighbours(cluster, cluster.running))

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
        own = self.position[pod.node]
        mask = self._with_room(pod).copy()
        mask[own] = self.named(pod)[own] and self.open[own]
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
        self.neighbours.moved(pod, self.nodes[self.position[pod.node]], self.nodes[row])
        self.touched += (row, self.position[pod.node])

    def _with_room(self, pod: Pod) -> Mask:
        """The same for all pods that ask the same; of nodes that pods have left or come to since it was asked last it
        is asked again. Not to be written to."""
        key = self._asked(pod)
        found = self.roomy.get(key)
        if found is None:
            mask: Mask = np.all(self.free >= self.vector(pod), axis=1) & self.named(pod) & self.open
            self.roomy[key] = mask, len(self.touched)
            return mask
        mask, seen = found
        if seen < len(self.touched):
            rows = list(dict.fromkeys(self.touched[seen:]))
            enough = np.all(self.free[rows] >= self.vector(pod), axis=1)
            mask[rows] = enough & self.named(pod)[rows] & self.open[rows]
            self.roomy[key] = mask, len(self.touched)
        return mask

    def _asked(self, pod: Pod) -> tuple[object, object]:
        """What nodes it names and tolerates, and its amounts, as keys."""
        found = self.keys.get(pod.uid)
        if found is None:
            asked = pod.requirements
            named = (tuple(sorted(asked.node_selector.items())), asked.node_terms, asked.tolerations)
            amounts = tuple(sorted(self.cluster.requests[pod.uid].items()))
            found = self.keys[pod.uid] = (named, amounts)
        return found

    def named(self, pod: Pod) -> Mask:
        """bool[nodes]: which its selector, affinity and tolerations leave, whoever is there."""
        key, _ = self._asked(pod)
        found = self.answers.get(key)
        if found is None:
            found = np.array([selects(pod, node) and tolerates(pod, node) for node in self.nodes], dtype=np.bool_)
            self.answers[key] = found
        return found

    def _without_enemies(self, pod: Pod, mask: Mask) -> None:
        for meant in self.neighbours.of(pod):
            if not self.by_domain:
                for name, others in meant.by_node.items():
                    if _others(others, pod):
                        mask[self.position[name]] = False
                continue
            codes, values = self._domains(meant.term.key)
            taken = [values[domain] for domain, others in meant.by_domain.items() if _others(others, pod)]
            mask &= ~np.isin(codes, taken)

    def _domains(self, key: str) -> tuple[npt.NDArray[np.int64], dict[str, int]]:
        """int64[nodes]: the domain of each node as a number, -1 where it has none; and the numbers of their names."""
        found = self.codes.get(key)
        if found is None:
            values: dict[str, int] = {}
            labels = [node.labels.get(key) for node in self.nodes]
            codes = [-1 if value is None else values.setdefault(value, len(values)) for value in labels]
            found = self.codes[key] = np.array(codes, dtype=np.int64), values
        return found


def _others(there: Mapping[str, Pod], pod: Pod) -> bool:
    return len(there) > (pod.uid in there)
