"""Which sources are believed on the topics that others than the plane may write.

`WHARFINGER_BELIEVED_SOURCES` lists pairs of a source and what it may send:

    /cd/=wharfinger.bindings,/cd/=wharfinger.policies,urn:cmdb=io.wharfinger.cluster.observed.v1

A source that ends in `/` stands for all that begin with it; a topic stands for all event types
that belong on it. Without a list every source is believed, with `none` those of the plane alone.
These are believed always. A source is what the sender claims: who may write to a topic at all is
for the broker's rights to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.domain.text import printable
from wharfinger.domain.value import Value
from wharfinger.events.envelope import OUR_SOURCES, Event, is_ours
from wharfinger.events.event_part import EventPart
from wharfinger.events.registry import EVENT_TYPES
from wharfinger.events.streams import TOPICS

NO_OTHERS = "none"
SHOWN_MAX = 5
SOURCE_SHOWN_MAX = 100

WRITTEN_BY_OTHERS = tuple(
    topic for topic in TOPICS if topic.written_by != ("publisher",) and topic.delivery != "people"
)
"""The topics that a source may be listed for."""


@dataclass(frozen=True, slots=True)
class BelievedSources:
    """`types`: source, or its beginning -> the full types of events that it may send. `listed`:
    whether there is a list; without one all is believed."""

    listed: bool = False
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> BelievedSources:
        """ValueError: one line that says what was expected."""
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        if entries == [NO_OTHERS]:
            return cls(True)
        types: dict[str, frozenset[str]] = {}
        for entry in entries:
            source, _, sent = entry.rpartition("=")
            _check_source(entry, source)
            types[source] = types.get(source, frozenset()) | _types(sent)
        return cls(bool(entries), types)

    def refusal(self, topic: str, event: Event[Value]) -> str:
        """Why an event that was read from `topic` is not believed, in one line; empty: it is. Of a
        part of an event only the source is looked at: its type is that of the whole."""
        source, type_ = event.source, event.type
        if not self.listed or is_ours(source):
            return ""
        part = isinstance(event.data, EventPart)
        for listed, types in self.types.items():
            if (part or type_ in types) and _covers(listed, source):
                return ""
        known = [s for s, types in self.types.items() if part or type_ in types]
        more = [f"and {len(known) - SHOWN_MAX} more"] if len(known) > SHOWN_MAX else []
        expected = ", ".join([f"{OUR_SOURCES}...", *known[:SHOWN_MAX], *more])
        shown = printable(source, SOURCE_SHOWN_MAX)
        return f"{topic}: {type_} from the source {shown}; expected one of {expected}"


ALL_BELIEVED = BelievedSources()


def _covers(listed: str, source: str) -> bool:
    return source.startswith(listed) if listed.endswith("/") else source == listed


def _check_source(entry: str, source: str) -> None:
    if not source:
        raise ValueError(
            f"expected SOURCE=TOPIC or SOURCE=TYPE, or {NO_OTHERS} alone, got {entry!r}"
        )
    if not source.isprintable() or any(c.isspace() or c == "*" for c in source):
        raise ValueError(f"expected a source, or its beginning up to a '/', got {source!r}")
    if not source.strip("/"):
        raise ValueError(f"expected more of a source than {source!r}, which all may begin with")
    if is_ours(source):
        raise ValueError(f"expected a source of others, got {source!r}: the plane's are believed")


def _types(name: str) -> frozenset[str]:
    """The event types that a topic or the name of one stands for."""
    found = frozenset(
        e.type
        for e in EVENT_TYPES
        if e.topic in WRITTEN_BY_OTHERS and name in (e.type, e.topic.name)
    )
    if not found:
        topics = ", ".join(topic.name for topic in WRITTEN_BY_OTHERS)
        raise ValueError(f"expected an event type, or one of the topics {topics}, got {name!r}")
    return found
