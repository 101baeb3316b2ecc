"""Open Cluster Management's manifests: what its schema refuses, what it fills in, and what becomes
of the rest."""

from __future__ import annotations

import json

import pytest

from wharfinger.domain.selection import (
    AddOnScore,
    ClusterScores,
    ClusterSet,
    ClusterToleration,
    Condition,
    DecisionGroup,
    Predicate,
    Priority,
    ScoreValue,
    Selection,
    Selector,
    SetBinding,
)
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.intake import Intake, compile_deletions, compile_manifests
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.manifests import ocm
from wharfinger.manifests.model import ExpectedError, micros
from wharfinger.manifests.parse import Loaded, load_manifests

GROUP = "cluster.open-cluster-management.io"
PLACEMENT = (
    f"apiVersion: {GROUP}/v1beta1\nkind: Placement\nmetadata: {{name: p, namespace: shop}}\n"
)


def loaded(text: str) -> Loaded:
    return load_manifests(text, "file.yaml")


def taken_in(text: str) -> Intake:
    found = loaded(text)
    assert found.errors == ()
    intake = compile_manifests(found.manifests)
    assert intake.errors == ()
    return intake


def selection_of(spec: str, annotations: str = "") -> Selection:
    noted = PLACEMENT.replace("namespace: shop", f"namespace: shop, annotations: {{{annotations}}}")
    (fact,) = taken_in(noted + spec).facts
    assert isinstance(fact.data, PolicyApplied)
    selection = fact.data.policy.selection
    assert selection is not None
    return selection


def test_a_placement_is_taken_over_field_for_field() -> None:
    found = selection_of(
        "spec:\n"
        "  clusterSets: [a, b]\n"
        "  numberOfClusters: 3\n"
        "  predicates:\n"
        "  - requiredClusterSelector:\n"
        "      labelSelector: {matchLabels: {x: y}, matchExpressions: [{key: k, operator: Like, "
        "values: [v]}]}\n"
        "      claimSelector: {matchExpressions: [{key: c, operator: Exists}]}\n"
        "      celSelector: {celExpressions: ['true']}\n"
        "  tolerations: [{key: k, value: v, effect: NoSelect, tolerationSeconds: 9}, {operator: "
        "Exists}]\n"
        "  prioritizerPolicy:\n"
        "    mode: Exact\n"
        "    configurations:\n"
        "    - {scoreCoordinate: {builtIn: Balance}, weight: -3}\n"
        "    - {scoreCoordinate: {type: AddOn, addOn: {resourceName: r, scoreName: s}}}\n"
        "  decisionStrategy:\n"
        "    groupStrategy:\n"
        "      clustersPerDecisionGroup: 5\n"
        "      decisionGroups: [{groupName: canary, groupClusterSelector: {labelSelector: "
        "{matchLabels: {x: y}}}}]\n"
    )
    assert found == Selection(
        ("a", "b"),
        3,
        (
            Predicate(
                Selector({"x": "y"}, (Condition("k", "Like", ("v",)),)),
                Selector(conditions=(Condition("c", "Exists"),)),
                ("true",),
            ),
        ),
        (ClusterToleration("k", "Equal", "v", "NoSelect", 9), ClusterToleration("", "Exists")),
        "Exact",
        (Priority("BuiltIn", "Balance", weight=-3), Priority("AddOn", addon=AddOnScore("r", "s"))),
        5,
        (DecisionGroup("canary", Selector({"x": "y"})),),
    )


