"""The estimator as a service: the clusters of its partitions, and the bindings of all shards for
their requirement classes."""

from __future__ import annotations

from wharfinger.events.streams import ASSIGNMENTS, BINDINGS, CLUSTER_STATE, CLUSTERS, POLICIES
from wharfinger.runtime.current_assignments import assignments_of
from wharfinger.runtime.observer_service import ObserverService, Observing
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.stages.estimator import EstimatorObserver, placements_follow

NAME = "estimator"


def build(context: ServiceContext) -> Service:
    observing = Observing(
        NAME,
        EstimatorObserver(),
        partitioned=(CLUSTER_STATE, ASSIGNMENTS),
        broadcast=(CLUSTERS, BINDINGS, POLICIES),
        load=assignments_of(context),
        coalesce_s=context.settings.capacity_coalesce_ms / 1000,
        can_wait=placements_follow,
    )
    return ObserverService(observing, context)


BUILDERS = {NAME: build}
