"""What other people's programs may rely on: the frozen samples.

A sample is a message as it once went over the wire, kept forever. `samples/FROZEN` lists the
sha256 of each; a change of an event is therefore a new version with a new sample, never an edit of
an old one. Add a line with `sha256sum <type>.json >> FROZEN` in that directory.
"""

from __future__ import annotations

import hashlib
import json
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from wharfinger.domain.value import Value, canonical
from wharfinger.events import codec, schema, streams, versions
from wharfinger.events.event_part import EventPart
from wharfinger.events.ledger_types import LEDGER_TYPES
from wharfinger.events.message_codec import PREFIX
from wharfinger.events.registry import BY_TYPE, EVENT_TYPES, LATEST
from wharfinger.events.upcasts import UPCASTS

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted(SAMPLES.glob("*.json"))
SCHEMAS = schema.json_schemas()


def message(path: Path) -> dict[str, object]:
    value = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(value, dict)
    return value


def type_of_file(path: Path) -> str:
    """`binding.requested.v1.shared-device.json` holds a `binding.requested.v1`."""
    match = re.match(r".+?\.v\d+(?=\.)", path.name)
    assert match, f"{path.name}: expected <type>.v<version>[.<case>].json"
    return PREFIX + match[0]


each_sample = pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
each_type = pytest.mark.parametrize("name", sorted(SCHEMAS))


@each_type
def test_every_event_type_has_a_sample(name: str) -> None:
    assert name in {type_of_file(path) for path in FILES}, (
        f"{name}: no tests/contract/samples/{name}.json"
    )


@each_sample
def test_every_sample_is_of_a_type_that_still_exists(path: Path) -> None:
    assert type_of_file(path) in BY_TYPE, (
        "an event type is never removed: old messages must decode for ever"
    )
    assert message(path)["type"] == type_of_file(path)


def test_frozen_samples_never_change() -> None:
    listed = {
        name: digest
        for digest, name in map(str.split, (SAMPLES / "FROZEN").read_text().splitlines())
    }
    actual = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FILES}
    assert actual == listed, "a changed event is a new version with a sample of its own"


@each_sample
def test_a_sample_decodes_to_the_newest_version_of_its_event(path: Path) -> None:
    event = codec.decode(path.read_bytes())
    assert event.type == type_of_file(path)
    assert type(event.data) in LATEST
    assert type(event.data) not in UPCASTS


@each_sample
def test_a_sample_is_canonical(path: Path) -> None:
    """Reading and writing it loses nothing and adds nothing, so the class covers all that is on the
    wire."""
    sample = message(path)["data"]
    data = msgspec.convert(sample, BY_TYPE[type_of_file(path)].data)
    assert canonical(data).decode() == json.dumps(sample, separators=(",", ":"), ensure_ascii=False)


@each_sample
def test_encoding_writes_the_whole_envelope_again(path: Path) -> None:
    event = codec.decode(path.read_bytes())
    if LATEST[type(event.data)].type != event.type:
        pytest.skip("an older version is read, never written")
    frame = message(path)
    again = codec.encode(
        event.data,
        id=event.id,
        source=event.source,
        subject=event.subject,
        key=str(frame.get("partitionkey", "")),
        time=str(frame.get("time", "")),
        causation=event.causation,
        correlation=event.correlation,
        incarnation=str(frame.get("incarnation", "")),
    )
    assert list(json.loads(again).items()) == list(frame.items())


def validator(name: str) -> typing.Any:
    import jsonschema  # seconds: it makes a parser of each format

    return jsonschema.Draft202012Validator(SCHEMAS[name])


@each_sample
def test_a_sample_is_valid_under_its_exported_schema(path: Path) -> None:
    validator(type_of_file(path)).validate(message(path))


@each_type
def test_an_exported_schema_is_a_schema(name: str) -> None:
    validator(name).check_schema(SCHEMAS[name])


@each_sample
def test_the_schema_refuses_what_the_codec_refuses(path: Path) -> None:
    """A schema that accepts everything would pass the test above."""
    for broken in mutilations(message(path)):
        assert not validator(type_of_file(path)).is_valid(broken)
        with pytest.raises(codec.UndecodableError):
            codec.decode(json.dumps(broken).encode())


