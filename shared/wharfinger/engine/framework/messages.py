"""The sentence that users of Kubernetes know: `0/5 nodes are available: 2 Insufficient cpu, 3 node(s) were unschedulable.`

Reasons are counted over nodes and sorted as texts, so that "10 Too many pods" comes before "2 Insufficient cpu": it is the
order that people's searches and alerts expect. [kube-scheduler]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from wharfinger.engine.framework.status import Status

NO_NODES = "no nodes available to schedule pods"


def unavailable(nodes: int, refused: Mapping[str, Status], rejected: Status | None = None) -> str:
    """`nodes`: how many there are; `refused`: node -> why it is out of the question. `rejected`: a pre-filter's
    refusal of the pod as a whole; its text is said once, in place of the nodes'."""
    if nodes == 0 and rejected is None:
        return NO_NODES
    head = f"0/{nodes} nodes are available:"
    if rejected is not None:
        return f"{head} {', '.join(rejected.reasons)}."
    counted = counted_reasons(refused.values())
    return f"{head} {', '.join(counted)}." if counted else head


def counted_reasons(statuses: Iterable[Status]) -> list[str]:
    """`<count> <reason>`, sorted as texts."""
    counts = Counter(reason for status in statuses for reason in status.reasons)
    return sorted(f"{count} {reason}" for reason, count in counts.items())


def with_post_filter(message: str, said: Sequence[str]) -> str:
    """The sentence with what the post-filters added to it."""
    return f"{message} {', '.join(said)}" if said else message


def narrowed_out(plugins: Iterable[str]) -> str:
    """The reason of a node that is not among those which pre-filters left."""
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}]"


def narrowed_to_nothing(plugins: Iterable[str]) -> str:
    """The reason of all nodes, where the pre-filters leave none together."""
    names = sorted(plugins)
    if len(names) == 1:
        return f"node(s) didn't satisfy plugin {names[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
