"""An installation of the built wheel, without a package registry: the wheel is unpacked, and the
packages that its metadata asks for are linked from the environment that runs the tests.

What the metadata does not ask for cannot be imported, as in a fresh installation.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def build_wheel(directory: Path) -> Path:
    build = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stderr
    (wheel,) = directory.glob("*.whl")
    return wheel


def install(wheel: Path, directory: Path, *extras: str) -> Path:
    """Makes the virtual environment `directory` with the wheel in it; the path of its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (packages,) = directory.glob("lib/python3*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (metadata,) = packages.glob("wharfinger-*.dist-info")
    for needed in closure(PathDistribution(metadata), frozenset(extras)):
        link(needed, packages)
    return directory / "bin" / "python"


def closure(root: Distribution, extras: frozenset[str]) -> list[Distribution]:
    """What `root` needs with these extras, without itself, each distribution once."""
    wanted = extras or {""}
    return closure_of(
        line.partition(";")[0]
        for line in root.requires or ()
        if (marker := Requirement(line).marker) is None
        or any(marker.evaluate({"extra": extra}) for extra in wanted)
    )


def closure_of(requirements: Iterable[str]) -> list[Distribution]:
    """What is installed for these requirements, each distribution once."""
    seen: set[tuple[str, frozenset[str]]] = set()
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(line), frozenset[str]()) for line in requirements]
    while waiting:
        requirement, extras = waiting.pop()
        name, asked = canonicalize_name(requirement.name), frozenset(requirement.extras)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": e}) for e in (extras or {""})):
            continue
        if (name, asked) in seen:
            continue
        seen.add((name, asked))
        found[name] = distribution(name)
        waiting += [(Requirement(line), asked) for line in found[name].requires or ()]
    return list(found.values())


def link(found: Distribution, packages: Path) -> None:
    for top in sorted({Path(file).parts[0] for file in found.files or ()}):
        source = Path(str(found.locate_file(top)))
        if top != ".." and top != "__pycache__" and not (packages / top).exists():
            (packages / top).symlink_to(source)


def run(
    python: Path, *arguments: str, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A process of the installation that sees neither the sources nor settings of the caller."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("WHARFINGER_", "PYTHON")) or name == "WHARFINGER_OWNER_PID"
    }
    return subprocess.run(
        [str(python), *arguments],
        cwd=cwd,
        env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
