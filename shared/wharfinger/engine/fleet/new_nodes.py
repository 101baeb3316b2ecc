"""Adds capacity that can be provisioned: nodes that the node pools of clusters could create.

Existing capacity is used first. Only the replicas that do not fit are counted on new nodes, in the
cheapest clusters first. The estimates of these clusters are raised by exactly that number; then the
binding's own strategy divides as always. If this fails (the spread needs other clusters than the
cheapest), estimates are raised by all replicas for which nodes could be created. Replicas assigned
beyond present capacity wait in their cluster for the new nodes. If none are created, the cluster
refuses them, and the class is closed there as after any refusal.

This is skipped while no cluster has pools with known prices, for component sets, and with `strict`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from wharfinger.engine.fleet.assign import ReplicaDivision, Unassignable, assign
from wharfinger.engine.fleet.question import Estimates, NewNodes, Question, Term
from wharfinger.engine.fleet.room import exceeds

NAMED = 3
"""Maximum number of clusters that a note names."""


class Raised(msgspec.Struct, frozen=True):
    """Holds an assignment that may rely on nodes to be provisioned. `outcome`: the division over
    `term`. `free`: cluster -> how many replicas fit without new nodes, for the clusters that could
    create nodes; empty if no estimate was raised."""

    term: Term
    outcome: ReplicaDivision | Unassignable
    free: Mapping[str, int] = {}

    def note(self, targets: Mapping[str, int], held: Mapping[str, int]) -> str:
        """Returns a sentence that says how many replicas wait for new nodes, and in which clusters.
        Empty: no replica waits.

        In each cluster that could create nodes, replicas wait if it gets more new replicas than fit
        without new nodes. At most `NAMED` clusters are named.

        `targets`, `held`: cluster -> replicas after and before the decision.

        Example: a cluster held 2 replicas and gets 7; 3 more fit without new nodes. 7 - 2 - 3 = 2
        replicas wait.
        """
        waiting = {
            c: n
            for c, fits in self.free.items()
            if (n := targets.get(c, 0) - held.get(c, 0) - max(0, fits)) > 0
        }
        if not waiting:
            return ""
        named = ", ".join([*waiting][:NAMED]) + (
            f" and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
        )
        return f"{sum(waiting.values()):,} replicas wait for new nodes in {named}"


def assign_on_new_nodes(question: Question, term: Term) -> Raised:
    """Assigns the replicas to clusters by existing capacity. If that does not suffice, it adds
    replicas that new nodes of the node pools could hold to the estimates, and assigns again.
    Returns, among others, the assignment and the estimates that it was computed from.

    There are two attempts with new nodes:

    1. Raise the estimates of the cheapest clusters, in sum by the number of missing replicas.
    2. Raise the estimate of every cluster by the number of replicas that its new nodes could hold.

    Static weights and Duplicated divide without considering capacity, so only the second attempt is
    made for these strategies. It is made if the division failed, exceeds the existing capacity or
    leaves replicas out. If all attempts fail, or no node can be created, returns the result by
    existing capacity.

    `term`: the affinity term with its feasible clusters, and how many more replicas fit into each
      (the estimates).

    Example: 10 replicas are wanted, none is held and 6 fit. A cheap cluster could hold 3 on new
    nodes, an expensive one 10. The first attempt raises the estimates by 3 and 1.
    """
    outcome = assign(question, term)
    if question.new_nodes is None:
        return Raised(term, outcome)
    # A strategy that divides without a look at room is cut to it afterwards.
    regardless = question.placement.replicas.weighed or (
        question.placement.replicas.type == "Duplicated"
    )
    if isinstance(outcome, ReplicaDivision) and not (
        regardless and _is_short(question, outcome, term)
    ):
        return Raised(term, outcome)
    fit, estimates = term.feasible, term.estimates
    made = {fit.at(m.cluster): m for m in question.new_nodes()}
    made.pop(-1, None)
    if not made:
        return Raised(term, outcome)
    free = {m.cluster: int(estimates[i]) for i, m in made.items()}
    wanted = [{m.cluster: m.count for m in made.values()}]
    if not regardless:
        kept = sum([n for c, n in question.held.items() if fit.at(c) >= 0])
        missing = question.replicas - kept - sum([max(0, int(n)) for n in estimates])
        wanted.insert(0, cheapest_first([*made.values()], missing))
    for share in wanted:
        raised = msgspec.structs.replace(term, estimates=_raised(estimates, made, share))
        found = assign(question, raised)
        if isinstance(found, ReplicaDivision):
            return Raised(raised, found, free)
    return Raised(term, outcome)


def _is_short(question: Question, outcome: ReplicaDivision, term: Term) -> bool:
    """Returns whether the clusters have too little existing capacity for this division, which was
    made by a strategy that ignores capacity."""
    fit = term.feasible
    return exceeds(question, fit.names, term.estimates, outcome.replicas) or (
        question.placement.replicas.weighed and sum(outcome.replicas.values()) < question.replicas
    )


def _raised(
    estimates: Estimates, made: Mapping[int, NewNodes], share: Mapping[str, int]
) -> Estimates:
    more = estimates.copy() if not isinstance(estimates, Sequence) else [*estimates]
    for i, m in made.items():
        more[i] = max(0, int(more[i])) + share.get(m.cluster, 0)
    return more


def cheapest_first(made: Sequence[NewNodes], missing: int) -> dict[str, int]:
    """Distributes `missing` replicas over the clusters that could create nodes, and returns cluster
    -> replicas. Clusters that get no replicas are left out.

    The distribution is greedy: each cluster gets as many replicas as its new nodes could hold, the
    cheapest cluster first. Clusters with an unknown price come last. Ties: the first name.

    `made`: for each cluster, how many replicas its new nodes could hold, and the price of one
      replica (billionths of a dollar per hour).

    Example: 5 replicas are missing. A could hold 3 at price 2, B 10 at price 4. The result is A 3,
    B 2.
    """
    given: dict[str, int] = {}
    for m in sorted(made, key=lambda m: (m.price is None, m.price or 0, m.cluster)):
        if (n := min(m.count, missing)) > 0:
            given[m.cluster] = n
            missing -= n
    return given
