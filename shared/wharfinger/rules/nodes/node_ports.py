"""NodePorts: each host port of a node can be used once for each protocol and address; an empty
address means all addresses. [kube-scheduler]

In arrays, the pods with a conflicting port are counted for each node, and a node with count > 0 is
refused. Pods of one class conflict with each other, so at most one of them fits on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import HostPort, PodTraits, clash
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unschedulable
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.engine.nodes.counting import OWN_NODE, Counting
from wharfinger.engine.nodes.forms import TopologyCounter
from wharfinger.engine.nodes.tallies import Counted, TopologyTally
from wharfinger.engine.nodes.verdicts import NodeVerdict

TAKEN = NodeVerdict("NodePorts", "node(s) didn't have free ports for the requested pod ports")


class NodePorts:
    name = "NodePorts"
    reason: NodeReason = "NodePorts"
    verdicts = (TAKEN,)

    def __init__(self, arguments: Arguments) -> None:
        pass

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        return None if pod.requirements.traits.ports else SKIP

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        wanted = pod.requirements.traits.ports
        if any(clash(wanted, other.requirements.traits.ports) for other in node.pods):
            return unschedulable(TAKEN.text)
        return None

    def hints(self) -> tuple[Hint, ...]:
        return Hint("node/add"), Hint("pod/remove", _had_a_port)

    # The array form.

    def form(self) -> TopologyCounter:
        return TopologyCounter(self.count, _has_ports, apart=self.apart)

    def count(self, counting: Counting) -> None:
        if counting.filters and counting.cls.traits.ports:
            sums = [(counting.tally(*_clashing(counting.cls)), 1)]
            counting.relations.blocks.append((OWN_NODE, sums, counting.encoded(TAKEN)))

    def apart(self, cls: PodClass, table: NodeTable) -> list[TopologyTally]:
        return [table.tally(*_clashing(cls))] if cls.traits.ports else []


def _has_ports(traits: PodTraits) -> bool:
    return bool(traits.ports)


def _clashing(cls: PodClass) -> tuple[Hashable, Callable[[Counted], int]]:
    """Return the key and the predicate of a tally: it counts the pods with a host port that
    conflicts with a host port of the class."""
    ports: tuple[HostPort, ...] = cls.traits.ports
    return ("ports", ports), lambda other: int(clash(ports, other.traits.ports))


def _had_a_port(pod: Pod, old: object, new: object) -> bool:
    return not isinstance(old, Pod) or clash(
        pod.requirements.traits.ports, old.requirements.traits.ports
    )
