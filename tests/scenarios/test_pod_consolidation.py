"""Nodes of a joined cluster go: the pods on them are evicted within their budgets, and what is made
instead of them is placed elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from tests.cluster_world import CLUSTER, STREAM
from tests.pool_world import BIG, SMALL, PoolPlane, a_budget, a_pool, wants, words
from tests.scenarios.test_world_consolidates import POOL, START, TYPES, Fleet, node

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.instance_types import Catalogue
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.cluster_state import (
    WAITING_BUCKETS,
    NodesObserved,
    PodsObserved,
    WaitingPodsObserved,
    into_buckets,
)
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import (
    DisruptionDecided,
    DisruptionEnded,
    NodeRemovalDecided,
    ReplicasPlaced,
    ReplicasReleased,
)
from wharfinger.events.policies import PolicyApplied
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.step import empty_head
from wharfinger.stages.world import World

OURS = "wharfinger"
WEB = "shop/web-deployment"
LOCAL = f"{WEB}@{CLUSTER}"


class JoinedPlane(PoolPlane):
    """`evicts`: the verb is enabled. `running`: uid -> node, of pods that run."""

    evicts = True

    def tell_nodes(self, *more: Value, seconds: int = 0) -> list[Decision]:
        buckets = [
            msgspec.structs.replace(bucket, places="pods", scheduler=OURS, evicts=self.evicts)
            for bucket in into_buckets(CLUSTER, list(self.there.values()), 2)
        ]
        return self.feed(*buckets, *more, seconds=seconds)

    def waiting(self, *uids: str) -> WaitingPodsObserved:
        pods = [WaitingPod(uid, uid, wants_of(900), binding=WEB) for uid in uids]
        return WaitingPodsObserved(CLUSTER, "shop", 0, WAITING_BUCKETS, tuple(pods))

    def on(self, node: str, *uids: str) -> PodsObserved:
        return PodsObserved(CLUSTER, node, tuple([running(uid, node) for uid in uids]))

    def nodes_of_pods(self) -> dict[str, str]:
        book = self.state.book
        return {
            uid: book.held[binding].placed[ordinal].node
            for uid, (binding, ordinal) in sorted(book.replica_of.items())
        }


def wants_of(cpu: int) -> Requirements:
    return wants(cpu, "web", scheduler=OURS)


def running(uid: str, node: str, requirements: Requirements | None = None) -> Pod:
    """As the collector reports it, with what made it."""
    made = WaitingPod(uid, uid, requirements or wants_of(900)).on(node)
    traits = msgspec.structs.replace(
        made.requirements.traits,
        owner="ReplicaSet",
        labels={"app": "web", "pod-template-hash": "6b7"},
    )
    return msgspec.structs.replace(
        made,
        requirements=msgspec.structs.replace(made.requirements, pod=traits),
        upkeep=PodUpkeep((Owner("ReplicaSet", "web-6b7", "r"),)),
    )


def evicted(decisions: Sequence[Decision]) -> list[str]:
    """Uids that releases name."""
    return [
        uid
        for d in decisions
        if isinstance(d.data, ReplicasReleased)
        for share in d.data.released
        for uid in share.pods
    ]


@pytest.fixture
def plane() -> JoinedPlane:
    return two_half_full(JoinedPlane())


def two_half_full(plane: JoinedPlane) -> JoinedPlane:
    """Two nodes with one pod each, which we bound, of which either could hold both."""
    plane.pools(a_pool())
    plane.add(plane.bought(SMALL, number=1), plane.bought(SMALL, number=2))
    plane.feed(plane.on("small-1", "u1"), plane.on("small-2", "u2"))
    assert plane.nodes_of_pods() == {"u1": "small-1", "u2": "small-2"}
    return plane


def test_a_pod_is_evicted_and_its_successor_is_placed_elsewhere(plane: JoinedPlane) -> None:
    decisions = plane.disrupt()
    assert words(decisions) == ["disrupting", "released"]
    (gone,) = evicted(decisions)
    (source,) = decided(decisions).nodes
    assert decisions[1].data.reason == "Consolidated"  # type: ignore[attr-defined]
    other = "small-2" if source.name == "small-1" else "small-1"
    # It is still there: neither adopted again, nor released a second time.
    assert plane.feed(plane.on(source.name, gone)) == []
    assert plane.feed(plane.on(source.name), plane.waiting("u3"))
    assert plane.nodes_of_pods()["u3"] == other
    assert "done" in words(plane.decided)
    assert plane.take_away() == []
    replayed(plane)


def test_without_the_right_to_evict_the_node_stays() -> None:
    plane = JoinedPlane()
    plane.evicts = False
    two_half_full(plane)
    (refused,) = plane.disrupt()
    assert (refused.data.reason, refused.outcome) == ("Protected", "refused")  # type: ignore[attr-defined]


def test_a_node_with_a_pod_that_nothing_makes_again_stays() -> None:
    plane = JoinedPlane()
    plane.pools(a_pool())
    plane.add(plane.bought(SMALL, number=1), plane.bought(SMALL, number=2))
    for name, uid in (("small-1", "u1"), ("small-2", "u2")):
        bare = msgspec.structs.replace(
            WaitingPod(uid, uid, wants_of(900), binding=f"shop/{uid}-pod").on(name),
            binding=f"shop/{uid}-pod",
            upkeep=PodUpkeep(),
        )
        plane.feed(PodsObserved(CLUSTER, name, (bare,)))
    assert len(plane.nodes_of_pods()) == 2
    decisions = plane.disrupt()
    assert evicted(decisions) == []
    assert {*words(decisions)} <= {"refused"}


def test_no_more_pods_are_on_their_way_than_the_budget_allows() -> None:
    """Of two pods on a node the second one follows when the budget allows it again, and the
    successor of the first has a node."""
    plane = JoinedPlane()
    plane.pools(a_pool())
    plane.add(*[plane.bought(SMALL, number=n) for n in (1, 2)], plane.bought(BIG, number=3))
    plane.budgets(a_budget("web", 1))
    plane.feed(plane.on("small-1", "u1"), plane.on("small-2", "u2"), plane.on("big-3", "u3", "u4"))
    decisions = plane.disrupt()
    assert decided(decisions).nodes[0].name == "big-3"
    (first,) = evicted(decisions)
    (second,) = {"u3", "u4"} - {first}
    # Deleted, and its successor waits; the budget allows none while that is not ready.
    plane.budgets(a_budget("web", 0))
    assert evicted(plane.feed(plane.on("big-3", second), plane.waiting("u5"))) == []
    place = plane.nodes_of_pods()["u5"]
    assert place in ("small-1", "small-2")
    there = {"small-1": "u1", "small-2": "u2"}[place]
    assert evicted(plane.feed(plane.on(place, there, "u5"), plane.waiting())) == []
    assert evicted(plane.budgets(a_budget("web", 1))) == [second]
    plane.feed(plane.on("big-3"), plane.waiting("u6"))
    assert sorted(plane.nodes_of_pods()) == ["u1", "u2", "u5", "u6"]
    assert "big-3" not in plane.nodes_of_pods().values()
    assert over(plane).outcome == "done"
    replayed(plane)


def test_after_a_rollback_the_pods_that_are_left_stay(plane: JoinedPlane) -> None:
    """They are adopted again, so the actuator does not evict them any more."""
    decisions = plane.disrupt()
    (gone,) = evicted(decisions)
    (source,) = {"small-1", "small-2"} - {node for u, node in plane.nodes_of_pods().items()}
    plane.feed(seconds=3600)
    assert over(plane).outcome == "rolled-back"
    plane.feed(plane.on(source, gone))
    assert plane.nodes_of_pods() == {"u1": "small-1", "u2": "small-2"}
    replayed(plane)


def test_a_pod_without_another_place_is_not_evicted(plane: JoinedPlane) -> None:
    """A pod of others takes the room between the decision and the next round."""
    (found,) = plane.survey()[:1]
    full = msgspec.structs.replace(running("x1", ""), binding="", requirements=wants(900, "other"))
    other = ({"small-1", "small-2"} - {*found.nodes}).pop()
    known = {"small-1": "u1", "small-2": "u2"}[other]
    there = (running(known, other), full)
    decisions = plane.feed(PodsObserved(CLUSTER, other, there), plane.proposed(found))
    assert evicted(decisions) == []
    assert words(decisions) == ["refused"]


def decided(decisions: Sequence[Decision]) -> DisruptionDecided:
    return next(d.data for d in decisions if isinstance(d.data, DisruptionDecided))


def over(plane: JoinedPlane) -> DisruptionEnded:
    return next(d.data for d in plane.decided if isinstance(d.data, DisruptionEnded))


def replayed(plane: JoinedPlane) -> None:
    """Every round decides the same again."""
    begun = plane.decider.initial(STREAM), empty_head(STREAM)
    assert audit(plane.decider, *begun, plane.rounds).divergences == []


# --- with the descheduler, and controllers that make pods again


@dataclass
class Controllers:
    """What a real cluster does in `fleet`: pods are bound as decided, evicted where a release names
    them and the budget allows it, and made again. `pods`: uid -> node; "": it waits. `going`:
    evicted pods that are wanted to go. `most`: how many were missing at once."""

    fleet: Fleet
    nodes: dict[str, Node]
    pods: dict[str, str]
    going: set[str] = field(default_factory=set)
    seen: int = 0
    made: int = 0
    most: int = 0
    evicted: list[str] = field(default_factory=list)

    def run(self, seconds: int) -> None:
        for _ in range(seconds // 5):
            self.fleet.wait(5)
            self._act()

    def _act(self) -> None:
        decided, self.seen = self.fleet.decided[self.seen :], len(self.fleet.decided)
        before = dict(self.pods), dict(self.nodes)
        for data in decided:
            match data:
                case ReplicasPlaced(placed=shares):
                    for share in shares:
                        self.pods |= dict.fromkeys(share.pods, share.node)
                case ReplicasReleased(released=shares):
                    self.going |= {uid for share in shares for uid in share.pods}
                case NodeRemovalDecided(node=name):
                    assert name not in self.pods.values(), "nothing is left on it"
                    del self.nodes[name]
                case _:
                    pass
        for uid in sorted(self.going & self.pods.keys()):
            if "" not in self.pods.values():  # the budget allows one
                self.made += 1
                del self.pods[uid]
                self.pods[f"again-{self.made}"] = ""
                self.evicted.append(uid)
        self.most = max(self.most, list(self.pods.values()).count(""))
        if before != (self.pods, self.nodes):
            self.fleet.given(*self.facts())

    def facts(self) -> list[Value]:
        waiting = [
            WaitingPod(uid, uid, ONE, binding=WEB) for uid, on in self.pods.items() if not on
        ]
        return [
            NodesObserved(
                "oslo", 0, 1, tuple(self.nodes.values()), places="pods", scheduler=OURS, evicts=True
            ),
            *[self._on(name) for name in sorted(self.nodes)],
            WaitingPodsObserved("oslo", "shop", 0, WAITING_BUCKETS, tuple(waiting)),
        ]

    def _on(self, name: str) -> PodsObserved:
        here = [running(uid, name, ONE) for uid, on in sorted(self.pods.items()) if on == name]
        return PodsObserved("oslo", name, tuple(here))


ONE = wants_of(1000)


def test_a_cluster_grows_smaller_by_evictions_and_every_pod_is_placed_again() -> None:
    """What is on three nodes of 8 CPUs, two pods of one CPU each, comes together on one."""
    names = [f"n{number}" for number in range(3)]
    large = Catalogue("default", TYPES[:1])
    fleet = Fleet(World(recorded=True, at=START)).given(
        PolicyApplied(Policy("NodePool", POOL.name, node_pool=POOL)),
        PolicyApplied(Policy("InstanceTypes", "0", "default", catalogue=large)),
        ClusterObserved(Cluster("oslo")),
    )
    pods = {f"u{number}": names[number % 3] for number in range(6)}
    controllers = Controllers(fleet, {name: node(name) for name in names}, pods)
    fleet.given(*controllers.facts())
    controllers.run(600)
    assert len(controllers.evicted) == len({*controllers.evicted}) == 4
    assert controllers.most == 1, "one pod of the workload is missing at a time"
    assert len(controllers.pods) == 6
    assert "" not in controllers.pods.values()
    assert {*controllers.pods.values()} <= {*controllers.nodes}
    assert len(controllers.nodes) == 1
    assert [outcome for _, outcome in fleet.ended()] == ["done", "done"]
