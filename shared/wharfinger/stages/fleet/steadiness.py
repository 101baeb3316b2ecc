"""Voluntary moves: back to a preferred affinity term (failback), and to better clusters
(rebalance). Only where the policy allows them.

Improvements are searched after a round in which facts or counts changed, at most every few seconds:
a shorter interruption has no effect. An improvement that existed for as long as the policy demands
is checked once more and carried out, the oldest first, with a limit per minute over all bindings
(`moves`).

*Failback*: an earlier affinity term could take all replicas, with capacity for those added. The
whole binding moves, because all its targets belong to one term.

*Rebalance*: a fresh decision within the active term differs by at least `gain_percent` of the
replicas. At most `budget_percent` of them move at once, from the cluster with the largest surplus
to the one with the largest deficit. A fresh decision is weighted by capacity plus the replicas
held, so a move does not change its result, and moves do not undo each other. An Aggregated binding
is instead gathered into fewer of its present clusters, smallest share first, where they have
capacity for it and for the gain.

So fluctuations below the gain never move anything, and a fleet without changes converges. Example:
10 replicas at 8 + 2, a fresh decision gives 5 + 5, gain 20 %, budget 20 %. Three replicas differ,
which is at least 20 % of 10, so two replicas move. One then differs, which is less than 20 %, so it
stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from wharfinger.domain.time import SECOND
from wharfinger.events.decisions import Explanation
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.fleet.drafts import schedule
from wharfinger.stages.fleet.moves import MINUTE, place_of
from wharfinger.stages.fleet.relocate import breaks_spread
from wharfinger.stages.fleet.solve import SolveResult, solve_in_term
from wharfinger.stages.fleet.state import BindingState, FleetState

LOOK_S = 5
"""The least time between two searches for improvements, in seconds."""

LOOKS_MAX = 1000
"""How many bindings are evaluated in one search. The others follow in the next search."""


# Moving


def move(state: FleetState, at: Micros) -> Iterator[Draft]:
    """Yield the voluntary moves that are due at the time `at`: failback (return to an earlier
    affinity term) and rebalance (better division). A move is due when its improvement has existed
    for the time that the policy sets. Moves whose improvement has existed longest come first.
    Each improvement is computed once more before the move; if it is gone, nothing moves. The number
    of moves per minute is limited."""
    left = state.moves.left(at)
    for name in sorted(
        [name for (name,) in state.moves.agenda.ripe(at)],
        key=lambda n: (_since(state.bindings[n]), n),
    ):
        if not left:
            return
        draft = _moved(state, state.bindings[name], at)
        if draft is not None:
            left -= 1
            yield draft


def _since(record: BindingState) -> Micros:
    return min(since for since in (record.failback_since, record.rebalance_since) if since)


def _moved(state: FleetState, record: BindingState, at: Micros) -> Draft | None:
    steadiness = record.spec.placement.steadiness
    kinds = (
        ("failback", record.failback_since, steadiness.failback_after_s, failback),
        ("rebalance", record.rebalance_since, steadiness.rebalance_after_s, rebalance),
    )
    for kind, since, after, better in kinds:
        if since and after is not None and since + after * SECOND <= at:
            verdict = better(state, record)
            if verdict is not None:
                why = f"{kind}: it could have lain better for {(at - since) // SECOND:,} s"
                return schedule(record, "ReconcileSchedule", why, verdict, (), None, move=kind)
    return None


# Looking


def find_better_placements(state: FleetState) -> None:
    """Look for bindings that a voluntary move would improve: failback (return to an earlier
    affinity term) or rebalance (better division). Record for each binding since when the
    improvement exists. Nothing is moved here; `move` does that.
    This happens at most every `LOOK_S` seconds, for at most `LOOKS_MAX` bindings in order of name,
    and not after a round that did not evaluate everything. The next call continues after the last
    name. The result depends only on the state, so a process that only folds the round gets the same
    result."""
    if state.unfinished:
        return
    moves, at = state.moves, state.clock
    for (name,) in moves.agenda.pop(at):
        _put_off(state, state.bindings[name], at)
    if not moves.candidates:
        moves.stale = False
        return
    if not moves.stale or at < moves.looked_at + LOOK_S * SECOND:
        return
    names = sorted(name for name in moves.candidates if name > moves.after)
    for name in names[:LOOKS_MAX]:
        _look_at(state, state.bindings[name], at)
    moves.looked_at = at
    moves.after = names[LOOKS_MAX - 1] if len(names) > LOOKS_MAX else ""
    moves.stale = len(names) > LOOKS_MAX


def next_look(state: FleetState) -> Micros | None:
    """Return the next time, in microseconds, at which candidates must be evaluated or moved. None:
    never."""
    moves = state.moves
    dues = [moves.agenda.next()]
    if moves.stale and moves.candidates:
        dues.append(moves.looked_at + LOOK_S * SECOND)
    return min((due for due in dues if due is not None), default=None)


def _put_off(state: FleetState, record: BindingState, at: Micros) -> None:
    """Handle a binding that was due for a voluntary move but has not moved. Where the limit of
    moves per minute is reached, it is due again in the next minute. Otherwise the improvement no
    longer exists, and the record of since when it existed is cleared."""
    moves, name = state.moves, record.spec.name
    if not moves.left(at):
        moves.agenda.set((name,), moves.minute + MINUTE)
        return
    _remember(state, record, 0, 0)
    moves.stale = True


def _look_at(state: FleetState, record: BindingState, at: Micros) -> None:
    could_return = failback(state, record) is not None
    could_balance = rebalance(state, record) is not None
    _remember(
        state,
        record,
        (record.failback_since or at) if could_return else 0,
        (record.rebalance_since or at) if could_balance else 0,
    )


def _remember(
    state: FleetState, record: BindingState, failback_since: Micros, rebalance_since: Micros
) -> None:
    if (record.failback_since, record.rebalance_since) != (failback_since, rebalance_since):
        record.failback_since, record.rebalance_since = failback_since, rebalance_since
        stale = state.moves.stale
        state.moves.consider(
            record.spec.name, record.spec, failback_since, rebalance_since, record.moved_at
        )
        state.moves.stale = stale
        state.changed(record.spec.name)


# What would be better


def failback(state: FleetState, record: BindingState) -> SolveResult | None:
    """Return the result of moving all replicas to an affinity term before the active one: the
    earliest term with capacity for them. None: there is no such term, or failback is not allowed
    now."""
    if record.spec.placement.steadiness.failback_after_s is None or not _settled(state, record):
        return None
    for term in range(place_of(record.spec, record.affinity)):
        verdict = solve_in_term(state, record, term)
        if not verdict.reason and _fits(state, record, verdict.targets):
            return verdict
    return None


def rebalance(state: FleetState, record: BindingState) -> SolveResult | None:
    """Return the targets of the next rebalance step of the binding: from its present targets
    towards the division that a fresh decision would give (for Aggregated: towards fewer clusters).
    At most the policy's budget of replicas moves in one step.
    None: rebalancing is not allowed now, the gain is too small, an added replica does not fit, or
    the targets would break replica limits or spread constraints. The gain is too small if fewer
    than `gain_percent` of the replicas would move.
    Example: 10 replicas at 8 + 2, a fresh decision gives 5 + 5, budget 20 %: the result is 6 + 4.
    """
    spec, steadiness = record.spec, record.spec.placement.steadiness
    if (
        steadiness.rebalance_after_s is None
        or spec.placement.replicas.type != "Divided"
        or not _settled(state, record)
    ):
        return None
    wanted = _wanted(state, record)
    if wanted is None:
        return None
    apart = distance(record.targets, wanted.targets)
    if not apart or apart * 100 < steadiness.gain_percent * spec.replicas:
        return None
    budget = max(1, -(-spec.replicas * steadiness.budget_percent // 100))
    targets = towards(record.targets, wanted.targets, budget)
    if (
        not _fits(state, record, targets)
        or not keeps_limits(record, targets)
        or breaks_spread(state, record, targets)
    ):
        return None
    note = (
        f"{min(apart, budget):,} of {spec.replicas:,} replicas moved, "
        f"{max(0, apart - budget):,} more would lie better elsewhere"
    )
    explanation = msgspec.structs.replace(wanted.explanation, note=note)
    return SolveResult(targets, wanted.affinity, explanation)


def _settled(state: FleetState, record: BindingState) -> bool:
    """Return whether the binding may be moved: it has targets, all of them are in known clusters
    with a heartbeat, no loss or suspect is open, its placement is valid, and failover is not paused
    for the fleet."""
    if state.held or record.suspect or record.shrunk or record.parsed.problem or not record.targets:
        return False
    return not any(name in state.silent or not state.known(name) for name in record.targets)


def _wanted(state: FleetState, record: BindingState) -> SolveResult | None:
    if record.spec.placement.replicas.preference == "Aggregated":
        return _gathered(state, record)
    term = place_of(record.spec, record.affinity)
    verdict = solve_in_term(state, record, term)
    return None if verdict.reason else verdict


def _gathered(state: FleetState, record: BindingState) -> SolveResult | None:
    """Gather an Aggregated binding into fewer of its present clusters, and return the new targets.
    The share of a cluster is the number of its replicas. None: no share can move.
    The smallest share moves first, then the next smallest, until a share cannot move. A share moves
    if the remaining clusters have capacity for the share plus the required gain (`gain_percent` of
    all replicas, rounded up). It goes to the cluster with the largest share first. Ties by name.
    Example: shares 6, 3 and 1; the first two clusters have capacity for 5 more each, and the gain
    is 2 replicas. The share of 1 moves, because 5 + 5 is at least 1 + 2. The share of 3 does not,
    because only 4 is left, less than 3 + 2. The result is 7 and 3."""
    slack = -(-record.spec.replicas * record.spec.placement.steadiness.gain_percent // 100)
    room = {name: _room(state, record, name) for name in record.targets}
    targets = dict(record.targets)
    for name in sorted(targets, key=lambda n: (targets[n], n)):
        others = sorted((n for n in targets if n != name), key=lambda n: (-targets[n], n))
        if not others or sum(room[n] for n in others) < targets[name] + slack:
            break
        left = targets.pop(name)
        for other in others:
            more = min(left, room[other])
            targets[other] += more
            room[other] -= more
            left -= more
    if len(targets) == len(record.targets):
        return None
    return SolveResult(targets, record.affinity, Explanation(len(state.order), len(room)))


def _fits(state: FleetState, record: BindingState, targets: Mapping[str, int]) -> bool:
    """Return whether each cluster has capacity for the replicas that `targets` (cluster ->
    replicas) adds to the present ones."""
    return all(
        n <= record.targets.get(name, 0)
        or n - record.targets.get(name, 0) <= _room(state, record, name)
        for name, n in targets.items()
    )


def _room(state: FleetState, record: BindingState, name: str) -> int:
    return state.fits(record, state.clusters[name])


def distance(held: Mapping[str, int], wanted: Mapping[str, int]) -> int:
    """Return how many replicas must move to get from `held` to `wanted` (both: cluster ->
    replicas)."""
    return sum(max(0, n - wanted.get(name, 0)) for name, n in held.items())


def towards(held: Mapping[str, int], wanted: Mapping[str, int], budget: int) -> dict[str, int]:
    """Move at most `budget` replicas from `held` towards `wanted`, and return the new targets.
    `held`, `wanted` and the result: cluster -> replicas.
    Replicas leave the cluster with the largest surplus (`held` minus `wanted`) first, and go to the
    cluster with the largest deficit (`wanted` minus `held`) first; ties by name.
    Example: from 8 + 2 towards 5 + 5 with a budget of 2 gives 6 + 4."""
    targets = dict(held)
    surplus = sorted(
        ((n - wanted.get(c, 0), c) for c, n in held.items() if n > wanted.get(c, 0)), key=_largest
    )
    missing = sorted(
        ((n - held.get(c, 0), c) for c, n in wanted.items() if n > held.get(c, 0)), key=_largest
    )
    left = min(budget, sum(n for n, _ in surplus), sum(n for n, _ in missing))
    _spend([(-n, c) for n, c in surplus], left, targets)
    _spend(missing, left, targets)
    return {name: n for name, n in sorted(targets.items()) if n > 0}


def _largest(item: tuple[int, str]) -> tuple[int, str]:
    return (-item[0], item[1])


def _spend(changes: list[tuple[int, str]], left: int, targets: dict[str, int]) -> None:
    for change, name in changes:
        part = min(abs(change), left)
        targets[name] = targets.get(name, 0) + (part if change > 0 else -part)
        left -= part


def keeps_limits(record: BindingState, targets: Mapping[str, int]) -> bool:
    """Return whether every target has at least the minimum and at most the maximum of replicas that
    the placement sets for its cluster."""
    limits = {limit.cluster: limit for limit in record.spec.placement.replicas.limits}
    for name, n in targets.items():
        limit = limits.get(name, limits.get("*"))
        if limit is not None and (n < limit.least or (limit.most is not None and n > limit.most)):
            return False
    return True
