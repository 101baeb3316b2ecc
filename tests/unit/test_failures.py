"""What went wrong is lines for a person, also where several tasks failed together."""

from __future__ import annotations

import asyncio

from wharfinger.runtime.plane import PlaneError
from wharfinger_cli.failures import DIFFERENCE, FAILURE, CommandError, expected_failure


def test_the_only_failure_of_a_group_of_tasks_is_its_own_line_and_code() -> None:
    async def work() -> None:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(group())
            outer.create_task(asyncio.sleep(60))

    async def group() -> None:
        async with asyncio.TaskGroup() as inner:
            inner.create_task(fail())

    async def fail() -> None:
        raise CommandError("demo: waited for the tide", code=DIFFERENCE)

    try:
        asyncio.run(work())
    except* CommandError as failed:
        failure = expected_failure(failed)
    assert failure is not None
    assert failure.lines == ("demo: waited for the tide",)
    assert failure.code == DIFFERENCE


def test_failures_together_are_each_line_once_and_the_worst_code() -> None:
    group = ExceptionGroup(
        "two",
        [
            CommandError("one", code=DIFFERENCE),
            ExceptionGroup("inner", [PlaneError("two"), CommandError("one")]),
        ],
    )
    failure = expected_failure(group)
    assert failure is not None
    assert failure.lines == ("one", "two")
    assert failure.code == FAILURE


def test_a_fault_of_ours_among_them_is_not_hidden() -> None:
    assert expected_failure(ExceptionGroup("two", [CommandError("one"), KeyError("ours")])) is None
    assert expected_failure(KeyError("ours")) is None
