"""Laws of the hot value, against a counting that keeps everything and counts from scratch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.domain.policy import HotWindow
from wharfinger.engine.load.records import HotRecords

S = 1_000_000

windows = st.lists(st.builds(HotWindow, st.integers(1, 60), st.integers(1, 4)), max_size=3)
times = st.integers(0, 120 * S)
replicas = st.tuples(st.sampled_from(["web", "db"]), st.integers(0, 6))
steps = st.lists(st.tuples(st.sampled_from(["add", "add", "remove"]), replicas, times), max_size=30)


def counted(placed: dict[tuple[str, int], int], windows: list[HotWindow], at: int) -> int:
    return sum(sum(t > at - w.window_s * S for t in placed.values()) // w.count for w in windows)


def played(
    history: list[tuple[str, tuple[str, int], int]],
) -> tuple[HotRecords, dict[tuple[str, int], int]]:
    records, placed = HotRecords(), dict[tuple[str, int], int]()
    for what, replica, at in history:
        if what == "add":
            assert records.add(replica, at) == (replica not in placed)
            placed.setdefault(replica, at)
        else:
            assert records.remove(replica) == (placed.pop(replica, None) is not None)
    return records, placed


@given(steps, windows, times)
def test_it_is_the_sum_of_whole_shares_of_recent_replicas(
    history: list[tuple[str, tuple[str, int], int]], windows: list[HotWindow], at: int
) -> None:
    records, placed = played(history)
    assert records.value(windows, at)[0] == counted(placed, windows, at)


@given(steps, windows, times, st.data())
def test_it_stays_until_it_is_due_to_fall_and_falls_then(
    history: list[tuple[str, tuple[str, int], int]],
    windows: list[HotWindow],
    at: int,
    data: st.DataObject,
) -> None:
    records, placed = played(history)
    hot, falls = records.value(windows, at)
    if falls is None:
        assert hot == 0
        return
    assert falls > at
    between = data.draw(st.integers(at, falls - 1))
    assert counted(placed, windows, between) == hot
    assert counted(placed, windows, falls) < hot


@given(steps, windows, times, st.randoms(use_true_random=False))
def test_the_order_in_which_replicas_are_told_does_not_matter(
    history: list[tuple[str, tuple[str, int], int]],
    windows: list[HotWindow],
    at: int,
    chance: object,
) -> None:
    _, placed = played(history)
    once = list(placed.items())
    chance.shuffle(once)  # type: ignore[attr-defined]
    records = HotRecords()
    for replica, when in once:
        records.add(replica, when)
    assert records.value(windows, at)[0] == counted(placed, windows, at)


@given(steps, st.integers(1, 5), windows, times)
def test_bounded_records_keep_the_newest(
    history: list[tuple[str, tuple[str, int], int]],
    records_max: int,
    windows: list[HotWindow],
    at: int,
) -> None:
    records, added = HotRecords(), []
    for what, (binding, ordinal), when in history:
        if what == "add" and records.add((binding, ordinal), when, records_max):
            added.append((when, binding, ordinal))
            added = sorted(added)[-records_max:]
    assert records.placed == added
    assert set(records.when) == {(binding, ordinal) for _, binding, ordinal in added}


@given(steps, windows, times)
def test_forgetting_what_is_older_than_every_window_changes_nothing(
    history: list[tuple[str, tuple[str, int], int]], windows: list[HotWindow], at: int
) -> None:
    records, _ = played(history)
    before = records.value(windows, at)
    records.forget_until(at - max([w.window_s for w in windows], default=0) * S)
    assert records.value(windows, at) == before
