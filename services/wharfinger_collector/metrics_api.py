"""The metrics API of a cluster (`metrics.k8s.io`, as metrics-server gives it), asked for what its
nodes use where no Prometheus is set.

The loads go to Kafka directly, like those of the annotator: they are measurements of the moment,
and the next one replaces them.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import uuid4

import msgspec
from aiokafka.errors import KafkaError

from wharfinger.domain.quantities import parse_milli, parse_units
from wharfinger.domain.text import one_line
from wharfinger.domain.time import Micros
from wharfinger.events.codec import encode
from wharfinger.events.node_load import NodeLoadObserved
from wharfinger.events.streams import NODE_LOAD
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.identity import AWAY
from wharfinger.runtime.kube.watched import NODE_METRICS
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.producer import Producer, idempotent_producer, started
from wharfinger.runtime.service import ServiceContext
from wharfinger.stages.collector import ObservedCluster
from wharfinger.stages.collector.node_usage import NodeUsage, NodeUsageWindow

ASK_S = 30.0
"""metrics-server measures every 15 s by default."""

SEND_S = 60
"""Every other answer: each measurement is an input that the ledger keeps."""

MISSING_S = 300.0
"""How long a cluster without a metrics API is left alone."""

PATH = f"{NODE_METRICS.group_path}/{NODE_METRICS.resource}"

SendLoads = Callable[[Sequence[NodeLoadObserved]], Awaitable[None]]

log = get_logger(__name__)


class _Meta(msgspec.Struct):
    name: str


class _Used(msgspec.Struct):
    cpu: str
    memory: str


class _NodeMetrics(msgspec.Struct):
    metadata: _Meta
    usage: _Used
    timestamp: str = ""


class _NodeMetricsList(msgspec.Struct):
    items: list[_NodeMetrics] = []


class MetricsApi:
    """Asks one cluster. `facts`: its nodes, which say how large they are. `send`: takes the loads;
    raises nothing. `ask_s`, `send_s`: seconds between two questions, and between two messages."""

    def __init__(
        self,
        api: KubeApi,
        facts: ObservedCluster,
        clock: Callable[[], Micros],
        send: SendLoads,
        ask_s: float = ASK_S,
        send_s: int = SEND_S,
    ) -> None:
        self._api = api
        self._facts = facts
        self._name = facts.cluster.name
        self._clock = clock
        self._send = send
        self._ask_s, self._send_s = ask_s, send_s
        self._window = NodeUsageWindow()
        self._why = ""

    async def run(self) -> None:
        """Until cancelled. A cluster without a metrics API, or that does not let us read it, is
        asked again later."""
        sent_at: Micros | None = None
        while True:
            if not self._facts.complete:  # how large its nodes are is not known yet
                await asyncio.sleep(min(1.0, self._ask_s))
                continue
            try:
                usages = await self._usages()
            except AWAY as error:
                self._unanswered(one_line(error))
                missing = isinstance(error, ApiError) and error.code in (403, 404)
                await asyncio.sleep(max(self._ask_s, MISSING_S) if missing else self._ask_s)
                continue
            self._why = ""
            at = self._clock()
            self._window.observe(usages, at)
            due = sent_at is None or at - sent_at >= self._send_s * 1_000_000
            if due and (
                loads := self._window.loads(self._name, self._facts.node, self._send_s, at)
            ):
                await self._send(loads)
                sent_at = at
            await asyncio.sleep(self._ask_s)

    async def _usages(self) -> list[NodeUsage]:
        """What can be read of the answer: a quantity that is none leaves out its node."""
        found: list[NodeUsage] = []
        for item in (await self._api.get(PATH, _NodeMetricsList)).items:
            try:
                cpu, memory = parse_milli(item.usage.cpu), parse_units(item.usage.memory)
            except ValueError as error:
                node, why = item.metadata.name, str(error)
                log.warning("metrics.unreadable", cluster=self._name, node=node, why=why)
                continue
            if cpu >= 0 and memory >= 0:
                found.append(NodeUsage(item.metadata.name, item.timestamp, cpu, memory))
        return found

    def _unanswered(self, why: str) -> None:
        """Said once for each cause."""
        if why != self._why:
            log.info("metrics.unanswered", cluster=self._name, why=why)
        self._why = why


class LoadSender:
    """Sends node loads with one producer, which is started with the first of them."""

    def __init__(self, name: str, context: ServiceContext) -> None:
        self._name = name
        self._context = context
        self._producer: Producer | None = None
        self._one = asyncio.Lock()

    async def send(self, loads: Sequence[NodeLoadObserved]) -> None:
        """A broker that is away takes none: the next measurement is sent again."""
        context = self._context
        try:
            producer = await self._started()
            acknowledged = [
                await producer.send(
                    context.wire(NODE_LOAD.name),
                    encode(
                        load,
                        id=uuid4(),
                        source=f"/wharfinger/{self._name}",
                        subject=load.cluster,
                        key=load.cluster,
                    ),
                    key=f"{load.cluster}/{load.metric}".encode(),
                    partition=context.cluster_partition(load.cluster),
                )
                for load in loads
            ]
            await asyncio.gather(*acknowledged)
        except (KafkaError, OSError) as error:
            log.warning("broker.away", service=self._name, why=f"{type(error).__name__}: {error}")

    async def stop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _started(self) -> Producer:
        async with self._one:
            if self._producer is None:
                self._producer = await started(
                    idempotent_producer(
                        self._context.backend,
                        client_id=f"wharfinger-{self._name}",
                        sent=self._context.signals.sent,
                    )
                )
            return self._producer
