"""A stream whose clock was years ahead for a while, and was set right: it goes on as if the clock
had never been wrong.

Two streams get the same events after the same real times. One is stamped by a right clock, the
other by a wrong one, until its time is set right. From then on they have the same state and decide
the same, byte for byte. What passed between the last round under the wrong clock and the moment it
was set right counts for nothing: so much longer a duration lasts that was under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.cluster_world import STREAM as CLUSTER_STREAM
from tests.properties import test_cluster_stage
from tests.properties.test_batch_laws import events_of, fleet_facts, many, node_policies
from tests.scenarios.fleet_plane import STREAM as FLEET_STREAM

from wharfinger.domain.value import Value
from wharfinger.events.codec import made
from wharfinger.events.decisions import ClockRebased, Rebased
from wharfinger.events.envelope import Event, derived_id
from wharfinger.kernel.audit import Audit
from wharfinger.kernel.decider import Decider
from wharfinger.kernel.rebase import Timed, move_moments, rebase_round, rebased
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.round import Head, Round
from wharfinger.kernel.step import empty_head, step, tick
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.fleet import FleetDecider

SECOND = 1_000_000
YEARS = 7 * 365 * 86_400 * SECOND
T0 = 1_700_000_000 * SECOND
DAY = 86_400 * SECOND

TICKS_MAX = 30
"""So often a stream is woken in one moment: some have more to do than one round holds."""

passing = st.sampled_from((0, 1, 7, 40, 90, 400, 4000)).map(lambda seconds: seconds * SECOND)


class Stamped:
    """A stream whose rounds are stamped with the real time and how far its clock is `ahead`."""

    def __init__(self, decider: Decider[Any], name: str, ahead: int) -> None:
        self.decider, self.name, self.ahead = decider, name, ahead
        self.state: Any = decider.initial(name)
        self.head: Head = empty_head(name)
        self.rounds: list[RecordedRound] = []
        self.since: int | None = None

    def turn(self, events: Sequence[Event[Value]], real: int) -> None:
        """What is due first, then the events."""
        at = real + self.ahead
        if self.ahead and self.since is None:
            self.since = at
        for _ in range(TICKS_MAX):
            due = self.decider.next_due(self.state)
            if due is None or due > at:
                break
            self._step([tick(self.name, due, self.head.round)], at)
        if events:
            self._step(events, at)

    def _step(self, events: Sequence[Event[Value]], at: int) -> None:
        made_round = step(self.decider, self.state, self.head, events, at, {})
        self._add(made_round, events)

    def _add(self, made_round: Round, events: Sequence[Event[Value]]) -> None:
        self.rounds.append(RecordedRound(made_round, events))
        self.head = made_round.head()

    def set_right(self, real: int) -> None:
        """As `runtime.ledger.rebasing` does it, and a stage that recovers from there."""
        by, self.ahead = real - self.head.at, 0
        data = ClockRebased(
            real,
            by,
            {self.name: Rebased(self.head.round + 1, self.head.at, self.since or self.head.at)},
        )
        event: Event[Value] = made(
            data, id=derived_id("law", "rebase"), source="/wharfinger/ledger", subject="s"
        )
        profile = self.decider.profile
        made_round = rebase_round(self.head, [event], real, {}, profile, self.head.snapshot)
        self.state = rebased(self.decider, self.state, self.name, [event], real, profile)
        self._add(made_round, [event])

    @property
    def saved(self) -> dict[str, bytes]:
        return self.decider.dump(self.state)

    def check(self) -> None:
        """Its history replays byte for byte, and recovers to the same state."""
        audit = Audit(self.decider, self.decider.initial(self.name), empty_head(self.name))
        for recorded in self.rounds:
            audit.replay(recorded)
        assert audit.result.divergences == []
        assert self.decider.dump(audit.state) == self.saved
        found = recover(self.decider, self.decider.initial(self.name), self.rounds)
        assert self.decider.dump(found) == self.saved
        assert self.decider.next_due(found) == self.decider.next_due(self.state)


def moved(stream: Stamped, by: int) -> dict[str, bytes]:
    """What is saved of it, with all moments moved."""
    assert isinstance(stream.decider, Timed)
    return move_moments(stream.decider.section_types, stream.saved, T0, by)


def turns_of(data: st.DataObject, history: Sequence[Value]) -> list[tuple[int, list[Event[Value]]]]:
    """The events in turns: how much real time passes before each."""
    events, turns = events_of(history), []
    while events:
        size = data.draw(st.integers(1, len(events)))
        turns.append((data.draw(passing), events[:size]))
        events = events[size:]
    return turns


def law(decider: Decider[Any], name: str, history: Sequence[Value], data: st.DataObject) -> None:
    turns = turns_of(data, history)
    wrong_until = data.draw(st.integers(1, len(turns)))
    gap = data.draw(st.sampled_from((0, 3 * SECOND)))
    right, wrong, real = Stamped(decider, name, 0), Stamped(decider, name, YEARS), T0
    for passes, events in turns[:wrong_until]:
        real += passes
        right.turn(events, real)
        wrong.turn(events, real)
    wrong.set_right(real + gap)
    decider.end_round(right.state, 0, decider.profile)
    assert wrong.saved == moved(right, gap)
    due = decider.next_due(wrong.state)
    assert (due is None) == (decider.next_due(right.state) is None)
    if not gap:
        before = len(right.rounds), len(wrong.rounds)
        for passes, events in [*turns[wrong_until:], (DAY, [])]:
            real += passes
            right.turn(events, real)
            wrong.turn(events, real)
        of_right, of_wrong = right.rounds[before[0] :], wrong.rounds[before[1] :]
        assert [r.round.at for r in of_wrong] == [r.round.at for r in of_right]
        assert [d for r in of_wrong for d in r.round.decisions] == [
            d for r in of_right for d in r.round.decisions
        ]
        assert wrong.saved == right.saved
    wrong.check()


def law_of_a_jump(
    decider: Decider[Any], name: str, history: Sequence[Value], data: st.DataObject
) -> None:
    """The clock was right, then years ahead, then right: nothing that it noted stays years
    ahead."""
    turns = turns_of(data, history)
    wrong_from = data.draw(st.integers(0, len(turns)))
    stream, real = Stamped(decider, name, 0), T0
    for number, (passes, events) in enumerate(turns):
        real += passes
        stream.ahead = YEARS if number >= wrong_from else 0
        stream.turn(events, real)
    if stream.since is not None:
        stream.set_right(real)
        assert isinstance(decider, Timed)
        far = move_moments(decider.section_types, stream.saved, real + YEARS // 2, 1)
        assert far == stream.saved  # no moment is there
        due = decider.next_due(stream.state)
        assert due is None or due < real + YEARS // 2
        stream.turn([], real + 10 * SECOND)
        assert stream.head.at < real + DAY
    stream.check()


@many
@given(st.lists(fleet_facts, min_size=1, max_size=24), st.data())
def test_a_fleet_stream_goes_on_as_if_its_clock_had_never_been_wrong(
    history: list[Value], data: st.DataObject
) -> None:
    law(FleetDecider(), FLEET_STREAM, history, data)


@many
@given(st.lists(fleet_facts, min_size=1, max_size=24), st.data())
def test_a_fleet_stream_whose_clock_jumped_keeps_no_moment_of_the_wrong_time(
    history: list[Value], data: st.DataObject
) -> None:
    law_of_a_jump(FleetDecider(), FLEET_STREAM, history, data)


@many
@given(test_cluster_stage.histories(), st.lists(node_policies, max_size=6), st.data())
def test_a_cluster_stream_goes_on_as_if_its_clock_had_never_been_wrong(
    nodes: tuple[str, list[list[Value]]], policies: list[Value], data: st.DataObject
) -> None:
    law(
        ClusterDecider(),
        CLUSTER_STREAM,
        [*policies, *(fact for facts in nodes[1] for fact in facts)],
        data,
    )


@many
@given(test_cluster_stage.histories(), st.data())
def test_a_cluster_stream_whose_clock_jumped_keeps_no_moment_of_the_wrong_time(
    nodes: tuple[str, list[list[Value]]], data: st.DataObject
) -> None:
    law_of_a_jump(
        ClusterDecider(), CLUSTER_STREAM, [fact for facts in nodes[1] for fact in facts], data
    )
