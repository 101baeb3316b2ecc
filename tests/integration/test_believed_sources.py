"""Sources are held to a list: what comes from another one is a dead letter, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.apps import a_context, running, send, until
from tests.hunting import examples
from tests.loops import INCARNATIONS, Acks
from tests.patience import in_patience
from tests.poison import Record, binding
from tests.properties.test_batch_laws import Stream, fleet_facts, inputs_of, what_the_fleet_was_told
from tests.scenarios.fleet_plane import STREAM

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import PodsObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import decode, encode
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.effects import EffectsObserved
from wharfinger.events.envelope import derived_id
from wharfinger.events.node_load import HotValueObserved
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.parts import divided
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.events.registry import LATEST
from wharfinger.events.room import RoomTaken
from wharfinger.events.streams import BINDINGS, CLUSTERS, POLICIES
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.believed_sources import BelievedSources
from wharfinger.runtime.decode_cache import Decoded
from wharfinger.runtime.ledger import DecisionQuery, Ledger, audit_verify
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.reading import InOrder, Reading
from wharfinger.runtime.service import ServiceContext
from wharfinger.stages.fleet import FleetDecider
from wharfinger_annotator import app as annotator
from wharfinger_cli.dead_letters import letters_of
from wharfinger_descheduler import app as descheduler
from wharfinger_estimator import app as estimator
from wharfinger_publisher.app import PublisherService
from wharfinger_scheduler.app import cluster_stage, fleet_stage

pytestmark = pytest.mark.integration

LISTED = "/cd/=wharfinger.bindings,/cd/=wharfinger.policies,urn:cmdb=wharfinger.clusters"


@pytest_asyncio.fixture
async def context(
    backend: Backend, database_url: str, topic_prefix: str
) -> AsyncIterator[ServiceContext]:
    ledger = await Ledger.open(database_url, "tests-believed")
    yield await a_context(backend, ledger, topic_prefix, believed_sources=LISTED)
    await ledger.close()


async def letters(ledger: Ledger) -> list[MessageDeadLettered]:
    return [letter.data for letter in await letters_of(ledger)]


FORGED: tuple[Value, ...] = (
    ClusterObserved(Cluster("oslo")),
    PolicyApplied(Policy("PropagationPolicy", "p", "shop")),
    PodsObserved("oslo", "node-1", ()),
    HotValueObserved("oslo", 0, {}),
    CapacityEstimated("oslo", 1, {"cpu": 1000}, {}),
    RescheduleProposed("fleet/0", "shop/well", "because"),
    AssignmentsDecided("oslo", "fleet/0", 10**9, ()),
    OutcomesDecided("oslo", 0, "cluster/oslo", 10**9, ()),
    RoomTaken("fleet/0", 10**9, 10**9, ()),
    EffectsObserved("oslo", ()),
)
"""A fact for every topic that a service reads; what a number of a stream would hide is among it."""


async def test_on_every_topic_a_source_that_is_not_listed_gets_a_letter_and_stops_no_other(
    context: ServiceContext,
) -> None:
    builders = (fleet_stage, cluster_stage, estimator.build, descheduler.build, annotator.build)
    services = [build(context) for build in (*builders, PublisherService)]
    counted = METRICS.of(services[0].name).dead_letters
    before = counted._value.get()
    async with running(*services):
        for number, data in enumerate(FORGED):
            topic = LATEST[type(data)].topic
            assert topic is not None
            event = encode(data, id=derived_id("f", number), source="/attacker", subject="oslo")
            await send(context, topic, [("oslo", event)])
        forged = [("k", binding(f"shop/forged-{n}", source="/attacker")) for n in range(50)]
        wrong_type = ("k", binding("shop/wrong", source="urn:cmdb"))
        good = [
            ("k", binding("shop/good", source="/cd/x")),
            ("k", binding("shop/ours", source="/wharfinger/api")),
        ]
        await send(context, BINDINGS, [*forged, wrong_type, *good])

        async def decided() -> bool:
            assert [s.failed() for s in services if s.failed()] == []
            rows = [r async for r in context.ledger.decisions(DecisionQuery(stream="fleet/"))]
            return {row.subject for row in rows} >= {"shop/good", "shop/ours"}

        await until(decided)
        expected = len(FORGED) - 1 + len(forged) + 1  # one shard reads no room

        async def all_there() -> bool:
            return len(await letters(context.ledger)) >= expected

        await until(all_there)
    found = await letters(context.ledger)
    assert len(found) == expected
    assert all(
        "from the source /attacker; expected" in one.reason
        for one in found[:-1]
        if one.producer == "/attacker"
    )
    (typed,) = [one for one in found if one.producer == "urn:cmdb"]
    assert typed.reason.endswith("from the source urn:cmdb; expected one of /wharfinger/..., /cd/")
    assert counted._value.get() - before >= len(forged) + 1
    rows = [row async for row in context.ledger.decisions(DecisionQuery(stream="fleet/"))]
    assert {row.subject for row in rows} == {"shop/good", "shop/ours"}
    assert (await audit_verify(context.ledger)).ok


def a_reading(ledger: Ledger) -> Reading:
    return Reading(
        "tests",
        ledger,
        {**INCARNATIONS, POLICIES.name: 1},
        lambda topic: topic,
        METRICS.of("tests"),
        Decoded(),
        InOrder(),
        believed=BelievedSources.parse(LISTED),
    )


async def test_an_event_in_parts_is_one_letter_and_its_records_are_done_with(
    ledger: Ledger,
) -> None:
    """The source is listed, though not for this type: that is seen when the event is whole."""
    whole = binding("shop/large", source="urn:cmdb", note="x" * 3000)
    parts, acks = divided(whole, 1500), Acks()
    last = len(parts)
    assert last > 1
    values = [*parts, binding("shop/well", source="/cd/x")]
    reading = a_reading(ledger)
    found = await reading.messages(
        Record(BINDINGS.name, 0, n, b"k", value, acks.of(0, n)) for n, value in enumerate(values)
    )
    assert [message.event.subject for message in found] == ["shop/well"]
    found[0].acknowledge()
    await in_patience(_acknowledged(acks, last + 1))
    assert acks.done == [(0, n) for n in range(last + 1)]
    (letter,) = await letters(ledger)
    assert letter.reason.startswith("wharfinger.bindings: io.wharfinger.binding.requested.v1 from")
    assert decode(whole).source == letter.producer
    await reading.stop()


async def _acknowledged(acks: Acks, count: int) -> None:
    await until(lambda: len(acks.done) >= count)


# --- the law

MAY = {"/cd/shop": {BINDINGS, POLICIES}, "urn:cmdb": {CLUSTERS}}
SOURCES = ("/wharfinger/api", *MAY, "/attacker")


@dataclass
class Bench:
    """A ledger for the letters, used by many examples one after the other."""

    runner: asyncio.Runner
    ledger: Ledger
    offset: int = field(default=0)


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        made = Bench(runner, runner.run(Ledger.open(database_url, "tests-believed-law")))
        yield made
        runner.run(made.ledger.close())


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(fleet_facts, st.sampled_from(SOURCES)), max_size=16), st.data())
def test_the_state_is_as_if_the_records_of_other_sources_had_never_come(
    bench: Bench, mix: list[tuple[Value, str]], data: st.DataObject
) -> None:
    values = [
        encode(fact, id=derived_id("law", n), source=source, subject="law")
        for n, (fact, source) in enumerate(mix)
    ]
    alone, mixed = Stream(FleetDecider(), STREAM), Stream(FleetDecider(), STREAM)
    for number, ((fact, source), value) in enumerate(zip(mix, values, strict=True), 1):
        if source.startswith("/wharfinger/") or LATEST[type(fact)].topic in MAY.get(source, ()):
            alone.turn([decode(value)], number * 1_000_000)
    records = [
        Record(BINDINGS.name, 0, bench.offset + n, b"k", value, lambda: None)
        for n, value in enumerate(values)
    ]
    bench.offset += len(records)
    reading, begin = a_reading(bench.ledger), 0
    while begin < len(records):
        end = begin + data.draw(st.integers(1, len(records) - begin))
        again = data.draw(st.integers(0, begin))
        messages = bench.runner.run(reading.messages(records[again:end]))
        mixed.turn([message.event for message in messages], end * 1_000_000)
        begin = end
    bench.runner.run(reading.stop())
    assert what_the_fleet_was_told(mixed.state) == what_the_fleet_was_told(alone.state)
    assert sorted(inputs_of(mixed)) == sorted(inputs_of(alone))
