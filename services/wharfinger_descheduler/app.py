"""The descheduler as a service: an observer that has its clusters looked at in a thread of its own.

A look at a large cluster takes a second, and so does a descheduling policy's pass over it; the loop that folds and publishes may
share its process with others. So each turn the observer says what is to be looked at, as it is; one after the other is done
beside the loop, and what was found is brought back to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import structlog

from wharfinger.events.streams import ASSIGNMENTS, BINDINGS, CAPACITY, CLUSTER_STATE, CLUSTERS, NODE_LOAD, POLICIES
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.runtime.observer_service import ObserverService, Observing
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.standing import standing_assignments
from wharfinger.stages.descheduler import DeschedulerObserver, DeschedulerState
from wharfinger.stages.descheduler.disruption import Looking, due_looks, seen
from wharfinger.stages.descheduler.strategies import due_passes, finished

T = TypeVar("T")

NAME = "descheduler"

REST = 4
REST_S_MAX = 30.0
"""After a look nobody is looked at for four times as long as it took, within reason: looking may take a fifth of our time. The
first does not count: most of it is loading and compiling what looks."""

log = structlog.get_logger()


class DeschedulerService(ObserverService[DeschedulerState]):
    def __init__(self, context: ServiceContext, observer: DeschedulerObserver) -> None:
        self._looking = observer.looking
        self._looks: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._failed_look = ""
        self._warm = False

        async def load(groups: frozenset[int]) -> Iterable[Loaded]:
            mine = context.cluster_partition
            return await standing_assignments(context.ledger, lambda cluster: mine(cluster) in groups)

        super().__init__(
            Observing(
                NAME, observer, partitioned=(CLUSTER_STATE, ASSIGNMENTS, NODE_LOAD),
                broadcast=(CLUSTERS, BINDINGS, POLICIES, CAPACITY), load=load, turn=self._look_at_due,
            ),
            context,
        )  # fmt: skip

    async def stop(self) -> None:
        for look in self._looks:
            look.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)
        await super().stop()

    def failed(self) -> str:
        return self._failed_look or super().failed()

    def _look_at_due(self, state: DeschedulerState, at: Micros) -> None:
        """A state that was begun anew meanwhile hears nothing of what is found: it looks for itself."""
        for look in due_looks(state, self._looking, at):
            self._beside(look.cluster, partial(self._looking.survey, look.scene), partial(seen, state, look))
        for due in due_passes(state, at):
            self._beside(due.cluster, due.run, partial(finished, state, due))

    def _beside(self, cluster: str, work: Callable[[], T], tell: Callable[[T], None]) -> None:
        task = asyncio.create_task(self._done_beside(cluster, work, tell), name=f"look-{cluster}")
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _done_beside(self, cluster: str, work: Callable[[], T], tell: Callable[[T], None]) -> None:
        """One after the other, and with a rest: a thread takes its share of the process all the same."""
        loop = asyncio.get_running_loop()
        async with self._one_at_a_time:
            began = loop.time()
            try:
                found = await asyncio.to_thread(work)
            except Exception as error:  # a bug must not go by quietly: say it and let the supervisor restart us
                self._failed_look = f"looking at {cluster}: {type(error).__name__}: {error}"
                log.exception("look.failed", cluster=cluster)
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
        settings.disruption_poll_s, settings.disruption_validation_s, settings.move_cool_down_s,
        settings.proposal_repeat_after_s, elsewhere=True,
    )  # fmt: skip
    return DeschedulerObserver(
        context.shard_of, settings.proposal_repeat_after_s, stale_after_s=settings.stale_after_s, looking=looking
    )


BUILDERS = {NAME: build}
