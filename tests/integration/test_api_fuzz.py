"""Whatever is sent to a route of the document is answered as the document says: no request leads to
a fault of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api import ApiUnderTest, serving
from tests.backends import fresh_database, in_a_loop
from tests.hunting import examples
from tests.integration.test_api import WEB, lived
from tests.openapi import FROZEN

from wharfinger.runtime.ledger.tokens import ROLES

pytestmark = pytest.mark.integration

DOCUMENT: dict[str, Any] = json.loads(FROZEN.read_text())
STREAMING = ("text/event-stream", "application/x-ndjson")

texts = st.one_of(
    st.sampled_from(
        ["", "shop", "web-deployment", WEB, "oslo", "fleet/0", "now", "2h", "position:1", "latest"]
    ),
    st.sampled_from(["fleet/0@1", "2026-01-01", "intake", "\0", "%00", "'", "../..", "é" * 300]),
    st.text(max_size=20),
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def meant(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values near to a schema of the document."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return st.deferred(lambda: meant(DOCUMENT["components"]["schemas"][name]))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return st.one_of([meant(one) for one in schema[several]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "integer":
            return st.one_of(st.integers(0, 50), st.integers())
        case "number":
            return st.floats(0, 0.01)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(meant(schema["items"]), min_size=schema.get("minItems", 0), max_size=3)
        case "object" if "properties" in schema:
            required = set(schema.get("required", ()))
            parts = {name: meant(part) for name, part in schema["properties"].items()}
            return st.fixed_dictionaries(
                {name: part for name, part in parts.items() if name in required},
                optional={name: part for name, part in parts.items() if name not in required},
            )
        case "object":
            return st.dictionaries(texts, junk, max_size=4)
        case "null":
            return st.none()
        case _:
            return texts


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, str]], Any]:
    """Method, path, parameters and body (None: without one)."""
    path = draw(st.sampled_from(sorted(DOCUMENT["paths"])))
    method = draw(st.sampled_from(sorted(DOCUMENT["paths"][path])))
    operation = DOCUMENT["paths"][path][method]
    parameters: list[tuple[str, str]] = []
    for parameter in operation.get("parameters", ()):
        name, schema = parameter["name"], parameter["schema"]
        if parameter["in"] == "path":
            chosen = draw(texts)
            path = path.replace(f"{{{name}}}", quote(chosen or "x", safe=""))
        elif parameter["in"] == "query" and name != "wait" and draw(st.integers(0, 3)) == 0:
            value = draw(st.one_of(meant(schema), texts))
            for one in value if isinstance(value, list) else [value]:
                parameters.append((name, str(one)))
    if draw(st.integers(0, 9)) == 0:
        parameters.append((draw(texts), draw(texts)))
    body = None
    if content := operation.get("requestBody"):
        schema = content["content"]["application/json"]["schema"]
        body = draw(st.one_of(meant(schema), meant(schema), junk))
    return method.upper(), path, parameters, body


@pytest.fixture(scope="module")
def database(database_server: str, migrated_database: str) -> Iterator[str]:
    async def filled(url: str) -> None:
        await (await lived(url)).ledger.close()

    with fresh_database(database_server, template=migrated_database) as url:
        in_a_loop(lambda: filled(url))
        yield url


def test_no_request_leads_to_a_fault_of_the_server(database: str) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def opened() -> tuple[ApiUnderTest, dict[str, str]]:
            api = await stack.enter_async_context(serving(database))
            api.api.behind_s = 0.0
            client = await api.as_(*ROLES)
            return api, client.headers

        api, headers = runner.run(opened())

        async def asked(method: str, path: str, parameters: Any, body: Any) -> None:
            content = None if body is None else json.dumps(body)
            answer = await api.http.request(
                method,
                path,
                params=parameters,
                content=content,
                headers={**headers, "Content-Type": "application/json"},
            )
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
                problem = answer.json()
                assert problem["status"] == answer.status_code
                assert "\n" not in problem["detail"]
                behind = problem["type"] == "/problems/behind"
                assert answer.status_code < 500 or behind, problem
            elif answer.status_code == 200 and answer.headers["content-type"] == "application/json":
                assert answer.json() is not None

        @settings(
            max_examples=examples(120),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(requests())
        def ask(request: tuple[str, str, Any, Any]) -> None:
            runner.run(asked(*request))

        try:
            ask()
        finally:
            runner.run(stack.aclose())
