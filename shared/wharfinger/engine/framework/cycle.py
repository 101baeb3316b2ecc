"""Runs one scheduling cycle: every plugin of a profile for one pod over all nodes. The result says
which plugin refused which node, all scores, and the event message where no node fits.

kube-scheduler stops at the first plugin that refuses a node. Here all plugins are called and every
result is kept, because explanations need them; `CycleOutcome.first` is what kube-scheduler would
have reported. Order: pre-filter, filter, pre-score, score, normalise, weigh. Where no node fits,
the caller runs the post-filters (`Framework.post_filter`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Point, Profile
from wharfinger.engine.framework.messages import (
    narrowed_out,
    narrowed_to_nothing,
    unavailable,
    with_post_filter,
)
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
class PluginScores:
    """One score plugin's results for the feasible nodes. `weight`: the plugin's weight in the
    profile. `raw`: node name -> score as the plugin returns it. `normalised`: node name -> score in
    0..100."""

    weight: int
    raw: dict[str, int]
    normalised: dict[str, int]


@dataclass(slots=True)
class CycleOutcome:
    """Holds the complete result of one scheduling cycle: what each plugin decided on each node, and
    the best nodes.

    `cycle`: the data that plugins computed, for later steps.
    `pre_filter`: plugin -> the nodes that it restricts the search to, or why it refuses the pod.
    `skipped`: plugins whose filter does not apply to the pod.
    `failures`: plugin -> node -> refusal.
    `first`: node -> the refusal of the first plugin in the profile's order; for a node outside the
    set that pre-filters restrict the search to, the refusal by these pre-filters.
    `rejected`: the pre-filter refusal that applies to all nodes; None: there is none.
    `feasible`: names of the feasible nodes, sorted.
    `scores`: plugin -> its scores, None where the plugin does not apply; empty where no node is
    feasible.
    `totals`: node -> sum of weight * normalised score.
    `best`: the nodes with the highest total.
    """

    cycle: Cycle
    pre_filter: dict[str, Narrowed | Status] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    failures: dict[str, dict[str, Status]] = field(default_factory=dict)
    first: dict[str, Status] = field(default_factory=dict)
    rejected: Status | None = None
    feasible: tuple[str, ...] = ()
    scores: dict[str, PluginScores | None] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    refusing: tuple[str, ...] = ()
    """The plugins because of which no node is feasible, sorted by name. A change that makes one of
    them accept a node may help."""

    @property
    def message(self) -> str:
        """Return kube-scheduler's event message `0/N nodes are available: ...`; empty where there
        is a feasible node."""
        return (
            ""
            if self.feasible
            else unavailable(len(self.cycle.snapshot.nodes), self.first, self.rejected)
        )


@dataclass(frozen=True, slots=True)
class Framework:
    """Holds a profile with its plugin instances and runs the plugins at their extension points.
    `plugins`: name -> plugin. `points`: extension point -> its plugins, in the order of the
    profile. `weights`: name of a score plugin -> weight."""

    profile: Profile
    plugins: dict[str, Plugin]
    points: dict[Point, tuple[Plugin, ...]]
    weights: dict[str, int]

    def at(self, point: Point) -> tuple[Plugin, ...]:
        return self.points.get(point, ())

    # Before a pod is tried.

    def gate(self, pod: Pod) -> Status | None:
        """Call the preEnqueue plugins and return the first refusal, which says why the pod must not
        be scheduled yet. None: the pod may enter the queue."""
        for plugin in self.at("preEnqueue"):
            if (status := cast(PreEnqueue, plugin).pre_enqueue(pod)) is not None:
                return _by(plugin, status)
        return None

    def order(self, pod: Pod, queued_at_us: int) -> tuple[object, ...]:
        """Return the pod's sort key in the scheduling queue. The scheduler takes the pod with the
        lowest key first."""
        (plugin,) = self.at("queueSort")
        return cast(QueueSort, plugin).order(pod, queued_at_us)

    # One cycle.

    def run(self, snapshot: Snapshot, pod: Pod) -> CycleOutcome:
        """Run the pre-filters and the filters on all nodes and, where some nodes are feasible,
        score these. Do not run the post-filters. Raise PluginError where a plugin returns an
        invalid status or a score outside of 0..100."""
        outcome = self.begin(snapshot, pod)
        self._filter(outcome, pod)
        if outcome.feasible:
            self.score(outcome, pod)
        return outcome

    def begin(self, snapshot: Snapshot, pod: Pod) -> CycleOutcome:
        """Start a scheduling cycle for the pod: run all pre-filters, even after one refuses the
        pod. Return the outcome with the results of the pre-filters only; the filters have not run
        yet.

        The outcome has, for each plugin that restricts the search, the allowed nodes; for each
        plugin that refuses the pod, the refusal; the plugins that returned Skip (the filter of the
        plugin does not apply to the pod); and the refusal that applies to all nodes, if there is
        one.

        Raise PluginError where a plugin returns a status that is neither a refusal nor Skip.
        """
        cycle = Cycle(snapshot, filters=self)
        outcome = CycleOutcome(cycle)
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
        """Run the filters on one node, in the order of the profile, and return the first refusal.
        None: all filters accept the node. The results of the pre-filters are ignored, except that a
        skipped plugin is not called."""
        for plugin in self._asked(cycle):
            if (status := self._ask(plugin, cycle, pod, node)) is not None:
                return status
        return None

    def refusals(self, outcome: CycleOutcome, pod: Pod, names: Iterable[str]) -> dict[str, Status]:
        """Run the filters on the nodes in `names` only. Return node -> the first refusal in the
        order of the profile; a feasible node has no entry.

        `outcome`: the result of `begin`, which has run the pre-filters; it is not changed.

        The filters are not called for a node that the pre-filters exclude; the entry is then the
        refusal by the pre-filters. If a pre-filter refuses the pod on all nodes, every node in
        `names` gets this refusal.
        """
        if outcome.rejected is not None:
            return dict.fromkeys(names, outcome.rejected)
        allowed, out = _narrowed(outcome.pre_filter)
        refused: dict[str, Status] = {}
        for name in names:
            if allowed is not None and name not in allowed:
                refused[name] = out
            elif (
                status := self.refusal(outcome.cycle, pod, outcome.cycle.snapshot.nodes[name])
            ) is not None:
                refused[name] = status
        return refused

    def pod_added(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        for plugin in self._counting(cycle):
            plugin.pod_added(cycle, pod, other, node)

    def pod_removed(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        for plugin in self._counting(cycle):
            plugin.pod_removed(cycle, pod, other, node)

    def post_filter(self, outcome: CycleOutcome, pod: Pod) -> tuple[Nominated | None, str]:
        """Run the post-filters (such as preemption) for a pod without a feasible node. Return two
        parts: the nomination of a node, or None if no plugin nominates one; and the event message
        for the pod.

        `outcome`: the result of the cycle, with the refusals of all nodes.

        Plugins are called in the order of the profile. Stop at the first plugin that nominates a
        node or returns UnschedulableAndUnresolvable. Without a nomination, the message ends with
        the reasons of the plugins that were called.
        """
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

    def refused(self, outcome: CycleOutcome) -> Mapping[str, Status]:
        """Return node -> its first refusal. Where a pre-filter refused the pod itself, every node
        has that refusal."""
        if outcome.rejected is None:
            return outcome.first
        return dict.fromkeys(outcome.cycle.snapshot.nodes, outcome.rejected)

    # The steps.

    def _filter(self, outcome: CycleOutcome, pod: Pod) -> None:
        cycle = outcome.cycle
        asked = [
            p for p in self._asked(cycle) if not isinstance(outcome.pre_filter.get(p.name), Status)
        ]
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
            outcome.feasible = tuple(
                name for name in cycle.snapshot.nodes if name not in outcome.first
            )
        outcome.refusing = () if outcome.feasible else _refusing(outcome)

    def _ask(self, plugin: Plugin, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        status = cast(Filter, plugin).filter(cycle, pod, node)
        return None if status is None else _by(plugin, _refusal(plugin, status))

    def _asked(self, cycle: Cycle) -> Sequence[Plugin]:
        return [p for p in self.at("filter") if p.name not in cycle.skipped["filter"]]

    def _counting(self, cycle: Cycle) -> Sequence[PodsChange]:
        """Return the pre-filter plugins that count pods for the current cycle, such as pods per
        topology domain. The caller must tell these plugins when it adds a pod to a node or removes
        one, so that the counts stay right.

        A plugin whose filter is skipped for the pod (it returned Skip) has counted nothing and is
        left out.

        A plugin is recognised by its method `pod_added`. `isinstance` with the protocol
        `PodsChange` would take longer than the update of the counts itself, and preemption removes
        and adds thousands of pods.
        """
        return [
            cast(PodsChange, p)
            for p in self.at("preFilter")
            if hasattr(p, "pod_added") and p.name not in cycle.skipped["filter"]
        ]

    def score(self, outcome: CycleOutcome, pod: Pod) -> None:
        """Score the feasible nodes: run pre-score, score and normalisation. Set three parts of the
        outcome: `scores` (plugin -> its scores), `totals` (node -> sum over the plugins of weight *
        normalised score) and `best` (the nodes with the highest total).

        `outcome`: the result of the filters, with at least one feasible node.

        Raise PluginError where a pre-score plugin refuses the pod or a score is outside of 0..100.

        Example: two plugins with weights 1 and 2 give a node the normalised scores 50 and 100. The
        total of the node is 50 + 200 = 250.
        """
        cycle = outcome.cycle
        nodes = [cycle.snapshot.nodes[name] for name in outcome.feasible]
        for plugin in self.at("preScore"):
            match cast(PreScore, plugin).pre_score(cycle, pod, nodes):
                case Status(code="Skip"):
                    cycle.skipped["score"].add(plugin.name)
                case Status() as status:
                    raise PluginError(
                        f"plugin {plugin.name}: pre-score cannot refuse a pod: {_said(status)}"
                    )
        outcome.totals = dict.fromkeys(outcome.feasible, 0)
        for plugin in self.at("score"):
            outcome.scores[plugin.name] = scored = self._scored(plugin, cycle, pod, nodes)
            for name, score in scored.normalised.items() if scored else ():
                outcome.totals[name] += scored.weight * score if scored else 0
        highest = max(outcome.totals.values())
        outcome.best = tuple(name for name, total in outcome.totals.items() if total == highest)

    def _scored(
        self, plugin: Plugin, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]
    ) -> PluginScores | None:
        if plugin.name in cycle.skipped["score"]:
            return None
        raw = {node.name: cast(Score, plugin).score(cycle, pod, node) for node in nodes}
        return PluginScores(self.weights[plugin.name], raw, normalised(plugin, cycle, pod, raw))


def normalised(plugin: Plugin, cycle: Cycle, pod: Pod, raw: dict[str, int]) -> dict[str, int]:
    """Normalise a plugin's raw scores (node -> score) to 0..100 by the plugin's own method
    `normalise`. The scores of a plugin without that method stay unchanged. Raise PluginError where
    a result is outside of 0..100."""
    scores = plugin.normalise(cycle, pod, raw) if isinstance(plugin, Normalise) else raw
    for name, score in scores.items():
        if not 0 <= score <= SCORE_MAX:
            raise PluginError(
                f"plugin {plugin.name}: expected a score of 0 to {SCORE_MAX} for {name}, "
                f"got {score}"
            )
    return scores


def _by(plugin: Plugin, status: Status) -> Status:
    return Status(status.code, status.reasons, plugin.name)


def _refusal(plugin: Plugin, status: Status) -> Status:
    """Return the status unchanged if it is a refusal of the pod. Raise PluginError otherwise."""
    if not status.rejects:
        raise PluginError(f"plugin {plugin.name}: expected a refusal, got {_said(status)}")
    return status


def _said(status: Status) -> str:
    return f"{status.code} {', '.join(status.reasons)}".strip()


def _rejection(answers: Mapping[str, Narrowed | Status]) -> Status | None:
    """Return the refusal by the pre-filters that applies to all nodes of the cluster. None: some
    nodes pass all pre-filters.

    `answers`: plugin -> its result, in the order of the profile: either a refusal of the pod
      (`Status`), or the set of nodes that the plugin restricts the search to (`Narrowed`).

    The results are read in order. The first of these two cases ends the reading:

    - A plugin refuses the pod as unresolvable: return this refusal.
    - The node sets so far have no node in common: return an unresolvable refusal that names all
      plugins that gave a set so far.

    If neither case occurs, return the last refusal of the pod, if there is one.

    Example: plugin A allows nodes 1 and 2, plugin B allows node 3. No node is in both sets, so the
    refusal names A and B.
    """
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
    """Intersect the sets of nodes that pre-filters restrict the search to. `answers`: plugin -> its
    result. Return (the nodes that are in all sets, or None where no plugin gave a set; the refusal
    for every node outside)."""
    plugins = sorted(name for name, answer in answers.items() if isinstance(answer, Narrowed))
    sets = [answer.nodes for answer in answers.values() if isinstance(answer, Narrowed)]
    out = unresolvable(narrowed_out(plugins))
    left = sets[0].intersection(*sets[1:]) if sets else None
    return left, Status(out.code, out.reasons, " ".join(plugins))


def _refusing(outcome: CycleOutcome) -> tuple[str, ...]:
    statuses = [outcome.rejected] if outcome.rejected is not None else outcome.first.values()
    return tuple(sorted({name for status in statuses for name in status.plugin.split()}))
