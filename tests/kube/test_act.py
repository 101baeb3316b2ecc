"""The whole way in a cluster that may be changed: pods that wait for our scheduler are decided and
bound, each to the node of its decision, and no node gets more than it has. What fits nowhere says
so to `kubectl`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.apps import standing_on
from tests.kube.acting import Audit, a_plane, decided, grant, join_for_writing
from tests.kube.collecting import node
from tests.kube.member import Json, Member, namespace
from tests.kube.replaying import replayed, replayed_without_server
from tests.patience import eventually

from wharfinger.domain.actuation import ANNOTATION, Verb
from wharfinger.events.codec import decode
from wharfinger.events.decisions import NodeBarred, PodsUnplaced
from wharfinger.events.effects import EffectAnswer, EffectsObserved
from wharfinger.events.streams import EFFECTS
from wharfinger.history.explain import Explained, account
from wharfinger.runtime.actuation import barred_nodes
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.rights import actuator_rules, own_rules
from wharfinger.runtime.ledger import Ledger, wall_clock
from wharfinger.runtime.service import ServiceContext
from wharfinger.stages.actuator.pod_events import REPORTER
from wharfinger_cli.effect_answers import latest_answers

HOME = "act"
NODES = ("act-1", "act-2", "act-3")
VERBS: tuple[Verb, ...] = ("bind",)
REPLICAS = 24
WAITING = 3
CPU = 1
"""Each pod requests one of the eight of a node."""


def a_deployment(replicas: int, home: str = HOME) -> Json:
    container = {"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": str(CPU)}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": home},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "schedulerName": "wharfinger",
                    "terminationGracePeriodSeconds": 0,
                    "nodeSelector": {"for": home},
                    "containers": [container],
                },
            },
        },
    }


def bound(member: Member) -> dict[str, Json]:
    found = member.items("pods", "-n", HOME)
    return {one["metadata"]["name"]: one for one in found if one["spec"].get("nodeName")}


async def test_waiting_pods_are_decided_and_bound_and_no_node_gets_more_than_it_has(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    grant(member, VERBS)
    member.apply(namespace(HOME), *(node(name, **{"for": HOME}) for name in NODES))
    join_for_writing(tmp_path, member, VERBS)
    audit, stream = Audit(member), f"cluster/{member.name}"
    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        member.apply(a_deployment(REPLICAS))
        await eventually(lambda: len(bound(member)) == REPLICAS)
        # Larger than the room: what fits is bound, and the rest waits.
        member.apply(a_deployment(REPLICAS + WAITING))
        await eventually(lambda: len(member.items("pods", "-n", HOME)) == REPLICAS + WAITING)
        waits = await _waits_are_seen(member, ledger)
        rows = {str(row.id) for row in await decided(ledger, stream, "placed")}
        for one in bound(member).values():
            assert one["metadata"]["annotations"][f"{ANNOTATION}decision"] in rows
    # Another process begins: it finds what was written, and says it once more as the same Event.
    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        await eventually(lambda: all(_said_again(member, name) for name in waits))
    there = bound(member)
    assert len(there) == REPLICAS
    on = Counter(one["spec"]["nodeName"] for one in there.values())
    assert all(count * CPU <= 8 for count in on.values())
    calls = Counter(name for _, name, code in audit.writes("pods/binding") if code == 201)
    assert calls == dict.fromkeys(there, 1)
    assert _marks(audit) == dict.fromkeys(waits, 1), "only when there is something new to say"
    assert audit.unused([*actuator_rules(VERBS), *own_rules()]) == []
    assert [call for call in audit.calls() if call["responseStatus"]["code"] == 403] == []
    assert replayed_without_server(member, database_url, tmp_path) > 1


async def _waits_are_seen(member: Member, ledger: Ledger) -> set[str]:
    """What `kubectl` shows of the pods that fit nowhere is what explain says."""

    def marked() -> dict[str, Json]:
        found = {one["metadata"]["name"]: one for one in member.items("pods", "-n", HOME)}
        return {name: said for name, one in found.items() if (said := _unscheduled(one))}

    await eventually(lambda: len(marked()) == WAITING)
    shown = await account(ledger, f"{HOME}/web-deployment@{member.name}")
    assert isinstance(shown, Explained)
    assert shown.decision.again.same
    assert isinstance(shown.decision.data, PodsUnplaced)
    sentence = shown.decision.data.message
    assert "Insufficient cpu" in sentence
    assert {(said["reason"], said["message"]) for said in marked().values()} == {
        ("Unschedulable", sentence)
    }
    waits = set(marked())
    await eventually(lambda: set(_events(member, "FailedScheduling")) == waits)
    assert {one["note"] for one in _events(member, "FailedScheduling").values()} == {sentence}
    await eventually(lambda: set(_events(member, "Scheduled")) == set(bound(member)))
    for name, event in _events(member, "Scheduled").items():
        on = bound(member)[name]["spec"]["nodeName"]
        assert f"Successfully assigned {HOME}/{name} to {on} by cluster/" in event["note"]
    return waits


async def test_a_node_that_takes_no_pod_is_barred_and_its_pods_go_elsewhere(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    """The API server refuses bindings to one node, by a policy of those who run the cluster. The
    kubelet of another does not admit pods. What they say becomes a decision that is replayed."""
    grant(member, VERBS)
    home, names = "barred", ("barred-1", "barred-2", "barred-3")
    refusing, rejecting = names[:2]
    member.apply(namespace(home), *(node(name, **{"for": home}) for name in names))
    member.await_nodes(names)
    member.apply(*_refusing(refusing))
    join_for_writing(tmp_path, member, VERBS)
    try:
        async with a_plane(backend, database_url, topic_prefix, tmp_path) as context:
            await eventually(lambda: _is_refused(member, refusing))
            member.apply(a_deployment(3, home))
            await eventually(lambda: len(_running(member, home)) == 3)
            (pod, *_) = [name for name, on in _running(member, home).items() if on == rejecting]
            failed = '{"status":{"phase":"Failed","reason":"OutOfcpu"}}'
            patch = ("--subresource=status", "--type=merge", "-p", failed)
            member.kubectl("patch", "pod", pod, "-n", home, *patch)
            stream = f"cluster/{member.name}"

            async def barred() -> dict[str, NodeBarred]:
                rows = [row.data() for row in await decided(ledger, stream, "barred")]
                return {data.node: data for data in rows if isinstance(data, NodeBarred)}

            async def both() -> bool:
                return (await barred()).keys() == {refusing, rejecting}

            await eventually(both)
            await eventually(lambda: len(_running(member, home)) == 3)
            assert refusing not in _running(member, home).values()
            by_node = await barred()
            assert "expected another node" in by_node[refusing].message
            assert by_node[rejecting].reason == "OutOfcpu"
            assert by_node[refusing].binding == f"{home}/web-deployment@{member.name}"
            shown = await account(ledger, by_node[refusing].binding)
            assert isinstance(shown, Explained)
            assert shown.decision.again.same
            answers = await _answers(context)
            assert {item.outcome for item in answers} >= {"done", "refused", "rejected"}
            assert {item.code for item in answers if item.outcome == "refused"} == {422}
            latest = await latest_answers(backend, context.wire(EFFECTS.name))
            assert {item.outcome for item in latest.values()} >= {"done", "rejected"}
            in_force = await barred_nodes(ledger, [member.name], wall_clock())
            assert [bar.node for bar in in_force] == [refusing, rejecting]
    finally:
        member.kubectl("delete", "validatingadmissionpolicies", "--all")
    assert replayed(database_url, tmp_path) > 1


def _refusing(name: str) -> list[Json]:
    """A policy of the API server by which no pod is bound to the node."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
    }
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [
            {"expression": f"object.target.name != '{name}'", "message": "expected another node"}
        ],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "not-there"}}
    return [
        {**kind, "kind": "ValidatingAdmissionPolicy", "spec": policy},
        {
            **kind,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": "not-there", "validationActions": ["Deny"]},
        },
    ]


