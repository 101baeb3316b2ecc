"""Who decides each kind of stream: the same classes that the scheduler runs, with the settings that
each round recorded."""

from __future__ import annotations

from typing import Any

from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.kernel.decider import Decider
from wharfinger.runtime.replay import Deciders
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.fleet import FleetDecider

DECIDERS: Deciders = {FLEET: FleetDecider.of_profile, CLUSTER: ClusterDecider.of_profile}


def decider_of(stream: str, profile: str = "") -> Decider[Any] | None:
    """The decider of a stream under a recorded profile; None where nothing is decided (the
    intake)."""
    for prefix, make in DECIDERS.items():
        if stream.startswith(prefix):
            return make(profile)
    return None
