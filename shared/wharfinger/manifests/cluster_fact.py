"""Objects whose meaning depends on their cluster. Applied with the name of a member cluster, they
are facts of that cluster. Without one they are objects to place in clusters as they are, if their
kind can be placed at all.
"""

from __future__ import annotations

from typing import ClassVar

from wharfinger.domain.cluster_objects import ClusterObject
from wharfinger.manifests.model import ExpectedError, Object

CLUSTER = "wharfinger.io/cluster"
"""Label or annotation of an object that was read from a member cluster: the name of that
cluster."""
DEFAULT_NAMESPACE = "default"


def cluster_of(found: Object) -> str:
    """The member cluster that an object says it was read from; empty: it says none."""
    return found.metadata.labels.get(CLUSTER) or found.annotations.get(CLUSTER) or ""


def required_cluster(found: Object) -> str:
    """Of an object that is always a cluster's own. Raises ExpectedError where it does not say
    whose."""
    if cluster := cluster_of(found):
        return cluster
    raise ExpectedError(
        f"the label or annotation {CLUSTER} with the name of its cluster",
        "metadata",
        "labels",
        CLUSTER,
    )


class ClusterFact(Object):
    """An object by which a cluster's pods are placed. `travels`: without a cluster it is something
    to be sent to clusters."""

    travels: ClassVar[bool] = True

    @property
    def namespace(self) -> str:
        """Of an object that has one; kinds that are of the whole cluster do not ask."""
        return self.metadata.namespace or DEFAULT_NAMESPACE

    def to_domain(self) -> ClusterObject:
        """Raises ExpectedError."""
        raise NotImplementedError
