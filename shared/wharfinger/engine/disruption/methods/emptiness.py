"""*Emptiness* removes nodes without pods that would have to move, or whose pods all have a
disruption cost of 0 or less and fit on other nodes. [Karpenter]"""

from __future__ import annotations

from wharfinger.engine.disruption.candidates import CandidateNode
from wharfinger.engine.disruption.cluster_snapshot import DisruptionVerdict, Method
from wharfinger.engine.disruption.consolidation_pass import WAITS, ConsolidationPass
from wharfinger.engine.disruption.costs import UNIT
from wharfinger.engine.disruption.replacement import Seats


def find(run: ConsolidationPass) -> None:
    for looked in run.open("emptiness"):
        if looked.cost <= UNIT:
            remove_if_placed(run, looked, "emptiness")


def remove_if_placed(run: ConsolidationPass, looked: CandidateNode, method: Method) -> None:
    """Removes one node if all its pods fit on other existing nodes, without new nodes. If the node
    is not removed, a verdict that says why is recorded.

    The node also stays in these cases: it receives pods in this pass; the budget of its pool is
    used up; one of its pods has affinity or spread constraints over zones, and the zone of a
    pending node is not known yet; or, with single-node consolidation and the policy `Balanced`, the
    saving is too small for the disruption.
    """
    if run.not_now(looked, method):
        return
    if looked.pods and not run.worth_it([looked], looked.price, method):
        return
    attempt = run.simulation.without([looked.name], quiet=True, need_all=True)
    if attempt.waits:
        run.say(looked, "Waits", WAITS)
        return
    if attempt.left:
        run.say(looked, "NoRoom", run.no_room(attempt.left[0]))
        return
    run.take(method, [looked], attempt, Seats(), looked.price)


def not_now(run: ConsolidationPass, looked: CandidateNode) -> DisruptionVerdict | None:
    if looked.cost > UNIT:
        return DisruptionVerdict(
            looked.name, "NotEmpty", f"{len(looked.pods)} pods on it would have to move"
        )
    return None
