"""One cluster that may be changed: its identity, its Lease, and the requests for what is open.

    plan -> attempts -> request with its precondition -> answer -> attempts

Nothing is sent while the service is paused, while the ConfigMap `wharfinger-pause` exists, without
the Lease, to a server other than the one that was joined, or on facts that are not fresh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from wharfinger.domain.text import one_line
from wharfinger.domain.time import SECOND, Micros
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.changed_objects import NodeObject, PodObject
from wharfinger.runtime.kube.identity import AWAY, Identity, ReplacedError
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.kube.lease import KubeLease
from wharfinger.runtime.kube.pausing import paused
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.service import ServiceContext
from wharfinger.stages.actuator import ActuatorState, open_effects
from wharfinger.stages.actuator.answers import NO_ANSWER, ApiAnswer, Outcome
from wharfinger.stages.actuator.attempts import Attempts, Key
from wharfinger.stages.actuator.effects import Effect, EffectObject
from wharfinger.stages.actuator.node_room import with_room
from wharfinger.stages.actuator.observed import Rejections, reported
from wharfinger.stages.actuator.pacing import Concurrency
from wharfinger.stages.actuator.plan import (
    changed_marks,
    evicted_workloads,
    on_fresh_facts,
    undecided_pods,
)
from wharfinger.stages.actuator.requests import (
    ApiRequest,
    mark_request,
    node_request,
    path_of,
    pod_request,
    shown_request,
)
from wharfinger.stages.actuator.state import ClusterWork
from wharfinger_actuator.observed_effects import EffectSender
from wharfinger_actuator.pod_events import PodEvents
from wharfinger_actuator.sending import BATCH, answered, failed

FRESH_S = 60.0
"""Nothing is sent to a cluster that was not heard of for so long, or for its lease if that is
longer."""

LOOK_S = 1.0
"""How often a writer that is not woken looks whether something is due."""

T = TypeVar("T")

Known = Callable[[], tuple[ActuatorState, Micros] | None]

log = get_logger(__name__)


class Writer:
    """`known`: the state of the observer and since when it is caught up. `answers`: where it is
    reported what API servers answer. `attempts`: what was answered lately. `why`: why nothing is
    written; "": it is."""

    def __init__(
        self,
        joined: JoinedCluster,
        context: ServiceContext,
        holder: str,
        known: Known,
        answers: EffectSender,
    ) -> None:
        self.joined = joined
        self._settings = context.settings
        self._clock = context.clock
        self._holder = holder
        self._known = known
        self._answers = answers
        self._rejections = Rejections()
        self._identity = Identity(joined.name, joined.uid, self._another)
        self._wake = asyncio.Event()
        self._concurrency = Concurrency()
        self._looked = asyncio.Event()
        self._shown: set[Key] = set()
        self._marked: dict[str, str] = {}
        self._events = PodEvents(joined.name, holder, context.clock)
        self.attempts = Attempts()
        self.why = "not asked yet"

    def wake(self) -> None:
        """Something was decided or observed."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        if self._settings.actuator_dry_run:
            await self._show()
            return
        async with KubeApi(self.joined.write_access or self.joined.access) as api:
            while True:
                await self._identity.found(api)
                lease = KubeLease(api, NAMESPACE, LEASE, self._holder, self._identity)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(lease.keep(), name=f"{self.joined.name}-lease")
                        group.create_task(self._write(api, lease), name=f"{self.joined.name}-write")
                        group.create_task(
                            self._connect(api, lease), name=f"{self.joined.name}-connections"
                        )
                        group.create_task(self._events.run(api), name=f"{self.joined.name}-events")
                except* ReplacedError:
                    lease.forget()
                finally:
                    await lease.give_back()

    async def _another(self) -> None:
        """Nothing is sent there; the log has it."""

    def open(self) -> list[Effect]:
        """What is open now, by what is known; empty while that is not current."""
        work = self._work()
        return [] if work is None else open_effects(work, self.joined.verbs_in_force, self._clock())

    def _work(self) -> ClusterWork | None:
        """What is known of the cluster; None: that is not current, or not complete."""
        known = self._known()
        return None if known is None else known[0].get(self.joined.name)

    def _due(self, at: Micros) -> list[Effect]:
        work = self._work()
        if work is None:
            return []
        verbs = self.joined.verbs_in_force
        effects = open_effects(work, verbs, at)
        METRICS.effects_open.labels(self.joined.name).set(len(effects))
        for rejected in self._rejections.new(work):
            self._answers.offer(self.joined.name, rejected)
        if work.unplaced or self._marked:
            self._marked = {uid: said for uid, said in self._marked.items() if uid in work.unplaced}
            effects += changed_marks(work, verbs, self._marked)
        fresh = on_fresh_facts(work, effects)
        return with_room(work, effects, self.attempts.due(fresh, at, evicted_workloads(work)))

    # --- nothing but words

    async def _show(self) -> None:
        """What would be sent, once for each effect."""
        while True:
            effects = self.open()
            self._shown &= {effect.key for effect in effects}
            for effect in effects:
                if effect.key not in self._shown:
                    self._shown.add(effect.key)
                    request = shown_request(effect)
                    log.info(
                        "effect.not_sent",
                        cluster=self.joined.name,
                        method=request.method,
                        path=request.path,
                        body=request.body,
                        cause=str(effect.cause or ""),
                    )
            await self._rest(None)

    # --- requests

    async def _write(self, api: KubeApi, lease: KubeLease) -> None:
        while True:
            at = self._clock()
            due = self._due(at)
            self._looked.set()
            self.why = self._why_not(lease, at)
            if due and not self.why:
                self.why = await self._stopped(api)
                if not self.why:
                    await self._send_all(api, lease, due)
                    continue
            if due:  # it is not looked more often because decisions come
                await asyncio.sleep(LOOK_S)
            await self._rest(self.attempts.next_due(at))

    def _undecided(self) -> int:
        """How many pods wait for a decision, of those that may be bound here."""
        work = self._work()
        if work is None or "bind" not in self.joined.verbs_in_force:
            return 0
        return undecided_pods(work, self.joined.scheduler)

    async def _connect(self, api: KubeApi, lease: KubeLease) -> None:
        """Opens the connections for a burst of bindings while it is decided about its pods. Pods
        that stay undecided keep none open."""
        connected = 0
        while True:
            await self._looked.wait()
            self._looked.clear()
            wanted = min(self._undecided(), self._concurrency.allowed)
            if wanted > connected and not self._why_not(lease, self._clock()):
                await api.connect(wanted)
                connected = wanted
            elif not wanted:
                connected = 0

    def _why_not(self, lease: KubeLease, at: Micros) -> str:
        if self._settings.actuator_paused:
            return "paused by WHARFINGER_ACTUATOR_PAUSED"
        known = self._known()
        if known is None:
            return "decisions and facts are still being read"
        if not lease.held:
            return lease.why or "the Lease is not held yet"
        if self._concurrency.paused(at):
            return "the API server has asked for a pause"
        state, caught_up_at = known
        work = state.get(self.joined.name)
        if work is None:
            return "the facts of the cluster are not complete"
        # What was read from the beginning of a topic says nothing of the present.
        fresh_s = max(FRESH_S, self.joined.lease_s or 0)
        if work.heard < max(caught_up_at, at - int(fresh_s * SECOND)):
            return f"not heard of for {fresh_s:g} s"
        return ""

    async def _stopped(self, api: KubeApi) -> str:
        """What the server says against writing; "": nothing. Another one may have taken the place
        of the one that was joined. ReplacedError."""
        another, stopped = await asyncio.gather(self._same(api), paused(api))
        return another or stopped

    async def _same(self, api: KubeApi) -> str:
        """Why it is not known to be the same server; "": it is. ReplacedError."""
        try:
            await self._identity.checked(api)
        except AWAY as error:
            return one_line(error)
        return ""

    async def _send_all(self, api: KubeApi, lease: KubeLease, due: list[Effect]) -> None:
        """Never more than allowed under way, and no more than `BATCH` begun since it was last
        asked whether writing is stopped. That is asked again early enough that nothing waits for
        the answer. Ends early where the Lease runs out, or the server asks for a pause."""
        waiting, under_way = list(reversed(due)), dict[asyncio.Task[None], EffectObject]()
        evictions = {effect.key for effect in due if effect.workload}
        look: asyncio.Task[str] | None = None
        begun = since_look = 0
        ended = asyncio.Event()

        def begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
            task = asyncio.create_task(work)
            task.add_done_callback(lambda _: ended.set())
            return task

        if len(due) > self._concurrency.allowed:
            self._events.hold()
        try:
            while under_way or (waiting and self._may_begin(lease)):
                while (
                    waiting
                    and begun < BATCH
                    and self._may_begin(lease)
                    and len(under_way) < self._concurrency.allowed
                ):
                    effect = waiting.pop()
                    under_way[begin(self._send(api, effect))] = effect.object
                    begun, since_look = begun + 1, since_look + 1
                if look is None and waiting and begun >= BATCH - self._concurrency.allowed:
                    look, since_look = begin(self._stopped(api)), 0
                if not under_way and look is None:
                    continue  # the Lease ran out since the loop looked at it
                await ended.wait()
                ended.clear()
                for task in [task for task in under_way if task.done()]:
                    del under_way[task]
                    task.result()
                if look is not None and look.done():
                    stopped, look, begun = look.result(), None, since_look
                    busy = {*under_way.values()}
                    waiting = [] if stopped else self._next(lease, busy, evictions)
        finally:
            self._events.free()
            for task in under_way:
                task.cancel()
            if look is not None:
                look.cancel()

    def _next(self, lease: KubeLease, busy: set[EffectObject], evictions: set[Key]) -> list[Effect]:
        """What is begun while requests about `busy` are under way, the last one first; empty where
        these are to end before. The limits of evictions count answers, so only those are begun that
        were counted together (`evictions`)."""
        at = self._clock()
        due = [effect for effect in self._due(at) if effect.object not in busy]
        uncounted = any(effect.workload and effect.key not in evictions for effect in due)
        return [] if uncounted or self._why_not(lease, at) else due[::-1]

    def _may_begin(self, lease: KubeLease) -> bool:
        return lease.held and not self._concurrency.paused(self._clock())

    async def _send(self, api: KubeApi, effect: Effect) -> None:
        try:
            request = await self._request(api, effect)
        except AWAY as error:
            self._note(effect, None, failed(error))
            return
        if isinstance(request, Outcome):
            self._note(effect, request, ApiAnswer(NO_ANSWER))
        else:
            self._note(effect, None, await answered(api, request))

    async def _request(self, api: KubeApi, effect: Effect) -> ApiRequest | Outcome:
        if effect.action == "mark-pod":
            pod = await api.get(path_of(effect), PodObject)
            return mark_request(effect, pod.now, self._clock())
        if effect.object.kind != "Node":
            return pod_request(effect)
        node = await api.get(path_of(effect), NodeObject)
        return node_request(effect, node.now)

    def _note(self, effect: Effect, outcome: Outcome | None, answer: ApiAnswer) -> None:
        at = self._clock()
        if outcome is None:
            made = self.attempts.answered(effect, answer, at)
            self._concurrency.answered(made.outcome, at, answer.retry_after_s)
        else:
            made = self.attempts.settled(effect, outcome, answer, at)
        if made.outcome in (Outcome.SENT, Outcome.REPEATED):
            self._carried_out(effect)
        METRICS.effect_answers.labels(effect.verb, str(made.outcome)).inc()
        if (report := reported(effect, made, at)) is not None:
            self._answers.offer(self.joined.name, report)
        log.info(
            "effect.answered",
            cluster=self.joined.name,
            action=effect.action,
            object=str(effect.object),
            cause=str(effect.cause or ""),
            outcome=str(made.outcome),
            code=answer.code,
            why=answer.message,
        )

    def _carried_out(self, effect: Effect) -> None:
        if effect.action == "mark-pod":
            self._marked[effect.object.uid] = effect.message
        self._events.offer(effect)

    async def _rest(self, due: Micros | None) -> None:
        """Until woken, until `due`, or for `LOOK_S`."""
        wait_s = LOOK_S if due is None else min(LOOK_S, max(0.0, (due - self._clock()) / SECOND))
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
