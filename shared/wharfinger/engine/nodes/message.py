"""The sentence users of Kubernetes know, from the verdicts of all nodes: `0/5 nodes are available: 2 Insufficient cpu, ...`.

The words are those of the framework's plugins. Nodes are counted by verdict, and only where a verdict has several texts (which
taint, which resources) by what distinguishes them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from wharfinger.domain.resources import Device
from wharfinger.engine.devices.fit import could_ever
from wharfinger.engine.framework import messages
from wharfinger.engine.framework.plugins import (
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_unschedulable,
    pod_topology_spread,
)
from wharfinger.engine.framework.plugins.devices import NOT_ENOUGH_LEFT, NOT_THERE
from wharfinger.engine.framework.plugins.node_resources_fit import Lack
from wharfinger.engine.nodes.classes import PodClass, bears_taints
from wharfinger.engine.nodes.columns import Column
from wharfinger.engine.nodes.standing import (
    AVOIDED,
    CLAIMS,
    CONFLICT,
    CORDONED,
    DETAIL,
    GONE,
    LOADED,
    MINDED,
    NARROWED,
    NO_DEVICES,
    NO_DOMAIN,
    NODE_NAME,
    NOT_ADDED,
    NOT_CLAIMED,
    NOT_WITH,
    PLUGIN,
    PORTS,
    SHORT,
    SHORT_OF_DEVICES,
    SKEWED,
    TAINTED,
    VOLUMES,
)

if TYPE_CHECKING:
    from wharfinger.engine.nodes.place import Placer

TEXTS = {
    CORDONED: node_unschedulable.REASON,
    NARROWED: messages.narrowed_out(("NodeAffinity",)),
    NODE_NAME: node_name.REASON,
    NOT_ADDED: node_affinity.REASON_ADDED,
    NOT_CLAIMED: node_affinity.REASON,
    PORTS: node_ports.REASON,
    NO_DOMAIN: pod_topology_spread.REASON_NO_LABEL,
    SKEWED: pod_topology_spread.REASON,
    NOT_WITH: inter_pod_affinity.REASON_AFFINITY,
    AVOIDED: inter_pod_affinity.REASON_ANTI_AFFINITY,
    MINDED: inter_pod_affinity.REASON_OTHERS,
}


def message(placer: Placer, cls: PodClass) -> str:
    """Empty where a node is feasible."""
    table = placer.table
    if not table.rows:
        return messages.NO_NODES
    verdicts = placer.look(cls).verdicts[: table.size]
    if not verdicts.all():
        return ""
    head = f"0/{len(table.rows)} nodes are available:"
    details = verdicts % DETAIL
    if (details == CONFLICT).any():
        return f"{head} {node_affinity.REASON_CONFLICT}."
    counts: Counter[str] = Counter()
    for detail, count in enumerate(np.bincount(details, minlength=DETAIL).tolist()):
        if count and detail > GONE:
            counts.update(_texts(placer, cls, detail, np.flatnonzero(details == detail), count))
    return f"{head} {', '.join(sorted(f'{count} {text}' for text, count in counts.items()))}."


def _texts(placer: Placer, cls: PodClass, detail: int, slots: Column, count: int) -> dict[str, int]:
    if detail in TEXTS:
        return {TEXTS[detail]: count}
    match detail:
        case _ if detail == TAINTED:
            return _taints(placer, cls, slots)
        case _ if detail in (SHORT, SHORT_OF_DEVICES):
            return _lacking(placer, cls, slots)
        case _ if detail == LOADED:
            return _loads(placer, slots)
        case _ if detail == NO_DEVICES:
            return _devices(placer, cls, slots)
        case _:
            assert detail in (VOLUMES, CLAIMS, PLUGIN), "every verdict has its words"
            return _said(placer, cls, slots)


def _devices(placer: Placer, cls: PodClass, slots: Column) -> dict[str, int]:
    """Whether the node's devices would do if they were free, or never."""
    table, found = placer.table, Counter[str]()
    sorts: dict[tuple[int, ...], bool] = {}
    for slot in slots.tolist():
        row = table.by_slot[slot]
        assert row is not None, "a slot without a node is not refused"
        ever = sorts.get(row.groups)
        if ever is None:
            devices = [Device(table.groups[g][1], table.kinds[table.groups[g][0]]) for g in row.groups]
            ever = sorts[row.groups] = could_ever(devices, cls.requirements.devices)
        found[NOT_ENOUGH_LEFT if ever else NOT_THERE] += 1
    return found


def _taints(placer: Placer, cls: PodClass, slots: Column) -> dict[str, int]:
    table, tolerations = placer.table, cls.requirements.tolerations
    found: Counter[str] = Counter()
    for code, count in enumerate(np.bincount(table.taint_code[slots]).tolist()):
        if count:
            taint = next(t for t in table.taint_sets[code] if not bears_taints((t,), tolerations))
            found[f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"] += count
    return found


def _lacking(placer: Placer, cls: PodClass, slots: Column) -> dict[str, int]:
    table, found = placer.table, Counter[str]()
    asked = {row for row, _, checked in placer.forms.of(cls).asks if checked}
    for code, amount in cls.amounts:
        if code in asked:
            found[Lack(table.resources[code]).reason] += int((table.free[code][slots] < amount).sum())
    for kind, amount in cls.wholes:
        if -1 - kind in asked:
            found[Lack(table.kinds[kind]).reason] += int((table.whole_left[kind][slots] < amount).sum())
    return {text: count for text, count in found.items() if count}


def _loads(placer: Placer, slots: Column) -> dict[str, int]:
    """crane's text names the node, so that each has its own."""
    assert placer.loads is not None, "without measured load nobody is refused for it"
    found: dict[str, int] = {}
    for slot in slots.tolist():
        row = placer.table.by_slot[slot]
        assert row is not None, "a slot without a node is not refused"
        metric = placer.loads.metrics[int(placer.loads.metric[slot])]
        unknown = int(placer.loads.verdict[slot]) == 2
        found[f"Load[{metric}] of node[{row.name}] is {'unknown' if unknown else 'too high'}"] = 1
    return found


def _said(placer: Placer, cls: PodClass, slots: Column) -> dict[str, int]:
    question = placer.asked.of(cls)
    assert question is not None, "whoever is refused by a plugin has asked it"
    found: Counter[str] = Counter()
    for slot in slots.tolist():
        row = placer.table.by_slot[slot]
        if row is not None:
            found.update(question.said[row.name].reasons)
    return found
