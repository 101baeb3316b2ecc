"""Every operation of the HTTP API, as a function that gives the call to be made.

A call is a value; `Client` and `AsyncClient` carry it out, with its answer typed:

    page = client(api.bindings(namespace=["shop"], state=["refused"]))
    page = await async_client(api.bindings(namespace=["shop"]))

Parameters have the names that they have in the API (`docs/api.md`). Calls that change something
carry a key of their own, under which the server carries them out once, however often they are sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, ParamSpec, TypeVar, cast
from urllib.parse import quote
from uuid import uuid4

from wharfinger_client import models
from wharfinger_client.events import Event, EventBatch, EventFilter

T = TypeVar("T")
P = ParamSpec("P")

Names = Sequence[str]

BATCH = "application/cloudevents-batch+json"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `parse`: body and headers -> its answer. `repeatable`: sent twice it does what
    it does once, so it is tried again when its answer was lost."""

    method: str
    path: str
    parse: Callable[[bytes, Mapping[str, str]], T]
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    repeatable: bool = True
    wait_s: float = 0.0


OPERATIONS: dict[tuple[str, str], Callable[..., Call[Any]]] = {}
"""(method, path) as in the OpenAPI document -> its function."""


def _operation(method: str, path: str) -> Callable[[Callable[P, Call[T]]], Callable[P, Call[T]]]:
    def known(function: Callable[P, Call[T]]) -> Callable[P, Call[T]]:
        OPERATIONS[method, path] = function
        return function

    return known


def _json(body: bytes, headers: Mapping[str, str]) -> Any:
    return json.loads(body)


def _text(body: bytes, headers: Mapping[str, str]) -> str:
    return body.decode()


def _nothing(body: bytes, headers: Mapping[str, str]) -> None:
    return None


def _get(path: str, **parameters: object) -> Call[Any]:
    return Call("GET", path, _json, _query(parameters))


