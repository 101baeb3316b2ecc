"""Describes what each pool can create: labels and taints of its new nodes, its possible instance
types, and their capacity.

A template is the initial state of every new claim of its pool. Its boolean masks over the instance
types tell which have the devices and the free host ports that a set of pods needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.cluster_objects import DaemonPods
from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node_pool import POOL_LABEL, NodeOverlay, NodePoolPolicy
from wharfinger.domain.pod_traits import HostPort, clash
from wharfinger.domain.taints import Taint, Toleration, first_untolerated
from wharfinger.engine.provisioning.catalogue import Ask, Column, Mask, SoldOut, Types
from wharfinger.engine.provisioning.daemons import DaemonGroup, groups
from wharfinger.engine.provisioning.overlays import BOUGHT, concerning, described_by
from wharfinger.engine.provisioning.problem import Problem
from wharfinger.engine.provisioning.requirements import HOSTNAME_LABEL, LabelSet, ValueSet

NEW_NODE = "(a node that is to be made)"
"""The host name of a new node before it exists. No pod can have requested it."""


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """The properties of the new nodes of one pool.

    `labels`: their labels, with the pool's own label and a host name. `able` bool[types]: the types
    that match these labels, are offered, and have capacity for their daemons. `room` int64[types,
    resources]: allocatable amounts less the daemons' requests. `taints`: only the permanent ones;
    startup taints are removed before pods come, so they are ignored.
    """

    pool: NodePoolPolicy
    labels: LabelSet
    types: Types
    able: Mask
    room: Column
    daemons: tuple[DaemonGroup, ...]

    @property
    def name(self) -> str:
        return self.pool.name

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.pool.taints

    def start(self, hostname: str = NEW_NODE) -> LabelSet:
        """Returns the labels of one new node. Its host name distinguishes it from other new
        nodes."""
        return LabelSet(
            (key, _one(hostname) if key == HOSTNAME_LABEL else values)
            for key, values in self.labels.items()
        )

    def refusal(self, tolerations: Iterable[Toleration], asked: LabelSet) -> str:
        """Explains why a pod may not run on any node of the pool: a taint or its labels. Empty if
        it may."""
        return untolerated(self.taints, tolerations) or self.labels.refusal(asked, self.types.known)

    def holding(self, asked: Ask) -> Mask:
        """Returns the types whose devices suffice for these requests together with those of the
        daemons, as bool[types]."""
        found = self.types.holding(asked)
        for group in self.daemons:
            if group.devices:
                found = np.where(group.among, self.types.holding((*group.devices, *asked)), found)
        return found

    def free_of(self, ports: Sequence[HostPort]) -> Mask:
        """Returns the types whose daemons use none of these host ports, as bool[types]."""
        found = np.ones(len(self.types), dtype=np.bool_)
        for group in self.daemons:
            if ports and clash(ports, group.ports):
                found &= ~group.among
        return found

    def domains(self, key: str) -> tuple[str, ...]:
        """Returns the values of a label that new nodes of the pool can have, sorted. If instance
        types describe the label, these are the values of the types that can be bought. Otherwise
        these are the values that the pool lists."""
        if key in BOUGHT or key in self.types.described:
            return self.types.values(key, self.labels, self.able)
        own = self.labels.get(key)
        return tuple(sorted(own.values)) if own is not None and not own.complement else ()


def templates_of(problem: Problem) -> tuple[Template, ...]:
    """Returns one template for each pool that creates nodes for pods. A template describes the new
    nodes of a pool: labels, taints, possible instance types. Pools with a fixed number of nodes are
    left out.

    The pools are in the order in which they are tried: the highest weight first. Pools of equal
    weight are ordered by name, descending, as in Karpenter. Example: a (weight 10), b and c (weight
    5): a, c, b. Raises OverlayError if an overlay's price cannot be parsed.
    """
    return in_turn(
        template_of(
            pool,
            problem.types.get(pool.catalogue, ()),
            problem.overlays,
            problem.objects.daemons,
            problem.sold_out,
        )
        for pool in problem.pools
        if pool.replicas is None
    )


def in_turn(templates: Iterable[Template]) -> tuple[Template, ...]:
    """Sorts templates in the order in which pools are tried: the highest weight first, then by
    name, descending."""
    by_name = sorted(templates, key=lambda t: t.name, reverse=True)
    return tuple(sorted(by_name, key=lambda t: -t.pool.weight))


def template_of(
    pool: NodePoolPolicy,
    types: Sequence[InstanceType],
    overlays: Iterable[NodeOverlay] = (),
    daemons: Iterable[DaemonPods] = (),
    sold_out: SoldOut = frozenset(),
) -> Template:
    """Returns the template of a pool: labels and taints of its new nodes, the instance types that
    these nodes can have, and the capacity that each type has for pods.

    `types`: the instance types of the pool's catalogue. `overlays`: change prices and capacity of
    the types. `daemons`: their requests are subtracted from the capacity. `sold_out`: (instance
    type, zone, capacity type) of offerings that are not available now. A type is possible if it
    matches the labels of the pool, has an available offering, and has room for the daemons. Raises
    OverlayError if an overlay's price cannot be parsed.
    """
    labels = labels_of(pool)
    laid_on = tuple(overlays)
    if laid_on:
        laid_on = concerning(laid_on, labels, described_by(types).union(BOUGHT))
    columns = Types.of(types, laid_on, sold_out)
    suited = columns.fitting(labels) & columns.with_offering(labels)
    found = groups(columns, labels, pool.taints, daemons)
    room = columns.allocatable.copy()
    for group in found:
        room[group.among] -= group.amounts
    able = suited & (room >= 0).all(axis=1)
    return Template(pool, labels, columns, able, room, found)


def labels_of(pool: NodePoolPolicy) -> LabelSet:
    """Returns the labels that every new node of a pool can have: its requirements, its labels, the
    pool's name and a host name."""
    own: Mapping[str, str] = {**pool.labels, POOL_LABEL: pool.name}
    return (
        LabelSet.of_pool(pool.requirements)
        .intersect(LabelSet.of_labels(own))
        .intersect(LabelSet(((HOSTNAME_LABEL, _one(NEW_NODE)),)))
    )


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> str:
    """Explains why a pod may not run on new nodes with these taints; empty if it may. A
    PreferNoSchedule taint counts like the others, because preferences are given up later
    (`relaxation`)."""
    taint = first_untolerated(taints, tolerations, ("NoSchedule", "PreferNoSchedule", "NoExecute"))
    if taint is None:
        return ""
    value = f"={taint.value}" if taint.value else ""
    return f"did not tolerate taint {taint.key}{value}:{taint.effect}"


def prefers_away(templates: Iterable[Template]) -> bool:
    """Returns whether any pool has a PreferNoSchedule taint. Only then does it help to tolerate
    them."""
    return any(taint.effect == "PreferNoSchedule" for t in templates for taint in t.taints)


def _one(value: str) -> ValueSet:
    return ValueSet(False, frozenset((value,)))
