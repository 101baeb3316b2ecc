"""A database that goes back: it is noticed, nothing is lost that anybody still has, and no id
stands for two decisions."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
from tests.apps import a_context, running, standing_on, until
from tests.backends import fresh_database
from tests.counter import Counter, withdrawn
from tests.loops import a_stage, causes

from wharfinger.events.codec import decode, frame_of
from wharfinger.events.decisions import LedgerWentBack
from wharfinger.events.streams import ASSIGNMENTS, BINDINGS, DECISIONS, INTAKE, TIMELINE, TOPICS
from wharfinger.history.topic_check import check_topic
from wharfinger.kernel.audit import Audit
from wharfinger.kernel.step import empty_head
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger, LedgerWentBackError, Submission, audit_verify
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.timeline import ensure_not_behind, read_timeline, reconciled
from wharfinger_publisher.app import PublisherService

pytestmark = pytest.mark.integration

SHARDS = 2


@asynccontextmanager
async def a_plane(backend: Backend, url: str, prefix: str) -> AsyncIterator[ServiceContext]:
    """As a process starts: the ledger is compared with its timeline before anything runs."""
    ledger = await Ledger.open(url, "tests-went-back")
    try:
        found = await ledger.incarnation([topic.name for topic in TOPICS], [], backend.boot_id)
        context = await a_context(backend, ledger, prefix, fleet_shards=SHARDS)
        context = dataclasses.replace(
            context, incarnations=found, went_back=await reconciled(ledger, backend, context.wire)
        )
        async with running(a_stage(context), PublisherService(context)):
            yield context
    finally:
        await ledger.close()


async def accept(ledger: Ledger, numbers: Iterable[int]) -> None:
    events = [withdrawn(n, f"binding-{n % 40}") for n in numbers]
    await ledger.accept(
        [Submission(e, BINDINGS.name, f"{e.subject}/{e.id}", e.subject) for e in events]
    )


async def all_out(context: ServiceContext, count: int) -> bool:
    """So many bindings were decided, and everything is published."""
    if len(await causes(context.ledger)) < count:
        return False
    heads = {head.stream: head.seq for head in await context.ledger.heads()}
    seqs = (await context.ledger.cursors("publisher", context.life)).seqs
    return all(seqs.get(s, 0) >= seq for s, seq in heads.items())


async def replayed(ledger: Ledger) -> int:
    """How many rounds were decided again; every one must come out as recorded."""
    rounds = 0
    for head in await ledger.heads("fleet/"):
        decider = Counter()
        audit = Audit(
            decider, decider.initial(head.stream), empty_head(head.stream), Counter.of_profile
        )
        async for recorded in ledger.recorded_rounds(head.stream):
            audit.replay(recorded)
        assert audit.result.divergences == []
        rounds += audit.result.rounds
    return rounds


async def test_a_restored_backup_goes_on_without_a_contradiction(
    backend: Backend, migrated_database: str, topic_prefix: str
) -> None:
    ids = {n: str(withdrawn(n).id) for n in range(70)}
    with fresh_database(backend.database_url, template=migrated_database) as url:
        async with a_plane(backend, url, topic_prefix) as context:
            assert context.went_back == ()
            await accept(context.ledger, range(20))
            await until(lambda: all_out(context, 20))
        # The backup: the files of the database as they are now.
        with fresh_database(
            backend.database_url, template=url.split("?")[0].rsplit("/", 1)[1]
        ) as backup:
            async with a_plane(backend, url, topic_prefix) as context:
                await accept(context.ledger, range(20, 50))
                await until(lambda: all_out(context, 50))
                assert await replayed(context.ledger) > 0
                first = {r.value for r in await standing_on(context, DECISIONS)}
            async with a_plane(backend, backup, topic_prefix) as context:
                ledger = context.ledger
                assert [one.data.incarnation for one in context.went_back] == [2]
                assert set(context.went_back[0].data.published) == {"fleet/0", "fleet/1", INTAKE}
                await until(lambda: all_out(context, 50))
                await accept(ledger, range(50, 70))
                await until(lambda: all_out(context, 70))
                # Everything that had been accepted was decided, each event once, and the intake
                # knows it again.
                assert sorted(await causes(ledger)) == sorted(ids.values())
                known = await ledger.known({INTAKE: [withdrawn(n).id for n in ids]})
                assert {str(id_) for id_ in known[INTAKE]} == set(ids.values())
                # On the topic no id stands for two decisions; what was lost stays there, in the
                # first incarnation.
                records = await standing_on(context, DECISIONS)
                values = [record.value or b"" for record in records]
                assert (
                    len({frame_of(value).id for value in values}) == len(set(values)) == len(values)
                )
                assert first <= set(values)
                assert {frame_of(value).incarnation for value in values} == {"", "2"}
                told = [
                    data
                    for value in values
                    if isinstance(data := decode(value).data, LedgerWentBack)
                ]
                assert told == [context.went_back[0].data]
                result = await check_topic(ledger, backend, topic_prefix)
                assert result.first_bad is None
                assert (result.covered, result.waiting) == (result.decisions, 0)
                assert result.lost == sum(
                    seq - told[0].kept[stream]
                    for stream, seq in told[0].published.items()
                    if stream != INTAKE
                )
                verified = await audit_verify(ledger)
                assert verified.first_bad is None
                assert [one.data.incarnation for one in verified.went_back] == [2]
                assert await replayed(ledger) > 0
                noted = await read_timeline(backend, context.wire)
                assert {one.incarnation for one in noted.values()} == {2}
            # Started once more it is the same ledger; and the one that was replaced is the one that
            # is behind now.
            async with a_plane(backend, backup, topic_prefix) as context:
                assert [one.data.incarnation for one in context.went_back] == [2]
            async with a_plane(backend, url, topic_prefix) as context:
                assert [one.data.incarnation for one in context.went_back] == [3]
                await until(lambda: all_out(context, 70))
                assert (await audit_verify(context.ledger)).ok
                values = [record.value or b"" for record in await standing_on(context, DECISIONS)]
                assert len({frame_of(value).id for value in values}) == len(set(values))


@pytest.mark.parametrize("begins_again", [False, True])
async def test_requests_that_were_not_read_keep_their_order(
    backend: Backend, migrated_database: str, topic_prefix: str, begins_again: bool
) -> None:
    """Two of one binding are neither published nor read when the database is put back; then also
    the topic begins again."""
    with fresh_database(backend.database_url, template=migrated_database) as url:
        async with a_plane(backend, url, topic_prefix) as context:
            await accept(context.ledger, range(10))
            await until(lambda: all_out(context, 10))
        with fresh_database(
            backend.database_url, template=url.split("?")[0].rsplit("/", 1)[1]
        ) as backup:
            async with a_plane(backend, url, topic_prefix) as context:
                await accept(context.ledger, range(10, 15))
                await until(lambda: all_out(context, 15))
            ledger = await Ledger.open(backup, "tests-went-back")
            for number in (50, 51):
                event = withdrawn(number, "binding-3")
                await ledger.accept(
                    [Submission(event, BINDINGS.name, event.subject, event.subject)]
                )
            if begins_again:
                known = await ledger.incarnations()
                await ledger.end_incarnations({BINDINGS.name: known[BINDINGS.name]})
            await ledger.close()
            async with a_plane(backend, backup, topic_prefix) as context:
                assert context.ledger_incarnation == 2
                await until(lambda: all_out(context, 17))
                decided = await causes(context.ledger)
                wanted = [str(withdrawn(number).id) for number in (50, 51)]
                assert [cause for cause in decided if cause in wanted] == wanted


async def test_what_is_compared_before_a_stage_decides(
    backend: Backend, migrated_database: str, topic_prefix: str
) -> None:
    """A process that is connected to another database than before does not go on deciding."""
    with (
        fresh_database(backend.database_url, template=migrated_database) as url,
        fresh_database(backend.database_url, template=migrated_database) as older,
    ):
        async with a_plane(backend, url, topic_prefix) as context:
            await accept(context.ledger, range(5))
            await until(lambda: all_out(context, 5))
            await ensure_not_behind(context.ledger, backend, context.wire, ())
            ledger = await Ledger.open(older, "tests-older")
            try:
                with pytest.raises(LedgerWentBackError, match=r"fleet/.* was published up to seq"):
                    await ensure_not_behind(ledger, backend, context.wire, ())
                service = a_stage(dataclasses.replace(context, ledger=ledger))
                await service.start()
                try:
                    await until(service.failed)
                    assert "LedgerWentBackError" in service.failed()
                    assert await ledger.heads("fleet/") == []
                finally:
                    await service.stop()
            finally:
                await ledger.close()


async def test_an_old_ledger_writes_its_timeline_at_the_first_start(
    backend: Backend, migrated_database: str, topic_prefix: str
) -> None:
    with fresh_database(backend.database_url, template=migrated_database) as url:
        async with a_plane(backend, url, topic_prefix) as context:
            await accept(context.ledger, range(5))
            await until(lambda: all_out(context, 5))
            seqs = dict((await context.ledger.cursors("publisher", context.life)).seqs)
        other = (
            f"{topic_prefix}other."  # topics without a timeline, as a ledger of before finds them
        )
        async with a_plane(backend, url, other) as context:
            assert context.went_back == ()

            async def written() -> bool:
                noted = await read_timeline(backend, context.wire)
                return {stream: one.seq for stream, one in noted.items()} == seqs

            await until(written)
            assert {t.name for t in (TIMELINE, ASSIGNMENTS)} <= set(context.partitions)
