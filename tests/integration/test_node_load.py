"""Measured load from end to end: exporters, a real Prometheus with our recording rules, the
annotator, and the placing by it.

Three nodes are told by one small exporter, since a machine has only one processor to be busy with:
what it says of them is in the words of node_exporter, and everything behind it is real.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec import structs
from tests.cluster_world import Harness, a_node, needs
from tests.integration.test_prometheus import says, server, vector
from tests.patience import PATIENCE_S, eventually

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.policy import (
    HotWindow,
    LoadLimit,
    LoadPolicy,
    LoadWeight,
    Policy,
    SyncPeriod,
)
from wharfinger.domain.scheduler import (
    DEFAULT_SCHEDULER,
    Arguments,
    DynamicArgs,
    PluginUse,
    Point,
    Profile,
    SchedulerConfig,
)
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.profile import framework
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.load.node_loads import LoadBook, LoadView
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.envelope import Event
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied
from wharfinger.runtime.processes import free_port
from wharfinger.stages.annotator import AnnotatorObserver, AnnotatorState, QueryFailure
from wharfinger_annotator.prometheus import Prometheus, PrometheusSettings

pytestmark = pytest.mark.integration

PROMETHEUS = shutil.which("prometheus")
NODE_EXPORTER = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
RULES = Path(__file__).parents[2] / "infra" / "prometheus" / "node-load.yml"

needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="needs the prometheus binary (Debian package prometheus)"
)
needs_exporter = pytest.mark.skipif(
    NODE_EXPORTER is None, reason="needs node_exporter (Debian package prometheus-node-exporter)"
)

CPU, MEMORY = "cpu_usage_avg_5m", "mem_usage_avg_5m"
POLICY = LoadPolicy(
    (SyncPeriod(CPU, 60), SyncPeriod(MEMORY, 60)),
    (LoadLimit(CPU, 65_000), LoadLimit(MEMORY, 75_000)),
    (LoadWeight(CPU, 500), LoadWeight(MEMORY, 500)),
    (HotWindow(300, 5), HotWindow(60, 2)),
)
NODES = ("busy", "calm", "idle")
SECOND = 1_000_000


# The world outside.


@dataclass(slots=True)
class Machines:
    """What an exporter tells: instance -> share of time not idle, and of memory in use."""

    loads: dict[str, tuple[float, float]]
    began: float = field(default_factory=time.monotonic)

    def text(self) -> str:
        passed = 1000 + time.monotonic() - self.began
        lines = []
        for instance, (cpu, memory) in self.loads.items():
            for mode, share in (("idle", 1 - cpu), ("user", cpu)):
                labels = f'{{instance="{instance}",cpu="0",mode="{mode}"}}'
                lines.append(f"node_cpu_seconds_total{labels} {passed * share:.6f}")
            lines.append(f'node_memory_MemTotal_bytes{{instance="{instance}"}} 1000000')
            lines.append(
                f'node_memory_MemAvailable_bytes{{instance="{instance}"}} '
                f"{1_000_000 * (1 - memory):.0f}"
            )
        return "\n".join(["# TYPE node_cpu_seconds_total counter", *lines, ""])


@contextmanager
def an_exporter(machines: Machines) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = machines.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)


@contextmanager
def running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE_S)


@contextmanager
def a_prometheus(folder: Path, *targets: int) -> Iterator[str]:
    """Scrapes twice a second, and records by our rules as often."""
    assert PROMETHEUS is not None
    rules = (
        RULES.read_text()
        .replace("interval: 1m", "interval: 500ms")
        .replace("interval: 5m", "interval: 500ms")
    )
    (folder / "node-load.yml").write_text(rules)
    scraped = ", ".join(f'"127.0.0.1:{port}"' for port in targets)
    (folder / "prometheus.yml").write_text(
        f"""
global: {{scrape_interval: 500ms, scrape_timeout: 400ms, evaluation_interval: 500ms}}
rule_files: [node-load.yml]
scrape_configs:
  - job_name: nodes
    honor_labels: true
    static_configs:
      - {{targets: [{scraped}]}}
