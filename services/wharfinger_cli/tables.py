"""CSV tables of users, plain or gzipped: read row by row, with the line number for errors."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from wharfinger_cli.failures import CommandError

DIGITS_MAX = 12  # in MiB that still is a number of bytes an int64 column holds
DEVICES_MAX = 1024
SHOWN_MAX = 40


@dataclass(frozen=True, slots=True)
class TableRow:
    """`cells`: by column."""

    path: Path
    line: int
    cells: Mapping[str, str]

    def name(self, column: str) -> str:
        value = self.cells[column].strip()
        if not value:
            raise self.error(column, "a name", "")
        return value

    def optional(self, column: str) -> str:
        return self.cells.get(column, "").strip()

    def number(self, column: str, default: int | None = None) -> int:
        text = self.cells.get(column, "").strip()
        if not text and default is not None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
            raise self.error(
                column, f"a whole number of at most {DIGITS_MAX} digits", text[:SHOWN_MAX]
            )
        return int(text)

    def devices(self, column: str, default: int | None = None) -> int:
        count = self.number(column, default)
        if count > DEVICES_MAX:
            raise self.error(column, f"at most {DEVICES_MAX} devices", str(count))
        return count

    def error(self, column: str, expected: str, got: str) -> CommandError:
        return CommandError(f"{self.path}:{self.line}: {column}: expected {expected}, got {got!r}")


def header_of(path: Path) -> list[str]:
    """The names of the columns. CommandError: it is no table."""
    with _reading(path) as reader:
        return reader.header


def rows(path: Path, required: Sequence[str], unique: str = "") -> Iterator[TableRow]:
    """The rows below the header, at least one. The values of `unique` occur once. CommandError:
    `file:line: column: what was expected`."""
    seen: dict[str, int] = {}
    with _reading(path) as reader:
        if missing := [column for column in required if column not in reader.header]:
            raise CommandError(
                f"{path}:1: {missing[0]}: expected this column in the header, got {reader.header}"
            )
        empty = True
        for row in reader:
            empty = False
            if unique:
                name = row.name(unique)
                if name in seen:
                    raise row.error(unique, f"a name not used before (line {seen[name]})", name)
                seen[name] = row.line
            yield row
    if empty:
        raise CommandError(f"{path}: expected at least one row below the header")


@contextmanager
def _reading(path: Path) -> Iterator[_Table]:
    """The open table. Any fault of the file itself becomes a CommandError."""
    table: _Table | None = None
    try:
        with _open(path) as file:
            table = _Table(path, file)
            yield table
    except csv.Error as error:
        raise CommandError(f"{path}:{table.line if table else 1}: not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not UTF-8 text: {error.reason}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


class _Table:
    def __init__(self, path: Path, file: TextIO) -> None:
        self._path = path
        self._lines = csv.reader(file, strict=True)
        self.header = [column.strip() for column in next(self._lines, [])]

    @property
    def line(self) -> int:
        return self._lines.line_num

    def __iter__(self) -> Iterator[TableRow]:
        for cells in self._lines:
            if not cells:
                continue
            if len(cells) != len(self.header):
                raise CommandError(
                    f"{self._path}:{self.line}: expected {len(self.header)} columns, "
                    f"got {len(cells)}"
                )
            yield TableRow(self._path, self.line, dict(zip(self.header, cells, strict=True)))


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")
