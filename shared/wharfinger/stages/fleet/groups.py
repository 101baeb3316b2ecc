"""Indexes workload groups: bindings that must run together, and bindings that must not.

A group is identified by namespace and value (`Binding.affinity_group`, `anti_affinity_group`). The
records of the members say where they run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wharfinger.domain.binding import Binding

_Key = tuple[str, str, str]
"""(kind of group, namespace, value)."""


@dataclass(slots=True)
class Groups:
    members: dict[_Key, dict[str, None]] = field(default_factory=dict)

    def join(self, spec: Binding) -> None:
        for key in _keys(spec):
            self.members.setdefault(key, {})[spec.name] = None

    def leave(self, spec: Binding) -> None:
        for key in _keys(spec):
            names = self.members.get(key, {})
            names.pop(spec.name, None)
            if not names:
                self.members.pop(key, None)

    def copy(self) -> Groups:
        return Groups({key: names.copy() for key, names in self.members.items()})

    def with_(self, spec: Binding) -> Iterator[str]:
        """Return the other members of the binding's affinity group."""
        return self._others(spec, "with", spec.affinity_group)

    def against(self, spec: Binding) -> Iterator[str]:
        """Return the other members of the binding's anti-affinity group."""
        return self._others(spec, "against", spec.anti_affinity_group)

    def _others(self, spec: Binding, kind: str, group: str) -> Iterator[str]:
        if not group:
            return iter(())
        return (
            name
            for name in self.members.get((kind, _namespace(spec), group), ())
            if name != spec.name
        )


def grouped(spec: Binding) -> bool:
    return bool(spec.affinity_group or spec.anti_affinity_group)


def _keys(spec: Binding) -> list[_Key]:
    keys = (("with", spec.affinity_group), ("against", spec.anti_affinity_group))
    return [(kind, _namespace(spec), group) for kind, group in keys if group]


def _namespace(spec: Binding) -> str:
    return spec.name.rpartition("/")[0]
