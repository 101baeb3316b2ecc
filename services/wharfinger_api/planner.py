"""Makes one plan and ends: `python -m wharfinger_api.planner`, a child of the API.

A plan takes seconds of one core and up to a gigabyte. In a process of its own it delays no other
request, leaves no memory behind, and can be cancelled at any moment. The request is a line on
standard input, so that the database's password is in no command line. Standard output has one line
a step, and then the plan or what is wrong.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec

from wharfinger.answers.changes import SHOWN_MAX, ChangeRefusedError
from wharfinger.answers.plans import PlanKind, WantedPlan, fact_in, make
from wharfinger.domain.text import one_line
from wharfinger.domain.value import Value, json_decoder
from wharfinger.events.codec import UndecodableError
from wharfinger.history.names import UnknownNameError
from wharfinger.manifests.errors import ManifestError
from wharfinger.runtime.deadlines import Deadlines
from wharfinger.runtime.ledger import Ledger, LedgerError, LedgerUnavailable, Transient

LINE_MAX = 64_000_000


class PlannerRequest(Value, frozen=True):
    """`texts` of files are (name, text). `events`: CloudEvents. `made_by`: the actor."""

    database: str
    call_s: float
    fetch_s: float
    made_by: str
    kind: PlanKind
    what: str = ""
    replicas: int = 0
    manifests: tuple[tuple[str, str], ...] = ()
    policies: tuple[tuple[str, str], ...] = ()
    events: tuple[msgspec.Raw, ...] = ()
    strict: bool = False


class PlannerLine(Value, frozen=True):
    """`step`: one begins. `plan`: id of what was made. `problem`: its kind and members."""

    step: str = ""
    plan: str = ""
    unacted: tuple[str, ...] = ()
    skipped: tuple[dict[str, Any], ...] = ()
    problem: dict[str, Any] = {}


def _say(line: PlannerLine) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


async def _made(request: PlannerRequest) -> PlannerLine:
    wanted = WantedPlan(
        request.kind,
        request.what,
        request.replicas,
        request.manifests,
        request.policies,
        tuple(fact_in(bytes(event)) for event in request.events),
        request.strict,
    )
    ledger = await Ledger.open(
        request.database,
        "wharfinger-api-planner",
        pool_size=2,
        deadlines=Deadlines(call_s=request.call_s, fetch_s=request.fetch_s),
    )
    try:
        found = await make(
            ledger, wanted, made_by=request.made_by, said=lambda step: _say(PlannerLine(step))
        )
    finally:
        await ledger.close()
    skipped = tuple(
        {"api_version": k.api_version, "kind": k.kind, "count": k.count, "why": k.why}
        for k in found.skipped
    )
    return PlannerLine(plan=str(found.plan.id), unacted=found.unacted, skipped=skipped)


def _problem(error: Exception) -> dict[str, Any]:
    match error:
        case ChangeRefusedError():
            errors = [
                {"file": e.file, "line": e.line, "field": e.field, "expected": e.text}
                if isinstance(e, ManifestError)
                else {"expected": e}
                for e in error.errors[:SHOWN_MAX]
            ]
            return {
                "kind": "invalid",
                "detail": error.lines[0],
                "errors": errors,
                "more": {"lines": list(error.lines), "error_count": len(error.errors)},
            }
        case UnknownNameError():
            return {"kind": "not-found", "detail": one_line(error)}
        case LedgerUnavailable() | Transient():
            return {"kind": "away", "detail": one_line(error)}
        case _:
            return {"kind": "invalid", "detail": one_line(error)}


def main() -> int:
    line = sys.stdin.buffer.readline(LINE_MAX)
    if not line:  # nothing was asked of it
        return 0
    request = json_decoder(PlannerRequest).decode(line)
    try:
        _say(asyncio.run(_made(request)))
    except (ChangeRefusedError, LedgerError, UndecodableError) as error:
        _say(PlannerLine(problem=_problem(error)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