def mutilations(sample: dict[str, object]) -> Iterator[dict[str, object]]:
    data = sample["data"]
    assert isinstance(data, dict)
    for name in ("specversion", "id", "source", "type"):
        yield {key: value for key, value in sample.items() if key != name}
    yield sample | {"id": ""}
    yield sample | {"specversion": "0.3"}
    yield sample | {"data": None}
    for name in BY_TYPE[str(sample["type"])].data.__struct_fields__:
        if name in data:
            yield sample | {"data": data | {name: 0.5}}


def test_samples_leave_no_field_untold() -> None:
    """Every field of every class that an event can hold is set in some sample, so a renamed field
    cannot go unseen."""
    told = {
        (type(value), name)
        for path in FILES
        for value in values(decoded(path))
        for name in set_fields(value)
    }
    missing = {
        f"{cls.__name__}.{name}"
        for event_type in EVENT_TYPES
        for cls in classes(event_type.data, set())
        for name in cls.__struct_fields__
        if (cls, name) not in told
    }
    assert not missing


def decoded(path: Path) -> Value:
    return msgspec.convert(message(path)["data"], BY_TYPE[type_of_file(path)].data)


def values(value: object) -> Iterator[Value]:
    match value:
        case Value():
            yield value
            for name in value.__struct_fields__:
                yield from values(getattr(value, name))
        case tuple():
            for item in value:
                yield from values(item)
        case dict():
            for item in value.values():
                yield from values(item)


def set_fields(value: Value) -> list[str]:
    """Names that the canonical form of the value spells out; one that is written as an array spells
    out all of them."""
    written = json.loads(canonical(value))
    return list(value.__struct_fields__ if isinstance(written, list) else written)


def classes(annotation: object, seen: set[type[Value]]) -> set[type[Value]]:
    """All value classes reachable from an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Value):
        if annotation not in seen:
            seen.add(annotation)
            for field in typing.get_type_hints(annotation).values():
                classes(field, seen)
    elif typing.get_origin(annotation) is not None or isinstance(annotation, types.UnionType):
        for argument in typing.get_args(annotation):
            classes(argument, seen)
    return seen


def test_the_asyncapi_document_tells_every_topic_and_every_event_on_one(tmp_path: Path) -> None:
    written = schema.write(tmp_path)
    document = json.loads((tmp_path / "asyncapi.json").read_text())
    assert document["asyncapi"] == "3.0.0"
    assert {channel["address"] for channel in document["channels"].values()} == {
        t.name for t in streams.TOPICS
    }
    told = {name for channel in document["channels"].values() for name in channel["messages"]}
    assert told == {e.type for e in EVENT_TYPES if e.topic is not None or e.data is EventPart}
    assert len(written) == 1 + len(EVENT_TYPES)
    for reference in references(document):
        assert resolves(reference, document, tmp_path), reference


def test_a_topic_names_the_event_that_ends_its_keys() -> None:
    ends = {(LATEST[kind].topic, LATEST[kind].type) for kind in typing.get_args(versions.ENDINGS)}
    assert {(topic, topic.ended_by) for topic in streams.TOPICS if topic.ended_by} == ends


def test_what_comes_from_the_ledger_is_among_all_types() -> None:
    """And it is all that stands on the topics that the publisher writes of its own."""
    own = {e for e in EVENT_TYPES if e.topic is not None and "publisher" in e.topic.written_by}
    assert own <= set(LEDGER_TYPES) <= set(EVENT_TYPES)


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def resolves(reference: str, document: dict[str, object], directory: Path) -> bool:
    file, _, pointer = reference.partition("#")
    if file:
        return (directory / file).is_file()
    node: object = document
    for part in pointer.strip("/").split("/"):
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


def test_retention_and_compaction_are_told_per_channel() -> None:
    channels = schema.asyncapi()["channels"]
    assert isinstance(channels, dict)
    decisions = channels[schema.channel_name(streams.DECISIONS)]["bindings"]["kafka"][
        "topicConfiguration"
    ]
    bindings = channels[schema.channel_name(streams.BINDINGS)]["bindings"]["kafka"][
        "topicConfiguration"
    ]
    assert decisions == {"cleanup.policy": ["delete"], "retention.ms": 30 * streams.DAY_MS}
    assert bindings == {"cleanup.policy": ["compact"]}


def test_the_topic_table_in_the_docs_is_the_one_in_the_code() -> None:
    docs = Path(__file__).parents[2] / "docs" / "topics.md"
    assert docs.read_text(encoding="utf-8") == schema.topics_markdown(), "run `make docs`"
