"""What a pod costs on a node, by strategy: the readable truth, node by node over plain values.

A cost is an integer, lower is better, and depends on nothing but the node's state, the pod and the outlook. The node
with the lowest cost scores 100, the one with the highest 0 (`scores`).

- `best-fit`: what is left of the node with the pod on it, cpu, memory and devices each as a part of what the largest
  node has. The tightest node wins.
- `fragmentation`: by how much more of the idle devices the typical pod could not use afterwards (fragmentation
  gradient descent; Weng et al., "Beware of Fragmentation", USENIX ATC 2023). As there it is put on a logistic scale
  of 0..100, so that small differences are none.
- `expected-fill`: by how much less the node will be filled in the end, the pod itself included (see `outlook`). That
  looks further than fragmentation: that a typical pod fits somewhere is not yet use, what counts is what stays empty
  after it and those that follow. And it knows that cpu and memory run out: where only three more pods of a sort fit
  by cpu, eight idle devices are not eight for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache

from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.engine.devices.fit import Taken
from wharfinger.engine.devices.outlook import MILLIONTHS, Group, Need, Outlook, Typical, bounded, kibibytes_left
from wharfinger.engine.devices.workload import Workload

SCORE_MAX = 100

NOWHERE = 1 << 62
"""The cost where the pod's devices do not fit."""

FRAGMENTATION_PERCENT = 95
"""Fragmentation is measured against so many of all pods, the most frequent ones, as the paper has it."""

_CHANCE = 1024
"""Chances are in 1024ths."""

_PART = 1_000_000


@dataclass(frozen=True, slots=True)
class State:
    """What is left of a node: cpu in milli, memory in KiB, both at most `outlook.AMOUNT_MAX`; `free`: thousandths of
    each device; `groups`: the codes of the devices' sorts."""

    cpu: int
    memory: int
    free: tuple[int, ...]
    groups: tuple[int, ...]

    def take(self, need: Need) -> Taken | None:
        """As `fit.take`, by codes."""
        left = list(self.free)
        taken: list[tuple[int, int]] = []
        for part in need.parts:
            fitting = sorted(
                (free, i) for i, free in enumerate(left) if free >= part.milli and self.groups[i] in part.allowed
            )
            if len(fitting) < part.count:
                return None
            for _, i in fitting[: part.count]:
                left[i] -= part.milli
                taken.append((i, part.milli))
        return tuple(sorted(taken))

    def without(self, need: Need, taken: Taken) -> State:
        left = list(self.free)
        for index, milli in taken:
            left[index] -= milli
        return State(max(0, self.cpu - need.cpu), max(0, self.memory - need.memory), tuple(left), self.groups)


@dataclass(frozen=True, slots=True)
class Largest:
    """The most that any node of the cluster has: cpu in milli, memory in KiB, number of devices. At least 1 each."""

    cpu: int = 1
    memory: int = 1
    devices: int = 1


@dataclass(frozen=True, slots=True)
class Scene:
    """What costs depend on beside node and pod."""

    outlook: Outlook
    largest: Largest = Largest()


@lru_cache(maxsize=32)
def scene(strategy: str, workload: Workload, groups: tuple[Group, ...], largest: tuple[int, int, int]) -> Scene:
    """`groups`: (kind, model) of each code. `largest`: milli-cpu, bytes and devices of the largest node, for best fit."""
    if strategy == "fragmentation":
        workload = workload.most_asked(FRAGMENTATION_PERCENT)
    cpu, memory, devices = largest
    bounds = Largest(max(1, bounded(cpu)), max(1, kibibytes_left(memory)), max(1, devices))
    return Scene(Outlook.of(workload, groups), bounds)


def cost(strategy: str, scene: Scene, state: State, need: Need) -> int:
    """Raises KeyError for a strategy that is not in `STRATEGIES`."""
    taken = state.take(need)
    return NOWHERE if taken is None else STRATEGIES[strategy](scene, state, state.without(need, taken))


