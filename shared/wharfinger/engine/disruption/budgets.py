"""Evaluates disruption budgets: how many nodes of a pool may be disrupted at once, and when that
number next rises. [Karpenter]

A budget is a number or a percentage of the pool's nodes (rounded up). It applies to all or some
disruption reasons, and either always or for a duration after each match of a cron schedule in UTC.
The smallest active budget decides. From it the nodes that are already being disrupted or not ready
are subtracted. A budget that cannot be parsed allows 0 nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from wharfinger.domain.node_pool import CRON_NAMES, DisruptionReason, NodeBudget
from wharfinger.domain.time import SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EDGES = 64
"""The maximum number of window starts and ends that `_more_from` examines."""


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """The node counts of one pool that its budgets need.

    `nodes`: the number of nodes of which percentages are taken. It counts initialized nodes, and
    nodes that are already being removed. `out`: the number of nodes that are subtracted from what a
    budget allows. It counts nodes that are already being removed, and nodes that are neither
    initialized nor ready.
    """

    nodes: int
    out: int


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many nodes of a pool the budgets allow to be disrupted.

    `left`: how many more nodes may be disrupted now. `line`: the budget that decided this, in
    words. `until`: when a schedule next allows a disruption, in microseconds; 0: one is allowed
    now, or this time is not known.
    """

    left: int
    line: str
    until: int = 0


def allowance(
    budgets: Iterable[NodeBudget], reason: DisruptionReason, standing: PoolCounts, at: int
) -> Allowance:
    """Computes how many more nodes of a node pool may be disrupted at the time `at` for `reason`.

    Only budgets that are active at `at` and apply to `reason` are evaluated. The budget that allows
    the fewest nodes decides; a percentage is rounded up. The result is the number that it allows
    minus `standing.out`. If no budget is evaluated, the result is `standing.nodes` minus
    `standing.out`. It is at least 0.

    `budgets`: the budgets of the pool.
    `standing`: the node counts of the pool. `nodes`: initialized nodes and nodes that are being
      removed; percentages are taken of this number. `out`: nodes that are being removed, and nodes
      that are neither initialized nor ready.
    `at`: microseconds since 1970, UTC.

    The result also names the budget that decided. If no node may be disrupted now, it has the next
    time at which a schedule allows a disruption.

    Example: a budget of 20% of 10 nodes allows 2. 1 node is being removed, so 1 more may be
    disrupted.
    """
    for_reason = [b for b in budgets if not b.reasons or reason in b.reasons]
    held = [(_most(b, standing.nodes), b) for b in for_reason if is_active(b, at)]
    if not held:
        return Allowance(max(0, standing.nodes - standing.out), "no budget holds now")
    most, budget = min(held, key=lambda pair: (pair[0], pair[1].schedule, pair[1].nodes))
    left = max(0, most - standing.out)
    until = 0 if left else _more_from(for_reason, standing, at)
    return Allowance(left, _line(budget, most, standing), until)


def is_active(budget: NodeBudget, at: int) -> bool:
    """Returns whether a budget applies at the time `at` (microseconds). A budget without a schedule
    always applies. A budget with a schedule applies for `duration_s` after each match of the
    schedule. A broken budget always applies and allows 0 nodes: its schedule cannot be parsed or
    has no duration."""
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


def _line(budget: NodeBudget, most: int, standing: PoolCounts) -> str:
    when = f" after {budget.schedule!r} for {budget.duration_s} s" if budget.schedule else ""
    what = f" for {', '.join(budget.reasons)}" if budget.reasons else ""
    if _is_broken(budget):
        return f"budget {budget.nodes}{what}{when} cannot be read, so it allows none"
    gone = f", {standing.out} of them out already" if standing.out else ""
    return (
        f"budget {budget.nodes}{what}{when} allows {most} of {standing.nodes} nodes at once{gone}"
    )


# --- schedules


def _more_from(budgets: list[NodeBudget], standing: PoolCounts, at: int) -> int:
    """Finds the next time after `at` at which the budgets of a node pool allow a disruption, if the
    node counts do not change. Returns it in microseconds since 1970, UTC; 0: no such time was
    found.

    The function goes from one start or end of a budget's schedule window to the next and evaluates
    all budgets there. It stops after `_EDGES` starts and ends.

    `standing`: the node counts of the pool. `at`: microseconds since 1970, UTC.

    Example: the only budget allows 0 nodes from 9:00 to 17:00. At 10:00 the result is 17:00.
    """
    moment = at
    for _ in range(_EDGES):
        edges = [
            edge
            for b in budgets
            if b.schedule and not _is_broken(b) and (edge := _edge_after(b, moment))
        ]
        if not edges:
            return 0
        moment = min(edges)
        holding = [_most(b, standing.nodes) for b in budgets if is_active(b, moment)]
        if min(holding, default=standing.nodes) > standing.out:
            return moment
    return 0


def _edge_after(budget: NodeBudget, at: int) -> int:
    """Returns when the budget next starts to apply or, if it applies at `at`, when it next ends.
    Microseconds; 0: never."""
    duration = budget.duration_s * SECOND
    if not is_active(budget, at):
        return _hit_after(budget, at) or 0
    last = _hit_before(budget, at)
    return 0 if last is None else last + duration


def _is_broken(budget: NodeBudget) -> bool:
    return bool(budget.schedule) and (budget.duration_s <= 0 or _cron(budget, 0) is None)


def _cron(budget: NodeBudget, at: int, back: bool = False):  # type: ignore[no-untyped-def]
    """Returns an iterator over the matches of the budget's cron schedule: those after `at` in
    ascending order or, with `back`, those before `at` in descending order. None: the schedule
    cannot be parsed."""
    from cronsim import CronSim, CronSimError  # only where there are schedules

    try:
        return CronSim(
            CRON_NAMES.get(budget.schedule.strip(), budget.schedule), _moment(at), reverse=back
        )
    except CronSimError:
        return None


def _hit_after(budget: NodeBudget, at: int) -> int | None:
    return _micros(next(iter(_cron(budget, at)), None))


def _hit_before(budget: NodeBudget, at: int) -> int | None:
    """Returns the latest match of the schedule that is not after `at`, in microseconds. None: there
    is no such match."""
    return _micros(next(iter(_cron(budget, at - at % SECOND + SECOND, back=True)), None))


def _moment(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=max(0, at))


def _micros(hit: datetime | None) -> int | None:
    return None if hit is None else int((hit - _EPOCH) // timedelta(microseconds=1))
