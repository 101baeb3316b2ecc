"""Shadow scheduling: compares the decisions of another scheduler with those of our node scheduler,
pod by pod, without placing anything.

The input is facts: nodes, pods on nodes, other objects, and the profile by which nodes are filtered
and scored. After each comparison the other scheduler's choice is applied, so every comparison
starts from the state that the other scheduler had.

The order in which pods of one step were placed is not observed. Among the next `WINDOW` pods, in
queue order (priority, then age), the first one whose node has our highest score is taken as the
next to be placed; if there is none, the first pod is taken. So a difference is only counted where
no order within the window explains the choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import DEFAULT_SCHEDULER
from wharfinger.domain.value import Value, stable_hash
from wharfinger.engine.framework.cycle import CycleOutcome, Framework
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.events.cluster_state import PodsObserved, WaitingPodsObserved
from wharfinger.kernel.decider import Micros

NO_NODE = ""
"""Takes the place of a node's name for the pods that have no node yet."""

WINDOW = 16
"""kube-scheduler decides one pod after the other and binds up to this many at once, so that they
become known in another order."""

Verdict = Literal["agreed", "equal", "better", "worse", "refused", "unplaced"]
"""Our choice compared with theirs, by the scores of the profile. `refused`: they placed the pod on
a node that we refuse. `unplaced`: they have no node for the pod, and we have one."""


class PluginDifference(Value, frozen=True, array_like=True):
    """Holds the weighted scores of one plugin for our node and for the node of the other
    scheduler."""

    plugin: str
    ours: int
    theirs: int


class Refused(Value, frozen=True, array_like=True):
    """Holds the reasons why one plugin refuses the node of the other scheduler."""

    plugin: str
    reasons: tuple[str, ...]


class ShadowDecision(Value, frozen=True):
    """Holds the comparison for one pod.

    `theirs`, `ours`: the nodes of the other scheduler and of ours; `ours` is empty if we refuse
    every node. `their_score`, `our_score`: weighted totals, 0 if the node is refused. `plugins`:
    the plugins whose scores differ, the largest difference first. `refusals`: why `theirs` is
    refused; for the verdict `worse`, why `ours` is. `nodes`, `feasible`: number of evaluated and of
    feasible nodes. `at_us`: time when the pod was seen on its node, or evaluated while pending.
    `waited_us`: time since the pod was created, or else first seen pending; 0: not known.
    """

    uid: str
    namespace: str
    name: str
    scheduler: str
    verdict: Verdict
    theirs: str
    ours: str
    their_score: int = 0
    our_score: int = 0
    plugins: tuple[PluginDifference, ...] = ()
    refusals: tuple[Refused, ...] = ()
    nodes: int = 0
    feasible: int = 0
    at_us: Micros = 0
    waited_us: Micros = 0


def compared(
    framework: Framework, snapshot: Snapshot, pod: Pod, theirs: str, decided: str = ""
) -> ShadowDecision:
    """Runs one scheduling cycle of our scheduler for the pod, and compares our node with `theirs`,
    the node that the other scheduler chose. Returns, among others, the two nodes with their scores,
    the result of the comparison (`verdict`, such as `agreed` or `better`), and the reasons for a
    difference.

    `snapshot`: the cluster without this pod. `decided`: the node that our scheduler chose, as
    recorded. If it is empty or not in the snapshot, our node is chosen now.
    """
    outcome = framework.run(snapshot, pod)
    ours = decided if decided in snapshot.nodes else chosen(outcome, pod)
    verdict = _verdict(outcome, ours, theirs)
    return ShadowDecision(
        pod.uid,
        pod.requirements.traits.home,
        pod.name,
        scheduler_of(pod),
        verdict,
        theirs,
        ours,
        outcome.totals.get(theirs, 0),
        outcome.totals.get(ours, 0),
        _differences(outcome, ours, theirs) if verdict in ("better", "worse") else (),
        _refusals(outcome, theirs if verdict == "refused" else ours)
        if verdict in ("refused", "worse")
        else (),
        len(snapshot.nodes),
        len(outcome.feasible),
    )


