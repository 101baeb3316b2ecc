"""New nodes for replicas that fit nowhere: one call of Solve for all of them when the batch window
closes, including pending nodes.

Replicas with a new or pending node wait, as after a preemption, and are not refused while the claim
is open. Replicas that Solve cannot help are refused with its reason for each pool. A pod group is
helped whole or not at all.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from wharfinger.domain.text import count as counted
from wharfinger.engine.provisioning.problem import NewClaim, Solution
from wharfinger.engine.provisioning.solve import solve
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.answers import does_not_fit, in_order, nominated_draft
from wharfinger.stages.cluster.claims import in_words, name_of, requested
from wharfinger.stages.cluster.cluster_snapshot import problem
from wharfinger.stages.cluster.group_members import group_of
from wharfinger.stages.cluster.groups import DOES_NOT_FIT, given_back
from wharfinger.stages.cluster.other_pods import others_to_help
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.pools import COMES_WITHIN_US


def provision(state: ClusterStageState, short: Mapping[str, int], at: Micros) -> Iterator[Draft]:
    """Yields the drafts (decisions that have no seq yet) that request new nodes for the replicas
    that fit on no node. One call of Solve (a simulation as in Karpenter: it puts pods on existing
    nodes, on pending nodes, which were requested and are not there yet, and on new nodes) handles
    all bindings together.

    `short`: binding -> number of replicas that have neither a node nor reserved room. Waiting pods
    of other schedulers are part of the same solution; nothing is decided about those that get no
    new node.

    - A pod group that would stay below its minimum number of placed pods is refused as a whole.
      Then Solve is repeated without this pod group.
    - Replicas that Solve puts on pending or uninitialised nodes get a nomination: room on that node
      is reserved for the replicas.
    - For each new node of the solution, a node claim is requested.
    - All remaining replicas are refused, with the reason that Solve gave.
    """
    others = others_to_help(state, at, bool(short))
    if not short and not others:
        return
    asked = {name: short[name] for name in in_order(state, short)}
    solution = solve(problem(state, at, asked, others))
    while broken := _broken_groups(state, asked, solution):
        for members in broken:
            note = next(
                (said for name in members if (said := _said(state, solution, name, at))), ""
            )
            yield from given_back(state, members, DOES_NOT_FIT, note)
            asked = {name: count for name, count in asked.items() if name not in members}
        if not asked and not others:
            return
        solution = solve(problem(state, at, asked, others))
    helped = yield from _nominated(state, asked, solution, at)
    for claim in solution.claims:
        yield _claimed(state, claim, solution, at)
        for name, count in claim.pods.items():
            helped[name] = helped.get(name, 0) + count
    for name, count in asked.items():
        left = count - helped.get(name, 0)
        if left > 0:
            yield does_not_fit(state, name, left, _said(state, solution, name, at))


def _nominated(
    state: ClusterStageState, asked: Mapping[str, int], solution: Solution, at: Micros
) -> Generator[Draft, None, dict[str, int]]:
    """Drafts nominations for the replicas that Solve puts on pending claims or on nodes that are
    not initialised. Returns binding -> number of its nominated replicas."""
    helped: dict[str, int] = {}
    for target, name, count in _places(solution):
        if name not in asked or not _waits_at(state, target, name, solution):
            continue
        yield nominated_draft(state, name, target, count, at + COMES_WITHIN_US)
        helped[name] = helped.get(name, 0) + count
    return helped


def _places(solution: Solution) -> Iterator[tuple[str, str, int]]:
    for by_target in (solution.placed, solution.joined):
        for target, pods in sorted(by_target.items()):
            for name, count in sorted(pods.items()):
                yield target, name, count


def _waits_at(state: ClusterStageState, target: str, binding: str, solution: Solution) -> bool:
    """Returns whether a replica of the binding, which Solve (the simulation that puts pods on
    nodes) put on `target`, has to wait there. `target`: name of a pending node claim or of a node.

    The replica waits if `target` is a pending node claim, or a node that is not initialised. On an
    initialised node the replica waits only if `solution` also requests new nodes for its pod group;
    the group then waits as a whole. In any other case the answer is False: the scheduler would have
    placed the replica on this node before, so its room is not reserved.
    """
    if target in state.pools.claims:
        return True
    node = state.book.nodes.get(target)
    if node is None:
        return False
    if not state.policies.initialized(state.cluster, node):
        return True
    group = group_of(state.book.held[binding].cls)
    if group is None:
        return False
    return any(
        name in claim.pods for claim in solution.claims for name in state.members.by_group[group]
    )


def _claimed(state: ClusterStageState, claim: NewClaim, solution: Solution, at: Micros) -> Draft:
    held = state.book.held
    names = in_order(state, {name: None for name in claim.pods if name in held})
    cause = uuid_of(held[names[0]].assignment) if names else None
    for_whom = [f"{claim.pods[name]} of {name}" for name in names]
    if others := sum(claim.pods.values()) - sum(claim.pods[name] for name in names):
        for_whom.append(f"{counted(others, 'waiting pod')} of other schedulers")
    note = f"{in_words(claim)}; for {', '.join(for_whom)}"
    given_up = [
        f"{name}: {', '.join(solution.relaxed[name])}"
        for name in names
        if solution.relaxed.get(name)
    ]
    if given_up:
        note += f"; given up: {'; '.join(given_up)}"
    return requested(state, claim, name_of(state, claim.pool), at + COMES_WITHIN_US, cause, note)


def _broken_groups(
    state: ClusterStageState, asked: Mapping[str, int], solution: Solution
) -> list[list[str]]:
    """Returns the pod groups that would stay below their minimum with this solution of Solve (the
    simulation that puts pods on nodes): for each such group, the list of its bindings.

    A group is broken if (wanted replicas of all its bindings) minus (its replicas that Solve could
    not place) is less than its minimum. The minimum is the largest `min_count` among the bindings
    of the group. Only groups with a binding in `asked` (binding -> number of replicas) are checked.
    Example: minimum 4, 6 replicas wanted, 3 not placed: 6 - 3 = 3 is less than 4, so the group is
    returned.
    """
    unplaced = {u.name: u.count for u in solution.unplaced}
    broken: list[list[str]] = []
    for group in {
        g: None for name in asked if (g := group_of(state.book.held[name].cls)) is not None
    }:
        members = in_order(state, dict.fromkeys(sorted(state.members.by_group[group])))
        held = [state.book.held[name] for name in members]
        least = max(h.cls.requirements.traits.min_count for h in held)
        if sum(h.desired for h in held) - sum(unplaced.get(name, 0) for name in members) < least:
            broken.append(members)
    return broken


def _said(state: ClusterStageState, solution: Solution, name: str, at: Micros) -> str:
    """Returns the text that explains why the binding `name` got no node. A semicolon separates the
    parts:

    - the reasons that Solve (the simulation that puts pods on nodes) gave for this binding;
    - for each pool in back-off (its last nodes could not be created): for how many seconds no node
      of the pool is requested;
    - up to three ready nodes on which Solve sees room although the scheduler does not place the
      replica there.
    """
    said = list(dict.fromkeys(u.reason for u in solution.unplaced if u.name == name))
    away = sorted(state.pools.backing_off(at).items())
    said += [
        f"pool {pool}: no node could be had, not asked again for {(until - at) // 1_000_000} s"
        for pool, until in away
    ]
    ready = [node for node, pods in sorted(solution.placed.items()) if pods.get(name)]
    if ready:
        said.append(
            f"there is room on {', '.join(ready[:3])}, where the scheduler does not place it"
        )
    return "; ".join(said)
