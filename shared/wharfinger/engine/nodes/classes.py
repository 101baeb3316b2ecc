"""Requirements compiled against one cluster's table: names become column numbers, claims become a verdict per node.

A *requirement class* is compiled once and used for every replica that asks the same. What a node's facts say about it
(cordon, selector, affinity, taints) changes rarely and is kept as a column of verdicts, brought up to date from the
table's `facts` log. What is free changes always and is nobody's business here: see `fit` and `place`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.resources import DEVICE_MILLI, DeviceRequest, is_of_nodes
from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.snapshot import scored
from wharfinger.engine.nodes.columns import (
    PODS,
    Column,
    DeviceView,
    NodeRow,
    NodeTable,
    clamped,
)
from wharfinger.engine.nodes.tallies import Tally

UNSCHEDULABLE, NODE_AFFINITY, TAINT_TOLERATION, INSUFFICIENT_RESOURCES, INSUFFICIENT_DEVICES, ABSENT = (
    -1, -2, -3, -4, -5, -7,
)  # fmt: skip
"""Verdicts: 0 and more is feasible. In the order of `domain.reasons.NodeReason` (-6 there is measured load, a later
filter); ABSENT marks a slot without a node."""

CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


@dataclass(frozen=True, slots=True)
class DeviceNeed:
    """`count` different devices of a view, each with at least `milli` thousandths free (1000: entirely free)."""

    view: DeviceView
    count: int
    milli: int


@dataclass(slots=True, eq=False)
class PodClass:
    """A compiled requirement class.

    `key`: of the requirement class, by which estimates go; `pod_key`: of all that others can see of such a pod.
    `amounts`: (column, amount > 0), always with one of `pods`. `scored`: cpu and memory as scoring counts them.
    `wholes`: (device kind, whole devices). `kinds`: (device kind, thousandths asked in all). `claims`: its node
    claims, tolerations and node preferences as bytes: classes with equal ones see the same in a node's facts.
    `terminating`: about to end. `simple`: its device fit is one comparison per node; a class that asks for several
    sorts of devices, or for shares of several devices at once, is looked at node by node. `claiming`: it selects
    nodes."""

    key: str
    pod_key: str
    requirements: Requirements
    traits: PodTraits
    amounts: tuple[tuple[int, int], ...]
    scored: tuple[int, int]
    wholes: tuple[tuple[int, int], ...]
    needs: tuple[DeviceNeed, ...]
    kinds: tuple[tuple[int, int], ...]
    simple: bool
    claiming: bool
    seed: int
    claims: bytes
    terminating: bool = False
    tallies: list[tuple[Tally, int]] = field(default_factory=list)
    looked: tuple[int, int] = (-1, 0)
    verdicts: Column = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    position: int = -1
    _taints: dict[int, bool] = field(default_factory=dict)
    _claims: dict[tuple[str | None, ...], bool] = field(default_factory=dict)
    _keys: tuple[str, ...] | None = None

    def facts(self, table: NodeTable) -> Column:
        """The verdict of each slot as far as facts go: 0, or the first reason against it."""
        log = table.facts
        if self.position == log.end and len(self.verdicts) >= table.size:
            return self.verdicts
        touched = log.since(self.position) if self.position >= 0 else None
        if len(self.verdicts) < table.size:
            grown = np.full(table.capacity, ABSENT, dtype=np.int64)
            grown[: len(self.verdicts)] = self.verdicts
            self.verdicts = grown
        if self.claiming:
            slots = list(range(table.size) if touched is None else set(touched.tolist()))
            rows = [table.by_slot[slot] for slot in slots]
            self.verdicts[slots] = [ABSENT if row is None else self.verdict(table, row) for row in rows]
        else:
            self._judge_without_claims(table, np.arange(table.size) if touched is None else touched)
        self.position = log.end
        return self.verdicts

    def _judge_without_claims(self, table: NodeTable, slots: Column) -> None:
        """As `verdict`, for a class that looks at no labels: a few columns instead of a walk over the nodes."""
        bears = np.array([code == 0 or self._bears(table, code) for code in range(len(table.taint_sets))])
        judged = np.where(bears[table.taint_code.take(slots)], 0, TAINT_TOLERATION)
        barred = table.closed if bears_cordon(self.requirements.tolerations) else table.cordoned
        judged[barred.take(slots)] = UNSCHEDULABLE
        judged[~table.present.take(slots)] = ABSENT
        self.verdicts[slots] = judged

    def verdict(self, table: NodeTable, row: NodeRow) -> int:
        if row.unschedulable and is_barred(row, self.requirements.tolerations):
            return UNSCHEDULABLE
        if self.claiming and not self._claims_hold(row):
            return NODE_AFFINITY
        if row.taint_code and not self._bears(table, row.taint_code):
            return TAINT_TOLERATION
        return 0

    def _claims_hold(self, row: NodeRow) -> bool:
        keys = self._keys
        if keys is None:
            keys = self._keys = _label_keys(self.requirements)
        by_name = self.traits.node_name or any(term.fields for term in self.requirements.node_terms)
        seen = (row.name if by_name else None, *[row.labels.get(key) for key in keys])
        holds = self._claims.get(seen)
        if holds is None:
            holds = self._claims[seen] = claims_hold(self.requirements, row.labels, row.name)
        return holds

    def _bears(self, table: NodeTable, code: int) -> bool:
        bears = self._taints.get(code)
        if bears is None:
            bears = self._taints[code] = bears_taints(table.taint_sets[code], self.requirements.tolerations)
        return bears


def is_barred(row: NodeRow, tolerations: tuple[Toleration, ...]) -> bool:
    """Whether the node takes no new replicas of whoever bears this much."""
    return row.closed or (row.unschedulable and not bears_cordon(tolerations))


def bears_cordon(tolerations: tuple[Toleration, ...]) -> bool:
    """A cordon is borne by whoever tolerates the taint that stands for it, as the kube-scheduler has it."""
    return any(t.tolerates(CORDON) for t in tolerations)


def claims_hold(requirements: Requirements, labels: dict[str, str], name: str) -> bool:
    """The node selector, the name of the node where one is asked for and, where there are terms, at least one of them."""
    if any(labels.get(k) != v for k, v in requirements.node_selector.items()):
        return False
    if requirements.traits.node_name not in ("", name):
        return False
    terms: tuple[NodeTerm, ...] = requirements.node_terms
    return not terms or any(term.matches(labels, name) for term in terms)


def bears_taints(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    """No NoSchedule or NoExecute taint without a toleration. A NoExecute toleration of zero seconds bears nothing: a
    replica placed there would have to leave at once."""
    for taint in taints:
        if taint.effect == "PreferNoSchedule":
            continue
        matching = [t for t in tolerations if t.tolerates(taint)]
        if not matching:
            return False
        if taint.effect == "NoExecute" and any(t.seconds is not None and t.seconds <= 0 for t in matching):
            return False
    return True


def compile_class(
    table: NodeTable, requirements: Requirements, key: str, pod_key: str = "", terminating: bool = False
) -> PodClass:
    """Negative and zero amounts ask for nothing, nor does what no node has; a device request asks for nothing when its count or
    share is not positive."""
    amounts = {
        table.resource(name): clamped(amount)
        for name, amount in requirements.requests.items()
        if amount > 0 and is_of_nodes(name)
    }
    amounts.setdefault(PODS, 1)
    needs = _needs(table, requirements.devices)
    wholes: dict[int, int] = {}
    for request in requirements.devices:
        if request.milli >= DEVICE_MILLI and request.count > 0:
            kind = table.kind(request.kind)
            wholes[kind] = wholes.get(kind, 0) + min(request.count, 2**20)
    kinds: dict[int, int] = {}
    for need in needs:
        kinds[need.view.kind] = kinds.get(need.view.kind, 0) + need.count * need.milli
    cpu, memory = scored(requirements)
    traits = requirements.traits
    return PodClass(
        key=key,
        pod_key=pod_key or key,
        requirements=requirements,
        traits=traits,
        amounts=tuple(sorted(amounts.items())),
        scored=(clamped(cpu), clamped(memory)),
        wholes=tuple(sorted(wholes.items())),
        needs=needs,
        kinds=tuple(sorted(kinds.items())),
        simple=not needs or (len(needs) == 1 and (needs[0].count == 1 or needs[0].milli >= DEVICE_MILLI)),
        claiming=bool(requirements.node_selector or requirements.node_terms or traits.node_name),
        seed=table.seed(key),
        claims=_claims(requirements, traits),
        terminating=terminating,
    )


def _claims(requirements: Requirements, traits: PodTraits) -> bytes:
    said = (
        requirements.node_selector,
        requirements.node_terms,
        requirements.tolerations,
        traits.node_name,
        traits.preferences,
    )
    return canonical(said) if any(said) else b""


def _needs(table: NodeTable, requests: tuple[DeviceRequest, ...]) -> tuple[DeviceNeed, ...]:
    """Whole devices before shares and named models before any, because what is harder to satisfy should choose first."""
    asked = [r for r in requests if r.count > 0 and r.milli > 0]
    asked.sort(key=lambda r: (r.milli < DEVICE_MILLI, not r.models))
    return tuple(
        DeviceNeed(table.view(table.kind(r.kind), r.models), min(r.count, 2**20), min(r.milli, DEVICE_MILLI + 1))
        for r in asked
    )


def _label_keys(requirements: Requirements) -> tuple[str, ...]:
    keys = set(requirements.node_selector)
    for term in requirements.node_terms:
        keys.update(e.key for e in term.expressions)
    return tuple(sorted(keys))
