"""A small scheduler made of the framework's parts: its queue, its cycle, preemption, groups that
wait. Whatever comes in whatever order, what it promises holds at every moment."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.framework_world import HOST, ZONE, a_law, a_node, a_pod, on, only, selecting
from tests.reference import kube_binding as binding
from tests.reference.kube_gang import GangWaiting
from tests.reference.kube_queue import SECOND_US, SchedulingQueue

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import HostPort, PodTerm, TopologySpread
from wharfinger.domain.scheduler import Arguments, PreemptionArgs
from wharfinger.engine.framework.gang import group_of
from wharfinger.engine.framework.protocols import Cycle, Nominated
from wharfinger.engine.framework.snapshot import Snapshot

PLUGINS = only(
    "SchedulingGates",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "DefaultPreemption",
    "GangScheduling",
    arguments=Arguments(preemption=PreemptionArgs(whole_groups=True)),
)


class SmallScheduler:
    """Places what its queue gives it until nothing is worth a try."""

    def __init__(self, nodes: list[Node]) -> None:
        self.snapshot = Snapshot.of(nodes, [])
        self.queue = SchedulingQueue.of(PLUGINS)
        self.waiting = GangWaiting()
        self.reserved: dict[str, tuple[Cycle, Pod, str]] = {}
        self.evicted: list[tuple[Pod, Pod]] = []
        self.now = 0

    def work(self) -> None:
        for group in self.waiting.expired(self.now):
            for held in self.waiting.give_up(group):
                cycle, _, node = self.reserved.pop(held.uid)
                binding.unreserve(PLUGINS, cycle, held, node)
                self.queue.refused(held.uid, ["GangScheduling"], self.now)
        while (pod := self.queue.pop(self.now)) is not None:
            self._try(pod)

    def _try(self, pod: Pod) -> None:
        outcome = PLUGINS.run(self.snapshot, pod)
        if outcome.feasible:
            self._place(outcome.cycle, pod, outcome.best[0])
            return
        nominated, _ = PLUGINS.post_filter(outcome, pod)
        self.queue.refused(pod.uid, outcome.refusing, self.now)
        if nominated is not None:
            self._evict(pod, nominated)

    def _place(self, cycle: Cycle, pod: Pod, node: str) -> None:
        answer = binding.place(PLUGINS, cycle, pod, node, self.now)
        if isinstance(answer, binding.BindResult):
            self._bound([pod, *self._siblings(pod)])
        else:
            assert isinstance(answer, binding.WaitingPod)
            self.reserved[pod.uid] = (cycle, pod, node)
            self.waiting.reserve(pod, 0, self.now)

    def _siblings(self, pod: Pod) -> list[Pod]:
        """With it the group is whole: those that waited for it are bound, too."""
        group = group_of(pod)
        waited = list(self.waiting.give_up(group)) if group else []
        for sibling in waited:
            cycle, _, node = self.reserved.pop(sibling.uid)
            binding.finish(PLUGINS, cycle, sibling, node)
        return waited

    def _bound(self, pods: list[Pod]) -> None:
        for pod in pods:
            self.queue.placed(pod.uid)

    def _evict(self, pod: Pod, nominated: Nominated) -> None:
        for victim in nominated.victims:
            if victim.uid in self.reserved:
                continue  # it does not run yet; it goes with its group, when that gives up
            self.evicted.append((pod, victim))
            self.snapshot.remove(victim)
            self.queue.remove(victim.uid)
            self.queue.happened("pod/remove", self.now, old=victim)

    def running(self) -> list[Pod]:
        return [
            p
            for info in self.snapshot.nodes.values()
            for p in info.pods
            if p.uid not in self.reserved
        ]


def some_kinds(i: int) -> st.SearchStrategy[Pod]:
    app = {"labels": {"app": "web"}}
    kinds = st.sampled_from(
        [
            {},
            {"ports": (HostPort(80),)},
            {"anti_affinity": (PodTerm(HOST, selecting(app="web")),)} | app,
            {
                "spread": (TopologySpread(ZONE, 1, selector=selecting(app="even")),),
                "labels": {"app": "even"},
            },
            {"group": "g", "min_count": 3},
            {"group": "h", "min_count": 2},
            {"gates": ("later",)},
        ]
    )
    return st.builds(
        lambda kind, cores, priority: a_pod(f"p{i}", cpu=cores * 1000, priority=priority, **kind),
        kinds,
        st.integers(1, 3),
        st.integers(0, 2),
    )


@a_law(80)
@given(st.data())
def test_what_it_promises_holds_at_every_moment(data: st.DataObject) -> None:
    zones = data.draw(st.lists(st.sampled_from("xy"), min_size=1, max_size=4))
    scheduler = SmallScheduler([a_node(f"n{i}", zone) for i, zone in enumerate(zones)])
    for i in range(data.draw(st.integers(1, 10))):
        scheduler.queue.add(data.draw(some_kinds(i)), scheduler.now)
        scheduler.work()
        _check(scheduler)
        scheduler.now += data.draw(st.sampled_from((0, 1, 20, 301))) * SECOND_US
    for _ in range(3):
        scheduler.now += 400 * SECOND_US
        scheduler.work()
        _check(scheduler)
    assert not scheduler.waiting.expired(scheduler.now)


def _check(scheduler: SmallScheduler) -> None:
    for info in scheduler.snapshot.nodes.values():
        assert all(
            info.requested.get(name, 0) <= amount for name, amount in info.allocatable.items()
        )
        assert sum(bool(p.requirements.traits.ports) for p in info.pods) <= 1
        shy = [p for p in info.pods if p.requirements.traits.anti_affinity]
        assert len(shy) <= 1
        assert not any(p.requirements.traits.gates for p in info.pods)
    evicted = {victim.uid for _, victim in scheduler.evicted}
    assert all(victim.priority < pod.priority for pod, victim in scheduler.evicted)
    members = Counter(group for p in scheduler.running() if (group := group_of(p)) is not None)
    least = {("default", "g"): 3, ("default", "h"): 2}
    assert all(count >= least[group] for group, count in members.items())
    if not evicted:
        zones = {info.node.labels[ZONE] for info in scheduler.snapshot.nodes.values()}
        even = Counter(dict.fromkeys(zones, 0))
        for info in scheduler.snapshot.nodes.values():
            even[info.node.labels[ZONE]] += sum(
                p.requirements.traits.labels == {"app": "even"} for p in info.pods
            )
        assert max(even.values()) - min(even.values()) <= 1


def test_the_order_of_arrival_within_a_moment_does_not_matter() -> None:
    """Pods of different priority that are there together are placed alike, whoever was told
    first."""
    nodes = [a_node("n0", "x"), a_node("n1", "y")]
    pods = [a_pod(f"p{i}", cpu=1000 * (1 + i % 3), priority=i) for i in range(6)]
    placed = []
    for order in (pods, pods[::-1]):
        scheduler = SmallScheduler(nodes)
        for pod in order:
            scheduler.queue.add(pod, 0)
        scheduler.work()
        placed.append({(p.uid, p.node) for p in scheduler.running()})
    assert placed[0] == placed[1]
    assert on(pods[5], "n0").uid in {uid for uid, _ in placed[0]}
