"""What manifests mean: requests, devices, nodes, clusters, placements, load policies."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.cluster import Cluster as KnownCluster
from wharfinger.domain.cluster import ResourceSummary
from wharfinger.domain.node import Node as KnownNode
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
    StaticWeight,
)
from wharfinger.domain.policy import (
    HotWindow,
    LoadLimit,
    LoadPolicy,
    LoadWeight,
    Propagation,
    ResourceSelector,
    SyncPeriod,
)
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.manifests import crane, ocm
from wharfinger.manifests.karmada import objects as karmada
from wharfinger.manifests.karpenter import pools as karpenter
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.model import ExpectedError, Resource
from wharfinger.manifests.parse import load_manifests, read_object

M = TypeVar("M", bound=Resource)
GI = 2**30
MI = 2**20


def read(kind: type[M], text: str) -> M:
    loaded = load_manifests(text, "file.yaml")
    assert [str(e) for e in loaded.errors] == []
    (manifest,) = loaded.manifests
    assert isinstance(manifest.model, kind)
    return manifest.model


def pod(spec: str, annotations: str = "{}") -> kubernetes.PodManifest:
    return read(
        kubernetes.PodManifest,
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {annotations}}}\n"
        f"spec: {spec}\n",
    )


# Requests.


def test_containers_add_up_and_a_limit_without_a_request_is_one() -> None:
    asked = pod(
        "{containers: [{resources: {requests: {cpu: 250m, memory: 1Gi}, limits: {cpu: 2, memory: "
        "2Gi}}},"
        " {resources: {limits: {cpu: 0.5, ephemeral-storage: 1G}}}, {name: asks-for-nothing}]}"
    ).requirements()
    assert asked.requests == {"cpu": 750, "memory": GI, "ephemeral-storage": 10**9}


def test_init_containers_run_alone_so_only_the_largest_counts() -> None:
    asked = pod(
        "{initContainers: [{resources: {requests: {cpu: 2}}}, {resources: {requests: {cpu: 1, "
        "memory: 3Gi}}}],"
        " containers: [{resources: {requests: {cpu: 1500m, memory: 1Gi}}}]}"
    ).requirements()
    assert asked.requests == {"cpu": 2000, "memory": 3 * GI}


def test_sidecars_run_beside_everything_that_comes_after_them() -> None:
    asked = pod(
        "{initContainers: [{resources: {requests: {memory: 900Mi}}},"
        " {restartPolicy: Always, resources: {requests: {cpu: 100m, memory: 100Mi}}},"
        " {resources: {requests: {cpu: 1, memory: 1Gi}}}],"
        " containers: [{resources: {requests: {cpu: 500m, memory: 1000Mi}}}]}"
    ).requirements()
    assert asked.requests == {"cpu": 1100, "memory": 1124 * MI}


def test_requests_of_the_whole_pod_replace_the_sum_and_overhead_comes_on_top() -> None:
    asked = pod(
        "{resources: {requests: {cpu: 3}}, overhead: {cpu: 250m, memory: 64Mi},"
        " containers: [{resources: {requests: {cpu: 1, memory: 1Gi}}}]}"
    ).requirements()
    assert asked.requests == {"cpu": 3250, "memory": GI + 64 * MI}


def test_nothing_asked_is_no_request() -> None:
    assert pod("{containers: [{name: a}]}").requirements() == Requirements()
    assert pod("{containers: [{resources: {requests: {cpu: 0, memory: 0}}}]}").requirements().empty


def test_node_claims_and_tolerations_are_taken_over() -> None:
    asked = pod(
        "{nodeSelector: {disk: ssd}, tolerations: [{key: gpu, operator: Exists, effect: NoExecute, "
        "tolerationSeconds: 30},"
        " {key: a, value: b}], "
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        "{nodeSelectorTerms: ["
        "{matchExpressions: [{key: cores, operator: Gt, values: ['8']}]},"
        " {matchFields: [{key: metadata.name, operator: In, values: [oslo-1]}]}]}}}}"
    ).requirements()
    assert asked == Requirements(
        node_selector={"disk": "ssd"},
        node_terms=(
            NodeTerm((Requirement("cores", "Gt", ("8",)),)),
            NodeTerm(fields=(Requirement("metadata.name", "In", ("oslo-1",)),)),
        ),
        tolerations=(
            Toleration("gpu", "Exists", "", "NoExecute", 30),
            Toleration("a", "Equal", "b"),
        ),
    )


def test_requests_too_large_to_count_are_refused() -> None:
    huge = "{resources: {requests: {memory: 8E}}}"
    with pytest.raises(ExpectedError, match="below 2\\^63"):
        pod(f"{{containers: [{huge}, {huge}]}}").requirements()


# Devices.


def test_gpus_are_devices_of_their_kind_and_slices_are_counts() -> None:
    asked = pod(
        "{containers: [{resources: {limits: {nvidia.com/gpu: 2, amd.com/gpu: '1', "
        "nvidia.com/mig-1g.5gb: 3}}},"
        " {resources: {limits: {nvidia.com/gpu: 1, gpu.intel.com/i915: 0}}}]}"
    ).requirements()
    assert asked.requests == {"nvidia.com/mig-1g.5gb": 3}
    assert asked.devices == (DeviceRequest(1, kind="amd.com/gpu"), DeviceRequest(3))


def test_annotations_ask_for_a_part_of_a_gpu_and_for_models() -> None:
    shared = pod(
        "{}", "{wharfinger.io/gpu-milli: '250', wharfinger.io/gpu-models: 'T4, A10,T4,'}"
    ).requirements()
    assert shared.devices == (DeviceRequest(1, 250, ("A10", "T4")),)
    whole = pod(
        "{containers: [{resources: {limits: {nvidia.com/gpu: 4}}}]}",
        "{wharfinger.io/gpu-models: A10}",
    ).requirements()
    assert whole.devices == (DeviceRequest(4, 1000, ("A10",)),)


@pytest.mark.parametrize("milli", ["0", "1001", "-5", "half", "", "\u0665", "00001"])
def test_a_part_of_a_gpu_that_is_none_is_refused(milli: str) -> None:
    with pytest.raises(ExpectedError, match="an integer from 1 to 1000") as caught:
        pod("{}", f"{{wharfinger.io/gpu-milli: '{milli}'}}").requirements()
    assert caught.value.field == ("metadata", "annotations", "wharfinger.io/gpu-milli")


def test_a_part_of_several_gpus_is_refused_at_the_annotation_that_asks() -> None:
    job = read(
        kubernetes.Job,
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n"
        "spec: {template: {metadata: {annotations: {wharfinger.io/gpu-milli: '500'}},"
        " spec: {containers: [{resources: {limits: {nvidia.com/gpu: 2}}}]}}}\n",
    )
    with pytest.raises(ExpectedError, match="at most one") as caught:
        job.requirements()
    assert caught.value.field[:2] == ("spec", "template")


# Workloads, nodes, clusters.


@pytest.mark.parametrize(
    ("text", "replicas"),
    [
        ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {}\n", 1),
        ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 0}\n", 0),
        ("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\nspec: {replicas: 3}\n", 3),
        (
            (
                "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: a-}\n"
                "spec: {parallelism: 4, completions: 9}\n"
            ),
            4,
        ),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {}\n", 1),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", 1),
    ],
)
def test_replicas_are_counted_as_each_kind_means_them(text: str, replicas: int) -> None:
    workload = read(kubernetes.Workload, text)
    assert (workload.name, workload.replicas) == ("a", replicas)


def test_a_node_tells_its_size_devices_taints_and_cluster() -> None:
    node = read(
        kubernetes.NodeManifest,
        "apiVersion: v1\nkind: Node\nmetadata: {name: n, labels: {wharfinger.io/cluster: oslo, "
        "nvidia.com/gpu.product: T4}}\n"
        "spec: {unschedulable: true, taints: [{key: a, value: b, effect: NoExecute, "
        "timeAdded: '2024-01-01T00:00:00Z'}]}\n"
        "status: {allocatable: {cpu: 3920m, memory: 7762432Ki, pods: '110', nvidia.com/gpu: 2}, "
        "capacity: {cpu: 4}}\n",
    )
    assert node.cluster == "oslo"
    assert node.to_domain() == KnownNode(
        "n",
        {"cpu": 3920, "memory": 7762432 * 1024, "pods": 110},
        (Device("T4"), Device("T4")),
        {"wharfinger.io/cluster": "oslo", "nvidia.com/gpu.product": "T4"},
        (Taint("a", "NoExecute", "b"),),
        True,
    )


def test_a_node_without_allocatable_is_as_large_as_its_capacity_and_without_either_refused() -> (
    None
):
    top = (
        "apiVersion: v1\nkind: Node\nmetadata: {name: n, annotations: {wharfinger.io/cluster: "
        "bergen}}\n"
    )
    node = read(kubernetes.NodeManifest, top + "status: {capacity: {cpu: 4, amd.com/gpu: 1}}\n")
    assert (node.cluster, node.to_domain()) == (
        "bergen",
        KnownNode("n", {"cpu": 4000}, (Device(kind="amd.com/gpu"),)),
    )
    with pytest.raises(ExpectedError, match="at most 1024 devices"):
        read(
            kubernetes.NodeManifest, top + "status: {capacity: {nvidia.com/gpu: 2k}}\n"
        ).to_domain()
    with pytest.raises(ExpectedError, match="amounts such as cpu"):
        read(kubernetes.NodeManifest, top + "status: {}\n").to_domain()


def test_a_karmada_cluster() -> None:
    cluster = read(
        karmada.ClusterManifest,
        "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\n"
        "metadata: {name: oslo, labels: {tier: prod}, annotations: {wharfinger.io/lease-s: '60'}, "
        "deletionTimestamp: '2024-01-01T00:00:00Z'}\n"
        "spec: {provider: p, region: r, zone: z, taints: [{key: k, effect: NoSchedule}], "
        "resourceModels: [{grade: 0}]}\n"
        "status: {apiEnablements: [{groupVersion: apps/v1, resources: [{kind: Deployment}]}, "
        "{groupVersion: v1, "
        "resources: [{kind: Pod}]}],"
        " resourceSummary: {allocatable: {cpu: 10, memory: 1Gi}, allocated: {cpu: 500m}, "
        "allocating: {cpu: 1}}}\n",
    )
    assert cluster.to_domain() == KnownCluster(
        "oslo",
        {"tier": "prod"},
        "p",
        "r",
        ("z",),
        (Taint("k", "NoSchedule"),),
        ("apps/v1/Deployment", "v1/Pod"),
        60,
        True,
        ResourceSummary({"cpu": 10_000, "memory": GI}, {"cpu": 500}, {"cpu": 1000}),
    )


def test_a_cluster_that_reports_nothing_is_unknown_rather_than_empty() -> None:
    cluster = read(
        karmada.ClusterManifest,
        "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\nmetadata: {name: a}\n",
    ).to_domain()
    assert (cluster.api_kinds, cluster.lease_s, cluster.summary) == (None, None, None)


@pytest.mark.parametrize("lease", ["0", "-1", "1m", "", "999999999"])
def test_a_lease_is_a_number_of_seconds(lease: str) -> None:
    cluster = read(
        karmada.ClusterManifest,
        f"apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\n"
        f"metadata: {{name: a, annotations: {{wharfinger.io/lease-s: '{lease}'}}}}\n",
    )
    with pytest.raises(ExpectedError, match="seconds above 0"):
        cluster.to_domain()


def test_an_ocm_cluster_and_what_of_its_taints_is_acted_on() -> None:
    cluster = read(
        ocm.ManagedCluster,
        "apiVersion: cluster.open-cluster-management.io/v1\nkind: ManagedCluster\n"
        "metadata: {name: bodo}\n"
        "spec: {leaseDurationSeconds: 60, taints: [{key: a, effect: NoSelect}, {key: b, effect: "
        "NoSelectIfNew}, "
        "{key: c, effect: PreferNoSelect}]}\n"
        "status: {allocatable: {cpu: 8}, clusterClaims: [{name: "
        "region.open-cluster-management.io, value: north},"
        " {name: platform.open-cluster-management.io, value: metal}]}\n",
    )
    known = cluster.to_domain()
    assert known.managed is not None
    assert [t.effect for t in known.managed.taints] == [
        "NoSelect",
        "NoSelectIfNew",
        "PreferNoSelect",
    ]
    assert msgspec.structs.replace(known, managed=None) == KnownCluster(
        "bodo",
        provider="metal",
        region="north",
        summary=ResourceSummary({"cpu": 8000}),
        taints=(Taint("a", "NoSchedule"), Taint("b", "NoSchedule"), Taint("c", "PreferNoSchedule")),
    )
    assert list(cluster.unacted()) == [
        ("spec", "taints", 0, "effect"),
        ("spec", "leaseDurationSeconds"),
    ]


# Policies.

POLICY = (
    "apiVersion: policy.karmada.io/v1alpha1\nkind: PropagationPolicy\n"
    "metadata: {name: p, namespace: ns}\nspec:\n"
)


def test_a_placement_is_taken_over_field_for_field() -> None:
    policy = read(
        karmada.PropagationPolicy,
        POLICY + "  priority: 7\n  suspension: {scheduling: true}\n"
        "  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, labelSelector: "
        "{matchLabels: {a: b}}}]\n"
        "  placement:\n"
        "    clusterAffinities:\n"
        "    - {affinityName: one, clusterNames: [oslo], exclude: [bergen]}\n"
        "    - {affinityName: two, labelSelector: {matchExpressions: [{key: t, operator: Exists}]},"
        " fieldSelector: {matchExpressions: [{key: region, operator: NotIn, values: [x]}]}}\n"
        "    clusterTolerations: [{key: k, operator: Exists, tolerationSeconds: 9}]\n"
        "    spreadConstraints: [{maxGroups: 3}, {spreadByField: region, minGroups: 2}, "
        "{spreadByLabel: hall}]\n"
        "    replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: "
        "Weighted, weightPreference:"
        " {staticWeightList: [{targetCluster: {clusterNames: [oslo]}, weight: 2}]}}\n",
    ).to_domain("{}")
    assert policy.key == "PropagationPolicy/ns/p"
    assert policy.propagation == Propagation(
        (ResourceSelector("apps/v1", "Deployment", "ns", "", LabelSelector({"a": "b"})),),
        Placement(
            (
                ClusterAffinity("one", ("oslo",), ("bergen",)),
                ClusterAffinity(
                    "two",
                    labels=LabelSelector(match_expressions=(Requirement("t", "Exists"),)),
                    fields=(Requirement("region", "NotIn", ("x",)),),
                ),
            ),
            (Toleration("k", "Exists", seconds=9),),
            (
                SpreadConstraint("cluster", "", 1, 3),
                SpreadConstraint("region", "", 2, 0),
                SpreadConstraint("", "hall", 1, 0),
            ),
            ReplicaScheduling(
                "Divided", "Weighted", (StaticWeight(ClusterAffinity(cluster_names=("oslo",)), 2),)
            ),
        ),
        7,
        True,
    )


@pytest.mark.parametrize(
    ("scheduling", "expected"),
    [
        ("", ReplicaScheduling("Duplicated")),
        ("    replicaScheduling: {}\n", ReplicaScheduling("Divided")),
        (
            "    replicaScheduling: {replicaSchedulingType: Duplicated}\n",
            ReplicaScheduling("Duplicated"),
        ),
        (
            "    replicaScheduling: {replicaDivisionPreference: Aggregated}\n",
            ReplicaScheduling("Divided", "Aggregated"),
        ),
        (
            "    replicaScheduling: {weightPreference: {dynamicWeight: AvailableReplicas}}\n",
            ReplicaScheduling("Divided", "Weighted", dynamic=True),
        ),
    ],
)
def test_how_replicas_are_divided(scheduling: str, expected: ReplicaScheduling) -> None:
    policy = read(
        karmada.PropagationPolicy, POLICY + "  placement:\n    clusterAffinity: {}\n" + scheduling
    ).to_domain("{}")
    assert policy.propagation is not None
    assert policy.propagation.placement.replicas == expected


@pytest.mark.parametrize(
    ("spec", "line", "said"),
    [
        (
            "placement: {clusterAffinity: {}, clusterAffinities: [{affinityName: a}]}",
            5,
            "either clusterAffinity or clusterAffinities",
        ),
        (
            "placement: {clusterAffinities: [{affinityName: a}, {affinityName: a}]}",
            5,
            "clusterAffinities[1].affinityName: expected a name",
        ),
        (
            "placement: {spreadConstraints: [{spreadByField: zone, spreadByLabel: x}]}",
            5,
            "either spreadByField or spreadByLabel",
        ),
        (
            "placement: {spreadConstraints: [{minGroups: 3, maxGroups: 2}]}",
            5,
            "maxGroups: expected at least minGroups, which is 3, got 2",
        ),
        (
            "resourceSelectors: [{apiVersion: v1, kind: Pod, namespace: other}]",
            5,
            "the policy's own namespace 'ns', got 'other'",
        ),
        (
            (
                "placement: {clusterAffinity: {fieldSelector: {matchExpressions: [{key: mood, "
                "operator: In}]}}}"
            ),
            5,
            "expected provider, region or zone, got 'mood'",
        ),
    ],
)
def test_what_karmada_would_refuse_is_refused(spec: str, line: int, said: str) -> None:
    (error,) = load_manifests(POLICY + f"  {spec}\n", "file.yaml").errors
    assert str(error).startswith(f"file.yaml:{line}: spec.")
    assert said in str(error)


def test_a_binding_by_hand() -> None:
    binding = read(
        karmada.ResourceBinding,
        "apiVersion: work.karmada.io/v1alpha2\nkind: ResourceBinding\n"
        "metadata: {name: web-deployment, namespace: ns}\n"
        "spec: {resource: {apiVersion: apps/v1, kind: Deployment, name: web, namespace: ns, uid: "
        "u-1}, replicas: 3,"
        " replicaRequirements: {resourceRequest: {cpu: 100m, nvidia.com/gpu: 1}, nodeClaim: "
        "{nodeSelector: {a: b}}},"
        " rescheduleTriggeredAt: '2024-01-01T00:00:00Z', schedulePriority: {priority: 5}, "
        "suspension: {scheduling: true},"
        " placement: {clusterAffinity: {clusterNames: [oslo]}}, clusters: [{name: oslo, "
        "replicas: 3}]}\n",
    )
    assert list(binding.unacted()) == []
    value = binding.to_domain()
    assert value.clusters == (TargetCluster("oslo", 3),)
    assert (value.name, value.uid, value.replicas, value.priority) == (
        "ns/web-deployment",
        "u-1",
        3,
        5,
    )
    assert (value.suspended, value.reschedule) == (True, "2024-01-01T00:00:00Z")
    assert value.resource == ObjectRef("apps/v1", "Deployment", "web", "ns")
    assert value.requirements == Requirements({"cpu": 100}, (DeviceRequest(1),), {"a": "b"})
    assert value.placement.affinities == (ClusterAffinity(cluster_names=("oslo",)),)


CRANE = "apiVersion: scheduler.policy.crane.io/v1alpha1\nkind: DynamicSchedulerPolicy\nspec:\n"


def test_a_load_policy_in_integers() -> None:
    policy = read(
        crane.DynamicSchedulerPolicy,
        CRANE + "  syncPolicy: [{name: m, period: 1h1.5s}]\n"
        "  predicate: [{name: m, maxLimitPecent: 0.65}]\n"
        "  priority: [{name: m, weight: 0.3}, {name: n, weight: 1}]\n"
        "  hotValue: [{timeRange: 5m, count: 5}]\n",
    ).to_domain("{}")
    assert policy.key == "DynamicSchedulerPolicy//default"
    assert policy.load == LoadPolicy(
        (SyncPeriod("m", 3602),),
        (LoadLimit("m", 65_000),),
        (LoadWeight("m", 300), LoadWeight("n", 1000)),
        (HotWindow(300, 5),),
    )


@pytest.mark.parametrize(
    ("spec", "said", "field"),
    [
        ("syncPolicy: [{name: m, period: 0s}]", "a duration above 0", "period"),
        ("syncPolicy: [{name: m, period: -3m}]", "a duration above 0", "period"),
        ("syncPolicy: [{period: 3m}]", "the name of a metric", "name"),
        ("hotValue: [{timeRange: 5m}]", "a count above 0", "count"),
        ("hotValue: [{timeRange: 0s, count: 1}]", "a duration above 0", "timeRange"),
        ("predicate: [{name: m, maxLimitPecent: -0.5}]", "a number from 0", "maxLimitPecent"),
        ("priority: [{name: m, weight: 1e300}]", "a number from 0", "weight"),
    ],
)
def test_a_load_policy_that_would_stop_crane_is_refused(spec: str, said: str, field: str) -> None:
    with pytest.raises(ExpectedError, match=said) as caught:
        read(crane.DynamicSchedulerPolicy, CRANE + f"  {spec}\n").to_domain("{}")
    assert caught.value.field[-1] == field


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("3m", 180 * 10**9),
        ("1h30m", 5400 * 10**9),
        ("1.5h", 5400 * 10**9),
        (".5m", 30 * 10**9),
        ("250ms", 250 * 10**6),
        ("0", 0),
        ("-5s", -5 * 10**9),
        ("+5s", 5 * 10**9),
        ("1h1h", 7200 * 10**9),
        ("10us", 10_000),
        ("10\u00b5s", 10_000),
        ("0.3ns", 0),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, ns: int) -> None:
    assert crane.duration_ns(text) == ns


@pytest.mark.parametrize(
    "text", ["", "3", "m", ".", ".s", "3 m", "1e3s", "1h-5m", "--5m", "9999999h", 180, None, "1d"]
)
def test_other_durations_are_refused(text: object) -> None:
    with pytest.raises(ExpectedError):
        crane.duration_ns(text)


@pytest.mark.parametrize(
    ("disruption", "empty_after_s"),
    [
        ("{consolidateAfter: 10m}", 600),
        ("{consolidateAfter: Never}", None),
        ("{}", 0),
        ("{consolidationPolicy: WhenEmpty}", 0),
        ("{consolidateAfter: 1h30m5s}", 5405),
    ],
)
def test_how_long_the_nodes_of_a_pool_may_stay_empty(
    disruption: str, empty_after_s: int | None
) -> None:
    pool = read(
        karpenter.NodePool,
        f"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: p}}\n"
        f"spec: {{disruption: {disruption}}}\n",
    )
    read_pool = pool.to_domain("{}").node_pool
    assert read_pool is not None
    assert (read_pool.name, read_pool.empty_after_s) == ("p", empty_after_s)


def test_a_pool_with_a_fixed_number_of_nodes_keeps_its_empty_ones() -> None:
    pool = read(
        karpenter.NodePool,
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\nspec: {replicas: 3}\n",
    )
    assert pool.empty_after_s is None
    assert list(pool.unacted()) == []


# What the schema lets through, and admission does not.

BOUND = (
    "apiVersion: work.karmada.io/v1alpha2\nkind: ResourceBinding\n"
    "metadata: {name: b, namespace: ns}\n"
    "spec:\n  resource: {apiVersion: apps/v1, kind: Deployment, name: web, namespace: ns}\n"
)


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        (
            "{spreadConstraints: [{maxGroups: -1}]}",
            "maxGroups: expected an integer that is not negative, got -1",
        ),
        (
            "{spreadConstraints: [{minGroups: -3}]}",
            "minGroups: expected an integer that is not negative, got -3",
        ),
        (
            (
                "{clusterAffinity: {labelSelector: {matchExpressions: [{key: t, operator: Gt, "
                "values: ['1']}]}}}"
            ),
            "operator: expected In, NotIn, Exists or DoesNotExist, got 'Gt'",
        ),
        (
            "{clusterAffinity: {labelSelector: {matchExpressions: [{key: t, operator: NotIn}]}}}",
            "values: expected at least one value, got nothing",
        ),
        (
            (
                "{clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: like, "
                "values: [a]}]}}}"
            ),
            "operator: expected In, NotIn, Exists or DoesNotExist, got 'like'",
        ),
        (
            "{clusterAffinities: [{affinityName: a, overflowAffinities: [{affinityName: b}]}]}",
            (
                "overflowAffinities: expected overflowAffinities only where replicas are "
                "Aggregated "
                "or divided by dynamicWeight"
            ),
        ),
        (
            "{replicaScheduling: {replicaDivisionPreference: Aggregated}, clusterAffinities: "
            "[{affinityName: a,"
            " overflowAffinities: [{affinityName: b}, {affinityName: b}]}]}",
            "overflowAffinities[1].affinityName: expected a name that is not used twice, got 'b'",
        ),
    ],
)
def test_a_policy_is_refused_what_a_binding_may_hold(placement: str, said: str) -> None:
    (error,) = load_manifests(POLICY + f"  placement: {placement}\n", "file.yaml").errors
    assert str(error).startswith("file.yaml:5: spec.placement.")
    assert said in str(error)
    read(karmada.ResourceBinding, BOUND + f"  placement: {placement}\n").to_domain()


def bound_placement(placement: str) -> Placement:
    return (
        read(karmada.ResourceBinding, BOUND + f"  placement: {placement}\n").to_domain().placement
    )


def test_a_selector_that_cannot_be_evaluated_selects_no_cluster() -> None:
    for wrong in (
        "{key: t, operator: Gt, values: ['1']}",
        "{key: t, operator: NotIn}",
        "{key: t, operator: Exists, values: [a]}",
    ):
        (affinity,) = bound_placement(
            f"{{clusterAffinity: {{labelSelector: {{matchExpressions: [{wrong}]}}}}}}"
        ).affinities
        assert affinity.labels is not None
        assert not any(affinity.labels.matches(labels) for labels in ({}, {"t": "2"}, {"t": "a"}))
    (affinity,) = bound_placement(
        "{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: like, "
        "values: [a]}]}}}"
    ).affinities
    assert affinity.fields == (Requirement("region", "In"),)


def test_a_binding_that_does_not_say_how_to_divide_keeps_it_to_itself() -> None:
    assert (
        bound_placement("{replicaScheduling: {replicaSchedulingType: Divided}}").replicas.preference
        == ""
    )
    assert (
        bound_placement(
            "{replicaScheduling: {replicaSchedulingType: Duplicated}}"
        ).replicas.preference
        == "Weighted"
    )


def test_of_two_kinds_of_affinities_the_named_ones_count() -> None:
    both = bound_placement(
        "{clusterAffinity: {clusterNames: [oslo]}, clusterAffinities: [{affinityName: a}]}"
    )
    assert [affinity.name for affinity in both.affinities] == ["a"]


def test_weights_may_be_large_and_are_never_nothing() -> None:
    weighted = (
        "{{replicaScheduling: {{weightPreference: {{staticWeightList: [{{targetCluster: {{}}, "
        "weight: {0}}}]}}}}}}"
    )
    large = bound_placement(weighted.format(2_000_000_011))
    assert large.replicas.static[0].weight == 2_000_000_011
    for wrong in (0, -1, 2**63):
        (error,) = load_manifests(
            BOUND + f"  placement: {weighted.format(wrong)}\n", "file.yaml"
        ).errors
        assert error.field.endswith("staticWeightList[0].weight")


def test_names_of_253_characters_are_names() -> None:
    name = "a" * 253
    text = (
        BOUND.replace("name: b", f"name: {name}")
        + f"  placement: {{clusterAffinity: {{clusterNames: [{name}]}}}}\n"
    )
    assert read(karmada.ResourceBinding, text).to_domain().name == f"ns/{name}"
    (error,) = load_manifests(BOUND.replace("name: b", f"name: {name}a"), "file.yaml").errors
    assert error.field == "metadata.name"


def test_an_object_without_its_kind_is_read_as_what_it_is_known_to_be() -> None:
    assert read_object({"metadata": {"name": "a"}}, "Cluster").kind == "Cluster"
    with pytest.raises(
        ValueError,
        match=r"members:1: spec.zoness: expected a field of Cluster \(did you mean zones\?\)",
    ):
        read_object({"metadata": {"name": "a"}, "spec": {"zoness": []}}, "Cluster", "members")
    with pytest.raises(ValueError, match="expected an object with apiVersion and kind, got a list"):
        read_object([], "Cluster")


def test_the_first_version_of_a_binding_has_its_replicas_at_the_resource() -> None:
    old = BOUND.replace("v1alpha2", "v1alpha1").replace(
        "name: web, namespace: ns}",
        "name: web, namespace: ns, replicas: 3, replicaResourceRequirements: {cpu: 200m}}",
    )
    value = read(karmada.ResourceBinding, old).to_domain()
    assert (value.replicas, value.requirements) == (3, Requirements({"cpu": 200}))
