"""What the writer of a hub reads: bindings as they are decided, and which of them are not yet."""

from __future__ import annotations

import pytest
from tests.scenarios.fleet_plane import DYNAMIC
from tests.told_plane import ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.placement import Placement
from wharfinger.history.objects import DecidedBindings

pytestmark = pytest.mark.integration

POLICY = a_policy("by-room", Placement(replicas=DYNAMIC))
WEB = "shop/web-deployment"


def asked_and_decided(read: DecidedBindings) -> list[tuple[int, int]]:
    return [
        (one["spec"]["replicas"], sum(t["replicas"] for t in one["spec"]["clusters"]))
        for one in read.bindings
    ]


async def test_a_binding_is_undecided_until_its_last_request_is_taken_in(database_url: str) -> None:
    plane = await ToldPlane.opened(database_url)
    try:
        await plane.tell(a_cluster("oslo"), POLICY, *nodes("oslo", "o1", "o2"))
        await plane.tell(a_binding("web", 2, POLICY))
        read = DecidedBindings()
        await read.read(plane.ledger)
        assert (asked_and_decided(read), read.undecided) == ([(2, 2)], frozenset())

        await plane.wait(1)
        events = await plane.accept(a_binding("web", 3, POLICY))
        for reader in (read, DecidedBindings()):
            await reader.read(plane.ledger)
            assert (asked_and_decided(reader), reader.undecided) == ([(3, 2)], frozenset({WEB}))

        await plane.take_in(events)
        for reader in (read, DecidedBindings()):
            await reader.read(plane.ledger)
            assert (asked_and_decided(reader), reader.undecided) == ([(3, 3)], frozenset())

        # taken in, and nothing follows from it
        await plane.tell(a_binding("web", 3, POLICY))
        await read.read(plane.ledger)
        assert (asked_and_decided(read), read.undecided) == ([(3, 3)], frozenset())
    finally:
        await plane.ledger.close()
