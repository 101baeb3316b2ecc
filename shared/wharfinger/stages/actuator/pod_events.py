"""What `kubectl describe pod` says of our decisions: one Event of `events.k8s.io/v1` for a pod that
was bound, and one for a pod that fits nowhere, with the sentence of explain.

The name of an Event is derived from what it says, so the same is never said twice: the server
answers that it exists, and its series is counted on. Events are for people. Nothing depends on
them, so there is a limit of how many are sent a second, and those above it wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal

from wharfinger.domain.time import Micros
from wharfinger.stages.actuator.effects import Effect, EffectObject
from wharfinger.stages.actuator.requests import MERGE_PATCH, ApiRequest

REPORTER = "wharfinger"
"""`reportingController`, as `kubectl describe` shows it."""

NOTE_MAX = 1024
"""Bytes; the limit of the API."""

INSTANCE_MAX = 128
NAME_OF_POD_MAX = 230
"""Characters of the pod's name in that of the Event, which has at most 253."""

BURST, PER_SECOND = 20, 20
"""Events that are sent at once, and in the long run. Each one costs an API server as much as a
binding: while many pods are bound, bindings come first."""
EVERY_US: Micros = 1_000_000 // PER_SECOND


@dataclass(frozen=True, slots=True)
class PodEvent:
    """`action`: what was being done; `reason`: how it came out."""

    pod: EffectObject
    type: Literal["Normal", "Warning"]
    action: str
    reason: str
    note: str

    @property
    def name(self) -> str:
        said = "\0".join((self.pod.uid, self.reason, self.note)).encode()
        return f"{self.pod.name[:NAME_OF_POD_MAX]}.{sha256(said).hexdigest()[:16]}"


def event_of(effect: Effect) -> PodEvent | None:
    """What is said of an effect that was carried out; None: nothing."""
    pod = effect.object
    if effect.action == "bind-pod":
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {effect.target}"
        because = f" by {effect.cause}" if effect.cause is not None else ""
        return PodEvent(pod, "Normal", "Binding", "Scheduled", _cut(note + because))
    if effect.action == "mark-pod":
        return PodEvent(pod, "Warning", "Scheduling", "FailedScheduling", _cut(effect.message))
    return None


def event_request(event: PodEvent, instance: str, at: Micros) -> ApiRequest:
    """`instance`: which process says it."""
    pod = event.pod
    return ApiRequest(
        "POST",
        _path(pod),
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": pod.namespace},
            "eventTime": micro_time(at),
            "type": event.type,
            "action": event.action,
            "reason": event.reason,
            "note": event.note,
            "reportingController": REPORTER,
            "reportingInstance": instance[:INSTANCE_MAX],
            "regarding": {
                "apiVersion": "v1",
                "kind": pod.kind,
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
        },
        strict=True,
    )


def series_request(event: PodEvent, count: int, at: Micros) -> ApiRequest:
    """The same was said before: `count` times with this one."""
    series = {"count": count, "lastObservedTime": micro_time(at)}
    path = f"{_path(event.pod)}/{event.name}"
    return ApiRequest("PATCH", path, {"series": series}, MERGE_PATCH, strict=True)


def micro_time(at: Micros) -> str:
    """A MicroTime, such as `2026-11-24T08:00:00.000000Z`."""
    when = datetime.fromtimestamp(at / 1_000_000, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(slots=True)
class EventBudget:
    """A token bucket: `BURST` Events at once, `PER_SECOND` in the long run. `saved`: the time that
    was not used, of which each Event uses `EVERY_US`; below 0: what is still to come."""

    saved: Micros = BURST * EVERY_US
    at: Micros = 0

    def take(self, at: Micros) -> Micros:
        """Counts one more Event, and returns how long it has to wait, in microseconds."""
        if self.at:
            self.saved = min(BURST * EVERY_US, self.saved + max(0, at - self.at))
        self.at = max(self.at, at)
        self.saved -= EVERY_US
        return max(0, -self.saved)


def _path(pod: EffectObject) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events"


def _cut(note: str) -> str:
    said = note.encode()
    if len(said) <= NOTE_MAX:
        return note
    return said[: NOTE_MAX - 3].decode(errors="ignore") + "..."
