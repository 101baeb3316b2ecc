"""What pods and nodes tell of themselves by which they may be taken away, and what of it is usual
and left out."""

from __future__ import annotations

import pytest

from wharfinger.domain.node import Node
from wharfinger.domain.pod_upkeep import ContainerState, Owner, PodCondition, PodUpkeep
from wharfinger.domain.value import canonical
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.kubernetes.core import pod_of
from wharfinger.manifests.parse import load_manifests

EPOCH = "'1970-01-01T00:00:01Z'"


def upkeep(
    spec: str = "containers: [{name: a}]", metadata: str = "", status: str = "phase: Running"
) -> PodUpkeep:
    text = (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: ns, uid: "
        f"u{', ' if metadata else ''}{metadata}}}\n"
        f"spec: {{nodeName: n, {spec}}}\nstatus: {{{status}}}\n"
    )
    loaded = load_manifests(text, "file.yaml")
    assert [str(error) for error in loaded.errors] == []
    (manifest,) = loaded.manifests
    assert isinstance(manifest.model, kubernetes.PodManifest)
    found = pod_of(manifest.model).upkeep
    assert found is not None
    return found


def node(metadata: str = "", status: str = "") -> Node:
    text = (
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: n, {metadata}}}\n"
        f"status: {{allocatable: {{cpu: 1}}, {status}}}\n"
    )
    loaded = load_manifests(text, "file.yaml")
    assert [str(error) for error in loaded.errors] == []
    (manifest,) = loaded.manifests
    assert isinstance(manifest.model, kubernetes.NodeManifest)
    return manifest.model.to_domain()


def test_a_pod_that_simply_runs_says_little() -> None:
    usual = ", ".join(
        f'{{type: {kind}, status: "True"}}'
        for kind in ("PodScheduled", "Initialized", "ContainersReady")
    )
    plain = upkeep(
        status=f"phase: Running, conditions: [{usual}], containerStatuses: [{{state: {{running: "
        f"{{}}}}}}]"
    )
    assert plain == PodUpkeep(quality="BestEffort", phase="Running")
    assert len(canonical(plain)) < 50


def test_owners_are_told_with_the_uids_by_which_they_are_one() -> None:
    found = upkeep(
        metadata="ownerReferences: [{kind: ReplicaSet, name: web-7, uid: u-7, controller: true}]"
    )
    assert (found.owners, found.of_daemon) == ((Owner("ReplicaSet", "web-7", "u-7"),), False)
    assert upkeep(metadata="ownerReferences: [{kind: DaemonSet, name: d, uid: u-1}]").of_daemon


def test_images_are_told_where_the_traits_list_others() -> None:
    """The traits list those of init containers too, each with a tag."""
    assert upkeep("containers: [{name: a, image: 'web:1'}]").images == ()
    assert upkeep("containers: [{name: a, image: web}]").images == ("web",)
    both = upkeep(
        "initContainers: [{name: i, image: 'init:1'}], containers: [{name: a, image: 'web:1'}]"
    )
    assert both.images == ("web:1",)


@pytest.mark.parametrize(
    ("spec", "quality"),
    [
        ("containers: [{name: a}]", "BestEffort"),
        ("containers: [{resources: {requests: {cpu: 1}}}]", "Burstable"),
        ("containers: [{resources: {limits: {cpu: 1, memory: 1Gi}}}]", "Guaranteed"),
        (
            (
                "containers: [{resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, "
                "memory: "
                "1Gi}}}]"
            ),
            "Guaranteed",
        ),
        (
            "containers: [{resources: {requests: {cpu: 500m}, limits: {cpu: 1, memory: 1Gi}}}]",
            "Burstable",
        ),
        ("containers: [{resources: {limits: {cpu: 1, memory: 1Gi}}}, {name: b}]", "Burstable"),
        ("containers: [{resources: {requests: {example.com/x: 1}}}]", "BestEffort"),
        (
            "initContainers: [{name: i, resources: {requests: {cpu: 1}}}],"
            " containers: [{resources: {limits: {cpu: 1, memory: 1Gi}}}]",
            "Burstable",
        ),
        ("resources: {limits: {cpu: 1, memory: 1Gi}}, containers: [{name: a}]", "Guaranteed"),
    ],
)
def test_the_class_of_service_follows_from_what_is_asked(spec: str, quality: str) -> None:
    assert upkeep(spec).quality == quality
    assert upkeep(spec, status="phase: Running, qosClass: Burstable").quality == "Burstable"


