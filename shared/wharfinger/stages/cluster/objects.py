"""What a cluster was told to have besides nodes and pods: namespaces, services, budgets, volumes, claims.

Each event is the whole state of one kind in one namespace, so that an object that is absent is gone. What decisions read is all
of them together, made when it is asked for and kept until something changes.
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
        """False: nothing changed."""
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
            self._all = ClusterObjects.of(one for _, several in sorted(self.told.items()) for one in several)
        return self._all
