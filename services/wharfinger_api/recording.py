"""Writes who asked for what to the access records (`runtime.ledger.access`).

What is allowed to write, or to read what belongs to others, is recorded before it is carried out:
without a record it does not happen. What is refused is recorded after its answer, which does not
wait for it. So that refusals cannot fill the disk, an actor has `REFUSALS_MAX` records of one kind
in `WINDOW_S`; the rest of them is one record with a count. Everything that waits is appended in one
transaction.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from wharfinger.runtime.ledger import LedgerError
from wharfinger.runtime.ledger.access import Access, record_access
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.tokens import PREFIX
from wharfinger.runtime.logs import get_logger
from wharfinger_api.access import Principal

REFUSALS_MAX = 10
WINDOW_S = 60.0
BATCH_MAX = 1000
WAITING_MAX = 10_000
"""Refusals that wait for the database at most. Beyond it they are counted with the last one."""

AGAIN_S = 1.0
ANONYMOUS = "unauthenticated"

log = get_logger(__name__)

_SECRET = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]+")
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*){1,2}")


@dataclass(slots=True)
class _Waiting:
    access: Access
    done: asyncio.Future[None] | None = None


@dataclass(slots=True)
class _Window:
    """`last`: the newest refusal that has no record, `held` how many there are of these."""

    recorded: int = 0
    held: int = 0
    last: Access | None = None


class AccessRecorder:
    """For one event loop. `window_s`: how long refusals of a kind are counted together."""

    def __init__(self, database: Database, window_s: float = WINDOW_S) -> None:
        self._database = database
        self._window_s = window_s
        self._waiting: deque[_Waiting] = deque()
        self._windows: dict[tuple[str, str], _Window] = {}
        self._task: asyncio.Task[None] | None = None

    async def allowed(self, access: Access) -> None:
        """Returns when the record is durable. LedgerError: there is none, so the caller must not go
        on."""
        done = asyncio.get_running_loop().create_future()
        self._append(_Waiting(_without_secrets(access), done))
        await done

    def refused(self, access: Access, kind: str) -> None:
        """`kind`: refusals of one actor are counted by it; few different ones."""
        access = _without_secrets(access)
        key = access.actor, kind
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window()
            asyncio.get_running_loop().call_later(self._window_s, self._closed, key)
        if window.recorded < REFUSALS_MAX and len(self._waiting) < WAITING_MAX:
            window.recorded += 1
            self._append(_Waiting(access))
        else:
            window.held += 1
            window.last = access

    def _closed(self, key: tuple[str, str]) -> None:
        window = self._windows.pop(key, None)
        if window is not None and window.last is not None:
            counted = msgspec.structs.replace(window.last, count=window.held)
            self._append(_Waiting(counted))

    def _append(self, one: _Waiting) -> None:
        self._waiting.append(one)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write(), name="access records")

    async def _write(self) -> None:
        """Until none is waiting."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
            try:
                await record_access(self._database, [one.access for one in batch])
            except Exception as error:
                self._failed(batch, error)
                await asyncio.sleep(AGAIN_S)
            else:
                for one in batch:
                    if one.done is not None and not one.done.done():
                        one.done.set_result(None)

    def _failed(self, batch: Sequence[_Waiting], error: Exception) -> None:
        """Requests that wait fail with it; refusals are tried again."""
        log.warning("access.not_recorded", records=len(batch), reason=str(error))
        for one in batch:
            if one.done is not None and not one.done.done():
                one.done.set_exception(error)
        self._waiting.extendleft(reversed([one for one in batch if one.done is None]))

    async def stop(self, patience_s: float = 5.0) -> None:
        """What was refused so far is recorded, if the database answers in time."""
        for key in list(self._windows):
            self._closed(key)
        if self._task is not None:
            with suppress(TimeoutError, LedgerError):
                await asyncio.wait_for(self._task, patience_s)


def actor_of(principal: Principal | None) -> str:
    return ANONYMOUS if principal is None else principal.name


def _without_secrets(access: Access) -> Access:
    """A client may write a token where a name belongs."""

    def clean(text: str) -> str:
        return _JWT.sub("eyJ...", _SECRET.sub(f"{PREFIX}...", text))

    return msgspec.structs.replace(
        access, target=clean(access.target), reason=clean(access.reason), actor=clean(access.actor)
    )
