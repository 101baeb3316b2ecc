"""Calls of a stage to HTTP extenders: each call is sent once, and its answer, or the reason why
there is none, is kept until the stage takes it as an input.

The stage does not wait: it goes on with the work that needs no answer. When a stream is handed over
its open calls are dropped, and the next owner sends them again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import httpx
import structlog

from wharfinger.domain.scheduler import Extender
from wharfinger.domain.text import one_line
from wharfinger.domain.value import Value
from wharfinger.engine.framework.extenders import url as url_of
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.runtime.http_bodies import ACCEPT_ENCODING, BodyTooLargeError, body_within
from wharfinger.runtime.tasks import end_tasks
from wharfinger.stages.extender_calls import ExtenderCall

log = structlog.get_logger()

ANSWER_MAX = 512 * 1024
"""Bytes; it becomes an input of a round, and a message of the broker holds twice as much."""

AT_ONCE_MAX = 64
"""ExtenderClient under way at a time, over all streams of a process."""


class ExtenderTransport(Protocol):
    async def ask(self, ask: ExtenderCall) -> tuple[str, str]:
        """(answer, "") or ("", why there is none). Never raises."""
        ...

    async def close(self) -> None: ...


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


class ExtenderClient:
    """The calls of one loop's streams that are open, and the answers not taken yet. `woken`: called
    when an answer has come."""

    def __init__(self, asker: ExtenderTransport, woken: Callable[[], object]) -> None:
        self._asker = asker
        self._woken = woken
        self._under_way: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._answers: dict[str, deque[Event[Value]]] = {}
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    def put(self, stream: str, asks: Sequence[ExtenderCall]) -> None:
        """Set the open calls of a stream: a new one is sent, and one that is not among `asks` any
        more is cancelled."""
        wanted = {ask.id: ask for ask in asks}
        waiting = {
            event.data.ask
            for event in self._answers.get(stream, ())
            if isinstance(event.data, ExtenderAnswered)
        }
        for of, id in [key for key in self._under_way if key[0] == stream and key[1] not in wanted]:
            self._under_way.pop((of, id)).cancel()
        for id, ask in wanted.items():
            if (stream, id) not in self._under_way and id not in waiting:
                self._under_way[stream, id] = asyncio.create_task(
                    self._ask(stream, ask), name=f"ask-{stream}"
                )

    def take(self, stream: str) -> list[Event[Value]]:
        return list(self._answers.pop(stream, ()))

    def drop(self, stream: str) -> None:
        self.put(stream, ())
        self._answers.pop(stream, None)

    async def close(self) -> None:
        await end_tasks(self._under_way.values())
        self._under_way.clear()
        await self._asker.close()

    async def _ask(self, stream: str, ask: ExtenderCall) -> None:
        async with self._places:
            answer, error = await self._asker.ask(ask)
        if error:
            log.warning("extender.no_answer", stream=stream, why=error)
        data = ExtenderAnswered(stream, ask.id, answer, error)
        event = made(
            data,
            id=derived_id("answer", stream, ask.id),
            source=f"/wharfinger/{stream}",
            subject=stream,
        )
        del self._under_way[stream, ask.id]
        self._answers.setdefault(stream, deque()).append(event)
        self._woken()
