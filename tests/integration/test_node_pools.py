"""What nodes can be bought and which were asked for, on a real ledger, by the commands that tell it
and ask it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.told_plane import ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.policy import Policy
from wharfinger.events.intake import compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.parse import load_files
from wharfinger_cli import node_pools
from wharfinger_cli.catalogue_files import read
from wharfinger_cli.catalogue_terms import CatalogueTerms
from wharfinger_cli.failures import NotFoundError
from wharfinger_cli.instance_types import ImportOptions, import_instance_types, parts_of
from wharfinger_cli.output import Format
from wharfinger_cli.request import Request

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples" / "karpenter"
TYPES = EXAMPLES / "instance-types.csv"
AGGREGATED = a_policy("p", Placement(replicas=ReplicaScheduling("Divided", "Aggregated")))


def examples() -> list[Policy]:
    facts = compile_manifests(load_files([EXAMPLES]).manifests).facts
    return [fact.data.policy for fact in facts if isinstance(fact.data, PolicyApplied)]


@pytest_asyncio.fixture
async def plane(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ToldPlane]:
    monkeypatch.setenv("WHARFINGER_DATABASE", database_url)
    told = await ToldPlane.opened(database_url)
    yield told
    await told.ledger.close()


class Commands:
    """Commands run their own event loop, so each has a thread."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def imported(self, *files: Path, **options: str) -> dict[str, Any]:
        await asyncio.to_thread(
            import_instance_types,
            Request(None, Format.JSON),
            files,
            ImportOptions(**options),  # type: ignore[arg-type]
        )
        found: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return found

    async def got(self, what: str, name: str = "", at: str = "") -> Any:
        await asyncio.to_thread(node_pools.get, Request(None, Format.JSON), what, name, at)
        return json.loads(self._capsys.readouterr().out)

    async def shown(self, what: str) -> str:
        await asyncio.to_thread(node_pools.get, Request(None, Format.TABLE), what, None, "")
        return self._capsys.readouterr().out


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capsys)


async def test_a_catalogue_is_told_once_and_taken_back(
    plane: ToldPlane, commands: Commands
) -> None:
    first = await commands.imported(TYPES, name="north")
    assert (first["types"], first["offerings"], first["parts"], first["accepted"]) == (6, 12, 1, 1)
    again = await commands.imported(TYPES, name="north")
    assert (again["accepted"], again["unchanged"]) == (0, 1)
    assert [kind["name"] for kind in await commands.got("instance-types", "north")][:2] == [
        "arm-4",
        "balanced-16",
    ]
    gone = await commands.imported(remove="north")
    assert gone["accepted"] == 1
    with pytest.raises(NotFoundError, match="no instance type and no catalogue is named north"):
        await commands.got("instance-types", "north")
    with pytest.raises(NotFoundError, match="no catalogue is named north"):
        await commands.imported(remove="north")


async def test_a_shorter_catalogue_takes_its_parts_back(
    plane: ToldPlane, commands: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("wharfinger_cli.instance_types.PART_BYTES", 500)
    first = await commands.imported(TYPES)
    assert first["parts"] > 2
    short = tmp_path / "short.csv"
    short.write_text("".join(TYPES.read_text().splitlines(keepends=True)[:2]))
    again = await commands.imported(short)
    # one told again, the others taken back
    assert (again["parts"], again["accepted"]) == (1, first["parts"])
    assert [kind["name"] for kind in await commands.got("instance-types")] == ["balanced-2"]


async def test_a_catalogue_that_is_not_whole_is_not_shown_as_one(
    plane: ToldPlane, commands: Commands
) -> None:
    parts = [
        PolicyApplied(part)
        for part in parts_of("halves", read([TYPES], "auto", CatalogueTerms()).types)
    ]
    (whole,) = parts
    catalogue = whole.policy.catalogue
    assert catalogue is not None
    half = Policy(
        "InstanceTypes", "0", "halves", catalogue=type(catalogue)("halves", catalogue.types, 0, 2)
    )
    await plane.tell(PolicyApplied(half))
    assert await commands.got("instance-types") == []


async def test_pools_and_overlays_are_shown_as_they_were_applied(
    plane: ToldPlane, commands: Commands
) -> None:
    await plane.tell(a_cluster("oslo"), *[PolicyApplied(policy) for policy in examples()])
    pools = await commands.got("nodepools")
    assert [(o["kind"], o["metadata"]["name"]) for o in pools["items"]] == [
        ("NodePool", "general"),
        ("NodePool", "spot"),
    ]
    spot = await commands.got("nodepools", "spot")
    assert spot["spec"]["weight"] == 10
    overlay = await commands.got("overlays", "paid-ahead")
    assert overlay["spec"]["priceAdjustment"] == "-20%"
    table = await commands.shown("nodepools")
    assert "default: not known" in table
    assert "10%; 0 if Underutilized, Drifted from '0 6 * * mon-fri' for 4h" in table


async def test_claims_are_objects_that_whoever_makes_nodes_can_take(
    plane: ToldPlane, commands: Commands
) -> None:
    parts = [
        PolicyApplied(part)
        for part in parts_of("default", read([TYPES], "auto", CatalogueTerms()).types)
    ]
    general = [PolicyApplied(policy) for policy in examples() if policy.name == "general"]
    await plane.tell(
        AGGREGATED, *parts, *general, a_cluster("oslo"), *nodes("oslo", "n-1", cpu=1000)
    )
    await plane.tell(a_binding("web", 3, AGGREGATED, cpu=3000))
    found = (await commands.got("nodeclaims"))["items"]
    assert found
    for claim in found:
        assert (claim["apiVersion"], claim["kind"]) == ("karpenter.sh/v1", "NodeClaim")
        assert claim["metadata"]["labels"]["karpenter.sh/nodepool"] == "general"
        assert claim["metadata"]["labels"]["wharfinger.io/node-claim"] == claim["metadata"]["name"]
        assert claim["spec"]["nodeClassRef"]["kind"] == "KWOKNodeClass"
        assert "status" not in claim
    table = await commands.shown("nodeclaims")
    assert table.count("open") == len(found)
    before = plane.time.at
    await plane.wait(3600)
    # nobody made them: nothing to be taken any more
    assert (await commands.got("nodeclaims"))["items"] == []
    assert "timed-out" in await commands.shown("nodeclaims")
    assert plane.time.at > before
