"""The order of the feed, for any streams and any clocks: each stream's own order, causes first, and
otherwise by time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.runtime.ledger.days import DAY_US
from wharfinger.runtime.ledger.feed_order import RUN_MAX, FeedKey, in_order, runs


@st.composite
def histories(draw: st.DrawFn) -> dict[str, list[FeedKey]]:
    """Streams as they are written: one decision after the other, each caused by one that was there
    or by something unknown, and stamped by a clock that may be wrong."""
    made: list[FeedKey] = []
    streams: dict[str, list[FeedKey]] = {}
    for number in range(draw(st.integers(0, 40))):
        stream = draw(st.sampled_from(["fleet/0", "cluster/a", "cluster/b", "intake"]))
        rows = streams.setdefault(stream, [])
        cause = b""
        if draw(st.booleans()):
            cause = draw(st.sampled_from([b"u" * 16, *(row.id for row in made)]))
        at = draw(st.integers(0, 20)) * (DAY_US if draw(st.integers(0, 9)) == 0 else 1)
        rows.append(FeedKey(stream, len(rows) + 1, at, number.to_bytes(16, "big"), cause))
        made.append(rows[-1])
    return streams


@settings(deadline=None, max_examples=examples(50))
@given(histories())
def test_all_are_there_once_each_stream_in_order_and_none_before_its_cause(
    streams: dict[str, list[FeedKey]],
) -> None:
    found = in_order(streams)
    assert sorted(found) == sorted(row for rows in streams.values() for row in rows)
    for stream, rows in streams.items():
        assert [row for row in found if row.stream == stream] == rows
    place = {row.id: n for n, row in enumerate(found)}
    for row in found:
        assert row.cause not in place or place[row.cause] < place[row.id]


@settings(deadline=None, max_examples=examples(50))
@given(histories())
def test_without_causes_it_is_the_order_of_time(streams: dict[str, list[FeedKey]]) -> None:
    orphans = {s: [row._replace(cause=b"") for row in rows] for s, rows in streams.items()}
    found, latest = [], dict.fromkeys(streams, 0)
    for row in in_order(orphans):
        latest[row.stream] = max(latest[row.stream], row.at)
        found.append((latest[row.stream], row.stream, row.seq))
    assert found == sorted(found)


@settings(deadline=None, max_examples=examples(50))
@given(histories(), st.integers(0, 25))
def test_what_is_left_out_is_later_and_no_cause_of_what_is_there(
    streams: dict[str, list[FeedKey]], until: int
) -> None:
    found = in_order(streams, until)
    for stream, rows in streams.items():
        taken = [row for row in found if row.stream == stream]
        assert taken == rows[: len(taken)]
        for row in rows[len(taken) :]:
            assert max(r.at for r in rows[: row.seq]) > until
            assert all(row.id != other.cause for other in found)


@settings(deadline=None, max_examples=examples(40))
@given(histories(), st.integers(1, 3))
def test_runs_are_neighbours_of_one_stream_and_day(
    streams: dict[str, list[FeedKey]], times: int
) -> None:
    found = in_order(streams)
    made = runs(found, [row.id for row in found], DAY_US)
    assert sum(run.size for run in made) == len(found)
    at = 0
    for run in made:
        rows = found[at : at + run.size]
        at += run.size
        assert [(row.stream, row.seq) for row in rows] == [
            (run.stream, run.first_seq + n) for n in range(run.size)
        ]
        assert {row.at // DAY_US for row in rows} == {run.at // DAY_US}
        assert run.correlations == b"".join(row.id for row in rows)
        assert run.size <= RUN_MAX


def test_a_run_has_an_end() -> None:
    rows = [FeedKey("fleet/0", n, 1, n.to_bytes(16, "big"), b"") for n in range(1, 2 * RUN_MAX + 2)]
    sizes = [run.size for run in runs(rows, [row.id for row in rows], DAY_US)]
    assert sizes == [RUN_MAX, RUN_MAX, 1]


def test_a_circle_of_causes_holds_nothing_up() -> None:
    """No history has one; a forged one must not stop the feed."""
    a = FeedKey("fleet/0", 1, 1, b"a" * 16, b"b" * 16)
    b = FeedKey("cluster/a", 1, 1, b"b" * 16, b"a" * 16)
    assert sorted(in_order({"fleet/0": [a], "cluster/a": [b]})) == sorted([a, b])
