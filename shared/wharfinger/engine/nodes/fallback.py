"""Evaluation node by node of rules without an array form: volumes, device claims, most plugins of
users.

This is slow, because the rule needs the cluster as the framework sees it. So it is evaluated only
for pods that concern it, where it says which these are (`concerns`); otherwise for every pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Point
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.cycle import CycleOutcome, Framework, normalised
from wharfinger.engine.framework.profile import framework
from wharfinger.engine.framework.protocols import Plugin, PreScore, Score
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.framework.status import Status
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, NodeTable
from wharfinger.engine.nodes.profile_rules import ProfileRules


@dataclass(slots=True)
class AskedRules:
    """Evaluates, node by node, the rules without an array form that apply to one class of pods.

    `refuse` must be called before `score`, which uses its `outcome`. `answers`: node -> reason of
    the refusal, from the last `refuse`; feasible nodes are absent.
    """

    fallback: PluginFallback
    cls: PodClass
    filters: Framework
    scores: tuple[Plugin, ...]
    answers: dict[str, Status] = field(default_factory=dict)
    outcome: CycleOutcome | None = None

    def refuse(self, table: NodeTable, verdicts: Column) -> None:
        """Runs the filters of the rules on all nodes and writes their refusals into `verdicts`
        (slots,). A refusal replaces the verdict of a node only if its filter comes earlier in the
        profile."""
        snapshot = self.fallback.snapshot()
        self.outcome = self.filters.run(snapshot, _pod(self.cls))
        self.answers = dict(self.filters.refused(self.outcome))
        for name, status in self.answers.items():
            row = table.rows.get(name)
            encoded = self.fallback.rules.asked_code(status.plugin)
            if row is not None and (verdicts[row.slot] == 0 or encoded < verdicts[row.slot]):
                verdicts[row.slot] = encoded

    def score(self, table: NodeTable, verdicts: Column, scores: Column) -> None:
        """Adds to `scores` the scores of the rules that are evaluated node by node. For each rule:
        compute the raw score of each feasible node, normalise the raw scores to 0..100 as
        kube-scheduler does, multiply by the weight of the rule, and add.

        `table`: the nodes. `verdicts` [slots]: 0: the node is feasible, otherwise why it is
        refused. `scores` [slots]: total score of each node; changed in place.
        """
        if not self.scores:
            return
        assert self.outcome is not None, "filters are asked before scores"
        cycle, pod = self.outcome.cycle, _pod(self.cls)
        slots = {name: table.rows[name].slot for name in cycle.snapshot.nodes if name in table.rows}
        nodes = [cycle.snapshot.nodes[name] for name, slot in slots.items() if verdicts[slot] == 0]
        for plugin in self.scores:
            if not nodes or (
                isinstance(plugin, PreScore) and plugin.pre_score(cycle, pod, nodes) is not None
            ):
                continue
            raw = {node.name: cast(Score, plugin).score(cycle, pod, node) for node in nodes}
            for name, score in normalised(plugin, cycle, pod, raw).items():
                scores[slots[name]] += self.fallback.rules.weights[plugin.name] * score


class PluginFallback:
    """Selects, for each class of pods, the rules of a profile that have to be evaluated node by
    node, and provides the snapshot for them.

    `read`: returns the cluster as the framework sees it, without what the batch has placed so far;
    None: `snapshot` raises ValueError.
    """

    def __init__(self, rules: ProfileRules, read: Callable[[], Snapshot] | None) -> None:
        self.rules = rules
        self.read = read
        self._framework: Framework | None = None
        self._known: dict[PodClass, AskedRules] = {}
        self._placed: list[tuple[PodClass, str]] = []
        self._scores = set(rules.asked_scores)
        self._always = set(rules.asked | rules.asked_scores)
        self._sometimes: dict[Callable[[Requirements], bool], set[str]] = {}
        for name in rules.names:
            concerns = getattr(rules.made.get(name), "concerns", None)
            if concerns is not None and name in rules.asked:
                self._always.discard(name)
                self._sometimes.setdefault(concerns, set()).add(name)

    def leave_score(self, name: str) -> None:
        """Stops evaluating the score of this rule node by node, because it is computed from arrays
        from now on. Its filter is not affected."""
        if name in self._scores:
            self._scores.discard(name)
            self._always -= {name} - self.rules.asked
            self._known.clear()

    def of(self, cls: PodClass) -> AskedRules | None:
        """Returns the rules that have to be evaluated node by node for pods of the class, because
        they have no array form; None: there are none. A rule may say by a predicate `concerns`
        which pods it can affect. Then it is included only if `concerns` is true for the class.
        Results are cached by class."""
        if not self._always:
            for concerns in self._sometimes:
                if concerns(cls.requirements):
                    break
            else:
                return None
        asked = self._known.get(cls)
        if asked is None:
            if len(self._known) > 1024:
                self._known.clear()
            asked = self._known[cls] = self._asked(cls)
        return asked

    def _asked(self, cls: PodClass) -> AskedRules:
        names = self._always.union(
            *(n for concerns, n in self._sometimes.items() if concerns(cls.requirements))
        )
        if self._framework is None:
            self._framework = framework(self.rules.profile)
        whole = self._framework
        filters: dict[Point, tuple[Plugin, ...]] = {
            point: tuple(p for p in whole.at(point) if p.name in names & self.rules.asked)
            for point in ("preFilter", "filter")
        }
        scores = tuple(p for p in whole.at("score") if p.name in names & self._scores)
        return AskedRules(
            self, cls, Framework(whole.profile, whole.plugins, filters, whole.weights), scores
        )

    def moved(self, cls: PodClass, node: str, times: int) -> None:
        """Records that the current batch placed `times` replicas on a node. If `times` is negative,
        that many are removed."""
        for _ in range(abs(times)):
            if times > 0:
                self._placed.append((cls, node))
            else:
                self._placed.remove((cls, node))

    def snapshot(self) -> Snapshot:
        """Returns the cluster with the placements of the batch added as pods. Raises ValueError if
        the placer was made without a way to read the cluster."""
        if self.read is None:
            name = self.rules.profile.name
            raise ValueError(
                f"profile {name}: its plugins ask for a snapshot of the cluster, and none is given"
            )
        snapshot = self.read()
        for number, (cls, node) in enumerate(self._placed):
            snapshot.add(Pod(f"placed/{number}", f"placed-{number}", cls.requirements, node))
        return snapshot


def _pod(cls: PodClass) -> Pod:
    return Pod("", "", cls.requirements)
