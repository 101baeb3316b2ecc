"""Copies of a cluster with one property or label changed. Filters use them to test which change
would make a cluster feasible."""

from __future__ import annotations

import msgspec

from wharfinger.domain.cluster import Cluster


def with_property(cluster: Cluster, field: str, value: str) -> Cluster:
    """Return a copy of the cluster with the field `region`, `provider` or `zone` set to `value`.
    Empty: the copy does not have the field."""
    match field:
        case "region":
            return msgspec.structs.replace(cluster, region=value)
        case "provider":
            return msgspec.structs.replace(cluster, provider=value)
        case "zone":
            return msgspec.structs.replace(cluster, zones=(value,) if value else ())
        case _:
            return cluster


def labelled(cluster: Cluster, key: str, value: str | None) -> Cluster:
    """Return a copy of the cluster with the label set to `value`. None: the copy does not have the
    label."""
    labels = {k: v for k, v in cluster.labels.items() if k != key}
    return msgspec.structs.replace(
        cluster, labels=labels if value is None else {**labels, key: value}
    )
