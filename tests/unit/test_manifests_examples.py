"""The examples are true: each says what it says it does, and the broken ones break as the documents
show."""

from __future__ import annotations

from pathlib import Path

import pytest

from wharfinger.domain.binding import Binding
from wharfinger.domain.descheduling import name_of
from wharfinger.domain.node_pool import NodeBudget
from wharfinger.domain.placement import ReplicaLimit, Steadiness
from wharfinger.domain.policy import FederatedQuota
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import (
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
)
from wharfinger.events.intake import Intake, compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.kinds import KINDS
from wharfinger.manifests.parse import load_files

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = (
    "fleet",
    "policies",
    "workloads",
    "ocm",
    "beyond",
    "upkeep",
    "crane",
    "karpenter",
    "nodes",
    "descheduler",
    "rebalance",
)
APART = ("broken", "consolidation", "consumer", "refused", "tide", "whatif")
"""Read by themselves: what is wrong, one workload in several sizes, policies to compare with; and
programs, which `integration/test_cli.py` runs."""


@pytest.fixture(scope="module")
def applied() -> Intake:
    loaded = load_files([EXAMPLES / folder for folder in FOLDERS])
    assert [str(e) for e in loaded.errors] == []
    intake = compile_manifests(loaded.manifests)
    assert [str(e) for e in intake.errors] == []
    return intake


def test_every_folder_is_read() -> None:
    assert sorted(p.name for p in EXAMPLES.iterdir() if p.is_dir()) == sorted([*FOLDERS, *APART])


def test_each_workload_falls_under_the_policy_its_comment_names(applied: Intake) -> None:
    assert {
        f.key: f.data.binding.policy for f in applied.facts if isinstance(f.data, BindingRequested)
    } == {
        "harbour/booking-deployment": "PropagationPolicy/harbour/two-to-one",
        "harbour/crane-planner-deployment": "PropagationPolicy/harbour/by-room",
        "harbour/tide-gauge-deployment": "PropagationPolicy/harbour/everywhere",
        "harbour/node-lamp-daemonset": "PropagationPolicy/harbour/everywhere",
        "harbour/tariff-configmap": "PropagationPolicy/harbour/everywhere",
        "harbour/train-eta-job": "ClusterPropagationPolicy//few-clusters",
        "harbour/read-plates-deployment": "ClusterPropagationPolicy//few-clusters",
        "harbour/ferry-desk-deployment": "PropagationPolicy/harbour/home-first",
        "harbour/radar-deployment": "PropagationPolicy/harbour/steady",
        "yard/one-off-pod": "",
        "quay/pilot-deployment": "PropagationPolicy/quay/in-molde",
        "quay/ledger-deployment": "PropagationPolicy/quay/in-molde",
        "quay/tide-tables-job": "PropagationPolicy/quay/in-molde",
    }


def asked(applied: Intake, name: str) -> Binding:
    (binding,) = [
        f.data.binding
        for f in applied.facts
        if isinstance(f.data, BindingRequested) and f.key == name
    ]
    return binding


def test_the_ferry_desks_overflow_to_bergen_and_then_to_tromso(applied: Intake) -> None:
    (home,) = asked(applied, "harbour/ferry-desk-deployment").placement.affinities
    assert [group.cluster_names for group in (home, *home.overflow)] == [
        ("oslo",),
        ("bergen",),
        ("tromso",),
    ]


def test_the_annotations_of_the_steady_policy_reach_its_workload(applied: Intake) -> None:
    placement = asked(applied, "harbour/radar-deployment").placement
    assert placement.failover == "reserve"
    assert placement.steadiness == Steadiness(
        rebalance_after_s=600, window_s=1800, budget_percent=25
    )
    divided = placement.replicas
    assert (divided.remainder, divided.within_capacity) == ("in-order", True)
    assert divided.limits == (ReplicaLimit("bergen", 1, 4), ReplicaLimit("*", 0, 8))


def test_the_rebalancer_asks_for_its_workload_alone(applied: Intake) -> None:
    asked_anew = [
        f.key
        for f in applied.facts
        if isinstance(f.data, BindingRequested) and f.data.binding.reschedule
    ]
    assert asked_anew == ["harbour/booking-deployment"]


def test_the_quotas_say_what_the_comments_say(applied: Intake) -> None:
    (overall,) = [
        f.data.policy.quota
        for f in applied.facts
        if isinstance(f.data, PolicyApplied) and f.data.policy.quota
    ]
    assert overall == FederatedQuota(
        {"cpu": 60_000, "memory": 160 * 2**30}, {"tromso": {"cpu": 4000, "memory": 16 * 2**30}}
    )
    (told,) = [f.data for f in applied.facts if isinstance(f.data, QuotasObserved)]
    assert (told.cluster, told.namespace, [q.name for q in told.quotas]) == (
        "bergen",
        "harbour",
        ["compute"],
    )


def test_the_init_container_of_the_planner_sets_its_requests(applied: Intake) -> None:
    (planner,) = [
        f.data.binding
        for f in applied.facts
        if isinstance(f.data, BindingRequested) and "crane-planner" in f.key
    ]
    assert planner.requirements.requests == {"cpu": 1000, "memory": 3 * 2**30}


def test_the_fleet_has_its_nodes_and_gpus(applied: Intake) -> None:
    nodes = {
        n.name: n for f in applied.facts if isinstance(f.data, NodesObserved) for n in f.data.nodes
    }
    assert len(nodes) == 13
    assert {name: len(n.devices) for name, n in nodes.items() if n.devices} == {
        "oslo-gpu-1": 4,
        "tromso-gpu-1": 1,
    }


