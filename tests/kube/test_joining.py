"""Joining a real server: with the printed rights and no other, through proxies, and with a line for
everything that is wrong. No secret is in any of what is said or kept beside the entry."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from ruamel.yaml import YAML
from tests.kube.member import Json, Member
from tests.patience import eventually

from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.examination import examine
from wharfinger.runtime.kube.joined import read_joined
from wharfinger.runtime.kube.kubeconfig import Access, kubeconfig_of, read_kubeconfig
from wharfinger.runtime.kube.rights import ACCOUNT, NAMESPACE, WRITER
from wharfinger.runtime.kube.watched import WATCHED

READ = frozenset({"get", "list", "watch"})
REVIEWS = "selfsubjectaccessreviews"

ABSENT = ("karpenter.sh", "metrics.k8s.io")
"""Groups that the servers of these tests do not have."""


def wharfinger(
    tmp_path: Path, *arguments: str, expect: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WHARFINGER_")}
    done = subprocess.run(
        [sys.executable, "-m", "wharfinger_cli", *arguments],
        cwd=tmp_path,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def printed_rights(tmp_path: Path, *arguments: str) -> list[Json]:
    text = wharfinger(tmp_path, "join", "oslo", "--print-rbac", *arguments).stdout
    return list(YAML(typ="safe", pure=True).load_all(text))


@pytest.fixture
def account(member: Member, tmp_path: Path) -> Iterator[Access]:
    """A service account with the printed rights, and with those that every user has."""
    rights = printed_rights(tmp_path, "--kubeconfig", str(member.kubeconfig()))
    member.apply(*rights)
    token = member.kubectl("create", "token", "-n", NAMESPACE, ACCOUNT).strip()
    admin = read_kubeconfig(member.kubeconfig())
    yield Access(admin.server, admin.authority, token=token)
    member.kubectl("delete", "clusterrolebinding,clusterrole", ACCOUNT)


def kubeconfig(tmp_path: Path, access: Access, name: str = "config") -> Path:
    file = tmp_path / name
    file.write_text(json.dumps(kubeconfig_of(access)))
    return file


def entry(tmp_path: Path, name: str = "oslo") -> Path:
    return tmp_path / ".wharfinger" / "clusters" / f"{name}.yaml"


def as_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- rights


def test_a_cluster_is_joined_with_the_printed_rights_and_left(
    member: Member, account: Access, tmp_path: Path
) -> None:
    file = kubeconfig(tmp_path, account)
    done = wharfinger(tmp_path, "join", "oslo", "--kubeconfig", str(file), "--mode", "shadow")
    assert "joined in mode shadow" in done.stdout
    for kind in WATCHED:
        if kind.group not in ABSENT:
            assert kind.qualified in done.stdout
    joined = read_joined(entry(tmp_path))
    kube_system = member.items("namespaces", "--field-selector=metadata.name=kube-system")[0]
    assert joined.uid == kube_system["metadata"]["uid"]
    version = json.loads(member.kubectl("get", "--raw", "/version"))
    assert joined.version == version["gitVersion"]
    assert joined.access == account
    assert stat.S_IMODE(entry(tmp_path).stat().st_mode) == 0o600
    left = wharfinger(tmp_path, "leave", "oslo")
    assert "no longer joined" in left.stderr
    assert not entry(tmp_path).exists()
    assert "no such cluster is joined" in wharfinger(tmp_path, "leave", "oslo", expect=1).stderr


def test_a_cluster_is_changed_with_credentials_of_its_own_and_the_rights_of_its_verbs(
    member: Member, account: Access, tmp_path: Path
) -> None:
    verbs = ("--mode", "act", "--verb", "bind", "--verb", "nodes")
    arguments = ("--kubeconfig", str(kubeconfig(tmp_path, account)), *verbs)
    refused = wharfinger(tmp_path, "join", "oslo", *arguments, expect=1).stdout
    wanted = "create pods/binding, patch pods/status, create events, patch events"
    assert f"{wanted}, patch nodes, create leases" in " ".join(refused.split())
    assert not entry(tmp_path).exists()
    rights = printed_rights(tmp_path, "--kubeconfig", str(member.kubeconfig()), *verbs)
    member.apply(*rights)
    token = member.kubectl("create", "token", "-n", NAMESPACE, WRITER).strip()
    writer = Access(account.server, account.authority, token=token)
    write = kubeconfig(tmp_path, writer, "write")
    done = wharfinger(tmp_path, "join", "oslo", *arguments, "--write-kubeconfig", str(write))
    assert "joined in mode act: may be changed by bind, nodes" in done.stdout
    assert token not in done.stdout + done.stderr
    joined = read_joined(entry(tmp_path))
    assert (joined.access, joined.write_access) == (account, writer)
    assert joined.verbs_in_force == ("bind", "nodes")
    member.kubectl("delete", "clusterrolebinding,clusterrole", WRITER)


def test_only_reviews_are_posted_and_nothing_is_written(
    member: Member, account: Access, tmp_path: Path
) -> None:
    user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    before = len(member.audit(user))
    wharfinger(tmp_path, "join", "oslo", "--kubeconfig", str(kubeconfig(tmp_path, account)))
    calls = member.audit(user)[before:]
    assert calls
    for call in calls:
        resource = call.get("objectRef", {}).get("resource", "")
        assert call["verb"] in READ or (call["verb"], resource) == ("create", REVIEWS)
    assert {call["responseStatus"]["code"] for call in calls} <= {200, 201, 404}


async def test_each_right_is_needed(member: Member, account: Access, tmp_path: Path) -> None:
    """The rights are taken away one resource at a time: then exactly that resource is named, and
    stands in the way of joining."""
    rights = printed_rights(tmp_path, "--kubeconfig", str(member.kubeconfig()))
    role = next(one for one in rights if one["kind"] == "ClusterRole")
    named = [(r, name) for r in role["rules"] for name in r.get("resources", ())]
    expected = {kind.qualified for kind in WATCHED if kind.group not in ABSENT}
    assert len(named) == len(expected), "the server has all but those"
    for rule, resource in named:
        rest = [name for name in rule["resources"] if name != resource]
        rules = [r for r in role["rules"] if r is not rule]
        rules += [{**rule, "resources": rest}] if rest else []
        member.apply({**role, "rules": rules})
        group = rule["apiGroups"][0]
        name = f"{resource}.{group}" if group else resource
        async with KubeApi(account) as api:
            # the server takes a moment until it goes by a role that was changed
            await eventually(lambda name=name, api=api: _lacking(api, name))


async def _lacking(api: KubeApi, name: str) -> bool:
    found = await examine(api)
    lacking = [right.kind.qualified for right in found.rights if right.missing]
    return lacking == [right.kind.qualified for right in found.blocking] == [name]


def test_without_a_right_nothing_is_stored(member: Member, account: Access, tmp_path: Path) -> None:
    rights = printed_rights(tmp_path, "--kubeconfig", str(member.kubeconfig()))
    role = next(one for one in rights if one["kind"] == "ClusterRole")
    member.apply({**role, "rules": [r for r in role["rules"] if r.get("apiGroups") != ["apps"]]})
    file = str(kubeconfig(tmp_path, account))
    said = wharfinger(tmp_path, "join", "oslo", "--kubeconfig", file, expect=1).stdout
    assert (
        "not joined: the right to read replicasets.apps, statefulsets.apps, daemonsets.apps" in said
    )
    assert not entry(tmp_path).exists()


def test_paths_that_are_no_objects_are_rights_of_their_own(
    member: Member, account: Access, tmp_path: Path
) -> None:
    """A hardened cluster gives nobody the built-in rights to see version and health."""
    rights = printed_rights(tmp_path, "--kubeconfig", str(member.kubeconfig()))
    role = next(one for one in rights if one["kind"] == "ClusterRole")
    bindings = ["system:public-info-viewer", "system:discovery"]
    before = [b for b in member.items("clusterrolebindings") if b["metadata"]["name"] in bindings]
    file = kubeconfig(tmp_path, account)
    member.kubectl("delete", "clusterrolebinding", *bindings)
    try:
        wharfinger(tmp_path, "join", "oslo", "--kubeconfig", str(file))
        member.apply({**role, "rules": [r for r in role["rules"] if "resources" in r]})
        said = wharfinger(tmp_path, "join", "oslo", "--kubeconfig", str(file), expect=2)
        assert "403 Forbidden" in said.stderr
    finally:
        member.apply(*(_again(binding) for binding in before))


def _again(binding: Json) -> Json:
    kept = {k: v for k, v in binding["metadata"].items() if k in ("name", "labels")}
    return {**binding, "metadata": kept}


def test_all_that_is_printed_is_accepted_and_holds_no_verb_that_writes(
    member: Member, tmp_path: Path
) -> None:
    rights = printed_rights(tmp_path)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": rights})
    member.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    role = next(one for one in rights if one["kind"] == "ClusterRole")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == READ
    assert not any("secrets" in rule.get("resources", ()) for rule in role["rules"])


# --- who is joined


def test_one_name_is_one_cluster(members: list[Member], tmp_path: Path) -> None:
    first, second = (str(m.kubeconfig()) for m in members[:2])
    wharfinger(tmp_path, "join", "oslo", "--kubeconfig", first)
    said = wharfinger(tmp_path, "join", "oslo", "--kubeconfig", second, expect=1)
    assert "another cluster is joined under this name" in said.stderr
    said = wharfinger(tmp_path, "join", "bergen", "--kubeconfig", first, expect=1)
    assert "is joined already, as oslo" in said.stderr
    assert "joined again" in wharfinger(tmp_path, "join", "oslo", "--kubeconfig", first).stdout
    dry = wharfinger(tmp_path, "join", "bergen", "--kubeconfig", second, "--dry-run")
    assert "nothing was stored" in dry.stdout
    assert [path.name for path in entry(tmp_path).parent.iterdir()] == ["oslo.yaml"]


def test_a_secret_for_kubernetes_holds_the_entry(member: Member, tmp_path: Path) -> None:
    file = str(member.kubeconfig())
    text = wharfinger(tmp_path, "join", "oslo", "--kubeconfig", file, "--print-secret").stdout
    secret = YAML(typ="safe", pure=True).load(text)
    member.kubectl(
        "apply",
        "--dry-run=server",
        "-n",
        "default",
        "-f",
        "-",
        stdin=json.dumps({**secret, "metadata": {**secret["metadata"], "namespace": "default"}}),
    )
    (tmp_path / "oslo.yaml").write_text(secret["stringData"]["oslo.yaml"])
    assert read_joined(tmp_path / "oslo.yaml").access == read_kubeconfig(member.kubeconfig())


def test_schedulers_at_work_are_counted(member: Member, tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "theirs", "namespace": "default"},
        "spec": {
            "schedulerName": "volcano",
            "containers": [{"name": "c", "image": "app"}],
            "serviceAccountName": "default",
        },
    }
    member.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": "default"},
        },
        pod,
    )
    file = str(member.kubeconfig())
    done = wharfinger(tmp_path, "join", "oslo", "--kubeconfig", file, "--dry-run", "-o", "json")
    pods = member.items("pods", "-A")
    expected = [p["spec"]["schedulerName"] for p in pods]
    said = as_json(done)
    assert said["schedulers"] == {name: expected.count(name) for name in sorted(set(expected))}
    assert said["pods_counted"] == len(pods)
    assert abs(said["clock_skew_s"]) <= 2.0


# --- what is in front of it


@asynccontextmanager
async def prefixed(access: Access, prefix: str) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that serves the real server below a path, as Karmada's and OCM's do; every other path
    is 404. Yields its address and the paths that were asked."""
    asked: list[str] = []
    async with KubeApi(access) as api:

        async def handle(request: web.Request) -> web.Response:
            asked.append(request.path)
            if not request.path.startswith(prefix + "/"):
                return web.Response(status=404)
            path = request.path.removeprefix(prefix)
            body = await request.read()
            try:
                answer = await api.request(request.method, path, dict(request.query), body or None)
            except ApiError as error:
                return web.Response(status=error.code)
            return web.Response(body=answer, content_type="application/json")

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            yield f"http://127.0.0.1:{port}", asked
        finally:
            await runner.cleanup()