def _query(parameters: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for name, value in parameters.items():
        if isinstance(value, bool):
            found += [(name, "true")] if value else []
        elif isinstance(value, str):
            found += [(name, value)] if value else []
        elif isinstance(value, Sequence):
            found += [(name, str(one)) for one in value]
        elif value is not None:
            found.append((name, str(value)))
    return tuple(found)


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _policy_path(kind: str, namespace: str, name: str) -> str:
    return _path("policies", kind, namespace or "-", name)


# --- the plane


@_operation("GET", "/healthz")
def healthz() -> Call[dict[str, bool]]:
    """Whether the process is alive."""
    return _get("/healthz")


@_operation("GET", "/readyz")
def readyz() -> Call[models.Ready]:
    """Whether it can answer. UnavailableError: it cannot."""
    return _get("/readyz")


@_operation("GET", "/metrics")
def metrics() -> Call[str]:
    """Figures, as Prometheus reads them."""
    return Call("GET", "/metrics", _text)


@_operation("GET", "/v1/openapi.json")
def openapi() -> Call[dict[str, Any]]:
    """The OpenAPI document."""
    return _get("/v1/openapi.json")


@_operation("GET", "/v1/status")
def status() -> Call[dict[str, Any]]:
    """As `wharfinger status -o json` prints it. NotFoundError: the server is not on the machine of
    a plane."""
    return _get("/v1/status")


@_operation("GET", "/v1/streams")
def streams(
    *, at: str = "", min_position: int | None = None
) -> Call[models.Items[models.StreamHead]]:
    """Where every stream stands."""
    return _get("/v1/streams", at=at, min_position=min_position)


# --- the fleet


@_operation("GET", "/v1/bindings")
def bindings(
    *,
    namespace: Names = (),
    binding: Names = (),
    cluster: Names = (),
    policy: Names = (),
    outcome: Names = (),
    state: Names = (),
    label: Names = (),
    fields: Names = (),
    group_by: Names = (),
    at: str = "",
    min_position: int | None = None,
    limit: int | None = None,
    after: str = "",
) -> Call[models.Page[models.Binding]]:
    """Bindings, and where they are."""
    return _get("/v1/bindings", **locals())


@_operation("GET", "/v1/clusters")
def clusters(
    *,
    cluster: Names = (),
    provider: Names = (),
    region: Names = (),
    state: Names = (),
    label: Names = (),
    fields: Names = (),
    group_by: Names = (),
    at: str = "",
    min_position: int | None = None,
    limit: int | None = None,
    after: str = "",
) -> Call[models.Page[models.Cluster]]:
    """Member clusters."""
    return _get("/v1/clusters", **locals())


@_operation("GET", "/v1/nodes")
def nodes(
    *,
    cluster: Names = (),
    node: Names = (),
    state: Names = (),
    label: Names = (),
    fields: Names = (),
    group_by: Names = (),
    at: str = "",
    min_position: int | None = None,
    limit: int | None = None,
    after: str = "",
) -> Call[models.Page[models.Node]]:
    """Nodes of all clusters."""
    return _get("/v1/nodes", **locals())


@_operation("GET", "/v1/policies")
def policies(
    *,
    namespace: Names = (),
    policy: Names = (),
    kind: Names = (),
    fields: Names = (),
    group_by: Names = (),
    at: str = "",
    min_position: int | None = None,
    limit: int | None = None,
    after: str = "",
) -> Call[models.Page[models.Policy]]:
    """Policies, with how many bindings each places."""
    return _get("/v1/policies", **locals())


@_operation("GET", "/v1/policies/{kind}/{namespace}/{name}")
def policy(
    kind: str, namespace: str, name: str, *, at: str = "", min_position: int | None = None
) -> Call[models.Policy]:
    """`namespace` empty: it has none. NotFoundError: there is none, or it is not visible."""
    return _get(_policy_path(kind, namespace, name), at=at, min_position=min_position)


# --- one binding


@_operation("GET", "/v1/bindings/{namespace}/{name}")
def binding(
    namespace: str, name: str, *, at: str = "", min_position: int | None = None
) -> Call[models.Binding]:
    """NotFoundError: there is none of this name, or it is not visible."""
    return _get(_path("bindings", namespace, name), at=at, min_position=min_position)


@_operation("GET", "/v1/bindings/{namespace}/{name}/history")
def binding_history(
    namespace: str,
    name: str,
    *,
    at: str = "",
    min_position: int | None = None,
    limit: int | None = None,
) -> Call[models.History]:
    """Every decision about it, with what caused each."""
    return _get(
        _path("bindings", namespace, name, "history"), at=at, min_position=min_position, limit=limit
    )


@_operation("GET", "/v1/bindings/{namespace}/{name}/lineage")
def binding_lineage(
    namespace: str, name: str, *, at: str = "", min_position: int | None = None
) -> Call[models.Lineage]:
    """What led to its latest decisions, and what they led to."""
    return _get(_path("bindings", namespace, name, "lineage"), at=at, min_position=min_position)


@_operation("GET", "/v1/bindings/{namespace}/{name}/explain")
def binding_explain(
    namespace: str,
    name: str,
    *,
    at: str = "",
    min_position: int | None = None,
    decision: str = "",
    every: bool = False,
) -> Call[models.Explanation]:
    """Why it is where it is, why not elsewhere, and what would let it in there."""
    path = _path("bindings", namespace, name, "explain")
    return _get(path, at=at, min_position=min_position, decision=decision, every=every)


# --- decisions and events


@_operation("GET", "/v1/decisions")
def decisions(
    *,
    namespace: Names = (),
    binding: Names = (),
    type: Names = (),
    outcome: Names = (),
    stream: str = "",
    since: str = "",
    until: str = "",
    at: str = "",
    min_position: int | None = None,
    limit: int | None = None,
    after: str = "",
) -> Call[models.Page[models.Decision]]:
    """Decisions in order of time."""
    return _get("/v1/decisions", **locals())


@_operation("GET", "/v1/decisions/{decision}")
def decision(
    decision: str, *, at: str = "", min_position: int | None = None
) -> Call[models.Decision]:
    """One of them, by id."""
    return _get(_path("decisions", decision), at=at, min_position=min_position)


@_operation("GET", "/v1/events")
def events(
    *,
    type: Names = (),
    namespace: Names = (),
    binding: Names = (),
    cluster: Names = (),
    stream: Names = (),
    outcome: Names = (),
    facts: bool = False,
    after: str = "",
    limit: int | None = None,
    wait: float | None = None,
) -> Call[EventBatch]:
    """One batch beyond `after`. `wait`: seconds for the first event to come, at most 30."""
    parameters = locals()
    return Call(
        "GET",
        "/v1/events",
        _events,
        _query(parameters),
        headers={"Accept": BATCH},
        wait_s=wait or 0.0,
    )


def events_after(
    wanted: EventFilter, after: str, limit: int | None = None, wait: float | None = None
) -> Call[EventBatch]:
    """`events` with a filter."""
    return events(**wanted.parameters(), after=after, limit=limit, wait=wait)


def _events(body: bytes, headers: Mapping[str, str]) -> EventBatch:
    found = tuple(Event.of(member) for member in json.loads(body))
    return EventBatch(found, int(headers["wharfinger-position"]))


# --- what is changed


@_operation("POST", "/v1/apply")
def apply(
    manifests: Mapping[str, str],
    *,
    events: Sequence[Mapping[str, Any]] = (),
    strict: bool = False,
    dry_run: bool = False,
    reason: str = "",
    revision: str = "",
) -> Call[models.Changes]:
    """Accept manifests, all or nothing. `manifests`: name, which errors call it by -> YAML or JSON.
    `events`: facts as CloudEvents. InvalidError: what is wrong; nothing was accepted."""
    body = _changing(manifests, dry_run, reason, revision)
    return _once("/v1/apply", {**body, "events": list(events), "strict": strict})


@_operation("POST", "/v1/delete")
def delete(
    manifests: Mapping[str, str], *, dry_run: bool = False, reason: str = "", revision: str = ""
) -> Call[models.Changes]:
    """Withdraw what the manifests name, all or nothing."""
    return _once("/v1/delete", _changing(manifests, dry_run, reason, revision))


@_operation("POST", "/v1/bindings/{namespace}/{name}/scale")
def scale(
    namespace: str, name: str, replicas: int, *, reason: str = "", revision: str = ""
) -> Call[models.Upkeep]:
    """Ask for another number of replicas. NotFoundError: no such binding."""
    body = {"replicas": replicas, "reason": reason, "revision": revision}
    return _once(_path("bindings", namespace, name, "scale"), body)


@_operation("PUT", "/v1/bindings/{namespace}/{name}")
def put_binding(
    namespace: str, name: str, text: str, etag: str = "", *, reason: str = "", revision: str = ""
) -> Call[models.Changes]:
    """Request one binding by its manifest: as it was seen with `etag`, or without one a new one.
    ApiError 412: it has changed since, or is there; 409: another request changes it now."""
    body = {"text": text, "reason": reason, "revision": revision}
    return _as_seen(Call("PUT", _path("bindings", namespace, name), _json, body=body), etag)


@_operation("DELETE", "/v1/bindings/{namespace}/{name}")
def delete_binding(
    namespace: str, name: str, etag: str, *, reason: str = "", revision: str = ""
) -> Call[models.Upkeep]:
    """Withdraw the one that was seen with `etag`; "*": as it is. ApiError 412: it has changed."""
    query = _query({"reason": reason, "revision": revision})
    call = Call("DELETE", _path("bindings", namespace, name), _json, query)
    return _seen(call, etag)


@_operation("PUT", "/v1/policies/{kind}/{namespace}/{name}")
def put_policy(
    kind: str,
    namespace: str,
    name: str,
    text: str,
    etag: str = "",
    *,
    reason: str = "",
    revision: str = "",
) -> Call[models.Changes]:
    """As `put_binding`, of one policy. `namespace` empty: it has none."""
    body = {"text": text, "reason": reason, "revision": revision}
    return _as_seen(Call("PUT", _policy_path(kind, namespace, name), _json, body=body), etag)


@_operation("DELETE", "/v1/policies/{kind}/{namespace}/{name}")
def delete_policy(
    kind: str, namespace: str, name: str, etag: str, *, reason: str = "", revision: str = ""
) -> Call[models.Changes]:
    """As `delete_binding`, of one policy."""
    query = _query({"reason": reason, "revision": revision})
    return _seen(Call("DELETE", _policy_path(kind, namespace, name), _json, query), etag)


@_operation("POST", "/v1/drain")
def drain(what: str, *, reason: str = "", revision: str = "") -> Call[models.Upkeep]:
    """`what`: a cluster, or a node as `cluster/node`. NotFoundError: there is none."""
    return _once("/v1/drain", {"what": what, "reason": reason, "revision": revision})


@_operation("POST", "/v1/undrain")
def undrain(what: str, *, reason: str = "", revision: str = "") -> Call[models.Upkeep]:
    """Use it again."""
    return _once("/v1/undrain", {"what": what, "reason": reason, "revision": revision})


@_operation("POST", "/v1/barrier")
def barrier(
    facts: Sequence[models.FactKey],
    *,
    until: models.Level = "decided",
    bindings: Names = (),
    wait: float = 20.0,
) -> Call[models.BarrierReport]:
    """How far a change is: `facts` of its answer, and `leaving` as `bindings`. Answered when it is
    there, at the latest after `wait` seconds, at most 30; asked again it goes on waiting."""
    body = {"until": until, "facts": list(facts), "bindings": list(bindings)}
    call = Call("POST", "/v1/barrier", _json, body=body)
    return replace(call, query=(("wait", str(wait)),), wait_s=wait)


# --- plans


@_operation("POST", "/v1/plans")
def make_plan(
    wanted: models.WantedPlan, *, wait: float = 30.0
) -> Call[models.Plan | models.Operation]:
    """What a change would do. `wanted`: `{"kind": "scale", "binding": ..., "replicas": ...}`,
    `{"kind": "drain", "what": ...}`, or `{"kind": "manifests", "manifests": [...]}`. The answer
    has `digest` where it is the plan; an operation after `wait` seconds, at most 30."""
    call = _once("/v1/plans", wanted)
    return replace(call, query=(("wait", str(wait)),), wait_s=wait)


@_operation("GET", "/v1/plans/{plan}")
def plan(plan: str) -> Call[models.Plan]:
    """A plan that was made. NotFoundError: there is none."""
    return _get(_path("plans", plan))


@_operation("POST", "/v1/plans/{plan}/apply")
def apply_plan(
    plan: str, digest: str, *, wait: float = 30.0, reason: str = "", revision: str = ""
) -> Call[models.AppliedPlan | models.Operation]:
    """Carry out the plan that was seen, which `digest` says. ApiError 409: the fleet has changed,
    and the problem has `differences`; 412: it is another plan. Asked again it changes nothing."""
    call = _once(_path("plans", plan, "apply"), {"reason": reason, "revision": revision})
    headers = {**call.headers, "If-Match": f'"sha256:{digest}"'}
    return replace(call, headers=headers, query=(("wait", str(wait)),), wait_s=wait)


@_operation("GET", "/v1/operations")
def list_operations(*, limit: int | None = None) -> Call[models.Items[models.Operation]]:
    """Of the last 24 hours, the newest first."""
    return _get("/v1/operations", limit=limit)


@_operation("GET", "/v1/operations/{operation}")
def operation(operation: str, *, wait: float = 0.0) -> Call[models.Operation]:
    """How far it is. `wait`: seconds for it to end, at most 30."""
    return replace(_get(_path("operations", operation), wait=wait), wait_s=wait)


@_operation("POST", "/v1/operations/{operation}/cancel")
def cancel_operation(operation: str) -> Call[models.Operation]:
    """Stop making a plan. ApiError 409: streams were asked, which cannot be taken back."""
    return Call("POST", _path("operations", operation, "cancel"), _json)


# --- facts


@_operation("POST", "/v1/facts")
def post_facts(events: Sequence[Mapping[str, Any]]) -> Call[models.FactsAccepted]:
    """Tell facts, as CloudEvents, of sources that the token names; all or nothing."""
    return _once("/v1/facts", {"events": list(events)})


def _changing(
    manifests: Mapping[str, str], dry_run: bool, reason: str, revision: str
) -> dict[str, object]:
    return {
        "manifests": [{"name": name, "text": text} for name, text in manifests.items()],
        "dry_run": dry_run,
        "reason": reason,
        "revision": revision,
    }


def _once(path: str, body: object) -> Call[Any]:
    return Call("POST", path, _json, headers={"Idempotency-Key": str(uuid4())}, body=body)


# --- who asks


@_operation("GET", "/v1/whoami")
def whoami() -> Call[models.Who]:
    """Who the token is, and what it may do."""
    return _get("/v1/whoami")


@_operation("POST", "/v1/login")
def login(code: str) -> Call[models.Secret]:
    """Exchange a code that is good once for a token."""
    return Call("POST", "/v1/login", _json, body={"code": code}, repeatable=False)


@_operation("GET", "/v1/tokens")
def list_tokens() -> Call[models.Items[models.Token]]:
    """The tokens that the caller has made; of an admin, all of them."""
    return _get("/v1/tokens")


@_operation("POST", "/v1/tokens")
def new_token(
    name: str,
    roles: Sequence[models.Role],
    *,
    namespaces: Names = (),
    sources: Names = (),
    lifetime_s: int | None = None,
) -> Call[models.Secret]:
    """A token with rights that the caller has. Sent once: a lost answer is an UnreachableError."""
    body: dict[str, object] = {
        "name": name,
        "roles": list(roles),
        "namespaces": list(namespaces),
        "sources": list(sources),
    }
    if lifetime_s is not None:
        body["lifetime_s"] = lifetime_s
    return Call("POST", "/v1/tokens", _json, body=body, repeatable=False)


@_operation("DELETE", "/v1/tokens/{token}")
def delete_token(token: str) -> Call[None]:
    """Refuse a token from the next request on."""
    return cast("Call[None]", Call("DELETE", _path("tokens", token), _nothing))


# --- webhooks


@_operation("GET", "/v1/webhooks")
def list_webhooks() -> Call[models.Items[models.Webhook]]:
    """The subscriptions that the caller has made; of admins and auditors, all of them."""
    return _get("/v1/webhooks")


@_operation("POST", "/v1/webhooks")
def new_webhook(
    name: str,
    url: str,
    *,
    filter: EventFilter | None = None,
    order: models.WebhookOrder = "key",
    after: str = "latest",
) -> Call[models.Webhook]:
    """Have events sent to `url`. The answer has the `secret`, this once. Sent once: a lost answer
    is an UnreachableError."""
    body = {**_webhook(name, url, filter, order), "after": after}
    return Call("POST", "/v1/webhooks", _json, body=body, repeatable=False)


@_operation("GET", "/v1/webhooks/{webhook}")
def webhook(webhook: str) -> Call[models.Webhook]:
    """NotFoundError: there is none of this id, or it is not the caller's."""
    return _get(_path("webhooks", webhook))


@_operation("PUT", "/v1/webhooks/{webhook}")
def change_webhook(
    webhook: str,
    etag: str,
    name: str,
    url: str,
    *,
    filter: EventFilter | None = None,
    order: models.WebhookOrder = "key",
    paused: bool = False,
) -> Call[models.Webhook]:
    """Change, pause or resume the one that was seen with `etag`. ApiError 412: it has changed
    since."""
    body = {**_webhook(name, url, filter, order), "paused": paused}
    return _seen(Call("PUT", _path("webhooks", webhook), _json, body=body), etag)


@_operation("DELETE", "/v1/webhooks/{webhook}")
def delete_webhook(webhook: str, etag: str) -> Call[None]:
    """Remove the one that was seen with `etag`, and its deliveries."""
    call = Call("DELETE", _path("webhooks", webhook), _nothing)
    return cast("Call[None]", _seen(call, etag))


@_operation("POST", "/v1/webhooks/{webhook}/rotate")
def rotate_webhook(webhook: str, etag: str) -> Call[models.Webhook]:
    """A new `secret`, given this once; for 24 hours the one of before signs too."""
    return _seen(Call("POST", _path("webhooks", webhook, "rotate"), _json), etag)


@_operation("POST", "/v1/webhooks/{webhook}/redeliver")
def redeliver_webhook(
    webhook: str, *, after: str | None = None, dead: bool = False, sequence: int | None = None
) -> Call[models.Redelivery]:
    """One of: everything beyond `after`, all `dead` letters, or the one of a delivery."""
    body = {"after": after, "dead": dead, "sequence": sequence}
    path = _path("webhooks", webhook, "redeliver")
    return Call("POST", path, _json, body=body, repeatable=False)


@_operation("GET", "/v1/webhooks/{webhook}/deliveries")
def webhook_deliveries(
    webhook: str, *, state: Names = (), limit: int | None = None, after: str = ""
) -> Call[models.Page[models.WebhookDelivery]]:
    """What was sent, waits, or was given up; the newest first."""
    path = _path("webhooks", webhook, "deliveries")
    return _get(path, state=state, limit=limit, after=after)


def _webhook(name: str, url: str, wanted: EventFilter | None, order: str) -> dict[str, object]:
    found = {} if wanted is None else wanted.parameters()
    return {"name": name, "url": url, "filter": found, "order": order}


def _seen(call: Call[Any], etag: str) -> Call[Any]:
    # sent twice it would be refused the second time, although it was done
    return replace(call, headers={**call.headers, "If-Match": etag}, repeatable=False)


def _as_seen(call: Call[Any], etag: str) -> Call[Any]:
    """Without an etag: only where there is none yet."""
    if etag:
        return _seen(call, etag)
    return replace(call, headers={**call.headers, "If-None-Match": "*"}, repeatable=False)


# --- who asked


@_operation("GET", "/v1/access")
def access(
    *,
    actor: Names = (),
    outcome: Names = (),
    since: str = "",
    until: str = "",
    limit: int | None = None,
    after: str = "",
) -> Call[models.AccessPage]:
    """Who wrote, was refused, or read what belongs to others; the newest first."""
    parameters = locals()
    return _get("/v1/access", **parameters)
