"""Objects of kinds that have no model here, and what a whole rendering of a chart becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from wharfinger.domain.binding import Binding
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.intake import NO_POLICY, Intake, compile_deletions, compile_manifests
from wharfinger.events.kinds_page import becomes, kinds_markdown
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.kinds import KINDS
from wharfinger.manifests.parse import Loaded, load_files, load_manifests

ROOT = Path(__file__).parents[2]
CHART = Path(__file__).parent / "manifests" / "chart.yaml"

ROLLOUT = """\
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web, namespace: ns, labels: {app: web}ANNOTATIONS}
spec:
  replicas: 5
  strategy: {canary: {steps: [{setWeight: 20}]}}
  template:
    metadata: {labels: {app: web}}
    spec:
      priorityClassName: high
      containers:
      - {name: web, resources: {requests: {cpu: 500m, memory: 1Gi}}}
"""
QUEUE = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: all}
spec: {namespaceSelector: {}}
"""
HIGH = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 7
"""


def read(*texts: str) -> Loaded:
    loaded = load_manifests("---\n".join(texts), "file.yaml")
    assert loaded.errors == ()
    return loaded


def policy(api_version: str, kind: str, namespace: str = "", name: str = "p") -> str:
    scope = "PropagationPolicy" if namespace else "ClusterPropagationPolicy"
    where = f", namespace: {namespace}" if namespace else ""
    return f"""\
apiVersion: policy.karmada.io/v1alpha1
kind: {scope}
metadata: {{name: {name}{where}}}
spec:
  resourceSelectors: [{{apiVersion: {api_version}, kind: {kind}}}]
  placement:
    clusterAffinity: {{clusterNames: [oslo]}}
    replicaScheduling: {{replicaSchedulingType: Divided}}
"""


def bindings(intake: Intake) -> dict[str, Binding]:
    assert [str(e) for e in intake.errors] == []
    return {
        f.data.binding.name: f.data.binding
        for f in intake.facts
        if isinstance(f.data, BindingRequested)
    }


ROLLOUTS = policy("argoproj.io/v1alpha1", "Rollout", "ns")


def test_replicas_are_read_from_the_shape_of_a_kind_that_is_not_known() -> None:
    found = bindings(
        compile_manifests(read(ROLLOUT.replace("ANNOTATIONS", ""), ROLLOUTS).manifests)
    )
    rollout = found["ns/web-rollout"]
    assert rollout.replicas == 5
    assert rollout.requirements.requests == {"cpu": 500, "memory": 2**30}
    assert rollout.labels == {"app": "web"}
    assert rollout.policy == "PropagationPolicy/ns/p"
    assert rollout.resource.api_version == "argoproj.io/v1alpha1"
    assert rollout.requirements.traits.labels == {"app": "web"}


def test_its_priority_class_counts_as_that_of_a_deployment() -> None:
    texts = (HIGH, ROLLOUT.replace("ANNOTATIONS", ""), ROLLOUTS)
    rollout = bindings(compile_manifests(read(*texts).manifests))["ns/web-rollout"]
    assert (rollout.priority, rollout.priority_class) == (7, "high")


def test_the_annotation_says_replicas_where_the_shape_has_none() -> None:
    annotated = QUEUE.replace(
        "{name: all}", '{name: all, annotations: {wharfinger.io/replicas: "4"}}'
    )
    queues = policy("kueue.x-k8s.io/v1beta1", "ClusterQueue")
    plain = bindings(compile_manifests(read(QUEUE, queues).manifests))
    assert plain["default/all-clusterqueue"].replicas == 0
    four = bindings(compile_manifests(read(annotated, queues).manifests))
    assert four["default/all-clusterqueue"].replicas == 4


@pytest.mark.parametrize("said", ["-1", "4.5", "many", "2147483648", "", "٤"])
def test_an_annotation_that_is_no_count_is_refused_with_its_line(said: str) -> None:
    text = ROLLOUT.replace("ANNOTATIONS", f', annotations: {{wharfinger.io/replicas: "{said}"}}')
    (error,) = compile_manifests(read(text, ROLLOUTS).manifests).errors
    assert (error.line, error.field) == (3, 'metadata.annotations["wharfinger.io/replicas"]')
    assert error.text.startswith("expected a whole number from 0 to 2147483647, got ")


def test_a_deployment_takes_its_replicas_from_its_spec_only() -> None:
    text = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, annotations: {wharfinger.io/placement: any, wharfinger.io/replicas: "3"}}
spec: {replicas: 2}
"""
    (error,) = compile_manifests(read(text).manifests).errors
    assert error.text.startswith("expected no such annotation: the replicas of a Deployment are in")


def test_a_template_of_an_unknown_kind_is_checked_as_that_of_a_deployment() -> None:
    wrong = ROLLOUT.replace("ANNOTATIONS", "").replace("cpu: 500m", "cpu: 500 m")
    (error,) = load_manifests(wrong, "file.yaml").errors
    assert str(error) == (
        "file.yaml:12: spec.template.spec.containers[0].resources.requests.cpu: "
        "expected a quantity such as 500m, 2 or 1.5Gi, got '500 m'"
    )


@pytest.mark.parametrize(
    "spec",
    ["spec: 7", "spec: [a]", "spec: null", "spec: {replicas: two}", "spec: {replicas: true}",
     "spec: {replicas: 2, template: x}", "spec: {replicas: 2, template: {spec: {}}}",
     "spec: {replicas: 2, template: {spec: {containers: x}}}", "rules: []"],
)  # fmt: skip
def test_any_other_shape_goes_as_it_is(spec: str) -> None:
    text = f"apiVersion: example.org/v1\nkind: Thing\nmetadata: {{name: a}}\n{spec}\n"
    found = bindings(compile_manifests(read(text, policy("example.org/v1", "Thing")).manifests))
    assert found["default/a-thing"].replicas == 0


