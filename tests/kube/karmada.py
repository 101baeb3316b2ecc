"""Karmada itself on an API server: its definitions, webhooks and controllers, built from its own
module. Its scheduler is left out: that is what Wharfinger is in its place."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from infra.kube import cluster
from infra.kube.certificates import Authority
from infra.kube.programs import karmada, karmada_sources
from ruamel.yaml import YAML
from tests.kube.member import Json, Member, namespace
from tests.kube.program import program
from tests.kube.test_hub import CRDS
from tests.patience import until

from wharfinger.runtime.processes import free_port

SYSTEM, REGISTERED = "karmada-system", "karmada-cluster"
"""Its namespaces, on the hub; in the second one are the Secrets of members."""

ACCOUNT = "karmada-controllers"

_CLUSTER = "clusters.cluster.karmada.io"


@contextmanager
def karmada_hub(directory: Path) -> Iterator[Member]:
    """A new API server with all of Karmada but its scheduler. On the main thread."""
    cluster.start(directory, (cluster.HUB_CONTROLLERS,), with_parent=True)
    hub = Member(directory)
    try:
        with ExitStack() as running:
            _define(hub)
            hub.apply(namespace(SYSTEM), namespace(REGISTERED))
            running.enter_context(_webhook(hub))
            running.enter_context(_controllers(hub))
            yield hub
    finally:
        cluster.stop(directory)


def _define(hub: Member) -> None:
    """All kinds, as its charts have them. `Cluster` is none of them: Karmada serves it from an API
    server of its own, and here it is the definition of the tests."""
    kinds = karmada_sources() / "charts" / "karmada" / "_crds" / "bases"
    hub.kubectl("apply", "--server-side", "-R", "-f", str(kinds))
    definitions = YAML(typ="safe").load_all(CRDS / "karmada.yaml")
    hub.apply(*(one for one in definitions if one["metadata"]["name"] == _CLUSTER))
    hub.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


@contextmanager
def _webhook(hub: Member) -> Iterator[None]:
    """Its admission, that gives bindings their ids and checks each write to them."""
    folder = hub.directory / "webhook"
    folder.mkdir()
    authority = Authority("karmada")
    authority.server(cluster.LOOPBACK).write(folder, "tls")
    authority.pair.write(folder, "authority")
    port, health = free_port(), free_port()
    flags = (
        f"--bind-address={cluster.LOOPBACK}",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--health-probe-bind-address={cluster.LOOPBACK}:{health}",
    )
    with _running(hub, "karmada-webhook", *flags) as process:
        trusted = ssl.create_default_context(cafile=str(folder / "authority.crt"))
        until(lambda: _answers(process, f"https://{cluster.LOOPBACK}:{port}", trusted))
        hub.kubectl("apply", "-f", "-", stdin=_webhook_configuration(port, authority))
        yield


def _answers(process: subprocess.Popen[bytes], url: str, trusted: ssl.SSLContext) -> bool:
    assert process.poll() is None, "the webhooks ended"
    try:
        with urllib.request.urlopen(url, context=trusted):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _webhook_configuration(port: int, authority: Authority) -> str:
    """As Karmada is deployed with, but for where it listens."""
    text = (karmada_sources() / "artifacts" / "deploy" / "webhook-configuration.yaml").read_text()
    there = "https://karmada-webhook.karmada-system.svc:443"
    assert there in text
    trusted = base64.b64encode(authority.pair.certificate).decode()
    return text.replace(there, f"https://{cluster.LOOPBACK}:{port}").replace(
        "{{caBundle}}", trusted
    )


@contextmanager
def _controllers(hub: Member) -> Iterator[None]:
    """Those that are on by default."""
    flags = ("--leader-elect=false", "--health-probe-bind-address=0", "--kube-api-qps=1000")
    more = ("--cluster-status-update-frequency=1s", "--kube-api-burst=1000")
    with _running(hub, "karmada-controller-manager", *flags, *more):
        yield


@contextmanager
def _running(hub: Member, name: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    command = (
        str(karmada() / name),
        f"--kubeconfig={hub.kubeconfig()}",
        "--metrics-bind-address=0",
        *flags,
    )
    with program(hub.directory / f"{name}.log", command) as process:
        yield process


@contextmanager
def registered(hub: Member, member: Member) -> Iterator[None]:
    """The member as a Cluster of the hub, to which its controllers push; ready."""
    binding: Json = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": REGISTERED}],
    }
    account: Json = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": REGISTERED},
    }
    member.apply(namespace(REGISTERED), account, binding)
    try:
        _register(hub, member)
        yield
    finally:
        member.kubectl("delete", "clusterrolebinding", ACCOUNT)
        member.kubectl("delete", "namespace", REGISTERED, "--wait=false")


def _register(hub: Member, member: Member) -> None:
    found = cluster.find(member.directory)
    assert found is not None, "the member runs"
    token = member.kubectl("create", "token", ACCOUNT, "-n", REGISTERED, "--duration=24h")
    uid = member.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
    secret: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": member.name, "namespace": REGISTERED},
        "stringData": {
            "token": token,
            "caBundle": (member.directory / "authority.crt").read_text(),
        },
    }
    one: Json = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": member.name},
        "spec": {
            "id": uid,
            "syncMode": "Push",
            "apiEndpoint": found.server,
            "secretRef": {"namespace": REGISTERED, "name": member.name},
        },
    }
    hub.apply(secret, one)
    until(lambda: _is_ready(hub, member.name), lambda: hub.items(_CLUSTER))


def _is_ready(hub: Member, name: str) -> bool:
    """And its capacity is known."""
    found: Json = json.loads(hub.kubectl("get", _CLUSTER, name, "-o", "json"))
    status = found.get("status", {})
    ready = {c["type"]: c["status"] for c in status.get("conditions", ())}.get("Ready") == "True"
    taints = found["spec"].get("taints", ())
    return bool(ready and not taints and status.get("resourceSummary", {}).get("allocatable"))
