"""A plane whose services each have a user of their own, on an Apache Kafka that takes TLS only and
refuses what was not granted. The broker's own log says what it has refused."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from tests import secured_kafka
from tests.patience import PATIENCE_S, eventually, in_patience, until
from tests.providers import Authority
from tests.secured_kafka import ADMIN, SecuredKafka

from wharfinger.events.streams import BINDINGS, DECISIONS, TOPICS
from wharfinger.runtime.backends import DURABLE, Backend, BackendError, probe_broker
from wharfinger.runtime.children import MODULES
from wharfinger.runtime.kafka_rights import KAFKA_USERS, SUBSCRIBER, KafkaUser, acl_commands
from wharfinger.runtime.process_status import process_cards
from wharfinger.runtime.topics import partition_counts

pytestmark = [pytest.mark.integration, pytest.mark.long]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STRANGER = "stranger"
SERVICES = tuple(one for one in KAFKA_USERS if one.name in MODULES)
NAMES = tuple(topic.name for topic in TOPICS)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A broker on which the printed commands were run."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("Apache Kafka needs Java 17 and Maven")
    directory = tmp_path_factory.mktemp("secured") / "kafka"
    users = [STRANGER, *(one.user for one in KAFKA_USERS)]
    broker = secured_kafka.start(directory, users)
    try:
        broker.run(list(acl_commands()))
        yield broker
    finally:
        broker.stop()


def environment(kafka: SecuredKafka, user: str, url: str, directory: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WHARFINGER_")}
    return {
        **kept,
        **kafka.environment(user),
        "WHARFINGER_DATABASE": url.replace("+asyncpg", ""),
        "WHARFINGER_DATA_DIR": str(directory),
        "WHARFINGER_FLEET_SHARDS": "2",
        "WHARFINGER_CLUSTERS": str(directory / "clusters"),
        "WHARFINGER_HTTP_PORT": "0",
    }


def command(surroundings: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "wharfinger_cli", *arguments],
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@contextmanager
def services(kafka: SecuredKafka, url: str, directory: Path) -> Iterator[None]:
    """Each in a process of its own, with its own user."""
    with ExitStack() as stack:
        for one in SERVICES:
            log = stack.enter_context((directory / f"{one.name}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", MODULES[one.name]],
                env=environment(kafka, one.user, url, directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield


async def first_decision(backend: Backend) -> str:
    """Its type, as a subscriber reads it."""
    async with AIOKafkaConsumer(
        DECISIONS.name,
        **backend.client_options(),
        group_id="subscriber.one",
        auto_offset_reset="earliest",
    ) as consumer:
        record = await in_patience(consumer.getone())
    return str(json.loads(record.value)["type"])


async def test_each_service_works_with_its_rights_and_asks_for_no_other(
    kafka: SecuredKafka, database_url: str, tmp_path: Path
) -> None:
    refused = len(kafka.denied())
    ours = environment(kafka, "wharfinger-migrate", database_url, tmp_path)
    command(ours, "migrate")
    with services(kafka, database_url, tmp_path):
        parts = [f"-f{EXAMPLES / part}" for part in ("fleet", "policies", "workloads")]
        command(ours, "apply", *parts, "--wait=placed", f"--timeout={PATIENCE_S:g}s")
        assert (await first_decision(kafka.backend(SUBSCRIBER.user))).startswith("io.wharfinger.")

        def all_ready() -> bool:
            answers = [card.readiness() for _, card in process_cards(tmp_path)]
            ready = [one for one in answers if one is not None and one.ready]
            return len(ready) == len(SERVICES)

        until(all_ready)
    assert kafka.denied()[refused:] == []


async def may_write(producer: AIOKafkaProducer, topic: str) -> bool:
    try:
        await producer.send_and_wait(topic, b"{}", key=b"lab/none", partition=0)
    except TopicAuthorizationFailedError:
        return False
    return True


async def may_read(consumer: AIOKafkaConsumer, topic: str) -> bool:
    """Of a topic that has records."""
    if topic not in await consumer.topics():
        return False  # the client waits without end for a topic that it may not describe
    part = TopicPartition(topic, 0)
    consumer.assign([part])
    try:
        await consumer.seek_to_beginning(part)
        await in_patience(consumer.getone())
    except TopicAuthorizationFailedError:
        return False
    return True


async def may_join(admin: AIOKafkaAdminClient, group: str) -> bool:
    """Its members begin by asking for its coordinator, which needs a right to the group."""
    try:
        await admin.find_coordinator(group)
    except GroupAuthorizationFailedError:
        return False
    return True


async def seen(backend: Backend, groups: Sequence[str]) -> set[tuple[str, str]]:
    """What a user may do: (verb, name of a topic or beginning of a group)."""
    found: set[tuple[str, str]] = set()
    options = backend.client_options()
    async with AIOKafkaProducer(**options) as producer:
        found |= {("writes", name) for name in NAMES if await may_write(producer, name)}
    async with AIOKafkaConsumer(**options, group_id=None) as consumer:
        found |= {("reads", name) for name in NAMES if await may_read(consumer, name)}
    admin = AIOKafkaAdminClient(**options)
    await admin.start()
    try:
        found |= {("joins", name) for name in groups if await may_join(admin, f"{name}1")}
    finally:
        await admin.close()
    return found


def granted(one: KafkaUser) -> set[tuple[str, str]]:
    return {
        *(("reads", topic.name) for topic in (TOPICS if one.reads is None else one.reads)),
        *(("writes", topic.name) for topic in one.writes),
        *(("joins", group) for group in one.groups),
    }


async def test_no_user_may_do_what_is_not_in_the_table(
    kafka: SecuredKafka, database_url: str, tmp_path: Path
) -> None:
    """Tried for every user, topic and group; also by a user without rights."""
    command(environment(kafka, "wharfinger-migrate", database_url, tmp_path), "migrate")
    groups = sorted({group for one in KAFKA_USERS for group in one.groups})
    everything = {*product(("reads", "writes"), NAMES), *(("joins", group) for group in groups)}
    # PLAIN: the client computes 4,096 hashes for each connection with SCRAM.
    assert await seen(kafka.backend(ADMIN, "PLAIN"), groups) == everything
    for one in KAFKA_USERS:
        assert await seen(kafka.backend(one.user, "PLAIN"), groups) == granted(one), one.name
    assert await seen(kafka.backend(STRANGER, "PLAIN"), groups) == set()
    assert await partition_counts(kafka.backend(STRANGER, "PLAIN")) == {}


async def test_users_are_known_by_password_or_certificate_and_others_are_refused(
    kafka: SecuredKafka, tmp_path: Path
) -> None:
    user = SUBSCRIBER.user
    for known in (kafka.backend(user), kafka.backend(user, "PLAIN"), kafka.by_certificate(user)):
        await probe_broker(known, PATIENCE_S)
    right = kafka.backend(user)
    other = Authority(tmp_path / "other")
    foreign_cert, foreign_key = other.certificate(user)
    strangers = (
        replace(right, security=replace(right.security, password="wrong")),
        replace(right, security=replace(right.security, ca_file=other.file)),
        replace(
            kafka.by_certificate(user),
            security=replace(
                kafka.by_certificate(user).security, cert_file=foreign_cert, key_file=foreign_key
            ),
        ),
        Backend(right.bootstrap, right.database_url, DURABLE),  # plain text
    )
    for stranger in strangers:
        with pytest.raises(BackendError) as refused:
            await probe_broker(stranger, 5.0)
        assert "\n" not in str(refused.value)
        assert "wrong" not in str(refused.value)


async def test_a_service_that_may_not_make_a_missing_topic_ends_with_one_line(
    kafka: SecuredKafka, database_url: str, tmp_path: Path
) -> None:
    surroundings = environment(kafka, "wharfinger-migrate", database_url, tmp_path)
    command(surroundings, "migrate")
    admin = AIOKafkaAdminClient(**kafka.backend(ADMIN).client_options())
    await admin.start()
    try:
        await admin.delete_topics([BINDINGS.name])
    finally:
        await admin.close()

    async def gone() -> bool:
        return BINDINGS.name not in await partition_counts(kafka.backend(ADMIN))

    await eventually(gone)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", MODULES["estimator"]],
        env=environment(kafka, "wharfinger-estimator", database_url, tmp_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert BINDINGS.name in last
    assert "Traceback" not in done.stdout + done.stderr
    command(surroundings, "migrate")
    assert not await gone()
