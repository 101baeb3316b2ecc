"""Subscriptions of webhooks over HTTP: made, seen, changed, rotated and removed by their makers.

One that is made with a token of the plane holds as long as that does, another one as long as the
grant of its maker (`webhook_makers`). `webhook_delivery` sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Protocol
from uuid import UUID, uuid4

import msgspec
from fastapi import FastAPI, Query, Request
from starlette.responses import Response

from wharfinger.domain.text import as_time
from wharfinger.runtime.ledger import webhooks
from wharfinger.runtime.ledger.at_position import PastDatabase
from wharfinger.runtime.ledger.feed import FeedFilter
from wharfinger.runtime.ledger.tokens import secret_digest
from wharfinger.runtime.ledger.webhooks import Delivery, Webhook
from wharfinger_api.access import Principal, Role
from wharfinger_api.asked import none_given, own_namespaces, start_position
from wharfinger_api.identities import Identities
from wharfinger_api.models import (
    ChangedWebhook,
    DeliveryBody,
    NewWebhook,
    PageBody,
    RedeliveryBody,
    RedeliveryWanted,
    WantedWebhook,
    WebhookBody,
    WebhookFilter,
    WebhookList,
)
from wharfinger_api.problems import Problem
from wharfinger_api.webhook_delivery import WebhookDelivery
from wharfinger_api.webhook_makers import maker_of
from wharfinger_api.webhook_receivers import ReceiverAddressError, new_secret

_IF_MATCH: dict[str, Any] = {
    "parameters": [
        {
            "name": "If-Match",
            "in": "header",
            "required": True,
            "description": "The `ETag` of the subscription that was seen.",
            "schema": {"type": "string", "maxLength": 200},
        }
    ]
}


class HasWebhooks(Protocol):
    past: PastDatabase
    identities: Identities
    webhooks: WebhookDelivery | None


def add_webhooks(app: FastAPI, api: HasWebhooks) -> None:
    def delivering() -> WebhookDelivery:
        if api.webhooks is None:
            raise Problem("conflict", "webhooks are off: api_webhook_key_file is not set")
        return api.webhooks

    async def known(request: Request, id_: UUID, *, write: bool = False) -> Webhook:
        found = await webhooks.webhook(api.past.present, id_)
        principal: Principal = request.state.principal
        if found is not None:
            found = await met(principal, found)
        allowed = _made if write else _sees
        if found is None or not allowed(principal, found):
            raise Problem(
                "not-found",
                f"no webhook has the id {id_}",
                hidden="" if found is None else "it was made by someone else",
            )
        return found

    async def met(principal: Principal, of: Webhook) -> Webhook:
        """As it is after its maker, if that is who asks, was seen again: also where the groups it
        comes with now are too few to see it."""
        maker = maker_of(principal)
        if maker is None or of.maker is None or of.made_by != principal.name:
            return of
        return await webhooks.seen(api.past.present, of, maker)

    async def seen(request: Request, id_: UUID, *, remove: bool = False) -> Webhook:
        """As its `If-Match` says. Problem: it has changed since."""
        admin = remove and Role.ADMIN in request.state.principal.roles
        found = await known(request, id_, write=not admin)
        given = request.headers.get("if-match", "")
        if not given:
            raise Problem("precondition-required", "If-Match: expected the ETag that was seen")
        if given != _etag(found):
            raise _stale(found)
        return found if remove else _in_scope(request.state.principal, found)

    async def shown(of: Webhook, secret: str | None = None, status: int = 200) -> Response:
        body = await _plain(api.past.present, of)
        if secret is not None:
            body["secret"] = secret
        return _answer(body, status, {"ETag": _etag(of)})

    @app.get("/v1/webhooks", tags=["webhooks"], response_model=WebhookList)
    async def list_webhooks(request: Request) -> Response:
        """The subscriptions that the caller has made; of admins and auditors, all of them."""
        principal: Principal = request.state.principal
        found = [await met(principal, one) for one in await webhooks.webhooks(api.past.present)]
        shown = [one for one in found if _sees(principal, one)]
        return _answer({"items": [await _plain(api.past.present, one) for one in shown]})

    @app.post("/v1/webhooks", tags=["webhooks"], response_model=WebhookBody, status_code=201)
    async def new_webhook(request: Request, body: NewWebhook) -> Response:
        """Have events sent to a URL, signed by Standard Webhooks. The secret is shown this once.
        The subscription holds as long as the token it is made with; without a token of the plane
        as long as the grant of its maker, and 30 days since its maker came for it last."""
        principal: Principal = request.state.principal
        of = delivering()
        maker = maker_of(principal)
        token = b""
        if maker is None:
            token = _token_of(api.identities.credential(request.scope).authorization)
        _checked(of, body)
        position = await start_position(api.past, body.after)
        secret = new_secret()
        made = await webhooks.make(
            api.past.present,
            uuid4(),
            body.name,
            body.url,
            _filter(principal, body.filter),
            body.order,
            of.seals.sealed(secret),
            principal.name,
            () if principal.everywhere else sorted(principal.namespaces),
            token,
            position,
            maker=maker,
            owner=of.owner,
        )
        if made is None:
            raise Problem("conflict", f"there are {webhooks.SUBSCRIPTIONS_MAX} webhooks already")
        return await shown(made, secret, 201)

    @app.get("/v1/webhooks/{webhook}", tags=["webhooks"], response_model=WebhookBody)
    async def one_webhook(request: Request, webhook: UUID) -> Response:
        """One subscription, and how far its receiver has come."""
        return await shown(await known(request, webhook))

    @app.put(
        "/v1/webhooks/{webhook}",
        tags=["webhooks"],
        response_model=WebhookBody,
        openapi_extra=_IF_MATCH,
    )
    async def change_webhook(request: Request, webhook: UUID, body: ChangedWebhook) -> Response:
        """Change, pause or resume it. It goes on where it was; what waits is tried at once."""
        found = await seen(request, webhook)
        _checked(of := delivering(), body)
        wanted = _filter(request.state.principal, body.filter)
        if (
            found.maker is None
            and found.namespaces
            and not set(wanted.namespaces) <= set(found.namespaces)
        ):
            raise Problem("forbidden", "filter: expected namespaces of the token it was made with")
        changed = await webhooks.change(
            api.past.present,
            webhook,
            found.version,
            body.name,
            body.url,
            wanted,
            body.order,
            body.paused,
            of.owner,
        )
        if changed is None:
            raise _stale(found)
        return await shown(changed)

    @app.delete(
        "/v1/webhooks/{webhook}", tags=["webhooks"], status_code=204, openapi_extra=_IF_MATCH
    )
    async def delete_webhook(request: Request, webhook: UUID) -> Response:
        """Remove it, with its deliveries."""
        found = await seen(request, webhook, remove=True)
        if not await webhooks.remove(api.past.present, webhook, found.version):
            raise _stale(found)
        return Response(status_code=204)

    @app.post(
        "/v1/webhooks/{webhook}/rotate",
        tags=["webhooks"],
        response_model=WebhookBody,
        openapi_extra=_IF_MATCH,
    )
    async def rotate_webhook(request: Request, webhook: UUID) -> Response:
        """A new secret, shown this once. For 24 hours the old one signs too."""
        found = await seen(request, webhook)
        secret = new_secret()
        sealed = delivering().seals.sealed(secret)
        changed = await webhooks.rotate(api.past.present, webhook, found.version, sealed)
        if changed is None:
            raise _stale(found)
        return await shown(changed, secret)

    @app.post("/v1/webhooks/{webhook}/redeliver", tags=["webhooks"], response_model=RedeliveryBody)
    async def redeliver(request: Request, webhook: UUID, body: RedeliveryWanted) -> Response:
        """Deliver again: dead letters, or everything beyond a position. The receiver knows
        repetitions by `webhook-id`."""
        found = await known(request, webhook, write=True)
        _in_scope(request.state.principal, found)
        wanted = [body.after is not None, body.dead, body.sequence is not None]
        if sum(wanted) != 1:
            raise Problem("invalid", "expected one of after, dead and sequence")
        count = 0
        if body.after is not None:
            position = await start_position(api.past, body.after)
            moved = await webhooks.redeliver_from(api.past.present, webhook, position)
            found = moved or found
        else:
            count = await webhooks.redeliver(api.past.present, webhook, body.sequence)
            if body.sequence is not None and not count:
                raise Problem("not-found", f"no dead letter has the sequence {body.sequence}")
        plain = await _plain(api.past.present, found)
        return _answer({"count": count, "webhook": plain}, 200, {"ETag": _etag(found)})

    @app.get(
        "/v1/webhooks/{webhook}/deliveries",
        tags=["webhooks"],
        response_model=PageBody[DeliveryBody],
    )
    async def list_deliveries(
        request: Request,
        webhook: UUID,
        state: Annotated[list[str], Query(default_factory=none_given, max_length=3)],
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: Annotated[str, Query(max_length=18, pattern="^[0-9]*$")] = "",
    ) -> Response:
        """What was sent, is waiting, or was given up; the newest first. Kept for 30 days."""
        asked = await known(request, webhook)
        if not _reads_all(request.state.principal):
            _in_scope(request.state.principal, asked)
        found = await webhooks.deliveries(
            api.past.present, webhook, state, int(after or 0), limit + 1
        )
        shown = found[:limit]
        return _answer(
            {
                "items": [_delivery(one) for one in shown],
                "next": str(shown[-1].sequence) if len(found) > limit else None,
            }
        )


def _sees(principal: Principal, of: Webhook) -> bool:
    return _reads_all(principal) or _made(principal, of)


def _reads_all(principal: Principal) -> bool:
    return bool(principal.roles & {Role.ADMIN, Role.AUDITOR})


def _made(principal: Principal, of: Webhook) -> bool:
    """Names of tokens are given by people: one of the same name with fewer rights is not the
    maker. Other names are proven: their maker sees and removes it under any grant."""
    if of.made_by != principal.name:
        return False
    proven = of.maker is not None and maker_of(principal) is not None
    return proven or _covers(principal, of)


def _covers(principal: Principal, of: Webhook) -> bool:
    """Return whether all that is delivered lies in the caller's scope."""
    namespaces = of.namespaces if of.maker is None else of.filter.namespaces
    return principal.everywhere or (
        bool(namespaces) and set(namespaces) - {""} <= principal.namespaces
    )


