"""Where Solve sends pods, told case by case. That what it says holds together is
`tests.properties.test_provisioning_laws`."""

from __future__ import annotations

from dataclasses import replace

from tests.provisioning_oracle import faults

from wharfinger.domain.cluster_objects import ClusterObjects, DaemonPods
from wharfinger.domain.instance_types import InstanceType, Offering
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    ZONE_LABEL,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.pod_traits import (
    HostPort,
    PodTerm,
    PodTraits,
    TopologySpread,
    VolumeUse,
    WeightedNodeTerm,
    WeightedPodTerm,
)
from wharfinger.domain.resources import GPU, Device, DeviceRequest
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from wharfinger.domain.taints import Taint
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.problem import (
    InFlight,
    Problem,
    Solution,
    SolveOptions,
    WantedPods,
)
from wharfinger.engine.provisioning.solve import solve

HOSTNAME = "kubernetes.io/hostname"
SHOP = LabelSelector({"app": "shop"})
POOL = NodePoolPolicy("general")


def offered(price: int, zones: str = "abc", mode: str = "on-demand") -> tuple[Offering, ...]:
    return tuple(Offering(zone, mode, price) for zone in zones)  # type: ignore[arg-type]


def a_type(name: str, cpu: int, price: int, zones: str = "abc", devices: int = 0) -> InstanceType:
    capacity = {"cpu": cpu * 1000, "memory": cpu * 4096, "pods": 20}
    return InstanceType(
        name, capacity, offerings=offered(price, zones), devices=(Device("A", GPU),) * devices
    )


TYPES = (a_type("small", 2, 20), a_type("middle", 4, 40), a_type("large", 8, 80))


def pods(
    count: int = 1,
    cpu_milli: int = 1000,
    traits: PodTraits | None = None,
    name: str = "shop",
    **more: object,
) -> WantedPods:
    return WantedPods(name, Requirements({"cpu": cpu_milli}, pod=traits, **more), count)  # type: ignore[arg-type]


def shop(**more: object) -> PodTraits:
    return PodTraits("default", {"app": "shop"}, **more)  # type: ignore[arg-type]


def a_problem(*wanted: WantedPods, **more: object) -> Problem:
    return Problem(wanted, **{"pools": (POOL,), "types": {"default": TYPES}, **more})  # type: ignore[arg-type]


def solved(problem: Problem) -> Solution:
    solution = solve(problem)
    assert faults(problem, solution) == []
    return solution


def zones(solution: Solution) -> list[tuple[str, ...]]:
    return sorted(
        next(r.values for r in claim.requirements if r.key == ZONE_LABEL)
        for claim in solution.claims
    )


# --- where to first


def test_a_node_that_is_there_goes_before_one_to_be_made() -> None:
    node = Node("n", {"cpu": 1500, "memory": 9999, "pods": 9})
    solution = solved(a_problem(pods(2), nodes=(node,)))
    assert solution.placed == {"n": {"shop": 1}}
    assert [claim.pods for claim in solution.claims] == [{"shop": 1}]


def test_a_node_that_is_not_ready_yet_is_tried_after_the_others() -> None:
    nodes = tuple(Node(name, {"cpu": 1000, "memory": 9999, "pods": 9}) for name in ("a", "b"))
    solution = solved(a_problem(pods(), nodes=nodes, not_initialized=frozenset(("a",))))
    assert solution.placed == {"b": {"shop": 1}}


def test_what_a_node_is_not_ready_by_keeps_nobody_off_it() -> None:
    node = Node(
        "n",
        {"cpu": 1000, "memory": 9999, "pods": 9},
        taints=(Taint("node.kubernetes.io/not-ready", "NoSchedule"),),
    )
    problem = a_problem(pods(), nodes=(node,), not_initialized=frozenset(("n",)))
    assert solve(problem).placed == {"n": {"shop": 1}}
    assert solve(replace(problem, not_initialized=frozenset())).placed == {}


def test_a_claim_on_its_way_is_filled_as_far_as_each_type_it_may_become_holds() -> None:
    claim = InFlight(
        "claim-1", "general", (), ("small", "large"), ((Requirements({"cpu": 500}), 1),)
    )
    solution = solved_with_claims(a_problem(pods(2), in_flight=(claim,)))
    assert solution.joined == {"claim-1": {"shop": 1}}
    assert len(solution.claims) == 1


def solved_with_claims(problem: Problem) -> Solution:
    return solve(problem)


