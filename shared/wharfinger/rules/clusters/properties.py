"""Properties of clusters that several filters read: labels, and the fields provider, region and
zone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from wharfinger.domain.cluster import Cluster
from wharfinger.rules.clusters.rule import PropertyCondition

FIELDS = ("provider", "region", "zone")


def on_label(key: str, holds: Callable[[Any], bool]) -> PropertyCondition:
    """Return a condition on the value of a label; None: the cluster does not have it."""
    return PropertyCondition(("label", key), lambda cluster: cluster.labels.get(key), holds)


def on_field(field: str, holds: Callable[[Any], bool]) -> PropertyCondition:
    """Return a condition on the values of a field, a tuple."""
    return PropertyCondition(("field", field), partial(field_values, field=field), holds)


def field_values(cluster: Cluster, field: str) -> tuple[str, ...]:
    """Return the values of a field; only a zone can have several."""
    match field:
        case "provider":
            return (cluster.provider,) if cluster.provider else ()
        case "region":
            return (cluster.region,) if cluster.region else ()
        case "zone":
            return cluster.zones
        case _:
            return ()
