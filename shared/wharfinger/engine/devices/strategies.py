"""The cost of a pod on a node by strategy: the reference implementation, node by node over plain
values.

A cost is an integer, lower is better, and a function of the node's state, the pod and the workload.
The lowest cost scores 100, the highest 0 (`scores`).

- `best-fit`: what is left of cpu, memory and devices with the pod on the node, each as a fraction
  of the largest node. The fullest node wins.
- `fragmentation`: the increase of idle devices that the typical pod cannot use (fragmentation
  gradient descent; Weng et al., "Beware of Fragmentation", USENIX ATC 2023). As there, the value is
  mapped to 0..100 by a logistic function, so that small differences disappear.
- `expected-fill`: the decrease of the expected final use of the node, the pod included (see
  `expected_use`). It looks further ahead than fragmentation: what counts is what stays empty after
  this pod and those that follow. It also accounts for cpu and memory: where the cpu is enough for
  only three more pods of a kind, eight idle devices count as three for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache

from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.engine.devices.expected_use import (
    MILLIONTHS,
    Group,
    Outlook,
    PodNeed,
    Typical,
    bounded,
    kibibytes_left,
)
from wharfinger.engine.devices.fit import Taken
from wharfinger.engine.devices.workload import DeviceWorkload

SCORE_MAX = 100

NOWHERE = 1 << 62
"""The cost on a node where the pod's devices do not fit."""

FRAGMENTATION_PERCENT = 95
"""Fragmentation is measured against the most frequent requests that cover this part of all pods, as
in the paper."""

_CHANCE = 1024
"""Chances are in 1024ths."""

