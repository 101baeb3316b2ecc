"""The contract as documents: JSON Schemas of every message and one AsyncAPI description of every
topic.

Nothing here is written down twice: schemas come from the event classes, channels from the topic
table, so a document can only disagree with the code by being old. Older versions of an event keep
their schema as they keep their class. `wharfinger schema export` calls `write`; the contract tests
validate the frozen samples against what it writes.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import msgspec

from wharfinger.domain.value import Value
from wharfinger.events.codec import SCHEMA_ROOT
from wharfinger.events.envelope import MEDIA_TYPE, SPECVERSION, Frame
from wharfinger.events.event_part import EventPart
from wharfinger.events.message_codec import EventType
from wharfinger.events.registry import EVENT_TYPES
from wharfinger.events.streams import (
    BATCH_BYTES_MAX,
    DAY_MS,
    FOLLOWED,
    RECORD_BYTES_MAX,
    TOGETHER,
    TOPICS,
    TOPICS_INCARNATION,
    Topic,
)

Document = dict[str, object]

GUARANTEES = f"""\
## What a subscriber can rely on

- Nothing that the ledger has is missing, and of one stream and key the records come in order of
  `sequence`.
- There is one writer at a time. A publisher that was paused while another took over is refused by
  the broker in every partition that its successor has written to, so nothing old comes after
  something newer, on compacted topics either.
- After a crash of the writer a run of records may come again, with the same ids, in the same order
  and up to its end. Drop what is not beyond the `sequence` that you have of its `source`; the last
  value of a compacted key is right in any case. On `wharfinger.decisions` the publisher looks for
  what stands there before it sends, so that each `id` stands once; it can stand twice only where a
  paused publisher wakes up in the moment in which its successor begins.
- A record that the broker refuses for good is a dead letter. On `wharfinger.assignments` and
  `wharfinger.outcomes` its key gets nothing more of that stream until the broker takes it;
  elsewhere the others go on, and the gap shows in `sequence`.
- A record of the topics that the intake writes may carry the header `{FOLLOWED}`. It was
  accepted together with others, and at least one of them comes later in the same partition.
- The last one in its partition carries `{TOGETHER}` instead, if others of them are in
  other partitions or topics: a name of the acceptance and all its places (`topic/partition`), with
  spaces between.
- Every record of the publisher has the header `{TOPICS_INCARNATION}`: a number that
  grows when any topic begins again. When someone deletes and makes a topic, the publisher may
  write newer records to it for some seconds, before it notices and fills the topic. These have a
  lower number than the records behind them, and come again there, in order, with the same ids."""

SIZES = f"""\
## Sizes

Topics are made with `max.message.bytes` {BATCH_BYTES_MAX:,}, the default of Kafka;
`wharfinger doctor` names a topic with less. No message is larger than {RECORD_BYTES_MAX:,} bytes.
An event that would be comes as several records of the type `io.wharfinger.event.part.v1`, in order,
on the partition of the event and with its `source`, `subject` and `sequence`:

- Join the decoded `payload` of parts 1 to `parts` of the same `event`; the result is the event's
  message, `sha256` is its hash.
- A writer that stopped in the middle starts again with part 1: forget what you had of that event
  then. Pass over a part whose predecessor you have not seen.
- On a compacted topic part 1 has the key of the event, part k the key followed by `#part-k`.
  Whatever comes later under the event's own key replaces all of it.
- Other records may stand between two parts. Take the event where its last part stands."""

INCARNATIONS = """\
## Order, and a ledger that goes back

`sequence` numbers the decisions of the stream that `source` names, without gaps. A database that is
restored from a backup, or taken over by a standby that lagged, has lost decisions that were
published. The ledger then begins its next incarnation. It is part of the ids of all decisions
since, and stands in the attribute `incarnation`; without it a decision is of the first.

- Order the decisions of a stream by `incarnation`, then by `sequence`.
- `io.wharfinger.ledger.went-back.v1` says what holds: forget decisions of an earlier incarnation
  whose `sequence` is above `kept` of their stream (0 where the stream is not named). `published`
  says how far they had been published.
