"""What repeats is logged seldom, and the next line says how much was left out."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from wharfinger.runtime.log_limit import AT_ONCE, EVERY_S, LogLimit
from wharfinger.runtime.log_setup import configure_logging


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield io.StringIO()
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def test_a_day_of_ten_attempts_a_second_is_a_line_every_ten_seconds() -> None:
    now = 0.0
    limit = LogLimit(lambda: now)
    passed, left_out = 0, 0
    for tenth in range(24 * 3600 * 10):
        now = tenth / 10
        if (before := limit.passes("ledger.away")) is not None:
            passed += 1
            left_out += before
    assert passed in range(int(24 * 3600 / EVERY_S), int(24 * 3600 / EVERY_S) + AT_ONCE + 1)
    assert 24 * 3600 * 10 - passed - left_out < EVERY_S * 10  # those after the last line


def test_each_kind_has_a_limit_of_its_own_and_recovers() -> None:
    now = 0.0
    limit = LogLimit(lambda: now, at_once=2, every_s=10.0)
    assert [limit.passes("a") for _ in range(4)] == [0, 0, None, None]
    assert limit.passes("b") == 0
    now = 1000.0
    assert [limit.passes("a") for _ in range(3)] == [2, 0, None]


@pytest.mark.parametrize("library", [False, True])
def test_warnings_that_repeat_are_few_lines(output: io.StringIO, library: bool) -> None:
    configure_logging("info", "json", output)
    for number in range(1000):
        if library:
            logging.getLogger("aiokafka").warning("Unable to connect to %s", number)
        else:
            structlog.get_logger().warning("ledger.away", why=str(number))
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert AT_ONCE <= len(lines) < 100
    assert output.getvalue().count("Traceback") == 0


def test_what_is_information_is_not_limited(output: io.StringIO) -> None:
    configure_logging("info", "json", output)
    for number in range(50):
        structlog.get_logger().info("process_started", pid=number)
    assert len(output.getvalue().splitlines()) == 50


@pytest.mark.parametrize("library", [False, True])
def test_the_next_line_says_how_many_were_left_out(
    output: io.StringIO, library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(
        "wharfinger.runtime.log_setup.LogLimit", lambda: LogLimit(lambda: now, 2, 10.0)
    )
    configure_logging("info", "json", output)
    for number in range(12):
        now = 10.0 if number == 11 else 0.0
        if library:
            logging.getLogger("faust").error("away")
        else:
            structlog.get_logger().error("away")
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [line.get("left_out") for line in lines] == [None, None, 9]
