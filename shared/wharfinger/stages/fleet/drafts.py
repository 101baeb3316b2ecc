"""Turns the solution for a binding into the draft of a decision. A suspect target (a cluster that
is silent or that the binding is leaving) keeps its replicas, and the solver places the binding as
if that cluster were not available. The explanation states why the decision was due."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.reasons import Trigger
from wharfinger.events.decisions import Explanation, Leaving, ScheduleDecided, ScheduleRefused
from wharfinger.kernel.decider import Draft
from wharfinger.stages.fleet.explain import bounded
from wharfinger.stages.fleet.quota import within_quota
from wharfinger.stages.fleet.solve import SolveResult, solve
from wharfinger.stages.fleet.state import BindingState, FleetState


def solved(
    state: FleetState,
    record: BindingState,
    held: Mapping[str, int],
    *,
    fresh: bool = False,
    without: tuple[str, ...] = (),
    retry: bool = False,
) -> SolveResult:
    """Compute the targets of the binding (cluster -> replicas), and refuse the result if it exceeds
    the quotas of the namespace. Return the targets with an explanation, or the reason of a refusal.

    `held`: cluster -> replicas that stay where possible. `fresh`: compute as if the binding had no
    replicas yet. `without`: clusters that must not be used. `retry`: True if the binding waits for
    a first place, or for the replacement of lost replicas.
    """
    return within_quota(
        state, record, held, solve(state, record, held, fresh=fresh, without=without, retry=retry)
    )


def present(
    state: FleetState, record: BindingState, *, fresh: bool = False, retry: bool = False
) -> SolveResult:
    """Compute the targets of the binding (cluster -> replicas) on the present state, and keep its
    present targets where possible. Return the targets with an explanation, or the reason of a
    refusal.

    A suspect target is a cluster that is silent or that the binding moves away from. Suspect
    targets are not used in the computation. They are added to the result with unchanged replicas.

    `fresh`: compute as if the binding had no replicas yet. A cluster that the binding moves away
    from is then treated like any other cluster. `retry`: True if the binding waits for a first
    place, or for the replacement of lost replicas.
    """
    suspect = (
        tuple([c for c in record.suspect if c not in record.leaving]) if fresh else record.suspect
    )
    if not suspect:
        return solved(state, record, record.targets, fresh=fresh, retry=retry)
    held = {c: n for c, n in record.targets.items() if c not in suspect}
    verdict = solved(state, record, held, fresh=fresh, without=suspect, retry=retry)
    return with_suspects(record, verdict, suspect)


def counted(record: BindingState) -> dict[str, int]:
    return {c: n for c, n in record.targets.items() if c not in record.suspect}


def with_suspects(
    record: BindingState, verdict: SolveResult, suspect: tuple[str, ...]
) -> SolveResult:
    """Add the suspect targets to the result with the replicas they hold, unless the binding wants
    no replicas any more. The result `verdict` is changed in place and returned."""
    if verdict.targets or record.spec.replicas:
        for name in suspect:
            if name in record.targets:
                verdict.targets[name] = record.targets[name]
    return verdict


def schedule(
    record: BindingState,
    trigger: Trigger,
    why: str,
    verdict: SolveResult,
    suspect: tuple[str, ...],
    cause: UUID | None,
    move: str = "",
    leaving: tuple[Leaving, ...] | None = None,
) -> Draft:
    """Build the draft (a decision that has no seq yet) from `verdict`, the computed targets or a
    refusal. The draft is a `ScheduleRefused` if `verdict` has a reason of a refusal, otherwise a
    `ScheduleDecided`.

    - `trigger`: Karmada's trigger of the decision.
    - `why`: text for the explanation.
    - `suspect`: the new suspect clusters: they are silent, or the binding moves away from them. A
      suspect cluster that is no target is dropped.
    - `cause`: id of the event that caused the decision.
    - `move`: `failback` or `rebalance` if a policy moves the binding to better targets; otherwise
      empty.
    - `leaving`: the suspect clusters that the binding moves away from, with details of how; None:
      the same as before the decision.
    """
    spec = record.spec
    targets = in_order(verdict.targets)
    explanation = bounded(msgspec.structs.replace(verdict.explanation, why=why))
    if verdict.reason:
        return Draft(
            ScheduleRefused(
                spec.name,
                spec.uid,
                trigger,
                spec.replicas,
                verdict.reason,
                targets,
                in_order(record.before),
                verdict.affinity,
                spec.priority,
                spec.requirements,
                explanation,
                former=record.announced_components,
            ),
            spec.name,
            "refused",
            cause,
        )
    if suspect:
        suspect = tuple(c for c in suspect if c in verdict.targets)
    if record.leaving or leaving:
        going = record.leaving.values() if leaving is None else leaving
        leaving = tuple(
            sorted([one for one in going if one.cluster in suspect], key=lambda one: one.cluster)
        )
    return Draft(
        ScheduleDecided(
            spec.name,
            spec.uid,
            trigger,
            spec.replicas,
            targets,
            in_order(record.before),
            suspect,
            verdict.affinity,
            spec.priority,
            spec.requirements,
            explanation,
            move=move,
            components=spec.components,
            former=former(record),
            leaving=leaving or (),
        ),
        spec.name,
        "scheduled",
        cause,
    )


def retold(record: BindingState) -> Draft:
    """Return the draft of a decision with unchanged targets, which sends changed pod metadata to
    the clusters."""
    verdict = SolveResult(
        dict(record.targets), record.affinity, Explanation(note="stays where it is")
    )
    why = "its pods are told of otherwise"
    return schedule(record, "ReconcileSchedule", why, verdict, record.suspect, record.cause)


def former(record: BindingState) -> tuple[str, ...]:
    """Return the names of components that the last decision had and that the binding no
    longer has."""
    if not record.announced_components:
        return ()
    now = {component.name for component in record.spec.components}
    return tuple([name for name in record.announced_components if name not in now])


def in_order(targets: Mapping[str, int]) -> tuple[TargetCluster, ...]:
    if len(targets) == 1:
        ((name, n),) = targets.items()
        return (TargetCluster(name, n),)
    names = sorted(targets)
    return tuple(map(TargetCluster, names, map(targets.__getitem__, names)))
