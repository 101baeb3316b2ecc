"""Rebalancing by all stages together: on a fleet that stays as it is it comes to an end, and
nothing returns to where it was."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.scenarios.test_fleet_upkeep_world import Plane, a_cluster, wanted

from wharfinger.domain.policy import Policy
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.events.decisions import ScheduleDecided
from wharfinger.events.policies import PolicyApplied


@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(("cost", "load", "spread")),
    st.lists(
        st.tuples(st.integers(4, 20), st.sampled_from(("0.01", "0.02", "0.05"))),
        min_size=2,
        max_size=4,
    ),
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.sampled_from((10, 50, 100)),
)
def test_on_a_fleet_that_stays_as_it_is_moves_end_and_nothing_returns(
    objective: str, clusters: list[tuple[int, str]], sizes: list[int], budget: int
) -> None:
    plane = Plane()
    plane.given(*a_cluster("c0", 40, "0.05"))
    plane.given(*(wanted(f"web-{i}", n) for i, n in enumerate(sizes)))
    for i, (cores, price) in enumerate(clusters, start=1):
        plane.given(*a_cluster(f"c{i}", cores, price))
    policy = RebalancePolicy(
        objective,  # type: ignore[arg-type]
        every_s=60,
        gain_percent=5,
        budget_percent=budget,
        window_s=300,
    )
    plane.given(PolicyApplied(Policy("RebalancePolicy", "steady", rebalancing=policy)))
    plane.wait(20 * 300)
    made = [d for d in plane.decided(ScheduleDecided) if isinstance(d, ScheduleDecided) and d.move]
    plane.wait(10 * 300)
    after = [d for d in plane.decided(ScheduleDecided) if isinstance(d, ScheduleDecided) and d.move]
    assert len(after) == len(made), "it has come to rest"
    been: dict[str, list[object]] = {}
    for decided in after:
        places = been.setdefault(decided.binding, [decided.previous])
        assert decided.targets not in places, "it lay so before"
        places.append(decided.targets)
