"""Why a node was refused, all reasons of it, and the smallest change that would have let a replica in.

The answers come from the very functions that place: `fit.usage_verdict` for what is free, `classes` for claims and taints. A
change is a class that asks a little less, or facts that are a little otherwise, and the same question asked once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wharfinger.domain.node import Node
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.resources import is_of_nodes
from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.workload import Requirements
from wharfinger.engine.changes import Change, Way, less_asked, more, smallest, smallest_first
from wharfinger.engine.fleet.counterfactual import label, satisfying, tolerating, toleration
from wharfinger.engine.nodes.classes import PodClass, bears_taints, claims_hold, compile_class, is_barred
from wharfinger.engine.nodes.columns import PODS, NodeRow, NodeTable, clamped
from wharfinger.engine.nodes.fit import take_devices, usage_verdict


def refusals(table: NodeTable, row: NodeRow, cls: PodClass) -> tuple[NodeReason, ...]:
    """Every reason, in the order in which the first is found; empty: feasible."""
    asked = cls.requirements
    found: list[NodeReason] = []
    if is_barred(row, asked.tolerations):
        found.append("Unschedulable")
    if not claims_hold(asked, row.labels, row.name):
        found.append("NodeAffinity")
    if not bears_taints(table.taint_sets[row.taint_code], asked.tolerations):
        found.append("TaintToleration")
    if any(row.free[code] < amount for code, amount in cls.amounts):
        found.append("InsufficientResources")
    if cls.needs and take_devices(row, cls.needs) is None:
        found.append("InsufficientDevices")
    return tuple(found)


def short_of(table: NodeTable, row: NodeRow, cls: PodClass) -> dict[str, int]:
    """resource -> how much of it is missing for one replica."""
    return {table.resources[code]: amount - row.free[code] for code, amount in cls.amounts if row.free[code] < amount}


def ways_in(table: NodeTable, row: NodeRow, node: Node, cls: PodClass) -> tuple[Way, ...]:
    """What would have made the node feasible for one replica, smallest first. Empty: it is, or nothing would."""
    facts = tuple(_facts_otherwise(table, row, node, cls.requirements))
    if not _facts_hold(table, row, cls.requirements) and not facts:
        return ()
    if usage_verdict(row, cls) == 0:
        return (facts,) if facts else ()
    usage = less_asked(cls.requirements, lambda asked: _fits(table, row, cls, asked))
    missing = _more_free(table, row, cls)
    if missing:
        usage.append(missing)
    return smallest_first([(*facts, *way) for way in usage], cls.requirements)


def _fits(table: NodeTable, row: NodeRow, cls: PodClass, asked: Requirements) -> bool:
    """Compiled as classes are; where only amounts differ, which is what is tried most, from the class that is there."""
    if asked.devices != cls.requirements.devices:
        return usage_verdict(row, compile_class(table, asked, "counterfactual")) == 0
    amounts = {
        table.resource_codes[name]: clamped(amount)
        for name, amount in asked.requests.items()
        if amount > 0 and is_of_nodes(name)
    }
    amounts.setdefault(PODS, 1)
    return usage_verdict(row, replace(cls, amounts=tuple(amounts.items()))) == 0


def _facts_hold(table: NodeTable, row: NodeRow, asked: Requirements) -> bool:
    return (
        not is_barred(row, asked.tolerations)
        and claims_hold(asked, row.labels, row.name)
        and bears_taints(table.taint_sets[row.taint_code], asked.tolerations)
    )


def _facts_otherwise(table: NodeTable, row: NodeRow, node: Node, asked: Requirements) -> Iterator[Change]:
    """What of the node or the workload would have to be otherwise, each of it necessary. Nothing where some of it cannot be."""
    changes: list[Change] = []
    if is_barred(row, asked.tolerations):
        closed = row.closed and not node.unschedulable  # by a removal that was decided
        text = "the node not being taken away" if closed else "the node being uncordoned"
        changes.append(Change("state", row.name, text))
    if not claims_hold(asked, row.labels, row.name):
        labels = _labels_otherwise(asked, row)
        if labels is None:
            return
        changes += labels
    tolerations = asked.tolerations
    for taint in table.taint_sets[row.taint_code]:
        if not bears_taints((taint,), tolerations):
            tolerations = (*[t for t in tolerations if not t.tolerates(taint)], tolerating(taint))
            changes.append(toleration(taint))
    if bears_taints(table.taint_sets[row.taint_code], tolerations):
        yield from changes


def _labels_otherwise(asked: Requirements, row: NodeRow) -> list[Change] | None:
    """The labels the node lacks: of the selector all, of the terms those of the one that lacks fewest."""
    changes = [label(k, v) for k, v in sorted(asked.node_selector.items()) if row.labels.get(k) != v]
    labels = {**row.labels, **asked.node_selector}
    best: tuple[int, list[Change], dict[str, str]] | None = None
    for term in asked.node_terms:
        found = _term_otherwise(term, labels, row.name)
        if found is not None and (best is None or len(found[0]) < best[0]):
            best = (len(found[0]), *found)
    if best is not None:
        changes, labels = changes + best[1], best[2]
    return changes if claims_hold(asked, labels, row.name) else None


def _term_otherwise(term: NodeTerm, labels: dict[str, str], name: str) -> tuple[list[Change], dict[str, str]] | None:
    changes: list[Change] = []
    for requirement in term.expressions:
        if requirement.holds(labels):
            continue
        found = satisfying(requirement)
        if found is None:
            return None
        change, value = found
        changes.append(change)
        labels = {k: v for k, v in labels.items() if k != requirement.key}
        if value is not None:
            labels[requirement.key] = value
    return (changes, labels) if term.matches(labels, name) else None


def _more_free(table: NodeTable, row: NodeRow, cls: PodClass) -> Way:
    """Of every resource that is short the smallest amount more with which the node would do; devices cannot be added to."""
    changes: list[Change] = []
    other = _copy(row)
    for name, missing in sorted(short_of(table, row, cls).items()):
        code = table.resource_codes[name]
        need = next(amount for c, amount in cls.amounts if c == code)

        def holds(extra: int, code: int = code, need: int = need) -> bool:
            return row.free[code] + extra >= need

        extra = smallest(1, missing, holds)
        if extra is None:
            return ()
        changes.append(more(name, extra))
        other.free[code] += extra
    return tuple(changes) if changes and usage_verdict(other, cls) == 0 else ()


def _copy(row: NodeRow) -> NodeRow:
    other = NodeRow(row.slot, row.name)
    other.free, other.groups, other.device_free = list(row.free), row.groups, list(row.device_free)
    other.sole_group = row.sole_group
    return other
