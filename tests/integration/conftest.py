"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from wharfinger.runtime.ledger import Ledger


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    """A ledger of this test's own, without any rows."""
    opened = await Ledger.open(database_url, "tests")
    yield opened
    await opened.close()
