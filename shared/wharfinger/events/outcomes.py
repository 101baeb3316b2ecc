"""Topic `wharfinger.outcomes`: what the cluster stages made of the fleet's assignments, back to the
fleet shard.

Written by the publisher: per round of a cluster stream and fleet shard, up to 100 items, in stream
order.
"""

from __future__ import annotations

from wharfinger.domain.ids import ClusterName, StreamName
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Placed, Refused, Released

OutcomeItem = Placed | Refused | Released


class OutcomesDecided(Value, frozen=True):
    """`shard`: the fleet shard addressed; `stream`: the cluster stream whose decisions these
    are."""

    cluster: ClusterName
    shard: int
    stream: StreamName
    through: int
    items: tuple[OutcomeItem, ...]
