"""The documents for people name files and doors that exist, and every door says what it is for."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from wharfinger_cli.app import app

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DOORS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))


@each_document
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert not [target for target in targets if not (path.parent / target).exists()]


@each_document
def test_files_that_are_named_exist(path: Path) -> None:
    named = re.findall(
        r"`((?:shared|services|tests|infra|docs|migrations|examples)/[\w./-]+)`",
        path.read_text(encoding="utf-8"),
    )
    assert not [name for name in named if not (ROOT / name).exists()]


@each_document
def test_doors_that_are_named_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    assert named <= DOORS


@each_document
def test_commands_that_are_listed_exist(path: Path) -> None:
    """With their options, also where a document only lists them; transcripts are run
    (`integration/test_transcripts.py`)."""
    wrong = [f"{command}: {error}" for command in listed(path) if (error := misread(command))]
    assert wrong == []


def listed(path: Path) -> list[str]:
    """The commands of all blocks: without their explanation, which stands apart, and one line
    each."""
    found = re.findall(
        r"^```(\w*)\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    blocks = [block for language, block in found if not language]
    lines = [
        line.removeprefix("$ ")
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [
        re.split(r" {3,}(?!-)| #", line)[0]
        for line in lines
        if re.match(r"wharfinger [a-z][^\\]*$", line)
    ]


def misread(command: str) -> str:
    """What the command line does not understand of it; nothing is run."""
    words = [word for word in shlex.split(re.split(r" [|>&]", command)[0]) if word != "..."][1:]
    found = the_command()
    context = found.context_class(found, info_name="wharfinger")
    try:
        while hasattr(found, "commands") and not words[0].startswith("-"):
            name, found, words = found.resolve_command(context, words)
            context = found.context_class(found, parent=context, info_name=name)
        found.make_parser(context).parse_args(words)
    except Exception as error:
        return getattr(error, "message", repr(error))
    return ""


@cache
def the_command() -> Any:
    """Made once: that takes a tenth of a second."""
    return typer.main.get_command(app)


def test_a_command_that_does_not_exist_is_found() -> None:
    assert misread("wharfinger get bindings -o json | head") == ""
    assert misread("wharfinger ledger export week.wlg --from 7d") == ""
    assert "No such option" in misread("wharfinger replay --wiht a.yaml")
    assert "No such command" in misread("wharfinger forecast")


def test_help_lists_every_door() -> None:
    phony = {
        name
        for line in re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
        for name in line.split()
    }
    shown = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"^  make ([a-z-]+) +\S", shown, re.MULTILINE)) == phony == DOORS
    assert {
        "setup",
        "demo",
        "test",
        "check",
        "fmt",
        "bench",
        "up",
        "down",
        "lock",
        "clean",
    } <= phony


def test_without_python_set_up_says_so_in_one_line(tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("make", "rm"):
        found = shutil.which(name)
        assert found is not None
        (binaries / name).symlink_to(found)
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL")
    }
    run = subprocess.run(
        ["make", "setup"],
        cwd=tmp_path,
        env=environment | {"PATH": str(binaries)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    said = [line for line in run.stderr.splitlines() if not line.startswith("make:")]
    assert len(said) == 1
    assert "no Python 3.11 or later found" in said[0]
