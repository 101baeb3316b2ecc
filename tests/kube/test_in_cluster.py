"""Joined from inside, as a pod is: address in the environment, token and CA in a mounted directory,
and a token that kubelet replaces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.kube.breaking import Breaking
from tests.kube.collecting import Collecting, collecting, node
from tests.kube.member import Member, namespace
from tests.kube.test_joining import wharfinger
from tests.patience import eventually

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.joined import JoinedCluster, read_joined
from wharfinger.runtime.kube.kubeconfig import in_cluster, read_kubeconfig
from wharfinger.runtime.kube.rights import ACCOUNT, collector_rights
from wharfinger.runtime.ledger import Ledger

PLACE = "in-a-pod"
USER = f"system:serviceaccount:{PLACE}:{ACCOUNT}"
CREDENTIAL = "authentication.kubernetes.io/credential-id"


class Mounted:
    """A service account as kubelet mounts it: the files are links into a directory that is replaced
    as a whole. Each token is bound to a Secret, and is refused once that is deleted."""

    def __init__(self, member: Member, directory: Path) -> None:
        self._member = member
        self._tokens = 0
        self.directory = directory
        directory.mkdir()
        for name in ("token", "ca.crt"):
            (directory / name).symlink_to(f"..data/{name}")

    def renew(self) -> str:
        """Returns the Secret of the new token."""
        self._tokens += 1
        name = f"bound-{self._tokens}"
        metadata = {"name": name, "namespace": PLACE}
        self._member.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
        bound = ("--bound-object-kind=Secret", f"--bound-object-name={name}")
        authority = read_kubeconfig(self._member.kubeconfig()).authority
        assert authority is not None
        version = self.directory / f"..{name}"
        version.mkdir()
        token = self._member.kubectl("create", "token", "-n", PLACE, ACCOUNT, *bound)
        (version / "token").write_text(token)
        (version / "ca.crt").write_bytes(authority)
        (self.directory / "..next").symlink_to(version.name)
        (self.directory / "..next").replace(self.directory / "..data")
        return name

    def revoke(self, name: str) -> None:
        self._member.kubectl("delete", "secret", "-n", PLACE, name)


@pytest.fixture
def mounted(member: Member, tmp_path: Path) -> Iterator[Mounted]:
    member.apply(namespace(PLACE), *collector_rights(namespace=PLACE))
    yield Mounted(member, tmp_path / "serviceaccount")
    member.kubectl("delete", "clusterrolebinding,clusterrole", ACCOUNT)


async def test_a_pod_joins_its_own_cluster_and_reads_it_with_each_token_that_it_gets(
    member: Member,
    mounted: Mounted,
    backend: Backend,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = mounted.renew()
    async with Breaking(member) as door:
        server = urlsplit(door.access.server)
        address = {
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        arguments = ("--in-cluster", "--service-account", str(mounted.directory))
        for variable, value in address.items():
            monkeypatch.setenv(variable, value)
        done = await asyncio.to_thread(wharfinger, tmp_path, "join", member.name, *arguments)
        assert "joined in mode observe" in done.stdout
        access = in_cluster(mounted.directory)
        joined = read_joined(tmp_path / ".wharfinger" / "clusters" / f"{member.name}.yaml")
        assert joined == JoinedCluster(
            member.name, access, uid=joined.uid, version=joined.version, in_cluster=True
        )
        member.apply(node("first-n"))
        before = len(member.audit(USER))
        async with collecting(
            backend,
            ledger,
            topic_prefix,
            tmp_path / "clusters",
            member,
            access=access,
            settings={"rights_review_s": 0.5},
            uid=joined.uid,
            in_cluster=True,
        ) as collector:
            await eventually(lambda: _knows(collector, "first-n"))
            mounted.renew()
            mounted.revoke(first)
            await eventually(lambda: len(_tokens(member, before)) == 2)
            member.apply(node("second-n"))
            door.cut()
            await eventually(lambda: _knows(collector, "second-n"))
    watches = [call for call in member.audit(USER)[before:] if call["verb"] == "watch"]
    assert {call["user"]["extra"][CREDENTIAL][0] for call in watches} == _tokens(member, before)


async def _knows(collector: Collecting, name: str) -> bool:
    return name in await collector.nodes()


def _tokens(member: Member, before: int) -> set[str]:
    """Ids of the tokens with which was asked."""
    return {
        call["user"]["extra"][CREDENTIAL][0]
        for call in member.audit(USER)[before:]
        if CREDENTIAL in call["user"].get("extra", {})
    }


def test_a_mounted_account_is_for_a_pod_only(tmp_path: Path, member: Member) -> None:
    config = ("--kubeconfig", str(member.kubeconfig()), "--service-account", str(tmp_path))
    said = wharfinger(tmp_path, "join", "oslo", *config, expect=2).stderr
    assert said.strip() == "wharfinger: --service-account: expected --in-cluster with it"
    said = wharfinger(tmp_path, "join", "oslo", "--in-cluster", expect=2).stderr
    assert "this is not a pod of a cluster" in said
