"""Going back: to where a binding was, to what a policy said. Planned first, whole or not at all,
and once however often it is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest
import pytest_asyncio
from tests.scenarios.fleet_plane import AGGREGATED, DUPLICATED, DYNAMIC
from tests.told_plane import ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.decisions import ScheduleDecided
from wharfinger.events.origin import Origin
from wharfinger.events.plans import PlanRequested
from wharfinger.events.policies import PolicyRemoved
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.history.deciders import DECIDERS
from wharfinger.history.lineage import lineage_of_binding
from wharfinger.history.names import UnknownNameError
from wharfinger.history.plan import Applied, PlanRefusal
from wharfinger.history.plane_at import plane_at, policies_at
from wharfinger.history.rollback import RollBack, RollBackError, apply_rollback, plan_rollback
from wharfinger.history.states import PRESENT
from wharfinger.runtime.ledger import (
    AcceptResult,
    DecisionQuery,
    Ledger,
    LedgerError,
    LedgerRow,
    Submission,
)
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.replay import replay
from wharfinger_cli.output import as_time

pytestmark = pytest.mark.integration

BY_ROOM = a_policy("by-room", Placement(replicas=DYNAMIC))
NOT_OSLO = a_policy("by-room", Placement((ClusterAffinity(exclude=("oslo",)),), replicas=DYNAMIC))
NOT_BERGEN = a_policy(
    "by-room", Placement((ClusterAffinity(exclude=("bergen",)),), replicas=DYNAMIC)
)
FEW = a_policy("by-room", Placement(replicas=AGGREGATED))
EVERYWHERE = a_policy("everywhere", Placement(replicas=DUPLICATED))
WEB = "shop/web-deployment"
TABLES = ("round", "input", "event", "decision", "fact", "plan", "stream")


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    """Two clusters with room for eight each, and `web` with six replicas by room."""
    opened = await ToldPlane.opened(database_url)
    await opened.tell(
        a_cluster("oslo"),
        a_cluster("bergen"),
        *nodes("oslo", "o1", "o2"),
        *nodes("bergen", "b1", "b2"),
    )
    await opened.tell(BY_ROOM, a_binding("web", 6, BY_ROOM))
    yield opened
    await opened.ledger.close()


def held(plane: ToldPlane, name: str = WEB) -> dict[str, int]:
    (fleet,) = plane.world.fleet_states()
    return dict(fleet.bindings[name].targets)


async def latest(plane: ToldPlane, name: str = WEB) -> LedgerRow:
    every = [r async for r in plane.ledger.decisions(DecisionQuery("fleet/0", subject=name))]
    return next(r for r in reversed(every) if isinstance(r.data(), ScheduleDecided))


async def back(
    plane: ToldPlane, to: str, what: str = "web"
) -> tuple[RollBack, Applied | PlanRefusal]:
    found = await plan_rollback(plane.ledger, what, to, plane.time.at)
    async with plane.live():
        return found, await apply_rollback(plane.ledger, found, 10, plane.time.at)


async def counted(ledger: Ledger) -> dict[str, int]:
    async with ledger.database.reading() as raw:
        return {
            table: int((await raw.fetch(f"select count(*) from {table}"))[0][0]) for table in TABLES
        }


# --- a binding


async def test_a_binding_goes_back_to_what_it_asked_for_and_to_where_it_was(
    plane: ToldPlane,
) -> None:
    then, was = await latest(plane), held(plane)
    await plane.tell(FEW, a_binding("web", 9, FEW), after_s=60)
    assert held(plane) != was
    found, answer = await back(plane, str(then.id))
    assert isinstance(answer, Applied)
    assert held(plane) == was
    assert (set(found.fields), dict(found.targets)) == ({"replicas", "placement"}, was)
    picture = await plane_at(plane.ledger, PRESENT)
    assert picture.bindings[WEB].spec.replicas == 6
    assert picture.bindings[WEB].placed == 6
    # What the rest of the plane is told agrees with what was committed.
    (fact,) = [f async for f in plane.ledger.facts("wharfinger.bindings")]
    assert event_of(fact).data == BindingRequested(picture.bindings[WEB].spec)


async def test_a_binding_that_was_only_moved_is_moved_back(plane: ToldPlane) -> None:
    """Nothing of its request has changed: it lies elsewhere because a cluster was full, and the
    cluster has room again."""
    was = held(plane)
    number = plane.world.streams["fleet/0"].head.round
    await plane.propose(
        "fleet/0",
        RescheduleProposed(
            "fleet/0", WEB, "move", (TargetCluster("bergen", 5), TargetCluster("oslo", 1))
        ),
    )
    assert held(plane) != was
    before = len(await intake(plane, BindingRequested))
    found, answer = await back(plane, f"fleet/0:{number}")
    assert isinstance(answer, Applied)
    assert found.fields == ()
    assert held(plane) == was
    assert len(await intake(plane, BindingRequested)) == before  # no request was needed


async def test_planning_writes_nothing(plane: ToldPlane) -> None:
    then = await latest(plane)
    await plane.tell(a_binding("web", 9, BY_ROOM), after_s=60)
    before = await counted(plane.ledger)
    found = await plan_rollback(plane.ledger, "web", str(then.id), plane.time.at)
    assert found.changes
    assert [m.binding for m in found.plan.moves] == [WEB]
    assert await counted(plane.ledger) == before


async def test_a_roll_back_can_be_rolled_back_and_that_again(plane: ToldPlane) -> None:
    first, small = await latest(plane), held(plane)
    await plane.tell(a_binding("web", 12, BY_ROOM), after_s=60)
    second, large = await latest(plane), held(plane)
    plans: set[UUID] = set()
    for row, expected in ((first, small), (second, large), (first, small), (second, large)):
        found, answer = await back(plane, str(row.id))
        assert isinstance(answer, Applied), answer
        assert held(plane) == expected
        plans.add(found.plan.id)
        plane.time.at += 1_000_000
    assert len(plans) == 4
    result = await replay(plane.ledger, DECIDERS)
    assert result.divergences == ()


async def test_asked_again_it_changes_nothing(plane: ToldPlane) -> None:
    then = await latest(plane)
    await plane.tell(a_binding("web", 9, BY_ROOM), after_s=60)
    await back(plane, str(then.id))
    before = await counted(plane.ledger)
    again = await plan_rollback(plane.ledger, "web", str(then.id), plane.time.at)
    assert not again.changes
    assert await counted(plane.ledger) == before
    one, two = [
        await plan_rollback(plane.ledger, "web", str((await latest(plane)).id), plane.time.at)
        for _ in range(2)
    ]
    assert one.plan.id == two.plan.id


@pytest.mark.parametrize("step", [0, 1, 2])
async def test_interrupted_anywhere_it_is_finished_by_asking_again(
    plane: ToldPlane, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the request is durable, after it, and after the commit but before the plane is
    told."""
    then, was = await latest(plane), held(plane)
    await plane.tell(a_binding("web", 9, BY_ROOM), after_s=60)
    decided = len([r async for r in plane.ledger.decisions(DecisionQuery("fleet/0", subject=WEB))])
    accept, calls = Ledger.accept, 0

    async def broken(
        self: Ledger, submissions: Sequence[Submission], origin: Origin | None = None
    ) -> AcceptResult:
        nonlocal calls
        calls += 1
        if calls == step:
            await accept(self, submissions, origin)
        if calls >= max(1, step):
            raise KilledError
        return await accept(self, submissions, origin)

    found = await plan_rollback(plane.ledger, "web", str(then.id), plane.time.at)
    monkeypatch.setattr(Ledger, "accept", broken)
    async with plane.live():
        with pytest.raises(KilledError):
            await apply_rollback(plane.ledger, found, 10, plane.time.at)
    monkeypatch.setattr(Ledger, "accept", accept)
    again = await plan_rollback(plane.ledger, "web", str(then.id), plane.time.at)
    async with plane.live():
        if again.changes:
            assert isinstance(await apply_rollback(plane.ledger, again, 10, plane.time.at), Applied)
    assert held(plane) == was
    rows = [r async for r in plane.ledger.decisions(DecisionQuery("fleet/0", subject=WEB))]
    assert len(rows) == decided + 1
    assert len(await intake(plane, PlanRequested)) == 1
    # two of the user's, one of the roll back
    assert len(await intake(plane, BindingRequested)) == 3
    assert not (await plan_rollback(plane.ledger, "web", str(then.id), plane.time.at)).changes


