"""Many facts over the HTTP API: in requests of a bounded size, each accepted as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from wharfinger.answers.changes import AppliedChanges
from wharfinger.answers.submit import BindingPace, Submitted, chunks, submission
from wharfinger.events.accepted import Accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger_cli.remote import Remote
from wharfinger_cli.request import Request

REQUEST_FACTS = 2000
REQUEST_BYTES = 4_000_000
"""Of one request. The server refuses those of more than 10,000 facts or 16 MB."""


async def submit_over(
    request: Request,
    facts: Iterable[Accepted],
    *,
    rate: float | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> Submitted:
    """As `answers.submit.submit` over the database. With a `rate` a request has the
    bindings of a second, since the server reads what it knows for each request.

    CommandError: as `Remote.change`. The requests before it were accepted."""
    remote = Remote.of(request)
    done = Submitted()
    pace = BindingPace(rate)
    size = REQUEST_FACTS if rate is None else max(1, min(REQUEST_FACTS, int(rate)))
    for some in chunks(facts, size):
        for part in _bounded(some):
            await pace.wait_for(sum(isinstance(fact.data, BindingRequested) for fact, _ in part))
            body = {
                "events": [msgspec.Raw(event) for _, event in part],
                "reason": request.reason,
                "revision": request.revision,
            }
            found = remote.change("/v1/apply", body)
            assert isinstance(found, AppliedChanges), "the route answers with its value"
            done.accepted += found.accepted
            done.unchanged += found.unchanged
            done.outdated += found.outdated
            told(len(part))
    return done


def _bounded(facts: Iterable[Accepted]) -> Iterator[list[tuple[Accepted, bytes]]]:
    """In order, each with its event: as many together as one request holds."""
    part: list[tuple[Accepted, bytes]] = []
    size = 0
    for fact in facts:
        event = submission(fact, None).event.body
        if part and size + len(event) > REQUEST_BYTES:
            yield part
            part, size = [], 0
        part.append((fact, event))
        size += len(event)
    if part:
        yield part
