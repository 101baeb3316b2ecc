"""The command line that loads little says and takes what Typer's own would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer._click import Command
from typer._click.exceptions import ClickException
from typer.core import TyperGroup
from typer.main import get_command

from wharfinger.answers import barrier
from wharfinger_cli.app import app
from wharfinger_cli.command_line import LEVELS, command_line, with_level

TYPERS = get_command(app)


def paths(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from paths(inner, (*path, name))


PATHS = list(paths(TYPERS))
WRONG = [
    "bogus",
    "stats",
    "get",
    "get clusters -o bogus",
    "get clusters -o JSON",
    "-o bogus status",
    "decisions --limit x",
    "decisions --limit 0",
    "decisions --limit 1.5",
    "plan scale a x",
    "plan scale a -1",
    "import openb --nodes n",
    "import openb --clusters 0 --nodes a --pods b",
    "import openb --clusters 2000 --nodes a --pods b",
    "import openb --strategy none --nodes a --pods b",
    "audit bogus",
    "status extra",
    "--data-dir",
    "history",
    "history a --limit 0",
    "replay --budget -1",
    "replay --objective none",
    "delete",
    "up --processes three",
    "generate fleet --seed x --apply",
    "provide --delay -1",
    "schema export",
]


def said(command: Command, arguments: Sequence[str]) -> tuple[object, str, str]:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        command(list(arguments), prog_name="wharfinger")
    return ended.value.code, out.getvalue(), err.getvalue()


def test_the_same_commands_in_the_same_order() -> None:
    assert list(paths(command_line(app))) == PATHS
    assert len(PATHS) >= 40


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_the_same_help(path: tuple[str, ...]) -> None:
    expected = said(TYPERS, [*path, "--help"])
    assert expected[1]
    assert said(command_line(app), [*path, "--help"]) == expected
    assert said(command_line(app), [*path, "-h"]) == expected


@pytest.mark.parametrize("arguments", WRONG)
def test_the_same_complaint(arguments: str) -> None:
    expected = said(TYPERS, arguments.split())
    assert expected[0] == 2
    assert said(command_line(app), arguments.split()) == expected


def leaf(root: Command, path: Sequence[str]) -> Command:
    for name in path:
        assert isinstance(root, TyperGroup)
        root = root.commands[name]
    return root


def taken(command: Command, arguments: Sequence[str]) -> object:
    """What the command would be called with, or what it complains of."""
    try:
        return command.make_context("it", list(arguments)).params
    except ClickException as error:
        return type(error), error.format_message()


TEXT = st.one_of(
    st.text(max_size=8), st.sampled_from(["/", ".", "~", "/etc/passwd", "/nowhere", "-"])
)
NUMBER = st.one_of(
    st.integers().map(str),
    st.text("0123456789+-_. e", max_size=6),
    st.sampled_from(["007", "1e3", "²", "1_000", " 5"]),
)
CHOICE = st.sampled_from(
    ["table", "json", "JSON", "yaml", "name", "", "xml", "clusters", "Nodes", "bindings"]
)
COMMANDS = {
    ("decisions",): {
        "--limit": NUMBER,
        "--stream": TEXT,
        "--since": TEXT,
        "--data-dir": TEXT,
        "--output": CHOICE,
    },
    ("get",): {"--at": TEXT, "--data-dir": TEXT, "-o": CHOICE, "--namespace": TEXT},
    ("generate", "fleet"): {
        "--clusters": NUMBER,
        "--nodes": NUMBER,
        "--seed": NUMBER,
        "--out": TEXT,
    },
    ("replay",): {
        "--workers": NUMBER,
        "--with": TEXT,
        "--report": TEXT,
        "--objective": CHOICE,
        "--budget": NUMBER,
    },
    ("provide",): {"--delay": NUMBER},
}


@given(st.data())
def test_the_same_is_taken(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(COMMANDS)))
    options = data.draw(st.lists(st.sampled_from(sorted(COMMANDS[path])), max_size=4))
    arguments = [part for name in options for part in (name, data.draw(COMMANDS[path][name]))]
    if path == ("get",):
        arguments.append(data.draw(CHOICE))
    assert taken(leaf(command_line(app), path), arguments) == taken(leaf(TYPERS, path), arguments)


def test_the_level_of_a_wait_may_be_left_out() -> None:
    for typed, meant in (
        ("scale web 5 --wait", "scale web 5 --wait=decided"),
        ("scale --wait web 5", "scale --wait=decided web 5"),
        ("scale web 5 --wait placed", "scale web 5 --wait placed"),
        ("scale web 5 --wait=published", "scale web 5 --wait=published"),
        ("scale -- --wait 5", "scale -- --wait 5"),
    ):
        assert with_level(typed.split()) == meant.split()
    assert LEVELS == barrier.LEVELS
