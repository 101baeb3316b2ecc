"""Which bindings belong to which group of pods, and which groups something happened to."""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.occupancy import Held

Group = tuple[str, str]
"""Namespace and name of a group of pods."""


def group_of(cls: PodClass) -> Group | None:
    """None: it is placed pod by pod."""
    traits = cls.requirements.traits
    return (traits.home, traits.group) if traits.group and traits.min_count > 0 else None


@dataclass(slots=True)
class Members:
    """Follows the book. `stirred`: groups whose members changed or moved since they were last looked at."""

    by_group: dict[Group, set[str]] = field(default_factory=dict)
    stirred: set[Group] = field(default_factory=set)
    _group: dict[str, Group] = field(default_factory=dict)

    def follow(self, binding: str, held: Held | None) -> None:
        """The binding as it is now; None: it is gone."""
        before = self._group.get(binding)
        group = None if held is None else group_of(held.cls)
        if before is not None:
            self.stirred.add(before)
            if group != before:
                del self._group[binding]
                self.by_group[before].discard(binding)
                if not self.by_group[before]:
                    del self.by_group[before]
        if group is not None:
            self.stirred.add(group)
            self._group[binding] = group
            self.by_group.setdefault(group, set()).add(binding)
