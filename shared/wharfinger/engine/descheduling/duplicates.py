"""RemoveDuplicates: pods of one owner that lie together on a node while others have none.

The pods of an owner with equal images are spread over the nodes that would take them: on none there need be more than
the evictable pods divided by those nodes, rounded up. Who is listed first on a node is the original there and stays.
"""

from __future__ import annotations

import numpy as np

from wharfinger.domain.descheduling import RemoveDuplicates
from wharfinger.domain.node import Pod
from wharfinger.engine.descheduling.evictor import Answer, Evictor
from wharfinger.engine.descheduling.view import owners, upkeep

Kind = tuple[str, str, str, tuple[str, ...]]
"""Namespace, kind and name of an owner, and the sorted images of its pods."""


def images(pod: Pod) -> tuple[str, ...]:
    """As the observed pod lists them; of a replica that was not observed, those of its template."""
    return tuple(sorted(upkeep(pod).images or pod.requirements.traits.images))


def duplicates(args: RemoveDuplicates, evictor: Evictor) -> None:
    copies, counts = _found(args, evictor)
    for kind, by_node in copies.items():
        targets = _targets(by_node, evictor)
        if targets < 2:
            continue
        cap = -(-counts[kind] // targets)
        for node, pods in by_node.items():
            if _let_go(kind, node, pods, cap, targets, evictor) is Answer.TOTAL_LIMIT:
                return


def _let_go(kind: Kind, node: str, pods: list[Pod], cap: int, targets: int, evictor: Evictor) -> Answer:
    """`pods`: without the original."""
    why = f"{len(pods) + 1} pods of {kind[1]} {kind[0]}/{kind[2]} on {node}, {cap} at most on each of {targets} nodes"
    for pod in pods[cap - 1 :]:
        answer = evictor.evict(pod, why)
        if answer in (Answer.NODE_LIMIT, Answer.TOTAL_LIMIT):
            return answer
    return Answer.STAYS


def _found(args: RemoveDuplicates, evictor: Evictor) -> tuple[dict[Kind, dict[str, list[Pod]]], dict[Kind, int]]:
    """The copies by owner and node, without the first of each node, and how many evictable pods each owner has in
    all. A pod with two owners is a copy for each."""
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
    whose = owners(pod)
    if any(owner.kind in args.excluded_owner_kinds for owner in whose):
        return ()
    home, of = pod.requirements.traits.home, images(pod)
    return tuple((home, owner.kind, owner.name, of) for owner in whose)


def _targets(by_node: dict[str, list[Pod]], evictor: Evictor) -> int:
    """How many nodes tolerate and select such copies; of copies that only one node would take none. To the descheduler a cordoned
    node is one of them."""
    fit = evictor.going.fit
    targets = np.zeros(len(fit.nodes), dtype=np.bool_)
    for pods in by_node.values():
        for pod in pods:
            named = fit.named(pod) if evictor.going.strict else fit.named(pod) & fit.open
            if np.count_nonzero(named) > 1:
                targets |= named
    return int(np.count_nonzero(targets))
