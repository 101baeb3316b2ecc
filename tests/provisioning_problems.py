"""Small problems of provisioning, drawn so that everything that can go wrong does so often: few
zones, tight types, pods that mind each other."""

from __future__ import annotations

from typing import Literal

from hypothesis import strategies as st
from msgspec.structs import replace
from tests.pools import GIB

from wharfinger.domain.cluster_objects import ClusterObjects, DaemonPods
from wharfinger.domain.instance_types import CapacityType, InstanceType, Offering
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
    NodeOverlay,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.pod_traits import (
    HostPort,
    PodTerm,
    PodTraits,
    TopologySpread,
    WeightedNodeTerm,
    WeightedPodTerm,
)
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.problem import InFlight, Problem, SolveOptions, WantedPods
from wharfinger.engine.provisioning.templates import template_of

ZONES, APPS, FAMILIES = ["a", "b", "c"], ["web", "db"], ["c", "m"]
HOSTNAME = "kubernetes.io/hostname"
KEYS = [ZONE_LABEL, HOSTNAME]
TAINT = Taint("gpu", "NoSchedule")
SOFT_TAINT = Taint("old", "PreferNoSchedule")
rarely = st.sampled_from([False, False, False, True])


@st.composite
def instance_types(draw: st.DrawFn, reserved: bool = False) -> tuple[InstanceType, ...]:
    found = []
    for i in range(draw(st.integers(1, 5))):
        cpu = draw(st.integers(1, 4))
        modes: list[CapacityType] = ["spot", "on-demand"]
        offerings = [
            Offering(
                zone,
                mode,
                draw(st.integers(1, 4)) * cpu * 10,
                draw(st.sampled_from([True, True, True, False])),
            )
            for zone in draw(st.lists(st.sampled_from(ZONES), min_size=1, max_size=3, unique=True))
            for mode in draw(st.lists(st.sampled_from(modes), min_size=1, max_size=2, unique=True))
        ]
        if reserved and draw(st.booleans()):
            offerings.append(
                Offering(
                    "a",
                    "reserved",
                    1,
                    True,
                    draw(st.sampled_from(["r1", "r2"])),
                    draw(st.integers(0, 2)),
                )
            )
        found.append(
            InstanceType(
                f"t{i}",
                {
                    "cpu": cpu * 1000,
                    "memory": draw(st.integers(1, 6)) * GIB,
                    "pods": draw(st.integers(2, 6)),
                },
                {"cpu": draw(st.sampled_from([0, 100]))},
                {"family": (draw(st.sampled_from(FAMILIES)),), "kubernetes.io/arch": ("amd64",)},
                tuple(offerings),
                (Device("t4"),) * draw(st.sampled_from([0, 0, 1, 2])),
            )
        )
    return tuple(found)


@st.composite
def pools(draw: st.DrawFn, name: str) -> NodePoolPolicy:
    lines = []
    if draw(rarely):
        lines.append(
            PoolRequirement(
                ZONE_LABEL,
                "In",
                tuple(draw(st.lists(st.sampled_from(ZONES), min_size=1, unique=True))),
            )
        )
    if draw(rarely):
        lines.append(
            PoolRequirement(
                CAPACITY_TYPE_LABEL, "In", (draw(st.sampled_from(["spot", "on-demand"])),)
            )
        )
    if draw(rarely):
        lines.append(PoolRequirement("family", "Exists", (), draw(st.integers(0, 2))))
    if draw(rarely):
        lines.append(PoolRequirement("tier", "In", ("gold", "silver")))
    limits = {}
    if draw(rarely):
        limits["cpu"] = draw(st.integers(1, 8)) * 1000
    if draw(rarely):
        limits["nodes"] = draw(st.integers(0, 3))
    return NodePoolPolicy(
        name,
        requirements=tuple(lines),
        labels=draw(st.sampled_from([{}, {}, {"team": "blue"}])),
        taints=draw(st.sampled_from([(), (), (), (TAINT,), (SOFT_TAINT,)])),
        limits=limits,
        weight=draw(st.sampled_from([0, 0, 5])),
        replicas=draw(st.sampled_from([None, None, None, None, 2])),
    )


def zone_term(zones: list[str]) -> NodeTerm:
    return NodeTerm((Requirement(ZONE_LABEL, "In", tuple(zones)),))


zone_terms = st.lists(st.sampled_from(ZONES), min_size=1, max_size=2, unique=True).map(zone_term)


def selecting(app: str) -> LabelSelector:
    return LabelSelector({"app": app})


pod_terms = st.builds(PodTerm, st.sampled_from(KEYS), st.sampled_from(APPS).map(selecting))


@st.composite
def traits(draw: st.DrawFn) -> PodTraits:
    app = draw(st.sampled_from(APPS))
    kind = draw(
        st.sampled_from(["plain", "plain", "spread", "apart", "together", "preferring", "port"])
    )
    found = PodTraits(labels={"app": app})
    match kind:
        case "spread":
            key, hard = draw(st.sampled_from(KEYS)), not draw(rarely)
            skew, least = draw(st.integers(1, 2)), draw(st.integers(1, 2)) if hard else 1
            policies = draw(st.booleans()), draw(st.booleans())
            return replace(
                found, spread=(TopologySpread(key, skew, hard, selecting(app), least, *policies),)
            )
        case "apart":
            return replace(found, anti_affinity=(draw(pod_terms),))
        case "together":
            return replace(found, affinity=(draw(pod_terms),))
        case "preferring":
            return replace(
                found,
                preferences=(WeightedNodeTerm(draw(st.integers(1, 9)), draw(zone_terms)),),
                preferred_anti_affinity=(WeightedPodTerm(1, draw(pod_terms)),),
            )
        case "port":
            return replace(found, ports=(HostPort(draw(st.sampled_from([80, 81]))),))
        case _:
            return found


