"""One heartbeat for all clusters of this collector: the fact that renews their leases.

A cluster is named in it if its API server has answered since the message before. Without a message
from here all leases run out, so one that the ledger does not take is followed by the next after the
same period.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from wharfinger.domain.time import Micros
from wharfinger.domain.value import digest
from wharfinger.events.accepted import accepted
from wharfinger.events.clusters import FleetHeard
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import CLUSTERS
from wharfinger.runtime.ledger import Ledger, LedgerError, Submission
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.logs import get_logger
from wharfinger_collector.sending import SOURCE

if TYPE_CHECKING:
    from wharfinger_collector.member import Member

LOOK_S = 0.5
"""How long a cluster that has just been joined waits at most until its lease is considered."""

log = get_logger(__name__)


class FleetHeartbeats:
    """`members`: the clusters that are read at present."""

    def __init__(
        self, ledger: Ledger, clock: Callable[[], Micros], members: Callable[[], Iterable[Member]]
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._members = members
        self._name = ""
        self._epoch = self._sent = 0

    def begin(self, name: str) -> None:
        """Under another name from now on. Two collectors that run at the same time have different
        names; one that takes over the name of another has a greater epoch."""
        if name != self._name:
            self._name, self._epoch, self._sent = name, 0, 0

    async def run(self) -> None:
        """Until cancelled."""
        sent_at = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            members = list(self._members())
            period_s = min((member.beat_s for member in members), default=LOOK_S)
            if time.monotonic() - sent_at < period_s:
                continue
            sent_at = time.monotonic()
            heard = sorted(member.joined.name for member in members if member.take_answered())
            if heard and self._name:
                try:
                    await self._send(FleetHeard(self._name, max(1, round(period_s)), tuple(heard)))
                except LedgerError as error:
                    log.warning("ledger.away", service=self._name, why=str(error))

    async def _send(self, data: FleetHeard) -> None:
        if not self._epoch:
            self._epoch = max(self._clock(), await _epoch_of(self._ledger, data.collector) + 1)
        self._sent += 1
        fact, version = accepted(data), (self._epoch, self._sent)
        event = made(
            data,
            id=derived_id("heard", fact.key, *version, digest(data, 64)),
            source=SOURCE,
            subject=fact.subject,
            key=fact.partition_key,
            version=version,
        )
        result = await self._ledger.accept(
            [Submission(event, fact.topic.name, fact.key, fact.partition_key)]
        )
        if result.outdated:
            # Another collector has had the name. If this one has it again, the next heartbeat must
            # be newer than all of the other's.
            log.warning("heartbeat.outdated", collector=data.collector, epoch=self._epoch)
            self._epoch = self._sent = 0


async def _epoch_of(ledger: Ledger, collector: str) -> int:
    """The greatest epoch in which a heartbeat of this name was sent; 0: none was."""
    epochs = [
        event_of(fact).version[0]
        async for fact in ledger.facts(CLUSTERS.name)
        if fact.partition_key == collector
    ]
    return max(epochs, default=0)
