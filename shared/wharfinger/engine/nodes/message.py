"""kube-scheduler's event message from the verdicts of all nodes: `0/5 nodes are available: 2
Insufficient cpu, ...`.

The texts come from the rules. Nodes are counted by verdict; a verdict with several texts (which
taint, which resources) is counted by text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from wharfinger.engine.framework import messages
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column
from wharfinger.engine.nodes.place import Placer
from wharfinger.engine.nodes.verdicts import DETAIL, NodeVerdict, RefusedNodes


def message(placer: Placer, cls: PodClass) -> str:
    """Returns kube-scheduler's message why no node is feasible for the class; empty: a node is
    feasible. In a cluster without nodes, the message says that there are none.

    The message counts the refused nodes by cause, and lists the causes sorted as text. If the pod
    itself is the cause (its requirements contradict each other), the message has only this cause,
    without a number of nodes. `placer`: evaluates the nodes. Example: `0/3 nodes are available: 1
    Insufficient cpu, 2 node(s) were unschedulable.`
    """
    table = placer.table
    if not table.rows:
        return messages.NO_NODES
    verdicts = placer.look(cls).verdicts[: table.size]
    if not verdicts.all():
        return ""
    head = f"0/{len(table.rows)} nodes are available:"
    details = verdicts % DETAIL
    counts: Counter[str] = Counter()
    for detail, count in enumerate(np.bincount(details, minlength=DETAIL).tolist()):
        verdict = placer.rules.codes.by_detail[detail] if count else None
        if verdict is None:
            continue
        if verdict.of_pod:
            return f"{head} {verdict.text}."
        counts.update(_sentences(placer, cls, verdict, np.flatnonzero(details == detail), count))
    return f"{head} {', '.join(sorted(f'{count} {text}' for text, count in counts.items()))}."


def _sentences(
    placer: Placer, cls: PodClass, verdict: NodeVerdict, slots: Column, count: int
) -> Mapping[str, int]:
    if verdict.words is None:
        return {verdict.text: count}
    asked = placer.fallback.of(cls)
    answers = (
        {} if asked is None else {name: status.reasons for name, status in asked.answers.items()}
    )
    refused = RefusedNodes(
        placer.table, cls, slots, placer.resources.of(cls).checked, placer.loads, answers
    )
    return verdict.words(refused)
