"""What applying and deleting manifests states: which policy a workload falls under, and what moves
when a policy does."""

from __future__ import annotations

from itertools import permutations

import msgspec
import pytest

from wharfinger.domain.binding import Binding
from wharfinger.domain.node import Node
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.policy import Policy, Propagation, ResourceSelector
from wharfinger.domain.quota import Quota
from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, PodsObserved, QuotasObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.intake import (
    ANYWHERE,
    NODE_BUCKETS,
    Intake,
    compile_deletions,
    compile_manifests,
)
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.manifests.karmada.selection import policy_for
from wharfinger.manifests.parse import Manifest, load_manifests

WEB = ObjectRef("apps/v1", "Deployment", "web", "ns")


def manifests(*texts: str) -> list[Manifest]:
    loaded = load_manifests("---\n".join(texts), "file.yaml")
    assert [str(e) for e in loaded.errors] == []
    return list(loaded.manifests)


def deployment(
    name: str = "web",
    labels: str = "{app: web}",
    replicas: int = 2,
    annotations: str = "{}",
    uid: str = "",
) -> str:
    meta = (
        f"{{name: {name}, namespace: ns, labels: {labels}, annotations: "
        f"{annotations}{f', uid: {uid}' if uid else ''}}}"
    )
    return (
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {meta}\nspec: {{replicas: {replicas}}}\n"
    )


def policy(
    name: str, cluster: str, select: str = "name: web", extra: str = "", namespace: str = "ns"
) -> str:
    kind = "PropagationPolicy" if namespace else "ClusterPropagationPolicy"
    meta = f"{{name: {name}, namespace: {namespace}}}" if namespace else f"{{name: {name}}}"
    selector = f"{{apiVersion: apps/v1, kind: Deployment{f', {select}' if select else ''}}}"
    return (
        f"apiVersion: policy.karmada.io/v1alpha1\nkind: {kind}\nmetadata: {meta}\nspec:\n"
        f"  resourceSelectors: [{selector}]\n"
        f"  placement: {{clusterAffinity: {{clusterNames: [{cluster}]}}}}\n{extra}"
    )


def node(name: str, cluster: str = "oslo", cpu: int = 4) -> str:
    return (
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{wharfinger.io/cluster: "
        f"{cluster}}}}}\n"
        f"status: {{allocatable: {{cpu: {cpu}}}}}\n"
    )


def bindings(intake: Intake) -> dict[str, Binding]:
    assert [str(e) for e in intake.errors] == []
    return {f.key: f.data.binding for f in intake.facts if isinstance(f.data, BindingRequested)}


def applied_policies(intake: Intake) -> list[Policy]:
    return [f.data.policy for f in intake.facts if isinstance(f.data, PolicyApplied)]


def where(binding: Binding) -> tuple[str, ...]:
    return binding.placement.affinities[0].cluster_names


# Selection.


def propagating(
    name: str,
    namespace: str = "ns",
    priority: int = 0,
    labels: dict[str, str] | None = None,
    named: str = "",
) -> Policy:
    selector = ResourceSelector(
        "apps/v1",
        "Deployment",
        namespace,
        named,
        LabelSelector(labels) if labels is not None else None,
    )
    return Policy(
        "PropagationPolicy" if namespace else "ClusterPropagationPolicy",
        name,
        namespace,
        Propagation((selector,), Placement(), priority),
    )


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (propagating("z"), propagating("a", namespace="", priority=9, named="web")),
        (propagating("z", priority=1), propagating("a", named="web")),
        (propagating("z", named="web"), propagating("a", labels={"app": "web"})),
        (propagating("z", labels={"app": "web"}), propagating("a")),
        (propagating("a"), propagating("z")),
        (propagating("z"), propagating("a", named="other")),
        (propagating("z"), propagating("a", labels={"app": "other"})),
        (propagating("z"), propagating("a", namespace="elsewhere", named="web")),
        (propagating("z"), Policy("NodePool", "a")),
    ],
)
def test_which_of_two_policies_a_workload_falls_under(better: Policy, worse: Policy) -> None:
    labels = {"app": "web"}
    assert (
        policy_for(WEB, labels, [better, worse])
        == policy_for(WEB, labels, [worse, better])
        == better
    )


