"""A cluster grows by day and shrinks by night on a whole plane, by the commands a user has.

The test stands in for whoever makes nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.planes import assert_whole, ledger_decisions, until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlaneUnderTest]:
    monkeypatch.setenv("WHARFINGER_DISRUPTION_POLL_S", "1")
    monkeypatch.setenv("WHARFINGER_DISRUPTION_VALIDATION_S", "1")
    monkeypatch.setenv("WHARFINGER_MOVE_COOL_DOWN_S", "1")
    with a_plane() as plane:
        plane.up()
        yield plane


def decided(plane: PlaneUnderTest) -> dict[str, list[dict[str, Any]]]:
    """Everything that was, by its kind."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for decision in ledger_decisions(plane):
        found[decision["type"].removeprefix("io.wharfinger.").removesuffix(".v1")].append(
            decision["data"]
        )
    return found


def provided(plane: PlaneUnderTest) -> None:
    """Claims that are open become nodes, and nodes that may go are gone."""
    plane.command("provide", "--delay", "0", "--once")


def test_by_night_most_nodes_go(plane: PlaneUnderTest) -> None:
    plane.command(
        "import",
        "instance-types",
        str(EXAMPLES / "karpenter" / "instance-types.csv"),
        "--name",
        "dock",
    )
    plane.command("apply", "-f", str(EXAMPLES / "consolidation" / "cluster.yaml"))
    plane.command("apply", "-f", str(EXAMPLES / "consolidation" / "day.yaml"))

    def on_nodes(count: int) -> bool:
        provided(plane)
        return (
            sum(len(s["ordinals"]) for d in decided(plane)["replicas.placed"] for s in d["placed"])
            >= count
        )

    until(lambda: on_nodes(15))
    plane.command("apply", "-f", str(EXAMPLES / "consolidation" / "night.yaml"))

    def over() -> bool:
        provided(plane)
        known = decided(plane)
        begun, ended = (
            {d["command"] for d in known[f"disruption.{word}"]} for word in ("decided", "ended")
        )
        return bool(begun) and begun == ended

    until(over)
    known = decided(plane)
    ended = known["disruption.ended"]
    assert {d["outcome"] for d in ended} == {"done"}
    assert sum(d["realised"] for d in ended) > 0
    assert {d["node"] for d in known["node-removal.decided"]} == {
        node for d in ended for node in d["removed"]
    }
    assert_whole(plane)
