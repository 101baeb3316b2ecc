"""One member cluster into which the workloads of a hub are copied.

    ledger -> bindings with their clusters -+
    hub, watched -> templates --------------+-> writes -> requests to the member
    member, watched -> copies --------------+

The bodies go from server to server; ledger and broker hold none of them. Nothing is written while
one of the three is not known. Secrets are read and written in the namespaces that both servers were
joined with, and only while both are known; where the hub allows it no more, those that are in the
member are still known there, and go with their workloads. A server that may not be asked for
ServiceAccounts or claims keeps nothing else from being copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from wharfinger.events.rendering import Rendered
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.identity import Identity, ReplacedError
from wharfinger.runtime.kube.joined import JoinedCluster, secrets_of
from wharfinger.runtime.kube.lease import KubeLease
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.service import ServiceContext
from wharfinger.stages.actuator.attempts import RequestAttempt
from wharfinger.stages.actuator.copied_objects import COPIED_PATHS, OPTIONAL_KINDS, secrets_path
from wharfinger.stages.actuator.copies import (
    CopyWrite,
    copied_for,
    copy_writes,
    decided_copies,
    foreign,
)
from wharfinger.stages.actuator.hub import HubObjects, HubWrite
from wharfinger.stages.actuator.observed import reported_copy
from wharfinger_actuator.objects import REST_S, ObjectMirror, ObjectWriter
from wharfinger_actuator.observed_effects import EffectSender
from wharfinger_actuator.sending import BATCH

log = get_logger(__name__)


class CopyWriter(ObjectWriter):
    """Writes the copies in `joined` of the workloads of `hub`."""

    def __init__(
        self,
        joined: JoinedCluster,
        hub: JoinedCluster,
        context: ServiceContext,
        holder: str,
        answers: EffectSender,
    ) -> None:
        super().__init__(joined, context, holder)
        self.hub = hub
        self._answers = answers
        self._of_hub = Identity(hub.name, hub.uid, self._another)
        self._templates = HubObjects()
        self._bindings: list[Rendered] | None = None
        self._ours: frozenset[str] = frozenset()
        self._secrets: dict[str, list[ObjectMirror]] = {}
        """Namespace of which Secrets are copied -> these in hub and member."""
        self._said: dict[str, set[object]] = {}
        """Event of the log -> about what it was said, as long as that holds."""

    async def run(self) -> None:
        """Until cancelled."""
        hub_access = self.hub.write_access or self.hub.access
        async with (
            KubeApi(self.joined.write_access or self.joined.access) as api,
            KubeApi(hub_access) as hub,
        ):
            while True:
                await self._of_hub.found(hub)
                await self._identity.found(api)
                lease = KubeLease(api, NAMESPACE, LEASE, self._holder, self._identity)
                self._observed, self._templates, self._mirrors = HubObjects(), HubObjects(), []
                try:
                    async with asyncio.TaskGroup() as group:
                        if not self._settings.actuator_dry_run:
                            group.create_task(lease.keep())
                        group.create_task(self._ledger.notifications(self._news))
                        group.create_task(self._follow_ledger(self._render))
                        self._watch(group, hub, self._of_hub, COPIED_PATHS, self._templates)
                        self._watch(group, api, self._identity, COPIED_PATHS, self._observed)
                        self._watch_secrets(group, hub, api)
                        group.create_task(self._write(api, lease))
                except* ReplacedError:
                    lease.forget()
                finally:
                    await lease.give_back()

    def _watch_secrets(self, group: asyncio.TaskGroup, hub: KubeApi, api: KubeApi) -> None:
        self._secrets = {}
        for namespace in self.joined.secrets_in_force:
            servers = [(api, self._identity, self._observed)]
            if copied := namespace in secrets_of(self.joined, self.hub):
                servers.append((hub, self._of_hub, self._templates))
            mirrors: list[ObjectMirror] = []
            for server, identity, objects in servers:
                mirror = ObjectMirror("Secret", objects.of("Secret"), self._wake, namespace)
                self._watch_one(group, server, identity, secrets_path(namespace), mirror)
                mirrors.append(mirror)
            if copied:
                self._secrets[namespace] = mirrors

    async def _render(self) -> None:
        # Few actuators copy.
        from wharfinger.history.copied_bindings import bindings_now, decided_here

        self._bindings = await bindings_now(self._ledger)
        there = copied_for(self._observed, self.hub.name)
        self._ours = await decided_here(self._ledger, there)

    def open(self) -> list[CopyWrite]:
        """What is to be written, by what is known; empty before all of it is."""
        needed = [mirror for mirror in self._mirrors if mirror.kind != "Secret"]
        unknown = [mirror for mirror in needed if not mirror.listed]
        unread = {one.kind for one in unknown if one.kind in OPTIONAL_KINDS and one.why}
        if self._bindings is None or any(one.kind not in unread for one in unknown):
            return []
        hub = self.hub.name
        secrets = [
            namespace
            for namespace, both in self._secrets.items()
            if all(mirror.listed for mirror in both)
        ]
        decided = decided_copies(
            self._bindings, self._templates, hub, self.joined.name, secrets, unread
        )
        others = foreign(decided, self._observed, hub).items()
        self._say("copy.not_ours", {one: {"why": f"{one} {why}"} for one, why in others})
        left_out = decided.left_out.items()
        self._say(
            "copy.left_out", {one: {"object": str(one), "why": left.why} for one, left in left_out}
        )
        return copy_writes(decided, self._observed, hub, self._ours)

    # --- requests

    async def _write(self, api: KubeApi, lease: KubeLease) -> None:
        while True:
            self._wake.clear()
            writes = self.open()
            if self._settings.actuator_dry_run:
                self._show(writes)
            elif due := self._sendable(writes):
                self.why = await self._why_not(api, lease)
                if not self.why:
                    # what a workload names is there before it
                    await self._send_all(api, lease, due[:BATCH])
            try:
                async with asyncio.timeout(1.0):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(REST_S)

    def _note(self, write: HubWrite | CopyWrite, made: RequestAttempt) -> None:
        assert isinstance(write, CopyWrite), "nothing else is sent here"
        if (report := reported_copy(write, made, self._clock())) is not None:
            self._answers.offer(self.joined.name, report)

    def _show(self, writes: Sequence[CopyWrite]) -> None:
        """Instead of requests."""
        self._say(
            "effect.not_sent",
            {
                write.key: {
                    "method": write.request.method,
                    "path": write.request.path,
                    "body": write.shown,
                }
                for write in writes
            },
        )

    def _say(self, event: str, found: Mapping[Any, Mapping[str, object]]) -> None:
        """Once for each key, until it is no longer found."""
        before = self._said.get(event, set())
        for key, about in found.items():
            if key not in before:
                log.info(event, cluster=self.joined.name, **about)
        self._said[event] = set(found)
