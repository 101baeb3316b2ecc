"""What a process runs: services that start, say whether they are ready and how far behind, and
stop.

`ServiceContext` is all that a service is given; nothing in a service reads the environment, opens a
database or names a topic by itself. Next: `process`, which runs one or several of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from wharfinger.events.streams import BINDINGS, CLUSTER_STATE
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.incarnations import FIRST
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.decode_cache import Decoded
from wharfinger.runtime.ledger import Ledger, WentBack, wall_clock
from wharfinger.runtime.send_signals import SendSignals
from wharfinger.runtime.settings import Settings
from wharfinger.runtime.topics import partition_for, shard_for


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """`incarnations`: topic -> how often it was created again. `partitions`: topic -> its partition
    count. `prefix` stands before every topic's name and group on the broker, so that several planes
    may share one. `went_back`: every time the ledger did, as it was when the process started.
    `stages_idle_s`: of each stage of this process, for how long it has been idle.
    `stages_in_burst`: of each, whether it has a burst.
    """

    settings: Settings
    backend: Backend
    ledger: Ledger
    incarnations: Mapping[str, int]
    partitions: Mapping[str, int]
    prefix: str = ""
    went_back: tuple[WentBack, ...] = ()
    clock: Callable[[], Micros] = field(default=wall_clock)
    decoded: Decoded = field(default_factory=Decoded)
    signals: SendSignals = field(default_factory=SendSignals)
    stages_idle_s: list[Callable[[], float]] = field(default_factory=list)
    stages_in_burst: list[Callable[[], bool]] = field(default_factory=list)

    def idle_s(self) -> float:
        """For how long no stage of this process has had anything to do."""
        return min((idle_s() for idle_s in self.stages_idle_s), default=0.0)

    def in_burst(self) -> bool:
        """Whether a stage of this process has a burst."""
        return any(in_burst() for in_burst in self.stages_in_burst)

    def shard_of(self, binding: str) -> int:
        """The fleet shard that owns a binding."""
        return shard_for(binding, self.partitions[BINDINGS.name])

    def cluster_partition(self, cluster: str) -> int:
        """The partition of every cluster-keyed topic on which this cluster lies."""
        return partition_for(cluster, self.partitions[CLUSTER_STATE.name])

    def wire(self, topic: str) -> str:
        """A topic's name on the broker."""
        return self.prefix + topic

    def unwire(self, name: str) -> str:
        """The name in the stream table of a topic on the broker."""
        return name.removeprefix(self.prefix)

    @property
    def ledger_incarnation(self) -> int:
        """The number that is part of the ids of the decisions made now."""
        return self.went_back[-1].data.incarnation if self.went_back else FIRST

    @property
    def life(self) -> int:
        """The incarnation of the topics taken together: it grows when any of them was made
        again."""
        return max(self.incarnations.values(), default=0)

    def group(self, service: str) -> str:
        """The consumer group of a service: a new one for every life of the broker, whose offsets
        mean nothing now."""
        return f"{self.prefix}wharfinger.{service}.{self.life}"


class Service(Protocol):
    """`failed()` gives the reason of a fatal error: the process then ends and its supervisor starts
    it again. `ready()` is false while the service catches up, and when `stalled_s()` has passed
    `Settings.stalled_after_s`."""

    name: str

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def ready(self) -> bool: ...

    def lag(self) -> int: ...

    def failed(self) -> str: ...

    def stalled_s(self) -> float: ...

    def oldest_s(self) -> float: ...


Builder = Callable[[ServiceContext], Service]