class KilledError(Exception):
    pass


async def test_what_changed_after_the_plan_is_not_undone_unseen(plane: ToldPlane) -> None:
    then = await latest(plane)
    await plane.tell(a_binding("web", 9, BY_ROOM), after_s=60)
    found = await plan_rollback(plane.ledger, "web", str(then.id), plane.time.at)
    await plane.tell(a_binding("web", 10, BY_ROOM))
    now = held(plane)
    async with plane.live():
        answer = await apply_rollback(plane.ledger, found, 10, plane.time.at)
    assert isinstance(answer, PlanRefusal)
    (refusal,) = answer.refusals.values()
    assert f"binding/{WEB}" in refusal.changed
    assert held(plane) == now
    # A plan that was refused does not stand in the way of the next one.
    _, second = await back(plane, str(then.id))
    assert isinstance(second, Applied)


@pytest.mark.parametrize(
    ("gone", "said"), [("forgotten", "oslo is gone"), ("leaving", "oslo is leaving")]
)
async def test_it_is_refused_where_its_old_place_is_no_more(
    plane: ToldPlane, gone: str, said: str
) -> None:
    then = await latest(plane)
    assert held(plane)["oslo"]
    await plane.tell(NOT_OSLO, a_binding("web", 6, NOT_OSLO), after_s=60)
    await plane.tell(
        ClusterForgotten("oslo") if gone == "forgotten" else a_cluster("oslo", deleting=True)
    )
    before = await counted(plane.ledger)
    with pytest.raises(RollBackError, match=f"{WEB} cannot go back to where it was: {said}"):
        await plan_rollback(plane.ledger, "web", str(then.id), plane.time.at)
    assert await counted(plane.ledger) == before


