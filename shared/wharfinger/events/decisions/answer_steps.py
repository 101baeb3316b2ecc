"""Steps that both answers to a request have, in the order of `stages.fleet.places`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from wharfinger.domain.workload import Requirements
from wharfinger.events.decisions.explanation import Explanation
from wharfinger.events.decisions.steps import StepResult, filtered, scored


class Requested(Protocol):
    """What an answer repeats of the request."""

    @property
    def uid(self) -> str: ...
    @property
    def replicas(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def requirements(self) -> Requirements: ...
    @property
    def former(self) -> tuple[str, ...]: ...


def requested(data: Requested, sets: Mapping[str, str]) -> StepResult:
    """`sets`: of the components that the workload has."""
    requirements = data.requirements
    asked = {"uid": data.uid, "replicas": str(data.replicas), "priority": str(data.priority)}
    amounts = {name: str(amount) for name, amount in sorted(requirements.requests.items())}
    former = {f"former component {name}": "" for name in data.former}
    return StepResult(
        "request", {**asked, "class": requirements.class_key, **amounts, **sets, **former}
    )


def chosen_clusters(why: Explanation, affinity: str) -> Iterator[StepResult]:
    yield filtered(why, {"affinity": affinity})
    named = (*why.chosen, *why.runners_up)
    estimates = {c.name: f"{c.estimate} ({c.estimated_by or 'unknown'})" for c in named}
    estimates.update((name, str(estimate)) for name, estimate in why.best.items())
    yield StepResult("estimate", estimates, sampled=True)
    yield scored(named)


def divided(why: Explanation, targets: Mapping[str, str]) -> StepResult:
    weights = {f"weight of {name}": str(n) for name, n in why.division.items()}
    return StepResult("division", {**targets, **weights})
