"""So many executions of every target under the fuzzer, from a fixed seed: no promise is broken."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.backends import DATABASE
from tests.fuzz.__main__ import Run, fuzzed, missing
from tests.fuzz.targets import PLACES, target_of

from wharfinger.runtime.backends import plain_database_url

pytestmark = pytest.mark.long

SEED = 7
EXECUTIONS = {
    "events": 10_000,
    "records": 5_000,
    "batches": 5_000,
    "manifests": 600,
    "ledger-files": 3_000,
    "prometheus": 5_000,
    "metrics-api": 5_000,
    "api": 2_000,
}


def checked(name: str, work: Path, environment: Mapping[str, str]) -> None:
    if why := missing():
        pytest.skip(f"{name}: {why}")
    executions = EXECUTIONS[name]
    run: Run = fuzzed(
        target_of(name), work, executions=executions, seed=SEED, environment=environment
    )
    assert run.sound, f"{run}\n{run.log.read_text(errors='replace')[-6000:]}"
    assert run.executions >= executions
    assert run.edges > 0, "nothing was instrumented"


@pytest.mark.parametrize("name", [name for name in PLACES if name != "api"])
def test_no_promise_is_broken(name: str, tmp_path: Path) -> None:
    checked(name, tmp_path / "work", os.environ)


@pytest.mark.integration
def test_no_promise_of_the_api_is_broken(database_server: str, tmp_path: Path) -> None:
    checked("api", tmp_path / "work", {**os.environ, DATABASE: plain_database_url(database_server)})
