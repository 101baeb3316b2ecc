"""`scale`, `drain` and `undrain`: one fact each, told to the plane. `plan scale` and `plan drain`
show beforehand what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wharfinger.answers.upkeep import MakeFact, UpkeepResult, drained, scaled, tell, undrained
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.output import Plain
from wharfinger_cli.request import Request
from wharfinger_cli.waiting import Wait, show_and_wait

if TYPE_CHECKING:
    from rich.console import RenderableType


def scale(request: Request, binding: str, replicas: int, wait: Wait | None = None) -> None:
    if request.server:
        from wharfinger_cli.remote import Remote

        # a full name need not have been decided about yet
        path = f"{Remote.of(request).binding(binding, there='/' in binding)}/scale"
        _show(request, _over_server(request, path, {"replicas": replicas}), wait)
    else:
        _show(request, run(_told(request, lambda known: scaled(known, binding, replicas))), wait)


def drain(request: Request, what: str, wait: Wait | None = None) -> None:
    if request.server:
        _show(request, _over_server(request, "/v1/drain", {"what": what}), wait)
    else:
        _show(request, run(_told(request, lambda known: drained(known, what))), wait)


def undrain(request: Request, what: str, wait: Wait | None = None) -> None:
    if request.server:
        _show(request, _over_server(request, "/v1/undrain", {"what": what}), wait)
    else:
        _show(request, run(_told(request, lambda known: undrained(known, what))), wait)


def _over_server(request: Request, path: str, body: dict[str, object]) -> UpkeepResult:
    from wharfinger_cli.remote import Remote

    why = {"reason": request.reason, "revision": request.revision}
    found = Remote.of(request).change(path, {**body, **why})
    assert isinstance(found, UpkeepResult), "the route answers with its value"
    return found


def _show(request: Request, found: UpkeepResult, wait: Wait | None) -> None:
    value: Plain = {"subject": found.subject, "result": found.result}

    def page() -> list[RenderableType]:
        return [f"{found.subject} {found.result}"]

    show_and_wait(request, value, [found.subject], page, wait, found.facts, found.leaving)


async def _told(request: Request, make: MakeFact) -> UpkeepResult:
    async with opened_ledger(reached(request)) as ledger:
        return await tell(ledger, make)
