"""What counts as the same output, and that a difference is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.transcripts import Shell, compare, renamed, transcripts

DOCUMENT = """\
Words.

<!-- transcript: numbers vary: batches -->
<!-- transcript: $ export CARGO=coal -->

```
$ echo $CARGO
coal
$ seq 3
1
...
3
```

```yaml
$: no transcript
```

<!-- transcript: not run: it takes days -->

```
$ sleep 1000000
```
"""


def differs(expected: str, got: str, *, numbers_vary: bool = False) -> bool:
    return (
        compare(tuple(expected.splitlines()), got.splitlines(), numbers_vary=numbers_vary)[0]
        is not None
    )


def test_a_document_is_cut_into_commands_with_their_output_and_marks() -> None:
    first, second = transcripts(DOCUMENT)
    assert [step.command for step in first.steps] == ["export CARGO=coal", "echo $CARGO", "seq 3"]
    assert (first.steps[1].expected, first.steps[1].line) == (("coal",), 7)
    assert first.numbers_vary
    assert second.skipped == "it takes days"


def test_a_mark_without_a_reason_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="line 2: expected a mark with its reason"):
        list(transcripts("<!-- transcript: not run -->\n```\n$ true\n```\n"))


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("ready in 5.7 s: broker 127.0.0.1:38779", "ready in 12 s: broker 127.0.0.1:1024"),
        (
            "plan 0e22fcd4 made 2026-11-21 09:48:44",
            "plan 0e22fcd4-7e3b-47fd-af74-0000000000aa made 2027-01-02 00:00:00",
        ),
        ("a  1\nb  2", "a      1\nb      2"),
        ("a\n...\nd", "a\nb\nc\nd"),
        ("a\n...", "a\nb"),
        ("placed  on oslo-...", "placed  on oslo-1 ×2, oslo-3"),
        ("a\n\nb", "a\nb"),
    ],
)
def test_what_differs_between_two_runs_does_not_count(expected: str, got: str) -> None:
    assert not differs(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("39 events accepted", "38 events accepted"),
        ("oslo 4", "bergen 4"),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("a\n...\nd", "a\nb\nc"),
        ("placed  on oslo-...", "refused  on oslo-1"),
    ],
)
def test_everything_else_does(expected: str, got: str) -> None:
    assert differs(expected, got)


def test_numbers_count_unless_they_are_said_to_vary() -> None:
    assert differs("oslo 434 -> 440", "oslo 455 -> 461")
    assert not differs("oslo 434 -> 440", "oslo 455 -> 461", numbers_vary=True)
    assert differs("oslo 434 -> 440", "bergen 455 -> 461", numbers_vary=True)


def test_an_identifier_stands_for_the_one_of_this_run(tmp_path: Path) -> None:
    shown, real = "1055fd5c-e40f-5876-b796-e948ca32c3ea", "99999999-e40f-5876-b796-000000000001"
    shell = Shell(tmp_path, dict(os.environ), lambda *_: None)
    shell.names |= renamed([(f"decision {shown}", f"decision {real}")])
    (transcript,) = transcripts(f"```\n$ echo {shown} {shown[:8]}\n{real} 99999999\n```\n")
    assert shell.run(transcript.steps[0]) == ""


def test_variables_last_and_a_failure_is_a_difference(tmp_path: Path) -> None:
    shell = Shell(tmp_path, dict(os.environ), lambda *_: None)
    first, _ = transcripts(DOCUMENT)
    assert [shell.run(step, numbers_vary=True) for step in first.steps] == ["", "", ""]
    (failing,) = transcripts("```\n$ (exit 3)\n```\n")
    assert "ended with 3" in shell.run(failing.steps[0])
