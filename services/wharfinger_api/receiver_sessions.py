"""HTTP sessions to receivers of webhooks.

No address is connected to that may not be reached, also where a name means another address than
when its URL was checked.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

Address = IPv4Address | IPv6Address


class CheckedResolver(AbstractResolver):
    """Gives addresses that may be reached, and no other."""

    def __init__(self, scheme: str, allowed: Callable[[Address], bool]) -> None:
        self._scheme = scheme
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        allowed: list[ResolveResult] = []
        for kind, _, protocol, _, where in found:
            text = str(where[0]).partition("%")[0]
            if self._allowed(ip_address(text)):
                allowed.append(
                    ResolveResult(
                        hostname=host,
                        host=text,
                        port=port,
                        family=kind,
                        proto=protocol,
                        flags=socket.AI_NUMERICHOST,
                    )
                )
        if not allowed:
            said = f"{host}: no address of it may be reached over {self._scheme}"
            raise PermissionError(errno.EACCES, said)
        return allowed

    async def close(self) -> None:
        pass


def receiver_session(
    scheme: str, allowed: Callable[[Address], bool], timeout_s: float
) -> aiohttp.ClientSession:
    """For one scheme. `allowed`: whether events may be sent to an address. `timeout_s`: of a
    request, with the answer."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=CheckedResolver(scheme, allowed), use_dns_cache=False, limit=0
        ),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        trust_env=False,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )
