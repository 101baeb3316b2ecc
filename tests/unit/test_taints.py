"""Which taints a toleration bears, and for how long."""

from __future__ import annotations

import pytest

from wharfinger.domain.taints import (
    Effect,
    Taint,
    Toleration,
    first_untolerated,
    toleration_seconds,
)

GPU = Taint("gpu", "NoSchedule", "a100")
GONE = Taint("gone", "NoExecute")
SLOW = Taint("slow", "PreferNoSchedule")


@pytest.mark.parametrize(
    ("toleration", "borne"),
    [
        (Toleration("gpu", "Equal", "a100"), True),
        (Toleration("gpu", "Equal", "t4"), False),
        (Toleration("gpu", "Equal"), False),
        (Toleration("gpu", "Exists"), True),
        (Toleration("gpu", "Exists", effect="NoSchedule"), True),
        (Toleration("gpu", "Exists", effect="NoExecute"), False),
        (Toleration("cpu", "Exists"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", effect="NoExecute"), False),
        (Toleration("", "Equal", "a100"), False),
        (Toleration(), False),
    ],
)
def test_a_toleration_bears_a_taint_by_key_value_and_effect(
    toleration: Toleration, borne: bool
) -> None:
    assert toleration.tolerates(GPU) is borne


def test_the_first_taint_that_is_not_borne_is_named_and_other_effects_do_not_count() -> None:
    blocking: tuple[Effect, ...] = ("NoSchedule", "NoExecute")
    assert first_untolerated([SLOW, GPU, GONE], [], blocking) == GPU
    assert first_untolerated([SLOW, GPU, GONE], [Toleration("gpu", "Exists")], blocking) == GONE
    assert first_untolerated([SLOW, GPU, GONE], [Toleration("", "Exists")], blocking) is None
    assert first_untolerated([SLOW], [], blocking) is None


def test_a_taint_that_is_not_borne_evicts_at_once_and_only_noexecute_evicts() -> None:
    assert toleration_seconds([GONE], []) == 0
    assert toleration_seconds([GPU, SLOW], []) is None
    assert (
        toleration_seconds(
            [GONE, Taint("also", "NoExecute")], [Toleration("gone", "Exists", seconds=30)]
        )
        == 0
    )


def test_the_shortest_time_counts_and_a_time_below_zero_is_none_at_all() -> None:
    also = Taint("also", "NoExecute")
    bear = [Toleration("gone", "Exists", seconds=300), Toleration("also", "Exists", seconds=30)]
    assert toleration_seconds([GONE, also], bear) == 30
    assert (
        toleration_seconds(
            [GONE], [Toleration("gone", "Exists"), Toleration("gone", "Exists", seconds=60)]
        )
        == 60
    )
    assert toleration_seconds([GONE], [Toleration("gone", "Exists")]) is None
    assert toleration_seconds([GONE], [Toleration("gone", "Exists", seconds=-5)]) == 0
