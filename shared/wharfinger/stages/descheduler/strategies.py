"""Pods on nodes they should not be on: each descheduling policy goes over each of its clusters, time after time.

What a pass names is proposed, and nothing more: the stage that owns the cluster finds a place for each before it takes it off
its node, or leaves it. What passes remember (`engine.descheduling.steadiness`) keeps them from following every breath of the load
and from asking again for what was refused. Nothing is named in a cluster of which it is not known what it looks like, nor on
nodes that are about to go anyway.

That nothing goes back to where its workload was taken off is not this process's to promise, for it forgets everything when it
ends, and the stage seeks a place by itself. So each proposal says for how long that shall hold, and names the nodes that are
remembered; the stage keeps to both, and remembers what it moved itself (`stages.cluster.staying_away`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from wharfinger.domain.descheduling import CraneWatermarks, DeschedulingPolicy, LowNodeUtilization, name_of
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import digest
from wharfinger.engine.descheduling.evictor import Eviction
from wharfinger.engine.descheduling.run import Passed
from wharfinger.engine.descheduling.view import BINDING, ClusterView
from wharfinger.events.envelope import derived_id
from wharfinger.events.proposals import DeschedulingProposed, Unseating
from wharfinger.events.streams import cluster_stream
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler.facts import SECOND, DeschedulerState, Named
from wharfinger.stages.descheduler.watches import DuePass, Passes
from wharfinger.stages.scenes import nodes_of, pods_of

UNSEATINGS_MAX = 100
AVOIDED_MAX = 16
"""Of one proposal, and of one pod in it, so that no message grows without bound."""


# --- what is folded


def fold_policy(state: DeschedulerState, policy: Policy, at: Micros) -> None:
    """The first pass is made at once. A policy that says otherwise than before goes on with what it remembers."""
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


def _watch(state: DeschedulerState, key: str, policy: DeschedulingPolicy, name: str, at: Micros) -> None:
    if policy.clusters and name not in policy.clusters:
        _stop(state, key, name)
    elif state.clusters[name].book.known:
        passes = state.passes.setdefault((name, key), Passes())
        passes.memory.follow(policy)
        state.passing.set((name, key), at if passes.last < 0 else max(at, passes.last + policy.every_s * SECOND))


def _stop(state: DeschedulerState, key: str, name: str) -> None:
    state.passes.pop((name, key), None)
    state.passing.discard((name, key))


def forget_cluster(state: DeschedulerState, name: str) -> None:
    for key in state.descheduling:
        _stop(state, key, name)


# --- passes


def due_passes(state: DeschedulerState, at: Micros) -> list[DuePass]:
    """Those whose time has come, with the cluster as it is now; the next is due after the policy's time."""
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
    """What a pass named. It is taken up with the next `publish`, unless nobody wants it any more."""
    due.passes.finish()
    if state.passes.get((due.cluster, due.key)) is due.passes:
        due.passes.failures = found.failures
        named = [(eviction, _avoided(due, eviction)) for eviction in found.evictions]
        state.named.append((due, named))


def publish(state: DeschedulerState, at: Micros, room: int, elsewhere: bool) -> list[Publication]:
    """Make the passes that are due, unless another does, and propose what was named: at most `room` proposals, what is over is
    left to a later pass."""
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
    """What its workload was taken off last, the latest last. Asked while no pass writes to the memory."""
    if due.policy.strict or not eviction.binding:
        return ()
    left = due.passes.memory.left_lately(f"{BINDING}/{eviction.binding}", due.view.at)
    return tuple([node for node in left if node != eviction.node][-AVOIDED_MAX:])


def _still(state: DeschedulerState, name: str, named: Sequence[Named]) -> list[Named]:
    """Without those whose node began to go meanwhile."""
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
        at, nodes_of(cluster.book), pods, cluster.book.objects, classes, load=cluster.load, held=held
    )  # fmt: skip


def _proposal(due: DuePass, profile: str, strategy: str, named: Sequence[Named], at: Micros) -> Publication:
    """Named by who shall leave which node, and when it was proposed before, by the time as well: see `causes`."""
    stream, policy, proposed = cluster_stream(due.cluster), due.policy, due.passes.proposed
    unseatings = tuple([_unseating(eviction, avoid) for eviction, avoid in named])
    what = digest((due.key, profile, strategy, tuple([_unseating(eviction) for eviction, _ in named])))
    attempt = 1 + at // (policy.every_s * SECOND) if what in proposed else 0
    proposed.add(what)
    measured = _by_measurements(policy, profile, strategy)
    in_words = _in_words([eviction for eviction, _ in named])
    spans = (0, 0) if policy.strict else (policy.return_s, policy.cooldown_s)
    data = DeschedulingProposed(stream, due.cluster, strategy, profile, unseatings, in_words, measured, *spans)
    id = derived_id("proposal", "descheduling", stream, what, attempt)
    return Publication(data, due.cluster, stream, stream, id)


def _by_measurements(policy: DeschedulingPolicy, profile: str, strategy: str) -> bool:
    """Whether the strategy went by what is measured, not by what is requested."""
    named = [
        s for p in policy.profiles if p.name == profile for s in (*p.deschedule, *p.balance) if name_of(s) == strategy
    ]
    return any(
        isinstance(s, CraneWatermarks) or (isinstance(s, LowNodeUtilization) and s.source != "requests") for s in named
    )


def _unseating(eviction: Eviction, avoid: tuple[str, ...] = ()) -> Unseating:
    if eviction.binding and eviction.ordinal >= 0:
        return Unseating(eviction.node, eviction.binding, eviction.ordinal, avoid=avoid)
    return Unseating(eviction.node, pod=eviction.pod)


def _in_words(named: Sequence[Eviction]) -> str:
    reasons = list(dict.fromkeys(eviction.reason for eviction in named))
    more = f"; and {len(reasons) - 3} reasons more" if len(reasons) > 3 else ""
    return "; ".join(reasons[:3]) + more
