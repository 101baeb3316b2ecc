"""What README and the documents show is what the commands print: every transcript is run against
planes of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.planes import data_file
from tests.transcripts import Rest, Shell, Transcript, shell, transcripts

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
LONG = os.environ.get("WHARFINGER_TEST_PROFILE") == "long"
"""What needs the real traces is run by `make test-long`."""
DOCUMENTS = sorted(
    path
    for path in (ROOT / "docs").glob("*.md")
    if any(not t.skipped for t in transcripts(path.read_text("utf-8")))
)


@pytest.fixture
def here() -> Iterator[Shell]:
    """A short path, as the database's socket must have. Planes left running are stopped."""
    with tempfile.TemporaryDirectory(prefix="wt-") as directory:
        made = shell(Path(directory), ROOT / "examples", Rest())
        try:
            yield made
        finally:
            for plane in Path(directory).glob("*/plane.json"):
                made.output(f"wharfinger down --data-dir {plane.parent}")


def run_all(shell: Shell, found: list[Transcript]) -> list[str]:
    """What differs from the document, one text a command."""
    differences: list[str] = []
    for transcript in found:
        if transcript.needs and not LONG:
            continue
        files = [data_file(*name.split("/")) for name in transcript.needs]
        if transcript.skipped or None in files:
            continue
        for file in files:
            if file is not None:
                (shell.directory / file.name).symlink_to(file)
        differences += filter(
            None,
            (shell.run(step, numbers_vary=transcript.numbers_vary) for step in transcript.steps),
        )
    return differences


def checked(shell: Shell, path: Path) -> None:
    differences = run_all(shell, list(transcripts(path.read_text("utf-8"))))
    assert not differences, "\n\n".join(differences)


@pytest.mark.seeded
@pytest.mark.long
def test_readme(here: Shell) -> None:
    """A plane for minutes: it is not part of `make test`."""
    checked(here, ROOT / "README.md")


@pytest.mark.long
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_document(here: Shell, path: Path) -> None:
    checked(here, path)