@st.composite
def requirements(draw: st.DrawFn) -> Requirements:
    selector = draw(
        st.sampled_from(
            [
                {},
                {},
                {},
                {},
                {"family": "c"},
                {"team": "blue"},
                {"tier": "gold"},
                {ZONE_LABEL: "a"},
                {CAPACITY_TYPE_LABEL: "on-demand"},
                {"rack": "7"},
            ]
        )
    )
    return Requirements(
        {
            "cpu": draw(st.sampled_from([100, 500, 900, 1000, 1900, 3000])),
            "memory": draw(st.integers(0, 3)) * GIB,
        },
        draw(
            st.sampled_from(
                [(), (), (), (), (), (DeviceRequest(1),), (DeviceRequest(1, milli=600),)]
            )
        ),
        selector,
        tuple(draw(st.lists(zone_terms, max_size=2))) if draw(rarely) else (),
        draw(st.sampled_from([(), (), (Toleration("gpu", "Exists"),)])),
        draw(traits()),
    )


@st.composite
def problems(
    draw: st.DrawFn, whole: bool = True, reserved: bool = False, pods_max: int = 3
) -> Problem:
    """`whole`: with nodes, claims on their way, daemons, overlays and limits; else only what is to
    be made."""
    types = draw(instance_types(reserved))
    made = tuple(draw(pools(name)) for name in draw(st.sampled_from([["p"], ["p", "q"]])))
    if not whole:
        made = tuple(replace(pool, limits={}, replicas=None) for pool in made)
    wanted = [
        WantedPods(
            f"w{i}",
            draw(requirements()),
            draw(st.integers(1, pods_max)),
            0,
            draw(st.integers(0, 2)),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    packing: Literal["priced", "first-fit"] = draw(st.sampled_from(["priced", "first-fit"]))
    options = SolveOptions(
        draw(st.sampled_from(["Strict", "BestEffort"])),
        draw(st.sampled_from(["Respect", "Respect", "Ignore"])),
        draw(st.booleans()),
        packing=packing,
    )
    if not whole:
        return Problem(wanted, made, {"default": types}, options=options)
    nodes, pods = draw(standing(made))
    daemons = (
        [DaemonPods("kube-system", "agent", Requirements({"cpu": 100}))] if draw(rarely) else []
    )
    if draw(rarely):
        selective = Requirements(
            {"cpu": 200}, node_selector={"family": "c"}, pod=PodTraits(ports=(HostPort(80),))
        )
        daemons.append(DaemonPods("kube-system", "family", selective))
    overlays = (
        [NodeOverlay("o", (PoolRequirement("family", "In", ("c",)),), price_adjustment="+50%")]
        if draw(rarely)
        else []
    )
    flights = []
    if draw(rarely) and made[0].replicas is None:
        flights += draw(coming(made[0], types))
    away = draw(rarely), draw(rarely)
    return Problem(
        wanted,
        made,
        {"default": types},
        overlays,
        nodes,
        pods,
        ClusterObjects.of(daemons),
        flights,
        frozenset({nodes[0].name}) if nodes and away[0] else frozenset(),
        frozenset({nodes[-1].name}) if nodes and away[1] else frozenset(),
        sold_out=frozenset({(types[0].name, "a", "spot")}) if draw(rarely) else frozenset(),
        options=options,
    )


@st.composite
def coming(
    draw: st.DrawFn, pool: NodePoolPolicy, types: tuple[InstanceType, ...]
) -> list[InFlight]:
    """A node on its way that the pool could have asked for."""
    able = template_of(pool, types)
    names = [able.types.names[row] for row in able.able.nonzero()[0]]
    if not names:
        return []
    chosen = tuple(sorted(draw(st.sets(st.sampled_from(names), min_size=1, max_size=2))))
    there = (
        (Requirements({"cpu": 100}, pod=PodTraits(labels={"app": draw(st.sampled_from(APPS))})), 1),
    )
    return [
        InFlight(
            "claim-1", pool.name, pool.requirements, chosen, draw(st.sampled_from([(), there]))
        )
    ]


@st.composite
def standing(draw: st.DrawFn, made: tuple[NodePoolPolicy, ...]) -> tuple[list[Node], list[Pod]]:
    nodes: list[Node] = []
    pods: list[Pod] = []
    for i in range(draw(st.sampled_from([0, 0, 1, 2, 3]))):
        name = f"n{i}"
        labels = {
            ZONE_LABEL: draw(st.sampled_from(ZONES)),
            HOSTNAME: name,
            "family": "c",
            POOL_LABEL: made[0].name,
        }
        room = {"cpu": draw(st.integers(1, 3)) * 1000, "memory": 3 * GIB, "pods": 4}
        taints = draw(st.sampled_from([(), (), (TAINT,)]))
        nodes.append(
            Node(
                name,
                room,
                (Device("t4"),) * draw(st.sampled_from([0, 1])),
                labels,
                taints,
                draw(rarely),
            )
        )
        for p in range(draw(st.integers(0, 2))):
            apart = draw(
                st.sampled_from(
                    [
                        (),
                        (),
                        (
                            PodTerm(
                                draw(st.sampled_from(KEYS)), selecting(draw(st.sampled_from(APPS)))
                            ),
                        ),
                    ]
                )
            )
            there = PodTraits(labels={"app": draw(st.sampled_from(APPS))}, anti_affinity=apart)
            pods.append(
                Pod(f"{name}-{p}", f"{name}-{p}", Requirements({"cpu": 200}, pod=there), name)
            )
    return nodes, pods
