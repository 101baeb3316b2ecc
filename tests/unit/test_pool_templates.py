"""What a pool can make: labels, daemons, room, limits, and why no instance type is left."""

from __future__ import annotations

import numpy as np
import pytest
from tests.pools import GIB, a_type, asks, bought_as, in_zones, offered

from wharfinger.domain.cluster_objects import ClusterObjects, DaemonPods
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import NodeOverlay, NodePoolPolicy, PoolRequirement
from wharfinger.domain.pod_traits import HostPort, PodTraits, WeightedNodeTerm
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.catalogue import CPU, MEMORY, PODS, Column, Mask, Types
from wharfinger.engine.provisioning.daemons import still_to_come
from wharfinger.engine.provisioning.filtering import filtered, no_type, slots
from wharfinger.engine.provisioning.limits import Left
from wharfinger.engine.provisioning.problem import Problem
from wharfinger.engine.provisioning.requirements import NO_LABELS, LabelSet
from wharfinger.engine.provisioning.templates import (
    Template,
    prefers_away,
    template_of,
    templates_of,
)

ZONE = "topology.kubernetes.io/zone"
SMALL = a_type("c-small", 2, 4, offered(0.1, 0.04), family="c")
LARGE = a_type("m-large", 8, 32, offered(0.4, 0.16), family="m")
GPU = a_type("g-one", 8, 32, offered(1.0, zones=["oslo-1"]), gpus=1, family="g", gpu="t4")
CATALOGUE = (SMALL, LARGE, GPU)


def general(*wanted: PoolRequirement, **more: object) -> NodePoolPolicy:
    return NodePoolPolicy("general", requirements=wanted, **more)  # type: ignore[arg-type]


def template(
    pool: NodePoolPolicy | None = None, *daemons: DaemonPods, overlays: tuple[NodeOverlay, ...] = ()
) -> Template:
    return template_of(pool or general(), CATALOGUE, overlays, daemons)


def daemon(name: str, cpu: int = 0, **more: object) -> DaemonPods:
    return DaemonPods("kube-system", name, Requirements({"cpu": cpu} if cpu else {}, **more))  # type: ignore[arg-type]


def on(**labels: str) -> tuple[NodeTerm, ...]:
    """One alternative a label."""
    return tuple(NodeTerm((Requirement(key, "In", (value,)),)) for key, value in labels.items())


def named(of: Template, mask: Mask) -> list[str]:
    return [of.types.names[row] for row in np.flatnonzero(mask)]


def amounts(of: Template, cpu: int = 0, gib: int = 0, pods: int = 1) -> Column:
    found = of.types.amounts({"cpu": cpu, "memory": gib * GIB})
    assert found is not None
    return slots(found, pods)


# --- pools and their order


def test_a_new_node_has_the_labels_of_its_pool_and_a_name_that_nobody_asks_for() -> None:
    pool = template(general(PoolRequirement("family", "In", ("c", "m")), labels={"team": "blue"}))
    for asked, fine in (
        ({"team": "blue"}, True),
        ({"team": "red"}, False),
        ({"karpenter.sh/nodepool": "general"}, True),
        ({"karpenter.sh/nodepool": "other"}, False),
        ({"family": "c"}, True),
        ({"family": "g"}, False),
        ({"kubernetes.io/hostname": "node-7"}, False),
        ({"kubernetes.io/arch": "amd64"}, True),
        ({"gpu": "t4"}, True),
        ({"rack": "7"}, False),
    ):
        assert (pool.refusal((), LabelSet.of_labels(asked)) == "") is fine, asked
    assert pool.start("node-a").of("kubernetes.io/hostname").only == "node-a"
    assert pool.start("node-a").requirements() == pool.labels.requirements()


def test_pools_are_tried_by_weight_then_the_last_name_first_and_fixed_ones_not_at_all() -> None:
    pools = [
        NodePoolPolicy("a"),
        NodePoolPolicy("c", weight=5),
        NodePoolPolicy("b"),
        NodePoolPolicy("fixed", replicas=3),
    ]
    found = templates_of(Problem((), pools, {"default": CATALOGUE}))
    assert [t.name for t in found] == ["c", "b", "a"]


