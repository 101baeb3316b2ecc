"""The manifests that give collector and actuator their rights: two accounts, because only one of
them writes.

The collector's are made of what is read (`watched`): no verb but get, list and watch, and no
secrets. The actuator's are made of the verbs that are in force.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from wharfinger.domain.actuation import HUB_VERBS, VERBS, Verb
from wharfinger.runtime.kube.watched import DISCOVERY, NON_RESOURCE, WATCHED, WatchedKind

NAMESPACE = "wharfinger-system"
ACCOUNT = "wharfinger-collector"
WRITER = "wharfinger-actuator"
LEASE = "wharfinger-actuator"
PAUSE = "wharfinger-pause"
"""Name of the ConfigMap that stops all writing to its cluster while it exists."""

NOT_PROPAGATED = {"namespace.karmada.io/skip-auto-propagation": "true"}
"""Label of our namespace in a hub. Karmada makes every other namespace of its hub in all members,
and where the one of the hub is deleted, it deletes those: with our accounts and the Lease."""

Manifest = dict[str, object]


def collector_rights(
    kinds: Iterable[WatchedKind] = WATCHED, namespace: str = NAMESPACE, *, hub: bool = False
) -> list[Manifest]:
    """A namespace, a service account in it, and a role of the whole cluster that reads `kinds`."""
    return [
        _namespace(namespace, hub),
        _account(ACCOUNT, namespace),
        *_role("ClusterRole", ACCOUNT, "", namespace, collector_rules(kinds)),
    ]


def actuator_rights(
    verbs: Collection[Verb], namespace: str = NAMESPACE, secrets: Iterable[str] = ()
) -> list[Manifest]:
    """A second service account: what the verbs need in the whole cluster, and in our namespace the
    Lease and the ConfigMap that stops everything. `secrets`: namespaces whose Secrets are copied:
    a role in each."""
    return [
        _namespace(namespace, any(verb in HUB_VERBS for verb in verbs)),
        _account(WRITER, namespace),
        *_role("ClusterRole", WRITER, "", namespace, actuator_rules(verbs)),
        *_role("Role", WRITER, namespace, namespace, own_rules()),
        *(
            manifest
            for within in sorted(secrets)
            for manifest in _role("Role", WRITER, within, namespace, secret_rules(verbs))
        ),
    ]


COPYING_VERBS: tuple[Verb, ...] = ("copy", "templates")
"""Those with which Secrets can be allowed: into a member cluster, and from a hub."""

_COPY, _TEMPLATES = ("create", "delete", "list", "patch", "watch"), ("list", "watch")


def secret_rules(verbs: Collection[Verb]) -> list[Manifest]:
    """In one namespace whose Secrets are copied: into a member cluster, or from a hub."""
    allowed = _COPY if "copy" in verbs else _TEMPLATES
    return [{"apiGroups": [""], "resources": ["secrets"], "verbs": [*allowed]}]


def _copied(verbs: tuple[str, ...]) -> tuple[Manifest, ...]:
    """No claim is ever deleted."""
    of_claims = [verb for verb in verbs if verb != "delete"]
    return (
        {"apiGroups": [""], "resources": ["configmaps", "serviceaccounts"], "verbs": list(verbs)},
        {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": of_claims},
        {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets"], "verbs": list(verbs)},
    )


_OF_VERB: dict[Verb, tuple[Manifest, ...]] = {
    "bind": (
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    ),
    "evict": ({"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},),
    "claims": (
        {
            "apiGroups": ["karpenter.sh"],
            "resources": ["nodeclaims"],
            "verbs": ["create", "delete", "list", "watch"],
        },
        {"apiGroups": ["karpenter.sh"], "resources": ["nodepools"], "verbs": ["list"]},
    ),
    "karmada": (
        {
            "apiGroups": ["work.karmada.io"],
            "resources": ["clusterresourcebindings", "resourcebindings"],
            "verbs": ["list", "patch", "watch"],
        },
        {
            "apiGroups": ["work.karmada.io"],
            "resources": ["clusterresourcebindings/status", "resourcebindings/status"],
            "verbs": ["patch"],
        },
    ),
    "ocm": (
        {
            "apiGroups": ["cluster.open-cluster-management.io"],
            "resources": ["placementdecisions"],
            "verbs": ["create", "delete", "list", "patch", "watch"],
        },
        {
            "apiGroups": ["cluster.open-cluster-management.io"],
            "resources": ["placements"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["cluster.open-cluster-management.io"],
            "resources": ["placementdecisions/status", "placements/status"],
            "verbs": ["patch"],
        },
    ),
    "nodes": ({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},),
    "copy": _copied(_COPY),
    "templates": _copied(_TEMPLATES),
}


def actuator_rules(verbs: Collection[Verb]) -> list[Manifest]:
    """Of the whole cluster, in the order of the verbs. The first one says which cluster it is."""
    rules: list[Manifest] = [
        {
            "apiGroups": [""],
            "resources": ["namespaces"],
            "resourceNames": ["kube-system"],
            "verbs": ["get"],
        }
    ]
    for verb in VERBS:
        if verb in verbs:
            rules += _OF_VERB[verb]
    return rules


def own_rules() -> list[Manifest]:
    """In our own namespace. A name cannot be required of what is created."""
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    return [
        {**leases, "verbs": ["create"]},
        {**leases, "resourceNames": [LEASE], "verbs": ["get", "update"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [PAUSE],
            "verbs": ["get"],
        },
    ]


def _namespace(name: str, hub: bool) -> Manifest:
    labels: Manifest = {"labels": NOT_PROPAGATED} if hub else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **labels}}


def _account(name: str, namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    }


def _role(
    kind: str, account: str, within: str, namespace: str, rules: list[Manifest]
) -> list[Manifest]:
    """A role and its binding to the account. `within`: the namespace of a Role."""
    metadata = {"name": account, **({"namespace": within} if within else {})}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": kind, "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
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
