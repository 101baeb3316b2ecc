"""*Single-node consolidation* removes a node whose pods fit on other nodes, or for which cheaper
new nodes can hold the pods that do not fit. [Karpenter]"""

from __future__ import annotations

from wharfinger.engine.disruption.candidates import CandidateNode
from wharfinger.engine.disruption.consolidation_pass import ConsolidationPass
from wharfinger.engine.disruption.methods.emptiness import remove_if_placed
from wharfinger.engine.disruption.methods.replacing import replaced, wasteful


def find(run: ConsolidationPass) -> None:
    """Removes single nodes where that saves money, in two steps. First it removes the nodes whose
    pods all fit on other nodes, the highest price per disruption cost first. Then it tries to
    replace each of the remaining nodes by cheaper new nodes."""
    candidates = run.consolidation_candidates
    for looked in candidates:
        remove_if_placed(run, looked, "single-node")
    for looked, _ in wasteful(run, candidates):
        _replace(run, looked)


def _replace(run: ConsolidationPass, looked: CandidateNode) -> None:
    """Replaces the node by cheaper new nodes. Its pods go to other existing nodes where they fit;
    the new nodes take the rest. Does nothing if the node has no pods to move or may not be
    disrupted now."""
    if run.not_now(looked, "single-node") or not looked.pods:
        return
    attempt = run.simulation.without([looked.name], quiet=True)
    replaced(run, [looked], attempt, "single-node")
