"""A whole plane that may change a real cluster, with the rights that are printed for it and no
other. What it did is read from the server's audit log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from tests.apps import all_services, send
from tests.kube.member import Json, Member

from wharfinger.domain.actuation import Verb
from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentItem, AssignmentsDecided
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import ASSIGNMENTS, PROPOSALS
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.joined import JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import read_kubeconfig
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE, Manifest, actuator_rights
from wharfinger.runtime.kube.rights import WRITER as WRITER_ACCOUNT
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow, Submission
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.settings import Settings
from wharfinger_cli.one import BUILDERS

WRITER = "actuator"
"""The user of the tests' servers with whose credentials a cluster is changed."""


def grant(member: Member, verbs: Collection[Verb], secrets: Collection[str] = ()) -> None:
    """The rights that are printed for these verbs, to the user instead of the account. `secrets`:
    namespaces whose Secrets are copied."""
    user = {"kind": "User", "name": WRITER, "apiGroup": "rbac.authorization.k8s.io"}
    manifests = actuator_rights(verbs, secrets=secrets)
    for manifest in manifests:
        if "subjects" in manifest:
            manifest["subjects"] = [user]
    member.apply(*manifests)
    # That of an earlier test.
    member.kubectl("delete", "lease", LEASE, "-n", NAMESPACE, "--ignore-not-found")


def revoke(member: Member) -> None:
    """All that `grant` gave but the roles for Secrets. What was never granted is no error."""
    gone = ("--ignore-not-found",)
    member.kubectl("delete", "clusterrolebinding,clusterrole", WRITER_ACCOUNT, *gone)
    member.kubectl("delete", "rolebinding,role", WRITER_ACCOUNT, "-n", NAMESPACE, *gone)


def join_for_writing(
    directory: Path, member: Member, verbs: Sequence[Verb], **options: object
) -> None:
    store_joined(
        directory,
        JoinedCluster(
            member.name,
            read_kubeconfig(member.kubeconfig()),
            "act",
            lease_s=16,
            verbs=tuple(verbs),
            write_access=read_kubeconfig(member.kubeconfig(WRITER)),
            **options,  # type: ignore[arg-type]
        ),
    )


def join_hub(
    directory: Path, hub: Member, verbs: Sequence[Verb], secrets: tuple[str, ...] = ()
) -> None:
    """`secrets`: namespaces whose Secrets are copied."""
    store_joined(
        directory,
        JoinedCluster(
            "hub",
            read_kubeconfig(hub.kubeconfig()),
            "fleet",
            hub=True,
            verbs=tuple(verbs),
            write_access=read_kubeconfig(hub.kubeconfig(WRITER)),
            secret_namespaces=secrets,
        ),
    )


@asynccontextmanager
async def a_plane(
    backend: Backend,
    database_url: str,
    prefix: str,
    directory: Path,
    names: Sequence[str] = tuple(BUILDERS),
    **settings: object,
) -> AsyncIterator[ServiceContext]:
    """All services, or those of `names`, with the clusters that were joined in the directory."""
    chosen = Settings(fleet_shards=1, clusters=directory, **settings)  # type: ignore[arg-type]
    async with all_services(backend, database_url, prefix, chosen, names) as context:
        yield context


async def propose(ledger: Ledger, data: Value, stream: str) -> None:
    """As those who operate the plane do."""
    event = made(
        data,
        id=derived_id("tests", stream, str(data)),
        source="/tests/operators",
        subject=stream,
        key=stream,
    )
    await ledger.accept([Submission(event, PROPOSALS.name, stream, stream)])


async def decided(ledger: Ledger, stream: str, outcome: str) -> list[LedgerRow]:
    query = DecisionQuery(stream=stream, outcomes=(outcome,))
    return [row async for row in ledger.decisions(query)]


async def decide(context: ServiceContext, member: Member, items: Sequence[AssignmentItem]) -> None:
    """As the publisher relays the decisions of the cluster's stream."""
    stream = f"cluster/{member.name}"
    data = AssignmentsDecided(member.name, stream, items[-1].seq, tuple(items))
    event = made(
        data,
        id=derived_id("tests", stream, items[0].seq, items[-1].seq),
        source=f"/wharfinger/{stream}",
        subject=member.name,
        key=member.name,
    )
    await send(context, ASSIGNMENTS, [(member.name, event.body)])


class Audit:
    """What the writer called since this was made."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._before = len(member.audit(WRITER))

    def calls(self) -> list[Json]:
        return self._member.audit(WRITER)[self._before :]

    def writes(self, resource: str = "") -> list[tuple[str, str, int]]:
        """(verb, name, code) of what could have changed something, but for the Lease. `resource`:
        such as `nodes` or `pods/eviction`."""
        found: list[tuple[str, str, int]] = []
        for call in self.calls():
            of = call.get("objectRef", {})
            named = _resource(of)
            if call["verb"] in ("get", "list", "watch") or named == "leases":
                continue
            if not resource or named == resource:
                found.append(
                    (
                        call["verb"],
                        of.get("name", ""),
                        call.get("responseStatus", {}).get("code", 0),
                    )
                )
        return found

    def bindings(self) -> Counter[str]:
        """uid of a pod -> how often it was bound. Of some thousand pods two may get the same name,
        one after the other."""
        return Counter(
            call["objectRef"]["uid"]
            for call in self.calls()
            if _resource(call.get("objectRef", {})) == "pods/binding"
            and call.get("responseStatus", {}).get("code") == 201
        )

    def unused(self, rules: Iterable[Manifest]) -> list[tuple[str, str, str]]:
        """(group, resource, verb) of the rules that no call used. Only servers without streaming
        lists are asked for a list before a watch."""
        used = {
            (of.get("apiGroup", ""), _resource(of), call["verb"])
            for call in self.calls()
            if (of := call.get("objectRef"))
        }
        return [
            (group, resource, verb)
            for rule in cast(list[dict[str, list[str]]], list(rules))
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            if verb != "list"
            if (group, resource, verb) not in used
        ]


def _resource(of: Json) -> str:
    return "/".join(filter(None, (of.get("resource", ""), of.get("subresource", ""))))


def asked_for(
    command: str, database_url: str, directory: Path, cluster: str, code: int = 0
) -> list[Json]:
    """What the command shows, as a user runs it; nothing where it does not end with `code`."""
    run = run_command(database_url, directory, command, cluster, "-o", "json")
    if run.returncode != code:
        assert run.returncode in (0, 1), run.stderr
        return []
    found: list[Json] = json.loads(run.stdout)
    return found


def run_command(
    database_url: str, directory: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """`wharfinger` on this database, with the clusters that were joined in the directory."""
    return subprocess.run(
        [sys.executable, "-m", "wharfinger_cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "WHARFINGER_DATABASE": database_url,
            "WHARFINGER_CLUSTERS": str(directory),
            "WHARFINGER_DATA_DIR": str(directory / "data"),
        },
    )
