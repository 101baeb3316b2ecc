"""The other direction of the extender protocol: a cluster's own kube-scheduler calls this plane as
its extender.

Answered from the stage's present state: occupancy, measured load, free devices. Nothing is decided
or recorded; the result comes back as an observed pod. The profile is that of the pod's
`schedulerName`, if configured here, else the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.domain.node import Node
from wharfinger.engine.framework import extenders
from wharfinger.engine.framework.cycle import CycleOutcome, Framework
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import Status, unresolvable
from wharfinger.stages.cluster.framework_view import pictured
from wharfinger.stages.cluster.state import ClusterStageState

UNKNOWN_NODE = "node(s) are not known to wharfinger"


def filtered(state: ClusterStageState, body: bytes) -> bytes:
    """Answers a filter request: returns the ExtenderFilterResult as JSON. Raises ValueError if the
    request is malformed."""
    asked = extenders.asked_about_nodes(body)
    framework, outcome = _begun(state, asked)
    refused = _refused(framework, outcome, asked)
    return extenders.filter_reply(asked, refused, extenders.full_nodes(body))


def prioritized(state: ClusterStageState, body: bytes) -> bytes:
    """Answers a prioritize request: returns the HostPriorityList as JSON, with the score of each
    node that is feasible here and 0 for the others. Raises ValueError if the request is malformed.
    """
    asked = extenders.asked_about_nodes(body)
    framework, outcome = _begun(state, asked)
    refused = _refused(framework, outcome, asked)
    outcome.feasible = tuple(name for name in asked.names if name not in refused)
    if outcome.feasible:
        framework.score(outcome, asked.pod)
    return extenders.priorities_reply({name: outcome.totals.get(name, 0) for name in asked.names})


def preempted(state: ClusterStageState, body: bytes) -> bytes:
    """Answers the preempt request of a kube-scheduler for which this service is an extender.
    Returns an ExtenderPreemptionResult as JSON. The request names nodes, and for each node the
    victims. The result has those of the nodes on which the pod fits after the victims are removed.
    Nodes that are not known here are left out.

    `body`: the request as JSON. Raises ValueError if it is malformed.
    """
    asked = extenders.asked_to_preempt(body)
    framework = _framework(state, asked.pod.requirements.traits.scheduler)
    outcome = framework.begin(pictured(state), asked.pod)
    left: dict[str, extenders.Victims] = {}
    for name, victims in asked.victims.items():
        info = outcome.cycle.snapshot.nodes.get(name)
        if (
            info is not None
            and outcome.rejected is None
            and _fits_without(framework, outcome, asked, info, victims)
        ):
            left[name] = victims
    return extenders.preempt_reply(left)


def _fits_without(
    framework: Framework,
    outcome: CycleOutcome,
    asked: extenders.AskedToPreempt,
    info: NodeInfo,
    victims: extenders.Victims,
) -> bool:
    """Returns whether the pod of a preempt request fits on a node after `victims` are removed from
    it.

    `asked`: the request. `info`: the node with its pods. `outcome`: the result of the scheduling
    cycle of the pod so far. The function removes the victims from copies, so `info` and `outcome`
    stay unchanged.
    """
    cycle, node = outcome.cycle.copy(), info.copy()
    for pod in [pod for pod in info.pods if pod.uid in victims.uids]:
        node.remove(pod)
        framework.pod_removed(cycle, asked.pod, pod, node)
    return framework.refusal(cycle, asked.pod, node) is None


def _begun(
    state: ClusterStageState, asked: extenders.ExtenderRequest
) -> tuple[Framework, CycleOutcome]:
    snapshot = pictured(state)
    for node in _unknown(snapshot.nodes, asked.nodes or ()):
        snapshot.nodes[node.name] = NodeInfo.of(node)
    framework = _framework(state, asked.pod.requirements.traits.scheduler)
    return framework, framework.begin(snapshot, asked.pod)


def _unknown(known: Mapping[str, NodeInfo], told: Iterable[Node]) -> list[Node]:
    """Returns the nodes that only the caller of the extender knows. The stage uses them as the
    request describes them, without pods."""
    return [node for node in told if node.name not in known]


def _refused(
    framework: Framework, outcome: CycleOutcome, asked: extenders.ExtenderRequest
) -> dict[str, Status]:
    """Returns why each refused node of the request is not feasible, including the nodes that are
    not known here."""
    nodes = outcome.cycle.snapshot.nodes
    unknown = {name: unresolvable(UNKNOWN_NODE) for name in asked.names if name not in nodes}
    return unknown | framework.refusals(
        outcome, asked.pod, [name for name in asked.names if name not in unknown]
    )


def _framework(state: ClusterStageState, name: str) -> Framework:
    return state.profiles.framework(name if state.profiles.profile(name) is not None else "")
