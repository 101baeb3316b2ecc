"""Groups of pods: whole or not at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.framework_world import a_node, a_pod, on, only
from tests.reference.kube_gang import GangWaiting, place_whole

from wharfinger.domain.node import Pod
from wharfinger.engine.framework.gang import WAIT_S, feasible
from wharfinger.engine.framework.protocols import Cycle, Permit, WaitFor
from wharfinger.engine.framework.snapshot import Snapshot

SECOND_US = 1_000_000


@given(st.integers(0, 6), st.integers(0, 6), st.lists(st.booleans(), max_size=6))
def test_a_group_is_whole_or_absent(min_count: int, scheduled: int, fits: list[bool]) -> None:
    """Whoever fits: what is held in the end is enough, or nothing; and it is nothing only where it
    could not be enough."""
    pods = [a_pod(f"g{i}", group="g", min_count=min_count) for i in range(len(fits))]
    held: list[str] = []

    def place(pod: Pod) -> str | None:
        if not fits[int(pod.name[1:])]:
            return None
        held.append(pod.name)
        return f"at {pod.name}"

    def give_back(pod: Pod, at: str) -> None:
        assert at == f"at {pod.name}"
        assert held.pop() == pod.name, "the last that was taken is the first to be given back"

    found = place_whole(pods, min_count, scheduled, place, give_back)
    assert [pod.name for pod, _ in found.places] == held
    if scheduled + sum(fits) >= min_count:
        assert found.refused is None
        assert len(held) == sum(fits)
    else:
        assert found.refused is not None
        assert not held


def test_a_group_is_given_up_as_soon_as_too_few_are_left() -> None:
    tried: list[str] = []

    def place(pod: Pod) -> str | None:
        tried.append(pod.name)
        return None

    pods = [a_pod(f"g{i}", group="g", min_count=4) for i in range(5)]
    found = place_whole(pods, 4, 0, place, lambda pod, at: None)
    assert tried == ["g0", "g1"]
    assert found.refused is not None
    assert found.refused.reasons == ("minCount (4) cannot be satisfied: 0 scheduled, 3 remaining",)


def test_a_group_that_is_too_small_is_not_tried() -> None:
    found = place_whole([], 2, 1, lambda pod: "n", lambda pod, at: None)
    assert found.refused is not None
    assert found.refused.reasons == ("minCount (2) cannot be satisfied: 1 scheduled, 0 remaining",)


def test_a_group_that_can_still_be_whole_waits() -> None:
    status = feasible(3, 1, 2)
    assert status is not None
    assert (status.code, status.reasons) == (
        "Wait",
        ("minCount (3) is not yet satisfied: 1 scheduled, 2 remaining",),
    )
    assert feasible(3, 3, 0) is None


def members(n: int, min_count: int) -> list[Pod]:
    return [a_pod(f"g{i}", group="g", min_count=min_count) for i in range(n)]


def test_reserved_pods_go_together_when_the_last_has_its_place() -> None:
    waiting = GangWaiting()
    one, two, three = members(3, 3)
    assert waiting.reserve(one, 0, 0) == ()
    assert waiting.reserve(two, 0, 1) == ()
    assert waiting.reserve(three, 0, 2) == (one, two, three)
    assert waiting.held(("default", "g")) == ()
    assert waiting.next_due_us() is None


def test_who_comes_to_a_group_that_runs_already_does_not_wait() -> None:
    (late,) = members(1, 3)
    assert GangWaiting().reserve(late, 2, 0) == (late,)


def test_a_pod_without_a_group_does_not_wait() -> None:
    pod = a_pod("alone")
    assert GangWaiting().reserve(pod, 0, 0) == (pod,)


def test_a_group_that_does_not_become_whole_in_time_gives_back_what_it_holds() -> None:
    waiting = GangWaiting()
    one, two, _ = members(3, 3)
    waiting.reserve(one, 0, 0)
    waiting.reserve(two, 0, 100 * SECOND_US)
    assert waiting.next_due_us() == WAIT_S * SECOND_US, "the time runs from the first on"
    assert waiting.expired(WAIT_S * SECOND_US - 1) == ()
    assert waiting.expired(WAIT_S * SECOND_US) == (("default", "g"),)
    assert waiting.give_up(("default", "g")) == (one, two)
    assert waiting.give_up(("default", "g")) == ()


def test_the_plugin_permits_the_one_that_makes_the_group_whole() -> None:
    plugin = only("GangScheduling").plugins["GangScheduling"]
    assert isinstance(plugin, Permit)
    one, two, three = members(3, 3)
    snapshot = Snapshot.of(
        [a_node("n")], [on(one, "n"), a_pod("stranger", "n", group="g", min_count=3, namespace="x")]
    )
    assert plugin.permit(Cycle(snapshot), two, "n") == WaitFor(WAIT_S)
    snapshot.add(on(two, "n"))
    assert plugin.permit(Cycle(snapshot), two, "n") == WaitFor(WAIT_S), "it is counted once"
    assert plugin.permit(Cycle(snapshot), three, "n") is None
    assert plugin.permit(Cycle(snapshot), a_pod("alone"), "n") is None