def test_a_pool_whose_catalogue_nobody_knows_can_make_nothing_and_says_so() -> None:
    (found,) = templates_of(
        Problem((), [NodePoolPolicy("a", catalogue="lost")], {"default": CATALOGUE})
    )
    assert not found.able.any()
    nothing = np.zeros(3, dtype=np.int64)
    assert (
        filtered(found, found.labels, nothing).refusal
        == "no instance types are known of catalogue lost"
    )
    narrow = template(general(PoolRequirement("family", "In", ("x",))))
    assert filtered(narrow, narrow.labels, nothing).refusal == (
        "no instance type of catalogue default that is offered suits the pool and holds its daemons"
    )


def test_a_zone_that_no_instance_type_of_the_pool_is_offered_in_is_no_domain() -> None:
    everywhere = general(PoolRequirement(ZONE, "In", ("bergen-1", "oslo-1", "oslo-2")))
    assert template(everywhere).domains(ZONE) == ("oslo-1", "oslo-2")
    assert template(general(PoolRequirement("gpu", "Exists"))).domains(ZONE) == ("oslo-1",)
    assert template(general(*[PoolRequirement(*in_zones("oslo-2"))])).domains("family") == (
        "c",
        "m",
    )
    assert template(general(PoolRequirement(*bought_as("spot")))).domains(
        "karpenter.sh/capacity-type"
    ) == ("spot",)
    assert template(general(PoolRequirement("rack", "In", ("7", "6")))).domains("rack") == (
        "6",
        "7",
    )
    assert template().domains("rack") == ()


def test_only_taints_that_stay_keep_pods_away_and_preferred_ones_do_until_they_are_given_up() -> (
    None
):
    pool = template(
        general(
            taints=(Taint("gpu", "NoSchedule", "t4"), Taint("old", "PreferNoSchedule")),
            startup_taints=(Taint("starting", "NoExecute"),),
        )
    )
    gpu, old = Toleration("gpu", "Exists"), Toleration("", "Exists", effect="PreferNoSchedule")
    assert pool.refusal((), NO_LABELS) == "did not tolerate taint gpu=t4:NoSchedule"
    assert pool.refusal((gpu,), NO_LABELS) == "did not tolerate taint old:PreferNoSchedule"
    assert pool.refusal((gpu, old), NO_LABELS) == ""
    assert prefers_away([pool])
    assert not prefers_away([template()])


def test_prices_of_one_pool_can_be_laid_over() -> None:
    only_blue = NodeOverlay("blue", (PoolRequirement("team", "In", ("blue",)),), price="0.01")
    blue = template(general(labels={"team": "blue"}), overlays=(only_blue,))
    red = template(general(labels={"team": "red"}), overlays=(only_blue,))
    assert blue.types.cheapest(NO_LABELS).max() == 10_000_000
    assert red.types.cheapest(NO_LABELS).min() == 40_000_000


# --- daemons


def test_what_daemons_take_is_taken_off_each_type_they_come_to() -> None:
    pool = template(
        None, daemon("agent", 100), daemon("gpu-agent", 500, node_selector={"gpu": "t4"})
    )
    by_name = dict(zip(pool.types.names, pool.room, strict=True))
    assert (by_name["c-small"][CPU], by_name["c-small"][PODS]) == (1900, 109)
    assert (by_name["g-one"][CPU], by_name["g-one"][PODS]) == (7400, 108)
    assert {group.names for group in pool.daemons} == {
        ("kube-system/agent",),
        ("kube-system/agent", "kube-system/gpu-agent"),
    }


