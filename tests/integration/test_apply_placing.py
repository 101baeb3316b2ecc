"""What pods are placed by, from files into the ledger and out again: told once, joined, unchanged
when said again, taken back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from wharfinger.answers.submit import Submitted, submit
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import ObjectsObserved, PodsObserved
from wharfinger.events.intake import Intake
from wharfinger.manifests.parse import Manifest, load_files, load_manifests
from wharfinger.runtime.ledger import Ledger
from wharfinger_cli.apply import compiled, compiled_away
from wharfinger_cli.facts import LatestFacts, known_facts

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"

SECOND_SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: ledger, namespace: quay, labels: {wharfinger.io/cluster: molde}}
spec: {selector: {app: ledger}}
"""


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.open(database_url, "tests", clock=lambda: 5_000_001)
    yield opened
    await opened.close()


def examples() -> tuple[Manifest, ...]:
    loaded = load_files([EXAMPLES / "nodes"])
    assert loaded.errors == ()
    return loaded.manifests


async def handed_in(ledger: Ledger, intake: Intake, known: LatestFacts) -> Submitted:
    assert intake.errors == ()
    return await submit(ledger, intake.facts, known)


async def applied(ledger: Ledger, manifests: tuple[Manifest, ...]) -> Submitted:
    known = await known_facts(ledger)
    return await handed_in(ledger, compiled(manifests, known), known)


async def test_the_example_is_told_once_and_saying_it_again_changes_nothing(ledger: Ledger) -> None:
    first = await applied(ledger, examples())
    assert (first.unchanged, first.accepted > 15) == (0, True)
    again = await applied(ledger, examples())
    assert (again.accepted, again.unchanged) == (0, first.accepted)


async def test_what_is_applied_later_joins_what_is_known_and_is_taken_back_alone(
    ledger: Ledger,
) -> None:
    await applied(ledger, examples())
    (later,) = [load_manifests(SECOND_SERVICE, "file.yaml").manifests]
    assert (await applied(ledger, later)).keys == {"molde/objects/Service/quay"}
    drawer = ("molde", "Service", "quay")
    assert [o.name for o in (await known_facts(ledger)).objects[drawer]] == ["ledger", "pilot"]
    known = await known_facts(ledger)
    await handed_in(ledger, compiled_away(later, known), known)
    assert [o.name for o in (await known_facts(ledger)).objects[drawer]] == ["pilot"]


async def test_a_class_that_was_applied_before_ranks_what_comes_after(ledger: Ledger) -> None:
    manifests = examples()
    await applied(ledger, tuple(m for m in manifests if m.kind.kind != "Deployment"))
    await applied(ledger, tuple(m for m in manifests if m.kind.kind == "Deployment"))
    known = await known_facts(ledger)
    ranked = {b.binding.name: b.binding.priority for b in known.of(BindingRequested)}
    assert ranked == {
        "quay/pilot-deployment": 100_000,
        "quay/ledger-deployment": 0,
        "quay/tide-tables-job": -10,
    }


async def test_everything_of_a_cluster_goes_with_it(ledger: Ledger) -> None:
    await applied(ledger, examples())
    known = await known_facts(ledger)
    await handed_in(ledger, compiled_away(examples(), known), known)
    known = await known_facts(ledger)
    assert [told for told in known.of(ObjectsObserved) if told.objects] == []
    assert [told for told in known.of(PodsObserved) if told.pods] == []
    assert (known.clusters, known.policies, known.bindings) == ([], [], [])
