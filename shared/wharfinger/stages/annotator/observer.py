"""The annotator: folds policies, nodes and placements; emits Prometheus queries, node loads and hot
values.

It has two interfaces. As an observer it folds events and publishes. For queries, the service calls
`due_queries`, sends each to Prometheus, and returns loads or a failure with `fold_answer`. Nothing
here blocks or reads a clock.

Several DynamicSchedulerPolicies are merged by `engine.load.policy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.policy import HotWindow, LoadPolicy
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.engine.load.policy import METRIC, askable, effective
from wharfinger.engine.load.records import RECORDS_MAX, RETAIN_S, HotRecords
from wharfinger.events.assignments import AssignmentsDecided, Placed, Released
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.decisions import NodeShare
from wharfinger.events.envelope import Event
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Failures, Publication
from wharfinger.stages.annotator.cadence import Query, QueryFailure, QueryTimetable
from wharfinger.stages.annotator.series import Matched, Series, match
from wharfinger.stages.due_times import Agenda
from wharfinger.stages.node_buckets import NodeBuckets

HOT_VALUE = "hot-value"
"""Takes the place of the metric in the key of a HotValueObserved. No metric can have this name."""


@dataclass(slots=True)
class ClusterLoad:
    """Holds what the annotator knows of one cluster.

    `records`: node -> its recent placements. `where`: replica (binding, ordinal) -> the node whose
    records contain it. `through`: stream -> highest seq folded. `hot`: node -> hot value, if above
    zero. `told`: the hot values as last published; None: never published. `measured`: metric -> its
    schedule and last result.
    """

    nodes: NodeBuckets = field(default_factory=NodeBuckets)
    records: dict[str, HotRecords] = field(default_factory=dict)
    where: dict[tuple[str, int], str] = field(default_factory=dict)
    through: dict[str, int] = field(default_factory=dict)
    hot: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] | None = None
    measured: dict[str, Measurement] = field(default_factory=dict)


@dataclass(slots=True)
class Measurement:
    """Holds the queries of one metric in one cluster. `newest`: time of the query with the newest
    accepted result. `unpublished`: that result until it is published. `loaded`: whether the last
    published loads contained any node."""

    cadence: QueryTimetable
    newest: Micros | None = None
    unpublished: NodeLoadObserved | None = None
    loaded: bool = False


@dataclass(slots=True)
class AnnotatorState:
    """The state of the annotator: merged policies, clusters, and what is due.

    `periods`: metric -> seconds, merged over all policies. `windows`: the merged hot-value windows.
    `queries`: when each (cluster, metric) is queried next. `cooling`: when the hot value of a
    (cluster, node) decreases with time. `warm`: (cluster, node) whose hot value must be computed
    again. `answered`, `changed`: (cluster, metric) and clusters with something to publish.
    """

    policies: dict[str, LoadPolicy] = field(default_factory=dict)
    periods: dict[str, int] = field(default_factory=dict)
    windows: tuple[HotWindow, ...] = ()
    clusters: dict[str, ClusterLoad] = field(default_factory=dict)
    queries: Agenda[tuple[str, str]] = field(default_factory=Agenda)
    cooling: Agenda[tuple[str, str]] = field(default_factory=Agenda)
    warm: set[tuple[str, str]] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    answered: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class AnnotatorObserver:
    """Publishes node loads (NodeLoadObserved) and hot values (HotValueObserved). A
    `kernel.observer.Observer`.

    `asks`: False: no Prometheus is configured, so only hot values are maintained. `records_max`:
    number of recent placements kept per node.
    """

    asks: bool = True
    records_max: int = RECORDS_MAX
    failures: Failures = field(default_factory=Failures, compare=False, repr=False)

    def initial(self) -> AnnotatorState:
        return AnnotatorState()

    def fold(self, state: AnnotatorState, event: Event[Value], at: Micros) -> None:
        """Folds one event into the state. Events about load policies, nodes, placements of replicas
        and removed clusters change the state; all other events are ignored.

        `at`: the time at which a placement counts for the hot value of its node. For a new event it
        is the clock. For assignments that are loaded from the ledger after a restart it is the time
        of their round, so that old placements do not look recent.
        """
        match event.data:
            case PolicyApplied(policy):
                if policy.load is not None:
                    state.policies[policy.key] = policy.load
                    _policies_changed(state, at)
                elif state.policies.pop(policy.key, None) is not None:
                    _policies_changed(state, at)
            case PolicyRemoved(kind, name, namespace):
                if state.policies.pop(f"{kind}/{namespace}/{name}", None) is not None:
                    _policies_changed(state, at)
            case NodesObserved() as nodes:
                _fold_nodes(state, nodes, at)
            case AssignmentsDecided() as decided:
                self._fold_assignments(state, decided, at)
            case ClusterForgotten(name):
                _forget(state, name)
            case _:
                pass

    def _fold_assignments(
        self, state: AnnotatorState, decided: AssignmentsDecided, at: Micros
    ) -> None:
        name = decided.cluster
        cluster = state.clusters.setdefault(name, ClusterLoad())
        seen = cluster.through.get(decided.stream, 0)
        for item in decided.items:
            if item.seq <= seen:  # redelivered
                continue
            cluster.through[decided.stream] = max(item.seq, cluster.through.get(decided.stream, 0))
            match item:
                case Placed():
                    for node, replica in _replicas(item.binding, item.placed):
                        self._placed(state, name, cluster, node, replica, at)
                case Released():
                    for node, replica in _replicas(item.binding, item.released):
                        if cluster.where.get(replica) == node:
                            _take_back(state, name, cluster, replica)
                case _:
                    pass

    def _placed(
        self,
        state: AnnotatorState,
        name: str,
        cluster: ClusterLoad,
        node: str,
        replica: tuple[str, int],
        at: Micros,
    ) -> None:
        before = cluster.where.get(replica)
        if before == node:
            return
        if before is not None:
            # told on a new node before its release from the old one was: it moved
            _take_back(state, name, cluster, replica)
        records = cluster.records.setdefault(node, HotRecords())
        cluster.where[replica] = node
        records.add(replica, at, self.records_max)
        records.forget_until(at - _retained(state))
        state.warm.add((name, node))

    def due_queries(self, state: AnnotatorState, at: Micros) -> list[Query]:
        """Returns the Prometheus queries to send now: one for each cluster and metric whose query
        time has come. Returns nothing if no Prometheus is configured.

        Each metric has a fixed grid of query times, one period apart. The next query time of each
        returned query is set to the next time of its grid, or to a retry that is due earlier. So a
        query whose result never arrives is sent again. The caller passes each result to
        `fold_answer`.
        """
        if not self.asks:
            return []
        due = []
        for key in state.queries.pop(at):
            name, metric = key
            cadence = state.clusters[name].measured[metric].cadence
            cadence.asked(at)
            state.queries.set(key, cadence.due)
            due.append(Query(name, metric, cadence.period // SECOND, at))
        return due

    def match(self, state: AnnotatorState, cluster: str, series: Iterable[Series]) -> Matched:
        """Maps the series to the nodes of the cluster and returns the load of each node found."""
        known = state.clusters.get(cluster)
        return match(
            [node for _, node in known.nodes.nodes.values()] if known is not None else (), series
        )

    def fold_answer(
        self,
        state: AnnotatorState,
        query: Query,
        answer: Mapping[str, int] | QueryFailure,
        at: Micros,
    ) -> None:
        """Applies the result of `query` to the state. `answer`: node -> load in 1/100,000 of its
        capacity, or the failure.

        After a failure, or a result without any node, the query is repeated after 10 s. Each
        further failure in a row doubles this time, up to 360 s. The regular query of each period is
        sent in any case.

        A result with nodes is published. A result without any node is published once, as unknown
        loads, so that the readers need not wait until the last loads expire. A result is ignored if
        its query was sent before the query of the newest accepted result.
        """
        cluster = state.clusters.get(query.cluster)
        measured = cluster.measured.get(query.metric) if cluster is not None else None
        if measured is None:  # the policy or the cluster went while the question was out
            return
        if isinstance(answer, QueryFailure) or not answer:
            measured.cadence.failed(at)
        else:
            measured.cadence.answered()
        key = (query.cluster, query.metric)
        state.queries.set(key, measured.cadence.due)
        if isinstance(answer, QueryFailure) or (
            measured.newest is not None and query.asked_at < measured.newest
        ):
            return  # an answer that was overtaken by a later one is old news
        measured.newest = query.asked_at
        if answer or measured.loaded or measured.unpublished is not None:
            loads = dict(sorted(answer.items()))
            measured.unpublished = NodeLoadObserved(*key, query.period_s, query.asked_at, loads)
            state.answered.add(key)

    def publish(self, state: AnnotatorState, at: Micros) -> list[Publication]:
        """Returns the loads that were received and the hot values that changed since the last call.
        If a policy has hot-value windows, a cluster's first hot values are always published,
        because what was published before a restart is not known."""
        return _load_publications(state) + _hot_publications(state, at)

    def next_due(self, state: AnnotatorState) -> Micros | None:
        """Returns the time of the next event that needs no new fact: a query is due, or a hot value
        decreases. None: there is none."""
        due = (state.queries.next() if self.asks else None, state.cooling.next())
        return min((d for d in due if d is not None), default=None)


def refusals(policy: LoadPolicy) -> list[str]:
    """Returns one sentence for each setting of the load policy that cannot be used. These
    settings cannot be used: a metric name that is not valid in Prometheus, a query period that is
    not above zero, a hot-value window whose time range or count is not above zero. Returns an empty
    list if all settings can be used. crane crashes on some of the unusable settings."""
    lines = [
        f"syncPolicy {entry.metric!r}: not the name of a metric"
        if not METRIC.fullmatch(entry.metric)
        else f"syncPolicy {entry.metric!r}: expected a period above zero, got {entry.period_s} s"
        for entry in policy.sync
        if not askable(entry)
    ]
    lines += [
        f"hotValue: expected a timeRange and a count above zero, got {w.window_s} s and {w.count}"
        for w in policy.hot
        if w.window_s <= 0 or w.count <= 0
    ]
    return lines


def _policies_changed(state: AnnotatorState, at: Micros) -> None:
    policy = effective(state.policies)
    periods, windows = {entry.metric: entry.period_s for entry in policy.sync}, policy.hot
    if periods != state.periods:
        state.periods = periods
        for name, cluster in state.clusters.items():
            _schedule(state, name, cluster, at)
    if windows != state.windows:
        state.windows = windows
        for name, cluster in state.clusters.items():
            state.changed.add(name)
            state.warm.update((name, node) for node in cluster.records)


def _schedule(state: AnnotatorState, name: str, cluster: ClusterLoad, at: Micros) -> None:
    """Adapts the query times of one cluster to the load policies: adds metrics that a policy names,
    changes the query period of metrics where a policy changed it, and removes metrics that no
    policy names any more. For a cluster whose node list is incomplete or empty, all metrics are
    removed, so no queries are sent."""
    wanted = state.periods if cluster.nodes.complete and cluster.nodes.nodes else {}
    for metric in [metric for metric in cluster.measured if metric not in wanted]:
        _unschedule(state, name, cluster, metric)
    for metric, period_s in wanted.items():
        measured = cluster.measured.get(metric)
        if measured is None:
            measured = cluster.measured[metric] = Measurement(QueryTimetable(period_s * SECOND, at))
        else:
            measured.cadence.follow(period_s * SECOND, at)
        state.queries.set((name, metric), measured.cadence.due)


def _unschedule(state: AnnotatorState, name: str, cluster: ClusterLoad, metric: str) -> None:
    del cluster.measured[metric]
    state.queries.discard((name, metric))
    state.answered.discard((name, metric))


def _fold_nodes(state: AnnotatorState, nodes: NodesObserved, at: Micros) -> None:
    name = nodes.cluster
    cluster = state.clusters.setdefault(name, ClusterLoad())
    askable = cluster.nodes.complete and bool(cluster.nodes.nodes)
    for gone in cluster.nodes.fold(nodes).gone:
        _drop_node(state, name, cluster, gone)
    if askable != (cluster.nodes.complete and bool(cluster.nodes.nodes)):
        _schedule(state, name, cluster, at)
        state.changed.add(name)


def _drop_node(state: AnnotatorState, name: str, cluster: ClusterLoad, node: str) -> None:
    records = cluster.records.pop(node, None)
    for replica in records.when if records is not None else ():
        cluster.where.pop(replica, None)
    state.warm.add((name, node))


def _forget(state: AnnotatorState, name: str) -> None:
    """Removes what is known of a cluster that left the fleet: nodes, placements, hot values and
    query times. Only `through` is kept, the highest seq folded from each stream. A cluster with the
    same name may join later; its streams then continue after these seqs."""
    cluster = state.clusters.get(name)
    if cluster is None:
        return
    for metric in list(cluster.measured):
        _unschedule(state, name, cluster, metric)
    for node in cluster.hot.keys() | cluster.records.keys():
        state.cooling.discard((name, node))
        state.warm.discard((name, node))
    state.changed.discard(name)
    state.clusters[name] = ClusterLoad(through=cluster.through)


def _take_back(
    state: AnnotatorState, name: str, cluster: ClusterLoad, replica: tuple[str, int]
) -> None:
    node = cluster.where.pop(replica)
    records = cluster.records.get(node)
    if records is not None and records.remove(replica):
        state.warm.add((name, node))


def _replicas(binding: str, shares: Iterable[NodeShare]) -> Iterable[tuple[str, tuple[str, int]]]:
    return ((share.node, (binding, ordinal)) for share in shares for ordinal in share.ordinals)


def _retained(state: AnnotatorState) -> Micros:
    return max([RETAIN_S, *(w.window_s for w in state.windows)]) * SECOND


def _load_publications(state: AnnotatorState) -> list[Publication]:
    told = []
    for name, metric in sorted(state.answered):
        measured = state.clusters[name].measured[metric]
        if measured.unpublished is not None:
            measured.loaded = bool(measured.unpublished.loads)
            key = f"{name}/{metric}"
            told.append(Publication(measured.unpublished, key, key, name))
            measured.unpublished = None
    state.answered.clear()
    return told


def _hot_publications(state: AnnotatorState, at: Micros) -> list[Publication]:
    for key in (*state.cooling.pop(at), *sorted(state.warm)):
        _reckon(state, *key, at)
    state.warm.clear()
    told = []
    for name in sorted(state.changed):
        cluster = state.clusters[name]
        if cluster.hot == cluster.told or (cluster.told is None and not state.windows):
            continue
        cluster.told = dict(sorted(cluster.hot.items()))
        told.append(
            Publication(
                HotValueObserved(name, at, cluster.told),
                f"{name}/{HOT_VALUE}",
                f"{name}/{HOT_VALUE}",
                name,
            )
        )
    state.changed.clear()
    return told


def _reckon(state: AnnotatorState, name: str, node: str, at: Micros) -> None:
    """Computes the hot value of one node at time `at` from its recent placements and stores it. A
    value of 0 removes the stored value. `name`: the cluster.

    Each hot-value window adds floor(placements within the window / count). Example: one window of 5
    minutes with count 5 and 12 placements: 2. The value falls when placements become older than a
    window. The time of the next fall is also stored, or removed if the value will not fall.
    """
    cluster = state.clusters[name]
    records = cluster.records.get(node)
    hot, falls = records.value(state.windows, at) if records is not None else (0, None)
    if falls is None:
        state.cooling.discard((name, node))
    else:
        state.cooling.set((name, node), falls)
    if hot:
        cluster.hot[node] = hot
    else:
        cluster.hot.pop(node, None)
    state.changed.add(name)
