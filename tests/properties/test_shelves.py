"""What is told together stays together: shelves against a plain picture of where everything
lies."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.events.fact_groups import Shelves

CLUSTERS = st.sampled_from(["oslo", "rena"])
NODES = st.sampled_from(["n-1", "n-2"])
NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("put"), CLUSTERS, NODES, NAMES, st.integers(0, 9)),
    st.tuples(st.just("take"), CLUSTERS, NODES, NAMES, st.just(0)),
    st.tuples(st.just("take anywhere"), CLUSTERS, st.just(""), NAMES, st.just(0)),
    st.tuples(st.just("clear"), CLUSTERS, st.just(""), st.just(""), st.just(0)),
)
PICTURE = st.dictionaries(st.tuples(CLUSTERS, NODES), st.dictionaries(NAMES, st.integers(0, 9)))


@settings(max_examples=examples(200))
@given(known=PICTURE, steps=st.lists(STEPS, max_size=8))
def test_what_was_touched_is_told_whole_and_the_rest_stays_as_it_was(
    known: dict[tuple[str, str], dict[str, int]], steps: list[tuple[str, str, str, str, int]]
) -> None:
    shelves = Shelves({key: things.items() for key, things in known.items()})
    lying = {(*key, name): thing for key, things in known.items() for name, thing in things.items()}
    for what, cluster, node, name, thing in steps:
        match what:
            case "put":
                shelves.put((cluster, node), name, thing)
                lying[cluster, node, name] = thing
            case "take":
                shelves.take((cluster, node), name)
                lying.pop((cluster, node, name), None)
            case "take anywhere":
                shelves.take_anywhere(cluster, name)
                lying = {k: v for k, v in lying.items() if (k[0], k[2]) != (cluster, name)}
            case _:
                shelves.clear(cluster)
                lying = {k: v for k, v in lying.items() if k[0] != cluster}
    told = dict(shelves.touched())
    for key in {*known, *told}:
        whole = tuple(thing for (*place, _), thing in sorted(lying.items()) if tuple(place) == key)
        before = tuple(thing for _, thing in sorted(known.get(key, {}).items()))
        assert told.get(key, before) == whole
