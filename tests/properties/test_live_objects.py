"""Objects of an API server are read two ways, and both give the same domain value."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.live_objects import NODES, PODS, Json

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.pod_workload import COMPLETION_INDEX, binding_of, index_of
from wharfinger.manifests.kubernetes.core import NodeManifest, PodManifest, pod_of, waiting_of
from wharfinger.manifests.kubernetes.live import LiveNode, LivePod, LiveReader, UnreadableError
from wharfinger.manifests.model import LIVE
from wharfinger.stages.collector import ObservedCluster
from wharfinger_collector.sighting import LiveDecoder, PodSink

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


@settings(max_examples=examples(60))
@given(PODS)
def test_the_fast_way_and_the_models_give_the_same_waiting_pod(pod: Json) -> None:
    pod["spec"].pop("nodeName", None)
    fast = LiveReader().waiting(read_pod(json.dumps(pod)))
    assert fast == waiting_of(PodManifest.model_validate(pod, context=LIVE))


@pytest.mark.parametrize(
    ("controller", "name", "labels", "binding", "index"),
    [
        (
            ("ReplicaSet", "web-6b7"),
            "web-6b7-x2",
            {"pod-template-hash": "6b7"},
            "web-deployment",
            -1,
        ),
        (("ReplicaSet", "web-6b7"), "web-6b7-x2", {}, "web-6b7-replicaset", -1),
        (("StatefulSet", "db"), "db-2", {}, "db-statefulset", 2),
        (("StatefulSet", "db"), "db-2", {"apps.kubernetes.io/pod-index": "2"}, "db-statefulset", 2),
        (("Job", "sum"), "sum-3-x2", {COMPLETION_INDEX: "3"}, "sum-job", 3),
        (("Job", "sum"), "sum-x2", {}, "sum-job", -1),
        (("Job", "sum"), "sum-x2", {COMPLETION_INDEX: "9" * 30}, "sum-job", -1),
        (("", ""), "shell", {}, "shell-pod", -1),
    ],
)
def test_the_binding_follows_the_controllers(
    controller: tuple[str, str], name: str, labels: dict[str, str], binding: str, index: int
) -> None:
    assert binding_of("shop", name, labels, controller) == f"shop/{binding}"
    assert index_of(name, labels, controller) == index


def test_pods_that_belong_to_their_node_have_no_binding() -> None:
    assert binding_of("shop", "log-x2", {}, ("DaemonSet", "log")) == ""
    assert binding_of("kube-system", "etcd-n1", {}, ("Node", "n1")) == ""


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


# --- pods that finish, on their way into the state of the cluster


def live_pod(phase: str, spec: str = '"containers":[]') -> msgspec.Raw:
    return msgspec.Raw(
        b'{"metadata":{"name":"a","namespace":"shop","uid":"u"},"spec":{"nodeName":"n1",%b},'
        b'"status":{"phase":"%b","qosClass":"BestEffort"}}' % (spec.encode(), phase.encode())
    )


def a_sink() -> tuple[ObservedCluster, PodSink, LiveDecoder]:
    facts = ObservedCluster(Cluster("oslo"))
    return facts, PodSink(facts, lambda: 0, lambda: None), LiveDecoder()


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "watched"])
def test_a_pod_that_finishes_leaves_its_node_and_is_known_as_finished(listed: bool) -> None:
    facts, sink, decoder = a_sink()
    sink.upsert(decoder.pod(live_pod("Running")), "1")
    ended = decoder.pod(live_pod("Failed"))
    if listed:
        sink.replace([ended], "2")
    else:
        sink.upsert(ended, "2")
    assert facts.pod("u") is None
    found = facts.finished("u")
    assert found is not None
    assert (found.node, found.upkeep and found.upkeep.phase) == ("n1", "Failed")
    sink.remove(ended, "3")
    assert facts.finished("u") is None


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "watched"])
def test_a_finished_pod_that_cannot_be_read_leaves_its_node_and_the_facts_are_incomplete(
    listed: bool,
) -> None:
    facts, sink, decoder = a_sink()
    sink.upsert(decoder.pod(live_pod("Running")), "1")
    wrong = '"containers":[{"resources":{"requests":{"cpu":"much"}}}]'
    ended = decoder.pod(live_pod("Failed", wrong))
    if listed:
        sink.replace([ended], "2")
    else:
        sink.upsert(ended, "2")
    assert (facts.pod("u"), facts.finished("u")) == (None, None)
    assert facts.cluster.conditions == {"FactsComplete": "False"}
    sink.upsert(decoder.pod(live_pod("Failed")), "3")
    assert facts.finished("u") is not None
    assert facts.cluster.conditions == {}


def test_a_right_that_was_taken_away_is_said_and_nothing_is_forgotten() -> None:
    facts, sink, decoder = a_sink()
    sink.upsert(decoder.pod(live_pod("Running")), "1")
    for why, refused in (
        ("the connection broke", False),
        ("403 Forbidden: pods is forbidden", True),
    ):
        sink.broken(why)
        assert sink.refused is refused
        facts.condition("MayReadPod", not sink.refused, 1)
        facts.observe_cluster(Cluster("oslo", conditions={"Ready": "True"}), 2)
        said = {"MayReadPod": "False"} if refused else {}
        assert facts.cluster.conditions == {"Ready": "True", **said}
    assert facts.pod("u") is not None
    sink.alive("2")
    assert not sink.refused
