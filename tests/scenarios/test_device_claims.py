"""Pods that claim devices by quality, told as stories: what is offered on which node, who has it,
and what nobody can have."""

from __future__ import annotations

import pytest
from tests.framework_world import feasible, on, only, reasons

from wharfinger.domain.cluster_objects import ClusterObject, ClusterObjects
from wharfinger.domain.device_claims import (
    Alike,
    DeviceClass,
    HeldDevice,
    OfferedDevice,
    ResourceClaim,
    ResourceSlice,
    WantedDevices,
)
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework import device_allocation
from wharfinger.engine.framework.snapshot import Snapshot

DRIVER = "gpu.example.com"
GPU = DeviceClass("gpu", (f'device.driver == "{DRIVER}"',))
CANNOT = "cannot allocate all claims"
ELSEWHERE = "resourceclaim not available on the node"


def a_pod(name: str, *claims: str) -> Pod:
    return Pod(name, name, Requirements(pod=PodTraits(resource_claims=claims)))


def a_cluster(*objects: ClusterObject, pods: tuple[Pod, ...] = ()) -> Snapshot:
    """The nodes north and south, and the class gpu."""
    nodes = [Node(name, {}, labels={"zone": name}) for name in ("north", "south")]
    return Snapshot.of(nodes, pods, ClusterObjects.of([GPU, *objects]))


def a_gpu(
    name: str, model: str = "m1", memory: str = "8Gi", **attributes: int | str | bool
) -> OfferedDevice:
    return OfferedDevice(
        name, {"model": model, **attributes}, {"firmware": "1.4.0"}, {"memory": memory}
    )


def on_node(node: str, *devices: OfferedDevice) -> ResourceSlice:
    return ResourceSlice(f"slice-{node}", DRIVER, node, node=node, devices=devices)


def wants(count: int = 1, *selectors: str, name: str = "r") -> WantedDevices:
    return WantedDevices(name, "gpu", selectors, count)


def a_claim(name: str, *requests: WantedDevices, alike: str = "") -> ResourceClaim:
    return ResourceClaim("default", name, requests or (wants(),), (Alike(alike),) if alike else ())


CLAIMS = only("DynamicResources")


def test_two_devices_come_from_one_node() -> None:
    cluster = a_cluster(
        on_node("north", a_gpu("0")),
        on_node("south", a_gpu("0"), a_gpu("1")),
        a_claim("c", wants(2)),
    )
    assert feasible(CLAIMS, cluster, a_pod("p", "c")) == {"south"}
    assert reasons(CLAIMS, cluster, a_pod("p", "c")) == {"north": (CANNOT,)}


@pytest.mark.parametrize(
    ("expression", "nodes"),
    [
        (f'device.attributes["{DRIVER}"].model == "m2"', {"south"}),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0', {"south"}),
        (f'device.capacity["{DRIVER}"].memory == quantity("8Gi")', {"north"}),
        (
            f'device.attributes["{DRIVER}"].firmware.isGreaterThan(semver("1.3.9"))',
            {"north", "south"},
        ),
        (f'has(device.attributes["{DRIVER}"].cooled)', {"south"}),
        ('has(device.attributes["other.example.com"].cooled)', set()),
        ('!has(device.attributes["other.example.com"].cooled)', {"north", "south"}),
        (f'device.attributes["{DRIVER}"].cooled', {"south"}),
        (f'device.attributes["{DRIVER}"].model', set()),
    ],
)
def test_devices_are_chosen_by_what_they_are(expression: str, nodes: set[str]) -> None:
    """One that lacks what is asked for is no match, and no reason to refuse the others."""
    there = on_node("north", a_gpu("0")), on_node("south", a_gpu("0", "m2", "80Gi", cooled=True))
    assert (
        feasible(CLAIMS, a_cluster(*there, a_claim("c", wants(1, expression))), a_pod("p", "c"))
        == nodes
    )


def test_an_expression_that_is_none_is_told() -> None:
    cluster = a_cluster(on_node("north", a_gpu("0")), a_claim("c", wants(1, "device.")))
    (why,) = reasons(CLAIMS, cluster, a_pod("p", "c"))["north"]
    assert why.startswith(
        "request r: selector: compilation failed: ERROR: <input>:1:8: Syntax error"
    )


