"""What is answered when a request cannot be: `application/problem+json` (RFC 9457).

`detail` is one line, the one that the command prints. No input leads to a status of 500 or above;
503 says that the database is away, and when to ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from wharfinger.domain.text import one_line, printable
from wharfinger.history.names import UnknownNameError
from wharfinger.history.plan import NoAnswerError, PlanExpiredError
from wharfinger.history.points import PointError
from wharfinger.runtime.ledger import LedgerError, LedgerUnavailable, Transient
from wharfinger.runtime.ledger.at_position import RetiredError
from wharfinger.runtime.logs import get_logger

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1

TITLES: Mapping[str, tuple[int, str]] = {
    "unauthenticated": (401, "A valid token is needed"),
    "forbidden": (403, "The grant for this is missing"),
    "not-found": (404, "There is no such thing"),
    "method-not-allowed": (405, "This resource has no such method"),
    "not-acceptable": (406, "None of the accepted types can be given"),
    "invalid": (400, "The request is not valid"),
    "retired": (410, "The history up to there was retired"),
    "conflict": (409, "The state does not allow this"),
    "plan-out-of-date": (409, "The fleet has changed since the plan was made"),
    "plan-expired": (409, "The plan is too old to be carried out"),
    "precondition-failed": (412, "It has changed since it was read"),
    "precondition-required": (428, "If-Match is needed"),
    "key-reused": (422, "The idempotency key belongs to another request"),
    "too-large": (413, "The body is too large"),
    "too-many": (429, "Too many requests"),
    "behind": (503, "That position has not been reached"),
    "away": (503, "The database is away"),
    "provider-away": (503, "Who asks cannot be checked now"),
    "unanswered": (503, "Not every stream has answered yet"),
    "lost": (503, "The process that did it has ended"),
    "internal": (500, "This is a fault of the server"),
}

ERRORS_MAX = 50
"""Of one answer; a body of 16 MB may have millions."""

SHOWN_MAX = 200
"""Characters of a name or value that a client has sent, which may be no text at all: half of a
surrogate pair can stand in JSON, and no encoder writes it."""

REFUSALS = ("unauthenticated", "forbidden", "too-many")

log = get_logger(__name__)


class Problem(Exception):  # noqa: N818  (a value of the protocol, raised)
    """`kind`: of `TITLES`. `errors`: each with `pointer`, `expected` and `got`, or file and line.
    `more`: further members. `hidden`: why it was refused, where the answer must not say that it
    was; for the access records only."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, object]] = (),
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, object] | None = None,
        hidden: str = "",
    ) -> None:
        # it may hold what a client has sent, which may hold anything
        detail = printable(detail)
        super().__init__(detail)
        self.kind = kind
        self.status, self.title = TITLES[kind]
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.more = dict(more or {})
        self.hidden = hidden

    @property
    def refusal(self) -> str:
        """Why the caller may not; empty: something else is wrong."""
        return self.hidden or (self.detail if self.kind in REFUSALS else "")

    def response(self, request_id: str) -> Response:
        body: dict[str, object] = {
            "type": f"/problems/{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
            **self.more,
        }
        if self.errors:
            body["errors"] = list(self.errors)
        return Response(
            msgspec.json.encode(body),
            self.status,
            {"Cache-Control": "no-store", **self.headers},
            MEDIA_TYPE,
        )


def request_id_of(request: Request) -> str:
    return str(request.scope.get("wharfinger.request_id", ""))


def answer_problems(app: FastAPI, refused: Callable[[Request, Problem], None]) -> None:
    """Every error of a route becomes a problem. `refused` is called with those that say that the
    caller may not."""

    async def answered(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if problem.refusal:
            refused(request, problem)
        return problem.response(request_id_of(request))

    for kind in (Problem, LedgerError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, answered)


def problem_of(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case UnknownNameError():
            return Problem("not-found", one_line(error))
        case RetiredError():
            return Problem("retired", one_line(error))
        case PointError():
            return Problem("invalid", one_line(error))
        case Transient() | LedgerUnavailable():
            return Problem("away", one_line(error), headers={"Retry-After": str(RETRY_AFTER_S)})
        case PlanExpiredError():
            return Problem("plan-expired", one_line(error))
        case NoAnswerError():
            return Problem(
                "unanswered", one_line(error), headers={"Retry-After": str(RETRY_AFTER_S)}
            )
        case LedgerError():
            return Problem("invalid", one_line(error))
        case RequestValidationError():
            found = error.errors()
            errors = [_field(detail) for detail in found[:ERRORS_MAX]]
            first = errors[0] if errors else {"pointer": "", "expected": "a valid request"}
            more = {"error_count": len(found)} if len(found) > ERRORS_MAX else None
            said = f"{first['pointer']}: {first['expected']}"
            return Problem("invalid", said, errors=errors, more=more)
        case HTTPException(status_code=405):
            return Problem(
                "method-not-allowed", "another method is expected", headers=error.headers or {}
            )
        case HTTPException(status_code=404):
            return Problem("not-found", "no such path; the document is /v1/openapi.json")
        case HTTPException(status_code=413, detail=detail):
            return Problem("too-large", detail)
        case HTTPException(status_code=status) if status < 500:
            return Problem("invalid", one_line(error))
        case _:
            log.error("api.failed", exc_info=error)
            return Problem("internal", f"{type(error).__name__}; the log has it by the request id")


def _field(detail: Any) -> dict[str, object]:
    where, *names = detail["loc"] or ("",)
    path = printable("/".join(str(name) for name in names), SHOWN_MAX)
    message = printable(str(detail["msg"]).removeprefix("Value error, "))
    return {
        "pointer": f"{where}/{path}" if path else str(where),
        "expected": message.replace("Input should be", "expected"),
        "got": printable(str(detail.get("input", ""))[:80]),
    }
