"""Whether one more replica of a class fits on a node now, on which devices, and if not, why.

The scalar truth: `place` and `count` do the same over whole columns and must agree with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.engine.nodes.classes import (
    INSUFFICIENT_DEVICES,
    INSUFFICIENT_RESOURCES,
    DeviceNeed,
    PodClass,
)
from wharfinger.engine.nodes.columns import NodeRow, Taken

REASONS: tuple[NodeReason, ...] = get_args(NodeReason)
"""Verdict -1 is the first reason, -2 the second, and so on."""


def usage_verdict(row: NodeRow, cls: PodClass) -> int:
    """0 when resources and devices suffice, else the first reason against the node."""
    free = row.free
    for code, amount in cls.amounts:
        if free[code] < amount:
            return INSUFFICIENT_RESOURCES
    if cls.needs and not _devices_suffice(row, cls):
        return INSUFFICIENT_DEVICES
    return 0


def _devices_suffice(row: NodeRow, cls: PodClass) -> bool:
    """As `take_devices`, without taking: of one device on a node whose devices are all alike, the freest decides."""
    need = cls.needs[0]
    if row.sole_group >= 0 and need.count == 1 and len(cls.needs) == 1:
        return row.sole_group in need.view.groups and max(row.device_free) >= need.milli
    return take_devices(row, cls.needs) is not None


def take_devices(row: NodeRow, needs: tuple[DeviceNeed, ...]) -> Taken | None:
    """The devices one replica would get, by index: best fit (least free that still suffices), lowest index among equals.

    Whole devices are all equally free, so for them this is the lowest indices. Several needs are served one after
    another from what is left, in the class's order; that order is greedy and not a search.
    """
    if len(needs) == 1:
        picked = _pick(row.groups, row.device_free, needs[0])
        return None if picked is None else tuple(picked)
    left = list(row.device_free)
    taken: list[tuple[int, int]] = []
    for need in needs:
        picked = _pick(row.groups, left, need)
        if picked is None:
            return None
        for index, milli in picked:
            left[index] -= milli
        taken += picked
    taken.sort()
    return tuple(taken)


def _pick(groups: tuple[int, ...], free: list[int], need: DeviceNeed) -> list[tuple[int, int]] | None:
    allowed, milli = need.view.groups, need.milli
    if need.count == 1:
        best, least = -1, DEVICE_MILLI + 1
        for index, left in enumerate(free):
            if milli <= left < least and groups[index] in allowed:
                best, least = index, left
        return None if best < 0 else [(best, milli)]
    fitting = sorted((left, index) for index, left in enumerate(free) if left >= milli and groups[index] in allowed)
    if len(fitting) < need.count:
        return None
    return sorted((index, milli) for _, index in fitting[: need.count])


def most_common(refused: Mapping[NodeReason, int]) -> NodeReason:
    """The reason that stood against most nodes; the earlier checked one among equals. Without any node: resources."""
    best: NodeReason = "InsufficientResources"
    most = 0
    for reason in REASONS:
        if refused.get(reason, 0) > most:
            best, most = reason, refused[reason]
    return best
