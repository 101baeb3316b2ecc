"""Text to plain values, with the line of every field: YAML 1.2 (so JSON too), several documents a
file.

Built on ruamel.yaml's parse events rather than its constructors, for three reasons: every node's
line is at hand; nothing recurses, so no input can exhaust the stack; and all growth is counted as
it happens, so that an alias bomb or endless nesting is refused at once instead of being built.
Scalars are read by the YAML 1.2 core schema (`yes` and `on` are strings), merge keys (`<<`) as
everywhere in practice, other tags are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from wharfinger.manifests.errors import ManifestError, Path, dotted, shown

BYTES_MAX = 4 * 1024 * 1024
DEPTH_MAX = 64
VALUES_MAX = 250_000
"""Values of one file with every alias counted as often as it is used."""
DIGITS_MAX = 400
BRACKETS_MAX = 256
"""Opening brackets in a row, however spaced: the scanner would look through them all before it
gives its first event."""

EACH_KEY_ONCE = "expected each key once"
"""The beginning of the error for a key that is written twice."""

_BRACKETS = re.compile(r"(?:[\[{][ \t\r\n]*)" + f"{{{BRACKETS_MAX}}}")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, object] = (
    dict.fromkeys(("", "~", "null", "Null", "NULL"), None)
    | dict.fromkeys(("true", "True", "TRUE"), True)
    | dict.fromkeys(("false", "False", "FALSE"), False)
    | dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf"))
    | dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf"))
    | dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan"))
)
_TAG = "tag:yaml.org,2002:"
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Document:
    """`value`: mappings, lists, strings, numbers, booleans, None. `lines`: the line of each path,
    from 1."""

    value: object
    line: int
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int:
        """The line of `path`, or of the nearest thing around it that is there."""
        while path:
            if (line := self.lines.get(path)) is not None:
                return line
            path = path[:-1]
        return self.line


def read_documents(text: str, file: str) -> tuple[list[Document], list[ManifestError]]:
    """All documents up to the first mistake in the text itself, and that mistake. Empty documents
    are left out."""
    documents: list[Document] = []
    composer = _Composer(file)
    try:
        if len(text) > BYTES_MAX:
            raise _RefusedError(
                1, (), f"expected at most {BYTES_MAX >> 20} MiB, got {len(text) / 2**20:.1f} MiB"
            )
        if bracket := _BRACKETS.search(text):
            line = text.count("\n", 0, bracket.start()) + 1
            raise _RefusedError(
                line, (), f"expected at most {DEPTH_MAX} levels of nesting, got more"
            )
        for document in composer.documents(_events(_spaced(text))):
            if document.value is not None:
                documents.append(document)
    except _RefusedError as refused:
        return documents, [ManifestError(file, refused.line, dotted(refused.path), refused.text)]
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else composer.line
        what = _one_line(str(error.problem or error.context or "something else"))
        return documents, [ManifestError(file, line, "", f"expected YAML, got an error: {what}")]
    except (
        YAMLError,
        ValueError,
        OverflowError,
        IndexError,
        AttributeError,
        TypeError,
        KeyError,
        AssertionError,
    ) as error:
        # Some malformed directives and escapes make ruamel.yaml fail in its own code; to the user
        # it is bad YAML all the same.
        what = _one_line(str(error)) or type(error).__name__
        return documents, [
            ManifestError(file, composer.line, "", f"expected YAML, got an error: {what}")
        ]
    return documents, []


class _RefusedError(Exception):
    def __init__(self, line: int, path: Path, text: str) -> None:
        super().__init__(text)
        self.line, self.path, self.text = line, path, text


@dataclass(slots=True)
class _Mapping:
    value: dict[object, object] = field(default_factory=dict)
    key: object = None
    has_key: bool = False
    merged: list[dict[object, object]] = field(default_factory=list)


@dataclass(slots=True)
class _Sequence:
    value: list[object] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """A collection being read. `size`: values in it so far, aliases expanded; `anchor`: its name,
    bound when it ends."""

    node: _Mapping | _Sequence
    path: Path
    line: int
    anchor: str | None
    size: int = 1


class _Composer:
    """Turns parse events into documents, one stack entry an open collection."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.line = 1
        self.values = 0

    def documents(self, events: Iterator[Event]) -> Iterator[Document]:
        for event in events:
            if isinstance(event, DocumentStartEvent):
                yield self._document(events)

    def _document(self, events: Iterator[Event]) -> Document:
        self.anchors: dict[str, tuple[object, int]] = {}
        self.lines: dict[Path, int] = {}
        self.stack: list[_Open] = []
        self.root: object = None
        self.start = 0
        for event in events:
            self.line = event.start_mark.line + 1
            self.start = self.start or self.line
            match event:
                case DocumentEndEvent():
                    break
                case ScalarEvent():
                    value = self._scalar(event)
                    self._bind(event.anchor, value, 1)
                    self._add(value, 1)
                case AliasEvent():
                    if event.anchor not in self.anchors:
                        raise self._refused(
                            f"expected the name of an anchor above, got '*{event.anchor}'"
                        )
                    value, size = self.anchors[event.anchor]
                    self._add(value, size)
                case MappingStartEvent() | SequenceStartEvent():
                    self._open(event)
                case MappingEndEvent() | SequenceEndEvent():
                    self._close()
        return Document(self.root, self.start or self.line, self.lines)

    def _open(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        kind = "map" if isinstance(event, MappingStartEvent) else "seq"
        if event.tag not in (None, "!", _TAG + kind):
            raise self._refused(f"expected no tag, got {shown(event.tag)}")
        if len(self.stack) >= DEPTH_MAX:
            raise self._refused(f"expected at most {DEPTH_MAX} levels of nesting, got more")
        node = _Mapping() if kind == "map" else _Sequence()
        self.stack.append(_Open(node, self._path(), self.line, event.anchor))

    def _close(self) -> None:
        closed = self.stack.pop()
        if isinstance(closed.node, _Mapping):
            for merged in closed.node.merged:  # what is written out wins, then the earlier merge
                for key, value in merged.items():
                    closed.node.value.setdefault(key, value)
        self.line = closed.line
        self._bind(closed.anchor, closed.node.value, closed.size)
        self._add(closed.node.value, closed.size, counted=True)

    def _bind(self, anchor: str | None, value: object, size: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, size)

    def _path(self) -> Path:
        """Where the value that comes next goes."""
        if not self.stack:
            return ()
        top = self.stack[-1]
        match top.node:
            case _Sequence():
                return (*top.path, len(top.node.value))
            case _Mapping():
                return (*top.path, str(top.node.key)) if top.node.has_key else top.path

    def _add(self, value: object, size: int, counted: bool = False) -> None:
        """Puts a finished value where it belongs. `counted`: its parts have been counted
        already."""
        self.values += 1 if counted else size
        if self.values > VALUES_MAX:
            raise self._refused(
                f"expected at most {VALUES_MAX} values with aliases counted each time, got more"
            )
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        top.size += size
        match top.node:
            case _Sequence():
                self.lines[(*top.path, len(top.node.value))] = self.line
                top.node.value.append(value)
            case _Mapping():
                if top.node.has_key:
                    self._set(top, top.node, value)
                else:
                    self._key(top, top.node, value)

    def _key(self, top: _Open, node: _Mapping, key: object) -> None:
        if isinstance(key, dict | list):
            raise self._refused("expected a string as key, got a collection")
        if key in node.value:
            raise self._refused(f"{EACH_KEY_ONCE}, got {shown(key)} again", key)
        node.key, node.has_key = key, True
        self.lines[(*top.path, str(key))] = self.line

    def _set(self, top: _Open, node: _Mapping, value: object) -> None:
        if node.key == "<<":
            for part in value if isinstance(value, list) else [value]:
                if not isinstance(part, dict):
                    raise self._refused(f"expected a mapping to merge, got {shown(part)}", "<<")
                node.merged.append(part)
        else:
            node.value[node.key] = value
        node.has_key = False

    def _scalar(self, event: ScalarEvent) -> object:
        text = cast(str, event.value)
        tag = event.tag
        if tag is None:
            return self._plain(text) if event.implicit[0] else self._string(text)
        if tag in ("!", _TAG + "str"):
            return self._string(text)
        if tag in (_TAG + "null", _TAG + "bool", _TAG + "int", _TAG + "float"):
            value = self._plain(text)
            wanted = {"null": type(None), "bool": bool, "int": int, "float": float}[
                tag.removeprefix(_TAG)
            ]
            if wanted is float and type(value) is int:
                return float(value)
            if type(value) is wanted:
                return value
            raise self._refused(
                f"expected {wanted.__name__.removesuffix('Type')} by its tag, got {shown(text)}"
            )
        raise self._refused(f"expected no tag, got {shown(tag)}")

    def _plain(self, text: str) -> object:
        if text in _WORDS:
            return _WORDS[text]
        if not text[:1].isdigit() and text[:1] not in "+-.":
            return self._string(text)
        if len(text) > DIGITS_MAX and _FLOAT.fullmatch(text):
            raise self._refused(
                f"expected a number of at most {DIGITS_MAX} digits, got {len(text)}"
            )
        if _INT.fullmatch(text):
            return int(text)
        if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
            return int(text[2:], 8 if text[1] == "o" else 16)
        if _FLOAT.fullmatch(text):
            return float(text)
        return self._string(text)

    def _string(self, text: str) -> str:
        """JSON writes what is beyond 16 bits as a pair of escapes, which must become one
        character."""
        if _SURROGATE.search(text) is None:
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self._refused("expected Unicode text, got half of a surrogate pair") from None

    def _refused(self, text: str, key: object = None) -> _RefusedError:
        path = self._path()
        return _RefusedError(
            self.line, path if key is None else (*self.stack[-1].path, str(key)), text
        )


def _events(text: str) -> Iterator[Event]:
    # without the round-trip comments, which cost time and can fail
    yaml = YAML(typ="safe", pure=True)
    return cast(Iterator[Event], yaml.parse(text))


def _spaced(text: str) -> str:
    """JSON may be indented with tabs, YAML may not. Inside JSON strings a tab is always escaped, so
    all can go."""
    text = text.removeprefix("\ufeff")
    if "\t" in text and text.lstrip()[:1] in ("{", "["):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return text
        return text.replace("\t", " ")
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
