"""Objects of its namespace that the spec of a pod names, as JSON has it: ConfigMaps, Secrets,
claims, and its ServiceAccount."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

OF_EACH_CLUSTER = ("kube-root-ca.crt",)
"""ConfigMaps that each cluster makes for itself in every namespace."""

DEFAULT_ACCOUNT = "default"
"""The ServiceAccount that each cluster makes for itself in every namespace."""


def workload_references(
    workload: Mapping[str, Any], accounts: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, str], bool]:
    """As `pod_references` of the pods of a workload, without volumes for which it has templates of
    claims. `accounts`: namespace and name -> the ServiceAccounts that are known: a pod that names
    no Secret to pull its images gets those of its account."""
    pod = workload["spec"]["template"]["spec"]
    made = {one["metadata"]["name"] for one in workload["spec"].get("volumeClaimTemplates") or []}
    if made:
        volumes = [one for one in pod.get("volumes") or [] if one.get("name") not in made]
        pod = {**pod, "volumes": volumes}
    found = pod_references(pod)
    account = accounts.get(f"{workload['metadata']['namespace']}/{_account(pod)}", {})
    if not pod.get("imagePullSecrets"):
        for one in account.get("imagePullSecrets") or []:
            if name := one.get("name", ""):
                found["Secret", name] = True
    return found


def pod_references(pod: Mapping[str, Any]) -> dict[tuple[str, str], bool]:
    """Kind and name -> whether the pod needs it: one that is `optional` may be missing."""
    found: dict[tuple[str, str], bool] = {}
    for kind, source, name in _references(pod):
        if name and name not in OF_EACH_CLUSTER:
            needed = not source.get("optional", False)
            found[kind, name] = found.get((kind, name), False) or needed
    return found


def _references(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """(kind, what refers to it, name)."""
    for volume in pod.get("volumes") or []:
        yield from _of_volume(volume)
    for container in [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]:
        for one in container.get("envFrom") or []:
            yield from _by_name(one, configMapRef="ConfigMap", secretRef="Secret")
        for variable in container.get("env") or []:
            source = variable.get("valueFrom") or {}
            yield from _by_name(source, configMapKeyRef="ConfigMap", secretKeyRef="Secret")
    for one in pod.get("imagePullSecrets") or []:
        yield "Secret", one, one.get("name", "")
    if (account := _account(pod)) != DEFAULT_ACCOUNT:
        yield "ServiceAccount", pod, account


def _account(pod: Mapping[str, Any]) -> str:
    """`serviceAccount` is the old name of the field."""
    return str(pod.get("serviceAccountName") or pod.get("serviceAccount") or DEFAULT_ACCOUNT)


def _of_volume(volume: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    yield from _by_name(volume, configMap="ConfigMap")
    for projected in (volume.get("projected") or {}).get("sources") or []:
        yield from _by_name(projected, configMap="ConfigMap", secret="Secret")
    if source := volume.get("persistentVolumeClaim"):
        yield "PersistentVolumeClaim", source, source.get("claimName", "")
    for type in ("secret", "azureFile"):
        if source := volume.get(type):
            yield "Secret", source, source.get("secretName", "")
    # How a driver logs in, such as that of iscsi or csi.
    for source in volume.values():
        if isinstance(source, Mapping):
            yield from _by_name(source, secretRef="Secret", nodePublishSecretRef="Secret")


def _by_name(one: Mapping[str, Any], **kinds: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """`kinds`: field -> the kind of which it holds the name."""
    for field, kind in kinds.items():
        if source := one.get(field):
            yield kind, source, source.get("name", "")