def test_a_workload_that_nothing_selects_falls_under_no_policy() -> None:
    other_version = Policy(
        "PropagationPolicy",
        "p",
        "ns",
        Propagation((ResourceSelector("apps/v2", "Deployment"),), Placement()),
    )
    nothing = Policy("PropagationPolicy", "p", "ns", Propagation((), Placement()))
    assert (
        policy_for(WEB, {}, [other_version, nothing, propagating("p", labels={"a": "b"})]) is None
    )


def who_has(by: Policy, *others: Policy) -> str:
    found = [policy_for(WEB, {}, order, by.key) for order in permutations([by, *others])]
    assert all(policy == found[0] for policy in found), "the order of policies changes nothing"
    assert found[0] is not None
    return found[0].name


def preempting(name: str, namespace: str = "ns", priority: int = 0, named: str = "") -> Policy:
    policy = propagating(name, namespace, priority, named=named)
    assert policy.propagation is not None
    return msgspec.structs.replace(
        policy, propagation=msgspec.structs.replace(policy.propagation, preempts=True)
    )


@pytest.mark.parametrize(
    ("holder", "others", "taken_by"),
    [
        (propagating("z"), [propagating("a", priority=9, named="web")], "z"),
        (propagating("z"), [preempting("a", named="web")], "z"),
        (propagating("z"), [preempting("a", priority=1)], "a"),
        (propagating("z", priority=2), [preempting("a", priority=1)], "z"),
        (propagating("z", namespace="", priority=9), [preempting("a", priority=-1)], "a"),
        (propagating("z"), [preempting("a", namespace="", priority=9)], "z"),
        (propagating("z", namespace=""), [preempting("a", namespace="", priority=1)], "a"),
        (
            propagating("z"),
            [preempting("b", priority=1), preempting("c", priority=2), preempting("a", priority=2)],
            "a",
        ),
        (propagating("z"), [preempting("a", priority=1, named="other")], "z"),
        (propagating("z", named="other"), [propagating("b"), propagating("a")], "a"),
    ],
)
def test_who_takes_over_what_a_policy_has_claimed(
    holder: Policy, others: list[Policy], taken_by: str
) -> None:
    assert who_has(holder, *others) == taken_by


# Applying.


def test_a_workload_and_its_policy_become_a_binding() -> None:
    intake = compile_manifests(manifests(deployment(uid="u-1"), policy("p", "oslo")))
    assert bindings(intake) == {
        "ns/web-deployment": Binding(
            "ns/web-deployment",
            "u-1",
            WEB,
            2,
            Requirements(pod=PodTraits(namespace="ns", owner="ReplicaSet")),
            placement=Placement((ClusterAffinity(cluster_names=("oslo",)),)),
            policy="PropagationPolicy/ns/p",
            labels={"app": "web"},
        )
    }
    assert [(f.topic.name, f.key, f.partition_key) for f in intake.facts] == [
        ("wharfinger.policies", "PropagationPolicy/ns/p", "PropagationPolicy/ns/p"),
        ("wharfinger.bindings", "ns/web-deployment", "ns/"),
    ]


def test_compiling_twice_gives_the_same_facts() -> None:
    texts = (deployment(), policy("p", "oslo"), node("a"), node("b"))
    assert compile_manifests(manifests(*texts)) == compile_manifests(manifests(*texts))


def test_a_known_policy_serves_a_workload_that_comes_later() -> None:
    known = applied_policies(compile_manifests(manifests(policy("p", "oslo"))))
    assert where(
        bindings(compile_manifests(manifests(deployment()), known))["ns/web-deployment"]
    ) == ("oslo",)


