"""How little the nodes to be made could cost at best."""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.engine.provisioning.problem import Problem


@dataclass(frozen=True, slots=True)
class Bound:
    """Billionths of a dollar an hour, never above what the cheapest solution costs. `resources_only`: nodes can be bought
    in fractions, and pods be cut. `with_anti_affinity`: pods that do not bear each other are on different nodes. `relaxation`: what
    the latter takes into account and what not, in words."""

    resources_only: int
    with_anti_affinity: int
    relaxation: str


def lower_bound(problem: Problem) -> Bound:
    """Of all wanted pods together, those that go to nodes that are there not counted."""
    raise NotImplementedError
