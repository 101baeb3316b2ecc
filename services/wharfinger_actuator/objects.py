"""What the writers have in common that compare whole objects of a server with decided ones, see
`hub` and `copier`: they watch both sides, ask whether writing is allowed, and send in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import msgspec

from wharfinger.domain.text import one_line
from wharfinger.domain.value import json_decoder
from wharfinger.events.rendering import Rendered
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.identity import AWAY, Identity
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.kube.lease import KubeLease
from wharfinger.runtime.kube.pausing import paused
from wharfinger.runtime.kube.reflector import Reflector
from wharfinger.runtime.ledger import LedgerError
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.service import ServiceContext
from wharfinger.stages.actuator.answers import FIELD_MANAGER, NO_ANSWER, ApiAnswer
from wharfinger.stages.actuator.attempts import Attempts, RequestAttempt
from wharfinger.stages.actuator.copied_objects import HIDDEN
from wharfinger.stages.actuator.copies import CopyWrite
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.hub import HubObjects, HubWrite, name_of
from wharfinger.stages.actuator.pacing import Concurrency
from wharfinger_actuator.sending import answered

REST_S = 0.2
"""Between two looks at the ledger at least."""

POLL_S = 5.0
"""A notification of the ledger may be lost."""

log = get_logger(__name__)


W = TypeVar("W", HubWrite, CopyWrite)


class ObjectWriter:
    """Writes to `joined`. `why`: why nothing is written; "": it is."""

    def __init__(self, joined: JoinedCluster, context: ServiceContext, holder: str) -> None:
        self.joined = joined
        self._ledger = context.ledger
        self._settings = context.settings
        self._clock = context.clock
        self._holder = holder
        self._identity = Identity(joined.name, joined.uid, self._another)
        self._observed = HubObjects()
        self._mirrors: list[ObjectMirror] = []
        self._news = asyncio.Event()
        self._wake = asyncio.Event()
        self._concurrency = Concurrency()
        self.attempts = Attempts()
        self.why = "not asked yet"

    async def _another(self) -> None:
        """Nothing is sent there; the log has it."""

    def _watch(
        self,
        group: asyncio.TaskGroup,
        api: KubeApi,
        identity: Identity,
        paths: Mapping[str, str],
        into: HubObjects,
    ) -> None:
        """Keeps the objects of a server as they are. `paths`: kind -> path of all of its
        objects."""
        for kind, path in paths.items():
            self._watch_one(
                group, api, identity, path, ObjectMirror(kind, into.of(kind), self._wake)
            )

    def _watch_one(
        self,
        group: asyncio.TaskGroup,
        api: KubeApi,
        identity: Identity,
        path: str,
        mirror: ObjectMirror,
    ) -> None:
        self._mirrors.append(mirror)
        reflector = Reflector(
            api, path, partial(object_of, mirror.kind), mirror, check=partial(identity.checked, api)
        )
        group.create_task(reflector.run(), name=f"{self.joined.name}-watch")

    async def _follow_ledger(self, decide: Callable[[], Awaitable[None]]) -> None:
        """Calls `decide` now and whenever the ledger has something new. The rest between two calls
        grows with what one takes."""
        while True:
            began = time.monotonic()
            self._news.clear()
            try:
                await decide()
                self._wake.set()
            except LedgerError as error:
                log.warning("ledger.away", service="actuator", why=str(error))
            await asyncio.sleep(max(REST_S, 9 * (time.monotonic() - began)))
            try:
                async with asyncio.timeout(POLL_S):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _broken(self, write: HubWrite | CopyWrite) -> str:
        """Why it is not sent: a watch that it needs is broken; "": none is."""
        within = ("", write.object.namespace)
        broken = (
            one.why
            for one in self._mirrors
            if one.why and one.kind in write.needs and one.namespace in within
        )
        return next(broken, "")

    def _sendable(self, writes: Sequence[W]) -> list[W]:
        """Those that may be sent now. What waits for a watch keeps what was answered about it."""
        due = self.attempts.due(writes, self._clock())
        broken = {write.object: self._broken(write) for write in due}
        self.why = next((why for why in broken.values() if why), "")
        return [write for write in due if not broken[write.object]]

    async def _why_not(self, api: KubeApi, lease: KubeLease) -> str:
        if self._settings.actuator_paused:
            return "paused by WHARFINGER_ACTUATOR_PAUSED"
        if not lease.held:
            return lease.why or "the Lease is not held yet"
        if self._concurrency.paused(self._clock()):
            return "the API server has asked for a pause"
        try:
            await self._identity.checked(api)
        except AWAY as error:
            return one_line(error)
        return await paused(api)

    async def _send_all(
        self, api: KubeApi, lease: KubeLease, due: Sequence[HubWrite] | Sequence[CopyWrite]
    ) -> None:
        """One after the other, in their order. Ends early where the Lease runs out, or the server
        asks for a pause."""
        for write in due:
            if not lease.held or self._concurrency.paused(self._clock()):
                return
            answer = await answered(api, write.request)
            at = self._clock()
            made = self.attempts.answered(write, answer, at)
            answer = made.answer = said_of(write.object, answer)
            self._concurrency.answered(made.outcome, at, answer.retry_after_s)
            METRICS.effect_answers.labels(write.verb, str(made.outcome)).inc()
            self._note(write, made)
            log.info(
                "effect.answered",
                cluster=self.joined.name,
                action=write.what,
                object=str(write.object),
                outcome=str(made.outcome),
                code=answer.code,
                why=answer.message,
            )

    def _note(self, write: HubWrite | CopyWrite, made: RequestAttempt) -> None:
        """What else is done with an answer."""


def said_of(object: EffectObject, answer: ApiAnswer) -> ApiAnswer:
    """Of an answer about a Secret what cannot quote it: words of a webhook may do so. Who owns a
    field is said by the server itself."""
    own = answer.code == NO_ANSWER or FIELD_MANAGER in answer.causes
    if object.kind != "Secret" or own:
        return answer
    return replace(answer, message=HIDDEN if answer.message else "")


def object_of(kind: str, raw: msgspec.Raw) -> Rendered:
    """A streaming list does not say the kind of an object."""
    return {**json_decoder(Rendered).decode(raw), "kind": kind}


class ObjectMirror:
    """The objects of one kind as they are. `namespace`: only those in it; "": all. `why`: why the
    watch is broken; "": it is not."""

    def __init__(
        self, kind: str, into: dict[str, Rendered], wake: asyncio.Event, namespace: str = ""
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self._into = into
        self._wake = wake
        self.listed = False
        self.why = ""
        self.gone: set[str] = set()
        """Names of objects that were there and were deleted."""

    def replace(self, objects: Sequence[Rendered], version: str) -> None:
        within = f"{self.namespace}/" if self.namespace else ""
        before = {name for name in self._into if name.startswith(within)}
        self.gone |= before - {name_of(one) for one in objects}
        for name in before:
            del self._into[name]
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
