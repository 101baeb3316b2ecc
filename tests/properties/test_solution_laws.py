"""Solutions of provisioning, held against a second opinion: every claim true, every promise kept,
and never cheaper than can be."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from tests.hunting import examples
from tests.pools import ZONES, a_type, offered
from tests.provisioning_problems import problems
from tests.solution_faults import cheapest, second_opinion

from wharfinger.domain.node_pool import NodePoolPolicy, PoolRequirement
from wharfinger.domain.pod_traits import PodTerm, PodTraits, TopologySpread
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.problem import NewClaim, Problem, Solution, WantedPods
from wharfinger.engine.provisioning.solve import solve

SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@given(problems())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=SLOW_TO_DRAW)
def test_a_solution_is_one_by_plain_rules(problem: Problem) -> None:
    assert second_opinion(problem, solve(problem)) == []


@given(problems(whole=False, reserved=True))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW_TO_DRAW)
def test_no_more_is_counted_on_than_is_reserved(problem: Problem) -> None:
    assert second_opinion(problem, solve(problem)) == []


@given(problems(whole=False, pods_max=2))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW_TO_DRAW)
def test_nothing_is_cheaper_than_the_cheapest_way_to_share_out_the_pods(problem: Problem) -> None:
    lenient = replace(problem, options=replace(problem.options, min_values="BestEffort"))
    found = solve(lenient)
    assert second_opinion(lenient, found) == []
    least = cheapest(lenient)
    if not found.unplaced:
        assert least is not None
        assert found.price >= least


# --- the second opinion itself must be able to say no

ZONE = "topology.kubernetes.io/zone"
WEB = LabelSelector({"app": "web"})
TYPES = (a_type("large", 8, 32, offered(0.4)), a_type("small", 2, 8, offered(0.1)))
POOL = NodePoolPolicy("p", limits={"cpu": 16_000})
OF_POOL = PoolRequirement("karpenter.sh/nodepool", "In", ("p",))


def asking(cpu: int, count: int = 1, traits: PodTraits | None = None, **more: object) -> Problem:
    pod = Requirements({"cpu": cpu}, pod=replace_labels(traits or PodTraits()), **more)  # type: ignore[arg-type]
    return Problem([WantedPods("w", pod, count)], [POOL], {"default": TYPES})


def replace_labels(traits: PodTraits) -> PodTraits:
    return msgspec.structs.replace(traits, labels={"app": "web"})


def small(pods: int = 1, *wanted: PoolRequirement) -> NewClaim:
    return NewClaim(
        "p", (OF_POOL, *wanted), ("small",), 10**8, 10**8, {"cpu": 2000, "pods": pods}, {"w": pods}
    )


def in_zone(name: str) -> PoolRequirement:
    return PoolRequirement(ZONE, "In", (name,))


@pytest.mark.parametrize(
    ("problem", "claims", "said"),
    [
        (asking(1000), (small(),), ""),
        (asking(1000, 2), (small(),), "accounted for"),
        (asking(1000, 3), (small(3),), "has no room as small"),
        (asking(1000), (replace(small(), price=1),), "costs 100000000, not 1"),
        (asking(1000), (replace(small(), worst_price=1),), "at worst"),
        (asking(1000), (replace(small(), instance_types=("large", "small")),), "cheapest first"),
        (asking(1000), (replace(small(), requirements=()),), "all that its pool does"),
        (asking(1000), (replace(small(), requests={}),), "asks for 0 of cpu"),
        (asking(1000, node_selector={ZONE: ZONES[0]}), (small(),), "wants other labels"),
        (asking(1000, node_selector={ZONE: ZONES[0]}), (small(1, in_zone(ZONES[0])),), ""),
        (asking(1000, 9), tuple(small() for _ in range(9)), "beyond 16000"),
        (
            asking(1000, 2, PodTraits(anti_affinity=(PodTerm("kubernetes.io/hostname", WEB),))),
            (small(2),),
            "do not bear",
        ),
        (
            asking(
                1000, 2, PodTraits(spread=(TopologySpread("kubernetes.io/hostname", 1, True, WEB),))
            ),
            (small(2),),
            "spread",
        ),
        (
            asking(1000, 2, PodTraits(spread=(TopologySpread(ZONE, 1, True, WEB),))),
            (small(1, in_zone(ZONES[0])), small(1, in_zone(ZONES[0]))),
            "by more than 1",
        ),
        (
            asking(1000, 1, PodTraits(affinity=(PodTerm(ZONE, WEB),))),
            (small(),),
            "it is not known in which",
        ),
        (
            asking(1000, 1, PodTraits(affinity=(PodTerm(ZONE, LabelSelector({"app": "db"})),))),
            (small(1, in_zone(ZONES[0])),),
            "nobody is near",
        ),
    ],
)
def test_what_is_wrong_is_found(problem: Problem, claims: tuple[NewClaim, ...], said: str) -> None:
    found = second_opinion(problem, Solution({}, {}, claims))
    assert any(said in fault for fault in found) if said else found == []
