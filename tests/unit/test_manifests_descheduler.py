"""The descheduler's policy files, in both versions, and ours for rebalancing: what they mean, and
what of them is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from wharfinger.domain.descheduling import (
    DeschedulerProfile,
    DeschedulingPolicy,
    EvictorArgs,
    InterPodAntiAffinity,
    LowNodeUtilization,
    Namespaces,
    PodLifeTime,
    RemoveDuplicates,
    TopologySpread,
)
from wharfinger.domain.placement import ClusterAffinity
from wharfinger.domain.policy import Policy
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.events.intake import Intake, compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.parse import load_files, load_manifests

FILE = Path(__file__).parent / "manifests" / "karpenter.yaml"
HEAD = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n"
OLD = "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\n"
REBALANCE = "apiVersion: wharfinger.io/v1alpha1\nkind: RebalancePolicy\nmetadata: {name: r}\n"


def told(text: str) -> list[str]:
    loaded = load_manifests(text, "f")
    return [str(error) for error in (*loaded.errors, *compile_manifests(loaded.manifests).errors)]


def policy(text: str) -> Policy:
    loaded = load_manifests(text, "f")
    intake = compile_manifests(loaded.manifests)
    assert [str(error) for error in (*loaded.errors, *intake.errors)] == []
    (fact,) = intake.facts
    assert isinstance(fact.data, PolicyApplied)
    return fact.data.policy


def descheduling(text: str) -> DeschedulingPolicy:
    found = policy(text).descheduling
    assert found is not None
    return found


@pytest.fixture(scope="module")
def applied() -> Intake:
    return compile_manifests(load_files([FILE]).manifests)


def known(applied: Intake, key: str) -> Policy:
    (found,) = [
        f.data.policy for f in applied.facts if isinstance(f.data, PolicyApplied) and f.key == key
    ]
    return found


def test_a_policy_file_has_no_name_and_is_read_whole(applied: Intake) -> None:
    assert known(applied, "DeschedulerPolicy//default").descheduling == DeschedulingPolicy(
        (
            DeschedulerProfile(
                "all-of-it",
                EvictorArgs(node_fit=True, min_age_s=300),
                (InterPodAntiAffinity(),),
                (TopologySpread(), RemoveDuplicates()),
            ),
        ),
        per_node=10,
        per_namespace=20,
        total=50,
        every_s=120,
        clusters=("hamar",),
        strict=True,
        steady=2,
        cooldown_s=600,
        return_s=7200,
        nodes=LabelSelector({}, (Requirement("pool", "In", ("general", "spot")),)),
    )


def test_strategies_run_in_the_order_in_which_they_are_enabled() -> None:
    (profile,) = descheduling(
        HEAD + "profiles: [{name: a, plugins: {balance: {enabled: [RemoveDuplicates, "
        "RemovePodsViolatingTopologySpreadConstraint]}}}]\n"
    ).profiles
    assert profile.balance == (RemoveDuplicates(), TopologySpread())


def test_an_older_file_becomes_a_profile_a_strategy(applied: Intake) -> None:
    old = known(applied, "DeschedulerPolicy//older").descheduling
    assert old is not None
    shared = ("SystemCriticalPods", "FailedBarePods", "DaemonSetPods", "PodsWithPVC")
    assert [(p.name, p.evictor.protections) for p in old.profiles] == [
        ("strategy-LowNodeUtilization-profile", shared),
        ("strategy-PodLifeTime-profile", shared),
        ("strategy-RemoveDuplicates-profile", shared),
    ]
    low, life, twins = old.profiles
    assert low.balance == (LowNodeUtilization({"cpu": 20.0}, {"cpu": 50.0}),)
    assert (low.evictor.node_fit, low.evictor.priority) == (True, 1000)
    assert life.deschedule == (PodLifeTime(Namespaces(("ns",)), max_s=86_400, states=("Pending",)),)
    assert twins.balance == (RemoveDuplicates(excluded_owner_kinds=("ReplicaSet",)),)
    assert (old.per_node, old.nodes) == (
        10,
        LabelSelector({}, (Requirement("pool", "In", ("general",)),)),
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "profiles: [{name: a, pluginConfig: [{name: Tidy}]}]",
            "f:3: profiles[0].pluginConfig[0].name: expected one of DefaultE",
        ),
        (
            (
                "profiles: [{name: a, pluginConfig: [{name: PodLifeTime, args: "
                "{maxPodLifetimeSeconds: 1}}]}]"
            ),
            "f:3: profiles[0].pluginConfig[0].args.maxPodLifetimeSeconds: "
            "expected a field of PodLifeTime (did you mean "
            "maxPodLifeTimeSeconds?), got 'maxPodLifetimeSeconds'",
        ),
        (
            (
                "profiles: [{name: a, pluginConfig: [{name: DefaultEvictor, args: "
                "{priorityThreshold: {value: 1, name: x}}}]}]"
            ),
            (
                "f:3: profiles[0].pluginConfig[0].args.priorityThreshold.name: "
                "expected either value or name, got 'x'"
            ),
        ),
        (
            (
                "profiles: [{name: a, pluginConfig: [{name: RemoveDuplicates}, {name: "
                "RemoveDuplicates}]}]"
            ),
            "f:3: profiles[0].pluginConfig[1].name: expected each plugin once",
        ),
        (
            "profiles: [{name: a, plugins: {deschedule: {enabled: [RemoveDuplicates]}}}]",
            (
                "f:3: profiles[0].plugins.deschedule.enabled[0]: expected one of "
                "RemovePodsViolatingNodeTaints"
            ),
        ),
        (
            "profiles: [{name: a, plugins: {balance: {enabled: [LowNodeUtilization]}}}]",
            (
                "f:3: profiles[0].plugins.balance.enabled[0]: expected thresholds of "
                "LowNodeUtilization in pluginConfig"
            ),
        ),
        (
            "profiles: [{name: a}, {name: a}]",
            "f:3: profiles[1].name: expected each profile under a name of its own",
        ),
        ("maxNoOfPodsToEvictTotal: -1", "f:3: maxNoOfPodsToEvictTotal: expected an integer from 0"),
        ("nodeSelector: pool in general", "f:3: nodeSelector: expected a label selector"),
        (
            "metadata: {annotations: {wharfinger.io/every-s: '0'}}",
            'f:3: metadata.annotations["wharfinger.io/every-s"]: expected',
        ),
        ("strategies: {}", "f:3: strategies: expected a field of DeschedulerPolicy"),
    ],
)
def test_a_policy_file_that_cannot_be_is_refused_with_its_line(text: str, line: str) -> None:
    (error,) = told(f"{HEAD}{text}\n")
    assert error.startswith(line), error


def test_every_mistake_in_the_arguments_of_a_plugin_is_told_at_once() -> None:
    args = "thresholds: {cpu: 120}\n      targetThresholds: {cpu: -1}\n      numberOfNode: 3"
    text = (
        f"{HEAD}profiles:\n- name: a\n  pluginConfig:\n  - name: LowNodeUtilization\n    args:\n"
        f"      {args}\n"
    )
    assert [error.partition(": expected")[0] for error in told(text)] == [
        "f:8: profiles[0].pluginConfig[0].args.thresholds.cpu",
        "f:9: profiles[0].pluginConfig[0].args.targetThresholds.cpu",
        "f:10: profiles[0].pluginConfig[0].args.numberOfNode",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("strategies: {Tidy: {enabled: true}}", "f:3: strategies.Tidy: expected one of "),
        (
            "strategies: {LowNodeUtilization: {enabled: true}}",
            (
                "f:3: strategies.LowNodeUtilization.params: expected thresholds of "
                "LowNodeUtilization, got"
            ),
        ),
        (
            (
                "strategies: {PodLifeTime: {enabled: true, params: {namespaces: {include: [a], "
                "exclude: [b]}}}}"
            ),
            "f:3: strategies.PodLifeTime.params: expected either include or exclude (namespaces)",
        ),
        (
            "strategies: {PodLifeTime: {enabled: true, params: {ttl: 1}}}",
            "f:3: strategies.PodLifeTime.params.ttl: expected",
        ),
    ],
)
def test_an_older_file_that_cannot_be_is_refused_with_its_line(text: str, line: str) -> None:
    (error,) = told(f"{OLD}{text}\n")
    assert error.startswith(line), error


# Ours.


def test_rebalancing_is_read_whole(applied: Intake) -> None:
    assert known(applied, "RebalancePolicy//cheaper").rebalancing == RebalancePolicy(
        "cost", ClusterAffinity(labels=LabelSelector({"tier": "gold"})), 300, 15, 20, 3600, 600
    )


def test_rebalancing_has_defaults_for_all_but_what_it_is_for() -> None:
    assert policy(REBALANCE + "spec: {objective: spread}\n").rebalancing == RebalancePolicy(
        "spread"
    )
    assert policy(REBALANCE + "spec: {unschedulableAfter: 2m}\n").rebalancing == RebalancePolicy(
        unschedulable_after_s=120
    )


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (
            "{}",
            (
                "f:4: spec.objective: expected an objective (cost, load or spread), "
                "or unschedulableAfter"
            ),
        ),
        (
            "{objective: peace}",
            "f:4: spec.objective: expected 'cost', 'load' or 'spread', got 'peace'",
        ),
        ("{objective: load, every: 0s}", "f:4: spec.every: expected a duration above 0"),
        ("{objective: load, every: Never}", "f:4: spec.every: expected a duration"),
        (
            "{objective: load, gainPercent: 101}",
            "f:4: spec.gainPercent: expected an integer from 0 to 100",
        ),
        (
            "{objective: load, budget: {percent: 0}}",
            "f:4: spec.budget.percent: expected an integer from 1 to 100",
        ),
        (
            (
                "{objective: load, target: {labelSelector: {matchExpressions: [{key: a, operator: "
                "In}]}}}"
            ),
            (
                "f:4: spec.target.labelSelector.matchExpressions[0].values: "
                "expected at least one value"
            ),
        ),
    ],
)
def test_rebalancing_that_cannot_be_is_refused_with_its_line(spec: str, line: str) -> None:
    (error,) = told(f"{REBALANCE}spec: {spec}\n")
    assert error.startswith(line), error
