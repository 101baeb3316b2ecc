"""A share of a binding's replicas on one node: part of decisions and of what clusters are sent."""

from __future__ import annotations

from wharfinger.domain.ids import NodeName, PodUid
from wharfinger.domain.value import Value


class NodeShare(Value, frozen=True):
    """Replicas of one binding on one node: their ordinals and, one list a replica, (device index,
    thousandths). `pods`: uids of the pods that are these replicas, in the order of `ordinals`;
    empty where replicas are placed before their pods exist."""

    node: NodeName
    ordinals: tuple[int, ...]
    devices: tuple[tuple[tuple[int, int], ...], ...] = ()
    pods: tuple[PodUid, ...] = ()
