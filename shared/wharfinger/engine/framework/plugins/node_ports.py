"""NodePorts: a port of the node is taken once per protocol and address, where no address is all of them."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import HostPort
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unschedulable

REASON = "node(s) didn't have free ports for the requested pod ports"


class NodePorts:
    name = "NodePorts"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        return None if pod.requirements.traits.ports else SKIP

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        wanted = pod.requirements.traits.ports
        if any(clash(wanted, other.requirements.traits.ports) for other in node.pods):
            return unschedulable(REASON)
        return None

    def hints(self) -> tuple[Hint, ...]:
        return Hint("node/add"), Hint("pod/remove", _had_a_port)


def clash(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Whether any two of them cannot be had on one node."""
    return any(
        a.port == b.port and a.protocol == b.protocol and (not a.ip or not b.ip or a.ip == b.ip)
        for b in taken
        for a in wanted
    )


def _had_a_port(pod: Pod, old: object, new: object) -> bool:
    return not isinstance(old, Pod) or clash(pod.requirements.traits.ports, old.requirements.traits.ports)
