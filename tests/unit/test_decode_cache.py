"""What readers of one process share is bounded in events and in bytes, and is never wrong. What one
service alone reads is not kept, and what all have taken is kept no longer."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import cast

import pytest
from tests.poison import binding

from wharfinger.domain.value import Value
from wharfinger.events.codec import decode
from wharfinger.events.envelope import Event
from wharfinger.events.streams import TOPICS
from wharfinger.runtime.backends import DURABLE, Backend
from wharfinger.runtime.decode_cache import Decoded
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.service import Builder, ServiceContext
from wharfinger.runtime.settings import Settings
from wharfinger_annotator.app import BUILDERS as ANNOTATOR
from wharfinger_descheduler.app import BUILDERS as DESCHEDULER
from wharfinger_estimator.app import BUILDERS as ESTIMATOR
from wharfinger_scheduler.app import BUILDERS as SCHEDULER

READERS = 3


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("size", "bytes_max"), [(10, 10**6), (10**6, 5_000), (0, 10**6)])
def test_the_latest_events_are_kept_within_both_bounds(
    seed: int, size: int, bytes_max: int
) -> None:
    random = Random(seed)
    cache = Decoded(size, bytes_max)
    for _ in range(READERS):
        cache.read_by_another(["t"])
    decoded: list[bytes] = []

    def counted(body: bytes) -> Event[Value]:
        decoded.append(body)
        return decode(body)

    bodies: dict[int, bytes] = {}
    latest: list[int] = []
    taken: dict[int, int] = {}
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
        taken[offset] = taken[offset] + 1 if kept else 1
        if taken[offset] == READERS:
            latest.remove(offset)
        within: list[int] = []
        for one in reversed(latest):
            if len(within) == size or sum(len(bodies[o]) for o in [*within, one]) > bytes_max:
                break
            within.insert(0, one)
        latest = within
        assert [o for o in bodies if cache.known("t", 0, o, bodies[o])] == sorted(
            latest, key=list(bodies).index
        )


def kept_of(builders: Mapping[str, Builder]) -> set[str]:
    """The topics whose events a process with these services keeps."""
    counts = {topic.name: 1 for topic in TOPICS}
    context = ServiceContext(
        Settings(),
        Backend("h:1", "postgresql+asyncpg:///d", DURABLE),
        cast(Ledger, None),
        counts,
        counts,
    )
    for build in builders.values():
        build(context)
    body = binding("shop/web", source="/cd/x")
    for topic in counts:
        context.decoded.event(topic, 0, 0, body, decode)
    return {topic for topic in counts if context.decoded.known(topic, 0, 0, body)}


@pytest.mark.parametrize("builders", [ESTIMATOR, DESCHEDULER, ANNOTATOR])
def test_a_process_of_one_service_keeps_nothing(builders: Mapping[str, Builder]) -> None:
    assert kept_of(builders) == set()


def test_a_process_of_several_services_keeps_what_at_least_two_of_them_read() -> None:
    assert kept_of(SCHEDULER) == {"wharfinger.policies", "wharfinger.proposals"}
    assert kept_of({**SCHEDULER, **ESTIMATOR}) == {
        "wharfinger.assignments",
        "wharfinger.bindings",
        "wharfinger.clusters",
        "wharfinger.cluster-state",
        "wharfinger.policies",
        "wharfinger.proposals",
    }
