"""Capacity by a cluster's summary: its totals and, where reported, its resource model: how many
nodes of each grade have how much free.

Dividing totals overestimates, because free resources are scattered over nodes. Grades
underestimate, because each node counts with the lower bound of its grade. Both are limits, so the
minimum counts. `strict` uses the grades alone, as Karmada does, though they may exceed the totals,
and requires a number of pods, without which nothing fits.

`assumed`: replicas that were decided and are not in the summary yet. They are deducted from the
totals and packed into the graded nodes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    """Returns how many more replicas fit into a cluster according to its ResourceSummary, between 0
    and `most`. Returns 0 without a summary.

    The result is the minimum of two bounds:

    1. the free total of a resource / the request of one replica, the minimum over all resources;
    2. the number of replicas that fit on the nodes that the grades describe. Grades are Karmada's
       resource model: each grade is a number of nodes and the free amounts that each of these nodes
       has at least. A cluster without grades does not have this bound.

    `requirements`: what one replica requests. None: not known; then only the free number of pods is
      used.
    `assumed`: replicas that were decided and are not in the summary yet; their requests are
      subtracted first.
    `strict`: as in Karmada. If the cluster has grades, bound 1 considers only the free number of
      pods, and a node has no resource that its grade does not name. A summary without a number of
      pods means 0 pods.

    Example: 10 free CPUs in total, and a grade of 3 nodes with at least 2 free CPUs. Of replicas
    with 2 CPUs, bound 1 allows 5 and bound 2 allows 3, so the result is 3.
    """
    room = _room_left(summary, assumed, strict)
    if summary is None or room is None:
        return 0
    grades = summary.grades
    demand = demand_of(requirements or Requirements(), of_nodes=not strict)
    graded = requirements is not None and bool(grades)
    most = min(most, room.left[PODS]) if strict and graded else room.fits(demand, most)
    if graded and most > 0:
        # With `strict`, no node has a resource that the grades do not name.
        most = _nodes(grades, assumed, strict).room_for(
            demand if strict else _spoken_of(grades, demand), most
        )
    return max(0, most)


def sets_by_summary(
    summary: ResourceSummary | None,
    components: Sequence[Component],
    most: int,
    *,
    assumed: Sequence[Component] = (),
    strict: bool = False,
) -> int:
    """Returns how many whole sets of pods fit into a cluster according to its ResourceSummary,
    between 0 and `most`. Returns 0 without a summary. A set has all pods of all `components`.

    The first bound is the free total of a resource / the request of one whole set, the minimum over
    all resources. If the cluster reports grades, there is a second bound: whole sets are packed by
    first fit over the nodes that the grades describe, in order of the grades. Grades are Karmada's
    resource model: each grade is a number of nodes and the free amounts that each of these nodes
    has at least.

    `assumed`: replicas that were decided and are not in the summary yet. They are subtracted from
      the totals and packed into the nodes of the grades before the sets.
    `strict`: as in Karmada. A summary without a number of pods means 0 pods, and a node has no
      resource that its grade does not name. Without `strict`, a resource that the grades do not
      name is limited by the first bound alone.

    Example: 10 free CPUs in total, and a grade of 3 nodes with at least 2 free CPUs. A set has 2
    pods of 2 CPUs. The totals allow 2 sets, the nodes allow 1, so the result is 1.
    """
    room = _room_left(summary, assumed, strict)
    if summary is None or room is None:
        return 0
    most = room.fits(demand_of_set(components, of_nodes=not strict), most)
    if summary.grades and most > 0:
        parts = [(demand_of(c.requirements, of_nodes=not strict), c.replicas) for c in components]
        if not strict:  # resources that the grades do not name are bounded by the totals
            parts = [(_spoken_of(summary.grades, demand), replicas) for demand, replicas in parts]
        most = _nodes(summary.grades, assumed, strict).sets(parts, most)
    return max(0, most)


def _room_left(
    summary: ResourceSummary | None, assumed: Iterable[Component], strict: bool
) -> Room | None:
    """Returns the free total of each resource of the cluster, less the requests of the replicas in
    `assumed`.

    Returns None if there is no summary, or if the number of free pods is then 0 or less.

    `assumed`: components, each with its requests and its number of replicas, that were decided and
      are not in the summary yet.
    `strict`: as in Karmada, a summary that does not state a number of pods means 0 pods, so None is
      returned. Without `strict`, a summary that does not state it means no limit of pods.

    Example: a summary with 10 free CPUs; 2 assumed replicas of 3 CPUs leave 4 CPUs.
    """
    if summary is None:
        return None
    room = room_of_summary(summary)
    if strict:
        room.left.setdefault(PODS, 0)
    for part in assumed:
        room.take(demand_of(part.requirements, of_nodes=not strict), part.replicas)
    return None if room.left.get(PODS, 1) <= 0 else room


def _nodes(
    grades: Sequence[NodeGrade], assumed: Iterable[Component], strict: bool
) -> Packing[Demand]:
    """Returns the nodes that the grades describe, with the assumed replicas packed into them.
    Assumed replicas that do not fit are ignored."""
    nodes = Packing[Demand]((room_of_grade(grade), grade.count) for grade in grades)
    for part in assumed:
        demand = demand_of(part.requirements, of_nodes=not strict)
        nodes.put(demand if strict else _spoken_of(grades, demand), part.replicas)
    return nodes


def _spoken_of(grades: Sequence[NodeGrade], demand: Demand) -> Demand:
    known = grades[0].minimum
    return Demand(
        tuple([(name, amount) for name, amount in demand.amounts if name in known]),
        tuple([device for device in demand.devices if device.pool[0] in known]),
        demand.is_pod,
        demand.pods,
    )
