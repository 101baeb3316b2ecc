"""One pass of a descheduling policy over one cluster: which pods should leave their nodes, in order, and why.

First all strategies that look at pods one by one, of all profiles; then all that balance; limits count over all of
them. A strategy that cannot judge (usage is not known, a priority class is missing) names nobody, and says why; the
others go on.

The same view gives the same answer. `Memory` is what is carried from one pass to the next."""

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
from wharfinger.engine.descheduling import ageing, utilisation, violations, watermarks
from wharfinger.engine.descheduling.duplicates import duplicates
from wharfinger.engine.descheduling.evictor import Eviction, Evictor, Pass, UnknownPriorityClassError
from wharfinger.engine.descheduling.spreading import spread
from wharfinger.engine.descheduling.steadiness import Memory
from wharfinger.engine.descheduling.usage import UsageUnknownError
from wharfinger.engine.descheduling.utilisation import Survey
from wharfinger.engine.descheduling.view import Cluster, ClusterView

READY_MIN = 2
"""With fewer ready nodes there is nowhere to go."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A strategy that named nobody, or left nodes alone, because something is not known."""

    profile: str
    strategy: str
    why: str


@dataclass(frozen=True, slots=True)
class Passed:
    """`surveys`: how the strategies that go by usage judged the nodes, in order."""

    evictions: tuple[Eviction, ...]
    failures: tuple[Failure, ...] = ()
    surveys: tuple[Survey, ...] = ()


def run(policy: DeschedulingPolicy, view: ClusterView, memory: Memory | None = None) -> tuple[Eviction, ...]:
    """The pods that should leave their nodes. Changes `memory`; without one nothing is known of earlier passes, and none of the
    rules against moves to and fro holds."""
    return passed(policy, view, memory).evictions


def passed(policy: DeschedulingPolicy, view: ClusterView, memory: Memory | None = None) -> Passed:
    """The same, with what could not be judged and how nodes were."""
    cluster = Cluster.of(view, policy.nodes)
    if len(cluster.nodes) < READY_MIN and not policy.strict:
        return Passed(())
    going = Pass.of(policy, cluster, memory)
    failures: list[Failure] = []
    surveys: list[Survey] = []
    for profile, strategy in _in_order(policy):
        try:
            survey = _apply(strategy, Evictor.of(going, profile.evictor, profile.name, name_of(strategy)), failures)
        except (UsageUnknownError, UnknownPriorityClassError) as error:
            failures.append(Failure(profile.name, name_of(strategy), str(error)))
            continue
        if survey is not None:
            surveys.append(survey)
    return Passed(tuple(going.found), tuple(failures), tuple(surveys))


def _in_order(policy: DeschedulingPolicy) -> list[tuple[DeschedulerProfile, Strategy]]:
    one_by_one = [(profile, strategy) for profile in policy.profiles for strategy in profile.deschedule]
    together = [(profile, strategy) for profile in policy.profiles for strategy in profile.balance]
    return one_by_one + together


def _apply(strategy: Strategy, evictor: Evictor, failures: list[Failure]) -> Survey | None:
    """How the nodes were judged, by those that do. Raises UsageUnknownError."""
    match strategy:
        case NodeTaints():
            violations.taints(strategy, evictor)
        case NodeAffinity():
            violations.affinity(strategy, evictor)
        case InterPodAntiAffinity():
            violations.anti_affinity(strategy, evictor)
        case PodLifeTime():
            ageing.life_time(strategy, evictor)
        case RemoveFailedPods():
            ageing.failed(strategy, evictor)
        case TooManyRestarts():
            ageing.restarting(strategy, evictor)
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
                why = f"the load of {len(held)} nodes is not known: {', '.join(held[:5])}{' ...' if held[5:] else ''}"
                failures.append(Failure(evictor.profile, evictor.strategy, why))
        case _:
            assert_never(strategy)
    return None
