"""What a writer of a cluster begins while requests are under way: it is looked after every batch
whether writing is allowed and what is open, and nothing waits for the slowest of a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wharfinger.domain.actuation import Verb
from wharfinger.domain.node import Node, WaitingPod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import AssignmentsDecided, Placed
from wharfinger.events.cluster_state import NodesObserved, WaitingPodsObserved
from wharfinger.events.node_share import NodeShare
from wharfinger.runtime.kube.api import JSON, ApiError, KubeApi
from wharfinger.runtime.kube.joined import SCHEDULER, JoinedCluster
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.runtime.kube.lease import KubeLease
from wharfinger.stages.actuator import open_effects
from wharfinger.stages.actuator.effects import Effect, EffectObject
from wharfinger.stages.actuator.pacing import MOST
from wharfinger.stages.actuator.state import ClusterWork
from wharfinger_actuator.observed_effects import EffectSender
from wharfinger_actuator.pod_events import HELD_S, PodEvents
from wharfinger_actuator.sending import BATCH
from wharfinger_actuator.writer import Writer

PODS = BATCH + 20
BINDS: tuple[Verb, ...] = ("bind",)
SLOW = "/api/v1/namespaces/shop/pods/web-0/binding"
ACCESS = Access("https://nowhere.invalid")


class Server(KubeApi):
    """Answers at once, but for the one binding at `SLOW`. `asked`: paths, as they came. `looked`:
    called when it is asked whether writing is stopped. `said`: unset while that has no answer.
    `connections`: how many were to be opened, as it was asked for."""

    def __init__(self) -> None:
        super().__init__(ACCESS)
        self.asked: list[str] = []
        self.paused = False
        self.slow = asyncio.Event()
        self.looked: Callable[[], None] = lambda: None
        self.said = asyncio.Event()
        self.said.set()
        self.connections: list[int] = []

    async def connect(self, count: int) -> None:
        self.connections.append(count)

    async def request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> bytes:
        await asyncio.sleep(0)
        if method == "GET" and path.endswith("/kube-system"):
            return b'{"metadata": {"uid": "u"}}'
        if method == "GET":
            self.looked()
            paused = self.paused
            await self.said.wait()
            if paused:
                return b"{}"
            raise ApiError(404, "NotFound", "no pause")
        self.asked.append(path)
        if path == SLOW:
            await self.slow.wait()
        return b"{}"


def pod(number: int) -> WaitingPod:
    requirements = Requirements(pod=PodTraits(namespace="shop", scheduler=SCHEDULER))
    return WaitingPod(f"u{number}", f"web-{number}", requirements, "shop/web")


def placed(work: ClusterWork, first: int, count: int) -> None:
    shares = tuple(NodeShare("n1", (i,), pods=(f"u{i}",)) for i in range(first, first + count))
    seq = first + 1
    decided = Placed(seq, f"d{seq}", "shop/web", shares)
    work.take(AssignmentsDecided("oslo", "cluster/oslo", seq, (decided,)), 0)


def work_of(pods: int) -> ClusterWork:
    work = ClusterWork("oslo", heard=1)
    work.observe_nodes(NodesObserved("oslo", 0, 1, (Node("n1", {}),)))
    waiting = tuple(pod(i) for i in range(pods + 10))
    work.observe_waiting(WaitingPodsObserved("oslo", "shop", 0, 1, waiting))
    placed(work, 0, pods)
    return work


def writer_of(work: ClusterWork) -> Writer:
    settings = SimpleNamespace(actuator_paused=False, actuator_dry_run=False)
    context = cast("Any", SimpleNamespace(settings=settings, clock=lambda: 1))
    joined = JoinedCluster("oslo", ACCESS, "act", verbs=("bind", "evict"), uid="u")
    answers = cast("EffectSender", SimpleNamespace(offer=lambda *_: None))
    return Writer(joined, context, "h", lambda: ({"oslo": work}, 0), answers)


async def written(writer: Writer, server: Server, until: Callable[[], Awaitable[None]]) -> None:
    """All that is due and may be sent, with the one slow answer after `until`."""
    lease = cast("KubeLease", SimpleNamespace(held=True, why=""))
    task = asyncio.create_task(writer._write(server, lease))
    await until()
    server.slow.set()
    await turns()
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def turns() -> None:
    """As many turns of the loop as all requests together need."""
    for _ in range(20 * PODS):
        await asyncio.sleep(0)


def test_the_next_batch_begins_while_an_answer_of_the_last_one_is_missing() -> None:
    async def run() -> None:
        server, work = Server(), work_of(PODS)

        async def all_begun() -> None:
            await turns()
            assert len(server.asked) == PODS
            assert not server.slow.is_set()

        await written(writer_of(work), server, all_begun)
        assert len(set(server.asked)) == PODS, "each once"

    asyncio.run(run())


def test_a_batch_is_begun_while_it_is_asked_whether_writing_is_stopped_and_no_more() -> None:
    async def run() -> None:
        server, work = Server(), work_of(2 * PODS)
        asked: list[int] = []

        def look() -> None:
            asked.append(len(server.asked))
            if server.asked:
                server.said.clear()

        async def all_begun_that_may_be() -> None:
            await turns()
            assert 0 < asked[1] < BATCH, "it is asked before it is needed"
            assert len(server.asked) == BATCH
            server.looked = lambda: None
            server.said.set()
            server.slow.set()
            await turns()
            assert len(server.asked) == 2 * PODS

        server.looked = look
        await written(writer_of(work), server, all_begun_that_may_be)

    asyncio.run(run())


def test_connections_are_opened_once_for_pods_about_which_it_is_decided() -> None:
    async def run() -> None:
        server, work = Server(), work_of(0)
        writer = writer_of(work)
        lease = SimpleNamespace(held=False, why="another one holds it")
        task = asyncio.create_task(writer._connect(server, cast("KubeLease", lease)))

        async def look() -> list[int]:
            writer._looked.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return server.connections

        assert await look() == [], "without the Lease nothing is sent here"
        lease.held = True
        assert await look() == [10]
        assert await look() == [10], "pods that stay undecided keep no connections open"
        placed(work, 0, 10)
        assert await look() == [10]
        waiting = tuple(pod(i) for i in range(2 * MOST))
        work.observe_waiting(WaitingPodsObserved("oslo", "shop", 0, 2, waiting))
        assert await look() == [10, MOST], "never more than may be under way"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize("ends", [True, False])
def test_an_event_waits_for_a_burst_of_effects_and_not_for_one_without_end(ends: bool) -> None:
    async def run() -> None:
        server, at = Server(), [1]
        events = PodEvents("oslo", "h", lambda: at[0])
        task = asyncio.create_task(events.run(server))
        events.hold()
        events.offer(open_effects(work_of(1), BINDS, 1)[0])
        await turns()
        assert server.asked == []
        if ends:
            events.free()
        else:
            at[0] += int(HELD_S * 1_000_000)
            events.offer(open_effects(work_of(1), BINDS, 1)[0])
            task.cancel()
            task = asyncio.create_task(events.run(server))
        await turns()
        assert [path.split("/")[-1] for path in server.asked] == ["events"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_a_pause_ends_the_writing_after_a_batch() -> None:
    async def run() -> None:
        server, work = Server(), work_of(PODS)

        def pause() -> None:
            server.paused = bool(server.asked)

        server.looked = pause
        await written(writer_of(work), server, turns)
        assert len(server.asked) == BATCH

    asyncio.run(run())


class EndingLease:
    """It is held for so many looks."""

    why = "another process holds it"

    def __init__(self, looks: int) -> None:
        self.left = looks

    @property
    def held(self) -> bool:
        self.left -= 1
        return self.left >= 0


@pytest.mark.parametrize("looks", range(1, 6))
def test_a_lease_that_ends_between_two_looks_ends_the_batch(looks: int) -> None:
    async def run() -> None:
        server, lease = Server(), cast("KubeLease", EndingLease(looks))
        server.slow.set()
        writer = writer_of(work_of(PODS))
        await writer._send_all(server, lease, writer._due(1))
        assert len(server.asked) == looks - 1

    asyncio.run(run())


def test_what_was_decided_meanwhile_goes_with_the_next_batch_and_what_is_done_does_not() -> None:
    async def run() -> None:
        server, work = Server(), work_of(PODS)

        def observe() -> None:
            if not server.asked or work.placements.get(f"u{PODS}"):
                return
            placed(work, PODS, 1)
            # All of the second batch is gone but the last pod of it.
            left = [pod(i) for i in (0, PODS - 1, PODS)]
            names = [path.split("/")[-2] for path in server.asked]
            left += [pod(i) for i in range(PODS) if f"web-{i}" in names and i not in (0, PODS - 1)]
            work.observe_waiting(WaitingPodsObserved("oslo", "shop", 0, 1, tuple(left)))

        server.looked = observe
        await written(writer_of(work), server, turns)
        after = [path.split("/")[-2] for path in server.asked[BATCH:]]
        assert f"web-{PODS}" in after
        assert set(after) <= {f"web-{PODS}", f"web-{PODS - 1}"}

    asyncio.run(run())


@pytest.mark.parametrize("counted", [True, False])
def test_evictions_that_were_not_counted_together_wait_for_all_answers(
    monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    """Ten a minute and one of a workload: an answer that is missing is in neither number."""

    async def run() -> None:
        server, work = Server(), work_of(PODS)
        writer = writer_of(work)
        gone = Effect("oslo", "evict-pod", EffectObject("Pod", "shop", "db", "v"), workload="db")
        binds = open_effects(work, BINDS, 1)
        looks = [[*binds, gone] if counted else binds, [*binds, gone]]
        monkeypatch.setattr(
            "wharfinger_actuator.writer.open_effects", lambda *_: looks.pop(0) if looks else []
        )
        await written(writer, server, turns)
        assert len(server.asked) == (PODS + 1 if counted else BATCH)

    asyncio.run(run())
