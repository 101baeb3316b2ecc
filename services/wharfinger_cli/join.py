"""`join` and `leave`: a cluster is examined with its own credentials, then kept as a private file.

Nothing is written to the cluster, and nothing of its credentials is printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from wharfinger.domain.actuation import COPIED_FROM, MODES, VERBS, Mode, Verb, default_verbs
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.examination import Examination, KindRights, examine, missing_writes
from wharfinger.runtime.kube.joined import (
    JoinedCluster,
    JoinedError,
    checked_name,
    checked_namespaces,
    checked_verbs,
    joined_clusters,
    remove_joined,
    secret_of,
    store_joined,
)
from wharfinger.runtime.kube.kubeconfig import SERVICE_ACCOUNT, Access, in_cluster, read_kubeconfig
from wharfinger.runtime.kube.rights import (
    COPYING_VERBS,
    NAMESPACE,
    actuator_rights,
    collector_rights,
)
from wharfinger.runtime.kube.watched import watched_of
from wharfinger.runtime.settings import load_settings
from wharfinger_cli.connection import run
from wharfinger_cli.failures import DIFFERENCE, CommandError, NotFoundError
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    WARN,
    Plain,
    as_yaml,
    messages,
    new_table,
    show,
    write,
)
from wharfinger_cli.request import Request

CLOCK_SKEW_S_MAX = 2.0
"""The server's time has whole seconds, so less cannot be told."""

THROUGH = {
    "karmada": "/apis/cluster.karmada.io/v1alpha1/clusters/{member}/proxy",
    "ocm": "/{member}",
}
"""Proxy -> where it serves a member's API, behind the address in the kubeconfig: Karmada's
aggregated API, and the user server of OCM's cluster-proxy."""


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """What follows `join NAME`. `member`: the cluster's name at the proxy; "": the same name.
    `secrets`: namespaces whose Secrets are copied.
    `service_account`: where that of the pod is mounted; None: where kubelets mount it."""

    kubeconfig: Path | None = None
    context: str = ""
    mode: str = "observe"
    in_cluster: bool = False
    through: str = ""
    member: str = ""
    insecure: bool = False
    labels: tuple[str, ...] = ()
    provider: str = ""
    region: str = ""
    lease_s: int | None = None
    shadow_of: tuple[str, ...] = ()
    dry_run: bool = False
    hub: bool = False
    verbs: tuple[str, ...] = ()
    write_kubeconfig: Path | None = None
    write_context: str = ""
    service_account: Path | None = None
    secrets: tuple[str, ...] = ()


# --- join


def join(request: Request, name: str, options: JoinOptions) -> None:
    """Ends with 1 where rights are missing, or where another cluster has the name."""
    cluster = _wanted(name, options)
    directory = load_settings(request.flags).clusters_dir()
    before = _joined_before(directory, name)
    found = run(_examined(cluster.access, options.hub))
    cluster = replace(cluster, uid=found.uid, version=found.version)
    _refuse_another(directory, cluster)
    missing = run(_missing_writes(cluster)) if cluster.verbs_in_force else []
    joined = not found.blocking and not missing
    path = directory / f"{name}.yaml"
    if joined and not options.dry_run:
        path = store_joined(directory, cluster)
    ended = {*before.secrets_in_force} - {*cluster.secrets_in_force} if before is not None else ()
    result = _Result(
        cluster,
        found,
        path,
        joined,
        options.dry_run,
        before is not None,
        tuple(missing),
        tuple(sorted(ended)),
    )
    show(request.format, _plain(result), [name] if joined else [], lambda: _page(result))
    if not joined:
        raise SystemExit(DIFFERENCE)


def print_rights(name: str, options: JoinOptions) -> None:
    """The manifests that give a collector its rights; of the kinds that the server has, where one
    is named. With verbs, those of an actuator, too."""
    kinds = watched_of(options.hub)
    if options.kubeconfig is not None or options.in_cluster:
        found = run(_examined(_access(name, options), options.hub))
        kinds = tuple(right.kind for right in found.rights if right.served)
    manifests = collector_rights(kinds, hub=options.hub)
    verbs = _verbs(_mode(options), options)
    secrets = _secrets(verbs, options)
    if verbs:
        manifests += actuator_rights(verbs, secrets=secrets)[1:]
    write("---\n".join(as_yaml(manifest) for manifest in manifests))


def print_secret(name: str, options: JoinOptions) -> None:
    """The Secret that a collector in Kubernetes reads the cluster from, with its credentials."""
    write(as_yaml(secret_of(_wanted(name, options), NAMESPACE)))


def _wanted(name: str, options: JoinOptions) -> JoinedCluster:
    checked_name(name)
    mode = _mode(options)
    verbs = _verbs(mode, options)
    cluster = JoinedCluster(
        name,
        _access(name, options),
        mode,
        labels=_labels(options.labels),
        provider=options.provider,
        region=options.region,
        lease_s=options.lease_s,
        insecure=options.insecure,
        in_cluster=options.in_cluster,
        hub=options.hub,
        verbs=verbs,
        write_access=_write_access(options),
        secret_namespaces=_secrets(verbs, options),
    )
    return replace(cluster, shadow_of=options.shadow_of) if options.shadow_of else cluster


