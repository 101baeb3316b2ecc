"""Files to checked manifests: every mistake of a file at once, with its line; nothing unknown and
nothing dropped in silence."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from wharfinger.events.bindings import BindingRequested
from wharfinger.events.intake import NO_OBJECT, NO_POLICY, STEERS, compile_manifests
from wharfinger.manifests.kinds import BY_NAME, KINDS
from wharfinger.manifests.parse import Manifest, load_files, load_manifests

DATA = Path(os.environ.get("WHARFINGER_DATA") or Path(__file__).parents[3] / "shared" / "data")

needs_manifests = pytest.mark.skipif(
    not (DATA / "k8s_manifests").is_dir(),
    reason=f"manifests not at {DATA / 'k8s_manifests'} (set WHARFINGER_DATA)",
)
CRANE_POLICIES = DATA.parent / "conformance" / "crane" / "policy.json"
needs_vectors = pytest.mark.skipif(
    not CRANE_POLICIES.is_file(), reason=f"crane's policies not at {CRANE_POLICIES}"
)

POD_TOP = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"


def one(text: str) -> Manifest:
    loaded = load_manifests(text, "file.yaml")
    assert [str(e) for e in loaded.errors] == []
    (manifest,) = loaded.manifests
    return manifest


def told(text: str) -> list[str]:
    loaded = load_manifests(text, "file.yaml")
    return [str(e) for e in loaded.errors]


def test_all_mistakes_of_a_file_are_told_in_order_of_line() -> None:
    text = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: Web_1
spec:
  replica: 3
  replicas: "3"
  template:
    spec:
      containers:
      - name: a
        resources: {requests: {cpu: 1 core, memory: -1Gi}}
      tolerations:
      - operator: Sometimes
---
apiVersion: v1
kind: ConfigMap
metadata: {labels: {a: 1}}
---
- 1
---
a: [
"""
    assert told(text) == [
        "file.yaml:4: metadata.name: expected a name of at most 253 lower-case letters, digits, "
        "'-' and '.', "
        "got 'Web_1'",
        (
            "file.yaml:6: spec.replica: expected a field of Deployment (did you mean replicas?), "
            "got 'replica'"
        ),
        "file.yaml:7: spec.replicas: expected an integer, got '3'",
        "file.yaml:12: spec.template.spec.containers[0].resources.requests.cpu: "
        "expected a quantity such as 500m, "
        "2 or 1.5Gi,"
        " got '1 core'",
        "f"
        "ile.yaml:12: spec.template.spec.containers[0].resources.requests.memory: "
        "expected a quantity that is not negative,"
        " got '-1Gi'",
        (
            "file.yaml:14: spec.template.spec.tolerations[0].operator: expected 'Equal', 'Exists', "
            "'Gt', 'Lt' or '', got 'Sometimes'"
        ),
        "file.yaml:18: metadata.labels.a: expected a string, got 1",
        "file.yaml:20: expected an object with apiVersion and kind, got a list",
        (
            "file.yaml:23: expected YAML, got an error: expected the node content, "
            "but found '<stream end>'"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("kind: Pod\n", "file.yaml:1: apiVersion: expected a string, got nothing"),
        ("apiVersion: v1\nkind: [Pod]\n", "file.yaml:2: kind: expected a string, got a list"),
        (
            "apiVersion: policy.karmada.io/v1beta1\nkind: PropagationPolicy\n",
            (
                "file.yaml:1: apiVersion: expected policy.karmada.io/v1alpha1 for the kind "
                "PropagationPolicy, got 'policy.karmada.io/v1beta1'"
            ),
        ),
        ("apiVersion: v1\nkind: Pod\n", "file.yaml:1: metadata: expected a value, got nothing"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {}\n",
            "file.yaml:3: metadata.name: expected a name, got nothing",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {generateName: Not/A/Name-}\n",
            "file.yaml:3: metadata.generateName: expected a name of at most 253 lower-case "
            "letters, digits, '-' and '.',"
            " got 'Not/A/Name-'",
        ),
        (POD_TOP + "spec: []\n", "file.yaml:4: spec: expected a mapping, got a list"),
        (
            POD_TOP + "spec: {priority: 1.5}\n",
            "file.yaml:4: spec.priority: expected an integer, got 1.5",
        ),
        (
            POD_TOP + "spec: {priority: true}\n",
            "file.yaml:4: spec.priority: expected an integer, got true",
        ),
        (
            POD_TOP + "spec: {priority: 3000000000}\n",
            (
                "file.yaml:4: spec.priority: expected an integer from -2147483648 to 2147483647, "
                "got 3000000000"
            ),
        ),
        (
            POD_TOP + "spec: {hostname: .nan}\n",
            "file.yaml:4: spec.hostname: expected a finite number, got nan",
        ),
        (
            POD_TOP + "spec: {nodeSelector: {7: x}}\n",
            "file.yaml:4: spec.nodeSelector.7: expected a string as key, got 7; put it in quotes",
        ),
        (
            POD_TOP + "spec:\n  containers:\n  - resources:\n      limits: {cpu: 99999999999T}\n",
            (
                "file.yaml:7: spec.containers[0].resources.limits.cpu: "
                "expected a quantity below 2^63, got '99999999999T'"
            ),
        ),
        (
            POD_TOP + "spec:\n  containers:\n  - resources:\n      limits: {cpu: 10P}\n",
            "f"
            "ile.yaml:7: spec.containers[0].resources.limits.cpu: "
            "expected a number of cores whose thousandths are below 2^63,"
            " got '10P'",
        ),
    ],
)
def test_one_mistake_one_line(text: str, error: str) -> None:
    assert told(text) == [error]


