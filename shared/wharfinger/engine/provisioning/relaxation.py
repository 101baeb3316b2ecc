"""Relaxation: the order in which a pod's preferences are dropped until it fits. [Karpenter]

At first a pod's preferences count as requirements, and of alternative required terms only the first
counts. Where it fits nowhere, one item is dropped and the pod is tried again. Order: the first of
several required node affinity terms, preferred pod affinity, preferred pod anti-affinity, preferred
node affinity, soft topology spread, and last PreferNoSchedule taints are tolerated. Requirements
are never dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from wharfinger.domain.pod_traits import PodTraits, TopologySpread, WeightedPodTerm
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.taints import Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.requirements import of_requirement

Step = tuple[Requirements, str]
"""The requirements that are left after a step, and what was dropped, in words."""

PREFERRED_AWAY = Toleration(operator="Exists", effect="PreferNoSchedule")


def steps(requirements: Requirements, tolerate_preferred: bool) -> Iterator[Step]:
    """Yields the relaxation steps of a pod, one after another. Each step drops one item from what
    the previous step left. `tolerate_preferred`: the last step tolerates PreferNoSchedule taints.
    It only helps if some pool has such a taint."""
    current = requirements
    while (step := _next(current, tolerate_preferred)) is not None:
        yield step
        current = step[0]


def bare(requirements: Requirements) -> Requirements:
    """Returns the requirements of a pod without its preferences. Preferred node affinity, preferred
    pod affinity and anti-affinity, and spreads with `ScheduleAnyway` are removed. A toleration of
    all PreferNoSchedule taints is added. Hard requirements and all alternative node affinity terms
    stay."""
    if PREFERRED_AWAY not in requirements.tolerations:
        requirements = replace(
            requirements, tolerations=(*requirements.tolerations, PREFERRED_AWAY)
        )
    traits = requirements.traits
    if not (
        traits.preferences
        or traits.preferred_affinity
        or traits.preferred_anti_affinity
        or traits.spread
    ):
        return requirements
    hard = tuple(s for s in traits.spread if s.hard)
    return _with(
        requirements,
        replace(
            traits, preferences=(), preferred_affinity=(), preferred_anti_affinity=(), spread=hard
        ),
    )


def _next(requirements: Requirements, tolerate_preferred: bool) -> Step | None:
    for give_up in _ORDER:
        step = give_up(requirements)
        if step is not None:
            return step
    return _tolerate_preferred(requirements) if tolerate_preferred else None


def _first_alternative(requirements: Requirements) -> Step | None:
    terms = requirements.node_terms
    if len(terms) < 2:
        return None
    return replace(
        requirements, node_terms=terms[1:]
    ), f"required node affinity {_node_term(terms[0])}"


def _preferred_affinity(requirements: Requirements) -> Step | None:
    traits = requirements.traits
    if not traits.preferred_affinity:
        return None
    heaviest, rest = _heaviest(traits.preferred_affinity)
    return _with(
        requirements, replace(traits, preferred_affinity=rest)
    ), f"preferred pod affinity {_pod_term(heaviest)}"


def _preferred_anti_affinity(requirements: Requirements) -> Step | None:
    traits = requirements.traits
    if not traits.preferred_anti_affinity:
        return None
    heaviest, rest = _heaviest(traits.preferred_anti_affinity)
    left = _with(requirements, replace(traits, preferred_anti_affinity=rest))
    return left, f"preferred pod anti-affinity {_pod_term(heaviest)}"


def _preferred_nodes(requirements: Requirements) -> Step | None:
    traits = requirements.traits
    if not traits.preferences:
        return None
    heaviest, rest = _heaviest(traits.preferences)
    left = _with(requirements, replace(traits, preferences=rest))
    return left, f"preferred node affinity {_node_term(heaviest.term)} (weight {heaviest.weight})"


def _soft_spread(requirements: Requirements) -> Step | None:
    traits = requirements.traits
    for i, constraint in enumerate(traits.spread):
        if not constraint.hard:
            rest = traits.spread[:i] + traits.spread[i + 1 :]
            return _with(requirements, replace(traits, spread=rest)), _spread(constraint)
    return None


def _tolerate_preferred(requirements: Requirements) -> Step | None:
    if PREFERRED_AWAY in requirements.tolerations:
        return None
    left = replace(requirements, tolerations=(*requirements.tolerations, PREFERRED_AWAY))
    return left, "keeping off nodes tainted PreferNoSchedule"


_ORDER: tuple[Callable[[Requirements], Step | None], ...] = (
    _first_alternative,
    _preferred_affinity,
    _preferred_anti_affinity,
    _preferred_nodes,
    _soft_spread,
)


class _Weighted(Protocol):
    @property
    def weight(self) -> int: ...


W = TypeVar("W", bound=_Weighted)


def _heaviest(terms: Sequence[W]) -> tuple[W, tuple[W, ...]]:
    """Returns the term with the highest weight, the first on ties, and the other terms in their
    order."""
    at = max(range(len(terms)), key=lambda i: (terms[i].weight, -i))
    return terms[at], (*terms[:at], *terms[at + 1 :])


def _with(requirements: Requirements, traits: PodTraits) -> Requirements:
    return replace(requirements, pod=traits)


def _node_term(term: NodeTerm) -> str:
    return ", ".join(_expression(r) for r in (*term.expressions, *term.fields)) or "(empty)"


def _expression(requirement: Requirement) -> str:
    key, values = of_requirement(requirement)
    return values.text(key)


def _pod_term(weighted: WeightedPodTerm) -> str:
    return f"over {weighted.term.key} (weight {weighted.weight})"


def _spread(constraint: TopologySpread) -> str:
    return f"spread over {constraint.key} (maxSkew {constraint.max_skew}, ScheduleAnyway)"
