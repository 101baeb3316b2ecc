"""`plan` and `apply --plan` over the HTTP API: the server makes the plan, in its own time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote
from uuid import UUID

import msgspec

from wharfinger.answers.plans import MadePlan, WantedPlan, digest
from wharfinger.answers.submit import submission
from wharfinger.domain.value import converted
from wharfinger.events.decisions import PlanEnd
from wharfinger.events.intake import SkippedKind
from wharfinger.history.plan import Applied, PlanRefusal
from wharfinger.history.plan_records import Plan
from wharfinger.manifests.errors import ManifestError
from wharfinger_cli.failures import DIFFERENCE, FAILURE, CommandError
from wharfinger_cli.remote import Remote
from wharfinger_cli.request import Request

WAIT_S = 20
"""How long one request waits. An operation goes on without it."""


def made_over(request: Request, wanted: WantedPlan) -> MadePlan:
    """Interrupted it cancels the operation. CommandError: why there is no plan."""
    remote = Remote.of(request)
    done = _ended(remote, remote.begin("/v1/plans?wait=0", _body(wanted)))
    result = done["result"]
    plan = remote.value(f"/v1/plans/{result['plan']}")
    assert isinstance(plan, Plan), "the route answers with its value"
    skipped = tuple(converted(kind, SkippedKind) for kind in result["skipped"])
    return MadePlan(plan, tuple(result["unacted"]), skipped)


def applied_over(request: Request, id: str, within_s: float) -> tuple[Plan, Applied | PlanRefusal]:
    """The same as over the database: the plan is looked at first, and only that one is carried
    out."""
    remote = Remote.of(request)
    plan = remote.value(f"/v1/plans/{quote(id, safe='')}")
    assert isinstance(plan, Plan), "the route answers with its value"
    body = {"reason": request.reason, "revision": request.revision}
    path = f"/v1/plans/{plan.id}/apply?wait=0"
    begun = remote.begin(path, body, {"If-Match": f'"sha256:{digest(plan)}"'})
    done = _ended(remote, begun, refused=True)
    answer = done["result"] or done["problem"]
    if answer["applied"]:
        committed = {stream: UUID(id_) for stream, id_ in answer["committed"].items()}
        return plan, Applied(plan.id, committed, answer["again"])
    refusals = {stream: converted(e, PlanEnd) for stream, e in answer["refused"].items()}
    return plan, PlanRefusal(plan.id, refusals, tuple(answer["committed"]))


def _body(wanted: WantedPlan) -> dict[str, object]:
    match wanted.kind:
        case "scale":
            return {"kind": "scale", "binding": wanted.what, "replicas": wanted.replicas}
        case "drain":
            return {"kind": "drain", "what": wanted.what}
        case "manifests":
            return {
                "kind": "manifests",
                "manifests": [_text(name, text) for name, text in wanted.manifests],
                "policies": [_text(name, text) for name, text in wanted.policies],
                "events": [msgspec.Raw(submission(f, None).event.body) for f in wanted.events],
                "strict": wanted.strict,
            }


def _text(name: str, text: str | ManifestError) -> dict[str, str]:
    assert isinstance(text, str), "what cannot be read was refused"
    return {"name": name, "text": text}


def _ended(
    remote: Remote, operation: Mapping[str, Any], *, refused: bool = False
) -> Mapping[str, Any]:
    """The operation when it is no longer under way. `refused`: a refusal by a stream is an
    answer. CommandError: it did not succeed."""
    path = f"/v1/operations/{operation['id']}"
    try:
        while operation["state"] in ("running", "cancelling"):
            operation = remote.get(path, wait=WAIT_S)
    except KeyboardInterrupt:
        with suppress(CommandError):
            remote.begin(f"{path}/cancel", None)
        raise
    problem = operation["problem"]
    if problem is None or (refused and problem["type"] == "/problems/plan-out-of-date"):
        return operation
    missing = problem["type"] == "/problems/not-found"
    raise CommandError(
        *(problem.get("lines") or [problem["detail"]]), code=DIFFERENCE if missing else FAILURE
    )
