"""PodLifeTime, RemoveFailedPods, RemovePodsHavingTooManyRestarts: pods that are too old, have
failed, or restart too often.

All given arguments have to hold (AND); within a list, one entry (OR). Age counts from creation, or
from the start where the creation is not known. A pod with neither has no age, and no rule on age
applies to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wharfinger.domain.descheduling import (
    ConditionFilter,
    OwnerKinds,
    PodLifeTime,
    RemoveFailedPods,
    TooManyRestarts,
)
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_upkeep import ContainerState, PodCondition
from wharfinger.domain.time import SECOND
from wharfinger.engine.descheduling.evictor import EvictionResult, Evictor
from wharfinger.engine.descheduling.view import owners, upkeep
from wharfinger.engine.descheduling.violations import concerned, evict_one_by_one


def born_us(pod: Pod) -> int:
    return upkeep(pod).created_us or pod.started_us


def age_s(pod: Pod, at: int) -> int | None:
    born = born_us(pod)
    return (at - born) // SECOND if born else None


def containers(pod: Pod, init: bool) -> list[ContainerState]:
    return [c for c in upkeep(pod).containers if init or not c.init]


# The oldest first.


def life_time(args: PodLifeTime, evictor: Evictor) -> None:
    cluster = evictor.going.cluster
    at = cluster.view.at
    found: list[tuple[int, Pod, str]] = []
    for node in cluster.nodes:
        for pod in concerned(
            cluster.on(node, ended_too=True), args.namespaces, args.label_selector
        ):
            if evictor.may(pod) and (why := _lived(args, pod, at)):
                found.append((_since(args, pod, at), pod, why))
    full: set[str] = set()
    for _, pod, why in sorted(found, key=lambda f: f[0]):
        if pod.node in full or not evictor.lets_go(pod):
            continue
        answer = evictor.evict(pod, why)
        if answer is EvictionResult.TOTAL_LIMIT:
            return
        if answer is EvictionResult.NODE_LIMIT:
            full.add(pod.node)


def _lived(args: PodLifeTime, pod: Pod, at: int) -> str:
    """Checks whether PodLifeTime has to evict one pod. Returns the reason as a sentence if all
    conditions in `args` hold; an empty text if any does not hold. Conditions that `args` leaves
    empty are skipped.

    The conditions are: the pod is older than `max_s` seconds; its phase, its reason, or the reason
    of a waiting or ended container, is in `states`; a pod condition matches one of `conditions`; a
    container ended with an exit code in `exit_codes`; the kind of its owner is allowed by
    `owner_kinds`.

    `at`: now, in microseconds.
    """
    said: list[str] = []
    if args.max_s is not None:
        age = age_s(pod, at)
        if age is None or age <= args.max_s:
            return ""
        said.append(f"it is {age} s old, {args.max_s} s at most")
    if args.states:
        state = next((s for s in _states(pod, args.init_containers) if s in args.states), "")
        if not state:
            return ""
        said.append(f"it is {state}")
    if args.conditions:
        condition = next(iter(_conditions(args.conditions, pod, at)), None)
        if condition is None:
            return ""
        said.append(f"its condition {condition.type} is {condition.status}")
    if args.exit_codes:
        code = next(
            (
                c.exit_code
                for c in _ended(pod, args.init_containers)
                if c.exit_code in args.exit_codes
            ),
            None,
        )
        if code is None:
            return ""
        said.append(f"a container of it ended with {code}")
    return " and ".join(said) if _owned(args.owner_kinds, pod) else ""


def _since(args: PodLifeTime, pod: Pod, at: int) -> int:
    """Returns the sort key by which pods are evicted, oldest first, in microseconds: the latest
    change of a matching pod condition if the policy gives any condition a duration, else the
    creation time."""
    if not any(c.since_s is not None for c in args.conditions):
        return born_us(pod)
    return max((c.since_us for c in _conditions(args.conditions, pod, at)), default=born_us(pod))


def _conditions(asked: Iterable[ConditionFilter], pod: Pod, at: int) -> list[PodCondition]:
    return [c for c in upkeep(pod).conditions if any(_meets(a, c, at) for a in asked)]


def _meets(asked: ConditionFilter, condition: PodCondition, at: int) -> bool:
    if (asked.type and asked.type != condition.type) or (
        asked.status and asked.status != condition.status
    ):
        return False
    if asked.reason and asked.reason != condition.reason:
        return False
    if asked.since_s is None:
        return True
    return condition.since_us > 0 and at - condition.since_us >= asked.since_s * SECOND


def _states(pod: Pod, init: bool) -> list[str]:
    """Returns the states of the pod that a policy can name: its phase, its reason, and the reasons
    of its waiting and ended containers. `init`: init containers included."""
    kept = upkeep(pod)
    told = [c.reason for c in containers(pod, init) if c.state in ("waiting", "terminated")]
    return [state for state in (kept.phase, kept.reason, *told) if state]


def _ended(pod: Pod, init: bool) -> list[ContainerState]:
    return [c for c in containers(pod, init) if c.state == "terminated"]


def _owned(kinds: OwnerKinds, pod: Pod) -> bool:
    found = {owner.kind for owner in owners(pod)}
    if kinds.include:
        return bool(found & set(kinds.include))
    return not found & set(kinds.exclude)


# Those that have failed.


def failed(args: RemoveFailedPods, evictor: Evictor) -> None:
    cluster = evictor.going.cluster
    at = cluster.view.at

    def why(pod: Pod, node: Node) -> str:
        if upkeep(pod).phase != "Failed" or not _owned(
            OwnerKinds(exclude=args.excluded_owner_kinds), pod
        ):
            return ""
        age = age_s(pod, at)
        if args.min_age_s is not None and (age is None or age < args.min_age_s):
            return ""
        ended = _ended(pod, args.init_containers)
        reasons = [r for r in (upkeep(pod).reason, *(c.reason for c in ended)) if r]
        if args.reasons and not set(reasons) & set(args.reasons):
            return ""
        if args.exit_codes and not {c.exit_code for c in ended} & set(args.exit_codes):
            return ""
        return (
            f"it has failed ({', '.join(dict.fromkeys(reasons))})" if reasons else "it has failed"
        )

    evict_one_by_one(evictor, _all_on(evictor, args), why)


# Those that fail again and again.


def restarting(args: TooManyRestarts, evictor: Evictor) -> None:
    def why(pod: Pod, node: Node) -> str:
        restarts = sum(c.restarts for c in containers(pod, args.init_containers))
        if restarts < args.threshold:
            return ""
        waiting = [c.reason for c in containers(pod, args.init_containers) if c.state == "waiting"]
        if args.states and not {upkeep(pod).phase, *waiting} & set(args.states):
            return ""
        return f"it was restarted {restarts} times, fewer than {args.threshold} are tolerated"

    evict_one_by_one(evictor, _all_on(evictor, args), why)


def _all_on(
    evictor: Evictor, args: RemoveFailedPods | TooManyRestarts
) -> Callable[[Node], list[Pod]]:
    """Returns a function from a node to its selected pods, including those that have ended."""
    cluster = evictor.going.cluster
    return lambda n: concerned(cluster.on(n, ended_too=True), args.namespaces, args.label_selector)
