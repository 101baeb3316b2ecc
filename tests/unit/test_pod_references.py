"""Objects of its namespace that a pod's spec names."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.stages.actuator.pod_references import pod_references, workload_references


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **fields}]}


def env(**source: Any) -> dict[str, Any]:
    return container(env=[{"name": "X", "valueFrom": source}])


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


@pytest.mark.parametrize(
    ("pod", "kind"),
    [
        (container(envFrom=[{"configMapRef": {"name": "x"}}]), "ConfigMap"),
        (container(envFrom=[{"prefix": "P_", "secretRef": {"name": "x"}}]), "Secret"),
        (env(configMapKeyRef={"name": "x", "key": "k"}), "ConfigMap"),
        (env(secretKeyRef={"name": "x", "key": "k"}), "Secret"),
        ({"initContainers": container(env=env()["containers"][0]["env"])["containers"]}, ""),
        ({"initContainers": env(secretKeyRef={"name": "x"})["containers"]}, "Secret"),
        (volume(configMap={"name": "x"}), "ConfigMap"),
        (volume(secret={"secretName": "x"}), "Secret"),
        (volume(projected={"sources": [{"configMap": {"name": "x"}}]}), "ConfigMap"),
        (volume(projected={"sources": [{"secret": {"name": "x"}}]}), "Secret"),
        (volume(projected={"sources": [{"serviceAccountToken": {"path": "p"}}]}), ""),
        (volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "x"}}), "Secret"),
        (volume(iscsi={"secretRef": {"name": "x"}}), "Secret"),
        (volume(azureFile={"secretName": "x", "shareName": "s"}), "Secret"),
        (volume(emptyDir={}), ""),
        (volume(persistentVolumeClaim={"claimName": "x"}), "PersistentVolumeClaim"),
        (volume(ephemeral={"volumeClaimTemplate": {"metadata": {"name": "x"}}}), ""),
        ({"imagePullSecrets": [{"name": "x"}]}, "Secret"),
        (env(fieldRef={"fieldPath": "metadata.name"}), ""),
        (volume(configMap={"name": "kube-root-ca.crt"}), ""),
        ({"serviceAccountName": "x"}, "ServiceAccount"),
        ({"serviceAccount": "x"}, "ServiceAccount"),
        ({"serviceAccountName": "x", "serviceAccount": "x"}, "ServiceAccount"),
        ({"serviceAccountName": "default"}, ""),
        ({}, ""),
    ],
)
def test_what_a_pod_names(pod: dict[str, Any], kind: str) -> None:
    assert pod_references(pod) == ({(kind, "x"): True} if kind else {})


def test_what_is_optional_everywhere_may_be_missing() -> None:
    optional = {"configMapRef": {"name": "x", "optional": True}}
    needed = {"configMapRef": {"name": "y"}}
    pod = container(envFrom=[optional, needed])
    pod |= volume(configMap={"name": "y", "optional": True})
    assert pod_references(pod) == {("ConfigMap", "x"): False, ("ConfigMap", "y"): True}


def test_fields_without_content_are_none() -> None:
    fields = ("volumes", "initContainers", "containers", "imagePullSecrets")
    assert pod_references(dict.fromkeys(fields)) == {}
    empty: dict[str, Any] = {
        "volumes": [{"name": "v", "configMap": None, "secret": {}, "projected": {}}]
    }
    assert pod_references({**empty, **container(env=None, envFrom=None)}) == {}


def test_volumes_for_which_a_workload_has_templates_of_claims_name_none() -> None:
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-claim"}}
        for name in ("data", "shared")
    ]
    workload: dict[str, Any] = {
        "metadata": {"namespace": "shop"},
        "spec": {
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            "template": {"spec": {"volumes": volumes}},
        },
    }
    assert [*workload_references(workload, {})] == [("PersistentVolumeClaim", "shared-claim")]
    del workload["spec"]["volumeClaimTemplates"]
    assert len(workload_references(workload, {})) == 2


@pytest.mark.parametrize(
    ("pod", "secrets"),
    [
        ({"serviceAccountName": "seller"}, {"of-seller"}),
        ({}, {"of-default"}),
        ({"serviceAccountName": "seller", "imagePullSecrets": [{"name": "own"}]}, {"own"}),
        ({"serviceAccountName": "unknown"}, set()),
    ],
    ids=[
        "of its account",
        "of the default account",
        "of its own",
        "of an account that is not known",
    ],
)
def test_images_are_pulled_with_the_secrets_of_the_account(
    pod: dict[str, Any], secrets: set[str]
) -> None:
    accounts = {
        f"shop/{name}": {"imagePullSecrets": [{"name": f"of-{name}"}, {}]}
        for name in ("seller", "default")
    }
    workload = {"metadata": {"namespace": "shop"}, "spec": {"template": {"spec": pod}}}
    found = workload_references(workload, accounts)
    assert {name for kind, name in found if kind == "Secret"} == secrets
