"""What has no array form is asked of the framework's own plugin, node by node: volumes, device claims, what a user has added.

It is slow, since it reads the cluster as the framework does, and so it is asked only where a class has something for such a plugin
to say; a user's plugin has its say about every class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Point, Profile
from wharfinger.engine.framework.cycle import Framework, Outcome, normalised
from wharfinger.engine.framework.profile import framework
from wharfinger.engine.framework.protocols import Plugin, PreScore, Score
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.framework.status import Status
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, NodeTable
from wharfinger.engine.nodes.standing import CLAIMS, DETAIL, PLUGIN, VOLUMES, Ranks

IN_ARRAYS = frozenset({
    "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "Devices", "Dynamic",
    "PodTopologySpread", "InterPodAffinity", "NodeResourcesBalancedAllocation", "ImageLocality",
})  # fmt: skip
OF_VOLUMES = frozenset({"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"})
OF_CLAIMS = frozenset({"DynamicResources"})


@dataclass(slots=True)
class Question:
    """The plugins that are asked for one class. `said`: node -> why it was refused, of the last time."""

    asked: Asked
    cls: PodClass
    filters: Framework
    scores: tuple[Plugin, ...]
    said: dict[str, Status] = field(default_factory=dict)
    outcome: Outcome | None = None

    def refuse(self, table: NodeTable, verdicts: Column) -> None:
        """Lowers `verdicts` where a plugin's refusal comes before."""
        snapshot = self.asked.snapshot()
        self.outcome = self.filters.run(snapshot, _pod(self.cls))
        self.said = dict(self.filters.refused(self.outcome))
        for name, status in self.said.items():
            row = table.rows.get(name)
            encoded = self.asked.encoded(status.plugin)
            if row is not None and (verdicts[row.slot] == 0 or encoded < verdicts[row.slot]):
                verdicts[row.slot] = encoded

    def score(self, table: NodeTable, verdicts: Column, scores: Column) -> None:
        """Adds the weighted scores of the plugins to those of the feasible nodes."""
        if not self.scores:
            return
        assert self.outcome is not None, "filters are asked before scores"
        cycle, pod = self.outcome.cycle, _pod(self.cls)
        slots = {name: table.rows[name].slot for name in cycle.snapshot.nodes if name in table.rows}
        nodes = [cycle.snapshot.nodes[name] for name, slot in slots.items() if verdicts[slot] == 0]
        for plugin in self.scores:
            if not nodes or (isinstance(plugin, PreScore) and plugin.pre_score(cycle, pod, nodes) is not None):
                continue
            raw = {node.name: cast(Score, plugin).score(cycle, pod, node) for node in nodes}
            for name, score in normalised(plugin, cycle, pod, raw).items():
                scores[slots[name]] += self.asked.weights[plugin.name] * score


class Asked:
    """`read`: gives the cluster as the framework reads it, without what a batch has placed so far."""

    def __init__(self, profile: Profile, ranks: Ranks, read: Callable[[], Snapshot] | None) -> None:
        self.profile = profile
        self.ranks = ranks
        self.read = read
        self.weights = {use.name: use.weight for use in profile.at("score")}
        self._filters = {use.name for use in profile.at("filter")} | {use.name for use in profile.at("preFilter")}
        self._made: Framework | None = None
        self._questions: dict[PodClass, Question] = {}
        self._placed: list[tuple[PodClass, str]] = []
        # A strategy of devices scores every pod; without one the plugin has no score.
        own = IN_ARRAYS - {"Devices"} if profile.arguments.devices.strategy else IN_ARRAYS
        self._others = (set(self.weights) | self._filters) - IN_ARRAYS - OF_VOLUMES - OF_CLAIMS
        self._scoring_others = set(self.weights) - own - OF_VOLUMES - OF_CLAIMS

    def leave_devices(self) -> None:
        """The score of devices is in the arrays from now on."""
        if "Devices" in self._scoring_others:
            self._scoring_others.discard("Devices")
            self._questions.clear()

    def of(self, cls: PodClass) -> Question | None:
        """None: everything about the class is in the arrays."""
        traits = cls.traits
        if not (self._others or self._scoring_others or traits.volumes or traits.resource_claims):
            return None
        question = self._questions.get(cls)
        if question is None:
            if len(self._questions) > 1024:
                self._questions.clear()
            question = self._questions[cls] = self._question(cls)
        return question

    def _question(self, cls: PodClass) -> Question:
        names = set(self._others)
        scoring = set(self._scoring_others)
        if cls.traits.volumes:
            names |= OF_VOLUMES
            scoring |= OF_VOLUMES
        if cls.traits.resource_claims:
            names |= OF_CLAIMS
        if self._made is None:
            self._made = framework(self.profile)
        whole = self._made
        points: dict[Point, tuple[Plugin, ...]] = {
            point: tuple(p for p in whole.at(point) if p.name in names) for point in ("preFilter", "filter")
        }
        filters = Framework(self.profile, whole.plugins, points, whole.weights)
        return Question(self, cls, filters, tuple(p for p in whole.at("score") if p.name in scoring))

    def encoded(self, plugins: str) -> int:
        plugin = plugins.split(" ", 1)[0]
        detail = VOLUMES if plugin in OF_VOLUMES else CLAIMS if plugin in OF_CLAIMS else PLUGIN
        return self.ranks.by_name.get(plugin, 0) * DETAIL + detail

    def moved(self, cls: PodClass, node: str, times: int) -> None:
        """A batch has placed replicas, or takes them back."""
        for _ in range(abs(times)):
            if times > 0:
                self._placed.append((cls, node))
            else:
                self._placed.remove((cls, node))

    def snapshot(self) -> Snapshot:
        """Raises ValueError where nobody said how to read the cluster."""
        if self.read is None:
            raise ValueError(
                f"profile {self.profile.name}: its plugins ask for a snapshot of the cluster, and none is given"
            )
        snapshot = self.read()
        for number, (cls, node) in enumerate(self._placed):
            snapshot.add(Pod(f"placed/{number}", f"placed-{number}", cls.requirements, node))
        return snapshot


def _pod(cls: PodClass) -> Pod:
    return Pod("", "", cls.requirements)
