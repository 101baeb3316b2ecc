"""Pods that are too old, have failed or fail again and again: everything that is asked must hold,
and of each list one entry."""

from __future__ import annotations

import pytest

from wharfinger.domain import descheduling as d
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_upkeep import ContainerState, Owner, PodCondition, PodUpkeep
from wharfinger.domain.workload import Requirements
from wharfinger.engine.descheduling.run import run
from wharfinger.engine.descheduling.view import ClusterView

SECOND_US = 1_000_000
AT = 10_000 * SECOND_US


def a_pod(name: str, age_s: int = 100, owner: str = "ReplicaSet", **told: object) -> Pod:
    upkeep = PodUpkeep(
        owners=(Owner(owner, name, name),),
        created_us=AT - age_s * SECOND_US,
        **told,  # type: ignore[arg-type]
    )
    return Pod(name, name, Requirements({"cpu": 1}), "a", upkeep=upkeep)


CRASHING = (
    ContainerState("waiting", "CrashLoopBackOff", restarts=4),
    ContainerState("running", restarts=2, init=True),
)
KILLED = (ContainerState("terminated", "OOMKilled", 137),)
PODS = [
    a_pod("young", 10, phase="Running"),
    a_pod("old", 5000, phase="Running"),
    a_pod(
        "older",
        6000,
        phase="Running",
        conditions=(PodCondition("Ready", "False", since_us=AT - 60 * SECOND_US),),
    ),
    a_pod("crashing", phase="Running", containers=CRASHING),
    a_pod("failed", phase="Failed", reason="NodeLost", containers=KILLED),
    a_pod("job", owner="Job", phase="Failed", containers=KILLED),
]


@pytest.mark.parametrize(
    ("strategy", "named"),
    [
        (d.PodLifeTime(max_s=1000), ["older", "old"]),
        (d.PodLifeTime(max_s=5000), ["older"]),
        (d.PodLifeTime(states=("CrashLoopBackOff", "NodeLost")), ["crashing", "failed"]),
        (d.PodLifeTime(max_s=1000, states=("Failed",)), []),
        (d.PodLifeTime(exit_codes=(137,)), ["failed", "job"]),
        (d.PodLifeTime(exit_codes=(137,), owner_kinds=d.OwnerKinds(exclude=("Job",))), ["failed"]),
        (d.PodLifeTime(exit_codes=(137,), owner_kinds=d.OwnerKinds(include=("Job",))), ["job"]),
        (d.PodLifeTime(conditions=(d.ConditionFilter("Ready", "False", since_s=60),)), ["older"]),
        (d.PodLifeTime(conditions=(d.ConditionFilter("Ready", "False", since_s=61),)), []),
        (d.RemoveFailedPods(), ["failed", "job"]),
        (d.RemoveFailedPods(reasons=("NodeLost",)), ["failed"]),
        (d.RemoveFailedPods(min_age_s=101), []),
        (d.RemoveFailedPods(excluded_owner_kinds=("ReplicaSet",)), ["job"]),
        (d.TooManyRestarts(4), ["crashing"]),
        (d.TooManyRestarts(5), []),
        (d.TooManyRestarts(6, init_containers=True), ["crashing"]),
        (d.TooManyRestarts(4, states=("CrashLoopBackOff",)), ["crashing"]),
        (d.TooManyRestarts(4, states=("Pending",)), []),
    ],
)
def test_who_is_named(strategy: d.Strategy, named: list[str]) -> None:
    nodes = [Node(name, {"cpu": 100, "pods": 20}) for name in ("a", "b")]
    policy = d.DeschedulingPolicy((d.DeschedulerProfile("p", deschedule=(strategy,)),))
    assert [e.pod for e in run(policy, ClusterView(AT, nodes, PODS))] == named


def test_the_reason_has_the_numbers() -> None:
    nodes = [Node(name, {"cpu": 100, "pods": 20}) for name in ("a", "b")]
    policy = d.DeschedulingPolicy(
        (d.DeschedulerProfile("p", deschedule=(d.PodLifeTime(max_s=5000),)),)
    )
    (found,) = run(policy, ClusterView(AT, nodes, PODS))
    assert found.reason == "it is 6000 s old, 5000 s at most"
