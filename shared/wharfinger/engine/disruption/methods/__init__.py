"""Karpenter's disruption methods, without its limits on nodes and time: they find which nodes can
be removed, how, and why each other node stays.

One file per method, run in the order of `METHODS`; `forced` and `replacing` are shared by several.
`survey` runs one pass over the whole cluster. Each command is found in the state after the earlier
ones, so the commands are consistent in that order and keep the budgets together. `check` evaluates
a single command again when it is decided.

A node that receives pods is not removed in the same pass, or the pods would move twice. No limit on
the number of nodes is needed, because candidates that cannot save anything are ruled out by a lower
bound on the price (`price_bounds`) before they are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wharfinger.engine.disruption.candidates import CandidateNode
from wharfinger.engine.disruption.cluster_snapshot import (
    ClusterSnapshot,
    Command,
    ConsolidationResult,
    DisruptionVerdict,
    Method,
)
from wharfinger.engine.disruption.consolidation_pass import ConsolidationPass
from wharfinger.engine.disruption.methods import (
    drift,
    emptiness,
    expiration,
    multi_node,
    single_node,
    static,
)
from wharfinger.engine.disruption.methods.checking import checked
from wharfinger.engine.disruption.replacement import Planned

METHODS: tuple[Callable[[ConsolidationPass], None], ...] = (
    emptiness.find,  # first: no pod needs another place, so it spoils nothing for the others
    expiration.find,  # nodes that have to go, the longest expired first
    static.find,  # nodes of pools with a fixed number of them
    drift.find,  # nodes that have to go, after those that expired
    single_node.find,  # what pays, one node at a time
    multi_node.find,  # what pays only together, of the nodes that are left
)


def survey(scene: ClusterSnapshot) -> ConsolidationResult:
    """Runs one pass: returns the commands, in the order in which they must be carried out, and a
    verdict on every node. Deterministic: the same snapshot gives the same bytes on every machine.
    """
    run = ConsolidationPass(scene)
    for find in METHODS:
        find(run)
    return ConsolidationResult(tuple(run.commands), run.verdicts())


def check(
    scene: ClusterSnapshot,
    method: Method,
    nodes: Sequence[str],
    replacements: Sequence[Planned] = (),
) -> Command | DisruptionVerdict:
    """Validates a proposed disruption command (nodes to remove, with their replacements) against
    the present state of the cluster. Returns the command with its pod moves; or, if the command is
    refused, a verdict on the first node concerned that says why the node has to stay.

    The command is refused in these cases:

    - `nodes` is empty, or a node no longer exists or belongs to no node pool;
    - the disruption of a node is forbidden now: a reason on the node, the budget of its pool, or
      for consolidation the policy `Balanced`;
    - the pods have no place, or their places depend on the zone of a pending node and this zone is
      not known yet, or more new nodes are needed now than were proposed (fewer are accepted);
    - for consolidation: an instance type that was proposed no longer holds the pods, or is no
      longer cheap enough;
    - for expiry, drift and static pools: more than one node is named. The price is not checked.

    `scene`: the present state. `nodes`: the names of the nodes to remove. `replacements`: the new
      nodes as they were proposed.
    """
    if not nodes:
        return DisruptionVerdict("", "NothingToDo", "no nodes are named")
    run = ConsolidationPass(scene)
    going: list[CandidateNode] = []
    for name in nodes:
        looked = run.review.nodes.get(name)
        if looked is None:
            return DisruptionVerdict(
                name, "Changed", "it is not there any more, or belongs to no pool"
            )
        going.append(looked)
    return checked(run, method, going, replacements)
