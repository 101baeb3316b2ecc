"""Pods with volumes, told as stories: where their volumes are, where they could be made, and who
was there first."""

from __future__ import annotations

import msgspec
import pytest
from tests.framework_world import ZONE, a_node, feasible, on, only, reasons

from wharfinger.domain.cluster_objects import ClusterObject, ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTraits, VolumeUse
from wharfinger.domain.scheduler import Arguments, ShapePoint, VolumeBindingArgs
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.storage import (
    NO_PROVISIONER,
    ClaimReference,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.snapshot import Snapshot

NORTH, SOUTH = "north", "south"
LOCAL = StorageClass("local", NO_PROVISIONER, waits=True)
CLOUD = StorageClass("cloud", "csi.example.com", waits=True)
NONE_FREE = "node(s) didn't find available persistent volumes to bind"


def a_pod(name: str, *claims: str, disks: tuple[VolumeUse, ...] = ()) -> Pod:
    volumes = (*(VolumeUse(claim) for claim in claims), *disks)
    return Pod(name, name, Requirements(pod=PodTraits(volumes=volumes)))


def a_cluster(
    *objects: ClusterObject, pods: tuple[Pod, ...] = (), nodes: tuple[Node, ...] = ()
) -> Snapshot:
    """A node in the north and one in the south, called alike."""
    there = nodes or (a_node(NORTH, NORTH), a_node(SOUTH, SOUTH))
    return Snapshot.of(there, pods, ClusterObjects.of(objects))


def a_volume(name: str, zone: str = "", size: int = 10, **said: object) -> PersistentVolume:
    """A free local one."""
    terms = (NodeTerm((Requirement(ZONE, "In", (zone,)),)),) if zone else None
    volume = PersistentVolume(
        name, size, ("ReadWriteOnce",), "local", node_terms=terms, available=True
    )
    return msgspec.structs.replace(volume, **said)


def a_claim(name: str, size: int = 10, **said: object) -> PersistentVolumeClaim:
    """An unbound one of the class `local`."""
    claim = PersistentVolumeClaim("default", name, f"uid-{name}", size, ("ReadWriteOnce",), "local")
    return msgspec.structs.replace(claim, **said)


# Volumes that are there.


def test_a_pod_goes_where_its_volume_is() -> None:
    cluster = a_cluster(a_volume("disk", SOUTH), a_claim("data", volume="disk", bound=True))
    assert feasible(only("VolumeBinding"), cluster, a_pod("db", "data")) == {SOUTH}
    assert reasons(only("VolumeBinding"), cluster, a_pod("db", "data")) == {
        NORTH: ("node(s) didn't match PersistentVolume's node affinity",)
    }


def test_the_second_of_two_pods_that_wait_for_one_disk_is_refused_before_it_is_bound() -> None:
    binding = only("VolumeBinding")
    cluster = a_cluster(LOCAL, a_volume("disk", NORTH), a_claim("one"), a_claim("two"))
    assert feasible(binding, cluster, a_pod("first", "one")) == {NORTH}
    cluster.add(on(a_pod("first", "one"), NORTH))
    assert reasons(binding, cluster, a_pod("second", "two")) == {
        NORTH: (NONE_FREE,),
        SOUTH: (NONE_FREE,),
    }


def test_a_pod_that_shares_a_claim_follows_the_one_it_was_placed_with() -> None:
    cluster = a_cluster(CLOUD, a_claim("shared", storage_class="cloud"))
    binding = only("VolumeBinding")
    assert feasible(binding, cluster, a_pod("first", "shared")) == {NORTH, SOUTH}
    cluster.add(on(a_pod("first", "shared"), SOUTH))
    assert feasible(binding, cluster, a_pod("second", "shared")) == {SOUTH}


def test_a_small_claim_leaves_the_large_volume_to_the_large_one() -> None:
    cluster = a_cluster(
        LOCAL,
        a_volume("large", NORTH, 100),
        a_volume("small", NORTH, 10),
        a_claim("much", 50),
        a_claim("little", 5),
    )
    assert feasible(only("VolumeBinding"), cluster, a_pod("db", "much", "little")) == {NORTH}


def test_a_volume_that_is_kept_for_a_claim_is_that_claims_wherever_it_lies_and_nobody_elses() -> (
    None
):
    kept = a_volume("kept", SOUTH, claim=ClaimReference("default", "mine"), available=False)
    cluster = a_cluster(LOCAL, kept, a_volume("free", NORTH), a_claim("mine"), a_claim("other"))
    assert feasible(only("VolumeBinding"), cluster, a_pod("a", "mine")) == {SOUTH}
    assert feasible(only("VolumeBinding"), cluster, a_pod("b", "other")) == {NORTH}


@pytest.mark.parametrize(
    "unfit",
    [
        a_volume("disk", size=9),
        a_volume("disk", access_modes=("ReadOnlyMany",)),
        a_volume("disk", mode="Block"),
        a_volume("disk", storage_class="other"),
        a_volume("disk", available=False),
        a_volume("disk", deleting=True),
        a_volume("disk", attributes_class="fast"),
        a_volume("disk", labels={"tier": "bronze"}),
        a_volume("disk", claim=ClaimReference("default", "data", "another-uid")),
    ],
)
def test_a_volume_that_is_not_what_is_claimed_does_not_serve(unfit: PersistentVolume) -> None:
    claim = a_claim("data", selector=LabelSelector({"tier": "gold"}))
    fit = a_volume("disk", labels={"tier": "gold"})
    binding = only("VolumeBinding")
    assert feasible(binding, a_cluster(LOCAL, fit, claim), a_pod("db", "data")) == {NORTH, SOUTH}
    if not unfit.labels:
        unfit = msgspec.structs.replace(unfit, labels={"tier": "gold"})
    assert not feasible(binding, a_cluster(LOCAL, unfit, claim), a_pod("db", "data"))


def test_a_volume_that_is_gone_is_told_on_every_node() -> None:
    cluster = a_cluster(a_claim("data", volume="gone", bound=True))
    gone = ("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",)
    assert reasons(only("VolumeBinding"), cluster, a_pod("db", "data")) == {
        NORTH: gone,
        SOUTH: gone,
    }


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (a_claim("other"), 'persistentvolumeclaim "data" not found'),
        (
            a_claim("data", volume="disk", lost=True),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "disk"',
        ),
        (a_claim("data", deleting=True), 'persistentvolumeclaim "data" is being deleted'),
        (
            a_claim("data", storage_class="unheard-of"),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (a_claim("data", volume="disk"), "pod has unbound immediate PersistentVolumeClaims"),
    ],
)
def test_a_claim_that_cannot_serve_yet_keeps_the_pod_from_every_node(
    claim: PersistentVolumeClaim, why: str
) -> None:
    outcome = only("VolumeBinding").run(a_cluster(LOCAL, claim), a_pod("db", "data"))
    assert outcome.message == f"0/2 nodes are available: {why}."


