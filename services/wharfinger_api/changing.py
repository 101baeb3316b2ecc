"""Routes that change something: manifests applied and deleted, facts posted. Each goes the way of
the command of the same name (`answers.changes`), with who asks inside the hashed frame.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from fastapi import Request
from starlette.responses import Response

from wharfinger.answers import typed
from wharfinger.answers.barrier import Barrier, barrier_plain
from wharfinger.answers.changes import (
    AppliedChanges,
    ChangeRefusedError,
    Check,
    Compile,
    change,
    changes_plain,
    namespace_of,
)
from wharfinger.answers.submit import API_SOURCE, WrongFactError
from wharfinger.answers.upkeep import MakeFact, tell
from wharfinger.domain.text import printable
from wharfinger.events.accepted import Accepted, Fact, accepted
from wharfinger.events.codec import UndecodableError, decode, made
from wharfinger.events.envelope import derived_id
from wharfinger.events.names import wrong_name
from wharfinger.events.origin import Origin
from wharfinger.events.streams import INTAKE
from wharfinger.manifests.errors import ManifestError
from wharfinger.manifests.parse import Manifest, loaded_texts
from wharfinger.runtime.believed_sources import BelievedSources
from wharfinger.runtime.ledger import Ledger, Submission, feed
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.ledger.idempotency import KeptAnswer, claim, keep, release
from wharfinger_api.access import Principal
from wharfinger_api.models import ApplyBody, BarrierBody, FactsBody, ManifestsBody
from wharfinger_api.problems import ERRORS_MAX, Problem

KEY_MAX = 200
BUSY_POLL_S = 0.1
BUSY_WAIT_S = 5.0
NUMBERED_WAIT_S = 1.0
"""How long an answer waits for the feed to give what was accepted its positions."""

POLL_S = 0.05


def origin_of(principal: Principal, reason: str, revision: str) -> Origin:
    """Problem: a text that cannot be recorded."""
    try:
        return Origin(principal.authtype, principal.name, reason, revision)
    except ValueError as error:
        raise Problem("invalid", str(error)) from None


async def once(
    database: Database, request: Request, work: Callable[[], Awaitable[Response]]
) -> Response:
    """What `work` answers; under an `Idempotency-Key` that was used, what it answered then.

    Problem: the key belongs to another request, or the first answer is still being made."""
    key = request.headers.get("idempotency-key", "")
    if not key:
        return await work()
    if len(key) > KEY_MAX or not key.isascii() or not key.isprintable():
        raise Problem("invalid", f"Idempotency-Key: expected at most {KEY_MAX} printable signs")
    principal: Principal = request.state.principal
    digest = hashlib.sha256()
    for part in (
        request.method,
        request.url.path,
        request.headers.get("accept", ""),
        request.headers.get("if-match", ""),
    ):
        digest.update(part.encode() + b"\0")
    digest.update(await request.body())
    holder = uuid4()
    mine = principal.name, key
    waited = 0.0
    while (found := await claim(database, *mine, digest.digest(), holder)) == "busy":
        if waited >= BUSY_WAIT_S:
            raise Problem(
                "conflict",
                "Idempotency-Key: the first request under it is still being answered",
                headers={"Retry-After": "1"},
            )
        await asyncio.sleep(BUSY_POLL_S)
        waited += BUSY_POLL_S
    if isinstance(found, KeptAnswer):
        headers = {"Cache-Control": "no-store", "Idempotency-Replayed": "true"}
        return Response(found.body, found.status, headers, found.media_type)
    if found == "other":
        raise Problem("key-reused", "Idempotency-Key: it was used for another request")
    try:
        answer = await work()
    except BaseException:
        # shielded: a client that hangs up must not leave the key behind
        await asyncio.shield(release(database, *mine, holder))
        raise
    kept = KeptAnswer(
        answer.status_code, answer.media_type or "application/json", bytes(answer.body)
    )
    await keep(database, *mine, holder, kept)
    return answer


async def changed(
    database: Database,
    request: Request,
    body: ManifestsBody,
    made_by: Compile,
    only: Check = lambda _: None,
    since: int | None = None,
) -> Response:
    """`only`: raises what else is wrong with the facts. `since`: the seq of the intake up to which
    was looked at what is changed.

    Problem: something is wrong. ChangedSinceError: it was changed after that. Nothing was
    accepted."""
    principal: Principal = request.state.principal
    origin = origin_of(principal, body.reason, body.revision)
    told = body.events if isinstance(body, ApplyBody) else []
    events = [fact_of(f"events/{place}", event) for place, event in enumerate(told)]
    try:
        manifests = await asyncio.to_thread(_read, body)
    except ChangeRefusedError as error:
        raise refused(error) from None
    if not manifests and not events:
        raise Problem("invalid", "manifests: expected at least one manifest, got none")
    return await accepted_changes(
        database,
        request,
        manifests,
        events,
        made_by,
        origin,
        only,
        strict=isinstance(body, ApplyBody) and body.strict,
        dry_run=body.dry_run,
        since=since,
    )


async def accepted_changes(
    database: Database,
    request: Request,
    manifests: Sequence[Manifest],
    events: Sequence[Accepted],
    made_by: Compile,
    origin: Origin,
    only: Check = lambda _: None,
    *,
    strict: bool = False,
    dry_run: bool = False,
    since: int | None = None,
) -> Response:
    """As `changed`, of what was read."""
    principal: Principal = request.state.principal

    def check(facts: Sequence[Accepted]) -> None:
        within(principal, facts)
        only(facts)

    try:
        changes = await change(
            Ledger(database),
            manifests,
            made_by,
            events,
            strict=strict,
            dry_run=dry_run,
            source=API_SOURCE,
            origin=origin,
            check=check,
            since=since,
        )
    except ChangeRefusedError as error:
        raise refused(error) from None
    except WrongFactError as error:
        raise Problem("invalid", str(error)) from None
    return await _answer(database, request, dry_run, changes)


async def kept_up(
    database: Database,
    request: Request,
    reason: str,
    revision: str,
    make: MakeFact,
    since: int | None = None,
) -> Response:
    """Problem: the fact cannot be made of what is known. ChangedSinceError: the subject was changed
    after `since`. Nothing was accepted."""
    origin = origin_of(request.state.principal, reason, revision)
    found = await tell(Ledger(database), make, source=API_SOURCE, origin=origin, since=since)
    headers = {"Cache-Control": "no-store"}
    if typed.MEDIA_TYPE in request.headers.get("accept", ""):
        return Response(typed.encoded(found), 200, headers, typed.MEDIA_TYPE)
    position = await numbered(database) if found.result == "changed" else None
    if position is not None:
        headers["Wharfinger-Position"] = str(position)
    body = {
        "subject": found.subject,
        "result": found.result,
        "position": position,
        "facts": _keys(found.facts),
        "leaving": list(found.leaving),
    }
    return Response(msgspec.json.encode(body), 200, headers, "application/json")


async def _answer(
    database: Database, request: Request, dry_run: bool, changes: AppliedChanges
) -> Response:
    headers = {"Cache-Control": "no-store"}
    if typed.MEDIA_TYPE in request.headers.get("accept", ""):
        return Response(typed.encoded(changes), 200, headers, typed.MEDIA_TYPE)
    position = await numbered(database) if changes.accepted and not dry_run else None
    if position is not None:
        headers["Wharfinger-Position"] = str(position)
    body = {
        **changes_plain(changes),
        "outdated": changes.outdated,
        "unacted": list(changes.unacted),
        "dry_run": dry_run,
        "position": position,
        "facts": _keys(changes.facts),
    }
    return Response(msgspec.json.encode(body), 200, headers, "application/json")


def _keys(facts: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"topic": topic, "key": key} for topic, key in facts]


async def waited(
    database: Database, request: Request, body: BarrierBody, seconds: float
) -> Response:
    """How far the facts are, as soon as they are there, at the latest after so long.

    Problem: one of them is not known, or is not the caller's to see."""
    principal: Principal = request.state.principal
    keys = [(fact.topic, fact.key) for fact in body.facts]
    bindings = [name for name in body.bindings if principal.sees(name)]
    barrier = Barrier(Ledger(database), body.until, keys, bindings)
    known = {(fact.topic, fact.key): event_of(fact).data for fact in await barrier.facts()}
    for topic, key in keys:
        data = known.get((topic, key))
        about = namespace_of(accepted(data)) if isinstance(data, Fact) else None
        mine = principal.everywhere or about in principal.namespaces
        if data is None or not mine:
            raise Problem(
                "not-found",
                f"no fact is known under {topic[:300]} {key[:300]}",
                hidden="" if data is None else "needs a grant for its namespace",
            )
    report = await barrier.wait(seconds)
    headers = {"Cache-Control": "no-store"}
    if report.position is not None:
        headers["Wharfinger-Position"] = str(report.position)
    if typed.MEDIA_TYPE in request.headers.get("accept", ""):
        return Response(typed.encoded(report), 200, headers, typed.MEDIA_TYPE)
    return Response(msgspec.json.encode(barrier_plain(report)), 200, headers, "application/json")


