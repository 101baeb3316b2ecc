"""The clusters that were joined: one file a cluster, `<name>.yaml`, readable by its owner only.

    mode: shadow
    uid: 4f6f5f0e-...          # of the namespace kube-system: which cluster this is
    labels: {tier: production}
    kubeconfig: {...}          # or a path with `context`, or `inCluster: true`, there with
                               # `serviceAccount: DIR` where it is not mounted as kubelets do

The directory is `clusters` of the data directory, or what `WHARFINGER_CLUSTERS` names. In
Kubernetes each file is the content of one Secret (`secret_of`), and a projected volume makes the
directory of them. A file that cannot be read takes no other cluster with it: what was read and what
is wrong are both returned.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, cast

import msgspec

from wharfinger.domain.actuation import (
    VERBS_OF,
    Mode,
    Verb,
    default_verbs,
    possible_verbs,
    verbs_in_force,
)
from wharfinger.domain.value import converted
from wharfinger.events.names import wrong_namespace
from wharfinger.runtime.kube.kubeconfig import (
    SERVICE_ACCOUNT,
    Access,
    KubeconfigError,
    access_of,
    in_cluster,
    kubeconfig_of,
    read_kubeconfig,
)
from wharfinger.runtime.kube.rights import COPYING_VERBS, NAMESPACE

DIRECTORY = "clusters"
"""In the data directory."""

SUFFIX = ".yaml"

SECRET_LABEL = "wharfinger.io/cluster"

SCHEDULER = "wharfinger"
"""`schedulerName` of the pods that are ours to place, where the options name no other."""

SHADOWED = ("default-scheduler",)

NAME_MAX = 253

OWN_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", NAMESPACE)
"""Secrets in them are never copied: they give rights in their cluster."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class JoinedError(Exception):
    """One line for a person, without anything secret."""


@dataclass(frozen=True, slots=True)
class JoinedCluster:
    """One cluster and its options. `uid`: of its namespace kube-system; "": not known yet.
    `version`: of its API server when it was joined, such as v1.36.3. `scheduler`: whose waiting
    pods are ours to place. `shadow_of`: whose pods are decided in mode shadow. `lease_s`: as in
    `domain.cluster.Cluster`. `insecure`: its kubeconfig may switch off the check of the server's
    certificate. `in_cluster`: reached by the service account of the pod that reads this. `hub`: it
    holds the objects of a fleet (Karmada, Open Cluster Management, Karpenter) and is no member of
    it. `verbs`: what was enabled of that which may be changed. `write_access`: with which
    credentials it is; None: with those that read. `secret_namespaces`: where Secrets are copied
    into it, or from it, with the workloads that name them."""

    name: str
    access: Access
    mode: Mode = "observe"
    uid: str = ""
    version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    provider: str = ""
    region: str = ""
    lease_s: int | None = None
    scheduler: str = SCHEDULER
    shadow_of: tuple[str, ...] = SHADOWED
    insecure: bool = False
    in_cluster: bool = False
    hub: bool = False
    verbs: tuple[Verb, ...] = ()
    write_access: Access | None = None
    secret_namespaces: tuple[str, ...] = ()

    @property
    def verbs_in_force(self) -> tuple[Verb, ...]:
        """What may be changed there; empty: nothing is."""
        return verbs_in_force(self.mode, self.verbs, self.hub)

    @property
    def secrets_in_force(self) -> tuple[str, ...]:
        """Namespaces whose Secrets may be read; empty where no workloads are copied."""
        copying = {*COPYING_VERBS} & {*self.verbs_in_force}
        return self.secret_namespaces if copying else ()


@dataclass(frozen=True, slots=True)
class Joined:
    """`clusters`: by name. `errors`: name of a file that cannot be used -> one line."""

    clusters: Mapping[str, JoinedCluster]
    errors: Mapping[str, str]


