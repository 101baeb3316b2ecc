"""requirements.lock is what everybody installs: whole, current, and of no particular machine or registry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PINS = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", LOCK, re.MULTILINE))


def wanted() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    table = project["project"]
    lines = [*table["dependencies"], *table["optional-dependencies"]["dev"], *project["build-system"]["requires"]]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("requirement", wanted(), ids=lambda r: r.name)
def test_what_the_project_asks_for_is_pinned(requirement: Requirement) -> None:
    pinned = {canonicalize_name(name): version for name, version in PINS.items()}
    version = pinned.get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement.name} is not in requirements.lock: run `make lock`"
    assert requirement.specifier.contains(version, prereleases=True), f"{version} is pinned: run `make lock`"


def test_every_pin_carries_the_hashes_of_its_files() -> None:
    blocks = re.split(r"^(?=\S+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(PINS)
    bare = [block.split()[0] for block in blocks if "--hash=sha256:" not in block]
    assert not bare


def test_the_lock_names_no_registry_and_no_machine() -> None:
    trace = re.compile(r"://|--index-url|--extra-index-url|--find-links|--trusted-host|(?<!\w)/\w+/|@ ")
    found = [line for line in LOCK.splitlines() if trace.search(line)]
    assert not found
