"""Wake a follower of the ledger when rows were added. A notification is only a hint: followers also
poll at intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.errors import DATABASE_ERRORS, LedgerError
from wharfinger.runtime.ledger.writer import CHANNEL, NOTHING_DECIDED
from wharfinger.runtime.logs import get_logger

_RECONNECT_S = 0.5

log = get_logger(__name__)


def _none(_payload: str) -> bool:
    return False


def _says_nothing_decided(payload: str) -> bool:
    return payload == NOTHING_DECIDED


async def of_rounds(database: Database, wakeup: asyncio.Event, decided: bool) -> None:
    """Sets `wakeup` with every commit of rounds. `decided`: of rounds with decisions."""
    known = _says_nothing_decided if decided else _none
    await notifications(database, wakeup, CHANNEL, known)


async def notifications(
    database: Database, wakeup: asyncio.Event, channel: str, known: Callable[[str], bool]
) -> None:
    """Sets `wakeup` with every commit that notifies `channel`, until cancelled. Sets it after each
    (re)connection too, because commits in between sent no notification. `known`: whether the text
    of a notification says nothing new; then it wakes no one."""
    while True:
        try:
            await _listen(database, wakeup, channel, known)
        except (LedgerError, *DATABASE_ERRORS) as error:
            log.warning("notifications.interrupted", why=str(error), retry_in_s=_RECONNECT_S)
        await asyncio.sleep(_RECONNECT_S)


async def _listen(
    database: Database, wakeup: asyncio.Event, channel: str, known: Callable[[str], bool]
) -> None:
    """Until the connection is lost."""
    raw = await database.dedicated()
    lost = asyncio.Event()

    def notified(_connection: object, _process: int, _channel: str, payload: str) -> None:
        if not known(payload):
            wakeup.set()

    try:
        raw.add_termination_listener(lambda _connection: lost.set())
        async with asyncio.timeout(database.deadlines.call_s):
            await raw.add_listener(channel, notified)
        wakeup.set()
        await lost.wait()
    finally:
        raw.terminate()
