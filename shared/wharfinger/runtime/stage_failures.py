"""What follows when a decider raises in a step: the message that it fails on is found and laid
aside.

An event that a decider fails on must not stop what has nothing to do with it, and must not be
tried without end. When a step fails, its messages are taken again one at a time, and the one that
fails alone, in a stream that works without it, becomes a dead letter. A stream that fails without
any message has a bug that nothing can be laid aside for: that ends the process.

A stream may have taken an event in and held it back (`HoldsBack`). Where it fails on such an event
later, no message of the step is to blame. The event becomes a dead letter, and an input of the
stream (`HeldEventsLaidAside`) says that it is never applied, so that a replay leaves it out too.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.events.codec import made
from wharfinger.events.decisions import decided_by
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.registry import BY_TYPE
from wharfinger.events.ticks import HeldEventsLaidAside, Ticked
from wharfinger.kernel.decider import Decider, HoldsBack, Micros, S
from wharfinger.kernel.step import step
from wharfinger.runtime.dead_letters import Letter, lay_aside
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.messages import Message, Routing
from wharfinger.runtime.observability import ServiceMetrics
from wharfinger.runtime.stage_groups import StageGroups, StageStream

log = get_logger()

NOT_READ: tuple[type, ...] = (Ticked, ExtenderAnswered, HeldEventsLaidAside, *decided_by("ledger"))
"""Inputs that come from no topic: no message can be laid aside for them."""


class StepFailedError(Exception):
    """The decider raised in this stream's step."""

    def __init__(self, stream: str, error: Exception) -> None:
        super().__init__(stream)
        self.stream = stream
        self.error = error