def test_a_closed_node_takes_nothing_and_its_pods_count() -> None:
    node = Node(
        "n", {"cpu": 9000, "memory": 9999, "pods": 9}, labels={ZONE_LABEL: "a"}, unschedulable=True
    )
    apart = shop(anti_affinity=(PodTerm(ZONE_LABEL, SHOP),))
    there = Pod("p", "p", Requirements({"cpu": 1}, pod=shop()), node="n")
    solution = solved(a_problem(pods(traits=apart), nodes=(node,), pods=(there,)))
    assert solution.placed == {}
    assert zones(solution) in ([("b",)], [("c",)])


def test_a_node_that_is_to_go_counts_as_gone() -> None:
    node = Node("n", {"cpu": 9000, "memory": 9999, "pods": 9}, labels={ZONE_LABEL: "a"})
    there = Pod("p", "p", Requirements({"cpu": 1}, pod=shop()), node="n")
    apart = shop(anti_affinity=(PodTerm(ZONE_LABEL, SHOP),))
    solution = solved(
        a_problem(pods(3, traits=apart), nodes=(node,), pods=(there,), avoid=frozenset(("n",)))
    )
    assert zones(solution) == [("a",), ("b",), ("c",)]


# --- which node to make


def test_the_heaviest_pool_goes_first_and_of_equal_ones_the_last_by_name_or_the_cheaper() -> None:
    dear = NodePoolPolicy("z-dear", catalogue="dear")
    heavy = NodePoolPolicy("heavy", catalogue="dear", weight=5)
    catalogues = {"default": TYPES, "dear": (a_type("gold", 2, 999),)}
    problem = a_problem(pods(), pools=(POOL, dear), types=catalogues)
    assert (
        solved(replace(problem, options=SolveOptions(packing="first-fit"))).claims[0].pool
        == "z-dear"
    )
    assert solved(problem).claims[0].pool == "general"
    assert solved(replace(problem, pools=(POOL, dear, heavy))).claims[0].pool == "heavy"


def test_looking_ahead_fills_nodes_to_the_edge() -> None:
    wanted = (pods(2, 3000, name="three"), pods(2, 1000, name="one"))
    problem = a_problem(*wanted, types={"default": (a_type("middle", 4, 40),)})
    assert [claim.pods for claim in solved(problem).claims] == [{"one": 1, "three": 1}] * 2


def test_first_fit_takes_the_largest_pod_first_and_the_emptiest_claim_before_the_others() -> None:
    wanted = (pods(1, 5000, name="big"), pods(1, 4500, name="next"), pods(1, 1000, name="last"))
    first_fit = solved(a_problem(*wanted, options=SolveOptions(packing="first-fit")))
    assert [claim.pods for claim in first_fit.claims] == [{"big": 1, "last": 1}, {"next": 1}]


def test_a_claim_lists_all_types_that_hold_it_the_cheapest_first() -> None:
    claim = solved(a_problem(pods(3))).claims[0]
    assert (claim.instance_types, claim.price) == (("middle", "large"), 40)


def test_daemons_take_their_share_before_pods_come() -> None:
    daemons = ClusterObjects(
        daemons=(DaemonPods("kube-system", "agent", Requirements({"cpu": 100})),)
    )
    claim = solved(a_problem(pods(2), objects=daemons)).claims[0]
    assert claim.instance_types == ("middle", "large")
    assert claim.requests["cpu"] == 2100


def test_a_port_that_a_daemon_holds_is_free_on_no_new_node() -> None:
    port = PodTraits("kube-system", {}, ports=(HostPort(9100),))
    daemons = ClusterObjects(
        daemons=(DaemonPods("kube-system", "agent", Requirements({"cpu": 100}, pod=port)),)
    )
    assert solve(a_problem(pods(traits=shop(ports=(HostPort(9100),))), objects=daemons)).unplaced
    assert (
        len(solved(a_problem(pods(2, 100, shop(ports=(HostPort(80),))), objects=daemons)).claims)
        == 2
    )


def test_limits_count_a_claim_as_the_largest_it_may_become() -> None:
    pool = NodePoolPolicy("general", limits={"cpu": 9000})
    solution = solved(
        a_problem(pods(2, 2000, shop(anti_affinity=(PodTerm(HOSTNAME, SHOP),))), pools=(pool,))
    )
    assert len(solution.claims) == 1
    assert "limits of pool general" in solution.unplaced[0].reason


