"""Explanations out of a real ledger: derived from snapshots and deltas, and the recorded bytes come out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.fleets import Fleet, a_fleet

from wharfinger.events.decisions import ReplicasPlaced, ReplicasRefused, ScheduleDecided, ScheduleRefused
from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.history.deciders import DECIDERS
from wharfinger.history.explain import Derived, derive
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow, SnapshotFollower
from wharfinger.runtime.ledger.follower import Cadence
from wharfinger.stages.cluster.trace import NodesTrace
from wharfinger.stages.fleet.trace import FleetTrace

pytestmark = pytest.mark.integration

FLEETS = 3
EXPLAINED = (ScheduleDecided, ScheduleRefused, ReplicasPlaced, ReplicasRefused)


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.open(database_url, "tests")
    yield opened
    await opened.close()


async def committed(ledger: Ledger, fleet: Fleet) -> None:
    await ledger.ensure_streams(fleet.by_stream())
    events = {event.id: event for recorded in fleet.rounds for event in recorded.events}
    result = await ledger.commit([recorded.round for recorded in fleet.rounds], events)
    assert result.committed == frozenset(fleet.by_stream())


async def followed(ledger: Ledger, streams: list[str], cadence: Cadence) -> dict[str, list[int]]:
    made: dict[str, list[int]] = {}
    for stream in streams:
        prefix = FLEET if stream.startswith(FLEET) else CLUSTER
        follower: SnapshotFollower[Any] = SnapshotFollower(ledger, DECIDERS[prefix], stream, cadence=cadence)
        made[stream] = await follower.catch_up()
        assert follower.divergence is None
    return made


async def about_bindings(ledger: Ledger, prefix: str = "") -> list[LedgerRow]:
    return [row async for row in ledger.decisions(DecisionQuery(prefix)) if isinstance(row.data(), EXPLAINED)]


async def test_every_decision_of_fleets_with_faults_comes_out_again(ledger: Ledger) -> None:
    """From deltas, without the other bindings; and what is derived contains what was recorded."""
    for number in range(FLEETS):
        fleet = a_fleet(number)
        await committed(ledger, fleet)
        made = await followed(ledger, list(fleet.by_stream()), Cadence(whole_rows=70, delta_rows=15))
        assert len(made[f"fleet/{number}"]) > 3
    whole = looked_at = 0
    for row in await about_bindings(ledger):
        found = await derive(ledger, row)
        assert found.again.same, (row.stream, row.seq, row.outcome, found.again)
        whole += found.again.whole
        looked_at += found.trace is not None
        contains(found)
    assert looked_at > 100
    assert whole <= looked_at // 50, "the focused state is nearly always enough"


def contains(found: Derived) -> None:
    """What was recorded is in what is derived: the same candidates, reasons, scores and estimates."""
    recorded, trace = found.recorded, found.trace
    assert recorded is not None
    if isinstance(trace, FleetTrace):
        clusters = {c.name: c for c in trace.term.clusters}
        feasible = [c for c in clusters.values() if not c.refused]
        if recorded.candidates:
            assert (recorded.candidates, recorded.feasible) == (len(clusters), len(feasible))
        for scored in (*recorded.chosen, *recorded.runners_up):
            c = clusters[scored.name]
            assert (scored.score, scored.estimate, scored.estimated_by) == (
                c.locality,
                min(c.estimate, 2**31 - 1),
                c.source,
            )
        first: dict[str, int] = {}
        for c in clusters.values():
            if c.refused:
                first[c.refused[0]] = first.get(c.refused[0], 0) + 1
        assert {k: v for k, v in recorded.refused.items() if k != "NoCapacity"} == first
    elif isinstance(trace, NodesTrace):
        nodes = {n.name: n for n in trace.nodes}
        assert recorded.candidates == len(nodes)
        for scored in (*recorded.chosen[:1], *recorded.runners_up):
            assert nodes[scored.name].score == scored.score
        firsts: dict[str, int] = {}
        for n in nodes.values():
            if n.refused:
                firsts[n.refused[0]] = firsts.get(n.refused[0], 0) + 1
        assert dict(recorded.refused) == firsts