def test_a_workload_without_a_policy_is_skipped_unless_any_cluster_will_do() -> None:
    intake = compile_manifests(manifests(deployment()))
    assert intake.facts == ()
    assert intake.errors == ()
    assert [str(kind) for kind in intake.skipped_kinds] == [
        "skipped 1 Deployment (apps/v1): no policy selects them"
    ]
    assert [str(e) for e in intake.refusals] == [
        "file.yaml:3: metadata.name: expected a policy that selects Deployment ns/web, got none; "
        "apply one, "
        "or annotate it with"
        " wharfinger.io/placement: any"
    ]
    anywhere = bindings(
        compile_manifests(manifests(deployment(annotations="{wharfinger.io/placement: any}")))
    )
    assert anywhere["ns/web-deployment"].placement == ANYWHERE
    assert anywhere["ns/web-deployment"].policy == ""
    (error,) = compile_manifests(
        manifests(deployment(annotations="{wharfinger.io/placement: all}"))
    ).errors
    assert error.field == 'metadata.annotations["wharfinger.io/placement"]'
    assert error.text == "expected 'any' or a policy that selects Deployment ns/web, got 'all'"


def test_one_error_anywhere_means_no_facts_at_all() -> None:
    wrong = deployment("wrong", annotations="{wharfinger.io/placement: all}")
    intake = compile_manifests(manifests(deployment(), policy("p", "oslo", "name: web"), wrong))
    assert intake.facts == ()
    assert len(intake.errors) == 1


def test_a_changed_policy_requests_its_known_bindings_anew_and_no_others() -> None:
    first = compile_manifests(
        manifests(
            deployment(), deployment("db"), policy("p", "oslo"), policy("q", "bergen", "name: db")
        )
    )
    known = list(bindings(first).values())
    again = compile_manifests(manifests(policy("p", "bergen")), applied_policies(first), known)
    assert {name: where(b) for name, b in bindings(again).items()} == {
        "ns/web-deployment": ("bergen",)
    }
    assert (
        compile_manifests(manifests(policy("p", "oslo")), applied_policies(first), known).facts[1:]
        == ()
    )


PREEMPTS = "  preemption: Always\n"
LAZY = "  activationPreference: Lazy\n"


def test_a_policy_keeps_what_it_has_claimed_although_a_closer_one_comes() -> None:
    first = compile_manifests(manifests(deployment(), policy("wide", "oslo", "", namespace="")))
    near = policy("near", "bergen", "")
    closer = compile_manifests(manifests(near), applied_policies(first), bindings(first).values())
    assert bindings(closer) == {}
    both = applied_policies(first) + applied_policies(closer)
    again = compile_manifests(manifests(deployment(replicas=9)), both, bindings(first).values())
    assert bindings(again)["ns/web-deployment"].policy == "ClusterPropagationPolicy//wide"
    elsewhere = compile_manifests(manifests(deployment("db")), both, bindings(first).values())
    assert bindings(elsewhere)["ns/db-deployment"].policy == "PropagationPolicy/ns/near"


def test_a_policy_that_no_longer_selects_what_it_has_claimed_lets_it_go() -> None:
    first = compile_manifests(manifests(deployment(), policy("a", "oslo"), policy("b", "bergen")))
    assert bindings(first)["ns/web-deployment"].policy == "PropagationPolicy/ns/a"
    narrowed = compile_manifests(
        manifests(policy("a", "oslo", "name: db")),
        applied_policies(first),
        bindings(first).values(),
    )
    assert bindings(narrowed)["ns/web-deployment"].policy == "PropagationPolicy/ns/b"


def test_a_claimed_policy_that_is_deleted_frees_its_workload_for_one_that_comes_later() -> None:
    first = compile_manifests(manifests(deployment(), policy("a", "oslo")))
    removed = compile_deletions(
        manifests(policy("a", "oslo")), applied_policies(first), bindings(first).values()
    )
    assert bindings(removed) == {}
    later = compile_manifests(manifests(policy("b", "bergen")), (), bindings(first).values())
    assert bindings(later)["ns/web-deployment"].policy == "PropagationPolicy/ns/b"


def test_a_closer_preempting_policy_takes_a_binding_over_and_gives_it_back_when_removed() -> None:
    first = compile_manifests(manifests(deployment(), policy("wide", "oslo", "", namespace="")))
    policies = applied_policies(first)
    near = policy("near", "bergen", extra=PREEMPTS)
    closer = compile_manifests(manifests(near), policies, bindings(first).values())
    taken = bindings(closer)["ns/web-deployment"]
    assert (where(taken), taken.policy) == (("bergen",), "PropagationPolicy/ns/near")
    removed = compile_deletions(
        manifests(policy("near", "bergen")), policies + applied_policies(closer), [taken]
    )
    assert removed.facts[0].data == PolicyRemoved("PropagationPolicy", "near", "ns")
    assert bindings(removed)["ns/web-deployment"].policy == "ClusterPropagationPolicy//wide"


