"""What makes it worth trying a pod again that one node's rules refused: only what can have
helped."""

from __future__ import annotations

import msgspec
import pytest
from tests.framework_world import a_node, a_pod, only

from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import HostPort, VolumeUse
from wharfinger.domain.scheduler import Arguments, FitArgs
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.protocols import ClusterEvent, Requeue


def helps(
    plugin: str,
    event: ClusterEvent,
    pod: Pod,
    old: object,
    new: object,
    arguments: Arguments | None = None,
) -> bool:
    asked = only(plugin, arguments=arguments).plugins[plugin]
    assert isinstance(asked, Requeue)
    return any(
        hint.event == event and (hint.helps is None or hint.helps(pod, old, new))
        for hint in asked.hints()
    )


@pytest.mark.parametrize(
    "plugin",
    [
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeZone",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "DynamicResources",
    ],
)
def test_a_new_node_may_help_any_pod(plugin: str) -> None:
    assert helps(plugin, "node/add", a_pod("p"), None, a_node("n"))


def test_a_node_that_is_too_small_altogether_does_not_help() -> None:
    pod = a_pod("p", cpu=3000)
    assert helps("NodeResourcesFit", "node/allocatable", pod, None, a_node("n", cpu=3000))
    assert not helps("NodeResourcesFit", "node/allocatable", pod, None, a_node("n", cpu=2999))


def test_what_is_left_to_others_is_not_waited_for() -> None:
    pod = Pod("p", "p", Requirements({"example.com/port": 1}))
    left = Arguments(fit=FitArgs(ignored_groups=("example.com",)))
    assert not helps("NodeResourcesFit", "node/add", pod, None, a_node("n"))
    assert helps("NodeResourcesFit", "node/add", pod, None, a_node("n"), left)


def test_a_label_helps_when_the_pod_now_selects_the_node() -> None:
    pod = Pod("p", "p", Requirements(node_selector={"disk": "ssd"}))
    labelled = msgspec.structs.replace(a_node("n"), labels={"disk": "ssd"})
    assert helps("NodeAffinity", "node/label", pod, a_node("n"), labelled)
    assert not helps("NodeAffinity", "node/label", pod, labelled, a_node("n"))


def test_a_pod_that_goes_helps_when_it_had_what_is_waited_for() -> None:
    def with_port(port: int) -> Pod:
        return a_pod("p", ports=(HostPort(port),))

    assert helps("NodePorts", "pod/remove", with_port(80), with_port(80), None)
    assert not helps("NodePorts", "pod/remove", with_port(80), with_port(81), None)

    def with_volume(claim: str, namespace: str = "") -> Pod:
        return a_pod("p", namespace=namespace, volumes=(VolumeUse(claim),))

    assert helps(
        "VolumeRestrictions", "pod/remove", with_volume("a"), with_volume("a", "default"), None
    )
    assert not helps(
        "VolumeRestrictions", "pod/remove", with_volume("a"), with_volume("a", "other"), None
    )
    assert not helps("VolumeRestrictions", "pod/remove", with_volume("a"), with_volume("b"), None)
    assert helps("NodeVolumeLimits", "pod/remove", with_volume("a"), with_volume("b"), None)
    assert not helps("NodeVolumeLimits", "pod/remove", with_volume("a"), a_pod("q"), None)
    assert not helps(
        "DynamicResources", "pod/remove", a_pod("p", resource_claims=("c",)), a_pod("q"), None
    )


@pytest.mark.parametrize(
    ("plugin", "event"),
    [("NodeResourcesFit", "node/add"), ("NodeAffinity", "node/label"), ("NodePorts", "pod/remove")],
)
def test_an_event_without_its_objects_is_no_reason_to_leave_a_pod_waiting(
    plugin: str, event: ClusterEvent
) -> None:
    assert helps(plugin, event, a_pod("p", cpu=10**6), None, None)