def test_what_a_placement_says_beyond_its_api() -> None:
    found = selection_of(
        "spec: {}\n",
        "wharfinger.io/hysteresis: '20', wharfinger.io/stabilization-window-s: '60', "
        "wharfinger.io/compat: strict, "
        f"wharfinger.io/expired-scores: unknown, {GROUP}/experimental-scheduling-disable: 'true'",
    )
    assert found == Selection(
        disabled=True, expired_scores="unknown", hysteresis=20, window_s=60, strict=True
    )


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("hysteresis: 'much'", "expected an integer from 0 to 1000000, got 'much'"),
        ("expired-scores: forgotten", "expected 'zero' or 'unknown', got 'forgotten'"),
        ("compat: loose", "expected 'strict', got 'loose'"),
        ("stabilization-window-s: '-1'", "expected an integer from 0 to 100000000, got '-1'"),
    ],
)
def test_an_annotation_that_says_nothing_sensible_is_refused(note: str, said: str) -> None:
    text = (
        PLACEMENT.replace(
            "namespace: shop", f"namespace: shop, annotations: {{wharfinger.io/{note}}}"
        )
        + "spec: {}\n"
    )
    (error,) = compile_manifests(loaded(text).manifests).errors
    assert (
        str(error)
        == f'file.yaml:3: metadata.annotations["wharfinger.io/{note.split(":")[0]}"]: {said}'
    )


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ("{numberOfClusters: many}", "spec.numberOfClusters", "expected an integer, got 'many'"),
        (
            "{numberOfClusters: 2147483648}",
            "spec.numberOfClusters",
            "expected an integer from -2147483648 to 2147483647",
        ),
        (
            "{tolerations: [{key: ''}]}",
            "spec.tolerations[0].key",
            "expected a key such as example.com/name, got ''",
        ),
        (
            "{tolerations: [{key: k, effect: NoExecute}]}",
            "spec.tolerations[0].effect",
            "expected 'NoSelect', 'NoSelectIfNew' or 'PreferNoSelect', got 'NoExecute'",
        ),
        (
            "{prioritizerPolicy: {configurations: [{weight: 11, scoreCoordinate: {}}]}}",
            "spec.prioritizerPolicy.configurations[0].weight",
            "expected an integer from -10 to 10, got 11",
        ),
        (
            "{prioritizerPolicy: {configurations: [{weight: 1}]}}",
            "spec.prioritizerPolicy.configurations[0].scoreCoordinate",
            "expected a value, got nothing",
        ),
        (
            "{decisionStrategy: {groupStrategy: {clustersPerDecisionGroup: 0%}}}",
            "spec.decisionStrategy.groupStrategy.clustersPerDecisionGroup",
            "expected a number above 0, or a percentage from 1% to 100%, got '0%'",
        ),
        (
            "{clusterSet: [a]}",
            "spec.clusterSet",
            "expected a field of Placement (did you mean clusterSets?)",
        ),
    ],
)
def test_what_the_schema_refuses_is_refused_here(spec: str, field: str, said: str) -> None:
    errors = loaded(PLACEMENT + f"spec: {spec}\n").errors
    assert [e.field for e in errors][:1] == [field]
    assert errors[0].text.startswith(said)
    assert errors[0].line == 4


def test_what_a_server_has_let_in_is_read_whatever_its_limits_are_now() -> None:
    raw = {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "Placement",
        "metadata": {"name": "p"},
        "spec": {"prioritizerPolicy": {"configurations": [{"weight": 11}]}},
    }
    selection = ocm.PlacementManifest.model_validate(raw, context=ocm.STORED).selection()
    assert selection.priorities == (Priority("", weight=11),)


def test_what_the_schema_fills_in() -> None:
    (manifest,) = loaded(
        PLACEMENT
        + (
            "spec: {tolerations: [{key: k}], prioritizerPolicy: {configurations: "
            "[{scoreCoordinate: {}}]}}\n"
        )
    ).manifests
    assert isinstance(manifest.model, ocm.PlacementManifest)
    assert manifest.model.defaults() == (
        ("/spec/prioritizerPolicy/configurations/0/scoreCoordinate/type", "BuiltIn"),
        ("/spec/prioritizerPolicy/configurations/0/weight", 1),
        ("/spec/prioritizerPolicy/mode", "Additive"),
        ("/spec/scoreRateLimit", "1m"),
        ("/spec/sortBy", "ClusterName"),
        ("/spec/tolerations/0/operator", "Equal"),
    )


def test_what_is_not_acted_on_is_told() -> None:
    found = taken_in(
        PLACEMENT + "spec:\n  sortBy: Score\n  scoreRateLimit: 5m\n"
        "  spreadPolicy: {spreadConstraints: [{topologyKey: k, topologyKeyType: Label}]}\n"
    )
    assert [u.field for u in found.unacted] == [
        "spec.sortBy",
        "spec.scoreRateLimit",
        "spec.spreadPolicy",
    ]