async def test_it_is_refused_where_somebody_else_has_its_room(plane: ToldPlane) -> None:
    then, was = await latest(plane), held(plane)
    await plane.tell(a_binding("web", 1, BY_ROOM), after_s=60)
    await plane.tell(a_binding("big", 14, BY_ROOM))
    with pytest.raises(RollBackError, match=f"{WEB} cannot go back: .*NoRoom"):
        await plan_rollback(plane.ledger, "web", str(then.id), plane.time.at)
    assert sum(held(plane).values()) == 1
    await plane.tell(BindingWithdrawn("shop/big-deployment"))
    _, answer = await back(plane, str(then.id))
    assert isinstance(answer, Applied)
    assert held(plane) == was


async def test_a_binding_without_a_choice_goes_back_by_its_request_alone(plane: ToldPlane) -> None:
    await plane.tell(EVERYWHERE, a_binding("lamp", 1, EVERYWHERE))
    then = await latest(plane, "shop/lamp-deployment")
    await plane.tell(a_binding("lamp", 2, EVERYWHERE), after_s=60)
    found, answer = await back(plane, str(then.id), "lamp")
    assert isinstance(answer, Applied)
    assert dict(found.targets) == {}
    assert held(plane, "shop/lamp-deployment") == {"oslo": 1, "bergen": 1}


async def test_where_it_had_no_whole_place_it_is_placed_anew(plane: ToldPlane) -> None:
    await plane.tell(a_binding("big", 40, BY_ROOM))
    number = plane.world.streams["fleet/0"].head.round
    await plane.tell(a_binding("big", 4, BY_ROOM), after_s=60)
    found = await plan_rollback(plane.ledger, "big", f"fleet/0:{number}", plane.time.at)
    assert found.notes == ("it held 0 of 40 replicas then: where they go is decided again",)
    assert [r.binding for r in found.plan.refusals] == ["shop/big-deployment"]


async def test_a_withdrawn_binding_is_asked_for_again_and_then_goes_to_where_it_was(
    plane: ToldPlane,
) -> None:
    then, was = await latest(plane), held(plane)
    await plane.tell(BindingWithdrawn(WEB), after_s=60)
    await plane.tell(a_binding("api", 5, BY_ROOM))  # by room it would now go elsewhere
    found, _ = await back(plane, str(then.id))
    assert "it was withdrawn since" in found.notes[0]
    assert sum(held(plane).values()) == 6
    await back(plane, str(then.id))
    assert held(plane) == was


