"""Fixtures for tests that need the real thing; `tests/backends.py` says where it comes from."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack

import pytest
from infra.scratch import is_in_memory, scratch
from tests import hunting
from tests.backends import (
    FORCE,
    BackendMissing,
    any_backend,
    forget_topics,
    fresh_database,
    in_a_loop,
)
from tests.costs import Costs
from tests.deadline import Deadline
from tests.failures import Failures
from tests.watchdog import Watchdog

from wharfinger.runtime.backends import Backend, notice_lost_connections
from wharfinger.runtime.interpreter import fast_loops


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Every plane that a test starts, by a command or otherwise, stops when this process ends, even
    by kill -9.

    A worker of xdist ignores Ctrl-C, and so would every command that a test starts and means to end
    by it."""
    # as in the services that tests run in this process
    fast_loops()
    notice_lost_connections()
    os.environ["WHARFINGER_OWNER_PID"] = str(os.getpid())
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hunting.configure()
    if not hasattr(config, "workerinput"):
        _own_directory(config)
    config.pluginmanager.register(Costs())
    config.pluginmanager.register(Deadline())
    config.pluginmanager.register(Failures())
    config.add_cleanup(Watchdog.start().close)


ENDED_WELL = (pytest.ExitCode.OK, pytest.ExitCode.INTERRUPTED)


def _own_directory(config: pytest.Config) -> None:
    """Temporary directories below one of this run alone: pytest's common one is closed to other
    users whenever another run begins, and as root the embedded database runs as another user. It
    goes when everything passed, or when somebody ended the run by Ctrl-C."""
    directory = scratch("wharfinger-tests-")
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(directory)
    if is_in_memory(directory):  # the files of all that the run starts, too
        os.environ["TMPDIR"] = str(directory)
        tempfile.tempdir = None  # it is looked up again

    def remove() -> None:
        if getattr(config, "wharfinger_exit", 1) in ENDED_WELL:
            shutil.rmtree(directory, ignore_errors=True)

    config.add_cleanup(remove)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.wharfinger_exit = int(exitstatus)  # type: ignore[attr-defined]


def pytest_report_header() -> str:
    return hunting.header()


LONGEST_FIRST = (
    "tests/kube/test_kills.py",
    "tests/kube/test_copying.py",
    "tests/kube/test_collector.py",
    "tests/kube/test_actuator.py",
    "tests/kube/test_claims.py",
    "tests/kube/test_joining.py",
    "tests/kube/test_broken_watches.py",
    "tests/integration/test_stage_service.py",
    "tests/integration/test_demo.py",
    "tests/integration/test_cli.py",
    "tests/chaos/test_kills.py",
    "tests/integration/test_transcripts.py",
    "tests/integration/test_replay_fleets.py",
    "tests/integration/test_supervisor.py",
    "tests/properties/test_recovery_laws.py",
    "tests/contract/test_docs.py",
    "tests/contract/test_command_starts.py",
    "tests/integration/test_api.py",
    "tests/integration/test_cli_changes.py",
    "tests/integration/test_dead_letters.py",
    "tests/contract/test_checklists.py",
    "tests/chaos/test_killed_commands.py",
    "tests/chaos/test_campaign.py",
    "tests/integration/test_large_workloads.py",
    "tests/kube/test_heartbeats.py",
    "tests/integration/test_audit_cli.py",
    "tests/integration/test_api_changes.py",
    "tests/integration/test_retired_redelivery.py",
    "tests/integration/test_refused_records.py",
    "tests/integration/test_explain.py",
    "tests/integration/test_retention.py",
    "tests/integration/test_ledger_verify.py",
    "tests/integration/test_observer_loop.py",
    "tests/properties/test_plan_laws.py",
    "tests/scenarios/test_rollback.py",
    "tests/integration/test_stage_loop.py",
    "tests/integration/test_openb_run.py",
    "tests/properties/test_assign_laws.py",
    "tests/scenarios/test_whatif.py",
    "tests/properties/test_overcommit.py",
    "tests/integration/test_faust_app.py",
    "tests/integration/test_publisher.py",
    "tests/integration/test_tamperings.py",
    "tests/integration/test_export.py",
    "tests/integration/test_embedded.py",
    "tests/integration/test_idle_live.py",
    "tests/contract/test_wheel.py",
    "tests/properties/test_redaction.py",
    "tests/properties/test_devices.py",
)
"""From `build/costs-*.txt`: so that at the end no worker waits long for another."""


SELDOM = (50_000, 20, 50)
"""New objects before the youngest are looked through, and how many times that before older ones
are; Python's own: 700, 10, 10."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end: the garbage collector need not look through it again.
    It looks more seldom, too. With Python's own thresholds it takes up to half of the processor
    time of a test that makes many objects that stay, as one that parses all sources does."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*SELDOM)
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # the mark has to be there before `-m` selects by it
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _uses_the_broker(item):
            item.add_marker("broker")
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


def _uses_the_broker(item: pytest.Item) -> bool:
    """The test or a fixture it needs asks for `backend`. `database_server` does too, but hands on
    the database only."""
    info = getattr(item, "_fixtureinfo", None)  # pytest has no public way to a test's fixtures
    return info is not None and (
        "backend" in info.argnames
        or any(
            "backend" in definition.argnames
            for name, definitions in info.name2fixturedefs.items()
            if name != "database_server"
            for definition in definitions
        )
    )


def pytest_runtest_setup() -> None:
    hunting.sow()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    failed = [
        report.nodeid
        for kind in ("failed", "error")
        for report in terminalreporter.stats.get(kind, [])
    ]
    if failed:
        terminalreporter.write_line(hunting.reproduction(failed))


@pytest.fixture
def looked_at_again() -> Iterator[None]:
    """What the test took out of sight of the garbage collector is looked at after it."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def backend() -> Iterator[Backend]:
    """One broker and one database server for the whole run. Skips when there is none, fails when
    one was forced."""
    with ExitStack() as stack:
        try:
            found: Backend | str = stack.enter_context(any_backend())
        except BackendMissing as missing:
            found = str(missing)
        if isinstance(found, Backend):
            yield found
        elif os.environ.get(FORCE):
            pytest.fail(found, pytrace=False)
        else:
            pytest.skip(found)


@pytest.fixture(scope="session")
def database_server(backend: Backend) -> str:
    """The URL of the database server, for tests that do not use the broker."""
    return backend.database_url


@pytest.fixture(scope="session")
def migrated_database(database_server: str) -> Iterator[str]:
    """The name of a database with the whole schema and no rows: what each test's own is copied
    from."""
    from wharfinger.runtime.ledger.migration import migrate

    with fresh_database(database_server) as url:
        in_a_loop(lambda: migrate(url))
        yield url.split("?")[0].rsplit("/", 1)[1]


@pytest.fixture
def database_url(database_server: str, migrated_database: str) -> Iterator[str]:
    """A migrated database of this test's own."""
    with fresh_database(database_server, template=migrated_database) as url:
        yield url


@pytest.fixture
def empty_database_url(database_server: str) -> Iterator[str]:
    """A database of this test's own without any table."""
    with fresh_database(database_server) as url:
        yield url


@pytest.fixture
def topic_prefix(backend: Backend) -> Iterator[str]:
    """In front of every topic and group name of this test; its topics are deleted afterwards."""
    prefix = f"t{uuid.uuid4().hex[:10]}."
    yield prefix
    in_a_loop(lambda: forget_topics(backend, prefix))