- `io.wharfinger.clock.rebased.v1` says that a clock was wrong: the times of decisions made under it
  are ahead, from `since_us` of their stream up to the round that it names. Order by `sequence`,
  never by time."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
ASYNCAPI_VERSION = "3.0.0"
CONTRACT_VERSION = "1.0.0"
"""Of the AsyncAPI document: minor when a type or version is added. None is ever taken away, so the
major stays."""

REQUIRED = ("specversion", "id", "source", "type", "data")


def json_schemas() -> dict[str, Document]:
    """Full type name -> JSON Schema (2020-12) of the whole message, envelope included."""
    return {event_type.type: _message_schema(event_type) for event_type in EVENT_TYPES}


def asyncapi() -> Document:
    """The AsyncAPI 3.0 document of the plane. Payloads refer to `schemas/<type>.json` beside it, as
    `write` lays them out."""
    return {
        "asyncapi": ASYNCAPI_VERSION,
        "info": {
            "title": "Wharfinger",
            "version": CONTRACT_VERSION,
            "description": (
                "Facts and requests come in as events, placement decisions leave as events. "
                "`wharfinger.decisions` is the contract with the world; the other topics connect "
                "the plane's own services."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": MEDIA_TYPE,
        "channels": {channel_name(topic): _channel(topic) for topic in TOPICS},
        "operations": {
            name: operation for topic in TOPICS for name, operation in _operations(topic).items()
        },
        "components": {"messages": {e.type: _message(e) for e in EVENT_TYPES if _is_sent(e)}},
    }


def topics_markdown() -> str:
    """The topic table for people, `docs/topics.md`."""
    lines = [
        "# Topics",
        "",
        (
            "Generated from `wharfinger.events.streams` and `wharfinger.events.registry` by `make "
            "docs`; a test keeps it true."
        ),
        "",
        "| topic | key | partition by | delivery | written by | retention | holds |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        (
            f"| `{t.name}` | {t.key} | {t.partition_by} | {t.delivery} | "
            f"{', '.join(t.written_by)} | "
            f"{_retention(t)} | {t.purpose} |"
        )
        for t in TOPICS
    ]
    lines += ["", *GUARANTEES.splitlines(), "", *SIZES.splitlines(), "", *INCARNATIONS.splitlines()]
    lines += ["", "## Event types", "", "| type | topic | what it says |", "|---|---|---|"]
    lines += [f"| `{e.type}` | {_where(e)} | {_summary(e.data)} |" for e in EVENT_TYPES]
    return "\n".join(lines) + "\n"


def write(directory: Path) -> list[Path]:
    """Write `asyncapi.json` and `schemas/<type>.json` into `directory` (made if missing). The paths
    written, in order."""
    schemas = directory / "schemas"
    schemas.mkdir(parents=True, exist_ok=True)
    documents = {directory / "asyncapi.json": asyncapi()}
    documents |= {schemas / f"{name}.json": schema for name, schema in json_schemas().items()}
    for path, document in documents.items():
        path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return list(documents)


def channel_name(topic: Topic) -> str:
    """`wharfinger.cluster-state` is the channel `clusterState`: channel names may not hold dots or
    dashes everywhere."""
    first, *rest = topic.name.split(".", 1)[1].split("-")
    return first + "".join(part.capitalize() for part in rest)


def _message_schema(event_type: EventType) -> Document:
    """The envelope narrowed to one type and its data."""
    (data,), components = msgspec.json.schema_components(
        (event_type.data,), ref_template="#/$defs/{name}"
    )
    for component in components.values():
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    # Every attribute of the frame but `data` is text; msgspec cannot describe the frame itself,
    # whose data is raw.
    properties: Document = {
        name: {"type": "string"} for name in Frame.__struct_fields__ if name != "data"
    }
    for name in ("id", "source"):
        properties[name] = {"type": "string", "minLength": 1}
    properties["specversion"] = {"const": SPECVERSION}
    properties["type"] = {"const": event_type.type}
    properties["data"] = data
    return {
        "$schema": DIALECT,
        "$id": SCHEMA_ROOT + event_type.type,
        "title": event_type.type,
        "description": _summary(event_type.data),
        "type": "object",
        "required": list(REQUIRED),
        "properties": properties,
        "$defs": components,
    }


def _message(event_type: EventType) -> Document:
    return {
        "name": event_type.type,
        "title": event_type.data.__name__,
        "summary": _summary(event_type.data),
        "contentType": MEDIA_TYPE,
        "payload": {
            "schemaFormat": SCHEMA_FORMAT,
            "schema": {"$ref": f"schemas/{event_type.type}.json"},
        },
        "correlationId": {"location": "$message.payload#/correlationid"},
        "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": "0.5.0"}},
    }


