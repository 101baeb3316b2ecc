"""The manifests that give the collector its rights, made of what is read (`watched`).

No verb but get, list and watch, and no secrets: who applies this lets nothing be written.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.runtime.kube.watched import DISCOVERY, NON_RESOURCE, WATCHED, WatchedKind

NAMESPACE = "wharfinger-system"
ACCOUNT = "wharfinger-collector"

Manifest = dict[str, object]


def collector_rights(
    kinds: Iterable[WatchedKind] = WATCHED, namespace: str = NAMESPACE
) -> list[Manifest]:
    """A namespace, a service account in it, and a role of the whole cluster that reads `kinds`."""
    metadata = {"name": ACCOUNT}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": namespace},
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": collector_rules(kinds),
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": ACCOUNT,
            },
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
        },
    ]


def collector_rules(kinds: Iterable[WatchedKind] = WATCHED) -> list[Manifest]:
    """One rule for each API group and its verbs, in order of name; then the paths that are no
    objects."""
    resources: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for kind in kinds:
        resources.setdefault((kind.group, kind.verbs), set()).add(kind.resource)
    rules: list[Manifest] = [
        {"apiGroups": [group], "resources": sorted(names), "verbs": list(verbs)}
        for (group, verbs), names in sorted(resources.items())
    ]
    rules.append({"nonResourceURLs": [*NON_RESOURCE, *DISCOVERY], "verbs": ["get"]})
    return rules