def test_a_binding_whose_only_policy_goes_stays_where_it_is() -> None:
    first = compile_manifests(manifests(deployment(), policy("p", "oslo")))
    removed = compile_deletions(
        manifests(policy("p", "oslo")), applied_policies(first), bindings(first).values()
    )
    assert [f.data for f in removed.facts] == [PolicyRemoved("PropagationPolicy", "p", "ns")]


def test_a_policy_finds_a_known_binding_by_the_labels_of_its_workload() -> None:
    first = compile_manifests(manifests(deployment(annotations="{wharfinger.io/placement: any}")))
    intake = compile_manifests(
        manifests(policy("p", "oslo", "labelSelector: {matchLabels: {app: web}}")),
        (),
        bindings(first).values(),
    )
    assert where(bindings(intake)["ns/web-deployment"]) == ("oslo",)


def test_bindings_with_a_placement_of_their_own_are_left_alone() -> None:
    here = Placement((ClusterAffinity(cluster_names=("tromso",)),))
    imported = Binding("ns/web-deployment", "u", WEB, 1, placement=here)
    by_hand = Binding("ns/other", "u", WEB, 1, placement=here, policy="ResourceBinding/ns/other")
    assert (
        bindings(compile_manifests(manifests(policy("p", "oslo")), (), [imported, by_hand])) == {}
    )


def test_what_a_lazy_policy_says_waits_until_the_workload_asks_for_something_else() -> None:
    first = compile_manifests(manifests(deployment(), policy("p", "oslo", extra=LAZY)))
    known = list(bindings(first).values())
    assert where(known[0]) == ("oslo",)
    moved = policy("p", "bergen", extra=LAZY)
    changed = compile_manifests(manifests(moved), applied_policies(first), known)
    assert bindings(changed) == {}
    policies = applied_policies(changed)
    assert bindings(compile_manifests(manifests(deployment()), policies, known)) == {
        "ns/web-deployment": known[0]
    }
    assert bindings(compile_manifests(manifests(deployment(), moved), (), known)) == {
        "ns/web-deployment": known[0]
    }
    grown = bindings(compile_manifests(manifests(deployment(replicas=3)), policies, known))[
        "ns/web-deployment"
    ]
    assert (where(grown), grown.replicas) == (("bergen",), 3)
    annotated = bindings(
        compile_manifests(manifests(deployment(annotations="{image: new}")), policies, known)
    )
    assert where(annotated["ns/web-deployment"]) == ("bergen",)


def test_a_policy_that_becomes_lazy_learns_how_its_workloads_are_when_they_are_next_applied() -> (
    None
):
    first = compile_manifests(manifests(deployment(), policy("p", "oslo")))
    lazy = applied_policies(compile_manifests(manifests(policy("p", "bergen", extra=LAZY))))
    learnt = list(
        bindings(
            compile_manifests(manifests(deployment()), lazy, bindings(first).values())
        ).values()
    )
    assert [where(b) for b in learnt] == [("oslo",)]
    assert compile_manifests(manifests(deployment()), lazy, learnt).facts[
        0
    ].data == BindingRequested(learnt[0])
    (moved,) = bindings(
        compile_manifests(manifests(deployment(annotations="{image: new}")), lazy, learnt)
    ).values()
    assert where(moved) == ("bergen",)


def test_a_policy_hands_on_its_scheduler_and_puts_workloads_of_one_label_into_a_group() -> None:
    extra = (
        "    workloadAffinity: {affinity: {groupByLabelKey: app}, antiAffinity: "
        "{groupByLabelKey: team}}\n"
        "  schedulerName: other-scheduler\n"
    )
    placed = policy("p", "oslo", extra=extra).replace(
        "placement: {clusterAffinity: {clusterNames: [oslo]}}", "placement:"
    )
    binding = bindings(compile_manifests(manifests(deployment(), placed)))["ns/web-deployment"]
    assert (binding.affinity_group, binding.anti_affinity_group) == ("app=web", "")
    assert binding.scheduler == "other-scheduler"
    ungrouped = compile_manifests(manifests(policy("p", "oslo")), (), [binding])
    assert bindings(ungrouped)["ns/web-deployment"].affinity_group == ""


