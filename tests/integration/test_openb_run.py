"""The whole public openb trace through all five services, by the commands a user has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.patience import PATIENCE_S
from tests.planes import assert_whole, current_outcomes, data_file, ledger_decisions, settled

NODES = data_file("openb", "openb_node_list_all_node.csv")
PODS = data_file("openb", "openb_pod_list_default.csv")
BINDINGS = 8152

pytestmark = [
    pytest.mark.integration,
    pytest.mark.data,
    pytest.mark.long,
    pytest.mark.skipif(
        NODES is None or PODS is None, reason="the openb trace is not at hand: set WHARFINGER_DATA"
    ),
]


def import_openb(plane: PlaneUnderTest) -> str:
    return plane.command("import", "openb", "--nodes", str(NODES), "--pods", str(PODS))


@pytest.fixture(scope="module")
def plane() -> Iterator[PlaneUnderTest]:
    with a_plane() as plane:
        plane.up()
        import_openb(plane)
        settled(plane, BINDINGS)
        yield plane


@pytest.fixture(scope="module")
def decisions(plane: PlaneUnderTest) -> list[dict[str, Any]]:
    return ledger_decisions(plane)


def test_every_pod_ends_with_one_current_outcome(decisions: list[dict[str, Any]]) -> None:
    fleet, node = current_outcomes(decisions)
    assert len(fleet) == BINDINGS
    assigned = {
        (target["cluster"], binding)
        for binding, d in fleet.items()
        for target in d["data"].get("targets", [])
    }
    answered = {
        (d["data"]["cluster"], d["subject"])
        for d in node.values()
        if d["type"] == "io.wharfinger.replicas.placed.v1"
    }
    assert assigned == answered
    refused = [d for d in fleet.values() if d["type"] == "io.wharfinger.schedule.refused.v1"]
    assert all(d["data"]["reason"] for d in refused)


def test_no_device_holds_more_than_it_has(decisions: list[dict[str, Any]]) -> None:
    held: dict[tuple[str, str, int], int] = {}
    for d in decisions:
        if d["type"] != "io.wharfinger.replicas.placed.v1":
            continue
        for share in d["data"]["placed"]:
            for replica in share.get("devices", []):
                for index, milli in replica:
                    place = (d["stream"], share["node"], index)
                    held[place] = held.get(place, 0) + milli
    assert held
    assert max(held.values()) <= 1000


def test_the_topic_the_ledger_and_the_replay_agree(plane: PlaneUnderTest) -> None:
    assert_whole(plane)


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_replay_gives_the_same_bytes_under_any_hash_seed(plane: PlaneUnderTest, seed: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "wharfinger_cli",
            "--data-dir",
            str(plane.data_dir),
            "replay",
            "-o",
            "json",
        ],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"divergences": 0' in done.stdout or '"divergences":0' in done.stdout


def test_importing_again_changes_nothing(
    plane: PlaneUnderTest, decisions: list[dict[str, Any]]
) -> None:
    before = heads(plane)
    import_openb(plane)
    settled(plane)
    assert heads(plane) == before


def heads(plane: PlaneUnderTest) -> dict[str, tuple[int, int, str]]:
    """Round, seq and hash of each stream. The status also says how old snapshots are, which time
    alone changes."""
    streams = plane.json("status")["streams"]
    return {
        name: (stream["round"], stream["seq"], stream["hash"]) for name, stream in streams.items()
    }


def test_the_trace_is_what_its_readme_says() -> None:
    assert PODS is not None
    assert len(PODS.read_text().splitlines()) == BINDINGS + 1
