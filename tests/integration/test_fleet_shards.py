"""Fleet shards on a real ledger: how many there are is the ledger's to say, and in one process none
promises what another of them has promised, though the broker has carried nothing yet."""

from __future__ import annotations

import pytest
from tests.apps import until
from tests.feeds import placed

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster, ResourceSummary
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import decode, made
from wharfinger.events.decisions import ScheduleDecided
from wharfinger.events.envelope import derived_id
from wharfinger.events.room import RoomTaken
from wharfinger.events.streams import BINDINGS, CLUSTERS, ROOM, TOPICS
from wharfinger.runtime.fleet_shards import FleetShardsError, with_fleet_shards
from wharfinger.runtime.ledger import DecisionQuery, Ledger, audit_verify, wall_clock
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.settings import FLEET_SHARDS, Settings
from wharfinger.runtime.stage_loop import StageLoop
from wharfinger.runtime.topics import shard_for
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet.state import FleetState
from wharfinger_publisher.records import RecordMaker
from wharfinger_scheduler.routing import FleetRouting

pytestmark = pytest.mark.integration

SHARDS = 4
CPU = 10_000


def message(topic: str, partition: int, offset: int, data: Value) -> Message:
    id = derived_id("shards", topic, partition, offset)
    return Message(topic, partition, offset, made(data, id=id, source="/tests", subject="tests"))


def asking(namespace: str, cpu: int) -> Binding:
    return Binding(
        f"{namespace}/web",
        f"uid-{namespace}",
        ObjectRef("apps/v1", "Deployment", "web", namespace),
        1,
        Requirements({"cpu": cpu}),
        Placement(replicas=ReplicaScheduling("Divided", "Aggregated")),
    )


def namespaces() -> list[str]:
    """One of each shard."""
    names = {shard_for(f"team-{n}/web", SHARDS): f"team-{n}" for n in range(99)}
    return [names[shard] for shard in range(SHARDS)]


def promised_to_oslo(state: FleetState) -> list[int]:
    return [entry.replicas for these in state.clusters["oslo"].promised.values() for entry in these]


async def test_shards_of_one_process_see_what_each_has_promised(ledger: Ledger) -> None:
    """Four namespaces want 4 of 10 cores each: two of them fit."""
    loop = StageLoop(
        "tests",
        FleetDecider(ranges=SHARDS),
        FleetRouting(SHARDS),
        ledger,
        {topic.name: 1 for topic in TOPICS},
        wall_clock,
        METRICS.of("tests"),
    )
    loop.expect(range(SHARDS))
    await loop.acquire()
    loop.hold(True)
    loop.start()
    try:
        oslo = Cluster("oslo", summary=ResourceSummary({"cpu": CPU}))
        await loop.offer_facts([message(CLUSTERS.name, 0, 0, ClusterObserved(oslo))])
        for shard, namespace in enumerate(namespaces()):
            told = BindingRequested(asking(namespace, 4000))
            await loop.offer_facts([message(BINDINGS.name, shard, 0, told)])
        loop.hold(False)
        await until(lambda: loop.idle_s() > 0 and loop.backlog() == 0)
        rows = [row async for row in ledger.decisions(DecisionQuery("fleet/"))]
        assert len(rows) == SHARDS
        assert sum(isinstance(row.data(), ScheduleDecided) for row in rows) == 2
        maker = RecordMaker({topic.name: SHARDS for topic in TOPICS}, lambda key, count: 0)
        sent = [record for record in maker.records(rows, placed(rows)) if record.topic == ROOM.name]
        assert len(sent) == 2
        await come_over_the_broker(loop, [record.value for record in sent])
        found = [await loop.look(f"fleet/{shard}", promised_to_oslo) for shard in range(SHARDS)]
        # each of the two has the other's promise, the others have both
        assert sorted(sum(promised or ()) for promised in found) == [1, 1, 2, 2]
    finally:
        await loop.stop()
    assert (await audit_verify(ledger)).ok


async def come_over_the_broker(loop: StageLoop[FleetState], sent: list[bytes | None]) -> None:
    """What was told within the process comes once more, and changes nothing."""
    events = [decode(body) for body in sent if body is not None]
    assert all(isinstance(event.data, RoomTaken) for event in events)
    await loop.offer([Message(ROOM.name, 0, offset, event) for offset, event in enumerate(events)])
    await until(lambda: loop.idle_s() > 0 and loop.backlog() == 0)


# --- how many there are


async def numbers(ledger: Ledger, **settings: object) -> tuple[int, list[str]]:
    chosen = await with_fleet_shards(ledger, Settings(**settings), begin=True)  # type: ignore[arg-type]
    return chosen.shards, [head.stream for head in await ledger.heads("fleet/")]


async def test_a_new_ledger_gets_its_shards_and_keeps_them(ledger: Ledger) -> None:
    assert await numbers(ledger, fleet_shards=3) == (3, ["fleet/0", "fleet/1", "fleet/2"])
    assert (await numbers(ledger))[0] == 3
    assert (await numbers(ledger, broker="memory"))[0] == 3
    with pytest.raises(FleetShardsError, match=r"expected 3, .* got 4"):
        await numbers(ledger, fleet_shards=4)
    assert len(await ledger.heads("fleet/")) == 3


async def test_a_new_plane_on_a_broker_of_its_own_can_grow(ledger: Ledger) -> None:
    assert Settings(broker="memory").shards == 1
    assert (await numbers(ledger))[0] == FLEET_SHARDS > 1


async def test_looking_begins_nothing(ledger: Ledger) -> None:
    assert (await with_fleet_shards(ledger, Settings(), begin=False)).shards == FLEET_SHARDS
    assert await ledger.heads("fleet/") == []


@pytest.mark.parametrize("shards", [1, 2])
async def test_a_ledger_of_one_shard_goes_on_and_one_divided_by_name_is_refused(
    ledger: Ledger, shards: int
) -> None:
    """Recorded by a version that divided bindings by name: with one shard that is the same."""
    loop = StageLoop(
        "tests",
        FleetDecider(shards=shards),
        FleetRouting(shards),
        ledger,
        {topic.name: 1 for topic in TOPICS},
        wall_clock,
        METRICS.of("tests"),
    )
    loop.expect(range(shards))
    await loop.acquire()
    loop.start()
    try:
        told = BindingRequested(asking("lab", 1000))
        await loop.offer([message(BINDINGS.name, 0, 0, told)])
        await until(lambda: loop.idle_s() > 0 and loop.backlog() == 0)
    finally:
        await loop.stop()
    if shards == 1:
        assert await numbers(ledger) == (1, ["fleet/0"])
    else:
        with pytest.raises(FleetShardsError, match="divide bindings by name"):
            await numbers(ledger)
