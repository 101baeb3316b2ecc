"""The Helm charts: what they render is accepted by a real API server, strictly and under its
strictest pod security, and gives exactly the rights that `join --print-rbac` prints."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kube.charts import (
    CHARTS,
    MEMBER,
    NAMESPACE,
    PLANE,
    HelmError,
    key,
    pods,
    rendered,
    run_helm,
    values_file,
)
from tests.kube.member import Json, Member, namespace
from tests.kube.test_joining import printed_rights

from wharfinger.runtime.kube.joined import JoinedCluster, joined_clusters
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.runtime.settings import Settings, load_settings, unknown_environment

CASES = {
    "the plane by default": ("wharfinger", {}),
    "the plane with everything": ("wharfinger", PLANE),
    "a member by default": ("member", {}),
    "a member with processes": ("member", MEMBER),
}
SECRET = {"url": "postgresql://w:p@database.example/w", "username": "u", "password": "p"}
"""Key of a Secret -> what it holds here."""

cases = pytest.mark.parametrize(("chart", "values"), CASES.values(), ids=CASES.keys())


@pytest.fixture(scope="module")
def strict(member: Member) -> Iterator[Member]:
    """A cluster in whose namespace pods have to keep the restricted standard."""
    restricted = namespace(NAMESPACE)
    label = "pod-security.kubernetes.io/enforce"
    restricted["metadata"]["labels"] = {label: "restricted"}
    # A Role of Secrets needs its namespace.
    member.apply(restricted, *map(namespace, MEMBER["cluster"]["secretNamespaces"]))
    definition = Path(__file__).parent / "crds" / "monitoring.yaml"
    member.kubectl("apply", "-f", str(definition))
    member.kubectl("wait", "--for=condition=Established", "-f", str(definition))
    yield member
    member.kubectl("delete", "-f", str(definition))
    member.kubectl("label", "namespace", NAMESPACE, f"{label}-")


# --- charts and server


@cases
def test_a_chart_passes_helms_own_check(
    member: Member, tmp_path: Path, chart: str, values: Json
) -> None:
    file = values_file(tmp_path, values)
    said = run_helm("lint", "--strict", f"--values={file}", str(CHARTS / chart))
    assert "0 chart(s) failed" in said


@cases
def test_every_object_is_accepted_by_the_server(
    strict: Member, tmp_path: Path, chart: str, values: Json
) -> None:
    manifests = rendered(chart, tmp_path, values)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    said = strict.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text
    )
    assert len(said.splitlines()) == len(manifests)
    if values is PLANE:
        assert any(one["kind"] == "ServiceMonitor" for one in manifests)


def test_a_field_that_the_server_does_not_know_is_refused(strict: Member, tmp_path: Path) -> None:
    manifests = rendered("wharfinger", tmp_path, {})
    deployment = next(one for one in manifests if one["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["readOnly"] = True
    with pytest.raises(RuntimeError, match="readOnly"):
        strict.kubectl(
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            "-",
            stdin=json.dumps(deployment),
        )


@cases
def test_every_pod_keeps_the_restricted_standard(
    strict: Member, tmp_path: Path, chart: str, values: Json
) -> None:
    manifests = rendered(chart, tmp_path, values)
    accounts = [one for one in manifests if one["kind"] == "ServiceAccount"]
    default = {"metadata": {"name": "default", "namespace": NAMESPACE}}
    strict.apply(*accounts, {"apiVersion": "v1", "kind": "ServiceAccount", **default})
    for name, template in pods(manifests):
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template["metadata"], "name": name, "namespace": NAMESPACE}
        said = strict.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
        assert "created" in said
        (container,) = template["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]["memory"]


# --- what the processes are told


@cases
def test_processes_are_told_settings_that_there_are(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chart: str, values: Json
) -> None:
    manifests = rendered(chart, tmp_path, values)
    for _, template in pods(manifests):
        (container,) = template["spec"]["containers"]
        environment = {one["name"]: _value(one) for one in container["env"]}
        assert len(environment) == len(container["env"])
        assert unknown_environment(environment) == []
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            settings = load_settings()
        assert settings.backend().bootstrap == settings.kafka
        _assert_mounted(settings, container, template)
        if container["command"][0] == "python":
            assert importlib.util.find_spec(container["command"][2]) is not None
            assert settings.http_port == container["ports"][0]["containerPort"]
    if values is PLANE:
        assert (settings.take_max, settings.batch_idle_s) == (1_000_000, 0.5)


def _value(variable: Json) -> str:
    if "value" in variable:
        return str(variable["value"])
    return SECRET.get(variable["valueFrom"]["secretKeyRef"]["key"], "t")


def _assert_mounted(settings: Settings, container: Json, template: Json) -> None:
    """Each file or directory that is named lies in a volume of the pod."""
    volumes = {one["name"] for one in template["spec"]["volumes"]}
    mounts = [Path(one["mountPath"]) for one in container["volumeMounts"]]
    assert volumes == {one["name"] for one in container["volumeMounts"]}
    named = [settings.data_dir, settings.clusters, settings.kafka_ca_file, settings.kafka_key_file]
    for path in named:
        assert path is None or any(path.is_relative_to(mount) for mount in mounts)


def test_every_service_runs_unless_it_is_left_out(member: Member, tmp_path: Path) -> None:
    folders = CHARTS.parents[1].glob("services/wharfinger_*")
    services = {folder.name.removeprefix("wharfinger_") for folder in folders} - {"cli"}

    def running(values: Json) -> dict[str, int]:
        found = rendered("wharfinger", tmp_path, values)
        return {
            one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]["replicas"]
            for one in found
            if one["kind"] == "Deployment"
        }

    assert running({}).keys() == services
    with_everything = running(PLANE)
    assert with_everything.keys() == services - {"estimator"}
    assert with_everything["scheduler"] == 5


def test_each_service_has_the_secret_of_its_login(member: Member, tmp_path: Path) -> None:
    """And the owner's is the Job's alone, which makes the logins that the others name."""
    found = rendered("wharfinger", tmp_path, PLANE)
    secrets = {name: _database_secret(template) for name, template in pods(found)}
    of_services = {name: secret for name, secret in secrets.items() if "migrate" not in name}
    assert "owner" not in of_services.values()
    assert {secret for name, secret in of_services.items() if "publisher" in name} == {"publishing"}
    assert {secret for name, secret in of_services.items() if "api" in name} == {"web"}
    assert list(of_services.values()).count("stages") == len(of_services) - 2
    (job,) = [template for name, template in pods(found) if "migrate" in name]
    assert _database_secret(job) == "owner"
    (container,) = job["spec"]["containers"]
    assert container["command"] == ["wharfinger", "migrate", "--logins", "/logins"]
    (volume,) = [one for one in job["spec"]["volumes"] if one["name"] == "logins"]
    mounted = {
        item["path"]: source["secret"]["name"]
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    assert mounted == {"stage": "stages", "publisher": "publishing", "api": "web"}


def test_logins_that_are_there_already_are_not_made(member: Member, tmp_path: Path) -> None:
    logins = {"stage": "stages", "publisher": "publishing", "api": "web", "make": False}
    found = rendered("wharfinger", tmp_path, {"database": {"logins": logins}})
    (job,) = [template for name, template in pods(found) if "migrate" in name]
    (container,) = job["spec"]["containers"]
    assert container["command"] == ["wharfinger", "migrate", "--roles"]
    assert "logins" not in {one["name"] for one in job["spec"]["volumes"]}


def _database_secret(template: Json) -> str:
    (container,) = template["spec"]["containers"]
    (url,) = [one for one in container["env"] if one["name"] == "WHARFINGER_DATABASE"]
    return str(url["valueFrom"]["secretKeyRef"]["name"])


def test_a_new_publisher_does_not_wait_for_the_old_one(member: Member, tmp_path: Path) -> None:
    """It is not ready while another one holds the lock, so a rolling update would never end."""
    found = {key(one): one for one in rendered("wharfinger", tmp_path, {})}
    publisher = found["Deployment", NAMESPACE, "wharfinger-publisher"]["spec"]
    assert publisher["strategy"] == {"type": "Recreate"}
    assert publisher["replicas"] == 1
    with pytest.raises(HelmError, match="publisher"):
        rendered("wharfinger", tmp_path, {"services": {"publisher": {"replicas": 2}}})


def test_the_cluster_of_a_member_is_joined_as_its_values_say(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = rendered("member", tmp_path, MEMBER)
    (kept,) = [one for one in manifests if one["kind"] == "ConfigMap"]
    directory = tmp_path / "clusters"
    directory.mkdir()
    for name, text in kept["data"].items():
        (directory / name).write_text(text)
    access = Access("https://10.0.0.1:443", token="t")
    monkeypatch.setattr("wharfinger.runtime.kube.joined.in_cluster", lambda _: access)
    joined = joined_clusters(directory)
    assert joined.errors == {}
    expected = JoinedCluster("oslo", access, "act", labels={"tier": "production"}, in_cluster=True)
    assert joined.clusters == {
        "oslo": replace(
            expected,
            provider="metal",
            region="north",
            lease_s=40,
            verbs=("bind", "nodes", "copy"),
            secret_namespaces=("shop", "store"),
        )
    }


# --- rights

RIGHTS: dict[str, tuple[str, tuple[str, ...], bool, tuple[str, ...]]] = {
    "observe": ("observe", (), False, ()),
    "shadow": ("shadow", (), False, ()),
    "act, its default": ("act", (), False, ()),
    "act, all verbs": ("act", ("claims", "nodes", "evict", "bind", "copy"), False, ("shop", "a")),
    "act, one verb": ("act", ("nodes",), False, ()),
    "copies": ("fleet", ("copy",), False, ()),
    "copies, also of Secrets": ("fleet", ("copy",), False, ("shop",)),
    "a hub": ("observe", (), True, ()),
    "a hub, fleet": ("fleet", ("ocm", "karmada"), True, ()),
    "a hub of templates": ("fleet", ("templates",), True, ()),
    "a hub of templates and Secrets": ("fleet", ("templates",), True, ("shop", "a", "shop")),
}


@pytest.mark.parametrize(("mode", "verbs", "hub", "secrets"), RIGHTS.values(), ids=RIGHTS.keys())
def test_a_member_gives_the_printed_rights(
    member: Member,
    tmp_path: Path,
    mode: str,
    verbs: tuple[str, ...],
    hub: bool,
    secrets: tuple[str, ...],
) -> None:
    """Those to Secrets only in the namespaces that are named."""
    cluster = {"mode": mode, "verbs": list(verbs), "hub": hub, "secretNamespaces": list(secrets)}
    found = rendered("member", tmp_path, {"cluster": cluster})
    flags = [f"--verb={verb}" for verb in verbs] + (["--hub"] if hub else [])
    flags += [f"--secrets={namespace}" for namespace in secrets]
    of_secrets = {
        one["metadata"].get("namespace", "")
        for one in found
        if any("secrets" in rule.get("resources", ()) for rule in one.get("rules", ()))
    }
    assert of_secrets == set(secrets)
    printed = printed_rights(tmp_path, f"--mode={mode}", *flags)
    assert sorted(found, key=key) == sorted(printed, key=key)


# --- wrong values

WRONG = {
    "an unknown value": ("wharfinger", {"replica": 2}, "replica"),
    "a setting that the chart gives": ("wharfinger", {"settings": {"kafka": "a:1"}}, "kafka"),
    "one login of three": ("wharfinger", {"database": {"logins": {"api": "web"}}}, "logins"),
    "logins without the owner's Secret": (
        "wharfinger",
        {
            "database": {
                "url": "postgresql://w@db/w",
                "logins": {"stage": "a", "publisher": "b", "api": "c"},
            }
        },
        "database",
    ),
    "no broker": ("wharfinger", {"kafka": {"bootstrap": "broker"}}, "bootstrap"),
    "SASL without a Secret": (
        "wharfinger",
        {"kafka": {"security": "SASL_SSL"}},
        "kafka.credentials.secretName: expected one with security SASL_SSL",
    ),
    "no database": (
        "wharfinger",
        {"database": {"secretName": ""}},
        "database: expected secretName or url",
    ),
    "a verb that the mode does not have": (
        "member",
        {"cluster": {"mode": "shadow", "verbs": ["bind"]}},
        "cluster.verbs: bind of a member in mode shadow: expected none, since it writes nothing",
    ),
    "a verb of hubs": (
        "member",
        {"cluster": {"mode": "act", "verbs": ["ocm"]}},
        "cluster.verbs: ocm of a member in mode act: expected bind, evict, nodes, claims",
    ),
    "Secrets where nothing is copied": (
        "member",
        {"cluster": {"mode": "act", "verbs": ["bind"], "secretNamespaces": ["shop"]}},
        "cluster.secretNamespaces: expected the verb copy",
    ),
    "Secrets of the cluster itself": (
        "member",
        {"cluster": {"mode": "act", "verbs": ["copy"], "secretNamespaces": ["kube-system"]}},
        "cluster.secretNamespaces: kube-system: its Secrets are of its cluster alone",
    ),
    "Secrets of no namespace": (
        "member",
        {"cluster": {"mode": "act", "verbs": ["copy"], "secretNamespaces": ["*"]}},
        "secretNamespaces",
    ),
    "processes of a cluster without a name": (
        "member",
        {"processes": {"enabled": True}},
        "cluster.name: expected",
    ),
}


@pytest.mark.parametrize(("chart", "values", "why"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_refused_by_name(
    member: Member, tmp_path: Path, chart: str, values: Json, why: str
) -> None:
    with pytest.raises(HelmError) as refused:
        rendered(chart, tmp_path, values)
    assert why in str(refused.value)
