"""The scheduler's two stages as services: the fleet stage chooses clusters, the cluster stage
nodes."""

from __future__ import annotations

from wharfinger.events.streams import (
    ASSIGNMENTS,
    BINDINGS,
    CAPACITY,
    CLUSTER_STATE,
    CLUSTERS,
    EFFECTS,
    NODE_LOAD,
    OUTCOMES,
    POLICIES,
    PROPOSALS,
    ROOM,
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
    shards = context.partitions[BINDINGS.name]
    stage = Stage(
        FLEET_STAGE,
        fleet_decider(context.settings, shards),
        FleetRouting(shards),
        partitioned=(BINDINGS, OUTCOMES),
        broadcast=(CLUSTERS, CAPACITY, POLICIES, PROPOSALS, *((ROOM,) if shards > 1 else ())),
        of_profile=FleetDecider.of_profile,
    )
    return StageService(stage, context)


def fleet_decider(settings: Settings, shards: int) -> FleetDecider:
    return FleetDecider(
        ranges=shards, work=settings.fleet_round_work, patience_s=settings.fleet_patience_s
    )


def cluster_profile(settings: Settings) -> ClusterProfile:
    return ClusterProfile(
        settings.node_strategy,
        _window(settings.batch_idle_s, settings.batch_max_s),
        _window(settings.provision_idle_s, settings.provision_max_s),
        settings.cluster_round_work,
        round(settings.unplaced_after_s * 1_000_000),
    )


def _window(idle_s: float, longest_s: float) -> Window:
    return (
        Window(round(idle_s * 1_000_000), round(longest_s * 1_000_000)) if longest_s else IMMEDIATE
    )


def cluster_stage(context: ServiceContext) -> Service:
    stage = Stage(
        CLUSTER_STAGE,
        ClusterDecider(cluster_profile(context.settings)),
        ClusterRouting(context.cluster_partition),
        partitioned=(CLUSTER_STATE, NODE_LOAD, ASSIGNMENTS, EFFECTS),
        broadcast=(POLICIES, PROPOSALS),
        of_profile=ClusterDecider.of_profile,
    )
    return ClusterStageService(stage, context)


BUILDERS = {FLEET_STAGE: fleet_stage, CLUSTER_STAGE: cluster_stage}
