"""The clients of `python -m benchmarks.api` against its bare server: real processes and
connections."""

from __future__ import annotations

import asyncio
import gc
import select
import socket
import threading
from contextlib import ExitStack
from multiprocessing import Pipe

from benchmarks.api_requests import Answers, Kind, Requests, client
from benchmarks.api_subscribers import Report, Subscriptions, subscribe
from benchmarks.bare_server import bare_server
from benchmarks.child import a_child, answer_of
from tests.patience import eventually

FRAMES = 1200
SIZE = 300


def test_each_subscriber_counts_every_frame_and_a_deaf_one_holds_up_no_other() -> None:
    async def read() -> Report:
        wanted = Subscriptions(port, f"/frames/{FRAMES}/{SIZE}", ("none",), counting=3, deaf=2)
        with a_child(subscribe, wanted) as pipe:
            found: list[Report] = []

            async def all_read() -> bool:
                found.append(await answer_of(pipe, False))
                return sum(found[-1].frames) >= 3 * FRAMES

            await eventually(all_read, lambda: found[-1:])
            return found[-1]

    with bare_server() as port:
        report = asyncio.run(read())
    assert report.frames == (FRAMES, FRAMES, FRAMES)
    assert report.opened == 3
    assert report.size > 3 * FRAMES * SIZE


def test_every_request_that_was_due_has_an_answer() -> None:
    async def asked() -> dict[str, Answers]:
        kinds = (Kind("some", ("/bytes/1000",)), Kind("more", ("/bytes/5000",), True))
        with a_child(client) as pipe:
            found: dict[str, Answers] = await answer_of(
                pipe, Requests(f"http://127.0.0.1:{port}", "none", kinds, 100.0, 0.2)
            )
            return found

    with bare_server() as port:
        found = asyncio.run(asked())
    assert {name: (one.codes, one.size) for name, one in found.items()} == {
        "some": ({200: 10}, 10_000),
        "more": ({200: 10}, 50_000),
    }
    assert all(one.failed == 0 for one in found.values())


def test_subscribers_that_never_read_stay_connected() -> None:
    """Nothing but the subscriber holds a connection that waits for nothing."""
    deaf = 5
    mine, theirs = Pipe()
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as accepted:
        wanted = Subscriptions(listening.getsockname()[1], "/", ("none",), deaf=deaf)
        thread = threading.Thread(target=subscribe, args=(theirs, wanted))
        thread.start()
        served = [accepted.enter_context(listening.accept()[0]) for _ in range(deaf)]
        requests = [one.recv(65_536) for one in served]
        mine.send(False)
        mine.recv()  # the loop has turned since it sent the requests
        gc.collect()
        mine.send(False)
        mine.recv()
        ended, _, _ = select.select(served, [], [], 0)
        mine.close()
        thread.join()
    assert all(request.startswith(b"GET / HTTP/1.1\r\n") for request in requests)
    assert not ended
