"""The loop that gives decisions their positions in the feed, while the relay sends them.

It has a lock of its own and never waits for Kafka: while the broker is away, decisions get their
positions and are read over HTTP. The relay sends what has a position; each append wakes it.

There is one exception. After a ledger went back, the topics hold facts that the intake has lost,
and stages decide on them. Nothing gets a position until these facts are accepted again. Otherwise
effects would have positions before their causes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from wharfinger.runtime.ledger import (
    CorruptLedger,
    FeedAppender,
    GivenRows,
    Ledger,
    PartitionLock,
    Transient,
)
from wharfinger.runtime.logs import get_logger

LOCK = "feed"
AGAIN_S = 0.2
CORRUPT_AGAIN_S = 5.0

BUSY_AT = 64
"""So many decisions in one turn are load: what comes within moments is taken together, which makes
longer runs."""
GATHER_S = 0.01

POLL_S = 2.0
"""The safety net under notifications, which are hints."""

log = get_logger()


class FeedLoop:
    """`trouble`: why nothing can be appended. `facts_lost`: whether the ledger went back and its
    facts are not accepted again yet. `appended`: called when positions were given, with the
    rows, where they are at hand; and when this loop ceases to give any."""

    def __init__(
        self,
        ledger: Ledger,
        facts_lost: Callable[[], Awaitable[object]],
        appended: Callable[[GivenRows | None], None],
    ) -> None:
        self._ledger = ledger
        self._appended = appended
        self._facts_lost = facts_lost
        self._appender = FeedAppender(ledger.database)
        self.wakeup = asyncio.Event()
        self.leading = False
        self.trouble = ""

    async def run(self) -> None:
        """Until cancelled."""
        pause = 0.05
        while True:
            try:
                async with self._ledger.holding(LOCK, "feed") as lock:
                    try:
                        await self._append_while(lock)
                    finally:
                        self.leading = False
                        # what was given without an answer, or by others meanwhile
                        self._appended(None)
                pause = AGAIN_S
            except Transient as error:
                log.warning("feed.waits", why=str(error), retry_in_s=pause)
            except CorruptLedger as error:
                # Nothing behind the missing decision has a place: no reader may conclude otherwise.
                self.trouble = str(error)
                log.error("feed.stands", why=self.trouble)
                pause = CORRUPT_AGAIN_S
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)

    async def _append_while(self, lock: PartitionLock) -> None:
        while not lock.lost and not self.leading:
            if await self._facts_lost():
                await asyncio.sleep(AGAIN_S)
            else:
                await self._appender.begin()
                self.leading = True
        while not lock.lost:
            # who commits after the look that follows sets it again
            self.wakeup.clear()
            given = await self._appender.append()
            self.trouble = ""
            if given:
                self._appended(self._appender.given)
            if given >= BUSY_AT:
                await asyncio.sleep(GATHER_S)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self.wakeup.wait()
