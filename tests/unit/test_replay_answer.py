"""What `replay` says and how it ends: ours must be the same, another version's need not be, unless
it is asked for."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from wharfinger.kernel.divergence import Divergence
from wharfinger.kernel.step import ENGINE
from wharfinger.runtime.replay import EngineReplay, ReplayResult
from wharfinger_cli import history
from wharfinger_cli.output import Format
from wharfinger_cli.request import Request

OLD = "wharfinger/0.0.1"
SAME = ReplayResult(("fleet/0",), 1, 3, 5, 4, seconds=0.5)


def divergence(engine: str, round: int = 2, follows: bool = False) -> Divergence:
    return Divergence(
        "fleet/0",
        round,
        4,
        "filter",
        "feasible 3",
        "feasible 2",
        "shop/web",
        "decider",
        engine,
        follows,
    )


OTHERWISE = ReplayResult(
    ("fleet/0",),
    1,
    3,
    5,
    4,
    (),
    (EngineReplay(OLD, 2, 3, 1, 1, (divergence(OLD),)), EngineReplay("wharfinger/0.0.2", 1, 2, 0)),
    0.5,
)
BROKEN = ReplayResult(
    ("fleet/0",), 1, 3, 5, 4, tuple([divergence(ENGINE, n, n > 1) for n in range(1, 26)]), (), 0.5
)


@pytest.mark.parametrize(
    ("result", "strict", "code"),
    [
        (SAME, False, 0),
        (SAME, True, 0),
        (OTHERWISE, False, 0),
        (OTHERWISE, True, 1),
        (BROKEN, False, 1),
        (BROKEN, True, 1),
    ],
)
def test_the_exit_code_is_a_verdict(
    result: ReplayResult,
    strict: bool,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def answered(*_: object) -> ReplayResult:
        return result

    monkeypatch.setattr(history, "_replay", answered)
    ended = 0
    try:
        history.replay(Request(None, Format.JSON), "", "", "", 1, strict_engine=strict)
    except SystemExit as exit:
        ended = int(str(exit.code))
    assert ended == code
    assert f'"divergences": {len(result.divergences)}' in capsys.readouterr().out


def page(result: ReplayResult) -> str:
    out = io.StringIO()
    for part in history.replayed_page(result):
        Console(file=out, width=200).print(part)
    return out.getvalue()


def test_the_page_says_what_differs_in_whose_rounds_and_why() -> None:
    assert page(SAME) == (
        "decided again, byte for byte the same: 5 decisions in 3 rounds of 1 stream in 0.5 s "
        "(10/s)\n"
    )
    broken = page(BROKEN)
    assert "the decider decides otherwise, perhaps as a consequence" in broken
    assert "25 divergences, the first 20 shown" in broken
    otherwise = page(OTHERWISE)
    assert otherwise.startswith("decided again, byte for byte the same")
    assert f"2 rounds decided by {OLD}: 1 round otherwise (3 decisions)" in otherwise
    assert "; only explanations differ in 1 round\n" in otherwise
    assert "1 round decided by wharfinger/0.0.2: the same (2 decisions)" in otherwise
