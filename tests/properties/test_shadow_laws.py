"""What holds of every comparison with another scheduler: who chooses among the best is never called
wrong, whatever else is chosen is called what it is, and the order in which facts arrive within a
step means nothing."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.properties.test_framework_laws import FRAMEWORK, OBJECTS, REQUIREMENTS, nodes, pods

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_upkeep import PodUpkeep
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.events.cluster_state import PodsObserved
from wharfinger.stages.shadow import ShadowBook, ShadowDecision, chosen, compared

WANTED = st.lists(REQUIREMENTS, min_size=1, max_size=6)
CHANCE = st.randoms(use_true_random=False)


def begun(told: list[Node], running: list[Pod]) -> ShadowBook:
    book = ShadowBook(FRAMEWORK)
    by_node: dict[str, list[Pod]] = {}
    for pod in running:
        by_node.setdefault(pod.node, []).append(pod)
    book.begin({n.name: n for n in told}, by_node, OBJECTS)
    return book


class OtherScheduler:
    """Places pods one after the other, each on a node of its choice, and says what is on the nodes
    then."""

    def __init__(self, told: list[Node], running: list[Pod]) -> None:
        self.snapshot = Snapshot.of(told, running, OBJECTS)

    def facts(self, *names: str) -> list[PodsObserved]:
        wanted = dict.fromkeys(names)
        return [PodsObserved("oslo", n, tuple(self.snapshot.nodes[n].pods)) for n in wanted]

    def place(self, pod: Pod, node: str) -> Pod:
        placed = msgspec.structs.replace(pod, node=node)
        self.snapshot.add(placed)
        return placed


def pod_number(i: int, requirements: Requirements) -> Pod:
    upkeep = PodUpkeep(created_us=1_000_000 * (i + 1))
    return Pod(f"new-{i}", f"new-{i}", requirements, upkeep=upkeep)


@settings(max_examples=examples(80), deadline=None)
@given(nodes(), pods(), WANTED, CHANCE, st.integers(1, 6))
def test_a_choice_among_the_best_is_agreed_or_equal(
    told: list[Node], running: list[Pod], wanted: list[Requirements], chance: Random, step: int
) -> None:
    """Also where several of them become known in one step, in any order."""
    other, book = OtherScheduler(told, running), begun(told, running)
    placed: list[Pod] = []
    for i, requirements in enumerate(wanted):
        pod = pod_number(i, requirements)
        best = FRAMEWORK.run(other.snapshot, pod).best
        if best:
            placed.append(other.place(pod, chance.choice(best)))
        if len(placed) >= step:
            _agrees(book, other, placed, chance)
            placed = []
    _agrees(book, other, placed, chance)


def _agrees(book: ShadowBook, other: OtherScheduler, placed: list[Pod], chance: Random) -> None:
    facts = other.facts(*(pod.node for pod in placed))
    chance.shuffle(facts)
    found = book.observe(facts)
    assert {one.uid for one in found} == {pod.uid for pod in placed}
    assert {one.verdict for one in found} <= {"agreed", "equal"}
    for one in found:
        assert (one.verdict == "agreed") == (one.ours == one.theirs)
        assert one.our_score == one.their_score
        assert not one.plugins
        assert not one.refusals


@settings(max_examples=examples(120), deadline=None)
@given(nodes(), pods(), REQUIREMENTS, CHANCE)
def test_any_other_choice_is_called_what_it_is(
    told: list[Node], running: list[Pod], requirements: Requirements, chance: Random
) -> None:
    snapshot = Snapshot.of(told, running, OBJECTS)
    pod = pod_number(0, requirements)
    outcome = FRAMEWORK.run(snapshot, pod)
    theirs, recorded = (chance.choice(sorted(snapshot.nodes)) for _ in range(2))
    for decided in ("", recorded):
        one = compared(FRAMEWORK, snapshot, pod, theirs, decided)
        assert one.ours == (decided or chosen(outcome, pod))
        if theirs not in outcome.feasible:
            assert one.verdict == "refused"
            assert one.refusals
            assert one.refusals[0].plugin == (outcome.rejected or outcome.first[theirs]).plugin
            continue
        lead = outcome.totals.get(one.ours, -1) - outcome.totals[theirs]
        expected = "better" if lead > 0 else "worse" if lead < 0 else "equal"
        assert one.verdict == ("agreed" if one.ours == theirs else expected)
        if one.verdict in ("better", "worse") and one.ours in outcome.totals:
            assert sum(d.ours - d.theirs for d in one.plugins) == lead
        if not decided:
            assert one.verdict != "worse"


@settings(max_examples=examples(60), deadline=None)
@given(nodes(), pods(), WANTED, CHANCE)
def test_the_order_of_facts_within_a_step_means_nothing(
    told: list[Node], running: list[Pod], wanted: list[Requirements], chance: Random
) -> None:
    other = OtherScheduler(told, running)
    placed = [
        other.place(pod_number(i, r), chance.choice(sorted(other.snapshot.nodes)))
        for i, r in enumerate(wanted)
    ]
    facts = other.facts(*(pod.node for pod in placed))
    answers: list[list[ShadowDecision]] = []
    for _ in range(3):
        chance.shuffle(facts)
        shuffled = []
        for fact in facts:
            there = list(fact.pods)
            chance.shuffle(there)
            shuffled.append(msgspec.structs.replace(fact, pods=tuple(there)))
        answers.append(begun(told, running).observe(shuffled))
    assert answers[0] == answers[1] == answers[2]


@settings(max_examples=examples(60), deadline=None)
@given(nodes(), pods(), WANTED, REQUIREMENTS, CHANCE)
def test_of_several_facts_about_a_node_within_a_step_the_last_one_holds(
    told: list[Node],
    running: list[Pod],
    wanted: list[Requirements],
    later: Requirements,
    chance: Random,
) -> None:
    """A collector reports a node that gets pods quickly several times. Each pod is compared once,
    and counts once on its node afterwards."""
    other = OtherScheduler(told, running)
    early: list[PodsObserved] = []
    for i, requirements in enumerate(wanted):
        placed = other.place(
            pod_number(i, requirements), chance.choice(sorted(other.snapshot.nodes))
        )
        early += other.facts(placed.node)
    last = other.facts(*(fact.node for fact in early))
    once, often = begun(told, running), begun(told, running)
    found = once.observe(last)
    assert often.observe([*early, *last]) == found
    assert len({one.uid for one in found}) == len(found) == len(wanted)
    pod = other.place(pod_number(99, later), chance.choice(sorted(other.snapshot.nodes)))
    assert often.observe(other.facts(pod.node)) == once.observe(other.facts(pod.node))


@settings(max_examples=examples(60), deadline=None)
@given(nodes(), pods(), WANTED)
def test_a_pod_that_waits_and_fits_is_named(
    told: list[Node], running: list[Pod], wanted: list[Requirements]
) -> None:
    book = begun(told, running)
    waiting = tuple(pod_number(i, r) for i, r in enumerate(wanted))
    book.observe([PodsObserved("oslo", "", waiting)], at=1)
    found = {one.uid: one for one in book.unplaced(60_000_000, 30_000_000)}
    snapshot = Snapshot.of(told, running, OBJECTS)
    for pod in waiting:
        best = FRAMEWORK.run(snapshot, pod).best
        assert (pod.uid in found) == bool(best)
        if best:
            assert found[pod.uid].ours in best
            assert found[pod.uid].verdict == "unplaced"
    assert book.unplaced(60_000_000, 61_000_000) == []
