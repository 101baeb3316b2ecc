"""What is typically asked for, against which a node's leftovers are measured.

A `Workload` is a short list of asks with weights, most asked first. A cluster learns it: `Demand` counts every
replica that was wanted and hands out the workload as it stood at the last step. Steps are geometric, one whenever an
eighth more has been asked: what was computed with a workload is thrown away a logarithm of times and not with every
pod. Old asks fade: at `FADING` all counts are halved. So the workload is a function of what was asked in which order,
and a replay comes by the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.fit import asked

ASKS_MAX = 128
"""Rarer ones are left out. In the openb trace this many are 99 of 100 pods."""

FADING = 1 << 16
SORTS_MAX = 4096
"""Where every pod asks for something else the rarer half of what was counted is forgotten."""

STEP = 8
"""A new workload when the count has grown by a part of so many."""


class Ask(Value, frozen=True):
    """cpu in milli, memory in bytes; `device` None: the pod asks for none. A pod that asks for several sorts of
    devices is known by the sort that is hardest to satisfy."""

    cpu: int
    memory: int
    device: DeviceRequest | None = None


class Weighted(Value, frozen=True):
    ask: Ask
    weight: int


class Workload(Value, frozen=True):
    """`asks`: the most frequent first, weights above 0, their sum at most 2^17."""

    asks: tuple[Weighted, ...] = ()

    @property
    def total(self) -> int:
        return sum(entry.weight for entry in self.asks)

    @classmethod
    def of(cls, wanted: Iterable[tuple[Requirements, int]]) -> Workload:
        """(what is asked, by how many)."""
        counts: dict[Ask, int] = {}
        for requirements, times in wanted:
            ask = ask_of(requirements)
            counts[ask] = counts.get(ask, 0) + times
        return cls.counted(counts)

    @classmethod
    def counted(cls, counts: dict[Ask, int]) -> Workload:
        ranked = sorted(
            ((n, ask) for ask, n in counts.items() if n > 0), key=lambda entry: (-entry[0], _order(entry[1]))
        )
        kept = ranked[:ASKS_MAX]
        halvings = max(0, sum(n for n, _ in kept).bit_length() - FADING.bit_length())
        return cls(tuple(Weighted(ask, max(1, n >> halvings)) for n, ask in kept))

    def most_asked(self, percent: int) -> Workload:
        """The first asks, until `percent` of all pods are among them."""
        kept: list[Weighted] = []
        covered, wanted = 0, self.total * percent
        for entry in self.asks:
            if covered * 100 >= wanted:
                break
            kept.append(entry)
            covered += entry.weight
        return Workload(tuple(kept))


def ask_of(requirements: Requirements) -> Ask:
    devices = asked(requirements.devices)
    amounts = requirements.requests
    return Ask(max(0, amounts.get("cpu", 0)), max(0, amounts.get("memory", 0)), devices[0] if devices else None)


def _ranked(counts: dict[Ask, int]) -> list[tuple[int, Ask]]:
    """The most asked first."""
    return sorted(((n, ask) for ask, n in counts.items() if n > 0), key=lambda entry: (-entry[0], _order(entry[1])))


def _order(ask: Ask) -> tuple[object, ...]:
    device = ask.device
    named = () if device is None else (device.kind, device.count, device.milli, device.models)
    return (ask.cpu, ask.memory, len(named), named)


class DemandSeen(Value, frozen=True):
    """A `Demand` as it is kept: counts since the beginning or the last halving, and the workload of the last step."""

    counts: tuple[Weighted, ...] = ()
    step: int = 0
    workload: Workload = Workload()


class Demand:
    """What was asked of one cluster. `workload` changes in steps."""

    def __init__(self, seen: DemandSeen | None = None) -> None:
        seen = seen or DemandSeen()
        self._counts: dict[Ask, int] = {entry.ask: entry.weight for entry in seen.counts}
        self._total = sum(self._counts.values())
        self._step = seen.step
        self.workload = seen.workload

    def ask(self, requirements: Requirements, replicas: int) -> bool:
        """Count replicas that are wanted. True: there is a new workload."""
        if replicas <= 0:
            return False
        ask = ask_of(requirements)
        self._counts[ask] = self._counts.get(ask, 0) + replicas
        self._total += replicas
        if self._total * STEP < self._step * (STEP + 1):
            return False
        self.workload = Workload.counted(self._counts)
        while self._total > FADING:
            self._counted({ask: n >> 1 for ask, n in self._counts.items() if n > 1})
        if len(self._counts) > SORTS_MAX:
            self._counted({ask: n for n, ask in _ranked(self._counts)[: SORTS_MAX // 2]})
        self._step = self._total
        return True

    def _counted(self, counts: dict[Ask, int]) -> None:
        self._counts = counts
        self._total = sum(counts.values())

    def seen(self) -> DemandSeen:
        """What makes the same `Demand` again."""
        counts = tuple(Weighted(ask, n) for ask, n in sorted(self._counts.items(), key=lambda entry: _order(entry[0])))
        return DemandSeen(counts, self._step, self.workload)
