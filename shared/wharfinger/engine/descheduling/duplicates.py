"""RemoveDuplicates: pods of one owner that run on the same node while other nodes have none.

The pods of an owner with equal images are spread over the nodes that could take them. The target
per node is the number of evictable pods divided by these nodes, rounded up. The pod listed first on
a node counts as the original and stays.

Example: 5 pods of one ReplicaSet on node a, none on b and c: at most ceil(5 / 3) = 2 on each node,
so the surplus of a goes.
"""

from __future__ import annotations

import numpy as np

from wharfinger.domain.descheduling import RemoveDuplicates
from wharfinger.domain.node import Pod
from wharfinger.engine.descheduling.evictor import EvictionResult, Evictor
from wharfinger.engine.descheduling.view import owners, upkeep

Kind = tuple[str, str, str, tuple[str, ...]]
"""Namespace, kind and name of an owner, and the sorted images of its pods."""


def images(pod: Pod) -> tuple[str, ...]:
    """Returns the sorted container images of the pod: those of the observed pod, or, for a replica
    that was not observed yet, those of its template."""
    return tuple(sorted(upkeep(pod).images or pod.requirements.traits.images))


def duplicates(args: RemoveDuplicates, evictor: Evictor) -> None:
    """Runs RemoveDuplicates: spreads pods with the same owner and the same container images over
    the nodes. For each owner and set of images, at most `cap` evictable pods stay on a node, and
    the surplus is evicted.

    `cap` is the number of evictable pods in the cluster divided by the number of target nodes,
    rounded up. A target node is a node whose labels and taints admit these pods. With fewer than 2
    target nodes nothing is evicted.

    Example: an owner has 6 evictable pods, 4 on node a and 2 on node b, and 3 target nodes. `cap`
    is 2, so 2 pods of node a are evicted.

    Stops when the limit of evictions per pass is reached.
    """
    copies, counts = _found(args, evictor)
    for kind, by_node in copies.items():
        targets = _targets(by_node, evictor)
        if targets < 2:
            continue
        cap = -(-counts[kind] // targets)
        for node, pods in by_node.items():
            if _let_go(kind, node, pods, cap, targets, evictor) is EvictionResult.TOTAL_LIMIT:
                return


def _let_go(
    kind: Kind, node: str, pods: list[Pod], cap: int, targets: int, evictor: Evictor
) -> EvictionResult:
    """Evicts the surplus pods of one owner from one node, so that `cap` pods of this owner remain
    there. The first pod of an owner on a node is the original, the following ones are duplicates;
    the original always stays.

    `kind`: namespace, kind and name of the owner, and the images of the pods.
    `node`: the name of the node.
    `pods`: the duplicates on the node, in the order in which the cluster lists them. The first
      `cap` - 1 stay.
    `targets`: number of nodes whose labels and taints admit these pods; used only in the text of
      the reason.

    Returns NODE_LIMIT or TOTAL_LIMIT as soon as the evictor reports that limit of evictions (per
    node or per pass), else STAYS.

    Example: 5 pods of the owner are on the node and `cap` is 2. The original and the first
    duplicate stay, 3 pods are evicted.
    """
    why = (
        f"{len(pods) + 1} pods of {kind[1]} {kind[0]}/{kind[2]} on {node}, "
        f"{cap} at most on each of {targets} nodes"
    )
    for pod in pods[cap - 1 :]:
        answer = evictor.evict(pod, why)
        if answer in (EvictionResult.NODE_LIMIT, EvictionResult.TOTAL_LIMIT):
            return answer
    return EvictionResult.STAYS


def _found(
    args: RemoveDuplicates, evictor: Evictor
) -> tuple[dict[Kind, dict[str, list[Pod]]], dict[Kind, int]]:
    """Collects the evictable pods of each owner. An owner here is the namespace, kind and name of
    an owner together with the container images of the pods.

    Returns two maps. The first: owner -> node -> the duplicates on the node. The first pod of an
    owner on a node is the original; it stays on the node and is not in the list. The second: owner
    -> number of its evictable pods in the cluster, originals included. A pod with two owners is in
    the lists and numbers of both owners.

    Example: an owner has 3 pods on node a and 1 pod on node b. The first map has 2 pods for node a
    and nothing for node b. The second map has 4.
    """
    copies: dict[Kind, dict[str, list[Pod]]] = {}
    counts: dict[Kind, int] = {}
    cluster = evictor.going.cluster
    for node in cluster.nodes:
        originals: set[tuple[Kind, ...]] = set()
        for pod in cluster.on(node):
            kinds = _kinds(args, pod)
            if not kinds or not args.namespaces.has(pod.requirements.traits.home):
                continue
            if not (evictor.may(pod) and evictor.lets_go(pod)):
                continue
            for kind in kinds:
                counts[kind] = counts.get(kind, 0) + 1
            identity = tuple(sorted(set(kinds)))
            if identity not in originals:
                originals.add(identity)
                continue
            for kind in kinds:
                copies.setdefault(kind, {}).setdefault(node.name, []).append(pod)
    return copies, counts


def _kinds(args: RemoveDuplicates, pod: Pod) -> tuple[Kind, ...]:
    """Returns one key per owner of the pod; empty if the policy excludes the kind of any owner."""
    whose = owners(pod)
    if any(owner.kind in args.excluded_owner_kinds for owner in whose):
        return ()
    home, of = pod.requirements.traits.home, images(pod)
    return tuple((home, owner.kind, owner.name, of) for owner in whose)


def _targets(by_node: dict[str, list[Pod]], evictor: Evictor) -> int:
    """Returns the number of nodes that satisfy the node selector, affinity and tolerations of at
    least one duplicate. Duplicates that only one node could take are left out. Cordoned nodes count
    only with `strict`, as in the descheduler."""
    fit = evictor.going.fit
    targets = np.zeros(len(fit.nodes), dtype=np.bool_)
    for pods in by_node.values():
        for pod in pods:
            named = fit.named(pod) if evictor.going.strict else fit.named(pod) & fit.open
            if np.count_nonzero(named) > 1:
                targets |= named
    return int(np.count_nonzero(targets))
