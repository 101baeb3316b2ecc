"""What the other tests stand on: real servers, rights that hold, and a log of who called what."""

from __future__ import annotations

import pytest
from tests.kube.member import Member, config_map, namespace

from wharfinger.runtime.kube.api import ApiError, KubeApi, UnreachableError
from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig
from wharfinger.runtime.kube.reflector import _List


def test_each_member_is_a_cluster_of_its_own(members: list[Member]) -> None:
    ids = {
        m.items("namespaces", "--field-selector=metadata.name=kube-system")[0]["metadata"]["uid"]
        for m in members
    }
    assert len(ids) == len(members)


async def test_a_user_without_rights_is_refused_in_the_servers_words(member: Member) -> None:
    async with KubeApi(read_kubeconfig(member.kubeconfig("collector"))) as api:
        with pytest.raises(ApiError, match="pods is forbidden") as refused:
            await api.get("/api/v1/pods", _List)
    assert refused.value.code == 403
    assert refused.value.reason == "Forbidden"


async def test_the_audit_log_says_who_called_what(member: Member, api: KubeApi) -> None:
    member.apply(namespace("audited"), config_map("audited", "one", key="value"))
    async with KubeApi(read_kubeconfig(member.kubeconfig("actuator"))) as other:
        with pytest.raises(ApiError):
            await other.request("DELETE", "/api/v1/namespaces/audited/configmaps/one")
    calls = [(entry["verb"], entry["responseStatus"]["code"]) for entry in member.audit("actuator")]
    assert ("delete", 403) in calls


async def test_another_servers_certificate_is_not_accepted(members: list[Member]) -> None:
    here, there = (read_kubeconfig(m.kubeconfig()) for m in members[:2])
    mixed = Access(here.server, there.authority, certificate=here.certificate, key=here.key)
    async with KubeApi(mixed) as api:
        with pytest.raises(UnreachableError, match="certificate"):
            await api.get("/version", dict[str, str])