@pytest.mark.parametrize(
    ("to", "error", "said"),
    [
        (str(UUID(int=7)), UnknownNameError, "no decision has the id 00000000-"),
        ("1h", RollBackError, "was not asked for then; `wharfinger delete` withdraws it"),
        ("fleet/0:99", LedgerError, "there is no round 99"),
        ("long ago", LedgerError, "expected a round such as"),
    ],
)
async def test_a_place_in_history_that_is_none_is_one_line(
    plane: ToldPlane, to: str, error: type[LedgerError], said: str
) -> None:
    with pytest.raises(error, match=said):
        await plan_rollback(plane.ledger, "web", to, plane.time.at)


async def test_a_decision_about_another_binding_is_refused(plane: ToldPlane) -> None:
    await plane.tell(a_binding("api", 1, BY_ROOM))
    other = await latest(plane, "shop/api-deployment")
    with pytest.raises(
        RollBackError, match="is about shop/api-deployment, not about shop/web-deployment"
    ):
        await plan_rollback(plane.ledger, "web", str(other.id), plane.time.at)
    with pytest.raises(UnknownNameError, match="no binding and no policy is named nobody"):
        await plan_rollback(plane.ledger, "nobody", "now", plane.time.at)


async def test_who_rolled_back_is_found_by_lineage(plane: ToldPlane) -> None:
    then = await latest(plane)
    await plane.tell(a_binding("web", 9, BY_ROOM), after_s=60)
    await back(plane, str(then.id))
    decided = await latest(plane)
    lineage = await lineage_of_binding(plane.ledger, "web")
    root = next(r for r in lineage.roots if decided.id in {link.id for link in r.walk()})
    assert root.event is not None
    assert isinstance(root.event.data, PlanRequested)
    assert [s.reschedule.reason for s in root.event.data.steps if s.reschedule] == [
        f"roll back to fleet/0 {then.seq}"
    ]


# --- a policy


async def test_a_policy_goes_back_with_its_bindings(plane: ToldPlane) -> None:
    await plane.tell(NOT_BERGEN, a_binding("web", 6, NOT_BERGEN), after_s=60)
    then = plane.time.at
    assert held(plane) == {"oslo": 6}
    await plane.tell(NOT_OSLO, a_binding("web", 6, NOT_OSLO), after_s=60)
    assert held(plane) == {"bergen": 6}
    plane.time.at += 1_000_000
    planned = await plan_rollback(plane.ledger, "by-room", as_time(then), plane.time.at)
    assert [(m.binding, m.after) for m in planned.plan.moves] == [(WEB, {"oslo": 6})]
    found, answer = await back(plane, as_time(then), "by-room")
    assert isinstance(answer, Applied)
    assert (found.subject, found.notes) == (
        BY_ROOM.policy.key,
        ("1 binding requested again under it",),
    )
    assert await policies_at(plane.ledger, PRESENT) == {BY_ROOM.policy.key: NOT_BERGEN.policy}
    assert held(plane) == {"oslo": 6}
    before = await counted(plane.ledger)
    assert not (await plan_rollback(plane.ledger, "by-room", as_time(then), plane.time.at)).changes
    assert await counted(plane.ledger) == before
    plane.time.at += 1_000_000
    await back(plane, "1s", "by-room")  # nothing: it is what was just done
    assert held(plane) == {"oslo": 6}
    _, forth = await back(plane, as_time(then + 60_000_000), "by-room")
    assert isinstance(forth, Applied)
    assert held(plane) == {"bergen": 6}


async def test_a_removed_policy_is_applied_again(plane: ToldPlane) -> None:
    then = plane.time.at
    await plane.tell(PolicyRemoved("PropagationPolicy", "by-room", "shop"), after_s=60)
    found, answer = await back(plane, as_time(then), BY_ROOM.policy.key)
    assert isinstance(answer, Applied)
    assert "was removed since" in found.notes[0]
    assert await policies_at(plane.ledger, PRESENT) == {BY_ROOM.policy.key: BY_ROOM.policy}
    early = as_time(then - 500_000)  # between the clusters and the policy
    with pytest.raises(RollBackError, match="was not there then"):
        await plan_rollback(plane.ledger, "by-room", early, plane.time.at)


async def intake(plane: ToldPlane, kind: type) -> list[object]:
    """What was accepted of one kind."""
    found: list[object] = []
    async for recorded in plane.ledger.recorded_rounds("intake"):
        found += [event.data for event in recorded.events if isinstance(event.data, kind)]
    return found
