"""How nodes are emptied in a joined cluster: pods are evicted, and what their controllers make
instead is placed elsewhere.

A pod cannot be placed ahead of its eviction. So a replica is released with the uid of its pod only
while another node is feasible for it, and of one workload one pod at a time: the next one follows
when the pod is gone and its successor has a node. The room that the command has found for the pods
that are still there stays reserved (`node_search.moves_to_come`). A released pod is not adopted
again while the command runs; after a rollback it is, and is not evicted any more.
"""

from __future__ import annotations

from collections.abc import Generator

from wharfinger.domain.ids import BindingName
from wharfinger.domain.pod_workload import workload_of
from wharfinger.engine.nodes.occupancy import shares_of
from wharfinger.kernel.decider import Draft
from wharfinger.stages.cluster.adoption import local_binding
from wharfinger.stages.cluster.answers import released_draft
from wharfinger.stages.cluster.node_search import placer_for, room_kept
from wharfinger.stages.cluster.pod_placing import binding_of, class_for, pods_to_place
from wharfinger.stages.cluster.replica_moves import DisruptionAllowance, leaving_pods, lifted
from wharfinger.stages.cluster.state import ClusterStageState, RunningCommand


def pods_released(
    state: ClusterStageState, running: RunningCommand, budgets: DisruptionAllowance, reason: str
) -> Generator[Draft, None, str]:
    """Drafts the releases of the pods that may be evicted from the nodes of a command now. Returns
    an empty text, or why the command has to be rolled back.

    `budgets`: how many evictions each PodDisruptionBudget still allows in this round; each release
    reduces it. `reason`: of the releases.
    """
    busy = _moving(state)
    for node in running.decided.nodes:
        for binding, ordinal in sorted(state.book.on_node.get(node.name, {})):
            if binding in busy or budgets.forbid(state, binding, ordinal):
                continue
            if not _has_place(state, binding, ordinal):
                return f"{binding} #{ordinal} has no place any more"
            budgets.go(state, binding, ordinal)
            busy.add(binding)
            shares = shares_of(state.book.held[binding].placed, (ordinal,))
            yield released_draft(state, binding, shares, reason, running.id)
    return ""


def _moving(state: ClusterStageState) -> set[BindingName]:
    """Returns the bindings of which a pod is on its way: it is to be evicted and still there, or it
    waits for a node, or has one and is not bound yet."""
    found: set[BindingName] = set()
    for pod in leaving_pods(state):
        workload = workload_of(pod)
        found |= {workload, local_binding(workload, state.cluster)}
    found |= {binding_of(state, pod) for pod in pods_to_place(state)}
    waiting = state.book.waiting.pods
    found |= {key[0] for uid, key in state.book.replica_of.items() if uid in waiting}
    return found


def _has_place(state: ClusterStageState, binding: BindingName, ordinal: int) -> bool:
    """Returns whether another node is feasible for the pod, as if it were gone from its own."""
    replica = state.book.held[binding].placed[ordinal]
    requirements = replica.cls.requirements
    placer = placer_for(state, requirements.traits.scheduler)
    with room_kept(state, binding, moving=(binding, ordinal)), lifted(state, replica):
        return placer.diagnose(class_for(state, binding, requirements)).feasible > 0