def chosen(outcome: CycleOutcome, pod: Pod) -> str:
    """Returns the feasible node with the highest score; empty if no node is feasible. Ties are
    broken as in the cluster stage: by the hash of the node's name xor that of the requirement
    class, then by name."""
    seed = stable_hash(pod.requirements.class_key)
    return min(outcome.best, key=lambda name: (stable_hash(name) ^ seed, name), default="")


def scheduler_of(pod: Pod) -> str:
    return pod.requirements.traits.scheduler or DEFAULT_SCHEDULER


def _verdict(outcome: CycleOutcome, ours: str, theirs: str) -> Verdict:
    if theirs not in outcome.totals:
        return "refused"
    if ours == theirs:
        return "agreed"
    if ours not in outcome.totals:
        return "worse"
    our_score, their_score = outcome.totals[ours], outcome.totals[theirs]
    if our_score == their_score:
        return "equal"
    return "better" if our_score > their_score else "worse"


def _differences(outcome: CycleOutcome, ours: str, theirs: str) -> tuple[PluginDifference, ...]:
    found = [
        PluginDifference(
            plugin, s.weight * s.normalised.get(ours, 0), s.weight * s.normalised.get(theirs, 0)
        )
        for plugin, s in outcome.scores.items()
        if s is not None
    ]
    differing = [one for one in found if one.ours != one.theirs]
    return tuple(sorted(differing, key=lambda one: (-abs(one.ours - one.theirs), one.plugin)))


def _refusals(outcome: CycleOutcome, node: str) -> tuple[Refused, ...]:
    """Returns every plugin that refuses the node, with its reasons. The first entry is the first
    refusing plugin in the order of the profile."""
    first = outcome.rejected if outcome.rejected is not None else outcome.first.get(node)
    found = {} if first is None else {first.plugin: first.reasons}
    for plugin, by_node in outcome.failures.items():
        if node in by_node:
            found.setdefault(plugin, by_node[node].reasons)
    return tuple(Refused(plugin, tuple(reasons)) for plugin, reasons in found.items())


# --- a cluster that goes on


