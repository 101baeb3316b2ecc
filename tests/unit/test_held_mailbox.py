"""A held loop decides nothing until its broadcast facts are there; a full mailbox must not keep them out.

After a loss of the broker every binding is on the topic again, so the mailbox fills while the loop is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from tests.counter import Counter

from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.ticks import Ticked
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.stage_loop import Message, StageLoop

MAILBOX_MAX = 10


class OneGroup:
    prefix = "counter/"

    def group_of(self, stream: str) -> int:
        return 0

    def standing(self, group: int) -> Sequence[str]:
        return ("counter/0",)

    def addressed(self, message: Message) -> Sequence[str] | None:
        return None


def messages(topic: str, count: int) -> list[Message]:
    return [
        Message(
            topic, 0, offset, made(Ticked("counter/0", offset), id=derived_id(topic, offset), source="/t", subject="")
        )
        for offset in range(count)
    ]


async def test_the_facts_a_loop_is_held_for_pass_a_full_mailbox() -> None:
    loop = StageLoop(
        "counter", Counter(), OneGroup(), cast(Ledger, None), {}, lambda: 0, METRICS.of("held-mailbox"),
        mailbox_max=MAILBOX_MAX,
    )  # fmt: skip
    loop.hold(True)
    loop.expect([0])
    readers = asyncio.create_task(loop.offer(messages("bindings", MAILBOX_MAX)))
    try:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(readers), 0.05)
        await asyncio.wait_for(loop.offer_facts(messages("clusters", MAILBOX_MAX)), 1)
        assert loop.backlog() == 2 * MAILBOX_MAX

        loop.hold(False)  # from now on the mailbox drains, and everybody waits for room in it
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.offer_facts(messages("capacity", 1)), 0.05)
    finally:
        readers.cancel()
