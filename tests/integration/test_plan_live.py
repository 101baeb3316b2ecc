"""Plans on a whole plane, by the commands a user has: what `plan` says is what `apply --plan` then
does, to the node."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.patience import PATIENCE_S
from tests.plan_world import Layout, layout
from tests.planes import assert_whole, settled

from wharfinger.history.plan_records import HORIZON_US
from wharfinger.history.planning import live_on
from wharfinger.history.states import world_at
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.settings import load_settings

pytestmark = [pytest.mark.integration, pytest.mark.long]

POLICY = """\
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata:
  name: {name}
spec:
  priority: 1
  preemption: Always
  resourceSelectors:
    - apiVersion: apps/v1
      kind: Deployment
      labelSelector:
        matchLabels: {{}}
  placement:
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Aggregated
"""

NEW = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: late
  namespace: shop
  annotations:
    wharfinger.io/placement: any
spec:
  replicas: 7
  selector: {matchLabels: {app: late}}
  template:
    spec:
      containers:
        - name: late
          image: late
          resources: {requests: {cpu: 500m, memory: 512Mi}}
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[PlaneUnderTest]:
    with a_plane() as plane:
        plane.up()
        plane.command(
            "generate",
            "fleet",
            "--clusters",
            "4",
            "--nodes",
            "24",
            "--bindings",
            "60",
            "--seed",
            "3",
            "--apply",
        )
        settled(plane, bindings=60)
        yield plane


def asked(plane: PlaneUnderTest, *arguments: str) -> tuple[int, Any]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "wharfinger_cli",
            "--data-dir",
            str(plane.data_dir),
            *arguments,
            "-o",
            "json",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def where(plane: PlaneUnderTest) -> Layout:
    """Out of the ledger alone, as everything lies once what waits was tried again: a plan shows
    what would be otherwise than it would be anyway."""

    async def read() -> Layout:
        ledger = await Ledger.open(
            load_settings({"data_dir": plane.data_dir}).database or "", "tests"
        )
        try:
            world = await world_at(ledger)
        finally:
            await ledger.close()
        live_on(world, world.at + HORIZON_US)
        return layout(world)

    return asyncio.run(read())


def followed(before: Layout, made: dict[str, Any]) -> Layout:
    found = dict(before)
    for move in made["moves"]:
        found[move["binding"]] = (move["after"], move["nodes_after"])
    return {name: places for name, places in found.items() if places != ({}, {})}


def a_file(directory: Path, text: str) -> str:
    path = directory / "change.yaml"
    path.write_text(text)
    return str(path)


CHANGES = ["scale up", "drain cluster", "drain node", "policy", "new", "scale down"]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_planned_is_what_the_plane_then_does(
    plane: PlaneUnderTest, tmp_path: Path, change: str
) -> None:
    before = where(plane)
    heads = plane.json("status")["streams"]
    code, made = asked(plane, "plan", *arguments_of(change, before, tmp_path))
    assert plane.json("status")["streams"] == heads, "a plan writes nothing to any stream"
    assert code == (1 if made["changes"] else 0)
    assert made["changes"], "a plan that changes nothing shows nothing"
    code, answer = asked(plane, "apply", "--plan", made["id"])
    assert (code, answer["applied"]) == (0, True), answer
    settled(plane)
    unsure = set(made["unsure"])  # it says of which it is not certain
    now, then = where(plane), followed(before, made)
    assert {name: places for name, places in now.items() if name not in unsure} == {
        name: places for name, places in then.items() if name not in unsure
    }
    assert len(unsure) < len(now) / 4, "those that wait for room, and those that had to"
    assert asked(plane, "apply", "--plan", made["id"])[1]["again"]


def arguments_of(change: str, now: Layout, directory: Path) -> list[str]:
    clusters: dict[str, int] = {}
    for places, _ in now.values():
        for name in places:
            clusters[name] = clusters.get(name, 0) + 1
    fullest, *_ = sorted(clusters, key=lambda name: -clusters[name])
    some = next(name for name, (places, _) in sorted(now.items()) if sum(places.values()) > 2)
    node = next(
        node for _, (_, nodes) in sorted(now.items()) for node in nodes if node.startswith(fullest)
    )
    match change:
        case "scale up":
            return ["scale", some, "25"]
        case "scale down":
            return ["scale", some, "1"]
        case "drain cluster":
            return ["drain", fullest]
        case "drain node":
            return ["drain", node]
        case "policy":
            return ["--policy", a_file(directory, POLICY.format(name="packed"))]
        case _:
            return ["-f", a_file(directory, NEW)]


def test_a_plan_that_the_plane_has_overtaken_is_refused_with_the_input_that_changed(
    plane: PlaneUnderTest,
) -> None:
    some = sorted(where(plane))[0]
    _, first = asked(plane, "plan", "scale", some, "9")
    _, second = asked(plane, "plan", "scale", some, "11")
    assert asked(plane, "apply", "--plan", first["id"])[0] == 0
    settled(plane)
    before = where(plane)
    code, answer = asked(plane, "apply", "--plan", second["id"])
    assert code == 1
    assert answer["refused"]["fleet/0"]["changed"] == [f"binding/{some}"]
    settled(plane)
    assert where(plane) == before


def test_with_plans_in_it_the_history_is_whole(plane: PlaneUnderTest) -> None:
    assert_whole(plane)
