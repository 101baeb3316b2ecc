"""The example of nodes on a whole plane: where the pods of molde go, and why there.

From the files to the nodes, with every stage between; nothing of it is told by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.intake import compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.parse import load_files, load_manifests
from wharfinger.stages.world import World

EXAMPLE = Path(__file__).parents[2] / "examples" / "nodes"
HALLS = {
    "molde-1a": "middle-1",
    "molde-1b": "middle-1",
    "molde-2a": "middle-2",
    "molde-2b": "middle-2",
}


class Molde:
    def __init__(self) -> None:
        self.world = World()
        self.told = 0
        self.policies: list[Policy] = []

    def tell(self, *facts: Value) -> None:
        events = []
        for fact in facts:
            self.told += 1
            events.append(
                made(fact, id=derived_id("told", self.told), source="/test", subject="test")
            )
        self.world.tell(events, self.world.at + 10**6)

    def apply(self, *texts: str) -> None:
        loaded = [load_manifests(text, "file.yaml") for text in texts] or [load_files([EXAMPLE])]
        intake = compile_manifests([m for one in loaded for m in one.manifests], self.policies)
        assert [*intake.errors, *(e for one in loaded for e in one.errors)] == []
        self.policies += [
            fact.data.policy for fact in intake.facts if isinstance(fact.data, PolicyApplied)
        ]
        self.tell(*[fact.data for fact in intake.facts])

    def on_nodes(self, binding: str) -> Counter[str]:
        (state,) = self.world.cluster_states()
        held = state.book.held.get(f"quay/{binding}")
        return (
            Counter() if held is None else Counter(replica.node for replica in held.placed.values())
        )


@pytest.fixture(scope="module")
def molde() -> Molde:
    plane = Molde()
    plane.apply()
    return plane


def test_the_pilots_are_spread_over_the_halls_each_on_a_node_of_its_own(molde: Molde) -> None:
    pilots = molde.on_nodes("pilot-deployment")
    assert set(pilots.values()) == {1}
    assert sorted(HALLS[node] for node in pilots) == [
        "middle-1",
        "middle-1",
        "middle-2",
        "middle-2",
    ]


def test_the_tide_tables_are_reckoned_together(molde: Molde) -> None:
    assert sum(molde.on_nodes("tide-tables-job").values()) == 6


def test_the_ledger_lies_where_its_image_does(molde: Molde) -> None:
    assert set(molde.on_nodes("ledger-deployment")) == {"molde-1b"}


def another(name: str, replicas: int, pod: str, meta: str = "") -> str:
    return f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: quay}}
spec: {{replicas: {replicas}, selector: {{}}, template: {{metadata: {{{meta}}}, spec: {pod}}}}}
"""


def test_a_port_that_somebody_elses_pod_holds_keeps_a_node_closed(molde: Molde) -> None:
    ports = "ports: [{containerPort: 80, hostPort: 8080}]"
    molde.apply(
        another(
            "signal", 4, f"{{containers: [{{{ports}, resources: {{requests: {{cpu: 100m}}}}}}]}}"
        )
    )
    assert molde.on_nodes("signal-deployment") == Counter(
        {"molde-1a": 1, "molde-1b": 1, "molde-2a": 1}
    )


def test_a_group_that_has_no_room_whole_is_not_begun(molde: Molde) -> None:
    label = "labels: {scheduling.x-k8s.io/pod-group: regatta}"
    group = (
        "apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\n"
        "metadata: {name: regatta, namespace: quay}\n"
        "spec: {minMember: 8}\n"
    )
    pod = "{containers: [{resources: {requests: {cpu: 3}}}]}"
    molde.apply(group, another("regatta", 8, pod, label))
    assert molde.on_nodes("regatta-deployment") == Counter()
    molde.apply(group.replace("minMember: 8", "minMember: 2"), another("regatta", 2, pod, label))
    assert molde.on_nodes("regatta-deployment").total() == 2


def test_what_molde_says_of_itself_reaches_those_who_place_there(molde: Molde) -> None:
    (state,) = molde.world.cluster_states()
    objects = state.book.objects
    assert [n.name for n in objects.namespaces] == ["quay"]
    assert [s.name for s in objects.selecting] == ["pilot"]
    assert [(b.name, b.allowed) for b in objects.budgets] == [("pilot", 1)]