def rebalancer(
    name: str = "again",
    workload: str = "{apiVersion: apps/v1, kind: Deployment, name: web, namespace: ns}",
) -> str:
    return (
        "apiVersion: apps.karmada.io/v1alpha1\nkind: WorkloadRebalancer\n"
        f"metadata: {{name: {name}}}\n"
        f"spec:\n  workloads:\n  - {workload}\n"
    )


def test_a_rebalancer_asks_once_for_a_fresh_decision() -> None:
    first = compile_manifests(manifests(deployment(), deployment("db"), policy("p", "oslo", "")))
    known = bindings(first)
    asked = bindings(
        compile_manifests(manifests(rebalancer()), applied_policies(first), known.values())
    )
    assert list(asked) == ["ns/web-deployment"]
    token = asked["ns/web-deployment"].reschedule
    assert token
    assert asked["ns/web-deployment"] == msgspec.structs.replace(
        known["ns/web-deployment"], reschedule=token
    )
    again = bindings(
        compile_manifests(manifests(rebalancer()), applied_policies(first), asked.values())
    )
    assert again == asked
    other = bindings(
        compile_manifests(manifests(rebalancer("other")), applied_policies(first), asked.values())
    )
    assert other["ns/web-deployment"].reschedule not in ("", token)
    both = bindings(compile_manifests(manifests(deployment(), rebalancer(), policy("p", "oslo"))))
    assert both["ns/web-deployment"].reschedule == token


def test_a_rebalancer_of_a_workload_that_nobody_knows_is_refused_at_its_line() -> None:
    (error,) = compile_manifests(manifests(rebalancer())).errors
    assert str(error) == (
        "file.yaml:6: spec.workloads[0]: expected a workload that is known here, "
        "got Deployment ns/web of apps/v1"
    )


def test_deleting_a_rebalancer_says_that_it_changes_nothing() -> None:
    intake = compile_deletions(manifests(rebalancer()))
    assert (intake.facts, intake.errors) == ((), ())
    assert [str(u) for u in intake.unacted] == [
        (
            "file.yaml:3: metadata.name: what it asked for was asked once, "
            "and deleting it changes nothing"
        )
    ]


def quota(name: str, cluster: str = "oslo", hard: str = "{requests.cpu: 2, pods: 5}") -> str:
    labels = f", labels: {{wharfinger.io/cluster: {cluster}}}" if cluster else ""
    return (
        f"apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: {name}, namespace: ns{labels}}}\n"
        f"spec: {{hard: {hard}, scopeSelector: {{matchExpressions: ["
        "{scopeName: PriorityClass, operator: In, values: [high]}]}}\n"
        f"status: {{used: {{requests.cpu: 500m}}}}\n"
    )


def test_quotas_join_those_that_are_known_of_their_cluster_and_namespace() -> None:
    old = Quota("ns", "old", {"pods": 1})
    intake = compile_manifests(
        manifests(quota("new"), quota("a")), known_quotas={("oslo", "ns"): [old]}
    )
    (told,) = intake.facts
    scope = (Requirement("PriorityClass", "In", ("high",)),)
    new = Quota("ns", "new", {"requests.cpu": 2000, "pods": 5}, {"requests.cpu": 500}, scope)
    assert told.data == QuotasObserved(
        "oslo", "ns", (msgspec.structs.replace(new, name="a"), new, old)
    )
    assert told.key == "oslo/quotas/ns"
    cluster = "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\nmetadata: {name: oslo}\n"
    for gone, left in ((quota("new"), (old,)), (cluster, ())):
        removed = compile_deletions(manifests(gone), known_quotas={("oslo", "ns"): [old, new]})
        assert removed.facts[0].data == QuotasObserved("oslo", "ns", left)


