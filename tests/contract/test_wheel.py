"""What is shipped: one wheel with the library, every service, the types and the migrations."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    directory = tmp_path_factory.mktemp("dist")
    build = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stderr
    (wheel,) = directory.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def sources(root: Path, pattern: str = "*.py") -> set[str]:
    return {
        str(path.relative_to(root))
        for path in root.rglob(pattern)
        if "__pycache__" not in path.parts
    }


def test_every_module_is_in_the_wheel(shipped: set[str]) -> None:
    """All but the client, which is a distribution of its own."""
    ours = sources(ROOT / "shared") | sources(ROOT / "services")
    client = {path for path in ours if path.startswith("wharfinger_client/")}
    assert client
    assert ours - client <= shipped


def test_every_package_says_that_it_is_typed(shipped: set[str]) -> None:
    packages = {
        path.name for path in (ROOT / "services").iterdir() if path.name.startswith("wharfinger_")
    }
    assert {f"{package}/py.typed" for package in packages | {"wharfinger"}} <= shipped


def test_the_migrations_travel_with_the_library(shipped: set[str]) -> None:
    assert {f"wharfinger/migrations/{name}" for name in sources(ROOT / "migrations")} <= shipped
    assert any(name.startswith("wharfinger/migrations/versions/") for name in shipped)
