"""Requests to the HTTP API, as whole: method, path, query, headers and body, through the
application itself over a real ledger. For any request, the answer is one that the document knows;
what cannot be answered is a problem of one line, and never a fault of the server."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from fastapi import FastAPI
from starlette.types import Message
from tests.api import serving
from tests.backends import DATABASE, fresh_database
from tests.fuzz.events import SAMPLES
from tests.fuzz.target import Check, Target, holds, kind_of, one_line, steers

from wharfinger.runtime.backends import async_database_url
from wharfinger.runtime.embedded_postgres import EmbeddedPostgres
from wharfinger.runtime.ledger import FeedAppender
from wharfinger.runtime.ledger.migration import migrate
from wharfinger.runtime.ledger.tokens import make_token
from wharfinger_api.access import RULES, Role
from wharfinger_api.app import create
from wharfinger_api.problems import MEDIA_TYPE, TITLES

SOURCE = "/fuzz"
ANSWER_BYTES_MAX = 4_000_000
PROBLEM_BYTES_MAX = 200_000
NUMBERED_EVERY_S = 0.01
LEFT_OUT = "/v1/plans"
"""It starts work that goes on behind its answer, for seconds."""

WAITS = ("/v1/barrier", b"wait")
"""With this parameter it waits for a plane, and none runs here."""

EXPECTED_503 = ("behind", "unanswered", "provider-away")
KINDS = {f"/problems/{kind}": kind for kind in TITLES}


@contextmanager
def opened() -> Iterator[Check]:
    """On the database that the environment names, else on one of its own."""
    with ExitStack() as stack:
        named = os.environ.get(DATABASE)
        if not named:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="wharfinger-fuzz-"))
            Path(directory).chmod(0o755)
            postgres = EmbeddedPostgres(Path(directory), die_with_parent=True)
            stack.callback(postgres.stop)
            postgres.start()
            named = postgres.url
        url = stack.enter_context(fresh_database(async_database_url(named)))
        asyncio.run(migrate(url))
        yield stack.enter_context(on_database(url))


@contextmanager
def on_database(url: str) -> Iterator[Check]:
    """The check over a migrated database."""
    loop = asyncio.new_event_loop()
    stack = ExitStack()
    server = serving(url)
    under_test = loop.run_until_complete(server.__aenter__())
    secret, _ = loop.run_until_complete(
        make_token(
            under_test.past.present,
            "fuzz",
            [role.value for role in Role],
            "tests",
            lifetime_s=86_400,
            sources=(SOURCE,),
        )
    )
    app = create(under_test.api)
    under_test.api.behind_s = 0.0

    async def numbering() -> None:
        """The publisher's part: without it an answer waits for a position."""
        appender = FeedAppender(under_test.past.present)
        while True:
            await appender.append()
            await asyncio.sleep(NUMBERED_EVERY_S)

    feed = loop.create_task(numbering())
    try:
        yield lambda data: loop.run_until_complete(check(app, secret, data))
    finally:
        feed.cancel()
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(feed)
        loop.run_until_complete(server.__aexit__(None, None, None))
        stack.close()
        loop.close()


async def check(app: FastAPI, secret: str, data: bytes) -> str:
    scope, body = request_in(data, secret)
    waits = scope["path"].startswith(WAITS[0]) and WAITS[1] in scope["query_string"]
    if scope["path"].startswith(LEFT_OUT) or waits:
        return "left out"
    status, headers, answer = await answered(app, scope, body)
    route = getattr(scope.get("route"), "path", "none")
    for name, value in headers.items():
        holds(not steers(name + value), f"the header {name} steers a terminal")
    holds(len(answer) <= ANSWER_BYTES_MAX, f"an answer of {len(answer):,} bytes")
    holds(200 <= status <= 504, f"status {status}")
    if status >= 400:
        return f"{route} {problem(status, headers, answer)}"
    if headers.get("content-type", "").startswith("application/json") and answer:
        msgspec.json.decode(answer)
    return f"{scope['method']} {route} {status}"


def problem(status: int, headers: dict[str, str], answer: bytes) -> str:
    """What a refused request is answered: of a kind that is documented, one line, bounded."""
    if scope_has_no_body(headers, answer):
        return f"{status}"
    holds(headers.get("content-type") == MEDIA_TYPE, f"{status} as {headers.get('content-type')}")
    holds(len(answer) <= PROBLEM_BYTES_MAX, f"a problem of {len(answer):,} bytes")
    said = msgspec.json.decode(answer)
    kind = KINDS.get(said["type"], "")
    holds(bool(kind), f"a problem of the type {said['type']!r}")
    holds(TITLES[kind][0] == status == said["status"], f"{kind} with the status {status}")
    holds(status < 500 or kind in EXPECTED_503, f"{status} {kind}: {said['detail']}")
    one_line(said["detail"], 3000)
    holds(not steers(said["detail"]), f"a problem steers a terminal: {said['detail']!r}")
    return f"{kind} {kind_of(said['detail'])[:20]}"


