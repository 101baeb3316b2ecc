"""Every seed and every kept input, through the oracle of its target: the short form of
`make fuzz`, which needs no fuzzer."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.fuzz import corpus
from tests.fuzz.__main__ import main
from tests.fuzz.api_requests import on_database
from tests.fuzz.target import BrokenError, Check, Target, kind_of, one_line, steers
from tests.fuzz.targets import PLACES, target_of

ENTRY_BYTES_MAX = 16_384
ARCHIVE_BYTES_MAX = 400_000


def keep_their_promises(target: Target, check: Check) -> None:
    outcomes = set()
    for entry in corpus.inputs(target):
        try:
            outcomes.add(check(entry))
        except Exception as error:
            error.add_note(f"{target.name}: the input {corpus.name_of(entry)}: {entry[:400]!r}")
            raise
    assert len(outcomes) > 2, "all inputs come to the same"


@pytest.mark.parametrize("name", [name for name in PLACES if name != "api"])
def test_every_input_keeps_the_promises_of_its_reader(name: str) -> None:
    target = target_of(name)
    with target.opened() as check:
        keep_their_promises(target, check)


@pytest.mark.integration
def test_every_request_keeps_the_promises_of_the_api(database_url: str) -> None:
    with on_database(database_url) as check:
        keep_their_promises(target_of("api"), check)


@pytest.mark.parametrize("name", PLACES)
def test_a_corpus_is_small_and_is_written_the_same_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_of(name)
    assert target.name == name
    entries = corpus.kept(target)
    assert entries, "nothing was kept: make fuzz ARGS=--keep"
    archive = corpus.KEPT / f"{name}.tar.xz"
    assert archive.stat().st_size < ARCHIVE_BYTES_MAX
    assert max(map(len, entries)) <= ENTRY_BYTES_MAX
    monkeypatch.setattr(corpus, "KEPT", tmp_path)
    corpus.keep(target, reversed(entries))
    assert corpus.kept(target) == entries
    assert (tmp_path / archive.name).read_bytes() == archive.read_bytes()


def test_what_is_kept_is_the_shortest_of_what_no_seed_comes_to() -> None:
    def outcome(data: bytes) -> str:
        return str(len(set(data)))

    target = Target("none", "", lambda: nullcontext(outcome), lambda: iter([b"a"]))
    found = [b"b", b"abab", b"ba", b"abcc", b"abc"]
    assert corpus.worth_keeping(target, outcome, found) == [b"ba", b"abc"]


def test_a_broken_input_is_tried_again_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "crash"
    file.write_bytes(b"\x00")
    arguments = ["batches", "--input", str(file)]
    assert main(arguments) == 0
    monkeypatch.setattr("tests.fuzz.batches.unpacked", lambda records, allowance: records + b"x")
    assert main(arguments) == 1
    assert f"{file}: broken" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "two\nlines", "x" * 2000])
def test_what_is_no_error_of_one_line_is_noticed(text: str) -> None:
    with pytest.raises(BrokenError):
        one_line(text)


def test_outcomes_have_no_values_of_their_input() -> None:
    assert kind_of("id: expected a text, got 'x\x1b'") == kind_of("id: expected a text, got 7")
    assert steers("a\u202eb")
    assert not steers("a é 漢")
