"""A cluster's own kube-scheduler asks the cluster stage about a pod, in the JSON of its
extenders."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cluster_world import GIB, Harness, a_node, needs

from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.policy import LoadLimit, LoadPolicy, Policy, SyncPeriod
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.events.node_load import NodeLoadObserved
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.kubernetes.serialize import node_manifest
from wharfinger.stages.cluster import extender_server


@pytest.fixture
def cluster() -> Harness:
    plane = Harness()
    plane.nodes(a_node("a"), a_node("b", cpu=1000), a_node("c"))
    return plane


def a_pod(cpu: str = "2", **spec: Any) -> dict[str, Any]:
    container = {"name": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u-1"},
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Pending"},
    }


def asked(pod: dict[str, Any], *names: str) -> bytes:
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": list(names)}).encode()


def test_nodes_without_room_fail_and_the_others_pass(cluster: Harness) -> None:
    before = canonical(cluster.decider.dump(cluster.state))
    reply = json.loads(extender_server.filtered(cluster.state, asked(a_pod(), "a", "b", "c")))
    assert reply["NodeNames"] == ["a", "c"]
    assert reply["FailedAndUnresolvableNodes"] == {"b": "Insufficient cpu"}
    assert reply["Error"] == ""
    assert canonical(cluster.decider.dump(cluster.state)) == before, "asking changes nothing"


def test_what_was_promised_to_bindings_counts_before_any_pod_is_seen(cluster: Harness) -> None:
    cluster.assign("shop/other", 2, needs(cpu=3000, memory=GIB))
    reply = json.loads(extender_server.filtered(cluster.state, asked(a_pod(), "a", "b", "c")))
    assert reply["NodeNames"] == []
    assert reply["FailedNodes"] == {"a": "Insufficient cpu", "c": "Insufficient cpu"}


def test_measured_load_that_the_kube_scheduler_does_not_know_keeps_pods_away(
    cluster: Harness,
) -> None:
    policy = LoadPolicy(
        (SyncPeriod("cpu_usage_avg_5m", 180),), (LoadLimit("cpu_usage_avg_5m", 65_000),)
    )
    cluster.feed(PolicyApplied(Policy("DynamicSchedulerPolicy", "default", load=policy)))
    loads = {"a": 90_000, "b": 10_000, "c": 10_000}
    cluster.feed(
        NodeLoadObserved(cluster.state.cluster, "cpu_usage_avg_5m", 180, cluster.at, loads)
    )
    reply = json.loads(extender_server.filtered(cluster.state, asked(a_pod("500m"), "a", "b", "c")))
    assert reply["NodeNames"] == ["b", "c"]
    assert "too high" in (reply["FailedNodes"] | reply["FailedAndUnresolvableNodes"])["a"]


def test_nodes_in_full_come_back_in_full_and_unknown_ones_are_taken_as_told(
    cluster: Harness,
) -> None:
    items = [node_manifest(a_node("a")), node_manifest(a_node("new"))]
    body = json.dumps({"Pod": a_pod(), "Nodes": {"items": items}, "NodeNames": None}).encode()
    reply = json.loads(extender_server.filtered(cluster.state, body))
    assert [node["metadata"]["name"] for node in reply["Nodes"]["items"]] == ["a", "new"]
    named = json.loads(extender_server.filtered(cluster.state, asked(a_pod(), "a", "stranger")))
    assert named["NodeNames"] == ["a"]
    assert named["FailedAndUnresolvableNodes"] == {"stranger": extender_server.UNKNOWN_NODE}


def test_the_better_node_gets_the_higher_priority_and_a_refused_one_none(cluster: Harness) -> None:
    cluster.assign(
        "shop/other",
        1,
        Requirements({"cpu": 3000, "memory": 12 * GIB}, pod=PodTraits(node_name="c")),
    )
    scores = {
        e["Host"]: e["Score"]
        for e in json.loads(
            extender_server.prioritized(cluster.state, asked(a_pod("800m"), "a", "b", "c"))
        )
    }
    assert scores["a"] == 10
    assert scores["a"] > scores["c"] >= 0
    assert all(0 <= score <= 10 for score in scores.values())
    none = {
        e["Host"]: e["Score"]
        for e in json.loads(extender_server.prioritized(cluster.state, asked(a_pod("9"), "a", "b")))
    }
    assert none == {"a": 0, "b": 0}


def test_preemption_keeps_the_nodes_where_the_victims_make_room(cluster: Harness) -> None:
    for node in ("a", "c"):
        pod = Pod(f"v-{node}", f"victim-{node}", needs(cpu=3000, memory=GIB), node)
        small = Pod(f"s-{node}", f"small-{node}", needs(cpu=200, memory=GIB), node)
        cluster.pods(node, pod, small)
    meta = {
        n: {"Pods": [{"UID": uid}], "NumPDBViolations": 0}
        for n, uid in (("a", "v-a"), ("c", "s-c"), ("b", "x"))
    }
    body = json.dumps(
        {"Pod": a_pod("2"), "NodeNameToVictims": {}, "NodeNameToMetaVictims": meta}
    ).encode()
    reply = json.loads(extender_server.preempted(cluster.state, body))
    assert reply["NodeNameToMetaVictims"] == {
        "a": {"Pods": [{"UID": "v-a"}], "NumPDBViolations": 0}
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"Pod": {"spec": 1}}', b'{"Pod": null, "NodeNames": ["a"]}', b"\xff"],
)
def test_a_question_that_makes_no_sense_is_one_line(cluster: Harness, body: bytes) -> None:
    for ask in (extender_server.filtered, extender_server.prioritized, extender_server.preempted):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            ask(cluster.state, body)
