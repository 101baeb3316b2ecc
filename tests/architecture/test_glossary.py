"""GLOSSARY.md against the code: every term is used, and defined once."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for base in ("shared", "services") for path in sorted((ROOT / base).rglob("*.py"))]

TERMS_MIN = 60


def terms() -> list[str]:
    rows = re.findall(r"^\| ([^|]+?) \|", (ROOT / "GLOSSARY.md").read_text(), flags=re.MULTILINE)
    cells = [row for row in rows if row not in ("term", "---")]
    return [term.strip() for cell in cells for term in cell.split(",")]


def test_every_term_is_used() -> None:
    text = " ".join(path.read_text().lower().replace("_", " ") for path in SOURCES)
    joined = text.replace("-", " ")
    unused = [term for term in terms() if term.lower().replace("-", " ") not in joined]
    assert unused == []
    assert len(terms()) >= TERMS_MIN


def test_a_term_is_defined_once() -> None:
    assert len(terms()) == len(set(terms()))
