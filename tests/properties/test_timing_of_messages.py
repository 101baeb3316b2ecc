"""The same manifests on two new planes end in the same places, by any way of their messages."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from tests.simulation import Log, Reader, Simulation

from wharfinger.events.streams import Together
from wharfinger.runtime.acceptances import Acceptances
from wharfinger.runtime.messages import Message
from wharfinger_cli.generate import FleetPlan, generate

pytestmark = pytest.mark.seeded

FLEETS = 24
TURNS_MAX = 5_000


class MarkedLog(Log):
    """Knows of each record what its publisher says of the acceptance."""

    def __init__(self, shards: int, marked: bool) -> None:
        super().__init__(shards)
        self._marked = marked
        self.last: dict[str, int] = {}
        self.together: Together | None = None

    def accepted_until_now(self) -> None:
        """All records so far are of one acceptance."""
        self.last = {
            f"{topic}/{n}": len(records) - 1 for (topic, n), records in self.places.items()
        }
        self.together = Together("all", tuple(self.last))

    def message(self, message: Message) -> Message:
        last = self.last.get(message.place, -1)
        if not self._marked or message.offset > last:
            return message
        return Message(
            message.topic,
            message.partition,
            message.offset,
            message.event,
            followed=message.offset < last,
            together=self.together if message.offset == last else None,
            arrived_s=0,
        )


class GatheringReader(Reader):
    """Keeps what it has read until it has all that was accepted together, as the loops do."""

    def __init__(self, log: MarkedLog, topics: tuple[str, ...]) -> None:
        super().__init__(log, topics)
        self._marked = log
        self._kept: list[Message] = []

    def take(self, random: Random, everything: bool) -> list[Message]:
        self._kept += map(self._marked.message, super().take(random, everything))
        gathered = Acceptances(lambda place: place.rpartition("/")[0] in self.topics)
        for message in self._kept:
            gathered.add(message)
        if gathered.incomplete():
            return []
        taken, self._kept = self._kept, []
        return taken

    @property
    def done(self) -> bool:
        return super().done and not self._kept


class OneAcceptance(Simulation):
    """A fleet and its workloads, accepted at once; then only the ways of messages differ."""

    def __init__(self, seed: int, fleet: int, *, marked: bool) -> None:
        self._marked = marked
        super().__init__(seed, shards=1)
        self.faulty, self.ledger.faults = False, 0.0
        self._fleet = fleet
        self.fleet.decider.patience_s = 30  # type: ignore[attr-defined]  # as in a live plane

    def _reader(self, *topics: Any) -> Reader:
        if not isinstance(self.log, MarkedLog):
            self.log = MarkedLog(self.shards, self._marked)
        return GatheringReader(self.log, tuple(topic.name for topic in topics))

    def run(self) -> None:
        for fact in generate(FleetPlan(4, 16, 16, self._fleet)):
            self.submit(fact.data)
        self._publish(everything=True)
        assert isinstance(self.log, MarkedLog)
        self.log.accepted_until_now()
        for _ in range(TURNS_MAX):
            if not self._turn() and self.random.random() < 0.2:
                break
            self.at += self.random.choice((1_000, 5_000, 20_000, 100_000))
        self._come_to_rest()

    def places(self) -> dict[str, dict[str, int]]:
        """How many replicas each binding has in each cluster."""
        return {
            name: {cluster: n for cluster, n in sorted(record.targets.items()) if n}
            for running in self.fleet.streams.values()
            for name, record in running.state.bindings.items()
        }


def placed(fleet: int, *, marked: bool) -> list[dict[str, dict[str, int]]]:
    """By two planes with different timing."""
    found = []
    for seed in (1, 2):
        plane = OneAcceptance(seed, fleet, marked=marked)
        plane.run()
        plane.check()
        found.append(plane.places())
    return found


def differing(fleets: Iterable[int], *, marked: bool) -> tuple[int, int]:
    """Bindings that ended in other places, and all of them."""
    apart = total = 0
    for fleet in fleets:
        one, other = placed(fleet, marked=marked)
        apart += sum(one[name] != other[name] for name in one)
        total += len(one)
    return apart, total


def test_what_is_accepted_together_ends_in_the_same_places() -> None:
    """A count of capacity is a measurement at its own moment, so that a binding for which certain
    room is short may end elsewhere: fewer than three of a hundred."""
    apart, total = differing(range(FLEETS), marked=True)
    assert apart * 100 < 3 * total


def test_without_marks_timing_decides() -> None:
    """Otherwise the law above would prove nothing."""
    apart, total = differing(range(3), marked=False)
    assert apart * 4 > total
