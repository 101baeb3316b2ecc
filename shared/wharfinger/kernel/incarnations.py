"""The incarnations of a ledger, and the ids of decisions.

A database can lose its newest transactions: by a failover to a standby that lagged, or a restore
from a backup. The lost decisions were published already, and the next decisions get the same
numbers. So that no id ever identifies two decisions, the ledger then begins its next incarnation,
whose number is part of all later ids. The event `WentBack` is an input of every stream, so an id
depends only on the stream's inputs, live and in a replay.

Incarnation 1 is not part of ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast, runtime_checkable
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.events.envelope import named_id

FIRST = 1

Incarnations = tuple[tuple[int, int], ...]
"""(last seq that was kept, number of the incarnation that follows) of each time the ledger went
back; empty: it never did."""


class WentBack(Protocol):
    """The event that says so: its class has a true `BEGINS_INCARNATION`. `incarnation`: the one
    that begins; `kept`: stream -> its last seq that is in the ledger."""

    @property
    def incarnation(self) -> int: ...
    @property
    def kept(self) -> Mapping[str, int]: ...


@runtime_checkable
class Identifying(Protocol):
    """A state of a stream that has noted when its ledger went back."""

    incarnations: Incarnations


def incarnation_at(incarnations: Incarnations, seq: int) -> int:
    """The incarnation to which the decision with this seq belongs."""
    if not incarnations:
        return FIRST
    return next((number for kept, number in reversed(incarnations) if seq > kept), FIRST)


def incarnation_text(incarnations: Incarnations, seq: int) -> str:
    """The same as it is in an envelope: the first is left out."""
    number = incarnation_at(incarnations, seq)
    return "" if number == FIRST else str(number)


def begins_incarnation(data: Value) -> bool:
    """Whether `data` of an event says that the ledger went back."""
    return getattr(data, "BEGINS_INCARNATION", False)


def noted(incarnations: Incarnations, stream: str, data: Value) -> Incarnations:
    """`incarnations` of `stream` after it has taken an event with this data in: others than a
    `WentBack` change nothing. A stream that the event does not name kept nothing."""
    if not begins_incarnation(data):
        return incarnations
    event = cast(WentBack, data)
    return (*incarnations, (event.kept.get(stream, 0), event.incarnation))


def decision_id(stream: str, seq: int, incarnation: int = FIRST) -> UUID:
    """As `derived_id(stream, seq)`, with a third part from the second incarnation on."""
    return named_id(
        f"{stream}\x00{seq}" if incarnation == FIRST else f"{stream}\x00{seq}\x00{incarnation}"
    )


def id_of(stream: str, seq: int, incarnations: Incarnations) -> UUID:
    """The id of a decision of the past or of the next one."""
    return decision_id(stream, seq, incarnation_at(incarnations, seq) if incarnations else FIRST)
