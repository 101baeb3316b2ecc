"""When replicas change clusters without a request and without a failure."""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.placement import ClusterAffinity
from wharfinger.domain.value import Value

RebalanceObjective = Literal["cost", "load", "spread"]


class RebalancePolicy(Value, frozen=True):
    """Every `every_s` seconds, replicas of divided bindings are moved among the clusters that
    `target` matches, where that lowers the objective by at least `gain_percent` of what it is for
    the replicas that move.

    `cost`: what the replicas cost where they run. `load`: how unevenly the clusters are filled.
    `spread`: how far a binding is from being evenly divided. `budget_percent`: of a cluster's
    replicas that may leave it in `window_s`, rounded up; a binding is moved at most once in that
    time. `unschedulable_after_s`: replicas that have found no node in their cluster for so long are
    taken back and placed elsewhere (None: never). `objective` None: nothing but that."""

    objective: RebalanceObjective | None = None
    target: ClusterAffinity = ClusterAffinity()
    every_s: int = 120
    gain_percent: int = 10
    budget_percent: int = 10
    window_s: int = 900
    unschedulable_after_s: int | None = None
