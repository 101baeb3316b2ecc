"""Moves that a RebalancePolicy asks for, held against the present: gain, budgets, rest; told as
stories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.scenarios.fleet_plane import DYNAMIC, STREAM, FleetPlane, a_binding, a_cluster, room

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.events.decisions import ProposalRefused
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import RescheduleProposed

CHEAPER = RebalancePolicy("cost", gain_percent=10, budget_percent=50, window_s=600)
KEY = "RebalancePolicy//cheaper"
PRICE = "wharfinger.io/price-per-core"


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane()
    yield plane
    plane.check()


def applied(policy: RebalancePolicy = CHEAPER) -> PolicyApplied:
    return PolicyApplied(Policy("RebalancePolicy", "cheaper", rebalancing=policy))


def dear_oslo_and_cheap_bergen(
    plane: FleetPlane, policy: RebalancePolicy = CHEAPER, replicas: int = 4
) -> None:
    plane.given(a_cluster("oslo", labels={PRICE: "0.05"}), room("oslo", 20), applied(policy))
    plane.given(a_binding("web", replicas))
    plane.given(a_cluster("bergen", labels={PRICE: "0.03"}), room("bergen", 20))


def move(
    binding: str, objective: str = "cost", policy: str = KEY, **targets: int
) -> RescheduleProposed:
    named = tuple(TargetCluster(name, n) for name, n in targets.items())
    return RescheduleProposed(
        STREAM, binding, "cheaper elsewhere", named, objective=objective, policy=policy
    )


def test_what_is_cheaper_by_enough_is_moved_within_the_budget(plane: FleetPlane) -> None:
    dear_oslo_and_cheap_bergen(plane)
    plane.when(move("web", bergen=2, oslo=2))
    decided = plane.then_scheduled("web", bergen=2, oslo=2)
    assert (decided.move, decided.explanation.why) == ("rebalance", "cheaper elsewhere")


def test_more_than_the_budget_of_a_cluster_does_not_leave_it_within_the_window(
    plane: FleetPlane,
) -> None:
    dear_oslo_and_cheap_bergen(plane)
    plane.when(move("web", bergen=3, oslo=1))
    assert (
        plane.then_declined("BudgetSpent").detail
        == "50% of 4 replicas may leave oslo in 600 s: 2, and 0 have"
    )
    plane.given(a_binding("api", 4))
    plane.given(a_cluster("bergen", labels={PRICE: "0.03"}), room("bergen", 20))
    plane.when(move("web", bergen=2, oslo=2))
    plane.then_scheduled("web", bergen=2, oslo=2)


def test_the_budget_is_spent_by_all_bindings_together_and_comes_back(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo", labels={PRICE: "0.05"}), room("oslo", 20), applied())
    plane.given(a_binding("web", 2), a_binding("api", 2))
    plane.given(a_cluster("bergen", labels={PRICE: "0.03"}), room("bergen", 20))
    plane.when(move("web", bergen=2))
    plane.then_scheduled("web", bergen=2)
    plane.when(move("api", bergen=1, oslo=1))
    plane.then_declined("BudgetSpent")
    plane.when(move("api", bergen=1, oslo=1), after_s=600)
    plane.then_scheduled("api", bergen=1, oslo=1)


def test_a_binding_rests_after_it_was_moved(plane: FleetPlane) -> None:
    dear_oslo_and_cheap_bergen(plane, RebalancePolicy("cost", budget_percent=100, window_s=600))
    plane.when(move("web", bergen=1, oslo=3))
    plane.then_scheduled("web", bergen=1, oslo=3)
    plane.when(move("web", bergen=2, oslo=2), after_s=599)
    assert "rests for 600 s" in plane.then_declined("BudgetSpent").detail
    plane.when(move("web", bergen=2, oslo=2), after_s=1)
    plane.then_scheduled("web", bergen=2, oslo=2)


def test_what_gains_too_little_stays(plane: FleetPlane) -> None:
    dear_oslo_and_cheap_bergen(plane, RebalancePolicy("cost", gain_percent=50, budget_percent=100))
    plane.when(move("web", bergen=4))
    assert "less than 50%" in plane.then_declined("NotBetter").detail


def test_the_policy_has_to_say_so_still(plane: FleetPlane) -> None:
    dear_oslo_and_cheap_bergen(plane)
    plane.when(move("web", "even", bergen=2, oslo=2))
    plane.then_declined("Changed")
    plane.given(PolicyRemoved("RebalancePolicy", "cheaper"))
    plane.when(move("web", bergen=2, oslo=2))
    plane.then_declined("Changed")


def test_nothing_is_moved_to_a_silent_cluster(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo", labels={PRICE: "0.05"}), room("oslo", 20), applied())
    plane.given(a_binding("web", 4))
    plane.given(
        a_cluster("bergen", labels={PRICE: "0.03"}, lease_s=60),
        room("bergen", 20),
        a_cluster("x", lease_s=9999),
    )
    plane.wait(61)
    plane.when(move("web", bergen=2, oslo=2))
    assert plane.then_declined("Held").detail == "bergen is silent"


def test_where_prices_of_new_nodes_are_known_they_count(plane: FleetPlane) -> None:
    """By the labels bergen is cheaper; by the nodes that its pools would make it is not."""
    dear_oslo_and_cheap_bergen(plane)
    key = next(iter(room("oslo", 1).classes))
    for cluster, price in (("oslo", 10), ("bergen", 12)):
        counted = room(cluster, 20, fleet=9)
        plane.given(
            type(counted)(
                cluster,
                1,
                counted.free,
                counted.classes,
                counted.accounted_through,
                price_of={key: price},
            )
        )
    plane.when(move("web", bergen=2, oslo=2))
    plane.then_declined("NotBetter")


def test_evenly_and_by_load(plane: FleetPlane) -> None:
    plane.given(
        a_cluster("oslo"), room("oslo", 20), applied(RebalancePolicy("spread", budget_percent=100))
    )
    plane.given(a_binding("web", 10, DYNAMIC))
    plane.given(a_cluster("bergen"), room("bergen", 20))
    plane.when(move("web", "even", bergen=5, oslo=5))
    plane.then_scheduled("web", bergen=5, oslo=5)
    plane.given(
        applied(RebalancePolicy("load", budget_percent=100, window_s=1)), room("oslo", 2, fleet=9)
    )
    plane.when(move("web", "spread", bergen=7, oslo=3), after_s=2)
    plane.then_scheduled("web", bergen=7, oslo=3)
    plane.when(move("web", "spread", bergen=5, oslo=5), after_s=2)
    plane.then_declined("NotBetter")


def test_no_more_bindings_are_moved_within_a_minute_than_may_be(plane: FleetPlane) -> None:
    plane.given(
        a_cluster("oslo", labels={PRICE: "0.05"}),
        room("oslo", 200),
        applied(RebalancePolicy("cost", budget_percent=100)),
    )
    plane.given(*(a_binding(f"web-{i}", 1) for i in range(70)))
    plane.given(a_cluster("bergen", labels={PRICE: "0.03"}), room("bergen", 200))
    plane.when(*(move(f"web-{i}", bergen=1) for i in range(70)))
    assert (
        len(
            [
                d
                for d in plane.decided
                if isinstance(d, ProposalRefused) and d.reason == "BudgetSpent"
            ]
        )
        == 10
    )
