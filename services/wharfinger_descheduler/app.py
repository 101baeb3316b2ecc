"""The descheduler as a service."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.events.streams import ASSIGNMENTS, BINDINGS, CLUSTER_STATE, CLUSTERS, POLICIES
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.runtime.observer_service import ObserverService, Observing
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.standing import standing_assignments
from wharfinger.stages.descheduler import DeschedulerObserver

NAME = "descheduler"


def build(context: ServiceContext) -> Service:
    async def load(groups: frozenset[int]) -> Iterable[Loaded]:
        return await standing_assignments(context.ledger, lambda cluster: context.cluster_partition(cluster) in groups)

    observing = Observing(
        NAME, DeschedulerObserver(context.shard_of, context.settings.proposal_repeat_after_s),
        partitioned=(CLUSTER_STATE, ASSIGNMENTS), broadcast=(CLUSTERS, BINDINGS, POLICIES), load=load,
    )  # fmt: skip
    return ObserverService(observing, context)


BUILDERS = {NAME: build}
