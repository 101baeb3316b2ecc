"""NodeFit: checks whether another node would take a pod. It is a fast check, made for every pod
before it is evicted.

It covers node selector and affinity, taints, cordons, requests and the pod's own anti-affinity. The
stage that places the pod checks the rest. Free amounts are one row per node, so that all nodes are
checked at once. The part that does not depend on other pods is computed once for all pods with
equal requirements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Effect, first_untolerated
from wharfinger.engine.descheduling.pod_anti_affinity import Neighbours
from wharfinger.engine.descheduling.view import DeschedulingCluster, allocatable

Mask = npt.NDArray[np.bool_]

BLOCKING: tuple[Effect, ...] = ("NoSchedule", "NoExecute")


def selects(pod: Pod, node: Node) -> bool:
    """Returns whether the node matches the pod's node selector and its required node affinity."""
    asked = pod.requirements
    if any(node.labels.get(key) != value for key, value in asked.node_selector.items()):
        return False
    return not asked.node_terms or any(
        term.matches(node.labels, node.name) for term in asked.node_terms
    )


def tolerates(pod: Pod, node: Node) -> bool:
    return first_untolerated(node.taints, pod.requirements.tolerations, BLOCKING) is None


@dataclass(slots=True)
class Fit:
    """Computes which nodes would take a pod, over arrays of all nodes, and follows the moves of a
    pass.

    `names`: resource -> column; `position`: node -> row; `free`: int64[nodes, resources], free
    amounts; `open`: bool[nodes], not cordoned. `by_domain`: anti-affinity applies to the whole
    topology domain of its key, not only to the node. `answers`: cache of the nodes that a class of
    pods selects and tolerates; `roomy`: the same with enough free amounts. `touched`: rows in the
    order in which their amounts changed.
    """

    cluster: DeschedulingCluster
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
    def of(cls, cluster: DeschedulingCluster, by_domain: bool) -> Fit:
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
        return cls(
            cluster,
            nodes,
            names,
            free,
            can_take,
            by_domain,
            position,
            Neighbours(cluster, cluster.running),
        )

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
        """Returns bool[nodes], true for each node that would take the pod. Its own node may be
        among them; there free amounts are not checked, because the pod's requests are already
        subtracted."""
        own = self.position[pod.node]
        mask = self._with_room(pod).copy()
        mask[own] = self.named(pod)[own] and self.open[own]
        if pod.requirements.traits.anti_affinity and mask.any():
            self._without_enemies(pod, mask)
        return mask

    def elsewhere(self, pod: Pod, among: Mask | None = None) -> Mask:
        """Returns bool[nodes], true for each node other than the pod's own that would take it.
        `among`: bool[nodes], restricts the result; None: no restriction."""
        mask = self.takers(pod)
        mask[self.position[pod.node]] = False
        return mask if among is None else mask & among

    def vector(self, pod: Pod) -> npt.NDArray[np.int64]:
        """Returns int64[resources], the amount of each resource that the pod requests, in the
        column order of `names`."""
        asked = self.cluster.requests[pod.uid]
        found = self.vectors.get(id(asked))
        if found is None:
            found = np.zeros(len(self.names), dtype=np.int64)
            for name, amount in asked.items():
                found[self.names[name]] = amount
            self.vectors[id(asked)] = found
        return found

    def move(self, pod: Pod, row: int) -> None:
        """Moves the pod to the node in row `row`: subtracts its requests from the free amounts
        there and adds them on its own node."""
        self.free[row] -= self.vector(pod)
        self.free[self.position[pod.node]] += self.vector(pod)
        self.neighbours.moved(pod, self.nodes[self.position[pod.node]], self.nodes[row])
        self.touched += (row, self.position[pod.node])

    def _with_room(self, pod: Pod) -> Mask:
        """Returns bool[nodes], true for each node that could take the pod, pod anti-affinity not
        considered. Such a node has enough free amounts, is not cordoned, matches the pod's node
        selector and required node affinity, and has no taint that the pod does not tolerate.

        The result is cached for all pods with equal requirements. A later call recomputes only the
        nodes whose free amounts have changed since then (`touched`). The caller must not change the
        returned array.
        """
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
        """Returns two cache keys of the pod. The first has its node selector, node affinity terms
        and tolerations; they determine which nodes the pod selects and which taints it tolerates.
        The second has its requests by resource. Two pods that are equal in both keys get the same
        answers."""
        found = self.keys.get(pod.uid)
        if found is None:
            asked = pod.requirements
            named = (
                tuple(sorted(asked.node_selector.items())),
                asked.node_terms,
                asked.tolerations,
            )
            amounts = tuple(sorted(self.cluster.requests[pod.uid].items()))
            found = self.keys[pod.uid] = (named, amounts)
        return found

    def named(self, pod: Pod) -> Mask:
        """Returns bool[nodes], true for each node that satisfies the pod's selector and required
        affinity and whose taints the pod tolerates. Other pods and free amounts are not considered.
        Cached per class of equal pods."""
        key, _ = self._asked(pod)
        found = self.answers.get(key)
        if found is None:
            found = np.array(
                [selects(pod, node) and tolerates(pod, node) for node in self.nodes], dtype=np.bool_
            )
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
            taken = [
                values[domain] for domain, others in meant.by_domain.items() if _others(others, pod)
            ]
            mask &= ~np.isin(codes, taken)

    def _domains(self, key: str) -> tuple[npt.NDArray[np.int64], dict[str, int]]:
        """Numbers the values of one label over all nodes, such as the zones.

        Returns int64[nodes], the number of each node's value of the label `key` (-1: the node lacks
        the label), and the map from value to number. The first value found has the number 0.
        Example: four nodes with the zones a, b, none and a give [0, 1, -1, 0] and {a: 0, b: 1}.
        """
        found = self.codes.get(key)
        if found is None:
            values: dict[str, int] = {}
            labels = [node.labels.get(key) for node in self.nodes]
            codes = [
                -1 if value is None else values.setdefault(value, len(values)) for value in labels
            ]
            found = self.codes[key] = np.array(codes, dtype=np.int64), values
        return found


def _others(there: Mapping[str, Pod], pod: Pod) -> bool:
    return len(there) > (pod.uid in there)
