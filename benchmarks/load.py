"""What load awareness costs: one pod judged over all nodes, a measurement taken in, and a minute of
the annotator. Also alone: `python -m benchmarks.load`.

crane's own filter and score of one pod over 5,000 nodes take 13.3 ms at their best (2 cores, its
zone set to UTC), and its annotator falls behind beyond some 185 nodes with its default limits of
the API server."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import numpy as np
from aiohttp import web

from wharfinger.domain.node import Node
from wharfinger.domain.policy import (
    HotWindow,
    LoadLimit,
    LoadPolicy,
    LoadWeight,
    Policy,
    SyncPeriod,
)
from wharfinger.domain.scheduler import DynamicArgs
from wharfinger.domain.value import canonical
from wharfinger.engine.load.columns import LoadTable
from wharfinger.engine.load.node_loads import LoadBook
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.codec import made
from wharfinger.events.node_load import NodeLoadObserved
from wharfinger.events.policies import PolicyApplied
from wharfinger.stages.annotator import AnnotatorObserver, QueryFailure
from wharfinger_annotator.prometheus import Prometheus, PrometheusSettings

NODES = 5000
CRANE_MS = 13.3
MUST_MS, AIM_MS = 0.5, 0.1
SECOND = 1_000_000

METRICS = tuple(
    f"{what}_usage_{span}"
    for what in ("cpu", "mem")
    for span in ("avg_5m", "max_avg_1h", "max_avg_1d")
)
POLICY = LoadPolicy(
    tuple(SyncPeriod(metric, 60) for metric in METRICS),
    tuple(LoadLimit(metric, 65_000) for metric in METRICS if not metric.endswith("1d")),
    tuple(
        LoadWeight(metric, weight)
        for metric, weight in zip(METRICS, (200, 300, 500) * 2, strict=True)
    ),
    (HotWindow(300, 5), HotWindow(60, 2)),
)
"""crane's default policy, but that every metric is measured each minute."""


@dataclass(frozen=True, slots=True)
class Costs:
    """`judged_ms`: verdict and score of every node for one more pod of a batch. `batch_ms`: what a
    batch begins with, with 1,000 recent placements. `taken_in_ms`: the first batch after all
    metrics were measured again. `minute_s`: work of the annotator to ask for all metrics of all
    nodes once, over HTTP, up to the bytes that it publishes."""

    nodes: int
    judged_ms: float
    batch_ms: float
    taken_in_ms: float
    minute_s: float


def measured(nodes: int = NODES) -> Costs:
    names = [f"node-{i:05d}" for i in range(nodes)]
    book = LoadBook()
    book.policy_applied("default", POLICY)
    table, args, now = LoadTable(book), DynamicArgs(), 10**15

    def measure() -> None:
        for m, metric in enumerate(METRICS):
            loads = {name: (i * 7919 + m * 104_729) % 90_000 for i, name in enumerate(names)}
            book.observe(NodeLoadObserved("oslo", metric, 60, now, loads))

    def taken_in() -> None:
        table.columns(names, 1, now, args)

    measure()
    for i in range(1000):
        book.placed(names[i * 37 % nodes], ("web", i), now - i * 100_000)
    taken_in_ms = []
    for _ in range(7):
        measure()
        taken_in_ms.append(timed(taken_in, 1))
    moments = iter(range(now + 1, now + 10_000))
    batch_ms = timed(lambda: table.columns(names, 1, next(moments), args), 50)
    columns, placed = table.columns(names, 1, now, args), np.zeros(nodes, dtype=np.int64)

    def judged() -> None:
        best = int(np.where(columns.verdict == 0, columns.scores(placed), -1).argmax())
        placed[best] += 1

    judged_ms = timed(judged, 500)
    return Costs(
        nodes, judged_ms, batch_ms, statistics.median(taken_in_ms), asyncio.run(a_minute(names))
    )


def timed(work: Callable[[], object], times: int) -> float:
    """Milliseconds, the median."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


async def a_minute(names: list[str]) -> float:
    """Seconds of this process's processor, server left out as far as it can be: its answer is made
    before."""
    observer = AnnotatorObserver()
    state = observer.initial()
    nodes = tuple(
        Node(name, {}, addresses=(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}",))
        for i, name in enumerate(names)
    )
    for fact in (
        PolicyApplied(Policy("DynamicSchedulerPolicy", "default", load=POLICY)),
        NodesObserved("oslo", 0, 1, nodes),
    ):
        observer.fold(state, made(fact, id=uuid4(), source="/bench", subject="x"), 0)
    result = [
        {
            "metric": {"__name__": "m", "instance": f"{n.addresses[0]}:9100"},
            "value": [1.7e9, f"{i % 90}.{i:05d}"],
        }
        for i, n in enumerate(nodes)
    ]
    body = json.dumps(
        {"status": "success", "data": {"resultType": "vector", "result": result}}
    ).encode()
    async with a_server(body) as url, Prometheus(PrometheusSettings(url)) as prometheus:
        began = time.process_time()
        for query in observer.due_queries(state, SECOND):
            answer = await prometheus.ask(query)
            assert not isinstance(answer, QueryFailure), answer
            observer.fold_answer(
                state, query, observer.match(state, "oslo", answer.series).loads, SECOND
            )
        told = [canonical(publication.data) for publication in observer.publish(state, SECOND)]
        spent = time.process_time() - began
    assert len(told) == len(METRICS) + 1, "each metric is told once, and the hot values"
    return spent


@asynccontextmanager
async def a_server(body: bytes) -> AsyncIterator[str]:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        address = runner.addresses[0]
        yield f"http://{address[0]}:{address[1]}"
    finally:
        await runner.cleanup()


def main() -> None:
    for nodes in (500, NODES):
        cost = measured(nodes)
        print(f"{cost.nodes:,} nodes, {len(METRICS)} metrics")
        print(
            f"  filter and score of one pod      {cost.judged_ms:8.3f} ms   (crane at 5,000: "
            f"{CRANE_MS} ms)"
        )
        print(f"  what a batch begins with         {cost.batch_ms:8.3f} ms")
        print(f"  after all metrics came anew      {cost.taken_in_ms:8.3f} ms")
        print(
            f"  the annotator, all metrics once  {cost.minute_s:8.3f} s of processor, "
            "of the 60 there are"
        )


if __name__ == "__main__":
    main()
