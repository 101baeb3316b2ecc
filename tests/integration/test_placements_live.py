"""Placements on a whole plane, by the commands a user has: the worked examples of OCM's guide, and
what others take of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from ruamel.yaml import YAML
from tests.placement_article import EXAMPLES, NAMESPACE, Example, cluster
from tests.planes import assert_whole, settled, until

from wharfinger.events.decisions import PlacementDecided
from wharfinger.events.streams import CLUSTERS, POLICIES
from wharfinger.manifests.parse import load_manifests
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow
from wharfinger.runtime.settings import load_settings

pytestmark = [pytest.mark.integration, pytest.mark.long]

LABEL = "cluster.open-cluster-management.io/placement"


@pytest.fixture(scope="module")
def plane() -> Iterator[PlaneUnderTest]:
    with a_plane() as plane:
        plane.up()
        yield plane


def tell(plane: PlaneUnderTest, directory: Path, verb: str, text: str) -> None:
    path = directory / "manifests.yaml"
    path.write_text(text)
    plane.command(verb, "-f", str(path))


T = TypeVar("T")


def asked(plane: PlaneUnderTest, question: Callable[[Ledger], Awaitable[T]]) -> T:
    """Of the ledger, without a command."""

    async def ask() -> T:
        ledger = await Ledger.open(
            load_settings({"data_dir": plane.data_dir}).database or "", "tests"
        )
        try:
            return await question(ledger)
        finally:
            await ledger.close()

    return asyncio.run(ask())


def decided(plane: PlaneUnderTest, key: str) -> list[LedgerRow]:
    async def rows(ledger: Ledger) -> list[LedgerRow]:
        return [
            row
            async for row in ledger.decisions(DecisionQuery("fleet/0", subject=f"placement/{key}"))
        ]

    return asked(plane, rows)


def taken_in(plane: PlaneUnderTest) -> None:
    """Wait until the stage has taken in all that is told of clusters and policies."""

    async def left(ledger: Ledger) -> bool:
        told = {
            fact.id async for fact in ledger.facts() if fact.topic in (CLUSTERS.name, POLICIES.name)
        }
        return bool(told - (await ledger.known({"fleet/0": told}))["fleet/0"])

    until(lambda: not asked(plane, left))


def generated(listed: dict[str, Any], placement: str) -> list[str]:
    """As Argo CD reads them to generate applications: of all objects with the placement's label the
    `clusterName` of every entry of `status.decisions`."""
    assert listed["kind"] == "List"
    return [
        decision["clusterName"]
        for item in listed["items"]
        if item["kind"] == "PlacementDecision" and item["metadata"]["labels"][LABEL] == placement
        for decision in item["status"]["decisions"]
    ]


def fetched(plane: PlaneUnderTest) -> dict[str, Any]:
    """From the publisher itself."""
    answer = httpx.get(
        f"http://127.0.0.1:{plane.http_port('publisher')}/placementdecisions",
        params={"namespace": NAMESPACE},
        trust_env=False,
    )
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_every_printed_decision_is_made_by_the_live_plane(
    plane: PlaneUnderTest, tmp_path: Path, example: Example
) -> None:
    selected: dict[str, int] = {}
    made = 0
    for step in example.steps:
        for file in step.files:
            tell(plane, tmp_path, "apply", file)
            taken_in(plane)
        decisions = decided(plane, example.key)
        made, selected = (made, selected) if step.totals is None else (made + 1, step.totals)
        assert len(decisions) == made, step.says
        data = decisions[-1].data()
        assert isinstance(data, PlacementDecided)
        assert [group.scores for group in data.groups] == [selected]
    assert generated(fetched(plane), example.name) == list(selected)
    everything = "---\n".join([*example.steps[0].files, cluster("cluster4", 150)])
    tell(plane, tmp_path, "delete", everything)
    until(lambda: decided(plane, example.key)[-1].outcome == "released")
    assert generated(fetched(plane), example.name) == []


def test_what_commands_print_is_read_again_and_the_history_is_whole(
    plane: PlaneUnderTest, tmp_path: Path
) -> None:
    example = EXAMPLES[0]
    for file in (*example.steps[0].files, cluster("cluster4", 150)):
        tell(plane, tmp_path, "apply", file)
        taken_in(plane)
    text = plane.command(
        "get", "placementdecisions", "-n", NAMESPACE, "--placement", example.name, "-o", "yaml"
    )
    assert load_manifests(text, "rendered.yaml").errors == ()
    assert generated(YAML(typ="safe").load(text), example.name) == ["cluster3", "cluster4"]
    assert generated(fetched(plane), example.name) == ["cluster3", "cluster4"]
    assert "cluster3, cluster4" in plane.command("get", "placementdecisions")
    settled(plane)
    assert_whole(plane)
