"""Laws of the annotator that no history may break, hunted for by the machine."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from wharfinger.domain.node import Node
from wharfinger.domain.policy import HotWindow, LoadPolicy, Policy, SyncPeriod
from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentItem, AssignmentsDecided, Placed, Released
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.codec import made
from wharfinger.events.decisions import NodeShare
from wharfinger.events.envelope import derived_id
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.stages.annotator import AnnotatorObserver, Query, QueryFailure

S = 1_000_000

clusters = st.sampled_from(["oslo", "oslo", "bergen"])
nodes = st.sampled_from(["n1", "n2"])
sync = st.lists(
    st.builds(SyncPeriod, st.sampled_from(["cpu", "mem", "no metric"]), st.integers(-1, 40)),
    max_size=3,
)
hot = st.lists(st.builds(HotWindow, st.integers(-1, 90), st.integers(0, 3)), max_size=2)
shares = st.lists(
    st.builds(NodeShare, nodes, st.lists(st.integers(0, 3), max_size=3).map(tuple)), max_size=2
).map(tuple)

facts: st.SearchStrategy[Value] = st.one_of(
    st.builds(
        lambda name, sync, hot: PolicyApplied(
            Policy("P", name, load=LoadPolicy(tuple(sync), hot=tuple(hot)))
        ),
        st.sampled_from("ab"),
        sync,
        hot,
    ),
    st.builds(PolicyRemoved, st.just("P"), st.sampled_from("ab")),
    st.builds(ClusterForgotten, clusters),
    st.builds(
        lambda cluster, bucket, buckets, names: NodesObserved(
            cluster, bucket, buckets, tuple(Node(n, {}) for n in names)
        ),
        clusters,
        st.integers(0, 1),
        st.integers(1, 2),
        st.lists(nodes, max_size=2),
    ),
)
placements = st.one_of(
    st.builds(Placed, st.just(0), st.just("d"), st.sampled_from(["web", "db"]), shares),
    st.builds(Released, st.just(0), st.just("d"), st.sampled_from(["web", "db"]), shares),
)
answers = st.one_of(
    st.just(QueryFailure("timeout", "late")), st.dictionaries(nodes, st.integers(0, 100_000))
)
Step = Value | tuple[str, AssignmentItem] | dict[str, int] | QueryFailure | int

PRELUDE: list[Step] = [
    PolicyApplied(
        Policy(
            "P",
            "a",
            load=LoadPolicy((SyncPeriod("cpu", 30),), hot=(HotWindow(60, 2), HotWindow(300, 3))),
        )
    ),
    NodesObserved("oslo", 0, 1, (Node("n1", {}), Node("n2", {}))),
]
TWO_ON_N1 = Placed(0, "d", "web", (NodeShare("n1", (0, 1)),))
histories: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        facts,
        st.tuples(clusters, placements),
        st.tuples(clusters, placements),
        answers,
        st.integers(1, 100),
    ),
    max_size=40,
).map(lambda tail: PRELUDE + tail)


class Run:
    """A history played step by step. `told`: the latest hot value of each cluster; `loads`: all
    loads published."""

    def __init__(self, history: list[Step], repeat: int = 1) -> None:
        self.observer = AnnotatorObserver()
        self.state = self.observer.initial()
        self.now = 1_700_000_000 * S
        self.out: list[Query] = []
        self.asked: list[Query] = []
        self.told: dict[str, dict[str, int]] = {}
        self.loads: list[NodeLoadObserved] = []
        for i, step in enumerate(history):
            self.step(i, step, repeat)

    def step(self, i: int, step: Step, repeat: int) -> None:
        if isinstance(step, int):
            self.now += step * S
        elif isinstance(step, dict | QueryFailure):
            if self.out:
                self.observer.fold_answer(self.state, self.out.pop(), step, self.now)
        else:
            value = step
            if isinstance(step, tuple):
                cluster, item = step
                fields = {f: getattr(item, f) for f in item.__struct_fields__}
                value = AssignmentsDecided(
                    cluster, "c", i + 1, (type(item)(**fields | {"seq": i + 1}),)
                )
            assert isinstance(value, Value)
            if isinstance(value, ClusterForgotten):
                # a cluster that joins again publishes its first value again
                self.told.pop(value.name, None)
            event = made(value, id=derived_id("event", i), source="/test", subject="x")
            for _ in range(repeat):
                self.observer.fold(self.state, event, self.now)
        due = self.observer.due_queries(self.state, self.now)
        self.out += due
        self.asked += due
        for publication in self.observer.publish(self.state, self.now):
            match publication.data:
                case HotValueObserved(cluster, _, hot):
                    assert self.told.get(cluster) != hot or not hot
                    self.told[cluster] = hot
                case NodeLoadObserved() as loads:
                    self.loads.append(loads)
                case _:
                    raise AssertionError(publication.data)
        assert self.observer.publish(self.state, self.now) == []
        next_due = self.observer.next_due(self.state)
        assert next_due is None or next_due > self.now


@given(histories)
@example([*PRELUDE, ("oslo", TWO_ON_N1), ClusterForgotten("oslo"), ("oslo", TWO_ON_N1)])
def test_what_was_told_last_is_the_hot_value_counted_from_scratch(history: list[Step]) -> None:
    run = Run(history)
    for cluster in run.state.clusters.values():
        counted = {
            node: records.value(run.state.windows, run.now)[0]
            for node, records in cluster.records.items()
        }
        assert cluster.hot == {node: hot for node, hot in counted.items() if hot}
        assert (cluster.told or {}) == cluster.hot


@given(histories)
def test_delivering_everything_twice_changes_nothing(history: list[Step]) -> None:
    once, twice = Run(history), Run(history, repeat=2)
    assert (once.told, once.loads, once.asked) == (twice.told, twice.loads, twice.asked)


@given(histories)
def test_no_question_of_a_metric_comes_twice_at_once_and_none_without_a_policy(
    history: list[Step],
) -> None:
    run = Run(history)
    assert all(q.period_s > 0 and q.metric != "no metric" for q in run.asked)
    assert {(n, m) for n, c in run.state.clusters.items() for m in c.measured} == {
        (name, metric)
        for name, cluster in run.state.clusters.items()
        for metric in run.state.periods
        if cluster.nodes.complete and cluster.nodes.nodes
    }


@given(histories)
def test_loads_are_published_in_the_order_they_were_asked_for(history: list[Step]) -> None:
    newest: dict[tuple[str, str], int] = {}
    for loads in Run([step for step in history if not isinstance(step, ClusterForgotten)]).loads:
        key = (loads.cluster, loads.metric)
        assert loads.measured_at_us >= newest.get(key, 0)
        newest[key] = loads.measured_at_us
