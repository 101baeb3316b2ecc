"""What the actuator knows of one cluster: standing decisions about objects, and what was observed.

Nothing here is a memory of what was sent. After a restart the standing decisions come from the
ledger and the facts from their topics, and the same effects follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wharfinger.domain.cluster import FACTS_FRESH
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.time import Micros
from wharfinger.events.assignments import (
    AssignmentItem,
    AssignmentsDecided,
    Disrupted,
    Disrupting,
    NodeClosed,
    PodsRemoved,
)
from wharfinger.events.cluster_state import FinishedPodsObserved, NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.stages.actuator.effects import Cause
from wharfinger.stages.node_buckets import NodeBuckets


@dataclass(slots=True)
class ClusterWork:
    """`heard`: when the cluster was last heard of; 0: never. `fresh`: its facts are complete and
    its watches unbroken. `closed`: node -> why it shall take nothing new. `removals`: uid of a
    finished pod -> why its object may go."""

    name: str
    heard: Micros = 0
    fresh: bool = True
    nodes: NodeBuckets = field(default_factory=NodeBuckets)
    closed: dict[str, Cause] = field(default_factory=dict)
    removals: dict[str, Cause] = field(default_factory=dict)
    _finished: dict[str, dict[str, Pod]] = field(default_factory=dict)
    _through: dict[str, int] = field(default_factory=dict)
    """Stream -> the last decision that was folded."""

    def node_facts(self) -> Iterator[Node]:
        return (node for _, node in self.nodes.nodes.values())

    def finished_pods(self) -> Iterator[Pod]:
        for of_node in self._finished.values():
            yield from of_node.values()

    # --- facts

    def observe_cluster(self, told: ClusterObserved) -> None:
        self.fresh = told.cluster.conditions.get(FACTS_FRESH) != "False"

    def observe_nodes(self, told: NodesObserved) -> None:
        """A decision about a node ends with the node: a later one of the same name is another."""
        for name in self.nodes.fold(told).gone:
            self.closed.pop(name, None)

    def observe_finished(self, told: FinishedPodsObserved) -> None:
        if told.pods:
            self._finished[told.node] = {pod.uid: pod for pod in told.pods}
        else:
            self._finished.pop(told.node, None)

    # --- decisions

    def take(self, decided: AssignmentsDecided, at: Micros) -> None:
        """Items come in order of seq; what was folded already is skipped."""
        stream, through = decided.stream, self._through.get(decided.stream, 0)
        for item in decided.items:
            if item.seq > through:
                self._take(stream, item)
        self._through[stream] = max(through, decided.through)
        for uid in [uid for uid, cause in self.removals.items() if cause.until_us <= at]:
            del self.removals[uid]

    def _take(self, stream: str, item: AssignmentItem) -> None:
        match item:
            case NodeClosed(node=node):
                self.closed[node] = Cause(stream, item.seq, item.decision)
            case Disrupting(nodes=nodes):
                for node in nodes:
                    self.closed[node] = Cause(stream, item.seq, item.decision)
            case Disrupted(reopened=reopened):
                for node in reopened:
                    self.closed.pop(node, None)
            case PodsRemoved(pods=uids, until_us=until):
                for uid in uids:
                    self.removals[uid] = Cause(stream, item.seq, item.decision, until)
            case _:
                pass
