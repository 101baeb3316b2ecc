"""The feed on a real database, beside kills and with several appenders at once: positions are
dense, each belongs to one decision for good, and no effect is before its cause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.counter import Writer, withdrawn
from tests.feeds import LivingLedger, assert_feed, numbered, positions
from tests.patience import in_patience
from tests.query_plans import plan_nodes

from wharfinger.events.streams import INTAKE
from wharfinger.runtime.ledger import (
    CorruptLedger,
    FeedAppender,
    FeedFilter,
    FeedRetiredError,
    GivenRows,
    Ledger,
    Transient,
)
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.decision_rows import Days
from wharfinger.runtime.ledger.feed import PAGE, UnsentRows, unsent
from wharfinger.runtime.ledger.feed_order import RUN_MAX

pytestmark = pytest.mark.integration

ALL = FeedFilter(facts=True)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_history_is_numbered_as_it_comes(ledger: Ledger, seed: int) -> None:
    await _numbered_as_it_comes(LivingLedger(ledger, seed))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_what_comes_a_few_at_a_time_is_handed_over_as_readers_get_it(
    ledger: Ledger, seed: int
) -> None:
    """Where the streams have one clock, as those of a plane do."""
    await ledger.read_clock()
    plane = LivingLedger(ledger, seed, (0, 1, 700), ledger.clock())
    assert 4 < await _numbered_as_it_comes(plane) < 10


async def _numbered_as_it_comes(plane: LivingLedger) -> int:
    """Return how often rows were handed over."""
    ledger = plane.ledger
    appender = FeedAppender(ledger.database)
    await appender.begin()
    handed = 0
    for turn in range(12):
        await plane.live(5)
        if turn in (4, 5, 9):  # more than the appender takes for a few
            await plane.accept(70)
        before = await positions(ledger)
        count = await appender.append()
        if (given := appender.given) is not None:
            assert given.last - given.first + 1 == count
            await _assert_given(ledger, given)
            handed += 1
        after = await positions(ledger)
        assert after.items() >= before.items(), "a decision got another position"
    await assert_feed(ledger)
    assert await appender.append() == 0
    assert appender.given is None
    return handed


async def _assert_given(ledger: Ledger, given: GivenRows) -> None:
    """What is handed over is what a reader of the feed gets."""
    page = await ledger.feed_page(given.first - 1, given.last - given.first + 1, ALL)
    handed = UnsentRows.given([given])
    assert handed.through == given.last
    for entry, row in zip(page.entries, handed.rows, strict=True):
        assert row == entry.row
        assert handed.places.of(row.stream, row.seq) == (entry.position, entry.correlation)
    async with ledger.database.reading() as raw:
        found = await raw.fetch(
            "select s.name, r.number, r.hash from round r join stream s on s.id = r.stream"
        )
    hashes = {(name, number): hash_ for name, number, hash_ in found}
    assert handed.hashes.items() <= hashes.items()


@pytest.mark.parametrize("page", [1, 3, 50])
async def test_an_old_ledger_is_numbered_once_by_time_and_causes(ledger: Ledger, page: int) -> None:
    """In parts of any size; the parts of a stream that were read wait for what they were caused
    by."""
    await LivingLedger(ledger, 7).live(60)
    given = await numbered(ledger, page)
    feed = await assert_feed(ledger)
    assert len(feed) == given
    assert await numbered(ledger) == 0
    assert await positions(ledger) == feed


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_what_is_unsent_is_the_same_in_one_statement_and_in_three(
    ledger: Ledger, seed: int
) -> None:
    """For a reader that comes again and again, over days, while only some rows have positions."""
    plane, appender = LivingLedger(ledger, seed), FeedAppender(ledger.database)
    await appender.begin()
    kept, cursors = Days(), dict[str, int]()
    compared = 0
    for _ in range(40):
        await plane.live(plane.random.choice([1, 4]))
        if plane.random.random() < 0.1:
            await plane.accept(70)
        if plane.random.random() < 0.7:
            await appender.append()
        limit = plane.random.choice([2, 10, 1000])
        compared += kept.few
        found = await unsent(ledger.database, cursors, limit, kept)
        in_three = Days()
        in_three.few = False
        expected = await unsent(ledger.database, cursors, limit, in_three)
        assert _placed(found) == _placed(expected)
        assert (found.through, found.hashes) == (expected.through, expected.hashes)
        for row in found.rows[: plane.random.randint(0, len(found.rows))]:
            cursors[row.stream] = max(row.seq, cursors.get(row.stream, 0))
    assert 10 < compared < 40


def _placed(found: UnsentRows) -> list[object]:
    rows = sorted(found.rows, key=lambda row: (row.stream, row.seq))
    return [(row, found.places.of(row.stream, row.seq)) for row in rows]


async def test_two_appenders_at_once_give_each_position_once(
    ledger: Ledger, database_url: str
) -> None:
    """As a publisher that was frozen while another one took over, again and again."""
    plane = LivingLedger(ledger, 11)
    others = [await Ledger.open(database_url, f"tests-{n}") for n in range(2)]
    stop = asyncio.Event()

    async def append(other: Ledger) -> int:
        appender, given = FeedAppender(other.database), 0
        await appender.begin()
        while True:
            one = await appender.append()
            given += one
            if not one and stop.is_set():
                return given
            await asyncio.sleep(0)

    try:
        tasks = [asyncio.create_task(append(other)) for other in others]
        await plane.live(80)
        stop.set()
        given = await in_patience(asyncio.gather(*tasks))
    finally:
        for other in others:
            await other.close()
    assert sum(given) == len(await assert_feed(ledger))


class Cut(Database):
    """A database whose connection breaks at the `at`th statement from now: before it arrives, or
    after it was executed and before its answer arrives."""

    def __init__(self, of: Database, at: int, *, executed: bool) -> None:
        self.__dict__.update(of.__dict__)
        self.left = at
        self.executed = executed

    @asynccontextmanager
    async def reading(self, *, patient: bool = False, repeated: bool = False) -> AsyncIterator[Raw]:
        async with super().reading(patient=patient, repeated=repeated) as raw:
            yield _CutRaw(raw, self)


class _CutRaw:
    def __init__(self, raw: Raw, database: Cut) -> None:
        self._raw = raw
        self._database = database

    def __getattr__(self, name: str) -> Any:
        async def call(*args: object) -> object:
            self._database.left -= 1
            if self._database.left:
                return await getattr(self._raw, name)(*args)
            if self._database.executed:
                await getattr(self._raw, name)(*args)
            raise Transient("the connection was cut")

        return call


def _cuts() -> Iterator[tuple[int, bool]]:
    for at in range(1, 25):
        yield at, False
        yield at, True


@pytest.mark.parametrize("restart", [True, False], ids=["killed", "goes on"])
async def test_a_kill_at_any_statement_changes_no_position(ledger: Ledger, restart: bool) -> None:
    plane = LivingLedger(ledger, 5)
    reached = 0
    for at, executed in _cuts():
        await plane.live(2)
        before = await positions(ledger)
        cut = Cut(ledger.database, at, executed=executed)
        appender = FeedAppender(cut, page=2)
        try:
            await appender.begin()
            while await appender.append():
                pass
        except Transient:
            reached += 1
        assert (await positions(ledger)).items() >= before.items()
        await assert_feed(ledger, whole=False)
        if restart:
            await numbered(ledger)
        else:
            cut.left = 10**6
            while await appender.append():
                pass
        await assert_feed(ledger)
    assert reached > 10


async def test_a_decision_that_is_missing_stops_the_feed_before_it(ledger: Ledger) -> None:
    plane = LivingLedger(ledger, 3)
    await plane.live(30)
    async with ledger.database.reading() as raw:
        await raw.execute(
            "delete from decision where seq = 2 "
            "and stream = (select id from stream where name = 'fleet/0')"
        )
    with pytest.raises(CorruptLedger, match=r"fleet/0.*decision 2: missing"):
        await numbered(ledger)
    assert (await ledger.feed_head()).position == 0


# --- reading -------------------------------------------------------------------------------------


async def test_a_reader_goes_through_all_of_it_in_pages_of_any_size(ledger: Ledger) -> None:
    await LivingLedger(ledger, 13).live(40)
    await numbered(ledger)
    feed = await assert_feed(ledger)
    for limit in (1, 7, 1000):
        after = 0
        seen: dict[int, tuple[str, int]] = {}
        while True:
            page = await ledger.feed_page(after, limit, FeedFilter(facts=True))
            assert page.head.position == len(feed)
            assert len(page.entries) <= limit
            seen |= {e.position: (e.row.stream, e.row.seq) for e in page.entries}
            if page.through == after:
                break
            after = page.through
        assert seen == feed
        assert list(seen) == sorted(seen)


async def test_a_filter_hides_and_the_cursor_moves_over_it(ledger: Ledger) -> None:
    await LivingLedger(ledger, 17).live(60)
    await numbered(ledger)
    feed = await assert_feed(ledger)
    everything = (await ledger.feed_page(0, 10_000, FeedFilter(facts=True))).entries
    for wanted in (
        FeedFilter(),
        FeedFilter(types=("binding.released",)),
        FeedFilter(types=("io.wharfinger.failover.resumed.v1", "binding.withdrawn"), facts=True),
        FeedFilter(bindings=("shop/b1", "shop/b2")),
        FeedFilter(namespaces=("shop",)),
        FeedFilter(streams=("cluster/a",)),
        FeedFilter(clusters=("b",)),
        FeedFilter(outcomes=("resumed",)),
        FeedFilter(namespaces=("absent",)),
    ):
        expected = [e.position for e in everything if _matches(e.row, wanted)]
        after, found = 0, []
        while after < len(feed):
            page = await ledger.feed_page(after, 3, wanted, scan_max=10)
            found += [entry.position for entry in page.entries]
            assert page.through > after
            after = page.through
        assert found == expected, wanted
        assert bool(expected) is (wanted.namespaces != ("absent",))


def _matches(row: Any, wanted: FeedFilter) -> bool:
    type_ = (row.accepted.type if row.accepted else row.type).removeprefix("io.wharfinger.")
    types = {t.removeprefix("io.wharfinger.").removesuffix(".v1") for t in wanted.types}
    return (
        (wanted.facts or row.stream != INTAKE)
        and (not types or type_.removesuffix(".v1") in types)
        and (not wanted.bindings or row.subject in wanted.bindings)
        and (not wanted.namespaces or row.subject.startswith(f"{wanted.namespaces[0]}/"))
        and (not wanted.streams or row.stream in wanted.streams)
        and (not wanted.clusters or row.stream == f"cluster/{wanted.clusters[0]}")
        and (not wanted.outcomes or row.outcome in wanted.outcomes)
    )


def test_a_filter_has_one_digest_in_any_order() -> None:
    one, other = FeedFilter(types=("a", "b")), FeedFilter(types=("b", "a"))
    assert one.digest() == other.digest()
    assert len({FeedFilter().digest(), one.digest(), FeedFilter(streams=("a", "b")).digest()}) == 3


async def test_who_waits_is_woken_when_positions_are_given(ledger: Ledger) -> None:
    plane, wakeup = LivingLedger(ledger, 19), asyncio.Event()
    listening = asyncio.create_task(ledger.feed_news(wakeup))
    try:
        await in_patience(wakeup.wait())  # the connection stands
        wakeup.clear()
        await plane.live(3)
        await numbered(ledger)
        await in_patience(wakeup.wait())
    finally:
        listening.cancel()
    assert (await ledger.feed_head()).position


async def test_a_long_run_is_read_from_its_middle(ledger: Ledger) -> None:
    await ledger.ensure_streams(["fleet/0"])
    writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
    round_ = writer.step([withdrawn(n) for n in range(2 * RUN_MAX)])
    await ledger.commit([round_], writer.events)
    await numbered(ledger)
    for after in (0, RUN_MAX - 1, RUN_MAX, RUN_MAX + 1, 2 * RUN_MAX):
        page = await ledger.feed_page(after, 2)
        assert [entry.row.seq for entry in page.entries] == [after + 1, after + 2]
    rows = [row async for row in ledger.decisions(_all())]
    places = await ledger.feed_places(rows[RUN_MAX - 3 : RUN_MAX + 3])
    for row in rows[RUN_MAX - 3 : RUN_MAX + 3]:
        place = places.of(row.stream, row.seq)
        assert place is not None
        assert place[0] == row.seq


def _all() -> Any:
    from wharfinger.runtime.ledger import DecisionQuery

    return DecisionQuery()


async def test_a_page_reads_what_it_gives_however_many_rounds_and_decisions_there_are(
    ledger: Ledger,
) -> None:
    """By statistics that were made before most rounds came, and by those of now."""
    plane = LivingLedger(ledger, 3)
    await plane.live(20)
    async with ledger.database.reading() as raw:
        await raw.execute("analyze")
    await plane.live(200)
    head = await numbered(ledger)
    for analyzed in (False, True):
        if analyzed:
            async with ledger.database.reading() as raw:
                await raw.execute("analyze")
        async with ledger.database.reading(repeated=True) as raw:
            explained = await raw.fetch(
                f"explain (analyze, format json) {PAGE} order by 1 limit 50", head - 60, head
            )
        for node in plan_nodes(explained):
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            rows += node.get("Rows Removed by Join Filter", 0)
            assert rows * node["Actual Loops"] < 1000, node


async def test_a_position_before_the_horizon_is_refused_with_the_earliest(ledger: Ledger) -> None:
    await LivingLedger(ledger, 23).live(10)
    await numbered(ledger)
    async with ledger.database.reading() as raw:
        await raw.execute("update feed_head set earliest = 5")
    with pytest.raises(FeedRetiredError, match=r"position 4 .* earliest is 5") as caught:
        await ledger.feed_page(3, 10)
    assert caught.value.earliest == 5
    assert (await ledger.feed_page(4, 1, FeedFilter(facts=True))).entries[0].position == 5
