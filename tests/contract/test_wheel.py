"""What is shipped: one wheel with the library, every service, the types, the migrations and the
examples; and what works after it was installed, with and without its extras."""

from __future__ import annotations

import json
import tomllib
import zipfile
from pathlib import Path

import pytest
from infra.release.installed import ROOT, build_wheel, install, run
from packaging.requirements import Requirement
from tests.patience import until

from wharfinger.runtime.extras import Extra, MissingExtraError, require

NEEDS_AN_EXTRA = {
    "wharfinger.history.plots",
    "wharfinger.runtime.ledger.roles",
    "wharfinger.runtime.ledger.schema",
    "wharfinger_cli.login_files",
}
"""They import a package of an extra at once; `require` is called before they are imported."""

IMPORT_ALL = """
import importlib, json, sys
failed = {}
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed[name] = str(error)
print(json.dumps(failed))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def shipped(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an installation without extras."""
    return install(wheel, tmp_path_factory.mktemp("plain") / "venv")


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


@pytest.mark.parametrize("folder", ["migrations", "examples"])
def test_what_is_no_code_travels_with_the_library(folder: str, shipped: set[str]) -> None:
    files = sources(ROOT / folder, "*.*")
    assert len(files) > 10
    assert {f"wharfinger/{folder}/{name}" for name in files} <= shipped


def test_every_module_is_importable_without_extras(
    plain: Path, shipped: set[str], tmp_path: Path
) -> None:
    """So the dependencies that are declared are all that a service needs."""
    modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in shipped
        if name.endswith(".py")
        and not name.startswith(("wharfinger/migrations/", "wharfinger/examples/"))
    )
    done = run(plain, "-c", IMPORT_ALL, json.dumps(modules), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).keys() == NEEDS_AN_EXTRA


def test_an_installed_command_names_its_version(plain: Path, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    done = run(plain, "-m", "wharfinger_cli", "--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert project["version"] in done.stdout


def test_examples_are_copied_once(plain: Path, tmp_path: Path) -> None:
    command = ("-m", "wharfinger_cli", "examples", "harbour")
    assert run(plain, *command, cwd=tmp_path).returncode == 0
    assert sources(tmp_path / "harbour", "*.*") == sources(ROOT / "examples", "*.*")
    again = run(plain, *command, cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr == "wharfinger: harbour exists: expected a directory to be made\n"


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("up", "local"),
        ("migrate", "migrate"),
        ("migrate --print-roles", "migrate"),
        ("replay --with strategy=most-allocated --report page.html", "reports"),
    ],
)
def test_a_missing_extra_is_one_line_with_the_remedy(
    arguments: str, extra: Extra, plain: Path, tmp_path: Path
) -> None:
    own = {"WHARFINGER_KAFKA": "127.0.0.1:9", "WHARFINGER_DATABASE": "postgresql://127.0.0.1:9/w"}
    done = run(
        plain,
        *("-m", "wharfinger_cli", *arguments.split()),
        cwd=tmp_path,
        **({} if extra == "local" else own),
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith(f"install it with pip install 'wharfinger[{extra}]'\n")


def test_a_package_that_is_installed_is_not_complained_about() -> None:
    require("local", "json", "this test")
    with pytest.raises(MissingExtraError, match="this test needs no_such_package: "):
        require("local", "no_such_package", "this test")


def test_one_machine_gets_what_the_other_extras_have() -> None:
    """`local` cannot name them: that would write this directory's path into the lock file."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    local = {str(Requirement(line)) for line in extras["local"]}
    for extra in ("migrate", "reports"):
        assert {str(Requirement(line)) for line in extras[extra]} <= local


@pytest.mark.long
@pytest.mark.integration
def test_a_plane_runs_from_an_installed_wheel(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("local")
    python = install(wheel, directory / "venv", "local")

    def wharfinger(*arguments: str) -> str:
        done = run(python, "-m", "wharfinger_cli", *arguments, cwd=directory)
        assert done.returncode == 0, done.stderr
        return done.stdout

    wharfinger("examples")
    wharfinger("up", "--detach")
    try:
        for folder in ("fleet", "policies", "workloads"):
            wharfinger("apply", "-f", f"examples/{folder}")
        until(lambda: "bergen" in wharfinger("get", "bindings"))
        assert "decided again" in wharfinger("replay")
    finally:
        wharfinger("down")
