"""Hands the facts that are due to the ledger, in order, until they are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from wharfinger.domain.time import SECOND, Micros
from wharfinger.domain.value import digest
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.runtime.ledger import FactWriter, Ledger, Submission, Transient
from wharfinger.runtime.logs import get_logger
from wharfinger.stages.collector import Sighted

SOURCE = "/wharfinger/collector"

ACCEPTED_AT_ONCE = 500

log = get_logger(__name__)


class DueFacts(Protocol):
    """What is observed, and which facts of it are due."""

    def due(self, at: Micros) -> list[Sighted]: ...

    def next_at(self) -> Micros | None: ...

    def unsent(self, facts: Iterable[Sighted], at: Micros) -> None: ...


class FactSender:
    """`writer`: this session, newer than every earlier one; of a collector that was replaced, and
    does not know it, no fact is accepted. `uid`: which server was observed. `sent`, `outdated`: how
    many facts were new, and how many were refused."""

    def __init__(
        self,
        name: str,
        facts: DueFacts,
        ledger: Ledger,
        clock: Callable[[], Micros],
        writer: FactWriter,
        source: str,
        uid: Callable[[], str],
    ) -> None:
        self._name = name
        self._facts = facts
        self._ledger = ledger
        self._clock = clock
        self._writer = writer
        self._source = source
        self._uid = uid
        self._wake = asyncio.Event()
        self.sent = self.outdated = 0

    @property
    def waiting(self) -> int:
        """1 if a fact is due, else 0."""
        due = self._facts.next_at()
        return 0 if due is None or due > self._clock() else 1

    def wake(self) -> None:
        """Something was observed."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. WriterReplacedError: as `accept`."""
        while True:
            self._wake.clear()
            at = self._clock()
            if due := self._facts.due(at):
                await self.accept(due)
                continue
            next_at = self._facts.next_at()
            wait_s = None if next_at is None else max(0.0, (next_at - at) / SECOND)
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def accept(self, sightings: Sequence[Sighted]) -> None:
        """Durable when this returns, or due again. WriterReplacedError: another session has begun
        with what is observed."""
        for start in range(0, len(sightings), ACCEPTED_AT_ONCE):
            chunk = sightings[start : start + ACCEPTED_AT_ONCE]
            try:
                result = await self._ledger.accept(
                    [self._submission(one) for one in chunk], writer=self._writer
                )
            except Transient as error:
                log.warning("ledger.away", cluster=self._name, why=str(error))
                self._facts.unsent(sightings[start:], self._clock())
                await asyncio.sleep(error.retry_after_s)
                return
            self.sent += len(result.new)
            self.outdated += len(result.outdated)

    def _submission(self, sighted: Sighted) -> Submission:
        fact, version = sighted.fact, (self._writer.epoch, sighted.version)
        event = made(
            fact.data,
            id=derived_id("seen", self._uid(), fact.key, *version, digest(fact.data, 64)),
            source=self._source,
            subject=fact.subject,
            key=fact.partition_key,
            version=version,
        )
        return Submission(event, fact.topic.name, fact.key, fact.partition_key)
