"""One binding is put or deleted as it was seen (`preconditions`).

The tag is that of `GET` of the same binding: it changes with what the binding asks for and with
where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from fastapi import Request
from starlette.responses import Response

from wharfinger.answers import facts
from wharfinger.answers.changes import compiled
from wharfinger.answers.facts import LatestFacts
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.database import Database
from wharfinger_api.asked import etag_of
from wharfinger_api.changing import changed, kept_up
from wharfinger_api.models import ManifestsBody, ManifestText, OneManifestBody
from wharfinger_api.preconditions import as_seen, hold, not_there
from wharfinger_api.problems import Problem


async def put(database: Database, request: Request, full: str, body: OneManifestBody) -> Response:
    """Problem: the precondition is missing or does not hold, or the manifest is wrong."""
    if not request.state.principal.changes(full.partition("/")[0]):
        raise Problem("forbidden", f"{full[:300]}: needs a grant for that namespace")

    def only(found: Sequence[Accepted]) -> None:
        names = [fact.key for fact in found if isinstance(fact.data, BindingRequested)]
        if names != [full] or len(found) != 1:
            said = ", ".join(fact.subject for fact in found[:3]) or "nothing that is placed"
            raise Problem("invalid", f"text: expected what becomes {full[:300]}, got {said}")

    text = ManifestText(name=full[:253], text=body.text)
    wanted = ManifestsBody(manifests=[text], reason=body.reason, revision=body.revision)
    since = await Ledger(database).accepted_seq()
    hold(request, full, await _etag(database, request, full), may_be_new=True)
    with as_seen(full):
        return await changed(database, request, wanted, compiled, only, since)


async def delete(
    database: Database, request: Request, full: str, reason: str, revision: str
) -> Response:
    """Problem: there is none, or the precondition is missing or does not hold."""
    mine = request.state.principal.changes(full.partition("/")[0])
    since = await Ledger(database).accepted_seq()
    etag = await _etag(database, request, full) if mine else None
    if etag is None:
        raise not_there("binding", full, mine)
    hold(request, full, etag)

    def withdrawn(known: LatestFacts) -> Accepted:
        return accepted(BindingWithdrawn(full))

    with as_seen(full):
        return await kept_up(database, request, reason, revision, withdrawn, since)


async def _etag(database: Database, request: Request, full: str) -> str | None:
    """As `GET` would answer now; None: there is no such binding."""
    if not request.state.principal.sees(full):
        return None
    found = await facts.binding_now(Ledger(database), full)
    return etag_of(msgspec.json.encode(facts.binding_plain(found))) if found else None
