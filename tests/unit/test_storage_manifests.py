"""Volumes, claims and devices as they are read: what of a manifest says where a pod may run, and
what is refused or left aside."""

from __future__ import annotations

import pytest

from wharfinger.domain.cluster_objects import ClusterObject
from wharfinger.domain.device_claims import (
    Alike,
    DeviceClass,
    HeldDevice,
    OfferedDevice,
    ResourceClaim,
    ResourceSlice,
    WantedDevices,
)
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.storage import (
    ClaimReference,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from wharfinger.manifests.cluster_fact import ClusterFact
from wharfinger.manifests.errors import dotted
from wharfinger.manifests.parse import load_manifests

GI = 2**30


def read(text: str) -> ClusterFact:
    loaded = load_manifests(text, "file.yaml")
    assert [str(error) for error in loaded.errors] == []
    (manifest,) = loaded.manifests
    assert isinstance(manifest.model, ClusterFact)
    return manifest.model


def meant(text: str) -> ClusterObject:
    return read(text).to_domain()


def told(text: str) -> list[str]:
    return [str(error) for error in load_manifests(text, "file.yaml").errors]


def test_a_volume_is_read_with_its_nodes_and_its_driver() -> None:
    found = meant("""
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk, labels: {tier: gold},
  annotations: {volume.beta.kubernetes.io/storage-class: old}}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce, ReadOnlyMany]
  storageClassName: new
  volumeMode: Block
  persistentVolumeReclaimPolicy: Retain
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [x]}]}]}
  claimRef: {namespace: default, name: data, uid: u1, apiVersion: v1, kind: PersistentVolumeClaim}
  csi: {driver: csi.example.com, volumeHandle: h1, fsType: ext4}
status: {phase: Bound}
""")
    assert found == PersistentVolume(
        "disk",
        10 * GI,
        ("ReadWriteOnce", "ReadOnlyMany"),
        "old",
        "Block",
        {"tier": "gold"},
        (NodeTerm((Requirement("zone", "In", ("x",)),)),),
        ClaimReference("default", "data", "u1"),
        driver="csi.example.com",
        handle="h1",
    )


@pytest.mark.parametrize(
    ("source", "driver", "handle"),
    [
        ("gcePersistentDisk: {pdName: d1}", "pd.csi.storage.gke.io", "d1"),
        ("awsElasticBlockStore: {volumeID: v1}", "ebs.csi.aws.com", "v1"),
        ("local: {path: /mnt/d1}", "", ""),
    ],
)
def test_built_in_disks_are_volumes_of_the_driver_that_has_taken_them_over(
    source: str, driver: str, handle: str
) -> None:
    text = (
        f"apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: v}}\nspec: {{{source}}}\n"
        f"status: {{phase: Available}}"
    )
    assert meant(text) == PersistentVolume("v", driver=driver, handle=handle, available=True)


def test_a_claim_is_read_with_how_far_its_binding_is() -> None:
    found = meant("""
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  uid: u1
  deletionTimestamp: "2026-03-01T12:00:00Z"
  annotations: {pv.kubernetes.io/bind-completed: "yes", volume.kubernetes.io/selected-node: north}
spec:
  accessModes: [ReadWriteOncePod]
  resources: {requests: {storage: 1500M}}
  selector: {matchLabels: {tier: gold}}
  storageClassName: fast
  volumeName: disk
status: {phase: Lost, capacity: {storage: 2Gi}}
""")
    assert found == PersistentVolumeClaim(
        "default",
        "data",
        "u1",
        1500 * 10**6,
        ("ReadWriteOncePod",),
        "fast",
        selector=LabelSelector({"tier": "gold"}),
        volume="disk",
        bound=True,
        selected_node="north",
        lost=True,
        deleting=True,
    )


def test_a_class_says_whether_it_waits_and_where_it_can() -> None:
    found = meant("""
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: csi.example.com
volumeBindingMode: WaitForFirstConsumer
allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [x, y]}]}]
parameters: {type: ssd}
reclaimPolicy: Delete
""")
    assert found == StorageClass(
        "fast", "csi.example.com", True, (NodeTerm((Requirement("zone", "In", ("x", "y")),)),)
    )
    plain = (
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: now}\n"
        "provisioner: csi.example.com"
    )
    assert meant(plain) == StorageClass("now", "csi.example.com")


def test_what_nodes_and_drivers_can_take() -> None:
    node = """
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: north}
spec:
  drivers:
    - {name: csi.example.com, nodeID: i-1, topologyKeys: [zone], allocatable: {count: 3}}
    - {name: unlimited.example.com, nodeID: i-1}
"""
    assert meant(node) == CSINode("north", {"csi.example.com": 3})
    driver = (
        "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: csi.example.com}\n"
        "spec: {storageCapacity: true}"
    )
    assert meant(driver) == CSIDriver("csi.example.com", True)
    capacity = """
apiVersion: storage.k8s.io/v1
kind: CSIStorageCapacity
metadata: {name: c1, namespace: storage}
storageClassName: fast
nodeTopology: {matchLabels: {zone: x}}
capacity: 10Gi
"""
    there = LabelSelector({"zone": "x"})
    assert meant(capacity) == CSIStorageCapacity("storage", "c1", "fast", there, 10 * GI, 10 * GI)
    assert meant(capacity + "maximumVolumeSize: 1Gi\n") == CSIStorageCapacity(
        "storage", "c1", "fast", there, 10 * GI, GI
    )


