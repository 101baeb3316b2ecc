"""The agenda against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.stages.due_times import Agenda

keys = st.tuples(st.sampled_from("abcde"))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys, st.integers(0, 20)),
        st.tuples(st.just("discard"), keys, st.just(0)),
        st.tuples(st.just("pop"), st.just(("",)), st.integers(0, 20)),
    ),
    max_size=200,
)


@given(steps)
def test_it_gives_what_is_due_in_order_and_knows_the_earliest(
    steps: list[tuple[str, tuple[str], int]],
) -> None:
    agenda: Agenda[tuple[str]] = Agenda()
    plain: dict[tuple[str], int] = {}
    for what, key, when in steps:
        if what == "set":
            agenda.set(key, when)
            plain[key] = when
        elif what == "discard":
            agenda.discard(key)
            plain.pop(key, None)
        else:
            due = sorted((t, k) for k, t in plain.items() if t <= when)
            assert agenda.ripe(when) == [k for _, k in due], "they are seen"
            assert agenda.pop(when) == [k for _, k in due], "and stay until they are taken"
            for _, k in due:
                del plain[k]
        assert agenda.next() == min(plain.values(), default=None)
        assert len(agenda) == len(plain)


def test_moving_a_key_for_ever_does_not_grow_it() -> None:
    agenda: Agenda[tuple[str]] = Agenda()
    for i in range(10_000):
        agenda.set(("a",), i)
    assert len(agenda._heap) < 100
