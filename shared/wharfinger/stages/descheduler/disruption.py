"""Nodes that can go: each cluster that has changed is looked at as a whole, and what is found twice is proposed.

Nothing is done with what one look finds: pods that have just left may come back. A command is proposed when a later look, some
seconds after the first, still finds it; the stage that owns the cluster then checks it against its own book. Proposed again
it is after a pause that doubles, because what was refused once will mostly be refused again. A workload that was moved a moment
ago is left where it is, and so is a pool whose last command had to be given up, the longer the more often that happened.

Looked at are pools whose prices are known; the others have `emptiness`. A cluster that is silent, or has not been heard of for
too long, is held: what it looks like is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from wharfinger.domain.value import digest
from wharfinger.engine.disruption.scene import Command, Scene, Survey, Verdict
from wharfinger.engine.provisioning.problem import Wanted
from wharfinger.events.assignments import Disrupted
from wharfinger.events.envelope import derived_id
from wharfinger.events.proposals import DisruptionProposed, NewNode
from wharfinger.events.streams import cluster_stream
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler.facts import SECOND, ClusterFacts, DeschedulerState
from wharfinger.stages.descheduler.watches import CommandKey, Finding, Watch
from wharfinger.stages.scenes import contents_of, scene_of

GIVEN_UP_PAUSE: Micros = 60 * SECOND
"""After a command that was rolled back its pools are left alone for so long; it doubles with every one in a row."""


def survey(scene: Scene) -> Survey:
    """The engine's, imported where it is needed: who has no priced pools need not pay for it."""
    from wharfinger.engine.disruption import methods

    return methods.survey(scene)


@dataclass(frozen=True, slots=True)
class Looking:
    """`every_s`: a cluster is looked at when it has changed, but no more often than this. `again_after_s`: a command
    is proposed when it is still found so long after it was found first. `cool_down_s`: a workload of which a replica
    was moved stays for so long, and twice as long when it is moved again soon after. `repeat_after_s`: the first
    pause between two proposals of a command. `survey` takes its time in a large cluster: `elsewhere` leaves it to
    whoever runs the observer to ask for `due_looks`, and to say what was `seen`."""

    every_s: int = 10
    again_after_s: int = 15
    cool_down_s: int = 300
    repeat_after_s: int = 60
    survey: Callable[[Scene], Survey] = survey
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """A cluster to be looked at, as it is at one moment."""

    cluster: str
    scene: Scene


# --- what is folded


def changed(state: DeschedulerState, looking: Looking, name: str, at: Micros) -> None:
    """Something of the cluster is otherwise than it was."""
    if state.policies.known(name):
        state.looks.set((name,), max(at, _next_look(state.watch(name), looking)))
    else:
        state.looks.discard((name,))


def policies_changed(state: DeschedulerState, looking: Looking, at: Micros) -> None:
    for name in sorted(state.clusters):
        changed(state, looking, name, at)


def command_ended(state: DeschedulerState, name: str, cluster: ClusterFacts, ended: Disrupted, at: Micros) -> None:
    """While it still stands among the open ones. What was given up is a reason to leave its pools alone."""
    watch, command = state.watch(name), cluster.pools.commands.get(ended.command)
    nodes = ended.reopened if command is None else command.nodes
    for pool in sorted({cluster.pool_of[node] for node in nodes if node in cluster.pool_of}):
        if ended.outcome == "done":
            watch.given_up.pop(pool, None)
        else:
            watch.rolled_back(pool, at)


# --- looking


def due_looks(state: DeschedulerState, looking: Looking, at: Micros) -> list[Look]:
    """The clusters whose time has come, as they are now; those that are held are not looked at."""
    looks: list[Look] = []
    for (name,) in state.looks.pop(at):
        cluster, watch = state.clusters[name], state.watch(name)
        if watch.under_way:
            state.looks.set((name,), at + max(1, looking.every_s) * SECOND)
            continue
        watch.looked, watch.held = at, state.held(name, at)
        if watch.held:
            watch.found.clear()
            watch.verdicts = tuple([Verdict(node, "Held", watch.held) for node in sorted(cluster.pool_of)])
        else:
            watch.under_way = True
            looks.append(Look(name, scene_for(state, looking, name, at)))
    return looks


def seen(state: DeschedulerState, look: Look, survey: Survey) -> None:
    """What a look found. It is taken up with the next `publish`."""
    if look.cluster in state.watches:
        state.watches[look.cluster].under_way = False
        state.surveys[look.cluster] = (look.scene, survey)


def publish(state: DeschedulerState, looking: Looking, at: Micros, room: int) -> list[Publication]:
    """Look at the clusters whose time has come, unless another does, and propose what is ripe, at most `room` commands."""
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
    state: DeschedulerState, looking: Looking, name: str, scene: Scene, survey: Survey, at: Micros, room: int
) -> list[Publication]:
    watch = state.watch(name)
    watch.verdicts = survey.verdicts
    _adopt(watch, state.clusters[name], scene, survey.commands)
    ripe = [key for key, found in watch.found.items() if _ripe_at(watch, looking, key, found) <= scene.at][:room]
    proposals = [_proposal(state, looking, name, key, at) for key in ripe]
    watch.forget_tries(at)
    _look_again(state, looking, name, scene)
    return proposals


