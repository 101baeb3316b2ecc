"""A held loop decides nothing until its broadcast facts are there; a full mailbox must not keep
them out.

After a loss of the broker every binding is on the topic again, so the mailbox fills while the loop
is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from tests.counter import Counter
from tests.patience import in_patience

from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.ticks import Ticked
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.stage_loop import StageLoop

MAILBOX_MAX = 10


class OneGroup:
    prefix = "counter/"

    def group_of(self, stream: str) -> int:
        return 0

    def permanent_streams(self, group: int) -> Sequence[str]:
        return ("counter/0",)

    def addressed(self, message: Message) -> Sequence[str] | None:
        return None


def messages(topic: str, count: int) -> list[Message]:
    return [
        Message(
            topic,
            0,
            offset,
            made(
                Ticked("counter/0", offset), id=derived_id(topic, offset), source="/t", subject=""
            ),
        )
        for offset in range(count)
    ]


async def blocked(task: asyncio.Task[None]) -> bool:
    """It has begun and does not end, however often the loop turns."""
    for _ in range(100):
        await asyncio.sleep(0)
    return not task.done()


async def test_the_facts_a_loop_is_held_for_pass_a_full_mailbox() -> None:
    loop = StageLoop(
        "counter",
        Counter(),
        OneGroup(),
        cast(Ledger, None),
        {},
        lambda: 0,
        METRICS.of("held-mailbox"),
        mailbox_max=MAILBOX_MAX,
    )
    loop.hold(True)
    loop.expect([0])
    readers = asyncio.create_task(loop.offer(messages("bindings", MAILBOX_MAX)))
    try:
        assert await blocked(readers)
        await in_patience(loop.offer_facts(messages("clusters", MAILBOX_MAX)))
        assert loop.backlog() == 2 * MAILBOX_MAX

        loop.hold(False)  # from now on the mailbox drains, and everybody waits for room in it
        late = asyncio.create_task(loop.offer_facts(messages("capacity", 1)))
        assert await blocked(late)
        late.cancel()
    finally:
        readers.cancel()