def test_a_limit_of_nodes() -> None:
    pool = NodePoolPolicy("general", limits={"nodes": 2})
    solution = solved(a_problem(pods(3, 8000), pools=(pool,), used={"general": {"nodes": 1}}))
    assert (len(solution.claims), solution.unplaced[0].count) == (1, 2)
    assert "limit of 2 nodes" in solution.unplaced[0].reason


def test_a_new_node_has_one_value_of_each_label_that_its_instance_type_does_not_say() -> None:
    """Pods may require that the label is there, and nothing else chooses its value."""
    several = NodePoolPolicy(
        "general",
        requirements=(
            PoolRequirement("example.com/team", "In", ("b", "a")),
            PoolRequirement(ZONE_LABEL, "In", ("b", "c")),
        ),
    )
    anyone = NodeTerm((Requirement("example.com/team", "Exists"),))
    wanted = pods(node_terms=(anyone,))
    (claim,) = solved(a_problem(wanted, pools=(several,))).claims
    required = {r.key: r.values for r in claim.requirements}
    assert (required["example.com/team"], required[ZONE_LABEL]) == (("a",), ("b", "c"))


def test_min_values_keep_a_claim_from_being_filled_until_too_few_types_are_left() -> None:
    two = PoolRequirement("node.kubernetes.io/instance-type", "Exists", (), 2)
    solution = solved(a_problem(pods(8), pools=(NodePoolPolicy("general", requirements=(two,)),)))
    assert [len(claim.instance_types) >= 2 for claim in solution.claims] == [True, True]


def test_min_values_that_should_be_kept_are_lowered_where_they_cannot_be() -> None:
    many = PoolRequirement("node.kubernetes.io/instance-type", "Exists", (), 50)
    problem = a_problem(pods(2), pools=(NodePoolPolicy("general", requirements=(many,)),))
    assert solved(problem).unplaced[0].count == 2
    lenient = solved(replace(problem, options=replace(problem.options, min_values="BestEffort")))
    assert not lenient.unplaced
    assert all(len(claim.instance_types) < 50 for claim in lenient.claims)


def test_whole_devices_are_counted_with_what_is_on_the_claim_already() -> None:
    types = (a_type("gpu", 8, 100, devices=2),)
    whole = DeviceRequest(1)
    solution = solved(a_problem(pods(3, devices=(whole,)), types={"default": types}))
    assert sorted(claim.pods["shop"] for claim in solution.claims) == [1, 2]


def test_shares_of_devices_are_not_added_up_over_devices() -> None:
    types = (a_type("gpu", 8, 100, devices=2),)
    solution = solved(
        a_problem(pods(3, devices=(DeviceRequest(1, 600),)), types={"default": types})
    )
    assert sorted(claim.pods["shop"] for claim in solution.claims) == [1, 2]


def test_the_zone_of_a_volume_is_the_zone_of_its_node() -> None:
    term = NodeTerm((Requirement(ZONE_LABEL, "In", ("b",)),))
    objects = ClusterObjects(
        volumes=(PersistentVolume("disk", node_terms=(term,)),),
        claims=(PersistentVolumeClaim("default", "data", volume="disk", bound=True),),
    )
    assert zones(
        solved(a_problem(pods(traits=shop(volumes=(VolumeUse("data"),))), objects=objects))
    ) == [("b",)]


def test_a_volume_that_is_not_there_is_told() -> None:
    solution = solved(a_problem(pods(traits=shop(volumes=(VolumeUse("data"),)))))
    assert solution.unplaced[0].reason == 'persistentvolumeclaim "data" not found'


def test_a_node_takes_no_more_volumes_than_its_driver_attaches() -> None:
    objects = ClusterObjects(
        volumes=tuple(
            PersistentVolume(f"disk-{n}", driver="ebs", handle=f"vol-{n}") for n in range(2)
        ),
        claims=tuple(
            PersistentVolumeClaim("default", f"data-{n}", volume=f"disk-{n}", bound=True)
            for n in range(2)
        ),
        csi_nodes=(CSINode("n", {"ebs": 1}),),
    )
    node = Node("n", {"cpu": 9000, "memory": 9999, "pods": 9})
    wanted = (
        pods(traits=shop(volumes=(VolumeUse(f"data-{n}"),)), name=f"shop-{n}") for n in range(2)
    )
    solution = solved(a_problem(*wanted, nodes=(node,), objects=objects))
    assert (solution.placed, len(solution.claims)) == ({"n": {"shop-0": 1}}, 1)


