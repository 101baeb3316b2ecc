"""`scale`, `drain` and `undrain`: one fact each, told to the plane. `plan scale` and `plan drain`
show beforehand what comes of it."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.answers.facts import LatestFacts, known_facts
from wharfinger.answers.submit import submit
from wharfinger.answers.upkeep import drained, scaled, undrained
from wharfinger.events.accepted import Accepted
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.output import Plain, show
from wharfinger_cli.request import Request


def scale(request: Request, binding: str, replicas: int) -> None:
    _tell(request, lambda known: scaled(known, binding, replicas))


def drain(request: Request, what: str) -> None:
    _tell(request, lambda known: drained(known, what))


def undrain(request: Request, what: str) -> None:
    _tell(request, lambda known: undrained(known, what))


def _tell(request: Request, make: Callable[[LatestFacts], Accepted]) -> None:
    subject, changed = run(_told(request, make))
    result = "changed" if changed else "unchanged"
    value: Plain = {"subject": subject, "result": result}
    show(request.format, value, [subject], lambda: [f"{subject} {result}"])


async def _told(request: Request, make: Callable[[LatestFacts], Accepted]) -> tuple[str, bool]:
    async with opened_ledger(reached(request)) as ledger:
        known = await known_facts(ledger)
        fact = make(known)
        return fact.subject, bool((await submit(ledger, [fact], known)).accepted)
