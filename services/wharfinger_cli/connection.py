"""How a command reaches its plane: the database, then the ledger; and how it runs asynchronous work
to its end."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol, TypeVar

from wharfinger.events.origin import Origin
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
            "history, lineage, explain, status, apply, delete, scale, drain, undrain, import, "
            "generate, plan and audit access"
        )
    found = reach_of(request.data_dir)
    if found.database is None:
        raise CommandError(
            f"no plane is up in {found.data_dir}: start one with `wharfinger up`, "
            f"or set {ENV_PREFIX}DATABASE"
        )
    return replace(found, reason=request.reason, revision=request.revision)


def system_user(reason: str = "", revision: str = "") -> Origin:
    """Who runs this command, as the operating system knows them: the environment cannot say
    otherwise. CommandError: a text that cannot be recorded."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user without a name
        name = str(uid)
    try:
        return Origin("user", f"unix:{name}", reason, revision)
    except ValueError as error:
        raise CommandError(f"--{error}") from None


@asynccontextmanager
async def opened_ledger(at: Reached) -> AsyncIterator[Ledger]:
    """LedgerError: one line that says why there is none."""
    why = (at.reason, at.revision) if isinstance(at, Reach) else ()
    ledger = await Ledger.open(
        at.database or "", APPLICATION, deadlines=at.deadlines(), origin=system_user(*why)
    )
    try:
        yield ledger
    finally:
        await ledger.close()
