"""What is reported of answers to requests (`wharfinger.effects`), and of pods that a kubelet did
not admit.

Answers after which the same request is sent again soon are not reported, unless that goes on for
`BLOCKED_US`. Conditions that were written on waiting pods are not reported: they change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from wharfinger.domain.ids import PodUid
from wharfinger.domain.node import Pod
from wharfinger.domain.time import Micros
from wharfinger.events.effects import AnswerOutcome, EffectAnswer
from wharfinger.stages.actuator.answers import Outcome
from wharfinger.stages.actuator.attempts import RequestAttempt
from wharfinger.stages.actuator.copies import CopyWrite
from wharfinger.stages.actuator.effects import Cause, Effect, EffectObject
from wharfinger.stages.actuator.state import ClusterWork, PlacedPod

BLOCKED_US: Micros = 30_000_000
"""A budget or a scheduling gate is reported after this time."""

TEXT_MAX = 500
"""Characters of a message that are reported."""

NOT_ADMITTED = ("NodeAffinity", "NodePorts", "TopologyAffinityError", "UnexpectedAdmissionError")
OUT_OF = "OutOf"
"""Reasons of failed pods that the kubelet did not admit: these, and such as `OutOfcpu`."""


def reported(effect: Effect, made: RequestAttempt, at: Micros) -> EffectAnswer | None:
    """What is reported of the answer `made`, which came `at`; None: nothing."""
    outcome = None if effect.action == "mark-pod" else _outcome(made, at)
    if outcome is None:
        return None
    cause = effect.cause or Cause("", 0, "")
    return EffectAnswer(
        cause.stream,
        cause.seq,
        cause.decision,
        effect.verb,
        effect.action,
        *_named(effect.object),
        outcome,
        binding=effect.binding,
        node=effect.target,
        preemptor=effect.preemptor,
        **_said(made, at),
    )


def reported_copy(write: CopyWrite, made: RequestAttempt, at: Micros) -> EffectAnswer | None:
    """The same of a copied object. No single decision asks for it."""
    outcome = _outcome(made, at)
    if outcome is None:
        return None
    named = _named(write.object)
    return EffectAnswer("", 0, "", write.verb, write.action, *named, outcome, **_said(made, at))


def _named(object: EffectObject) -> tuple[str, str, str, str]:
    return object.kind, object.namespace, object.name, object.uid


class _AnswerWords(TypedDict):
    code: int
    reason: str
    message: str
    attempts: int
    after_us: int


def _said(made: RequestAttempt, at: Micros) -> _AnswerWords:
    answer = made.answer
    return {
        "code": answer.code,
        "reason": answer.reason[:TEXT_MAX],
        "message": answer.message[:TEXT_MAX],
        "attempts": made.count,
        "after_us": at - made.since,
    }


def _outcome(made: RequestAttempt, at: Micros) -> AnswerOutcome | None:
    match made.outcome:
        case Outcome.SENT:
            return "done"
        case Outcome.REPEATED:
            return "gone" if made.answer.code == 404 else "done"
        case Outcome.SUPERSEDED:
            return "conflict" if made.answer.code == 409 else "gone"
        case Outcome.REFUSED:
            return "refused"
        case Outcome.FORBIDDEN:
            return "forbidden"
        case Outcome.BLOCKED:
            return "blocked" if at - made.since >= BLOCKED_US else None
        case Outcome.CHANGED | Outcome.SLOWED | Outcome.UNKNOWN:
            return None


def rejected_pods(work: ClusterWork) -> Iterator[tuple[Pod, PlacedPod]]:
    """Pods that were bound as decided and failed because the kubelet did not admit them."""
    for pod in work.finished_pods():
        placed = work.placements.get(pod.uid) or work.released.get(pod.uid)
        if placed is not None and placed.node == pod.node and _not_admitted(pod):
            yield pod, placed


def _not_admitted(pod: Pod) -> bool:
    upkeep = pod.upkeep
    if upkeep is None or upkeep.phase != "Failed":
        return False
    return upkeep.reason in NOT_ADMITTED or upkeep.reason.startswith(OUT_OF)


def rejection(pod: Pod, placed: PlacedPod) -> EffectAnswer:
    """What is reported of such a pod."""
    upkeep, cause = pod.upkeep, placed.cause
    assert upkeep is not None, "its phase is known"
    return EffectAnswer(
        cause.stream,
        cause.seq,
        cause.decision,
        "bind",
        "bind-pod",
        "Pod",
        pod.requirements.traits.namespace,
        pod.name,
        pod.uid,
        "rejected",
        binding=placed.binding,
        node=placed.node,
        reason=upkeep.reason[:TEXT_MAX],
    )


class Rejections:
    """Which of them were reported already by this process. One that is reported a second time, by
    a process that began since, is not counted twice by the cluster stage while its node is
    barred."""

    def __init__(self) -> None:
        self._reported: set[PodUid] = set()

    def new(self, work: ClusterWork) -> list[EffectAnswer]:
        found = {pod.uid: (pod, placed) for pod, placed in rejected_pods(work)}
        new = [rejection(*found[uid]) for uid in sorted(found.keys() - self._reported)]
        self._reported = set(found)
        return new
