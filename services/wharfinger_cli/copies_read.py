"""Workloads that are copied, as they are decided and as they are. Their bodies are in no ledger, so
the servers of hub and member are read; nothing is sent to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.actuation import Verb
from wharfinger.events.rendering import Rendered
from wharfinger.history.copied_bindings import bindings_now
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.identity import AWAY
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.kube.pages import ObjectPage, listed
from wharfinger.runtime.ledger import Ledger
from wharfinger.stages.actuator.copied_objects import (
    COPIED_PATHS,
    OPTIONAL_KINDS,
    DecidedCopies,
    secrets_path,
)
from wharfinger.stages.actuator.copies import decided_copies
from wharfinger.stages.actuator.hub import HubObjects, name_of

NO_HUB = "no hub is joined with the verb templates"


@dataclass(frozen=True, slots=True)
class CopiesRead:
    """Of one hub in one member cluster. `decided`: None where nothing could be read, and `why` says
    so. `secrets`: namespaces whose Secrets are copied, and could be read."""

    member: str
    hub: str = ""
    decided: DecidedCopies | None = None
    there: HubObjects = field(default_factory=HubObjects)
    why: str = ""
    secrets: frozenset[str] = frozenset()


async def read_copies(
    ledger: Ledger,
    joined: Mapping[str, JoinedCluster],
    members: Iterable[JoinedCluster],
    verbs: Collection[Verb] = (),
) -> list[CopiesRead]:
    """Of those of `members` that have the verb `copy`, or of all if it is one of `verbs`. Each
    server is read once. LedgerError."""
    copying = [one for one in members if "copy" in (verbs or one.verbs_in_force)]
    hubs = [one for one in joined.values() if "templates" in one.verbs_in_force]
    if not copying:
        return []
    if not hubs:
        return [CopiesRead(member.name, why=NO_HUB) for member in copying]
    bindings = await bindings_now(ledger)
    templates = {hub.name: await _objects(hub) for hub in hubs}
    found: list[CopiesRead] = []
    for member in copying:
        there = await _objects(member)
        if isinstance(there, str):
            found.append(CopiesRead(member.name, why=there))
            continue
        for hub, of_hub in templates.items():
            if isinstance(of_hub, str):
                found.append(CopiesRead(member.name, hub, why=of_hub))
                continue
            secrets = there.secrets & of_hub.secrets
            unread = there.unread | of_hub.unread
            decided = decided_copies(bindings, of_hub.objects, hub, member.name, secrets, unread)
            found.append(CopiesRead(member.name, hub, decided, there.objects, "", secrets))
    return found


@dataclass(frozen=True, slots=True)
class _ServerObjects:
    """`secrets`: namespaces whose Secrets were read. `unread`: kinds that may not be read."""

    objects: HubObjects
    secrets: frozenset[str]
    unread: frozenset[str]


async def _objects(joined: JoinedCluster) -> _ServerObjects | str:
    """Why they cannot be read, else the objects. The writer's access is used: the account that
    reads a cluster may not list ConfigMaps. Secrets and optional kinds that may not be read are
    left out: `doctor` names the right that is missing."""
    found, secrets, unread = HubObjects(), set[str](), set[str]()
    try:
        async with KubeApi(joined.write_access or joined.access, patient=True) as api:
            for kind, path in COPIED_PATHS.items():
                if not await _read(api, kind, path, found, optional=kind in OPTIONAL_KINDS):
                    unread.add(kind)
            for namespace in joined.secrets_in_force:
                if await _read(api, "Secret", secrets_path(namespace), found, optional=True):
                    secrets.add(namespace)
    except AWAY as error:
        return str(error)
    return _ServerObjects(found, frozenset(secrets), frozenset(unread))


async def _read(api: KubeApi, kind: str, path: str, into: HubObjects, *, optional: bool) -> bool:
    """False: what is optional may not be read."""
    try:
        async for one in listed(api, path, ObjectPage[Rendered]):
            into.of(kind)[name_of(one)] = {**one, "kind": kind}
    except ApiError as error:
        if optional and error.code == 403:
            return False
        raise
    return True
