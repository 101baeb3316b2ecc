"""No record is larger than its limit, and readers end in the same state as if there had been
none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feeds import placed
from tests.hunting import examples

from wharfinger.domain.binding import Component, TargetCluster
from wharfinger.domain.node import Node
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.cluster_state import NODES_BYTES_MAX, buckets_for
from wharfinger.events.codec import UndecodableError, decode, decode_data, encode, frame_of
from wharfinger.events.decisions import (
    BindingReleased,
    Explanation,
    NodeShare,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ScheduleDecided,
)
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.event_part import EventPart
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.parts import STALE_AFTER, Assembler, divided, least_limit
from wharfinger.events.registry import type_of
from wharfinger.events.streams import ASSIGNMENTS, DECISIONS, OUTCOMES, TOPICS
from wharfinger.runtime.ledger import LedgerRow
from wharfinger.runtime.sending import OutgoingRecord
from wharfinger.runtime.topics import partition_for
from wharfinger.stages.estimator.observer import EstimatorObserver, EstimatorState
from wharfinger.stages.node_buckets import NodeBuckets
from wharfinger_publisher.records import RecordMaker

LIMIT_MIN = 1_500
"""Above what any frame here takes."""

clusters = st.sampled_from(["oslo", "bergen", "tromso"])
bindings = st.sampled_from(["shop/web", "shop/db", "bank/ledger"])
sizes = st.integers(0, 40)


def some_shares(count: int) -> tuple[NodeShare, ...]:
    return tuple(NodeShare(f"node-{i:04}.{'x' * count}", (i,)) for i in range(count))


def asks(count: int) -> Requirements:
    return Requirements({f"example.com/resource-{i}": i + 1 for i in range(count)})


def some_components(count: int) -> tuple[Component, ...]:
    return tuple(Component(f"c{i}", i + 1, asks(i)) for i in range(count // 3))


def some_targets(count: int) -> tuple[TargetCluster, ...]:
    return tuple(
        TargetCluster(name, count + 1) for name in ("bergen", "oslo", "tromso")[: count % 4]
    )


@st.composite
def decided(draw: st.DrawFn) -> Value:
    kind, cluster, binding = draw(st.integers(0, 4)), draw(clusters), draw(bindings)
    one, two = draw(sizes), draw(sizes)
    match kind:
        case 0:
            return ScheduleDecided(
                binding,
                "u",
                "FirstSchedule",
                3,
                some_targets(one),
                some_targets(two),
                requirements=asks(two),
                components=some_components(one),
                explanation=Explanation(note="n" * one),
            )
        case 1:
            return BindingReleased(binding, "u", some_targets(one))
        case 2:
            return ReplicasPlaced(cluster, binding, "a", some_shares(one), asks(two))
        case 3:
            return ReplicasReleased(cluster, binding, "a", some_shares(one), two)
        case _:
            return ReplicasRefused(cluster, binding, "a", one, "k" * two, "Volumes")


@st.composite
def histories(draw: st.DrawFn) -> list[LedgerRow]:
    """What fleet/0 and three cluster streams decided, each stream's in order of seq."""
    seqs: dict[str, int] = {}
    rows = []
    for data in draw(st.lists(decided(), min_size=1, max_size=8)):
        fleet = isinstance(data, ScheduleDecided | BindingReleased)
        stream = "fleet/0" if fleet else f"cluster/{data.cluster}"  # type: ignore[attr-defined]
        seq = seqs[stream] = seqs.get(stream, 0) + 1
        body = canonical(data)
        subject = data.binding  # type: ignore[attr-defined]
        rows.append(a_row(stream, seq, type_of(data), subject, body))
    return rows


def a_row(stream: str, seq: int, type: str, subject: str, body: bytes) -> LedgerRow:
    id = derived_id(stream, seq)
    return LedgerRow(
        stream=stream,
        seq=seq,
        round=seq,
        at=seq * 1000,
        id=id,
        type=type,
        subject=subject,
        outcome="",
        cause=None,
        body=body,
        accepted=None,
    )


