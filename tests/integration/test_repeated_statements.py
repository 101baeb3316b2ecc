"""Statements that keep their plans: a plan is made while the ledger is empty and executed when it
is large, so it must look everything up by an index that its parameters lead to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.counter import Counter, Writer, withdrawn
from tests.query_plans import plan_nodes

from wharfinger.events.streams import BINDINGS
from wharfinger.runtime.ledger import FeedAppender, FeedFilter, Ledger, Submission
from wharfinger.runtime.ledger.database import Database, Raw, Transaction
from wharfinger.runtime.ledger.record_marks import Mark

pytestmark = pytest.mark.integration

SMALL = {"stream", "horizon", "feed_head", "fact_writer"}
"""Tables with a row for each stream, or one: these may be read whole."""


class Noting(Database):
    """Notes the statements that are executed over connections that keep plans."""

    def __init__(self, of: Database) -> None:
        self.__dict__.update(of.__dict__)
        self.statements: dict[str, int] = {}

    @asynccontextmanager
    async def reading(self, *, patient: bool = False, repeated: bool = False) -> AsyncIterator[Raw]:
        async with super().reading(patient=patient, repeated=repeated) as raw:
            yield self._noting(raw) if repeated else raw

    @asynccontextmanager
    async def transaction(
        self, *, patient: bool = False, repeated: bool = False
    ) -> AsyncIterator[Transaction]:
        async with super().transaction(patient=patient, repeated=repeated) as transaction:
            yield Transaction(self._noting(transaction.raw)) if repeated else transaction

    def _noting(self, raw: Raw) -> Any:
        return _NotingRaw(raw, self.statements)


class _NotingRaw:
    def __init__(self, raw: Raw, statements: dict[str, int]) -> None:
        self._raw, self._statements = raw, statements

    def __getattr__(self, name: str) -> Any:
        if name not in ("fetch", "fetchrow", "execute"):
            return getattr(self._raw, name)

        async def call(query: str, *args: object) -> object:
            self._statements[query] = len(args)
            return await getattr(self._raw, name)(query, *args)

        return call


async def live(ledger: Ledger) -> None:
    """Everything that a turn of a service repeats."""
    appender = FeedAppender(ledger.database)
    await appender.begin()
    for turn in range(2):
        event = withdrawn(turn)
        await ledger.accept([Submission(event, BINDINGS.name, event.subject, "p")])
    writer = await ledger.begin_writer("oslo", 1)  # its facts are accepted in a transaction
    await ledger.accept(
        [Submission(event := withdrawn(5), BINDINGS.name, event.subject, "p")], writer=writer
    )
    await ledger.ensure_streams(["fleet/0", "cluster/oslo"])
    heads = await ledger.raise_epoch(["fleet/0", "cluster/oslo"])
    fleet, cluster = (Writer(heads[name], Counter()) for name in ("fleet/0", "cluster/oslo"))
    events = [withdrawn(10 + n) for n in range(3)]
    await ledger.told_apart({"fleet/0": events})
    mark = Mark("stage/0", "wharfinger.bindings/0", 1, 7, b"\1" * 32)
    rounds = [fleet.step(events), cluster.step(events[:1])]
    await ledger.commit(rounds, {**fleet.events, **cluster.events}, None, {"fleet/0": [mark]})
    await ledger.commit(rounds, {**fleet.events, **cluster.events})  # found, not written
    assert await appender.append()
    await ledger.accept([Submission(event := withdrawn(9), BINDINGS.name, event.subject, "p")])
    assert await appender.append()  # what is few
    assert await ledger.rows_after({}, 100)
    found = await ledger.unsent({}, 100)
    assert {row.stream for row in found.rows} == {"intake", "fleet/0", "cluster/oslo"}
    await ledger.feed_places(found.rows)
    for wanted in (
        FeedFilter(),
        FeedFilter(facts=True, types=("binding.released",), namespaces=("shop",)),
        FeedFilter(bindings=("shop/b1",), outcomes=("released",), clusters=("oslo",)),
        FeedFilter(streams=("fleet/0",)),
    ):
        await ledger.feed_page(0, 100, wanted)
    await ledger.advance("publisher", 1, {"fleet/0": 3}, {"wharfinger.decisions/0": 3}, [mark])


async def test_each_looks_its_rows_up_by_an_index(ledger: Ledger) -> None:
    database = Noting(ledger.database)
    await live(Ledger(database))
    assert len(database.statements) > 8
    for statement, arguments in database.statements.items():
        async with ledger.database.reading(repeated=True) as raw:
            await raw.execute(f"prepare kept as {statement}")
            nulls = f"({', '.join(['null'] * arguments)})" if arguments else ""
            explained = await raw.fetch(f"explain (format json) execute kept{nulls}")
            await raw.execute("deallocate kept")
        for node in plan_nodes(explained):
            kind, table = node["Node Type"], node.get("Relation Name", "")
            joined = kind in ("Hash Join", "Merge Join")
            assert not joined, f"{kind} in {statement}"
            if table and table not in SMALL and "Scan" in kind:
                led = "Index Cond" in node or kind == "Bitmap Heap Scan"
                assert led, f"{kind} of the whole of {table} in {statement}"
