"""Work that takes longer than an answer should: begun by a request, seen and cancelled by others.

Each operation is a task of the process that took the request in, and a row that every process reads
(`runtime.ledger.operations`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import msgspec

from wharfinger.answers.decisions import Plain
from wharfinger.domain.text import as_time
from wharfinger.runtime.ledger import LedgerError, operations
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.operations import LOST, Operation
from wharfinger.runtime.logs import get_logger
from wharfinger_api.planner_processes import PlannerProcesses
from wharfinger_api.problems import RETRY_AFTER_S, Problem, problem_of

RENEW_S = 0.5
"""So often the lease is renewed, and looked whether another process has asked to cancel."""

POLL_S = 0.1
OPEN_MAX = 20
"""Operations of one process that are queued or running; more are refused."""

log = get_logger(__name__)


@dataclass(slots=True)
class OperationProgress:
    """How far an operation is; its work says so."""

    step: str = "queued"
    done: int = 0


@dataclass(frozen=True, slots=True)
class OperationOutcome:
    """`result`: what came of it, as JSON. `plan`: that was made."""

    result: Plain
    plan: UUID | None = None


Work = Callable[[OperationProgress], Awaitable[OperationOutcome]]


@dataclass(slots=True)
class _OperationTask:
    work: asyncio.Task[OperationOutcome]
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Operations:
    """Of one process. `planners`: those that make plans for it."""

    database: Database
    owner: UUID = field(default_factory=uuid4)
    planners: PlannerProcesses = field(default_factory=PlannerProcesses)
    _running: dict[UUID, _OperationTask] = field(default_factory=dict)

    async def start(
        self, kind: str, actor: str, total: int, work: Work, plan: UUID | None = None
    ) -> UUID:
        """Problem: too many are under way."""
        if len(self._running) >= OPEN_MAX:
            raise Problem(
                "too-many",
                f"{OPEN_MAX} operations are under way",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        id_ = uuid4()
        progress = OperationProgress()
        running = _OperationTask(asyncio.ensure_future(work(progress)))
        self._running[id_] = running
        try:
            await operations.begin(self.database, id_, kind, actor, self.owner, total, plan)
        except BaseException:
            running.work.cancel()
            del self._running[id_]
            raise
        running.task = asyncio.create_task(
            self._follow(id_, running.work, progress), name=f"operation {id_}"
        )
        return id_

    async def wait(self, id_: UUID, seconds: float) -> Operation:
        """The operation, at the latest after so long. Problem: there is none."""
        until = time.monotonic() + seconds
        while True:
            found = await operations.operation(self.database, id_)
            if found is None:
                raise Problem("not-found", f"there is no operation {id_}")
            left = until - time.monotonic()
            if not found.open or left <= 0:
                return found
            mine = self._running.get(id_)
            if mine is not None and mine.task is not None:
                await asyncio.wait({mine.task}, timeout=left)
            else:
                await asyncio.sleep(min(POLL_S, left))

    async def cancel(self, id_: UUID) -> Operation:
        """Problem: there is none, or it cannot be cancelled."""
        found = await self.wait(id_, 0)
        if found.open and found.kind != "plan":
            raise Problem("conflict", "what was asked of the streams stands, and they answer it")
        await operations.cancel(self.database, id_)
        mine = self._running.get(id_)
        if mine is not None:
            mine.work.cancel()
        return await self.wait(id_, 2 * RENEW_S)

    async def stop(self) -> None:
        """What is under way ends as failed."""
        tasks = [one.task for one in self._running.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.planners.stop()

    async def _follow(
        self, id_: UUID, work: asyncio.Task[OperationOutcome], progress: OperationProgress
    ) -> None:
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=RENEW_S)
                if not work.done() and not await self._renewed(id_, progress):
                    work.cancel()
                    await asyncio.wait({work})
            await self._end(id_, work)
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work})
            with suppress(LedgerError):
                await operations.end(self.database, id_, self.owner, "failed", LOST)
            raise
        except LedgerError as error:
            # the lease runs out, and who looks at it sees that it failed
            log.warning("operation.not_recorded", operation=str(id_), reason=str(error))
        finally:
            self._running.pop(id_, None)

    async def _renewed(self, id_: UUID, progress: OperationProgress) -> bool:
        try:
            return await operations.renew(
                self.database, id_, self.owner, progress.step, progress.done
            )
        except LedgerError:
            return True  # until the lease has run out

    async def _end(self, id_: UUID, work: asyncio.Task[OperationOutcome]) -> None:
        if work.cancelled():
            await operations.end(self.database, id_, self.owner, "cancelled", b"{}")
            return
        error = work.exception()
        if isinstance(error, Exception):
            problem = problem_of(error)
            body = {
                "kind": problem.kind,
                "detail": problem.detail,
                "errors": list(problem.errors),
                "more": problem.more,
            }
            encoded = msgspec.json.encode(body)
            await operations.end(self.database, id_, self.owner, "failed", encoded)
        else:
            done = work.result()
            encoded = msgspec.json.encode(done.result)
            await operations.end(self.database, id_, self.owner, "succeeded", encoded, done.plan)


def problem_in(found: Operation) -> Problem:
    """Why it did not succeed."""
    if found.state == "cancelled":
        return Problem("conflict", f"operation {found.id} was cancelled")
    body: dict[str, Any] = msgspec.json.decode(found.result)
    return Problem(
        body["kind"],
        body["detail"],
        errors=body.get("errors", ()),
        more=body.get("more"),
        headers={"Retry-After": str(RETRY_AFTER_S)} if body["kind"] in ("away", "lost") else None,
    )


def operation_plain(found: Operation) -> Plain:
    problem = None
    if found.state in ("failed", "cancelled"):
        said = problem_in(found)
        problem = {
            "type": f"/problems/{said.kind}",
            "detail": said.detail,
            "errors": list(said.errors),
            **said.more,
        }
    return {
        "id": str(found.id),
        "kind": found.kind,
        "actor": found.actor,
        "made": as_time(found.made_at),
        "changed": as_time(found.changed_at),
        "state": found.state,
        "step": found.step,
        "done": found.done,
        "of": found.total,
        "plan": None if found.plan is None else str(found.plan),
        "result": msgspec.json.decode(found.result) if found.state == "succeeded" else None,
        "problem": problem,
    }