def a_maker(limit: int) -> RecordMaker:
    return RecordMaker({t.name: 2 for t in TOPICS}, partition_for, {t.name: limit for t in TOPICS})


def read(records: Iterable[OutgoingRecord]) -> list[tuple[str, Event[Value]]]:
    """As a reader has them: whole events, by topic, in order."""
    parts, found = Assembler(), []
    for offset, record in enumerate(records):
        event = decode(record.value or b"")
        if isinstance(event.data, EventPart):
            joined = parts.add(record.place, offset, event, event.data, None)
            if joined is None:
                continue
            event = decode(joined.body)
        found.append((record.topic, event))
    return found


def estimated(
    events: Iterable[tuple[str, Event[Value]]],
) -> dict[tuple[str, str], tuple[Mapping[str, object], Mapping[str, int]]]:
    """What an observer makes of each stream's assignments to each cluster: what is held on which
    node, and how far it has read. Each stream by itself, since nothing says in which order the
    envelopes of two streams come."""
    observer = EstimatorObserver()
    states: dict[str, EstimatorState] = {}
    for _, event in events:
        if isinstance(event.data, AssignmentsDecided):
            observer.fold(states.setdefault(event.data.stream, observer.initial()), event, 1)
    return {
        (stream, name): (
            {
                b: (h.desired, h.uid, {o: r.node for o, r in h.placed.items()})
                for b, h in c.book.held.items()
            },
            c.accounted_through,
        )
        for stream, state in states.items()
        for name, c in state.clusters.items()
    }


def answers(events: Iterable[tuple[str, Event[Value]]]) -> dict[int, list[object]]:
    """Outcome items as fleet shards take them: only what is beyond the seq that the shard has of
    the stream."""
    seen: dict[tuple[int, str], int] = {}
    taken: dict[int, list[object]] = {}
    for _, event in events:
        if isinstance(event.data, OutcomesDecided):
            of = event.data.shard, event.data.stream
            fresh = [item for item in event.data.items if item.seq > seen.get(of, 0)]
            taken.setdefault(event.data.shard, []).extend(
                (event.data.cluster, item) for item in fresh
            )
            seen[of] = max(seen.get(of, 0), event.data.through)
    return {shard: sorted(items, key=repr) for shard, items in taken.items()}


@settings(deadline=None, max_examples=examples(40))
@given(histories(), st.integers(LIMIT_MIN, 20_000))
def test_no_record_exceeds_its_limit_and_the_state_is_the_same(
    rows: list[LedgerRow], limit: int
) -> None:
    whole, cut = (a_maker(size).records(rows, placed(rows)) for size in (10**9, limit))
    assert max(record.size for record in cut) <= limit
    assert estimated(read(cut)) == estimated(read(whole))
    assert answers(read(cut)) == answers(read(whole))
    published = {e.id: e.body for topic, e in read(whole) if topic == DECISIONS.name}
    assert {e.id: e.body for topic, e in read(cut) if topic == DECISIONS.name} == published
    assert len(published) == len(rows)
    ids = [record.id for record in cut]
    assert len(set(ids)) == len(ids)


@settings(deadline=None, max_examples=examples(40))
@given(
    histories(), st.integers(LIMIT_MIN, 20_000), st.lists(st.integers(0, 4), min_size=1, max_size=6)
)
def test_cut_into_any_turns_a_reader_takes_every_item_once(
    rows: list[LedgerRow], limit: int, cuts: list[int]
) -> None:
    """A publisher reads rows in batches of any size; an envelope never ends in the middle of a
    decision."""
    maker, records, rest = a_maker(limit), [], list(rows)
    for size in cuts:
        records += maker.records(rest[:size], placed(rest))
        rest = rest[size:]
    records += maker.records(rest, placed(rest))
    whole = a_maker(10**9).records(rows, placed(rows))
    assert estimated(read(records)) == estimated(read(whole))
    assert answers(read(records)) == answers(read(whole))


