"""One pass of a DeschedulerPolicy over one cluster: which pods should leave their nodes, in order,
and why.

First the Deschedule plugins of all profiles, which check pods one by one, then all Balance plugins.
The limits count across all of them. A strategy that cannot judge (no usage data, a missing priority
class) names no pods and reports why; the others continue.

A pure function: the same view gives the same result. `Memory` is carried from pass to pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from wharfinger.domain.descheduling import (
    CraneWatermarks,
    DeschedulerProfile,
    DeschedulingPolicy,
    HighNodeUtilization,
    InterPodAntiAffinity,
    LowNodeUtilization,
    NodeAffinity,
    NodeTaints,
    PodLifeTime,
    RemoveDuplicates,
    RemoveFailedPods,
    Strategy,
    TooManyRestarts,
    TopologySpread,
    name_of,
)
from wharfinger.engine.descheduling import pod_lifetime, utilisation, violations, watermarks
from wharfinger.engine.descheduling.duplicates import duplicates
from wharfinger.engine.descheduling.evictor import (
    Eviction,
    Evictor,
    Pass,
    UnknownPriorityClassError,
)
from wharfinger.engine.descheduling.spreading import spread
from wharfinger.engine.descheduling.steadiness import Memory
from wharfinger.engine.descheduling.usage import UsageUnknownError
from wharfinger.engine.descheduling.utilisation import NodeUtilisation
from wharfinger.engine.descheduling.view import ClusterView, DeschedulingCluster

READY_MIN = 2
"""With fewer ready nodes, an evicted pod has no other node."""


@dataclass(frozen=True, slots=True)
class StrategyFailure:
    """A strategy that proposed no pod, or skipped nodes, because an input is not known."""

    profile: str
    strategy: str
    why: str


@dataclass(frozen=True, slots=True)
class Passed:
    """The result of one pass. `failures`: strategies that could not judge, and why; `surveys`: how
    the strategies that compare utilisation classified the nodes, in order."""

    evictions: tuple[Eviction, ...]
    failures: tuple[StrategyFailure, ...] = ()
    surveys: tuple[NodeUtilisation, ...] = ()


def run(
    policy: DeschedulingPolicy, view: ClusterView, memory: Memory | None = None
) -> tuple[Eviction, ...]:
    """Runs one pass and returns the pods that should leave their nodes, in order. Updates `memory`.
    Without a memory the rules against oscillation do not apply."""
    return passed(policy, view, memory).evictions


def passed(policy: DeschedulingPolicy, view: ClusterView, memory: Memory | None = None) -> Passed:
    """Runs one pass of a descheduling policy over one cluster: first the strategies that the
    profiles list as Deschedule plugins, then those that they list as Balance plugins.

    Returns three lists: the pods to evict, the strategies that lacked an input (with the reason),
    and which nodes LowNodeUtilization and HighNodeUtilization found under- or overutilised.

    `memory`: what earlier passes found and did in the cluster; it is updated. None: no protection
      against moving pods back and forth.

    Without `strict`, a cluster with fewer than `READY_MIN` ready nodes gets no evictions, because
    an evicted pod has no other node there.
    """
    cluster = DeschedulingCluster.of(view, policy.nodes)
    if len(cluster.nodes) < READY_MIN and not policy.strict:
        return Passed(())
    going = Pass.of(policy, cluster, memory)
    failures: list[StrategyFailure] = []
    surveys: list[NodeUtilisation] = []
    for profile, strategy in _in_order(policy):
        try:
            survey = _apply(
                strategy,
                Evictor.of(going, profile.evictor, profile.name, name_of(strategy)),
                failures,
            )
        except (UsageUnknownError, UnknownPriorityClassError) as error:
            failures.append(StrategyFailure(profile.name, name_of(strategy), str(error)))
            continue
        if survey is not None:
            surveys.append(survey)
    return Passed(tuple(going.found), tuple(failures), tuple(surveys))


def _in_order(policy: DeschedulingPolicy) -> list[tuple[DeschedulerProfile, Strategy]]:
    one_by_one = [
        (profile, strategy) for profile in policy.profiles for strategy in profile.deschedule
    ]
    together = [(profile, strategy) for profile in policy.profiles for strategy in profile.balance]
    return one_by_one + together


def _apply(
    strategy: Strategy, evictor: Evictor, failures: list[StrategyFailure]
) -> NodeUtilisation | None:
    """Runs one descheduling strategy. The evictions that it finds are recorded by `evictor`.

    Returns which nodes LowNodeUtilization or HighNodeUtilization found under- or overutilised; None
    for any other strategy. If CraneWatermarks does not know the load of some nodes, one entry with
    their names is added to `failures`. Raises UsageUnknownError if the strategy lacks the usage
    that it needs.
    """
    match strategy:
        case NodeTaints():
            violations.taints(strategy, evictor)
        case NodeAffinity():
            violations.affinity(strategy, evictor)
        case InterPodAntiAffinity():
            violations.anti_affinity(strategy, evictor)
        case PodLifeTime():
            pod_lifetime.life_time(strategy, evictor)
        case RemoveFailedPods():
            pod_lifetime.failed(strategy, evictor)
        case TooManyRestarts():
            pod_lifetime.restarting(strategy, evictor)
        case RemoveDuplicates():
            duplicates(strategy, evictor)
        case TopologySpread():
            spread(strategy, evictor)
        case LowNodeUtilization():
            return utilisation.low(strategy, evictor)
        case HighNodeUtilization():
            return utilisation.high(strategy, evictor)
        case CraneWatermarks():
            held = watermarks.relieve(strategy, evictor)
            if held:
                why = (
                    f"the load of {len(held)} nodes is not known: "
                    f"{', '.join(held[:5])}{' ...' if held[5:] else ''}"
                )
                failures.append(StrategyFailure(evictor.profile, evictor.strategy, why))
        case _:
            assert_never(strategy)
    return None
