"""How many nodes may go at once and from when on more, and what touching a node costs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.disruption_scenes import UPKEEP, a_pod

from wharfinger.domain.node_pool import NodeBudget
from wharfinger.domain.pod_upkeep import PodUpkeep
from wharfinger.engine.disruption.balanced import approves
from wharfinger.engine.disruption.budgets import PoolCounts, allowance
from wharfinger.engine.disruption.costs import DELETION_COST, eviction_cost, node_cost

ALL = PoolCounts(95, 0)


def at(day: int, hour: int, minute: int = 0) -> int:
    """March 2026; the 2nd is a Monday."""
    return int(datetime(2026, 3, day, hour, minute, tzinfo=UTC).timestamp()) * 1_000_000


NOON = at(2, 12)
OFFICE = NodeBudget("0", schedule="0 9 * * 1-5", duration_s=8 * 3600)


@pytest.mark.parametrize(
    ("budgets", "left"),
    [
        ((NodeBudget(),), 10),
        ((NodeBudget("5"),), 5),
        ((NodeBudget("5"), NodeBudget("1%")), 1),
        ((NodeBudget("0", ("Drifted",)), NodeBudget("3")), 3),
        ((NodeBudget("0", ("Drifted",)),), 95),
        ((OFFICE,), 0),
        ((NodeBudget("2", schedule="no schedule", duration_s=60),), 0),
        ((NodeBudget("2", schedule="@daily"),), 0),
        ((NodeBudget("2", schedule="@daily", duration_s=13 * 3600),), 2),
        ((NodeBudget("2", schedule="@daily", duration_s=12 * 3600),), 95),
    ],
)
def test_of_the_budgets_that_hold_now_the_smallest_counts(
    budgets: tuple[NodeBudget, ...], left: int
) -> None:
    """A window ends with its last second; a schedule that cannot be read, or lasts for no time,
    lets nothing through."""
    assert allowance(budgets, "Empty", ALL, NOON).left == left


def test_what_is_out_already_is_taken_off_and_never_less_than_none() -> None:
    assert allowance((NodeBudget("3"),), "Empty", PoolCounts(95, 2), NOON).left == 1
    assert allowance((NodeBudget("3"),), "Empty", PoolCounts(95, 9), NOON).left == 0


def test_when_a_window_ends_is_told() -> None:
    assert allowance((OFFICE,), "Empty", ALL, NOON).until == at(2, 17)
    lunch = NodeBudget("0", schedule="30 11 * * *", duration_s=6 * 3600)
    assert allowance((OFFICE, lunch), "Empty", ALL, NOON).until == at(2, 17, 30)


def test_when_a_window_begins_that_lets_none_through_is_no_time_to_wait_for() -> None:
    assert allowance((NodeBudget("0"),), "Empty", ALL, NOON).until == 0
    assert allowance((OFFICE,), "Empty", ALL, at(2, 8)).left == 95


def test_windows_that_follow_each_other_are_one() -> None:
    hourly = NodeBudget("0", schedule="@hourly", duration_s=3600)
    assert allowance((hourly,), "Empty", ALL, NOON).until == 0


def test_the_line_says_which_budget_it_is() -> None:
    assert allowance((NodeBudget("10%"),), "Empty", PoolCounts(95, 3), NOON).line == (
        "budget 10% allows 10 of 95 nodes at once, 3 of them out already"
    )


@pytest.mark.parametrize(
    ("deletion_cost", "priority", "cost"),
    [
        ("", 0, 1000),
        (str(2**27), 0, 2000),
        (str(-(2**27)), 0, 0),
        ("", 2**25, 2000),
        ("", 2_000_000_000, 10_000),
        (str(-(2**31)), -2_000_000_000, -10_000),
        ("1", 0, 1001),
        ("many", 0, 1000),
        (str(2**40), 0, 1000),
    ],
)
def test_what_it_costs_to_evict_a_pod(deletion_cost: str, priority: int, cost: int) -> None:
    """In thousandths, rounded up; what is no number of 32 bits counts as not said."""
    upkeep = PodUpkeep(
        owners=UPKEEP.owners, annotations={DELETION_COST: deletion_cost} if deletion_cost else {}
    )
    assert eviction_cost(a_pod("web-1", "n1", upkeep=upkeep, priority=priority)) == cost


def test_pods_that_may_go_for_nothing_make_no_node_cheaper() -> None:
    cheap = a_pod("batch-1", "n1", priority=-2_000_000_000)
    assert node_cost([]) == 1000
    assert node_cost([cheap]) == 1000
    assert node_cost([cheap, a_pod("web-1", "n1")]) == 2000


def test_a_saving_is_worth_half_its_share_of_disruption() -> None:
    assert approves(10, 20, 100, 100)
    assert not approves(9, 20, 100, 100)
