"""Groups of pods as kube-scheduler places them: pod by pod, each holding its place until the group
is whole, for a bounded time; then all go, or all give back what they hold.

What is compared with: a plane places the pods of a group in one round
(`stages.cluster.groups`), so that none ever holds a place for the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from wharfinger.domain.node import Pod
from wharfinger.engine.framework.gang import GATHERING, WAIT_S, Group, feasible, group_of
from wharfinger.engine.framework.status import Status, unresolvable

Place = TypeVar("Place")


def gathering(pod: Pod, known: int) -> Status | None:
    """Why a pod is not tried yet. `known`: pods of its group that there are, wherever they stand,
    itself among them."""
    enough = group_of(pod) is None or known >= pod.requirements.traits.min_count
    return None if enough else unresolvable(GATHERING)


@dataclass(frozen=True, slots=True)
class Whole(Generic[Place]):
    """`places`: pod and place, in the order in which they were placed; none where the group was
    `refused`."""

    places: tuple[tuple[Pod, Place], ...] = ()
    refused: Status | None = None


def place_whole(
    pods: Sequence[Pod],
    min_count: int,
    scheduled: int,
    place: Callable[[Pod], Place | None],
    give_back: Callable[[Pod, Place], None],
) -> Whole[Place]:
    """All of a group's `pods` that find a place, if with the `scheduled` ones they are `min_count`
    at least; else none.

    `place` takes the next pod's place, where there is one; `give_back` returns it. It stops at the
    first pod after which the group can no longer be whole, and gives back in reverse order."""
    places: list[tuple[Pod, Place]] = []
    hopeless = feasible(min_count, scheduled, len(pods))
    if hopeless is not None and hopeless.rejects:
        return Whole(refused=hopeless)
    for remaining, pod in zip(range(len(pods) - 1, -1, -1), pods, strict=True):
        if (found := place(pod)) is not None:
            places.append((pod, found))
        status = feasible(min_count, scheduled + len(places), remaining)
        if status is not None and status.rejects:
            for held, at in reversed(places):
                give_back(held, at)
            return Whole(refused=status)
    return Whole(tuple(places))


@dataclass(slots=True)
class _Held:
    pods: dict[str, Pod] = field(default_factory=dict)
    until_us: int = 0


@dataclass(slots=True)
class GangWaiting:
    """Pods that hold their places until their groups are whole. A group's time runs from the first
    of them on."""

    wait_us: int = WAIT_S * 1_000_000
    _groups: dict[Group, _Held] = field(default_factory=dict, init=False)

    def held(self, group: Group) -> tuple[Pod, ...]:
        found = self._groups.get(group)
        return tuple(found.pods.values()) if found else ()

    def reserve(self, pod: Pod, running: int, now_us: int) -> tuple[Pod, ...]:
        """A pod of a group has its place. `running`: pods of the group that went before. Those that
        may go now: none, or with the pod all that waited."""
        group = group_of(pod)
        if group is None:
            return (pod,)
        held = self._groups.setdefault(group, _Held(until_us=now_us + self.wait_us))
        held.pods[pod.uid] = pod
        if running + len(held.pods) < pod.requirements.traits.min_count:
            return ()
        return self.give_up(group)

    def give_up(self, group: Group) -> tuple[Pod, ...]:
        """Nobody waits for the group any more: those that did, in the order in which they came."""
        held = self._groups.pop(group, None)
        return tuple(held.pods.values()) if held else ()

    def expired(self, now_us: int) -> tuple[Group, ...]:
        """Groups whose time is over, to be given up."""
        return tuple(
            sorted(group for group, held in self._groups.items() if held.until_us <= now_us)
        )

    def next_due_us(self) -> int | None:
        return min((held.until_us for held in self._groups.values()), default=None)