def _in_scope(principal: Principal, of: Webhook) -> Webhook:
    """Problem: its maker comes with a smaller grant than it was made with."""
    if not _covers(principal, of):
        wanted = ", ".join(sorted(set(of.filter.namespaces) - {""})) or "all namespaces"
        raise Problem("forbidden", f"webhook {of.id}: needs a grant for {wanted}")
    return of


def _token_of(authorization: str) -> bytes:
    """By which it is known whether the maker may still read."""
    return secret_digest(authorization.partition(" ")[2].strip())


def _checked(of: WebhookDelivery, body: WantedWebhook) -> None:
    try:
        of.sender.check(body.url)
    except ReceiverAddressError as error:
        raise Problem(
            "invalid",
            f"url: {error}",
            errors=[{"pointer": "body/url", "expected": str(error), "got": body.url[:80]}],
        ) from None


def _filter(principal: Principal, wanted: WebhookFilter) -> FeedFilter:
    def of(names: list[str]) -> tuple[str, ...]:
        return tuple(sorted(set(names)))

    return FeedFilter(
        types=of(wanted.type),
        namespaces=of(own_namespaces(principal, wanted.namespace)),
        bindings=of(wanted.binding),
        clusters=of(wanted.cluster),
        streams=of(wanted.stream),
        outcomes=of(wanted.outcome),
        facts=wanted.facts,
    )


