"""Laws of nodes that become smaller under their replicas, over histories as they arrive: several
facts in a round, repeated, withdrawn in the same round, beside pods of others."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node, needs
from tests.hunting import examples

from wharfinger.domain.node import Pod
from wharfinger.domain.value import Value
from wharfinger.events.cluster_state import PodsObserved, into_buckets
from wharfinger.events.decisions import ReplicasPlaced, ReplicasReleased
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head

NODES = ("a", "b", "c")
CPU = needs(cpu=1000)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Value]]:
    """Rounds of facts, each fact possibly repeated. Replicas all request one CPU."""
    sizes = dict.fromkeys(NODES, 4)
    buckets = draw(st.sampled_from([1, 2]))
    plane = Harness()
    rounds: list[list[Value]] = []

    def nodes() -> list[Value]:
        return list(into_buckets(CLUSTER, [a_node(n, 1000 * c) for n, c in sizes.items()], buckets))

    rounds.append(
        [*nodes(), plane.assigned(*[(f"b{p}", draw(st.integers(1, 5)), CPU, p) for p in range(3)])]
    )
    for _ in range(draw(st.integers(1, 6))):
        facts: list[Value] = []
        for _ in range(draw(st.integers(1, 3))):
            match draw(st.integers(0, 5)):
                case 0 | 1 | 2:
                    sizes[draw(st.sampled_from(NODES))] = draw(st.integers(0, 5))
                    new: list[Value] = nodes()
                case 3:
                    node, count = draw(st.sampled_from(NODES)), draw(st.integers(0, 2))
                    pods = [Pod(f"{node}{i}", f"p{i}", CPU, node) for i in range(count)]
                    new = [PodsObserved(CLUSTER, node, tuple(pods))]
                case 4:
                    buckets = draw(st.sampled_from([1, 2, 3]))
                    new = nodes()
                case _:
                    p = draw(st.integers(0, 2))
                    new = [plane.assigned((f"b{p}", draw(st.integers(0, 6)), CPU, p))]
            facts += new * draw(st.sampled_from([1, 1, 2]))
        rounds.append(facts)
    return rounds


@settings(max_examples=examples(100), deadline=None)
@given(histories())
def test_replicas_never_need_more_than_their_node_has(rounds: list[list[Value]]) -> None:
    plane = Harness()
    for facts in rounds:
        plane.feed(*facts)
        book = plane.state.book
        for name, here in book.on_node.items():
            assert 1000 * len(here) <= book.nodes[name].allocatable["cpu"], name


@settings(max_examples=examples(100), deadline=None)
@given(histories())
def test_the_least_important_leave_and_no_more_than_have_to(rounds: list[list[Value]]) -> None:
    """Replicas are of one size. So of a node that shrank, as many leave as it is short of, and none
    of a higher priority than one that stays."""
    plane = Harness()
    for facts in rounds:
        before = {
            name: [(plane.state.book.held[b].priority, b, o) for b, o in here]
            for name, here in plane.state.book.on_node.items()
        }
        left: dict[str, list[int]] = {}
        others = False
        for decision in plane.feed(*facts):
            data = decision.data
            if isinstance(data, ReplicasReleased) and data.reason == "NodeShrank":
                assert not others, "released before anything is placed"
                priority = int(data.binding[1:])
                for share in data.released:
                    left.setdefault(share.node, []).extend([priority] * len(share.ordinals))
            others = others or isinstance(data, ReplicasPlaced)
        book = plane.state.book
        for name, priorities in left.items():
            of_others = len(book.pods.get(name, ()))
            fit = max(0, book.nodes[name].allocatable["cpu"] // 1000 - of_others)
            assert len(before[name]) - len(priorities) == min(fit, len(before[name]))
            stayed = [p for p, *_ in before[name]]
            for p in priorities:
                stayed.remove(p)
            assert min(stayed, default=9) >= max(priorities)


@settings(max_examples=examples(40), deadline=None)
@given(histories(), st.integers(0, 7))
def test_recovered_at_any_round_and_replayed(rounds: list[list[Value]], cut: int) -> None:
    plane = Harness()
    for facts in rounds:
        plane.feed(*facts)
    decider = plane.decider
    half = recover(decider, decider.initial(STREAM), plane.rounds[:cut])
    loaded = decider.load(STREAM, decider.dump(half))
    whole = recover(decider, loaded, plane.rounds[cut:])
    assert decider.dump(whole) == decider.dump(plane.state)
    assert (
        audit(decider, decider.initial(STREAM), empty_head(STREAM), plane.rounds).divergences == []
    )
