"""Laws of the limit that clusters' capacity sets to strategies that divide without it."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.placement import Placement
from wharfinger.engine.fleet.question import Question
from wharfinger.engine.fleet.room import cut_to_room


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(200), deadline=None)
def test_a_large_fleet_is_cut_as_a_small_one(random: Random) -> None:
    names = [f"town-{i:02d}" for i in range(random.randint(1, 12))]
    estimates = [random.choice((-1, 0, 1, 3, 9)) for _ in names]
    uncounted = {name: random.randint(0, 9) for name in names if random.random() < 0.2}

    def unknown(name: str) -> int:
        return uncounted.get(name, 0)

    def anywhere(name: str) -> int:
        return len(name) % 3

    replicas = random.choice((1, 2, 5, 2**63))
    question = Question(
        Placement(),
        replicas,
        {names[0]: 1} if random.random() < 0.2 else {},
        (),
        retry=random.random() < 0.2,
        beyond=random.choice((unknown, unknown, anywhere, None)),
        unknown=unknown,
        uncounted=random.choice((None, (*uncounted, "elsewhere"))),
    )
    targets = dict.fromkeys(names if random.random() < 0.8 else names[1:], replicas)
    by_list = cut_to_room(question, names, estimates, targets)
    by_array = cut_to_room(question, names, np.array(estimates, np.int64), targets)
    assert [*by_array.items()] == [*by_list.items()]