def test_the_pods_of_molde_are_ranked_grouped_and_kept_apart(applied: Intake) -> None:
    pilot, ledger, tides = (
        asked(applied, f"quay/{name}")
        for name in ("pilot-deployment", "ledger-deployment", "tide-tables-job")
    )
    assert [(b.priority, b.priority_class) for b in (pilot, ledger, tides)] == [
        (100_000, "harbour-critical"),
        (0, ""),
        (-10, "whenever"),
    ]
    traits = pilot.requirements.traits
    assert (
        [s.max_skew for s in traits.spread],
        [t.key for t in traits.anti_affinity],
        [p.port for p in traits.ports],
    ) == ([1], ["kubernetes.io/hostname"], [6970])
    assert ledger.requirements.traits.scheduler == "packing"
    group = tides.requirements.traits
    assert (group.group, group.min_count, group.never_preempts) == ("tide-tables", 6, True)


def test_molde_tells_what_it_has_besides_nodes(applied: Intake) -> None:
    told = {f.key: f.data.objects for f in applied.facts if isinstance(f.data, ObjectsObserved)}
    assert sorted(told) == [
        "molde/objects/Namespace/",
        "molde/objects/PodDisruptionBudget/quay",
        "molde/objects/Service/quay",
    ]
    (foghorn,) = [f.data for f in applied.facts if isinstance(f.data, PodsObserved)]
    assert (foghorn.cluster, foghorn.node, [(p.name, p.priority) for p in foghorn.pods]) == (
        "molde",
        "molde-2b",
        [("foghorn", -10)],
    )


def test_the_pools_say_what_their_comments_say(applied: Intake) -> None:
    pools = {
        f.data.policy.name: f.data.policy.node_pool
        for f in applied.facts
        if isinstance(f.data, PolicyApplied) and f.data.policy.node_pool
    }
    general, spot = pools["general"], pools["spot"]
    assert (general.consolidation, general.empty_after_s, general.catalogue) == (
        "WhenEmptyOrUnderutilized",
        600,
        "default",
    )
    assert general.budgets == (
        NodeBudget("10%"),
        NodeBudget("0", ("Underutilized", "Drifted"), "0 6 * * mon-fri", 4 * 3600),
    )
    assert general.limits == {"cpu": 200_000, "nodes": 20}
    assert (spot.clusters, spot.weight, spot.termination_grace_s) == (("oslo", "bergen"), 10, 300)
    (overlay,) = [
        f.data.policy.overlay
        for f in applied.facts
        if isinstance(f.data, PolicyApplied) and f.data.policy.overlay
    ]
    assert (overlay.price_adjustment, overlay.weight) == ("-20%", 10)


def test_the_descheduler_and_the_rebalancer_do_what_their_comments_say(applied: Intake) -> None:
    policies = {f.key: f.data.policy for f in applied.facts if isinstance(f.data, PolicyApplied)}
    upkeep = policies["DeschedulerPolicy//default"].descheduling
    hot = policies["DeschedulerPolicy//hot-nodes"].descheduling
    assert upkeep is not None
    assert hot is not None
    (profile,) = upkeep.profiles
    assert [name_of(s) for s in (*profile.deschedule, *profile.balance)] == [
        "RemovePodsViolatingNodeTaints",
        "RemovePodsHavingTooManyRestarts",
        "RemoveDuplicates",
        "LowNodeUtilization",
    ]
    assert (upkeep.every_s, upkeep.total, upkeep.per_namespace, profile.evictor.node_fit) == (
        300,
        5,
        3,
        True,
    )
    assert (hot.clusters, hot.cooldown_s) == (("tromso",), 3600)
    evenly = policies["RebalancePolicy//evenly"].rebalancing
    assert evenly is not None
    assert (
        evenly.objective,
        evenly.every_s,
        evenly.gain_percent,
        evenly.budget_percent,
        evenly.window_s,
    ) == ("load", 600, 20, 5, 1800)
    assert evenly.unschedulable_after_s == 300


def test_only_what_the_comments_say_is_not_acted_on(applied: Intake) -> None:
    found = [(Path(u.file).name, u.field) for u in applied.unacted]
    assert sorted(found) == [
        ("nodepool.yaml", "kind")  # the node class, which is for whoever makes the nodes
    ]


def test_the_broken_examples_break_as_documented() -> None:
    typos = load_files([EXAMPLES / "broken" / "typos.yaml"])
    assert [(e.line, e.field) for e in typos.errors] == [
        (8, "spec.replica"),
        (20, "spec.template.spec.containers[0].resources.requests.cpu"),
        (21, "spec.template.spec.containers[0].resources.requests.memory"),
    ]
    stowaway = load_files([EXAMPLES / "broken" / "no-policy.yaml"])
    assert stowaway.errors == ()
    intake = compile_manifests(stowaway.manifests)
    assert intake.facts == ()
    assert intake.errors == ()
    (error,) = intake.refusals
    assert (error.line, error.field) == (5, "metadata.name")


def test_the_examples_show_most_kinds() -> None:
    shown = {m.kind for m in load_files([EXAMPLES]).manifests}
    left_out = {k.kind for k in KINDS if k not in shown}
    assert left_out == {
        "StatefulSet",
        "ReplicaSet",
        "CronJob",
        "ReplicationController",
        "ResourceBinding",
        "ClusterResourceBinding",
        "PlacementDecision",
        "PodGroup",
        "Workload",
        "KubeSchedulerConfiguration",
        "Policy",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "StorageClass",
        "CSINode",
        "CSIDriver",
        "CSIStorageCapacity",
        "DeviceClass",
        "ResourceSlice",
        "ResourceClaim",
        "NodeClaim",
        "EC2NodeClass",
        "AKSNodeClass",
        "GCENodeClass",
        "NodePool",
        "DeschedulerPolicy",  # in their older versions
    }
