"""One pod, all nodes, every plugin of its profile: who refuses what, what each node scores, what is said where none fits.

kube-scheduler stops at the first plugin that refuses a node; here all are asked and everything is kept, since the answer is for
people as well. `Outcome.first` is what a kube-scheduler would have known. Order of work: pre-filter, filter, post-filter where
nothing fits, pre-score, score, normalise, weigh. What comes after a node was chosen is `binding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Point, Profile
from wharfinger.engine.framework.messages import narrowed_out, narrowed_to_nothing, unavailable, with_post_filter
from wharfinger.engine.framework.protocols import (
    SCORE_MAX,
    Cycle,
    Filter,
    Narrowed,
    Nominated,
    Normalise,
    Plugin,
    PodsChange,
    PostFilter,
    PreEnqueue,
    PreFilter,
    PreScore,
    QueueSort,
    Score,
)
from wharfinger.engine.framework.snapshot import NodeInfo, Snapshot
from wharfinger.engine.framework.status import Status, unresolvable


class PluginError(Exception):
    """A plugin broke its contract: a bug, not a refusal. One line."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a plugin makes of the feasible nodes, by name. `raw`: as it scores; `normalised`: 0..100."""

    weight: int
    raw: dict[str, int]
    normalised: dict[str, int]


@dataclass(slots=True)
class Outcome:
    """`pre_filter`: plugin -> the nodes it narrows to, or why it refuses the pod. `skipped`: plugins whose filter has
    nothing to say. `failures`: plugin -> node -> why; `first`: node -> why it is out, by the first plugin that
    refuses it, in order of the profile. `feasible`: in order of name. `scores`: plugin -> what it scores, None: it
    has nothing to say; empty where nothing is feasible. `totals`: node -> sum of weight x score; `best`: those of the
    highest total. `rejected`: the pre-filter's refusal that stands for all nodes. `cycle`: what the plugins have
    computed, for who asks on."""

    cycle: Cycle
    pre_filter: dict[str, Narrowed | Status] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    failures: dict[str, dict[str, Status]] = field(default_factory=dict)
    first: dict[str, Status] = field(default_factory=dict)
    rejected: Status | None = None
    feasible: tuple[str, ...] = ()
    scores: dict[str, Scored | None] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    refusing: tuple[str, ...] = ()
    """The plugins that are why it fits nowhere, in order of name: a change that helps one of them is worth a try."""

    @property
    def message(self) -> str:
        """`0/N nodes are available: ...`; empty where there is a feasible node."""
        return "" if self.feasible else unavailable(len(self.cycle.snapshot.nodes), self.first, self.rejected)


