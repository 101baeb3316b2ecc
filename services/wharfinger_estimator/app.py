"""The estimator as a service: the clusters of its partitions, and the bindings of all shards for their requirement classes."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.events.streams import ASSIGNMENTS, BINDINGS, CLUSTER_STATE, CLUSTERS, POLICIES
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.runtime.observer_service import ObserverService, Observing
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.standing import standing_assignments
from wharfinger.stages.estimator import EstimatorObserver

NAME = "estimator"


def build(context: ServiceContext) -> Service:
    async def load(groups: frozenset[int]) -> Iterable[Loaded]:
        return await standing_assignments(context.ledger, lambda cluster: context.cluster_partition(cluster) in groups)

    observing = Observing(
        NAME, EstimatorObserver(), partitioned=(CLUSTER_STATE, ASSIGNMENTS), broadcast=(CLUSTERS, BINDINGS, POLICIES), load=load,
        coalesce_s=context.settings.capacity_coalesce_ms / 1000,
    )  # fmt: skip
    return ObserverService(observing, context)


BUILDERS = {NAME: build}
