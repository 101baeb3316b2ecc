"""Decisions as CloudEvents: one event, a batch of them, and which are wanted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PREFIX = "io.wharfinger."


@dataclass(frozen=True, slots=True)
class Event:
    """`position`: in the feed, the cursor. `source`: `/wharfinger/<stream>`, in which `sequence`
    counts without gaps. `type`: with prefix and version. `subject`: what it is about.
    `members`: the whole CloudEvent."""

    position: int
    id: str
    type: str
    source: str
    subject: str
    time: str
    sequence: int | None
    members: Mapping[str, Any]

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Event:
        """ValueError: not an event of the feed."""
        try:
            return cls(
                int(members["position"]),
                members["id"],
                members["type"],
                members["source"],
                members.get("subject", ""),
                members.get("time", ""),
                int(members["sequence"]) if members.get("sequence") else None,
                members,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"expected an event with a position ({error})") from error

    @property
    def data(self) -> Any:
        return self.members.get("data")

    @property
    def short_type(self) -> str:
        """`schedule.decided` of `io.wharfinger.schedule.decided.v1`."""
        return self.type.removeprefix(PREFIX).rpartition(".v")[0]

    @property
    def stream(self) -> str:
        return self.source.removeprefix("/wharfinger/")


@dataclass(frozen=True, slots=True)
class EventBatch:
    """`through`: everything up to this position was looked at."""

    events: tuple[Event, ...]
    through: int


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are wanted: of each any of, empty means all. `types`: short ones or whole.
    `facts`: what was accepted, too."""

    types: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    bindings: Sequence[str] = ()
    clusters: Sequence[str] = ()
    streams: Sequence[str] = ()
    outcomes: Sequence[str] = ()
    facts: bool = False

    def parameters(self) -> dict[str, Any]:
        """As `api.events` takes them."""
        return {
            "type": self.types,
            "namespace": self.namespaces,
            "binding": self.bindings,
            "cluster": self.clusters,
            "stream": self.streams,
            "outcome": self.outcomes,
            "facts": self.facts,
        }

    def digest(self) -> str:
        """The same for any order of the same values. 16 hex digits."""
        plain = {
            name: sorted(value) if isinstance(value, list | tuple) else value
            for name, value in self.parameters().items()
        }
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]

    def takes(self, event: Event) -> bool:
        """Of a record from Kafka. ValueError: the filter asks for what records do not say."""
        if self.clusters or self.outcomes or self.facts:
            raise ValueError("expected types, namespaces, bindings or streams: Kafka has no others")
        return (
            (not self.types or event.type in self.types or event.short_type in self.types)
            and (not self.namespaces or event.subject.partition("/")[0] in self.namespaces)
            and (not self.bindings or event.subject in self.bindings)
            and (not self.streams or event.stream in self.streams)
        )
