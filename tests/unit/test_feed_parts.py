"""The parts that readers of one filter are sent: bounded, whole, and the same for all."""

from __future__ import annotations

import random

import pytest

from wharfinger.runtime.ledger.feed import FeedFilter
from wharfinger_api import events
from wharfinger_api.events import PART, PARTS_KEPT, Channel
from wharfinger_api.feed_frames import Frame

SEEDS = range(5)


def frames(first: int, last: int, rng: random.Random) -> list[Frame]:
    """Of some of these positions."""
    return [
        Frame(position, "none", b'{"n":%d}' % position)
        for position in range(first, last + 1)
        if rng.random() < 0.7
    ]


def read(channel: Channel, position: int, lines: bool = False) -> tuple[list[bytes], list[int]]:
    """Parts up to the end, and the positions of their frames."""
    parts: list[bytes] = []
    positions: list[int] = []
    while position < channel.through:
        found, through = channel.beyond(position)
        assert len(found) <= PART
        assert position < through <= channel.through
        if found:
            parts.append(channel.joined(found, lines))
        positions += [frame.position for frame in found]
        position = through
    return parts, positions


@pytest.mark.parametrize("seed", SEEDS)
def test_readers_from_any_position_get_all_beyond_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where frames were dropped from the ring."""
    monkeypatch.setattr(events, "RING", 3 * PART + 7)
    monkeypatch.setattr(events, "PAGE", 20)
    rng = random.Random(seed)
    channel, last = Channel(FeedFilter(), 10), 10
    known: list[Frame] = []
    for _ in range(60):
        more = rng.randint(1, 40)
        new = frames(last + 1, last + more, rng)
        known, last = known + new, last + more
        channel.add(new, last)
        position = rng.randint(channel.start, last)
        _, positions = read(channel, position)
        assert positions == [frame.position for frame in known if frame.position > position]
    assert channel.start > 10


def test_readers_that_are_behind_share_their_parts() -> None:
    """From their second part on, whichever comes first."""
    channel = Channel(FeedFilter(), 0)
    rng = random.Random(1)
    channel.add(frames(1, 3 * PART, rng), 3 * PART)
    first, _ = read(channel, 0)
    other, _ = read(channel, 17)
    assert len(first) == len(other) > 2
    assert all(mine is theirs for mine, theirs in zip(first[1:], other[1:], strict=True))
    assert b"".join(first).endswith(b"".join(other))


def test_the_joined_parts_that_are_kept_are_bounded() -> None:
    channel = Channel(FeedFilter(), 0)
    count = PART * (PARTS_KEPT + 5)
    channel.add([Frame(n, "none", b"{}") for n in range(1, count + 1)], count)
    first, _ = read(channel, 0)
    again, _ = read(channel, 0)
    assert first == again
    newest, _ = channel.beyond(count - PART)
    assert channel.joined(newest, lines=False) is again[-1]
    oldest, _ = channel.beyond(0)
    assert channel.joined(oldest, lines=False) is not again[0]