# Devices.

SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: north
  pool: {name: north, generation: 3, resourceSliceCount: 2}
  devices:
    - name: d0
      attributes: {index: {int: 0}, cooled: {bool: false},
        model: {string: m1}, firmware: {version: 1.2.0}}
      capacity: {memory: {value: 80Gi}}
"""


def test_offered_devices_are_read_with_all_that_can_be_asked_of_them() -> None:
    device = OfferedDevice(
        "d0",
        {"index": 0, "cooled": False, "model": "m1"},
        {"firmware": "1.2.0"},
        {"memory": "80Gi"},
    )
    assert meant(SLICE) == ResourceSlice(
        "s", "gpu.example.com", "north", 3, 2, "north", devices=(device,)
    )


def test_devices_that_share_counters_are_told_and_not_handed_out() -> None:
    found = read(
        SLICE
        + (
            "    - name: d1\n      consumesCounters: [{counterSet: c, counters: {memory: {value: "
            "1Gi}}}]\n"
        )
    )
    slice_ = found.to_domain()
    assert isinstance(slice_, ResourceSlice)
    assert [device.name for device in slice_.devices] == ["d0"]
    assert [dotted(path) for path in found.unacted()] == ["spec.devices[1].consumesCounters"]


def test_a_class_of_devices_and_a_claim_for_some() -> None:
    device_class = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]}
"""
    assert meant(device_class) == DeviceClass("gpu", ('device.driver == "gpu.example.com"',))
    claim = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: ml}
spec:
  devices:
    requests:
      - {name: one, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: "true"}}]}}
      - {name: every, exactly: {deviceClassName: gpu, allocationMode: All, adminAccess: true}}
      - name: some
        firstAvailable: [{name: large, deviceClassName: gpu, count: 1},
          {name: small, deviceClassName: gpu, count: 2}]
    constraints: [{matchAttribute: gpu.example.com/numa, requests: [one]}]
status:
  allocation:
    devices: {results: [{request: one, driver: gpu.example.com, pool: north, device: d0}]}
    nodeSelector: {nodeSelectorTerms: [
      {matchFields: [{key: metadata.name, operator: In, values: [north]}]}]}
  reservedFor: [{resource: pods, name: p, uid: u1}]
"""
    assert meant(claim) == ResourceClaim(
        "ml",
        "c",
        (
            WantedDevices("one", "gpu", ("true",)),
            WantedDevices("every", "gpu", all=True, monitoring=True),
            WantedDevices(
                "some",
                alternatives=(
                    WantedDevices("some/large", "gpu"),
                    WantedDevices("some/small", "gpu", count=2),
                ),
            ),
        ),
        (Alike("gpu.example.com/numa", ("one",)),),
        True,
        (HeldDevice("gpu.example.com", "north", "d0"),),
        (NodeTerm(fields=(Requirement("metadata.name", "In", ("north",)),)),),
        ("u1",),
    )


CLAIM = (
    "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec:\n"
    "  devices:\n    requests:\n"
)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            CLAIM + "    - name: r\n",
            (
                "file.yaml:7: spec.devices.requests[0]: expected either exactly or firstAvailable, "
                "got a mapping"
            ),
        ),
        (
            CLAIM
            + (
                "    - name: r\n      exactly: {deviceClassName: gpu, allocationMode: All, "
                "count: 2}\n"
            ),
            (
                "file.yaml:8: spec.devices.requests[0].exactly.count: "
                "expected no count where allocationMode is All, got 2"
            ),
        ),
        (
            CLAIM + "    - name: r\n      exactly: {deviceClassName: gpu, count: 0}\n",
            (
                "file.yaml:8: spec.devices.requests[0].exactly.count: "
                "expected an integer from 1 to 2147483647, got 0"
            ),
        ),
        (
            SLICE.replace("nodeName: north", "allNodes: false"),
            "file.yaml:5: spec: expected exactly one of nodeName, nodeSelector, "
            "allNodes and perDeviceNodeSelection, "
            "got a mapping",
        ),
        (
            SLICE.replace("{int: 0}", "{int: 0, string: zero}"),
            "file.yaml:11: spec.devices[0].attributes.index: expected exactly one of int, bool, "
            "string and version, "
            "got a mapping",
        ),
        (
            SLICE.replace("80Gi", "much"),
            (
                "file.yaml:13: spec.devices[0].capacity.memory.value: "
                "expected a quantity such as 500m, 2 or 1.5Gi, got 'much'"
            ),
        ),
        (
            (
                "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: s}\n"
                "provisioner: p\nvolumeBindingMode: Later"
            ),
            (
                "file.yaml:5: volumeBindingMode: expected 'Immediate' or 'WaitForFirstConsumer', "
                "got 'Later'"
            ),
        ),
        (
            (
                "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\n"
                "spec: {accessModes: [ReadWriteTwice]}"
            ),
            "file.yaml:4: spec.accessModes[0]: expected 'ReadWriteOnce', 'ReadOnlyMany', "
            "'ReadWriteMany' or "
            "'ReadWriteOncePod', got 'ReadWriteTwice'",
        ),
        (
            (
                "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\n"
                "spec: {capasity: {storage: 1Gi}}"
            ),
            (
                "file.yaml:4: spec.capasity: expected a field of PersistentVolume (did you mean "
                "capacity?), got 'capasity'"
            ),
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(text: str, error: str) -> None:
    assert told(text) == [error]