def test_a_managed_cluster_keeps_what_placements_ask_for() -> None:
    text = (
        f"apiVersion: {GROUP}/v1\nkind: ManagedCluster\n"
        "metadata: {name: oslo, labels: {env: prod}, deletionTimestamp: '2026-03-01T11:59:00Z'}\n"
        "spec: {taints: [{key: a, effect: NoSelect, timeAdded: '2026-03-01T12:00:00Z'}, {key: b, "
        "effect: PreferNoSelect,"
        " timeAdded: null}]}\n"
        "status: {allocatable: {cpu: 1500m, memory: -1}, capacity: {cpu: 2}, clusterClaims: "
        "[{name: c, value: old},"
        " {name: c, value: new}], conditions: [{type: ManagedClusterConditionAvailable, status: "
        "'True'}]}\n"
    )
    (fact,) = taken_in(text).facts
    assert isinstance(fact.data, ClusterObserved)
    cluster = fact.data.cluster
    assert cluster.managed is not None
    assert cluster.managed.claims == {"c": "new"}
    assert [(t.key, t.effect, t.added_us) for t in cluster.managed.taints] == [
        ("a", "NoSelect", 1_772_366_400_000_000),
        ("b", "PreferNoSelect", None),
    ]
    assert (cluster.managed.allocatable, cluster.managed.capacity) == (
        {"cpu": "1500m", "memory": "-1"},
        {"cpu": "2"},
    )
    assert json.loads(cluster.managed.manifest)["metadata"]["labels"] == {"env": "prod"}
    assert cluster.deleting
    assert cluster.conditions == {"ManagedClusterConditionAvailable": "True"}
    assert cluster.summary is not None
    # nobody can be scheduled onto less than nothing
    assert cluster.summary.allocatable == {"cpu": 1500}


def test_sets_bindings_and_scores_become_policies_and_go_again() -> None:
    text = (
        f"apiVersion: {GROUP}/v1beta2\nkind: ManagedClusterSet\nmetadata: {{name: s}}\n---\n"
        f"apiVersion: {GROUP}/v1beta2\nkind: ManagedClusterSet\nmetadata: {{name: t}}\n"
        "spec: {clusterSelector: {selectorType: LabelSelector, labelSelector: {matchLabels: {x: "
        "y}}}}\n---\n"
        f"apiVersion: {GROUP}/v1beta2\nkind: ManagedClusterSetBinding\n"
        f"metadata: {{name: s, namespace: shop}}\n"
        "spec: {clusterSet: s}\n---\n"
        f"apiVersion: {GROUP}/v1alpha1\nkind: AddOnPlacementScore\n"
        f"metadata: {{name: load, namespace: oslo}}\n"
        "status: {validUntil: '2026-03-01T12:00:00Z', scores: [{name: cpu, value: -7}]}\n"
    )
    policies = {f.data.policy.key: f.data.policy for f in taken_in(text).facts}  # type: ignore[attr-defined]
    assert policies["ManagedClusterSet//s"].cluster_set == ClusterSet()
    assert policies["ManagedClusterSet//t"].cluster_set == ClusterSet(
        "LabelSelector", Selector({"x": "y"})
    )
    assert policies["ManagedClusterSetBinding/shop/s"].set_binding == SetBinding("s")
    scores = ClusterScores((ScoreValue("cpu", -7),), 1_772_366_400_000_000)
    assert policies["AddOnPlacementScore/oslo/load"].scores == scores
    gone = compile_deletions(loaded(text).manifests, policies.values())
    assert [f.data for f in gone.facts] == [
        PolicyRemoved(p.kind, p.name, p.namespace) for p in policies.values()
    ]


def test_scores_that_lie_in_no_cluster_are_refused() -> None:
    text = f"apiVersion: {GROUP}/v1alpha1\nkind: AddOnPlacementScore\nmetadata: {{name: load}}\n"
    (error,) = compile_manifests(loaded(text).manifests).errors
    assert error.field == "metadata.namespace"
    assert error.text == "expected the namespace of the cluster that the scores are of, got nothing"


def test_a_decision_of_another_plane_is_accepted_and_nothing_follows() -> None:
    found = taken_in(
        f"apiVersion: {GROUP}/v1beta1\nkind: PlacementDecision\n"
        f"metadata: {{name: p-decision-1, namespace: shop}}\n"
        "status: {decisions: [{clusterName: oslo, reason: ''}]}\n"
    )
    assert found.facts == ()
    assert [u.field for u in found.unacted] == ["status"]


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-03-01", "2026-02-30T12:00:00Z", "2026-03-01T12:00:00", "9" * 300]
)
def test_a_time_is_a_time(text: str) -> None:
    with pytest.raises(ExpectedError, match="a time such as"):
        micros(text)


def test_times_have_zones_and_parts_of_seconds() -> None:
    assert micros("2026-03-01T12:00:00Z") == micros("2026-03-01T13:00:00+01:00")
    assert micros("1970-01-01T00:00:00.000001Z") == 1
    assert micros("1969-12-31T23:59:59Z") == -1_000_000
