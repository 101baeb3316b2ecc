"""Laws of waiting pods of other schedulers, over histories as collectors send them: in any batches,
repeated, delayed, with versions, withdrawn at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, STREAM
from tests.hunting import examples
from tests.pool_world import PoolPlane, a_pool, wants

from wharfinger.domain.node import WaitingPod
from wharfinger.domain.value import Value, canonical
from wharfinger.engine.nodes.occupancy import WaitingPods
from wharfinger.events.cluster_state import WAITING_BUCKETS, PodsObserved, WaitingPodsObserved
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster.other_pods import reserved_rooms
from wharfinger.stages.cluster_snapshots import others_of_class

CPUS = (700, 1500, 3500, 64_000)

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(("appear", "appear", "bind", "vanish", "again", "nominate", "time"))
        | st.sampled_from(("deliver", "assign", "lose")),
        st.integers(0, 7),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=14,
)


def pod(uid: int, cpu: int, nominated: str = "") -> WaitingPod:
    return WaitingPod(f"u{uid}", f"p{uid}", wants(CPUS[cpu]), priority=uid % 3, nominated=nominated)


@dataclass
class Cluster:
    """What another scheduler and a provider do, told to the stage as a collector does."""

    plane: PoolPlane
    waiting: dict[str, WaitingPod]
    bound: dict[str, tuple[str, WaitingPod]]

    def step(self, what: str, number: int, more: int) -> None:
        plane, uid = self.plane, f"u{number}"
        match what:
            case "appear" if uid not in self.waiting and uid not in self.bound:
                self.waiting[uid] = pod(number, more)
            case "bind" if uid in self.waiting and plane.there:
                node = sorted(plane.there)[more % len(plane.there)]
                self.bound[uid] = (node, self.waiting.pop(uid))
                plane.feed(*self.on(node))
            case "vanish":
                self.waiting.pop(uid, None)
                if uid in self.bound:
                    node, _ = self.bound.pop(uid)
                    plane.feed(*self.on(node))
            case "nominate" if uid in self.waiting and plane.there:
                node = sorted(plane.there)[more % len(plane.there)]
                self.waiting[uid] = msgspec.structs.replace(self.waiting[uid], nominated=node)
            case "time":
                plane.feed(seconds=(1, 30, 90, 1000)[more])
            case "deliver" if plane.claims:
                plane.deliver(*plane.claims[: more + 1])
            case "lose" if plane.there:
                name = sorted(plane.there)[number % len(plane.there)]
                self.bound = {u: at for u, at in self.bound.items() if at[0] != name}
                plane.feed(PodsObserved(CLUSTER, name, ()))
                plane.drop(name)
            case "assign":
                plane.assign(f"shop/w{number % 3}", more, wants(CPUS[number % 3]), number % 3)
            case _:
                pass
        plane.feed(*self.told(), *(self.told() if what == "again" else ()))

    def on(self, node: str) -> list[Value]:
        there = [p.on(node) for n, p in self.bound.values() if n == node]
        return [PodsObserved(CLUSTER, node, tuple(there))]

    def told(self) -> list[Value]:
        by_bucket: dict[int, list[WaitingPod]] = {0: [], 1: []}
        for uid, found in sorted(self.waiting.items()):
            by_bucket[int(uid[1:]) % 2].append(found)
        return [
            WaitingPodsObserved(CLUSTER, "shop", bucket, WAITING_BUCKETS, tuple(pods))
            for bucket, pods in by_bucket.items()
        ]


def played(history: list[Step]) -> Cluster:
    cluster = Cluster(PoolPlane().pools(a_pool()), {}, {})
    for what, number, more in history:
        cluster.step(what, number, more)
        check(cluster)
    return cluster


def check(cluster: Cluster) -> None:
    state = cluster.plane.state
    assert sorted(state.book.waiting.pods) == sorted(cluster.waiting)
    asked: Counter[str] = Counter()
    for claim in state.pools.claims.values():
        asked.update(claim.others)
    kept: Counter[str] = Counter()
    for room in reserved_rooms(state):
        if room.name not in state.book.waiting.pods:
            kept[room.name] += room.count
    for claim in state.pools.claims.values():
        if not claim.replicas:
            assert any(
                asked[key] - count + kept[key] < len(others_of_class(state.book, key))
                for key, count in claim.others.items()
            ), "each claim is for a pod that would lack a node without it"
    for key, count in kept.items():
        assert count <= len(others_of_class(state.book, key)), "no more is kept than pods wait"
    for name, node in state.book.nodes.items():
        ours = state.book.on_node.get(name, {}).values()
        used = sum(replica.cls.requirements.requests["cpu"] for replica in ours)
        assert used <= node.allocatable["cpu"], "no decision of ours overcommits a node"


@given(steps)
@settings(max_examples=examples(40), deadline=None)
def test_no_more_is_bought_than_waits_and_the_history_replays(history: list[Step]) -> None:
    plane = played(history).plane
    decider = plane.decider
    assert (
        audit(decider, decider.initial(STREAM), empty_head(STREAM), plane.rounds).divergences == []
    )
    recovered = recover(decider, decider.initial(STREAM), plane.rounds)
    assert decider.dump(recovered) == decider.dump(plane.state)
    loaded = decider.load(STREAM, decider.dump(plane.state))
    assert decider.dump(loaded) == decider.dump(plane.state)
    assert decider.next_due(loaded) == decider.next_due(plane.state)


@given(steps, st.randoms(use_true_random=False))
@settings(max_examples=examples(40), deadline=None)
def test_waiting_pods_depend_on_the_last_word_of_each_bucket_only(
    history: list[Step], random: object
) -> None:
    """After any history, in any order of the buckets, and any number of repetitions."""
    last: dict[int, WaitingPodsObserved] = {}
    one, other = WaitingPods(), WaitingPods()
    for what, number, more in history:
        pods = () if what == "vanish" else tuple(pod(number + i, more) for i in range(more))
        bucket = number % 3
        last[bucket] = WaitingPodsObserved(CLUSTER, "shop", bucket, WAITING_BUCKETS, pods)
        one.observe(last[bucket])
        assert not one.observe(last[bucket]), "a repetition changes nothing"
    shuffled = list(last.values())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for event in shuffled:
        other.observe(event)
    assert one.pods == other.pods
    assert [canonical(f) for f in one.facts()] == [canonical(f) for f in other.facts()]
    for index in ("by_class", "by_binding"):
        found = {k: set(v) for k, v in getattr(one, index).items()}
        assert found == {k: set(v) for k, v in getattr(other, index).items()}
    expected = {p.uid for event in last.values() for p in event.pods}
    assert set(one.pods) == expected
