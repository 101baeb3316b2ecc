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
from dataclasses import dataclass, field
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


@_operation("POST", "/v1/drain")
def drain(what: str, *, reason: str = "", revision: str = "") -> Call[models.Upkeep]:
    """`what`: a cluster, or a node as `cluster/node`. NotFoundError: there is none."""
    return _once("/v1/drain", {"what": what, "reason": reason, "revision": revision})


@_operation("POST", "/v1/undrain")
def undrain(what: str, *, reason: str = "", revision: str = "") -> Call[models.Upkeep]:
    """Use it again."""
    return _once("/v1/undrain", {"what": what, "reason": reason, "revision": revision})


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