def test_scope_is_kubernetes_own_or_that_of_the_definition_applied_with_it() -> None:
    queues = policy("kueue.x-k8s.io/v1beta1", "ClusterQueue")
    definition = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterqueues.kueue.x-k8s.io}
spec: {group: kueue.x-k8s.io, scope: Cluster, names: {kind: ClusterQueue}}
"""
    found = bindings(compile_manifests(read(QUEUE, queues, definition).manifests))
    assert set(found) == {"all-clusterqueue"}
    assert found["all-clusterqueue"].resource.namespace == ""
    role = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:Web:reader"}
rules: []
"""
    roles = policy("rbac.authorization.k8s.io/v1", "ClusterRole")
    found = bindings(compile_manifests(read(role, roles).manifests))
    assert found["system.web.reader-clusterrole"].resource.name == "system:Web:reader"


def test_two_kinds_of_one_name_are_not_one_binding() -> None:
    job = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}\n"
    jobs = policy("batch.volcano.sh/v1alpha1", "Job", name="q")
    first = compile_manifests(
        read("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {}\n",
             policy("batch/v1", "Job")).manifests
    )  # fmt: skip
    known = list(bindings(first).values())
    (error,) = compile_manifests(read(job, jobs).manifests, known_bindings=known).errors
    assert str(error) == (
        "file.yaml:3: metadata.name: expected a name of which there is no binding yet: "
        "default/a-job is that of the Job a of batch/v1"
    )


def test_older_versions_of_what_goes_as_it_is_are_placed_and_those_of_policies_refused() -> None:
    budget = "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: a}\n"
    found = compile_manifests(
        read(budget, policy("policy/v1beta1", "PodDisruptionBudget")).manifests
    )
    assert set(bindings(found)) == {"default/a-poddisruptionbudget"}
    pool = "apiVersion: karpenter.sh/v1alpha5\nkind: NodePool\nmetadata: {name: a}\n"
    (error,) = load_manifests(pool, "file.yaml").errors
    assert error.text.startswith("expected karpenter.sh/v1 or karpenter.sh/v1beta1 for the kind")


# A chart.


def test_a_whole_rendering_is_taken_with_each_skipped_kind_named_once() -> None:
    loaded = load_files([CHART])
    assert loaded.errors == ()
    intake = compile_manifests(loaded.manifests)
    assert set(bindings(intake)) == {
        "shop/shop-deployment",
        "shop/shop-config-configmap",
        "shop/shop-service",
        "shop/shop-canary-rollout",
    }
    assert [str(kind) for kind in intake.skipped_kinds] == [
        "skipped 2 ServiceAccount (v1): no policy selects them",
        "skipped 1 Secret (v1): no policy selects them",
        "skipped 1 ClusterRole (rbac.authorization.k8s.io/v1): no policy selects them",
        "skipped 1 ClusterRoleBinding (rbac.authorization.k8s.io/v1): no policy selects them",
        "skipped 1 HorizontalPodAutoscaler (autoscaling/v2): no policy selects them",
        "skipped 1 Ingress (networking.k8s.io/v1): no policy selects them",
        "skipped 1 Pod (v1): no policy selects them",
    ]
    assert [e.line for e in intake.refusals] == sorted(e.line for e in intake.refusals)
    assert len(intake.refusals) == 8
    assert all(one.why == NO_POLICY for one in intake.skipped)


def test_deleting_a_rendering_withdraws_what_was_placed_and_nothing_else() -> None:
    loaded = load_files([CHART])
    applied = compile_manifests(loaded.manifests)
    policies = [f.data.policy for f in applied.facts if isinstance(f.data, PolicyApplied)]
    gone = compile_deletions(loaded.manifests, policies, bindings(applied).values())
    assert gone.errors == ()
    withdrawn = [f.data.name for f in gone.facts if isinstance(f.data, BindingWithdrawn)]
    # The kinds that are read are withdrawn whether they are known or not.
    assert set(withdrawn) == {*bindings(applied), "shop/shop-test-pod"}


def test_a_secret_of_a_chart_is_in_no_fact() -> None:
    loaded = load_files([CHART])
    secrets = policy("v1", "Secret", "shop", "secrets")
    manifests = (*loaded.manifests, *read(secrets).manifests)
    intake = compile_manifests(manifests)
    assert "shop/shop-secret" in bindings(intake)
    assert all("aHVudGVyMg" not in str(fact) for fact in intake.facts)


# The page.


def test_the_page_of_kinds_is_the_one_in_the_code() -> None:
    page = (ROOT / "docs" / "kinds.md").read_text(encoding="utf-8")
    assert page == kinds_markdown(), "run `make docs`"


def test_the_page_has_each_kind_and_what_it_says_is_so() -> None:
    page = kinds_markdown()
    for kind in KINDS:
        assert f"| {kind.kind} | " in page
        assert f"`{kind.api_version}`" in page
        text = f"apiVersion: {kind.api_version}\nkind: {kind.kind}\nmetadata: {{name: a}}\n"
        manifests = load_manifests(text, "f").manifests
        if manifests and becomes(kind).startswith(("a workload", "an object as it is")):
            annotated = text.replace(
                "{name: a}", "{name: a, annotations: {wharfinger.io/placement: any}}"
            )
            assert len(bindings(compile_manifests(load_manifests(annotated, "f").manifests))) == 1
