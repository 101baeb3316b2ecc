"""Names in events are those that Kubernetes would take."""

from __future__ import annotations

import pytest

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved, PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.names import wrong_name
from wharfinger.events.node_load import HotValueObserved
from wharfinger.events.proposals import RescheduleProposed


def bound(name: str) -> BindingRequested:
    return BindingRequested(Binding(name, "u", ObjectRef("v1", "Pod", "web", "shop")))


NO_NAMES = (
    "",
    "a/b/c/d",
    "..",
    "'; drop table stream; --",
    "UPPER",
    "with space",
    "line\nbreak",
    "\x1b[31mred",
    "\u202egnp.exe",
    "-begins",
    "ends-",
    "dot..dot",
    "x" * 254,
    "é",
    "%2e%2e",
)


@pytest.mark.parametrize("name", NO_NAMES)
def test_no_stream_follows_from_what_is_no_name_of_a_cluster(name: str) -> None:
    for data in (
        ClusterObserved(Cluster(name)),
        ClusterForgotten(name),
        NodesObserved(name, 0, 1, ()),
        PodsObserved(name, "n0", ()),
        HotValueObserved(name, 1, {}),
        RescheduleProposed(f"cluster/{name}", "shop/web", "because"),
    ):
        wrong = wrong_name(data)
        assert "expected a DNS subdomain" in wrong
        assert wrong.isprintable()
        assert len(wrong) < 300


@pytest.mark.parametrize(
    "data",
    [
        bound("shop/a/b"),
        bound("Shop/web"),
        bound("shop/.."),
        bound("shop/a%2fb"),
        bound("shop/web\u202e"),
        bound("shop/"),
        BindingWithdrawn("a b"),
        NodesObserved("oslo", 0, 1, (Node("n 1", {}),)),
        RescheduleProposed("fleet/007", "shop/web", "because"),
        RescheduleProposed("fleet/²", "shop/web", "because"),
        RescheduleProposed("nowhere", "shop/web", "because"),
    ],
)
def test_what_is_no_name_is_told_with_its_field(data: Value) -> None:
    assert " expected " in wrong_name(data)


@pytest.mark.parametrize(
    "data",
    [
        bound("shop/web"),
        bound("web"),
        bound("shop/system:controller:Role_1"),
        ClusterObserved(Cluster("eu-west.example.com")),
        NodesObserved("oslo", 0, 1, (Node("ip-10-0-0-1.ec2.internal", {}),)),
        PodsObserved("oslo", "", ()),
        ObjectsObserved("oslo", "StorageClass", "", ()),
        RescheduleProposed("fleet/12", "shop/web", "because"),
        RescheduleProposed("cluster/oslo", "shop/web", "because"),
    ],
)
def test_what_kubernetes_takes_is_taken(data: Value) -> None:
    assert wrong_name(data) == ""