def _etag(of: Webhook) -> str:
    return f'"v{of.version}"'


def _stale(of: Webhook) -> Problem:
    return Problem("precondition-failed", f"webhook {of.id} has changed since it was read")


async def _plain(database: Any, of: Webhook) -> dict[str, object]:
    wanted = of.filter
    return {
        "id": str(of.id),
        "name": of.name,
        "url": of.url,
        "filter": {
            "type": wanted.types,
            "namespace": wanted.namespaces,
            "binding": wanted.bindings,
            "cluster": wanted.clusters,
            "stream": wanted.streams,
            "outcome": wanted.outcomes,
            "facts": wanted.facts,
        },
        "order": of.ordering,
        "made_by": of.made_by,
        "made": as_time(of.made_at),
        "holds_until": None if of.holds_until is None else as_time(of.holds_until),
        "state": of.state,
        "why": of.why,
        "position": of.position,
        "failures": of.failures,
        "deliveries": await webhooks.counts(database, of.id),
        "etag": _etag(of),
    }


def _delivery(of: Delivery) -> dict[str, object]:
    return {
        "sequence": of.sequence,
        "position": of.position,
        "event": str(of.event),
        "key": of.key,
        "state": of.state,
        "tries": of.tries,
        "changed": as_time(of.changed_at),
        "next_try": as_time(of.next_at) if of.state == "waiting" else None,
        "status": of.status,
        "error": of.error,
        "answer": of.answer.decode("utf-8", "replace"),
        "latency_us": of.latency_us,
    }


def _answer(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    given = {"Cache-Control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(body), status, given, "application/json")
