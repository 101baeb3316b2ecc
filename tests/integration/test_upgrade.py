"""An upgrade from a released version: its own ledger, as its own code wrote it, found by the
services of today.

`ledgers/` holds the recorded databases, and says how they were made.
"""

# mypy: allow-untyped-calls
# (the driver ships no types)

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest
import zstandard
from alembic import command
from msgspec import structs
from structlog.testing import capture_logs
from tests.apps import all_services, standing_on, until

from wharfinger.answers.submit import submit
from wharfinger.events.accepted import accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.codec import frame_of
from wharfinger.events.decisions import BindingReleased, ReplicasPlaced, ScheduleDecided
from wharfinger.events.streams import BINDINGS, DECISIONS, INTAKE
from wharfinger.history.deciders import DECIDERS
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import ENGINE
from wharfinger.runtime.backends import Backend, plain_database_url
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow, audit_verify
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.ledger.migration import config, migrate, run
from wharfinger.runtime.replay import replay
from wharfinger.runtime.service import ServiceContext
from wharfinger_cli.facts import known_facts

pytestmark = pytest.mark.integration

LEDGERS = Path(__file__).with_name("ledgers")
NOT_RELAYED = ("capstan", "davit", "fender", "keel")
"""Deployments that were applied when the old services had stopped; `gangway` was deleted then."""
NEW = "harbour/anchor-deployment"


@dataclass(frozen=True, slots=True)
class Release:
    """`revision`: of its schema."""

    version: str
    revision: str

    @property
    def engine(self) -> str:
        return f"wharfinger/{self.version}"


RELEASES = (Release("0.3.0", "0003"),)


async def restore(release: Release, database_url: str) -> None:
    """The recorded database, with the schema of its release."""
    packed = (LEDGERS / f"{release.version}.tar.zst").read_bytes()
    await to_revision(database_url, release.revision)
    raw = await asyncpg.connect(plain_database_url(database_url))
    try:
        with tarfile.open(
            fileobj=io.BytesIO(zstandard.ZstdDecompressor().decompress(packed))
        ) as archive:
            files = {entry.name: archive.extractfile(entry) for entry in archive}
            contents = {name: file.read() for name, file in files.items() if file is not None}
        for table, partition, bounds in json.loads(contents.pop("partitions.json")):
            if bounds != "DEFAULT":
                await raw.execute(f'create table "{partition}" partition of "{table}" {bounds}')
        await raw.execute("delete from alembic_version")
        for name, content in sorted(contents.items()):
            table = Path(name).stem
            columns = next(csv.reader([content.decode().partition("\n")[0]]))
            await raw.copy_to_table(
                table, source=io.BytesIO(content), columns=columns, format="csv", header=True
            )
        await raw.execute(
            "select setval(pg_get_serial_sequence('stream', 'id'), (select max(id) from stream))"
        )
    finally:
        await raw.close()


async def to_revision(database_url: str, revision: str) -> None:
    await run(database_url, lambda connection: command.upgrade(config(connection), revision))


@dataclass(frozen=True, slots=True)
class Before:
    """What the old release left. `decided`: (stream, seq) -> id."""

    heads: dict[str, Head]
    decided: dict[tuple[str, int], str]

    @classmethod
    async def of(cls, ledger: Ledger) -> Before:
        decided = {
            (row.stream, row.seq): str(row.id) async for row in ledger.decisions(DecisionQuery())
        }
        return cls({head.stream: head for head in await ledger.heads()}, decided)

    @property
    def stages(self) -> dict[str, Head]:
        return {
            name: head
            for name, head in self.heads.items()
            if head.round and name.startswith(tuple(DECIDERS))
        }

    async def since(self, ledger: Ledger, subject: str | None = None) -> list[LedgerRow]:
        """What stages have decided after the upgrade."""
        query = DecisionQuery(
            subject=subject, after={name: head.seq for name, head in self.heads.items()}
        )
        return [row async for row in ledger.decisions(query) if row.stream != INTAKE]

    async def scheduled(self, ledger: Ledger, subject: str) -> bool:
        """Whether the fleet stage has decided about all replicas of a binding, as it is requested
        now."""
        wanted = (await request_of(ledger, subject)).binding.replicas
        data = [row.data() for row in await self.since(ledger, subject)]
        targets = [one.targets for one in data if isinstance(one, ScheduleDecided)]
        return bool(targets) and sum(target.replicas for target in targets[-1]) == wanted

    async def placed(self, ledger: Ledger, subject: str) -> int:
        """How many replicas of a binding the cluster stages have given nodes."""
        data = [row.data() for row in await self.since(ledger, subject)]
        shares = [share for one in data if isinstance(one, ReplicasPlaced) for share in one.placed]
        return sum(len(share.ordinals) for share in shares)

    async def released(self, ledger: Ledger, subject: str) -> bool:
        return any(
            isinstance(row.data(), BindingReleased) for row in await self.since(ledger, subject)
        )


