"""What readers of one process share is bounded in events and in bytes, and is never wrong."""

from __future__ import annotations

from random import Random

import pytest
from tests.poison import binding

from wharfinger.domain.value import Value
from wharfinger.events.codec import decode
from wharfinger.events.envelope import Event
from wharfinger.runtime.decode_cache import Decoded


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("size", "bytes_max"), [(10, 10**6), (10**6, 5_000), (0, 10**6)])
def test_the_latest_events_are_kept_within_both_bounds(
    seed: int, size: int, bytes_max: int
) -> None:
    random = Random(seed)
    cache = Decoded(size, bytes_max)
    decoded: list[bytes] = []

    def counted(body: bytes) -> Event[Value]:
        decoded.append(body)
        return decode(body)

    bodies: dict[int, bytes] = {}
    latest: list[int] = []
    for number in range(200):
        offset = random.choice((number, random.randint(0, number)))
        if offset not in bodies or random.random() < 0.1:  # the topic was made again
            name = f"shop/b{number}-" + "x" * random.randint(0, 200)
            bodies[offset] = binding(name, source="/cd/x")
        body = bodies[offset]
        kept = cache.known("t", 0, offset, body) is not None
        before = len(decoded)
        assert cache.event("t", 0, offset, body, counted).body == body
        assert len(decoded) == before + (not kept), "decoded once as long as it is kept"
        if not kept:
            latest = [o for o in latest if o != offset] + [offset]
        within: list[int] = []
        for one in reversed(latest):
            if len(within) == size or sum(len(bodies[o]) for o in [*within, one]) > bytes_max:
                break
            within.insert(0, one)
        latest = within
        assert [o for o in bodies if cache.known("t", 0, o, bodies[o])] == sorted(
            latest, key=list(bodies).index
        )
