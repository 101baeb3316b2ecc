"""Answers of servers that are asked for measurements: Prometheus, and the metrics API of a member
cluster. A measurement, or a failure of one line; loads are shares, for any answer of the server."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager

import httpx
from structlog.testing import capture_logs
from tests.fuzz.target import Check, Target, holds, kind_of, one_line, steers

from wharfinger.domain.node import Node
from wharfinger.engine.load.node_loads import LOAD_MAX
from wharfinger.events.codec import decode, encode
from wharfinger.events.envelope import derived_id
from wharfinger.events.node_load import NodeLoadObserved
from wharfinger.runtime.kube.api import UNREADABLE, ApiError, KubeApi, UnreachableError
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.stages.annotator import PrometheusAnswer, match
from wharfinger.stages.collector.node_usage import NodeUsageWindow
from wharfinger_annotator.prometheus import Prometheus, PrometheusSettings
from wharfinger_collector.metrics_api import MetricsApi

NODES = {
    "node-a": Node("node-a", {"cpu": 4000, "memory": 1 << 33}, addresses=("10.0.0.9",)),
    "node-b": Node("node-b", {"cpu": 0}, addresses=("fd00::9",)),
}
ANSWER_BYTES_MAX = 256 * 1024
SERIES_MAX = 100
FAILURE_MAX = 400


class Pieces(httpx.AsyncByteStream):
    """A body as it comes from a socket. `taken`: how much of it was read."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), 65_536):
            yield self._body[start : start + 65_536]