async def numbered(database: Database) -> int | None:
    """The position of the last that is accepted so far; None: the feed has given it none in
    `NUMBERED_WAIT_S`."""
    seq = await Ledger(database).accepted_seq()
    waited = 0.0
    while (found := await feed.position_of(database, INTAKE, seq)) is None:
        if waited >= NUMBERED_WAIT_S:
            return None
        await asyncio.sleep(POLL_S)
        waited += POLL_S
    return found


def _read(body: ManifestsBody) -> tuple[Manifest, ...]:
    """ChangeRefusedError: what cannot be read, all of it."""
    found = loaded_texts([(one.name, one.text) for one in body.manifests])
    if found.errors:
        raise ChangeRefusedError(found.errors)
    return found.manifests


def fact_of(place: str, event: Any) -> Accepted:
    """Problem: it is no fact from outside."""
    try:
        found = decode(msgspec.json.encode(event))
    except (UndecodableError, UnicodeEncodeError, OverflowError, RecursionError) as error:
        # what JSON can say and no event: half of a surrogate pair, a number beyond 64 bits
        raise Problem(
            "invalid", f"{place}: {printable(str(error))}", errors=[_wrong(place, str(error))]
        ) from None
    if not isinstance(found.data, Fact):
        said = f"type: expected a fact from outside, got {found.type}"
        raise Problem("invalid", f"{place}: {said}", errors=[_wrong(place, said)])
    fact = accepted(found.data)
    if wrong := wrong_name(fact.data):
        raise Problem("invalid", f"{place}: {wrong}", errors=[_wrong(place, wrong)])
    return Accepted(fact.data, fact.subject, fact.key, fact.partition_key, found.version)


