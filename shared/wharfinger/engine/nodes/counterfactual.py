"""The smallest changes that would make a refused node feasible for a replica, by bisection
(`rules.changes`).

A change is a class with smaller requests, or changed facts, evaluated again. The rule itself knows
what would undo a refusal by a fact (its method `undo`). Amounts are the same for every rule that
compares them, so smaller requests and more free resources are searched here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from wharfinger.domain.node import Node
from wharfinger.domain.resources import is_of_nodes
from wharfinger.domain.taints import Taint
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.protocols import Plugin
from wharfinger.engine.nodes.classes import PodClass, compile_class
from wharfinger.engine.nodes.columns import PODS, NodeRow, NodeTable, clamped
from wharfinger.engine.nodes.fit import fits
from wharfinger.rules.changes import (
    Change,
    ChangeKind,
    ChangeSet,
    less_asked,
    more,
    smallest,
    smallest_first,
)

FIRST: tuple[ChangeKind, ...] = ("state", "label")
"""The changes of the node come before those of the workload."""


@dataclass(frozen=True, slots=True)
class RefusedNode:
    """A node and a class of pods that it may have refused: the input of a rule's `undo`."""

    table: NodeTable
    row: NodeRow
    node: Node
    cls: PodClass

    @property
    def asked(self) -> Requirements:
        return self.cls.requirements

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.table.taint_sets[self.row.taint_code]


def short_of(table: NodeTable, row: NodeRow, cls: PodClass) -> dict[str, int]:
    """Returns resource -> amount that the node lacks for one replica."""
    return {
        table.resources[code]: amount - row.free[code]
        for code, amount in cls.amounts
        if row.free[code] < amount
    }


def ways_in(
    table: NodeTable, row: NodeRow, node: Node, cls: PodClass, rules: Iterable[Plugin]
) -> tuple[ChangeSet, ...]:
    """Returns the sets of changes that would make a node feasible for one replica, the smallest set
    first. Each set is an alternative; all changes of a set are needed together. The result is empty
    if the node is feasible now, or if no change helps.

    Each set contains all changes of node or workload properties (labels, taints, tolerations, ...)
    that are needed. If resources are missing too, each set also contains one remedy for resources:
    smaller requests, or more free resources on the node.

    - `row`, `node`: the node, as a row of the table and as it was reported. `cls`: the class of the
      replica.
    - `rules`: the rules of the profile. A rule without a method `undo` cannot say which changes
      help, so it is ignored.

    Example: a node lacks 500 milli-CPU and has a taint. One set is to tolerate the taint and to
    request 500 milli-CPU less. The other set is to tolerate the taint and to free 500 milli-CPU.
    """
    facts = _facts_changed(RefusedNode(table, row, node, cls), rules)
    if facts is None:
        return ()
    if fits(row, cls):
        return (facts,) if facts else ()
    usage = less_asked(cls.requirements, lambda asked: _fits(table, row, cls, asked))
    missing = _more_free(table, row, cls)
    if missing:
        usage.append(missing)
    return smallest_first([(*facts, *way) for way in usage], cls.requirements)


def _facts_changed(refused: RefusedNode, rules: Iterable[Plugin]) -> ChangeSet | None:
    """Collects the changes of node or workload properties (labels, taints, tolerations, ...) that
    undo every refusal of one node for one class of pods. Returns the changes, all of which are
    needed: first changes of the node, then changes of the workload. Empty: no change is needed.
    None: one of the refusals cannot be undone.

    `refused`: the node and the class. `rules`: the rules of the profile; a rule without a method
    `undo` is ignored.
    """
    changes: list[Change] = []
    if refused.row.closed and not refused.node.unschedulable:
        changes.append(Change("state", refused.row.name, "the node not being taken away"))
    for rule in rules:
        if hasattr(rule, "undo"):
            undone: ChangeSet | None = rule.undo(refused)
            if undone is None:
                return None
            changes += undone
    return tuple(
        sorted(changes, key=lambda c: FIRST.index(c.kind) if c.kind in FIRST else len(FIRST))
    )


def _fits(table: NodeTable, row: NodeRow, cls: PodClass, asked: Requirements) -> bool:
    """Returns whether the node has enough free amounts and devices for changed requirements. If the
    devices are unchanged, which is the usual case, only the amounts are compiled again."""
    if asked.devices != cls.requirements.devices:
        return fits(row, compile_class(table, asked, "counterfactual"))
    amounts = {
        table.resource_codes[name]: clamped(amount)
        for name, amount in asked.requests.items()
        if amount > 0 and is_of_nodes(name)
    }
    amounts.setdefault(PODS, 1)
    return fits(row, replace(cls, amounts=tuple(amounts.items())))


def _more_free(table: NodeTable, row: NodeRow, cls: PodClass) -> ChangeSet:
    """Finds the smallest additional free amount of each resource that one replica lacks on a node,
    by exponential and binary search. Returns one change per lacking resource. Returns no changes if
    no resource is lacking, or if the replica would not fit even with these amounts because devices
    are missing too (devices cannot be added).

    `row`: the node. `cls`: the class of the replica. Example: 2500 milli-CPU are free and 4000 are
    requested. The change is 1500 milli-CPU more.
    """
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
    return tuple(changes) if changes and fits(other, cls) else ()


def _copy(row: NodeRow) -> NodeRow:
    other = NodeRow(row.slot, row.name)
    other.free, other.groups, other.device_free = list(row.free), row.groups, list(row.device_free)
    other.sole_group = row.sole_group
    return other
