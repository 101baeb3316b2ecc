"""*Multi-node consolidation* removes several nodes together, for fewer or cheaper new nodes. It is
tried on the nodes that single-node consolidation left. [Karpenter]"""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.engine.disruption.candidates import CandidateNode
from wharfinger.engine.disruption.consolidation_pass import ConsolidationPass
from wharfinger.engine.disruption.methods.replacing import replaced, wasteful

SET_SIZES = (2, 3, 4, 6, 8)
"""The sizes of the node sets that are tried. The nodes of a set are neighbours in the order of
`wasteful`."""


def find(run: ConsolidationPass) -> None:
    """Removes several nodes together where that saves money (multi-node consolidation). The
    commands are added to `run`.

    The candidate nodes with pods are sorted by (upper bound of the saving) / (disruption cost),
    highest first. At each position of this list the most promising set of nodes that starts there
    is tried (`_best_set`); if no set can save enough, the search goes on at the next position.
    After a set was tried, the search goes on behind the set, so no node is tried twice.
    """
    neighbours = [pair for pair in wasteful(run, run.consolidation_candidates) if pair[0].pods]
    at = 0
    while at < len(neighbours):
        going = _best_set(run, neighbours, at)
        if going is None:
            at += 1
            continue
        attempt = run.simulation.without([n.name for n in going], quiet=True)
        replaced(run, going, attempt, "multi-node")
        # nodes that failed together are not tried with others: each is looked at once
        at += len(going)


def _best_set(
    run: ConsolidationPass, neighbours: Sequence[tuple[CandidateNode, int]], at: int
) -> list[CandidateNode] | None:
    """Chooses how many successive nodes of the list `neighbours`, from index `at` on, to replace
    together. Returns these nodes; None: no number of nodes can save enough.

    The possible saving of a set is the price of its nodes minus a lower bound on the price of nodes
    for their pods. Of the sizes in `SET_SIZES`, the one with the highest (possible saving) /
    (disruption cost) is chosen, the smaller one on ties. A size is left out if its possible saving
    is below the minimum (`run.gain`). Sizes are tried in ascending order, up to the first that has
    too few nodes, exceeds a budget, or includes a node that receives pods in this pass.

    `neighbours`: (node, upper bound of its saving), sorted as in `find`.

    Example: nodes at $3, $3 and $2 with equal disruption costs. The pods of the first two need at
    least $4, those of all three at least $5. The possible savings are $2 for 2 nodes and $3 for 3
    nodes; both are $1 per node, so 2 nodes are chosen.
    """
    best, going = 0, None
    for size in SET_SIZES:
        part = [looked for looked, _ in neighbours[at : at + size]]
        if (
            len(part) < size
            or any(run.not_now(n, "multi-node") for n in part)
            or not run.within_budgets(part)
        ):
            break
        cpu, memory = (sum(amounts) for amounts in zip(*(n.asks() for n in part), strict=True))
        promise = sum(n.price for n in part) - run.floors.least(cpu, memory)
        score = promise * 1000 // sum(n.cost for n in part)
        if promise >= run.gain(sum(n.price for n in part)) and score > best:
            best, going = score, part
    return going
