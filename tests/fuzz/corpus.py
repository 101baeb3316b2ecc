"""The inputs that are kept of each target, one compressed file a target beside this module.

What is kept is one input, the shortest found, for each thing that may come of an input and that no
seed leads to. So a corpus stays small, and every entry says something that the others do not.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.fuzz.target import Check, Target

KEPT = Path(__file__).with_name("corpus")
ENTRIES_MAX = 400


def kept(target: Target) -> list[bytes]:
    """In order of name."""
    archive = KEPT / f"{target.name}.tar.xz"
    if not archive.exists():
        return []
    with tarfile.open(archive) as tar:
        files = [tar.extractfile(member) for member in tar.getmembers()]
        return [file.read() for file in files if file is not None]


def keep(target: Target, entries: Iterable[bytes]) -> None:
    """These and no others. The same entries make the same file."""
    named = sorted({name_of(entry): entry for entry in entries}.items())
    KEPT.mkdir(exist_ok=True)
    with tarfile.open(KEPT / f"{target.name}.tar.xz", "w:xz", format=tarfile.USTAR_FORMAT) as tar:
        for name, entry in named:
            about = tarfile.TarInfo(name)
            about.size = len(entry)
            tar.addfile(about, io.BytesIO(entry))


def name_of(entry: bytes) -> str:
    return hashlib.sha256(entry).hexdigest()[:16]


def inputs(target: Target) -> Iterator[bytes]:
    """Seeds, and what is kept."""
    yield from target.seeds()
    yield from kept(target)


def worth_keeping(target: Target, check: Check, found: Iterable[bytes]) -> list[bytes]:
    """The shortest input for each outcome that no seed has, of what was kept and what was found."""
    known = {check(seed) for seed in target.seeds()}
    shortest: dict[str, bytes] = {}
    for entry in sorted([*kept(target), *found], key=lambda e: (len(e), e)):
        outcome = check(entry)
        if outcome not in known:
            shortest.setdefault(outcome, entry)
    return list(shortest.values())[:ENTRIES_MAX]
