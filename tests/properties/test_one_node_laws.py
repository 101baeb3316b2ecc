"""Laws of the plugins that look at one node: nothing is given away twice, whatever is placed after
one another, and a node is only refused for what it really lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.framework_world import feasible, on, only
from tests.hunting import examples

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.device_claims import (
    Alike,
    DeviceClass,
    OfferedDevice,
    ResourceClaim,
    ResourceSlice,
    WantedDevices,
)
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import HostPort, PodTraits, VolumeUse
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.scheduler import (
    Arguments,
    BalancedArgs,
    FitArgs,
    ScoringType,
    ShapePoint,
    WeightedResource,
)
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.storage import (
    ClaimReference,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.cycle import Framework
from wharfinger.engine.framework.device_allocation import Offers, allocate
from wharfinger.engine.framework.snapshot import Snapshot, requested
from wharfinger.engine.framework.volumes import matching_volume, shelves

GPU = "example.com/gpu"
ZONE = "topology.kubernetes.io/zone"


def place(plugins: Framework, snapshot: Snapshot, pods: Sequence[Pod]) -> list[Pod]:
    """One after another, each on the last feasible node by name; those that fit nowhere are left
    out."""
    placed = []
    for pod in pods:
        if nodes := feasible(plugins, snapshot, pod):
            placed.append(on(pod, max(nodes)))
            snapshot.add(placed[-1])
    return placed


def pods_of(all_requirements: Sequence[Requirements]) -> list[Pod]:
    return [Pod(f"p{i}", f"p{i}", asked) for i, asked in enumerate(all_requirements)]


# Resources and ports.

nodes = st.lists(
    st.builds(
        lambda cpu, memory, pods, gpus: Node(
            "",
            {"cpu": cpu, "memory": memory} | ({"pods": pods} if pods is not None else {}),
            tuple(Device("m", GPU) for _ in range(gpus)),
        ),
        st.integers(0, 4000),
        st.integers(0, 4000),
        st.one_of(st.none(), st.integers(0, 4)),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=3,
).map(lambda some: [msgspec.structs.replace(node, name=f"n{i}") for i, node in enumerate(some)])

ports = st.lists(
    st.builds(
        HostPort,
        st.sampled_from((80, 443)),
        st.sampled_from(("TCP", "UDP")),
        st.sampled_from(("", "10.0.0.1", "10.0.0.2")),
    ),
    max_size=2,
)

requirements = st.builds(
    lambda cpu, memory, gpus, taken: Requirements(
        {"cpu": cpu, "memory": memory},
        (DeviceRequest(gpus, kind=GPU),) if gpus else (),
        pod=PodTraits(ports=tuple(taken)) if taken else None,
    ),
    st.integers(0, 2000),
    st.integers(0, 2000),
    st.integers(0, 2),
    ports,
)


@settings(max_examples=examples(60), deadline=None)
@given(nodes, st.lists(requirements, max_size=8))
def test_capacity_is_never_exceeded_and_no_port_is_had_twice(
    some: list[Node], asked: list[Requirements]
) -> None:
    snapshot = Snapshot.of(some, [])
    place(only("NodeResourcesFit", "NodePorts"), snapshot, pods_of(asked))
    for node in snapshot.nodes.values():
        total: Counter[str] = Counter()
        for pod in node.pods:
            total.update(requested(pod.requirements))
        assert all(total[name] <= node.allocatable.get(name, 0) for name in ("cpu", "memory", GPU))
        assert total["pods"] <= node.allocatable.get("pods", len(node.pods))
        taken = [port for pod in node.pods for port in {*pod.requirements.traits.ports}]
        for i, port in enumerate(taken):
            for other in taken[:i]:
                same_place = (port.port, port.protocol) == (other.port, other.protocol)
                own = any({port, other} <= {*pod.requirements.traits.ports} for pod in node.pods)
                assert own or not same_place or (port.ip and other.ip and port.ip != other.ip)


@settings(max_examples=examples(60), deadline=None)
@given(nodes, st.lists(requirements, max_size=5), requirements)
def test_a_node_is_refused_for_exactly_what_it_lacks(
    some: list[Node], there: list[Requirements], wanted: Requirements
) -> None:
    plugins = only("NodeResourcesFit")
    pods = [on(pod, some[i % len(some)].name) for i, pod in enumerate(pods_of(there))]
    outcome = plugins.run(snapshot := Snapshot.of(some, pods), Pod("new", "new", wanted))
    for name, node in snapshot.nodes.items():
        left = {
            r: node.allocatable.get(r, 0) - node.requested.get(r, 0) for r in ("cpu", "memory", GPU)
        }
        asked = requested(wanted)
        lacking = [
            f"Insufficient {r}"
            for r in left
            if asked.get(r, 0) > max(0, left[r]) or 0 < asked.get(r, 0) > left[r]
        ]
        if len(node.pods) + 1 > node.allocatable.get("pods", 99):
            lacking = ["Too many pods", *lacking]
        refused = outcome.first.get(name)
        assert list(refused.reasons if refused else ()) == lacking
        hopeless = any(asked.get(r, 0) > node.allocatable.get(r, 0) for r in left)
        assert refused is None or (refused.code == "UnschedulableAndUnresolvable") == hopeless


@settings(max_examples=examples(60), deadline=None)
@given(
    nodes,
    st.lists(requirements, max_size=3),
    requirements,
    st.sampled_from(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")),
    st.booleans(),
)
def test_an_emptier_node_is_never_worse_to_spread_by_nor_better_to_pack(
    some: list[Node],
    there: list[Requirements],
    wanted: Requirements,
    strategy: ScoringType,
    by_change: bool,
) -> None:
    """And every score is one: the framework itself refuses any outside of 0..100."""
    resources = (WeightedResource("cpu", 2), WeightedResource("memory"), WeightedResource(GPU, 3))
    shape = (ShapePoint(0, 0), ShapePoint(50, 10), ShapePoint(100, 3))
    arguments = Arguments(
        fit=FitArgs(strategy, resources, shape), balanced=BalancedArgs(resources, by_change)
    )
    plugins = only("NodeResourcesFit", "NodeResourcesBalancedAllocation", arguments=arguments)
    twin = msgspec.structs.replace(some[0], name="twin")
    pods = [on(pod, some[0].name) for pod in pods_of(there)]
    outcome = plugins.run(Snapshot.of([*some, twin], pods), Pod("new", "new", wanted))
    fit = outcome.scores.get("NodeResourcesFit")
    if fit is not None and {some[0].name, "twin"} <= set(outcome.feasible):
        if strategy == "LeastAllocated":
            assert fit.raw["twin"] >= fit.raw[some[0].name]
        if strategy == "MostAllocated":
            assert fit.raw["twin"] <= fit.raw[some[0].name]


# Volumes.

WAITING = StorageClass("local", "kubernetes.io/no-provisioner", waits=True)

volumes = st.lists(
    st.builds(
        lambda capacity, zone: PersistentVolume(
            "",
            capacity,
            ("ReadWriteOnce",),
            "local",
            node_terms=(NodeTerm((Requirement(ZONE, "In", (zone,)),)),),
            available=True,
        ),
        st.integers(1, 3),
        st.sampled_from("xy"),
    ),
    max_size=4,
).map(lambda some: [msgspec.structs.replace(volume, name=f"v{i}") for i, volume in enumerate(some)])


@settings(max_examples=examples(60), deadline=None)
@given(volumes, st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2), max_size=4))
def test_no_volume_is_counted_on_by_two_claims(
    there: list[PersistentVolume], sizes: list[list[int]]
) -> None:
    """Placed one after another, before the cluster has bound any: there is a way to give each claim
    a volume of its own."""
    claims = [
        PersistentVolumeClaim(
            "default",
            f"c{i}-{j}",
            requested=size,
            access_modes=("ReadWriteOnce",),
            storage_class="local",
        )
        for i, asked in enumerate(sizes)
        for j, size in enumerate(asked)
    ]
    some = [Node(zone, {}, labels={ZONE: zone}) for zone in "xy"]
    snapshot = Snapshot.of(some, [], ClusterObjects.of([WAITING, *there, *claims]))
    pods = [
        Pod(
            f"p{i}",
            f"p{i}",
            Requirements(
                pod=PodTraits(volumes=tuple(VolumeUse(f"c{i}-{j}") for j in range(len(asked))))
            ),
        )
        for i, asked in enumerate(sizes)
    ]
    placed = place(only("VolumeBinding"), snapshot, pods)
    for zone in "xy":
        wanted = sorted(c.requested for i, c in _claims(claims, placed, zone))
        largest = sorted(v.capacity for v in there if v.reached_from({ZONE: zone}))
        assert len(wanted) <= len(largest)
        assert all(a <= b for a, b in zip(reversed(wanted), reversed(largest), strict=False))


node_terms = st.one_of(
    st.none(),
    st.just(()),
    st.lists(
        st.builds(
            lambda expressions: NodeTerm(tuple(expressions)),
            st.lists(
                st.builds(
                    lambda key, operator, values: Requirement(key, operator, tuple(values)),
                    st.sampled_from((ZONE, "disk")),
                    st.sampled_from(("In", "NotIn")),
                    st.lists(st.sampled_from("xy"), max_size=3),
                ),
                max_size=2,
            ),
        ),
        max_size=2,
    ).map(tuple),
)
any_volumes = st.lists(
    st.builds(
        lambda capacity, terms, claim, available: PersistentVolume(
            "",
            capacity,
            ("ReadWriteOnce",),
            "local",
            node_terms=terms,
            claim=claim,
            available=available,
        ),
        st.integers(1, 3),
        node_terms,
        st.sampled_from(
            (
                None,
                None,
                ClaimReference("default", "c"),
                ClaimReference("default", "c", "other-uid"),
            )
        ),
        st.booleans(),
    ),
    max_size=5,
).map(lambda some: [msgspec.structs.replace(volume, name=f"v{i}") for i, volume in enumerate(some)])


@settings(max_examples=examples(150), deadline=None)
@given(
    any_volumes,
    st.integers(1, 3),
    st.dictionaries(st.sampled_from((ZONE, "disk")), st.sampled_from("xyz")),
)
def test_a_node_finds_the_volume_that_a_look_at_all_would_find(
    some: list[PersistentVolume], size: int, labels: dict[str, str]
) -> None:
    claim = PersistentVolumeClaim("default", "c", "uid", size, ("ReadWriteOnce",), "local")
    large = [volume for volume in some if volume.capacity >= size]
    kept = [volume for volume in large if volume.is_kept_for(claim)]
    if kept:
        expected = kept[0] if kept[0].reached_from(labels) else None
    else:
        free = [v for v in large if v.claim is None and v.available and v.reached_from(labels)]
        expected = min(free, key=lambda v: (v.capacity, v.name), default=None)
    assert matching_volume(shelves(ClusterObjects.of(some)), claim, labels, ()) == expected


def _claims(
    claims: Sequence[PersistentVolumeClaim], placed: Sequence[Pod], node: str
) -> list[tuple[str, PersistentVolumeClaim]]:
    named = {
        use.claim for pod in placed if pod.node == node for use in pod.requirements.traits.volumes
    }
    return [(claim.name, claim) for claim in claims if claim.name in named]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 3), st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=6))
def test_a_node_never_has_more_volumes_of_a_driver_than_it_takes(
    limit: int, uses: list[list[int]]
) -> None:
    """Six volumes, which pods may share."""
    there = [PersistentVolume(f"v{i}", driver="csi.example.com", handle=str(i)) for i in range(6)]
    claims = [
        PersistentVolumeClaim("default", f"c{i}", volume=f"v{i}", bound=True) for i in range(6)
    ]
    objects = ClusterObjects.of([*there, *claims, CSINode("n", {"csi.example.com": limit})])
    snapshot = Snapshot.of([Node("n", {})], [], objects)
    pods = [
        Pod(
            f"p{i}",
            f"p{i}",
            Requirements(pod=PodTraits(volumes=tuple(VolumeUse(f"c{c}") for c in asked))),
        )
        for i, asked in enumerate(uses)
    ]
    placed = place(only("NodeVolumeLimits"), snapshot, pods)
    attached = {use.claim for pod in placed for use in pod.requirements.traits.volumes}
    assert len(attached) <= limit
    for pod in pods:
        more = {use.claim for use in pod.requirements.traits.volumes}
        if pod.uid not in {p.uid for p in placed}:
            assert len(attached | more) > limit, "what is refused would have been too many"


# Devices.

offered = st.lists(
    st.builds(
        lambda model, socket: OfferedDevice(
            "", {"model": model} | ({} if socket is None else {"socket": socket})
        ),
        st.sampled_from("ab"),
        st.sampled_from((None, 0, 1)),
    ),
    max_size=5,
).map(
    lambda some: tuple(
        msgspec.structs.replace(device, name=f"d{i}") for i, device in enumerate(some)
    )
)

wanted_devices = st.one_of(
    st.builds(lambda c, n: WantedDevices("", c, count=n), st.sampled_from("ab"), st.integers(1, 3)),
    st.builds(lambda c: WantedDevices("", c, all=True), st.sampled_from("ab")),
    st.just(
        WantedDevices(
            "", alternatives=(WantedDevices("r/a", "a", count=2), WantedDevices("r/b", "b"))
        )
    ),
)
device_claims = st.lists(
    st.tuples(st.lists(wanted_devices, min_size=1, max_size=2), st.booleans()),
    min_size=1,
    max_size=2,
).map(
    lambda some: [
        ResourceClaim(
            "default",
            f"c{i}",
            tuple(msgspec.structs.replace(r, name=f"r{j}") for j, r in enumerate(requests)),
            (Alike("example.com/socket"),) if alike else (),
        )
        for i, (requests, alike) in enumerate(some)
    ]
)

CLASSES = tuple(DeviceClass(m, (f'device.attributes["example.com"].model == "{m}"',)) for m in "ab")


@settings(max_examples=examples(80), deadline=None)
@given(offered, device_claims, st.integers(0, 2))
def test_claims_get_devices_exactly_where_some_way_to_give_them_exists(
    devices: tuple[OfferedDevice, ...], claims: list[ResourceClaim], taken: int
) -> None:
    one = ResourceSlice("s", "example.com", "pool", node="n", devices=devices)
    objects = ClusterObjects.of([*CLASSES, one, *claims])
    held = {("example.com", "pool", device.name) for device in devices[:taken]}
    found = allocate(objects, Offers.of(objects.slices), held, claims, Node("n", {}))
    assert (found is not None) == _some_way(devices, devices[taken:], claims)
    if found is not None:
        assert len(set(found)) == len(found)
        assert not held & set(found)


def _some_way(
    there: Sequence[OfferedDevice], free: Sequence[OfferedDevice], claims: Sequence[ResourceClaim]
) -> bool:
    """By trying everything: each choice of alternatives, each order of the devices that are
    free."""
    slots: list[list[tuple[int, WantedDevices]]] = [[]]
    for i, claim in enumerate(claims):
        for request in claim.requests:
            options = request.alternatives or (request,)
            slots = [[*before, (i, option)] for before in slots for option in options]
    return any(_served(there, free, claims, choice) for choice in slots)


def _served(
    there: Sequence[OfferedDevice],
    free: Sequence[OfferedDevice],
    claims: Sequence[ResourceClaim],
    choice: Sequence[tuple[int, WantedDevices]],
) -> bool:
    wanted: list[tuple[int, str]] = []
    for claim, option in choice:
        count = option.count
        if option.all:
            count = sum(d.attributes["model"] == option.device_class for d in there)
            if not count:
                return False
        wanted += [(claim, option.device_class)] * count
    if len(wanted) > len(free):
        return False
    for given_out in permutations(free, len(wanted)):
        fits = all(
            d.attributes["model"] == model for d, (_, model) in zip(given_out, wanted, strict=True)
        )
        sockets = [
            {
                d.attributes.get("socket")
                for d, (i, _) in zip(given_out, wanted, strict=True)
                if i == claim
            }
            for claim in range(len(claims))
        ]
        alike = all(
            not c.constraints or (len(sockets[i]) <= 1 and None not in sockets[i])
            for i, c in enumerate(claims)
        )
        if fits and alike:
            return True
    return False


@settings(max_examples=examples(40), deadline=None)
@given(offered, st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 2)), max_size=5))
def test_no_device_is_promised_twice(
    devices: tuple[OfferedDevice, ...], asked: list[tuple[str, int]]
) -> None:
    """Pods with claims, placed one after another before any claim has its devices."""
    assume(devices)
    claims = [
        ResourceClaim("default", f"c{i}", (WantedDevices("r", model, count=count),))
        for i, (model, count) in enumerate(asked)
    ]
    one = ResourceSlice("s", "example.com", "pool", node="n", devices=devices)
    snapshot = Snapshot.of([Node("n", {})], [], ClusterObjects.of([*CLASSES, one, *claims]))
    pods = [
        Pod(f"p{i}", f"p{i}", Requirements(pod=PodTraits(resource_claims=(f"c{i}",))))
        for i in range(len(asked))
    ]
    placed = {pod.uid for pod in place(only("DynamicResources"), snapshot, pods)}
    for model in "ab":
        given_out = sum(
            count for i, (m, count) in enumerate(asked) if m == model and f"p{i}" in placed
        )
        there = sum(device.attributes["model"] == model for device in devices)
        assert given_out <= there
        assert all(
            given_out + count > there
            for i, (m, count) in enumerate(asked)
            if m == model and f"p{i}" not in placed
        )