@pytest.mark.parametrize(
    ("through", "prefix"),
    [("karmada", "/apis/cluster.karmada.io/v1alpha1/clusters/bergen/proxy"), ("ocm", "/bergen")],
)
async def test_through_a_proxy_of_the_fleet(
    through: str, prefix: str, member: Member, tmp_path: Path
) -> None:
    async with prefixed(_paged(member), prefix) as (server, asked):
        file = kubeconfig(tmp_path, Access(server, token=secrets.token_hex(16)))
        arguments = ["join", "oslo", "--kubeconfig", str(file), "--through", through]
        done = await asyncio.to_thread(wharfinger, tmp_path, *arguments, "--member", "bergen")
    assert "joined in mode observe" in done.stdout
    assert asked
    assert all(path.startswith(prefix) for path in asked)
    assert read_joined(entry(tmp_path)).access.server == server + prefix


def _paged(member: Member) -> Access:
    return read_kubeconfig(member.kubeconfig())


# --- what goes wrong, and secrets


def _forms(token: str, tmp_path: Path, member: Member) -> dict[str, Access]:
    """Ways to carry a token that is not accepted, or that never arrives."""
    from wharfinger.runtime.kube.kubeconfig import ExecPlugin

    admin = read_kubeconfig(member.kubeconfig())
    plain = Access(admin.server, admin.authority)
    (tmp_path / "token").write_text(token)
    plugin = tmp_path / "plugin"
    plugin.write_text(f'#!/bin/sh\necho {token} >&2\necho \'{{"apiVersion": "{token}"}}\'\n')
    plugin.chmod(0o700)
    v1 = "client.authentication.k8s.io/v1"
    return {
        "token": replace(plain, token=token),
        "file": replace(plain, token_file=tmp_path / "token"),
        "plugin": replace(plain, plugin=ExecPlugin(v1, str(plugin), (token,), (("T", token),))),
        "absent plugin": replace(plain, plugin=ExecPlugin(v1, "no-such-login", (token,))),
        "proxy": replace(plain, token=token, proxy=f"http://user:{token}@127.0.0.1:9"),
        "port": replace(plain, token=token, server="https://127.0.0.1:9"),
        "authority": replace(plain, token=token, authority=None),
    }


