"""The mistakes of a manifest as values, one line each. All mistakes of a file are reported at
once."""

from __future__ import annotations

from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Where in a document: keys and list positions, from the top."""

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


FIELD_MAX = 160


@dataclass(frozen=True, slots=True)
class ManifestError:
    """`line` counts from 1. `field` is empty where the whole file or document is meant."""

    file: str
    line: int
    field: str
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: "
        return place + (f"{self.field}: {self.text}" if self.field else self.text)


def dotted(path: Path) -> str:
    """`spec.taints[0].key`; a key with other signs is quoted: `metadata.labels["a.b/c"]`."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        elif part and PLAIN.issuperset(part):
            out += f".{part}" if out else part
        else:
            out += f'["{shown(part, quote=False)}"]'
    return out if len(out) <= FIELD_MAX else out[: FIELD_MAX - 3] + "..."


def shown(value: object, quote: bool = True) -> str:
    """A short, one-line picture of what was found."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            text = value if len(value) <= 60 else value[:57] + "..."
            text = text.encode("unicode_escape").decode()
            return f"'{text}'" if quote else text
        case int() | float():
            many = isinstance(value, int) and abs(value) >= 10**40
            return "an integer of many digits" if many else repr(value)
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"
