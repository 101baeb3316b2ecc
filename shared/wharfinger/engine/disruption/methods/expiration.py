"""*Expiration* replaces nodes that are older than their pool's `expireAfter`, regardless of cost
and budgets. The longest expired goes first. [Karpenter]"""

from __future__ import annotations

from wharfinger.engine.disruption.candidates import CandidateNode
from wharfinger.engine.disruption.cluster_snapshot import DisruptionVerdict
from wharfinger.engine.disruption.consolidation_pass import ConsolidationPass
from wharfinger.engine.disruption.methods.forced import replace_at_any_price


def find(run: ConsolidationPass) -> None:
    at = run.scene.at
    due = [looked for looked in run.open("expiry") if looked.expires and looked.expires <= at]
    for looked in sorted(due, key=lambda n: (n.expires, n.name)):
        replace_at_any_price(run, looked, "expiry")


def not_now(run: ConsolidationPass, looked: CandidateNode) -> DisruptionVerdict | None:
    if looked.expires and looked.expires <= run.scene.at:
        return None
    return DisruptionVerdict(looked.name, "NotExpired", "it has not expired", looked.expires)
