"""How hard the property tests search, from which seed, and where the failing examples are kept.

Profiles: `quick` is what `make test` runs, `long` what `make test-long` runs over the same
properties with 3 times the examples. `WHARFINGER_TEST_PROFILE` names one. A run has one seed,
printed in its first lines and again below its failures: `make test SEED=...` gives the same
examples again. Hypothesis keeps each failing example in a directory outside the clone and tries it
first in every later run, also of another clone: `WHARFINGER_TEST_EXAMPLES`, else
`wharfinger/hypothesis` below the user's cache directory.
"""

from __future__ import annotations

import math
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, core, settings
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

SEED = "WHARFINGER_TEST_SEED"
PROFILE = "WHARFINGER_TEST_PROFILE"
EXAMPLES = "WHARFINGER_TEST_EXAMPLES"
# the make target that runs us, for the line that brings a failure back
TARGET = "WHARFINGER_TEST_TARGET"

QUICK_SHARE = 3
"""The long profile draws the examples that a property names, the quick one a third."""


def profile() -> str:
    """`quick` or `long`."""
    name = os.environ.get(PROFILE, "quick")
    if name not in ("quick", "long"):
        raise pytest.UsageError(f"{PROFILE}={name}: expected quick or long")
    return name


def examples(named: int) -> int:
    """How many examples a property is tried on in this profile, at least one."""
    return named if profile() == "long" else math.ceil(named / QUICK_SHARE)


def examples_directory() -> Path:
    """Where failing examples outlive this clone."""
    named = os.environ.get(EXAMPLES)
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "wharfinger", "hypothesis")


def configure() -> None:
    """Load the profile and fix the seed of this run; the workers of xdist inherit it from the run
    that starts them."""
    settings.register_profile(
        "wharfinger",
        max_examples=examples(100),
        deadline=None,  # a busy machine fails no property
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
        database=_database(),
    )
    settings.load_profile("wharfinger")
    os.environ.setdefault(SEED, str(random.SystemRandom().randrange(2**32)))


def sow() -> None:
    """Before each test: its examples follow from the seed of the run and from nothing that ran
    before it.

    `--hypothesis-seed` would do the same, but hypothesis then neither keeps a failing example nor
    tries the kept ones."""
    core.threadlocal._hypothesis_global_random = random.Random(os.environ[SEED])


def header() -> str:
    return (
        f"properties: profile {profile()}, seed {os.environ[SEED]}, "
        f"failing examples kept in {examples_directory()}"
    )


def reproduction(failed: list[str]) -> str:
    """The command that runs the failed tests again with the same examples."""
    target = os.environ.get(TARGET, "test")
    names = " ".join(f"'{name}'" for name in failed)
    fewer = " PROFILE=quick" if target == "test-long" and profile() == "quick" else ""
    return f'reproduce: make {target}{fewer} SEED={os.environ[SEED]} ARGS="{names}"'


def _database() -> ExampleDatabase | None:
    directory = examples_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None  # nowhere to write: the printed seed and blob still bring a failure back
    return DirectoryBasedExampleDatabase(directory)
