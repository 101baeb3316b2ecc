"""Plans in two steps over HTTP: made beside the plane, then carried out as they were seen, or
refused with the difference."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

import psutil
import pytest
import pytest_asyncio
from tests.api import ApiUnderTest, Client, in_a_thread, serving
from tests.integration.test_api import printed
from tests.integration.test_plan import at_work, heads, written
from tests.patience import eventually
from tests.plan_world import Plane, a_plane

from wharfinger.answers import plans as answers
from wharfinger.domain.cluster import Cluster
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.streams import INTAKE
from wharfinger.history import plan as plans
from wharfinger.history import plan_making
from wharfinger.runtime.ledger import Ledger, operations
from wharfinger.runtime.ledger.bodies import unpack
from wharfinger_api import planning
from wharfinger_api.planner_processes import PlannerProcesses

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def plane(ledger: Ledger) -> Plane:
    plane = a_plane(Random(5))
    await written(ledger, plane.rounds)
    return plane


@pytest_asyncio.fixture
async def api(database_url: str, plane: Plane) -> AsyncIterator[ApiUnderTest]:
    async with serving(database_url) as found:
        yield found


def fullest(plane: Plane) -> str:
    return max(plane.fleet.by_cluster, key=lambda name: (len(plane.fleet.by_cluster[name]), name))


async def made(client: Client, plane: Plane) -> dict[str, object]:
    """The plan, however long a loaded machine takes for it."""
    answer = await client.send(
        "POST", "/v1/plans?wait=30", {"kind": "drain", "what": fullest(plane)}
    )
    if answer.status_code == 202:
        where = f"{answer.headers['location']}?wait=30"
        under_way = (await client.get(where)).json()
        while under_way["state"] == "running":
            under_way = (await client.get(where)).json()
        assert under_way["state"] == "succeeded", under_way
        answer = await client.get(f"/v1/plans/{under_way['plan']}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["etag"] == f'"sha256:{answer.json()["digest"]}"'
    found: dict[str, object] = answer.json()
    return found


async def test_a_plan_is_made_seen_and_carried_out_as_it_was_seen(
    api: ApiUnderTest, ledger: Ledger, plane: Plane
) -> None:
    viewer, operator = await api.as_("viewer"), await api.as_("operator", name="ada")
    before = await heads(ledger)
    plan = await made(viewer, plane)
    assert plan["moves"]
    assert plan["made_by"] == "token:someone"
    assert await heads(ledger) == before, "making a plan tells nobody"
    same = await plan_making.drain(ledger, fullest(plane))
    shown = answers.plan_plain(same)
    for name in ("moves", "refusals", "before", "after", "streams"):
        assert plan[name] == _as_json(shown[name]), "the command shows the same"
    path = f"/v1/plans/{plan['id']}"
    seen = await viewer.get(path)
    etag = seen.headers["etag"]
    assert seen.json()["digest"] == plan["digest"]
    assert (await viewer.send("POST", f"{path}/apply", {}, **{"If-Match": etag})).status_code == 403
    unseen = await operator.send("POST", f"{path}/apply", {})
    assert unseen.status_code == 428
    other = await operator.send("POST", f"{path}/apply", {}, **{"If-Match": '"sha256:00"'})
    assert other.status_code == 412
    assert (other.json()["expected"], other.json()["found"]) == ('"sha256:00"', etag)
    assert await heads(ledger) == before
    key = {"If-Match": etag, "Idempotency-Key": "once"}
    async with at_work(ledger, plane):
        done = await asyncio.gather(
            *(
                operator.send("POST", f"{path}/apply?wait=30", {"reason": "sold"}, **key)
                for _ in range(5)
            )
        )
        assert {answer.status_code for answer in done} == {200}, done[0].text
        assert {answer.content for answer in done} == {done[0].content}
        again = await operator.send("POST", f"{path}/apply?wait=30", {}, **{"If-Match": etag})
    assert done[0].json()["committed"].keys() == {"fleet/0"}
    assert not done[0].json()["again"]
    assert again.json()["again"]
    told = [event async for r in ledger.recorded_rounds(INTAKE) for event in r.events]
    assert len(told) == 2, "the request and the fact, once"
    async with ledger.database.reading() as raw:
        rows = await raw.fetch("select encoding, body from event where id = $1", told[0].id)
    assert b"token:ada" in unpack(*rows[0])


def _as_json(value: object) -> object:
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(value))


async def test_the_next_planner_waits_while_plans_are_asked_for(
    api: ApiUnderTest, plane: Plane
) -> None:
    viewer = await api.as_("viewer")
    planners = api.api.operations.planners
    assert planners.ready is None, "an API that is not asked for plans has no planner"
    await made(viewer, plane)
    await eventually(_is_ready(planners))
    first = planners.ready
    assert first is not None
    await made(viewer, plane)
    await eventually(_is_ready(planners, first))
    second = planners.ready
    assert second is not None
    assert not psutil.pid_exists(first)
    os.kill(second, signal.SIGKILL)
    await made(viewer, plane)
    await eventually(_is_ready(planners, second))
    third = planners.ready
    assert third is not None
    os.kill(third, signal.SIGSTOP)
    making = asyncio.create_task(made(viewer, plane))
    await eventually(lambda: planners.ready is None)
    os.kill(third, signal.SIGKILL)  # it ends with the request, and before it has begun
    await making
    await eventually(_is_ready(planners, third))
    last = planners.ready
    assert last is not None
    await planners.stop()
    assert planners.ready is None
    assert not psutil.pid_exists(last)


def _is_ready(planners: PlannerProcesses, but: int = 0) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        return planners.ready not in (None, but)

    return ready


async def test_a_planner_that_is_not_needed_ends(api: ApiUnderTest, plane: Plane) -> None:
    viewer = await api.as_("viewer")
    planners = api.api.operations.planners = PlannerProcesses(ready_s=0.05)
    await made(viewer, plane)

    async def ended() -> bool:
        return planners.ready is None

    await eventually(ended)
    await made(viewer, plane)


async def test_a_plan_is_refused_with_the_difference_when_the_fleet_has_changed(
    api: ApiUnderTest, ledger: Ledger, plane: Plane
) -> None:
    operator = await api.as_("operator")
    plan = await made(operator, plane)
    facts = plane.fleet.clusters[fullest(plane)].facts
    assert facts is not None
    name = facts.name
    await written(ledger, plane.tell(ClusterObserved(Cluster(name, {"tier": "gold"}))))
    async with at_work(ledger, plane):
        answer = await operator.send(
            "POST",
            f"/v1/plans/{plan['id']}/apply?wait=30",
            {},
            **{"If-Match": f'"sha256:{plan["digest"]}"'},
        )
    assert answer.status_code == 409
    problem = answer.json()
    assert problem["type"] == "/problems/plan-out-of-date"
    (difference,) = problem["differences"]
    assert difference["stream"] == "fleet/0"
    assert difference["changed"] == [f"cluster/{name} facts"]
    assert problem["committed"] == []
    listed = (await operator.get("/v1/operations")).json()["items"]
    assert [(one["kind"], one["state"]) for one in listed] == [
        ("apply", "failed"),
        ("plan", "succeeded"),
    ]
    assert listed[0]["problem"]["differences"] == problem["differences"]


async def test_a_plan_that_cannot_be_made_is_one_line(api: ApiUnderTest) -> None:
    viewer = await api.as_("viewer")
    gone = await viewer.send("POST", "/v1/plans?wait=30", {"kind": "drain", "what": "atlantis"})
    assert (gone.status_code, gone.json()["detail"]) == (
        404,
        "no cluster and no node is called atlantis",
    )
    text = {
        "name": "a.yaml",
        "text": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: 7}\n",
    }
    wrong = await viewer.send(
        "POST", "/v1/plans?wait=30", {"kind": "manifests", "manifests": [text]}
    )
    assert wrong.status_code == 400
    assert wrong.json()["errors"][0]["file"] == "a.yaml"
    assert (await viewer.get(f"/v1/plans/{uuid4()}")).status_code == 404
    assert (await viewer.get(f"/v1/operations/{uuid4()}")).status_code == 404
    bound = await api.as_("operator", namespaces=["shop"])
    for path in ("/v1/operations", f"/v1/plans/{uuid4()}"):
        assert (await bound.get(path)).status_code == 403
    for body in ({"kind": "move"}, {"kind": "scale", "binding": "a"}, {"kind": "manifests"}):
        assert (await viewer.send("POST", "/v1/plans", body)).status_code == 400


async def test_an_expired_plan_is_not_carried_out(
    api: ApiUnderTest, ledger: Ledger, plane: Plane
) -> None:
    operator = await api.as_("operator")
    old = await plan_making.drain(ledger, fullest(plane), at=1_700_000_000_000_000)
    await plans.save(ledger, old)
    answer = await operator.send(
        "POST", f"/v1/plans/{old.id}/apply?wait=30", {}, **{"If-Match": planning.etag_of(old)}
    )
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/plan-expired")
    assert "2023-11-15" in answer.json()["detail"]


async def test_an_operation_is_followed_and_cancelled(
    api: ApiUnderTest, ledger: Ledger, plane: Plane
) -> None:
    """Also by another process, and the one that does it may end."""
    viewer, other = await api.as_("viewer"), await api.as_("viewer", name="other")
    wanted = {"kind": "drain", "what": fullest(plane)}
    await api.api.operations.planners.turn.acquire()  # as if another plan were being made
    try:
        begun = await viewer.send("POST", "/v1/plans?wait=0", wanted)
        assert begun.status_code == 202
        where = begun.headers["location"]
        assert begun.json()["state"] == "running"
        assert (begun.json()["done"], begun.json()["of"]) == (0, 3)
        refused = await other.send("POST", f"{where}/cancel")
        assert refused.status_code == 403
        await operations.cancel(ledger.database, UUID(begun.json()["id"]))  # elsewhere
        ended = (await viewer.get(f"{where}?wait=20")).json()
        assert ended["state"] == "cancelled"
        begun = await viewer.send("POST", "/v1/plans?wait=0", wanted)
        where = begun.headers["location"]
        cancelled = await viewer.send("POST", f"{where}/cancel")
        assert cancelled.json()["state"] == "cancelled"
        begun = await viewer.send("POST", "/v1/plans?wait=0", wanted)
        where = begun.headers["location"]
    finally:
        api.api.operations.planners.turn.release()

    async def planning_now() -> bool:
        # Or it has ended already: its step is recorded each second only.
        found = (await viewer.get(where)).json()
        return found["state"] != "running" or found["step"] in ("reading", "planning", "keeping")

    await eventually(planning_now)
    await api.api.operations.stop()
    lost = (await viewer.get(where)).json()
    assert lost["state"] in ("failed", "succeeded")
    if lost["state"] == "failed":
        assert "has ended" in lost["problem"]["detail"]


async def test_an_operation_whose_process_was_killed_fails(
    api: ApiUnderTest, ledger: Ledger
) -> None:
    viewer = await api.as_("viewer")
    id_ = uuid4()
    await operations.begin(ledger.database, id_, "plan", "token:x", uuid4(), 3)
    assert (await viewer.get(f"/v1/operations/{id_}")).json()["state"] == "running"
    async with ledger.database.transaction() as transaction:
        await transaction.raw.execute("update operation set lease_until_us = 1 where id = $1", id_)
    found = (await viewer.get(f"/v1/operations/{id_}")).json()
    assert found["state"] == "failed"
    assert found["problem"]["type"] == "/problems/lost"


@pytest.mark.long
async def test_a_command_plans_and_applies_over_the_server_as_over_the_database(
    database_url: str, ledger: Ledger, plane: Plane, tmp_path: Path, capsys: Capture
) -> None:
    name = fullest(plane)
    token = tmp_path / "token"
    token.touch(0o600)

    async def command(*arguments: str) -> tuple[int, str, str]:
        environment = {"WHARFINGER_DATABASE": database_url}
        return await asyncio.to_thread(printed, capsys, list(arguments), environment)

    with in_a_thread(database_url, "operator", "viewer") as (server, secret):
        token.write_text(secret)
        over = ("--server", server, "--token-file", str(token))
        code, here, _ = await command("plan", "drain", name, "-o", "json")
        assert code == 1
        code, there, said = await command(*over, "plan", "drain", name, "-o", "json")
        assert code == 1, said
        own = ("id", "made_at", "expires", "digest")
        mine, theirs = json.loads(here), json.loads(there)
        assert {k: v for k, v in mine.items() if k not in own} == {
            k: v for k, v in theirs.items() if k not in own
        }
        async with at_work(ledger, plane):
            code, out, said = await command(*over, "apply", "--plan", theirs["id"][:8])
            assert code == 0, said
            assert "is carried out by fleet/0" in " ".join(out.split())
            again = ("apply", "--plan", theirs["id"], "--wait=placed", "-o", "json")
            code, out, said = await command(*over, *again)
            assert json.loads(out)["again"]
            waited = json.loads(out)["wait"]
            assert waited["reached"], said
            assert waited["bindings"] >= len(theirs["moves"])
            lacking = {one["binding"] for one in theirs["refusals"]}
            refused = {one["binding"] for one in waited["refused"]}
            assert (code, refused <= lacking) == (int(bool(refused)), True), (refused, lacking)
            assert json.loads((await command(*again))[1])["wait"] == waited
            # what the first one would do has been done
            code, out, said = await command(*over, "apply", "--plan", mine["id"])
            assert code == 1, said
            assert f"changed since the plan was made: cluster/{name} facts" in out
        assert (await command(*over, "apply", "--plan", "zzz"))[0] == 1
        code, _, said = await command(*over, "plan", "scale", "nowhere/web", "3")
        assert code == 1
        assert "no decision was ever taken about a binding nowhere/web" in said