# Volumes that are made.


def test_a_volume_is_made_where_its_class_allows_it() -> None:
    south_only = msgspec.structs.replace(
        CLOUD, allowed_topologies=(NodeTerm((Requirement(ZONE, "In", (SOUTH, "elsewhere")),)),)
    )
    cluster = a_cluster(south_only, a_claim("data", storage_class="cloud"))
    assert feasible(only("VolumeBinding"), cluster, a_pod("db", "data")) == {SOUTH}


def test_a_volume_that_is_being_made_for_a_node_is_waited_for_there() -> None:
    cluster = a_cluster(CLOUD, a_claim("data", storage_class="cloud", selected_node=SOUTH))
    assert reasons(only("VolumeBinding"), cluster, a_pod("db", "data")) == {NORTH: (NONE_FREE,)}


def free(zone: str, size: int, largest: int | None = None) -> CSIStorageCapacity:
    there = LabelSelector({ZONE: zone})
    return CSIStorageCapacity(
        "storage", f"in-{zone}", "cloud", there, size, size if largest is None else largest
    )


def test_where_a_driver_tells_what_is_free_a_volume_is_made_where_there_is_enough() -> None:
    claim = a_claim("data", 50, storage_class="cloud")
    telling = CSIDriver("csi.example.com", tells_capacity=True)
    cluster = a_cluster(CLOUD, telling, claim, free(NORTH, 49), free(SOUTH, 50))
    assert reasons(only("VolumeBinding"), cluster, a_pod("db", "data")) == {
        NORTH: ("node(s) did not have enough free storage",)
    }
    in_parts = a_cluster(CLOUD, telling, claim, free(NORTH, 500, largest=10), free(SOUTH, 50))
    assert feasible(only("VolumeBinding"), in_parts, a_pod("db", "data")) == {SOUTH}
    silent = a_cluster(CLOUD, CSIDriver("csi.example.com"), claim)
    assert feasible(only("VolumeBinding"), silent, a_pod("db", "data")) == {NORTH, SOUTH}


def test_with_a_shape_the_volume_that_would_be_fullest_is_preferred() -> None:
    fullest = Arguments(
        volume_binding=VolumeBindingArgs(shape=(ShapePoint(0, 0), ShapePoint(100, 10)))
    )
    cluster = a_cluster(
        LOCAL, a_volume("roomy", NORTH, 40), a_volume("tight", SOUTH, 20), a_claim("data", 10)
    )
    scored = (
        only("VolumeBinding", arguments=fullest)
        .run(cluster, a_pod("db", "data"))
        .scores["VolumeBinding"]
    )
    assert scored is not None
    assert scored.raw == {NORTH: 25, SOUTH: 50}
    assert only("VolumeBinding").run(cluster, a_pod("db", "data")).scores == {"VolumeBinding": None}


