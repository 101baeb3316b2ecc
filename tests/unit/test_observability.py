"""What a process tells: log lines that a machine can read, figures per service, and whether it is
ready."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx
import pytest
import structlog
from prometheus_client import CollectorRegistry

from wharfinger.runtime.health import HealthServer
from wharfinger.runtime.log_setup import configure_logging
from wharfinger.runtime.observability import Metrics


@dataclass
class _Service:
    name: str
    is_ready: bool = True
    failure: str = ""
    behind: int = 0

    def ready(self) -> bool:
        return self.is_ready

    def lag(self) -> int:
        return self.behind

    def failed(self) -> str:
        return self.failure

    def stalled_s(self) -> float:
        return 0.0

    def oldest_s(self) -> float:
        return 0.0


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root, handlers, level = (
        logging.getLogger(),
        logging.getLogger().handlers,
        logging.getLogger().level,
    )
    yield io.StringIO()
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def _lines(output: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_log_line_is_one_json_object_with_keys(output: io.StringIO) -> None:
    configure_logging("info", "json", output)
    log = structlog.get_logger("x")
    log.debug("unheard")
    log.bind(binding="web").info("round_committed", seq=3)
    (line,) = _lines(output)
    assert (line["event"], line["binding"], line["seq"], line["level"]) == (
        "round_committed",
        "web",
        3,
        "info",
    )
    assert "timestamp" in line


def test_a_traceback_stays_in_its_line(output: io.StringIO) -> None:
    configure_logging("info", "json", output)
    try:
        raise ValueError("torn\nsail")
    except ValueError:
        structlog.get_logger().exception("round_failed")
        logging.getLogger("aiokafka").exception("fetch failed")
    ours, theirs = _lines(output)
    assert "torn" in json.dumps(ours["exception"])
    assert theirs["event"] == "fetch failed"
    assert "torn" in json.dumps(theirs["exception"])


@pytest.mark.parametrize(
    "name", ["faust.app.base", "aiokafka.conn", "mode.services", "wharfinger.runtime.faust_app"]
)
def test_what_libraries_say_comes_the_same_way_but_only_from_warning_up(
    output: io.StringIO, name: str
) -> None:
    configure_logging("debug", "json", output)
    logging.getLogger(name).info("chatter %s", 1)
    logging.getLogger(name).warning("lost %s", "broker")
    (line,) = _lines(output)
    assert (line["event"], line["logger"], line["level"]) == ("lost broker", name, "warning")


def test_a_person_reads_lines_without_colours_when_piped(output: io.StringIO) -> None:
    configure_logging("info", "console", output)
    structlog.get_logger().info("ready", port=1)
    assert "ready" in output.getvalue()
    assert "port=1" in output.getvalue()
    assert "\x1b" not in output.getvalue()


def test_rich_is_hidden_from_structlog_and_from_nothing_else() -> None:
    code = """
import sys
from wharfinger.runtime import log_setup
assert "rich" not in sys.modules and "pygments" not in sys.modules
import rich.console
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("colors", [False, True])
def test_a_traceback_on_a_console_is_that_of_structlog_without_variables(colors: bool) -> None:
    color_system = "truecolor" if colors else None
    code = f"""
import io, sys
from structlog.dev import RichTracebackFormatter  # before rich is hidden
from wharfinger.runtime.log_setup import _console_traceback

try:
    password = "harbour"
    raise ValueError("sail" * 50)
except ValueError:
    ours, theirs = io.StringIO(), io.StringIO()
    _console_traceback(colors={colors})(ours, sys.exc_info())
    structlogs = RichTracebackFormatter(color_system={color_system!r}, show_locals=False)
    structlogs(theirs, sys.exc_info())
assert "ValueError" in ours.getvalue() and "harbour" not in ours.getvalue()
assert ours.getvalue() == theirs.getvalue()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_services_share_metrics_and_keep_their_own_figures() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.of("scheduler").decisions.inc(3)
    metrics.of("publisher").decisions.inc()
    metrics.of("scheduler").decisions.inc()
    for service, expected in (("scheduler", 4), ("publisher", 1)):
        assert (
            metrics.registry.get_sample_value("wharfinger_decisions_total", {"service": service})
            == expected
        )


@pytest.fixture
async def health() -> AsyncIterator[tuple[list[_Service], httpx.AsyncClient]]:
    services: list[_Service] = []
    server = HealthServer(lambda: services, Metrics(CollectorRegistry()))
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        yield services, client
    await server.stop()


async def test_a_process_is_ready_when_all_its_services_are(
    health: tuple[list[_Service], httpx.AsyncClient],
) -> None:
    services, client = health
    assert (await client.get("/readyz")).status_code == 503
    services += [_Service("scheduler"), _Service("publisher", is_ready=False, behind=7)]
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["services"]["publisher"] == {
        "ready": False,
        "lag": 7,
        "failed": "",
        "stalled_s": 0.0,
        "oldest_s": 0.0,
        "divergences": 0,
        "requests": 0,
        "requests_since_us": 0,
    }
    assert answer.json()["services"]["scheduler"]["ready"] is True
    services[1].is_ready = True
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (200, True)


async def test_a_process_that_is_not_ready_is_alive_until_something_failed(
    health: tuple[list[_Service], httpx.AsyncClient],
) -> None:
    services, client = health
    services.append(_Service("scheduler", is_ready=False))
    assert (await client.get("/healthz")).status_code == 200
    services[0].failure = "fenced"
    answer = await client.get("/healthz")
    assert (answer.status_code, answer.json()["failed"]) == (503, {"scheduler": "fenced"})


async def test_figures_can_be_scraped(health: tuple[list[_Service], httpx.AsyncClient]) -> None:
    services, client = health
    services.append(_Service("scheduler", behind=12))
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'wharfinger_event_lag{service="scheduler"} 12.0' in answer.text
    assert 'wharfinger_ready{service="scheduler"} 1.0' in answer.text


async def test_a_taken_port_is_an_error(health: tuple[list[_Service], httpx.AsyncClient]) -> None:
    _, client = health
    with pytest.raises(OSError, match="address already in use"):
        await HealthServer(list).start(port=client.base_url.port or 0)
