"""Validates a proposed command again when it is decided: the nodes are still candidates, the
budgets allow it, all pods that move have a place, and it still saves enough where the method
depends on the price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wharfinger.engine.disruption.candidates import CandidateNode, against
from wharfinger.engine.disruption.cluster_snapshot import Command, DisruptionVerdict, Method
from wharfinger.engine.disruption.consolidation_pass import WAITS, ConsolidationPass, pods_of
from wharfinger.engine.disruption.methods import emptiness, expiration, static
from wharfinger.engine.disruption.methods.forced import forced
from wharfinger.engine.disruption.replacement import Planned, Seats, priced, seats
from wharfinger.engine.provisioning.catalogue import NO_PRICE

ANY_PRICE: frozenset[Method] = frozenset({"expiry", "drift", "static-drift", "static-scale-down"})
"""Methods that remove their nodes at any cost."""

NOT_NOW = {
    "emptiness": emptiness.not_now,
    "expiry": expiration.not_now,
    "static-scale-down": static.not_too_many,
}
"""What a method asks of each of its nodes besides what all of them ask; None: nothing is against
it."""


def checked(
    run: ConsolidationPass, method: Method, going: list[CandidateNode], planned: Sequence[Planned]
) -> Command | DisruptionVerdict:
    verdict = _refused(run, method, going)
    if verdict is not None:
        return verdict
    if method in ANY_PRICE:
        return _forced_again(run, method, going, planned)
    spent = sum(looked.price for looked in going)
    attempt = run.simulation.without([looked.name for looked in going], quiet=True)
    first = going[0]
    if attempt.waits:
        return DisruptionVerdict(first.name, "Waits", WAITS)
    if not attempt.left:
        return run.unbalanced(going, spent, method) or run.command(
            method, going, attempt, Seats(), spent
        )
    if not planned:
        return DisruptionVerdict(attempt.left[0].pod.node, "NoRoom", run.no_room(attempt.left[0]))
    # What was proposed may be the first packing that was cheap enough, or the best of several.
    refusal = ""
    for enough in (0, NO_PRICE):
        chairs = seats(
            run.simulation, run.scene, attempt, run.buying, run.used, run.prices.type_index, enough
        )
        if chairs.refusal:
            return DisruptionVerdict(
                first.name,
                "NoRoom",
                f"{pods_of(attempt.left)} would need a new node: {chairs.refusal}",
            )
        judged = priced(going, chairs.claims, run.scene, run.prices, planned)
        if not judged.refusal:
            break
        refusal = refusal or judged.refusal
    else:
        return DisruptionVerdict(first.name, "NotCheaper", refusal)
    unbalanced = run.unbalanced(going, judged.saving, method)
    return unbalanced or run.command(
        method, going, attempt, replace(chairs, claims=judged.claims), judged.saving
    )


def _refused(
    run: ConsolidationPass, method: Method, going: Sequence[CandidateNode]
) -> DisruptionVerdict | None:
    counts: dict[str, int] = {}
    for looked in going:
        verdict = against(looked, method)
        if verdict is None and method in NOT_NOW:
            verdict = NOT_NOW[method](run, looked)
        if verdict is not None:
            return verdict
        name = looked.pool.name
        counts[name] = counts.get(name, 0) + 1
        left = run.budget_left(looked.pool, method)
        if left is not None and left.left < counts[name]:
            return DisruptionVerdict(looked.name, "BudgetSpent", left.line, left.until)
    return None


def _forced_again(
    run: ConsolidationPass, method: Method, going: list[CandidateNode], planned: Sequence[Planned]
) -> Command | DisruptionVerdict:
    if len(going) > 1:
        return DisruptionVerdict(going[1].name, "Changed", f"{method} takes one node at a time")
    found = forced(run, going[0], method)
    if isinstance(found, DisruptionVerdict):
        return found
    attempt, chairs = found
    if len(chairs.claims) > len(planned):
        return DisruptionVerdict(
            going[0].name,
            "NoRoom",
            f"{pods_of(attempt.left)} would need a new node that was not proposed",
        )
    return run.command(
        method, going, attempt, chairs, going[0].price - sum(c.worst_price for c in chairs.claims)
    )
