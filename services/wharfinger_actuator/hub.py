"""One hub whose bindings and placements may be written, or the NodeClaims of one member cluster.

    ledger -> decided objects -+
                               +-> writes -> requests at the version that was observed
    watches -> observed -------+

The decided objects are those that `wharfinger get resourcebindings` shows. They are rendered again
when the ledger has something new, and the rest between two times grows with what one takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

import msgspec
import structlog

from wharfinger.domain.text import one_line
from wharfinger.domain.time import Micros
from wharfinger.events.node_rendering import node_claim
from wharfinger.events.rendering import Rendered, when
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.identity import AWAY, Identity, ReplacedError
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.kube.lease import KubeLease
from wharfinger.runtime.kube.pausing import paused
from wharfinger.runtime.kube.reflector import Reflector
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE
from wharfinger.runtime.ledger import Ledger, LedgerError
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.service import ServiceContext
from wharfinger.stages.actuator.attempts import Attempts
from wharfinger.stages.actuator.hub import (
    CLAIM_PATHS,
    KARMADA_PATHS,
    OCM_PATHS,
    DecidedClaims,
    HubObjects,
    HubWrite,
    binding_writes,
    claim_writes,
    name_of,
    placement_writes,
)
from wharfinger_actuator.sending import BATCH, answered

REST_S = 0.2
"""Between two looks at the ledger at least."""
CLAIMS_US = 24 * 3_600_000_000
"""Claims and removals of nodes that were decided earlier are over: a claim lasts minutes."""

POLL_S = 5.0
"""A notification of the ledger may be lost."""

log = structlog.get_logger(__name__)


class HubWriter:
    """`why`: why nothing is written; "": it is."""

    def __init__(self, joined: JoinedCluster, context: ServiceContext, holder: str) -> None:
        self.joined = joined
        self._ledger = context.ledger
        self._settings = context.settings
        self._clock = context.clock
        self._holder = holder
        self._identity = Identity(joined.name, joined.uid, self._another)
        self._observed = HubObjects()
        self._sinks: list[_HubMirror] = []
        self._bindings: list[Rendered] = []
        self._placements: tuple[list[Rendered], list[Rendered]] = [], []
        self._claims = DecidedClaims()
        self._rendered = False
        self._news = asyncio.Event()
        self._wake = asyncio.Event()
        self._shown: set[object] = set()
        self.attempts = Attempts()
        self.why = "not asked yet"

    async def run(self) -> None:
        """Until cancelled."""
        async with KubeApi(self.joined.write_access or self.joined.access) as api:
            while True:
                await self._identity.found(api)
                lease = KubeLease(api, NAMESPACE, LEASE, self._holder)
                self._observed, self._sinks = HubObjects(), []
                try:
                    async with asyncio.TaskGroup() as group:
                        name = self.joined.name
                        if not self._settings.actuator_dry_run:
                            group.create_task(lease.keep(), name=f"{name}-lease")
                        group.create_task(
                            self._ledger.notifications(self._news), name=f"{name}-news"
                        )
                        group.create_task(self._render(), name=f"{name}-decided")
                        self._watch(api, group)
                        group.create_task(self._write(api, lease), name=f"{name}-write")
                except* ReplacedError:
                    pass
                finally:
                    await lease.give_back()

    async def _another(self) -> None:
        """Nothing is sent there; the log has it."""

    # --- what is observed

    def _watch(self, api: KubeApi, group: asyncio.TaskGroup) -> None:
        verbs = self.joined.verbs_in_force
        paths = {
            **(KARMADA_PATHS if "karmada" in verbs else {}),
            **(OCM_PATHS if "ocm" in verbs else {}),
            **(CLAIM_PATHS if "claims" in verbs else {}),
        }
        for kind, path in paths.items():
            mirror = _HubMirror(self._observed.of(kind), self._wake)
            self._sinks.append(mirror)
            reflector = Reflector(
                api,
                path,
                partial(_object_of, kind),
                mirror,
                check=partial(self._identity.checked, api),
            )
            group.create_task(reflector.run(), name=f"{self.joined.name}-watch")

    # --- what is decided

    async def _render(self) -> None:
        # Few actuators write to hubs.
        from wharfinger.history.object_kinds import BINDINGS, DECISIONS, PLACEMENTS
        from wharfinger.history.objects import rendered

        verbs = self.joined.verbs_in_force
        while True:
            began = time.monotonic()
            self._news.clear()
            try:
                if "karmada" in verbs:
                    self._bindings = await rendered(self._ledger, BINDINGS)
                if "ocm" in verbs:
                    decisions = await rendered(self._ledger, DECISIONS)
                    self._placements = decisions, await rendered(self._ledger, PLACEMENTS)
                if "claims" in verbs:
                    self._claims = await _claims(self._ledger, self.joined.name, self._clock())
                self._rendered = True
                self._wake.set()
            except LedgerError as error:
                log.warning("ledger.away", service="actuator", why=str(error))
            await asyncio.sleep(max(REST_S, 9 * (time.monotonic() - began)))
            try:
                async with asyncio.timeout(POLL_S):
                    await self._news.wait()
            except TimeoutError:
                pass

    def open(self) -> list[HubWrite]:
        """What is to be written, by what is known; empty before all of it is."""
        if not self._rendered or not all(sink.listed for sink in self._sinks):
            return []
        decisions, placements = self._placements
        return [
            *binding_writes(self._bindings, self._observed, self.joined.scheduler),
            *placement_writes(decisions, placements, self._observed),
            *claim_writes(self._claims, self._observed, self._gone),
        ]

    @property
    def _gone(self) -> set[str]:
        return {name for sink in self._sinks for name in sink.gone}

    # --- requests

    async def _write(self, api: KubeApi, lease: KubeLease) -> None:
        while True:
            self._wake.clear()
            due = self.attempts.due(self.open(), self._clock())
            if self._settings.actuator_dry_run:
                self._show(due)
            elif due:
                self.why = await self._why_not(api, lease)
                if not self.why:
                    await self._send_all(api, lease, due[:BATCH])
                    continue
                await asyncio.sleep(1.0)
            try:
                async with asyncio.timeout(1.0):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _why_not(self, api: KubeApi, lease: KubeLease) -> str:
        if self._settings.actuator_paused:
            return "paused by WHARFINGER_ACTUATOR_PAUSED"
        if not lease.held:
            return lease.why or "the Lease is not held yet"
        if broken := next((sink.why for sink in self._sinks if sink.why), ""):
            return broken
        try:
            await self._identity.checked(api)
        except AWAY as error:
            return one_line(error)
        return await paused(api)

    async def _send_all(self, api: KubeApi, lease: KubeLease, due: Sequence[HubWrite]) -> None:
        """One after the other: of one object the next write needs the version that this one
        makes."""
        for write in due:
            if not lease.held:
                return
            answer = await answered(api, write.request)
            made = self.attempts.answered(write, answer, self._clock())
            METRICS.effect_answers.labels(write.verb, str(made.outcome)).inc()
            log.info(
                "effect.answered",
                cluster=self.joined.name,
                action=write.what,
                object=str(write.object),
                outcome=str(made.outcome),
                code=answer.code,
                why=answer.message,
            )

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


def _object_of(kind: str, raw: msgspec.Raw) -> Rendered:
    """A streaming list does not say the kind of an object."""
    return {**msgspec.json.decode(raw, type=Rendered), "kind": kind}


class _HubMirror:
    """The objects of one kind as they are. `why`: why the watch is broken; "": it is not."""

    def __init__(self, into: dict[str, Rendered], wake: asyncio.Event) -> None:
        self._into = into
        self._wake = wake
        self.listed = False
        self.why = ""
        self.gone: set[str] = set()
        """Names of objects that were there and were deleted."""

    def replace(self, objects: Sequence[Rendered], version: str) -> None:
        self.gone |= self._into.keys() - {name_of(one) for one in objects}
        self._into.clear()
        self._into.update((name_of(one), one) for one in objects)
        self.listed = True
        self._changed()

    def upsert(self, object_: Rendered, version: str) -> None:
        self._into[name_of(object_)] = object_
        self._changed()

    def remove(self, object_: Rendered, version: str) -> None:
        if self._into.pop(name_of(object_), None) is not None:
            self.gone.add(name_of(object_))
        self._changed()

    def alive(self, version: str) -> None:
        self.why = ""

    def broken(self, why: str) -> None:
        self.why = why

    def _changed(self) -> None:
        self.why = ""
        self._wake.set()
