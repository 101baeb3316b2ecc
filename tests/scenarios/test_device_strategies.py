"""A cluster that places by a strategy of devices: what it was asked for teaches it what to keep,
and all of it is replayed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.cluster_world import GIB, STREAM, Harness, a_node, needs

from wharfinger.domain.policy import Policy
from wharfinger.domain.scheduler import Arguments, DevicesArgs, PluginUse, Profile, SchedulerConfig
from wharfinger.domain.scheduler_points import default_points
from wharfinger.events.policies import PolicyApplied
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head


@pytest.fixture(params=["best-fit", "fragmentation", "expected-fill"])
def any_plane(request: pytest.FixtureRequest) -> Iterable[Harness]:
    yield from by_strategy(request.param)


@pytest.fixture
def plane() -> Iterable[Harness]:
    yield from by_strategy("expected-fill")


def by_strategy(strategy: str) -> Iterable[Harness]:
    """A stage whose default profile scores devices only. Whatever happened is decided again with
    the same bytes."""
    harness = Harness()
    points = {**default_points(), "score": (PluginUse("Devices", 1),)}
    profile = Profile(points=points, arguments=Arguments(devices=DevicesArgs(strategy)))
    harness.feed(
        PolicyApplied(
            Policy("KubeSchedulerConfiguration", "gpus", scheduler=SchedulerConfig((profile,)))
        )
    )
    yield harness
    decider = harness.decider
    assert (
        audit(decider, decider.initial(STREAM), empty_head(STREAM), harness.rounds).divergences
        == []
    )
    live = decider.dump(harness.state)
    assert decider.dump(recover(decider, decider.initial(STREAM), harness.rounds)) == live
    assert decider.dump(decider.load(STREAM, live)) == live


def held(plane: Harness) -> dict[tuple[str, int], int]:
    """(node, device) -> thousandths held."""
    taken: dict[tuple[str, int], int] = {}
    for binding in plane.state.book.held.values():
        for replica in binding.placed.values():
            for index, milli in replica.devices:
                taken[replica.node, index] = taken.get((replica.node, index), 0) + milli
    return taken


def test_shares_are_put_together_and_never_beyond_a_device(any_plane: Harness) -> None:
    any_plane.nodes(*(a_node(name, 64_000, 256 * GIB, gpus=2) for name in "abc"))
    any_plane.assign("whole", 2, needs(1000, GIB, gpus=1))
    any_plane.assign("half", 4, needs(1000, GIB, gpus=1, milli=500))
    assert sorted(held(any_plane).values()) == [1000, 1000, 1000, 1000]
    any_plane.assign("rest", 3, needs(1000, GIB, gpus=1))
    assert sorted(held(any_plane).values()) == [1000] * 6


def test_pods_without_devices_leave_the_nodes_that_have_some(plane: Harness) -> None:
    plane.nodes(a_node("gpu", 16_000, 64 * GIB, gpus=2), a_node("plain", 16_000, 64 * GIB))
    plane.assign("train", 1, needs(8000, 8 * GIB, gpus=1))
    plane.assign("web", 4, needs(4000, 4 * GIB))
    assert set(plane.where("web").values()) == {"plain"}


@pytest.mark.parametrize(("asked_a_lot", "goes_beside"), [(450, "large"), (300, "small")])
def test_what_was_asked_for_decides_what_a_share_may_leave(
    plane: Harness, asked_a_lot: int, goes_beside: str
) -> None:
    """0.5 of one device are left and 0.3 of another. If many ask for 0.45 the former is kept for
    them; if for 0.3, it is the latter, and beside the other there is room for one even then."""
    plain = a_node("plain", 64_000, 256 * GIB)
    plane.nodes(plain)
    # nobody has devices yet: refused, but remembered
    plane.assign("asked", 40, needs(1000, GIB, gpus=1, milli=asked_a_lot))
    assert plane.where("asked") == {}
    plane.nodes(
        plain, a_node("a", 64_000, 256 * GIB, gpus=1), a_node("b", 64_000, 256 * GIB, gpus=1)
    )
    plane.assign("large", 1, needs(1000, GIB, gpus=1, milli=700))
    plane.assign("small", 1, needs(1000, GIB, gpus=1, milli=500))
    plane.assign("new", 1, needs(1000, GIB, gpus=1, milli=200))
    assert plane.where("new") == plane.where(goes_beside)
