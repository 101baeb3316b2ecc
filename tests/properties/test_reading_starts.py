"""Where reading begins again: after every history of turns, kills and restored backups, no message
is skipped."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.kernel.round import Basis
from wharfinger.runtime.reading_starts import reading_starts

TOPICS = ("bindings", "outcomes")
LIFE = {"bindings": 2, "outcomes": 5}
GROUPS = (0, 1)
PLACES = [f"{topic}/{group}" for topic in TOPICS for group in GROUPS]


def group_of(stream: str) -> int:
    return int(stream.split("-")[0])


@dataclass
class Group:
    """As the stage loop: messages of a turn are handed to their streams, which are committed
    together."""

    number: int
    bases: dict[str, Basis] = field(default_factory=dict)
    decided: set[tuple[str, int]] = field(default_factory=set)

    def turn(self, taken: list[tuple[str, int, str, bool]]) -> None:
        """(place, offset, stream, whether it is news)."""
        positions: dict[str, Basis] = {}
        news = set()
        for place, offset, stream, is_news in taken:
            positions.setdefault(stream, {})[place] = (LIFE[place.split("/")[0]], offset + 1)
            if is_news:
                news.add(stream)
        for stream in news:
            self.bases[stream] = {**self.bases.get(stream, {}), **positions[stream]}
        self.decided.update((place, offset) for place, offset, _, is_news in taken if is_news)


MESSAGES = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.sampled_from(GROUPS), st.integers(0, 3), st.booleans()),
    max_size=60,
)


@given(MESSAGES, st.lists(st.integers(1, 9), min_size=1), st.integers(0, 60), st.integers(0, 20))
def test_nothing_that_no_round_has_is_skipped(
    messages: list[tuple[str, int, int, bool]], cuts: list[int], killed_after: int, restored_to: int
) -> None:
    """`killed_after`: so many messages were taken. `restored_to`: the turn to which the ledger then
    goes back."""
    logs: dict[str, list[tuple[str, bool]]] = {place: [] for place in PLACES}
    groups = {n: Group(n) for n in GROUPS}
    snapshots = []
    arrived = []
    for topic, group, number, is_news in messages:
        place = f"{topic}/{group}"
        arrived.append((place, len(logs[place]), f"{group}-{number}", is_news))
        logs[place].append((f"{group}-{number}", is_news))
    taken, turn = arrived[:killed_after], 0
    while taken:
        size = cuts[turn % len(cuts)]
        for n, turning in groups.items():
            turning.turn([m for m in taken[:size] if m[0].endswith(f"/{n}")])
        taken, turn = taken[size:], turn + 1
        snapshots.append(
            [({s: dict(b) for s, b in g.bases.items()}, set(g.decided)) for g in groups.values()]
        )
    kept = snapshots[: restored_to + 1][-1:] or [[({}, set()), ({}, set())]]
    bases = {stream: basis for found, _ in kept[0] for stream, basis in found.items()}
    decided = {place for _, found in kept[0] for place in found}
    starts = reading_starts(PLACES, bases, group_of, LIFE)
    assert set(starts) == set(PLACES)
    for place, log in logs.items():
        skipped = [(place, offset) for offset in range(starts[place]) if log[offset][1]]
        assert set(skipped) <= decided
        # And not much is read again: nothing behind the last message that a round has.
        assert (
            starts[place] == 0
            or (place, starts[place] - 1) in decided
            or not log[starts[place] - 1][1]
        )


def test_another_incarnation_is_read_from_its_beginning() -> None:
    bases: dict[str, Basis] = {
        "0-a": {"bindings/0": (1, 90), "outcomes/0": (5, 7)},
        "0-b": {"bindings/0": (2, 4)},
    }
    starts = reading_starts(PLACES, bases, group_of, LIFE)
    assert starts == {"bindings/0": 4, "outcomes/0": 7, "bindings/1": 0, "outcomes/1": 0}


def test_an_idle_stream_does_not_hold_its_group_back() -> None:
    bases: dict[str, Basis] = {
        "0-idle": {"bindings/0": (2, 3)},
        "0-busy": {"bindings/0": (2, 9_000)},
    }
    assert reading_starts(["bindings/0"], bases, group_of, LIFE) == {"bindings/0": 9_000}