def test_reserved_capacity_goes_first_and_is_not_promised_twice() -> None:
    offers = (Offering("a", "reserved", 1, reservation="r", left=1), *offered(20, "a"))
    types = (InstanceType("small", {"cpu": 2000, "memory": 9999, "pods": 9}, offerings=offers),)
    problem = a_problem(pods(2, 2000), types={"default": types})
    strict = solved(problem)
    assert (len(strict.claims), strict.claims[0].reserved, strict.claims[0].price) == (1, ("r",), 1)
    assert "reserved capacity" in strict.unplaced[0].reason
    lenient = solved(replace(problem, options=SolveOptions(reserved_strict=False)))
    assert sorted(claim.price for claim in lenient.claims) == [1, 20]


# --- pods among each other


def test_spread_over_zones_counts_what_is_there_and_fixes_the_zone_of_each_claim() -> None:
    node = Node("n", {"cpu": 0, "memory": 0, "pods": 0}, labels={ZONE_LABEL: "a"})
    there = tuple(Pod(f"p{n}", f"p{n}", Requirements({}, pod=shop()), node="n") for n in range(2))
    spread = shop(spread=(TopologySpread(ZONE_LABEL, 1, selector=SHOP),))
    solution = solve(a_problem(pods(4, 2000, spread), nodes=(node,), pods=there))
    per_zone = dict.fromkeys("abc", 0)
    for claim in solution.claims:
        zone = next(r.values for r in claim.requirements if r.key == ZONE_LABEL)
        per_zone[zone[0]] += sum(claim.pods.values())
    assert per_zone == {"a": 0, "b": 2, "c": 2}


def test_spread_over_zones_that_no_pool_allows_does_not_wait_for_them() -> None:
    pool = NodePoolPolicy("general", requirements=(PoolRequirement(ZONE_LABEL, "In", ("a", "b")),))
    spread = shop(spread=(TopologySpread(ZONE_LABEL, 1, selector=SHOP),))
    assert zones(solved(a_problem(pods(4, 8000, spread), pools=(pool,)))) == [
        ("a",),
        ("a",),
        ("b",),
        ("b",),
    ]


def test_fewer_domains_than_asked_for_hold_as_many_as_the_skew() -> None:
    pool = NodePoolPolicy("general", requirements=(PoolRequirement(ZONE_LABEL, "In", ("a", "b")),))
    spread = shop(spread=(TopologySpread(ZONE_LABEL, 1, selector=SHOP, min_domains=3),))
    solution = solved(a_problem(pods(4, 1000, spread), pools=(pool,)))
    assert sum(u.count for u in solution.unplaced) == 2
    assert "spread over" in solution.unplaced[0].reason


def test_pods_that_want_each_others_company_begin_in_one_zone() -> None:
    together = shop(affinity=(PodTerm(ZONE_LABEL, SHOP),))
    assert len(set(zones(solved(a_problem(pods(3, 8000, together)))))) == 1


def test_who_wants_company_that_nobody_is_waits() -> None:
    lonely = PodTraits("default", {"app": "web"}, affinity=(PodTerm(ZONE_LABEL, SHOP),))
    solution = solved(a_problem(pods(traits=lonely)))
    assert "affinity to pods" in solution.unplaced[0].reason


def test_who_comes_before_its_company_is_tried_again() -> None:
    follower = PodTraits("default", {"app": "web"}, affinity=(PodTerm(ZONE_LABEL, SHOP),))
    leader = shop(spread=(TopologySpread(ZONE_LABEL, 1, selector=SHOP),))
    solution = solved(a_problem(pods(1, 8000, follower, name="web"), pods(1, 1000, leader)))
    assert not solution.unplaced


def test_pods_that_others_do_not_bear_stay_away_from_them() -> None:
    hermit = PodTraits("default", {"app": "hermit"}, anti_affinity=(PodTerm(ZONE_LABEL, SHOP),))
    solution = solved(a_problem(pods(1, 8000, hermit, name="hermit"), pods(2, 8000, shop())))
    assert len(solution.claims) + sum(u.count for u in solution.unplaced) == 3


# --- what is given up


def test_a_preferred_zone_is_kept_where_there_is_a_place_in_it() -> None:
    liked = shop(
        preferences=(WeightedNodeTerm(1, NodeTerm((Requirement(ZONE_LABEL, "In", ("c",)),))),)
    )
    solution = solved(a_problem(pods(traits=liked)))
    assert (zones(solution), solution.relaxed) == ([("c",)], {})


