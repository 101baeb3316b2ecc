"""What a decision about a binding is made of: the present solved, what is counted twice left alone, and the draft with its reason.

Every draft says in its explanation why it was due, in a few words.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.reasons import Trigger
from wharfinger.events.decisions import Explanation, Leaving, ScheduleDecided, ScheduleRefused
from wharfinger.kernel.decider import Draft
from wharfinger.stages.fleet.explain import bounded
from wharfinger.stages.fleet.places import Verdict, solve
from wharfinger.stages.fleet.quota import within_quota
from wharfinger.stages.fleet.state import BindingState, FleetState


def solved(
    state: FleetState,
    record: BindingState,
    held: Mapping[str, int],
    *,
    fresh: bool = False,
    without: tuple[str, ...] = (),
    retry: bool = False,
) -> Verdict:
    """Where it would lie, as `places.solve` has it, and within the quotas of its namespace."""
    return within_quota(state, record, held, solve(state, record, held, fresh=fresh, without=without, retry=retry))


def present(state: FleetState, record: BindingState, *, fresh: bool = False, retry: bool = False) -> Verdict:
    """The binding decided against the present, what is counted twice left where it is."""
    suspect = tuple([c for c in record.suspect if c not in record.leaving]) if fresh else record.suspect
    if not suspect:
        return solved(state, record, record.targets, fresh=fresh, retry=retry)
    held = {c: n for c, n in record.targets.items() if c not in suspect}
    verdict = solved(state, record, held, fresh=fresh, without=suspect, retry=retry)
    return with_suspects(record, verdict, suspect)


def counted(record: BindingState) -> dict[str, int]:
    return {c: n for c, n in record.targets.items() if c not in record.suspect}


def with_suspects(record: BindingState, verdict: Verdict, suspect: tuple[str, ...]) -> Verdict:
    """Silent clusters keep what they hold, unless the binding wants nothing any more."""
    if verdict.targets or record.spec.replicas:
        for name in suspect:
            if name in record.targets:
                verdict.targets[name] = record.targets[name]
    return verdict


def schedule(
    record: BindingState,
    trigger: Trigger,
    why: str,
    verdict: Verdict,
    suspect: tuple[str, ...],
    cause: UUID | None,
    move: str = "",
    leaving: tuple[Leaving, ...] | None = None,
) -> Draft:
    """`why`: what made the decision necessary, for people. `move`: as in `ScheduleDecided`. `leaving`: which of the suspects are on
    their way out; None: those that were."""
    spec = record.spec
    targets = in_order(verdict.targets)
    explanation = bounded(msgspec.structs.replace(verdict.explanation, why=why))
    if verdict.reason:
        return Draft(
            ScheduleRefused(
                spec.name, spec.uid, trigger, spec.replicas, verdict.reason, targets, in_order(record.before),
                verdict.affinity, spec.priority, spec.requirements, explanation, former=record.told,
            ),
            spec.name, "refused", cause,
        )  # fmt: skip
    if suspect:
        suspect = tuple(c for c in suspect if c in verdict.targets)
    if record.leaving or leaving:
        going = record.leaving.values() if leaving is None else leaving
        leaving = tuple(sorted([one for one in going if one.cluster in suspect], key=lambda one: one.cluster))
    return Draft(
        ScheduleDecided(
            spec.name, spec.uid, trigger, spec.replicas, targets, in_order(record.before), suspect, verdict.affinity,
            spec.priority, spec.requirements, explanation, move=move, components=spec.components, former=former(record),
            leaving=leaving or (),
        ),
        spec.name, "scheduled", cause,
    )  # fmt: skip


def retold(record: BindingState) -> Draft:
    """The same replicas in the same clusters, which are told what is new of them."""
    verdict = Verdict(dict(record.targets), record.affinity, Explanation(note="stays where it is"))
    why = "its pods are told of otherwise"
    return schedule(record, "ReconcileSchedule", why, verdict, record.suspect, record.cause)


def former(record: BindingState) -> tuple[str, ...]:
    """The components that clusters were told of and that the binding has no more."""
    if not record.told:
        return ()
    now = {component.name for component in record.spec.components}
    return tuple([name for name in record.told if name not in now])


def in_order(targets: Mapping[str, int]) -> tuple[TargetCluster, ...]:
    if len(targets) == 1:
        ((name, n),) = targets.items()
        return (TargetCluster(name, n),)
    names = sorted(targets)
    return tuple(map(TargetCluster, names, map(targets.__getitem__, names)))
