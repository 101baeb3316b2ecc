"""How often a token is looked up, and who waits for that."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest
from tests.patience import eventually

from wharfinger.runtime.ledger import LedgerUnavailable
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.tokens import PREFIX, Token
from wharfinger_api import identities as module
from wharfinger_api.access import Principal
from wharfinger_api.identities import AGAIN_S, KNOWN_S, Credential, Identities

SECRET = f"{PREFIX}secret"
TOKEN = Token(UUID(int=1), "someone", ("viewer",), made_by="tests")


class Tokens:
    """The table of tokens with one in it, and a clock. `open`: lookups are answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.token: Token | None = TOKEN
        self.lookups = 0
        self.away = False
        self.now_s = 100.0
        self.open = asyncio.Event()
        self.open.set()
        monkeypatch.setattr(module, "valid_token", self._valid)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.identities = Identities(cast(Database, None))

    async def _valid(self, database: Database, secret: str) -> Token | None:
        assert secret == SECRET
        self.lookups += 1
        found, away = self.token, self.away
        await self.open.wait()
        if away:
            raise LedgerUnavailable("away")
        return found

    async def of(self) -> Principal | None:
        return await self.identities.of(Credential(f"Bearer {SECRET}"))


@pytest.fixture
async def tokens(monkeypatch: pytest.MonkeyPatch) -> Tokens:
    return Tokens(monkeypatch)


async def test_requests_that_come_at_once_share_a_lookup(tokens: Tokens) -> None:
    tokens.open.clear()
    asking = [asyncio.create_task(tokens.of()) for _ in range(20)]
    await eventually(lambda: tokens.lookups)
    late = asyncio.create_task(tokens.of())
    await asyncio.sleep(0)
    tokens.open.set()
    found = await asyncio.gather(*asking, late)
    assert tokens.lookups == 1
    assert all(one == found[0] and one is not None for one in found)


async def test_one_that_gives_up_ends_no_lookup_of_others(tokens: Tokens) -> None:
    tokens.open.clear()
    first, second = (asyncio.create_task(tokens.of()) for _ in range(2))
    await eventually(lambda: tokens.lookups)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    tokens.open.set()
    assert await second is not None
    assert tokens.lookups == 1


async def test_one_that_is_used_is_asked_for_again_and_none_waits(tokens: Tokens) -> None:
    assert await tokens.of() is not None
    tokens.now_s += AGAIN_S / 2
    assert await tokens.of() is not None
    assert tokens.lookups == 1
    tokens.now_s += AGAIN_S / 2
    tokens.open.clear()
    for _ in range(5):
        assert await tokens.of() is not None
    await eventually(lambda: tokens.lookups > 1)
    tokens.open.set()
    assert tokens.lookups == 2


async def test_a_revoked_token_is_refused_in_time(tokens: Tokens) -> None:
    """After `KNOWN_S`, also while lookups are under way that began before."""
    assert await tokens.of() is not None
    tokens.now_s += AGAIN_S
    tokens.open.clear()
    assert await tokens.of() is not None  # by a lookup that began before, as the next one
    await eventually(lambda: tokens.lookups == 2)
    tokens.token = None
    tokens.now_s += KNOWN_S
    late = asyncio.create_task(tokens.of())
    await eventually(lambda: tokens.lookups == 3)
    tokens.open.set()
    assert await late is None
    assert await tokens.of() is None


async def test_one_that_was_revoked_here_is_refused_at_once(tokens: Tokens) -> None:
    tokens.open.clear()
    before = asyncio.create_task(tokens.of())
    await eventually(lambda: tokens.lookups == 1)
    tokens.token = None
    tokens.identities.forget()
    tokens.open.set()
    assert await tokens.of() is None
    await before
    assert await tokens.of() is None


async def test_a_lookup_that_fails_says_so_to_all_and_is_made_again(tokens: Tokens) -> None:
    tokens.away = True
    found = await asyncio.gather(*(tokens.of() for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == 3 * [LedgerUnavailable]
    assert tokens.lookups == 1
    tokens.away = False
    assert await tokens.of() is not None


async def test_a_token_that_is_known_outlives_a_lookup_that_fails(tokens: Tokens) -> None:
    """Until it is not known any more."""
    assert await tokens.of() is not None
    tokens.away = True
    tokens.now_s += AGAIN_S
    assert await tokens.of() is not None
    await eventually(lambda: tokens.lookups == 2)
    assert await tokens.of() is not None
    tokens.now_s += KNOWN_S
    with pytest.raises(LedgerUnavailable):
        await tokens.of()
