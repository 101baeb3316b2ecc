"""The other Kubernetes objects of a cluster: namespaces, services, budgets, volumes, claims.

Each event has the full list of one kind in one namespace, so an absent object was deleted.
Decisions read all of them together, built on demand and cached until a change.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObject, ClusterObjects

Key = tuple[str, str]
"""Kind and namespace."""


@dataclass(slots=True)
class Objects:
    told: dict[Key, tuple[ClusterObject, ...]] = field(default_factory=dict)
    _all: ClusterObjects | None = None

    def observe(self, kind: str, namespace: str, objects: tuple[ClusterObject, ...]) -> bool:
        """Stores the objects of one kind in one namespace. Returns whether anything changed."""
        key = (kind, namespace)
        if self.told.get(key, ()) == objects:
            return False
        if objects:
            self.told[key] = objects
        else:
            del self.told[key]
        self._all = None
        return True

    @property
    def all(self) -> ClusterObjects:
        if self._all is None:
            self._all = ClusterObjects.of(
                one for _, several in sorted(self.told.items()) for one in several
            )
        return self._all