def test_a_kind_that_is_nearly_one_that_is_read_is_named_with_it() -> None:
    (error,) = told("apiVersion: apps/v1\nkind: Deploymnt\n")
    assert error.startswith("file.yaml:2: kind: expected one of Cluster, ManagedCluster, Node, ")
    assert error.endswith("got 'Deploymnt' of apps/v1 (did you mean Deployment?)")
    (error,) = told("apiVersion: v1\nkind: Deployment\nmetadata: {name: a}\n")
    assert error == "file.yaml:1: apiVersion: expected apps/v1 for the kind Deployment, got 'v1'"
    (error,) = told("apiVersion: wharfinger.io/v1alpha1\nkind: Anything\nmetadata: {name: a}\n")
    assert error.endswith("got 'Anything' of wharfinger.io/v1alpha1")


def test_null_is_absent_and_an_unknown_null_is_still_unknown() -> None:
    assert one(POD_TOP + "spec: null\nstatus: null\n").unacted == []
    assert told(POD_TOP + "sepc: null\n") == [
        "file.yaml:4: sepc: expected a field of Pod (did you mean spec?), got 'sepc'"
    ]


NEWER = (
    POD_TOP
    + """\
spec:
  evictionInterceptors: [{name: a}]
  containers:
  - {name: a, restartRules: {}}
"""
)


def test_fields_of_newer_releases_are_reported_and_not_refused() -> None:
    manifest = one(NEWER)
    assert manifest.unacted == ["spec.containers[0].restartRules", "spec.evictionInterceptors"]
    said = [str(found) for found in compile_manifests([manifest]).unacted]
    assert said[0] == (
        "file.yaml:5: spec.evictionInterceptors: Pod has no such field in the releases known "
        "here; accepted, not acted on"
    )
    assert said[1].startswith("file.yaml:7: spec.containers[0].restartRules: Pod has no such field")


@pytest.mark.parametrize(
    "spelling",
    [
        "nodeSelectors",
        "nodeselector",
        "node_selector",
        "nodeSlector",
        "nodeSelectro",
        "hostNetwrk",
        "toleration",
    ],
)
def test_misspelt_fields_are_refused(spelling: str) -> None:
    (error,) = told(POD_TOP + f"spec: {{{spelling}: {{}}}}\n")
    assert error.startswith(f"file.yaml:4: spec.{spelling}: expected a field of Pod (did you mean ")


@pytest.mark.parametrize(
    "document",
    [
        (
            "apiVersion: wharfinger.io/v1alpha1\nkind: RebalancePolicy\nmetadata: {name: a}\n"
            "spec: {fallingStar: 1}\n"
        ),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "fallingStar: 1\n"
        ),
        "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nfallingStar: 1\n",
        (
            "apiVersion: scheduler.policy.crane.io/v1alpha1\nkind: DynamicSchedulerPolicy\n"
            "spec: {fallingStar: 1}\n"
        ),
    ],
)
def test_our_own_kinds_and_configurations_of_schedulers_take_no_unknown_field(
    document: str,
) -> None:
    assert any("fallingStar: expected a field of " in error for error in told(document))


def test_a_name_that_no_yaml_can_have_is_refused() -> None:
    (error,) = told(
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "\\u0000others": ["spec"]}'
    )
    assert "control characters" in error


def test_fields_that_are_not_acted_on_are_listed_and_empty_ones_are_not() -> None:
    manifest = one(
        POD_TOP + "spec:\n"
        "  priorityClassName: high\n"
        "  containers:\n"
        "  - image: a\n"
        "  volumes:\n"
        "  - {name: a, emptyDir: {}}\n"
        "  resourceClaims:\n"
        "  - {name: a, resourceClaimName: mine}\n"
        "  - {name: b, resourceClaimTemplateName: one-each}\n"
        "  - {name: c, resourceClaimTemplateName: ''}\n"
    )
    assert sorted(manifest.unacted) == [
        "spec.priorityClassName",
        "spec.resourceClaims[1].resourceClaimTemplateName",
    ]