def _is_refused(member: Member, name: str) -> bool:
    """Whether the server has taken in the policy: it refuses to bind a pod that is not there."""
    target = {"apiVersion": "v1", "kind": "Node", "name": name}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "no"}, "target": target}
    path = "/api/v1/namespaces/barred/pods/no/binding"
    try:
        member.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    except RuntimeError as error:
        return "expected another node" in str(error)
    raise AssertionError("a pod that is not there was bound")


def _running(member: Member, home: str) -> dict[str, str]:
    """Name of a pod that has a node and has not finished -> its node."""
    return {
        one["metadata"]["name"]: one["spec"]["nodeName"]
        for one in member.items("pods", "-n", home)
        if one["spec"].get("nodeName") and one["status"]["phase"] not in ("Failed", "Succeeded")
    }


async def _answers(context: ServiceContext) -> list[EffectAnswer]:
    found: list[EffectAnswer] = []
    for record in await standing_on(context, EFFECTS):
        data = decode(record.value or b"").data
        assert isinstance(data, EffectsObserved)
        found += data.items
    return found


def _unscheduled(one: Json) -> Json | None:
    """Its condition PodScheduled while that is false."""
    said = one["status"].get("conditions", [])
    found = [c for c in said if c["type"] == "PodScheduled" and c["status"] == "False"]
    return found[0] if found else None


def _events(member: Member, reason: str) -> dict[str, Json]:
    """Name of the pod -> the Event about it."""
    found = member.items("events.events.k8s.io", "-n", HOME)
    ours = [one for one in found if one.get("reportingController") == REPORTER]
    return {one["regarding"]["name"]: one for one in ours if one["reason"] == reason}


def _said_again(member: Member, name: str) -> bool:
    event = _events(member, "FailedScheduling")[name]
    return bool(event.get("series", {}).get("count", 0) >= 2)


def _marks(audit: Audit) -> dict[str, int]:
    return Counter(name for _, name, code in audit.writes("pods/status") if code == 200)
