"""The costs of `strategies` over arrays: plain functions that a compiler takes as they are.

Arrays, int64; D = devices of the widest node, a place without a device has -1 free:

- `free`, `groups` [D]: of one node; `device_free`, `device_groups` [N, D]: of all.
- `asks` [n, 6]: the typical pods: (cpu, KiB, count, thousandths, weight, code of the kind); `allowed` [n, groups]: 1
  where it may be.
- `fill` [kinds, 1001]; `terms` [2]: (total weight, patience); `levels` [99]; `largest` [3].
- `need` [2]: (cpu, KiB) of the pod; `parts` [n, 2]: (count, thousandths); `parts_allowed` [n, groups].
- `room` [6, D]: scratch: the devices with the pod on them; then, of each set of devices that are alike, gain, weight,
  thousandths, group and number.
"""

from __future__ import annotations

from typing import Any

Array = Any
"""As described above; what a compiler sees as a type is not what a type checker knows."""

BEST_FIT, FRAGMENTATION, EXPECTED_FILL = 0, 1, 2
CODES = {"best-fit": BEST_FIT, "fragmentation": FRAGMENTATION, "expected-fill": EXPECTED_FILL}

NOWHERE = 1 << 62
AMOUNT_MAX = 1 << 40
SCORE_MAX = 100
AWAY = 1 << 20

ORDER = ("idle_of", "settle", "remainder", "unusable", "alike", "to_come", "worth", "level", "cost", "costs")
"""The functions below, callees first."""


def idle_of(free: Array) -> int:
    idle = 0
    for i in range(len(free)):
        if free[i] > 0:
            idle += free[i]
    return idle


def settle(free: Array, groups: Array, parts: Array, parts_allowed: Array, left: Array) -> bool:
    """`left` becomes what is left with the pod; False where its devices do not fit."""
    for i in range(len(free)):
        left[i] = free[i]
    for p in range(len(parts)):
        milli = parts[p, 1]
        for _ in range(parts[p, 0]):
            best = -1
            for i in range(len(left)):
                if left[i] >= milli and parts_allowed[p, groups[i]] == 1 and (best < 0 or left[i] < left[best]):
                    best = i
            if best < 0:
                return False
            # Below any free amount while this part is served: its devices are different ones.
            left[best] -= AWAY
        for i in range(len(left)):
            if left[i] < -1:
                left[i] += AWAY - milli
    return True


def remainder(cpu: int, memory: int, free: Array, largest: Array) -> int:
    summed: int = cpu * 1000000 // largest[0] + memory * 1000000 // largest[1] + idle_of(free) * 1000 // largest[2]
    return summed


def unusable(cpu: int, memory: int, free: Array, groups: Array, asks: Array, allowed: Array) -> int:
    idle = idle_of(free)
    total = 0
    for a in range(len(asks)):
        usable = 0
        if asks[a, 2] > 0 and asks[a, 0] <= cpu and asks[a, 1] <= memory:
            fitting = 0
            for i in range(len(free)):
                if free[i] >= asks[a, 3] and allowed[a, groups[i]] == 1:
                    fitting += 1
                    usable += free[i]
            if fitting < asks[a, 2]:
                usable = 0
        total += asks[a, 4] * (idle - usable)
    return total


def alike(free: Array, groups: Array, room: Array) -> int:
    """Devices that are equally free and of one sort are worth the same: each such set once, with its number. -> how
    many sets."""
    sets = 0
    for i in range(len(free)):
        if free[i] <= 0:
            continue
        found = -1
        for k in range(sets):
            if room[3, k] == free[i] and room[4, k] == groups[i]:
                found = k
                break
        if found < 0:
            found = sets
            sets += 1
            room[1, found] = 0
            room[2, found] = 0
            room[3, found] = free[i]
            room[4, found] = groups[i]
            room[5, found] = 0
        room[5, found] += 1
    return sets


