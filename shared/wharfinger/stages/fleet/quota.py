"""Checks a decision against the quotas of its namespace; `state.quotas` has limits and use."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.resources import add, quantity_of
from wharfinger.events.decisions import Explanation
from wharfinger.stages.fleet.explain import bounded
from wharfinger.stages.fleet.solve import SolveResult
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.state.quotas import EXCEEDED, per_unit, units

SHOWN = 3
"""How many resources a refusal names."""


def within_quota(
    state: FleetState, record: BindingState, held: Mapping[str, int], verdict: SolveResult
) -> SolveResult:
    """Check the result `verdict` against the quotas of the binding's namespace. Return `verdict` if
    it respects all of them. Otherwise return a refusal (QuotaExceeded) that keeps the targets
    `held` (cluster -> replicas) and names at most `SHOWN` resources.
    A resource is exceeded if the result needs more of it than the binding uses now, and the
    namespace's use would be above the limit. So a binding that only shrinks is never refused.
    Example: the limit is 10 CPUs, and the namespace uses 8 of them, 3 by this binding. A result
    that needs 5 CPUs for the binding passes (8 - 3 + 5 = 10). A result that needs 6 CPUs is
    refused."""
    quotas = state.quotas
    if not quotas.policies:
        return verdict
    namespace = record.spec.resource.namespace
    limits = quotas.limits(namespace)
    if not limits:
        return verdict
    used = quotas.use(namespace, state.bindings)
    own = quotas.counts[record.spec.name][1] if record.spec.name in quotas.counts else {}
    wanted = add({}, per_unit(record.spec), units(record.spec, verdict.targets))
    over: list[str] = []
    for resource, limit in sorted(limits.items()):
        more = wanted.get(resource, 0) - own.get(resource, 0)
        if more > 0 and used.get(resource, 0) + more > limit:
            left = quantity_of(resource, max(0, limit - used.get(resource, 0)))
            over.append(
                f"{resource} {quantity_of(resource, more)} more, {left} of "
                f"{quantity_of(resource, limit)} left"
            )
    if not over:
        return verdict
    note = f"over the quota of {namespace}: {'; '.join(over[:SHOWN])}"
    found = verdict.explanation
    return type(verdict)(
        dict(held),
        record.affinity,
        bounded(Explanation(found.candidates, found.feasible, found.refused, note=note)),
        EXCEEDED,
    )
