"""The bindings of each pod group, and the groups that changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.occupancy import HeldBinding

Group = tuple[str, str]
"""Namespace and name of a pod group."""


def group_of(cls: PodClass) -> Group | None:
    """Returns the pod group of the class; None if its pods are placed one by one."""
    traits = cls.requirements.traits
    return (traits.home, traits.group) if traits.group and traits.min_count > 0 else None


@dataclass(slots=True)
class Members:
    """Keeps the bindings of each pod group. `stirred`: groups whose members changed since the stage
    last evaluated them."""

    by_group: dict[Group, set[str]] = field(default_factory=dict)
    stirred: set[Group] = field(default_factory=set)
    _group: dict[str, Group] = field(default_factory=dict)

    def follow(self, binding: str, held: HeldBinding | None) -> None:
        """Records to which pod group a binding belongs now. Marks two groups as changed, so that
        they are looked at in the next round: the group to which the binding belonged before, and
        the group to which it belongs now. `held`: the binding as it is now; None: the binding no
        longer exists."""
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
