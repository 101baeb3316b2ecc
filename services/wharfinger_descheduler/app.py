"""The descheduler as a service."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.events.streams import ASSIGNMENTS, BINDINGS, CAPACITY, CLUSTER_STATE, CLUSTERS, NODE_LOAD, POLICIES
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.runtime.observer_service import ObserverService, Observing
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.standing import standing_assignments
from wharfinger.stages.descheduler import DeschedulerObserver
from wharfinger.stages.descheduler.disruption import Looking

NAME = "descheduler"


def build(context: ServiceContext) -> Service:
    async def load(groups: frozenset[int]) -> Iterable[Loaded]:
        return await standing_assignments(context.ledger, lambda cluster: context.cluster_partition(cluster) in groups)

    observing = Observing(
        NAME, _observer(context),
        partitioned=(CLUSTER_STATE, ASSIGNMENTS, NODE_LOAD), broadcast=(CLUSTERS, BINDINGS, POLICIES, CAPACITY), load=load,
    )  # fmt: skip
    return ObserverService(observing, context)


def _observer(context: ServiceContext) -> DeschedulerObserver:
    settings = context.settings
    looking = Looking(
        settings.disruption_poll_s, settings.disruption_validation_s, settings.move_cool_down_s,
        settings.proposal_repeat_after_s,
    )  # fmt: skip
    return DeschedulerObserver(
        context.shard_of, settings.proposal_repeat_after_s, stale_after_s=settings.stale_after_s, looking=looking
    )


BUILDERS = {NAME: build}
