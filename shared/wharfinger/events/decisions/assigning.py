"""Items for the clusters that a decision of the fleet stage gives replicas to or takes them from.

Of a workload with several kinds of pods a cluster gets one item a component, under a name of its
own (`domain.binding.part_of`): the cluster stage places pods and need not know that they belong
together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from wharfinger.domain.binding import Component, TargetCluster, part_of
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import Assigned


class Assigning(Protocol):
    """What both answers to a request hold: `ScheduleDecided` and `ScheduleRefused`."""

    @property
    def binding(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def targets(self) -> tuple[TargetCluster, ...]: ...
    @property
    def previous(self) -> tuple[TargetCluster, ...]: ...
    @property
    def former(self) -> tuple[str, ...]: ...
    @property
    def requirements(self) -> Requirements: ...
    @property
    def priority(self) -> int: ...


class Growth(NamedTuple):
    """`more` replicas of one class in a cluster than it had; with components, sets of them."""

    cluster: str
    more: int
    requirements: Requirements
    components: tuple[Component, ...]


def growth(data: Assigning, components: tuple[Component, ...]) -> Iterator[Growth]:
    """What the clusters get beyond what the binding had there. Of an object without replicas,
    nothing."""
    before = {t.cluster: t.replicas for t in data.previous}
    for target in data.targets:
        if components:
            more, asked = int(target.cluster not in before), Requirements()
        else:
            more, asked = target.replicas - before.get(target.cluster, 0), data.requirements
        if more > 0:
            yield Growth(target.cluster, more, asked, components)


def all_targets(seq: int, decision: str, data: Assigning) -> Iterator[tuple[str, Assigned]]:
    """An item for every target, also where the count is as before, since the requirements may have
    changed; then zero for every cluster that is no target any more."""
    before = {t.cluster: t.replicas for t in data.previous}
    for target in data.targets:
        yield target.cluster, _item(seq, decision, data, data.binding, target.replicas)
        before.pop(target.cluster, None)
    for cluster in before:
        yield cluster, _item(seq, decision, data, data.binding, 0)


def changed_targets(seq: int, decision: str, data: Assigning) -> Iterator[tuple[str, Assigned]]:
    """As `all_targets`, without the targets whose count is as before."""
    before = {t.cluster: t.replicas for t in data.previous}
    for target in data.targets:
        if before.get(target.cluster) != target.replicas:
            yield target.cluster, _item(seq, decision, data, data.binding, target.replicas)
        before.pop(target.cluster, None)
    for cluster in before:
        yield cluster, _item(seq, decision, data, data.binding, 0)


def sets_of_components(
    seq: int, decision: str, data: Assigning, components: tuple[Component, ...]
) -> Iterator[tuple[str, Assigned]]:
    """To each target one set of the components, and zero of every former one; to each cluster that
    is no target any more zero of all of them."""
    before = {t.cluster: t.replicas for t in data.previous}
    for target in data.targets:
        for c in components:
            yield (
                target.cluster,
                _item(
                    seq, decision, data, part_of(data.binding, c.name), c.replicas, c.requirements
                ),
            )
        for name in data.former:
            yield target.cluster, _item(seq, decision, data, part_of(data.binding, name), 0)
        if before.pop(target.cluster, 0) or not components:
            yield target.cluster, _item(seq, decision, data, data.binding, target.replicas)
    yield from _none_of_components(seq, decision, data, components, before)


def components_kept(seq: int, decision: str, data: Assigning) -> Iterator[tuple[str, Assigned]]:
    """As `sets_of_components` for a refusal: nothing changes in the targets that the binding
    keeps."""
    before = {t.cluster: t.replicas for t in data.previous}
    for target in data.targets:
        before.pop(target.cluster, None)
    yield from _none_of_components(seq, decision, data, (), before)


def _none_of_components(
    seq: int,
    decision: str,
    data: Assigning,
    components: tuple[Component, ...],
    before: dict[str, int],
) -> Iterator[tuple[str, Assigned]]:
    for cluster, replicas in before.items():
        for name in (*(c.name for c in components), *data.former):
            yield cluster, _item(seq, decision, data, part_of(data.binding, name), 0)
        if replicas:
            yield cluster, _item(seq, decision, data, data.binding, 0)


def _item(
    seq: int,
    decision: str,
    data: Assigning,
    name: str,
    replicas: int,
    requirements: Requirements | None = None,
) -> Assigned:
    return Assigned(
        seq,
        decision,
        name,
        data.uid,
        replicas,
        data.requirements if requirements is None else requirements,
        data.priority,
    )