@pytest.mark.parametrize(
    ("asked", "comes"),
    [
        ({"node_terms": on(family="x", gpu="t4")}, ["g-one"]),
        ({"node_terms": on(family="x")}, []),
        ({"node_terms": on(family="c", gpu="t4")}, ["c-small", "g-one"]),
        ({"node_selector": {"rack": "7"}}, []),
        ({"node_selector": {ZONE: "oslo-1"}}, ["c-small", "g-one", "m-large"]),
        ({"node_selector": {ZONE: "bergen-1"}}, []),
        ({"requests": {"cpu": 4000}}, ["g-one", "m-large"]),
        ({"requests": {"example.com/dongle": 1}}, []),
        ({"devices": (DeviceRequest(1),)}, ["g-one"]),
        (
            {"pod": PodTraits(preferences=(WeightedNodeTerm(9, on(family="x")[0]),))},
            ["c-small", "g-one", "m-large"],
        ),
    ],
)
def test_a_daemon_comes_where_one_of_its_terms_can_be_met_and_it_fits_at_all(
    asked: dict[str, object], comes: list[str]
) -> None:
    found = DaemonPods("kube-system", "agent", Requirements(**asked))  # type: ignore[arg-type]
    pool = template(None, found)
    assert named(pool, pool.room[:, PODS] < 110) == comes


def test_a_daemon_without_the_toleration_stays_away_but_a_preference_does_not_keep_it() -> None:
    hard = template(general(taints=(Taint("gpu", "NoSchedule"),)), daemon("agent", 100))
    soft = template(general(taints=(Taint("gpu", "PreferNoSchedule"),)), daemon("agent", 100))
    assert hard.room[0, CPU] == 2000
    assert soft.room[0, CPU] == 1900


def test_a_type_that_is_filled_by_its_daemons_is_not_able() -> None:
    pool = template(None, daemon("a", 1500), daemon("b", 1500))
    assert named(pool, pool.able) == ["g-one", "m-large"]


def test_ports_and_devices_of_daemons_are_taken_on_their_types_only() -> None:
    port = HostPort(9100)
    exporter = DaemonPods(
        "kube-system",
        "dcgm",
        Requirements(devices=(DeviceRequest(1, milli=300),), pod=PodTraits(ports=(port,))),
    )
    pool = template(None, exporter)
    assert named(pool, pool.free_of((port,))) == ["c-small", "m-large"]
    assert named(pool, pool.free_of((HostPort(9100, "UDP"), HostPort(9101)))) == [
        "c-small",
        "g-one",
        "m-large",
    ]
    assert named(pool, pool.holding((DeviceRequest(1, milli=700),))) == ["g-one"]
    assert named(pool, pool.holding((DeviceRequest(1),))) == []


def test_a_node_keeps_room_for_daemons_that_have_not_come_yet() -> None:
    objects = ClusterObjects.of(
        [
            daemon("agent", 100),
            daemon("other", 50, devices=(DeviceRequest(1),)),
            daemon("elsewhere", 999, node_selector={"rack": "7"}),
            daemon("choosy", 30),
        ]
    )
    node = Node(
        "n", {}, taints=(Taint("node.kubernetes.io/not-ready", "NoExecute"),), unschedulable=True
    )
    there = Pod(
        "u",
        "agent-x",
        Requirements({"cpu": 100}),
        "n",
        upkeep=PodUpkeep(owners=(Owner("DaemonSet", "agent"),)),
    )
    web = Pod(
        "v",
        "web-x",
        Requirements({"cpu": 400}),
        "n",
        upkeep=PodUpkeep(owners=(Owner("ReplicaSet", "web"),)),
    )
    assert still_to_come(node, [], objects.daemons) == (
        {"cpu": 180, "pods": 3},
        (DeviceRequest(1),),
    )
    assert still_to_come(node, [there, web], objects.daemons) == (
        {"cpu": 80, "pods": 2},
        (DeviceRequest(1),),
    )
    tainted = Node("n", {}, taints=(Taint("mine", "NoSchedule"),))
    assert still_to_come(tainted, [], objects.daemons) == ({}, ())


def test_daemons_are_counted_on_what_is_sold_out_as_well() -> None:
    gone = frozenset(
        ("c-small", zone, way) for zone in ("oslo-1", "oslo-2") for way in ("spot", "on-demand")
    )
    pool = template_of(general(), CATALOGUE, (), (daemon("agent", 100),), gone)
    assert named(pool, pool.able) == ["g-one", "m-large"]
    assert pool.room[0, CPU] == 1900, "one of it may be on its way"


