"""How policies say that failed workloads and clusters are left, how bindings say how they fare, and
what is refused."""

from __future__ import annotations

import json

import pytest
import yaml

from wharfinger.domain.binding import Binding
from wharfinger.domain.placement import ApplicationFailover, Placement
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import WorkloadObserved
from wharfinger.events.intake import Intake, compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.rendering import resource_binding
from wharfinger.manifests.parse import load_manifests

POLICY = """
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {{name: web, namespace: shop}}
spec:
  resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment}}]
  failover: {failover}
"""

BINDING = """
apiVersion: work.karmada.io/v1alpha2
kind: ResourceBinding
metadata: {{name: web-deployment, namespace: shop}}
spec:
  resource: {{apiVersion: apps/v1, kind: Deployment, name: web, namespace: shop}}
  replicas: 3
  failover: {failover}
status: {{aggregatedStatus: {aggregated}}}
"""


def compiled(text: str) -> Intake:
    return compile_manifests(load_manifests(text, "file.yaml").manifests)


def placement(failover: str) -> Placement:
    (fact,) = compiled(POLICY.format(failover=failover)).facts
    assert isinstance(fact.data, PolicyApplied)
    assert fact.data.policy.propagation is not None
    return fact.data.policy.propagation.placement


@pytest.mark.parametrize(
    ("said", "application"),
    [
        ("{}", None),
        ("{application: {}}", ApplicationFailover(300, "Gracefully", 600)),
        (
            (
                "{application: {decisionConditions: {tolerationSeconds: 60}, purgeMode: "
                "Gracefully, "
                "gracePeriodSeconds: 90}}"
            ),
            ApplicationFailover(60, "Gracefully", 90),
        ),
        ("{application: {purgeMode: Graciously}}", ApplicationFailover(300, "Gracefully", 600)),
        ("{application: {purgeMode: Immediately}}", ApplicationFailover(300, "Directly", 600)),
        ("{application: {purgeMode: Never}}", ApplicationFailover(300, "Never", 600)),
    ],
)
def test_what_is_ill_is_left_as_the_policy_says(
    said: str, application: ApplicationFailover | None
) -> None:
    assert placement(said).application == application


def test_a_tainted_cluster_is_left_at_once_unless_the_policy_says_otherwise() -> None:
    assert placement("{}").cluster_purge == "Directly"
    assert placement("{cluster: {}}").cluster_purge == "Gracefully"
    assert placement("{cluster: {purgeMode: Directly}}").cluster_purge == "Directly"


@pytest.mark.parametrize(
    ("said", "field", "expected"),
    [
        ("{application: {purgeMode: Later}}", "spec.failover.application.purgeMode", "'Directly'"),
        (
            "{application: {purgeMode: Never, gracePeriodSeconds: 5}}",
            "spec.failover.application.gracePeriodSeconds",
            "unless purgeMode is Gracefully",
        ),
        (
            "{application: {gracePeriodSeconds: 0}}",
            "spec.failover.application.gracePeriodSeconds",
            "above 0",
        ),
        (
            "{application: {decisionConditions: {tolerationSeconds: -1}}}",
            "spec.failover.application.decisionConditions.tolerationSeconds",
            "0 or more",
        ),
        ("{cluster: {purgeMode: Never}}", "spec.failover.cluster.purgeMode", "'Gracefully'"),
        ("{aplication: {}}", "spec.failover.aplication", "did you mean application?"),
    ],
)
def test_what_makes_no_sense_is_refused_by_file_line_and_field(
    said: str, field: str, expected: str
) -> None:
    text = POLICY.format(failover=said)
    loaded = load_manifests(text, "file.yaml")
    (error,) = loaded.errors or compile_manifests(loaded.manifests).errors
    assert field in str(error)
    assert expected in str(error)
    assert "file.yaml:" in str(error)


def test_state_that_should_be_carried_along_is_told_as_not_acted_on() -> None:
    rules = "{application: {statePreservation: {rules: [{aliasLabelName: a, jsonPath: '{ .x }'}]}}}"
    (unacted,) = compiled(POLICY.format(failover=rules)).unacted
    assert unacted.field == "spec.failover.application.statePreservation"


def test_a_kind_of_failover_that_is_not_known_here_is_reported() -> None:
    (unacted,) = compiled(POLICY.format(failover="{node: {}}")).unacted
    assert unacted.field == "spec.failover.node"
    assert "has no such field in the releases known here" in unacted.text


def test_how_a_binding_fares_is_told_for_each_of_its_clusters() -> None:
    aggregated = (
        "[{clusterName: hamar, health: Healthy, applied: true, status: {replicas: 2, "
        "readyReplicas: 2}},"
        " {clusterName: oslo, health: Unhealthy, status: {replicas: 1}}, {clusterName: molde}]"
    )
    facts = compiled(BINDING.format(failover="{}", aggregated=aggregated)).facts
    told = [fact.data for fact in facts if isinstance(fact.data, WorkloadObserved)]
    assert told == [
        WorkloadObserved("hamar", "shop/web-deployment", "Healthy", 2),
        WorkloadObserved("oslo", "shop/web-deployment", "Unhealthy", 0),
        WorkloadObserved("molde", "shop/web-deployment", "Unknown", 0),
    ]
    assert (
        next(f.key for f in facts if isinstance(f.data, WorkloadObserved))
        == "hamar/workloads/shop/web-deployment"
    )


@pytest.mark.parametrize(
    "said",
    [
        "{}",
        (
            "{application: {decisionConditions: {tolerationSeconds: 7}, purgeMode: Gracefully, "
            "gracePeriodSeconds: 8}}"
        ),
        "{application: {purgeMode: Never}, cluster: {purgeMode: Gracefully}}",
    ],
)
def test_what_was_read_is_written_again_alike(said: str) -> None:
    def bound(text: str) -> Binding:
        (found,) = [f.data for f in compiled(text).facts if isinstance(f.data, BindingRequested)]
        return found.binding

    first = bound(BINDING.format(failover=said, aggregated="[]"))
    again = bound(yaml.safe_dump(json.loads(json.dumps(resource_binding(first, None)))))
    assert again.placement == first.placement