def test_volumes_on_the_node_and_claims_are_told_apart() -> None:
    assert upkeep("volumes: [{name: v, emptyDir: {}}]").local_storage
    assert upkeep("volumes: [{name: v, hostPath: {path: /var}}]").local_storage
    claims = upkeep(
        "volumes: [{name: b, persistentVolumeClaim: {claimName: data}}, {name: c, configMap: "
        "{name: x}},"
        " {name: e, ephemeral: {}}]"
    )
    assert (claims.local_storage, claims.claims) == (False, ("data",))


@pytest.mark.parametrize(
    ("annotations", "static"),
    [
        ("kubernetes.io/config.mirror: abc", True),
        ("kubernetes.io/config.source: file", True),
        ("kubernetes.io/config.source: api", False),
        ("example.com/x: y", False),
    ],
)
def test_what_the_kubelet_runs_by_itself_is_static(annotations: str, static: bool) -> None:
    assert upkeep(metadata=f"annotations: {{{annotations}}}").static == static


def test_annotations_by_which_pods_are_protected_come_along_whatever_their_value() -> None:
    found = upkeep(
        metadata="annotations: {descheduler.alpha.kubernetes.io/evict: '', "
        "karpenter.sh/do-not-disrupt: 'true',"
        " controller.kubernetes.io/pod-deletion-cost: '-5', team: shop}"
    )
    assert found.annotations == {
        "controller.kubernetes.io/pod-deletion-cost": "-5",
        "descheduler.alpha.kubernetes.io/evict": "",
        "karpenter.sh/do-not-disrupt": "true",
    }


def test_containers_in_trouble_and_conditions_out_of_the_ordinary_are_told() -> None:
    found = upkeep(
        metadata=f"creationTimestamp: {EPOCH}",
        status="phase: Running, reason: Shutdown, initContainerStatuses: [{restartCount: 2, state: "
        "{terminated: {exitCode: 3,"
        " reason: Error}}}], containerStatuses: [{restartCount: 9, state: {waiting: {reason: "
        "CrashLoopBackOff}}}, {restartCount:"
        " 1, state: {running: {startedAt: x}}}], conditions: [{type: Ready, status: 'False', "
        "reason: ContainersNotReady,"
        f" lastTransitionTime: {EPOCH}}}, {{type: PodScheduled, status: 'False', reason: "
        f"Unschedulable}}]",
    )
    assert found.containers == (
        ContainerState("terminated", "Error", 3, 2, init=True),
        ContainerState("waiting", "CrashLoopBackOff", 0, 9),
        ContainerState("running", "", 0, 1),
    )
    assert found.conditions == (
        PodCondition("Ready", "False", "ContainersNotReady", 10**6),
        PodCondition("PodScheduled", "False", "Unschedulable"),
    )
    assert (found.reason, found.created_us) == ("Shutdown", 10**6)


def test_a_node_tells_what_karpenter_keeps_on_it_and_since_when_it_is() -> None:
    found = node(
        f"creationTimestamp: {EPOCH}, annotations: {{karpenter.sh/nodepool-hash: '7', team: shop}}"
    )
    assert (found.annotations, found.created_us, found.ready) == (
        {"karpenter.sh/nodepool-hash": "7"},
        10**6,
        True,
    )


@pytest.mark.parametrize(
    ("status", "ready"), [("'True'", True), ("'False'", False), ("Unknown", False)]
)
def test_a_node_is_ready_as_its_condition_says(status: str, ready: bool) -> None:
    conditions = (
        f"conditions: [{{type: MemoryPressure, status: 'False'}}, {{type: Ready, status: "
        f"{status}}}]"
    )
    assert node(status=conditions).ready == ready
    assert node(status="conditions: [{type: MemoryPressure, status: 'False'}]").ready
