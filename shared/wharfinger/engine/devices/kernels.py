"""The costs of `strategies` over arrays, as plain functions that are compiled ahead of time.

All arrays are int64. D: number of devices of the node with most devices. A slot for a device that
the node does not have holds -1.

The node:
- `cpu`, `memory`: free milli-CPU and free KiB of memory.
- `free` [D]: free thousandths of each device of one node; `groups` [D]: group code (kind, model) of
  each device. `device_free`, `device_groups` [N, D]: the same of all nodes.

The pod that is placed:
- `need` [2]: (milli-CPU, KiB) that it requests.
- `parts` [n, 2]: its device requests: (number of devices, thousandths of each).
- `parts_allowed` [n, groups]: 1 where the request may use devices of the group.

The typical workload:
- `asks` [n, 6]: the typical pods: (milli-CPU, KiB, number of devices, thousandths of each, weight,
  code of the device kind).
- `allowed` [n, groups]: 1 where the typical pod may use devices of the group.
- `fill` [kinds, 1001]: expected further use of a device by its free thousandths (`expected_use`).
- `terms` [2]: (sum of all weights, patience).

Others:
- `levels` [99]: thresholds of the logistic scale of `strategies`.
- `largest` [3]: milli-CPU, KiB and number of devices of the largest node.
- `room` [6, D]: scratch. Row 0: free thousandths of the devices with the pod on the node. The other
  rows have one column for each set of identical devices: gain, weight, free thousandths, group
  code, number of devices.
"""

from __future__ import annotations

from typing import Any

Array = Any
"""An array as described above. A type checker does not know the types that the compiler uses."""

BEST_FIT, FRAGMENTATION, EXPECTED_FILL = 0, 1, 2
CODES = {"best-fit": BEST_FIT, "fragmentation": FRAGMENTATION, "expected-fill": EXPECTED_FILL}

NOWHERE = 1 << 62
AMOUNT_MAX = 1 << 40
SCORE_MAX = 100
AWAY = 1 << 20

ORDER = (
    "idle_of",
    "settle",
    "remainder",
    "unusable",
    "alike",
    "to_come",
    "worth",
    "level",
    "cost",
    "costs",
)
"""The functions below, callees first."""

SIGNATURES = {"costs": "i0 i1 i1 i2 i2 i1 i1 i2 i2 i2 i2 i2 i1 i1 i1 i2 i1"}
"""The functions that other modules call, with the types of their arguments
(`engine.machine_code`)."""


def idle_of(free: Array) -> int:
    idle = 0
    for i in range(len(free)):
        if free[i] > 0:
            idle += free[i]
    return idle


def settle(free: Array, groups: Array, parts: Array, parts_allowed: Array, left: Array) -> bool:
    """Allocates the devices of one node to one pod by best fit, and writes the free thousandths of
    each device that remain into `left` [D]. Returns False if the devices do not suffice; then
    `left` has no meaning. D: number of devices.

    The device requests of the pod are allocated one after another. A request for k devices takes k
    different devices, one at a time: the allowed device with the least free thousandths that
    suffice, the lowest index first on ties.

    - `free`, `groups` [D]: free thousandths and group code (kind and model) of each device; -1: no
      device.
    - `parts` [n, 2]: the requests: (number of devices, thousandths of each).
    - `parts_allowed` [n, groups]: 1 where the request may use devices of the group.

    Example: the free thousandths are 1000, 400 and 200. A request for 300 thousandths of one device
    leaves 1000, 100 and 200.
    """
    for i in range(len(free)):
        left[i] = free[i]
    for p in range(len(parts)):
        milli = parts[p, 1]
        for _ in range(parts[p, 0]):
            best = -1
            for i in range(len(left)):
                if (
                    left[i] >= milli
                    and parts_allowed[p, groups[i]] == 1
                    and (best < 0 or left[i] < left[best])
                ):
                    best = i
            if best < 0:
                return False
            # Makes the device unavailable to this request, which needs different devices.
            left[best] -= AWAY
        for i in range(len(left)):
            if left[i] < -1:
                left[i] += AWAY - milli
    return True


