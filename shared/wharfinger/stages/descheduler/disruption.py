"""Finds nodes that can be removed or replaced (consolidation and drift, as in [Karpenter]) and
proposes the commands to the stages that own the clusters.

Each changed cluster is searched in a consolidation pass. A command is proposed only when a later
pass, some seconds after the first, still finds it, because pods that have just left may come back.
The stage that owns the cluster validates it. While the command is still found, it is proposed again
with exponential back-off. Nodes with recently moved workloads are excluded. So are pools whose last
commands were rolled back, for longer with each consecutive roll-back.

Only pools with known prices are searched here; for the others see `emptiness`. A cluster that is
silent, or has not reported for too long, is skipped, because its state is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from wharfinger.domain.time import SECOND
from wharfinger.domain.value import digest
from wharfinger.engine.disruption.cluster_snapshot import (
    ClusterSnapshot,
    Command,
    ConsolidationResult,
    DisruptionVerdict,
)
from wharfinger.engine.provisioning.problem import WantedPods
from wharfinger.events.assignments import Disrupted
from wharfinger.events.envelope import derived_id
from wharfinger.events.proposals import DisruptionProposed, NewNode
from wharfinger.events.streams import cluster_stream
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.cluster_snapshots import contents_of, others_in_need, scene_of
from wharfinger.stages.descheduler.facts import ClusterFacts, DeschedulerState
from wharfinger.stages.descheduler.watches import ClusterWatch, CommandKey, CommandSighting

GIVEN_UP_PAUSE: Micros = 60 * SECOND
"""Pause for the pools of a command that was rolled back; it doubles with each roll-back in a
row."""


def survey(scene: ClusterSnapshot) -> ConsolidationResult:
    """Runs the search of the engine. The import is inside the function, so that a process without
    priced pools does not load that module."""
    from wharfinger.engine.disruption import methods

    return methods.survey(scene)


@dataclass(frozen=True, slots=True)
class Looking:
    """The settings of consolidation passes.

    `every_s`: minimum interval between two passes over one cluster; a pass follows a change.
    `again_after_s`: a command is proposed when it is still found this long after it was first
    found. `cool_down_s`: nodes with a recently moved workload are excluded for this long, twice as
    long for each repeated move. `repeat_after_s`: the first pause between two proposals of one
    command; it doubles. `survey`: the search function, slow on large clusters. `elsewhere`:
    `publish` does not run it; the caller takes the work from `due_looks`, runs `survey` and returns
    the result with `seen`.
    """

    every_s: int = 10
    again_after_s: int = 15
    cool_down_s: int = 300
    repeat_after_s: int = 60
    survey: Callable[[ClusterSnapshot], ConsolidationResult] = survey
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class ClusterInspection:
    """Holds one cluster and its snapshot for one consolidation pass."""

    cluster: str
    scene: ClusterSnapshot


# --- what is folded


def changed(state: DeschedulerState, looking: Looking, name: str, at: Micros) -> None:
    """Schedules a consolidation pass after a change of the cluster, no earlier than
    `Looking.every_s` after the last one. A cluster without a pool of known prices is unscheduled
    instead."""
    if state.policies.known(name):
        state.looks.set((name,), max(at, _next_look(state.watch(name), looking)))
    else:
        state.looks.discard((name,))


def policies_changed(state: DeschedulerState, looking: Looking, at: Micros) -> None:
    for name in sorted(state.clusters):
        changed(state, looking, name, at)


def command_ended(
    state: DeschedulerState, name: str, cluster: ClusterFacts, ended: Disrupted, at: Micros
) -> None:
    """Updates the roll-back counters after a disruption command ended. A pool's counter is the
    number of consecutive commands on its nodes that were rolled back. The outcome `done` resets the
    counters of the pools whose nodes the command named; any other outcome increments them.

    The caller calls this function before it removes the command from the open commands, because the
    open command has the names of all its nodes. If there is no open command, only the nodes that
    `ended` names are used: those that take pods again. `name`: name of the cluster. `ended`: the
    command's end with its outcome.
    """
    watch, command = state.watch(name), cluster.pools.commands.get(ended.command)
    nodes = ended.reopened if command is None else command.nodes
    for pool in sorted({cluster.pool_of[node] for node in nodes if node in cluster.pool_of}):
        if ended.outcome == "done":
            watch.given_up.pop(pool, None)
        else:
            watch.rolled_back(pool, at)


# --- looking


def due_looks(state: DeschedulerState, looking: Looking, at: Micros) -> list[ClusterInspection]:
    """Takes the clusters whose consolidation pass is due at `at` from the timer queue, and returns,
    for each cluster to search, a copy of its known state.

    - A cluster whose last pass is still running is not returned. It is scheduled again after
      `Looking.every_s`, at least 1 second.
    - A cluster whose known state is not current (for example, the cluster is silent) is not
      returned. The commands found for it are dropped, and all its pool nodes get the verdict
      `Held`.
    - Each other cluster is returned and marked as running.
    """
    looks: list[ClusterInspection] = []
    for (name,) in state.looks.pop(at):
        cluster, watch = state.clusters[name], state.watch(name)
        if watch.under_way:
            state.looks.set((name,), at + max(1, looking.every_s) * SECOND)
            continue
        watch.looked, watch.held = at, state.held(name, at)
        if watch.held:
            watch.found.clear()
            watch.verdicts = tuple(
                [DisruptionVerdict(node, "Held", watch.held) for node in sorted(cluster.pool_of)]
            )
        else:
            watch.under_way = True
            looks.append(ClusterInspection(name, scene_for(state, looking, name, at)))
    return looks


def seen(state: DeschedulerState, look: ClusterInspection, survey: ConsolidationResult) -> None:
    """Stores the result of a pass for the next `publish` and marks the pass as finished. Does
    nothing if the cluster is no longer watched."""
    if look.cluster in state.watches:
        state.watches[look.cluster].under_way = False
        state.surveys[look.cluster] = (look.scene, survey)


def gave_up(state: DeschedulerState, look: ClusterInspection) -> None:
    """Marks a pass that failed as finished: the cluster is searched again once it changes."""
    if look.cluster in state.watches:
        state.watches[look.cluster].under_way = False


def publish(state: DeschedulerState, looking: Looking, at: Micros, room: int) -> list[Publication]:
    """Runs the consolidation passes that are due and returns at most `room` proposals of disruption
    commands. A command is proposed if two conditions hold: every pass has found it for
    `Looking.again_after_s` seconds, and, if it was proposed before, the pause after its last
    proposal is over.

    If `Looking.elsewhere` is set, another process runs the passes; this function uses only the
    results that were passed to `seen`. Results for a cluster whose known state is no longer current
    (for example, the cluster is silent) are dropped. Clusters are taken in order of name.
    """
    if not looking.elsewhere:
        for look in due_looks(state, looking, at):
            seen(state, look, looking.survey(look.scene))
    proposals: list[Publication] = []
    for name in sorted(state.surveys):
        scene, survey = state.surveys.pop(name)
        if not state.held(name, at):
            proposals += _take_up(state, looking, name, scene, survey, at, room - len(proposals))
    return proposals


def _take_up(
    state: DeschedulerState,
    looking: Looking,
    name: str,
    scene: ClusterSnapshot,
    survey: ConsolidationResult,
    at: Micros,
    room: int,
) -> list[Publication]:
    watch = state.watch(name)
    watch.verdicts = survey.verdicts
    _adopt(watch, state.clusters[name], scene, survey.commands)
    ripe = [
        key
        for key, found in watch.found.items()
        if _ripe_at(watch, looking, key, found) <= scene.at
    ][:room]
    proposals = [_proposal(state, looking, name, key, at) for key in ripe]
    watch.forget_tries(at)
    _look_again(state, looking, name, scene)
    return proposals


def scene_for(state: DeschedulerState, looking: Looking, name: str, at: Micros) -> ClusterSnapshot:
    """Returns a snapshot of the cluster for a consolidation pass. It has only pools with known
    prices, and marks the nodes that are excluded for now (`_resting`)."""
    cluster, policies = state.clusters[name], state.policies
    scene = scene_of(cluster.book, policies, cluster.pools, name, at, waiting=_waiting(cluster))
    pools = tuple([pool for pool in scene.pools if pool.catalogue in policies.types])
    return replace(scene, pools=pools, resting=_resting(state, looking, name, at))


def _waiting(cluster: ClusterFacts) -> list[WantedPods]:
    """Returns the replicas that are assigned to the cluster, have no node, and are not covered by
    an open node claim. The result has one entry for each binding with such replicas, with the
    number of them, in order of binding name. Example: 5 replicas are assigned, 3 have a node, and a
    node claim was opened for 1: the entry has the number 1. Waiting pods of other schedulers come
    after them, one entry for each kind of requirements."""
    coming: dict[str, int] = {}
    for claim in cluster.pools.claims.values():
        for binding, count in claim.replicas.items():
            coming[binding] = coming.get(binding, 0) + count
    waiting: list[WantedPods] = []
    for binding in sorted(cluster.book.unsettled):
        held = cluster.book.held[binding]
        missing = held.desired - len(held.placed) - coming.get(binding, 0)
        if missing > 0:
            waiting.append(WantedPods(binding, held.cls.requirements, missing, held.priority))
    return [*waiting, *others_in_need(cluster.book, cluster.pools)]


def _resting(
    state: DeschedulerState, looking: Looking, name: str, at: Micros
) -> dict[str, tuple[str, Micros]]:
    """Returns the nodes that are excluded from consolidation for now: node -> (text that says why,
    end of the exclusion in microseconds).

    A node is excluded after a binding with a replica on it was moved, for `Looking.cool_down_s`. A
    node is also excluded after the last command on its pool was rolled back, for 60 seconds
    (`GIVEN_UP_PAUSE`). Each further move or roll-back in a row doubles the time, up to one hour; a
    `cool_down_s` of more than one hour is not doubled. Example: with `cool_down_s` 300 and the
    third move in a row, the node is excluded for 1,200 s. If both apply to a node, the exclusion
    that ends last is returned.
    """
    cluster, watch = state.clusters[name], state.watch(name)
    resting: dict[str, tuple[str, Micros]] = {}

    def rest(nodes: Iterable[str], why: str, until: Micros) -> None:
        for node in nodes:
            if until > at and (node not in resting or until > resting[node][1]):
                resting[node] = (why, until)

    for binding, moved in watch.resting(looking.cool_down_s * SECOND, at):
        held = cluster.book.held.get(binding)
        if held is not None:
            nodes = sorted({replica.node for replica in held.placed.values()})
            again = "" if moved.times == 1 else f", for the {moved.times}th time lately"
            why = f"{binding} on it was moved {(at - moved.last) // SECOND} s ago{again}"
            rest(nodes, why, moved.again_at(looking.cool_down_s * SECOND))
    for pool, tried in sorted(watch.given_up.items()):
        often = "" if tried.times == 1 else f", {tried.times} times in a row"
        why = f"a command on pool {pool} was given up{often}"
        rest(
            sorted(n for n, p in cluster.pool_of.items() if p == pool),
            why,
            tried.again_at(GIVEN_UP_PAUSE),
        )
    return resting


def _adopt(
    watch: ClusterWatch, cluster: ClusterFacts, scene: ClusterSnapshot, commands: Iterable[Command]
) -> None:
    """Replaces the commands stored in `watch` (the memory of the consolidation passes over the
    cluster) by the commands that the last pass found. A command that was stored before keeps the
    time when it was first found.

    Two commands are the same if they have the same method, the same nodes and the same pods on
    these nodes (compared by a digest). A found command is not stored in two cases: one of its nodes
    is being removed already, or the pods of one of its nodes changed after `scene`, the copy of the
    cluster's state for this pass, was made.
    """
    going, quiet = cluster.pools.disrupting(), cluster.pools.quiet_since
    found: dict[CommandKey, CommandSighting] = {}
    for command in commands:
        if any(
            node in going or quiet.get(node) != scene.quiet_since.get(node)
            for node in command.nodes
        ):
            continue
        contents = {node: contents_of(cluster.book, node) for node in command.nodes}
        key = (command.method, command.nodes, digest(sorted(contents.items())))
        known = watch.found.get(key)
        found[key] = CommandSighting(command, contents, scene.at if known is None else known.since)
    watch.found = found


def _ripe_at(
    watch: ClusterWatch, looking: Looking, key: CommandKey, found: CommandSighting
) -> Micros:
    ripe, tried = found.since + looking.again_after_s * SECOND, watch.tried.get(key)
    return ripe if tried is None else max(ripe, tried.again_at(looking.repeat_after_s * SECOND))


def _proposal(
    state: DeschedulerState, looking: Looking, name: str, key: CommandKey, at: Micros
) -> Publication:
    """Builds the proposal of a found command and counts the attempt in `ClusterWatch` (the memory
    of the consolidation passes over the cluster `name`). `key`: method, nodes and digest of the
    pods of the command.

    The id of the first proposal is derived from `key` and the stream alone. So a restarted observer
    repeats the same id, and the cluster stage ignores the duplicate. The id of a later proposal
    also contains `1 + at // repeat_after_s` (both in the same unit), so that it differs from the
    first id.
    """
    watch, stream = state.watch(name), cluster_stream(name)
    found, (method, nodes, holding) = watch.found[key], key
    attempt = 1 + at // (looking.repeat_after_s * SECOND) if watch.proposed(key, at) else 0
    id = derived_id("proposal", "disruption", stream, method, "\n".join(nodes), holding, attempt)
    return Publication(_proposed(name, found.command, found.contents), name, stream, stream, id)


def _proposed(name: str, command: Command, contents: Mapping[str, str]) -> DisruptionProposed:
    replacements = tuple(
        [
            NewNode(new.pool, new.requirements, new.instance_types, dict(new.requests), new.price)
            for new in command.replacements
        ]
    )
    return DisruptionProposed(
        cluster_stream(name),
        name,
        command.method,
        command.nodes,
        dict(contents),
        replacements,
        command.saving,
        command.disruption,
        command.arithmetic,
    )


# --- when


def _next_look(watch: ClusterWatch, looking: Looking) -> Micros:
    """Returns the earliest time for the next pass over the cluster."""
    return 0 if watch.looked < 0 else watch.looked + looking.every_s * SECOND


def _look_again(
    state: DeschedulerState, looking: Looking, name: str, scene: ClusterSnapshot
) -> None:
    """Schedules the next consolidation pass of cluster `name` for the earliest time at which its
    result may differ although no fact changes.

    Four kinds of times are compared: a found command has been found long enough to be proposed; the
    time of a verdict or of the exclusion of a node ends; reserved room on a new node is no longer
    reserved; an offering that was sold out may be requested again. The pass does not start earlier
    than `Looking.every_s` after the last one. If none of these times exists, nothing is scheduled.
    A pass that is scheduled already is never postponed.
    """
    watch, earlier, pools = state.watch(name), state.looks.due((name,)), state.clusters[name].pools
    times = [_ripe_at(watch, looking, key, found) for key, found in watch.found.items()]
    times += [verdict.until for verdict in watch.verdicts if verdict.until > scene.at]
    times += [until for _, until in scene.resting.values()]
    times += [until for until in pools.promised.values() if until > scene.at]
    times += [sold_out.until for sold_out in pools.sold_out.values() if sold_out.until > scene.at]
    if times:
        next_look = max(min(times), _next_look(watch, looking))
        state.looks.set((name,), next_look if earlier is None else min(earlier, next_look))