def test_a_quota_that_names_no_cluster_goes_to_clusters_as_it_is() -> None:
    everything = policy("p", "oslo", "").replace(
        "apiVersion: apps/v1, kind: Deployment", "apiVersion: v1, kind: ResourceQuota"
    )
    assert list(bindings(compile_manifests(manifests(quota("q", ""), everything)))) == [
        "ns/q-resourcequota"
    ]


def test_suspending_a_policy_suspends_what_it_selects() -> None:
    first = compile_manifests(manifests(deployment(), policy("p", "oslo")))
    held = compile_manifests(
        manifests(policy("p", "oslo", extra="  suspension: {scheduling: true}\n")),
        (),
        bindings(first).values(),
    )
    assert bindings(held)["ns/web-deployment"].suspended


def test_a_workload_applied_again_keeps_its_identity_and_its_reschedule_token() -> None:
    first = bindings(compile_manifests(manifests(deployment(uid="u-1"), policy("p", "oslo"))))[
        "ns/web-deployment"
    ]
    known = Binding(
        **{name: getattr(first, name) for name in first.__struct_fields__} | {"reschedule": "token"}
    )
    again = bindings(
        compile_manifests(manifests(deployment(replicas=5), policy("p", "oslo")), (), [known])
    )["ns/web-deployment"]
    assert (again.uid, again.reschedule, again.replicas) == ("u-1", "token", 5)


def test_objects_without_replicas_go_as_they_are_and_an_unselected_namespace_goes_nowhere() -> None:
    everything = (
        "apiVersion: policy.karmada.io/v1alpha1\nkind: ClusterPropagationPolicy\n"
        "metadata: {name: all}\nspec:\n"
        "  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: apps/v1, kind: "
        "DaemonSet}, "
        "{apiVersion: v1, kind: Namespace, name: ns}]\n"
    )
    found = bindings(
        compile_manifests(
            manifests(
                everything,
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
                "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\n"
                "spec: {template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}}\n",
                "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n",
            )
        )
    )
    assert sorted(found) == ["default/c-configmap", "default/d-daemonset", "ns-namespace"]
    assert all(b.replicas == 0 and b.requirements.empty for b in found.values())
    lonely = compile_manifests(manifests("apiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n"))
    assert (lonely.facts, lonely.errors) == ((), ())
    assert [str(u) for u in lonely.unacted] == [
        "file.yaml:3: metadata.name: accepted, goes nowhere: no policy selects Namespace ns"
    ]


def test_what_is_accepted_and_not_acted_on_is_told_with_its_line() -> None:
    text = (
        "apiVersion: cluster.open-cluster-management.io/v1beta1\nkind: Placement\n"
        "metadata: {name: p}\n"
        "spec: {numberOfClusters: 1,\n  spreadPolicy: {spreadConstraints: [{topologyKey: hall, "
        "topologyKeyType: Label}]}}\n"
    )
    intake = compile_manifests(manifests(text))
    assert [str(u) for u in intake.unacted] == [
        "file.yaml:5: spec.spreadPolicy: accepted, not acted on in this version"
    ]
    (placed,) = applied_policies(intake)
    assert (placed.key, placed.propagation) == ("Placement/default/p", None)
    assert '"numberOfClusters":1' in placed.manifest


def test_nodes_join_those_that_are_known_and_every_bucket_is_told() -> None:
    known = {
        "oslo": [Node("a", {"cpu": 1000}), Node("b", {"cpu": 1000})],
        "bergen": [Node("c", {"cpu": 1000})],
    }
    intake = compile_manifests(
        manifests(node("b"), node("d")), known_nodes=known, known_buckets={"oslo": 4}
    )
    buckets = [f.data for f in intake.facts if isinstance(f.data, NodesObserved)]
    assert [(b.cluster, b.bucket, b.buckets) for b in buckets] == [("oslo", i, 4) for i in range(4)]
    nodes = {n.name: n.allocatable["cpu"] for b in buckets for n in b.nodes}
    assert nodes == {"a": 1000, "b": 4000, "d": 4000}
    new = compile_manifests(
        manifests(node("a", "tromso")), known_nodes=known, known_buckets={"oslo": 4}
    )
    assert [f.key for f in new.facts] == [f"tromso/nodes/{i}" for i in range(NODE_BUCKETS)]