def scores(costs: Mapping[str, int]) -> dict[str, int]:
    """Node -> cost to node -> 0..100. All 100 where all cost the same."""
    low, high = min(costs.values(), default=0), max(costs.values(), default=0)
    if low == high:
        return dict.fromkeys(costs, SCORE_MAX)
    return {name: (high - cost) * SCORE_MAX // (high - low) for name, cost in costs.items()}


# Best fit.


def best_fit(scene: Scene, before: State, after: State) -> int:
    """Millionths of the largest node, summed over the three."""
    largest = scene.largest
    return (
        after.cpu * _PART // largest.cpu
        + after.memory * _PART // largest.memory
        + sum(after.free) * _PART // (largest.devices * DEVICE_MILLI)
    )


# Fragmentation.


def _levels() -> tuple[int, ...]:
    """From which gain on (millionths of a device) the logistic scale says 1, 2, ... 99: ln(s / (100 - s)), rounded up."""
    exact = Context(prec=40)
    logits = (exact.ln(exact.divide(Decimal(s), Decimal(100 - s))) for s in range(1, 100))
    return tuple(int((logit * _PART).to_integral_value(ROUND_CEILING)) for logit in logits)


LEVELS = _levels()


def fragmentation(scene: Scene, before: State, after: State) -> int:
    if not scene.outlook.total:
        return 0
    lost = unusable(scene.outlook, before) - unusable(scene.outlook, after)
    return SCORE_MAX - bisect_right(LEVELS, lost * MILLIONTHS // scene.outlook.total)


def unusable(outlook: Outlook, state: State) -> int:
    """Idle thousandths that a typical pod cannot use, summed over the asks by weight: all of them where it does not
    fit or asks for no device, else those of the devices that have too little left for it."""
    idle = sum(state.free)
    return sum(ask.weight * (idle - _usable(ask, state)) for ask in outlook.asks)


def _usable(ask: Typical, state: State) -> int:
    fitting = _fitting(ask, state)
    return sum(state.free[i] for i in fitting) if len(fitting) >= ask.count else 0


def _fitting(ask: Typical, state: State) -> list[int]:
    """The devices on which the ask could be served; none where cpu or memory lack already, or where it asks for no device."""
    if not ask.count or ask.cpu > state.cpu or ask.memory > state.memory:
        return []
    return [i for i, free in enumerate(state.free) if free >= ask.milli and state.groups[i] in ask.allowed]


# Expected fill.


def expected_fill(scene: Scene, before: State, after: State) -> int:
    taken = sum(before.free) - sum(after.free)
    return to_come(scene.outlook, before) - to_come(scene.outlook, after) - taken * MILLIONTHS


def to_come(outlook: Outlook, state: State) -> int:
    """What the node's devices will still be filled with, millionths of a device.

    Each device gets the asks that fit there, as in the table; but an ask comes only with the chance that the node's
    cpu and memory are enough for it on all the devices it could have."""
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


def _chance(ask: Typical, state: State, copies: int) -> int:
    """1024ths: for how many of `copies` pods that the devices would take there is cpu and memory."""
    chance = _CHANCE
    if ask.cpu:
        chance = min(chance, state.cpu * _CHANCE // (ask.cpu * copies))
    if ask.memory:
        chance = min(chance, state.memory * _CHANCE // (ask.memory * copies))
    return chance


Strategy = Callable[[Scene, State, State], int]
"""(what else it depends on, the node before, the node with the pod on it) -> cost"""

STRATEGIES: dict[str, Strategy] = {
    # What most schedulers have, and what needs no workload.
    "best-fit": best_fit,
    # The published one, to compare with and for who is used to it.
    "fragmentation": fragmentation,
    # Ours. What to take when in doubt: on every list of the trace it ends fuller.
    "expected-fill": expected_fill,
}


def known(strategy: str) -> str:
    """The strategy, or none. Raises ValueError, one line, for another."""
    if strategy and strategy not in STRATEGIES:
        raise ValueError(f"no strategy for devices is called {strategy!r}; there are {', '.join(STRATEGIES)}")
    return strategy