def scope_has_no_body(headers: dict[str, str], answer: bytes) -> bool:
    return not answer and "content-type" not in headers


async def answered(
    app: FastAPI, scope: MutableMapping[str, Any], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """As a server would call it. The client goes away after its request: what is streamed ends."""
    status, headers, parts = 0, {}, []
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            return {"type": "http.disconnect"}
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {n.decode("latin-1"): v.decode("latin-1") for n, v in message["headers"]}
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, headers, b"".join(parts)


def request_in(data: bytes, secret: str) -> tuple[dict[str, Any], bytes]:
    """`METHOD /path?query`, lines of headers, an empty line, the body. Which methods, paths and
    header names a server would not let through at all is left to the server."""
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, target = first.decode("latin-1").partition(" ")
    path, _, query = target.partition("?")
    headers = [(b"host", b"api"), (b"content-type", b"application/json")]
    for line in lines[:20]:
        name, _, value = line.partition(b":")
        if name.replace(b"-", b"").isalnum() and not set(value) & set(b"\0\r\n"):
            headers.append((name.lower(), value.strip()))
    if not any(name == b"authorization" for name, _ in headers):
        headers.append((b"authorization", b"Bearer " + secret.encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method if method.isalpha() and method.isascii() else "GET",
        "scheme": "http",
        "path": unquote("/" + path.lstrip("/")),
        "raw_path": path.encode(),
        "query_string": query.encode("utf-8", "replace"),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("api", 80),
    }
    return scope, body


QUERIES = {
    "/v1/bindings": "limit=1&label=a%3Db&namespace=shop",
    "/v1/nodes": "at=2h&cluster=oslo",
    "/v1/clusters": "after=eJyLrkgtKMlMzs1NBQAPwgN-&limit=1",
    "/v1/decisions": "type=schedule.decided&since=10m&limit=5",
    "/v1/events": "after=earliest&namespace=shop",
    "/v1/streams": "at=intake@1",
    "/v1/policies": "min_position=1",
    "/v1/access": "limit=1",
}
MANIFEST = """apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop}
data: {a: b}
"""
PATHS = {
    "{namespace}": "shop",
    "{name}": "web",
    "{kind}": "PropagationPolicy",
    "{token}": "00000000-0000-0000-0000-000000000001",
    "{webhook}": "00000000-0000-0000-0000-000000000001",
    "{decision}": "00000000-0000-0000-0000-000000000001",
    "{operation}": "00000000-0000-0000-0000-000000000001",
}


def bodies() -> dict[str, object]:
    of_manifest: dict[str, object] = {"name": "a.yaml", "text": MANIFEST}
    binding = json.loads((SAMPLES / "binding.requested.v1.without-replicas.json").read_text())
    return {
        "/v1/apply": {"manifests": [of_manifest], "dry_run": False, "reason": "r"},
        "/v1/delete": {"manifests": [of_manifest]},
        "/v1/bindings/{namespace}/{name}/scale": {"replicas": 2},
        "/v1/bindings/{namespace}/{name}": {"text": MANIFEST},
        "/v1/policies/{kind}/{namespace}/{name}": {"text": MANIFEST},
        "/v1/barrier": {"until": "accepted", "facts": [{"topic": "t", "key": "k"}]},
        "/v1/drain": {"what": "oslo"},
        "/v1/undrain": {"what": "oslo/node-a"},
        "/v1/facts": {"events": [{**binding, "source": SOURCE}]},
        "/v1/tokens": {"name": "t", "roles": ["viewer"], "namespaces": ["shop"]},
        "/v1/login": {"code": "once"},
        "/v1/webhooks": {"name": "w", "url": "https://hooks.example/x", "order": "key"},
        "/v1/webhooks/{webhook}/redeliver": {"dead": True},
    }


def seeds() -> Iterator[bytes]:
    known = bodies()
    for method, route in sorted(RULES):
        if route.startswith(LEFT_OUT):
            continue
        path = route
        for name, value in PATHS.items():
            path = path.replace(name, value)
        query = f"?{QUERIES[route]}" if method == "GET" and route in QUERIES else ""
        body = json.dumps(known[route]).encode() if method != "GET" and route in known else b""
        yield f"{method} {path}{query}\nIf-Match: *".encode() + b"\n\n" + body
    yield b"POST /v1/apply\nIdempotency-Key: k\n\n" + json.dumps(known["/v1/apply"]).encode()
    yield b"GET /v1/bindings\nAccept: application/x-wharfinger\nIf-None-Match: W/x\n\n"
    yield b"GET /v1/whoami\nAuthorization: Bearer whf_\n\n"


TARGET = Target("api", "requests to the HTTP API", opened, seeds, database=True)
