"""`dead-letters`: records that could not be read, and a second try.

A retry reads the original bytes with the present code. If they are an event now, it is accepted
like any other and relayed to the topic it came from. If they still are not, they are not sent:
that would only create the same dead letter again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.domain.value import json_decoder
from wharfinger.events.codec import UndecodableError, decode
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.envelope import Frame
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.dead_letters import HELD_BACK, UNSENT
from wharfinger.runtime.ledger import Ledger, Submission
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import DIFFERENCE, NotFoundError
from wharfinger_cli.output import (
    BAD,
    GOOD,
    Plain,
    as_clock,
    as_time,
    count,
    new_table,
    show,
    show_list,
)
from wharfinger_cli.request import Request


@dataclass(frozen=True, slots=True)
class Letter:
    id: UUID
    at: Micros
    data: MessageDeadLettered


def list_letters(request: Request) -> None:
    letters = run(_read(request))

    def table() -> Table:
        out = new_table("time", "id", "service", "came from", "producer", "reason")
        for letter in letters:
            out.add_row(
                as_clock(letter.at),
                str(letter.id),
                letter.data.service,
                _came_from(letter.data),
                letter.data.producer,
                letter.data.reason,
            )
        return out

    show_list(
        request.format,
        [_plain(letter) for letter in letters],
        [str(letter.id) for letter in letters],
        table,
        "no dead letters",
    )


def retry(request: Request, id_: str | None) -> None:
    outcomes = run(_retry(request, id_))

    def page() -> Iterator[RenderableType]:
        table = new_table("id", "came from", "outcome")
        for letter, trouble in outcomes:
            outcome = Text(trouble, BAD) if trouble else Text("sent again", GOOD)
            table.add_row(str(letter.id), _came_from(letter.data), outcome)
        yield table if outcomes else "no dead letters"

    sent = [letter for letter, trouble in outcomes if not trouble]
    value: Plain = {
        "sent": len(sent),
        "failed": [
            {"id": str(letter.id), "reason": trouble} for letter, trouble in outcomes if trouble
        ],
    }
    show(request.format, value, [str(letter.id) for letter in sent], page)
    if len(sent) < len(outcomes):
        raise SystemExit(DIFFERENCE)


async def _read(request: Request) -> list[Letter]:
    async with opened_ledger(reached(request)) as ledger:
        return await letters_of(ledger)


async def letters_of(ledger: Ledger) -> list[Letter]:
    """All of them that were not retired, oldest first."""
    base = (await ledger.bases()).get(INTAKE)
    return [
        Letter(event.id, recorded.round.at, event.data)
        async for recorded in ledger.recorded_rounds(INTAKE, base.round + 1 if base else 1)
        for event in recorded.events
        if isinstance(event.data, MessageDeadLettered)
    ]


async def _retry(request: Request, id_: str | None) -> list[tuple[Letter, str]]:
    """Each letter tried, and what was still wrong with it."""
    async with opened_ledger(reached(request)) as ledger:
        letters = await letters_of(ledger)
        if id_ is not None:
            letters = [letter for letter in letters if str(letter.id) == id_]
            if not letters:
                raise NotFoundError(f"no dead letter has the id {id_}")
        return [(letter, await _send_again(ledger, letter.data)) for letter in letters]


async def _send_again(ledger: Ledger, letter: MessageDeadLettered) -> str:
    """What is still wrong, "" when it was accepted (or had been, by an earlier retry)."""
    if letter.offset == UNSENT:
        return (
            "refused by the broker: what is held back is sent by the publisher itself, "
            "once the broker takes it"
        )
    if letter.offset == HELD_BACK:
        return (
            "a stage has taken it in and laid it aside: "
            "send it again as an event with an id of its own"
        )
    if letter.more:
        return (
            f"{count(letter.more, 'record')} from here on, of which the letter has none: "
            "they are on the topic for as long as it keeps them"
        )
    if letter.payload_bytes or letter.key_bytes:
        return "only the beginning of the record is in the letter: it has to be sent again"
    try:
        body = base64.b64decode(letter.payload, validate=True)
        event = decode(body)
        partition_key = json_decoder(Frame).decode(body).partitionkey
    except (UndecodableError, binascii.Error, msgspec.MsgspecError) as error:
        return f"still unreadable: {error}"
    await ledger.accept(
        [
            Submission(
                event, letter.topic, letter.key or event.subject, partition_key or event.subject
            )
        ]
    )
    return ""


def _came_from(letter: MessageDeadLettered) -> str:
    if letter.offset == HELD_BACK:
        return f"{letter.topic} held back"
    where = "not sent" if letter.offset == UNSENT else f"at {letter.offset}"
    more = f", {count(letter.more, 'record')}" if letter.more else ""
    return f"{letter.topic}/{letter.partition} {where}{more}"


def _plain(letter: Letter) -> Plain:
    fields: dict[str, object] = msgspec.to_builtins(letter.data)
    return {"id": str(letter.id), "time": as_time(letter.at), "key": "", **fields}
