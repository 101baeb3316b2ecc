"""Which API server a kubeconfig names and with which credentials, read as kubectl reads it.

Files that it names are relative to its own folder. A context, cluster or user that is named but not
there is an error; so are the ways to authenticate that Kubernetes has removed. What is secret is in
no `repr` and in no error.
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from wharfinger.domain.value import converted

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the credentials of its service account."""


class KubeconfigError(Exception):
    """One line for a person: file, field, what was expected."""


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints an ExecCredential. `cluster_info`: it is given the cluster's address
    too. `hint`: how to install it."""

    api_version: str
    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cluster_info: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """How one API server is reached. `authority`: PEM, None: the system's authorities.
    `server_name`: the name that its certificate is checked for, where it is not the server's.
    `insecure`: its certificate is not checked at all. At most one of the credentials is used: an
    exec plugin, a file with a token, a token; beside any of them a client certificate."""

    server: str
    authority: bytes | None = None
    server_name: str = ""
    insecure: bool = False
    proxy: str = field(default="", repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    plugin: ExecPlugin | None = None


def read_kubeconfig(file: Path, context: str = "", *, insecure_allowed: bool = False) -> Access:
    """The access of a context, the current one where none is named. KubeconfigError: what is wrong,
    without what is secret. `insecure_allowed`: a file may switch off the check of the server's
    certificate."""
    # here, because a process that finds its access in its pod reads no such file
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        text = file.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{file}: {error.strerror or error}") from None
    try:
        raw = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        # The words of the parser may quote the file, so only the place is given.
        where = getattr(error, "problem_mark", None)
        at = f":{where.line + 1}" if where is not None else ""
        raise KubeconfigError(f"{file}{at}: not YAML") from None
    return access_of(raw, file, context, insecure_allowed=insecure_allowed)


def access_of(
    raw: object, file: Path, context: str = "", *, insecure_allowed: bool = False
) -> Access:
    """As `read_kubeconfig`, of the values that a kubeconfig holds. `file`: where they are from; the
    files that they name are relative to its folder."""
    try:
        config = converted(raw, _Config)
    except msgspec.ValidationError as error:
        raise KubeconfigError(f"{file}: {error}") from None
    return _Reader(file, insecure_allowed).access(config, context)


def kubeconfig_of(access: Access, name: str = "cluster") -> dict[str, object]:
    """A kubeconfig that needs no other file but the token file and the plugin that it names:
    `access_of` reads the same access from it."""
    cluster: dict[str, object] = {"server": access.server}
    if access.authority is not None:
        cluster["certificate-authority-data"] = _base64(access.authority)
    if access.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    if access.proxy:
        cluster["proxy-url"] = access.proxy
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": _user_of(access)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def _user_of(access: Access) -> dict[str, object]:
    user: dict[str, object] = {}
    if access.certificate is not None and access.key is not None:
        user["client-certificate-data"] = _base64(access.certificate)
        user["client-key-data"] = _base64(access.key)
    if access.token:
        user["token"] = access.token
    if access.token_file is not None:
        user["tokenFile"] = str(access.token_file.absolute())
    if (plugin := access.plugin) is not None:
        command = plugin.command
        user["exec"] = {
            "apiVersion": plugin.api_version,
            "command": str(Path(command).absolute()) if os.sep in command else command,
            "args": list(plugin.args),
            "env": [{"name": name, "value": value} for name, value in plugin.env],
            "provideClusterInfo": plugin.cluster_info,
            "installHint": plugin.hint,
        }
    return user


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def in_cluster(directory: Path = SERVICE_ACCOUNT) -> Access:
    """The access of a pod to its own cluster, by the token of its service account."""
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT"),
    )
    if not host or not port:
        raise KubeconfigError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: "
            "this is not a pod of a cluster"
        )
    try:
        authority = (directory / "ca.crt").read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{directory / 'ca.crt'}: {error.strerror or error}") from None
    name = f"[{host}]" if ":" in host else host
    return Access(f"https://{name}:{port}", authority=authority, token_file=directory / "token")


# --- the file


class _ConfigCluster(msgspec.Struct, rename="kebab", kw_only=True):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _Variable(msgspec.Struct):
    name: str
    value: str


class _Exec(msgspec.Struct, rename="camel", kw_only=True):
    api_version: str
    command: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    provide_cluster_info: bool = False
    install_hint: str | None = None


class _User(msgspec.Struct, rename="kebab", kw_only=True):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    exec: _Exec | None = None
    auth_provider: Any = None
    username: str | None = None


class _Context(msgspec.Struct, kw_only=True):
    cluster: str
    user: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _ConfigCluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Config(msgspec.Struct, rename="kebab", kw_only=True):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True)
class _Reader:
    file: Path
    insecure_allowed: bool

    def access(self, config: _Config, context: str) -> Access:
        wanted = context or config.current_context or ""
        if not wanted:
            raise self._error("current-context", "the name of a context, or name one yourself")
        contexts = {c.name: c.context for c in config.contexts or ()}
        if (chosen := contexts.get(wanted)) is None:
            raise self._error(
                f"contexts[{wanted}]",
                f"one of {', '.join(sorted(contexts)) or 'none: there are no contexts'}",
            )
        clusters = {c.name: c.cluster for c in config.clusters or ()}
        if (cluster := clusters.get(chosen.cluster)) is None:
            raise self._error(
                f"contexts[{wanted}].cluster", f"a cluster of this file, got {chosen.cluster!r}"
            )
        users = {u.name: u.user or _User() for u in config.users or ()}
        if chosen.user and chosen.user not in users:
            raise self._error(
                f"contexts[{wanted}].user", f"a user of this file, got {chosen.user!r}"
            )
        user = users.get(chosen.user, _User())
        self._check(cluster, chosen.cluster, user, chosen.user)
        at_cluster, at_user = f"clusters[{chosen.cluster}]", f"users[{chosen.user}]"
        return Access(
            server=cluster.server.rstrip("/"),
            authority=self._data(
                cluster.certificate_authority_data,
                cluster.certificate_authority,
                f"{at_cluster}.certificate-authority",
            ),
            server_name=cluster.tls_server_name or "",
            insecure=cluster.insecure_skip_tls_verify,
            proxy=cluster.proxy_url or "",
            certificate=self._data(
                user.client_certificate_data,
                user.client_certificate,
                f"{at_user}.client-certificate",
            ),
            key=self._data(user.client_key_data, user.client_key, f"{at_user}.client-key"),
            token=user.token or "",
            token_file=self._path(user.token_file) if user.token_file else None,
            plugin=self._plugin(user.exec, at_user) if user.exec is not None else None,
        )

    def _check(
        self, cluster: _ConfigCluster, cluster_name: str, user: _User, user_name: str
    ) -> None:
        at_cluster, at_user = f"clusters[{cluster_name}]", f"users[{user_name}]"
        if not cluster.server.startswith(("https://", "http://")):
            raise self._error(
                f"{at_cluster}.server", f"an http or https address, got {cluster.server!r}"
            )
        if "@" in cluster.server.split("/")[2]:
            raise self._error(f"{at_cluster}.server", "an address without user and password")
        if cluster.insecure_skip_tls_verify and not self.insecure_allowed:
            raise self._error(
                f"{at_cluster}.insecure-skip-tls-verify",
                "a certificate-authority, or insecure: true in the cluster's options",
            )
        if cluster.proxy_url and not cluster.proxy_url.startswith(("http://", "https://")):
            raise self._error(f"{at_cluster}.proxy-url", "an http or https address")
        if user.auth_provider is not None:
            raise self._error(
                f"{at_user}.auth-provider", "exec: Kubernetes 1.26 removed auth-provider"
            )
        if user.username is not None:
            raise self._error(
                f"{at_user}.username",
                "a certificate, a token or exec: Kubernetes 1.19 removed passwords",
            )
        has_certificate = bool(user.client_certificate or user.client_certificate_data)
        if has_certificate != bool(user.client_key or user.client_key_data):
            raise self._error(at_user, "client-certificate and client-key together")

    def _plugin(self, plugin: _Exec, at: str) -> ExecPlugin:
        known = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
        if plugin.api_version not in known:
            raise self._error(
                f"{at}.exec.apiVersion", f"{known[0]} or v1beta1, got {plugin.api_version!r}"
            )
        command = plugin.command
        if os.sep in command:
            # as kubectl: a path is relative to the file, a bare name is looked up on PATH
            command = str(self._path(command))
        env = tuple((variable.name, variable.value) for variable in plugin.env or ())
        return ExecPlugin(
            plugin.api_version,
            command,
            tuple(plugin.args or ()),
            env,
            plugin.provide_cluster_info,
            plugin.install_hint or "",
        )

    def _data(self, encoded: str | None, file: str | None, at: str) -> bytes | None:
        """What stands in the file goes before what another file holds, as in client-go."""
        if encoded:
            try:
                return base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                raise self._error(f"{at}-data", "base64") from None
        if not file:
            return None
        path = self._path(file)
        try:
            return path.read_bytes()
        except OSError as error:
            raise self._error(
                at, f"a file that can be read: {path}: {error.strerror or error}"
            ) from None

    def _path(self, name: str) -> Path:
        return self.file.parent / Path(name).expanduser()

    def _error(self, at: str, expected: str) -> KubeconfigError:
        return KubeconfigError(f"{self.file}: {at}: expected {expected}")
