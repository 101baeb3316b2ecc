"""Nodes for what fits nowhere: all that is left over of a round is put to Solve at once, together with what is on its way.

What new nodes are asked for waits, as what room is made for waits: it is not refused while its claim is open. What Solve can
do nothing for is refused, with what Solve says of each pool. A group of pods is helped whole or not at all.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from wharfinger.engine.provisioning.problem import NewClaim, Solution
from wharfinger.engine.provisioning.solve import solve
from wharfinger.events.decisions import ReplicasNominated
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.answers import does_not_fit, in_order
from wharfinger.stages.cluster.claims import in_words, name_of, requested
from wharfinger.stages.cluster.groups import DOES_NOT_FIT, given_back
from wharfinger.stages.cluster.members import group_of
from wharfinger.stages.cluster.scene import problem
from wharfinger.stages.cluster.state import ClusterState
from wharfinger.stages.pools import COMES_WITHIN_US


def provision(state: ClusterState, short: Mapping[str, int], at: Micros) -> Iterator[Draft]:
    """`short`: binding -> how many of its replicas have no place and wait for none. Each of them waits then, or is refused."""
    if not short:
        return
    asked = {name: short[name] for name in in_order(state, short)}
    solution = solve(problem(state, at, asked))
    while broken := _broken_groups(state, asked, solution):
        for members in broken:
            note = next((said for name in members if (said := _said(state, solution, name, at))), "")
            yield from given_back(state, members, DOES_NOT_FIT, note)
            asked = {name: count for name, count in asked.items() if name not in members}
        if not asked:
            return
        solution = solve(problem(state, at, asked))
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
    state: ClusterState, asked: Mapping[str, int], solution: Solution, at: Micros
) -> Generator[Draft, None, dict[str, int]]:
    """What is to go to nodes on their way, or that are there and not to be counted on yet: how many of each binding."""
    helped: dict[str, int] = {}
    for target, name, count in _places(solution):
        if name not in asked or not _waits_at(state, target, name, solution):
            continue
        held = state.book.held[name]
        data = ReplicasNominated(state.cluster, name, held.assignment, target, count, at + COMES_WITHIN_US)
        yield Draft(data, name, "nominated", uuid_of(held.assignment))
        helped[name] = helped.get(name, 0) + count
    return helped


def _places(solution: Solution) -> Iterator[tuple[str, str, int]]:
    for by_target in (solution.placed, solution.joined):
        for target, pods in sorted(by_target.items()):
            for name, count in sorted(pods.items()):
                yield target, name, count


def _waits_at(state: ClusterState, target: str, binding: str, solution: Solution) -> bool:
    """A node that is ready takes replicas at once; what it did not take, it will not, unless a group waits for the rest of it."""
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
    return any(name in claim.pods for claim in solution.claims for name in state.members.by_group[group])


def _claimed(state: ClusterState, claim: NewClaim, solution: Solution, at: Micros) -> Draft:
    held = state.book.held
    names = in_order(state, {name: None for name in claim.pods if name in held})
    cause = uuid_of(held[names[0]].assignment) if names else None
    note = f"{in_words(claim)}; for {', '.join(f'{claim.pods[name]} of {name}' for name in names)}"
    given_up = [f"{name}: {', '.join(solution.relaxed[name])}" for name in names if solution.relaxed.get(name)]
    if given_up:
        note += f"; given up: {'; '.join(given_up)}"
    return requested(state, claim, name_of(state, claim.pool), at + COMES_WITHIN_US, cause, note)


def _broken_groups(state: ClusterState, asked: Mapping[str, int], solution: Solution) -> list[list[str]]:
    """The members of each group of which not enough would get a place."""
    unplaced = {u.name: u.count for u in solution.unplaced}
    broken: list[list[str]] = []
    for group in {g: None for name in asked if (g := group_of(state.book.held[name].cls)) is not None}:
        members = in_order(state, dict.fromkeys(sorted(state.members.by_group[group])))
        held = [state.book.held[name] for name in members]
        least = max(h.cls.requirements.traits.min_count for h in held)
        if sum(h.desired for h in held) - sum(unplaced.get(name, 0) for name in members) < least:
            broken.append(members)
    return broken


def _said(state: ClusterState, solution: Solution, name: str, at: Micros) -> str:
    """What there is to say of the pools, as users know it."""
    said = list(dict.fromkeys(u.reason for u in solution.unplaced if u.name == name))
    away = sorted(state.pools.backing_off(at).items())
    said += [
        f"pool {pool}: no node could be had, not asked again for {(until - at) // 1_000_000} s" for pool, until in away
    ]
    ready = [node for node, pods in sorted(solution.placed.items()) if pods.get(name)]
    if ready:
        said.append(f"there is room on {', '.join(ready[:3])}, where the scheduler does not place it")
    return "; ".join(said)
