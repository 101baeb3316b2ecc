"""Calls of HTTP extenders over the network. A module of its own, because its HTTP client takes 5 MB
and few planes have extenders: `extender_client` loads it with the first call."""

from __future__ import annotations

import asyncio
import ssl

import httpx

from wharfinger.domain.scheduler import Extender
from wharfinger.domain.text import one_line
from wharfinger.engine.framework.extenders import url as url_of
from wharfinger.runtime.http_bodies import ACCEPT_ENCODING, BodyTooLargeError, body_within
from wharfinger.stages.extender_calls import ExtenderCall

ANSWER_MAX = 512 * 1024
"""Bytes; it becomes an input of a round, and a message of the broker holds twice as much."""


class HttpTransport:
    """Posts JSON. One client a set of TLS settings, kept open."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str, str, bool], httpx.AsyncClient] = {}

    async def ask(self, ask: ExtenderCall) -> tuple[str, str]:
        url = url_of(ask.extender, ask.verb)
        try:
            async with asyncio.timeout(ask.extender.timeout_ms / 1000):
                return await self._post(url, ask), ""
        except TimeoutError:
            return "", f"{url}: no answer within {ask.extender.timeout_ms} ms"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            return "", f"{url}: {one_line(error)}"[:300]

    async def _post(self, url: str, ask: ExtenderCall) -> str:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            **ACCEPT_ENCODING,
        }
        extensions = {"sni_hostname": ask.extender.server_name} if ask.extender.server_name else {}
        client = self._client(ask.extender)
        async with client.stream(
            "POST", url, content=ask.body, headers=headers, extensions=extensions
        ) as response:
            try:
                body = await body_within(response, ANSWER_MAX)
            except BodyTooLargeError:
                raise ValueError(f"the answer is larger than {ANSWER_MAX} bytes") from None
            if response.status_code != 200:
                raise ValueError(f"answered with status {response.status_code}")
            return body.decode()

    def _client(self, extender: Extender) -> httpx.AsyncClient:
        key = (extender.ca_file, extender.cert_file, extender.key_file, extender.insecure)
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = httpx.AsyncClient(
                verify=_trust(extender), timeout=None, trust_env=False
            )
        return client

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()


def _trust(extender: Extender) -> ssl.SSLContext | bool:
    if not extender.url.startswith("https:"):
        return True
    context = ssl.create_default_context(cafile=extender.ca_file or None)
    if extender.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if extender.cert_file:
        context.load_cert_chain(extender.cert_file, extender.key_file or None)
    return context
