"""What if, on fleets small enough to be worked out by hand. Each history was made by the stages
themselves, without any delay, so that the closed loop has to give it again exactly: its drift is
nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio
from tests.fleets import a_fleet as a_fleet_with_faults
from tests.told_plane import SECOND, ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.node import Pod
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.cluster_state import PodsObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import ScheduleDecided
from wharfinger.events.envelope import Event
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.streams import INTAKE
from wharfinger.history.changes import Changes, ProfileChanges
from wharfinger.history.checkpoint import new_key, read, signed
from wharfinger.history.compare import judged, threshold_of
from wharfinger.history.points import HistoryPoint, PointError
from wharfinger.history.prices import PriceList
from wharfinger.history.propose import Proposed, propose
from wharfinger.history.retention import retire_before
from wharfinger.history.verification import take_checkpoint
from wharfinger.history.whatif import WhatIf, what_if
from wharfinger.runtime.ledger import Ledger, LedgerError
from wharfinger.stages.cluster import ClusterDecider, ClusterProfile

pytestmark = pytest.mark.integration

DYNAMIC = ReplicaScheduling("Divided", "Weighted", dynamic=True)
BOTH = a_policy("where", Placement(replicas=DYNAMIC))
EAST_ONLY = a_policy(
    "where", Placement((ClusterAffinity(cluster_names=("east",)),), replicas=DYNAMIC)
)


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    opened = await ToldPlane.opened(database_url)
    yield opened
    await opened.ledger.close()


async def a_fleet(plane: ToldPlane, policy: PolicyApplied) -> None:
    """Two clusters of 8 cores; 4, 4 and 2 replicas of one core each come, ten seconds apart."""
    for name in ("east", "west"):
        await plane.tell(a_cluster(name), *nodes(name, f"{name}-1", f"{name}-2"))
    await plane.tell(policy)
    for name, replicas in (("web", 4), ("db", 4), ("late", 2)):
        await plane.tell(a_binding(name, replicas, policy), after_s=10.0)
    await plane.wait(10.0)


def instead(*policies: PolicyApplied) -> Changes:
    return Changes(tuple(p.policy for p in policies), texts=("policy.yaml",))


def now(plane: ToldPlane) -> HistoryPoint:
    return HistoryPoint("now", at=plane.time.at)


def no_drift(result: WhatIf) -> None:
    assert (result.drifted, result.drifted_nodes) == (0, 0)
    assert {f.name: f.drift for f in result.figures if f.drift} == {}


def values(result: WhatIf, name: str) -> tuple[int | None, int | None, int | None]:
    figure = result.figure(name)
    return figure.recorded, figure.unchanged, figure.changed


def ends(result: WhatIf) -> dict[str, dict[str, int]]:
    return {
        name.removeprefix("shop/").removesuffix("-deployment"): dict(at)
        for name, at in result.placements.items()
    }


async def test_a_policy_that_makes_things_worse_is_seen_to(plane: ToldPlane) -> None:
    """Where all may go everywhere, ten cores are five in each cluster. In the east alone eight fit,
    and the last two wait."""
    await a_fleet(plane, BOTH)
    result = await what_if(plane.ledger, instead(EAST_ONLY), to=now(plane))

    no_drift(result)
    assert result.rebound == 3
    assert ends(result) == {"web": {"east": 4}, "db": {"east": 4}, "late": {}}
    assert values(result, "unplaced") == (0, 0, 2)
    assert values(result, "waiting") == (0, 0, 1)
    assert values(result, "refusals") == (0, 0, 1)
    assert values(result, "moves") == (0, 0, 0)
    # asked for ten seconds before the end, and waits still
    assert values(result, "wait-p99") == (0, 0, 10 * SECOND)
    last = (result.unchanged.samples[-1], result.changed.samples[-1])
    assert [sample.used["east"][0] for sample in last] == [625, 1000]
    assert [sample.used["west"][0] for sample in last] == [625, 0]
    assert [sample.deviation[0] for sample in last] == [0, 500]
    assert [sample.total[0] for sample in last] == [625, 500]
    assert {f.name for f in result.figures if f.verdict == "worse"} >= {
        "unplaced",
        "waiting",
        "refusals",
        "cpu-balance",
    }
    assert result.elsewhere == 3

    (late,) = [d for d in result.differences if d.binding == "shop/late-deployment"]
    assert late.parting is not None
    assert (late.parting.stream, late.parting.left) == ("fleet/0", "scheduled: east 1, west 1")
    assert late.parting.right.startswith("refused: ")
    assert late.parting.step == "policy"
    assert (late.parting.left_step, late.parting.right_step) == (
        "divided by room",
        "divided by room on east",
    )

    judgement = judged(threshold_of("unplaced>0"), result.figures)
    assert (judgement.failed, judgement.beyond) == (True, True)


async def test_of_a_policy_that_makes_things_worse_nothing_is_proposed(plane: ToldPlane) -> None:
    await a_fleet(plane, BOTH)
    before = await plane.ledger.heads()
    result = await what_if(plane.ledger, instead(EAST_ONLY))
    proposed = await propose(plane.ledger, result, "spread", only_better=True, timeout_s=0)
    assert (proposed.answers, proposed.candidates) == ((), 0)
    assert (
        proposed.why_none
        == "none of 2 bindings that the replay left elsewhere is better off there by spread"
    )
    assert await plane.ledger.heads() == before


async def test_what_was_better_is_proposed_once_and_committed(plane: ToldPlane) -> None:
    """History packed the east full; under the other policy it would have been even. Asked twice, it
    is proposed once."""
    await a_fleet(plane, EAST_ONLY)
    await plane.tell(
        BOTH, *(a_binding(name, 4, BOTH) for name in ("web", "db")), a_binding("late", 2, BOTH)
    )
    result = await what_if(plane.ledger, instead(a_policy("where", Placement(replicas=DYNAMIC))))
    assert ends(result)["web"] == {"east": 2, "west": 2}

    first = await propose(plane.ledger, result, "spread", only_better=True, budget=1, timeout_s=0)
    assert [(a.outcome, (a.gain or 0) > 0) for a in first.answers] == [("unanswered", True)]
    await answered(plane)
    again_asked = await what_if(
        plane.ledger, instead(a_policy("where", Placement(replicas=DYNAMIC)))
    )
    assert again_asked.id == result.id
    again = await propose(
        plane.ledger, again_asked, "spread", only_better=True, budget=1, timeout_s=0
    )

    assert (again.replay, again.before) == (first.replay, 1)
    (answer,) = again.answers
    assert (answer.id, answer.outcome) == (first.answers[0].id, "committed")
    assert await intake_proposals(plane.ledger) == 1
    row = next(row for row in await plane.ledger.current(answer.binding, "fleet/0"))
    assert row.cause == first.replay
    decided = row.data()
    assert isinstance(decided, ScheduleDecided)
    assert {t.cluster: t.replicas for t in decided.targets} == dict(answer.targets)


async def test_a_budget_counts_over_calls(plane: ToldPlane) -> None:
    await a_fleet(plane, EAST_ONLY)
    await plane.tell(BOTH, *(a_binding(name, 4, BOTH) for name in ("web", "db")))
    result = await what_if(plane.ledger, instead(a_policy("where", Placement(replicas=DYNAMIC))))

    async def asked(budget: int) -> Proposed:
        return await propose(plane.ledger, result, "spread", budget=budget, timeout_s=0)

    assert len((await asked(1)).answers) == 1
    assert len((await asked(1)).answers) == 1
    assert await intake_proposals(plane.ledger) == 1
    assert len((await asked(2)).answers) == 2
    assert await intake_proposals(plane.ledger) == 2


async def test_what_is_no_better_any_more_is_refused_by_the_stage(plane: ToldPlane) -> None:
    """The west is closed between replay and answer."""
    await a_fleet(plane, EAST_ONLY)
    await plane.tell(BOTH, *(a_binding(name, 4, BOTH) for name in ("web", "db")))
    result = await what_if(plane.ledger, instead(a_policy("where", Placement(replicas=DYNAMIC))))
    await propose(plane.ledger, result, "spread", only_better=True, timeout_s=0)
    west = a_cluster("west").cluster
    await plane.tell(ClusterObserved(type(west)("west", taints=(Taint("closed", "NoSchedule"),))))
    await answered(plane)
    again = await propose(plane.ledger, result, "spread", only_better=True, timeout_s=0)
    assert {a.outcome for a in again.answers} == {"refused"}
    assert all(a.reason.startswith("ClusterInfeasible: west") for a in again.answers)


async def test_the_same_history_without_change_is_the_same(plane: ToldPlane) -> None:
    """Silence, failover, recovery, a drained cluster and a withdrawal are consequences: they come
    again by themselves."""
    await a_fleet(plane, BOTH)
    await plane.tell(a_cluster("north", lease_s=60), *nodes("north", "north-1"))
    await plane.tell(a_cluster("east", lease_s=30), after_s=5.0)
    await plane.wait(45.0)  # the east falls silent, its bindings fail over
    await plane.tell(a_cluster("east", lease_s=600), a_cluster("north", lease_s=600))
    drained = ClusterObserved(
        type(west := a_cluster("west").cluster)(west.name, taints=(Taint("gone", "NoExecute"),))
    )
    await plane.tell(drained, after_s=5.0)
    await plane.tell(BindingWithdrawn("shop/db-deployment"), after_s=20.0)
    await plane.wait(60.0)

    result = await what_if(plane.ledger, Changes(texts=("nothing",)))
    no_drift(result)
    assert result.differences == ()
    assert (result.figure("moves").recorded or 0) > 0
    assert values(result, "decisions")[0] == sum(
        h.seq for h in await plane.ledger.heads() if h.stream != INTAKE
    )


async def test_from_a_moment_on_standing_bindings_are_asked_for_again(plane: ToldPlane) -> None:
    await a_fleet(plane, BOTH)
    before_late = HistoryPoint("then", at=plane.time.at - 15 * SECOND)
    result = await what_if(plane.ledger, instead(EAST_ONLY), before_late)
    no_drift(result)
    assert result.rebound == 3  # two that stood, one that came
    assert ends(result) == {"web": {"east": 4}, "db": {"east": 4}, "late": {}}
    assert values(result, "moves") == (0, 0, 4)  # two replicas each of web and db leave the west


async def test_a_later_change_of_the_same_policy_does_not_count(plane: ToldPlane) -> None:
    await a_fleet(plane, BOTH)
    await plane.tell(PolicyRemoved("PropagationPolicy", "where", "shop"), a_binding("web", 6, BOTH))
    result = await what_if(plane.ledger, instead(EAST_ONLY))
    assert ends(result)["web"].keys() <= {"east"}


async def test_fuller_nodes_are_fewer_nodes(plane: ToldPlane) -> None:
    """A setting instead of a policy: two replicas of one core on two nodes of four, or on one."""
    await plane.tell(a_cluster("east"), *nodes("east", "east-1", "east-2"))
    await plane.tell(a_binding("web", 2, BOTH), after_s=10.0)
    await plane.wait(3600.0)
    prices = PriceList({"": 500_000}, "EUR")
    result = await what_if(
        plane.ledger,
        Changes(settings=ProfileChanges(strategy="most-allocated")),
        to=now(plane),
        prices=prices,
    )
    no_drift(result)
    node_us, cost = values(result, "node-hours"), values(result, "cost")
    assert (node_us[0], node_us[1], node_us[2]) == (
        2 * 3600 * SECOND,
        2 * 3600 * SECOND,
        3600 * SECOND,
    )
    assert cost == (1_000_000, 1_000_000, 500_000)
    assert result.figure("cost").shown(cost[2]) == "0.5000 EUR"
    assert (result.elsewhere, [d.same_nodes for d in result.differences]) == (0, [False])


async def test_settings_that_changed_on_the_way_change_in_the_closed_loops(
    plane: ToldPlane,
) -> None:
    """Web is spread over the nodes; then the stage is started with another strategy, and db's
    replicas are put on one."""
    policy = a_policy("where", Placement(replicas=DYNAMIC))
    await plane.tell(a_cluster("east"), *nodes("east", "east-1", "east-2"))
    await plane.tell(policy, a_binding("web", 2, policy))
    plane.world.redecide("cluster/east", ClusterDecider(ClusterProfile("most-allocated")))
    await plane.tell(a_binding("db", 2, policy), after_s=10.0)
    await plane.wait(10.0)
    result = await what_if(plane.ledger, Changes(texts=("nothing",)), to=now(plane))
    no_drift(result)
    assert result.differences == ()
    assert any("cluster/east" in note for note in result.notes)
    otherwise = Changes((), ProfileChanges(strategy="least-allocated"), ("strategy",))
    spread = await what_if(plane.ledger, otherwise, to=now(plane))
    assert [d.binding for d in spread.differences] == ["shop/db-deployment"]


async def test_only_foreign_pods_are_given(plane: ToldPlane) -> None:
    """Foreign pods take the room of a node; our own pods are where the replay puts them."""
    await plane.tell(
        a_cluster("east"), *nodes("east", "east-1"), a_cluster("west"), *nodes("west", "west-1")
    )
    await plane.tell(a_binding("web", 2, BOTH))
    foreign = Pod("f", "f", Requirements({"cpu": 3000}), "east-1")
    ours = Pod("o", "o", Requirements({"cpu": 1000}), "east-1", "shop/web-deployment", 0)
    await plane.tell(PodsObserved("east", "east-1", (foreign, ours)))
    west_only = a_policy(
        "where", Placement((ClusterAffinity(cluster_names=("west",)),), replicas=DYNAMIC)
    )
    result = await what_if(plane.ledger, instead(west_only))
    no_drift(result)
    last = result.changed.samples[-1]
    assert (last.used["east"][0], last.used["west"][0]) == (750, 500)


async def test_where_old_history_was_retired_it_begins_with_what_is_left(plane: ToldPlane) -> None:
    """What was told in the retired part still stands: clusters, nodes, policy, and the bindings
    that are asked for again."""
    await a_fleet(plane, BOTH)
    await plane.tell(a_binding("new", 2, BOTH), after_s=90 * 86_400.0)
    key = new_key()
    _, checkpoint = await take_checkpoint(plane.ledger, plane.time.at)
    assert checkpoint is not None
    body = signed(checkpoint, key)
    half = plane.time.at - 45 * 86_400 * SECOND
    done = await retire_before(
        plane.ledger, half, read("checkpoint.json", body), body, plane.time.at
    )
    assert done.done is not None

    result = await what_if(plane.ledger, instead(EAST_ONLY), to=now(plane))
    no_drift(result)
    assert (result.facts, result.rebound) == (1, 4)
    # The east has room for three more: two of db, one of late. Then web stays where it is, and new
    # finds nothing.
    assert ends(result) == {
        "db": {"east": 4},
        "late": {"east": 2},
        "web": {"east": 2, "west": 2},
        "new": {},
    }
    assert values(result, "cpu-used") == (625, 625, 625)


async def test_asking_writes_nothing_and_bad_questions_are_one_line(plane: ToldPlane) -> None:
    with pytest.raises(LedgerError, match="nothing has been decided yet"):
        await what_if(plane.ledger, Changes())
    await a_fleet(plane, BOTH)
    before = await plane.ledger.heads()
    await what_if(plane.ledger, instead(EAST_ONLY))
    assert await plane.ledger.heads() == before
    with pytest.raises(LedgerError, match="no stream of decisions is named fleet/7"):
        await what_if(plane.ledger, Changes(), stream="fleet/7")
    with pytest.raises(PointError, match="expected --from to be before --to"):
        await what_if(plane.ledger, Changes(), HistoryPoint("now"))


async def answered(plane: ToldPlane) -> None:
    """What lies in the intake and was not told yet is told, as the publisher would."""
    events: list[Event[Value]] = []
    async for recorded in plane.ledger.recorded_rounds(INTAKE):
        events += recorded.events
    plane.time.at += SECOND
    await plane._written(plane.world.tell(events, plane.time.at))


async def intake_proposals(ledger: Ledger) -> int:
    found = 0
    async for recorded in ledger.recorded_rounds(INTAKE):
        found += sum(1 for event in recorded.events if event.source == "/wharfinger/replay")
    return found


def test_a_policy_is_found_by_its_key() -> None:
    assert instead(EAST_ONLY).keys == {Policy("PropagationPolicy", "where", "shop").key}


@pytest.mark.parametrize("seed", [2, 5, 11])
async def test_of_any_history_with_faults_the_books_add_up(database_url: str, seed: int) -> None:
    """Clusters that leave and join, fall silent and come back, restarts under other settings: with
    nothing changed the two loops are one, no share is below nothing, and another start in the
    middle goes the same way for both."""
    fleet = a_fleet_with_faults(0, Random(seed))
    ledger = await Ledger.open(database_url, "tests")
    try:
        await ledger.ensure_streams(fleet.by_stream())
        events = {event.id: event for recorded in fleet.rounds for event in recorded.events}
        await ledger.commit([recorded.round for recorded in fleet.rounds], events)
        whole = await what_if(ledger, Changes())
        later = await what_if(
            ledger, Changes(), HistoryPoint("the middle", at=(whole.begin + whole.end) // 2)
        )
        packed = await what_if(ledger, Changes(settings=ProfileChanges(strategy="most-allocated")))
    finally:
        await ledger.close()
    assert whole.differences == later.differences == ()
    for run in (whole.recorded, whole.unchanged, later.recorded, later.unchanged, packed.changed):
        assert run.totals.node_us >= 0
        assert run.totals.unplaced >= 0
        assert all(
            share is None or share >= 0
            for s in run.samples
            for shares in s.used.values()
            for share in shares
        )
        assert all(share >= 0 for s in run.samples for share in s.shares.values())
        assert run.samples[-1].nodes >= 0
