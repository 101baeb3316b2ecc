"""Stage loops and stage services for tests: a counter decides, its streams are `fleet/<partition>`,
readers are played by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.counter import Counter, Counts, withdrawn

from wharfinger.events.decisions import BindingReleased
from wharfinger.events.streams import BINDINGS, CLUSTERS
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import DecisionQuery, Ledger, audit_verify, wall_clock
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.stage_loop import StageLoop
from wharfinger.runtime.stage_service import Stage, StageService

TOPIC = BINDINGS.name
INCARNATIONS = {TOPIC: 1, CLUSTERS.name: 1}


@dataclass(frozen=True, slots=True)
class ByPartition:
    """What comes on bindings is for the stream of its partition, everything else for `others`
    (None: all streams)."""

    others: Sequence[str] | None = None
    prefix: str = "fleet/"

    def group_of(self, stream: str) -> int:
        return int(stream.removeprefix(self.prefix))

    def permanent_streams(self, group: int) -> Sequence[str]:
        return (f"{self.prefix}{group}",)

    def addressed(self, message: Message) -> Sequence[str] | None:
        return (f"{self.prefix}{message.partition}",) if message.topic == TOPIC else self.others


@dataclass
class Acks:
    """Which offsets were acknowledged, by partition."""

    done: list[tuple[int, int]] = field(default_factory=list)

    def of(self, partition: int, offset: int) -> Callable[[], object]:
        return lambda: self.done.append((partition, offset))


def a_loop(
    ledger: Ledger,
    decider: Counter | None = None,
    clock: Callable[[], Micros] = wall_clock,
    **options: float,
) -> StageLoop[Counts]:
    return StageLoop(
        "tests",
        decider or Counter(),
        ByPartition(),
        ledger,
        INCARNATIONS,
        clock,
        METRICS.of("tests"),
        lock_timeout_s=options.get("lock_timeout_s", 5.0),
        take_max=int(options.get("take_max", 500)),
        mailbox_max=int(options.get("mailbox_max", 4000)),
        broadcast=(CLUSTERS.name,),
        partitioned=(TOPIC,),
    )


@asynccontextmanager
async def loop_running(loop: StageLoop[Counts], *groups: int) -> AsyncIterator[StageLoop[Counts]]:
    loop.expect(groups)
    await loop.acquire()
    loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


def messages(
    numbers: Iterable[int], acks: Acks | None = None, *, partition: int = 0, first: int = 0
) -> list[Message]:
    """Event n of the counter's events, at ascending offsets."""
    return [
        Message(
            TOPIC,
            partition,
            offset,
            withdrawn(number),
            acks.of(partition, offset) if acks else None,
        )
        for offset, number in enumerate(numbers, first)
    ]


def a_stage(context: ServiceContext) -> StageService[Counts]:
    """A service that decides what comes on bindings, and reads clusters, which decide nothing."""
    return StageService(
        Stage("tests-stage", Counter(), ByPartition(()), (BINDINGS,), (CLUSTERS,)), context
    )


async def causes(ledger: Ledger) -> list[str]:
    """The ids of the events that were decided, once for each decision."""
    rows = ledger.decisions(DecisionQuery(stream="fleet/"))
    return [str(row.cause) async for row in rows if isinstance(row.data(), BindingReleased)]


async def assert_each_once(ledger: Ledger, numbers: Sequence[int]) -> None:
    decided = await causes(ledger)
    assert len(decided) == len(set(decided))
    assert set(decided) == {str(withdrawn(n).id) for n in numbers}
    assert (await audit_verify(ledger)).ok
