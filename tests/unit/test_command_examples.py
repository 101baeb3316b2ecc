"""Every command shows an example in its help, and the command line takes it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from typer._click import Command, Context
from typer.core import TyperGroup

from wharfinger_cli.app import app
from wharfinger_cli.command_line import command_line

MARK = re.compile(r"\n\nExamples?: ")
PROGRAM = command_line(app)


def commands(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    """`plan drain` and its command; groups only where they do something themselves."""
    if not isinstance(command, TyperGroup):
        yield " ".join(path), command
        return
    if path and command.invoke_without_command:
        yield " ".join(path), command
    for name, inner in command.commands.items():
        yield from commands(inner, (*path, name))


ALL = dict(commands(PROGRAM))


@pytest.mark.parametrize("name", ALL)
def test_the_help_of_a_command_ends_with_examples_that_are_understood(name: str) -> None:
    shown = MARK.split(ALL[name].help or "")
    assert len(shown) == 2, f"`{name} --help` shows no example, in a paragraph of its own"
    path = name.split()
    for example in " ".join(shown[1].split()).split(" | "):
        words = shlex.split(example)
        assert words[: len(path) + 1] == ["wharfinger", *path]
        with Context(PROGRAM, info_name="wharfinger") as parent:
            ALL[name].make_context(name, words[len(path) + 1 :], parent=parent)