class _JoinedEntry(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    mode: Mode = "observe"
    uid: str = ""
    version: str = ""
    labels: dict[str, str] = {}
    provider: str = ""
    region: str = ""
    lease_s: int | None = None
    scheduler_name: str = SCHEDULER
    shadow_of: tuple[str, ...] = SHADOWED
    insecure: bool = False
    in_cluster: bool = False
    service_account: str = ""
    hub: bool = False
    verbs: tuple[Verb, ...] | None = None
    kubeconfig: dict[str, Any] | str | None = None
    context: str = ""
    write_kubeconfig: dict[str, Any] | str | None = None
    write_context: str = ""
    secret_namespaces: tuple[str, ...] = ()


def checked_name(name: str) -> str:
    """JoinedError: it is no name of a cluster, or none of a file."""
    if len(name) > NAME_MAX or _NAME.fullmatch(name) is None:
        raise JoinedError(
            f"{name!r}: expected the name of a cluster: small letters, digits, - and ., at most"
            f" {NAME_MAX}"
        )
    return name


def checked_verbs(mode: Mode, verbs: Sequence[Verb], hub: bool, place: str) -> tuple[Verb, ...]:
    """JoinedError: one of them does not go with the mode, or not with a hub or member cluster."""
    possible = possible_verbs(mode, hub)
    for verb in verbs:
        if verb not in possible:
            expected = f"{', '.join(possible)}" if possible else "none, since it writes nothing"
            raise JoinedError(f"{place}: verbs: {verb} in mode {mode}: expected {expected}")
    return tuple(verbs)


def checked_namespaces(names: Sequence[str], place: str) -> tuple[str, ...]:
    """In order of name. JoinedError: one is no name of a namespace, or one whose Secrets are of its
    cluster alone."""
    for name in names:
        if wrong_namespace(name):
            raise JoinedError(f"{place}: expected the name of a namespace, got {name!r}")
        if name in OWN_NAMESPACES:
            raise JoinedError(f"{place}: {name}: its Secrets are of its cluster alone")
    return tuple(sorted(set(names)))


def secrets_of(member: JoinedCluster, hub: JoinedCluster) -> tuple[str, ...]:
    """Namespaces whose Secrets are copied from the hub to the member: both must allow it."""
    return tuple(name for name in member.secrets_in_force if name in hub.secrets_in_force)


def joined_clusters(directory: Path) -> Joined:
    """All that are joined, in order of name. A directory that is not there holds none."""
    clusters: dict[str, JoinedCluster] = {}
    errors: dict[str, str] = {}
    for file in sorted(directory.glob(f"*{SUFFIX}")):
        if file.name.startswith("."):
            continue
        try:
            clusters[file.stem] = read_joined(file)
        except JoinedError as error:
            errors[file.stem] = str(error)
    return Joined(clusters, errors)


def read_joined(file: Path) -> JoinedCluster:
    """JoinedError."""
    # here, because a plane without joined clusters reads no such file
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    name = checked_name(file.name.removesuffix(SUFFIX))
    try:
        raw = YAML(typ="safe", pure=True).load(file.read_bytes())
        entry = converted(raw if raw is not None else {}, _JoinedEntry)
        wanted = default_verbs(entry.mode, entry.hub) if entry.verbs is None else entry.verbs
        verbs = checked_verbs(entry.mode, wanted, entry.hub, str(file))
        secrets = checked_namespaces(entry.secret_namespaces, f"{file}: secretNamespaces")
        access, write_access = _access(entry, file), _write_access(entry, file)
    except OSError as error:
        raise JoinedError(f"{file}: {error.strerror or error}") from None
    except YAMLError as error:
        # The words of the parser may quote the file, so only the place is given.
        where = getattr(error, "problem_mark", None)
        at = f":{where.line + 1}" if where is not None else ""
        raise JoinedError(f"{file}{at}: not YAML") from None
    except msgspec.ValidationError as error:
        raise JoinedError(f"{file}: {error}") from None
    except KubeconfigError as error:
        raise JoinedError(str(error)) from None
    return JoinedCluster(
        name=name,
        access=access,
        mode=entry.mode,
        uid=entry.uid,
        version=entry.version,
        labels=entry.labels,
        provider=entry.provider,
        region=entry.region,
        lease_s=entry.lease_s,
        scheduler=entry.scheduler_name,
        shadow_of=entry.shadow_of,
        insecure=entry.insecure,
        in_cluster=entry.in_cluster,
        hub=entry.hub,
        verbs=verbs,
        write_access=write_access,
        secret_namespaces=secrets,
    )


def _access(entry: _JoinedEntry, file: Path) -> Access:
    if entry.in_cluster:
        if entry.kubeconfig is not None:
            raise JoinedError(f"{file}: kubeconfig: expected none beside inCluster: true")
        return in_cluster(Path(entry.service_account or SERVICE_ACCOUNT))
    if entry.service_account:
        raise JoinedError(f"{file}: serviceAccount: expected inCluster: true with it")
    if isinstance(entry.kubeconfig, str):
        path = file.parent / Path(entry.kubeconfig).expanduser()
        return read_kubeconfig(path, entry.context, insecure_allowed=entry.insecure)
    if entry.kubeconfig is None:
        raise JoinedError(f"{file}: kubeconfig: expected one, or inCluster: true")
    return access_of(entry.kubeconfig, file, context=entry.context, insecure_allowed=entry.insecure)


def _write_access(entry: _JoinedEntry, file: Path) -> Access | None:
    if entry.write_kubeconfig is None:
        return None
    if isinstance(entry.write_kubeconfig, str):
        path = file.parent / Path(entry.write_kubeconfig).expanduser()
        return read_kubeconfig(path, entry.write_context, insecure_allowed=entry.insecure)
    return access_of(
        entry.write_kubeconfig, file, context=entry.write_context, insecure_allowed=entry.insecure
    )


def store_joined(directory: Path, cluster: JoinedCluster) -> Path:
    """Written whole or not at all, mode 0600, in a directory of mode 0700. JoinedError."""
    target = directory / f"{checked_name(cluster.name)}{SUFFIX}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp makes the file with mode 0600
        handle, partial = tempfile.mkstemp(dir=directory, prefix=".", suffix=".partial")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(entry_text(cluster))
                file.flush()
                os.fsync(file.fileno())
            Path(partial).replace(target)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise JoinedError(f"{target}: {error.strerror or error}") from None
    return target


def remove_joined(directory: Path, name: str) -> bool:
    """False: it was not joined. JoinedError."""
    target = directory / f"{checked_name(name)}{SUFFIX}"
    try:
        target.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise JoinedError(f"{target}: {error.strerror or error}") from None
    return True


def entry_text(cluster: JoinedCluster) -> str:
    """The file of a cluster: YAML, with its credentials."""
    write = cluster.write_access
    entry = _JoinedEntry(
        mode=cluster.mode,
        uid=cluster.uid,
        version=cluster.version,
        labels=dict(cluster.labels),
        provider=cluster.provider,
        region=cluster.region,
        lease_s=cluster.lease_s,
        scheduler_name=cluster.scheduler,
        shadow_of=cluster.shadow_of,
        insecure=cluster.insecure,
        in_cluster=cluster.in_cluster,
        service_account=_service_account(cluster),
        hub=cluster.hub,
        verbs=cluster.verbs if VERBS_OF[cluster.mode] else None,
        write_kubeconfig=kubeconfig_of(write, cluster.name) if write is not None else None,
        kubeconfig=None if cluster.in_cluster else kubeconfig_of(cluster.access, cluster.name),
        secret_namespaces=cluster.secret_namespaces,
    )
    from ruamel.yaml import YAML

    default = msgspec.to_builtins(_JoinedEntry())
    said = {
        key: value
        for key, value in cast(dict[str, object], msgspec.to_builtins(entry)).items()
        if key == "mode" or value != default[key]
    }
    yaml, text = YAML(typ="safe", pure=True), StringIO()
    yaml.default_flow_style = False
    yaml.dump(said, text)
    return text.getvalue()


def _service_account(cluster: JoinedCluster) -> str:
    """Where the service account of the pod is mounted, unless it is where kubelets mount it."""
    file = cluster.access.token_file
    if not cluster.in_cluster or file is None or file.parent == SERVICE_ACCOUNT:
        return ""
    return str(file.parent.absolute())


def secret_of(cluster: JoinedCluster, namespace: str) -> dict[str, object]:
    """The Secret that holds the same file in Kubernetes. Its name and label are the cluster's."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"wharfinger-cluster-{cluster.name}"[:NAME_MAX].rstrip("-."),
            "namespace": namespace,
            "labels": {SECRET_LABEL: cluster.name},
        },
        "type": "Opaque",
        "stringData": {f"{cluster.name}{SUFFIX}": entry_text(cluster)},
    }
