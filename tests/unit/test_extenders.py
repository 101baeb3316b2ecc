"""Extenders: the messages of their protocol, as a kube-scheduler writes and reads them, and what
follows from an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.scheduler import Extender, ManagedResource
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework import extenders
from wharfinger.engine.framework.extenders import ExtenderFilterResult, Victims
from wharfinger.engine.framework.status import unresolvable, unschedulable

CACHING = Extender(
    "http://extender/", "filter", "prioritize", "preempt", "bind", node_cache_capable=True
)
PLAIN = Extender("http://extender", "filter")
POD = Pod("u1", "web", Requirements({"cpu": 500}, pod=PodTraits("shop", {"app": "web"})))
OSLO = Node("oslo", {"cpu": 4000, "memory": 2**30}, labels={"zone": "east"})
BERGEN = Node("bergen", {"cpu": 4000})


def body(raw: bytes) -> Any:
    return json.loads(raw)


# Asking.


def test_an_extender_is_asked_only_about_pods_that_request_what_it_manages() -> None:
    fpga = Extender(
        "http://x",
        resources=(ManagedResource("example.com/fpga"), ManagedResource("nvidia.com/gpu")),
    )
    assert extenders.interested(PLAIN, Requirements())
    assert not extenders.interested(fpga, Requirements({"cpu": 1000}))
    assert extenders.interested(fpga, Requirements({"example.com/fpga": 1}))
    assert extenders.interested(fpga, Requirements(devices=(DeviceRequest(1),)))


def test_one_that_knows_the_nodes_is_told_their_names_and_another_all_of_them() -> None:
    named = body(extenders.nodes_body(CACHING, POD, [OSLO, BERGEN]))
    assert (named["NodeNames"], named["Nodes"]) == (["oslo", "bergen"], None)
    assert named["Pod"]["metadata"] == {
        "name": "web",
        "namespace": "shop",
        "uid": "u1",
        "labels": {"app": "web"},
    }
    assert named["Pod"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m"}}
    whole = body(extenders.nodes_body(PLAIN, POD, [OSLO]))
    assert whole["NodeNames"] is None
    (node,) = whole["Nodes"]["items"]
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "1Gi"}
    assert (
        extenders.url(CACHING, "filter")
        == extenders.url(PLAIN, "filter")
        == "http://extender/filter"
    )


def test_victims_are_told_by_uid_to_one_that_knows_the_pods_and_in_full_to_another() -> None:
    asked = {"oslo": ([POD], 2)}
    meta = body(extenders.preempt_body(CACHING, POD, asked))
    assert meta["NodeNameToMetaVictims"] == {
        "oslo": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 2}
    }
    assert meta["NodeNameToVictims"] == {}
    full = body(extenders.preempt_body(PLAIN, POD, asked))
    assert full["NodeNameToVictims"]["oslo"]["Pods"][0]["metadata"]["uid"] == "u1"
    assert full["NodeNameToMetaVictims"] == {}


def test_a_binding_is_told_by_names() -> None:
    assert body(extenders.bind_body(POD, "oslo")) == {
        "PodName": "web",
        "PodNamespace": "shop",
        "PodUID": "u1",
        "Node": "oslo",
    }


# Answers.


def test_an_answer_is_read_whatever_the_case_of_its_keys() -> None:
    answer = json.dumps(
        {
            "nodeNames": ["oslo"],
            "failedNodes": {"bergen": "wet"},
            "failedAndUnresolvableNodes": None,
        }
    )
    assert extenders.filter_answer(answer, CACHING) == ExtenderFilterResult(
        ("oslo",), {"bergen": "wet"}
    )
    whole = {
        "Nodes": {"items": [{"metadata": {"name": "oslo"}}]},
        "FailedAndUnresolvableNodes": {"bergen": "sunk"},
    }
    assert extenders.filter_answer(json.dumps(whole), PLAIN) == ExtenderFilterResult(
        ("oslo",), {}, {"bergen": "sunk"}
    )
    assert extenders.filter_answer('{"Error": "on fire"}', PLAIN) == ExtenderFilterResult(
        (), error="on fire"
    )
    assert extenders.priorities_answer('[{"Host": "oslo", "Score": 7}, {"host": "bergen"}]') == {
        "oslo": 7,
        "bergen": 0,
    }
    assert extenders.priorities_answer("null") == {}
    assert extenders.bind_answer('{"Error": ""}') == ""
    left = extenders.preempt_answer(
        '{"NodeNameToMetaVictims": {"oslo": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 1}}}',
        {"oslo": ([POD], 2)},
    )
    assert left == {"oslo": Victims(("u1",), 1)}


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "no",
        "[]",
        "null",
        '{"NodeNames": "oslo"}',
        '{"Nodes": [1]}',
        '{"FailedNodes": ["oslo"]}',
        '{"Error": 3}',
        '{"Nodes": {"items": [{"metadata": null}]}}',
        '{"FailedNodes": {"oslo": 1}}',
        '{"NodeNames": [null]}',
    ],
)
def test_a_filter_answer_that_makes_no_sense_is_one_line(answer: str) -> None:
    with pytest.raises(ValueError, match="expected") as raised:
        extenders.filter_answer(answer, CACHING)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "answer",
    [
        "{}",
        "[1]",
        '[{"Host": "oslo", "Score": 11}]',
        '[{"Host": "oslo", "Score": true}]',
        '[{"Score": 1}]',
    ],
)
def test_priorities_that_make_no_sense_are_one_line(answer: str) -> None:
    with pytest.raises(ValueError, match="expected") as raised:
        extenders.priorities_answer(answer)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "answer",
    [
        '{"NodeNameToMetaVictims": {"bergen": {}}}',
        '{"NodeNameToMetaVictims": {"oslo": {"Pods": [{"UID": "u2"}]}}}',
        '{"NodeNameToMetaVictims": {"oslo": {"Pods": [], "NumPDBViolations": "x"}}}',
        "[]",
    ],
)
def test_nobody_is_evicted_who_was_not_asked_about(answer: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        extenders.preempt_answer(answer, {"oslo": ([POD], 0)})


# What follows.


def test_who_is_refused_in_both_ways_is_beyond_help_and_who_is_not_named_is_out() -> None:
    said = ExtenderFilterResult(("d",), {"a": "x", "b": "x"}, {"b": "y"})
    left, refused = extenders.filtered(["a", "b", "c", "d"], said)
    assert left == ("d",)
    assert refused == {
        "a": unschedulable("x"),
        "b": unresolvable("y"),
        "c": unresolvable(extenders.LEFT_OUT),
    }
    with pytest.raises(ValueError, match="nodes that it was asked about, got 'z'"):
        extenders.filtered(["a"], ExtenderFilterResult(("z",)))


def test_priorities_count_ten_times_their_weight_and_only_where_the_pod_fits() -> None:
    totals = extenders.with_priorities(
        {"a": 100, "b": 200}, [(2, {"a": 10, "z": 9}), (1, {"b": 3})]
    )
    assert totals == {"a": 300, "b": 230}


# Being asked.


def test_what_we_ask_can_be_read_by_whoever_is_asked() -> None:
    asked = extenders.asked_about_nodes(extenders.nodes_body(PLAIN, POD, [OSLO, BERGEN]))
    assert (
        asked.pod.uid,
        asked.pod.requirements.requests,
        asked.pod.requirements.traits.namespace,
    ) == ("u1", {"cpu": 500}, "shop")
    assert asked.nodes == (OSLO, BERGEN)
    named = extenders.asked_about_nodes(extenders.nodes_body(CACHING, POD, [OSLO, BERGEN]))
    assert (named.nodes, named.names) == (None, ("oslo", "bergen"))
    victims = {"oslo": ([POD], 1)}
    full = extenders.asked_to_preempt(extenders.preempt_body(PLAIN, POD, victims))
    meta = extenders.asked_to_preempt(extenders.preempt_body(CACHING, POD, victims))
    assert full.victims == meta.victims == {"oslo": Victims(("u1",), 1)}
    assert (full.full, meta.full) == (True, False)
    bound = extenders.asked_to_bind(extenders.bind_body(POD, "oslo"))
    assert (bound.name, bound.namespace, bound.uid, bound.node) == ("web", "shop", "u1", "oslo")


AS_SENT: Any = {
    "Pod": {
        "metadata": {
            "name": "web-5d8f7c9b6d-x2x7z",
            "generateName": "web-5d8f7c9b6d-",
            "namespace": "shop",
            "uid": "0f6b7e2e",
            "resourceVersion": "12345",
            "creationTimestamp": "2025-11-01T10:00:00Z",
            "labels": {"app": "web"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "web-5d8f7c9b6d",
                    "uid": "aa",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {}}],
        },
        "spec": {
            "volumes": [
                {
                    "name": "token",
                    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
                }
            ],
            "containers": [
                {
                    "name": "c",
                    "image": "nginx",
                    "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}},
                    "volumeMounts": [{"name": "token", "readOnly": True, "mountPath": "/var"}],
                    "imagePullPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "terminationGracePeriodSeconds": 30,
        },
        "status": {
            "phase": "Pending",
            "qosClass": "Burstable",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "reason": "Unschedulable",
                }
            ],
        },
    },
    "Nodes": {
        "metadata": {},
        "items": [
            {
                "metadata": {
                    "name": "oslo",
                    "uid": "u",
                    "creationTimestamp": "2025-11-01T10:00:00Z",
                    "labels": {"zone": "east"},
                },
                "spec": {
                    "podCIDR": "10.0.0.0/24",
                    "podCIDRs": ["10.0.0.0/24"],
                    "providerID": "kind://oslo",
                },
                "status": {
                    "capacity": {"cpu": "8", "pods": "110"},
                    "allocatable": {"cpu": "8", "hugepages-1Gi": "0", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.3"}],
                    "volumesInUse": None,
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                    "nodeInfo": {"architecture": "amd64", "swap": {"capacity": 0}},
                    "images": [{"names": ["docker.io/library/nginx:latest"], "sizeBytes": 100}],
                    "runtimeHandlers": [
                        {"name": "", "features": {"recursiveReadOnlyMounts": True}}
                    ],
                },
            }
        ],
    },
    "NodeNames": None,
}
"""With all that an API server adds to its objects."""


def test_a_question_is_read_as_a_kube_scheduler_sends_it() -> None:
    asked = extenders.asked_about_nodes(json.dumps(AS_SENT))
    assert (asked.pod.uid, asked.pod.requirements.requests) == (
        "0f6b7e2e",
        {"cpu": 100, "memory": 2**30},
    )
    assert asked.pod.requirements.traits.owner == "ReplicaSet"
    assert asked.nodes is not None
    assert asked.nodes[0].allocatable["cpu"] == 8000
    victims = {
        "Pod": AS_SENT["Pod"],
        "NodeNameToVictims": {"oslo": {"Pods": [AS_SENT["Pod"]], "NumPDBViolations": 1}},
    }
    assert extenders.asked_to_preempt(json.dumps(victims)).victims == {
        "oslo": Victims(("0f6b7e2e",), 1)
    }


def test_a_reply_has_the_form_of_the_question_and_can_be_read_by_who_asked() -> None:
    question = extenders.nodes_body(PLAIN, POD, [OSLO, BERGEN])
    asked = extenders.asked_about_nodes(question)
    refused = {"bergen": unresolvable("sunk", "wet")}
    reply = extenders.filter_reply(asked, refused, extenders.full_nodes(question))
    assert extenders.filter_answer(reply, PLAIN) == ExtenderFilterResult(
        ("oslo",), {}, {"bergen": "sunk, wet"}
    )
    assert body(reply)["Nodes"]["items"] == [body(question)["Nodes"]["items"][0]]
    named = extenders.nodes_body(CACHING, POD, [OSLO, BERGEN])
    reply = extenders.filter_reply(
        extenders.asked_about_nodes(named), {"oslo": unschedulable("full")}
    )
    assert extenders.filter_answer(reply, CACHING) == ExtenderFilterResult(
        ("bergen",), {"oslo": "full"}
    )
    assert extenders.full_nodes(named) == ()
    assert extenders.priorities_answer(
        extenders.priorities_reply({"oslo": 700, "bergen": 349})
    ) == {"oslo": 10, "bergen": 4}
    assert extenders.priorities_answer(extenders.priorities_reply({"oslo": 0})) == {"oslo": 0}
    victims = {"oslo": Victims(("u1",), 1)}
    assert (
        extenders.preempt_answer(extenders.preempt_reply(victims), {"oslo": ([POD], 5)}) == victims
    )
    assert extenders.bind_answer(extenders.bind_reply("no")) == "no"


@pytest.mark.parametrize(
    "question",
    [
        "",
        "[]",
        "{}",
        '{"Pod": 3}',
        '{"Pod": {"metadata": {}}}',
        '{"Pod": {"metadata": {"name": "A B"}}}',
    ],
)
def test_a_question_that_makes_no_sense_is_one_line(question: str) -> None:
    for read in (extenders.asked_about_nodes, extenders.asked_to_preempt, extenders.asked_to_bind):
        with pytest.raises(ValueError, match="expected") as raised:
            read(question)
        assert "\n" not in str(raised.value)
