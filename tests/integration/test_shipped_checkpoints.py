"""The publisher ships signed checkpoints by itself, and with them verify finds what was done to the
newest rounds: no person has made a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.apps import a_context, running, until
from tests.attacker import another_decision, cut_off, rewrite
from tests.counter import Counter, Writer, withdrawn

from wharfinger.events.streams import BINDINGS
from wharfinger.history.checkpoint import new_key, private_pem, public_key, public_pem, read
from wharfinger.history.checkpoint_store import CheckpointStore, StoreError, store_at
from wharfinger.history.verification import verify
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import FirstBad, Ledger, Submission, wall_clock
from wharfinger.runtime.topics import delete_topics
from wharfinger_publisher.app import PublisherService
from wharfinger_publisher.checkpoints import CheckpointLoop

pytestmark = pytest.mark.integration

KEY = new_key()


async def _decided(ledger: Ledger, writer: Writer | None, first: int, rounds: int) -> Writer:
    if writer is None:
        event = withdrawn(first)
        await ledger.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
        await ledger.ensure_streams(["fleet/0"])
        writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"], Counter())
    now = wall_clock()
    await ledger.commit(
        [writer.step([withdrawn(first + n)], now) for n in range(rounds)], writer.events
    )
    return writer


async def _found(ledger: Ledger, store: CheckpointStore) -> FirstBad | None:
    trusted = public_key("k", public_pem(KEY.public_key()))
    shipped = [read(name, body, trusted) for name, body in await store.shipped()]
    return (await verify(ledger, checkpoints=shipped)).ledger.first_bad


async def test_what_is_cut_off_or_rewritten_after_the_last_manual_checkpoint_is_found(
    backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    key, out = tmp_path / "key", tmp_path / "checkpoints"
    settings: dict[str, Any] = {"checkpoints": str(out), "checkpoint_every_s": 0.1}
    context = await a_context(backend, ledger, topic_prefix, **settings)
    with capture_logs() as logs:
        async with running(PublisherService(context)):
            await until(lambda: any(line["event"] == "checkpoints.no_key" for line in logs))
    assert not out.exists()

    key.write_bytes(private_pem(KEY))
    context = await a_context(backend, ledger, topic_prefix, **settings, checkpoint_key=key)
    store = store_at(str(out), lambda: backend)

    async def covered() -> bool:
        """The newest round, its place in the feed and the cursor of what was published."""
        if not out.exists():
            return False
        made = [read(name, body).checkpoint for name, body in await store.shipped()]
        heads = {mark.stream: mark.round for one in made for mark in one.streams}
        now = (await ledger.heads("fleet/0"))[0]
        cursors = {row.number for one in made for row in one.rows if row.key.endswith("/1/fleet/0")}
        last = max((runs.last for one in made for runs in one.feed), default=0)
        return heads.get("fleet/0") == now.round and now.seq in cursors and last > now.seq

    async with running(PublisherService(context)):
        writer = await _decided(ledger, None, 0, 3)
        await until(covered)
        await _decided(ledger, writer, 3, 3)
        await until(covered)
    assert await _found(ledger, store) is None

    await rewrite(ledger, "fleet/0", 5, another_decision)
    assert (await verify(ledger)).ok
    bad = await _found(ledger, store)
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == ("fleet/0", 6, "checkpoint: hash")
    await cut_off(ledger, "fleet/0", 4)
    assert (await verify(ledger)).ok
    bad = await _found(ledger, store)
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == ("fleet/0", 6, "checkpoint: hash")
    assert "missing" in bad.found


@pytest.mark.parametrize("kind", ["file", "topic", "object store"])
async def test_each_store_has_what_was_shipped_and_a_running_plane_sees_a_rewritten_history(
    backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path, kind: str
) -> None:
    topic = f"{topic_prefix}checkpoints"
    where = {
        "file": str(tmp_path / "checkpoints"),
        "topic": f"kafka://{topic}",
        "object store": f"file://{tmp_path}/objects",
    }[kind]
    store = store_at(where, lambda: backend)
    with pytest.raises(StoreError):
        await store.shipped()
    key = tmp_path / "key"
    key.write_bytes(private_pem(KEY))
    loop = CheckpointLoop(ledger, store, key, 60.0, wall_clock)
    try:
        assert await loop.ship() == 0  # nothing was accepted yet
        writer = await _decided(ledger, None, 0, 2)
        assert await loop.ship() == 1
        assert await loop.ship() == 0
        await _decided(ledger, writer, 2, 1)
        assert await loop.ship() == 1
        made = [read(name, body).checkpoint for name, body in await store.shipped()]
        assert [[mark.stream for mark in one.streams] for one in made] == [
            ["fleet/0", "intake"],
            ["fleet/0"],
        ]
        await rewrite(ledger, "fleet/0", 3, another_decision)
        writer.head = (await ledger.heads("fleet/0"))[0]
        await _decided(ledger, writer, 3, 1)
        with capture_logs() as logs:
            assert await loop.ship() == 1
        (said,) = logs
        assert (said["event"], said["stream"], said["round"]) == (
            "checkpoints.history_changed",
            "fleet/0",
            3,
        )
        bad = await _found(ledger, store)
        assert bad is not None
        assert (bad.stream, bad.round, bad.what) == ("fleet/0", 3, "checkpoint: hash")
    finally:
        await store.close()
        if kind == "topic":
            await delete_topics(backend, [topic])


async def test_a_line_that_a_full_disk_has_cut_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    path.write_bytes(b'{"a":1}\n{"checkpo')
    store = store_at(str(path), _no_backend)
    await store.ship(b'{"b":2}\n', 1)
    assert await store.shipped() == [(f"{path}:1", b'{"a":1}'), (f"{path}:3", b'{"b":2}')]


def _no_backend() -> Backend:
    raise AssertionError("asked for a topic only")
