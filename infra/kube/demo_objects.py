"""The objects that the demonstration applies by kubectl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Json = dict[str, Any]

KARMADA = Path(__file__).resolve().parents[2] / "tests" / "kube" / "crds" / "karmada.yaml"

HOME, NAME, REPLICAS = "shop", "web", 18
BINDING_NAME = f"{NAME}-deployment"
BINDING = f"{HOME}/{BINDING_NAME}"

FULL, FULL_REPLICAS, FULL_ROOM = "full", 15, 8
GUARDED = "guarded"
SCHEDULER = "wharfinger"

CPU_OF_NODE = 4


def nodes(member: str) -> list[Json]:
    """Four; in bergen two more that only one workload may use, and two for another."""
    found = [_node(f"{member}-{i}", "general") for i in range(1, 5)]
    if member == "bergen":
        found += [_node(f"{member}-{FULL}-{i}", FULL) for i in (1, 2)]
        found += [_node(f"{member}-{GUARDED}-{i}", GUARDED) for i in (1, 2)]
    return found


def _node(name: str, pool: str) -> Json:
    room = {"cpu": str(CPU_OF_NODE), "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "pool": pool}},
        "status": {"allocatable": room, "capacity": room},
    }


def fleet() -> list[Json]:
    """Of the hub: the policy, the Deployment, and the binding that Karmada makes of both."""
    resource = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": HOME, "name": NAME}
    placement: Json = {
        "clusterAffinity": {"clusterNames": ["bergen", "hamburg", "oslo"]},
        "replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"},
        },
    }
    policy: Json = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": NAME, "namespace": HOME},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}],
            "schedulerName": SCHEDULER,
            "placement": placement,
        },
    }
    binding: Json = {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"name": BINDING_NAME, "namespace": HOME},
        "spec": {
            "resource": resource,
            "replicas": REPLICAS,
            "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "256Mi"}},
            "schedulerName": SCHEDULER,
            "placement": placement,
        },
    }
    return [namespace(HOME), policy, _deployment(HOME, NAME, REPLICAS, "general"), binding]


def full() -> list[Json]:
    """Fifteen pods of half a core on two nodes of four: one more has room, as a rollout needs."""
    return [namespace(FULL), _deployment(FULL, "web", FULL_REPLICAS, FULL)]


def guarded(replicas: int) -> list[Json]:
    budget: Json = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": GUARDED},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": GUARDED}}},
    }
    return [namespace(GUARDED), budget, _deployment(GUARDED, "web", replicas, GUARDED)]


def is_ready(pod: Json) -> bool:
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _deployment(home: str, name: str, replicas: int, pool: str) -> Json:
    container = {
        "name": "main",
        "image": "registry.example/web:1",
        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": home},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": home}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": home}},
                "spec": {
                    "schedulerName": SCHEDULER,
                    "terminationGracePeriodSeconds": 0,
                    "nodeSelector": {"pool": pool},
                    "containers": [container],
                },
            },
        },
    }
