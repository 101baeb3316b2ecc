"""Wake a follower of the ledger when rows were added. A notification is only a hint: followers also
poll at intervals."""

from __future__ import annotations

import asyncio

from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.errors import DATABASE_ERRORS, LedgerError
from wharfinger.runtime.ledger.writer import CHANNEL
from wharfinger.runtime.logs import get_logger

_RECONNECT_S = 0.5

log = get_logger(__name__)


async def notifications(database: Database, wakeup: asyncio.Event, channel: str = CHANNEL) -> None:
    """Sets `wakeup` with every commit that notifies `channel`, until cancelled. Sets it after each
    (re)connection too, because commits in between sent no notification."""
    while True:
        try:
            await _listen(database, wakeup, channel)
        except (LedgerError, *DATABASE_ERRORS) as error:
            log.warning("notifications.interrupted", why=str(error), retry_in_s=_RECONNECT_S)
        await asyncio.sleep(_RECONNECT_S)


async def _listen(database: Database, wakeup: asyncio.Event, channel: str) -> None:
    """Until the connection is lost."""
    raw = await database.dedicated()
    lost = asyncio.Event()
    try:
        raw.add_termination_listener(lambda _connection: lost.set())
        async with asyncio.timeout(database.deadlines.call_s):
            await raw.add_listener(channel, lambda *_notification: wakeup.set())
        wakeup.set()
        await lost.wait()
    finally:
        raw.terminate()