"""
    )
    port = free_port()
    command = [
        PROMETHEUS,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/tsdb",
    ]
    with running([*command, f"--web.listen-address=127.0.0.1:{port}"], folder / "log"):
        yield f"http://127.0.0.1:{port}"


# The annotator, without its broker.


def event(value: Value) -> Event[Value]:
    return Event(uuid4(), "test", "/test", "test", value, b"", b"")


def told_of(
    names: tuple[str, ...], addresses: dict[str, str]
) -> tuple[AnnotatorObserver, AnnotatorState]:
    """An annotator that knows the policy and the nodes of one cluster."""
    observer = AnnotatorObserver()
    state = observer.initial()
    nodes = tuple(
        Node(n, {"cpu": 64_000, "memory": 2**38, "pods": 500}, addresses=(addresses.get(n, n),))
        for n in names
    )
    policy = Policy("DynamicSchedulerPolicy", "default", load=POLICY)
    for fact in (PolicyApplied(policy), NodesObserved("oslo", 0, 1, nodes)):
        observer.fold(state, event(fact), 0)
    return observer, state


async def turn(
    observer: AnnotatorObserver, state: AnnotatorState, prometheus: Prometheus, at: int
) -> list[NodeLoadObserved | HotValueObserved]:
    """What is due is asked and told."""
    for query in observer.due_queries(state, at):
        answer = await prometheus.ask(query)
        loads = (
            answer
            if isinstance(answer, QueryFailure)
            else observer.match(state, "oslo", answer.series).loads
        )
        observer.fold_answer(state, query, loads, at)
    told = [publication.data for publication in observer.publish(state, at)]
    return [data for data in told if isinstance(data, NodeLoadObserved | HotValueObserved)]


async def measured(
    url: str, names: tuple[str, ...], addresses: dict[str, str]
) -> tuple[LoadBook, int]:
    """Turns of an annotator, a period after another, until every metric of every node is known."""
    book, at = LoadBook(), 0
    book.policy_applied("default", POLICY)
    observer, state = told_of(names, addresses)
    async with Prometheus(PrometheusSettings(url)) as prometheus:

        async def known() -> bool:
            nonlocal at
            at += 60 * SECOND
            for told in await turn(observer, state, prometheus, at):
                book.observe(told)
            return not book.unknown(names, at)

        await eventually(known, seen=lambda: book.unknown(names, at))
    return book, at


# Placing by it.


def by_load_alone(args: DynamicArgs) -> Profile:
    points: dict[Point, tuple[PluginUse, ...]] = {
        "queueSort": (PluginUse("PrioritySort"),),
        "preFilter": (PluginUse("Dynamic"),),
        "filter": (PluginUse("Dynamic"),),
        "preScore": (PluginUse("Dynamic"),),
        "score": (PluginUse("Dynamic", 1),),
        "bind": (PluginUse("DefaultBinder"),),
    }
    return Profile("load", points, Arguments(dynamic=args))


def burst(book: LoadBook, now: int, pods: int, args: DynamicArgs | None = None) -> dict[str, int]:
    """So many equal and tiny pods, one after another by a profile in which load alone has a weight:
    how many came to each node."""
    scheduler = framework(by_load_alone(args or DynamicArgs()))
    nodes = [Node(name, {"cpu": 64_000, "memory": 2**38, "pods": 500}) for name in NODES]
    snapshot = Snapshot.of(nodes, ())
    snapshot.load = LoadView(book, now)
    placed = dict.fromkeys(NODES, 0)
    for i in range(pods):
        pod = Pod(f"uid-{i}", f"web-{i}", Requirements({"cpu": 10, "memory": 2**20}))
        outcome = scheduler.run(snapshot, pod)
        assert outcome.feasible, outcome.message
        node = outcome.best[0]
        placed[node] += 1
        snapshot.add(Pod(pod.uid, pod.name, pod.requirements, node))
    return placed


@needs_prometheus
async def test_a_hot_node_is_avoided_and_a_burst_is_spread(tmp_path: Path) -> None:
    machines = Machines(
        {"10.0.0.1:9100": (0.9, 0.3), "10.0.0.2:9100": (0.4, 0.3), "10.0.0.3:9100": (0.1, 0.3)}
    )
    addresses = dict(zip(NODES, ("10.0.0.1", "10.0.0.2", "10.0.0.3"), strict=True))
    with an_exporter(machines) as exporter, a_prometheus(tmp_path, exporter) as url:
        book, now = await measured(url, NODES, addresses)
    for name, load in zip(NODES, (90_000, 40_000, 10_000), strict=True):
        found = book.load(CPU, name, now)
        assert found is not None
        assert abs(found - load) < 5_000
        assert book.load(MEMORY, name, now) == 30_000
    verdict = book.judge("busy", now, DynamicArgs())
    assert verdict.message("busy") == f"Load[{CPU}] of node[busy] is too high"

    placed = burst(book, now, 30)
    assert placed["busy"] == 0
    # Each two pods take ten points off a node, so that the calm one, fifteen points behind, soon
    # gets its share of them.
    assert placed["calm"] >= 10
    # Undamped all of them run to the node that was idle when it was last measured.
    assert burst(book, now, 30, DynamicArgs(damped=False)) == {"busy": 0, "calm": 0, "idle": 30}
    assert_a_cluster_stream_places_by(book, now)


def assert_a_cluster_stream_places_by(book: LoadBook, now: int) -> None:
    """The same measurements as inputs of the stream that decides: one binding of thirty replicas,
    and twenty that come alone."""
    plane = Harness(at=now)
    plane.feed(PolicyApplied(Policy("DynamicSchedulerPolicy", "default", load=POLICY)))
    config = SchedulerConfig(
        (structs.replace(by_load_alone(DynamicArgs()), name=DEFAULT_SCHEDULER),)
    )
    plane.feed(PolicyApplied(Policy("KubeSchedulerConfiguration", "default", scheduler=config)))
    plane.nodes(*(a_node(name, cpu=64_000, memory=2**38) for name in NODES))
    plane.feed(*book.measured.values())
    plane.assign("web", 30, needs(cpu=10))
    for i in range(20):
        plane.assign(f"db-{i}", 1, needs(cpu=10))
    web = list(plane.where("web").values())
    alone = [node for i in range(20) for node in plane.where(f"db-{i}").values()]
    assert "busy" not in {*web, *alone}
    assert web.count("calm") >= 10
    assert alone.count("calm") >= 5
    assert len(alone) == 20


@needs_prometheus
@needs_exporter
async def test_a_real_exporter_tells_the_load_of_this_machine(tmp_path: Path) -> None:
    assert NODE_EXPORTER is not None
    port = free_port()
    with (
        running(
            [NODE_EXPORTER, f"--web.listen-address=127.0.0.1:{port}"], tmp_path / "exporter.log"
        ),
        a_prometheus(tmp_path, port) as url,
    ):
        book, now = await measured(url, ("here",), {"here": "127.0.0.1"})
    for metric in (CPU, MEMORY):
        load = book.load(metric, "here", now)
        assert load is not None
        assert 0 <= load <= 100_000
    assert book.load(MEMORY, "here", now) != 0


@needs_prometheus
async def test_a_node_without_an_exporter_is_unknown_and_pods_are_placed_all_the_same(
    tmp_path: Path,
) -> None:
    machines = Machines({"busy": (0.9, 0.3), "calm": (0.4, 0.3)})
    with an_exporter(machines) as exporter, a_prometheus(tmp_path, exporter) as url:
        book, now = await measured(url, ("busy", "calm"), {})
    assert book.unknown(NODES, now) == {CPU: 1, MEMORY: 1}
    placed = burst(book, now, 12)
    assert placed["busy"] == 0
    assert placed["idle"] > 0


@needs_prometheus
async def test_when_prometheus_goes_down_what_was_measured_counts_for_its_time_and_is_unknown_then(
    tmp_path: Path,
) -> None:
    machines = Machines({"busy": (0.9, 0.3), "calm": (0.4, 0.3), "idle": (0.1, 0.3)})
    with an_exporter(machines) as exporter, a_prometheus(tmp_path, exporter) as url:
        book, now = await measured(url, NODES, {})
    observer, state = told_of(NODES, {})
    async with Prometheus(PrometheusSettings(url, attempts=1)) as gone:
        assert [
            m for m in await turn(observer, state, gone, now) if isinstance(m, NodeLoadObserved)
        ] == []
    assert burst(book, now, 6)["busy"] == 0
    later = now + (60 + 300) * SECOND
    assert book.unknown(NODES, later) == {CPU: 3, MEMORY: 3}
    assert sum(burst(book, later, 6).values()) == 6
    assert (
        book.judge("busy", later, DynamicArgs("closed")).message("busy")
        == f"Load[{CPU}] of node[busy] is unknown"
    )


async def told_by_a_server_that_says(*samples: tuple[dict[str, str], str]) -> LoadBook:
    book = LoadBook()
    book.policy_applied("default", POLICY)
    observer, state = told_of(NODES, {})
    async with server(says(vector(*samples))) as settings, Prometheus(settings) as prometheus:
        for told in await turn(observer, state, prometheus, SECOND):
            book.observe(told)
    return book


async def test_lies_are_no_loads_and_the_largest_of_two_answers_counts() -> None:
    strangers = [({"instance": f"stranger-{i}:9100"}, "1") for i in range(9_996)]
    lies = (
        ({"node": "busy"}, "NaN"),
        ({"node": "calm"}, "-5"),
        ({"node": "idle"}, "90"),
        ({"node": "idle"}, "10"),
    )
    book = await told_by_a_server_that_says(*strangers, *lies)
    assert book.unknown(NODES, SECOND) == {CPU: 1, MEMORY: 1}
    assert [book.load(CPU, name, SECOND) for name in NODES] == [None, 0, 90_000]
    placed = burst(book, SECOND, 6)
    assert placed["idle"] == 0
    assert sum(placed.values()) == 6


async def test_a_server_that_says_too_much_or_nothing_leaves_all_unknown_and_pods_are_placed() -> (
    None
):
    for samples in ((), tuple(({"instance": f"s-{i}"}, "1") for i in range(10_001))):
        book = await told_by_a_server_that_says(*samples)
        assert book.unknown(NODES, SECOND) == {CPU: 3, MEMORY: 3}
        assert burst(book, SECOND, 6) == {"busy": 2, "calm": 2, "idle": 2}