def test_a_decision_with_many_components_is_in_one_message_a_cluster() -> None:
    """130 components for one cluster: the items of one seq may not be in two messages, or the
    second is taken for a repetition."""
    many = tuple(Component(f"c{i:03}", 1, Requirements({"cpu": 1000 + i})) for i in range(130))
    data = ScheduleDecided(
        "shop/web", "u", "FirstSchedule", 0, (TargetCluster("oslo", 0),), components=many
    )
    rows = [a_row("fleet/0", 1, type_of(data), "shop/web", canonical(data))]
    records = a_maker(10**9).records(rows, placed(rows))
    held, through = estimated(read(records))["fleet/0", "oslo"]
    assert (len(held), through) == (130, {"fleet/0": 1})


# --- parts ---------------------------------------------------------------------------------------


def a_message(size: int, id: UUID | None = None) -> bytes:
    data = ReplicasRefused("oslo", "shop/web", "a", 1, "x" * size, "Volumes")
    return encode(
        data, id=id or derived_id("m", size), source="/wharfinger/cluster/oslo", subject="oslo"
    )


@given(st.integers(0, 20_000), st.integers(0, 20_000))
def test_parts_joined_are_the_message(size: int, more: int) -> None:
    message = a_message(size)
    parts = divided(message, least_limit(message) + more)
    assert all(len(part) <= least_limit(message) + more for part in parts)
    assert parts == divided(message, least_limit(message) + more)
    assert joined(parts) == [message]


def joined(parts: Iterable[bytes], assembler: Assembler | None = None) -> list[bytes]:
    assembler = assembler or Assembler()
    found = []
    for offset, part in enumerate(parts):
        event = decode(part)
        if not isinstance(event.data, EventPart):
            found.append(part)
        elif (whole := assembler.add(("t", 0), offset, event, event.data, None)) is not None:
            found.append(whole.body)
    return found


@given(st.data())
def test_a_writer_that_stops_in_the_middle_and_starts_again_is_read_once(
    data: st.DataObject,
) -> None:
    """Sent: some of the parts, then all of them again, perhaps cut otherwise, with other events and
    their parts between."""
    message, other = a_message(5_000), a_message(4_000)
    first = divided(message, least_limit(message) + data.draw(st.integers(0, 2_000)))
    again = divided(message, least_limit(message) + data.draw(st.integers(0, 2_000)))
    between = divided(other, least_limit(other) + data.draw(st.integers(0, 9_000)))
    stopped = first[: data.draw(st.integers(0, len(first) - 1))]
    assert joined([*stopped, *between, *again]) == [other, message]
    assert joined([*between, *stopped, *again]) == [other, message]
    # a reader that begins in the middle, or after compaction
    tail = again[data.draw(st.integers(1, len(again))) :]
    if len(again) > 1:
        assert joined(tail) == []


@given(st.data())
def test_parts_of_two_writers_may_stand_among_each_other(data: st.DataObject) -> None:
    one, two = a_message(3_000), a_message(4_000)
    parts = {1: divided(one, least_limit(one)), 2: divided(two, least_limit(two))}
    mixed = []
    for which in data.draw(st.permutations([1] * len(parts[1]) + [2] * len(parts[2]))):
        mixed.append(parts[which].pop(0))
    assert sorted(joined(mixed)) == sorted([one, two])


def test_a_reader_begins_again_at_the_first_part_of_what_is_incomplete() -> None:
    message = a_message(5_000)
    parts = [decode(part) for part in divided(message, least_limit(message))]
    assembler, acked = Assembler(), []
    for offset, part in enumerate(parts[:-1], 10):
        assert isinstance(part.data, EventPart)
        acknowledge = lambda offset=offset: acked.append(offset)  # noqa: E731
        assert assembler.add(("t", 0), offset, part, part.data, acknowledge) is None
    assert (assembler.reached(("t", 0), 50), assembler.reached(("t", 1), 50)) == (10, 51)
    last = parts[-1]
    assert isinstance(last.data, EventPart)
    whole = assembler.add(("t", 0), 51, last, last.data, lambda: acked.append(51))
    assert whole is not None
    assert (assembler.reached(("t", 0), 51), acked) == (52, [])
    assert whole.ack is not None
    whole.ack()
    assert acked == [*range(10, 10 + len(parts) - 1), 51]


