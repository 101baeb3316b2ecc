"""Wake followers of the ledger when rows were added. A notification is only a hint: followers also
poll at intervals.

Who follows through the same `Ledger` shares a connection: the server wakes each connection that
listens with every commit, and keeps a process for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.errors import DATABASE_ERRORS, LedgerError
from wharfinger.runtime.ledger.writer import CHANNEL, NOTHING_DECIDED
from wharfinger.runtime.logs import get_logger

_RECONNECT_S = 0.5

log = get_logger(__name__)


def _none(_payload: str) -> bool:
    return False


def _says_nothing_decided(payload: str) -> bool:
    return payload == NOTHING_DECIDED


@dataclass(eq=False, slots=True)
class _Follower:
    """`follows`: whether the connection listens to its channel."""

    channel: str
    wakeup: asyncio.Event
    known: Callable[[str], bool]
    follows: bool = False


class Listener:
    """Listens to the database for its followers. It has a connection while there are any. All are
    of one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followers: list[_Follower] = []
        self._changed = asyncio.Event()
        """A follower was added, or the connection was lost."""
        self._task: asyncio.Task[None] | None = None

    async def rounds(self, wakeup: asyncio.Event, *, decided: bool = False) -> None:
        """Set `wakeup` with every commit of rounds. `decided`: of rounds with decisions."""
        await self.follow(CHANNEL, wakeup, _says_nothing_decided if decided else _none)

    async def follow(
        self, channel: str, wakeup: asyncio.Event, known: Callable[[str], bool] = _none
    ) -> None:
        """Set `wakeup` with every commit that notifies `channel`, until cancelled. It is also set
        after each (re)connection, because commits in between sent no notification. `known`: whether
        the text of a notification says nothing new; then it does not wake this follower."""
        follower = _Follower(channel, wakeup, known)
        self._followers.append(follower)
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="ledger-notifications")
        try:
            # it ends with the last follower only, or with an error that is none of the database
            await asyncio.shield(self._task)
        finally:
            self._followers.remove(follower)
            if not self._followers and self._task is not None:
                task, self._task = self._task, None
                task.cancel()
                self._changed.set()

    def _is_wanted(self) -> bool:
        """Asked by the task: a cancellation can be lost, where an error takes its place."""
        return self._task is asyncio.current_task()

    async def _run(self) -> None:
        while self._is_wanted():
            try:
                await self._listen()
            except (LedgerError, *DATABASE_ERRORS) as error:
                log.warning("notifications.interrupted", why=str(error), retry_in_s=_RECONNECT_S)
            await asyncio.sleep(_RECONNECT_S)

    async def _listen(self) -> None:
        """Until the connection is lost."""
        raw = await self._database.dedicated()
        channels: set[str] = set()
        lost = asyncio.Event()

        def end(_connection: object) -> None:
            lost.set()
            self._changed.set()

        try:
            raw.add_termination_listener(end)
            for follower in self._followers if self._is_wanted() else ():
                follower.follows = False
            while self._is_wanted() and not lost.is_set():
                self._changed.clear()
                await self._listen_to_new(raw, channels)
                await self._changed.wait()
        finally:
            raw.terminate()

    async def _listen_to_new(self, raw: Raw, channels: set[str]) -> None:
        """Listen to the channels of new followers, beside `channels`, and wake these followers."""
        for follower in [one for one in self._followers if not one.follows]:
            if follower.channel not in channels:
                async with asyncio.timeout(self._database.deadlines.call_s):
                    await raw.add_listener(follower.channel, self._notified)
                channels.add(follower.channel)
            follower.follows = True
            follower.wakeup.set()

    def _notified(self, _connection: object, _process: int, channel: str, payload: str) -> None:
        for follower in self._followers:
            if follower.follows and follower.channel == channel and not follower.known(payload):
                follower.wakeup.set()
