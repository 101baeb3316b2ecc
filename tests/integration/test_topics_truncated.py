"""A real Apache Kafka whose disk is an older one: a partition without its last records, to which
others are written then."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from tests.apps import a_context, send, until
from tests.counter import withdrawn
from tests.integration.test_local_kafka import door, started
from tests.integration.test_topic_lives import a_plane, accept, all_marked, all_out
from tests.loops import causes

from wharfinger.events.streams import BINDINGS
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.incarnation_watch import truncations
from wharfinger.runtime.leader_epochs import leader_epochs
from wharfinger.runtime.ledger import Ledger, audit_verify
from wharfinger.runtime.record_check import Overwritten, differs

pytestmark = [pytest.mark.integration, pytest.mark.long]

OLD, NEW, OTHER = range(30), range(30, 60), range(60, 150)
RECORDS = 2
"""The publisher sends a withdrawal and a null record."""
PLACE = f"{BINDINGS.name}/0"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("Apache Kafka needs Java 17 and Maven")
    yield tmp_path / "kafka"
    assert door("stop", str(tmp_path / "kafka")).returncode == 0


def begun(directory: Path, database_url: str) -> Backend:
    found = started(directory)
    return Backend(found.bootstrap, database_url, found.capabilities)


def stop(directory: Path) -> None:
    assert door("stop", str(directory)).returncode == 0


async def truncated(
    directory: Path, database_url: str, what: str
) -> tuple[Backend, dict[str, int]]:
    """A broker with `what` of its disk as it was after `OLD`. `NEW` was read and written since, and
    `OTHER` is in its place. The other value: the incarnations until then."""
    backend = begun(directory, database_url)
    async with a_plane(backend, database_url, "") as (context, _):
        await accept(context.ledger, OLD)
        await until(lambda: all_out(context, len(OLD)))
    stop(directory)
    saved = directory / "saved"
    shutil.copytree(directory / "data" / what, saved)
    backend = begun(directory, database_url)
    async with a_plane(backend, database_url, "") as (context, _):
        await accept(context.ledger, NEW)
        await until(lambda: all_out(context, len(OLD) + len(NEW)))
        await all_marked(context)
        before = dict(context.incarnations)
        assert await truncations(context.ledger, backend, before) == []
    stop(directory)
    shutil.rmtree(directory / "data" / what)
    shutil.move(saved, directory / "data" / what)
    backend = begun(directory, database_url)
    ledger = await Ledger.open(database_url, "tests-topics")
    try:
        others = [withdrawn(n, f"binding-{n}") for n in OTHER]
        context = await a_context(backend, ledger, "", fleet_shards=1)
        await send(context, BINDINGS, [(event.subject, event.body) for event in others])
    finally:
        await ledger.close()
    return backend, before


async def nothing_is_missing(backend: Backend, database_url: str, before: dict[str, int]) -> None:
    total = len(OLD) + len(NEW) + len(OTHER)
    async with a_plane(backend, database_url, "") as (context, watch):
        assert context.incarnations[BINDINGS.name] > before[BINDINGS.name]
        await until(lambda: all_out(context, total))
        assert sorted(await causes(context.ledger)) == sorted(
            str(withdrawn(n).id) for n in range(total)
        )
        assert (await audit_verify(context.ledger)).ok
        assert watch.failed() == ""


async def test_a_partition_with_an_older_disk_that_has_grown_past_what_was_read(
    directory: Path, database_url: str
) -> None:
    backend, before = await truncated(directory, database_url, f"{BINDINGS.name}-0")
    ledger = await Ledger.open(database_url, "tests-topics")
    try:
        part = TopicPartition(BINDINGS.name, 0)
        last = [
            mark
            for mark in await ledger.marks(before)
            if mark.place == PLACE and mark.reader == "fleet/0"
        ][-1]
        assert last.offset == RECORDS * (len(OLD) + len(NEW)) - 2
        assert last.epoch >= 0  # as it was when the mark was compared with the topic
        found = await truncations(ledger, backend, before)
        assert [(one.topic, one.partition) for one in found] == [(BINDINGS.name, 0)]
        assert isinstance(found[0], Overwritten)
        # Had the record been compacted away, the epoch would say the same.
        epochs = await leader_epochs(backend, {part: {last.epoch}})
        assert epochs.current[part] > last.epoch
        end = RECORDS * len(OLD)
        assert epochs.ends[part, last.epoch] == end
        assert f"ends at offset {end}" in differs(last, part, None, epochs)
        assert differs(last._replace(offset=end - 1), part, None, epochs) == ""
    finally:
        await ledger.close()
    await nothing_is_missing(backend, database_url, before)


async def test_a_broker_with_an_older_disk_counts_the_same_epochs_again(
    directory: Path, database_url: str
) -> None:
    """Its metadata went back as well, so the records alone tell it."""
    backend, before = await truncated(directory, database_url, ".")
    ledger = await Ledger.open(database_url, "tests-topics")
    try:
        last = [mark for mark in await ledger.marks(before) if mark.place == PLACE][-1]
        part = TopicPartition(BINDINGS.name, 0)
        assert (await leader_epochs(backend, {part: ()})).current[part] == last.epoch
    finally:
        await ledger.close()
    await nothing_is_missing(backend, database_url, before)
