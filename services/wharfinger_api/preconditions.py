"""One object is changed as it was seen: `If-Match` and `If-None-Match` (RFC 9110).

A change between the look and the request's own change is noticed, also one by `apply` or a command:
the ledger looks at what it has accepted since, under the lock under which it accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from wharfinger.runtime.ledger import ChangedSinceError
from wharfinger_api.asked import matches
from wharfinger_api.problems import Problem


@contextmanager
def as_seen(full: str) -> Iterator[None]:
    """Problem: the object was changed by another request in the meantime."""
    try:
        yield
    except ChangedSinceError:
        said = f"{full[:300]} was changed by another request in the meantime"
        raise Problem("precondition-failed", said) from None


def not_there(what: str, full: str, mine: bool) -> Problem:
    """That no such object is named so, as also where it is in a namespace of others."""
    hidden = "" if mine else "needs a grant for that namespace"
    return Problem("not-found", f"no {what} is named {full[:300]}", hidden=hidden)


def hold(request: Request, full: str, etag: str | None, *, may_be_new: bool = False) -> None:
    """Problem: what the request says of the present state is not so, or it says nothing."""
    seen = request.headers.get("if-match", "")
    unseen = request.headers.get("if-none-match", "")
    if not seen and not (may_be_new and unseen):
        either = " or If-None-Match: *" if may_be_new else ""
        raise Problem("precondition-required", f"If-Match: expected the ETag that was seen{either}")
    holds = etag is not None and matches(seen, etag) if seen else True
    if unseen and etag is not None and matches(unseen, etag):
        holds = False
    if not holds:
        raise Problem(
            "precondition-failed",
            f"{full[:300]} is not as it was seen",
            more={"expected": (seen or unseen)[:200], "found": etag},
        )