@dataclass(slots=True)
class ShadowBook:
    """Compares the decisions of other schedulers in one cluster with ours, and holds the pods of
    that cluster. `schedulers`: names of the schedulers whose pods are compared. `window`: see
    `WINDOW`. `runs`: number of scheduling cycles run. Starts empty; `begin` loads what exists
    before the first comparison."""

    framework: Framework
    schedulers: Collection[str] = (DEFAULT_SCHEDULER,)
    window: int = WINDOW
    runs: int = 0
    _pods: dict[str, dict[str, Pod]] = field(default_factory=dict)
    _waiting: dict[str, tuple[Pod, Micros]] = field(default_factory=dict)
    _buckets: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    _seen_us: dict[str, Micros] = field(default_factory=dict)
    _snapshot: Snapshot = field(default_factory=lambda: Snapshot({}))

    def begin(
        self,
        nodes: Mapping[str, Node],
        pods: Mapping[str, Sequence[Pod]],
        objects: ClusterObjects,
        at: Micros = 0,
        waiting: Iterable[WaitingPodsObserved] = (),
    ) -> None:
        """Loads the present state of the cluster. Nothing is compared.

        `nodes`: name -> node. `pods`: name of a node -> the pods on it; the pods under `NO_NODE`
        have no node and count as pending since `at`. `objects`: the other objects of the cluster
        that scheduling reads, such as volumes and Services. `waiting`: reports of the pods without
        a node.
        """
        self._pods = {
            node: {pod.uid: _on(node, pod) for pod in on_node} for node, on_node in pods.items()
        }
        on_no_node = self._pods.pop(NO_NODE, {})
        self._waiting = {uid: (pod, at) for uid, pod in on_no_node.items()}
        for fact in waiting:
            self._wait_in(fact, at)
        self.surroundings(nodes, objects)

    def surroundings(self, nodes: Mapping[str, Node], objects: ClusterObjects) -> None:
        """Replaces the nodes and the other objects. The pods stay."""
        pods = (pod for on_node in self._pods.values() for pod in on_node.values())
        self._snapshot = Snapshot.of(nodes.values(), pods, objects)

    def observe(
        self,
        observed: Sequence[PodsObserved | WaitingPodsObserved],
        at: Micros = 0,
        since: Micros = 0,
        decided: Mapping[str, str] | None = None,
    ) -> list[ShadowDecision]:
        """Updates the known pods of the cluster with the observed pods of one step. Returns one
        comparison for each new pod that is compared, in the order in which the pods were presumably
        placed.

        The order is this:
        - First, known pods that disappeared are removed, and known pods that changed are updated.
        - Then new pods that are not compared are added. These are pods of schedulers that are not
          in `schedulers`, daemon pods and static pods, pods on an unknown node, and pods created
          before `since`.
        - Then each remaining new pod is compared and added, one after another. A comparison has the
          pods that were added before it on their nodes.

        `observed`: lists of pods on a node, and reports of the pods without a node; of several
        about the same node or bucket the last one holds. `at`: time of the step in microseconds.
        `since`: pods created before this time (microseconds) are not compared. `decided`: uid of a
        pod -> the node that our scheduler chose, as recorded. For a pod without an entry the node
        is chosen now.
        """
        new: list[Pod] = []
        for fact in _last_of_each(observed):
            if isinstance(fact, WaitingPodsObserved):
                self._wait_in(fact, at)
            elif fact.node == NO_NODE:
                self._wait(fact, at)
            else:
                new += self._changed(fact)
        compare = [pod for pod in new if self._counts(pod, since)]
        uids = {pod.uid for pod in compare}
        for pod in new:
            if pod.uid not in uids:
                self._take(pod)
        waited = {pod.uid: self._waited(pod, at) for pod in compare}
        found = [
            msgspec.structs.replace(one, at_us=at, waited_us=waited[one.uid])
            for one in self._in_order(compare, decided or {})
        ]
        for pod in new:
            self._seen_us.pop(pod.uid, None)
        return found

    def unplaced(self, at: Micros, longer_than_us: Micros) -> list[ShadowDecision]:
        """Returns a comparison (verdict `unplaced`) for each pod that has been pending for at least
        `longer_than_us` microseconds although our scheduler finds a feasible node for it now. The
        result is in order of uid. The time counts from the creation of the pod or, if that time is
        not known, from when the pod was first seen pending.

        Left out are pods with scheduling gates, and pods of schedulers that are not compared.
        """
        found: list[ShadowDecision] = []
        for uid, (pod, since) in sorted(self._waiting.items()):
            waited = at - (_created(pod) or since)
            traits = pod.requirements.traits
            if scheduler_of(pod) not in self.schedulers or traits.gates or waited < longer_than_us:
                continue
            self.runs += 1
            one = compared(self.framework, self._snapshot, pod, NO_NODE)
            if one.ours:
                found.append(
                    msgspec.structs.replace(
                        one, uid=uid, verdict="unplaced", refusals=(), at_us=at, waited_us=waited
                    )
                )
        return found

    def _wait(self, fact: PodsObserved, at: Micros) -> None:
        now = {pod.uid: pod for pod in fact.pods}
        for uid in [uid for uid in self._waiting if uid not in now]:
            self._seen_us[uid] = self._waiting.pop(uid)[1]
        for uid, pod in now.items():
            self._waiting[uid] = (pod, self._waiting.get(uid, (pod, at))[1])

    def _wait_in(self, fact: WaitingPodsObserved, at: Micros) -> None:
        """Replaces the pods of one bucket. A pod waits since its creation, where that is known."""
        bucket = (fact.namespace, fact.bucket)
        now = {pod.uid: pod for pod in fact.pods}
        for uid in sorted(self._buckets.get(bucket, frozenset()) - now.keys()):
            if uid in self._waiting:
                self._seen_us[uid] = self._waiting.pop(uid)[1]
        for uid, pod in now.items():
            known = self._waiting.get(uid)
            since = pod.created_us or at if known is None else known[1]
            self._waiting[uid] = (pod.on(NO_NODE), since)
        self._buckets[bucket] = frozenset(now)

    def _waited(self, pod: Pod, at: Micros) -> Micros:
        waiting = self._waiting.get(pod.uid)
        seen = waiting[1] if waiting is not None else self._seen_us.get(pod.uid, 0)
        since = _created(pod) or seen
        return max(0, at - since) if since else 0

    def _changed(self, fact: PodsObserved) -> list[Pod]:
        """Applies the deletions and changes of a node's pods. Returns the new pods, which are not
        applied yet."""
        before = self._pods.get(fact.node, {})
        now = {pod.uid: _on(fact.node, pod) for pod in fact.pods}
        for uid, pod in list(before.items()):
            if now.get(uid) != pod:
                self._drop(pod)
                if uid in now:
                    self._take(now[uid])
        return [pod for uid, pod in now.items() if uid not in before]

    def _counts(self, pod: Pod, since: Micros) -> bool:
        """Returns whether the pod is compared. Left out are pods of other schedulers, on unknown
        nodes, or created before `since`. Daemon and static pods are left out too, because their
        controller or kubelet fixes their node."""
        if scheduler_of(pod) not in self.schedulers or pod.node not in self._snapshot.nodes:
            return False
        upkeep = pod.upkeep
        if upkeep is not None and (upkeep.static or upkeep.of_daemon):
            return False
        created = _created(pod)
        return created == 0 or created >= since

    def _in_order(
        self, pods: Sequence[Pod], decided: Mapping[str, str]
    ) -> Iterable[ShadowDecision]:
        left = sorted(pods, key=_queued)
        while left:
            at, found = self._next(left[: self.window], decided)
            self._take(left.pop(at))
            yield found

    def _next(self, pods: Sequence[Pod], decided: Mapping[str, str]) -> tuple[int, ShadowDecision]:
        """Guesses which of `pods` the other scheduler placed first. Returns the index of this pod
        in `pods` and its comparison.

        It is the first pod for which the other scheduler's node has the highest score of our
        scheduler too (verdict `agreed` or `equal`). If there is none, it is the first pod.
        `decided`: uid of a pod -> the node that our scheduler chose, as recorded.
        """
        first: ShadowDecision | None = None
        for at, pod in enumerate(pods):
            self.runs += 1
            ours = decided.get(pod.uid, "")
            found = compared(self.framework, self._snapshot, pod, pod.node, ours)
            if found.verdict in ("agreed", "equal"):
                return at, found
            first = first or found
        assert first is not None, "there is a pod"
        return 0, first

    def _take(self, pod: Pod) -> None:
        self._pods.setdefault(pod.node, {})[pod.uid] = pod
        if pod.node in self._snapshot.nodes:
            self._snapshot.add(pod)

    def _drop(self, pod: Pod) -> None:
        del self._pods[pod.node][pod.uid]
        if pod.node in self._snapshot.nodes:
            self._snapshot.remove(pod)


def _last_of_each(
    observed: Sequence[PodsObserved | WaitingPodsObserved],
) -> Iterable[PodsObserved | WaitingPodsObserved]:
    """One step takes in several facts about a node that changes quickly. A pod that is in two of
    them was placed once."""
    last: dict[str | tuple[str, int], PodsObserved | WaitingPodsObserved] = {}
    for fact in observed:
        key = fact.node if isinstance(fact, PodsObserved) else (fact.namespace, fact.bucket)
        last[key] = fact
    return last.values()


def _on(node: str, pod: Pod) -> Pod:
    return pod if pod.node == node else msgspec.structs.replace(pod, node=node)


def _created(pod: Pod) -> Micros:
    return 0 if pod.upkeep is None else pod.upkeep.created_us


def _queued(pod: Pod) -> tuple[int, int, str, str]:
    """Returns the sort key of kube-scheduler's queue: highest priority first, then oldest first."""
    return -pod.priority, _created(pod), pod.requirements.traits.home, pod.name
