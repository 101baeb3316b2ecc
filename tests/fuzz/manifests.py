"""Files of manifests, as `apply` and `POST /v1/apply` read them: manifests, or errors of one line;
and what is compiled of them is an event that is read back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from tests.fuzz.events import held
from tests.fuzz.target import Check, Target, holds, kind_of, one_line, steers

from wharfinger.domain.text import escaped
from wharfinger.domain.value import canonical
from wharfinger.events.accepted import Fact, accepted
from wharfinger.events.codec import decode, encode
from wharfinger.events.envelope import derived_id
from wharfinger.events.intake import compile_deletions, compile_manifests
from wharfinger.manifests.document import read_documents
from wharfinger.manifests.parse import load_manifests
from wharfinger_cli.output import as_json, as_yaml

ROOT = Path(__file__).parents[2]
FILES = ("examples", "tests/unit/manifests")
ERRORS_MAX = 20_000


@contextmanager
def opened() -> Iterator[Check]:
    yield check


def check(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:  # `read_texts` and the API refuse it before
        return "no text"
    loaded = load_manifests(text, "file.yaml")
    errors = [*loaded.errors]
    for manifest in loaded.manifests:
        shown_and_read_again(manifest.raw)
        manifest.json.encode()
    for make in (compile_manifests, compile_deletions):
        made = make(loaded.manifests)
        errors += made.errors
        for fact in made.facts:
            held(
                decode(
                    encode(
                        fact.data,
                        id=derived_id("fuzz", fact.key),
                        source="/fuzz",
                        subject=fact.subject,
                    )
                )
            )
            holds(isinstance(fact.data, Fact), "no fact was compiled")
            holds(accepted(cast(Fact, fact.data)) == fact, "the fact has other keys")
    holds(len(errors) <= ERRORS_MAX, f"{len(errors):,} errors")
    for error in errors:
        one_line(str(error))
        holds(1 <= error.line <= text.count("\n") + text.count("\r") + 2, f"line {error.line}")
    if errors:
        return kind_of(errors[0].text)
    return ",".join(sorted({type(m.model).__name__ for m in loaded.manifests}))[:80]


def shown_and_read_again(raw: object) -> None:
    """What was read, as `-o yaml` and `-o json` print it, is read as the same again."""
    for text in (escaped(as_yaml(raw), lines=True), escaped(as_json(raw), lines=True)):
        holds(not any(steers(line) for line in text.split("\n")), "it steers a terminal")
        documents, errors = read_documents(text, "printed.yaml")
        holds(not errors, f"what was printed cannot be read: {errors[:1]}")
        (document,) = documents
        holds(canonical(document.value) == canonical(raw), "what was printed says something else")


def seeds() -> Iterator[bytes]:
    """Each document by itself: a whole file is too long for most mutations to matter."""
    for folder in FILES:
        for file in sorted((ROOT / folder).rglob("*.yaml")):
            for part in file.read_text().split("\n---\n"):
                if (body := part.strip().encode()) and len(body) < TARGET.bytes_max:
                    yield body
    yield b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    yield b"a: &a {b: 1}\n<<: *a\nc: {<<: [*a, {d: 2}]}\n"
    yield b"%YAML 1.2\n---\n!!str 1: !!int 0x1F\n"
    yield b'{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod"}]}'


TARGET = Target("manifests", "files of manifests, YAML and JSON", opened, seeds)