def test_what_others_have_is_not_given_again_but_may_be_watched() -> None:
    taken = ResourceClaim(
        "default", "old", (wants(),), allocated=True, devices=(HeldDevice(DRIVER, "north", "0"),)
    )
    watching = WantedDevices("r", "gpu", monitoring=True)
    cluster = a_cluster(
        on_node("north", a_gpu("0")), taken, a_claim("c"), a_claim("watch", watching)
    )
    assert not feasible(CLAIMS, cluster, a_pod("p", "c"))
    assert feasible(CLAIMS, cluster, a_pod("admin", "watch")) == {"north"}


def test_who_only_watches_takes_nothing() -> None:
    seen = (HeldDevice(DRIVER, "north", "0", monitoring=True),)
    watching = ResourceClaim("default", "watch", (), allocated=True, devices=seen)
    cluster = a_cluster(on_node("north", a_gpu("0")), watching, a_claim("c"))
    assert feasible(CLAIMS, cluster, a_pod("p", "c")) == {"north"}


def test_a_pod_placed_before_holds_its_devices_before_the_cluster_says_so() -> None:
    cluster = a_cluster(
        on_node("north", a_gpu("0"), a_gpu("1")), a_claim("a"), a_claim("b"), a_claim("c")
    )
    for name in "ab":
        assert feasible(CLAIMS, cluster, a_pod(name, name)) == {"north"}
        cluster.add(on(a_pod(name, name), "north"))
    assert not feasible(CLAIMS, cluster, a_pod("c", "c"))
    assert reasons(CLAIMS, cluster, a_pod("friend", "a")) == {"south": (ELSEWHERE,)}, (
        "a claim is shared where it is"
    )


def test_a_shared_claim_ties_its_pods_to_where_its_devices_can_be_used() -> None:
    there = (NodeTerm((Requirement("zone", "In", ("south",)),)),)
    claim = ResourceClaim(
        "default", "c", (wants(),), allocated=True, node_terms=there, reserved_for=("other",)
    )
    assert reasons(CLAIMS, a_cluster(claim), a_pod("p", "c")) == {"north": (ELSEWHERE,)}


def test_a_claim_that_as_many_pods_share_as_may_is_in_use_for_others() -> None:
    full = tuple(f"u{i}" for i in range(256))
    claim = ResourceClaim("default", "c", (wants(),), allocated=True, reserved_for=full)
    refused = CLAIMS.run(a_cluster(claim), a_pod("p", "c"))
    assert refused.message == "0/2 nodes are available: resourceclaim in use."
    assert feasible(CLAIMS, a_cluster(claim), a_pod("u7", "c")) == {"north", "south"}


def test_the_first_alternative_that_can_be_had_serves() -> None:
    large = WantedDevices("r/large", "gpu", (f'device.attributes["{DRIVER}"].model == "m2"',))
    small = WantedDevices("r/small", "gpu", count=2)
    claim = a_claim("c", WantedDevices("r", alternatives=(large, small)))
    cluster = a_cluster(
        on_node("north", a_gpu("0"), a_gpu("1")), on_node("south", a_gpu("0", "m2")), claim
    )
    assert feasible(CLAIMS, cluster, a_pod("p", "c")) == {"north", "south"}
    unknown = a_claim("c", WantedDevices("r", alternatives=(WantedDevices("r/tpu", "tpu"), small)))
    outcome = CLAIMS.run(a_cluster(unknown), a_pod("p", "c"))
    assert (
        outcome.message
        == "0/2 nodes are available: request r/tpu: device class tpu does not exist."
    )


def test_devices_that_must_be_alike_are_and_the_search_goes_back_for_it() -> None:
    """The first device of the first request has no partner on its socket."""
    gpus = a_gpu("0", socket=0), a_gpu("1", socket=1), a_gpu("2", socket=1)
    split = on_node("north", a_gpu("0", socket=0), a_gpu("1", socket=1), a_gpu("2"))
    claim = a_claim("c", wants(name="a"), wants(name="b"), alike=f"{DRIVER}/socket")
    cluster = a_cluster(split, on_node("south", *gpus), claim)
    assert feasible(CLAIMS, cluster, a_pod("p", "c")) == {"south"}


def test_a_number_and_a_text_are_not_alike() -> None:
    there = on_node("north", a_gpu("0", socket=1), a_gpu("1", socket="1"))
    cluster = a_cluster(there, a_claim("c", wants(2), alike=f"{DRIVER}/socket"))
    assert not feasible(CLAIMS, cluster, a_pod("p", "c"))


def test_of_a_pool_only_its_newest_generation_is_there() -> None:
    old = ResourceSlice("old", DRIVER, "north", 1, 1, "north", devices=(a_gpu("0"), a_gpu("1")))
    new = ResourceSlice("new", DRIVER, "north", 2, 1, "north", devices=(a_gpu("0"),))
    cluster = a_cluster(old, new, a_claim("two", wants(2)), a_claim("one"))
    assert not feasible(CLAIMS, cluster, a_pod("p", "two"))
    assert feasible(CLAIMS, cluster, a_pod("p", "one")) == {"north"}


