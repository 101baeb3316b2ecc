"""Laws of the descheduler that no history may break, hunted for by the machine."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import POOL_LABEL, NodePoolPolicy
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    NodeClosed,
    Placed,
    Recovered,
    Released,
    Silenced,
)
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import NodeShare
from wharfinger.events.envelope import derived_id
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, NodeRemovalProposed
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler import DeschedulerObserver, DeschedulerState

S = 1_000_000

clusters = st.sampled_from(["oslo", "oslo", "bergen"])
bindings = st.sampled_from(["web", "db"])
nodes = st.sampled_from(["n1", "n2", "n3"])
seconds = st.sampled_from([None, -5, 0, 30, 90])
labels = st.sampled_from([{}, {"karpenter.sh/nodepool": "spot"}, {"karpenter.sh/nodepool": ""}])

DIVIDED = Placement(replicas=ReplicaScheduling(type="Divided"))

requested = st.builds(
    lambda name, replicas, type_, tolerations, priority: BindingRequested(
        Binding(
            name,
            "uid",
            ObjectRef("v1", "Pod", name),
            replicas,
            Requirements(),
            Placement(tolerations=tuple(tolerations), replicas=ReplicaScheduling(type=type_)),
            priority,
        )
    ),
    bindings,
    st.integers(0, 5),
    st.sampled_from(["Divided", "Duplicated"]),
    st.lists(
        st.builds(Toleration, st.sampled_from(["", "rot"]), st.just("Exists"), seconds=seconds),
        max_size=2,
    ),
    st.integers(-2, 2),
)

facts: st.SearchStrategy[Value] = st.one_of(
    requested,
    st.builds(BindingWithdrawn, bindings),
    st.builds(
        lambda name, taints: ClusterObserved(Cluster(name, taints=tuple(taints))),
        clusters,
        st.lists(
            st.builds(
                Taint,
                st.sampled_from(["rot", "mould"]),
                st.sampled_from(["NoExecute", "NoSchedule"]),
            )
        ),
    ),
    st.builds(ClusterForgotten, clusters),
    st.builds(
        lambda cluster, index, buckets, names, labels: NodesObserved(
            cluster, index, buckets, tuple(Node(n, {}, labels=labels) for n in names)
        ),
        clusters,
        st.integers(-1, 2),
        st.integers(0, 2),
        st.lists(nodes, max_size=3),
        labels,
    ),
    st.builds(
        lambda cluster, node, n: PodsObserved(cluster, node, (Pod("u", "p", Requirements()),) * n),
        clusters,
        nodes,
        st.integers(0, 1),
    ),
    st.builds(
        lambda name, seconds: PolicyApplied(
            Policy("NodePool", name, node_pool=NodePoolPolicy("spot", seconds))
        ),
        st.sampled_from("ab"),
        seconds,
    ),
    st.builds(PolicyRemoved, st.just("NodePool"), st.sampled_from("ab")),
)

shares = st.lists(
    st.builds(NodeShare, nodes, st.lists(st.integers(0, 3), max_size=3).map(tuple)), max_size=2
).map(tuple)
fleet_items = st.one_of(
    st.builds(Assigned, st.just(0), st.just("d"), bindings, st.just("uid"), st.integers(-1, 4)),
    st.builds(Silenced, st.just(0), st.just("d")),
    st.builds(Recovered, st.just(0), st.just("d")),
)
cluster_items = st.one_of(
    st.builds(Placed, st.just(0), st.just("d"), bindings, shares),
    st.builds(Released, st.just(0), st.just("d"), bindings, shares),
    st.builds(NodeClosed, st.just(0), st.just("d"), nodes),
)
decided = st.one_of(
    st.tuples(clusters, st.sampled_from(["fleet/0", "fleet/1"]), fleet_items),
    st.tuples(clusters, st.just("cluster"), cluster_items),
)
Step = Value | tuple[str, str, AssignmentItem] | int

PRELUDE: list[Step] = [
    *(
        BindingRequested(Binding(name, "uid", ObjectRef("v1", "Pod", name), 4, placement=DIVIDED))
        for name in ("web", "db")
    ),
    PolicyApplied(Policy("NodePool", "a", node_pool=NodePoolPolicy("spot", 30))),
    NodesObserved(
        "oslo",
        0,
        1,
        tuple(Node(n, {}, labels={"karpenter.sh/nodepool": "spot"}) for n in ("n1", "n2")),
    ),
    *(
        (cluster, stream, Assigned(0, "", binding, "uid", replicas))
        for cluster, stream, binding, replicas in (
            ("oslo", "fleet/0", "web", 3),
            ("bergen", "fleet/0", "web", 1),
            ("oslo", "fleet/1", "db", 4),
        )
    ),
    ("oslo", "cluster", Placed(0, "", "web", (NodeShare("n1", (0, 1)),))),
]
"""A world in which something can happen: most random histories from nothing propose nothing."""

histories: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(facts, decided, decided, st.integers(1, 100)), max_size=40
).map(lambda tail: PRELUDE + tail)


def shard_of(binding: str) -> int:
    return int(binding == "db")


def numbered(item: AssignmentItem, seq: int) -> AssignmentItem:
    fields = {f: getattr(item, f) for f in item.__struct_fields__}
    return type(item)(**fields | {"seq": seq, "decision": str(derived_id("decision", seq))})


class Run:
    """A history played step by step, with every proposal it made: when, what, and how many
    assignments had ended by then. `repeat`: each event is delivered so often."""

    def __init__(self, history: list[Step], repeat: int = 1) -> None:
        self.observer = DeschedulerObserver(shard_of, repeat_after_s=60, batch_max=3)
        self.state: DeschedulerState = self.observer.initial()
        self.now = 1_700_000_000 * S
        self.ended = 0
        self.proposals: list[tuple[int, Publication, int]] = []
        for i, step in enumerate(history):
            if isinstance(step, int):
                self.now += step * S
            else:
                value = step
                if isinstance(step, tuple):
                    cluster, stream, item = step
                    self.ended += isinstance(item, Assigned) and item.replicas <= 0
                    value = AssignmentsDecided(cluster, stream, i + 1, (numbered(item, i + 1),))
                assert isinstance(value, Value)
                self.ended += isinstance(value, ClusterForgotten)
                event = made(value, id=derived_id("event", i), source="/test", subject="x")
                for _ in range(repeat):
                    self.observer.fold(self.state, event, self.now)
            self.publish()

    def publish(self) -> None:
        for _ in range(100):
            made_now = self.observer.publish(self.state, self.now)
            assert len(made_now) <= 3
            self.proposals += [(self.now, p, self.ended) for p in made_now]
            due = self.observer.next_due(self.state)
            if due is None or due > self.now:
                return
        raise AssertionError("it never comes to an end")


@given(histories)
def test_every_id_is_proposed_once_and_no_target_sooner_than_after_the_pause(
    history: list[Step],
) -> None:
    """The pause is for one stay: what left and came back may be proposed at once."""
    run = Run(history)
    ids = Counter(p.id for _, p, _ in run.proposals)
    assert not [i for i, n in ids.items() if n > 1 or not isinstance(i, UUID)]
    last: dict[tuple[object, ...], int] = {}
    for at, p, ended in run.proposals:
        # A cluster silenced again, or a node emptied again, is a new cause; another taint of the
        # same cluster is not.
        cause = None if isinstance(p.data, EvictionProposed) else p.cause
        key = (
            ended,
            type(p.data),
            p.subject,
            p.partition_key,
            cause,
            getattr(p.data, "cluster", ""),
        )
        assert at - last.get(key, 0) >= 60 * S
        last[key] = at


@given(histories)
def test_delivering_everything_twice_changes_nothing(history: list[Step]) -> None:
    assert Run(history).proposals == Run(history, repeat=2).proposals


@given(histories)
def test_what_is_proposed_holds_at_that_moment(history: list[Step]) -> None:
    """Every proposal of the last moment, held against the facts as a plain reader would look them
    up."""
    run = Run(history)
    for at, p, _ in run.proposals:
        if at != run.now or (history and not isinstance(history[-1], int)):
            continue  # judged only where nothing but time passed after the facts
        match p.data:
            case FailoverProposed(stream, binding, name):
                cluster = run.state.clusters[name]
                assert stream in cluster.silenced
                assert stream == f"fleet/{shard_of(binding)}"
                assert cluster.shares[binding].replicas > 0
            case EvictionProposed(stream, binding, name):
                cluster = run.state.clusters[name]
                tolerations = run.state.bindings[binding].placement.tolerations
                assert any(
                    not [t for t in tolerations if t.tolerates(taint)]
                    or any(t.seconds is not None for t in tolerations if t.tolerates(taint))
                    for taint in cluster.taints
                )
                assert cluster.shares[binding].replicas > 0
            case NodeRemovalProposed(_, name, node):
                cluster = run.state.clusters[name]
                assert node in cluster.book.nodes
                assert node not in cluster.book.closed
                assert not [
                    r
                    for held in cluster.book.held.values()
                    for r in held.placed.values()
                    if r.node == node
                ]
            case _:
                raise AssertionError(p.data)


@given(histories)
def test_the_indexes_agree_with_the_facts(history: list[Step]) -> None:
    state = Run(history).state
    live: Counter[str] = Counter()
    where: dict[str, set[str]] = {}
    for name, cluster in state.clusters.items():
        for binding, share in cluster.shares.items():
            where.setdefault(binding, set()).add(name)
            assert share.live == (share.stream not in cluster.silenced)
            live[binding] += share.replicas if share.live else 0
        assert cluster.pool_of == {
            n: node.labels[POOL_LABEL]
            for n, node in cluster.book.nodes.items()
            if node.labels.get(POOL_LABEL)
        }
        assert set(cluster.empty) == {n for n in cluster.pool_of if not cluster.holds_something(n)}
    assert {b: set(s.clusters) for b, s in state.spreads.items()} == where
    assert {b: s.live for b, s in state.spreads.items()} == {b: live[b] for b in where}
    pooled = {(name, node) for name, c in state.clusters.items() for node in c.pool_of}
    assert {key for keys in state.pool_nodes.values() for key in keys} == pooled
    assert set(state.causes.waiting) <= set(state.causes.active)
    assert all(state.causes.agenda.due(key) is not None for key in state.causes.active)
