"""What each pool can make: the labels and taints of its new nodes, the instance types they may be, and the room on them.

A template is the start of every new claim of its pool. It answers in masks over the instance types: which of them have the
labels, the room, the devices and the ports that some pods ask for together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.cluster_objects import DaemonPods
from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node_pool import POOL_LABEL, NodeOverlay, NodePoolPolicy
from wharfinger.domain.pod_traits import HostPort
from wharfinger.domain.taints import Taint, Toleration, first_untolerated
from wharfinger.engine.framework.plugins.node_ports import clash
from wharfinger.engine.provisioning.catalogue import Ask, Column, Mask, SoldOut, Types
from wharfinger.engine.provisioning.daemons import DaemonGroup, groups
from wharfinger.engine.provisioning.overlays import BOUGHT, concerning, described_by
from wharfinger.engine.provisioning.problem import Problem
from wharfinger.engine.provisioning.requirements import HOSTNAME_LABEL, LabelSet, ValueSet

NEW_NODE = "(a node that is to be made)"
"""What the host name of a new node is: none that anybody could have asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """`labels`: of the pool's new nodes, its own label and a host name among them. `able`: bool[types], whose labels suit
    the pool, that are offered and have room for their daemons. `room`: int64[types, resources], what is allocatable
    less the daemons' requests. `taints` are there for good; startup taints go before pods come, and keep nobody away."""

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
        """The labels of one new node, told apart from others by its host name."""
        return LabelSet(
            (key, _one(hostname) if key == HOSTNAME_LABEL else values) for key, values in self.labels.items()
        )

    def refusal(self, tolerations: Iterable[Toleration], asked: LabelSet) -> str:
        """Why a pod may not go to any node of the pool, whatever it becomes; empty when it may."""
        return untolerated(self.taints, tolerations) or self.labels.refusal(asked, self.types.known)

    def holding(self, asked: Ask) -> Mask:
        """bool[types]: whose devices suffice for these requests together and for the daemons' on top."""
        found = self.types.holding(asked)
        for group in self.daemons:
            if group.devices:
                found = np.where(group.among, self.types.holding((*group.devices, *asked)), found)
        return found

    def free_of(self, ports: Sequence[HostPort]) -> Mask:
        """bool[types]: whose daemons leave these ports of the host free."""
        found = np.ones(len(self.types), dtype=np.bool_)
        for group in self.daemons:
            if ports and clash(ports, group.ports):
                found &= ~group.among
        return found

    def domains(self, key: str) -> tuple[str, ...]:
        """The values of a label that nodes of the pool can have, in order: what its requirements and its instance types
        leave, as far as they can be bought. Of a label that types say nothing of, those the pool lists."""
        if key in BOUGHT or key in self.types.described:
            return self.types.values(key, self.labels, self.able)
        own = self.labels.get(key)
        return tuple(sorted(own.values)) if own is not None and not own.complement else ()


def templates_of(problem: Problem) -> tuple[Template, ...]:
    """In the order in which pools are tried: the heaviest first, of equally heavy ones the last by name, as Karpenter has
    it. A pool of a fixed number of nodes makes none for pods. Raises OverlayError."""
    return in_turn(
        template_of(
            pool, problem.types.get(pool.catalogue, ()), problem.overlays, problem.objects.daemons, problem.sold_out
        )
        for pool in problem.pools
        if pool.replicas is None
    )


def in_turn(templates: Iterable[Template]) -> tuple[Template, ...]:
    """In the order in which pools are tried, see `templates_of`."""
    by_name = sorted(templates, key=lambda t: t.name, reverse=True)
    return tuple(sorted(by_name, key=lambda t: -t.pool.weight))


def template_of(
    pool: NodePoolPolicy,
    types: Sequence[InstanceType],
    overlays: Iterable[NodeOverlay] = (),
    daemons: Iterable[DaemonPods] = (),
    sold_out: SoldOut = frozenset(),
) -> Template:
    """`types`: of the pool's catalogue. Raises OverlayError."""
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
    """What nodes of a pool can be before it is said what they become."""
    own: Mapping[str, str] = {**pool.labels, POOL_LABEL: pool.name}
    return (
        LabelSet.of_pool(pool.requirements)
        .intersect(LabelSet.of_labels(own))
        .intersect(LabelSet(((HOSTNAME_LABEL, _one(NEW_NODE)),)))
    )


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> str:
    """Why a pod may not go to new nodes with these taints; empty when it may. A taint PreferNoSchedule counts as well: what
    is preferred is given up later (`relaxation`)."""
    taint = first_untolerated(taints, tolerations, ("NoSchedule", "PreferNoSchedule", "NoExecute"))
    if taint is None:
        return ""
    value = f"={taint.value}" if taint.value else ""
    return f"did not tolerate taint {taint.key}{value}:{taint.effect}"


def prefers_away(templates: Iterable[Template]) -> bool:
    """Whether any pool has a taint PreferNoSchedule, so that it would help to tolerate them."""
    return any(taint.effect == "PreferNoSchedule" for t in templates for taint in t.taints)


def _one(value: str) -> ValueSet:
    return ValueSet(False, frozenset((value,)))
