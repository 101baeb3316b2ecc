"""Removes a node regardless of cost: its pods go to existing nodes where they fit, and to new nodes
otherwise. With static drift all of them go to new nodes of the same pool."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.engine.disruption.candidates import CandidateNode
from wharfinger.engine.disruption.cluster_snapshot import DisruptionVerdict, Method
from wharfinger.engine.disruption.consolidation_pass import WAITS, ConsolidationPass, pods_of
from wharfinger.engine.disruption.removal import Attempt
from wharfinger.engine.disruption.replacement import Seats, seats


def replace_at_any_price(run: ConsolidationPass, looked: CandidateNode, method: Method) -> bool:
    """Removes one node at any cost of its replacement. New nodes are created for the pods that fit
    on no existing node. Returns whether the node was removed.

    The node is not removed if the budget of its pool is used up, if it receives pods in this pass,
    or if no place was found for one of its pods (`forced`). In the last case the node is put into
    `run.stuck`, and later methods of the pass skip it.
    """
    if run.not_now(looked, method):
        return False
    found = forced(run, looked, method)
    if isinstance(found, DisruptionVerdict):
        run.said[looked.name] = found
        run.stuck.add(looked.name)
        return False
    attempt, chairs = found
    run.take(
        method, [looked], attempt, chairs, looked.price - sum(c.worst_price for c in chairs.claims)
    )
    return True


def forced(
    run: ConsolidationPass, looked: CandidateNode, method: Method
) -> tuple[Attempt, Seats] | DisruptionVerdict:
    """Finds places for the pods of a node that has to be removed, at any cost of the replacement.
    Returns the simulated removal (`Attempt`) and the new nodes. Returns a verdict instead if a pod
    has no place, or if its place depends on the zone of a pending node and this zone is not known
    yet.

    A pod goes to an existing node if it fits there, otherwise to a new node. With the method
    static-drift, all pods go to new nodes of the same pool, because a static pool keeps its number
    of nodes.
    """
    buying: Sequence[NodePoolPolicy] = run.buying
    if method == "static-drift":
        # Its pool keeps its number: one of the same pool comes for it, with all that is on it.
        attempt = Attempt((looked.name,), left=list(run.simulation.movers(looked.name)))
        buying = [msgspec.structs.replace(looked.pool, replicas=None)]
    else:
        attempt = run.simulation.without([looked.name], quiet=False)
    if attempt.waits:
        return DisruptionVerdict(looked.name, "Waits", WAITS)
    if not attempt.left:
        return attempt, Seats()
    found = seats(run.simulation, run.scene, attempt, buying, run.used, run.prices.type_index)
    if found.refusal:
        return DisruptionVerdict(
            looked.name, "NoRoom", f"{pods_of(attempt.left)} would need a new node: {found.refusal}"
        )
    return attempt, found