def remainder(cpu: int, memory: int, free: Array, largest: Array) -> int:
    summed: int = (
        cpu * 1000000 // largest[0]
        + memory * 1000000 // largest[1]
        + idle_of(free) * 1000 // largest[2]
    )
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
    """Divides the devices of one node into sets of identical devices, because identical devices
    have the same value. Two devices are identical if their group code (kind and model) and their
    free thousandths are equal. Returns the number of sets. Devices with nothing free are left out.

    - `free`, `groups` [D]: free thousandths and group code of each device. D: number of devices.
    - `room` [6, D]: output. Column k describes set k. Row 3: free thousandths; row 4: group code;
      row 5: number of devices. Rows 1 and 2 are set to 0; the caller adds up the weighted expected
      use in row 1 and the weights in row 2. Row 0 is not used.

    Example: eight idle GPUs of one model are one set with the number 8.
    """
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
    strategy: int,
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
    """Returns the value that a device strategy gives to the free amounts of one node. The cost of a
    pod on the node is computed from the values before and after the pod is placed (`cost`).

    - fragmentation: for each typical pod (a frequent request), the idle thousandths that it cannot
      use, times its weight; summed over all typical pods.
    - expected fill: how much of the devices future pods are expected to use, in millionths of a
      device.
    - best fit: 0, because `cost` does not use the value.

    Arguments (D: number of devices):
    - `strategy`: the code of the device strategy, from `CODES`.
    - `cpu`, `memory`: free milli-CPU and KiB of the node.
    - `free`, `groups` [D]: free thousandths and group code (kind and model) of each device.
    - `asks` [n, 6]: the typical pods: (milli-CPU, KiB, number of devices, thousandths of each,
      weight, code of the device kind).
    - `allowed` [n, groups]: 1 where the typical pod may use devices of the group.
    - `fill` [kinds, 1001]: expected further use of a device by its free thousandths.
    - `terms` [2]: (sum of all weights, patience: the weight of the case that no more pods arrive).
    - `room` [6, D]: work array.
    """
    if strategy == FRAGMENTATION:
        return unusable(cpu, memory, free, groups, asks, allowed)
    if strategy == EXPECTED_FILL:
        return to_come(cpu, memory, free, groups, asks, allowed, fill, terms, room)
    return 0