@pytest.mark.parametrize(
    "form", ["token", "file", "plugin", "absent plugin", "proxy", "port", "authority"]
)
def test_what_is_wrong_is_one_line_without_the_secret(
    form: str, member: Member, tmp_path: Path
) -> None:
    token = secrets.token_hex(24)
    file = kubeconfig(tmp_path, _forms(token, tmp_path, member)[form])
    done = wharfinger(tmp_path, "join", "oslo", "--kubeconfig", str(file), expect=2)
    assert done.stderr.startswith("wharfinger: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert token not in done.stdout + done.stderr
    assert not entry(tmp_path).exists()


@asynccontextmanager
async def echoing(status: int) -> AsyncIterator[str]:
    """A proxy that answers everything with what it was sent, headers and all."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            head = (await reader.readuntil(b"\r\n\r\n")).replace(b"\r\n", b" ")
            writer.write(
                b"HTTP/1.1 %d Refused\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                % (status, len(head), head)
            )
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize("status", [200, 403, 407, 502])
async def test_a_server_that_repeats_the_request_is_not_repeated(
    status: int, member: Member, tmp_path: Path
) -> None:
    token, password = secrets.token_hex(24), secrets.token_hex(24)
    admin = read_kubeconfig(member.kubeconfig())
    async with echoing(status) as server:
        forms = [
            Access(server, token=token),
            replace(admin, proxy=server.replace("//", f"//user:{password}@"), token=token),
        ]
        for access in forms:
            file = kubeconfig(tmp_path, access)
            done = await asyncio.to_thread(
                wharfinger, tmp_path, "join", "oslo", "--kubeconfig", str(file), expect=2
            )
            assert len(done.stderr.strip().splitlines()) == 1
            said = done.stdout + done.stderr
            assert token not in said
            assert password not in said
