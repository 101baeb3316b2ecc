"""Of several writers of the same facts only the one that began last is believed."""

from __future__ import annotations

import asyncio

import pytest

from wharfinger.events.accepted import accepted
from wharfinger.events.cluster_state import PodsObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.runtime.ledger import FactWriter, Ledger, Submission, WriterReplacedError


def fact(writer: FactWriter, node: str, version: int) -> Submission:
    said = accepted(PodsObserved(writer.name, node, ()))
    event = made(
        said.data,
        id=derived_id("seen", said.key, str(writer.epoch), str(version)),
        source="/wharfinger/tests",
        subject=said.subject,
        key=said.partition_key,
        version=(writer.epoch, version),
    )
    return Submission(event, said.topic.name, said.key, said.partition_key)


async def keys(ledger: Ledger) -> set[str]:
    return {found.key async for found in ledger.facts()}


async def test_a_writer_that_was_replaced_adds_no_fact_not_even_under_a_new_key(
    ledger: Ledger,
) -> None:
    first = await ledger.begin_writer("oslo", 7)
    assert first.epoch == 7
    assert len((await ledger.accept([fact(first, "n1", 1)], writer=first)).new) == 1
    second = await ledger.begin_writer("oslo", 7)
    assert second.epoch == 8, "two that begin at the same time have different epochs"
    with pytest.raises(WriterReplacedError, match="oslo: session 7 was replaced by 8"):
        await ledger.accept([fact(first, "n2", 2)], writer=first)
    assert len((await ledger.accept([fact(second, "n3", 1)], writer=second)).new) == 1
    found = await keys(ledger)
    assert {key for key in found if "n2" in key} == set()
    assert len(found) == 2


async def test_writers_of_other_facts_go_on(ledger: Ledger) -> None:
    oslo, bergen = [await ledger.begin_writer(name, 1) for name in ("oslo", "bergen")]
    await ledger.begin_writer("oslo", 1)
    assert len((await ledger.accept([fact(bergen, "n1", 1)], writer=bergen)).new) == 1
    with pytest.raises(WriterReplacedError):
        await ledger.accept([fact(oslo, "n1", 1)], writer=oslo)


async def test_what_a_predecessor_is_writing_is_there_when_its_successor_has_begun(
    ledger: Ledger,
) -> None:
    """So the successor, which reads the facts after it has begun, misses none."""
    writer = await ledger.begin_writer("oslo", 1)
    refused: list[int] = []
    under_way = asyncio.Event()

    async def write() -> None:
        for number in range(200):
            try:
                await ledger.accept([fact(writer, f"n{number}", number)], writer=writer)
            except WriterReplacedError:
                refused.append(number)
                return
            if number == 5:
                under_way.set()

    writing = asyncio.create_task(write())
    await under_way.wait()
    await ledger.begin_writer("oslo", 1)
    after = await keys(ledger)
    await writing
    assert refused
    assert await keys(ledger) == after
