"""The load of nodes out of what a metrics API says, however often it is asked."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.domain.node import Node
from wharfinger.stages.collector.node_usage import WHOLE, WINDOW_US, NodeUsage, NodeUsageWindow

NAMES = ("n0", "n1", "n2", "gone")
NODES = {
    "n0": Node("n0", {"cpu": 4000, "memory": 1 << 30}),
    "n1": Node("n1", {"cpu": 333, "memory": 1000}),
    "n2": Node("n2", {"memory": 10}),
}
SECOND_US = 1_000_000

ANSWERS = st.lists(
    st.tuples(
        st.integers(1, 200),
        st.dictionaries(
            st.sampled_from(NAMES),
            st.tuples(st.integers(0, 5), st.integers(0, 6000), st.integers(0, 1 << 31)),
        ),
    ),
    min_size=1,
    max_size=12,
)
"""Seconds since the answer before, and of each node: when it was measured, CPU, memory."""


@given(answers=ANSWERS, repeated=st.integers(1, 3))
def test_a_load_is_the_mean_of_what_was_measured_in_five_minutes(
    answers: list[tuple[int, dict[str, tuple[int, int, int]]]], repeated: int
) -> None:
    window, at = NodeUsageWindow(), 0
    seen: dict[str, list[tuple[int, int, int, int]]] = {}
    newest: dict[str, int] = {}
    for seconds, answer in answers:
        at += seconds * SECOND_US
        usages = [NodeUsage(name, str(when), c, m) for name, (when, c, m) in answer.items()]
        for _ in range(repeated):  # asked again before anything is measured again
            window.observe(usages, at)
        for name, (when, cpu, memory) in answer.items():
            if newest.get(name) != when:
                newest[name] = when
                seen.setdefault(name, []).append((at, when, cpu, memory))
        for name in list(seen):
            seen[name] = [one for one in seen[name] if at - one[0] < WINDOW_US]
            if not seen[name]:
                del seen[name]
        for name in newest.keys() - seen.keys() - answer.keys():
            del newest[name]
    found = {load.metric: load for load in window.loads("oslo", NODES.get, 60, at)}
    for metric, resource, column in (
        ("cpu_usage_avg_5m", "cpu", 2),
        ("mem_usage_avg_5m", "memory", 3),
    ):
        expected = {
            name: int(
                Fraction(sum(one[column] for one in known), len(known))
                / NODES[name].allocatable[resource]
                * WHOLE
            )
            for name, known in seen.items()
            if name in NODES and resource in NODES[name].allocatable
        }
        if not expected:
            assert metric not in found
            continue
        load = found[metric]
        assert load.loads == {name: min(2**31 - 1, value) for name, value in expected.items()}
        assert list(load.loads) == sorted(load.loads)
        assert (load.cluster, load.period_s, load.measured_at_us) == ("oslo", 60, at)
