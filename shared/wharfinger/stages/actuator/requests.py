"""From an effect to the one request that carries it out, with its precondition in it.

A pod is named by its uid, which the server compares. A node is changed only at the version in which
it was read just before, and only if that is still the node that the decision is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from wharfinger.domain.actuation import ANNOTATION, CLOSED_BY, is_ours
from wharfinger.domain.time import Micros
from wharfinger.stages.actuator.answers import Outcome
from wharfinger.stages.actuator.effects import Effect

POD_SCHEDULED = "PodScheduled"
"""Type of the condition that says whether a pod has a node."""

MANAGER = "wharfinger"
"""Field manager of what is changed."""

STRATEGIC_PATCH = "application/strategic-merge-patch+json"
"""Of conditions it changes the one of the named type, and leaves those of others."""

MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"
APPLY_PATCH = "application/apply-patch+yaml"
"""Server-side apply. JSON is YAML, too."""

READ_BEFORE = "(as read just before)"
"""Instead of a version that is not known yet, where a request is only shown."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    method: str
    path: str
    body: dict[str, Any]
    content_type: str = JSON
    strict: bool = False
    """The server refuses fields that it does not know, and records who changed which."""

    @property
    def parameters(self) -> dict[str, str]:
        if not self.strict:
            return {}
        return {"fieldManager": MANAGER, "fieldValidation": "Strict"}

    def encoded(self) -> bytes:
        return msgspec.json.encode(self.body)


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node as its server has it. `closed_by`: the annotation; "": it has none."""

    version: str
    created_us: Micros
    unschedulable: bool
    closed_by: str


@dataclass(frozen=True, slots=True)
class PodNow:
    """A pod as its server has it. `node`: "" while it has none. `reason`, `message`, `since`: of
    its condition PodScheduled while that is false; empty otherwise."""

    version: str
    uid: str
    node: str = ""
    reason: str = ""
    message: str = ""
    since: str = ""


def path_of(effect: Effect) -> str:
    """Of the object itself."""
    named = effect.object
    if named.kind == "Node":
        return f"/api/v1/nodes/{named.name}"
    return f"/api/v1/namespaces/{named.namespace}/pods/{named.name}"


def pod_request(effect: Effect) -> ApiRequest:
    """The binding of a pod, or its eviction. One that has finished is deleted by an eviction
    without regard to budgets. The server writes node and annotations at once."""
    named = effect.object
    if effect.action == "bind-pod":
        return ApiRequest(
            "POST",
            f"{path_of(effect)}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {
                    "name": named.name,
                    "namespace": named.namespace,
                    "uid": named.uid,
                    "annotations": _annotations(effect),
                },
                "target": {"apiVersion": "v1", "kind": "Node", "name": effect.target},
            },
            strict=True,
        )
    return ApiRequest(
        "POST",
        f"{path_of(effect)}/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": named.name, "namespace": named.namespace},
            "deleteOptions": {"preconditions": {"uid": named.uid}},
        },
    )


def mark_request(effect: Effect, now: PodNow, at: Micros) -> ApiRequest | Outcome:
    """The condition PodScheduled of a pod that fits nowhere; an outcome where nothing has to be
    sent. A pod that somebody has bound meanwhile is left alone. `at`: now; the time of a condition
    that was false already stays."""
    if now.uid != effect.object.uid or now.node:
        return Outcome.SUPERSEDED
    if (now.reason, now.message) == (effect.reason, effect.message):
        return Outcome.REPEATED
    condition = {
        "type": POD_SCHEDULED,
        "status": "False",
        "reason": effect.reason,
        "message": effect.message,
        "lastTransitionTime": now.since or _seconds(at),
    }
    metadata = {"uid": now.uid, "resourceVersion": now.version}
    body = {"metadata": metadata, "status": {"conditions": [condition]}}
    return ApiRequest("PATCH", f"{path_of(effect)}/status", body, STRATEGIC_PATCH, strict=True)


def _seconds(at: Micros) -> str:
    return datetime.fromtimestamp(at // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node_request(effect: Effect, now: NodeNow) -> ApiRequest | Outcome:
    """Cordon or uncordon; an outcome where nothing has to be sent.

    A node that is cordoned already, by somebody else, is left to them: it gets no annotation, so it
    is not uncordoned by us later. One that was uncordoned by somebody else only loses the
    annotation."""
    expected = effect.object.created_us
    if expected and now.created_us and expected != now.created_us:
        return Outcome.SUPERSEDED
    if effect.action == "close-node":
        if now.unschedulable or now.closed_by:
            return Outcome.REPEATED
        return _patch(effect, now.version, str(effect.cause), {"unschedulable": True})
    if not is_ours(now.closed_by, effect.cluster):
        return Outcome.REPEATED
    return _patch(effect, now.version, None, {"unschedulable": None} if now.unschedulable else {})


def shown_request(effect: Effect) -> ApiRequest:
    """As it would be sent if the object is as it was observed."""
    if effect.action == "mark-pod":
        pod = PodNow(READ_BEFORE, effect.object.uid, since=READ_BEFORE)
        return cast(ApiRequest, mark_request(effect, pod, 0))
    if effect.object.kind != "Node":
        return pod_request(effect)
    closing = effect.action == "close-node"
    ours = f"cluster/{effect.cluster}:"
    now = NodeNow(READ_BEFORE, effect.object.created_us, not closing, "" if closing else ours)
    return cast(ApiRequest, node_request(effect, now))


def _annotations(effect: Effect) -> dict[str, str]:
    cause = effect.cause
    said = {"binding": effect.binding, "ordinal": str(effect.ordinal)}
    if cause is not None:
        said |= {"decision": cause.decision, "seq": str(cause)}
    return {f"{ANNOTATION}{key}": value for key, value in said.items()}


def _patch(
    effect: Effect, version: str, closed_by: str | None, spec: dict[str, object]
) -> ApiRequest:
    metadata = {"resourceVersion": version, "annotations": {CLOSED_BY: closed_by}}
    body: dict[str, Any] = {"metadata": metadata}
    if spec:
        body["spec"] = spec
    return ApiRequest("PATCH", path_of(effect), body, MERGE_PATCH, strict=True)
