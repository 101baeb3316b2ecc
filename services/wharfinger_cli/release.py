"""`release`: a cluster that was written to is given back. Its mode becomes `observe`, nodes that
were cordoned for decisions of this ledger are uncordoned, and nothing that runs is touched.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from wharfinger.runtime.actuation import closed_nodes
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.identity import Identity, ReplacedError
from wharfinger.runtime.kube.joined import JoinedCluster, joined_clusters, store_joined
from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig
from wharfinger.runtime.kube.lease import LASTS_S, KubeLease
from wharfinger.runtime.kube.release import GivenBack, Release
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE
from wharfinger.runtime.ledger import wall_clock
from wharfinger.runtime.settings import load_settings
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import DIFFERENCE, CommandError, NotFoundError
from wharfinger_cli.output import BAD, DARK, messages, new_table, show_list
from wharfinger_cli.request import Request

LEASE_WAIT_S = 2 * LASTS_S
"""An actuator that still holds the Lease sees the new mode within seconds, and gives it back."""


@dataclass(frozen=True, slots=True)
class ReleaseOptions:
    """`kubeconfig`: credentials that write, instead of those of the joined cluster."""

    annotations: bool = False
    dry_run: bool = False
    kubeconfig: Path | None = None
    context: str = ""


def release(request: Request, name: str, options: ReleaseOptions) -> None:
    """Ends with 1 where something is left that could not be given back."""
    directory = load_settings(request.flags).clusters_dir()
    joined = joined_clusters(directory).clusters
    cluster = joined.get(name)
    if cluster is None:
        raise NotFoundError(
            f"{name}: no such cluster is joined; joined: {', '.join(joined) or 'none'}"
        )
    write = cluster.write_access or cluster.access
    if options.kubeconfig is not None:
        write = read_kubeconfig(
            options.kubeconfig, options.context, insecure_allowed=cluster.insecure
        )
    if not options.dry_run:
        # First of all: nothing new is written while the rest is undone.
        store_joined(directory, replace(cluster, mode="observe", verbs=()))
        messages().print(f"{name} is in mode observe: nothing more is written to it")
    found = [] if cluster.hub else run(_given_back(request, cluster, write, options))
    plain = [
        {"object": one.object, "what": one.what, "ok": one.ok, "why": one.why} for one in found
    ]
    empty = "nothing has to be given back"
    show_list(request.format, plain, [one.object for one in found], lambda: _table(found), empty)
    if not all(one.ok for one in found):
        raise SystemExit(DIFFERENCE)


def _table(found: list[GivenBack]) -> Table:
    table = new_table("object", "what", "why")
    for one in found:
        table.add_row(one.object, Text(one.what, "" if one.ok else BAD), Text(one.why, DARK))
    return table


async def _given_back(
    request: Request, cluster: JoinedCluster, write: Access, options: ReleaseOptions
) -> list[GivenBack]:
    async with opened_ledger(reached(request)) as ledger:
        decided = await closed_nodes(ledger, cluster.name)
    async with KubeApi(cluster.access, patient=True) as read, KubeApi(write, patient=True) as api:
        await _same(cluster, read)
        await _same(cluster, api)
        work = Release(
            cluster.name,
            read,
            api,
            decided,
            wall_clock(),
            options.annotations,
            options.dry_run,
            cluster.secret_namespaces,
        )
        if options.dry_run:
            return [one async for one in work.all()]
        async with _alone(api, cluster.name):
            return [one async for one in work.all()]


async def _same(cluster: JoinedCluster, api: KubeApi) -> None:
    async def another() -> None:
        pass

    if not cluster.uid:
        return
    try:
        await Identity(cluster.name, cluster.uid, another).checked(api)
    except ReplacedError:
        raise CommandError(
            f"{cluster.name}: another cluster answers at {api.server}: nothing was changed"
        ) from None


@asynccontextmanager
async def _alone(api: KubeApi, name: str) -> AsyncIterator[None]:
    """While no actuator writes there."""
    lease = KubeLease(api, NAMESPACE, LEASE, f"release-{socket.gethostname()}-{os.getpid()}")
    until = time.monotonic() + LEASE_WAIT_S
    while True:
        await lease.renew()
        if lease.held:
            break
        if time.monotonic() > until:
            raise CommandError(
                f"{name}: the Lease {NAMESPACE}/{LEASE} is not to be had: {lease.why}",
                "stop the actuator that holds it, and run it again",
            )
        await asyncio.sleep(0.5)
    keeping = asyncio.create_task(lease.keep())
    try:
        yield
    finally:
        keeping.cancel()
        await lease.give_back()
