"""`python -m benchmarks.api`: what the HTTP API of a plane of real processes does.

The plane is full of bindings, and decides while it is measured: reads at a steady rate, explain,
lineage and the past, subscribers of the event stream (`api_feed`), plans, memory, and how soon the
process is back that was killed. `--only reads` measures one part. Raw limits are those of a bare
server of the same kind (`bare_server`), asked by the same client beside the same load.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from statistics import median

from rich.console import Console

from benchmarks.api_feed import measure_deciding, measure_replay, measure_subscribers
from benchmarks.api_plane import API, ApiUnderTest, Meter, a_full_plane, said
from benchmarks.api_requests import Answers, Kind, Requests, client
from benchmarks.bare_server import bare_server
from benchmarks.child import a_child, answer_of
from benchmarks.history import Figure, commit_now
from benchmarks.latency import percentiles
from benchmarks.plane import PlaneUnderTest, a_plane, service_of
from benchmarks.report import finish, show
from wharfinger.runtime.ledger.operations import OPEN

PARTS = ("reads", "explain", "subscribers", "deciding", "replay", "plans", "process")
READS_A_SECOND = 200.0
EXPLAINED_A_SECOND = 20.0
ASKED_A_SECOND = 5.0
"""By a few people, of a plane that decides nothing."""
EVENTS_A_SECOND = 50.0
WARM_A_SECOND, WARM_S = 6.0, 1.0
PAGE = 100
READ_P99_MS = 50.0
P99_MS = {"explain": 150.0, "lineage": 150.0, "at a position": 250.0}
PATHS = 200
"""Different paths of a kind of request."""
BACK_S, BACK_TIMEOUT_S = 10.0, 120.0
MEMORY_MB = 600.0
PLAN_S = {"scale": 1.0, "drain": 5.0}
PLANS = 3
UNLIMITED = {
    "WHARFINGER_API_REQUESTS_PER_S": "1000000",
    "WHARFINGER_API_REQUESTS_BURST": "1000000",
    "WHARFINGER_OWNER_PID": str(os.getpid()),
}
"""Of the plane: how many requests a token may make, and that the plane ends with the benchmark."""


def main() -> int:
    options = options_of()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is a file
    figures: list[Figure] = []
    commit = None if options.no_record else commit_now()  # the tree may change while it runs
    with a_plane() as plane:
        plane = replace(plane, environment=UNLIMITED)
        plane.up("--processes", "each")
        try:
            asyncio.run(_in_a_full_plane(plane, options, figures))
        except BaseException:
            show(figures)  # of the parts before
            raise
    finish(figures, commit)
    return 0


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.api", description=__doc__)
    parser.add_argument("--bindings", type=int, default=5000)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=20, help="of each cluster")
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--burst", type=int, default=1000, help="bindings decided at once")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load")
    parser.add_argument("--only", choices=PARTS, help="measure one part")
    parser.add_argument(
        "--no-record", action="store_true", help="keep no record in benchmarks/history"
    )
    options = parser.parse_args(arguments)
    for name in ("bindings", "clusters", "nodes", "subscribers", "burst", "seconds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: expected at least 1, got {getattr(options, name):g}")
    return options


async def _in_a_full_plane(
    plane: PlaneUnderTest, options: argparse.Namespace, figures: list[Figure]
) -> None:
    _say(f"a plane of {options.bindings:,} bindings on {options.clusters:,} clusters")
    async with a_full_plane(plane, options.bindings, options.clusters, options.nodes) as api:
        for part in PARTS:
            if options.only in (None, part):
                await api.rested()
                _say(part)
                await _measure(part, api, options, figures)


async def _measure(
    part: str, api: ApiUnderTest, options: argparse.Namespace, figures: list[Figure]
) -> None:
    match part:
        case "reads":
            await measure_reads(api, options.seconds, figures)
        case "explain":
            await measure_explain(api, options.seconds, figures)
        case "subscribers":
            await measure_subscribers(api, options.subscribers, options.seconds, figures)
        case "deciding":
            await measure_deciding(api, options.subscribers, options.burst, figures)
        case "replay":
            await measure_replay(api, figures)
        case "plans":
            await measure_plans(api, figures)
        case "process":
            await measure_process(api, figures)


async def measure_reads(api: ApiUnderTest, seconds: float, figures: list[Figure]) -> None:
    """One binding, and a page of them, with and without what was seen before."""
    page = f"/v1/bindings?limit={PAGE}"
    kinds = (
        Kind("one binding", tuple(f"/v1/bindings/{name}" for name in spread(api.names, PATHS))),
        Kind(f"list of {PAGE}", (page,)),
        Kind("list, If-None-Match", (page,), conditional=True),
    )
    with bare_server() as port, a_child(client) as pipe:
        async with api.changing(EVENTS_A_SECOND):
            found, used = await _asked(api, pipe, kinds, READS_A_SECOND, seconds)
            bare_kinds = tuple(
                Kind(kind.name, (f"/bytes/{one.size // len(one.seconds)}",))
                for kind, one in zip(kinds, found.values(), strict=True)
            )
            bare: dict[str, Answers] = await answer_of(
                pipe, Requests(f"http://127.0.0.1:{port}", "", bare_kinds, READS_A_SECOND, seconds)
            )
    beside = said(used, "request")
    for name, one in found.items():
        _percentiles(figures, f"reads, {name}", one, READ_P99_MS, beside, used)
        limit = percentiles(bare[name].seconds)
        for q, ms in (("p50", limit.p50), ("p99", limit.p99)):
            figures.append(Figure(f"raw: bare server, {name} {q}", 1000 * ms, "µs"))
    _failed(figures, "reads", found)


async def measure_explain(api: ApiUnderTest, seconds: float, figures: list[Figure]) -> None:
    """Why a binding is where it is, what led to it, and where it was."""
    names = spread(api.names[: max(1, len(api.names) // 4)], PATHS)
    head = await api.settled()
    # the names are of those that were decided first
    past = [head - i * (head // 2) // PATHS for i in range(PATHS)]
    at = [f"{names[i % len(names)]}?at=position:{position}" for i, position in enumerate(past)]
    kinds = (
        Kind("explain", tuple(f"/v1/bindings/{name}/explain" for name in names)),
        Kind("lineage", tuple(f"/v1/bindings/{name}/lineage" for name in names)),
        Kind("at a position", tuple(f"/v1/bindings/{one}" for one in at)),
    )
    with a_child(client) as pipe:
        resting, used_resting = await _asked(api, pipe, kinds, ASKED_A_SECOND, seconds)
        async with api.changing(EVENTS_A_SECOND):
            loaded, used_loaded = await _asked(api, pipe, kinds, EXPLAINED_A_SECOND, seconds)
    for load, found, used in (
        (f"at rest, {ASKED_A_SECOND:g}/s", resting, used_resting),
        (f"beside {EVENTS_A_SECOND:g} events/s, {EXPLAINED_A_SECOND:g}/s", loaded, used_loaded),
    ):
        for name, one in found.items():
            beside = said(used, "request")
            _percentiles(figures, f"{name}, {load}", one, P99_MS[name], beside, used)
        _failed(figures, f"explain, lineage, at a position, {load}", found)


async def _asked(
    api: ApiUnderTest, pipe: Connection, kinds: tuple[Kind, ...], rate: float, seconds: float
) -> tuple[dict[str, Answers], dict[str, float]]:
    """And the processor time of a request, by part. A few are asked before, for the code and
    connections of a process that has answered none."""
    asking = Requests(api.url, api.secrets[0], kinds, rate, seconds)
    await answer_of(pipe, replace(asking, rate=WARM_A_SECOND, seconds=WARM_S))
    meter = await asyncio.to_thread(Meter, api.plane)
    found = await answer_of(pipe, asking)
    asked = sum(len(one.seconds) for one in found.values())
    return found, await asyncio.to_thread(meter.used, asked)


def _percentiles(
    figures: list[Figure],
    name: str,
    answers: Answers,
    p99_ms: float,
    beside: str,
    used: dict[str, float],
) -> None:
    found = percentiles(answers.seconds)
    codes = ", ".join(f"{count:,} of {code}" for code, count in sorted(answers.codes.items()))
    figures += [
        Figure(f"{name}: p50", found.p50, "ms", ratio=codes),
        Figure(f"{name}: p99", found.p99, "ms", p99_ms, False, beside, used),
        Figure(f"{name}: worst", found.worst, "ms"),
    ]


def _failed(figures: list[Figure], name: str, found: dict[str, Answers]) -> None:
    failed = sum(one.failed for one in found.values())
    asked = sum(len(one.seconds) for one in found.values())
    figures.append(Figure(f"{name}: requests that failed", failed, "", 0, False, f"of {asked:,}"))


async def measure_plans(api: ApiUnderTest, figures: list[Figure]) -> None:
    """Until a plan is there that scales one binding, and one that drains a cluster."""
    bodies: dict[str, dict[str, object]] = {
        "scale": {"kind": "scale", "binding": api.names[0], "replicas": 5},
        "drain": {"kind": "drain", "what": "lat-0"},
    }
    await api.settled()
    for kind, body in bodies.items():
        meter = Meter(api.plane)
        seconds = [await _planned(api, body) for _ in range(PLANS)]
        used = meter.used(PLANS)
        worst = f"worst of {PLANS}: {max(seconds):.2f} s"
        must = PLAN_S[kind]
        figures.append(
            Figure(f"plan, {kind}: median", median(seconds), "s", must, False, worst, used)
        )


async def _planned(api: ApiUnderTest, body: dict[str, object]) -> float:
    """Seconds until there is a plan."""
    began = time.perf_counter()
    url = f"{api.url}/v1/plans?wait=30"
    async with api.http.post(url, json=body, headers=api.authorization) as answer:
        status, found = answer.status, await answer.json(content_type=None)
    while status == 202 and found["state"] in OPEN:
        later = f"{api.url}/v1/operations/{found['id']}?wait=30"
        async with api.http.get(later, headers=api.authorization) as answer:
            answer.raise_for_status()
            found = await answer.json(content_type=None)
    if status not in (200, 202) or (status == 202 and found["state"] != "succeeded"):
        raise RuntimeError(f"no plan was made: {status} {str(found)[:300]}")
    return time.perf_counter() - began


async def measure_process(api: ApiUnderTest, figures: list[Figure]) -> None:
    """Memory of the API after all that was measured before, and how soon it is back."""
    memory = await asyncio.to_thread(api.plane.memory_mb, service_of)
    others = ", ".join(
        f"{name} {mb:.0f}" for name, mb in sorted(memory.items(), key=lambda item: -item[1])[:5]
    )
    figures.append(Figure("memory of the API (PSS)", memory[API], "MB", MEMORY_MB, False, others))
    killed = api.card.pid
    os.kill(killed, signal.SIGKILL)
    began = time.monotonic()
    while time.monotonic() - began < BACK_TIMEOUT_S:
        await asyncio.sleep(0.02)
        card = api.found_card()
        readiness = card.readiness() if card is not None and card.pid != killed else None
        if readiness is not None and readiness.ready:
            figures.append(
                Figure(
                    "API killed: until it is ready again",
                    time.monotonic() - began,
                    "s",
                    BACK_S,
                    False,
                )
            )
            return
    raise RuntimeError(f"the API that was killed is not back after {BACK_TIMEOUT_S:.0f} s")


def spread(names: Sequence[str], count: int) -> tuple[str, ...]:
    """At most so many of them, evenly."""
    return tuple(names[:: max(1, len(names) // count)][:count])


def _say(text: str) -> None:
    Console(stderr=True).print(f"{text} ...")


if __name__ == "__main__":
    sys.exit(main())
