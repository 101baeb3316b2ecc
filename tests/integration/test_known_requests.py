"""A read whose parameters were checked before is answered and refused as one that is checked, to
everyone who asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import httpx
import pytest
import pytest_asyncio
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.dependencies.utils import solve_dependencies
from starlette.responses import Response
from tests.api import ApiUnderTest, serving
from tests.backends import fresh_database, in_a_loop
from tests.integration.test_api import ABSENT, LEDGER, READS, WEB, lived

from wharfinger_api import known_requests as module
from wharfinger_api.app import create
from wharfinger_api.known_requests import known_requests

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def database(database_server: str, migrated_database: str) -> Iterator[str]:
    async def filled(url: str) -> None:
        await (await lived(url)).ledger.close()

    with fresh_database(database_server, template=migrated_database) as url:
        in_a_loop(lambda: filled(url))
        yield url


@pytest_asyncio.fixture
async def api(database: str) -> AsyncIterator[ApiUnderTest]:
    """Its routes know no request yet."""
    async with serving(database) as found:
        transport = httpx.ASGITransport(create(found.api), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
            found.http = http
            yield found


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of requests that were checked."""
    found: list[str] = []

    async def solved(*, request: Request, **others: Any) -> Any:
        found.append(request.url.path)
        return await solve_dependencies(request=request, **others)

    monkeypatch.setattr("fastapi.routing.solve_dependencies", solved)
    return found


def said(answer: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    """Without the id of the request."""
    headers = dict(answer.headers)
    own = headers.pop("x-request-id").encode()
    return answer.status_code, headers, answer.content.replace(own, b"")


@pytest.mark.parametrize("path", [*READS, f"/v1/bindings/{ABSENT}", f"/v1/bindings/{LEDGER}"])
async def test_who_asked_before_changes_no_answer(
    api: ApiUnderTest, checks: list[str], path: str
) -> None:
    viewer = await api.as_("viewer")
    tenant = await api.as_("viewer", namespaces=["shop"])
    service = await api.as_("service")
    asking = [tenant, viewer, service, api.anonymous()]
    checked = [said(await one.get(path)) for one in asking]
    before = len(checks)
    for again in (asking, asking[::-1]):
        for one in again:
            assert said(await one.get(path)) == checked[asking.index(one)]
    remembered = checked[1][0] == 200
    assert len(checks) - before == (0 if remembered else 2 * len(asking))


async def test_what_was_refused_is_checked_again(api: ApiUnderTest, checks: list[str]) -> None:
    viewer = await api.as_("viewer")
    for wrong in ("limit=0", "limt=1", "limit=1&limit=2", "at=never", "min_position=-1"):
        first = await viewer.get(f"/v1/bindings?{wrong}")
        again = await viewer.get(f"/v1/bindings?{wrong}")
        assert said(first) == said(again)
        assert 400 <= first.status_code < 500
    assert len(checks) == 10


async def test_a_known_request_waits_for_its_position(api: ApiUnderTest, checks: list[str]) -> None:
    viewer = await api.as_("viewer")
    path = "/v1/bindings?min_position=0"
    assert [(await viewer.get(path)).status_code for _ in range(2)] == [200, 200]
    assert len(checks) == 1
    waited: list[int | None] = []
    reached = type(api.api)._reached

    async def noted(self: Any, wanted: int | None) -> int:
        waited.append(wanted)
        return await reached(self, wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(api.api), "_reached", noted)
        await viewer.get(path)
    assert waited == [0]


async def test_known_conditional_requests_and_forms(api: ApiUnderTest, checks: list[str]) -> None:
    """What headers ask for is looked at each time."""
    viewer = await api.as_("viewer")
    path = f"/v1/bindings/{WEB}"
    first = await viewer.get(path)
    kept = await viewer.get(path, **{"If-None-Match": first.headers["etag"]})
    assert (kept.status_code, kept.content) == (304, b"")
    assert (await viewer.get(path)).content == first.content
    assert len(checks) == 1


# --- by itself


class Small:
    """An application with one route, and what it was called with."""

    def __init__(self) -> None:
        self.called: list[tuple[list[str], int]] = []
        self.refusing = False
        app = self.app = FastAPI(dependencies=[Depends(self.authorise)])
        app.router.route_class = known_requests(self.authorise)

        async def names(
            request: Request,
            name: Annotated[list[str], Query(default_factory=list)],
            limit: int = 1,
        ) -> Response:
            self.called.append((list(name), limit))
            name.append("changed")
            return Response(request.headers.get("said", ""))

        app.get("/names")(names)
        app.post("/names")(names)

    async def authorise(self, request: Request) -> None:
        if self.refusing:
            raise HTTPException(403)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://small")


async def test_arguments_are_the_requests_own(checks: list[str]) -> None:
    small = Small()
    async with small.client() as http:
        for said in ("a", "b"):
            answer = await http.get("/names?name=x&limit=3", headers={"said": said})
            assert answer.text == said
    assert small.called == [(["x"], 3), (["x"], 3)]
    assert len(checks) == 1


async def test_a_known_request_is_authorised_each_time() -> None:
    small = Small()
    async with small.client() as http:
        assert (await http.get("/names")).status_code == 200
        small.refusing = True
        assert (await http.get("/names")).status_code == 403
    assert len(small.called) == 1


async def test_what_changes_something_is_checked_each_time(checks: list[str]) -> None:
    async with Small().client() as http:
        for _ in range(2):
            assert (await http.post("/names")).status_code == 200
    assert len(checks) == 2


async def test_what_is_remembered_is_bounded(
    checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KNOWN_MAX", 3)
    long = "/names?name=" + module.KEY_BYTES_MAX * "x"
    async with Small().client() as http:
        for path in (long, long):
            await http.get(path)
        assert len(checks) == 2
        for limit in (1, 2, 3, 1, 4):  # 2 was asked longest ago
            await http.get(f"/names?limit={limit}")
        assert len(checks) == 6
        for limit in (1, 3, 4):
            await http.get(f"/names?limit={limit}")
        assert len(checks) == 6
        await http.get("/names?limit=2")
        assert len(checks) == 7
