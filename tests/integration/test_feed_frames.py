"""Pages of the feed that readers share: each reader gets what the ledger has, in pages of any size
and however many read at once, and a full page is read once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.feeds import LivingLedger, numbered

from wharfinger.runtime.ledger import FeedFilter, FeedRetiredError, Ledger
from wharfinger.runtime.ledger import feed as ledger_feed
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger_api import events, feed_frames
from wharfinger_api.events import Hub
from wharfinger_api.feed_frames import Frame

pytestmark = pytest.mark.integration

WHOLE = [FeedFilter(), FeedFilter(facts=True)]


class Counting(Database):
    """How many pages were read, and what else."""

    def __init__(self, of: Database) -> None:
        self.__dict__.update(of.__dict__)
        self.pages = self.others = 0

    @asynccontextmanager
    async def reading(self, *, patient: bool = False, repeated: bool = False) -> AsyncIterator[Raw]:
        self.pages += repeated
        self.others += not repeated
        async with super().reading(patient=patient, repeated=repeated) as raw:
            yield raw


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Positions of a page."""
    for module in (events, feed_frames):
        monkeypatch.setattr(module, "PAGE", 16)
    return 16


async def lived(ledger: Ledger, seed: int, turns: int) -> int:
    """The position of the last decision."""
    await LivingLedger(ledger, seed).live(turns)
    return await numbered(ledger)


async def direct(ledger: Ledger, wanted: FeedFilter) -> list[int]:
    """Positions of all that the filter lets through."""
    found = await ledger_feed.page(ledger.database, 0, 100_000, wanted)
    return [entry.position for entry in found.entries]


async def through(hub: Hub, wanted: FeedFilter, limits: random.Random) -> list[Frame]:
    """The whole feed, in pages of any size."""
    found: list[Frame] = []
    after = 0
    while True:
        frames, last = await hub.page(after, limits.randint(1, 60), wanted)
        assert all(after < frame.position <= last for frame in frames)
        if last == after:
            return found
        found, after = found + frames, last


@pytest.mark.parametrize("wanted", WHOLE)
async def test_readers_of_any_page_size_get_what_the_ledger_has(
    ledger: Ledger, small: int, wanted: FeedFilter
) -> None:
    living, hub = LivingLedger(ledger, 5), Hub(ledger.database)
    for turn in range(4):  # the last page is filled between the turns
        await living.live(12)
        await numbered(ledger)
        limits = [random.Random(10 * turn + n) for n in range(5)]
        read = await asyncio.gather(*(through(hub, wanted, one) for one in limits))
        expected = await direct(ledger, wanted)
        for frames in read:
            assert [frame.position for frame in frames] == expected
            assert frames == read[0]


async def test_a_full_page_is_read_once_for_all_readers(ledger: Ledger, small: int) -> None:
    head = await lived(ledger, 7, 60)
    counting = Counting(ledger.database)
    hub = Hub(counting)
    full = head // small
    assert full > 4
    read = await asyncio.gather(*(hub.page(0, full * small, WHOLE[1]) for _ in range(20)))
    assert all((len(frames), last) == (full * small, full * small) for frames, last in read)
    assert counting.pages == full


async def test_who_reads_the_end_asks_for_it_once(ledger: Ledger, small: int) -> None:
    """With its page, as before pages were shared."""
    head = await lived(ledger, 13, 40)
    counting = Counting(ledger.database)
    hub = Hub(counting)
    await through(hub, WHOLE[1], random.Random(1))
    counting.pages = counting.others = 0
    for _ in range(3):
        assert await hub.page(head, 100, WHOLE[1]) == ([], head)
    assert (counting.pages, counting.others) == (3, 0)


async def test_what_is_kept_is_bounded(
    ledger: Ledger, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_frames, "SHARED_BYTES_MAX", 20_000)
    await lived(ledger, 8, 80)
    hub = Hub(ledger.database)
    for seed in range(3):
        frames = await through(hub, WHOLE[1], random.Random(seed))
        assert [frame.position for frame in frames] == await direct(ledger, WHOLE[1])
        kept = [frame for page in hub._pages._pages.values() for frame in page]
        assert 0 < sum(len(frame.event) for frame in kept) == hub._pages._bytes <= 20_000


async def test_what_was_retired_is_refused_also_where_its_page_is_kept(
    ledger: Ledger, small: int
) -> None:
    await lived(ledger, 9, 40)
    hub = Hub(ledger.database)
    await through(hub, WHOLE[1], random.Random(1))
    async with ledger.database.reading() as raw:
        await raw.execute("update feed_head set earliest = 21")
    with pytest.raises(FeedRetiredError):
        await hub.page(19, 10, WHOLE[1])
    frames, _ = await hub.page(20, 3, WHOLE[1])
    assert [frame.position for frame in frames] == [21, 22, 23]


async def test_a_reader_that_leaves_takes_no_page_from_the_others(
    ledger: Ledger, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lived(ledger, 11, 40)
    hub = Hub(ledger.database)
    begun, goes_on, read = asyncio.Event(), asyncio.Event(), ledger_feed.page

    async def slow(*arguments: Any, **options: Any) -> Any:
        begun.set()
        await goes_on.wait()
        return await read(*arguments, **options)

    monkeypatch.setattr(ledger_feed, "page", slow)
    readers = [asyncio.ensure_future(hub.page(0, small, WHOLE[1])) for _ in range(3)]
    await begun.wait()
    readers[0].cancel()
    goes_on.set()
    others = await asyncio.gather(*readers[1:])
    assert all(len(frames) == small for frames, _ in others)
    with pytest.raises(asyncio.CancelledError):
        await readers[0]


async def test_a_page_that_could_not_be_read_is_read_again(
    ledger: Ledger, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lived(ledger, 12, 40)
    hub = Hub(ledger.database)
    read = ledger_feed.page

    async def away(*arguments: object, **options: object) -> object:
        raise OSError("the database is away")

    monkeypatch.setattr(ledger_feed, "page", away)
    with pytest.raises(OSError, match="away"):
        await hub.page(0, small, WHOLE[1])
    monkeypatch.setattr(ledger_feed, "page", read)
    frames, _ = await hub.page(0, small, WHOLE[1])
    assert len(frames) == small
