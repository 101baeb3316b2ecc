"""Explanations out of a real ledger: derived from snapshots and deltas, and the recorded bytes come
out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from rich.console import Console
from rich.table import Table
from tests.fleets import a_fleet, committed
from tests.told_plane import ToldPlane

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.domain.policy import Policy, Propagation
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Taint
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import into_buckets
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import (
    ProposalRefused,
    ReplicasPlaced,
    ReplicasRefused,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.history.deciders import DECIDERS
from wharfinger.history.explain import Derived, derive, explain
from wharfinger.history.names import UnknownNameError
from wharfinger.history.points import HistoryPoint, PointError
from wharfinger.rules.changes import said
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow, SnapshotFollower
from wharfinger.runtime.ledger.follower import DeltaFollower, SnapshotCadence
from wharfinger.stages.cluster.trace import NodesTrace
from wharfinger.stages.fleet.trace import FleetTrace
from wharfinger_cli.explain import account_of, account_page, account_plain

pytestmark = pytest.mark.integration

FLEETS = 3
EXPLAINED = (ScheduleDecided, ScheduleRefused, ReplicasPlaced, ReplicasRefused)


async def followed(
    ledger: Ledger, streams: list[str], cadence: SnapshotCadence, *, folding: bool = False
) -> dict[str, list[int]]:
    """`folding`: only deltas, and without deciding."""
    made: dict[str, list[int]] = {}
    for stream in streams:
        prefix = FLEET if stream.startswith(FLEET) else CLUSTER
        if folding:
            [head] = await ledger.heads(stream)
            following: DeltaFollower[Any] = DeltaFollower(ledger, DECIDERS[prefix], stream, cadence)
            made[stream] = await following.catch_up(head.round)
            continue
        follower: SnapshotFollower[Any] = SnapshotFollower(
            ledger, DECIDERS[prefix], stream, cadence=cadence
        )
        made[stream] = await follower.catch_up()
        assert follower.divergence is None
    return made


async def about_bindings(ledger: Ledger, prefix: str = "") -> list[LedgerRow]:
    return [
        row
        async for row in ledger.decisions(DecisionQuery(prefix))
        if isinstance(row.data(), EXPLAINED)
    ]


@pytest.mark.long
@pytest.mark.parametrize("folding", [False, True])
async def test_every_decision_of_fleets_with_faults_comes_out_again(
    ledger: Ledger, folding: bool
) -> None:
    """From deltas, without the other bindings; and what is derived contains what was recorded."""
    for number in range(FLEETS):
        fleet = a_fleet(number)
        await committed(ledger, fleet)
        cadence = SnapshotCadence(whole_rows=70, delta_rows=15)
        made = await followed(ledger, list(fleet.by_stream()), cadence, folding=folding)
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


@pytest.mark.long
async def test_so_does_every_one_where_pods_mind_each_other(ledger: Ledger) -> None:
    """By plugins over other pods, by load, by configured profiles, with victims and whole groups:
    seldom without the others."""
    for number in range(70, 74):
        fleet = a_fleet(number, happenings=50, traits=True, configured=True)
        await committed(ledger, fleet)
        await followed(
            ledger, list(fleet.by_stream()), SnapshotCadence(whole_rows=70, delta_rows=15)
        )
    reasons: set[str] = set()
    for row in await about_bindings(ledger, "cluster/"):
        found = await derive(ledger, row)
        assert found.again.same, (row.stream, row.seq, row.outcome, found.again)
        if found.trace is not None:
            assert found.recorded is not None
            reasons |= found.recorded.refused.keys()
            contains(found)
    assert len(reasons) > 4, reasons


async def test_what_is_derived_from_a_focus_is_what_the_whole_state_gives(ledger: Ledger) -> None:
    """Not only the decision, whose bytes are compared: every cluster and node that was asked, with
    its numbers and ways."""
    fleet = a_fleet(1)
    await committed(ledger, fleet)
    await followed(ledger, list(fleet.by_stream()), SnapshotCadence(whole_rows=70, delta_rows=15))
    looked_at = {FleetTrace: 0, NodesTrace: 0}
    for row in await about_bindings(ledger):
        short, long = await derive(ledger, row), await derive(ledger, row, focused=False)
        assert short.trace == long.trace, (row.stream, row.seq, row.outcome)
        if short.trace is not None:
            looked_at[type(short.trace)] += 1
    assert min(looked_at.values()) > 5, looked_at


def contains(found: Derived) -> None:
    """What was recorded is in what is derived: the same candidates, reasons, scores and
    estimates."""
    recorded, trace = found.recorded, found.trace
    assert recorded is not None
    if isinstance(trace, FleetTrace):
        clusters = {c.name: c for c in trace.term.clusters}
        feasible = [c for c in clusters.values() if not c.refused]
        if recorded.candidates:
            assert (recorded.candidates, recorded.feasible) == (len(clusters), len(feasible))
        for name, estimate in recorded.best.items():
            assert estimate == min(clusters[name].estimate, 2**31 - 1)
        first: dict[str, int] = {}
        for c in clusters.values():
            if c.refused:
                first[c.refused[0]] = first.get(c.refused[0], 0) + 1
        assert {k: v for k, v in recorded.refused.items() if k != "NoCapacity"} == first
    elif isinstance(trace, NodesTrace):
        nodes = {n.name: n for n in trace.nodes}
        assert recorded.candidates == len(nodes)
        for name, score in recorded.best.items():
            assert nodes[name].score == score
        firsts: dict[str, int] = {}
        for n in nodes.values():
            if n.refused:
                firsts[n.refused[0]] = firsts.get(n.refused[0], 0) + 1
        assert dict(recorded.refused) == firsts


# --- a plane whose every reason is known

GI = 2**30
PLACED_BY_ROOM = Placement(
    (ClusterAffinity(labels=LabelSelector({"tier": "gold"})),),
    replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True),
)


def a_member(name: str, **facts: Any) -> ClusterObserved:
    return ClusterObserved(
        Cluster(name, **{"labels": {"tier": "gold"}, "region": "north", **facts})
    )


def members() -> list[Any]:
    gpu = (Taint("dedicated", "NoSchedule", "gpu"),)
    facts: list[Any] = [
        a_member("oslo"),
        a_member("bergen"),
        a_member("genoa", labels={"tier": "silver"}),
        a_member("izmir", taints=gpu),
        a_member("tiny"),
    ]
    for name, count_, memory in (
        ("oslo", 3, 8),
        ("bergen", 2, 8),
        ("genoa", 2, 8),
        ("izmir", 2, 8),
        ("tiny", 1, 1),
    ):
        found = [Node(f"{name}-{i}", {"cpu": 4000, "memory": memory * GI}) for i in range(count_)]
        facts += into_buckets(name, found, 2)
    return facts


def a_request(
    name: str, replicas: int, cpu: int = 1000, memory: int = 2 * GI, **more: Any
) -> BindingRequested:
    ref = ObjectRef("apps/v1", "Deployment", name, "shop")
    asked = Requirements({"cpu": cpu, "memory": memory})
    spec = Binding(f"shop/{name}", f"uid-{name}", ref, replicas, asked, PLACED_BY_ROOM, **more)
    return BindingRequested(spec)


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    told = await ToldPlane.opened(database_url)
    await told.tell(*members())
    yield told
    await told.ledger.close()


def ways(trace: FleetTrace, cluster: str) -> list[str]:
    return [said(way) for c in trace.term.clusters if c.name == cluster for way in c.ways]


async def fleet_trace_of(plane: ToldPlane, binding: str) -> FleetTrace:
    found = await explain(plane.ledger, binding)
    assert found.decision.again.same
    assert isinstance(found.decision.trace, FleetTrace)
    return found.decision.trace


async def test_each_refused_cluster_says_what_it_lacks(plane: ToldPlane) -> None:
    await plane.tell(a_request("web", 7))
    trace = await fleet_trace_of(plane, "shop/web")
    assert ways(trace, "genoa") == ["label tier=gold"]
    assert ways(trace, "izmir") == ["toleration dedicated=gpu:NoSchedule"]
    assert ways(trace, "tiny") == ["1Gi less memory", "1Gi more memory free there"]
    (division,) = trace.term.divisions
    assert {s.cluster: s.seats for s in division.shares} == {"oslo": 4, "bergen": 3}
    assert division.seats == 7
    counted = {c.name: c.counted_at for c in trace.term.clusters}
    assert all(at is not None for at in counted.values())


async def test_a_refused_binding_says_what_would_have_placed_it(plane: ToldPlane) -> None:
    await plane.tell(a_request("huge", 21))
    trace = await fleet_trace_of(plane, "shop/huge")
    assert trace.term.reason == "Unschedulable"
    said_ = [said(way) for way in trace.ways]
    assert any("1 fewer replicas" in text for text in said_), said_


async def test_why_it_is_still_there(plane: ToldPlane) -> None:
    await plane.tell(a_request("web", 4))
    await plane.tell(a_request("other", 2))
    found = await explain(plane.ledger, "shop/web", HistoryPoint("now"))
    assert found.steady is not None
    assert "not moved because capacity changed" in found.steady.rule
    assert found.steady.avoided, "there was nothing to be done"
    assert sum(found.steady.held.values()) == 4
    await plane.tell(a_request("web", 4, suspended=True))
    found = await explain(plane.ledger, "shop/web", HistoryPoint("now"))
    assert found.steady is not None
    assert "suspended" in found.steady.rule
    assert found.steady.avoided


async def test_a_withdrawn_one_and_what_does_not_exist(plane: ToldPlane) -> None:
    await plane.tell(a_request("web", 4))
    await plane.tell(BindingWithdrawn("shop/web"))
    await plane.tell(a_request("other", 2))
    found = await explain(plane.ledger, "shop/web", HistoryPoint("now"))
    assert found.decision.row.outcome == "released"
    assert found.steady is not None
    assert "withdrawn" in found.steady.rule
    assert not found.steady.avoided
    with pytest.raises(
        UnknownNameError, match="no decision was ever taken about a binding shop/nope"
    ):
        await explain(plane.ledger, "shop/nope")
    with pytest.raises(UnknownNameError, match="no decision about shop/web has the id"):
        await explain(plane.ledger, "shop/web", decision=UUID(int=1))
    with pytest.raises(PointError, match="there is no round 999"):
        await explain(plane.ledger, "shop/web", HistoryPoint("999", round=999))
    with pytest.raises(UnknownNameError, match="nothing had been decided about shop/other"):
        await explain(plane.ledger, "shop/other", HistoryPoint("1", round=1))


async def test_a_cluster_that_refuses_names_its_nearest_node(plane: ToldPlane) -> None:
    """The totals had room for it: no single node has."""
    await plane.tell(a_request("wide", 1, cpu=5000))
    found = await explain(plane.ledger, "shop/wide", every=True)
    refused = [d for d in found.nodes if isinstance(d.data, ReplicasRefused)]
    for derived in refused:
        assert derived.again.same
        assert isinstance(derived.trace, NodesTrace)
        assert derived.trace.nearest is not None
        assert said(derived.trace.nearest.ways[0]) == "1 less cpu"
    assert refused or not found.on_nodes


async def test_a_refused_proposal_is_explained(plane: ToldPlane) -> None:
    await plane.tell(a_request("web", 4))
    await plane.propose("fleet/0", RescheduleProposed("fleet/0", "shop/web"))
    found = await explain(plane.ledger, "shop/web")
    assert isinstance(found.decision.data, ProposalRefused)
    assert found.decision.again.same


async def test_another_answer_is_said_loudly(
    plane: ToldPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.tell(a_request("web", 4))
    monkeypatch.setattr("wharfinger.engine.fleet.assign.names_descend", lambda uid: True)
    monkeypatch.setattr("wharfinger.stages.fleet.explain.MAX_SHOWN", 1)
    found = await explain(plane.ledger, "shop/web")
    assert not found.decision.again.same
    assert found.decision.again.replayed
    assert found.decision.trace is None
    page = list(account_page(found))
    assert any(
        "NOT REPRODUCED" in str(cell)
        for part in page
        if isinstance(part, Table)
        for c in part.columns
        for cell in c.cells
    )


async def test_what_was_asked_for_and_is_not_acted_on_is_told_with_every_decision(
    plane: ToldPlane,
) -> None:
    written = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "gold", "namespace": "shop"},
        "spec": {"propagateDeps": True},
    }
    gold = Propagation((), PLACED_BY_ROOM)
    await plane.tell(
        PolicyApplied(
            Policy("PropagationPolicy", "gold", "shop", gold, manifest=json.dumps(written))
        )
    )
    spread = "spec.template.spec.topologySpreadConstraints"
    await plane.tell(a_request("web", 4, policy="PropagationPolicy/shop/gold", unacted=(spread,)))
    first = await explain(plane.ledger, "shop/web")
    assert first.unacted == {
        "Deployment web": (spread,),
        "PropagationPolicy gold": ("spec.propagateDeps",),
    }
    assert account_plain(first)["unacted"] == [
        {"of": "Deployment web", "field": spread},
        {"of": "PropagationPolicy gold", "field": "spec.propagateDeps"},
    ]
    console = Console(width=160, record=True, file=StringIO())
    for part in account_page(first):
        console.print(part)
    assert (
        f"accepted in Deployment web, not acted on in this version: {spread}"
        in console.export_text()
    )
    await plane.tell(a_request("web", 5))
    assert (await explain(plane.ledger, "shop/web")).unacted == {}
    assert (
        await explain(plane.ledger, "shop/web", decision=first.decision.row.id)
    ).unacted == first.unacted


async def test_the_page_and_what_programs_get(plane: ToldPlane) -> None:
    await plane.tell(a_request("web", 7))
    await plane.tell(a_request("huge", 21))
    shown: dict[str, str] = {}
    for name, at in (("shop/web", ""), ("shop/web", "now"), ("shop/huge", "")):
        account = await account_of(plane.ledger, name, at=at, every=not at)
        console = Console(width=160, record=True, file=StringIO())
        for part in account_page(account, every=not at):
            console.print(part)
        shown[name + at] = console.export_text()
        print(shown[name + at])
        plain = json.loads(json.dumps(account_plain(account)))
        assert plain["decision"]["again"]["same"]
        assert len(plain["decision"]["derived"]["terms"][0]["clusters"]) == 5
    assert "toleration dedicated=gpu:NoSchedule" in shown["shop/web"]
    assert "7 x 12/20 = 4.20" in shown["shop/web"]
    assert "nothing was decided" in shown["shop/webnow"]
    assert "8 fewer replicas (13 fit)" in shown["shop/huge"]
    assert "less memory" in shown["shop/huge"].partition("it would have been placed")[2]
