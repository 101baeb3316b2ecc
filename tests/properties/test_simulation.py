"""The whole plane on a log and a ledger that fail: `tests.simulation`, and that its checker finds
what it is there to find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests import simulation
from tests.hunting import examples
from tests.simulation import Log, Simulation, WrongError, simulated

from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.envelope import Event
from wharfinger.stages.fleet import FleetDecider

SEEDS = 30
FAULTS_FOUND_WITHIN = 40
"""Seeds within which a fault that is built in has to be found."""


@pytest.mark.seeded
def test_every_accepted_event_has_an_effect_or_a_reason_under_faults() -> None:
    seeds = examples(SEEDS)
    figures = sum((simulated(seed) for seed in range(1, seeds)), simulated(0))

    # that there was something to hold
    assert figures["seeds"] == seeds
    assert figures["accepted"] > 20 * seeds
    assert figures["decided"] > 5 * seeds
    assert figures["refused_commits"]
    assert figures["unanswered_commits"]


def test_a_seed_is_the_same_history_every_time() -> None:
    histories = []
    for _ in range(2):
        one = Simulation(7)
        one.run()
        histories.append({n: rs[-1].round.hash for n, rs in one.ledger.rounds.items()})

    assert histories[0] == histories[1]
    assert len(histories[0]) > 1


def _found() -> str:
    """What the checker says about the first seed that fails; empty: none does."""
    for seed in range(FAULTS_FOUND_WITHIN):
        try:
            simulated(seed)
        except WrongError as wrong:
            return str(wrong)
    return ""


def test_an_input_that_is_taken_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them(_: Any, __: Any, events: Sequence[Event[Any]], ___: Any) -> list[Event[Any]]:
        return list(events)

    monkeypatch.setattr(simulation, "fresh_inputs", all_of_them)

    assert "taken twice" in _found()


def test_a_record_that_the_log_loses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Log.append

    def losing(self: Log, event: Event[Any], partition_key: str) -> None:
        if not isinstance(event.data, BindingWithdrawn):
            append(self, event, partition_key)

    monkeypatch.setattr(Log, "append", losing)

    assert "never taken in" in _found()


def test_a_withdrawal_that_is_not_acted_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = FleetDecider.fold_input

    def deaf(self: FleetDecider, state: Any, event: Event[Any], at: int) -> None:
        if not isinstance(event.data, BindingWithdrawn):
            fold(self, state, event, at)

    monkeypatch.setattr(FleetDecider, "fold_input", deaf)

    assert "withdrawn, and" in _found()


def test_a_decision_that_depends_on_more_than_the_history_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decide, turns = FleetDecider.decide, iter(range(1 << 30))

    def moody(self: FleetDecider, state: Any, at: int) -> Any:
        if next(turns) % 3:
            yield from decide(self, state, at)

    monkeypatch.setattr(FleetDecider, "decide", moody)

    assert "replay differs" in _found()
