"""From decisions of fleet streams to the messages for the other fleet shards: how much room each
decision takes beyond what its binding held, and what it says about a plan of several shards.

Items are added up by cluster and class, because a burst of bindings has few classes, and every
other shard folds every message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from wharfinger.domain.binding import set_key
from wharfinger.domain.value import Value
from wharfinger.events.decisions import PlanDecision, ScheduleAnswer
from wharfinger.events.envelope import derived_id
from wharfinger.events.ledger_codec import encode
from wharfinger.events.room import MAX_ITEMS, PlanAnswered, RoomItem, RoomTaken
from wharfinger.events.streams import FLEET


@dataclass(slots=True)
class _Promised:
    """What a round has promised since its last message: by cluster and key of the class."""

    round: int
    first: int
    through: int
    items: dict[tuple[str, str], RoomItem] = field(default_factory=dict)


class Promises:
    """Collects the room that decisions take into messages of at most about `MAX_ITEMS` items, for
    each stream separately and in order of seq. A message is of one round, so that every process
    that reads the round makes the same messages. `rest` returns the incomplete messages and starts
    again."""

    def __init__(self) -> None:
        self._promised: dict[str, _Promised] = {}

    def add(self, stream: str, round_: int, seq: int, data: Value) -> list[RoomTaken]:
        """The messages that are complete with this decision, or without it: mostly none."""
        if not stream.startswith(FLEET):
            return []
        complete: list[RoomTaken] = []
        promised = self._promised.get(stream)
        if promised is not None and promised.round != round_:
            complete.append(self._complete(stream))
        if not isinstance(data, ScheduleAnswer):
            return complete
        for cluster, more, requirements, components in data.growth():
            key = cluster, set_key(components) if components else requirements.class_key
            found = self._promised.setdefault(stream, _Promised(round_, seq, seq))
            found.through = seq
            before = found.items.get(key)
            replicas = more if before is None else more + before.replicas
            found.items[key] = RoomItem(cluster, seq, replicas, requirements, components)
        promised = self._promised.get(stream)
        if promised is not None and len(promised.items) >= MAX_ITEMS:
            complete.append(self._complete(stream))
        return complete

    def _complete(self, stream: str) -> RoomTaken:
        return _message(stream, self._promised.pop(stream))

    def rest(self) -> list[RoomTaken]:
        promised, self._promised = self._promised, {}
        return [_message(stream, found) for stream, found in promised.items()]


def room_body(message: RoomTaken, incarnation: str = "") -> bytes:
    """The event, as it is sent."""
    return _body(message, room_id(message, incarnation), message.stream, incarnation)


def room_id(message: RoomTaken, incarnation: str = "") -> UUID:
    """Derived from what it was added up from. `incarnation`: of the ledger; empty: the first."""
    later = (incarnation,) if incarnation else ()
    return derived_id("room", message.stream, message.first, message.through, *later)


def _message(stream: str, found: _Promised) -> RoomTaken:
    return RoomTaken(stream, found.first, found.through, tuple(found.items.values()))


def plan_answer(stream: str, seq: int, data: Value) -> PlanAnswered | None:
    """What a decision of `stream` tells the other shards of its plan; None: nothing."""
    if not isinstance(data, PlanDecision) or not data.tell or not stream.startswith(FLEET):
        return None
    return PlanAnswered(stream, seq, data.plan, data.outcome, data.tell)


def plan_answer_id(message: PlanAnswered, incarnation: str = "") -> UUID:
    """Derived from the decision that it tells. `incarnation`: of the ledger; empty: the first."""
    later = (incarnation,) if incarnation else ()
    return derived_id("plan-answer", message.stream, message.through, *later)


def plan_answer_body(message: PlanAnswered, incarnation: str = "") -> bytes:
    """The event, as it is sent."""
    return _body(message, plan_answer_id(message, incarnation), message.plan, incarnation)


def _body(message: RoomTaken | PlanAnswered, id: UUID, subject: str, incarnation: str) -> bytes:
    return encode(
        message,
        id=id,
        source=f"/wharfinger/{message.stream}",
        subject=subject,
        incarnation=incarnation,
    )