# --- which types are left


def test_types_must_have_labels_room_and_an_offering() -> None:
    pool = template()
    assert named(pool, filtered(pool, pool.labels, amounts(pool, 1000)).remaining) == [
        "c-small",
        "g-one",
        "m-large",
    ]
    assert named(pool, filtered(pool, pool.labels, amounts(pool, 4000)).remaining) == [
        "g-one",
        "m-large",
    ]
    second = pool.labels.intersect(asks(in_zones("oslo-2")))
    assert named(pool, filtered(pool, second, amounts(pool, 4000)).remaining) == ["m-large"]
    only = pool.types.fitting(asks(("family", "In", ("g",))))
    found = filtered(pool, second, amounts(pool, 4000), among=only)
    assert not found.remaining.any()


def test_zone_and_capacity_type_must_be_offered_together() -> None:
    apart = a_type(
        "x", offerings=(*offered(0.2, zones=["oslo-1"]), *offered(spot=0.1, zones=["oslo-2"]))
    )
    pool = template_of(general(), (apart,))
    labels = pool.labels.intersect(asks(in_zones("oslo-1"), bought_as("spot")))
    found = filtered(pool, labels, amounts(pool, 1000))
    assert not found.remaining.any()
    assert found.refusal.endswith("(no instance type had a required offering)")


def test_what_is_asked_is_told_with_its_amounts() -> None:
    pool = template()
    found = filtered(
        pool, pool.labels, amounts(pool, 16000, 8, pods=3), devices=(DeviceRequest(1, milli=500),)
    )
    assert found.refusal == (
        "no instance type satisfied resources cpu 16, memory 8Gi, pods 3, "
        "1x nvidia.com/gpu of 500m and requirements "
        "karpenter.sh/nodepool In [general] (no instance type had enough resources)"
    )


@pytest.mark.parametrize(
    ("labelled", "roomy", "offered_", "said"),
    [
        (
            "000",
            "000",
            "000",
            "met the scheduling requirements or had enough resources or had a required offering",
        ),
        (
            "000",
            "000",
            "100",
            "no instance type met the scheduling requirements or had enough resources",
        ),
        (
            "000",
            "100",
            "000",
            "no instance type met the scheduling requirements or had a required offering",
        ),
        ("100", "000", "000", "no instance type had enough resources or had a required offering"),
        ("000", "100", "010", "no instance type met the scheduling requirements"),
        ("100", "000", "010", "no instance type had enough resources"),
        ("100", "010", "000", "no instance type had a required offering"),
        (
            "110",
            "010",
            "001",
            (
                "that met the scheduling requirements and had enough resources also had a required "
                "offering"
            ),
        ),
        (
            "001",
            "010",
            "110",
            (
                "that had enough resources and had a required offering also met the scheduling "
                "requirements"
            ),
        ),
        (
            "100",
            "010",
            "101",
            (
                "that met the scheduling requirements and had a required offering also had enough "
                "resources"
            ),
        ),
        ("100", "010", "001", "no instance type met even two of"),
    ],
)
def test_what_nobody_meets_is_said_alone_in_pairs_or_all_together(
    labelled: str, roomy: str, offered_: str, said: str
) -> None:
    def mask(bits: str) -> Mask:
        return np.array([bit == "1" for bit in bits])

    assert said in no_type(mask(labelled), mask(roomy), mask(offered_))


def test_a_million_cores_are_likely_a_slip_of_the_pen() -> None:
    pool = template()
    assert "is m meant for M?" in filtered(pool, pool.labels, amounts(pool, 10**9)).refusal
    assert "meant" not in filtered(pool, pool.labels, amounts(pool, 10**9 - 1)).refusal


def test_too_few_values_of_a_label_refuse_or_are_lowered() -> None:
    pool = template(general(PoolRequirement("family", "Exists", (), 3)))
    assert filtered(pool, pool.labels, amounts(pool, 1000)).refusal == ""
    strict = filtered(pool, pool.labels, amounts(pool, 4000))
    assert strict.refusal == 'minValues requirement is not met for "family" (2 of 3)'
    assert not strict.remaining.any()
    lenient = filtered(pool, pool.labels, amounts(pool, 4000), min_values="BestEffort")
    assert (lenient.refusal, lenient.lowered) == ("", {"family": 2})
    assert named(pool, lenient.remaining) == ["g-one", "m-large"]


