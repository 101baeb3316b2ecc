"""The cluster stage: which nodes the replicas assigned to one cluster go to. One stream a cluster, `cluster/<name>`.

It owns the capacity of its cluster: it places what fits and refuses the rest, so that fleet shards can never over-commit a
cluster. It never chooses clusters, and it waits only for what is on its way: the rest of a group, company in a batch, room that is
being made, or a node. What does not fit is given back at once, because waiting belongs to the fleet stage, which knows other
clusters. It owns the nodes of its pools, too: which are asked for, and which may go.

`profile` holds the settings that reach decisions, `profiles` the schedulers that users configured, `state` the book and its
stored form, `telling` what comes in, `decider` the rules in order, `driven_away`, `placing`, `groups`, `preempting` and
`removals` the single ones, `choosing` the nodes, `answers` what is decided in the end, `explain` the recorded explanation within
its bounds, `trace` the derived one, from the `picture` of the cluster that the scheduling framework sees.

Nodes that come and go: `provisioning` asks for them, `claims` follows what was asked for, `commands` decides what may go and
`carrying_out` sees it through, `unseating` answers strategies, `staying_away` keeps what they moved from coming back,
`moving` moves one replica whole, `folding` keeps what follows from those decisions, and `scene` is what provisioning and disruption
look at.
"""

from wharfinger.stages.cluster.decider import ClusterDecider
from wharfinger.stages.cluster.profile import ClusterProfile
from wharfinger.stages.cluster.state import ClusterState

__all__ = ["ClusterDecider", "ClusterProfile", "ClusterState"]
