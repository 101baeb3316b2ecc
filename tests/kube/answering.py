"""An HTTP proxy in front of a real API server that answers some requests itself, and loses answers
of others that the server has carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import aiohttp
from aiohttp import web
from tests.kube.member import Member

from wharfinger.runtime.kube.credentials import Credentials
from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig

Asked = Callable[[web.Request], bool]


@dataclass(slots=True)
class Fault:
    """Of the next `count` requests that are `asked`. `code`: is answered, and the server is not
    asked, unless `carried_out`; 0: no answer, the connection is cut."""

    asked: Asked
    count: int
    code: int = 0
    retry_after: str = ""
    carried_out: bool = False


class Answering:
    """`access`: of the server, through the proxy. `answered`: (seconds, path, code) of what a fault
    answered; 0: the answer was lost. `arrived`: (seconds, path) of every request."""

    def __init__(self, member: Member, user: str = "admin") -> None:
        self._direct = read_kubeconfig(member.kubeconfig(user))
        self._credentials = Credentials(self._direct)
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._address = ""
        self.faults: list[Fault] = []
        self.answered: list[tuple[float, str, int]] = []
        self.arrived: list[tuple[float, str]] = []

    def lead_to(self, member: Member, user: str) -> None:
        """From now on another server is behind the same address."""
        self._direct = read_kubeconfig(member.kubeconfig(user))
        self._credentials = Credentials(self._direct)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._session.close()
        await self._runner.cleanup()

    @property
    def access(self) -> Access:
        return Access(self._address, b"", token="-")

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        now_s = asyncio.get_running_loop().time
        self.arrived.append((now_s(), request.path))
        fault = next((f for f in self.faults if f.count > 0 and f.asked(request)), None)
        if fault is not None:
            fault.count -= 1
            if fault.carried_out:
                await (await self._sent(request)).read()
            self.answered.append((now_s(), request.path, fault.code))
            if not fault.code:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            return web.json_response(
                {"kind": "Status", "code": fault.code, "message": "from the proxy"},
                status=fault.code,
                headers=headers,
            )
        answer = await self._sent(request)
        stream = web.StreamResponse(status=answer.status)
        for name in ("Content-Type", "Content-Encoding", "Retry-After", "Date"):
            if name in answer.headers:
                stream.headers[name] = answer.headers[name]
        await stream.prepare(request)
        try:
            async for chunk in answer.content.iter_any():
                await stream.write(chunk)
            await stream.write_eof()
        except (aiohttp.ClientError, OSError):
            pass
        finally:
            answer.close()
        return stream

    async def _sent(self, request: web.Request) -> aiohttp.ClientResponse:
        assert self._session is not None
        headers = await self._credentials.headers()
        if "Content-Type" in request.headers:
            headers["Content-Type"] = request.headers["Content-Type"]
        return await self._session.request(
            request.method,
            self._direct.server + request.path_qs,
            headers={**headers, "User-Agent": "proxy", "Accept": "application/json"},
            data=await request.read() or None,
            ssl=await self._credentials.tls(),
            timeout=aiohttp.ClientTimeout(total=None),
        )
