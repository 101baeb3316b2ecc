"""Pods and nodes as an API server sends them: generated with all that placement reads, and with
what it does not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

NAMES = st.sampled_from(["a", "web-7d4b9", "db-0", "x.y"])
WORDS = st.sampled_from(["app", "tier", "zone"])
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["100m", "2", "1500m", 1]),
        "memory": st.sampled_from(["64Mi", "1Gi", "128974848"]),
        "nvidia.com/gpu": st.sampled_from(["1", "2"]),
        "ephemeral-storage": st.just("1Gi"),
    },
)
LABELS = st.dictionaries(WORDS, st.sampled_from(["front", "back", ""]), max_size=3)
TIMES = st.sampled_from(["2026-03-01T12:00:00Z", "2026-03-01T12:00:01.5Z", None])


def _object(required: Json, optional: Json) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(required, optional=optional)


PORTS = st.lists(
    _object(
        {"containerPort": st.sampled_from([80, 443])},
        {"hostPort": st.sampled_from([0, 8080]), "protocol": st.sampled_from(["TCP", "UDP"])},
    ),
    max_size=2,
)
CONTAINERS = _object(
    {"name": NAMES, "image": st.sampled_from(["nginx", "nginx:1", "r.io:5000/a/b"])},
    {
        "resources": _object({}, {"requests": AMOUNTS, "limits": AMOUNTS}),
        "ports": PORTS,
        "restartPolicy": st.sampled_from(["Always", None]),
        "env": st.just([{"name": "A", "value": "b"}]),
        "volumeMounts": st.just([{"name": "kube-api-access-x7b2k", "mountPath": "/var"}]),
        "stopSignalOfANewerRelease": st.just("SIGTERM"),
    },
)
VOLUMES = st.lists(
    st.one_of(
        st.just({"name": "kube-api-access-x7b2k", "projected": {"sources": []}}),
        st.just({"name": "scratch", "emptyDir": {}}),
        st.just({"name": "host", "hostPath": {"path": "/"}}),
        st.just({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
        st.just({"name": "d2", "persistentVolumeClaim": {"claimName": "b", "readOnly": True}}),
        st.just({"name": "temp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
        st.just({"name": "gce", "gcePersistentDisk": {"pdName": "d", "readOnly": True}}),
        st.just({"name": "aws", "awsElasticBlockStore": {"volumeID": "v"}}),
    ),
    max_size=3,
    unique_by=lambda volume: str(volume["name"]),
)
SELECTOR = _object({}, {"matchLabels": LABELS})
POD_TERM = _object({"topologyKey": WORDS}, {"labelSelector": SELECTOR})
AFFINITY = _object(
    {},
    {
        "nodeAffinity": st.just(
            {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
                    ]
                }
            }
        ),
        "podAntiAffinity": _object(
            {}, {"requiredDuringSchedulingIgnoredDuringExecution": st.lists(POD_TERM, max_size=2)}
        ),
    },
)
TOLERATIONS = st.lists(
    st.just(
        {
            "key": "node.kubernetes.io/not-ready",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
    ),
    max_size=1,
)
SPREAD = st.lists(
    st.just(
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "front"}},
        }
    ),
    max_size=1,
)
SPECS = _object(
    {"containers": st.lists(CONTAINERS, min_size=1, max_size=2)},
    {
        "initContainers": st.lists(CONTAINERS, max_size=2),
        "nodeName": st.sampled_from(["n1", "n2"]),
        "volumes": VOLUMES,
        "priority": st.sampled_from([0, 1000, -5]),
        "hostNetwork": st.booleans(),
        "schedulerName": st.sampled_from(["default-scheduler", "wharfinger"]),
        "preemptionPolicy": st.sampled_from(["Never", "PreemptLowerPriority"]),
        "nodeSelector": LABELS,
        "affinity": AFFINITY,
        "tolerations": TOLERATIONS,
        "topologySpreadConstraints": SPREAD,
        "overhead": AMOUNTS,
        "schedulingGates": st.lists(st.just({"name": "quota"}), max_size=1),
        "resourceClaims": st.just([{"name": "gpu", "resourceClaimTemplateName": "gpus"}]),
        "restartPolicy": st.just("Always"),
        "serviceAccountName": st.just("default"),
        "fieldOfANewerRelease": st.just({"a": 1}),
    },
)
STATES = st.sampled_from(
    [
        {"running": {"startedAt": "2026-03-01T12:00:00Z"}},
        {"waiting": {"reason": "ImagePullBackOff", "message": "m"}},
        {"waiting": {}},
        {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        {},
    ]
)
STATUSES = st.lists(
    _object({"name": NAMES, "restartCount": st.sampled_from([0, 3])}, {"state": STATES}), max_size=2
)
CONDITIONS = st.lists(
    _object(
        {
            "type": st.sampled_from(["PodScheduled", "Ready", "Custom"]),
            "status": st.sampled_from(["True", "False"]),
        },
        {
            "reason": st.sampled_from(["Unschedulable", ""]),
            "lastTransitionTime": TIMES,
            "lastProbeTime": st.none(),
        },
    ),
    max_size=3,
)
PODS: st.SearchStrategy[Json] = _object(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": _object(
            {"name": NAMES, "uid": st.sampled_from(["u1", "u2"])},
            {
                "namespace": st.sampled_from(["default", "shop"]),
                "labels": LABELS,
                "annotations": st.dictionaries(
                    st.sampled_from(
                        [
                            "wharfinger.io/gpu-models",
                            "scheduling.k8s.io/group-name",
                            "kubernetes.io/config.mirror",
                            "karpenter.sh/do-not-disrupt",
                            "controller.kubernetes.io/pod-deletion-cost",
                            "somebody.io/else",
                        ]
                    ),
                    st.sampled_from(["true", "7", "A100"]),
                    max_size=3,
                ),
                "creationTimestamp": TIMES,
                "deletionTimestamp": TIMES,
                "resourceVersion": st.just("12"),
                "managedFields": st.just([{"manager": "kubelet"}]),
                "ownerReferences": st.lists(
                    _object(
                        {
                            "apiVersion": st.just("apps/v1"),
                            "kind": st.sampled_from(["ReplicaSet", "DaemonSet", "Job"]),
                            "name": NAMES,
                            "uid": st.just("o1"),
                        },
                        {"controller": st.booleans()},
                    ),
                    max_size=2,
                ),
            },
        ),
        "spec": SPECS,
        "status": _object(
            {"qosClass": st.sampled_from(["BestEffort", "Burstable", "Guaranteed"])},
            {
                "phase": st.sampled_from(["Pending", "Running", "Unknown"]),
                "reason": st.just("Evicted"),
                "startTime": TIMES,
                "conditions": CONDITIONS,
                "containerStatuses": STATUSES,
                "initContainerStatuses": STATUSES,
                "resourceClaimStatuses": st.just([{"name": "gpu", "resourceClaimName": "gpu-x"}]),
                "podIP": st.just("10.0.0.1"),
            },
        ),
    },
    {},
)

NODES: st.SearchStrategy[Json] = _object(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Node"),
        "metadata": _object(
            {"name": NAMES},
            {
                "labels": LABELS,
                "annotations": st.dictionaries(
                    st.sampled_from(["karpenter.sh/x", "other"]), st.just("v"), max_size=2
                ),
                "creationTimestamp": TIMES,
            },
        ),
        "status": _object(
            {"allocatable": st.just({"cpu": "4", "memory": "8Gi", "pods": "110"})},
            {
                "addresses": st.just([{"type": "InternalIP", "address": "10.0.0.1"}]),
                "conditions": st.lists(
                    _object(
                        {
                            "type": st.sampled_from(["Ready", "MemoryPressure"]),
                            "status": st.sampled_from(["True", "False", "Unknown"]),
                        },
                        {"lastHeartbeatTime": TIMES},
                    ),
                    max_size=2,
                ),
                "nodeInfo": st.just({"kubeletVersion": "v1.36.0"}),
            },
        ),
    },
    {
        "spec": _object(
            {},
            {
                "unschedulable": st.booleans(),
                "taints": st.just([{"key": "k", "effect": "NoSchedule"}]),
                "podCIDR": st.just("10.0.0.0/24"),
            },
        )
    },
)
