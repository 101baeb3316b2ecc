"""Laws of preemption for waiting pods: over generated histories of a cluster with pods of ours and
of others, in which evictions are carried out, refused, or never done.

Victims have a lower priority than the pod they make room for, are pods that run, and none of them
could stay. Only victims of decisions that stand are evicted. What is placed by a decision fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import STREAM, Harness, a_node
from tests.hunting import examples
from tests.scenarios.test_pod_placing import OURS, on, waiting, waits
from tests.scenarios.test_pod_preemption import Actuator, acting, not_evicted

from wharfinger.domain.node import WaitingPod
from wharfinger.domain.value import Value
from wharfinger.events.decisions import PreemptionDecided, PreemptionEnded, ReplicasPlaced
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster.preemption import KEPT_US

NODES, CPU = ("a", "b", "c"), 1000
CPUS = (300, 500, 900)
SECOND_US = 1_000_000

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(("ours", "ours", "ours", "theirs", "theirs", "bind", "bind", "evict"))
        | st.sampled_from(("evict", "delete", "refuse", "time", "restart", "deliver")),
        st.integers(0, 7),
        st.integers(0, 2),
    ),
    min_size=10,
    max_size=40,
)


@dataclass
class Cluster:
    """What is true in the cluster. Facts about nodes arrive at once, before those about waiting
    pods. `chosen`: uid -> node, of pods that were placed. `standing`: uid of a waiting pod -> its
    preemption."""

    plane: Harness = field(default_factory=Harness)
    actuator: Actuator = field(default_factory=Actuator)
    waiting: dict[str, WaitingPod] = field(default_factory=dict)
    bound: dict[str, tuple[str, WaitingPod]] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    standing: dict[str, PreemptionDecided] = field(default_factory=dict)
    made: int = 0
    decided: int = 0

    def __post_init__(self) -> None:
        self.tell(*acting(*[a_node(name, CPU) for name in NODES]))

    def step(self, what: str, number: int, more: int) -> None:
        match what:
            case "ours":
                self.made += 1
                uid = f"u{self.made:03}"
                pod = waits(uid, CPUS[more], priority=number % 4, created_us=self.made)
                self.waiting[uid] = pod
                self.tell_waiting()
            case "theirs":
                node = NODES[number % 3]
                if self.room(node) >= CPUS[more]:
                    self.made += 1
                    uid = f"t{self.made:03}"
                    pod = waits(
                        uid, CPUS[more], "default-scheduler", binding="", priority=number % 4
                    )
                    self.bound[uid] = node, pod
                    self.tell_node(node)
            case "bind" if ready := [u for u in sorted(self.chosen) if u in self.waiting]:
                uid = ready[number % len(ready)]
                node = self.chosen[uid]
                self.bound[uid] = node, self.waiting.pop(uid)
                self.tell_node(node)
                self.tell_waiting()
            case "evict" if open_ := self.actuator.evictions(self.plane.at):
                uid, preemptor = open_[number % len(open_)]
                assert uid in {v.uid for v in self.standing[preemptor].victims}, "no such decision"
                assert preemptor in self.waiting
                assert preemptor not in self.chosen
                self.remove(uid)
            case "refuse" if open_ := self.actuator.evictions(self.plane.at):
                uid, preemptor = open_[number % len(open_)]
                self.tell(not_evicted(uid, preemptor))
                assert preemptor not in self.plane.state.preempting
                assert preemptor not in {p for _, p in self.actuator.evictions(self.plane.at)}
            case "delete" if names := (*sorted(self.waiting), *sorted(self.bound)):
                self.remove(names[number % len(names)])
            case "time":
                self.tell(seconds=(5, 90, KEPT_US // SECOND_US)[more])
            case "deliver":
                self.tell(*[self.on(name) for name in NODES], self.all_waiting())
            case "restart":
                decider = self.plane.decider
                sections = decider.dump(self.plane.state)
                self.plane.state = decider.load(STREAM, sections)
                assert decider.dump(self.plane.state) == sections
            case _:
                pass

    def remove(self, uid: str) -> None:
        if uid in self.waiting:
            del self.waiting[uid]
            self.tell_waiting()
        else:
            node, _ = self.bound.pop(uid)
            self.tell_node(node)

    def room(self, node: str) -> int:
        """By the truth: of the pods that are there, and of those that were placed."""
        used = [pod for where, pod in self.bound.values() if where == node]
        used += [self.waiting[u] for u, n in self.chosen.items() if n == node and u in self.waiting]
        return CPU - sum(pod.requirements.requests["cpu"] for pod in used)

    def on(self, node: str) -> Value:
        return on(node, *[pod for _, (where, pod) in sorted(self.bound.items()) if where == node])

    def all_waiting(self) -> Value:
        return waiting(*[pod for _, pod in sorted(self.waiting.items())])

    def tell_node(self, node: str) -> None:
        self.tell(self.on(node))

    def tell_waiting(self) -> None:
        self.tell(self.all_waiting())

    def tell(self, *facts: Value, seconds: int = 0) -> None:
        decided = self.plane.feed(*facts, seconds=seconds)
        self.actuator.told(*facts)
        self.actuator.decided(decided)
        self.follow(decided)

    def follow(self, decisions: Sequence[Decision]) -> None:
        for uid in [u for u in self.chosen if u not in self.waiting and u not in self.bound]:
            del self.chosen[uid]
        for decision in decisions:
            match decision.data:
                case ReplicasPlaced() as placed:
                    for share in placed.placed:
                        for uid in share.pods:
                            cpu = self.waiting[uid].requirements.requests["cpu"]
                            assert self.room(share.node) >= cpu, "a node has room for it"
                            self.chosen[uid] = share.node
                            self.standing.pop(uid, None)
                case PreemptionDecided() as found:
                    self.check(found)
                    self.standing[found.pod] = found
                    self.decided += 1
                case PreemptionEnded() as ended:
                    del self.standing[ended.pod]
                case _:
                    pass
        self.standing = {uid: d for uid, d in self.standing.items() if uid in self.waiting}
        assert set(self.standing) == set(self.plane.state.preempting)

    def check(self, found: PreemptionDecided) -> None:
        pod = self.waiting[found.pod]
        cpu = pod.requirements.requests["cpu"]
        assert pod.requirements.traits.scheduler == OURS
        assert found.pod not in self.standing
        assert found.victims
        others = {uid: d for uid, d in self.standing.items() if uid != found.pod}
        leaving = {v.uid for d in others.values() for v in d.victims}
        sizes: list[int] = []
        for victim in found.victims:
            node, running = self.bound[victim.uid]
            assert node == found.node
            assert running.priority == victim.priority < pod.priority == found.priority
            assert victim.uid not in leaving, "it makes room for one pod"
            sizes.append(running.requirements.requests["cpu"])
        # What is free when all that leave the node have left, and those that they leave for came.
        free = self.room(found.node) - sum(
            self.waiting[uid].requirements.requests["cpu"]
            for uid, d in others.items()
            if d.node == found.node and self.waiting[uid].priority >= pod.priority
        )
        free += sum(
            self.bound[uid][1].requirements.requests["cpu"]
            for uid in leaving
            if uid in self.bound and self.bound[uid][0] == found.node
        )
        assert free + sum(sizes) >= cpu, "it fits when they are gone"
        assert all(free + sum(sizes) - size < cpu for size in sizes), "none of them could stay"


@given(steps)
@settings(max_examples=examples(150), deadline=None)
def test_what_is_preempted_is_less_important_and_needed(history: list[Step]) -> None:
    cluster = Cluster()
    for step in history:
        cluster.step(*step)
    plane = cluster.plane
    replayed = audit(plane.decider, plane.decider.initial(STREAM), empty_head(STREAM), plane.rounds)
    assert replayed.divergences == []


def test_the_histories_preempt() -> None:
    """A full cluster, so that the law above says something."""
    cluster = Cluster()
    for node in (0, 1, 2):
        cluster.step("theirs", node, 2)
    cluster.step("ours", 3, 1)
    assert cluster.decided == 1
    cluster.step("evict", 0, 0)
    assert list(cluster.chosen) == ["u004"]
