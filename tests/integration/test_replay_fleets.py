"""Many fleets with faults lie in one ledger, and one process decides all of them again, byte for
byte the same.

Whatever the order of Python's sets, however many processes share the work, and under a later Python
too, where there is one with what we depend on: name it in `WHARFINGER_TEST_LATER_PYTHON`, or have
it on the path.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.backends import TOPIC_PREFIX, fresh_database, in_a_loop
from tests.fleets import Fleet, a_fleet, committed
from tests.patience import PATIENCE_S

from wharfinger.history.deciders import decider_of
from wharfinger.kernel.recover import recover
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.topics import TopicSpec, ensure_topics, topic_names

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
FEW, MANY = 10, 200
LATER = ("python3.12", "python3.13", "python3.14")
NEEDS = "import asyncpg, msgspec, numpy, rich, sqlalchemy, structlog, typer, zstandard"


@dataclass(frozen=True, slots=True)
class Told:
    """What was committed, to be found again by whoever replays it."""

    database_url: str
    streams: int
    rounds: int
    decisions: int


@pytest.fixture(scope="module")
def few(database_server: str, migrated_database: str) -> Iterator[Told]:
    with fresh_database(database_server, template=migrated_database) as url:
        yield in_a_loop(lambda: told(url, FEW))


@pytest.fixture(scope="module")
def many(database_server: str, migrated_database: str) -> Iterator[Told]:
    with fresh_database(database_server, template=migrated_database) as url:
        yield in_a_loop(lambda: told(url, MANY))


async def told(url: str, count: int) -> Told:
    ledger = await Ledger.open(url, "tests")
    streams = rounds = decisions = 0
    try:
        for number in range(count):
            fleet = a_fleet(number)
            await commit(ledger, fleet)
            streams += len(fleet.by_stream())
            rounds += len(fleet.rounds)
            decisions += sum([len(recorded.round.decisions) for recorded in fleet.rounds])
    finally:
        await ledger.close()
    return Told(url, streams, rounds, decisions)


async def commit(ledger: Ledger, fleet: Fleet) -> None:
    """Every fifth with snapshots, so that its streams are cut where there are workers enough."""
    await committed(ledger, fleet)
    if fleet.number % 5 == 0:
        for stream, recorded in fleet.by_stream().items():
            decider = decider_of(stream)
            assert decider is not None
            state = recover(decider, decider.initial(stream), recorded[: len(recorded) // 2])
            if len(recorded) > 1:
                await ledger.write_snapshot(stream, len(recorded) // 2, decider.dump(state))


def replayed(
    told: Told, hash_seed: str, workers: int, python: str = sys.executable, **variables: str
) -> dict[str, Any]:
    """One process for all of it, as a user starts it."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'shared'}:{ROOT / 'services'}",
        "PYTHONHASHSEED": hash_seed,
        "WHARFINGER_DATABASE": told.database_url,
        **variables,
    }
    done = subprocess.run(
        [python, "-m", "wharfinger_cli", "replay", "--workers", str(workers), "-o", "json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_the_same(told: Told, found: dict[str, Any]) -> None:
    assert found["first_divergences"] == []
    assert (found["divergences"], found["other_engines"]) == (0, [])
    assert (found["streams"], found["rounds"], found["decisions"]) == (
        told.streams,
        told.rounds,
        told.decisions,
    )


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("hash_seed", ["0", "random"])
def test_a_few_fleets_are_decided_again_byte_for_byte(
    few: Told, hash_seed: str, workers: int
) -> None:
    assert few.decisions > 50 * FEW
    assert_the_same(few, replayed(few, hash_seed, workers))


@pytest.mark.long
@pytest.mark.parametrize(
    ("hash_seed", "workers"), [("0", 1), ("1", 2), ("random", 4), ("random", 1)]
)
def test_two_hundred_fleets_are_decided_again_byte_for_byte(
    many: Told, hash_seed: str, workers: int
) -> None:
    assert many.decisions > 50 * MANY
    assert_the_same(many, replayed(many, hash_seed, workers))


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_a_later_python_decides_the_same(many: Told, hash_seed: str, workers: int) -> None:
    assert_the_same(many, replayed(many, hash_seed, workers, later_python()))


def later_python() -> str:
    """One that is later than ours and has what we depend on; skips, and says what is missing."""
    named = os.environ.get("WHARFINGER_TEST_LATER_PYTHON")
    for name in [named] if named else LATER:
        path = shutil.which(name)
        if (
            path is not None
            and subprocess.run([path, "-c", NEEDS], capture_output=True, check=False).returncode
            == 0
        ):
            return path
    pytest.skip(f"no later Python with our dependencies: {named or ', '.join(LATER)}")


def test_a_replay_leaves_every_topic_as_it_is(
    few: Told, backend: Backend, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}live"
    in_a_loop(lambda: send(backend, topic))
    before = (
        in_a_loop(lambda: ends(backend, topic)),
        in_a_loop(lambda: names(backend, topic_prefix)),
    )
    assert_the_same(few, replayed(few, "0", 2, WHARFINGER_KAFKA=backend.bootstrap))
    assert (
        in_a_loop(lambda: ends(backend, topic)),
        in_a_loop(lambda: names(backend, topic_prefix)),
    ) == before


async def names(backend: Backend, topic_prefix: str) -> set[str]:
    """Of all topics but those of the tests that run beside this one and the broker's own.

    A broker makes its own (`__transaction_state`) when its first client asks for what they keep,
    and that client may be another test.
    """
    return {
        name
        for name in await topic_names(backend)
        if name.startswith(topic_prefix) or not re.match(f"{TOPIC_PREFIX}|__", name)
    }


async def send(backend: Backend, topic: str) -> None:
    await ensure_topics(backend, [TopicSpec(topic, 1, "delete")])
    producer = AIOKafkaProducer(bootstrap_servers=backend.bootstrap)
    await producer.start()
    await producer.send_and_wait(topic, b"said before", partition=0)
    await producer.stop()


async def ends(backend: Backend, topic: str) -> int:
    consumer = AIOKafkaConsumer(bootstrap_servers=backend.bootstrap)
    await consumer.start()
    try:
        place = TopicPartition(topic, 0)
        return int((await consumer.end_offsets([place]))[place])
    finally:
        await consumer.stop()
