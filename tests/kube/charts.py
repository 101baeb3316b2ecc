"""The Helm charts, rendered by Helm itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.kube.programs import helm
from ruamel.yaml import YAML
from tests.kube.member import Json

CHARTS = Path(__file__).resolve().parents[2] / "infra" / "helm"

RELEASE = "wharfinger"
NAMESPACE = "wharfinger-system"

PLANE: Json = {
    "image": {"repository": "registry.example/wharfinger", "tag": "1", "pullSecrets": ["pull"]},
    "kafka": {
        "bootstrap": "one.example:9093,two.example:9093",
        "security": "SASL_SSL",
        "saslMechanism": "SCRAM-SHA-512",
        "credentials": {"secretName": "kafka"},
        "tls": {"secretName": "kafka-tls", "certKey": "tls.crt", "keyKey": "tls.key"},
    },
    "database": {
        "secretName": "owner",
        "logins": {"stage": "stages", "publisher": "publishing", "api": "web"},
    },
    "settings": {"log_level": "debug", "take_max": 1_000_000, "batch_idle_s": 0.5},
    "prometheus": {
        "url": "http://prometheus:9090",
        "clusterLabel": "cluster",
        "bearerSecretName": "prometheus",
    },
    "clusters": ["bergen", "oslo"],
    "services": {"estimator": {"replicas": 0}, "scheduler": {"replicas": 5}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {
        "apiFrom": [{"namespaceSelector": {}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "kafka": {"ports": [9093], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        "egress": [{"ports": [{"port": 8888}]}],
    },
    "podLabels": {"team": "placement"},
    "podAnnotations": {"example.com/note": "true"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
}

MEMBER: Json = {
    "cluster": {
        "name": "oslo",
        "mode": "act",
        "verbs": ["bind", "nodes", "copy"],
        "secretNamespaces": ["store", "shop"],
        "labels": {"tier": "production"},
        "provider": "metal",
        "region": "north",
        "leaseS": 40,
    },
    "processes": {"enabled": True},
    "kafka": PLANE["kafka"],
    "networkPolicy": {"metricsFrom": [{"podSelector": {}}]},
    "podLabels": {"team": "placement"},
}


class HelmError(Exception):
    """What Helm says."""


def run_helm(*arguments: str) -> str:
    done = subprocess.run([str(helm()), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HelmError(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def values_file(folder: Path, values: Json) -> Path:
    file = folder / "values.yaml"
    with file.open("w") as out:
        YAML(typ="safe", pure=True).dump(values, out)
    return file


def rendered(chart: str, folder: Path, values: Json) -> list[Json]:
    """With hooks, in the order of installation."""
    text = run_helm(
        "template",
        RELEASE,
        str(CHARTS / chart),
        f"--namespace={NAMESPACE}",
        "--kube-version=1.36.0",
        f"--values={values_file(folder, values)}",
    )
    return [one for one in YAML(typ="safe", pure=True).load_all(text) if one]


def key(manifest: Json) -> tuple[Any, ...]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def pods(manifests: list[Json]) -> Iterator[tuple[str, Json]]:
    """Name of a Deployment or Job -> its pod template."""
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "Job"):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]
