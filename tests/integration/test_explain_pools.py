"""What a cluster decides about nodes, explained out of a real ledger: a claim, a command, a node,
and replicas that moved."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from tests.cluster_world import STREAM
from tests.pool_world import BIG, PoolPlane, a_budget, a_pool, wants

from wharfinger.events.decisions import (
    DisruptionDecided,
    DisruptionEnded,
    NodeClaimEnded,
    NodeClaimRequested,
    ReplicasRefused,
)
from wharfinger.history.deciders import DECIDERS
from wharfinger.history.explain import derive, explain
from wharfinger.runtime.ledger import DecisionQuery, Ledger, SnapshotFollower
from wharfinger.runtime.ledger.follower import SnapshotCadence
from wharfinger.stages.cluster.trace import NodesTrace
from wharfinger_cli.explain import account_page, account_plain

pytestmark = pytest.mark.integration


def a_history() -> PoolPlane:
    """A big node is replaced by a small one, under a budget; then a pool cannot make what is asked
    for."""
    plane = PoolPlane().pools(a_pool(limits={"cpu": 16_000}))
    plane.add(plane.bought(BIG))
    plane.assign("web", 2, wants(900, "web"))
    plane.run_pods()
    plane.budgets(a_budget("web"))
    plane.disrupt()
    plane.deliver()
    plane.run_pods()
    plane.run_pods()
    plane.take_away()
    plane.assign("huge", 1, wants(64_000))
    plane.assign("api", 1, wants(1500))
    return plane


async def committed(ledger: Ledger, plane: PoolPlane) -> None:
    await ledger.ensure_streams([STREAM])
    events = {event.id: event for recorded in plane.rounds for event in recorded.events}
    result = await ledger.commit([recorded.round for recorded in plane.rounds], events)
    assert result.committed == frozenset([STREAM])
    follower: SnapshotFollower[Any] = SnapshotFollower(
        ledger, DECIDERS["cluster/"], STREAM, cadence=SnapshotCadence(whole_rows=8, delta_rows=4)
    )
    assert await follower.catch_up()
    assert follower.divergence is None


async def test_every_decision_about_nodes_comes_out_again(ledger: Ledger) -> None:
    plane = a_history()
    await committed(ledger, plane)
    rows = [row async for row in ledger.decisions(DecisionQuery(STREAM))]
    assert len(rows) == len(plane.decided)
    for row in rows:
        found = await derive(ledger, row)
        assert found.again.same, (row.seq, row.outcome, found.again)
        if isinstance(found.data, ReplicasRefused):
            assert isinstance(found.trace, NodesTrace)
            assert "pool default" in found.data.explanation.note


async def test_a_claim_and_a_command_are_explained_by_their_names(ledger: Ledger) -> None:
    plane = a_history()
    await committed(ledger, plane)
    command = next(d.data for d in plane.decided if isinstance(d.data, DisruptionDecided))
    claim = next(d.data for d in plane.decided if isinstance(d.data, NodeClaimRequested))

    account = await explain(ledger, command.command)
    assert isinstance(account.decision.data, DisruptionEnded)
    assert account.total == 2
    asked = next(row for row in account.history if row.outcome == "disrupting")
    began = await explain(ledger, command.command, decision=asked.id)
    assert began.decision.again.same
    assert began.decision.recorded is not None
    assert "saves 0.28 $/h" in began.decision.recorded.note
    assert "saves 0.28 $/h" in shown(began)

    account = await explain(ledger, claim.claim)
    assert isinstance(account.decision.data, NodeClaimEnded)
    gone = await explain(ledger, command.nodes[0].name)
    assert gone.decision.row.outcome == "removed"
    assert account_plain(gone)["binding"] == command.nodes[0].name


def shown(account: Any) -> str:
    console = Console(file=StringIO(), width=200)
    for part in account_page(account):
        console.print(part)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text
