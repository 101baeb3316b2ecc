"""A leader that is paused between reading the ledger and sending, and wakes up when its successor
has published newer facts."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.apps import a_context, standing_on, until

from wharfinger.domain.binding import Binding
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.codec import decode, made
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import BINDINGS
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger, Submission, audit_verify
from wharfinger.runtime.service import ServiceContext

pytestmark = pytest.mark.integration

KEYS = [f"shop/app-{n}" for n in range(12)]
WORDS = ("leads", "refused", "sent")
PROGRAM = "tests.integration.paused_publisher"


@pytest_asyncio.fixture
async def context(backend: Backend, ledger: Ledger, topic_prefix: str) -> ServiceContext:
    return await a_context(backend, ledger, topic_prefix)


async def tell(ledger: Ledger, replicas: int) -> None:
    events = [
        made(
            BindingRequested(
                Binding(key, f"uid-{key}", ObjectRef("v1", "Deployment", key, "shop"), replicas)
            ),
            id=derived_id("told", key, replicas),
            source="/tests",
            subject=key,
        )
        for key in KEYS
    ]
    await ledger.accept(
        [Submission(event, BINDINGS.name, event.subject, event.subject) for event in events]
    )


async def latest(context: ServiceContext) -> dict[str, int]:
    """As a compacted topic ends, and as a reader who reads it all ends."""
    found: dict[str, int] = {}
    for record in await standing_on(context, BINDINGS):
        event = decode(record.value or b"")
        assert isinstance(event.data, BindingRequested)
        found[event.subject] = event.data.binding.replicas
    return found


class Publisher:
    """One as a process of its own. `pause`: it stops itself when it has read this many rows and is
    about to send them."""

    def __init__(self, context: ServiceContext, database_url: str, pause: bool) -> None:
        backend = context.backend
        where = {
            "bootstrap": backend.bootstrap,
            "database_url": database_url,
            "prefix": context.prefix,
            "pause": pause,
            "durable": backend.capabilities.durable_restart,
            "boot_id": backend.boot_id,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, json.dumps(where)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def said(self) -> str:
        """The next word of it; the lines of its log are passed over."""
        assert self._process.stdout is not None
        return next(
            (line.strip() for line in self._process.stdout if line.strip() in WORDS), "ended"
        )

    def is_stopped(self) -> bool:
        """By SIGSTOP, as the kernel has it."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def publishers() -> Iterator[list[Publisher]]:
    started: list[Publisher] = []
    yield started
    for one in started:
        one.end()


async def test_a_leader_that_wakes_up_sends_nothing_behind_its_successor(
    context: ServiceContext, database_url: str, publishers: list[Publisher]
) -> None:
    """The first reads `1 replica` under twelve keys and is frozen before it sends. The second finds
    that the lock has no heartbeat, takes over and publishes `1`, then `2`. The first wakes up and
    sends what it has read."""
    await tell(context.ledger, 1)
    publishers.append(first := Publisher(context, database_url, pause=True))
    await until(first.is_stopped)
    publishers.append(second := Publisher(context, database_url, pause=False))
    assert await asyncio.to_thread(second.said) == "leads"
    await tell(context.ledger, 2)

    async def newer_is_there() -> bool:
        return set((await latest(context)).values()) == {2}

    await until(newer_is_there)
    first.go_on()
    assert await asyncio.to_thread(first.said) == "leads"  # it led, when it was stopped
    assert (await asyncio.to_thread(first.said)) in {"refused", "sent"}
    assert await latest(context) == dict.fromkeys(KEYS, 2)
    await tell(context.ledger, 3)

    async def newest_is_there() -> bool:
        return set((await latest(context)).values()) == {3}

    await until(newest_is_there)  # the one that leads still publishes
    assert (await audit_verify(context.ledger)).first_bad is None  # nor two positions for one
