"""Which pod is tried next, and when one that was refused is worth another try: kube-scheduler's
scheduling queue, with the hints of our plugins.

What is compared with: a plane's cluster stage has no pod that waits. What fits nowhere goes back to
the fleet stage at once, which asks again when something has changed (`stages.fleet.queue`).

A pod is in one of these places:

    gated      something it waits for has not come: its gates, the rest of its group
    active     to be tried, in the order of the profile's queue sort
    backoff    to be tried, but not before its back-off is over; earlier where there is nothing else
               to do
    pool       refused; waits for an event that one of the plugins which refused it says might help,
               five minutes at most
    in flight  popped; its answer (`refused`, `failed`, `placed`) is awaited

Events during a pod's flight are recorded for it, because it was evaluated without them. Back-off is
exponential in the number of refusals, and for scheduler errors in the number of consecutive errors.
It ends on whole seconds, so that pods of one second are tried in order of priority.

Different from kube-scheduler, where low priority pods can starve behind high priority pods that are
retried again and again: every second pop goes to the pod that has been ready longest, once that is
more than `PATIENCE_US` (ageing). No clock is read: `now_us` must not go backwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Literal

from tests.reference.kube_gang import gathering

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import SchedulerConfig
from wharfinger.engine.backoff import backoff_s
from wharfinger.engine.framework.cycle import Framework
from wharfinger.engine.framework.gang import Group, group_of
from wharfinger.engine.framework.protocols import ClusterEvent, Hint, Requeue
from wharfinger.engine.framework.status import Status

SECOND_US = 1_000_000
POOL_US = 300 * SECOND_US
"""After so long a refused pod is tried again though nothing has happened."""
PATIENCE_US = 300 * SECOND_US
"""A pod that has been ready for longer goes before more important ones, every second time."""

Where = Literal["gated", "active", "backoff", "pool", "in flight"]
Hints = Mapping[str, tuple[Hint, ...]]
"""Plugin -> what may help those it refused. One that is not in it says nothing: anything may."""


@dataclass(slots=True)
class QueuedPod:
    """A pod in the queue. `since_us`: when it came to its present place; `ready_us`: since when it
    has been waiting to be tried. `attempts`: how often it was popped; `refusals`: how often
    refused; `errors`: consecutive failed tries. `refused_by`: plugins that refused it last;
    `pending`: permit plugins that made it wait. `why`: what gates it. `seen`: number of events
    before it was popped. `version`: heap entries with another version are stale."""

    pod: Pod
    where: Where
    since_us: int
    ready_us: int = 0
    attempts: int = 0
    refusals: int = 0
    errors: int = 0
    refused_by: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    why: Status | None = None
    seen: int = 0
    version: int = 0


@dataclass(slots=True)
class SchedulingQueue:
    """`order`: the sort key, from a pod and when it was queued; `gate`: why a pod must not be tried
    yet. `gathers`: groups wait until all their pods exist."""

    order: Callable[[Pod, int], tuple[Any, ...]]
    gate: Callable[[Pod], Status | None]
    hints: Hints
    gathers: bool = True
    initial_backoff_s: int = 1
    max_backoff_s: int = 10
    _entries: dict[str, QueuedPod] = field(default_factory=dict, init=False)
    _groups: dict[Group, set[str]] = field(default_factory=dict, init=False)
    _placed: dict[str, Pod] = field(default_factory=dict, init=False)
    _active: list[tuple[tuple[Any, ...], str, int]] = field(default_factory=list, init=False)
    _ready: list[tuple[int, str, int]] = field(default_factory=list, init=False)
    _backoff: list[tuple[int, tuple[Any, ...], str, int]] = field(default_factory=list, init=False)
    _broken: list[tuple[int, tuple[Any, ...], str, int]] = field(default_factory=list, init=False)
    _pool: deque[tuple[int, str, int]] = field(default_factory=deque, init=False)
    _flying: dict[str, None] = field(default_factory=dict, init=False)
    _events: deque[tuple[ClusterEvent, Any, Any]] = field(default_factory=deque, init=False)
    _forgotten: int = field(default=0, init=False)
    _pops: int = field(default=0, init=False)
    _versions: int = field(default=0, init=False)

    @classmethod
    def of(cls, framework: Framework, config: SchedulerConfig | None = None) -> SchedulingQueue:
        """The queue of a profile."""
        config = config or SchedulerConfig()
        hints = {
            name: plugin.hints()
            for name, plugin in framework.plugins.items()
            if isinstance(plugin, Requeue)
        }
        gathers = "GangScheduling" in framework.plugins
        times = config.initial_backoff_s, config.max_backoff_s
        return cls(framework.order, framework.gate, hints, gathers, *times)

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, uid: str) -> QueuedPod | None:
        return self._entries.get(uid)

    # Pods come and go.

    def add(self, pod: Pod, now_us: int) -> None:
        """A pod that is to be placed. One that is known already is updated."""
        if pod.uid in self._entries:
            self.update(pod, now_us)
            return
        self._placed.pop(pod.uid, None)
        self._entries[pod.uid] = entry = QueuedPod(pod, "gated", now_us)
        self._join(pod)
        self._admit(entry, now_us)
        self._regate(pod, now_us)

    def update(self, pod: Pod, now_us: int) -> None:
        """Replaces the pod's spec. A refused pod may be tried again."""
        entry = self._entries.get(pod.uid)
        if entry is None:
            return
        changed = entry.pod != pod
        self._leave(entry.pod)
        entry.pod = pod
        self._join(pod)
        if entry.where == "in flight":
            if changed:
                self._events.append(("*", None, None))
        elif entry.where == "gated" or self._barred(pod) is not None:
            self._admit(entry, now_us)
        elif changed and entry.where == "pool":
            self._requeue(entry, now_us)
        elif entry.where in ("active", "backoff"):
            self._resort(entry)
        self._regate(pod, now_us)

    def remove(self, uid: str) -> None:
        """The pod is gone, wherever it was; also one that was placed."""
        if (entry := self._entries.pop(uid, None)) is not None:
            self._leave(entry.pod)
            self._flying.pop(uid, None)
            self._forget_events()
        elif (pod := self._placed.pop(uid, None)) is not None:
            self._leave(pod)

    # A try.

    def pop(self, now_us: int) -> Pod | None:
        """The pod that is to be tried now; None: nothing is worth a try."""
        self._due(now_us)
        entry = self._impatient(now_us) or self._first() or self._early()
        if entry is None:
            return None
        self._pops += 1
        entry.attempts += 1
        entry.seen = self._forgotten + len(self._events)
        self._put(entry, "in flight", now_us)
        self._flying[entry.pod.uid] = None
        return entry.pod

    def refused(
        self, uid: str, plugins: Iterable[str], now_us: int, pending: Iterable[str] = ()
    ) -> None:
        """Records that the pod fits nowhere. `plugins` refused it; `pending` made it wait."""
        if (entry := self._landed(uid)) is None:
            return
        entry.refusals += 1
        entry.errors = 0
        entry.pending = frozenset(pending)
        entry.refused_by = frozenset(plugins) | entry.pending
        missed = list(self._events)[max(0, entry.seen - self._forgotten) :]
        self._put(entry, "pool", now_us)
        self._pool.append((now_us, uid, entry.version))
        if any(self._helps(entry, *event) for event in missed):
            self._requeue(entry, now_us)
        self._forget_events()

    def failed(self, uid: str, now_us: int) -> None:
        """The try's answer: none, something broke. It is nobody's refusal, and tried again after a
        back-off of its own."""
        if (entry := self._landed(uid)) is None:
            return
        entry.errors += 1
        self._put(entry, "pool", now_us)
        self._requeue(entry, now_us)
        self._forget_events()

    def placed(self, uid: str) -> None:
        """The try's answer: it has its node. It is no longer in the queue, and still one of its
        group, until it is removed."""
        if (entry := self._entries.pop(uid, None)) is None:
            return
        self._flying.pop(uid, None)
        if group_of(entry.pod) is not None:
            self._placed[uid] = entry.pod
        self._forget_events()

    # What happens meanwhile.

    def happened(
        self, event: ClusterEvent, now_us: int, old: object = None, new: object = None
    ) -> list[str]:
        """Something changed in the cluster (`old`, `new`: what it is about). Uids of the refused
        pods that are worth another try now."""
        if self._flying:
            self._events.append((event, old, new))
        moved = [
            e
            for e in self._entries.values()
            if e.where == "pool" and self._helps(e, event, old, new)
        ]
        for entry in moved:
            self._requeue(entry, now_us)
        return [entry.pod.uid for entry in moved]

    def next_due_us(self) -> int | None:
        """When time alone will next make a pod worth a try, if nothing is now; None: never."""
        self._tidy()
        times = [heap[0][0] + SECOND_US for heap in (self._backoff, self._broken) if heap]
        if self._pool:
            times.append(self._pool[0][0] + POOL_US)
        return min(times, default=None)

    # Where pods stand.

    def _admit(self, entry: QueuedPod, now_us: int) -> None:
        """Into the active queue, or back to wait for what gates it."""
        entry.why = self._barred(entry.pod)
        if entry.why is None:
            self._activate(entry, now_us)
        else:
            self._put(entry, "gated", now_us)

    def _barred(self, pod: Pod) -> Status | None:
        """What gates it, its own gates or that its group is not together."""
        group = group_of(pod)
        if (status := self.gate(pod)) is not None or group is None or not self.gathers:
            return status
        return gathering(pod, len(self._groups[group]))

    def _regate(self, pod: Pod, now_us: int) -> None:
        """The group of a pod that came may be complete with it."""
        if (group := group_of(pod)) is not None:
            for uid in sorted(self._groups[group]):
                sibling = self._entries.get(uid)
                if sibling is not None and sibling.where == "gated":
                    self._admit(sibling, now_us)

    def _join(self, pod: Pod) -> None:
        if (group := group_of(pod)) is not None:
            self._groups.setdefault(group, set()).add(pod.uid)

    def _leave(self, pod: Pod) -> None:
        group = group_of(pod)
        if group is not None and group in self._groups:
            self._groups[group].discard(pod.uid)
            if not self._groups[group]:
                del self._groups[group]

    def _put(self, entry: QueuedPod, where: Where, now_us: int) -> None:
        entry.where, entry.since_us = where, now_us
        self._renew(entry)

    def _renew(self, entry: QueuedPod) -> None:
        """What the heaps have of it is stale, also of a pod of that uid that was there before."""
        self._versions += 1
        entry.version = self._versions

    def _activate(self, entry: QueuedPod, now_us: int) -> None:
        self._put(entry, "active", now_us)
        entry.ready_us = now_us
        self._push_active(entry)

    def _requeue(self, entry: QueuedPod, now_us: int) -> None:
        """A refused pod is worth a try: at once, where its back-off is over or it only waited for
        something; but not where something gates it by now."""
        refused_us = entry.since_us
        if self._barred(entry.pod) is not None:
            self._admit(entry, now_us)
        elif entry.pending or self._window(now_us) > self._backed_off(entry, refused_us):
            self._activate(entry, now_us)
        else:
            self._put(entry, "backoff", refused_us)
            self._push_backoff(entry)

    def _resort(self, entry: QueuedPod) -> None:
        self._renew(entry)
        if entry.where == "backoff":
            self._push_backoff(entry)
            return
        self._push_active(entry)

    def _push_active(self, entry: QueuedPod) -> None:
        heappush(
            self._active, (self.order(entry.pod, entry.since_us), entry.pod.uid, entry.version)
        )
        heappush(self._ready, (entry.ready_us, entry.pod.uid, entry.version))

    def _push_backoff(self, entry: QueuedPod) -> None:
        """Of one second the important first."""
        key = self.order(entry.pod, entry.since_us)
        until = self._backed_off(entry, entry.since_us)
        heappush(
            self._broken if entry.errors else self._backoff,
            (until, key, entry.pod.uid, entry.version),
        )

    # Back-off.

    def _backed_off(self, entry: QueuedPod, refused_us: int) -> int:
        """The second in which the back-off ends, as its beginning; the pod is ready when that
        second is over. Before any attempt: long ago."""
        seconds = backoff_s(
            entry.errors or entry.refusals, self.initial_backoff_s, self.max_backoff_s
        )
        return self._window(refused_us + seconds * SECOND_US) if seconds else -SECOND_US

    @staticmethod
    def _window(at_us: int) -> int:
        return at_us - at_us % SECOND_US

    def _due(self, now_us: int) -> None:
        """Whom time alone has made worth a try."""
        for heap in (self._backoff, self._broken):
            while heap and (self._stale(*heap[0][2:]) or heap[0][0] < self._window(now_us)):
                _, _, uid, version = heappop(heap)
                if not self._stale(uid, version):
                    self._activate(self._entries[uid], now_us)
        while self._pool and (
            self._stale(*self._pool[0][1:]) or self._pool[0][0] + POOL_US <= now_us
        ):
            _, uid, version = self._pool.popleft()
            if not self._stale(uid, version):
                self._requeue(self._entries[uid], now_us)

    def _tidy(self) -> None:
        """What is first everywhere is really there."""
        for heap in (self._backoff, self._broken):
            while heap and self._stale(*heap[0][2:]):
                heappop(heap)
        while self._pool and self._stale(*self._pool[0][1:]):
            self._pool.popleft()

    # Whose turn it is.

    def _stale(self, uid: str, version: int) -> bool:
        entry = self._entries.get(uid)
        return entry is None or entry.version != version

    def _impatient(self, now_us: int) -> QueuedPod | None:
        """Whoever is ready for longest, every second time and where that is very long."""
        while self._ready and self._stale(*self._ready[0][1:]):
            heappop(self._ready)
        if self._pops % 2 == 0 or not self._ready or now_us - self._ready[0][0] <= PATIENCE_US:
            return None
        return self._entries[self._ready[0][1]]

    def _first(self) -> QueuedPod | None:
        while self._active and self._stale(*self._active[0][1:]):
            heappop(self._active)
        return self._entries[self._active[0][1]] if self._active else None

    def _early(self) -> QueuedPod | None:
        """There is nothing else to do: the first whose back-off will be over. Not after a failure:
        it may be one still."""
        self._tidy()
        return self._entries[self._backoff[0][2]] if self._backoff else None

    def _landed(self, uid: str) -> QueuedPod | None:
        if uid not in self._flying:
            return None
        del self._flying[uid]
        return self._entries[uid]

    # What helps.

    def _helps(self, entry: QueuedPod, event: ClusterEvent, old: object, new: object) -> bool:
        if event == "*" or not entry.refused_by:
            return True
        return any(
            self._hinted(plugin, entry.pod, event, old, new) for plugin in sorted(entry.refused_by)
        )

    def _hinted(self, plugin: str, pod: Pod, event: ClusterEvent, old: object, new: object) -> bool:
        if plugin not in self.hints:
            return True
        return any(_answers(hint, pod, event, old, new) for hint in self.hints[plugin])

    def _forget_events(self) -> None:
        """Events that nobody in flight has missed."""
        last = self._forgotten + len(self._events)
        seen = min((self._entries[uid].seen for uid in self._flying), default=last)
        for _ in range(seen - self._forgotten):
            self._events.popleft()
        self._forgotten = seen


def _answers(hint: Hint, pod: Pod, event: ClusterEvent, old: object, new: object) -> bool:
    return hint.event in (event, "*") and (hint.helps is None or hint.helps(pod, old, new))
