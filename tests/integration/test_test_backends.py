"""The tests' own footing: a forced backend is that one or a failure, and databases keep apart."""

from __future__ import annotations

import pytest
from tests.backends import BackendMissing, any_backend, on_database

from wharfinger.runtime.backends import MEMORY, Backend

pytestmark = pytest.mark.integration


def test_a_forced_backend_that_is_missing_is_said() -> None:
    with (
        pytest.raises(BackendMissing, match="external: WHARFINGER_TEST_KAFKA"),
        any_backend({"WHARFINGER_TEST_BACKEND": "external"}),
    ):
        pass


def test_an_unknown_force_is_said() -> None:
    with (
        pytest.raises(BackendMissing, match="expected one of external, docker, embedded"),
        any_backend({"WHARFINGER_TEST_BACKEND": "cloud"}),
    ):
        pass


def test_half_of_an_external_backend_is_a_mistake() -> None:
    with (
        pytest.raises(RuntimeError, match="both or neither"),
        any_backend({"WHARFINGER_TEST_KAFKA": "h:1"}),
    ):
        pass


def test_what_the_environment_names_comes_first(backend: Backend) -> None:
    named = {
        "WHARFINGER_TEST_KAFKA": backend.bootstrap,
        "WHARFINGER_TEST_DATABASE": backend.database_url,
        "WHARFINGER_TEST_BROKER": "memory",
    }
    with any_backend(named) as found:
        assert (found.bootstrap, found.database_url) == (backend.bootstrap, backend.database_url)
        assert found.capabilities == MEMORY


def test_another_database_is_on_the_same_server() -> None:
    assert on_database("postgresql+asyncpg://u:p@h:5/a", "b") == "postgresql+asyncpg://u:p@h:5/b"
    assert (
        on_database("postgresql+asyncpg://u@/a?host=/run/x", "b")
        == "postgresql+asyncpg://u@/b?host=/run/x"
    )
