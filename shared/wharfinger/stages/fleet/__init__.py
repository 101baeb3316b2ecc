"""The fleet stage: assigns bindings to clusters, with numbers of replicas.

`state` is its memory and how facts and decisions change it, `solve` computes the answer for one
binding, `decider` the order of decisions, `explain` the recorded explanation, `saved` the snapshot
format.
"""

from __future__ import annotations

from wharfinger.stages.fleet.decider import FleetDecider
from wharfinger.stages.fleet.state import FleetState

__all__ = ["FleetDecider", "FleetState"]
