"""What follows when a decider raises in a step: the message that it fails on is found and laid
aside.

An event that a decider fails on must not stop what has nothing to do with it, and must not be
tried without end. When a step fails, its messages are taken again one at a time, and the one that
fails alone, in a stream that works without it, becomes a dead letter. A stream that fails without
any message has a bug that nothing can be laid aside for: that ends the process.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Generic
from uuid import UUID

import structlog

from wharfinger.domain.value import Value
from wharfinger.events.decisions import decided_by
from wharfinger.events.envelope import Event
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Decider, Micros, S
from wharfinger.kernel.step import step
from wharfinger.runtime.dead_letters import Letter, lay_aside
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.messages import Message, Routing
from wharfinger.runtime.observability import ServiceMetrics
from wharfinger.runtime.stage_groups import StageGroups

log = structlog.get_logger()

NOT_READ: tuple[type, ...] = (Ticked, ExtenderAnswered, *decided_by("ledger"))
"""Inputs that come from no topic: no message can be laid aside for them."""


class StepFailedError(Exception):
    """The decider raised in this stream's step."""

    def __init__(self, stream: str, error: Exception) -> None:
        super().__init__(stream)
        self.stream = stream
        self.error = error


class StepFailures(Generic[S]):
    def __init__(
        self,
        name: str,
        decider: Decider[S],
        routing: Routing,
        ledger: Ledger,
        groups: StageGroups[S],
        clock: Callable[[], Micros],
        metrics: ServiceMetrics,
    ) -> None:
        self._name = name
        self._decider = decider
        self._routing = routing
        self._ledger = ledger
        self._groups = groups
        self._clock = clock
        self._metrics = metrics
        self._one_by_one: dict[int, int] = {}
        """Group -> how many messages are still to be taken one at a time."""
        self._laid_aside: set[tuple[str, UUID]] = set()
        """Stream and event, of events that are known to make its step fail."""

    def take_max(self, number: int, take_max: int) -> int:
        """How many messages of a group to take now. Called once before they are taken."""
        careful = self._one_by_one.pop(number, 0)
        if careful > 1 and self._groups.owned[number].waiting:
            self._one_by_one[number] = careful - 1
        return 1 if careful else take_max

    def fails_on(self, stream: str, event: UUID) -> bool:
        """Whether the event has been laid aside for this stream."""
        return bool(self._laid_aside) and (stream, event) in self._laid_aside

    async def isolate(
        self,
        failed: StepFailedError,
        taken: Sequence[tuple[int, Message]],
        inputs: Mapping[str, Sequence[Event[Value]]],
    ) -> None:
        """After a step that failed: find the message that it failed on and lay it aside, or take
        them one at a time to find it. All that was stepped in this turn is recovered, and what was
        taken for it waits again. Raises what the decider raised where no message is to blame."""
        number = self._routing.group_of(failed.stream)
        messages = [
            event for event in inputs[failed.stream] if not isinstance(event.data, NOT_READ)
        ]
        if not messages:
            raise failed.error from None  # it stands for itself
        mine = [m for n, m in taken if n == number]
        if len(messages) > 1:
            self._one_by_one[number] = len(mine)
            log.warning(
                "step.failed", stream=failed.stream, messages=len(messages), why=repr(failed.error)
            )
        else:
            if not await self._works_without(failed.stream):
                raise failed.error from None
            await self._lay_aside(failed, next(m for m in mine if m.event.id == messages[0].id))
        stepped = {self._routing.group_of(stream) for stream in inputs}
        for n, message in taken:
            if n not in stepped:
                message.acknowledge()
        for n in sorted(stepped):
            await self._groups.again(n, [m for k, m in taken if k == n])

    async def _works_without(self, name: str) -> bool:
        """Whether the stream, as the ledger has it, can take a step that no message is in."""
        head = self._groups.heads()[name]
        fresh = await self._groups.until_done(lambda: self._groups.recover(name, head))
        at = max(head.at, self._clock())
        try:
            await self._groups.by_worker(
                lambda: step(self._decider, fresh.state, head, (), at, fresh.basis, fresh.snapshot)
            )
        except Exception as error:
            log.error("step.failed_without_messages", stream=name, why=repr(error))
            return False
        return True

    async def _lay_aside(self, failed: StepFailedError, message: Message) -> None:
        log.error(
            "event.laid_aside",
            stream=failed.stream,
            event_id=str(message.event.id),
            why=repr(failed.error),
            where="".join(traceback.format_tb(failed.error.__traceback__)[-3:]),
        )
        reason = f"{failed.stream} cannot take it in: {type(failed.error).__name__}: {failed.error}"
        letter = Letter.read(
            message.topic,
            self._groups.incarnation(message.place),
            message.partition,
            message.offset,
            message.event.subject.encode(),
            message.event.body,
            reason,
        )
        await lay_aside(self._ledger, self._name, [letter])
        self._metrics.dead_letters.inc()
        self._laid_aside.add((failed.stream, message.event.id))
