"""A pod or a node that is written as Kubernetes writes it and read again is the same one."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import DO_NOT_DISRUPT, POOL_HASH
from wharfinger.domain.pod_traits import (
    HostPort,
    PodTerm,
    PodTraits,
    TopologySpread,
    VolumeUse,
    WeightedNodeTerm,
    WeightedPodTerm,
)
from wharfinger.domain.pod_upkeep import ContainerState, Owner, PodCondition, PodUpkeep
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.kubernetes.pod_upkeep import DELETION_COST
from wharfinger.manifests.kubernetes.serialize import node_manifest, pod_manifest

NAMES = st.sampled_from(["web", "db", "cache", "zone", "oslo"])
LABELS = st.dictionaries(NAMES, NAMES, max_size=2)
LISTED = st.builds(
    Requirement,
    NAMES,
    st.sampled_from(["In", "NotIn"]),
    st.lists(NAMES, min_size=1, max_size=2).map(tuple),
)
BARE = st.builds(Requirement, NAMES, st.sampled_from(["Exists", "DoesNotExist"]))
EXPRESSIONS = st.lists(LISTED | BARE, max_size=2).map(tuple)
SELECTORS = st.none() | st.builds(LabelSelector, LABELS, EXPRESSIONS)
NODE_TERMS = st.builds(NodeTerm, EXPRESSIONS, st.just(()))
POD_TERMS = st.builds(
    PodTerm,
    NAMES,
    SELECTORS,
    st.lists(NAMES, max_size=1).map(tuple),
    SELECTORS,
    st.lists(NAMES, max_size=1).map(tuple),
)
WEIGHTS = st.integers(1, 100)
SPREADS = st.builds(
    TopologySpread,
    NAMES,
    st.integers(1, 3),
    st.just(True),
    SELECTORS,
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
TRAITS = st.builds(
    PodTraits,
    namespace=NAMES,
    labels=LABELS,
    owner=st.sampled_from(["", "ReplicaSet", "DaemonSet"]),
    images=st.just(("registry.example/app:1",)),
    preferences=st.lists(st.builds(WeightedNodeTerm, WEIGHTS, NODE_TERMS), max_size=1).map(tuple),
    ports=st.lists(
        st.builds(
            HostPort,
            st.integers(1, 9),
            st.sampled_from(["TCP", "UDP"]),
            st.sampled_from(["", "10.0.0.1"]),
        ),
        max_size=2,
        unique=True,
    ).map(tuple),
    spread=st.lists(SPREADS, max_size=2).map(tuple),
    affinity=st.lists(POD_TERMS, max_size=1).map(tuple),
    anti_affinity=st.lists(POD_TERMS, max_size=1).map(tuple),
    preferred_affinity=st.lists(st.builds(WeightedPodTerm, WEIGHTS, POD_TERMS), max_size=1).map(
        tuple
    ),
    preferred_anti_affinity=st.lists(
        st.builds(WeightedPodTerm, WEIGHTS, POD_TERMS), max_size=1
    ).map(tuple),
    volumes=st.lists(
        st.builds(VolumeUse, NAMES, st.just(""), st.booleans())
        | st.sampled_from(
            [
                VolumeUse(disk="gcePersistentDisk/data", read_only=True),
                VolumeUse(disk="awsElasticBlockStore/vol-1"),
                VolumeUse(disk="iscsi/iqn.example:1"),
                VolumeUse(disk="rbd/10.0.0.1:6789/pool/image"),
            ]
        ),
        max_size=3,
    ).map(tuple),
    resource_claims=st.lists(NAMES, max_size=1).map(tuple),
    scheduler=st.sampled_from(["", "packed"]),
    never_preempts=st.booleans(),
    gates=st.lists(NAMES, max_size=1).map(tuple),
)
DEVICES = st.sampled_from(
    [
        (),
        (DeviceRequest(2),),
        (DeviceRequest(1, 250, ("A100", "H100")),),
        (DeviceRequest(3, kind="example.com/gpu"),),
    ]
)
REQUIREMENTS = st.builds(
    Requirements,
    st.fixed_dictionaries({"cpu": st.integers(1, 9000), "memory": st.integers(1, 2**40)}),
    DEVICES,
    LABELS,
    st.lists(NODE_TERMS, max_size=2).map(tuple),
    st.lists(
        st.builds(
            Toleration,
            NAMES,
            st.just("Equal"),
            NAMES,
            st.sampled_from(["", "NoSchedule", "NoExecute"]),
        )
        | st.just(Toleration(operator="Exists", seconds=30, effect="NoExecute")),
        max_size=2,
    ).map(tuple),
    TRAITS,
)


TIMES = st.integers(1, 2**50)
UPKEEPS = st.builds(
    PodUpkeep,
    quality=st.sampled_from(["BestEffort", "Burstable", "Guaranteed"]),
    local_storage=st.booleans(),
    static=st.booleans(),
    phase=st.sampled_from(["Running", "Pending", "Unknown"]),
    reason=st.sampled_from(["", "Evicted"]),
    containers=st.sampled_from(
        [
            (),
            (ContainerState("waiting", "CrashLoopBackOff", restarts=7),),
            (
                ContainerState("terminated", "Completed", init=True),
                ContainerState("terminated", "Error", 137, 1),
            ),
        ]
    ),
    conditions=st.lists(
        st.builds(
            PodCondition,
            st.sampled_from(["Ready", "Busy"]),
            st.sampled_from(["True", "False"]),
            NAMES,
            TIMES,
        ),
        max_size=2,
    ).map(tuple),
    annotations=st.sampled_from(
        [
            {},
            {DO_NOT_DISRUPT: "true"},
            {"descheduler.alpha.kubernetes.io/evict": ""},
            {DELETION_COST: "-5"},
        ]
    ),
    created_us=TIMES,
)


@settings(max_examples=examples(150), deadline=None)
@given(REQUIREMENTS, st.booleans(), st.integers(-5, 10**9), UPKEEPS)
def test_a_pod_comes_back(
    requirements: Requirements, runs: bool, priority: int, upkeep: PodUpkeep
) -> None:
    """A running pod's gates have been lifted: it is not written with any. What keeps it where it is
    says who owns it."""
    if runs:
        traits = requirements.traits
        owners = (Owner(traits.owner, "web-1", "u-9"),) if traits.owner else ()
        claims = tuple(sorted({volume.claim for volume in traits.volumes if volume.claim}))
        upkeep = msgspec.structs.replace(upkeep, owners=owners, claims=claims)
        requirements = msgspec.structs.replace(
            requirements, pod=msgspec.structs.replace(traits, gates=())
        )
    node, started = ("oslo", 1_700_000_000_123_456) if runs else ("", 0)
    known = upkeep if runs else None
    pod = Pod(
        "uid-1", "web", requirements, node, priority=priority, started_us=started, upkeep=known
    )
    read = kubernetes.PodManifest.model_validate(pod_manifest(pod))
    assert kubernetes.pod_of(read, pending=not runs) == pod


@settings(max_examples=examples(50), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["cpu", "memory", "pods", "example.com/x"]),
        st.integers(0, 2**40),
        min_size=1,
    ),
    st.sampled_from([(), (Device("A100"),) * 2, (Device("", "example.com/gpu"), Device())]),
    LABELS,
    st.lists(
        st.builds(Taint, NAMES, st.sampled_from(["NoSchedule", "NoExecute"]), NAMES), max_size=2
    ).map(tuple),
    st.booleans(),
    st.dictionaries(
        st.sampled_from(["registry.example/app:1", "app:latest"]), st.integers(1, 2**30)
    ),
    st.dictionaries(st.sampled_from([DO_NOT_DISRUPT, POOL_HASH]), NAMES),
    st.integers(0, 2**50),
    st.booleans(),
)
def test_a_node_comes_back(
    amounts: dict[str, int],
    devices: tuple[Device, ...],
    labels: dict[str, str],
    taints: tuple[Taint, ...],
    cordoned: bool,
    images: dict[str, int],
    annotations: dict[str, str],
    created_us: int,
    ready: bool,
) -> None:
    if devices and devices[0].model:
        labels = labels | {kubernetes.GPU_PRODUCT: devices[0].model}
    node = Node(
        "oslo",
        amounts,
        devices,
        labels,
        taints,
        cordoned,
        ("10.0.0.1",),
        images,
        annotations=annotations,
        created_us=created_us,
        ready=ready,
    )
    assert kubernetes.NodeManifest.model_validate(node_manifest(node)).to_domain() == node