def test_all_devices_can_only_be_had_where_all_are_known_and_free() -> None:
    everything = a_claim("all", WantedDevices("r", "gpu", all=True))
    half = ResourceSlice("half", DRIVER, "big", 1, 2, "north", devices=(a_gpu("0"),))
    cluster = a_cluster(half, on_node("south", a_gpu("0"), a_gpu("1")), everything, a_claim("one"))
    updated = (
        "claim default/all, request r: asks for all devices, but resource pool big is currently "
        "being updated"
    )
    assert reasons(CLAIMS, cluster, a_pod("p", "all")) == {"north": (updated,)}
    assert feasible(CLAIMS, cluster, a_pod("p", "one")) == {"north", "south"}, "one is known"
    cluster.add(on(a_pod("p", "one"), "south"))
    assert not feasible(CLAIMS, cluster, a_pod("q", "all"))


def test_devices_of_the_network_are_offered_to_the_nodes_that_reach_them() -> None:
    reaching = NodeTerm((Requirement("zone", "In", ("south",)),))
    shelf = ResourceSlice("shelf", DRIVER, "shelf", node_terms=(reaching,), devices=(a_gpu("0"),))
    everywhere = ResourceSlice("cloud", DRIVER, "cloud", all_nodes=True, devices=(a_gpu("0"),))
    assert feasible(CLAIMS, a_cluster(shelf, a_claim("c")), a_pod("p", "c")) == {"south"}
    cluster = a_cluster(everywhere, a_claim("c"), a_claim("d"))
    assert feasible(CLAIMS, cluster, a_pod("p", "c")) == {"north", "south"}
    cluster.add(on(a_pod("p", "c"), "north"))
    assert not feasible(CLAIMS, cluster, a_pod("q", "d")), (
        "it is one device, from wherever it is used"
    )


def test_a_claim_that_cannot_be_met_is_refused_soon_however_many_devices_look_alike() -> None:
    """Forty devices, of which three claims want fourteen each: nobody tries their orders."""
    forty = on_node("north", *(a_gpu(str(i)) for i in range(40)))
    claims = [a_claim(name, wants(14)) for name in "abc"]
    assert reasons(CLAIMS, a_cluster(forty, *claims), a_pod("p", "a", "b", "c"))["north"] == (
        CANNOT,
    )


def test_a_search_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device has a socket of its own, so that none has a partner, and each is tried with
    each."""
    monkeypatch.setattr(device_allocation, "STEPS_MAX", 100)
    eight = on_node("north", *(a_gpu(str(i), socket=i) for i in range(8)))
    twenty = on_node("south", *(a_gpu(str(i), socket=i) for i in range(20)))
    claim = a_claim("c", wants(2), alike=f"{DRIVER}/socket")
    assert reasons(CLAIMS, a_cluster(eight, twenty, claim), a_pod("p", "c")) == {
        "north": (CANNOT,),
        "south": ("timed out trying to allocate devices",),
    }


def test_more_devices_than_anyone_looks_for_at_once_are_refused_with_the_number() -> None:
    many = on_node("north", *(a_gpu(str(i)) for i in range(400)))
    claims = [a_claim(f"c{i}", wants(30)) for i in range(12)]
    assert reasons(CLAIMS, a_cluster(many, *claims), a_pod("p", *(claim.name for claim in claims)))[
        "north"
    ] == ("the claims of the pod come to 372 requests and devices, of which 256 can be searched",)
    eight = claims[:8]
    assert feasible(
        CLAIMS, a_cluster(many, *eight), a_pod("p", *(claim.name for claim in eight))
    ) == {"north"}


def test_one_claim_has_no_more_devices_than_a_claim_can_have() -> None:
    many = on_node("north", *(a_gpu(str(i)) for i in range(40)))
    every = a_claim("every", WantedDevices("r", "gpu", all=True))
    cluster = a_cluster(
        many,
        every,
        a_claim("most", wants(32)),
        a_claim("more", wants(16, name="a"), wants(17, name="b")),
    )
    assert feasible(CLAIMS, cluster, a_pod("p", "most")) == {"north"}
    assert reasons(CLAIMS, cluster, a_pod("p", "more"))["north"] == (CANNOT,)
    assert reasons(CLAIMS, cluster, a_pod("p", "every"))["north"] == (CANNOT,)
