"""How a command reaches its plane: the database, then the ledger; and how it runs asynchronous work
to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from wharfinger.runtime.database_location import Reach, reach_of
from wharfinger.runtime.deadlines import Deadlines
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.plane import ENV_PREFIX
from wharfinger_cli.failures import CommandError
from wharfinger_cli.request import Request

T = TypeVar("T")

APPLICATION = "wharfinger-cli"


def run(work: Coroutine[object, object, T]) -> T:
    return asyncio.run(work)


class Reached(Protocol):
    """What says how the database is reached: a `Reach`, or all settings."""

    @property
    def database(self) -> str | None: ...

    def deadlines(self) -> Deadlines: ...


def reached(request: Request) -> Reach:
    """With a database named, by the environment or by the plane that is up. CommandError: by
    neither, or a server is to be asked instead."""
    if request.server:
        raise CommandError(
            "--server: this command needs the database; over a server there are get, decisions, "
            "history, lineage and explain"
        )
    found = reach_of(request.data_dir)
    if found.database is None:
        raise CommandError(
            f"no plane is up in {found.data_dir}: start one with `wharfinger up`, "
            f"or set {ENV_PREFIX}DATABASE"
        )
    return found


@asynccontextmanager
async def opened_ledger(at: Reached) -> AsyncIterator[Ledger]:
    """LedgerError: one line that says why there is none."""
    ledger = await Ledger.open(at.database or "", APPLICATION, deadlines=at.deadlines())
    try:
        yield ledger
    finally:
        await ledger.close()
