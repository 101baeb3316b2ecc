"""Rights of users and service accounts in tests, given and taken away by kubectl."""

from __future__ import annotations

from collections.abc import Sequence

from tests.kube.member import Json, Member

from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig

RBAC = "rbac.authorization.k8s.io"


class Reader:
    """The user `collector`, or another one, with one role, whose rules the test chooses."""

    def __init__(self, member: Member, name: str, user: str = "collector") -> None:
        self._member = member
        self._name = name
        self._user = user

    @property
    def access(self) -> Access:
        return read_kubeconfig(self._member.kubeconfig(self._user))

    def give(self, rules: Sequence[Json]) -> None:
        """These rules, and no others."""
        self._member.apply(_role(self._name, rules), _binding(self._name, self._user))

    def end(self) -> None:
        self._member.kubectl("delete", "clusterrole,clusterrolebinding", self._name)


def _role(name: str, rules: Sequence[Json]) -> Json:
    metadata = {"name": name}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": list(rules),
    }


def _binding(name: str, user: str) -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
