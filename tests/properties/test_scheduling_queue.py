"""Laws of the scheduling queue: nobody is lost, nobody is kept from a try forever, and no time
passes but the one it is told."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.framework_world import a_law, a_pod, only
from tests.hunting import examples
from tests.reference.kube_queue import PATIENCE_US, POOL_US, SECOND_US, SchedulingQueue

from wharfinger.domain.node import Pod
from wharfinger.engine.backoff import backoff_s

PLUGINS = only("SchedulingGates", "NodeResourcesFit", "GangScheduling")
MAX_S = 10


def a_queue() -> SchedulingQueue:
    return SchedulingQueue.of(PLUGINS)


@a_law(30)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.integers(1, 3),
    st.lists(st.sampled_from(("refused", "failed")), min_size=1, max_size=5),
)
def test_every_pod_is_tried_again_in_bounded_time(
    priorities: list[int], pops_a_second: int, answers: list[str]
) -> None:
    """Nothing ever fits, nothing happens, and there are fewer pops than pods that are ready.
    Between two tries of a pod lie at most: the pool's time, its back-off, our patience, and then
    every second pop for each other pod."""
    queue = a_queue()
    for i, priority in enumerate(priorities):
        queue.add(a_pod(f"p{i}", priority=priority), 0)
    most_us = POOL_US + PATIENCE_US + (MAX_S + 2 + 2 * len(priorities)) * SECOND_US
    last = {f"p{i}": 0 for i in range(len(priorities))}
    tries = 0
    for now_us in range(0, 2 * most_us, 7 * SECOND_US):
        for _ in range(pops_a_second):
            pod = queue.pop(now_us)
            if pod is None:
                break
            assert now_us - last[pod.uid] <= most_us + 7 * 2 * len(priorities) * SECOND_US
            last[pod.uid] = now_us
            if answers[tries % len(answers)] == "failed":
                queue.failed(pod.uid, now_us)
            else:
                queue.refused(pod.uid, ["NodeResourcesFit"], now_us)
            tries += 1
    assert all(
        2 * most_us - at <= most_us + 7 * 2 * len(priorities) * SECOND_US for at in last.values()
    )


def test_a_stream_of_important_pods_does_not_starve_an_unimportant_one() -> None:
    """One pop a second, and every second another important pod: without patience the other would
    never be tried."""
    queue = a_queue()
    queue.add(a_pod("small", priority=0), 0)
    tried: list[tuple[int, str]] = []
    for second in range(2 * PATIENCE_US // SECOND_US):
        now_us = second * SECOND_US
        queue.add(a_pod(f"big{second}a", priority=9), now_us)
        queue.add(a_pod(f"big{second}b", priority=9), now_us)
        pod = queue.pop(now_us)
        assert pod is not None
        tried.append((now_us, pod.uid))
        queue.placed(pod.uid)
    at = next(now_us for now_us, uid in tried if uid == "small")
    assert PATIENCE_US < at <= PATIENCE_US + 3 * SECOND_US


@given(st.integers(0, 200), st.integers(1, 100), st.integers(1, 1000))
def test_backoff_grows_to_its_maximum_and_no_further(
    attempts: int, initial: int, most: int
) -> None:
    now, later = backoff_s(attempts, initial, most), backoff_s(attempts + 1, initial, most)
    assert 0 <= now <= later <= max(most, 0)
    assert later in (min(initial, most), min(2 * now, most))
    assert backoff_s(0, initial, most) == 0


class QueueMachine(RuleBasedStateMachine):
    """Anything in any order, against a plain book of who is where."""

    @initialize()
    def begin(self) -> None:
        self.queue = a_queue()
        self.now = 0
        self.known: dict[str, Pod] = {}
        self.flying: set[str] = set()
        self.placed: set[str] = set()

    def _new(self, i: int, priority: int, gated: bool, group: str) -> Pod:
        gates = ("later",) if gated else ()
        return a_pod(
            f"p{i}", priority=priority, gates=gates, group=group, min_count=2 if group else 0
        )

    @rule(
        i=st.integers(0, 5),
        priority=st.integers(0, 2),
        gated=st.booleans(),
        group=st.sampled_from(("", "", "g")),
    )
    def add(self, i: int, priority: int, gated: bool, group: str) -> None:
        pod = self._new(i, priority, gated, group)
        self.queue.add(pod, self.now)
        self.known[pod.uid] = pod
        self.placed.discard(pod.uid)

    @rule(seconds=st.sampled_from((0, 1, 3, 11, 301)))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND_US

    @rule()
    def pop(self) -> None:
        pod = self.queue.pop(self.now)
        if pod is None:
            return
        assert pod == self.known[pod.uid]
        assert pod.uid not in self.flying
        assert not pod.requirements.traits.gates
        self.flying.add(pod.uid)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), answer=st.sampled_from(("refused", "waits", "failed", "placed")))
    def answer(self, data: st.DataObject, answer: str) -> None:
        uid = data.draw(st.sampled_from(sorted(self.flying)))
        self.flying.discard(uid)
        if answer == "refused":
            self.queue.refused(uid, ["NodeResourcesFit"], self.now)
        elif answer == "waits":
            self.queue.refused(uid, [], self.now, pending=["GangScheduling"])
        elif answer == "failed":
            self.queue.failed(uid, self.now)
        else:
            self.queue.placed(uid)
            del self.known[uid]
            self.placed.add(uid)

    @rule(event=st.sampled_from(("node/add", "node/label", "pod/remove", "group", "*")))
    def happens(self, event: str) -> None:
        moved = self.queue.happened(event, self.now)  # type: ignore[arg-type]
        for uid in moved:
            entry = self.queue.entry(uid)
            assert entry is not None
            assert entry.where in ("active", "backoff", "gated")

    @rule(i=st.integers(0, 5))
    def remove(self, i: int) -> None:
        self.queue.remove(f"p{i}")
        self.known.pop(f"p{i}", None)
        self.flying.discard(f"p{i}")
        self.placed.discard(f"p{i}")

    @invariant()
    def nobody_is_lost(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert len(self.queue) == len(self.known)
        for uid in self.known:
            entry = self.queue.entry(uid)
            assert entry is not None
            assert (entry.where == "in flight") == (uid in self.flying)

    @invariant()
    def what_waits_for_time_is_told(self) -> None:
        if not hasattr(self, "queue"):
            return
        waits = [
            uid
            for uid in self.known
            if (e := self.queue.entry(uid)) and e.where in ("backoff", "pool")
        ]
        due = self.queue.next_due_us()
        assert (due is None) == (not waits)

    def teardown(self) -> None:
        """When all answers are in and long enough has passed, everybody has had a turn but those
        that are gated."""
        if not hasattr(self, "queue"):
            return
        for uid in sorted(self.flying):
            self.queue.refused(uid, ["NodeResourcesFit"], self.now)
        self.now += POOL_US + (MAX_S + 2) * SECOND_US
        popped = set()
        while (pod := self.queue.pop(self.now)) is not None:
            popped.add(pod.uid)
        gated = {uid for uid in self.known if (e := self.queue.entry(uid)) and e.where == "gated"}
        assert popped | gated == set(self.known)
        assert not popped & gated
        assert {uid for uid, pod in self.known.items() if pod.requirements.traits.gates} <= gated


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
