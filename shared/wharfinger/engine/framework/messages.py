"""Builds kube-scheduler's event message: `0/5 nodes are available: 2 Insufficient cpu, 3 node(s)
were unschedulable.`

The message counts on how many nodes each reason occurs. The parts are sorted as strings, so "10 Too
many pods" comes before "2 Insufficient cpu", as users' searches and alerts expect. [kube-scheduler]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from wharfinger.engine.framework.status import Status

NO_NODES = "no nodes available to schedule pods"


def unavailable(nodes: int, refused: Mapping[str, Status], rejected: Status | None = None) -> str:
    """Build the event message for a pod without a feasible node. `nodes`: number of all nodes.
    `refused`: node -> refusal. `rejected`: a pre-filter's refusal of the pod; the message then has
    its reasons once, without counts, instead of the nodes' reasons."""
    if nodes == 0 and rejected is None:
        return NO_NODES
    head = f"0/{nodes} nodes are available:"
    if rejected is not None:
        return f"{head} {', '.join(rejected.reasons)}."
    counted = counted_reasons(refused.values())
    return f"{head} {', '.join(counted)}." if counted else head


def counted_reasons(statuses: Iterable[Status]) -> list[str]:
    """Count equal reasons and return one text `<count> <reason>` for each, sorted as strings."""
    counts = Counter(reason for status in statuses for reason in status.reasons)
    return sorted(f"{count} {reason}" for reason, count in counts.items())


def with_post_filter(message: str, said: Sequence[str]) -> str:
    """Append the post-filters' reasons `said` to the event message."""
    return f"{message} {', '.join(said)}" if said else message


def narrowed_out(plugins: Iterable[str]) -> str:
    """Return the refusal reason for a node that is outside the set of nodes that pre-filters
    restrict the search to. `plugins`: these pre-filters."""
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}]"


def narrowed_to_nothing(plugins: Iterable[str]) -> str:
    """Return the refusal reason for all nodes, where pre-filters restrict the search to sets with
    no node in common. `plugins`: these pre-filters."""
    names = sorted(plugins)
    if len(names) == 1:
        return f"node(s) didn't satisfy plugin {names[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