def test_zones_count_for_min_values_as_far_as_they_are_open() -> None:
    pool = template(general(PoolRequirement(ZONE, "Exists", (), 2)))
    assert filtered(pool, pool.labels, amounts(pool, 4000)).refusal == ""
    narrowed = pool.labels.intersect(asks(in_zones("oslo-1")))
    assert filtered(pool, narrowed, amounts(pool, 1000)).refusal.endswith(f'"{ZONE}" (1 of 2)')
    gpu = pool.labels.intersect(asks(("gpu", "Exists", ())))
    assert filtered(pool, gpu, amounts(pool, 1000)).refusal.endswith(f'"{ZONE}" (1 of 2)')


def test_ports_that_daemons_take_count_as_no_room() -> None:
    port = HostPort(9100)
    pool = template(
        None, DaemonPods("kube-system", "e", Requirements(pod=PodTraits(ports=(port,))))
    )
    assert not filtered(pool, pool.labels, amounts(pool), ports=(port,)).remaining.any()


# --- limits


def limited(**limits: int) -> NodePoolPolicy:
    return general(limits=limits)


def test_a_type_larger_than_what_is_left_is_out_and_the_largest_left_is_taken_off() -> None:
    types = Types(CATALOGUE)
    left = Left.of(limited(cpu=18_000, memory=100 * GIB), {"cpu": 2_000, "memory": 20 * GIB})
    assert left.amounts == {"cpu": 16_000, "memory": 80 * GIB}
    assert left.within(types).all()
    after = left.after(types, left.within(types))
    assert after.amounts == {"cpu": 8_000, "memory": 48 * GIB}, "as if it was a large one"
    again = after.after(types, after.within(types))
    assert again.amounts == {"cpu": 0, "memory": 16 * GIB}
    assert not again.within(types).any()
    small = types.fitting(asks(("family", "In", ("c",))))
    assert after.after(types, small).amounts == {"cpu": 6_000, "memory": 44 * GIB}


def test_the_whole_capacity_counts_not_what_pods_can_have() -> None:
    types = Types((a_type("x", 4, overhead={"cpu": 500}),))
    assert not Left.of(limited(cpu=3_900), {}).within(types).any()


def test_the_number_of_nodes_is_limited_too() -> None:
    types = Types(CATALOGUE)
    left = Left.of(limited(nodes=3), {"nodes": 2})
    assert not left.closed
    after = left.after(types, left.within(types))
    assert after.closed
    assert not after.within(types).any()
    assert (
        after.refusal(types, after.within(types) | True)
        == "pool general has reached its limit of 3 nodes"
    )
    assert Left.of(limited(nodes=0), {}).closed


def test_devices_are_limited_by_kind_and_what_no_type_has_limits_nothing() -> None:
    types = Types(CATALOGUE)
    left = Left.of(limited(**{"nvidia.com/gpu": 1, "example.com/dongle": 0}), {"nvidia.com/gpu": 1})
    assert left.within(types).tolist() == [True, False, True]


def test_limits_that_are_passed_already_let_nothing_in() -> None:
    left = Left.of(limited(cpu=1_000), {"cpu": 5_000})
    assert left.amounts == {"cpu": -4_000}
    assert not left.within(Types(CATALOGUE)).any()


def test_the_refusal_names_what_is_short() -> None:
    types = Types(CATALOGUE)
    left = Left.of(limited(cpu=10_000, memory=999 * GIB), {"cpu": 9_000})
    everything = types.fitting(NO_LABELS)
    assert left.refusal(types, everything) == (
        "every instance type exceeds what the limits of pool general leave (cpu 1 of 10)"
    )
    assert Left.of(limited(), {}).refusal(types, everything) == ""
    assert types.capacity[:, MEMORY].max() < 999 * GIB
