"""Kubeconfigs are read as kubectl reads them; what is wrong is one line, and what is secret is in
no line."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from wharfinger.runtime.kube import credentials
from wharfinger.runtime.kube.credentials import Credentials, CredentialsError
from wharfinger.runtime.kube.kubeconfig import (
    Access,
    ExecPlugin,
    KubeconfigError,
    in_cluster,
    read_kubeconfig,
)

SECRET = "s3cret-t0ken"

V1 = "client.authentication.k8s.io/v1"


def written(
    tmp_path: Path, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None
) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://oslo:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "elsewhere", "context": {"cluster": "missing", "user": "u"}},
        ],
        "current-context": "here",
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(config))
    return file


def plugin(tmp_path: Path, body: str, **settings: Any) -> Credentials:
    program = tmp_path / "plugin"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Credentials(Access("https://oslo", plugin=ExecPlugin(V1, str(program), **settings)))


def credential(**status: str) -> str:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})


# --- reading


def test_all_of_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"authority")
    key = base64.b64encode(b"key").decode()
    file = written(
        tmp_path,
        {
            "certificate-authority": "ca.pem",
            "tls-server-name": "kubernetes",
            "proxy-url": "http://proxy:3128",
        },
        {
            "client-certificate-data": base64.b64encode(b"cert").decode(),
            "client-key-data": key,
            "token": SECRET,
        },
    )
    found = read_kubeconfig(file)
    assert found == Access(
        "https://oslo:6443",
        b"authority",
        "kubernetes",
        False,
        "http://proxy:3128",
        b"cert",
        b"key",
        SECRET,
    )
    assert SECRET not in repr(found)
    assert "key'" not in repr(found)


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    found = read_kubeconfig(written(tmp_path, user={"tokenFile": "tokens/mine"}))
    assert found.token_file == tmp_path / "tokens/mine"


def test_data_goes_before_a_file(tmp_path: Path) -> None:
    data = base64.b64encode(b"inline").decode()
    file = written(
        tmp_path, {"certificate-authority-data": data, "certificate-authority": "not-there.pem"}
    )
    assert read_kubeconfig(file).authority == b"inline"


def test_an_exec_plugin_is_read_whole(tmp_path: Path) -> None:
    exec_ = {
        "apiVersion": V1,
        "command": "./login",
        "args": ["--cluster", "oslo"],
        "env": [{"name": "PROFILE", "value": SECRET}],
        "provideClusterInfo": True,
        "interactiveMode": "IfAvailable",
        "installHint": "install login",
    }
    found = read_kubeconfig(written(tmp_path, user={"exec": exec_})).plugin
    expected = ExecPlugin(
        V1,
        str(tmp_path / "./login"),
        ("--cluster", "oslo"),
        (("PROFILE", SECRET),),
        True,
        "install login",
    )
    assert found == expected
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"server": "oslo:6443"}, {}, "clusters[c].server: expected an http or https address"),
        ({"server": 3}, {}, "Expected `str`, got `int`"),
        (
            {"insecure-skip-tls-verify": True},
            {},
            "insecure-skip-tls-verify: expected a certificate-authority",
        ),
        ({"certificate-authority": "gone.pem"}, {}, "gone.pem: No such file"),
        ({"certificate-authority-data": "%%"}, {}, "certificate-authority-data: expected base64"),
        ({"proxy-url": "socks5://x"}, {}, "proxy-url: expected an http or https address"),
        (
            {},
            {"username": "me", "password": SECRET},
            "users[u].username: expected a certificate, a token or exec",
        ),
        ({}, {"auth-provider": {"name": "gcp"}}, "users[u].auth-provider: expected exec"),
        (
            {},
            {"client-key-data": SECRET},
            "users[u]: expected client-certificate and client-key together",
        ),
        (
            {},
            {"exec": {"apiVersion": "v9", "command": "x"}},
            f"users[u].exec.apiVersion: expected {V1} or v1beta1",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], said: str
) -> None:
    file = written(tmp_path, cluster, user)
    with pytest.raises(KubeconfigError) as error:
        read_kubeconfig(file)
    line = str(error.value)
    assert line.startswith(f"{file}: ")
    assert said in line
    assert "\n" not in line
    assert SECRET not in line


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ("nowhere", "contexts[nowhere]: expected one of elsewhere, here"),
        (
            "elsewhere",
            "contexts[elsewhere].cluster: expected a cluster of this file, got 'missing'",
        ),
    ],
)
def test_a_context_that_leads_nowhere(tmp_path: Path, context: str, said: str) -> None:
    with pytest.raises(KubeconfigError, match="expected") as error:
        read_kubeconfig(written(tmp_path), context)
    assert said in str(error.value)


def test_a_file_that_is_no_kubeconfig(tmp_path: Path) -> None:
    file = tmp_path / "config"
    with pytest.raises(KubeconfigError, match="No such file"):
        read_kubeconfig(file)
    file.write_text("clusters: [\n")
    with pytest.raises(KubeconfigError, match=r"config:\d: not YAML"):
        read_kubeconfig(file)
    file.write_text("just text")
    with pytest.raises(KubeconfigError, match="Expected `object`"):
        read_kubeconfig(file)


def test_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeconfigError, match="not a pod"):
        in_cluster(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "ca.crt").write_bytes(b"authority")
    found = in_cluster(tmp_path)
    assert (found.server, found.token_file) == ("https://[fd00::1]:443", tmp_path / "token")


# --- credentials


async def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    asked = Credentials(Access("https://oslo", token_file=file))
    assert await asked.headers() == {"Authorization": "Bearer first"}
    file.write_text("second")
    assert await asked.headers() == {"Authorization": "Bearer first"}
    monkeypatch.setattr(credentials, "TOKEN_FILE_READ_S", 0.0)
    assert asked.refused()
    assert await asked.headers() == {"Authorization": "Bearer second"}
    file.write_text("third")
    assert await asked.headers() == {"Authorization": "Bearer third"}


async def test_a_fixed_token_is_not_worth_asking_again() -> None:
    asked = Credentials(Access("https://oslo", token=SECRET))
    assert await asked.headers() == {"Authorization": f"Bearer {SECRET}"}
    assert not asked.refused()


async def test_a_plugin_is_run_once_until_its_credential_expires(tmp_path: Path) -> None:
    later = "2999-01-01T00:00:00Z"
    body = f"echo run >> {tmp_path}/runs; echo '{credential(token='a', expirationTimestamp=later)}'"
    asked = plugin(tmp_path, body)
    for _ in range(3):
        assert await asked.headers() == {"Authorization": "Bearer a"}
    assert (tmp_path / "runs").read_text() == "run\n"
    body = body.replace(later, "2001-01-01T00:00:00Z")
    asked = plugin(tmp_path, body)
    for _ in range(3):
        await asked.headers()
    assert (tmp_path / "runs").read_text() == "run\n" * 4


async def test_a_plugin_is_told_what_it_asks_for_and_no_shell_is_between(tmp_path: Path) -> None:
    body = (
        f'echo "$1" > {tmp_path}/argument; echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; '
        f'echo "$MORE" > {tmp_path}/more;'
    )
    body += f" echo '{credential(token='a')}'"
    await plugin(
        tmp_path, body, args=("$(id); rm x",), env=(("MORE", "yes"),), cluster_info=True
    ).headers()
    assert (tmp_path / "argument").read_text() == "$(id); rm x\n"
    assert (tmp_path / "more").read_text() == "yes\n"
    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"]["cluster"]["server"] == "https://oslo"
    assert info["apiVersion"] == V1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f"echo {SECRET} >&2; echo {SECRET}; exit 3", "exec plugin plugin ended with code 3"),
        (f"echo {SECRET}", "exec plugin plugin did not print an ExecCredential"),
        (
            f"echo '{credential(clientKeyData=SECRET)}'",
            "gave neither a token nor a certificate with its key",
        ),
        (
            f"echo '{credential(token=SECRET).replace('/v1', '/v2')}'",
            f"answered in another version than {V1}",
        ),
    ],
)
async def test_a_plugin_that_fails_gives_nothing_away(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(CredentialsError) as error:
        await plugin(tmp_path, body).headers()
    assert said in str(error.value)
    assert SECRET not in str(error.value)


async def test_a_plugin_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "PLUGIN_S_MAX", 0.2)
    with pytest.raises(CredentialsError, match="gave nothing within"):
        await plugin(tmp_path, "exec sleep 600").headers()


async def test_a_plugin_that_is_not_installed_says_how_to_install_it() -> None:
    missing = Credentials(
        Access("https://oslo", plugin=ExecPlugin(V1, "no-such-plugin", hint="get it from the shop"))
    )
    with pytest.raises(
        CredentialsError, match="cannot be started: No such file or directory; get it from the shop"
    ):
        await missing.headers()


async def test_certificates_that_cannot_be_used() -> None:
    with pytest.raises(CredentialsError, match="not a PEM certificate"):
        await Credentials(Access("https://oslo", authority=b"nonsense")).tls()
    with pytest.raises(CredentialsError, match="do not fit"):
        await Credentials(
            Access("https://oslo", certificate=b"nonsense", key=SECRET.encode())
        ).tls()