def to_come(
    cpu: int,
    memory: int,
    free: Array,
    groups: Array,
    asks: Array,
    allowed: Array,
    fill: Array,
    terms: Array,
    room: Array,
) -> int:
    sets = alike(free, groups, room)
    for a in range(len(asks)):
        if asks[a, 2] == 0 or asks[a, 0] > cpu or asks[a, 1] > memory:
            continue
        milli = asks[a, 3]
        fitting = 0
        for k in range(sets):
            if room[3, k] >= milli and allowed[a, room[4, k]] == 1:
                fitting += room[5, k]
        if fitting == 0 or fitting < asks[a, 2]:
            continue
        copies = fitting if asks[a, 2] == 1 else fitting // asks[a, 2]
        chance = 1024
        if asks[a, 0] * copies > cpu:
            chance = cpu * 1024 // (asks[a, 0] * copies)
        if asks[a, 1] * copies > memory:
            chance = min(chance, memory * 1024 // (asks[a, 1] * copies))
        weight = asks[a, 4] * chance
        for k in range(sets):
            if room[3, k] >= milli and allowed[a, room[4, k]] == 1:
                room[1, k] += weight * (milli * 1000 + fill[asks[a, 5], room[3, k] - milli])
                room[2, k] += weight
    summed = 0
    for k in range(sets):
        summed += room[5, k] * (room[1, k] // (terms[1] * 1024 + room[2, k]))
    return summed


def worth(
    strategy: int, cpu: int, memory: int, free: Array, groups: Array, asks: Array, allowed: Array, fill: Array, terms: Array,
    room: Array,
) -> int:  # fmt: skip
    """What a strategy measures of a node's state by itself; `cost` is about how that changes."""
    if strategy == FRAGMENTATION:
        return unusable(cpu, memory, free, groups, asks, allowed)
    if strategy == EXPECTED_FILL:
        return to_come(cpu, memory, free, groups, asks, allowed, fill, terms, room)
    return 0


def level(gain: int, levels: Array) -> int:
    """How many of the ascending `levels` have been reached."""
    low, high = 0, len(levels)
    while low < high:
        middle = (low + high) // 2
        if gain < levels[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def cost(
    strategy: int, before: int, cpu: int, memory: int, free: Array, groups: Array, need: Array, parts: Array,
    parts_allowed: Array, asks: Array, allowed: Array, fill: Array, terms: Array, levels: Array, largest: Array, room: Array,
) -> int:  # fmt: skip
    """`before`: the `worth` of the node as it is. `cpu`, `memory` (KiB): left on it, within 0..2^40."""
    left = room[0]
    if not settle(free, groups, parts, parts_allowed, left):
        return NOWHERE
    cpu_after = max(0, cpu - need[0])
    memory_after = max(0, memory - need[1])
    if strategy == BEST_FIT:
        return remainder(cpu_after, memory_after, left, largest)
    if strategy == FRAGMENTATION and terms[0] == 0:
        return 0
    lost = before - worth(strategy, cpu_after, memory_after, left, groups, asks, allowed, fill, terms, room)
    if strategy == FRAGMENTATION:
        return SCORE_MAX - level(lost * 1000 // terms[0], levels)
    return lost - (idle_of(free) - idle_of(left)) * 1000


def costs(
    strategy: int, cpu: Array, memory: Array, device_free: Array, device_groups: Array, slots: Array, need: Array, parts: Array,
    parts_allowed: Array, asks: Array, allowed: Array, fill: Array, terms: Array, levels: Array, largest: Array, room: Array,
    out: Array,
) -> None:  # fmt: skip
    """`cpu` (milli), `memory` (bytes) [N]: columns of what is left; `out` [slots]: the cost on each."""
    for s in range(len(slots)):
        n = slots[s]
        milli, kib = max(0, min(cpu[n], AMOUNT_MAX)), max(0, min(memory[n] >> 10, AMOUNT_MAX))
        free, groups = device_free[n], device_groups[n]
        before = worth(strategy, milli, kib, free, groups, asks, allowed, fill, terms, room)
        out[s] = cost(
            strategy, before, milli, kib, free, groups, need, parts, parts_allowed, asks, allowed, fill, terms, levels, largest,
            room,
        )  # fmt: skip
