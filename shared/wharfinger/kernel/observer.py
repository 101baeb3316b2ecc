"""The interface of a service without a stream: annotator, estimator, descheduler.

An observer folds facts and publishes facts or proposals; it decides nothing. The ledger records its
publications when a stage folds them, so an observer needs no history of its own: after a restart it
folds its facts from the beginning and loads the current assignments from the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Micros

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Publication:
    """One message to send to the topic of its type.

    `key`: the record's key (compaction keeps the latest of it); `partition_key`: what chooses the
    partition (the cluster, or the target stream). `id` None: a new fact each time, the shell makes
    an id; a proposal brings its own, derived from what it proposes, so that proposing it again is
    known.
    """

    data: Value
    subject: str
    key: str
    partition_key: str
    id: UUID | None = None
    cause: UUID | None = None


class Failures:
    """What an observer could not work out for one cluster, while it goes on with the others. Its
    loop takes and reports them."""

    def __init__(self) -> None:
        self._found: list[tuple[str, Exception]] = []

    @contextmanager
    def of(self, cluster: str) -> Iterator[None]:
        """An error within it is a failure of this cluster only."""
        try:
            yield
        except Exception as error:  # any bug that the facts of this cluster meet
            self._found.append((cluster, error))

    def take(self) -> list[tuple[str, Exception]]:
        """Clusters and errors since it was last called."""
        found, self._found = self._found, []
        return found


class Observer(Protocol[S]):
    @property
    def failures(self) -> Failures: ...

    def initial(self) -> S: ...

    def fold(self, state: S, event: Event[Value], at: Micros) -> None: ...

    def publish(self, state: S, at: Micros) -> list[Publication]:
        """What is new since it was last asked; asking twice without new facts gives nothing the
        second time."""
        ...

    def next_due(self, state: S) -> Micros | None:
        """When to ask again though no fact has come."""
        ...