def test_a_node_that_does_not_name_its_cluster_is_refused_once() -> None:
    text = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {allocatable: {cpu: 1}}\n"
    (error,) = compile_manifests(manifests(text)).errors
    assert str(error) == (
        'file.yaml:3: metadata.labels["wharfinger.io/cluster"]: '
        "expected the label or annotation wharfinger.io/cluster"
        " with the name of its cluster, got nothing"
    )


def test_one_thing_twice_in_the_files_is_refused() -> None:
    intake = compile_manifests(
        manifests(
            deployment(),
            policy("p", "oslo"),
            deployment(),
            node("a"),
            node("a", "bergen"),
            node("a"),
        )
    )
    assert [str(e) for e in intake.errors] == [
        (
            "file.yaml:13: expected each object once, got binding ns/web-deployment again "
            "(file.yaml:2)"
        ),
        "file.yaml:28: expected each object once, got node a of oslo again (file.yaml:19)",
    ]


def test_an_annotation_that_makes_no_sense_is_told_with_its_line() -> None:
    (error,) = compile_manifests(
        manifests(policy("p", "oslo"), deployment(annotations="{wharfinger.io/gpu-milli: lots}"))
    ).errors
    assert str(error) == (
        'file.yaml:10: metadata.annotations["wharfinger.io/gpu-milli"]: '
        "expected an integer from 1 to 1000, got 'lots'"
    )


# Deleting.


def test_deleting_takes_everything_back() -> None:
    cluster = "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\nmetadata: {name: oslo}\n"
    by_hand = (
        "apiVersion: work.karmada.io/v1alpha2\nkind: ResourceBinding\n"
        "metadata: {name: b, namespace: ns}\n"
        "spec: {resource: {apiVersion: v1, kind: Pod, name: x}}\n"
    )
    intake = compile_deletions(
        manifests(cluster, deployment(), policy("p", "oslo"), by_hand, node("c", "bergen")),
        known_nodes={
            "oslo": [Node("a", {"cpu": 1})],
            "bergen": [Node("c", {"cpu": 1}), Node("d", {"cpu": 1})],
        },
        known_buckets={"oslo": 1, "bergen": 1},
    )
    assert [f.data for f in intake.facts] == [
        BindingWithdrawn("ns/web-deployment"),
        BindingWithdrawn("ns/b"),
        PolicyRemoved("PropagationPolicy", "p", "ns"),
        NodesObserved("oslo", 0, 1, ()),
        NodesObserved("bergen", 0, 1, (Node("d", {"cpu": 1}),)),
        ClusterForgotten("oslo"),
    ]


def test_a_withdrawn_binding_is_not_requested_anew_by_a_policy_of_the_same_files() -> None:
    first = compile_manifests(
        manifests(deployment(), policy("p", "oslo"), policy("wide", "bergen", "", namespace=""))
    )
    removed = compile_deletions(
        manifests(deployment(), policy("p", "oslo")),
        applied_policies(first),
        bindings(first).values(),
    )
    assert bindings(removed) == {}


# Keys.


@pytest.mark.parametrize(
    ("data", "key", "partition_key", "topic"),
    [
        (PodsObserved("oslo", "n-1", ()), "oslo/pods/n-1", "oslo", "wharfinger.cluster-state"),
        (NodesObserved("oslo", 3, 4, ()), "oslo/nodes/3", "oslo", "wharfinger.cluster-state"),
        (ClusterForgotten("oslo"), "oslo", "oslo", "wharfinger.clusters"),
        (PolicyRemoved("NodePool", "p"), "NodePool//p", "NodePool//p", "wharfinger.policies"),
        (BindingWithdrawn("ns/b"), "ns/b", "ns/", "wharfinger.bindings"),
    ],
)
def test_facts_travel_under_the_keys_of_the_topic_table(
    data: PodsObserved | NodesObserved | ClusterForgotten | PolicyRemoved | BindingWithdrawn,
    key: str,
    partition_key: str,
    topic: str,
) -> None:
    fact: Accepted = accepted(data)
    assert (fact.key, fact.partition_key, fact.topic.name) == (key, partition_key, topic)
    assert isinstance(fact.data, Value)
    assert not isinstance(fact.data, ClusterObserved)
