"""One hub whose bindings and placements may be written, or the NodeClaims of one member cluster.

    ledger -> decided objects -+
                               +-> writes -> requests at the version that was observed
    watches -> observed -------+

The decided objects are those that `wharfinger get resourcebindings` shows. They are rendered again
when the ledger has something new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from wharfinger.domain.time import Micros
from wharfinger.events.node_rendering import node_claim
from wharfinger.events.rendering import Rendered, when
from wharfinger.history.object_kinds import DECISIONS, PLACEMENTS
from wharfinger.history.objects import DecidedBindings, rendered
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.identity import ReplacedError
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.kube.lease import KubeLease
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.service import ServiceContext
from wharfinger.stages.actuator.hub import (
    CLAIM_PATHS,
    KARMADA_PATHS,
    OCM_PATHS,
    DecidedClaims,
    HubObjects,
    HubWrite,
    binding_writes,
    claim_writes,
    placement_writes,
)
from wharfinger_actuator.objects import ObjectWriter
from wharfinger_actuator.sending import BATCH

CLAIMS_US = 24 * 3_600_000_000
"""Claims and removals of nodes that were decided earlier are over: a claim lasts minutes."""

log = get_logger(__name__)


class HubWriter(ObjectWriter):
    """Writes the objects of a hub, and the NodeClaims of a member cluster."""

    def __init__(self, joined: JoinedCluster, context: ServiceContext, holder: str) -> None:
        super().__init__(joined, context, holder)
        self._decided = DecidedBindings()
        self._placements: tuple[list[Rendered], list[Rendered]] = [], []
        self._claims = DecidedClaims()
        self._rendered = False
        self._shown: set[object] = set()

    async def run(self) -> None:
        """Until cancelled."""
        async with KubeApi(self.joined.write_access or self.joined.access) as api:
            while True:
                await self._identity.found(api)
                lease = KubeLease(api, NAMESPACE, LEASE, self._holder, self._identity)
                self._observed, self._mirrors = HubObjects(), []
                try:
                    async with asyncio.TaskGroup() as group:
                        name = self.joined.name
                        if not self._settings.actuator_dry_run:
                            group.create_task(lease.keep(), name=f"{name}-lease")
                        group.create_task(
                            self._ledger.notifications(self._news), name=f"{name}-news"
                        )
                        group.create_task(self._follow_ledger(self._render), name=f"{name}-decided")
                        self._watch(group, api, self._identity, self._paths, self._observed)
                        group.create_task(self._write(api, lease), name=f"{name}-write")
                except* ReplacedError:
                    lease.forget()
                finally:
                    await lease.give_back()

    # --- what is observed

    @property
    def _paths(self) -> dict[str, str]:
        verbs = self.joined.verbs_in_force
        return {
            **(KARMADA_PATHS if "karmada" in verbs else {}),
            **(OCM_PATHS if "ocm" in verbs else {}),
            **(CLAIM_PATHS if "claims" in verbs else {}),
        }

    # --- what is decided

    async def _render(self) -> None:
        verbs = self.joined.verbs_in_force
        if "karmada" in verbs:
            await self._decided.read(self._ledger)
        if "ocm" in verbs:
            decisions = await rendered(self._ledger, DECISIONS)
            self._placements = decisions, await rendered(self._ledger, PLACEMENTS)
        if "claims" in verbs:
            self._claims = await _claims(self._ledger, self.joined.name, self._clock())
        self._rendered = True

    def open(self) -> list[HubWrite]:
        """What is to be written, by what is known; empty before all of it is."""
        if not self._rendered or not all(mirror.listed for mirror in self._mirrors):
            return []
        decisions, placements = self._placements
        return [
            *binding_writes(
                self._decided.bindings,
                self._observed,
                self.joined.scheduler,
                self._decided.undecided,
            ),
            *placement_writes(decisions, placements, self._observed),
            *claim_writes(self._claims, self._observed, self._gone),
        ]

    @property
    def _gone(self) -> set[str]:
        return {name for mirror in self._mirrors for name in mirror.gone}

    # --- requests

    async def _write(self, api: KubeApi, lease: KubeLease) -> None:
        while True:
            self._wake.clear()
            writes = self.open()
            if self._settings.actuator_dry_run:
                self._show(self.attempts.due(writes, self._clock()))
            elif due := self._sendable(writes):
                self.why = await self._why_not(api, lease)
                if not self.why:
                    # of one object the next write needs the version that this one makes
                    await self._send_all(api, lease, due[:BATCH])
                    continue
                await asyncio.sleep(1.0)
            try:
                async with asyncio.timeout(1.0):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _show(self, due: Sequence[HubWrite]) -> None:
        """Instead of a request, once for each version of an object."""
        self._shown &= {write.key for write in due}
        for write in due:
            if write.key not in self._shown:
                self._shown.add(write.key)
                log.info(
                    "effect.not_sent",
                    cluster=self.joined.name,
                    method=write.request.method,
                    path=write.request.path,
                    body=write.request.body,
                )


async def _claims(ledger: Ledger, cluster: str, at: Micros) -> DecidedClaims:
    from wharfinger.history.node_claims import OPEN, REGISTERED, removed_nodes, requested_claims

    found = await requested_claims(ledger, cluster, at - CLAIMS_US)
    nodes = await removed_nodes(ledger, cluster, at - CLAIMS_US)
    return DecidedClaims(
        [node_claim(one.claim) for one in found if one.state == OPEN and at < one.claim.until_us],
        frozenset(one.claim.claim for one in found if one.state not in (OPEN, REGISTERED)),
        {node: when(decided) for node, decided in nodes.items()},
    )
