"""One small HTTP server a process: is it alive, are its services ready, what are its figures; and pages of its services.

Alive and ready are different questions: a service that catches up is alive and not ready, and must not be restarted for
it. On loopback unless told otherwise. Those answers never wait for broker or database; a service's page may. A service may also be
asked by POST (`Receiving`): still only a question, with more to say than fits into a query.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from wharfinger.runtime.ledger import LedgerError
from wharfinger.runtime.observability import METRICS, Metrics

Page = Callable[[Mapping[str, str]], Awaitable[object]]
"""From the parameters of a GET to what is answered as JSON. ValueError: they ask for nothing there is, in one line."""


Door = Callable[[Mapping[str, str], bytes], Awaitable[object]]
"""From what the path names and the body of a POST to what is answered as JSON, or JSON in bytes already. ValueError: as for a
page. NotHereError: what the path names is not known to this process."""

BODY_MAX = 64 * 1024 * 1024
"""Bytes of a POST: five thousand nodes as a kube-scheduler sends them are some 30 MB."""


class NotHereError(Exception):
    """In one line."""


class Watched(Protocol):
    """What a service says of itself. Answers are immediate."""

    @property
    def name(self) -> str: ...

    def ready(self) -> bool: ...

    def lag(self) -> int:
        """Messages not yet taken in."""
        ...

    def failed(self) -> str:
        """The reason of a fatal error, "" while there is none."""
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
    """`/healthz`, `/readyz` and `/metrics` of one process, `pages` and `doors`. `services` is asked again for every request."""

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
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; the port is given back, which is how a free one (0) becomes known. OSError when it is taken."""
        app = web.Application(client_max_size=BODY_MAX)
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._figures),
                *(web.get(path, _answered(page)) for path, page in self._pages.items()),
                *(web.post(path, _received(door)) for path, door in self._doors.items()),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError:
            await self.stop()
            raise
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, _: web.Request) -> web.Response:
        failures = {service.name: service.failed() for service in self._services() if service.failed()}
        return web.json_response({"alive": not failures, "failed": failures}, status=503 if failures else 200)

    async def _readyz(self, _: web.Request) -> web.Response:
        services = {
            service.name: {"ready": service.ready(), "lag": service.lag(), "failed": service.failed()}
            for service in self._services()
        }
        # A process that has not made its services yet is not ready, although none of them says so.
        ready = bool(services) and all(service["ready"] for service in services.values())
        return web.json_response({"ready": ready, "services": services}, status=200 if ready else 503)

    async def _figures(self, _: web.Request) -> web.Response:
        for service in self._services():
            bound = self._metrics.of(service.name)
            bound.ready.set(service.ready())
            bound.lag.set(service.lag())
        return web.Response(body=generate_latest(self._metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answered(page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
    return _guarded(lambda request: page(request.query))


def _received(door: Door) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def asked(request: web.Request) -> object:
        return await door(request.match_info, await request.read())

    return _guarded(asked)


def _guarded(ask: Callable[[web.Request], Awaitable[object]]) -> Callable[[web.Request], Awaitable[web.Response]]:
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
