"""Bindings that are kept back because their node has no room for them, by the facts that are known.

A decision may be older than what is known of its node: others have bound pods there since, or the
node has become smaller. The API server does not check a binding, and the kubelet would reject the
pod. So nothing is bound to a node whose pods, with those that are to be bound there, request more
of a resource than it has; a pod that does not request that resource is bound all the same.

It is not decided here which of the pods has to go. The cluster stage has the same facts, releases
those that do not fit (`stages.cluster.unbound_pods`), and so the others fit again. Only where a
scheduler profile leaves out NodeResourcesFit the stage places pods on full nodes; their bindings
are kept back until there is room, since no kubelet would run them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.domain.ids import NodeName, ResourceName
from wharfinger.domain.workload import Requirements
from wharfinger.stages.actuator.effects import Effect
from wharfinger.stages.actuator.state import NO_REQUIREMENTS, ClusterWork, add_requests

ShortNodes = Mapping[NodeName, tuple[ResourceName, ...]]
"""Node -> the resources that it has too little of."""


def with_room(work: ClusterWork, open: Iterable[Effect], due: list[Effect]) -> list[Effect]:
    """Returns the effects of `due` without bindings to nodes that have no room for them. `open`:
    all that are open, sent or not."""
    if not due:  # as at most looks
        return due
    short = short_nodes(work, open)
    return [effect for effect in due if not lacks(work, effect, short)] if short else due


def short_nodes(work: ClusterWork, open: Iterable[Effect]) -> ShortNodes:
    """Returns the nodes that have less of a resource than their pods and those of the bindings
    among the open effects request."""
    wanted: dict[NodeName, dict[ResourceName, int]] = {}
    for effect in open:
        if effect.action == "bind-pod":
            add_requests(wanted.setdefault(effect.target, {}), _requirements(work, effect))
    found: dict[NodeName, tuple[ResourceName, ...]] = {}
    for name, amounts in wanted.items():
        if name in work.nodes.nodes:
            _, node = work.nodes.nodes[name]
            used = work.requested_on(name)
            short = [
                resource
                for resource, amount in amounts.items()
                if used.get(resource, 0) + amount > node.allocatable.get(resource, 0)
                and (resource != "pods" or resource in node.allocatable)
            ]
            if short:
                found[name] = tuple(short)
    return found


def lacks(work: ClusterWork, effect: Effect, short: ShortNodes) -> tuple[ResourceName, ...]:
    """Returns the resources for lack of which a binding is kept back; empty: it is not."""
    if effect.action != "bind-pod" or effect.target not in short:
        return ()
    requested: dict[ResourceName, int] = {}
    add_requests(requested, _requirements(work, effect))
    return tuple([name for name in short[effect.target] if name in requested])


def _requirements(work: ClusterWork, effect: Effect) -> Requirements:
    """As they were decided about: by these the stage charges the node."""
    placed = work.placements.get(effect.object.uid)
    return NO_REQUIREMENTS if placed is None else placed.requirements
