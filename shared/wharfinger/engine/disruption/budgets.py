"""How many nodes of a pool may be disrupted at once, and from when on it is more. [Karpenter]

A budget says a number or a share of the pool's nodes, rounded up, for all reasons or for some, always or for a while
after each hit of a cron schedule, in UTC. Of those that hold now the smallest counts; what is being disrupted and
what is not ready has been taken from it already. A budget that cannot be read lets nothing through."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from wharfinger.domain.node_pool import DisruptionReason, NodeBudget

SECOND = 1_000_000
"""Microseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMED = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_EDGES = 64
"""So many beginnings and ends of windows are looked at for one that lets more through."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one pool. `nodes`: initialised ones that it manages; `out`: those of them that are not ready or go already."""

    nodes: int
    out: int


@dataclass(frozen=True, slots=True)
class Allowance:
    """`left`: how many more may go. `line`: the budget that says so, in words. `until`: when it may be more by the
    schedules alone, microseconds; 0: that is not known."""

    left: int
    line: str
    until: int = 0


def allowance(budgets: Iterable[NodeBudget], reason: DisruptionReason, standing: Standing, at: int) -> Allowance:
    """Without a budget that holds now for the reason, all nodes may go."""
    for_reason = [b for b in budgets if not b.reasons or reason in b.reasons]
    held = [(_most(b, standing.nodes), b) for b in for_reason if is_active(b, at)]
    if not held:
        return Allowance(max(0, standing.nodes - standing.out), "no budget holds now")
    most, budget = min(held, key=lambda pair: (pair[0], pair[1].schedule, pair[1].nodes))
    left = max(0, most - standing.out)
    until = 0 if left else _more_from(for_reason, standing, at)
    return Allowance(left, _line(budget, most, standing), until)


def is_active(budget: NodeBudget, at: int) -> bool:
    """A schedule without a duration, or one that cannot be read, is a broken budget: it holds always."""
    if not budget.schedule or _is_broken(budget):
        return True
    hit = _hit_after(budget, at - budget.duration_s * SECOND)
    return hit is not None and hit <= at


def _most(budget: NodeBudget, nodes: int) -> int:
    if _is_broken(budget):
        return 0
    said = budget.nodes.removesuffix("%")
    if not said.isascii() or not said.isdigit():
        return 0
    return -(-nodes * int(said) // 100) if budget.nodes.endswith("%") else int(said)


def _line(budget: NodeBudget, most: int, standing: Standing) -> str:
    when = f" after {budget.schedule!r} for {budget.duration_s} s" if budget.schedule else ""
    what = f" for {', '.join(budget.reasons)}" if budget.reasons else ""
    if _is_broken(budget):
        return f"budget {budget.nodes}{what}{when} cannot be read, so it allows none"
    gone = f", {standing.out} of them out already" if standing.out else ""
    return f"budget {budget.nodes}{what}{when} allows {most} of {standing.nodes} nodes at once{gone}"


# --- schedules


def _more_from(budgets: list[NodeBudget], standing: Standing, at: int) -> int:
    """The first beginning or end of a window from `at` on that leaves something; 0: none that was looked at."""
    moment = at
    for _ in range(_EDGES):
        edges = [edge for b in budgets if b.schedule and not _is_broken(b) and (edge := _edge_after(b, moment))]
        if not edges:
            return 0
        moment = min(edges)
        holding = [_most(b, standing.nodes) for b in budgets if is_active(b, moment)]
        if min(holding, default=standing.nodes) > standing.out:
            return moment
    return 0


def _edge_after(budget: NodeBudget, at: int) -> int:
    """When what the budget says next begins or ends to hold; 0: never."""
    duration = budget.duration_s * SECOND
    if not is_active(budget, at):
        return _hit_after(budget, at) or 0
    last = _hit_before(budget, at)
    return 0 if last is None else last + duration


def _is_broken(budget: NodeBudget) -> bool:
    return bool(budget.schedule) and (budget.duration_s <= 0 or _cron(budget, 0) is None)


def _cron(budget: NodeBudget, at: int, back: bool = False):  # type: ignore[no-untyped-def]
    """The hits after `at`, or those before, the latest first; None: it is no schedule."""
    from cronsim import CronSim, CronSimError  # only where there are schedules

    try:
        return CronSim(_NAMED.get(budget.schedule.strip(), budget.schedule), _moment(at), reverse=back)
    except CronSimError:
        return None


def _hit_after(budget: NodeBudget, at: int) -> int | None:
    return _micros(next(iter(_cron(budget, at)), None))


def _hit_before(budget: NodeBudget, at: int) -> int | None:
    """The latest, which may be `at` itself."""
    return _micros(next(iter(_cron(budget, at - at % SECOND + SECOND, back=True)), None))


def _moment(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=max(0, at))


def _micros(hit: datetime | None) -> int | None:
    return None if hit is None else int((hit - _EPOCH) // timedelta(microseconds=1))