def test_a_set_that_never_becomes_whole_holds_nothing_back_for_ever() -> None:
    message = a_message(5_000)
    first = decode(divided(message, least_limit(message))[0])
    assert isinstance(first.data, EventPart)
    assembler, acked = Assembler(), []
    assembler.add(("t", 0), 3, first, first.data, lambda: acked.append(3))
    assert assembler.reached(("t", 0), 3 + STALE_AFTER) == 3
    assert assembler.reached(("t", 0), 4 + STALE_AFTER) == 5 + STALE_AFTER
    assert acked == [3]


@given(st.sets(st.integers(0, 3)))
def test_a_partition_read_from_another_place_holds_nothing_open(again: set[int]) -> None:
    message = a_message(5_000)
    first = decode(divided(message, least_limit(message))[0])
    assert isinstance(first.data, EventPart)
    assembler, acked = Assembler(), []
    for partition in range(4):
        assembler.add(("t", partition), 3, first, first.data, lambda: acked.append(3))
    assembler.forget(("t", partition) for partition in again)
    assert [assembler.reached(("t", partition), 7) for partition in range(4)] == [
        8 if partition in again else 3 for partition in range(4)
    ]
    assert acked == []


def test_parts_that_do_not_make_the_message_are_said_to() -> None:
    message = a_message(3_000)
    parts = divided(message, least_limit(message))
    frame = frame_of(parts[-1])
    data = decode_data(frame.type, bytes(frame.data))
    assert isinstance(data, EventPart)
    forged = encode(
        EventPart(data.event, data.part, data.parts, hashlib.sha256(b"").hexdigest(), data.payload),
        id=derived_id("f"),
        source=frame.source,
        subject=frame.subject,
    )
    with pytest.raises(UndecodableError, match="do not make the message"):
        joined([*parts[:-1], forged])


def test_envelopes_and_outcomes_name_the_stream_whose_order_they_keep() -> None:
    data = ReplicasRefused("oslo", "shop/web", "a", 1, "k", "Volumes")
    rows = [a_row("cluster/oslo", 7, type_of(data), "shop/web", canonical(data))]
    records = a_maker(10**6).records(rows, placed(rows))
    assert {(r.topic, r.stream, r.seq) for r in records} == {
        (DECISIONS.name, "", 0),
        (ASSIGNMENTS.name, "cluster/oslo", 7),
        (OUTCOMES.name, "cluster/oslo", 7),
    }


# --- a cluster's nodes ---------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(30))
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60)), min_size=1, max_size=5),
    st.integers(1, 4),
)
def test_buckets_follow_the_bytes_of_the_nodes(reports: list[tuple[int, int]], first: int) -> None:
    """A cluster that is reported again and again with more nodes and larger ones, each time into no
    fewer buckets than before: no bucket is too large, and who reads it has exactly the nodes
    reported last."""
    held, count = NodeBuckets(), first
    for nodes, kilobytes in reports:
        told = [Node(f"n{i}", {}, labels={"images": "x" * 1000 * kilobytes}) for i in range(nodes)]
        buckets = buckets_for("oslo", told, count)
        assert len(buckets) == buckets[0].buckets >= count
        assert all(len(b.nodes) < 2 or len(canonical(b)) <= NODES_BYTES_MAX for b in buckets)
        count = len(buckets)
        for bucket in buckets:
            held.fold(bucket)
        assert held.complete
        assert sorted(held.nodes) == sorted(node.name for node in told)
