"""*Drift* replaces nodes that differ from what their pool would create now, regardless of cost.
Empty nodes go first, then the oldest. [Karpenter]"""

from __future__ import annotations

from wharfinger.engine.disruption.candidates import CandidateNode
from wharfinger.engine.disruption.consolidation_pass import ConsolidationPass
from wharfinger.engine.disruption.methods.forced import replace_at_any_price


def find(run: ConsolidationPass) -> None:
    drifted = [looked for looked in run.open("drift") if looked.drifted]
    for looked in sorted(drifted, key=oldest_first):
        replace_at_any_price(run, looked, "drift")


def oldest_first(looked: CandidateNode) -> tuple[bool, int, str]:
    """Returns the sort key of a node: nodes without pods to move come first, then the oldest, then
    by name."""
    return bool(looked.pods), looked.node.created_us, looked.name
