"""Objects of a member cluster that are neither nodes nor pods, and by which the placing of pods on nodes goes.

Each is the whole state of its name. `ClusterObjects` is all of them together, as one decision sees them.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.value import Name, Value


class NamespaceLabels(Value, frozen=True, tag="Namespace"):
    name: Name
    labels: dict[str, str] = {}


class PodSelecting(Value, frozen=True, tag="PodSelecting"):
    """A Service, ReplicaSet, ReplicationController or StatefulSet, of which only matters which pods it selects: by them the
    pods of one application are spread by default."""

    kind: str
    namespace: str
    name: Name
    selector: LabelSelector


class DisruptionBudget(Value, frozen=True, tag="PodDisruptionBudget"):
    """`allowed`: how many of the pods that `selector` matches may be disrupted now, as the cluster reports it; None:
    it has not, and the number follows from `min_available` or `max_unavailable` (a count, or a percentage as `30%`).
    `disrupted`: names of pods whose disruption was let through and is not done yet. `selector` None matches no pod,
    an empty one all of the namespace."""

    namespace: str
    name: Name
    selector: LabelSelector | None = None
    allowed: int | None = None
    min_available: str = ""
    max_unavailable: str = ""
    disrupted: tuple[str, ...] = ()


ClusterObject = NamespaceLabels | PodSelecting | DisruptionBudget


class ClusterObjects(Value, frozen=True):
    """In order of namespace and name."""

    namespaces: tuple[NamespaceLabels, ...] = ()
    selecting: tuple[PodSelecting, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()

    @classmethod
    def of(cls, objects: Iterable[ClusterObject]) -> ClusterObjects:
        found = sorted(objects, key=lambda o: (getattr(o, "namespace", ""), o.name))
        return cls(
            tuple(o for o in found if isinstance(o, NamespaceLabels)),
            tuple(o for o in found if isinstance(o, PodSelecting)),
            tuple(o for o in found if isinstance(o, DisruptionBudget)),
        )