def _mode(options: JoinOptions) -> Mode:
    for mode in MODES:
        if mode == options.mode:
            return mode
    raise CommandError(f"--mode: expected {' or '.join(MODES)}, got {options.mode!r}")


def _verbs(mode: Mode, options: JoinOptions) -> tuple[Verb, ...]:
    found: list[Verb] = []
    for named in options.verbs:
        known = next((verb for verb in VERBS if verb == named), None)
        if known is None:
            raise CommandError(f"--verb: expected {' or '.join(VERBS)}, got {named!r}")
        found.append(known)
    if not options.verbs:
        return default_verbs(mode, options.hub)
    try:
        return checked_verbs(mode, found, options.hub, "--verb")
    except JoinedError as error:
        raise CommandError(str(error)) from None


def _secrets(verbs: tuple[Verb, ...], options: JoinOptions) -> tuple[str, ...]:
    if options.secrets and not {*COPYING_VERBS} & {*verbs}:
        raise CommandError("--secrets: expected --verb copy, or --verb templates of a hub, with it")
    try:
        return checked_namespaces(options.secrets, "--secrets")
    except JoinedError as error:
        raise CommandError(str(error)) from None


def _write_access(options: JoinOptions) -> Access | None:
    if options.write_kubeconfig is None:
        return None
    return read_kubeconfig(
        options.write_kubeconfig, options.write_context, insecure_allowed=options.insecure
    )


def _access(name: str, options: JoinOptions) -> Access:
    if options.in_cluster:
        if options.kubeconfig is not None or options.through:
            raise CommandError("--in-cluster: expected neither --kubeconfig nor --through with it")
        return in_cluster(options.service_account or SERVICE_ACCOUNT)
    if options.service_account is not None:
        raise CommandError("--service-account: expected --in-cluster with it")
    if options.kubeconfig is None:
        raise CommandError("join: expected --kubeconfig FILE, or --in-cluster in a pod")
    access = read_kubeconfig(options.kubeconfig, options.context, insecure_allowed=options.insecure)
    if not options.through:
        return access
    if options.through not in THROUGH:
        raise CommandError(f"--through: expected {' or '.join(THROUGH)}, got {options.through!r}")
    suffix = THROUGH[options.through].format(member=checked_name(options.member or name))
    return replace(access, server=access.server + suffix)


def _labels(pairs: tuple[str, ...]) -> Mapping[str, str]:
    labels: dict[str, str] = {}
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found or not key:
            raise CommandError(f"--label: expected KEY=VALUE, got {pair!r}")
        labels[key] = value
    return labels


async def _examined(access: Access, hub: bool) -> Examination:
    async with KubeApi(access, patient=True) as api:
        return await examine(api, watched_of(hub))


async def _missing_writes(cluster: JoinedCluster) -> list[str]:
    async with KubeApi(cluster.write_access or cluster.access, patient=True) as api:
        return await missing_writes(api, cluster.verbs_in_force, cluster.secrets_in_force)


def _joined_before(directory: Path, name: str) -> JoinedCluster | None:
    """A file that cannot be read is replaced by the new one."""
    return joined_clusters(directory).clusters.get(name)


def _refuse_another(directory: Path, cluster: JoinedCluster) -> None:
    """One name for one cluster: facts of two must not be mixed, nor those of one counted twice."""
    for other in joined_clusters(directory).clusters.values():
        if not other.uid or not cluster.uid:
            continue
        if other.name == cluster.name and other.uid != cluster.uid:
            raise CommandError(
                f"{cluster.name}: another cluster is joined under this name"
                f" (kube-system {other.uid}, here {cluster.uid}): choose another name, or"
                f" `wharfinger leave {cluster.name}` first",
                code=DIFFERENCE,
            )
        if other.name != cluster.name and other.uid == cluster.uid:
            raise CommandError(
                f"{cluster.name}: this cluster is joined already, as {other.name}", code=DIFFERENCE
            )


# --- what is said of it


@dataclass(frozen=True, slots=True)
class _Result:
    """`ended`: namespaces whose Secrets were copied until now."""

    cluster: JoinedCluster
    found: Examination
    path: Path
    joined: bool
    dry_run: bool
    replaced: bool
    writes_missing: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


def _plain(result: _Result) -> Plain:
    found = result.found
    return {
        "name": result.cluster.name,
        "joined": result.joined and not result.dry_run,
        "mode": result.cluster.mode,
        "verbs": list(result.cluster.verbs_in_force),
        "secret_namespaces": list(result.cluster.secrets_in_force),
        "secret_namespaces_ended": list(result.ended),
        "writes_missing": list(result.writes_missing),
        "hub": result.cluster.hub,
        "server": result.cluster.access.server,
        "uid": found.uid,
        "version": found.version,
        "clock_skew_s": found.skew_s,
        "ready": not found.unready,
        "reads": [
            {
                "resource": right.kind.qualified,
                "becomes": right.kind.becomes,
                "served": right.served,
                "missing": list(right.missing),
            }
            for right in found.rights
        ],
        "paths_missing": list(found.paths_missing),
        "schedulers": dict(found.schedulers),
        "pods_counted": found.pods,
        "pods_left": found.pods_left,
        "file": str(result.path),
    }


