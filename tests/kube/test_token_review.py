"""Tokens of Kubernetes as a way into the API: a real API server says whose they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kube.member import Member, namespace

from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig
from wharfinger_api.grants import ProvenIdentity
from wharfinger_api.openid import claimed
from wharfinger_api.problems import Problem
from wharfinger_api.token_review import TokenReviews

SPACE = "reviewed"
REVIEWER = f"system:serviceaccount:{SPACE}:reviewer"


def token(member: Member, account: str, *arguments: str) -> str:
    return member.kubectl("create", "token", account, "-n", SPACE, *arguments).strip()


@pytest.fixture
def access(member: Member) -> Iterator[Access]:
    """Of a service account that may ask whose a token is, and nothing else."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reviewer"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:auth-delegator",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "reviewer", "namespace": SPACE}],
    }
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": n, "namespace": SPACE}}
        for n in ("reviewer", "deployer")
    ]
    member.apply(namespace(SPACE), *accounts, binding)
    admin = read_kubeconfig(member.kubeconfig())
    yield Access(admin.server, admin.authority, token=token(member, "reviewer"))
    member.kubectl("delete", "clusterrolebinding/reviewer", f"namespace/{SPACE}", "--wait=false")


async def test_an_api_server_says_whose_a_token_is(member: Member, access: Access) -> None:
    reviews = TokenReviews(access, "wharfinger")
    denied = TokenReviews(
        Access(access.server, access.authority, token=token(member, "deployer")), "wharfinger"
    )
    try:
        mine = token(member, "deployer", "--audience", "wharfinger")
        assert (claimed(mine) or {})["aud"] == ["wharfinger"]
        assert await reviews.of(mine) == ProvenIdentity(
            "kubernetes",
            f"system:serviceaccount:{SPACE}:deployer",
            ("system:serviceaccounts", f"system:serviceaccounts:{SPACE}", "system:authenticated"),
        )
        # good for the API server, and so not for us
        assert await reviews.of(token(member, "deployer")) is None
        assert await reviews.of(token(member, "deployer", "--audience", "another")) is None
        head, body, signature = mine.split(".")
        changed = signature[:-8] + ("A" * 8 if signature[-8:] != "A" * 8 else "B" * 8)
        for forged in (f"{head}.{body}.{changed}", f"{head}.{body}.", "a.b.c"):
            assert await reviews.of(forged) is None
        with pytest.raises(Problem) as caught:
            await denied.of(mine)
        assert (caught.value.kind, caught.value.status) == ("provider-away", 503)
        assert mine not in str(caught.value.detail)
    finally:
        await reviews.stop()
        await denied.stop()
