"""The commands of `app` as a command line that loads little: commands are built when asked for,
arguments are converted plainly.

Typer builds every command of a program at its start. It converts every argument, also those that
were not given, by a pydantic adapter. Both take more processor time than most commands do
themselves. Here a command is built when it is looked up, and the conversions that need no pydantic
are done without it: nothing given, text, a choice that was spelled as it is, a path, a plain
number. All others, and every value that is wrong, go to Typer's own conversion, which has the words
for what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import typer
from typer._click import Command, Context, Parameter
from typer._click.exceptions import BadParameter
from typer._coercion import build_runtime_param
from typer._param_types import coerce_cli_path
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_command, get_command_from_info, get_command_name, get_group_from_info
from typer.models import CommandInfo, TyperInfo

DIGITS = re.compile(r"0|[1-9][0-9]{0,8}")

WAIT = "--wait"
Level = Literal["accepted", "decided", "published", "placed"]
LEVELS: tuple[Level, ...] = ("accepted", "decided", "published", "placed")
"""Of `answers.barrier`, which is not imported for them."""
WITHOUT_LEVEL = "decided"

_UNDONE = object()


def command_line(app: typer.Typer) -> TyperGroup:
    """What `app(...)` would build and call, with its commands built later."""
    commands, groups = app.registered_commands, app.registered_groups
    app.registered_commands, app.registered_groups = [], []
    try:
        root = get_command(app)
    finally:
        app.registered_commands, app.registered_groups = commands, groups
    assert isinstance(root, TyperGroup), "a program of several commands"
    root.commands = _Commands(app)
    _convert_plainly(root)
    return root


class _Commands(MutableMapping[str, Command]):
    """name -> command, in the order in which they were declared; first commands, then groups, as
    Typer has them."""

    def __init__(self, app: typer.Typer) -> None:
        self._app = app
        self._declared: dict[str, CommandInfo | TyperInfo] = {}
        self._built: dict[str, Command] = {}
        for command in app.registered_commands:
            self._declared[
                command.name or get_command_name(getattr(command.callback, "__name__", ""))
            ] = command
        for group in app.registered_groups:
            assert isinstance(group.name, str), "a group of commands is added under a name"
            self._declared[group.name] = group

    def __getitem__(self, name: str) -> Command:
        if name not in self._built:
            self._built[name] = self._build(self._declared[name])
        return self._built[name]

    def _build(self, declared: CommandInfo | TyperInfo) -> Command:
        app = self._app
        if isinstance(declared, CommandInfo):
            command: Command = get_command_from_info(
                declared,
                pretty_exceptions_short=app.pretty_exceptions_short,
                rich_markup_mode=app.rich_markup_mode,
            )
        else:
            command = get_group_from_info(
                declared,
                pretty_exceptions_short=app.pretty_exceptions_short,
                suggest_commands=app.suggest_commands,
                rich_markup_mode=app.rich_markup_mode,
            )
        _convert_plainly(command)
        return command

    def __setitem__(self, name: str, command: Command) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._declared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)


def _convert_plainly(command: Command) -> None:
    for param in command.params:
        _give_plain_conversion(param)
    if any(WAIT in param.opts for param in command.params):
        _let_level_be_left_out(command)
    made = command.get_help_option

    def get_help_option(context: Context) -> TyperOption | None:
        option = made(context)
        if option is not None:
            _give_plain_conversion(option)
        return option

    command.get_help_option = get_help_option  # type: ignore[assignment]
    if isinstance(command, TyperGroup) and isinstance(command.commands, dict):
        for inner in command.commands.values():
            _convert_plainly(inner)


def _let_level_be_left_out(command: Command) -> None:
    """`--wait` alone is `--wait=decided`: Typer has no options whose value may be left out."""
    parse = command.parse_args

    def parse_args(ctx: Context, args: list[str]) -> list[str]:
        return parse(ctx, with_level(args))

    command.parse_args = parse_args  # type: ignore[method-assign]


def with_level(args: Sequence[str]) -> list[str]:
    """The arguments, with a level behind each `--wait` before `--`."""
    end = args.index("--") if "--" in args else len(args)
    found: list[str] = []
    for place, argument in enumerate(args):
        if argument == WAIT and place < end:
            following = args[place + 1] if place + 1 < end else ""
            argument = WAIT if following in LEVELS else f"{WAIT}={WITHOUT_LEVEL}"
        found.append(argument)
    return found


def _give_plain_conversion(param: Parameter) -> None:
    if isinstance(param, TyperOption | TyperArgument) and param._runtime_param is None:
        param._runtime_param = _Plain(param.type_descriptor)  # type: ignore[assignment]


class _Plain:
    """A conversion as Typer calls it, for one parameter."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor

    def coerce(self, value: Any, param: Any, ctx: Context) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        plain = self._plain(value, param, ctx)
        return (
            plain
            if plain is not _UNDONE
            else build_runtime_param(self._descriptor).coerce(value, param, ctx)
        )

    def _plain(self, value: Any, param: Any, ctx: Context) -> Any:
        annotation, info = self._descriptor.annotation, self._descriptor.parameter_info
        if info.parser is not None:
            return _UNDONE
        if annotation is int and (
            type(value) is int or (isinstance(value, str) and DIGITS.fullmatch(value))
        ):
            number = int(value)
            low = info.min is None or info.min <= number
            high = info.max is None or number <= info.max
            return number if low and high and not info.clamp else _UNDONE
        if not isinstance(value, str):
            return _UNDONE
        if annotation is str:
            return value
        if annotation is Path:
            try:
                return coerce_cli_path(Path(value), info, path_type=Path, param=param, ctx=ctx)
            except (BadParameter, ValueError):  # a zero byte is no path
                return _UNDONE
        for choice in self._descriptor.choices or () if not self._descriptor.is_list else ():
            if value == (choice.value if isinstance(choice, Enum) else choice):
                return choice
        return _UNDONE
