"""How answers look: a table for people, JSON, YAML or bare names for programs. Colour only where a
person looks.

A command gives the same values in every format; what differs is only the rendering. Standard output
carries the answer and nothing else, standard error carries progress and complaints.

Names, labels and messages come from outside. They are printed here and nowhere else: without
markup, and with everything that could steer a terminal escaped. A cell of a table is one line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from io import StringIO
from typing import TYPE_CHECKING, Any

from wharfinger.domain.text import as_clock as as_clock
from wharfinger.domain.text import as_time as as_time
from wharfinger.domain.text import count as count
from wharfinger.domain.text import escaped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status
    from rich.table import Table
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.representer import SafeRepresenter

Plain = Mapping[str, object]
"""A JSON object: what programs get."""

TEXT = "tag:yaml.org,2002:str"
DARK = "grey50"
GOOD = "green"
BAD = "red"
WARN = "yellow"


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def show_list(
    format_: Format,
    items: Sequence[Plain],
    names: Iterable[str],
    table: Callable[[], RenderableType],
    nothing: str,
) -> None:
    """A list of things: one JSON array, one YAML list, one name a line, or a table; `nothing` says
    that it is empty."""
    match format_:
        case Format.TABLE | Format.WIDE if not items:
            messages().print(nothing)
        case Format.TABLE | Format.WIDE:
            print_parts([table()])
        case Format.JSON:
            write(as_json(items))
        case Format.YAML:
            write(as_yaml(items))
        case Format.NAME:
            for name in names:
                write(name)


def show(
    format_: Format,
    value: Plain,
    names: Iterable[str],
    page: Callable[[], Iterable[RenderableType]],
) -> None:
    """One thing: a JSON object, a YAML mapping, the names in it one a line, or a page of tables."""
    match format_:
        case Format.TABLE | Format.WIDE:
            print_parts(page())
        case Format.JSON:
            write(as_json(value))
        case Format.YAML:
            write(as_yaml(value))
        case Format.NAME:
            for name in names:
                write(name)


def print_parts(parts: Iterable[RenderableType]) -> None:
    """For a person with colours and folded to the window; for a pipe a row is a line, however long,
    to be cut and grepped."""
    from rich.table import Table

    out = console()
    for part in parts:
        if isinstance(part, Table):
            for column in part.columns:
                column._cells = [_one_line(cell) for cell in column._cells]
        if isinstance(part, Table) and not out.is_terminal:
            write_table(part)
        else:
            out.print(part, soft_wrap=not isinstance(part, Table))


def _one_line(cell: RenderableType) -> RenderableType:
    """A line break in a cell could make a row that nothing stands for."""
    from rich.text import Text

    if isinstance(cell, str):
        return escaped(cell)
    if isinstance(cell, Text) and not cell.plain.isprintable():
        return Text(escaped(cell.plain), cell.style)
    return cell


def write_table(table: Table) -> None:
    """Plain columns. Also much faster than folding, which matters for thousands of rows."""
    columns = [
        [escaped(str(cell)) for cell in (column.header, *column.cells)] for column in table.columns
    ]
    if not table.show_header:
        columns = [cells[1:] for cells in columns]
    widths = [max(map(len, cells), default=0) for cells in columns]
    right = [column.justify == "right" for column in table.columns]
    for row in zip(*columns, strict=True):
        padded = [
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        ]
        write("  ".join(padded).rstrip())


def write(text: str) -> None:
    """Lines of an answer, on standard output."""
    sys.stdout.write(escaped(text if text.endswith("\n") else text + "\n", lines=True))


def complain(line: str) -> None:
    """A line of an error, on standard error."""
    sys.stderr.write(f"wharfinger: {escaped(line)}\n")


def console(width: int | None = None) -> Console:
    """For answers: colour and the window's width on a terminal, neither elsewhere."""
    return _console_type()(highlight=False, markup=False, emoji=False, width=width)


def messages() -> Console:
    """For progress and remarks: standard error."""
    return _console_type()(stderr=True, highlight=False, markup=False, emoji=False)


@cache
def _console_type() -> type[Console]:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.text import Text

    class PlainTextConsole(Console):
        """Text reaches the terminal escaped; only rich's own control codes and styles steer it."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else escaped(text, lines=True), style, control)

        def status(self, status: RenderableType, **options: Any) -> Status:
            """A line of text is no markup here either."""
            return super().status(Text(status) if isinstance(status, str) else status, **options)

    return PlainTextConsole


def new_table(*columns: str, title: str = "", right: Sequence[str] = ()) -> Table:
    """An open table, without boxes: lines are for the eye to follow, and the columns do that.
    `right`: the numbers."""
    from rich.table import Table

    table = Table(
        box=None,
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="bold " + DARK,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_edge=False,
    )
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def as_json(value: object) -> str:
    """Indented for a list or object of its own."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def as_yaml(value: object) -> str:
    from ruamel.yaml import YAML

    yaml, text = YAML(typ="safe", pure=True), StringIO()
    yaml.Representer = _representer()
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(json.loads(json.dumps(value)), text)
    return "".join(
        c if c == "\n" or c.isprintable() else f"\\U{ord(c):08x}" for c in text.getvalue()
    )


@cache
def _representer() -> type[SafeRepresenter]:
    from ruamel.yaml.representer import SafeRepresenter

    class QuotingRepresenter(SafeRepresenter):
        """Only in double quotes has a text escapes."""

    def represent(representer: SafeRepresenter, text: str) -> ScalarNode:
        style = None if text.isprintable() else '"'
        node: ScalarNode = representer.represent_scalar(TEXT, text, style=style)
        return node

    QuotingRepresenter.add_representer(str, represent)
    return QuotingRepresenter


def as_seconds(seconds: float | None) -> str:
    """`0.2 s`, `17 s`, `4 min`, `3 h`, `2 d`; empty for None."""
    if seconds is None:
        return ""
    for unit, size, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds / size:.{1 if size == 1 and seconds < 10 else 0}f} {unit}"
    return f"{seconds / 86400:.0f} d"