def _page(result: _Result) -> Iterator[RenderableType]:
    found, cluster = result.found, result.cluster
    yield Text(f"{cluster.name}  {cluster.access.server}", "bold")
    skew = "unknown" if found.skew_s is None else f"{found.skew_s:+.1f} s against this machine"
    yield f"Kubernetes {found.version}, clock {skew}"
    yield ""
    table = new_table("reads", "for", "right")
    for right in found.rights:
        if right.served:
            table.add_row(right.kind.qualified, right.kind.becomes, _right(right))
    for path in found.paths_missing:
        table.add_row(path, "whether it works", Text("missing: get", WARN))
    yield table
    yield ""
    if found.schedulers:
        names = ", ".join(f"{name} {pods:,}" for name, pods in found.schedulers.items())
        first = f" (of the first {found.pods:,} pods)" if found.pods_left else ""
        yield f"schedulers at work, by pods{first}: {names}"
    yield from (Text(f"note: {line}", WARN) for line in _notes(result))
    yield from _ending(result)


def _right(right: KindRights) -> Text:
    if not right.missing:
        return Text("yes", GOOD)
    style = BAD if right.blocks else WARN
    return Text(f"missing: {', '.join(right.missing)}", style)


def _notes(result: _Result) -> Iterator[str]:
    found = result.found
    if found.unready:
        yield f"the server says that it is not ready: {found.unready}"
    if found.skew_s is not None and abs(found.skew_s) > CLOCK_SKEW_S_MAX:
        yield (
            f"its clock is {found.skew_s:+.1f} s off; ages and latencies of this cluster will be"
            " wrong by as much"
        )
    if result.cluster.scheduler in found.schedulers:
        yield f"pods name the scheduler {result.cluster.scheduler} already"
    if result.ended and result.cluster.hub:
        yield (
            f"Secrets that were copied from {', '.join(result.ended)} stay in member clusters while"
            " a workload there names them"
        )
    elif result.ended:
        yield (
            f"Secrets that were copied into {', '.join(result.ended)} stay there, and are no longer"
            f" read: the annotation {COPIED_FROM} is on them"
        )
    if result.cluster.mode == "shadow":
        absent = [name for name in result.cluster.shadow_of if name not in found.schedulers]
        for name in absent if found.pods else ():
            yield f"no pod names the scheduler {name}, so there is nothing of it to compare yet"


def _ending(result: _Result) -> Iterator[RenderableType]:
    name, found = result.cluster.name, result.found
    if not result.joined:
        reads = ", ".join(right.kind.qualified for right in found.blocking)
        missing = ", ".join([*([f"read {reads}"] if reads else []), *result.writes_missing])
        yield Text(f"not joined: the right to {missing} is missing", BAD)
        flags = "--hub --print-rbac" if result.cluster.hub else "--print-rbac"
        if result.writes_missing:
            verbs = "".join(f"--verb {verb} " for verb in result.cluster.verbs_in_force)
            verbs += "".join(f"--secrets {name} " for name in result.cluster.secrets_in_force)
            flags = f"--mode {result.cluster.mode} {verbs}{flags}"
        yield f"rights that are enough: wharfinger join {name} {flags} | kubectl apply -f -"
    elif result.dry_run:
        yield Text("it can be joined; nothing was stored (--dry-run)", GOOD)
    else:
        word = "joined again" if result.replaced else "joined"
        as_what = "as a hub" if result.cluster.hub else f"in mode {result.cluster.mode}"
        verbs = ", ".join(result.cluster.verbs_in_force)
        what = f"may be changed by {verbs}" if verbs else "nothing is written to it"
        if secrets := result.cluster.secrets_in_force:
            what += f"; Secrets are copied in {', '.join(secrets)}"
        yield Text(f"{word} {as_what}: {what}", GOOD)
        yield Text(f"credentials are in {result.path}, readable by its owner only", DARK)


# --- leave


def leave(request: Request, name: str) -> None:
    """Ends with 1 where no such cluster is joined."""
    directory = load_settings(request.flags).clusters_dir()
    if not remove_joined(directory, name):
        joined = ", ".join(joined_clusters(directory).clusters) or "none"
        raise NotFoundError(f"{name}: no such cluster is joined; joined: {joined}")
    out = messages()
    out.print(f"{name} is no longer joined; its credentials are removed from {directory}")
    out.print("nothing in the cluster has to be undone but the rights that were given")
    out.print(f"what is known of it stays, and grows old: `wharfinger get nodes {name}` shows it")
