"""Objects of an API server are read two ways, and both give the same domain value."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.live_objects import NODES, PODS, Json

from wharfinger.manifests.kubernetes.core import NodeManifest, PodManifest, pod_of
from wharfinger.manifests.kubernetes.live import LiveNode, LivePod, LiveReader, UnreadableError
from wharfinger.manifests.model import LIVE

read_pod = msgspec.json.Decoder(LivePod).decode
read_node = msgspec.json.Decoder(LiveNode).decode


@settings(max_examples=examples(150))
@given(st.lists(PODS, min_size=1, max_size=6), st.booleans())
def test_the_fast_way_and_the_models_give_the_same_pod(pods: list[Json], pending: bool) -> None:
    """One reader for all of them: what is kept of one pod must not reach into another."""
    reader = LiveReader()
    for pod in pods:
        fast = reader.pod(read_pod(json.dumps(pod)), pending=pending)
        assert fast == pod_of(PodManifest.model_validate(pod, context=LIVE), pending)


@settings(max_examples=examples(80))
@given(NODES)
def test_the_fast_way_and_the_models_give_the_same_node(node: Json) -> None:
    fast = LiveReader().node(read_node(json.dumps(node)))
    assert fast == NodeManifest.model_validate(node, context=LIVE).to_domain()


@settings(max_examples=examples(40))
@given(PODS, st.integers(2, 20))
def test_pods_of_one_template_are_made_from_one_requirements(pod: Json, count: int) -> None:
    """Names, uids, nodes and tokens differ in a ReplicaSet, and requirements are shared."""
    reader = LiveReader()
    pod["spec"].pop("volumes", None)
    pod["spec"]["nodeName"] = "n0"
    found = []
    for i in range(count):
        pod["metadata"] |= {"name": f"web-{i}", "uid": f"u{i}"}
        pod["spec"]["nodeName"] = f"n{i}"
        token = {"name": f"kube-api-access-{i}", "projected": {"sources": []}}
        pod["spec"]["volumes"] = [token]
        found.append(reader.pod(read_pod(json.dumps(pod))))
    assert reader.kinds == 1
    assert all(one.requirements is found[0].requirements for one in found)


def test_a_node_that_has_not_said_its_size_has_room_for_nothing() -> None:
    node = LiveReader().node(read_node(b'{"metadata": {"name": "new"}}'))
    assert node.allocatable == {"pods": 0}


def test_an_object_that_means_nothing_known_is_named_without_its_values() -> None:
    pod = {
        "metadata": {"name": "a", "namespace": "shop", "uid": "u"},
        "spec": {"topologySpreadConstraints": [{"topologyKey": "secret-value"}]},
        "status": {"qosClass": "BestEffort"},
    }
    with pytest.raises(UnreadableError, match="shop/a: spec") as raised:
        LiveReader().pod(read_pod(json.dumps(pod)))
    assert "secret-value" not in str(raised.value)
