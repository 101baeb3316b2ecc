"""Delivers the feed to receivers of webhooks: at least once, in order by key.

Each process of the API takes the subscriptions that no other one has, and follows the feed for them
as it does for readers of the event stream. What concerns a subscription is written down as
deliveries together with the position (`runtime.ledger.webhooks`), and sent from there. So a process
that is killed repeats at most what it had sent and not yet recorded.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

import msgspec

from wharfinger.domain.value import json_decoder
from wharfinger.runtime.ledger import LedgerError, feed, webhooks
from wharfinger.runtime.ledger.feed import FeedFilter
from wharfinger.runtime.ledger.webhooks import Delivery, DeliveryAttempt, Webhook
from wharfinger.runtime.logs import get_logger
from wharfinger_api.events import Hub
from wharfinger_api.feed_frames import PAGE, Frame
from wharfinger_api.figures import WEBHOOK_LAG, WEBHOOK_TRIES, WEBHOOKS
from wharfinger_api.grants import Grants
from wharfinger_api.webhook_makers import ungranted
from wharfinger_api.webhook_receivers import ReceiverAnswer, SealedSecrets, SealError, WebhookSender

RETRY_S = (5, 30, 120, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600)
"""Waits between tries; after the last try an event is a dead letter."""

RETRY_JITTER = 0.2
RETRY_AFTER_MAX_S = 24 * 3600
BREAK_AFTER = 20
"""Failures in a row after which a receiver is asked once in `PROBE_S` only."""

PROBE_S = 60.0
LEASE_RENEW_S = 1.0
WAITING_MAX = 100_000
"""Deliveries of one subscription that wait before more of the feed is taken."""

AT_ONCE_READ = 500

AT_ONCE = 16
"""Keys of one subscription that are sent at a time."""

TURN_S = 5.0
"""A key goes on for so long before others that have come meanwhile have their turn."""

REMOVE_EVERY_S = 600.0
USER_AGENT = "wharfinger-webhooks"

log = get_logger(__name__)


class _EventHead(msgspec.Struct):
    id: UUID
    subject: str = ""


_head_of = json_decoder(_EventHead).decode


def key_of(of: Webhook, head: _EventHead) -> str:
    match of.ordering:
        case "key":
            return head.subject
        case "all":
            return ""
        case "none":
            return str(head.id)


def wait_s(tries: int, jitter: float) -> float | None:
    """Seconds until the next try after so many. None: there is none. `jitter`: -1 to 1."""
    if tries > len(RETRY_S):
        return None
    return RETRY_S[tries - 1] * (1 + RETRY_JITTER * jitter)


@dataclass(slots=True)
class _Worker:
    """One subscription that is delivered here. `now`: as it was at the last renewal.
    `unrecorded`: attempts, each with the future that says whether it could be recorded."""

    now: Webhook
    failures: int
    unrecorded: list[tuple[DeliveryAttempt, asyncio.Future[bool]]] = field(default_factory=list)
    recording: asyncio.Task[None] | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class WebhookDelivery:
    """Of one process. `retry_scale`: of all waits, for tests."""

    hub: Hub
    sender: WebhookSender
    seals: SealedSecrets
    grants: Grants = field(default_factory=lambda: Grants(None))
    owner: UUID = field(default_factory=uuid4)
    retry_scale: float = 1.0
    _workers: dict[UUID, _Worker] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None
    _removed_at: float = 0.0

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name="webhooks")

    async def stop(self) -> None:
        """What is being sent is awaited and recorded, so that it is not sent again."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        await asyncio.gather(*(self._end(worker) for worker in self._workers.values()))
        self._workers.clear()
        try:
            await webhooks.let_go(self.hub.database, self.owner)
        except LedgerError as error:
            log.warning("webhooks.not_let_go", why=str(error))
        await self.sender.close()

    async def _keep(self) -> None:
        while True:
            try:
                await self._renew()
            except LedgerError as error:
                # the leases run out; what is recorded without one is refused
                log.warning("webhooks.away", why=str(error))
            await asyncio.sleep(LEASE_RENEW_S)

    async def _renew(self) -> None:
        database = self.hub.database
        mine = {one.id: one for one in await webhooks.leased(database, self.owner)}
        gone = [worker for id_, worker in self._workers.items() if id_ not in mine]
        for worker in gone:
            worker.stopping.set()
        for id_, worker in list(self._workers.items()):
            if worker.task is not None and worker.task.done():
                del self._workers[id_]
        for id_, one in mine.items():
            known = self._workers.get(id_)
            if known is None:
                worker = self._workers[id_] = _Worker(one, one.failures)
                worker.task = asyncio.create_task(self._work(worker), name=f"webhook {id_}")
            elif not known.stopping.is_set():
                same = known.now.version == one.version
                # what was taken here since may not be in the row yet
                known.now = replace(one, position=known.now.position) if same else one
                if not same:
                    known.failures = one.failures
        now = time.monotonic()
        if now - self._removed_at > REMOVE_EVERY_S:
            self._removed_at = now
            await webhooks.remove_old(database)
        states, lag = await webhooks.figures(database, self.owner)
        for state in ("active", "paused", "broken", "ended"):
            WEBHOOKS.labels(state).set(states.get(state, 0))
        WEBHOOK_LAG.set(lag)

    async def _end(self, worker: _Worker) -> None:
        worker.stopping.set()
        if worker.task is not None:
            await asyncio.gather(worker.task, return_exceptions=True)

    async def _work(self, worker: _Worker) -> None:
        id_ = worker.now.id
        while not worker.stopping.is_set():
            try:
                rest_s = await self._turn(worker)
                if rest_s > 0:
                    channel = await self.hub.channel(worker.now.filter)
                    await channel.wait(rest_s)
            except LedgerError as error:
                log.warning("webhook.away", webhook=str(id_), why=str(error))
                await asyncio.sleep(LEASE_RENEW_S)
            except Exception:
                # one subscription must not end the others
                log.exception("webhook.failed", webhook=str(id_))
                await asyncio.sleep(LEASE_RENEW_S)

    async def _turn(self, worker: _Worker) -> float:
        """Takes what the feed has and sends what is due. Seconds until the next turn, which comes
        earlier where the feed has more."""
        database = self.hub.database
        of = worker.now
        if await self._withdrawn(worker, of):
            return LEASE_RENEW_S
        broken = of.state == "broken"
        found = await webhooks.waiting(database, of.id, AT_ONCE_READ, all_keys=broken)
        taken = found.total < WAITING_MAX and await self._take(worker)
        if taken:
            found = await webhooks.waiting(database, of.id, AT_ONCE_READ, all_keys=broken)
        next_at = of.probe_at if broken else found.next_at
        rest_s = LEASE_RENEW_S
        if taken:
            rest_s = 0.0
        elif next_at is not None and next_at > found.now:
            rest_s = min(rest_s, (next_at - found.now) / 1_000_000)
        if broken and of.probe_at > found.now:
            return rest_s
        due = _by_key(found.due[:1] if broken else found.due)
        if not due:
            return rest_s
        frames = await self._frames(of.filter, [row for group in due for row in group])
        try:
            signing = [self.seals.opened(s) for s in (of.secret, of.old_secret) if s]
        except SealError as error:
            await webhooks.set_state(database, self.owner, of.id, "broken", str(error), PROBE_S)
            await self._reload(worker)
            return rest_s
        until = time.monotonic() + TURN_S
        limit = asyncio.Semaphore(AT_ONCE)

        async def sent(group: Sequence[Delivery]) -> bool:
            async with limit:
                for row in group:
                    if worker.stopping.is_set() or _changed(worker.now, of):
                        return False
                    if await self._withdrawn(worker, of):
                        return False
                    if not await self._deliver(worker, of, row, frames.get(row.position), signing):
                        return False
                    if time.monotonic() > until:
                        break
            return True

        ends = await asyncio.gather(*(sent(group) for group in due), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return 0.0

    async def _withdrawn(self, worker: _Worker, of: Webhook) -> bool:
        """Ends a subscription whose maker lost the grant for it."""
        why = ungranted(self.grants, of)
        if why:
            await webhooks.set_state(self.hub.database, self.owner, of.id, "ended", why)
            worker.stopping.set()
            log.info("webhook.ungranted", webhook=str(of.id), why=why)
        return bool(why)

    async def _take(self, worker: _Worker) -> bool:
        """Writes the next deliveries down. Whether there was anything new in the feed."""
        of = worker.now
        channel = await self.hub.channel(of.filter)
        after = of.position
        if after >= channel.start:
            frames, through = channel.beyond(after, PAGE)
        else:
            try:
                frames, through = await self.hub.page(after, PAGE, of.filter)
            except feed.FeedRetiredError as error:
                await webhooks.set_state(
                    self.hub.database, self.owner, of.id, "ended", f"it was too far behind: {error}"
                )
                worker.stopping.set()
                return False
        if through <= after:
            return False
        heads = [(frame.position, _head_of(frame.event)) for frame in frames]
        found = [(position, head.id, key_of(of, head)) for position, head in heads]
        if not await webhooks.take(self.hub.database, self.owner, of, after, through, found):
            # its maker has moved it, or another process has it: the next renewal says which
            await self._reload(worker)
            return False
        if worker.now.version == of.version:
            worker.now = replace(worker.now, position=through)
        return True

    async def _reload(self, worker: _Worker) -> None:
        found = await webhooks.webhook(self.hub.database, worker.now.id)
        if found is None:
            worker.stopping.set()
        else:
            worker.now = found

    async def _frames(self, wanted: FeedFilter, rows: Iterable[Delivery]) -> Mapping[int, Frame]:
        """The events of deliveries, by position; those that were retired are not there."""
        positions = sorted({row.position for row in rows})
        found: dict[int, Frame] = {}
        after, last = positions[0] - 1, positions[-1]
        try:
            while after < last:
                frames, through = await self.hub.page(after, PAGE, wanted)
                found.update((frame.position, frame) for frame in frames)
                if through <= after:
                    break
                after = through
        except feed.FeedRetiredError:
            pass
        for position in positions:
            if position not in found:  # it was taken under another filter
                try:
                    frames, _ = await self.hub.page(position - 1, 1, FeedFilter(facts=True))
                except feed.FeedRetiredError:
                    continue
                found.update((frame.position, frame) for frame in frames)
        return found

    async def _deliver(
        self,
        worker: _Worker,
        of: Webhook,
        row: Delivery,
        frame: Frame | None,
        signing: Sequence[str],
    ) -> bool:
        """Whether the next one of the same key may follow at once."""
        database = self.hub.database
        if frame is None:
            gone = DeliveryAttempt(
                row.sequence, "dead", row.tries, 0.0, 0, "the event was retired", b"", 0
            )
            return await self._recorded(worker, gone)
        body = frame.event[:-1] + b',"deliverysequence":"%d"}' % row.sequence
        answer = await self.sender.send(of.url, str(row.event), body, signing, USER_AGENT)
        broken = of.state == "broken"
        worker.failures = 0 if answer.delivered else worker.failures + 1
        attempt = self._attempt(row, answer, counted=not broken)
        WEBHOOK_TRIES.labels("delivered" if answer.delivered else "failed").inc()
        if attempt.state == "dead":
            WEBHOOK_TRIES.labels("dead").inc()
        if not await self._recorded(worker, attempt):
            return False
        if answer.status == 410:
            why = "the receiver answered 410"
            await webhooks.set_state(database, self.owner, of.id, "ended", why)
            worker.stopping.set()
        elif answer.delivered:
            if broken:
                await webhooks.set_state(database, self.owner, of.id, "active", "")
        elif broken or worker.failures >= BREAK_AFTER:
            why = f"{worker.failures} failures in a row: {_said(answer)}"
            await webhooks.set_state(
                database, self.owner, of.id, "broken", why, PROBE_S * self.retry_scale
            )
        if broken or worker.failures == BREAK_AFTER:
            # the state that was just set is known here before the next renewal
            await self._reload(worker)
            return False
        return attempt.state != "waiting" and answer.status != 410

    async def _recorded(self, worker: _Worker, attempt: DeliveryAttempt) -> bool:
        """Together with those that come while others are being recorded. False: the subscription is
        no longer ours."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        worker.unrecorded.append((attempt, done))
        if worker.recording is None or worker.recording.done():
            worker.recording = asyncio.create_task(self._record(worker))
        return await done

    async def _record(self, worker: _Worker) -> None:
        while worker.unrecorded:
            together, worker.unrecorded = worker.unrecorded, []
            attempts = [attempt for attempt, _ in together]
            try:
                held = await webhooks.record(
                    self.hub.database, self.owner, worker.now.id, attempts, worker.failures
                )
            except Exception as error:
                for _, done in together:
                    if not done.done():
                        done.set_exception(error)
            else:
                for _, done in together:
                    if not done.done():
                        done.set_result(held)

    def _attempt(self, row: Delivery, answer: ReceiverAnswer, *, counted: bool) -> DeliveryAttempt:
        """`counted`: not, while the receiver as a whole fails: no event is given up for that."""
        tries = row.tries + 1 if counted else row.tries
        said = answer.body, answer.latency_us
        error = "" if answer.delivered else _said(answer)
        if answer.delivered:
            return DeliveryAttempt(
                row.sequence, "delivered", tries, 0.0, answer.status, error, *said
            )
        wait = wait_s(max(1, tries), random.uniform(-1, 1))
        if answer.status == 410 or not counted:
            wait = RETRY_S[0]  # by hand, when its receiver or its maker wants it again
        if wait is None:
            return DeliveryAttempt(row.sequence, "dead", tries, 0.0, answer.status, error, *said)
        asked = min(answer.retry_after_s, RETRY_AFTER_MAX_S)
        wait = max(wait * self.retry_scale, asked)
        return DeliveryAttempt(row.sequence, "waiting", tries, wait, answer.status, error, *said)


def _said(answer: ReceiverAnswer) -> str:
    return answer.error or f"answered {answer.status}"


def _changed(now: Webhook, before: Webhook) -> bool:
    return (now.version, now.state) != (before.version, before.state)


def _by_key(rows: Sequence[Delivery]) -> list[list[Delivery]]:
    """In order."""
    groups: dict[str, list[Delivery]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    return list(groups.values())