@dataclass(frozen=True, slots=True)
class _BadEvent:
    """A held event, and the error of a step that applied it."""

    event: Event[Value]
    error: Exception


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
        self._laid_aside: set[tuple[str, str, UUID]] = set()
        """Stream, source and id of events that are known to make its step fail."""

    def take_max(self, number: int, take_max: int) -> int:
        """How many messages of a group to take now. Called once before they are taken."""
        careful = self._one_by_one.pop(number, 0)
        if careful > 1 and self._groups.owned[number].waiting:
            self._one_by_one[number] = careful - 1
        return 1 if careful else take_max

    def fails_on(self, stream: str, event: Event[Value]) -> bool:
        """Whether the event has been laid aside for this stream."""
        return bool(self._laid_aside) and (stream, event.source, event.id) in self._laid_aside

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
        if bad := await self._bad_held_events(failed.stream, inputs[failed.stream]):
            aside = await self._lay_held_aside(failed.stream, bad)
            await self._again(taken, inputs)
            stream = self._groups.streams().get(failed.stream)
            if stream is not None:  # else its next owner finds the same
                stream.laid_aside = aside
            return
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
            error = await self._failure(failed.stream, ())
            if error is not None:
                log.error("step.failed_without_messages", stream=failed.stream, why=repr(error))
                raise failed.error from None
            # The data is the same object also where the event got another id.
            await self._lay_aside(failed, next(m for m in mine if m.event.data is messages[0].data))
        await self._again(taken, inputs)

    async def _again(
        self, taken: Sequence[tuple[int, Message]], inputs: Mapping[str, Sequence[Event[Value]]]
    ) -> None:
        """Recover all that was stepped in this turn. What was taken for it waits again."""
        stepped = {self._routing.group_of(stream) for stream in inputs}
        for n, message in taken:
            if n not in stepped:
                message.acknowledge()
        for n in sorted(stepped):
            await self._groups.again(n, [m for k, m in taken if k == n])

    async def _failure(self, name: str, inputs: Sequence[Event[Value]]) -> Exception | None:
        """What a step with these inputs raises in the stream as the ledger has it; None: it
        works. Nothing is committed."""
        head = self._groups.heads()[name]
        fresh = await self._recovered(name)
        at = max(head.at, self._clock())
        try:
            await self._groups.by_worker(
                lambda: step(
                    self._decider, fresh.state, head, inputs, at, fresh.basis, fresh.snapshot
                )
            )
        except Exception as error:
            return error
        return None

    async def _recovered(self, name: str) -> StageStream[S]:
        head = self._groups.heads()[name]
        return await self._groups.until_done(lambda: self._groups.recover(name, head))

    # --- held events ------------------------------------------------------------------------------

    async def _bad_held_events(self, name: str, inputs: Sequence[Event[Value]]) -> list[_BadEvent]:
        """The events that the stream held back, and that a step without any message fails on, in
        order. Empty: it holds none, or it fails for another reason. `inputs`: of the step that
        failed.

        Each is found by bisection: the step works with the held events before it, and fails with
        it added. A trial recovers the stream, because a step that failed may have changed the state
        in part.
        """
        decider = self._decider
        if not isinstance(decider, HoldsBack) or any(
            isinstance(event.data, HeldEventsLaidAside) for event in inputs
        ):
            return []  # the second: they are laid aside already, and it fails still
        fresh = await self._recovered(name)
        held = await self._groups.by_worker(lambda: tuple(decider.held_back(fresh.state)))
        error = await self._failure_without(name, ()) if held else None
        if error is None or await self._failure_without(name, held) is not None:
            return []
        bad: list[_BadEvent] = []
        works = 0  # with the first so many of them, without the bad ones
        while error is not None and works < len(held):
            fails = len(held)
            while fails - works > 1:
                middle = (works + fails) // 2
                without = [*(one.event for one in bad), *held[middle:]]
                found = await self._failure_without(name, without)
                if found is None:
                    works = middle
                else:
                    fails, error = middle, found
            bad.append(_BadEvent(held[fails - 1], error))
            works = fails
            error = await self._failure_without(name, [one.event for one in bad])
        return bad

    async def _failure_without(self, name: str, events: Sequence[Event[Value]]) -> Exception | None:
        """As `_failure`, of a step that lays these held events aside and takes nothing else."""
        return await self._failure(name, [_laid_aside(name, events)])

    async def _lay_held_aside(self, name: str, bad: Sequence[_BadEvent]) -> Event[Value]:
        """Write a dead letter for each of them. Returns the input by which the stream lays them
        aside."""
        letters = []
        for one in bad:
            event = one.event
            reason = _report(name, event, one.error)
            topic = BY_TYPE[event.type].topic
            letters.append(
                Letter.held_back(
                    "" if topic is None else topic.name,
                    name,
                    event.subject.encode(),
                    event.body,
                    str(event.id),
                    reason,
                )
            )
        await lay_aside(self._ledger, self._name, letters)
        self._metrics.dead_letters.inc(len(letters))
        return _laid_aside(name, [one.event for one in bad])

    # --- messages ---------------------------------------------------------------------------------

    async def _lay_aside(self, failed: StepFailedError, message: Message) -> None:
        reason = _report(failed.stream, message.event, failed.error)
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
        self._laid_aside.add((failed.stream, message.event.source, message.event.id))


def _report(stream: str, event: Event[Value], error: Exception) -> str:
    """Log that the event is laid aside. Returns the reason for its letter."""
    log.error(
        "event.laid_aside",
        stream=stream,
        event_id=str(event.id),
        why=repr(error),
        where="".join(traceback.format_tb(error.__traceback__)[-3:]),
    )
    return f"{stream} cannot take it in: {type(error).__name__}: {error}"


def _laid_aside(stream: str, events: Sequence[Event[Value]]) -> Event[Value]:
    """The input by which the stream lays them aside: the same however often it is made."""
    ids = tuple([str(event.id) for event in events])
    return made(
        HeldEventsLaidAside(stream, ids),
        id=derived_id("held-events-laid-aside", stream, *ids),
        source=f"/wharfinger/{stream}",
        subject=stream,
    )
