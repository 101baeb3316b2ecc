"""The lock files are what everybody installs: whole, current, and of no particular machine or
registry.

`requirements.lock` holds everything, `requirements-runtime.lock` the part of it that a container
needs, `requirements-build.lock` the part that builds the wheel in it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FULL = (ROOT / "requirements.lock").read_text(encoding="utf-8")
RUNTIME = (ROOT / "requirements-runtime.lock").read_text(encoding="utf-8")
BUILD = (ROOT / "requirements-build.lock").read_text(encoding="utf-8")

each_lock = pytest.mark.parametrize(
    "lock", [FULL, RUNTIME, BUILD], ids=["full", "runtime", "build"]
)


def pins(lock: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", lock, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def runtime() -> list[Requirement]:
    return [Requirement(line) for line in PROJECT["project"]["dependencies"]]


def builders() -> list[Requirement]:
    return [Requirement(line) for line in PROJECT["build-system"]["requires"]]


def tools() -> list[Requirement]:
    developers = PROJECT["project"]["optional-dependencies"]["dev"]
    return [*(Requirement(line) for line in developers), *builders()]


def assert_pinned(requirement: Requirement, lock: str) -> None:
    version = pins(lock).get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement.name} is not pinned: run `make lock`"
    assert requirement.specifier.contains(version, prereleases=True), (
        f"{version} is pinned: run `make lock`"
    )


@pytest.mark.parametrize("requirement", [*runtime(), *tools()], ids=lambda r: r.name)
def test_what_the_project_asks_for_is_pinned(requirement: Requirement) -> None:
    assert_pinned(requirement, FULL)


@pytest.mark.parametrize("requirement", runtime(), ids=lambda r: r.name)
def test_what_a_container_needs_is_pinned(requirement: Requirement) -> None:
    assert_pinned(requirement, RUNTIME)


@pytest.mark.parametrize("requirement", builders(), ids=lambda r: r.name)
def test_what_builds_the_wheel_is_pinned(requirement: Requirement) -> None:
    assert_pinned(requirement, BUILD)


def test_a_container_gets_what_was_tested_and_no_tools() -> None:
    assert pins(RUNTIME).items() <= pins(FULL).items()
    assert pins(BUILD).items() <= pins(FULL).items()
    assert not {"pytest", "mypy", "ruff", "pip-tools"} & pins(RUNTIME).keys()


@each_lock
def test_every_pin_carries_the_hashes_of_its_files(lock: str) -> None:
    blocks = re.split(r"^(?=[A-Za-z0-9_.-]+==)", lock, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(pins(lock))
    bare = [block.split()[0] for block in blocks if "--hash=sha256:" not in block]
    assert not bare


@each_lock
def test_a_lock_names_no_registry_and_no_machine(lock: str) -> None:
    trace = re.compile(
        r"://|--index-url|--extra-index-url|--find-links|--trusted-host|(?<!\w)/\w+/|@ "
    )
    found = [line for line in lock.splitlines() if trace.search(line)]
    assert not found
