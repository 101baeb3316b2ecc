"""Plans in two steps, and the operations that make them and carry them out.

`POST /v1/plans` makes a plan and writes nothing to any stream; `/apply` carries out the one whose
digest is named, or says what has changed since (`history.plan`).
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Protocol
from uuid import UUID

import msgspec
from fastapi import Body, FastAPI, Path, Query, Request
from starlette.responses import Response

from wharfinger.answers import typed
from wharfinger.answers.plans import (
    STEPS,
    answer_plain,
    answers_plain,
    difference_plain,
    digest,
    plan_plain,
)
from wharfinger.history import plan as plans
from wharfinger.history.plan import Applied, PlanRefusal
from wharfinger.history.plan_records import Plan
from wharfinger.runtime.ledger import Ledger, feed, operations
from wharfinger.runtime.ledger import plans as kept_plans
from wharfinger.runtime.ledger.at_position import PastDatabase
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.operations import Operation
from wharfinger_api.access import Principal, Role
from wharfinger_api.changing import NUMBERED_WAIT_S, POLL_S, fact_of, once, origin_of
from wharfinger_api.models import (
    AppliedPlanBody,
    ApplyPlanBody,
    OperationBody,
    OperationsBody,
    PlanBody,
    WantedDrain,
    WantedManifests,
    WantedScale,
)
from wharfinger_api.operations import (
    OperationOutcome,
    OperationProgress,
    Operations,
    operation_plain,
    problem_in,
)
from wharfinger_api.planner import PlannerRequest
from wharfinger_api.planner_processes import PlannerProcesses
from wharfinger_api.problems import Problem

ANSWER_S = 30.0
"""How long a plan that is carried out waits for the answer of each stream."""

_NOT_KEPT = {"Cache-Control": "no-store"}

Wanted = Annotated[WantedScale | WantedDrain | WantedManifests, Body(discriminator="kind")]
Wait = Annotated[
    float, Query(ge=0, le=30, description="Seconds until 202 is answered instead of the result.")
]
PlanId = Annotated[str, Path(max_length=36, description="Its id, or as much as only one has.")]


class HasOperations(Protocol):
    past: PastDatabase
    operations: Operations


def add_plans(app: FastAPI, api: HasOperations, keyed: dict[str, Any]) -> None:
    """`keyed`: what the document says of operations with an `Idempotency-Key`."""
    later: dict[int | str, dict[str, Any]] = {
        202: {"model": OperationBody, "description": "It is under way; `Location` says where."}
    }
    if_match = {
        "name": "If-Match",
        "in": "header",
        "required": True,
        "description": "The `ETag` of the plan that was seen.",
        "schema": {"type": "string", "maxLength": 200},
    }

    @app.post(
        "/v1/plans",
        tags=["plans"],
        responses={200: {"model": PlanBody, "description": "The plan."}, **later},
        openapi_extra=keyed,
    )
    async def make_plan(request: Request, body: Wanted, wait: Wait = 1.0) -> Response:
        """Make a plan: what a change would do. Nothing is told to the plane."""
        database = api.past.present
        principal: Principal = request.state.principal

        async def work() -> Response:
            asked = _asked(database, principal, body)
            id_ = await api.operations.start(
                "plan",
                principal.name,
                len(STEPS),
                lambda progress: _planned(api.operations.planners, asked, progress),
            )
            found = await api.operations.wait(id_, wait)
            later = found.open or _in_the_background(request)
            return _later(found) if later else await _made(database, found)

        return await once(database, request, work)

    @app.get("/v1/plans/{plan}", tags=["plans"], response_model=PlanBody)
    async def get_plan(request: Request, plan: PlanId) -> Response:
        """A plan that was made."""
        made = await plans.named(Ledger(api.past.present), plan)
        if typed.MEDIA_TYPE in request.headers.get("accept", ""):
            return Response(typed.encoded(made), 200, _NOT_KEPT, typed.MEDIA_TYPE)
        return await _shown(api.past.present, made)

    @app.post(
        "/v1/plans/{plan}/apply",
        tags=["plans"],
        responses={200: {"model": AppliedPlanBody, "description": "It happened."}, **later},
        openapi_extra={"parameters": [*keyed["parameters"], if_match]},
    )
    async def apply_plan(
        request: Request, plan: PlanId, body: ApplyPlanBody, wait: Wait = 5.0
    ) -> Response:
        """Carry out a plan, exactly as it was made or not at all. The same again changes
        nothing."""
        database = api.past.present
        principal: Principal = request.state.principal
        origin = origin_of(principal, body.reason, body.revision)

        async def work() -> Response:
            made = await plans.named(Ledger(database), plan)
            _require_seen(made, request.headers.get("if-match", ""))

            async def apply(progress: OperationProgress) -> OperationOutcome:
                progress.step = "asking"
                answer = await plans.apply(
                    Ledger(database),
                    made,
                    ANSWER_S,
                    origin=origin,
                    answered=lambda n: setattr(progress, "done", n),
                )
                return await _answered(database, answer)

            id_ = await api.operations.start(
                "apply", principal.name, len(made.parts), apply, made.id
            )
            found = await api.operations.wait(id_, wait)
            if found.open or _in_the_background(request):
                return _later(found)
            if found.state != "succeeded":
                raise problem_in(found)
            result = msgspec.json.decode(found.result)
            headers = dict(_NOT_KEPT)
            if result["position"] is not None:
                headers["Wharfinger-Position"] = str(result["position"])
            return Response(found.result, 200, headers, "application/json")

        return await once(database, request, work)

    @app.get("/v1/operations", tags=["plans"], response_model=OperationsBody)
    async def list_operations(
        limit: Annotated[int, Query(ge=1, le=1000, description="Of one page.")] = 100,
    ) -> Response:
        """Operations of the last 24 hours, the newest first."""
        found = await operations.recent(api.past.present, limit)
        return _json({"items": [operation_plain(one) for one in found]})

    @app.get("/v1/operations/{operation}", tags=["plans"], response_model=OperationBody)
    async def get_operation(operation: UUID, wait: Wait = 0.0) -> Response:
        """How far an operation is, or what came of it."""
        return _json(operation_plain(await api.operations.wait(operation, wait)))

    @app.post("/v1/operations/{operation}/cancel", tags=["plans"], response_model=OperationBody)
    async def cancel_operation(request: Request, operation: UUID) -> Response:
        """Stop making a plan. What was asked of streams cannot be taken back."""
        principal: Principal = request.state.principal
        found = await api.operations.wait(operation, 0)
        if Role.OPERATOR not in principal.roles and found.actor != principal.name:
            raise Problem("forbidden", "the operation is another actor's: needs operator")
        return _json(operation_plain(await api.operations.cancel(operation)))


# --- making one


def _asked(
    database: Database, principal: Principal, body: WantedScale | WantedDrain | WantedManifests
) -> PlannerRequest:
    """Problem: an event is no fact from outside, or there is nothing to plan."""
    base = PlannerRequest(
        database.url,
        database.deadlines.call_s,
        database.deadlines.fetch_s,
        principal.name,
        body.kind,
    )
    match body:
        case WantedScale():
            return msgspec.structs.replace(base, what=body.binding, replicas=body.replicas)
        case WantedDrain():
            return msgspec.structs.replace(base, what=body.what)
        case WantedManifests():
            if not body.manifests and not body.policies and not body.events:
                raise Problem("invalid", "manifests: expected at least one manifest, got none")
            for place, event in enumerate(body.events):
                fact_of(f"events/{place}", event)
            return msgspec.structs.replace(
                base,
                manifests=tuple((one.name, one.text) for one in body.manifests),
                policies=tuple((one.name, one.text) for one in body.policies),
                events=tuple(msgspec.Raw(msgspec.json.encode(event)) for event in body.events),
                strict=body.strict,
            )


async def _planned(
    planners: PlannerProcesses, request: PlannerRequest, progress: OperationProgress
) -> OperationOutcome:
    """Problem: there is no plan, and why."""

    def said(step: str) -> None:
        progress.step, progress.done = step, STEPS.index(step)

    made = await planners.plan(request, said)
    result = {"plan": made.plan, "unacted": list(made.unacted), "skipped": list(made.skipped)}
    return OperationOutcome(result, UUID(made.plan))


async def _made(database: Database, found: Operation) -> Response:
    """Problem: nothing was made."""
    if found.state != "succeeded" or found.plan is None:
        raise problem_in(found)
    result = msgspec.json.decode(found.result)
    made = await plans.load(Ledger(database), found.plan)
    return await _shown(
        database, made, operation=found.id, unacted=result["unacted"], skipped=result["skipped"]
    )


async def _shown(
    database: Database,
    made: Plan,
    *,
    operation: UUID | None = None,
    unacted: object = (),
    skipped: object = (),
) -> Response:
    body = {
        **plan_plain(made),
        "made_by": await kept_plans.maker(database, made.id),
        "answers": answers_plain(made),
        "operation": None if operation is None else str(operation),
        "unacted": unacted,
        "skipped": skipped,
        "command": f"wharfinger apply --plan {made.id}",
    }
    return _json(body, {"ETag": etag_of(made)})


def etag_of(made: Plan) -> str:
    return f'"sha256:{digest(made)}"'


# --- carrying it out


def _require_seen(made: Plan, given: str) -> None:
    """Problem: the caller does not say which plan was seen, or has seen another one."""
    if not given:
        raise Problem("precondition-required", "If-Match: expected the ETag of the plan")
    if given.strip() != etag_of(made):
        raise Problem(
            "precondition-failed",
            f"If-Match: plan {made.id} has another digest",
            more={"expected": given[:200], "found": etag_of(made)},
        )


async def _answered(database: Database, answer: Applied | PlanRefusal) -> OperationOutcome:
    """Problem: a stream refused, with the difference."""
    if isinstance(answer, PlanRefusal):
        differences = difference_plain(answer)
        first = differences[0]
        about = f", {first['subject']}" if first["subject"] else ""
        raise Problem(
            "plan-out-of-date",
            f"{first['stream']} refuses: {first['reason']}{about}; make a new plan",
            more={**answer_plain(answer), "differences": differences},
        )
    position = await _position(database, answer)
    return OperationOutcome({"state": "applied", **answer_plain(answer), "position": position})


async def _position(database: Database, answer: Applied) -> int | None:
    """The highest position of the decisions that committed the plan; None: not all have one yet."""
    ledger = Ledger(database)
    rows = [await ledger.decision(id_) for id_ in answer.decisions.values()]
    until = time.monotonic() + NUMBERED_WAIT_S
    while True:
        found = [
            await feed.position_of(database, row.stream, row.seq) for row in rows if row is not None
        ]
        known = [position for position in found if position is not None]
        if len(known) == len(found):
            return max(known, default=None)
        if time.monotonic() >= until:
            return None
        await asyncio.sleep(POLL_S)


# --- answers


def _in_the_background(request: Request) -> bool:
    """The client wants the operation and not its result (RFC 7240)."""
    return "respond-async" in request.headers.get("prefer", "").lower()


def _later(found: Operation) -> Response:
    where = f"/v1/operations/{found.id}"
    return _json(operation_plain(found), {"Location": where, "Retry-After": "1"}, 202)


def _json(body: object, headers: dict[str, str] | None = None, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(body), status, {**_NOT_KEPT, **(headers or {})}, "application/json"
    )
