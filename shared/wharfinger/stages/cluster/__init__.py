"""The cluster stage: which nodes run the replicas assigned to one cluster. One stream per cluster,
`cluster/<name>`.

It owns the capacity of its cluster: it places what fits and refuses the rest, so that fleet shards
can never over-commit a cluster. It never chooses clusters. It waits only for what is already on its
way: the rest of a pod group, the batching window, preempted pods, a new node. Everything else that
does not fit is refused at once, because waiting is the fleet stage's task, which knows other
clusters. It also owns the nodes of its pools: which are requested and which are removed.

`profile` holds the settings that reach decisions, `profiles` the configured schedulers, `state` the
occupancy and its stored form, `inputs` the folding of inputs, `decider` the rules in order,
`no_execute`, `placing`, `groups`, `preemption` and `removals` the single rules, `node_search` the
choice of nodes, `answers` the drafts of decisions, `explain` the recorded explanation within its
size limit, `trace` the full explanation, from the `framework_view` of the cluster.

Nodes: `provisioning` requests them, `claims` tracks the requests, `commands` decides on removals
and `command_progress` carries them out, `descheduling` answers strategies, `move_cooldown` keeps
their moves from being reverted, `replica_moves` moves one replica, `decision_folds` folds the
decisions, and `cluster_snapshot` is the input of provisioning and disruption.
"""

from typing import TYPE_CHECKING

from wharfinger.lazy import lazily

if TYPE_CHECKING:
    from wharfinger.stages.cluster.decider import ClusterDecider
    from wharfinger.stages.cluster.profile import ClusterProfile
    from wharfinger.stages.cluster.state import ClusterStageState

__all__ = ["ClusterDecider", "ClusterProfile", "ClusterStageState"]

# Observers use single modules of the stage: what its state and its decider load is 5 MB.
__getattr__ = lazily(
    __name__,
    {"decider": ["ClusterDecider"], "profile": ["ClusterProfile"], "state": ["ClusterStageState"]},
)
