"""How a command reaches its plane: settings, then the ledger; and how it runs asynchronous work to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.settings import ENV_PREFIX, Settings, load_settings
from wharfinger_cli.app import Request
from wharfinger_cli.failures import CommandError

T = TypeVar("T")

APPLICATION = "wharfinger-cli"


def run(work: Coroutine[object, object, T]) -> T:
    return asyncio.run(work)


def settings_of(request: Request) -> Settings:
    """The settings with a database named, by the environment or by the plane that is up. CommandError: by neither."""
    settings = load_settings(request.flags)
    if settings.database is None:
        raise CommandError(
            f"no plane is up in {settings.data_dir}: start one with `wharfinger up`, or set {ENV_PREFIX}DATABASE"
        )
    return settings


@asynccontextmanager
async def opened_ledger(settings: Settings) -> AsyncIterator[Ledger]:
    """LedgerError: one line that says why there is none."""
    ledger = await Ledger.open(settings.database or "", APPLICATION)
    try:
        yield ledger
    finally:
        await ledger.close()
