"""One small HTTP server a process: is it alive, are its services ready, what are its figures; and
pages of its services.

Alive and ready are different questions. A process is alive unless a restart would help: a service
has failed for good, or the event loop that the services share has not run for `LOOP_DEAD_S`. A
service is ready when it has caught up *and* moves: one that completes nothing for a bound of time
although something waits is alive and not ready, since a restart would find the same work and the
same broker or database.

The server has a thread and an event loop of its own, so probes and figures are answered while the
services' loop is busy, and never wait for broker or database. Pages and questions (`Receiving`, by
POST) belong to services and run on the services' loop. Listens on loopback unless configured
otherwise.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from wharfinger.runtime.ledger import LedgerError
from wharfinger.runtime.observability import METRICS, Metrics

if TYPE_CHECKING:  # most processes have no stage
    from wharfinger.domain.open_requests import OpenRequests

Page = Callable[[Mapping[str, str]], Coroutine[Any, Any, object]]
"""From the parameters of a GET to what is answered as JSON. ValueError: they ask for nothing there
is, in one line."""


Door = Callable[[Mapping[str, str], bytes], Coroutine[Any, Any, object]]
"""From what the path names and the body of a POST to what is answered as JSON, or JSON in bytes
already. ValueError: as for a page. NotHereError: what the path names is not known to this
process."""

BODY_MAX = 64 * 1024 * 1024
"""Bytes of a POST: five thousand nodes as a kube-scheduler sends them are some 30 MB."""


class NotHereError(Exception):
    """In one line."""


T = TypeVar("T")

BEAT_S = 1.0
"""So often the services' event loop shows that it runs."""

LOOP_DEAD_S = 120.0
"""An event loop that has not run for so long will not: longer than any round takes, and than
compiling the kernels."""


STOP_S = 2.0
"""A question under way when the server stops has so long to be answered."""


class Watched(Protocol):
    """What a service says of itself. Answers are immediate, and given to another thread than the
    service's."""

    @property
    def name(self) -> str: ...

    def ready(self) -> bool: ...

    def lag(self) -> int:
        """Messages not yet taken in."""
        ...

    def failed(self) -> str:
        """The reason of a fatal error, "" while there is none."""
        ...

    def stalled_s(self) -> float:
        """For how long it has completed nothing although something waits; 0 while nothing waits."""
        ...

    def oldest_s(self) -> float:
        """Age of the oldest message, or row of the ledger, that waits for it; 0 while none does."""
        ...


@runtime_checkable
class Replaying(Protocol):
    """A service that decides recorded rounds again, to make snapshots."""

    def divergences(self) -> int:
        """Streams whose rounds were decided otherwise."""
        ...


@runtime_checkable
class HoldingRequests(Protocol):
    """A service that may let requests wait, see `stages.open_requests`."""

    def open_requests(self) -> OpenRequests:
        """Those that its last rounds left open."""
        ...


@runtime_checkable
class Answering(Protocol):
    """A service that has pages of its own, by path."""

    def pages(self) -> Mapping[str, Page]: ...


@runtime_checkable
class Receiving(Protocol):
    """A service that can be asked by POST, by path; parts of a path in braces are names."""

    def doors(self) -> Mapping[str, Door]: ...


