"""Every kind that is read, once with most of its fields: it is taken, and what is not acted on is
told by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from wharfinger.domain.binding import Binding, Component, TargetCluster
from wharfinger.domain.cluster import NodeGrade
from wharfinger.domain.placement import ClusterAffinity, ReplicaLimit, Steadiness
from wharfinger.domain.policy import ConditionMatch, ConditionTaints, FederatedQuota, Policy
from wharfinger.domain.quota import Quota
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import ObjectsObserved, QuotasObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.intake import UNACTED_MAX, Intake, compile_deletions, compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.karmada import objects as karmada
from wharfinger.manifests.kinds import KINDS
from wharfinger.manifests.parse import Loaded, load_files, load_manifests, read_object

FOLDER = Path(__file__).parent / "manifests"
EXAMPLES = Path(__file__).parents[2] / "examples"
GI = 2**30


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    found = load_files([FOLDER])
    assert [str(e) for e in found.errors] == []
    return found


@pytest.fixture(scope="module")
def applied(loaded: Loaded) -> Intake:
    intake = compile_manifests(loaded.manifests)
    assert [str(e) for e in intake.errors] == []
    return intake


def binding(applied: Intake, name: str) -> Binding:
    (found,) = [
        f.data.binding
        for f in applied.facts
        if isinstance(f.data, BindingRequested) and f.key == name
    ]
    return found


def policy(applied: Intake, name: str) -> Policy:
    (found,) = [
        f.data.policy
        for f in applied.facts
        if isinstance(f.data, PolicyApplied) and f.data.policy.name == name
    ]
    return found


def test_every_kind_is_among_them(loaded: Loaded) -> None:
    shown = {m.kind.kind for m in (*loaded.manifests, *load_files([EXAMPLES]).manifests)}
    assert {kind.kind for kind in KINDS} - shown == {"PlacementDecision", "Policy"}


def test_what_hamar_has_besides_nodes_is_told_by_kind_and_namespace(applied: Intake) -> None:
    told = [
        f.key.removeprefix("hamar/objects/")
        for f in applied.facts
        if isinstance(f.data, ObjectsObserved)
    ]
    assert [key for key in told if not key.startswith("molde/")] == [
        "NodeClaim/",
        "DaemonSet/ns",
        "ReplicaSet/ns",
        "ReplicationController/ns",
        "PersistentVolume/",
        "PersistentVolumeClaim/ns",
        "StorageClass/",
        "CSINode/",
        "CSIDriver/",
        "CSIStorageCapacity/ns",
        "DeviceClass/",
        "ResourceSlice/",
        "ResourceClaim/ns",
    ]
    sent = [f.key for f in applied.facts if isinstance(f.data, BindingRequested)]
    assert {"slow-storageclass", "ns/lantern-service"} <= set(sent)


def test_all_of_it_can_be_deleted_again(loaded: Loaded, applied: Intake) -> None:
    assert compile_deletions(loaded.manifests).errors == ()


def test_what_is_not_acted_on_is_told_by_name(applied: Intake) -> None:
    told: dict[str, list[str]] = {}
    for field in applied.unacted:
        told.setdefault(Path(field.file).name, []).append(field.field)
    assert sorted(told["karmada.yaml"]) == [
        "spec.conflictResolution",
        "spec.conflictResolution",
        "spec.dependentOverrides",
        "spec.gracefulEvictionTasks",
        'spec.overall["count/deployments.apps"]',
        'spec.overall["limits.cpu"]',
        "spec.preserveResourcesOnDeletion",
        "spec.propagateDeps",
        "spec.propagateDeps",
        "spec.requiredBy",
        "spec.schedulePriority.priorityClassName",
        "spec.suspension.dispatching",
        "spec.suspension.dispatchingOnClusters",
        "status.remedyActions",
    ]
    assert set(told["kubernetes.yaml"]) == {
        "spec.template.spec.priorityClassName",
        "spec.volumeClaimTemplates",
        'spec.hard["limits.memory"]',
        'spec.hard["count/secrets"]',
    }


def test_a_binding_carries_what_of_its_workload_is_not_acted_on(applied: Intake) -> None:
    assert binding(applied, "ns/db-statefulset").unacted == ("spec.volumeClaimTemplates",)
    assert binding(applied, "ns/tariff-configmap").unacted == ()
    claims = [
        {"name": f"c{i}", "resourceClaimTemplateName": "one-each"} for i in range(UNACTED_MAX + 5)
    ]
    raw = {
        "spec": {"resourceClaims": claims},
        "metadata": {"name": "p", "annotations": {"wharfinger.io/placement": "any"}},
    }
    wide = load_manifests(
        msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **raw}).decode(), "file.yaml"
    )
    carried = binding(compile_manifests(wide.manifests), "default/p-pod").unacted
    assert (len(carried), carried[-1]) == (UNACTED_MAX + 1, "and 5 more")


def test_a_cluster_tells_its_grades_and_its_conditions(applied: Intake) -> None:
    (cluster,) = [f.data.cluster for f in applied.facts if isinstance(f.data, ClusterObserved)]
    assert cluster.conditions == {"Ready": "True"}
    assert cluster.summary is not None
    assert cluster.summary.grades == (
        NodeGrade({"cpu": 0, "memory": 0}, 1),
        NodeGrade({"cpu": 2000, "memory": 4 * GI}, 2),
    )


def a_cluster(models: list[object], modelings: list[object]) -> karmada.ClusterManifest:
    summary = {"allocatable": {"cpu": "4"}, "allocatableModelings": modelings}
    raw = {
        "metadata": {"name": "a"},
        "spec": {"resourceModels": models},
        "status": {"resourceSummary": summary},
    }
    model = read_object(raw, "Cluster")
    assert isinstance(model, karmada.ClusterManifest)
    return model


def test_grades_that_no_node_is_of_are_there_and_numbers_without_models_say_nothing() -> None:
    models: list[object] = [
        {"grade": 1, "ranges": [{"name": "cpu", "min": "2", "max": "4"}]},
        {"grade": 0, "ranges": [{"name": "cpu", "min": "0", "max": "2"}]},
    ]
    counted = a_cluster(models, [{"grade": 1, "count": 3}]).to_domain().summary
    assert counted is not None
    assert counted.grades == (NodeGrade({"cpu": 0}, 0), NodeGrade({"cpu": 2000}, 3))
    uncounted = a_cluster(models, []).to_domain().summary
    assert uncounted is not None
    assert uncounted.grades == ()
    unknown = a_cluster([], [{"grade": 1, "count": 3}])
    summary = unknown.to_domain().summary
    assert summary is not None
    assert summary.grades == ()
    assert list(unknown.unacted()) == [("status", "resourceSummary", "allocatableModelings")]


def test_a_policy_says_all_that_it_can_say(applied: Intake) -> None:
    found = policy(applied, "everything-a-policy-can-say").propagation
    assert found is not None
    assert (found.priority, found.preempts, found.lazy, found.scheduler) == (
        7,
        True,
        True,
        "default-scheduler",
    )
    placement = found.placement
    home = placement.affinities[0]
    assert [group.name for group in home.overflow] == ["cloud", "far"]
    assert home.overflow[1] == ClusterAffinity(
        "far", fields=(Requirement("region", "NotIn", ("inland",)),)
    )
    assert home.fields == (
        Requirement("provider", "In", ("own-metal",)),
        Requirement("zone", "Exists"),
    )
    assert (placement.affinity_label, placement.anti_affinity_label) == ("team", "app")
    assert placement.replicas.limits == (ReplicaLimit("hamar", 2, 10), ReplicaLimit("*", 1, 5))
    assert placement.steadiness == Steadiness(60, 600)
    assert placement.strict
    web = binding(applied, "ns/web-deployment")
    assert (web.affinity_group, web.anti_affinity_group, web.priority_class) == (
        "team=harbour",
        "app=web",
        "high",
    )


def test_quota_and_taints_are_policies(applied: Intake) -> None:
    assert policy(applied, "quota").quota == FederatedQuota(
        {"cpu": 40_000, "memory": 96 * GI, "nvidia.com/gpu": 4},
        {"hamar": {"cpu": 4000, "requests.nvidia.com/gpu": 1}},
    )
    assert policy(applied, "not-ready").taints == ConditionTaints(
        ClusterAffinity(exclude=("oslo",)),
        (Taint("cluster.karmada.io/not-ready", "NoExecute", "x"),),
        (ConditionMatch("Ready", "NotIn", ("True",)),),
        (ConditionMatch("Ready", "In", ("True",)),),
    )


def test_a_binding_of_components_says_where_it_already_runs(applied: Intake) -> None:
    stream = binding(applied, "ns/stream-flinkdeployment")
    assert stream.components == (
        Component("jobmanager", 1, Requirements({"cpu": 1000, "memory": 2 * GI})),
        Component(
            "taskmanager",
            3,
            Requirements(
                {"cpu": 2000, "memory": 4 * GI},
                node_selector={"disk": "ssd"},
                node_terms=(NodeTerm((Requirement("cores", "Gt", ("8",)),)),),
                tolerations=(Toleration("gpu", "Exists"),),
            ),
        ),
    )
    assert stream.clusters == (TargetCluster("hamar", 0),)
    assert (stream.scheduler, stream.priority, stream.priority_class) == (
        "default-scheduler",
        12,
        "high",
    )
    assert (stream.affinity_group, stream.anti_affinity_group) == ("team=harbour", "app=stream")
    assert stream.suspended
    role = binding(applied, "reader-clusterrole")
    assert (role.policy, role.resource.namespace) == (
        "ClusterResourceBinding/reader-clusterrole",
        "",
    )


def test_a_quota_of_a_cluster_says_what_is_enforced_there(applied: Intake) -> None:
    (told,) = [f.data for f in applied.facts if isinstance(f.data, QuotasObserved)]
    scope = (Requirement("NotTerminating", "Exists"), Requirement("PriorityClass", "In", ("high",)))
    hard, used = {"requests.cpu": 12_000, "pods": 60}, {"requests.cpu": 1500, "pods": 3}
    assert told == QuotasObserved("hamar", "ns", (Quota("ns", "compute", hard, used, scope),))
    assert binding(applied, "ns/everywhere-resourcequota").replicas == 0


def test_a_job_has_no_more_replicas_than_are_to_complete(applied: Intake) -> None:
    assert binding(applied, "ns/count-job").replicas == 2


def test_a_priority_class_is_told_only_where_its_number_is_missing(applied: Intake) -> None:
    with_number = "{priority: 9, priorityClassName: high}"
    text = (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: "
        f"{{wharfinger.io/placement: any}}}}\nspec: {with_number}\n"
    )
    intake = compile_manifests(load_manifests(text, "file.yaml").manifests)
    assert intake.unacted == ()
    one = binding(intake, "default/p-pod")
    assert (one.priority, one.priority_class) == (9, "high")
