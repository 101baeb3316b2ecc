"""The typical requests of a cluster, against which the leftovers of its nodes are valued.

A `DeviceWorkload` is a short list of requests with weights, most frequent first. A cluster learns
it: `ClusterDemand` counts every requested replica and publishes a new workload in geometric steps,
whenever the count has grown by an eighth. So caches that depend on the workload are dropped only a
logarithmic number of times. Old requests fade: at `FADING` all counts are halved. The workload is a
function of the sequence of requests, so a replay computes the same one.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.fit import asked

ASKS_MAX = 128
"""Rarer requests are left out. In the openb trace this many requests cover 99 of 100 pods."""

FADING = 1 << 16
SORTS_MAX = 4096
"""Limit of different requests. Beyond it only half as many, the most frequent ones, are kept."""

STEP = 8
"""A new workload is derived when the count has grown by 1/STEP."""


class DeviceAsk(Value, frozen=True):
    """The request of a typical pod: cpu in milli, memory in bytes, and its devices; None: no
    devices. If a pod requests several kinds of devices, only the one hardest to satisfy is kept."""

    cpu: int
    memory: int
    device: DeviceRequest | None = None


class Weighted(Value, frozen=True):
    ask: DeviceAsk
    weight: int


class DeviceWorkload(Value, frozen=True):
    """The typical requests of a cluster with their weights, against which device strategies value
    free devices. `asks`: most frequent first, weights above 0, their sum at most 2^17."""

    asks: tuple[Weighted, ...] = ()

    @property
    def total(self) -> int:
        return sum(entry.weight for entry in self.asks)

    @classmethod
    def of(cls, wanted: Iterable[tuple[Requirements, int]]) -> DeviceWorkload:
        """Counts (requirements, number of pods) into a workload."""
        counts: dict[DeviceAsk, int] = {}
        for requirements, times in wanted:
            ask = ask_of(requirements)
            counts[ask] = counts.get(ask, 0) + times
        return cls.counted(counts)

    @classmethod
    def counted(cls, counts: dict[DeviceAsk, int]) -> DeviceWorkload:
        ranked = sorted(
            ((n, ask) for ask, n in counts.items() if n > 0),
            key=lambda entry: (-entry[0], _order(entry[1])),
        )
        kept = ranked[:ASKS_MAX]
        halvings = max(0, sum(n for n, _ in kept).bit_length() - FADING.bit_length())
        return cls(tuple(Weighted(ask, max(1, n >> halvings)) for n, ask in kept))

    def most_asked(self, percent: int) -> DeviceWorkload:
        """Returns a workload of the most frequent requests only: the shortest prefix of `asks` that
        covers at least `percent` of the total weight."""
        kept: list[Weighted] = []
        covered, wanted = 0, self.total * percent
        for entry in self.asks:
            if covered * 100 >= wanted:
                break
            kept.append(entry)
            covered += entry.weight
        return DeviceWorkload(tuple(kept))


def ask_of(requirements: Requirements) -> DeviceAsk:
    devices = asked(requirements.devices)
    amounts = requirements.requests
    return DeviceAsk(
        max(0, amounts.get("cpu", 0)),
        max(0, amounts.get("memory", 0)),
        devices[0] if devices else None,
    )


def _ranked(counts: dict[DeviceAsk, int]) -> list[tuple[int, DeviceAsk]]:
    """Returns (number of pods, request), the most frequent first."""
    return sorted(
        ((n, ask) for ask, n in counts.items() if n > 0),
        key=lambda entry: (-entry[0], _order(entry[1])),
    )


def _order(ask: DeviceAsk) -> tuple[object, ...]:
    device = ask.device
    named = () if device is None else (device.kind, device.count, device.milli, device.models)
    return (ask.cpu, ask.memory, len(named), named)


class DemandSeen(Value, frozen=True):
    """The persistent state of a `ClusterDemand`: counts since the beginning or the last halving,
    and the workload of the last step."""

    counts: tuple[Weighted, ...] = ()
    step: int = 0
    workload: DeviceWorkload = DeviceWorkload()


class ClusterDemand:
    """Counts the requests of one cluster and derives its typical workload from them. `workload`
    changes only in geometric steps; `ask` returns True at each of them."""

    def __init__(self, seen: DemandSeen | None = None) -> None:
        seen = seen or DemandSeen()
        self._counts: dict[DeviceAsk, int] = {entry.ask: entry.weight for entry in seen.counts}
        self._total = sum(self._counts.values())
        self._step = seen.step
        self.workload = seen.workload

    def ask(self, requirements: Requirements, replicas: int) -> bool:
        """Counts `replicas` replicas with the same requirements for the typical workload: the list
        of the most frequent requests, with weights. Returns True if a new workload was derived.
        This happens when the number of counted replicas has grown by at least an eighth since the
        last workload was derived.

        Two limits apply after each new workload, so that old and rare requests fade. All counts are
        halved until their sum is at most `FADING`. If there are more than `SORTS_MAX` different
        requests, only the most frequent `SORTS_MAX` / 2 are kept.

        Example: a workload was derived at 800 counted replicas; the next one follows at 900.
        """
        if replicas <= 0:
            return False
        ask = ask_of(requirements)
        self._counts[ask] = self._counts.get(ask, 0) + replicas
        self._total += replicas
        if self._total * STEP < self._step * (STEP + 1):
            return False
        self.workload = DeviceWorkload.counted(self._counts)
        while self._total > FADING:
            self._counted({ask: n >> 1 for ask, n in self._counts.items() if n > 1})
        if len(self._counts) > SORTS_MAX:
            self._counted({ask: n for n, ask in _ranked(self._counts)[: SORTS_MAX // 2]})
        self._step = self._total
        return True

    def _counted(self, counts: dict[DeviceAsk, int]) -> None:
        self._counts = counts
        self._total = sum(counts.values())

    def seen(self) -> DemandSeen:
        """Returns the state from which an equal `ClusterDemand` can be made."""
        counts = tuple(
            Weighted(ask, n)
            for ask, n in sorted(self._counts.items(), key=lambda entry: _order(entry[0]))
        )
        return DemandSeen(counts, self._step, self.workload)
