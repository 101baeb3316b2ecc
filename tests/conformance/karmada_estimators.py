"""Karmada's estimator suites: a cluster's objects to our values, how much `engine.estimators` says
fits in the words of the cases.

Asked with `strict`, because the cases record what Karmada counts. Where that is more than there is,
our own answer is lower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wharfinger.domain.binding import Component
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.quota import Quota
from wharfinger.domain.workload import Requirements
from wharfinger.engine.estimators.nodes import replicas_by_nodes, sets_by_nodes
from wharfinger.engine.estimators.quotas import QuotaPart, sets_under
from wharfinger.engine.estimators.summary import replicas_by_summary, sets_by_summary
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.events.cluster_state import PodsObserved, into_buckets
from wharfinger.manifests.karmada import objects as karmada
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.parse import read_object

Json = dict[str, Any]

REPLICAS, SETS, RANGE = (
    "maxAvailableReplicas",
    "maxAvailableComponentSets",
    "maxAvailableComponentSetsRange",
)
MAX_INT32 = 2**31 - 1


def general(given: Json) -> Json:
    cluster = read_object(given["cluster"], "Cluster")
    assert isinstance(cluster, karmada.ClusterManifest)
    summary = cluster.to_domain().summary
    assumed = [
        component_of(c) for w in given.get("assumedWorkloads") or [] for c in w["components"]
    ]
    if "components" in given:
        sets = sets_by_summary(
            summary, components_of(given), MAX_INT32, assumed=assumed, strict=True
        )
        return {SETS: sets}
    return {
        REPLICAS: replicas_by_summary(
            summary, requirements_of(given), MAX_INT32, assumed=assumed, strict=True
        )
    }


def node(given: Json) -> Json:
    book = Occupancy()
    for bucket in into_buckets("member", [node_of(n) for n in given["nodes"]], 1):
        book.observe_nodes(bucket, 0)
    on_nodes: dict[str, list[Pod]] = {}
    for raw in given["pods"]:
        on_nodes.setdefault(raw["spec"]["nodeName"], []).append(pod_of(raw))
    for name, pods in on_nodes.items():
        book.observe_pods(PodsObserved("member", name, tuple(pods)))
    if "components" in given:
        return {SETS: sets_by_nodes(book, components_of(given), MAX_INT32)}
    return {
        REPLICAS: min(MAX_INT32, replicas_by_nodes(book, requirements_of(given) or Requirements()))
    }


def quota(given: Json) -> Json:
    quotas = [quota_of(q) for q in given["resourceQuotas"]]
    if "components" in given:
        key, namespace = SETS, given.get("namespace", "")
        parts = [
            QuotaPart(component_of(c).requirements, component_of(c).replicas, priority_class_of(c))
            for c in given["components"]
        ]
    else:
        key, namespace = REPLICAS, (given.get("replicaRequirements") or {}).get("namespace", "")
        parts = [QuotaPart(requirements_of(given) or Requirements(), 1, priority_class_of(given))]
    fits = sets_under(quotas, namespace, parts, strict=True)
    return {key: None, "unlimited": True} if fits is None else {key: fits}


SUITES: dict[str, Callable[[Json], Json]] = {
    "estimator-general": general,
    "estimator-node": node,
    "estimator-quota": quota,
}


def expected(suite: str, expect: Json) -> Json:
    """What is compared. Of an over-used quota nothing is left, which is the answer its case accepts
    beside a number below zero."""
    if expect.get("quirk") and "acceptAlso" in expect:
        return dict(expect["acceptAlso"])
    return {
        key: value for key, value in expect.items() if key in (REPLICAS, SETS, RANGE, "unlimited")
    }


def agrees(suite: str, answer: Json, expect: Json) -> bool:
    """The same in every suite: where packing depends on the order of nodes, any number that some
    order gives."""
    if RANGE in expect:
        least, most = expect[RANGE]
        return bool(least <= answer[SETS] <= most)
    return answer == expect


def requirements_of(given: Json) -> Requirements | None:
    raw = given.get("replicaRequirements")
    return None if raw is None else karmada.ReplicaRequirements.model_validate(raw).to_domain()


def priority_class_of(given: Json) -> str:
    return str((given.get("replicaRequirements") or {}).get("priorityClassName", ""))


def components_of(given: Json) -> list[Component]:
    return [component_of(c) for c in given["components"]]


def component_of(raw: Json) -> Component:
    return karmada.BoundComponent.model_validate(raw).to_domain()


def node_of(raw: Json) -> Node:
    found = read_object(raw, "Node")
    assert isinstance(found, kubernetes.NodeManifest)
    return found.to_domain()


def pod_of(raw: Json) -> Pod:
    found = read_object(raw, "Pod")
    assert isinstance(found, kubernetes.PodManifest)
    meta, spec = raw["metadata"], raw["spec"]
    return Pod(
        meta.get("uid") or meta["name"], meta["name"], found.requirements(), spec["nodeName"]
    )


def quota_of(raw: Json) -> Quota:
    found = read_object(raw, "ResourceQuota")
    assert isinstance(found, kubernetes.ResourceQuota)
    return found.to_domain()
