"""The door to a real Apache Kafka: it starts, keeps what it acknowledged over a restart, and leaves
nothing running."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.patience import PATIENCE_S
from tests.processes import lives

from wharfinger.runtime.backends import DURABLE, Backend
from wharfinger.runtime.topics import TopicSpec, ensure_topics

pytestmark = [pytest.mark.integration, pytest.mark.long]

DOOR = Path(__file__).parents[2] / "infra" / "kafka" / "local.py"
TOPIC = "wharfinger.bindings"


def door(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DOOR), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def started(directory: Path) -> Backend:
    start = door("start", str(directory))
    assert start.returncode == 0, start.stderr
    return Backend(start.stdout.strip(), "postgresql+asyncpg://nobody@/none", DURABLE)


def running(pid: int) -> bool:
    """A process that ended and that nobody has collected yet does not run."""
    return lives(pid)


async def test_what_kafka_acknowledged_is_there_after_its_restart(tmp_path: Path) -> None:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("Apache Kafka needs Java 17 and Maven")
    directory = tmp_path / "kafka"
    try:
        backend = started(directory)
        await ensure_topics(backend, [TopicSpec(TOPIC, 1, "compact")])
        async with AIOKafkaProducer(
            **backend.client_options(), enable_idempotence=True
        ) as producer:
            sent = await producer.send_and_wait(TOPIC, b"{}", key=b"shop/web", partition=0)
        assert sent.offset == 0

        pid = json.loads((directory / "broker.json").read_text())["pid"]
        assert door("stop", str(directory)).returncode == 0
        assert not running(pid)

        backend = started(directory)
        assert await ensure_topics(backend, [TopicSpec(TOPIC, 1, "compact")]) == {TOPIC: False}
        async with AIOKafkaConsumer(
            **backend.client_options(), auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0)])
            assert (await consumer.getone()).key == b"shop/web"
    finally:
        assert door("stop", str(directory)).returncode == 0
    assert not (directory / "broker.json").exists()


def test_without_java_the_door_says_so_in_one_line(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(DOOR), "start", str(tmp_path)],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith("kafka: mvn is not on PATH")


def test_the_id_of_a_broker_may_begin_with_a_hyphen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One random id of 64 does, and is no option of the command that formats the storage."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("Apache Kafka needs Java 17 and Maven")
    spec = importlib.util.spec_from_file_location("local_kafka", DOOR)
    assert spec is not None
    assert spec.loader is not None
    local = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(local)
    monkeypatch.setattr(local, "new_cluster_id", lambda: f"-{'A' * 21}")
    local.configure(tmp_path)
    local.format_storage(tmp_path, f"{local.jars(tmp_path)}/*")
    assert f"cluster.id=-{'A' * 21}" in (tmp_path / "data" / "meta.properties").read_text()
