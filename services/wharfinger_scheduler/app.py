"""The scheduler's two stages as services: the fleet stage chooses clusters, the cluster stage nodes."""

from __future__ import annotations

from wharfinger.events.streams import (
    ASSIGNMENTS,
    BINDINGS,
    CAPACITY,
    CLUSTER_STATE,
    CLUSTERS,
    NODE_LOAD,
    OUTCOMES,
    POLICIES,
    PROPOSALS,
)
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.settings import Settings
from wharfinger.runtime.stage_service import Stage, StageService
from wharfinger.stages.cluster import ClusterDecider, ClusterProfile
from wharfinger.stages.cluster.profile import IMMEDIATE, Window
from wharfinger.stages.fleet import FleetDecider
from wharfinger_scheduler.extender import ClusterStageService
from wharfinger_scheduler.routing import ClusterRouting, FleetRouting

NAME = "scheduler"
FLEET_STAGE = "scheduler-fleet"
CLUSTER_STAGE = "scheduler-cluster"


def fleet_stage(context: ServiceContext) -> Service:
    stage = Stage(
        FLEET_STAGE, FleetDecider(shards=context.settings.fleet_shards), FleetRouting(),
        partitioned=(BINDINGS, OUTCOMES), broadcast=(CLUSTERS, CAPACITY, POLICIES, PROPOSALS),
        of_profile=FleetDecider.of_profile,
    )  # fmt: skip
    return StageService(stage, context)


def cluster_profile(settings: Settings) -> ClusterProfile:
    idle_us, longest_us = (round(s * 1_000_000) for s in (settings.batch_idle_s, settings.batch_max_s))
    return ClusterProfile(settings.node_strategy, Window(idle_us, longest_us) if longest_us else IMMEDIATE)


def cluster_stage(context: ServiceContext) -> Service:
    stage = Stage(
        CLUSTER_STAGE, ClusterDecider(cluster_profile(context.settings)), ClusterRouting(context.cluster_partition),
        partitioned=(CLUSTER_STATE, NODE_LOAD, ASSIGNMENTS), broadcast=(POLICIES, PROPOSALS),
        of_profile=ClusterDecider.of_profile,
    )  # fmt: skip
    return ClusterStageService(stage, context)


BUILDERS = {FLEET_STAGE: fleet_stage, CLUSTER_STAGE: cluster_stage}