def parted(data: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status and headers in lines, an empty line, and the body."""
    head, _, body = data.partition(b"\n\n")
    status, *lines = head.decode("latin-1").split("\n")
    headers = {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
        if name.strip().isascii() and name.strip().replace("-", "").isalnum()
    }
    code = int(status) if status.isascii() and status.isdecimal() and len(status) < 4 else 200
    return max(200, code), {n.encode(): v.encode("latin-1") for n, v in headers.items()}, body


@contextmanager
def prometheus() -> Iterator[Check]:
    loop = asyncio.new_event_loop()
    settings = PrometheusSettings(
        "http://prometheus",
        attempts=1,
        answer_bytes_max=ANSWER_BYTES_MAX,
        series_max=SERIES_MAX,
        timeout_s=float("1e6"),
    )
    client = Prometheus(settings)
    answer: list[httpx.Response] = []
    # the server, instead of a network
    client._client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answer[0]))

    async def ask() -> str:
        found = await client.query("oslo", "cpu_usage_avg_5m")
        if not isinstance(found, PrometheusAnswer):
            one_line(found.line, FAILURE_MAX)
            holds(not steers(found.line), f"a failure steers a terminal: {found.line!r}")
            return f"{found.kind} {kind_of(found.line)}"
        return judged(found)

    def check(data: bytes) -> str:
        status, headers, body = parted(data)
        answer[:] = [httpx.Response(status, headers=headers, stream=Pieces(body))]
        return loop.run_until_complete(ask())

    try:
        yield check
    finally:
        loop.run_until_complete(client.aclose())
        loop.close()


def judged(answer: PrometheusAnswer) -> str:
    holds(len(answer.series) + answer.histograms <= SERIES_MAX, "too many series")
    said = sum(len(text) for text in answer.warnings)
    holds(said <= ANSWER_BYTES_MAX, "warnings without end")
    matched = match(NODES.values(), answer.series)
    loads(matched.loads)
    used = len(matched.loads) + matched.unmatched + matched.ambiguous
    holds(
        used + matched.not_finite + matched.duplicates == len(answer.series),
        "a series is neither used nor counted",
    )
    return f"{bool(matched.loads)} {bool(matched.not_finite)} {bool(matched.duplicates)}"


def loads(found: Mapping[str, int]) -> None:
    for name, load in found.items():
        holds(name in NODES, f"a load of {name!r}")
        holds(0 <= load <= LOAD_MAX, f"a load of {load}")


class AnsweredApi(KubeApi):
    """An API server whose answer is here, instead of a network."""

    body = b""

    async def request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
    ) -> bytes:
        return self.body


@contextmanager
def metrics_api() -> Iterator[Check]:
    loop = asyncio.new_event_loop()
    api = AnsweredApi(Access("https://oslo.example"))
    asker = MetricsApi.__new__(MetricsApi)
    asker._api, asker._name = api, "oslo"
    try:
        yield lambda data: loop.run_until_complete(asked(api, asker, data))
    finally:
        loop.close()


async def asked(api: AnsweredApi, asker: MetricsApi, data: bytes) -> str:
    """A first byte of 0x80 or more: the answer is an error, and the body its Status."""
    if data[:1] >= b"\x80":
        try:
            error = ApiError.of(data[1:], 500)
        except UNREADABLE:
            return "no status"
        holds(0 <= error.retry_after_s < float("inf"), f"a pause of {error.retry_after_s} s")
        return "status"
    api.body = data[1:]
    with capture_logs() as logged:
        try:
            usages = await asker._usages()
        except UnreachableError as error:
            one_line(str(error))
            return kind_of(str(error))
    holds(len(logged) <= len(data) // 20, f"{len(logged)} lines of log")
    window = NodeUsageWindow()
    window.observe(usages, 1_000_000)
    found = window.loads("oslo", NODES.get, 60, 2_000_000)
    for load in found:
        loads(dict(load.loads))
        sent(load)
    return f"{bool(usages)} {len(found)}"


def sent(load: NodeLoadObserved) -> None:
    event = decode(encode(load, id=derived_id("fuzz"), source="/wharfinger/fuzz", subject="oslo"))
    holds(event.data == load, "a measurement is read otherwise than written")


def _vector(*samples: object, **more: object) -> bytes:
    data = {"resultType": "vector", "result": list(samples)}
    return json.dumps({"status": "success", "data": data, **more}).encode()


def prometheus_seeds() -> Iterator[bytes]:
    plain: Callable[[bytes], bytes] = lambda body: b"200\n\n" + body  # noqa: E731
    one = {"metric": {"instance": "10.0.0.9:9100"}, "value": [1.5, "42.5"]}
    yield plain(_vector(one))
    yield plain(_vector(one, one, {"metric": {"node": "node-b"}, "value": [1, "+Inf"]}))
    yield plain(_vector({"metric": {}, "histogram": [1, {}]}, warnings=["w"], infos=["i"]))
    yield plain(_vector({"metric": {"instance": "[fd00::9]:1"}, "value": [1, "NaN"]}))
    yield plain(b'{"status":"success","data":{"resultType":"matrix","result":[]}}')
    yield plain(b'{"status":"error","errorType":"bad_data","error":"parse error\\n \\u001b[2J"}')
    yield b"503\n\n" + b'{"status":"error","errorType":"timeout","error":"later"}'
    yield b"302\nLocation: http://elsewhere/\x9b2J\n\n"
    yield b"302\nLocation: http:\x9b/elsewhere\n\n"
    yield b"200\nSet-Cookie: a=b; Path=/; Max-Age=9; Expires=Fri, 31 Dec 9999 23:59:59 GMT\n\n{}"
    yield b"401\n\n"
    yield b"200\nContent-Encoding: gzip\n\n" + gzip.compress(_vector(one), mtime=0)
    yield b"200\nContent-Encoding: deflate\n\n" + b"x"
    yield plain(b"[" * 3000)


def metrics_seeds() -> Iterator[bytes]:
    item = {
        "metadata": {"name": "node-a"},
        "timestamp": "2026-11-21T05:00:00Z",
        "usage": {"cpu": "250m", "memory": "128Mi"},
    }
    strange = {**item, "usage": {"cpu": "1e3", "memory": "1E"}}
    for items in ([item], [item, {**item, "metadata": {"name": "node-b"}}], [strange], []):
        yield b"\x00" + json.dumps({"kind": "NodeMetricsList", "items": items}).encode()
    yield b"\x00" + b'{"items":[{"metadata":{"name":"\xff"},"usage":{"cpu":"1","memory":"1"}}]}'
    yield b"\x00" + b'{"x":' + b"[" * 3000
    status = {"kind": "Status", "message": "no", "reason": "Forbidden", "code": 403}
    yield b"\x80" + json.dumps(status).encode()
    yield b"\x80" + json.dumps({**status, "details": {"retryAfterSeconds": 3}}).encode()


PROMETHEUS = Target("prometheus", "answers of Prometheus", prometheus, prometheus_seeds)
METRICS_API = Target("metrics-api", "answers of a metrics API", metrics_api, metrics_seeds)
