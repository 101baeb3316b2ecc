"""The event stream of the HTTP API: many subscribers, deciding while they listen, and the whole
feed to one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from multiprocessing.connection import Connection
from statistics import mean

from benchmarks.api_plane import ApiUnderTest, Meter, said
from benchmarks.api_subscribers import Report, Subscriptions, subscribe
from benchmarks.bare_server import bare_server
from benchmarks.child import a_child, answer_of
from benchmarks.history import Figure
from benchmarks.latency import a_binding, percentiles, submission
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.streams import BINDINGS

DECISIONS_A_SECOND = 50.0
SAMPLES = 20
"""Subscribers that parse every event."""
DEAF = 0.3
"""Share of subscribers that never read."""
TRIED = 50
"""Bindings that are changed to count the decisions of a change."""
OPENED_S = 120.0
READ_S = 120.0
"""For so long it is waited for subscribers that are behind."""
STILL_S = 1.0
TURNS = (False, True, True, False)
"""With subscribers or without: a slow drift of the machine cancels out."""
SEEN_P99_MS = 250.0
RATIO = 0.90
REPLAYED = 20_000.0
REPLAYS = 3


async def measure_subscribers(
    api: ApiUnderTest, subscribers: int, seconds: float, figures: list[Figure]
) -> None:
    """How soon subscribers see a decision, and whether each sees every one once."""
    start = await api.settled()
    await api.change(api.names[:TRIED])
    changed = min(TRIED, len(api.names))
    a_change = await api.decisions(start, await api.settled()) / changed
    start = await api.settled()
    samples = min(SAMPLES, subscribers)
    of_each = [{"counting": subscribers - samples}, {"samples": samples}]
    async with subscribed(api, f"/v1/events?after={start}", of_each) as pipes:
        meter = Meter(api.plane)
        async with api.changing(DECISIONS_A_SECOND / a_change):
            await asyncio.sleep(seconds)
        expected = await _all_read(api, pipes, start)
        used = meter.used(max(1, expected * subscribers))
        reports: list[Report] = [await answer_of(pipe, True) for pipe in pipes]
    frames = [count for report in reports for count in report.frames]
    lost = sum(max(0, expected - count) for count in frames)
    twice = sum(max(0, count - expected) for count in frames)
    twice = max(twice, sum(report.repeated for report in reports))
    delays = [delay for report in reports for delay in report.delays]
    if not delays:
        raise RuntimeError(f"no subscriber has seen one of {expected} decisions")
    seen = percentiles(delays)
    beside = f"{expected:,} decisions in {seconds:.0f} s, {a_change:.1f} of a change"
    closed = sum(report.closed for report in reports)
    name = f"{subscribers:,} subscribers"
    figures += [
        Figure(f"{name}: decided to seen p50", seen.p50, "ms", ratio=beside),
        Figure(
            f"{name}: decided to seen p99",
            seen.p99,
            "ms",
            SEEN_P99_MS,
            False,
            said(used, "frame"),
            used,
        ),
        Figure(f"{name}: frames lost", lost, "", 0, False, f"{closed} connections ended"),
        Figure(f"{name}: frames twice", twice, "", 0, False, f"of {sum(frames):,}"),
    ]


async def _all_read(api: ApiUnderTest, pipes: Sequence[Connection], start: int) -> int:
    """How many decisions there are beyond `start`, once all subscribers have that many and no more
    come, or after `READ_S`."""
    until, known = time.monotonic() + READ_S, 0
    while True:
        await asyncio.sleep(STILL_S)
        reports: list[Report] = [await answer_of(pipe, False) for pipe in pipes]
        expected = await api.decisions(start, await api.head())
        read = all(count >= expected for report in reports for count in report.frames)
        if (read and expected == known) or time.monotonic() > until:
            return await api.decisions(start, await api.settled())
        known = expected


@asynccontextmanager
async def subscribed(
    api: ApiUnderTest, path: str, of_each: Sequence[dict[str, int]]
) -> AsyncIterator[list[Connection]]:
    """Subscribers in a process for each member of `of_each`, when all of them are served."""
    wanted = [
        Subscriptions(api.card.http_port, path, api.secrets, **counts)
        for counts in of_each
        if any(counts.values())
    ]
    all_ = sum(one.counting + one.samples + one.deaf for one in wanted)
    readers = sum(one.counting + one.samples for one in wanted)
    await _none_left(api)
    with ExitStack() as children:
        pipes = [children.enter_context(a_child(subscribe, one)) for one in wanted]
        until = time.monotonic() + OPENED_S
        while True:
            reports: list[Report] = [await answer_of(pipe, False) for pipe in pipes]
            opened, served = sum(report.opened for report in reports), await api.sse_clients()
            if opened >= readers and served >= all_:
                break
            if time.monotonic() > until:
                raise RuntimeError(
                    f"after {OPENED_S:.0f} s {opened} of {readers} streams were open, and the API "
                    f"counted {served} of {all_}"
                )
            await asyncio.sleep(0.1)
        yield pipes


async def _none_left(api: ApiUnderTest) -> None:
    """Those of before are gone."""
    until = time.monotonic() + OPENED_S
    while left := await api.sse_clients():
        if time.monotonic() > until:
            raise RuntimeError(f"{left} subscribers that ended are still served")
        await asyncio.sleep(0.1)


async def measure_deciding(
    api: ApiUnderTest, subscribers: int, burst: int, figures: list[Figure]
) -> None:
    """Whether the plane decides as quickly while all subscribers listen."""
    deaf = int(DEAF * subscribers)
    listening = [{"counting": subscribers - deaf, "deaf": deaf}]
    rates: dict[bool, list[float]] = {False: [], True: []}
    used: dict[bool, dict[str, float]] = {}
    await _burst(api, "warm", min(burst, 100))
    for turn, with_subscribers in enumerate(TURNS):
        async with subscribed(api, "/v1/events", listening if with_subscribers else []):
            rate, used[with_subscribers] = await _burst(api, f"burst-{turn}", burst)
            rates[with_subscribers].append(rate)
    alone, beside = mean(rates[False]), mean(rates[True])
    of_each = " over ".join(
        ", ".join(f"{rate:,.0f}" for rate in rates[turn]) for turn in (True, False)
    )
    figures += [
        Figure(
            f"burst of {burst:,} bindings, no subscribers",
            alone,
            "/s",
            ratio=said(used[False], "binding"),
            processor_us=used[False],
        ),
        Figure(
            f"burst of {burst:,} bindings, {subscribers:,} subscribers, {deaf:,} never read",
            beside,
            "/s",
            ratio=said(used[True], "binding"),
            processor_us=used[True],
        ),
        Figure(
            "burst: rate with subscribers over that without",
            beside / alone,
            "",
            RATIO,
            ratio=of_each,
        ),
    ]


async def _burst(api: ApiUnderTest, namespace: str, count: int) -> tuple[float, dict[str, float]]:
    """New bindings decided and published a second, and processor time of each. They are withdrawn
    afterwards, so that each turn has the same to do."""
    names = [f"{namespace}/b{i:05d}" for i in range(count)]
    meter = Meter(api.plane)
    seconds = await api.decided([a_binding(name) for name in names], names)
    used = meter.used(count)
    withdrawn = [submission(BindingWithdrawn(name), BINDINGS.name, name, name, 1) for name in names]
    await api.accept(withdrawn)
    await api.settled()
    return count / seconds, used


async def measure_replay(api: ApiUnderTest, figures: list[Figure]) -> None:
    """The whole feed to one subscriber, from the first decision to the head."""
    total = await api.decisions(0, await api.settled())
    path = "/v1/events?after=earliest"
    meter = Meter(api.plane)
    runs = [await _replayed(api.card.http_port, path, api.secrets, total) for _ in range(REPLAYS)]
    used = meter.used(REPLAYS * total)
    first = runs[0]
    with bare_server() as port:
        frames = f"/frames/{total}/{first.size // total}"
        bare_runs = [await _replayed(port, frames, api.secrets, total) for _ in range(REPLAYS)]
    bare = max(total / run.seconds for run in bare_runs)
    rate, best = total / first.seconds, max(total / run.seconds for run in runs)
    beside = f"{first.size / 1e6:,.1f} MB, {rate / bare:.0%} of bare; again {best:,.0f}"
    figures += [
        Figure("raw: bare server, a feed of frames as large to the same client", bare, "/s"),
        Figure(
            f"replay of {total:,} events to one subscriber, the first time",
            rate,
            "/s",
            REPLAYED,
            ratio=f"{beside}; {said(used, 'event')}",
            processor_us=used,
        ),
    ]


async def _replayed(port: int, path: str, secrets: tuple[str, ...], total: int) -> Report:
    """When the subscriber has so many events."""
    until = time.monotonic() + READ_S
    with a_child(subscribe, Subscriptions(port, path, secrets, counting=1)) as pipe:
        while True:
            report: Report = await answer_of(pipe, False)
            if sum(report.frames) >= total:
                return report
            if report.closed or time.monotonic() > until:
                raise RuntimeError(
                    f"a replay gave {sum(report.frames)} of {total} events"
                    + (", then its connection ended" if report.closed else "")
                )
            await asyncio.sleep(0.05)
