"""Processes that make plans, one plan each (`planner`), one at a time.

A process takes longer to start than to make a plan of a small fleet. So while plans are asked for,
the next one has been started and waits for its request.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import msgspec

from wharfinger.domain.value import json_decoder
from wharfinger.runtime.tasks import end_tasks
from wharfinger_api.planner import LINE_MAX, PlannerLine, PlannerRequest
from wharfinger_api.problems import Problem

PLAN_S = 300.0
"""A plan that is not made after so long is given up."""

READY_S = 600.0
"""A process that has had nothing to do for so long ends."""


class PlannerProcesses:
    """`ready_s`: how long the next one waits."""

    def __init__(self, ready_s: float = READY_S) -> None:
        self._ready_s = ready_s
        self.turn = asyncio.Semaphore(1)
        """One plan is made at a time."""
        self._next: Process | None = None
        self._preparing: asyncio.Task[None] | None = None

    @property
    def ready(self) -> int | None:
        """The process that waits for a request; None: there is none."""
        return None if self._next is None else self._next.pid

    async def plan(self, request: PlannerRequest, said: Callable[[str], None]) -> PlannerLine:
        """What was made. `said` is called with each step as it begins. Problem: there is no plan,
        and why."""
        async with self.turn:
            waited = await self._taken()
            process = waited or await _started()
            try:
                async with asyncio.timeout(PLAN_S):
                    line = await _planned(process, request, said)
                    if line is None and process is waited:  # it ended before it began
                        await _ended(process)
                        process = await _started()
                        line = await _planned(process, request, said)
                    return line or await _lost(process)
            except TimeoutError:
                raise Problem("conflict", f"the plan took longer than {PLAN_S:g} s") from None
            finally:
                self._preparing = asyncio.create_task(self._prepare(), name="next planner")
                await _ended(process)

    async def stop(self) -> None:
        if self._preparing is not None:
            await end_tasks([self._preparing])

    async def _taken(self) -> Process | None:
        """The process that waits, if there is one. It may have ended."""
        process, self._next = self._next, None
        if self._preparing is not None:
            await end_tasks([self._preparing])
        return process

    async def _prepare(self) -> None:
        """Until it has waited for long enough, or is taken."""
        process = self._next = await _started()
        try:
            async with asyncio.timeout(self._ready_s):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            if self._next is process:  # it was not taken
                self._next = None
                await _ended(process)


async def _started() -> Process:
    words = (sys.executable, "-m", "wharfinger_api.planner")
    return await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, limit=LINE_MAX)


async def _ended(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await asyncio.shield(process.wait())


async def _planned(
    process: Process, request: PlannerRequest, said: Callable[[str], None]
) -> PlannerLine | None:
    """What the process made; None: it has ended without a line. Problem: there is no plan, and
    why."""
    assert process.stdin is not None, "it has a pipe"
    assert process.stdout is not None, "it has a pipe"
    # libuv says RuntimeError where the pipe of a process that has ended is closed already
    with suppress(BrokenPipeError, ConnectionResetError, RuntimeError):
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        await process.stdin.drain()
    began = False
    while text := await process.stdout.readline():
        began = True
        line = json_decoder(PlannerLine).decode(text)
        if line.problem:
            raise Problem(
                line.problem["kind"],
                line.problem["detail"],
                errors=line.problem.get("errors", ()),
                more=line.problem.get("more"),
            )
        if line.plan:
            return line
        said(line.step)
    return await _lost(process) if began else None


async def _lost(process: Process) -> NoReturn:
    raise Problem("lost", f"the planner ended with {await process.wait()} and without a plan")
