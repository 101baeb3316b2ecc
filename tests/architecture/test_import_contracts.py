"""The layers of ARCHITECTURE.md hold: `.importlinter` says them, this runs them with every other
test."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINT = (
    "import sys; from importlinter.cli import lint_imports_command; "
    "sys.argv[0] = 'lint-imports'; lint_imports_command()"
)


def contracts() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    return parser


def lines(section: str, option: str) -> list[str]:
    return contracts()[section][option].split()


def test_every_import_contract_is_kept() -> None:
    lint = subprocess.run(
        [sys.executable, "-c", LINT, "--no-logo", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_every_package_of_the_house_has_a_layer() -> None:
    """A package that no contract names would be free to import anything. Where its packages are
    layers apart, it is none itself."""
    layers = set(contracts()["importlinter:contract:layers"]["layers"].replace("|", " ").split())
    home = ROOT / "shared" / "wharfinger"
    apart = {layer.split(".")[1] for layer in layers if layer.count(".") == 2}
    packages = {p.parent for p in home.glob("*/__init__.py") if p.parent.name not in apart}
    packages |= {p for name in apart for p in (home / name).iterdir() if not p.name.startswith("_")}
    library = {
        ".".join(("wharfinger", *p.relative_to(home).with_suffix("").parts)) for p in packages
    }
    services = {p.name for p in (ROOT / "services").iterdir() if p.name.startswith("wharfinger_")}
    assert library | services == layers
    assert {"wharfinger", *services} == set(lines("importlinter", "root_packages"))


def test_what_is_below_the_runtime_is_all_under_the_purity_contract() -> None:
    layers = contracts()["importlinter:contract:layers"]["layers"].split()
    below = layers[layers.index("wharfinger.runtime") + 1 :]
    assert set(below) == set(lines("importlinter:contract:pure", "source_modules"))
