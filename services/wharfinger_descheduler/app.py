"""The descheduler as a service: an observer that examines its clusters in a separate thread.

To examine a large cluster takes a second, and so does a pass of a descheduling policy over it. The
loop that folds and publishes must not wait for that: it may share its process with other services.
So in each turn the observer names what is to be examined, with its present state. The thread
examines one after the other, and the results go back to the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from wharfinger.events.streams import (
    ASSIGNMENTS,
    BINDINGS,
    CAPACITY,
    CLUSTER_STATE,
    CLUSTERS,
    NODE_LOAD,
    POLICIES,
)
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.current_assignments import assignments_of
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.observer_service import ObserverService, Observing
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.tasks import end_tasks
from wharfinger.stages.descheduler import DeschedulerObserver, DeschedulerState
from wharfinger.stages.descheduler.disruption import Looking, due_looks, gave_up, seen
from wharfinger.stages.descheduler.strategies import due_passes, finished

T = TypeVar("T")

NAME = "descheduler"

REST = 4
REST_S_MAX = 30.0
"""After a cluster was examined, the thread pauses for `REST` times as long as that took, at most
`REST_S_MAX` seconds: so it works at most a fifth of the time, unless a cluster takes longer than
7.5 s. There is no pause after the first: most of its time is loading and compiling the code."""

log = get_logger()


class DeschedulerService(ObserverService[DeschedulerState]):
    def __init__(self, context: ServiceContext, observer: DeschedulerObserver) -> None:
        self._looking = observer.looking
        self._looks: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._warm = False

        super().__init__(
            Observing(
                NAME,
                observer,
                partitioned=(CLUSTER_STATE, ASSIGNMENTS, NODE_LOAD),
                broadcast=(CLUSTERS, BINDINGS, POLICIES, CAPACITY),
                load=assignments_of(context),
                turn=self._look_at_due,
            ),
            context,
        )

    async def stop(self) -> None:
        await end_tasks(self._looks)
        await super().stop()

    def _look_at_due(self, state: DeschedulerState, at: Micros) -> None:
        """A state that was begun again meanwhile hears nothing of what is found: it looks for
        itself."""
        for look in due_looks(state, self._looking, at):
            self._beside(
                look.cluster,
                partial(self._looking.survey, look.scene),
                partial(seen, state, look),
                partial(gave_up, state, look),
            )
        for due in due_passes(state, at):
            self._beside(due.cluster, due.run, partial(finished, state, due), due.passes.finish)

    def _beside(
        self,
        cluster: str,
        work: Callable[[], T],
        tell: Callable[[T], None],
        fail: Callable[[], object] = lambda: None,
    ) -> None:
        """`tell` gets what was found; `fail` is called where the work raised."""
        doing = self._done_beside(cluster, work, tell, fail)
        task = asyncio.create_task(doing, name=f"look-{cluster}")
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _done_beside(
        self,
        cluster: str,
        work: Callable[[], T],
        tell: Callable[[T], None],
        fail: Callable[[], object],
    ) -> None:
        """One after the other, with a pause after each: a thread, too, takes time from the loop of
        its process."""
        loop = asyncio.get_running_loop()
        async with self._one_at_a_time:
            began = loop.time()
            try:
                found = await asyncio.to_thread(work)
            except Exception as error:
                # the other clusters are still looked at, and this one again once it changes
                METRICS.of(NAME).cluster_failures.inc()
                log.exception("cluster.failed", service=NAME, cluster=cluster, why=repr(error))
                fail()
                return
            tell(found)
            self.loop.nudge()
            if self._warm:
                await asyncio.sleep(min(REST_S_MAX, REST * (loop.time() - began)))
            self._warm = True


def build(context: ServiceContext) -> Service:
    return DeschedulerService(context, _observer(context))


def _observer(context: ServiceContext) -> DeschedulerObserver:
    settings = context.settings
    looking = Looking(
        settings.disruption_poll_s,
        settings.disruption_validation_s,
        settings.move_cool_down_s,
        settings.proposal_repeat_after_s,
        elsewhere=True,
    )
    return DeschedulerObserver(
        context.shard_of,
        settings.proposal_repeat_after_s,
        stale_after_s=settings.stale_after_s,
        looking=looking,
    )


BUILDERS = {NAME: build}
