"""Stepping, recovering and auditing a stream, without a database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs
from tests.counter import Counter, Writer, withdrawn

from wharfinger.events.decisions import BindingReleased
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.hashing import genesis, round_hash
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Round
from wharfinger.kernel.step import decision_id, empty_head, step, tick


def history(rounds: int = 5, per_round: int = 3) -> tuple[Writer, list[RecordedRound]]:
    writer = Writer(empty_head("fleet/0", epoch=1))
    recorded = []
    for number in range(rounds):
        events = [withdrawn(number * per_round + i) for i in range(per_round)]
        recorded.append(RecordedRound(writer.step(events), events))
    return writer, recorded


def divergences(
    recorded: list[RecordedRound], decider: Counter | None = None
) -> list[tuple[int, str]]:
    decider = decider or Counter()
    result = audit(decider, decider.initial("fleet/0"), empty_head("fleet/0"), recorded)
    return [(d.round, d.step) for d in result.divergences]


def with_round(recorded: list[RecordedRound], place: int, round_: Round) -> list[RecordedRound]:
    return [replace(r, round=round_) if n == place else r for n, r in enumerate(recorded)]


def rehashed(r: Round) -> Round:
    """As somebody would write it who knows how hashes are made."""
    return replace(
        r,
        hash=round_hash(
            r.prev_hash,
            r.stream,
            r.number,
            r.epoch,
            r.at,
            r.engine,
            r.profile,
            r.inputs,
            r.basis,
            r.decisions,
            r.snapshot,
        ),
    )


def test_decisions_are_dense_and_named_after_their_place() -> None:
    _, recorded = history()
    decisions = [d for r in recorded for d in r.round.decisions]
    assert [d.seq for d in decisions] == list(range(1, len(decisions) + 1))
    assert [d.id for d in decisions] == [decision_id("fleet/0", d.seq) for d in decisions]


def test_a_draft_sees_the_one_before_it() -> None:
    _, recorded = history(rounds=1, per_round=3)
    said = [d.data.uid for d in recorded[0].round.decisions if isinstance(d.data, BindingReleased)]
    assert said == ["1/1", "2/1", "3/1"]


def test_rounds_are_chained_from_the_streams_name() -> None:
    _, recorded = history()
    rounds = [r.round for r in recorded]
    assert rounds[0].prev_hash == genesis("fleet/0")
    assert [r.prev_hash for r in rounds[1:]] == [r.hash for r in rounds[:-1]]
    assert genesis("fleet/0") != genesis("fleet/1")


def test_the_last_snapshot_known_stays_known() -> None:
    writer = Writer(empty_head("fleet/0"))
    assert writer.step([], snapshot=b"digest").snapshot == b"digest"
    assert writer.step([]).snapshot == b"digest"


def test_time_does_not_run_backwards() -> None:
    writer, _ = history()
    with pytest.raises(ValueError, match="cannot follow"):
        step(writer.decider, writer.state, writer.head, [], writer.head.at - 1, {})


def test_a_tick_is_known_by_what_was_due() -> None:
    assert tick("fleet/0", 5).id == tick("fleet/0", 5).id
    assert tick("fleet/0", 5).id not in (tick("fleet/0", 6).id, tick("fleet/1", 5).id)
    assert tick("fleet/0", 5, 8).id not in (tick("fleet/0", 5, 7).id, tick("fleet/0", 5).id)


def test_an_untouched_history_has_no_divergence() -> None:
    _, recorded = history()
    decider = Counter()
    result = audit(decider, decider.initial("fleet/0"), empty_head("fleet/0"), recorded)
    assert result.divergences == []
    assert (result.rounds, result.inputs) == (5, 15)
    assert result.decisions == sum(len(r.round.decisions) for r in recorded)


@pytest.mark.parametrize(
    ("change", "step"),
    [
        (lambda d: structs.replace(d, body=b"{}"), "bytes"),
        (lambda d: structs.replace(d, subject="other"), "id"),
        (lambda d: structs.replace(d, outcome="other"), "id"),
        (lambda d: structs.replace(d, type="other"), "id"),
        (lambda d: structs.replace(d, cause=None), "trigger"),
        (lambda d: structs.replace(d, id=decision_id("x", 1)), "id"),
    ],
    ids=["body", "subject", "outcome", "type", "cause", "id"],
)
def test_a_changed_decision_is_found_though_the_hash_was_left(
    change: Callable[[Decision], Decision], step: str
) -> None:
    _, recorded = history()
    r = recorded[2].round
    changed = replace(r, decisions=(change(r.decisions[0]), *r.decisions[1:]))
    assert divergences(with_round(recorded, 2, changed)) == [(3, step)]


def test_a_decision_less_or_more_is_counted() -> None:
    _, recorded = history()
    r = recorded[2].round
    assert divergences(with_round(recorded, 2, replace(r, decisions=r.decisions[:-1])))[0] == (
        3,
        "trigger",
    )


def test_a_forged_round_is_found_and_so_is_the_chain_that_does_not_know_it() -> None:
    _, recorded = history()
    r = recorded[2].round
    forged = rehashed(
        replace(r, decisions=(structs.replace(r.decisions[0], body=b"{}"), *r.decisions[1:]))
    )
    assert divergences(with_round(recorded, 2, forged)) == [(3, "bytes"), (4, "chain")]


def test_an_event_that_was_changed_is_found() -> None:
    _, recorded = history()
    events = [withdrawn(77), *recorded[2].events[1:]]
    found = divergences(
        [replace(r, events=events) if n == 2 else r for n, r in enumerate(recorded)]
    )
    assert found[0][0] == 3


def test_a_round_out_of_its_time_is_found() -> None:
    _, recorded = history()
    early = rehashed(replace(recorded[2].round, at=1))
    assert (3, "time") in divergences(with_round(recorded, 2, early))


def test_a_missing_round_breaks_the_chain() -> None:
    _, recorded = history()
    assert divergences(recorded[:2] + recorded[3:])[0] == (4, "chain")


def test_another_profile_that_decides_the_same_is_named() -> None:
    class Renamed(Counter):
        @property
        def profile(self) -> str:
            return "counter/other"

    _, recorded = history(rounds=2)
    assert divergences(recorded, Renamed()) == [(1, "profile"), (2, "profile")]


def test_a_writer_with_other_settings_is_replayed_with_them() -> None:
    """From the state that the old settings left, as the new process found it."""
    first, recorded = history(rounds=3)
    second = Writer(first.head, Counter(every=2))
    second.state = second.decider.load("fleet/0", first.decider.dump(first.state))
    for number in range(100, 104):
        events = [withdrawn(number)]
        recorded.append(RecordedRound(second.step(events), events))
    fresh = Counter(every=7)
    result = audit(
        fresh, fresh.initial("fleet/0"), empty_head("fleet/0"), recorded, Counter.of_profile
    )
    assert result.divergences == []
    assert divergences(recorded)[0][0] == 4


def test_a_profile_that_nobody_knows_is_a_divergence() -> None:
    _, recorded = history(rounds=2)
    strange = with_round(recorded, 1, rehashed(replace(recorded[1].round, profile="tally/3")))
    decider = Counter()
    result = audit(
        decider, decider.initial("fleet/0"), empty_head("fleet/0"), strange, Counter.of_profile
    )
    assert [(d.round, d.step, d.recorded, d.replayed) for d in result.divergences] == [
        (2, "profile", "tally/3", "counter/3")
    ]
