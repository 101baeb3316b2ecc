"""Planes for tests that drive Wharfinger as its users do: by its commands, with real processes, and
from outside.

The embedded backends are used on purpose: these tests kill them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
from benchmarks.plane import PlaneUnderTest
from benchmarks.subscriber import Seen, Subscriber
from tests.commands import in_process
from tests.patience import PATIENCE_S
from tests.patience import until as until

FLEET_TYPES = frozenset({"io.wharfinger.schedule.decided.v1", "io.wharfinger.schedule.refused.v1"})
NODE_TYPES = frozenset({"io.wharfinger.replicas.placed.v1", "io.wharfinger.replicas.refused.v1"})
RELEASED = "io.wharfinger.replicas.released.v1"


def ledger_decisions(plane: PlaneUnderTest) -> list[dict[str, Any]]:
    """Every decision of the ledger, as `wharfinger decisions -o json` prints them."""
    return [json.loads(line) for line in plane.command("decisions", "-o", "json").splitlines()]


def current_outcomes(
    decisions: list[dict[str, Any]],
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """binding -> its latest fleet decision, and (cluster stream, binding) joined -> its latest node
    decision."""
    fleet: dict[str, dict[str, Any]] = {}
    node: dict[str, dict[str, Any]] = {}
    for d in decisions:
        if d["type"] in FLEET_TYPES:
            fleet[d["subject"]] = d
        elif d["type"] in NODE_TYPES:
            node[f"{d['stream']} {d['subject']}"] = d
    return fleet, node


def settled(plane: PlaneUnderTest, bindings: int = 0, quiet_s: float = 3.0) -> None:
    """Wait until the fleet streams have a decision for each of so many `bindings`, no stream's head
    has moved for `quiet_s` and everything is ready and without lag.

    On a busy machine records may lie on a topic for longer than `quiet_s` before they are fetched,
    so a test that has just applied bindings says how many."""
    status: dict[str, Any] = {}
    before: object = None
    since = time.monotonic()

    def rests() -> bool:
        nonlocal status, before, since
        done = in_process(
            ["--data-dir", str(plane.data_dir), "status", "-o", "json"], dict(os.environ)
        )
        if done.returncode not in (0, 1):
            return False
        status = json.loads(done.stdout)
        now = {name: head["hash"] for name, head in _streams(status).items()}
        fleet = sum(h["seq"] for name, h in _streams(status).items() if name.startswith("fleet/"))
        calm = fleet >= bindings and all(
            s["ready"] and not s["lag"] for s in _services(status).values()
        )
        if now != before or not calm:
            before, since = now, time.monotonic()
        return time.monotonic() - since >= quiet_s

    until(rests, seen=lambda: json.dumps(status)[:2000], every_s=0.2)


def _streams(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = status["streams"]
    return found


def _services(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = status["services"]
    return found


def ids_on_topic(plane: PlaneUnderTest, expected: int) -> Seen:
    """What a subscriber sees on `decisions`: read until `expected` different ids came and none for
    a second."""

    async def read() -> Seen:
        async with Subscriber(plane.plane()["bootstrap"]) as subscriber:
            await subscriber.until(lambda s: len(s.ids) >= expected, PATIENCE_S, quiet_s=1.0)
            return subscriber.seen

    return asyncio.run(read())


def assert_whole(plane: PlaneUnderTest) -> list[dict[str, Any]]:
    """The laws that no fault may break: ids on the topic are the ids in the ledger, each once; the
    chain holds; the past can be decided again. Returns the ledger's decisions."""
    decisions = ledger_decisions(plane)
    while True:
        ids = [d["id"] for d in decisions]
        assert len(ids) == len(set(ids))
        seen = ids_on_topic(plane, len(ids))
        before, decisions = decisions, ledger_decisions(plane)
        if len(decisions) == len(before):
            # else the plane went on deciding while the topic was read, and what it decided may be
            # on it
            break
    assert set(seen.ids) == set(ids), (
        f"{len(set(ids) - set(seen.ids))} missing, {len(set(seen.ids) - set(ids))} too many"
    )
    assert {i for i, n in seen.ids.items() if n > 1} == set()
    verified = plane.json("audit", "verify")
    assert verified["ok"] is True, verified
    assert verified["first_bad"] is None
    replayed = plane.json("replay")
    assert replayed["divergences"] == 0, replayed
    assert replayed["decisions"] == len(ids)
    return decisions


def kill(pid: int) -> None:
    """kill -9, and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not runs(pid), every_s=0.01)


def runs(pid: int) -> bool:
    """A zombie, which only waits for its parent to collect it, does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def data_file(*names: str) -> Path | None:
    """A file of the real data, or None where it is not at hand."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("WHARFINGER_DATA", beside)).joinpath(*names)
    return path if path.exists() else None
