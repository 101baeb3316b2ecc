"""Fixtures for tests that need the real thing; `tests/backends.py` says where it comes from."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.backends import FORCE, BackendMissing, any_backend, forget_topics, fresh_database, in_a_loop

from wharfinger.runtime.backends import Backend


def pytest_configure(config: pytest.Config) -> None:
    """A worker of xdist ignores Ctrl-C, and so would every command that a test starts and means to end by it."""
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def backend() -> Iterator[Backend]:
    """One broker and one database server for the whole run. Skips when there is none, fails when one was forced."""
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
def migrated_database(backend: Backend) -> Iterator[str]:
    """The name of a database with the whole schema and no rows: what each test's own is copied from."""
    from wharfinger.runtime.ledger.schema import migrate

    with fresh_database(backend.database_url) as url:
        in_a_loop(lambda: migrate(url))
        yield url.split("?")[0].rsplit("/", 1)[1]


@pytest.fixture
def database_url(backend: Backend, migrated_database: str) -> Iterator[str]:
    """A migrated database of this test's own."""
    with fresh_database(backend.database_url, template=migrated_database) as url:
        yield url


@pytest.fixture
def empty_database_url(backend: Backend) -> Iterator[str]:
    """A database of this test's own without any table."""
    with fresh_database(backend.database_url) as url:
        yield url


@pytest.fixture
def topic_prefix(backend: Backend) -> Iterator[str]:
    """In front of every topic and group name of this test; its topics are deleted afterwards."""
    prefix = f"t{uuid.uuid4().hex[:10]}."
    yield prefix
    in_a_loop(lambda: forget_topics(backend, prefix))
