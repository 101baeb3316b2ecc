"""The other way round: a cluster's own kube-scheduler asks this plane about a pod, as its extender.

Answered from what the stage knows at that moment: its book, the measured load, the devices that are free. Nothing is decided or
remembered here; what the kube-scheduler makes of it comes back as an observed pod. The pod's profile is that of its
`schedulerName` where there is one of that name here, else the default one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.domain.node import Node
from wharfinger.engine.framework import extenders
from wharfinger.engine.framework.cycle import Framework, Outcome
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import Status, unresolvable
from wharfinger.stages.cluster.picture import pictured
from wharfinger.stages.cluster.state import ClusterState

UNKNOWN_NODE = "node(s) are not known to wharfinger"


def filtered(state: ClusterState, body: bytes) -> bytes:
    """ExtenderFilterResult. Raises ValueError where the question makes no sense."""
    asked = extenders.asked_about_nodes(body)
    framework, outcome = _begun(state, asked)
    refused = _refused(framework, outcome, asked)
    return extenders.filter_reply(asked, refused, extenders.full_nodes(body))


def prioritized(state: ClusterState, body: bytes) -> bytes:
    """HostPriorityList: of the nodes that pass here, too; the others get nothing. Raises ValueError."""
    asked = extenders.asked_about_nodes(body)
    framework, outcome = _begun(state, asked)
    refused = _refused(framework, outcome, asked)
    outcome.feasible = tuple(name for name in asked.names if name not in refused)
    if outcome.feasible:
        framework.score(outcome, asked.pod)
    return extenders.priorities_reply({name: outcome.totals.get(name, 0) for name in asked.names})


def preempted(state: ClusterState, body: bytes) -> bytes:
    """ExtenderPreemptionResult: the nodes on which the pod passes here once its victims are gone. Raises ValueError."""
    asked = extenders.asked_to_preempt(body)
    framework = _framework(state, asked.pod.requirements.traits.scheduler)
    outcome = framework.begin(pictured(state), asked.pod)
    left: dict[str, extenders.Victims] = {}
    for name, victims in asked.victims.items():
        info = outcome.cycle.snapshot.nodes.get(name)
        if info is not None and outcome.rejected is None and _fits_without(framework, outcome, asked, info, victims):
            left[name] = victims
    return extenders.preempt_reply(left)


def _fits_without(
    framework: Framework,
    outcome: Outcome,
    asked: extenders.AskedToPreempt,
    info: NodeInfo,
    victims: extenders.Victims,
) -> bool:
    """On copies of the node and of what was counted: the next node is looked at as if nobody had gone."""
    cycle, node = outcome.cycle.copy(), info.copy()
    for pod in [pod for pod in info.pods if pod.uid in victims.uids]:
        node.remove(pod)
        framework.pod_removed(cycle, asked.pod, pod, node)
    return framework.refusal(cycle, asked.pod, node) is None


def _begun(state: ClusterState, asked: extenders.Asked) -> tuple[Framework, Outcome]:
    snapshot = pictured(state)
    for node in _unknown(snapshot.nodes, asked.nodes or ()):
        snapshot.nodes[node.name] = NodeInfo.of(node)
    framework = _framework(state, asked.pod.requirements.traits.scheduler)
    return framework, framework.begin(snapshot, asked.pod)


def _unknown(known: Mapping[str, NodeInfo], told: Iterable[Node]) -> list[Node]:
    """Nodes that only the one who asks knows: they are taken as they were told, with nothing on them."""
    return [node for node in told if node.name not in known]


def _refused(framework: Framework, outcome: Outcome, asked: extenders.Asked) -> dict[str, Status]:
    """Why not, of the nodes in question."""
    nodes = outcome.cycle.snapshot.nodes
    unknown = {name: unresolvable(UNKNOWN_NODE) for name in asked.names if name not in nodes}
    return unknown | framework.refusals(outcome, asked.pod, [name for name in asked.names if name not in unknown])


def _framework(state: ClusterState, name: str) -> Framework:
    return state.profiles.framework(name if state.profiles.profile(name) is not None else "")