def _wrong(place: str, text: str) -> dict[str, object]:
    return {"pointer": f"body/{place}", "expected": text, "got": ""}


def within(principal: Principal, facts: Sequence[Accepted]) -> None:
    """Problem: a fact is about what is outside of the namespaces of the principal."""
    if not principal.namespaces:
        return
    for fact in facts:
        namespace = namespace_of(fact)
        if namespace is None:
            raise Problem("forbidden", f"{fact.subject}: needs a grant for all namespaces")
        if namespace not in principal.namespaces:
            raise Problem("forbidden", f"{fact.subject}: needs a grant for that namespace")


def refused(error: ChangeRefusedError) -> Problem:
    """All that is wrong, with file, line and field; `lines` as the command prints them."""
    errors: list[dict[str, object]] = [
        {"file": e.file, "line": e.line, "field": e.field, "expected": e.text}
        if isinstance(e, ManifestError)
        else {"expected": e}
        for e in error.errors[:ERRORS_MAX]
    ]
    more = {"lines": list(error.lines), "error_count": len(error.errors)}
    return Problem("invalid", error.lines[0], errors=errors, more=more)


async def posted(
    database: Database, request: Request, body: FactsBody, believed: BelievedSources
) -> Response:
    """Facts of a service, each under the id that follows from its source and id: one that was
    posted before has no effect.

    Problem: one of them is no fact, not of a source of the caller, or of one that is not believed;
    none was accepted."""
    principal: Principal = request.state.principal
    submissions: list[Submission] = []
    facts: list[Accepted] = []
    for place, event in enumerate(body.events):
        fact = fact_of(f"events/{place}", event)
        source = event["source"]
        if source not in principal.sources:
            raise Problem("forbidden", f"events/{place}: source: expected one of yours")
        recorded = made(
            fact.data,
            id=derived_id("posted", source, str(event["id"])),
            source=source,
            subject=fact.subject,
            key=fact.partition_key,
            version=fact.version,
        )
        if refusal := believed.refusal(fact.topic.name, recorded):
            raise Problem("forbidden", f"events/{place}: {refusal}")
        facts.append(fact)
        submissions.append(Submission(recorded, fact.topic.name, fact.key, fact.partition_key))
    within(principal, facts)
    result = await Ledger(database).accept(submissions, origin_of(principal, "", ""))
    position = await numbered(database) if result.new else None
    headers = {"Cache-Control": "no-store"}
    if position is not None:
        headers["Wharfinger-Position"] = str(position)
    answer = {
        "accepted": [str(id_) for id_ in result.new],
        "known": [str(id_) for id_ in result.known],
        "outdated": [str(id_) for id_ in result.outdated],
        "position": position,
    }
    return Response(msgspec.json.encode(answer), 200, headers, "application/json")