def level(gain: int, levels: Array) -> int:
    """Returns how many of the ascending `levels` are less than or equal to `gain`, by binary
    search."""
    low, high = 0, len(levels)
    while low < high:
        middle = (low + high) // 2
        if gain < levels[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def cost(
    strategy: int,
    before: int,
    cpu: int,
    memory: int,
    free: Array,
    groups: Array,
    need: Array,
    parts: Array,
    parts_allowed: Array,
    asks: Array,
    allowed: Array,
    fill: Array,
    terms: Array,
    levels: Array,
    largest: Array,
    room: Array,
) -> int:
    """Returns the cost of placing a pod on one node. A lower cost is better. `NOWHERE`: the devices
    of the node do not suffice for the pod.

    - best fit: the sum of the cpu, the memory and the devices that stay free with the pod on the
      node, each in millionths of the largest node.
    - fragmentation: 100 minus a level. The level (0..99, on a logistic scale) rates how much the
      pod decreases the idle thousandths that typical pods (the most frequent requests) cannot use,
      in the weighted mean over the typical pods; no decrease has the level 50. The cost is 0 if
      there are no typical pods.
    - expected fill: the decrease of the expected use by future pods, minus the amount that this pod
      uses, in millionths of a device.

    Example of best fit: the largest node has 4 cores, 8 GiB and 1 device. 1 core, 4 GiB and 500
    thousandths of the device stay free: 250,000 + 500,000 + 500,000 = 1,250,000.

    Arguments (D: number of devices):
    - `strategy`: the code of the device strategy, from `CODES`.
    - `before`: the `worth` of the node without the pod.
    - `cpu`, `memory`: free milli-CPU and KiB of the node, each within 0..2^40.
    - `free`, `groups` [D]: free thousandths and group code (kind and model) of each device; -1: no
      device.
    - `need` [2]: milli-CPU and KiB that the pod requests.
    - `parts` [n, 2]: its device requests: (number of devices, thousandths of each).
    - `parts_allowed` [n, groups]: 1 where the request may use devices of the group.
    - `asks`, `allowed`, `fill`, `terms`: the typical workload: the typical pods, the device groups
      that each may use, the expected further use of a device, and (sum of all weights, patience).
      `worth` lists the columns.
    - `levels` [99]: thresholds of the logistic scale.
    - `largest` [3]: milli-CPU, KiB and number of devices of the largest node.
    - `room` [6, D]: work array.
    """
    left = room[0]
    if not settle(free, groups, parts, parts_allowed, left):
        return NOWHERE
    cpu_after = max(0, cpu - need[0])
    memory_after = max(0, memory - need[1])
    if strategy == BEST_FIT:
        return remainder(cpu_after, memory_after, left, largest)
    if strategy == FRAGMENTATION and terms[0] == 0:
        return 0
    lost = before - worth(
        strategy, cpu_after, memory_after, left, groups, asks, allowed, fill, terms, room
    )
    if strategy == FRAGMENTATION:
        return SCORE_MAX - level(lost * 1000 // terms[0], levels)
    return lost - (idle_of(free) - idle_of(left)) * 1000


def costs(
    strategy: int,
    cpu: Array,
    memory: Array,
    device_free: Array,
    device_groups: Array,
    slots: Array,
    need: Array,
    parts: Array,
    parts_allowed: Array,
    asks: Array,
    allowed: Array,
    fill: Array,
    terms: Array,
    levels: Array,
    largest: Array,
    room: Array,
    out: Array,
) -> None:
    """Writes the cost of placing one pod on each of several nodes into `out`: `out[i]` is the cost
    on the node with the index `slots[i]`. A lower cost is better; `NOWHERE`: the devices of the
    node do not suffice. The cost depends on the device strategy (`cost`): how much stays free on
    the node (best fit), how little the unusable free amounts decrease (fragmentation), or how much
    expected use is lost (expected fill).

    N: number of nodes in the arrays. D: number of devices of the node with most devices.

    - `strategy`: the code of the device strategy, from `CODES`.
    - `cpu`, `memory` [N]: free milli-CPU and free bytes of each node (bytes here, KiB in `cost`).
    - `device_free`, `device_groups` [N, D]: free thousandths and group code (kind and model) of
      each device; -1: no device.
    - `slots` [n]: the nodes to compute, as indexes into the arrays above.
    - `need` [2], `parts` [n, 2], `parts_allowed` [n, groups]: the pod: (milli-CPU, KiB); (number of
      devices, thousandths of each) of each device request; 1 where the request may use devices of
      the group.
    - `asks`, `allowed`, `fill`, `terms`: the typical workload: the typical pods, the device groups
      that each may use, the expected further use of a device, and (sum of all weights, patience).
      `worth` lists the columns.
    - `levels`, `largest`: constants of fragmentation and of best fit, as in `cost`.
    - `room` [6, D]: work array.
    - `out` [n]: output.
    """
    for s in range(len(slots)):
        n = slots[s]
        milli, kib = max(0, min(cpu[n], AMOUNT_MAX)), max(0, min(memory[n] >> 10, AMOUNT_MAX))
        free, groups = device_free[n], device_groups[n]
        before = worth(strategy, milli, kib, free, groups, asks, allowed, fill, terms, room)
        out[s] = cost(
            strategy,
            before,
            milli,
            kib,
            free,
            groups,
            need,
            parts,
            parts_allowed,
            asks,
            allowed,
            fill,
            terms,
            levels,
            largest,
            room,
        )