@dataclass(frozen=True, slots=True)
class Framework:
    """A profile whose plugins are made. `plugins`: by name; `points`: extension point -> those that stand there, in order.
    `weights`: of the scores."""

    profile: Profile
    plugins: dict[str, Plugin]
    points: dict[Point, tuple[Plugin, ...]]
    weights: dict[str, int]

    def at(self, point: Point) -> tuple[Plugin, ...]:
        return self.points.get(point, ())

    # Before a pod is tried.

    def gate(self, pod: Pod) -> Status | None:
        """Why the pod is not to be tried yet; None: it may be."""
        for plugin in self.at("preEnqueue"):
            if (status := cast(PreEnqueue, plugin).pre_enqueue(pod)) is not None:
                return _by(plugin, status)
        return None

    def order(self, pod: Pod, queued_at_us: int) -> tuple[object, ...]:
        """What pods are sorted by, the lowest first."""
        (plugin,) = self.at("queueSort")
        return cast(QueueSort, plugin).order(pod, queued_at_us)

    # One cycle.

    def run(self, snapshot: Snapshot, pod: Pod) -> Outcome:
        """Raises PluginError where a plugin fails or scores outside of 0..100."""
        outcome = self.begin(snapshot, pod)
        self._filter(outcome, pod)
        if outcome.feasible:
            self.score(outcome, pod)
        return outcome

    def begin(self, snapshot: Snapshot, pod: Pod) -> Outcome:
        """All pre-filters. Each is asked, though the first refusal decides; a plugin that refused the pod is not
        asked about nodes."""
        cycle = Cycle(snapshot, filters=self)
        outcome = Outcome(cycle)
        for plugin in self.at("preFilter"):
            match cast(PreFilter, plugin).pre_filter(cycle, pod):
                case Narrowed() as narrowed:
                    outcome.pre_filter[plugin.name] = narrowed
                case Status(code="Skip"):
                    cycle.skipped["filter"].add(plugin.name)
                case Status() as status:
                    outcome.pre_filter[plugin.name] = _by(plugin, _refusal(plugin, status))
        outcome.skipped = tuple(sorted(cycle.skipped["filter"]))
        outcome.rejected = _rejection(outcome.pre_filter)
        return outcome

    def refusal(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        """That of the first plugin that refuses the node, in order of the profile; None: it passes."""
        for plugin in self._asked(cycle):
            if (status := self._ask(plugin, cycle, pod, node)) is not None:
                return status
        return None

    def refusals(self, outcome: Outcome, pod: Pod, names: Iterable[str]) -> dict[str, Status]:
        """Of the named nodes those that are out, each with its first refusal, after `begin`: for who asks about some nodes only."""
        if outcome.rejected is not None:
            return dict.fromkeys(names, outcome.rejected)
        allowed, out = _narrowed(outcome.pre_filter)
        refused: dict[str, Status] = {}
        for name in names:
            if allowed is not None and name not in allowed:
                refused[name] = out
            elif (status := self.refusal(outcome.cycle, pod, outcome.cycle.snapshot.nodes[name])) is not None:
                refused[name] = status
        return refused

    def pod_added(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        for plugin in self._counting(cycle):
            plugin.pod_added(cycle, pod, other, node)

    def pod_removed(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        for plugin in self._counting(cycle):
            plugin.pod_removed(cycle, pod, other, node)

    def post_filter(self, outcome: Outcome, pod: Pod) -> tuple[Nominated | None, str]:
        """Where nothing was feasible: what the post-filters find, and the sentence with what they add to it. The
        first that finds a node is the last one asked, and so is one that says that nothing can be done."""
        said: list[str] = []
        for plugin in self.at("postFilter"):
            match cast(PostFilter, plugin).post_filter(outcome.cycle, pod, self.refused(outcome)):
                case Nominated() as nominated:
                    return nominated, outcome.message
                case Status() as status:
                    said += _refusal(plugin, status).reasons
                    if status.code == "UnschedulableAndUnresolvable":
                        break
        return None, with_post_filter(outcome.message, said)

    def refused(self, outcome: Outcome) -> Mapping[str, Status]:
        """Node -> why; every node, where a pre-filter refused the pod."""
        if outcome.rejected is None:
            return outcome.first
        return dict.fromkeys(outcome.cycle.snapshot.nodes, outcome.rejected)

    # The steps.

    def _filter(self, outcome: Outcome, pod: Pod) -> None:
        cycle = outcome.cycle
        asked = [p for p in self._asked(cycle) if not isinstance(outcome.pre_filter.get(p.name), Status)]
        allowed, out = _narrowed(outcome.pre_filter)
        for name, node in cycle.snapshot.nodes.items():
            refusals = [s for p in asked if (s := self._ask(p, cycle, pod, node)) is not None]
            for status in refusals:
                outcome.failures.setdefault(status.plugin, {})[name] = status
            if allowed is not None and name not in allowed:
                outcome.first[name] = out
            elif refusals:
                outcome.first[name] = refusals[0]
        if outcome.rejected is None:
            outcome.feasible = tuple(name for name in cycle.snapshot.nodes if name not in outcome.first)
        outcome.refusing = () if outcome.feasible else _refusing(outcome)

    def _ask(self, plugin: Plugin, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        status = cast(Filter, plugin).filter(cycle, pod, node)
        return None if status is None else _by(plugin, _refusal(plugin, status))

    def _asked(self, cycle: Cycle) -> Sequence[Plugin]:
        return [p for p in self.at("filter") if p.name not in cycle.skipped["filter"]]

    def _counting(self, cycle: Cycle) -> Sequence[PodsChange]:
        """Whose counts follow the pods; a skipped filter has counted nothing. By its method: to ask whether something is a
        `PodsChange` takes longer than to count a pod, and preemption takes thousands away and puts them back."""
        return [
            cast(PodsChange, p)
            for p in self.at("preFilter")
            if hasattr(p, "pod_added") and p.name not in cycle.skipped["filter"]
        ]

    def score(self, outcome: Outcome, pod: Pod) -> None:
        """Pre-score and score the feasible nodes of the outcome, of which there is one at least; its totals and best follow."""
        cycle = outcome.cycle
        nodes = [cycle.snapshot.nodes[name] for name in outcome.feasible]
        for plugin in self.at("preScore"):
            match cast(PreScore, plugin).pre_score(cycle, pod, nodes):
                case Status(code="Skip"):
                    cycle.skipped["score"].add(plugin.name)
                case Status() as status:
                    raise PluginError(f"plugin {plugin.name}: pre-score cannot refuse a pod: {_said(status)}")
        outcome.totals = dict.fromkeys(outcome.feasible, 0)
        for plugin in self.at("score"):
            outcome.scores[plugin.name] = scored = self._scored(plugin, cycle, pod, nodes)
            for name, score in scored.normalised.items() if scored else ():
                outcome.totals[name] += scored.weight * score if scored else 0
        highest = max(outcome.totals.values())
        outcome.best = tuple(name for name, total in outcome.totals.items() if total == highest)

    def _scored(self, plugin: Plugin, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Scored | None:
        if plugin.name in cycle.skipped["score"]:
            return None
        raw = {node.name: cast(Score, plugin).score(cycle, pod, node) for node in nodes}
        return Scored(self.weights[plugin.name], raw, normalised(plugin, cycle, pod, raw))


def normalised(plugin: Plugin, cycle: Cycle, pod: Pod, raw: dict[str, int]) -> dict[str, int]:
    """A plugin's raw scores as they are weighed. Raises PluginError where one is outside of 0..100 then."""
    scores = plugin.normalise(cycle, pod, raw) if isinstance(plugin, Normalise) else raw
    for name, score in scores.items():
        if not 0 <= score <= SCORE_MAX:
            raise PluginError(f"plugin {plugin.name}: expected a score of 0 to {SCORE_MAX} for {name}, got {score}")
    return scores


def _by(plugin: Plugin, status: Status) -> Status:
    return Status(status.code, status.reasons, plugin.name)


def _refusal(plugin: Plugin, status: Status) -> Status:
    """Raises PluginError where the status is none."""
    if not status.rejects:
        raise PluginError(f"plugin {plugin.name}: expected a refusal, got {_said(status)}")
    return status


def _said(status: Status) -> str:
    return f"{status.code} {', '.join(status.reasons)}".strip()


def _rejection(answers: Mapping[str, Narrowed | Status]) -> Status | None:
    """The pre-filter's refusal that stands for all nodes: the first that nothing can be done about; where eviction
    might help, all are heard and the last one stands. Then, whether the nodes that all narrow to are any."""
    stands: Status | None = None
    plugins: list[str] = []
    allowed: frozenset[str] | None = None
    for plugin, answer in answers.items():
        if isinstance(answer, Status):
            stands = answer
            if answer.code == "UnschedulableAndUnresolvable":
                break
            continue
        plugins.append(plugin)
        allowed = answer.nodes if allowed is None else allowed & answer.nodes
        if not allowed:
            refused = unresolvable(narrowed_to_nothing(plugins))
            return Status(refused.code, refused.reasons, " ".join(sorted(plugins)))
    return stands


def _narrowed(answers: Mapping[str, Narrowed | Status]) -> tuple[frozenset[str] | None, Status]:
    """The nodes that are left, None: all; and why the others are out."""
    plugins = sorted(name for name, answer in answers.items() if isinstance(answer, Narrowed))
    sets = [answer.nodes for answer in answers.values() if isinstance(answer, Narrowed)]
    out = unresolvable(narrowed_out(plugins))
    left = sets[0].intersection(*sets[1:]) if sets else None
    return left, Status(out.code, out.reasons, " ".join(plugins))


def _refusing(outcome: Outcome) -> tuple[str, ...]:
    statuses = [outcome.rejected] if outcome.rejected is not None else outcome.first.values()
    return tuple(sorted({name for status in statuses for name in status.plugin.split()}))