def _channel(topic: Topic) -> Document:
    configuration: Document = (
        {"cleanup.policy": ["compact"]}
        if topic.retention_ms is None
        else {"cleanup.policy": ["delete"], "retention.ms": topic.retention_ms}
    )
    return {
        "address": topic.name,
        "title": topic.name,
        "description": _channel_text(topic),
        "messages": {
            e.type: {"$ref": f"#/components/messages/{_pointer(e.type)}"} for e in _types_of(topic)
        },
        "bindings": {
            "kafka": {
                "topic": topic.name,
                "topicConfiguration": configuration,
                "bindingVersion": "0.5.0",
            }
        },
        "x-key": topic.key,
        "x-partition-by": str(topic.partition_by),
        "x-delivery": topic.delivery,
        "x-written-by": list(topic.written_by),
    }


def _channel_text(topic: Topic) -> str:
    text = f"{topic.purpose[:1].upper()}{topic.purpose[1:]}. Record key: {topic.key}."
    if topic.retention_ms is None:
        return (
            f"{text} Each message is the whole state of its key; a null record means that the "
            "key is to be forgotten."
        )
    return text


def _operations(topic: Topic) -> dict[str, Document]:
    """Seen from the plane: it sends on every topic, and receives what is not meant for the world or
    for people."""
    name = channel_name(topic)
    channel = {"$ref": f"#/channels/{name}"}
    title = name[:1].upper() + name[1:]
    operations: dict[str, Document] = {
        f"send{title}": {
            "action": "send",
            "channel": channel,
            "summary": f"Written by {', '.join(topic.written_by)}.",
        }
    }
    if topic.delivery in ("broadcast", "partitioned"):
        readers = (
            "every process"
            if topic.delivery == "broadcast"
            else "one member of each service's group"
        )
        operations[f"receive{title}"] = {
            "action": "receive",
            "channel": channel,
            "summary": f"Read by {readers}.",
        }
    return operations


def _types_of(topic: Topic) -> list[EventType]:
    return [e for e in EVENT_TYPES if e.topic is topic or e.data is EventPart]


def _is_sent(event_type: EventType) -> bool:
    """A part of an event is on the topic of that event, whichever that is."""
    return event_type.topic is not None or event_type.data is EventPart


def _where(event_type: EventType) -> str:
    if event_type.topic is not None:
        return f"`{event_type.topic.name}`"
    return "any" if _is_sent(event_type) else "none: made and recorded inside a stream"


def _pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _retention(topic: Topic) -> str:
    return "compacted" if topic.retention_ms is None else f"{topic.retention_ms // DAY_MS} d"


def _summary(data: type[Value]) -> str:
    """The first paragraph of the docstring on one line; without one, the name of the class in
    words."""
    text = inspect.cleandoc(_with_fields(data).__doc__ or "").split("\n\n")[0]
    return " ".join(text.split()) or _words(data.__name__)


def _with_fields(data: type[Value]) -> type[Value]:
    """The class whose docstring is about the fields: a kind of decision may inherit all of them."""
    for base in data.__bases__:
        if issubclass(base, Value) and base.__struct_fields__ == data.__struct_fields__ != ():
            return _with_fields(base)
    return data


def _words(name: str) -> str:
    """`BindingRequested` -> `Binding requested.`"""
    words = "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
    return f"{words[:1].upper()}{words[1:]}."
