"""Wherever a stream is taken up again, it goes on as it would have: recovered or loaded, it decides
the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.fleets import Fleet, a_fleet

from wharfinger.history.deciders import DECIDERS, decider_of
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decider
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.step import empty_head

CUTS = 4


def seeds(few: int, *more: int) -> list[Any]:
    """The first few in `make test`, all in `make test-long`."""
    return [
        pytest.param(number, marks=() if place < few else pytest.mark.long)
        for place, number in enumerate(more)
    ]


@pytest.mark.parametrize("number", seeds(8, 451, *range(24)))
def test_a_stream_taken_up_anywhere_goes_on_alike(number: int) -> None:
    taken_up(a_fleet(number))


@pytest.mark.parametrize("number", seeds(4, *range(30, 44)))
def test_so_does_one_whose_pods_mind_each_other(number: int) -> None:
    taken_up(a_fleet(number, happenings=40, traits=True, configured=True))


def taken_up(fleet: Fleet) -> None:
    for stream, rounds in fleet.by_stream().items():
        for cut in sorted({len(rounds) * part // (CUTS + 1) for part in range(1, CUTS + 1)}):
            before, after = rounds[:cut], rounds[cut:]
            if not before or not after:
                continue
            decider = decider_of(stream, before[-1].round.profile)
            assert decider is not None
            folded = recover(decider, decider.initial(stream), before)
            goes_on(decider, folded, stream, before, after)
            loaded = decider.load(
                stream, decider.dump(recover(decider, decider.initial(stream), before))
            )
            goes_on(decider, loaded, stream, before, after)


def goes_on(
    decider: Decider[Any],
    state: Any,
    stream: str,
    before: Sequence[RecordedRound],
    after: Sequence[RecordedRound],
) -> None:
    head = before[-1].round.head() if before else empty_head(stream)
    of_profile = next(make for prefix, make in DECIDERS.items() if stream.startswith(prefix))
    assert audit(decider, state, head, after, of_profile).divergences == []
