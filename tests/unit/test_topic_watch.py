"""The check of the topics leaves nothing behind in a process that does little else."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import cast

import pytest

from wharfinger.runtime import incarnation_watch
from wharfinger.runtime.backends import DURABLE, Backend, BackendError
from wharfinger.runtime.incarnation_watch import TopicWatch
from wharfinger.runtime.interpreter import YOUNG_MAX
from wharfinger.runtime.ledger import Ledger


class Client:
    """Refers to itself, as a Kafka client does by its tasks and its coordinator."""

    def __init__(self) -> None:
        self.mine = self


@pytest.fixture
def seldom_collected(looked_at_again: None) -> Iterator[None]:
    """As `seldom_collect`, without freezing what the test run has made."""
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(YOUNG_MAX, 20, 50)
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("away", [False, True])
async def test_the_clients_of_a_check_are_freed_after_it(
    seldom_collected: None, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    made: list[weakref.ref[Client]] = []
    second = asyncio.Event()

    async def check(*_: object) -> str:
        if made:
            second.set()
            await asyncio.Event().wait()
        made.append(weakref.ref(Client()))
        assert made[0]() is not None, "it is freed by itself"
        if away:
            raise BackendError("broker h:1: away")
        return ""

    monkeypatch.setattr(incarnation_watch, "changed", check)
    backend = Backend("h:1", "postgresql+asyncpg:///d", DURABLE)
    running = asyncio.create_task(TopicWatch(cast(Ledger, None), backend, {}, every_s=0).run())
    await second.wait()
    running.cancel()
    assert made[0]() is None
