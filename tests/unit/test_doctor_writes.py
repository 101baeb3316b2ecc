"""What `doctor` makes of a cluster that may be changed."""

from __future__ import annotations

import pytest

from wharfinger.stages.actuator.copies import CopyWrite
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.requests import ApiRequest
from wharfinger_cli.doctor_writes import OPEN_S_MAX, WriteState, with_copies
from wharfinger_cli.open_copies import OpenCopy


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
        (
            WriteState("oslo", holder="a", left=("Job shop/x is no kind that is copied", "b")),
            False,
            "the Lease is held by a; nothing is open; "
            "not copied: Job shop/x is no kind that is copied (and 1 more)",
        ),
        (
            WriteState("oslo", holder="a", pools=("there is no NodePool b", "c")),
            False,
            "the Lease is held by a; nothing is open; there is no NodePool b (and 1 more)",
        ),
        (WriteState("oslo", "no answer within 10 s"), False, "no answer within 10 s"),
        (
            WriteState("oslo", holder="a", copies=2, copies_oldest_s=OPEN_S_MAX),
            True,
            "the Lease is held by a; 2 copies open, the oldest for 5 min",
        ),
        (
            WriteState(
                "oslo",
                holder="a",
                open=1,
                copies=1,
                copies_oldest_s=2 * OPEN_S_MAX,
                oldest_copy="create-copy Deployment shop/web",
            ),
            False,
            "the Lease is held by a; 1 effect open; 1 copy open, the oldest for 10 min; "
            "create-copy Deployment shop/web is open for more than 5 min: "
            "see the answer of the API server in `wharfinger effects oslo --open`",
        ),
        (
            WriteState(
                "oslo", holder="a", absent=("ConfigMap shop/x named by StatefulSet shop/y",)
            ),
            False,
            "the Lease is held by a; nothing is open; "
            "missing: ConfigMap shop/x named by StatefulSet shop/y",
        ),
        (
            WriteState("oslo", holder="a", needed=("Secret shop/x", "Secret shop/y")),
            True,
            "the Lease is held by a; nothing is open; needed: Secret shop/x (and 1 more)",
        ),
        (
            WriteState("oslo", holder="a", kept=("PersistentVolumeClaim shop/x may hold data",)),
            True,
            "the Lease is held by a; nothing is open; "
            "kept: PersistentVolumeClaim shop/x may hold data",
        ),
    ],
    ids=[
        "well",
        "open",
        "open for long",
        "paused",
        "no actuator",
        "not copied",
        "a NodePool",
        "away",
        "copies",
        "a copy for long",
        "a missing object",
        "Secrets",
        "kept",
    ],
)
def test_what_is_wrong_with_writing(state: WriteState, ok: bool | None, said: str) -> None:
    assert (state.ok, state.said) == (ok, said)


def test_a_missing_right_is_named() -> None:
    state = WriteState("oslo", missing=("create pods/binding", "get leases"))
    assert state.ok is False
    assert state.said.startswith("the right to create pods/binding, get leases is missing; ")


def test_the_oldest_copy_is_named() -> None:
    second = 1_000_000
    copies = [
        OpenCopy("oslo", "Deployment shop/api", _create("api")),
        OpenCopy("oslo", "Deployment shop/web", _create("web"), since=400 * second),
        OpenCopy("oslo", "Deployment shop/log", _create("log"), since=100 * second),
        OpenCopy("oslo", "Job shop/new", why="is no kind that is copied", since=300 * second),
        OpenCopy("oslo", "Job shop/old", why="is no kind that is copied", since=200 * second),
        OpenCopy("oslo", "ConfigMap shop/settings", why="is named", needed="missing"),
        OpenCopy("oslo", "Secret shop/token", why="is named", needed="needs"),
        OpenCopy("oslo", "ConfigMap shop/old", why="is still named", needed="kept"),
    ]
    state = with_copies(WriteState("oslo", holder="a"), copies, at=500 * second)
    assert (state.copies, state.copies_oldest_s) == (3, 400.0)
    assert state.oldest_copy == "create-copy Deployment shop/log"
    assert [left.split()[1] for left in state.left] == ["shop/old", "shop/new"]
    assert state.absent == ("ConfigMap shop/settings is named",)
    assert state.needed == ("Secret shop/token is named",)
    assert state.kept == ("ConfigMap shop/old is still named",)
    assert with_copies(state, copies[:1], at=500 * second).copies_oldest_s == 0.0
    ahead = with_copies(state, copies[1:2], at=300 * second)
    assert ahead.copies_oldest_s == 0.0, "the clock of the ledger is ahead of ours"


def _create(name: str) -> CopyWrite:
    object = EffectObject("Deployment", "shop", name)
    return CopyWrite(object, "create", "", ApiRequest("POST", "/", {}))