async def request_of(ledger: Ledger, subject: str) -> BindingRequested:
    """The latest fact about a binding."""
    events = [event_of(fact) async for fact in ledger.facts(BINDINGS.name)]
    data = next(event.data for event in events if event.subject == subject)
    assert isinstance(data, BindingRequested)
    return data


async def snapshots_follow(ledger: Ledger, before: Before) -> bool:
    """Each stream has a snapshot of the state that was folded from the old rounds."""
    found = {name: await ledger.latest_snapshot(name) for name in before.stages}
    return all(
        one is not None and one.round >= before.heads[name].round for name, one in found.items()
    )


async def all_published(context: ServiceContext) -> bool:
    heads = {head.stream: head.seq for head in await context.ledger.heads()}
    seqs = (await context.ledger.cursors("publisher", context.life)).seqs
    return all(seqs.get(stream, 0) >= seq for stream, seq in heads.items())


async def apply_like(ledger: Ledger, subject: str, name: str) -> int:
    """Accept a binding like that of `subject` under another name. Returns its replicas."""
    like = (await request_of(ledger, subject)).binding
    resource = structs.replace(like.resource, name="anchor")
    binding = structs.replace(like, name=name, uid=f"uid of {name}", resource=resource)
    await submit(ledger, [accepted(BindingRequested(binding))], await known_facts(ledger))
    return binding.replicas


async def placed_all(ledger: Ledger, before: Before, replicas: int) -> bool:
    return await before.scheduled(ledger, NEW) and await before.placed(ledger, NEW) == replicas


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
async def test_a_ledger_of_an_earlier_release_goes_on(
    release: Release, backend: Backend, empty_database_url: str, topic_prefix: str
) -> None:
    await restore(release, empty_database_url)
    await migrate(empty_database_url)
    ledger = await Ledger.open(empty_database_url, "tests-upgrade")
    try:
        before = await Before.of(ledger)
        with capture_logs() as logs:
            async with all_services(backend, empty_database_url, topic_prefix) as context:
                await until(lambda: snapshots_follow(ledger, before))
                for name in NOT_RELAYED:
                    await until(
                        lambda name=name: before.scheduled(ledger, f"harbour/{name}-deployment")
                    )
                await until(lambda: before.released(ledger, "harbour/gangway-deployment"))
                replicas = await apply_like(ledger, "harbour/booking-deployment", NEW)
                await until(lambda: placed_all(ledger, before, replicas))
                await until(lambda: all_published(context))
                published = Counter(
                    frame_of(r.value or b"").id for r in await standing_on(context, DECISIONS)
                )
        await assert_history_goes_on(ledger, release, before)
        assert_nothing_is_decided_again(before, await Before.of(ledger))
        new = {str(row.id) for row in await before.since(ledger)}
        assert new <= published.keys() <= set((await Before.of(ledger)).decided.values())
        assert {id_ for id_, count in published.items() if count > 1} == set()
        # The broker is another one: its topics are filled again. Nothing else is wrong.
        assert {line["event"] for line in logs if line["log_level"] in ("error", "critical")} == {
            "topics.began_again"
        }
    finally:
        await ledger.close()


async def assert_history_goes_on(ledger: Ledger, release: Release, before: Before) -> None:
    """The chain holds from the first round to the last; old rounds are told as the other engine's,
    and new ones are decided again byte for byte."""
    verified = await audit_verify(ledger)
    assert verified.ok, verified.first_bad
    for name, head in before.heads.items():
        if head.round:
            assert (await ledger.head_at(name, head.round)).hash == head.hash
    engines: dict[str, list[str]] = {}
    for name in before.stages:
        engines[name] = [recorded.round.engine async for recorded in ledger.recorded_rounds(name)]
        old = before.heads[name].round
        assert engines[name] == [release.engine] * old + [ENGINE] * (len(engines[name]) - old)
    assert any(ENGINE in found for found in engines.values())
    replayed = await replay(ledger, DECIDERS)
    assert replayed.divergences == ()
    theirs = {one.engine: one.rounds for one in replayed.other_engines}
    assert theirs == {release.engine: sum(head.round for head in before.stages.values())}


def assert_nothing_is_decided_again(before: Before, after: Before) -> None:
    assert {place: after.decided.get(place) for place in before.decided} == before.decided
    assert len(set(after.decided.values())) == len(after.decided)
