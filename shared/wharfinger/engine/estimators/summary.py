"""How much fits by a cluster's own summary: its totals, and, where it tells them, how many nodes of which size have room left.

A quotient of totals is too high, because what is free lies scattered; grades know that, and are too low, because each node counts
as the smallest of its grade. Neither can be exceeded, so the lesser counts. `strict` lets the grades stand alone, as Karmada
does, though they may promise more than the totals hold, and asks for a number of pods, without which nothing fits.

`assumed`: replicas that were decided and are not in the summary yet. They are taken off the totals and, where grades are known,
put into the nodes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wharfinger.domain.binding import Component
from wharfinger.domain.cluster import NodeGrade, ResourceSummary
from wharfinger.domain.workload import Requirements
from wharfinger.engine.estimators.packing import Packing
from wharfinger.engine.fleet.estimate import (
    PODS,
    Demand,
    Room,
    demand_of,
    demand_of_set,
    room_of_grade,
    room_of_summary,
)


def replicas_by_summary(
    summary: ResourceSummary | None,
    requirements: Requirements | None,
    most: int,
    *,
    assumed: Sequence[Component] = (),
    strict: bool = False,
) -> int:
    """How many more replicas fit, at most `most`. `requirements` None: nothing is known of them, so only pods are counted."""
    room = _room_left(summary, assumed, strict)
    if summary is None or room is None:
        return 0
    grades = summary.grades
    demand = demand_of(requirements or Requirements(), of_nodes=not strict)
    graded = requirements is not None and (_speak_of(grades, demand) if strict else bool(grades))
    most = min(most, room.left[PODS]) if strict and graded else room.fits(demand, most)
    if graded and most > 0:
        most = _nodes(grades, assumed, strict).room_for(_spoken_of(grades, demand), most)
    return max(0, most)


def sets_by_summary(
    summary: ResourceSummary | None,
    components: Sequence[Component],
    most: int,
    *,
    assumed: Sequence[Component] = (),
    strict: bool = False,
) -> int:
    """How many whole sets of components fit, at most `most`. With grades they are packed first fit, smallest nodes first."""
    room = _room_left(summary, assumed, strict)
    if summary is None or room is None:
        return 0
    most = room.fits(demand_of_set(components, of_nodes=not strict), most)
    if summary.grades and most > 0:
        parts = [(demand_of(c.requirements, of_nodes=not strict), c.replicas) for c in components]
        if not strict:  # what grades do not speak of is bounded by the totals
            parts = [(_spoken_of(summary.grades, demand), replicas) for demand, replicas in parts]
        most = _nodes(summary.grades, assumed, strict).sets(parts, most)
    return max(0, most)


def _room_left(summary: ResourceSummary | None, assumed: Iterable[Component], strict: bool) -> Room | None:
    """None: there is none."""
    if summary is None:
        return None
    room = room_of_summary(summary)
    if strict:
        room.left.setdefault(PODS, 0)
    for part in assumed:
        room.take(demand_of(part.requirements, of_nodes=not strict), part.replicas)
    return None if room.left.get(PODS, 1) <= 0 else room


def _nodes(grades: Sequence[NodeGrade], assumed: Iterable[Component], strict: bool) -> Packing[Demand]:
    """The nodes that the grades tell of, with what is assumed in them. What does not fit there was assumed elsewhere."""
    nodes = Packing[Demand]((room_of_grade(grade), grade.count) for grade in grades)
    for part in assumed:
        demand = demand_of(part.requirements, of_nodes=not strict)
        nodes.put(demand if strict else _spoken_of(grades, demand), part.replicas)
    return nodes


def _speak_of(grades: Sequence[NodeGrade], demand: Demand) -> bool:
    """Whether grades are told, with all that is asked for in them."""
    return bool(grades) and all(name in grades[0].minimum for name in _names(demand))


def _spoken_of(grades: Sequence[NodeGrade], demand: Demand) -> Demand:
    known = grades[0].minimum
    return Demand(
        tuple([(name, amount) for name, amount in demand.amounts if name in known]),
        tuple([device for device in demand.devices if device.pool[0] in known]),
        demand.is_pod,
        demand.pods,
    )


def _names(demand: Demand) -> Iterator[str]:
    yield from (name for name, _ in demand.amounts if name != PODS)
    yield from (device.pool[0] for device in demand.devices)
