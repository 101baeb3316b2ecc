"""Laws of replay over made-up fleets: whatever happened to a plane, its history can be decided
again from anywhere in it.

`tests/fleets.py` tells the stories; hypothesis chooses what happens in them, and shrinks what
breaks a law.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.fleets import Fleet, a_fleet
from tests.hunting import examples

from wharfinger.history.deciders import DECIDERS, decider_of
from wharfinger.kernel.audit import Audit, AuditResult, audit
from wharfinger.kernel.decider import Decider, Decision
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import empty_head
from wharfinger.runtime.ledger.snapshot_points import Start
from wharfinger.runtime.replay_ranges import cut, shares_of

some = settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)
fleets = st.builds(
    lambda random: a_fleet(7, random, happenings=10), st.randoms(use_true_random=False)
)
seeds = st.integers(0, 10_000)


def decider_for(stream: str) -> Decider[object]:
    decider = decider_of(stream)
    assert decider is not None
    return decider


def replayed(stream: str, recorded: list[RecordedRound]) -> AuditResult:
    decider = decider_for(stream)
    make = next(make for prefix, make in DECIDERS.items() if stream.startswith(prefix))
    return audit(decider, decider.initial(stream), empty_head(stream), recorded, make)


def longest(fleet: Fleet) -> tuple[str, list[RecordedRound]]:
    return max(fleet.by_stream().items(), key=lambda item: (len(item[1]), item[0]))


@some
@given(fleets)
def test_every_stream_of_every_fleet_is_decided_again_byte_for_byte(fleet: Fleet) -> None:
    for stream, recorded in fleet.by_stream().items():
        result = replayed(stream, recorded)
        assert result.divergences == []
        assert result.decisions == sum([len(r.round.decisions) for r in recorded])


@some
@given(fleets, st.data())
def test_a_range_that_begins_at_a_snapshot_ends_where_the_whole_does(
    fleet: Fleet, data: st.DataObject
) -> None:
    for stream, recorded in fleet.by_stream().items():
        cut = data.draw(st.integers(0, len(recorded)))
        decider = decider_for(stream)
        whole = recover(decider, decider.initial(stream), recorded)
        before = recover(decider, decider.initial(stream), recorded[:cut])
        head = recorded[cut - 1].round.head() if cut else empty_head(stream)
        make = next(make for prefix, make in DECIDERS.items() if stream.startswith(prefix))
        later = Audit(decider, decider.load(stream, decider.dump(before)), head, make)
        for one in recorded[cut:]:
            later.replay(one)
        assert later.result.divergences == []
        assert later.decider.dump(later.state) == decider.dump(whole)


@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.sets(st.integers(1, 60)),
    st.integers(0, 400),
    st.integers(1, 5),
)
def test_however_a_stream_is_cut_each_round_is_judged_once(
    first: int, more: int, snapshots: set[int], goal: int, workers: int
) -> None:
    last = first + more
    stored = [Start(number, 3 * number, b"%d" % number) for number in sorted(snapshots)]
    begin = next((s for s in reversed(stored) if s.round < first), Start(0, 0, b""))
    pieces = cut(Head("fleet/0", last, 3 * last, b"", 0), first, last, begin, stored, goal)
    assert [number for p in pieces for number in range(p.first, p.last + 1)] == list(
        range(first, last + 1)
    )
    assert pieces[0].start == begin.round
    for one, then in pairwise(pieces):
        assert (then.start, one.arrives) == (one.last, b"%d" % one.last), (
            "the next begins where this one must arrive"
        )
    assert pieces[-1].arrives == b""
    dealt = [piece for share in shares_of(pieces, workers) for piece in share]
    assert sorted(dealt, key=lambda p: p.first) == pieces


def swapped(d: Decision) -> Decision:
    return structs.replace(d, subject=f"{d.subject}-other", outcome="other")


@some
@given(seeds, st.data())
def test_one_changed_decision_is_found_where_it_is_and_nowhere_else(
    seed: int, data: st.DataObject
) -> None:
    stream, recorded = longest(a_fleet(7, Random(seed), happenings=8))
    places = [n for n, r in enumerate(recorded) if r.round.decisions]
    place = data.draw(st.sampled_from(places))
    r = recorded[place].round
    index = data.draw(st.integers(0, len(r.decisions) - 1))
    decisions = tuple([swapped(d) if n == index else d for n, d in enumerate(r.decisions)])
    recorded[place] = replace(recorded[place], round=replace(r, decisions=decisions))
    (found,) = replayed(stream, recorded).divergences
    assert (found.round, found.seq, found.step, found.blame) == (
        r.number,
        r.decisions[index].seq,
        "id",
        "record",
    )


@some
@given(seeds, st.data())
def test_an_input_less_is_found_in_its_round(seed: int, data: st.DataObject) -> None:
    """Whether or not anything would have been decided otherwise: the hash of the round knows it."""
    stream, recorded = longest(a_fleet(7, Random(seed), happenings=8))
    place = data.draw(st.integers(0, len(recorded) - 1))
    r, events = recorded[place].round, recorded[place].events
    recorded[place] = RecordedRound(replace(r, inputs=r.inputs[:-1]), events[:-1])
    found = replayed(stream, recorded[: place + 1]).divergences
    assert [(d.round, d.blame) for d in found] == [(r.number, "record")]
