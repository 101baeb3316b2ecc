"""Moves that nobody asked for: back to a better affinity, and onto clusters that have returned. Only where the policy says so.

What is better is looked at after a round, when facts or counts have changed, and no oftener than every few seconds: a
break shorter than that is not seen. What has been better for as long as the policy demands is looked at once more and moved,
what has waited longest first, and of all bindings only so many a minute (`moves`).

*Failback*: an affinity before the one in force could take all replicas, with room for what would be added. The whole binding goes
there, since its targets lie in one affinity at a time.

*Rebalance*: what a fresh decision would give, within the affinity in force, differs from what there is by `gain_percent` of the
replicas at least. At most `budget_percent` of them are moved at once, from where there is most too many to where there is most too
few, and the rest another time. Since a fresh decision weighs what fits and what is held together, a move by itself changes nothing
about what is wanted, and what was gained by it is not lost to the next. An Aggregated binding is not drawn to whichever cluster
happens to be the roomiest: it is gathered into fewer of the clusters it has, the smallest share first, when they have
room for it and for the gain besides.

So capacity may come and go by less than the gain for ever, and nothing moves; and a fleet in which nothing changes comes to rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from wharfinger.events.decisions import Explanation
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.fleet.drafts import schedule
from wharfinger.stages.fleet.moves import MINUTE, SECOND, place_of
from wharfinger.stages.fleet.places import Verdict, solve_term
from wharfinger.stages.fleet.relocate import breaks_spread
from wharfinger.stages.fleet.state import BindingState, FleetState

LOOK_S = 5
"""The least time between two looks."""

LOOKS_MAX = 1000
"""So many bindings are looked at at once; the others with the next look."""


# Moving


def move(state: FleetState, at: Micros) -> Iterator[Draft]:
    """What has been better elsewhere for long enough, the longest first."""
    left = state.moves.left(at)
    for name in sorted([name for (name,) in state.moves.agenda.ripe(at)], key=lambda n: (_since(state.bindings[n]), n)):
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


def look(state: FleetState) -> None:
    """After a round: since when what could lie better. Follows from the state alone, so that one that only folded the round looks
    as the one that decided it."""
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
    """When there is something to look at or to move; None: never."""
    moves = state.moves
    dues = [moves.agenda.next()]
    if moves.stale and moves.candidates:
        dues.append(moves.looked_at + LOOK_S * SECOND)
    return min((due for due in dues if due is not None), default=None)


def _put_off(state: FleetState, record: BindingState, at: Micros) -> None:
    """It was due and has not moved: because enough others did, so its turn comes with the next minute; or it was not better any
    more, so that its time begins anew."""
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
        state, record,
        (record.failback_since or at) if could_return else 0,
        (record.rebalance_since or at) if could_balance else 0,
    )  # fmt: skip


def _remember(state: FleetState, record: BindingState, failback_since: Micros, rebalance_since: Micros) -> None:
    if (record.failback_since, record.rebalance_since) != (failback_since, rebalance_since):
        record.failback_since, record.rebalance_since = failback_since, rebalance_since
        stale = state.moves.stale
        state.moves.consider(record.spec.name, record.spec, failback_since, rebalance_since, record.moved_at)
        state.moves.stale = stale
        state.changed(record.spec.name)


# What would be better


def failback(state: FleetState, record: BindingState) -> Verdict | None:
    """All replicas in an affinity before the one in force; the earliest that takes them."""
    if record.spec.placement.steadiness.failback_after_s is None or not _settled(state, record):
        return None
    for term in range(place_of(record.spec, record.affinity)):
        verdict = solve_term(state, record, record.targets, term, True, state.evicted(record), False)
        if not verdict.reason and _fits(state, record, verdict.targets):
            return verdict
    return None


def rebalance(state: FleetState, record: BindingState) -> Verdict | None:
    """The targets after the next move; None: there is nothing to gain, or not enough."""
    spec, steadiness = record.spec, record.spec.placement.steadiness
    if steadiness.rebalance_after_s is None or spec.placement.replicas.type != "Divided" or not _settled(state, record):
        return None
    wanted = _wanted(state, record)
    if wanted is None:
        return None
    apart = distance(record.targets, wanted.targets)
    if not apart or apart * 100 < steadiness.gain_percent * spec.replicas:
        return None
    budget = max(1, -(-spec.replicas * steadiness.budget_percent // 100))
    targets = towards(record.targets, wanted.targets, budget)
    if not _fits(state, record, targets) or not keeps_limits(record, targets) or breaks_spread(state, record, targets):
        return None
    note = f"{min(apart, budget):,} of {spec.replicas:,} replicas moved, {max(0, apart - budget):,} more would lie better elsewhere"
    explanation = msgspec.structs.replace(wanted.explanation, note=note)
    return Verdict(targets, wanted.affinity, explanation)


def _settled(state: FleetState, record: BindingState) -> bool:
    """Nothing about it is in motion, and nothing of what it has, or of the fleet, is in doubt."""
    if state.held or record.suspect or record.shrunk or record.plan.problem or not record.targets:
        return False
    return not any(name in state.silent or not state.known(name) for name in record.targets)


def _wanted(state: FleetState, record: BindingState) -> Verdict | None:
    if record.spec.placement.replicas.preference == "Aggregated":
        return _gathered(state, record)
    term = place_of(record.spec, record.affinity)
    verdict = solve_term(state, record, record.targets, term, True, state.evicted(record), False)
    return None if verdict.reason else verdict


def _gathered(state: FleetState, record: BindingState) -> Verdict | None:
    """An Aggregated binding in fewer of its clusters: the smallest share goes to the largest, as long as they have room for it."""
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
    return Verdict(targets, record.affinity, Explanation(len(state.order), len(room)))


def _fits(state: FleetState, record: BindingState, targets: Mapping[str, int]) -> bool:
    """There is room for what is added."""
    return all(
        n <= record.targets.get(name, 0) or n - record.targets.get(name, 0) <= _room(state, record, name)
        for name, n in targets.items()
    )


def _room(state: FleetState, record: BindingState, name: str) -> int:
    return state.fits(record, state.clusters[name])


def distance(held: Mapping[str, int], wanted: Mapping[str, int]) -> int:
    """How many replicas would have to move."""
    return sum(max(0, n - wanted.get(name, 0)) for name, n in held.items())


def towards(held: Mapping[str, int], wanted: Mapping[str, int], budget: int) -> dict[str, int]:
    """`held` with at most `budget` replicas moved towards `wanted`: from the most too many to the most too few, then by name."""
    targets = dict(held)
    surplus = sorted(((n - wanted.get(c, 0), c) for c, n in held.items() if n > wanted.get(c, 0)), key=_largest)
    missing = sorted(((n - held.get(c, 0), c) for c, n in wanted.items() if n > held.get(c, 0)), key=_largest)
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
    """Every cluster has as many as it has to have at least, and no more than it may."""
    limits = {limit.cluster: limit for limit in record.spec.placement.replicas.limits}
    for name, n in targets.items():
        limit = limits.get(name, limits.get("*"))
        if limit is not None and (n < limit.least or (limit.most is not None and n > limit.most)):
            return False
    return True