def test_the_items_of_a_list_are_manifests_with_their_own_lines() -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n"
        "- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n"
        "- apiVersion: v1\n  kind: Sevice\n"
    )
    loaded = load_manifests(text, "file.yaml")
    assert [m.kind.kind for m in loaded.manifests] == ["ConfigMap"]
    (error,) = loaded.errors
    assert str(error).startswith("file.yaml:6: items[1].kind: expected one of ")


def test_a_manifest_keeps_the_users_object() -> None:
    manifest = one("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {b: c}\n")
    assert (
        manifest.json
        == '{"apiVersion":"v1","data":{"b":"c"},"kind":"ConfigMap","metadata":{"name":"a"}}'
    )


def test_folders_are_read_in_order_of_name_and_broken_files_say_so(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.json").write_text(
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}'
    )
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / "c.yaml").write_bytes(b"a: 1\nb: \xff\n")
    (tmp_path / "d.yaml").write_bytes(b" " * (5 * 1024 * 1024))
    loaded = load_files([tmp_path, tmp_path / "missing.yaml"])
    assert [Path(m.file).name for m in loaded.manifests] == ["a.json", "b.yml"]
    assert [str(e).removeprefix(f"{tmp_path}/") for e in loaded.errors] == [
        "c.yaml:2: expected UTF-8, got the byte 0xff",
        "d.yaml:1: expected at most 4 MiB, got 5.0 MiB",
        "missing.yaml:1: expected a file, got an error: No such file or directory",
    ]


def test_every_kind_is_listed_once() -> None:
    assert len(BY_NAME) == len(KINDS)


@needs_manifests
@pytest.mark.data
def test_manifests_as_projects_ship_them_are_each_answered() -> None:
    """Applied alone each is taken, skipped for a reason, or refused with line and field."""
    rows = [
        json.loads(line)
        for line in (DATA / "k8s_manifests" / "manifests.jsonl").read_text().splitlines()
    ]
    assert len(rows) == 148
    refused = []
    skipped: Counter[str] = Counter()
    for row in rows:
        loaded = load_manifests(json.dumps(row["object"], indent=2), row["path"])
        intake = compile_manifests(loaded.manifests)
        for error in (*loaded.errors, *intake.errors):
            assert error.line > 1
            refused.append(f"{row['kind']}: {error.field}")
        skipped.update(kind.why for kind in intake.skipped_kinds)
    # Two templates whose namespace is still to be filled in, and a plugin that is not known here.
    assert refused == [
        "Role: metadata.namespace",
        "RoleBinding: metadata.namespace",
        "KubeSchedulerConfiguration: profiles[0].plugins.preFilter.enabled[0].name",
    ]
    assert skipped == {NO_POLICY: 102, STEERS: 5, NO_OBJECT: 9}


@needs_manifests
@pytest.mark.data
def test_each_object_that_projects_ship_is_placed_where_a_policy_names_its_kind() -> None:
    rows = [
        json.loads(line)
        for line in (DATA / "k8s_manifests" / "manifests.jsonl").read_text().splitlines()
    ]
    placed = 0
    for row in rows:
        alone = load_manifests(json.dumps(row["object"]), row["path"])
        skipped = compile_manifests(alone.manifests).skipped
        if not skipped or skipped[0].why != NO_POLICY:
            continue
        policy = {
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": "ClusterPropagationPolicy",
            "metadata": {"name": "all"},
            "spec": {
                "resourceSelectors": [{"apiVersion": row["apiVersion"], "kind": row["kind"]}],
                "placement": {"clusterAffinity": {"clusterNames": ["oslo"]}},
            },
        }
        both = load_manifests(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": [policy, row["object"]]}),
            row["path"],
        )
        intake = compile_manifests(both.manifests)
        assert (both.errors, intake.errors, intake.skipped) == ((), (), ())
        (binding,) = [f.data.binding for f in intake.facts if isinstance(f.data, BindingRequested)]
        assert binding.resource.kind == row["kind"]
        assert binding.policy == "ClusterPropagationPolicy//all"
        placed += 1
    assert placed == 102


@needs_vectors
@pytest.mark.data
def test_load_policies_are_taken_and_refused_as_crane_does() -> None:
    cases = json.loads(CRANE_POLICIES.read_text())["cases"]
    assert len(cases) > 150
    for case in cases:
        loaded = load_manifests(case["input"], case["name"])
        assert (bool(loaded.manifests) and not loaded.errors) == case["expect"]["ok"], case["name"]
        if case["expect"]["ok"]:
            spec, expected = (
                loaded.manifests[0].model.model_dump()["spec"],
                case["expect"]["policy"],
            )
            assert [(s["name"], s["period"]) for s in spec["sync_policy"]] == [
                (s["name"], s["periodNs"]) for s in expected["syncPolicy"]
            ]
            assert [(h["time_range"], h["count"]) for h in spec["hot_value"]] == [
                (h["timeRangeNs"], h["count"]) for h in expected["hotValue"]
            ]
            assert [(p["name"], p["weight"]) for p in spec["priority"]] == [
                (p["name"], p["weight"]) for p in expected["priority"]
            ]
