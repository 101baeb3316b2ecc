"""Whether one more replica of a class fits on a node, on which devices, and why not. The scalar
reference for `place` and `count`, which do the same over whole columns."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.resources import DEVICE_MILLI, Device
from wharfinger.engine.devices.fit import why_not
from wharfinger.engine.nodes.classes import DeviceNeed, PodClass
from wharfinger.engine.nodes.columns import NodeRow, Taken
from wharfinger.engine.nodes.verdicts import REASONS, NodeVerdict, RefusedNodes


def _sentences(refused: RefusedNodes) -> dict[str, int]:
    """Counts nodes that were refused for lack of devices. Returns message -> number of nodes. There
    are two messages: the devices of the node would suffice if no pod used them, or they would not
    suffice even then.

    `refused`: the refused nodes and the class of pods. Nodes with equal devices are evaluated once.
    """
    table, found = refused.table, dict[str, int]()
    sorts: dict[tuple[int, ...], str] = {}
    for slot in refused.slots.tolist():
        row = table.by_slot[slot]
        assert row is not None, "a slot without a node is not refused"
        text = sorts.get(row.groups)
        if text is None:
            devices = [
                Device(table.groups[g][1], table.kinds[table.groups[g][0]]) for g in row.groups
            ]
            text = sorts[row.groups] = why_not(devices, refused.cls.requirements.devices)
        found[text] = found.get(text, 0) + 1
    return found


NO_DEVICES = NodeVerdict("InsufficientDevices", words=_sentences)
"""The devices of the node do not suffice. This is checked under every profile."""


def fits(row: NodeRow, cls: PodClass) -> bool:
    """Returns whether the free amounts and devices of the node suffice for one replica."""
    free = row.free
    for code, amount in cls.amounts:
        if free[code] < amount:
            return False
    return not cls.needs or _devices_suffice(row, cls)


def _devices_suffice(row: NodeRow, cls: PodClass) -> bool:
    """Returns whether the free devices suffice, like `take_devices` but faster in the common case:
    the class requests one device and all devices of the node are of one group. Then the device with
    the most free thousandths decides."""
    need = cls.needs[0]
    if row.sole_group >= 0 and need.count == 1 and len(cls.needs) == 1:
        return row.sole_group in need.view.groups and max(row.device_free) >= need.milli
    return take_devices(row, cls.needs) is not None


def take_devices(row: NodeRow, needs: tuple[DeviceNeed, ...]) -> Taken | None:
    """Selects the devices of a node for one replica by greedy best fit. Returns (device index,
    thousandths) for each selected device, by index; None: the devices do not suffice. The row is
    not changed.

    The requests in `needs` are served one after another, in the given order. A request for k
    devices can use the devices that it allows and that have enough free thousandths. It gets the k
    of these with the least free thousandths; among equals those with the lowest index. `row`: the
    node.

    Example: the devices 0, 1 and 2 have 1000, 400 and 200 thousandths free. A request for 300
    thousandths of one device gets device 1: ((1, 300),).
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


def _pick(
    groups: tuple[int, ...], free: list[int], need: DeviceNeed
) -> list[tuple[int, int]] | None:
    allowed, milli = need.view.groups, need.milli
    if need.count == 1:
        best, least = -1, DEVICE_MILLI + 1
        for index, left in enumerate(free):
            if milli <= left < least and groups[index] in allowed:
                best, least = index, left
        return None if best < 0 else [(best, milli)]
    fitting = sorted(
        (left, index)
        for index, left in enumerate(free)
        if left >= milli and groups[index] in allowed
    )
    if len(fitting) < need.count:
        return None
    return sorted((index, milli) for _, index in fitting[: need.count])


def most_common(refused: Mapping[NodeReason, int]) -> NodeReason:
    """Returns the reason that refused the most nodes; among equals the one that is checked first.
    Returns `InsufficientResources` if no node was refused."""
    best: NodeReason = "InsufficientResources"
    most = 0
    for reason in REASONS:
        if refused.get(reason, 0) > most:
            best, most = reason, refused[reason]
    return best