def scene_for(state: DeschedulerState, looking: Looking, name: str, at: Micros) -> Scene:
    """The cluster as it is known here, pools of known prices only."""
    cluster, policies = state.clusters[name], state.policies
    scene = scene_of(cluster.book, policies, cluster.pools, name, at, waiting=_waiting(cluster))
    pools = tuple([pool for pool in scene.pools if pool.catalogue in policies.types])
    return replace(scene, pools=pools, resting=_resting(state, looking, name, at))


def _waiting(cluster: ClusterFacts) -> list[Wanted]:
    """Replicas that are wanted here, stand nowhere, and have no node on its way."""
    coming: dict[str, int] = {}
    for claim in cluster.pools.claims.values():
        for binding, count in claim.replicas.items():
            coming[binding] = coming.get(binding, 0) + count
    waiting: list[Wanted] = []
    for binding in sorted(cluster.book.unsettled):
        held = cluster.book.held[binding]
        missing = held.desired - len(held.placed) - coming.get(binding, 0)
        if missing > 0:
            waiting.append(Wanted(binding, held.cls.requirements, missing, held.priority))
    return waiting


def _resting(state: DeschedulerState, looking: Looking, name: str, at: Micros) -> dict[str, tuple[str, Micros]]:
    """Node -> why it is left alone, and until when: of several reasons the one that lasts longest."""
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
        rest(sorted(n for n, p in cluster.pool_of.items() if p == pool), why, tried.again_at(GIVEN_UP_PAUSE))
    return resting


def _adopt(watch: Watch, cluster: ClusterFacts, scene: Scene, commands: Iterable[Command]) -> None:
    """What was found this time is all there is; how long it has been found is remembered. What has changed since the scene was
    made is left for the next look."""
    going, quiet = cluster.pools.disrupting(), cluster.pools.quiet_since
    found: dict[CommandKey, Finding] = {}
    for command in commands:
        if any(node in going or quiet.get(node) != scene.quiet_since.get(node) for node in command.nodes):
            continue
        contents = {node: contents_of(cluster.book, node) for node in command.nodes}
        key = (command.method, command.nodes, digest(sorted(contents.items())))
        known = watch.found.get(key)
        found[key] = Finding(command, contents, scene.at if known is None else known.since)
    watch.found = found


def _ripe_at(watch: Watch, looking: Looking, key: CommandKey, found: Finding) -> Micros:
    ripe, tried = found.since + looking.again_after_s * SECOND, watch.tried.get(key)
    return ripe if tried is None else max(ripe, tried.again_at(looking.repeat_after_s * SECOND))


def _proposal(state: DeschedulerState, looking: Looking, name: str, key: CommandKey, at: Micros) -> Publication:
    """The first time it is named by what it is alone, so that a restarted observer repeats the same id; later by the time as
    well (see `causes`)."""
    watch, stream = state.watch(name), cluster_stream(name)
    found, (method, nodes, holding) = watch.found[key], key
    attempt = 1 + at // (looking.repeat_after_s * SECOND) if watch.proposed(key, at) else 0
    id = derived_id("proposal", "disruption", stream, method, "\n".join(nodes), holding, attempt)
    return Publication(_proposed(name, found.command, found.contents), name, stream, stream, id)


def _proposed(name: str, command: Command, contents: Mapping[str, str]) -> DisruptionProposed:
    replacements = tuple([
        NewNode(new.pool, new.requirements, new.instance_types, dict(new.requests), new.price)
        for new in command.replacements
    ])  # fmt: skip
    return DisruptionProposed(
        cluster_stream(name), name, command.method, command.nodes, dict(contents), replacements, command.saving,
        command.disruption, command.arithmetic,
    )  # fmt: skip


# --- when


def _next_look(watch: Watch, looking: Looking) -> Micros:
    """The earliest time for another look."""
    return 0 if watch.looked < 0 else watch.looked + looking.every_s * SECOND


def _look_again(state: DeschedulerState, looking: Looking, name: str, scene: Scene) -> None:
    """Though nothing changes: when something found is ripe, or time alone may let a node be judged otherwise: it is kept for
    nobody any more, something can be bought again."""
    watch, earlier, pools = state.watch(name), state.looks.due((name,)), state.clusters[name].pools
    times = [_ripe_at(watch, looking, key, found) for key, found in watch.found.items()]
    times += [verdict.until for verdict in watch.verdicts if verdict.until > scene.at]
    times += [until for _, until in scene.resting.values()]
    times += [until for until in pools.promised.values() if until > scene.at]
    times += [sold_out.until for sold_out in pools.sold_out.values() if sold_out.until > scene.at]
    if times:
        next_look = max(min(times), _next_look(watch, looking))
        state.looks.set((name,), next_look if earlier is None else min(earlier, next_look))