def test_a_preferred_zone_is_given_up_where_there_is_none() -> None:
    liked = shop(
        preferences=(WeightedNodeTerm(1, NodeTerm((Requirement(ZONE_LABEL, "In", ("x",)),))),)
    )
    solution = solved(a_problem(pods(traits=liked)))
    assert not solution.unplaced
    assert "preferred node affinity" in solution.relaxed["shop"][0]


def test_preferences_are_not_looked_at_where_they_shall_not_be() -> None:
    away = (WeightedPodTerm(1, PodTerm(HOSTNAME, SHOP)),)
    problem = a_problem(pods(2, 1000, shop(preferred_anti_affinity=away)))
    assert len(solved(problem).claims) == 2
    assert len(solved(replace(problem, options=SolveOptions(preferences="Ignore"))).claims) == 1


def test_soft_spread_is_kept_until_it_cannot_be() -> None:
    pool = NodePoolPolicy("general", limits={"nodes": 1})
    spread = shop(spread=(TopologySpread(HOSTNAME, 1, hard=False, selector=SHOP),))
    solution = solved(a_problem(pods(2, 1000, spread), pools=(pool,)))
    assert [claim.pods for claim in solution.claims] == [{"shop": 2}]
    assert "ScheduleAnyway" in solution.relaxed["shop"][0]


def test_a_taint_that_would_rather_not_is_tolerated_in_the_end() -> None:
    pool = NodePoolPolicy("general", taints=(Taint("quiet", "PreferNoSchedule"),))
    assert not solved(a_problem(pods(), pools=(pool,))).unplaced


# --- why not


def test_each_pool_says_why() -> None:
    tainted = NodePoolPolicy("tainted", taints=(Taint("dedicated", "NoSchedule", "x"),))
    spot = NodePoolPolicy(
        "spot", requirements=(PoolRequirement(CAPACITY_TYPE_LABEL, "In", ("spot",)),)
    )
    solution = solved(a_problem(pods(1, 9000), pools=(POOL, tainted, spot)))
    reason = solution.unplaced[0].reason
    assert "pool tainted: did not tolerate taint dedicated=x:NoSchedule" in reason
    assert "pool general: no instance type satisfied resources cpu 9" in reason
    assert "pool spot: no instance type" in reason


def test_without_pools_nothing_is_made() -> None:
    solution = solved(a_problem(pods(), pools=()))
    assert solution.unplaced[0].reason == "no pool makes nodes for it"


def test_nothing_wanted_is_nothing_done() -> None:
    assert solved(a_problem()) == Solution({}, {}, ())


def both_ways(*wanted: WantedPods, **more: object) -> list[dict[str, str]]:
    """Why each pod is left over, with the pods in this order and in the other."""
    return [
        {u.name: u.reason for u in solve(a_problem(*order, **more)).unplaced}
        for order in (wanted, wanted[::-1])
    ]


def test_pods_that_share_a_spread_are_told_their_own_skew_in_whatever_order_they_come() -> None:
    spreads = [
        shop(spread=(TopologySpread(ZONE_LABEL, skew, True, SHOP, min_domains=9),))
        for skew in (1, 2)
    ]
    near, far = (
        pods(9, traits=traits, name=name)
        for name, traits in zip(("near", "far"), spreads, strict=True)
    )
    one, other = both_ways(near, far)
    assert one == other
    assert one["near"].endswith(f"no domain satisfies spread over {ZONE_LABEL} (maxSkew 1)")
    assert one["far"].endswith(f"no domain satisfies spread over {ZONE_LABEL} (maxSkew 2)")


def test_what_others_have_against_a_pod_is_told_in_the_same_order_in_whatever_order_they_come() -> (
    None
):
    over = (ZONE_LABEL, CAPACITY_TYPE_LABEL)
    away = [
        pods(
            traits=PodTraits("default", {"app": key}, anti_affinity=(PodTerm(key, SHOP),)),
            name=key,
            cpu_milli=2000,
        )
        for key in over
    ]
    only = {
        "pools": (
            NodePoolPolicy(
                "general",
                requirements=(
                    PoolRequirement(ZONE_LABEL, "In", ("a",)),
                    PoolRequirement(CAPACITY_TYPE_LABEL, "In", ("on-demand",)),
                ),
            ),
        )
    }
    one, other = both_ways(*away, pods(traits=shop()), **only)
    assert one == other
    assert len(one) == 1
    assert all(f"anti-affinity of other pods over {key}" in one["shop"] for key in over)
