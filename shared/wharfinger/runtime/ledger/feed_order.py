"""The order in which decisions of several streams get their positions in the feed. Pure.

By time, stream and seq; but no decision before its cause. Clocks of several streams differ by
moments, so that an effect may be stamped before its cause: then the cause, and what precedes it in
its own stream, comes first. Each stream keeps its own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

RUN_MAX = 500
"""Decisions of one run: their correlations are 8 kB, which a reader of one of them loads."""


class FeedKey(NamedTuple):
    """A decision that waits for its position. `stream`: its name. `at`: of its round, microseconds.
    `id`: under which others name it as their cause; of the intake that of the accepted event.
    `cause`: empty where there is none."""

    stream: str
    seq: int
    at: int
    id: bytes
    cause: bytes


class Run(NamedTuple):
    """`size` decisions of one stream that follow each other. `at`: of the last one. `correlations`:
    16 bytes each."""

    stream: str
    first_seq: int
    size: int
    at: int
    correlations: bytes


def in_order(streams: Mapping[str, Sequence[FeedKey]], until: int | None = None) -> list[FeedKey]:
    """The rows in the order of their positions. `streams`: the rows of each, in order of seq.
    `until`: rows stamped later are left out, unless an earlier one has them as its cause.

    A stream whose time was set back keeps its order: a row is placed by the latest time up to
    it."""
    placed: list[tuple[int, str, int]] = []
    for stream, rows in streams.items():
        latest = 0
        for index, row in enumerate(rows):
            latest = max(latest, row.at)
            if until is not None and latest > until:
                break
            placed.append((latest, stream, index))
    placed.sort()
    where = {row.id: (s, n) for s, rows in streams.items() for n, row in enumerate(rows)}
    next_of = dict.fromkeys(streams, 0)
    found: list[FeedKey] = []
    for _, stream, index in placed:
        _emit(streams, where, next_of, stream, index, found)
    return found


def _emit(
    streams: Mapping[str, Sequence[FeedKey]],
    where: Mapping[bytes, tuple[str, int]],
    next_of: dict[str, int],
    stream: str,
    index: int,
    found: list[FeedKey],
) -> None:
    """The rows of `stream` through `index`, each after its cause: depth first."""
    waiting = [(stream, index)]
    while waiting:
        stream, index = waiting[-1]
        if next_of[stream] > index:
            waiting.pop()
            continue
        row = streams[stream][next_of[stream]]
        cause = where.get(row.cause) if row.cause else None
        # A stream that waits already would wait for itself: no real history has such a circle, and
        # a forged one must not hold up the feed.
        if (
            cause is not None
            and next_of[cause[0]] <= cause[1]
            and all(other != cause[0] for other, _ in waiting)
        ):
            waiting.append(cause)
            continue
        found.append(row)
        next_of[stream] += 1


def runs(rows: Iterable[FeedKey], correlations: Iterable[bytes], day_us: int) -> list[Run]:
    """Neighbours of one stream and one day together."""
    found: list[Run] = []
    begun: FeedKey | None = None
    last: FeedKey | None = None
    texts: list[bytes] = []
    for row, correlation in zip(rows, correlations, strict=True):
        if (
            begun is not None
            and last is not None
            and row.stream == last.stream
            and row.seq == last.seq + 1
            and row.at // day_us == last.at // day_us
            and len(texts) < RUN_MAX
        ):
            texts.append(correlation)
        else:
            if begun is not None and last is not None:
                found.append(_run(begun, last, texts))
            begun, texts = row, [correlation]
        last = row
    if begun is not None and last is not None:
        found.append(_run(begun, last, texts))
    return found


def _run(first: FeedKey, last: FeedKey, correlations: Sequence[bytes]) -> Run:
    return Run(first.stream, first.seq, len(correlations), last.at, b"".join(correlations))