_PART = 1_000_000


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The free amounts of a node: `cpu` in milli, `memory` in KiB, both at most
    `expected_use.AMOUNT_MAX`. `free`: free thousandths of each device; `groups`: group code of each
    device."""

    cpu: int
    memory: int
    free: tuple[int, ...]
    groups: tuple[int, ...]

    def take(self, need: PodNeed) -> Taken | None:
        """Allocates devices of this node to one pod by greedy best fit. Returns (device index,
        thousandths) for each allocated device, sorted by index; None if the devices do not suffice.
        The free amounts of the node are not changed.

        The device requests in `need` are allocated one after another, those for whole devices
        before those for a part of a device. A request for k devices takes k allowed devices that
        have enough free thousandths: those with the least free thousandths, the lowest index first
        on ties. The result is the same as that of `fit.take`, which works with device names instead
        of group codes.
        """
        left = list(self.free)
        taken: list[tuple[int, int]] = []
        for part in need.parts:
            fitting = sorted(
                (free, i)
                for i, free in enumerate(left)
                if free >= part.milli and self.groups[i] in part.allowed
            )
            if len(fitting) < part.count:
                return None
            for _, i in fitting[: part.count]:
                left[i] -= part.milli
                taken.append((i, part.milli))
        return tuple(sorted(taken))

    def without(self, need: PodNeed, taken: Taken) -> NodeDevices:
        left = list(self.free)
        for index, milli in taken:
            left[index] -= milli
        return NodeDevices(
            max(0, self.cpu - need.cpu), max(0, self.memory - need.memory), tuple(left), self.groups
        )


@dataclass(frozen=True, slots=True)
class Largest:
    """The maxima over all nodes of the cluster: cpu in milli, memory in KiB, number of devices.
    Each is at least 1."""

    cpu: int = 1
    memory: int = 1
    devices: int = 1


@dataclass(frozen=True, slots=True)
class CostContext:
    """The inputs of a cost other than the node and the pod."""

    outlook: Outlook
    largest: Largest = Largest()


@lru_cache(maxsize=32)
def scene(
    strategy: str,
    workload: DeviceWorkload,
    groups: tuple[Group, ...],
    largest: tuple[int, int, int],
) -> CostContext:
    """Returns the inputs of the function `cost` that are the same for all nodes and pods: the
    compiled workload, and the size of the largest node. The last 32 results are cached.

    - `strategy`: name of the device strategy. `fragmentation` uses only the most frequent requests
      in `workload`, which together have at least 95% of the weight; the other strategies use all
      requests.
    - `workload`: the most frequent requests of pods in the cluster, with their weights.
    - `groups`: (kind, model) of each device group; the position is the group code.
    - `largest`: milli-CPU, bytes and number of devices of the largest node, used by best fit.
    """
    if strategy == "fragmentation":
        workload = workload.most_asked(FRAGMENTATION_PERCENT)
    cpu, memory, devices = largest
    bounds = Largest(max(1, bounded(cpu)), max(1, kibibytes_left(memory)), max(1, devices))
    return CostContext(Outlook.of(workload, groups), bounds)


def cost(strategy: str, scene: CostContext, state: NodeDevices, need: PodNeed) -> int:
    """Returns the cost of placing a pod on one node; `NOWHERE` if its devices do not fit. Raises
    KeyError for a strategy that is not in `STRATEGIES`."""
    taken = state.take(need)
    return (
        NOWHERE if taken is None else STRATEGIES[strategy](scene, state, state.without(need, taken))
    )


def scores(costs: Mapping[str, int]) -> dict[str, int]:
    """Converts costs to scores by min-max normalisation. Takes node -> cost, returns node -> score
    0..100: the lowest cost scores 100, the highest 0. If all costs are equal, all nodes score 100.
    """
    low, high = min(costs.values(), default=0), max(costs.values(), default=0)
    if low == high:
        return dict.fromkeys(costs, SCORE_MAX)
    return {name: (high - cost) * SCORE_MAX // (high - low) for name, cost in costs.items()}


# Best fit.


def best_fit(scene: CostContext, before: NodeDevices, after: NodeDevices) -> int:
    """Returns the cpu, memory and devices that stay free with the pod on the node, each in
    millionths of the largest node, summed."""
    largest = scene.largest
    return (
        after.cpu * _PART // largest.cpu
        + after.memory * _PART // largest.memory
        + sum(after.free) * _PART // (largest.devices * DEVICE_MILLI)
    )


# Fragmentation.


def _levels() -> tuple[int, ...]:
    """Returns the 99 thresholds of the logistic scale, in millionths of a device, ascending. A gain
    of at least threshold s (1, 2, ... 99) has level s. Threshold s is the logit ln(s / (100 - s)),
    rounded up to the next millionth."""
    exact = Context(prec=40)
    logits = (exact.ln(exact.divide(Decimal(s), Decimal(100 - s))) for s in range(1, 100))
    return tuple(int((logit * _PART).to_integral_value(ROUND_CEILING)) for logit in logits)


LEVELS = _levels()


def fragmentation(scene: CostContext, before: NodeDevices, after: NodeDevices) -> int:
    if not scene.outlook.total:
        return 0
    lost = unusable(scene.outlook, before) - unusable(scene.outlook, after)
    return SCORE_MAX - bisect_right(LEVELS, lost * MILLIONTHS // scene.outlook.total)


def unusable(outlook: Outlook, state: NodeDevices) -> int:
    """Returns the idle thousandths of the node's devices that typical pods cannot use, summed over
    the typical requests by weight. If a typical pod does not fit or requests no device, all idle
    thousandths count as unusable. Otherwise those count that are on devices with too little free
    for it."""
    idle = sum(state.free)
    return sum(ask.weight * (idle - _usable(ask, state)) for ask in outlook.asks)


def _usable(ask: Typical, state: NodeDevices) -> int:
    fitting = _fitting(ask, state)
    return sum(state.free[i] for i in fitting) if len(fitting) >= ask.count else 0


def _fitting(ask: Typical, state: NodeDevices) -> list[int]:
    """Returns the indexes of the devices that have enough free for the request. Returns none if the
    node lacks cpu or memory for it, or if it requests no device."""
    if not ask.count or ask.cpu > state.cpu or ask.memory > state.memory:
        return []
    return [
        i
        for i, free in enumerate(state.free)
        if free >= ask.milli and state.groups[i] in ask.allowed
    ]


# Expected fill.


def expected_fill(scene: CostContext, before: NodeDevices, after: NodeDevices) -> int:
    taken = sum(before.free) - sum(after.free)
    return to_come(scene.outlook, before) - to_come(scene.outlook, after) - taken * MILLIONTHS


def to_come(outlook: Outlook, state: NodeDevices) -> int:
    """Returns how much of the node's devices future pods are expected to use, in millionths of a
    device, summed over the devices.

    For one device it is `sum(weight * (share + rest)) / (patience + sum(weight))`, summed over the
    typical (most frequent) requests of pods that fit on the device and on the node.

    - share: the amount of the device that the request takes.
    - rest: the expected use of what the request leaves free, from the table `fill`.
    - patience: the weight of the case that no more pods arrive.
    - weight: the frequency of the request, reduced if cpu and memory of the node do not suffice for
      as many of these pods as its devices could take.

    Example: one idle GPU, and one typical request for a whole GPU with weight 99; the patience is
    1. The result is 99 * (1,000,000 + 0) / (1 + 99) = 990,000.
    """
    gained = [0] * len(state.free)
    weights = [0] * len(state.free)
    for ask in outlook.asks:
        fitting = _fitting(ask, state)
        if not fitting or len(fitting) < ask.count:
            continue
        weight = ask.weight * _chance(ask, state, len(fitting) // ask.count)
        table = outlook.fill[ask.kind]
        for i in fitting:
            gained[i] += weight * (ask.milli * MILLIONTHS + table[state.free[i] - ask.milli])
            weights[i] += weight
    end = outlook.patience * _CHANCE
    return sum(gain // (end + weight) for gain, weight in zip(gained, weights, strict=True))


def _chance(ask: Typical, state: NodeDevices, copies: int) -> int:
    """Returns the probability, in 1024ths, that the node's free cpu and memory suffice for the
    request, when its devices would take `copies` such pods. It is the share of these pods that cpu
    and memory permit. Example: the devices would take 8 pods, the cpu suffices for 3 of them: 384
    (3/8)."""
    chance = _CHANCE
    if ask.cpu:
        chance = min(chance, state.cpu * _CHANCE // (ask.cpu * copies))
    if ask.memory:
        chance = min(chance, state.memory * _CHANCE // (ask.memory * copies))
    return chance


Strategy = Callable[[CostContext, NodeDevices, NodeDevices], int]
"""(context, node without the pod, node with the pod) -> cost"""

STRATEGIES: dict[str, Strategy] = {
    # Common in schedulers; needs no workload.
    "best-fit": best_fit,
    # Published; for comparison.
    "fragmentation": fragmentation,
    # Ours, and the recommended one: on every list of the trace it fills the devices more.
    "expected-fill": expected_fill,
}


def known(strategy: str) -> str:
    """Returns the strategy unchanged if it exists or is empty. Raises ValueError (one line)
    otherwise."""
    if strategy and strategy not in STRATEGIES:
        raise ValueError(
            f"no strategy for devices is called {strategy!r}; there are {', '.join(STRATEGIES)}"
        )
    return strategy
