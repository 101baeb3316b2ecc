"""Runs each DeschedulerPolicy on each of its clusters periodically and proposes to evict the pods
that its strategies name.

The stage that owns the cluster finds another node for each named pod before it is released; without
one the pod stays. `engine.descheduling.steadiness` damps passes against short fluctuations and
repeated refusals. Nothing is proposed in a cluster whose state is not known, nor on nodes that are
being removed.

This process cannot guarantee that a workload does not return to a node it left: its memory is lost
with it, and the stage chooses the target. So each proposal states how long a return is forbidden
and which nodes are known here; the stage enforces both, and records its own moves
(`stages.cluster.move_cooldown`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from wharfinger.domain.descheduling import (
    CraneWatermarks,
    DeschedulingPolicy,
    LowNodeUtilization,
    name_of,
)
from wharfinger.domain.policy import Policy
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import digest
from wharfinger.engine.descheduling.evictor import Eviction
from wharfinger.engine.descheduling.run import Passed
from wharfinger.engine.descheduling.view import BINDING, ClusterView, upkeep
from wharfinger.events.envelope import derived_id
from wharfinger.events.proposals import DeschedulingProposed, FinishedPod, Unseating
from wharfinger.events.streams import cluster_stream
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.cluster_snapshots import nodes_of, pods_of
from wharfinger.stages.descheduler.facts import DeschedulerState, Named
from wharfinger.stages.descheduler.watches import DuePass, Passes

UNSEATINGS_MAX = 100
AVOIDED_MAX = 16
"""Of one proposal, and of one pod in it, so that no message grows without bound."""


# --- what is folded


def fold_policy(state: DeschedulerState, policy: Policy, at: Micros) -> None:
    """Folds a policy event into the descheduling policies and the priority classes.

    A new descheduling policy is due at once in every cluster with known nodes. A pass is one run of
    a policy over one cluster. A changed policy keeps the time of its last pass, and what its
    earlier passes stored for later ones. If a policy was removed, or has no descheduling settings
    any more, it gets no further passes.
    """
    if policy.priority_level is not None:
        state.priority_classes[policy.key] = (policy.name, policy.priority_level.value)
    else:
        state.priority_classes.pop(policy.key, None)
    if policy.descheduling is None:
        if state.descheduling.pop(policy.key, None) is not None:
            for name in state.clusters:
                _stop(state, policy.key, name)
        return
    state.descheduling[policy.key] = policy.descheduling
    for name in sorted(state.clusters):
        _watch(state, policy.key, policy.descheduling, name, at)


def nodes_known(state: DeschedulerState, name: str, at: Micros) -> None:
    for key, policy in sorted(state.descheduling.items()):
        _watch(state, key, policy, name, at)


def _watch(
    state: DeschedulerState, key: str, policy: DeschedulingPolicy, name: str, at: Micros
) -> None:
    if policy.clusters and name not in policy.clusters:
        _stop(state, key, name)
    elif state.clusters[name].book.known:
        passes = state.passes.setdefault((name, key), Passes())
        passes.memory.follow(policy)
        state.passing.set(
            (name, key), at if passes.last < 0 else max(at, passes.last + policy.every_s * SECOND)
        )


def _stop(state: DeschedulerState, key: str, name: str) -> None:
    state.passes.pop((name, key), None)
    state.passing.discard((name, key))


def forget_cluster(state: DeschedulerState, name: str) -> None:
    for key in state.descheduling:
        _stop(state, key, name)


# --- passes


def due_passes(state: DeschedulerState, at: Micros) -> list[DuePass]:
    """Takes the descheduling passes (one policy over one cluster) that are due at `at` from the
    timer queue, and returns each with a copy of the known state of its cluster. Each pass is
    scheduled again after the interval of its policy, `every_s`.

    A pass is skipped in two cases: the previous pass of the same policy and cluster is still
    running, or the known state of the cluster is not current (for example, the cluster is silent).
    A returned pass is marked as running until the caller calls `finished`.
    """
    due: list[DuePass] = []
    for name, key in state.passing.pop(at):
        policy, passes = state.descheduling[key], state.passes[name, key]
        state.passing.set((name, key), at + policy.every_s * SECOND)
        if passes.going:
            continue  # the one before takes longer than the time between two
        passes.last, passes.held = at, state.held(name, at)
        if not passes.held:
            passes.going = True
            due.append(DuePass(name, key, policy, passes, view_of(state, name, at)))
    return due


def finished(state: DeschedulerState, due: DuePass, found: Passed) -> None:
    """Ends a pass and stores the evictions that it found for the next `publish`. They are dropped
    if the policy was removed while the pass ran."""
    due.passes.finish()
    if state.passes.get((due.cluster, due.key)) is due.passes:
        due.passes.failures = found.failures
        named = [(eviction, _avoided(due, eviction)) for eviction in found.evictions]
        state.named.append((due, named))


def publish(state: DeschedulerState, at: Micros, room: int, elsewhere: bool) -> list[Publication]:
    """Runs the descheduling passes that are due and returns proposals for the evictions found: one
    proposal for each strategy of each descheduler profile (a named list of strategies in a policy),
    each with at most 100 pods (`UNSEATINGS_MAX`).

    At most `room` proposals are returned. Any further proposals are dropped; a later pass finds the
    same evictions again. If `elsewhere` is set, another process runs the passes; this function uses
    only the results that were passed to `finished`. Results for a cluster whose known state is no
    longer current (for example, the cluster is silent) are dropped.
    """
    if not elsewhere:
        for due in due_passes(state, at):
            finished(state, due, due.run())
    proposals: list[Publication] = []
    for due, named in state.named:
        if not state.held(due.cluster, at):
            proposals += _proposals(due, _still(state, due.cluster, named), at)
    state.named.clear()
    return proposals[:room]


def _avoided(due: DuePass, eviction: Eviction) -> tuple[str, ...]:
    """Returns the nodes that the pod's workload left last, at most `AVOIDED_MAX`, latest last.
    Called only while no pass writes to the memory."""
    if due.policy.strict or not eviction.binding or eviction.finished is not None:
        return ()
    left = due.passes.memory.left_lately(f"{BINDING}/{eviction.binding}", due.view.at)
    return tuple([node for node in left if node != eviction.node][-AVOIDED_MAX:])


def _still(state: DeschedulerState, name: str, named: Sequence[Named]) -> list[Named]:
    """Returns the evictions without those on nodes whose removal began during the pass."""
    going = state.clusters[name].pools.disrupting()
    return [(eviction, avoid) for eviction, avoid in named if eviction.node not in going]


def _proposals(due: DuePass, named_ones: Sequence[Named], at: Micros) -> Iterator[Publication]:
    for (profile, strategy), named in groupby(named_ones, lambda n: (n[0].profile, n[0].strategy)):
        of_strategy = list(named)
        for first in range(0, len(of_strategy), UNSEATINGS_MAX):
            some = of_strategy[first : first + UNSEATINGS_MAX]
            yield _proposal(due, profile, strategy, some, at)


def view_of(state: DeschedulerState, name: str, at: Micros) -> ClusterView:
    cluster = state.clusters[name]
    going = cluster.pools.disrupting()
    pods = tuple(pods_of(cluster.book))
    held = {pod.uid: f"node {pod.node} is about to go" for pod in pods if pod.node in going}
    classes = dict(value for _, value in sorted(state.priority_classes.items(), reverse=True))
    return ClusterView(
        at,
        nodes_of(cluster.book),
        pods,
        cluster.book.objects,
        classes,
        load=cluster.load,
        held=held | cluster.finished.held(at),
        finished=cluster.finished.all(),
    )


def _proposal(
    due: DuePass, profile: str, strategy: str, named: Sequence[Named], at: Micros
) -> Publication:
    """Builds one proposal with the evictions that one strategy of one descheduler profile (a named
    list of strategies in a policy) found.

    `named`: pairs of an eviction and the nodes that the evicted pod must not go to. `at`: the time
    of the pass.

    The id of the proposal is a digest of the policy, the profile, the strategy and the pods with
    their nodes, so a restarted observer gives the same id again. `due.passes.proposed` holds the
    digests of all earlier proposals. If the digest is among them, the number of the policy's
    interval in which `at` lies is added, so that the id differs from the earlier one.
    """
    stream, policy, proposed = cluster_stream(due.cluster), due.policy, due.passes.proposed
    unseatings = tuple([_unseating(eviction, avoid) for eviction, avoid in named])
    what = digest(
        (due.key, profile, strategy, tuple([_unseating(eviction) for eviction, _ in named]))
    )
    attempt = 1 + at // (policy.every_s * SECOND) if what in proposed else 0
    proposed.add(what)
    measured = _by_measurements(policy, profile, strategy)
    in_words = _in_words([eviction for eviction, _ in named])
    spans = (0, 0) if policy.strict else (policy.return_s, policy.cooldown_s)
    data = DeschedulingProposed(
        stream, due.cluster, strategy, profile, unseatings, in_words, measured, *spans
    )
    id = derived_id("proposal", "descheduling", stream, what, attempt)
    return Publication(data, due.cluster, stream, stream, id)


def _by_measurements(policy: DeschedulingPolicy, profile: str, strategy: str) -> bool:
    """Returns whether the strategy `strategy` of the descheduler profile `profile` (a named list of
    strategies in a policy) compares measured load of nodes instead of requests. This is true for
    CraneWatermarks, and for LowNodeUtilization if its source is not `requests`."""
    named = [
        s
        for p in policy.profiles
        if p.name == profile
        for s in (*p.deschedule, *p.balance)
        if name_of(s) == strategy
    ]
    return any(
        isinstance(s, CraneWatermarks)
        or (isinstance(s, LowNodeUtilization) and s.source != "requests")
        for s in named
    )


def _unseating(eviction: Eviction, avoid: tuple[str, ...] = ()) -> Unseating:
    if (ended := eviction.finished) is not None:
        named = FinishedPod(
            ended.uid, ended.requirements.traits.home, ended.name, upkeep(ended).phase
        )
        return Unseating(eviction.node, pod=ended.uid, finished=named)
    if eviction.binding and eviction.ordinal >= 0:
        return Unseating(eviction.node, eviction.binding, eviction.ordinal, avoid=avoid)
    return Unseating(eviction.node, pod=eviction.pod)


def _in_words(named: Sequence[Eviction]) -> str:
    reasons = list(dict.fromkeys(eviction.reason for eviction in named))
    more = f"; and {len(reasons) - 3} reasons more" if len(reasons) > 3 else ""
    return "; ".join(reasons[:3]) + more
