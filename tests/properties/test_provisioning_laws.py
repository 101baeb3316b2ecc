"""What every solution of provisioning is, whatever is asked: one that holds, the same each time,
never dearer than first-fit."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.provisioning_oracle import HOSTNAME, faults

from wharfinger.domain.cluster_objects import ClusterObjects, DaemonPods
from wharfinger.domain.instance_types import InstanceType, Offering
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    ZONE_LABEL,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.pod_traits import HostPort, PodTerm, PodTraits, TopologySpread
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.bound import lower_bound
from wharfinger.engine.provisioning.problem import Problem, SolveOptions, WantedPods
from wharfinger.engine.provisioning.solve import solve

ZONES = ("a", "b", "c")
APPS = ("shop", "web")
SMALL = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def instance_types(draw: st.DrawFn) -> tuple[InstanceType, ...]:
    found = []
    for n in range(draw(st.integers(1, 5))):
        cpu = draw(st.integers(1, 8))
        memory = draw(st.integers(1, 16))
        offered = draw(st.lists(st.sampled_from(ZONES), min_size=1, max_size=3, unique=True))
        offers = tuple(
            Offering(zone, mode, draw(st.integers(1, 40)), available=draw(st.integers(0, 9)) > 0)
            for zone in offered
            for mode in draw(st.sampled_from((("on-demand",), ("spot",), ("spot", "on-demand"))))
        )
        labels: dict[str, tuple[str, ...]] = {
            "kubernetes.io/arch": (draw(st.sampled_from(("amd64", "arm64"))),)
        }
        found.append(
            InstanceType(
                f"t{n}",
                {"cpu": cpu, "memory": memory, "pods": draw(st.integers(1, 9))},
                {},
                labels,
                offers,
            )
        )
    return tuple(found)


@st.composite
def pools(draw: st.DrawFn) -> tuple[NodePoolPolicy, ...]:
    found = []
    for n in range(draw(st.integers(1, 3))):
        asked = []
        if draw(st.booleans()):
            zones = draw(st.lists(st.sampled_from(ZONES), min_size=1, max_size=2, unique=True))
            asked.append(PoolRequirement(ZONE_LABEL, "In", tuple(zones)))
        if draw(st.integers(0, 3)) == 0:
            asked.append(PoolRequirement(CAPACITY_TYPE_LABEL, "In", ("on-demand",)))
        if draw(st.integers(0, 4)) == 0:
            asked.append(PoolRequirement(INSTANCE_TYPE_LABEL, "Exists", (), 2))
        taints = (Taint("dedicated", "NoSchedule", "x"),) if draw(st.integers(0, 3)) == 0 else ()
        limits = {}
        if draw(st.integers(0, 3)) == 0:
            limits = draw(st.sampled_from(({"cpu": 10}, {"nodes": 2}, {"cpu": 14, "memory": 30})))
        labels = {"team": draw(st.sampled_from(("red", "blue")))} if draw(st.booleans()) else {}
        found.append(
            NodePoolPolicy(
                f"pool{n}",
                requirements=tuple(asked),
                taints=taints,
                limits=limits,
                labels=labels,
                weight=draw(st.sampled_from((0, 0, 10))),
            )
        )
    return tuple(found)


@st.composite
def traits(draw: st.DrawFn) -> PodTraits:
    app = draw(st.sampled_from(APPS))
    own, other = LabelSelector({"app": app}), LabelSelector({"app": draw(st.sampled_from(APPS))})
    key = draw(st.sampled_from((ZONE_LABEL, HOSTNAME)))
    kind = draw(st.sampled_from(("plain", "plain", "spread", "near", "apart", "port", "both")))
    spread = (
        TopologySpread(
            key, draw(st.integers(1, 2)), selector=own, min_domains=draw(st.integers(1, 2))
        ),
    )
    return PodTraits(
        "default",
        {"app": app},
        spread=spread if kind in ("spread", "both") else (),
        affinity=(PodTerm(key, own if draw(st.booleans()) else other),) if kind == "near" else (),
        anti_affinity=(PodTerm(key, other),) if kind == "apart" else (),
        ports=(HostPort(80),) if kind == "port" else (),
    )


@st.composite
def requirements(draw: st.DrawFn) -> Requirements:
    selector = {}
    if draw(st.integers(0, 4)) == 0:
        selector[ZONE_LABEL] = draw(st.sampled_from(ZONES))
    if draw(st.integers(0, 6)) == 0:
        selector["team"] = "red"
    terms: tuple[NodeTerm, ...] = ()
    if draw(st.integers(0, 5)) == 0:
        terms = (
            NodeTerm((Requirement("kubernetes.io/arch", "In", ("arm64",)),)),
            NodeTerm((Requirement(ZONE_LABEL, "NotIn", ("a",)),)),
        )
    tolerations = (Toleration("dedicated", "Exists"),) if draw(st.booleans()) else ()
    amounts = {"cpu": draw(st.integers(1, 5)), "memory": draw(st.integers(0, 8))}
    return Requirements(amounts, (), selector, terms, tolerations, draw(traits()))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    wanted = [
        WantedPods(
            f"w{n}",
            draw(requirements()),
            draw(st.integers(1, 4)),
            created_us=draw(st.integers(0, 2)),
        )
        for n in range(draw(st.integers(1, 6)))
    ]
    nodes = [
        Node(
            f"n{n}",
            {"cpu": 6, "memory": 12, "pods": 5},
            labels={ZONE_LABEL: draw(st.sampled_from(ZONES)), HOSTNAME: f"n{n}"},
        )
        for n in range(draw(st.integers(0, 3)))
    ]
    pods = [
        Pod(
            f"p{n}",
            f"p{n}",
            Requirements({"cpu": 1, "memory": 1}, pod=draw(traits())),
            node=node.name,
        )
        for n, node in enumerate(nodes)
    ]
    daemons = (
        (DaemonPods("kube-system", "agent", Requirements({"memory": 1})),)
        if draw(st.integers(0, 3)) == 0
        else ()
    )
    if daemons:
        nodes, pods = [], []
    return Problem(
        tuple(wanted),
        draw(pools()),
        {"default": draw(instance_types())},
        nodes=tuple(nodes),
        pods=tuple(pods),
        objects=ClusterObjects(daemons=daemons),
        avoid=frozenset(("n0",)) if draw(st.booleans()) else frozenset(),
        options=SolveOptions(packing=draw(st.sampled_from(("priced", "first-fit")))),
    )


@given(problems())
@SMALL
def test_everybody_can_be_where_they_are_sent(problem: Problem) -> None:
    assert faults(problem, solve(problem)) == []


@given(problems())
@SMALL
def test_looking_ahead_never_costs_more_nor_places_fewer(problem: Problem) -> None:
    first_fit = solve(replace(problem, options=SolveOptions(packing="first-fit")))
    priced = solve(replace(problem, options=SolveOptions(packing="priced")))
    left = [sum(u.count for u in s.unplaced) for s in (priced, first_fit)]
    assert (left[0], priced.price if left[0] == left[1] else 0) <= (left[1], first_fit.price)


@given(problems(), st.randoms(use_true_random=False))
@SMALL
def test_the_order_in_which_pods_are_told_is_nothing_to_their_places(
    problem: Problem, random: object
) -> None:
    shuffled = list(problem.wanted)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = solve(problem), solve(replace(problem, wanted=tuple(shuffled)))
    assert (one.placed, one.claims, one.relaxed) == (other.placed, other.claims, other.relaxed)
    assert sorted(one.unplaced, key=lambda u: u.name) == sorted(
        other.unplaced, key=lambda u: u.name
    )


@given(problems())
@settings(SMALL, max_examples=examples(60))
def test_no_solution_is_cheaper_than_the_bounds(problem: Problem) -> None:
    solution = solve(problem)
    bound = lower_bound(problem, solution)
    assert bound.resources_only <= bound.with_anti_affinity <= solution.price


@st.composite
def tiny(draw: st.DrawFn) -> Problem:
    """A few pods that at most keep each other off their nodes, so that all ways to pack them can be
    tried."""
    apart = PodTraits(
        "default", {"app": "x"}, anti_affinity=(PodTerm(HOSTNAME, LabelSelector({"app": "x"})),)
    )
    wanted = tuple(
        WantedPods(
            f"w{n}",
            Requirements(
                {"cpu": draw(st.integers(1, 4)), "memory": draw(st.integers(1, 6))},
                pod=draw(st.sampled_from((None, apart))),
            ),
        )
        for n in range(draw(st.integers(1, 5)))
    )
    types = tuple(
        InstanceType(
            f"t{n}",
            {"cpu": draw(st.integers(1, 9)), "memory": draw(st.integers(1, 12)), "pods": 5},
            offerings=(Offering("a", "on-demand", draw(st.integers(10, 99)) * 10**7),),
        )
        for n in range(draw(st.integers(1, 3)))
    )
    return Problem(wanted, (NodePoolPolicy("pool"),), {"default": types})


def cheapest(problem: Problem) -> int | None:
    """By trying all: each pod on a node that is there already, or on a new one. None: some pod fits
    nowhere."""
    types = problem.types["default"]

    def price(pods: tuple[WantedPods, ...]) -> int | None:
        total = {r: sum(p.requirements.requests[r] for p in pods) for r in ("cpu", "memory")}
        if len(pods) > 5 or sum(bool(p.requirements.traits.anti_affinity) for p in pods) > 1:
            return None
        return min(
            (t.offerings[0].price for t in types if all(t.capacity[r] >= total[r] for r in total)),
            default=None,
        )

    best: list[int] = []

    def tried(rest: tuple[WantedPods, ...], nodes: tuple[tuple[WantedPods, ...], ...]) -> None:
        if not rest:
            best.append(sum(price(pods) or 0 for pods in nodes))
            return
        for at in range(len(nodes) + 1):
            before = nodes[at] if at < len(nodes) else ()
            if price((*before, rest[0])) is not None:
                tried(rest[1:], (*nodes[:at], (*before, rest[0]), *nodes[at + 1 :]))

    tried(tuple(problem.wanted), ())
    return min(best, default=None)


@given(tiny())
@settings(SMALL, max_examples=examples(60))
def test_the_bounds_are_below_the_cheapest_there_is_and_solutions_are_not(problem: Problem) -> None:
    least = cheapest(problem)
    if least is None:
        return
    solution, bound = solve(problem), lower_bound(problem)
    assert not solution.unplaced
    assert bound.resources_only <= bound.with_anti_affinity <= least <= solution.price