class HealthServer:
    """`/healthz`, `/readyz` and `/metrics` of one process, `pages` and `doors`. `services` is asked
    again for every request."""

    def __init__(
        self,
        services: Callable[[], Sequence[Watched]],
        metrics: Metrics = METRICS,
        pages: Mapping[str, Page] | None = None,
        doors: Mapping[str, Door] | None = None,
    ) -> None:
        self._services = services
        self._pages = dict(pages or {})
        self._doors = dict(doors or {})
        self._metrics = metrics
        self._owner: asyncio.AbstractEventLoop | None = None
        self._beat_at = time.monotonic()
        self._beating: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._end: Callable[[], object] = lambda: None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; returns the port, which is how a free one (0) becomes known. OSError when it is
        taken. The loop that calls this is the services' loop."""
        self._owner = asyncio.get_running_loop()
        self._beating = asyncio.create_task(self._beat(), name="health-beat")
        listening: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(host, port, listening)),
            name="health",
            daemon=True,
        )
        self._thread.start()
        try:
            return await asyncio.wrap_future(listening)
        except OSError:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        if self._thread is not None:
            self._end()
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    async def _beat(self) -> None:
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_S)

    async def _serve(self, host: str, port: int, listening: Future[int]) -> None:
        """On a thread of its own, until `stop`."""
        app = web.Application(client_max_size=BODY_MAX)
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._figures),
                *(web.get(path, self._answered(page)) for path, page in self._pages.items()),
                *(web.post(path, self._received(door)) for path, door in self._doors.items()),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_S)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._end = lambda: loop.call_soon_threadsafe(ended.set)
        try:
            await runner.setup()
            await web.TCPSite(runner, host, port).start()
            listening.set_result(int(runner.addresses[0][1]))
            await ended.wait()
        except BaseException as error:
            if listening.done():
                raise
            listening.set_exception(error)
        finally:
            self._end = lambda: None
            await runner.cleanup()

    def silent_s(self) -> float:
        """For how long the services' event loop has not run, beyond what is usual."""
        return max(0.0, time.monotonic() - self._beat_at - BEAT_S)

    async def _healthz(self, _: web.Request) -> web.Response:
        failures = {
            service.name: service.failed() for service in self._services() if service.failed()
        }
        if (silent_s := self.silent_s()) > LOOP_DEAD_S:
            failures["event loop"] = f"has not run for {silent_s:.0f} s"
        return web.json_response(
            {"alive": not failures, "failed": failures}, status=503 if failures else 200
        )

    async def _readyz(self, _: web.Request) -> web.Response:
        services = {
            service.name: {
                "ready": service.ready(),
                "lag": service.lag(),
                "failed": service.failed(),
                "stalled_s": round(service.stalled_s(), 3),
                "oldest_s": round(service.oldest_s(), 3),
                "divergences": _divergences(service),
                **_requests(service),
            }
            for service in self._services()
        }
        # A process that has not made its services yet is not ready, although none of them says so.
        ready = bool(services) and all(service["ready"] for service in services.values())
        return web.json_response(
            {"ready": ready, "services": services}, status=200 if ready else 503
        )

    async def _figures(self, _: web.Request) -> web.Response:
        for service in self._services():
            bound = self._metrics.of(service.name)
            bound.ready.set(service.ready())
            bound.lag.set(service.lag())
            bound.stalled.set(service.stalled_s())
            bound.oldest.set(service.oldest_s())
            bound.divergences.set(_divergences(service))
        self._metrics.loop_silent.set(self.silent_s())
        return web.Response(
            body=generate_latest(self._metrics.registry),
            headers={"Content-Type": CONTENT_TYPE_LATEST},
        )

    def _answered(self, page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
        return _guarded(lambda request: self._by_owner(page(request.query)))

    def _received(self, door: Door) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def asked(request: web.Request) -> object:
            return await self._by_owner(door(request.match_info, await request.read()))

        return _guarded(asked)

    async def _by_owner(self, asked: Coroutine[Any, Any, T]) -> T:
        """Answered on the services' loop, whose connections and states it uses."""
        assert self._owner is not None, "a request came before the server was started"
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self._owner))


def _divergences(service: Watched) -> int:
    return service.divergences() if isinstance(service, Replaying) else 0


def _requests(service: Watched) -> Mapping[str, int]:
    found = service.open_requests() if isinstance(service, HoldingRequests) else None
    return {
        "requests": 0 if found is None else found.count,
        "requests_since_us": 0 if found is None else found.since,
    }


def _guarded(
    ask: Callable[[web.Request], Awaitable[object]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        try:
            found = await ask(request)
            if isinstance(found, bytes):
                return web.Response(body=found, content_type="application/json")
            return web.json_response(found)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        except NotHereError as error:
            return web.json_response({"error": str(error)}, status=404)
        except LedgerError as error:
            return web.json_response({"error": str(error)}, status=503)

    return answer