# Who else uses them.


def test_a_claim_for_one_pod_is_free_again_when_that_pod_is_gone() -> None:
    restrictions = only("VolumeRestrictions")
    claim = a_claim("data", access_modes=("ReadWriteOncePod",))
    first = on(a_pod("first", "data"), NORTH)
    cluster = a_cluster(claim, pods=(first, on(a_pod("bystander"), NORTH)))
    outcome = restrictions.run(cluster, a_pod("second", "data"))
    assert {status.code for status in outcome.first.values()} == {"Unschedulable"}, (
        "eviction would help"
    )
    tried = outcome.cycle.copy()
    node = cluster.nodes[NORTH].copy()
    node.remove(first)
    restrictions.pod_removed(tried, a_pod("second", "data"), first, node)
    assert restrictions.refusal(tried, a_pod("second", "data"), node) is None
    assert (
        restrictions.refusal(outcome.cycle, a_pod("second", "data"), cluster.nodes[SOUTH])
        is not None
    ), "only tried on"


def test_a_disk_of_the_cloud_is_one_nodes_unless_all_read_it() -> None:
    def using(name: str, read_only: bool) -> Pod:
        return a_pod(name, disks=(VolumeUse(disk="gcePersistentDisk/data", read_only=read_only),))

    restrictions = only("VolumeRestrictions")
    cluster = a_cluster(pods=(on(using("reader", True), NORTH),))
    assert feasible(restrictions, cluster, using("another", True)) == {NORTH, SOUTH}
    assert reasons(restrictions, cluster, using("writer", False)) == {
        NORTH: ("node(s) had no available disk",)
    }


def test_a_volume_that_is_there_already_takes_no_further_place_on_its_node() -> None:
    limits = only("NodeVolumeLimits")
    volumes = [a_volume(name, driver="csi.example.com", handle=name) for name in ("a", "b")]
    claims = [a_claim(name, volume=name, bound=True) for name in ("a", "b")]
    cluster = a_cluster(
        *volumes,
        *claims,
        CSINode(NORTH, {"csi.example.com": 1}),
        pods=(on(a_pod("p", "a"), NORTH),),
    )
    assert feasible(limits, cluster, a_pod("shares", "a")) == {NORTH, SOUTH}
    assert reasons(limits, cluster, a_pod("brings", "b")) == {
        NORTH: ("node(s) exceed max volume count",)
    }


def test_volumes_yet_to_be_made_and_disks_without_claims_count_for_the_driver_that_has_them() -> (
    None
):
    limits = only("NodeVolumeLimits")
    google = StorageClass("pd", "pd.csi.storage.gke.io", waits=True)
    claims = [a_claim("new", storage_class="pd"), a_claim("newer", storage_class="pd")]
    cluster = a_cluster(google, *claims, CSINode(NORTH, {"pd.csi.storage.gke.io": 2}))
    disk = VolumeUse(disk="gcePersistentDisk/old")
    assert feasible(limits, cluster, a_pod("two", "new", disks=(disk,))) == {NORTH, SOUTH}
    assert feasible(limits, cluster, a_pod("three", "new", "newer", disks=(disk,))) == {SOUTH}


# Zones by labels.


@pytest.mark.parametrize(
    "label", ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]
)
def test_a_volume_labelled_with_its_zones_is_reached_from_those(label: str) -> None:
    claim = a_claim("data", volume="disk", bound=True)
    unlabelled = Node("anywhere", {})
    nodes = (a_node(NORTH, NORTH), a_node(SOUTH, SOUTH), a_node("west", "west"), unlabelled)
    cluster = a_cluster(a_volume("disk", labels={label: f"{NORTH}__{SOUTH}"}), claim, nodes=nodes)
    assert feasible(only("VolumeZone"), cluster, a_pod("db", "data")) == {NORTH, SOUTH, "anywhere"}
    assert reasons(only("VolumeZone"), cluster, a_pod("db", "data")) == {
        "west": ("node(s) had no available volume zone",)
    }


def test_a_zone_label_that_names_no_zone_says_nothing() -> None:
    claim = a_claim("data", volume="disk", bound=True)
    cluster = a_cluster(a_volume("disk", labels={ZONE: f"{NORTH}__"}), claim)
    assert only("VolumeZone").run(cluster, a_pod("db", "data")).skipped == ("VolumeZone",)
