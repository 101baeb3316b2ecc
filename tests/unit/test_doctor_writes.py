"""What `doctor` makes of a cluster that may be changed."""

from __future__ import annotations

import pytest

from wharfinger_cli.doctor_writes import OPEN_S_MAX, WriteState


@pytest.mark.parametrize(
    ("state", "ok", "said"),
    [
        (WriteState("oslo", holder="a"), True, "the Lease is held by a; nothing is open"),
        (
            WriteState("oslo", holder="a", open=2, oldest_s=3.0),
            True,
            "the Lease is held by a; 2 effects open, the oldest for 3.0 s",
        ),
        (
            WriteState("oslo", holder="a", open=1, oldest_s=2 * OPEN_S_MAX),
            False,
            "the Lease is held by a; 1 effect open, the oldest for 10 min",
        ),
        (
            WriteState("oslo", stopped="paused by WHARFINGER_ACTUATOR_PAUSED", open=1),
            None,
            "paused by WHARFINGER_ACTUATOR_PAUSED; 1 effect open",
        ),
        (
            WriteState("oslo"),
            False,
            "no actuator holds the Lease: none is running, or it may not write; nothing is open",
        ),
        (WriteState("oslo", "no answer within 10 s"), False, "no answer within 10 s"),
    ],
    ids=["well", "open", "open for long", "paused", "no actuator", "away"],
)
def test_what_is_wrong_with_writing(state: WriteState, ok: bool | None, said: str) -> None:
    assert (state.ok, state.said) == (ok, said)


def test_a_missing_right_is_named() -> None:
    state = WriteState("oslo", missing=("create pods/binding", "get leases"))
    assert state.ok is False
    assert state.said.startswith("the right to create pods/binding, get leases is missing; ")
