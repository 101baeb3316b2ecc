"""Every command with names that try to steer a terminal, against a real ledger: it ends with an
exit code and without a traceback, and nothing that it prints steers anything."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backends import fresh_database
from tests.hunting import examples
from tests.unit.test_command_line import PATHS, TYPERS, leaf
from tests.unit.test_hostile_text import NAMES, steers
from typer.core import TyperArgument, TyperGroup, TyperOption

from wharfinger_cli.__main__ import main

pytestmark = [pytest.mark.integration, pytest.mark.seeded]

APART = {("up",), ("demo",), ("down",), ("provide",)}
"""They start or stop processes and take no names, or run until they are stopped."""

# No operating system passes on a NUL in an argument; bytes that are not UTF-8 arrive as surrogates.
GIVEN = [name.replace("\x00", "").replace("\ud800", "\udc80") or "x" for name in NAMES]
COMMANDS = [
    path for path in PATHS if path not in APART and not isinstance(leaf(TYPERS, path), TyperGroup)
]


def takes_text(parameter: TyperArgument | TyperOption) -> bool:
    kind = str(parameter.type_descriptor.annotation)
    return "str" in kind or "Path" in kind


def arguments(path: tuple[str, ...], name: str, number: int) -> list[str]:
    """The command with the name as each argument and as one of its options."""
    options: list[str] = []
    places: list[str] = []
    for parameter in leaf(TYPERS, path).params:
        if isinstance(parameter, TyperArgument):
            places.append(name if takes_text(parameter) else "1")
        elif (
            isinstance(parameter, TyperOption)
            and takes_text(parameter)
            and not {"--data-dir", "--server"} & set(parameter.opts)
        ):
            options.append(f"{parameter.opts[0]}={name}")
    chosen = [options[number % len(options)]] if options and number % 2 else []
    return [*path, *chosen, "--", *places]


@pytest.fixture(scope="module")
def url(database_server: str, migrated_database: str) -> Iterator[str]:
    with fresh_database(database_server, template=migrated_database) as found:
        yield found


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[" ".join(path) for path in COMMANDS])
def test_a_command_ends_orderly_and_steers_nothing(
    number: int,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHARFINGER_DATABASE", url)
    monkeypatch.setenv("WHARFINGER_DATA_DIR", str(tmp_path / "plane"))
    monkeypatch.setenv("WHARFINGER_KAFKA", "127.0.0.1:1")
    for place in range(examples(3)):
        name = GIVEN[(number + place * len(COMMANDS)) % len(GIVEN)]
        monkeypatch.setattr(sys, "argv", ["wharfinger", *arguments(COMMANDS[number], name, place)])
        assert main() in (0, 1, 2), name
        out, err = capfd.readouterr()
        assert not steers(out), name
        assert not steers(err), name
        assert "Traceback" not in err, name
