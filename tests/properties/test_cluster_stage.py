"""Laws of the cluster stage over random histories, sane and hostile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, STREAM, Harness, as_items, event, observed, replicas_in
from tests.hunting import examples
from tests.properties.test_nodes import some_nodes, some_requirements

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    Placed,
    Released,
)
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.decisions import (
    NodeRemovalDecided,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head, step
from wharfinger.stages.cluster import ClusterStageState

BINDINGS = ("a", "b", "c", "d", "e")


@st.composite
def histories(draw: st.DrawFn, pods: bool = True) -> tuple[str, list[list[Value]]]:
    """Rounds of events as a real fleet sends them: nodes change, bindings scale, pods come and go,
    removals are proposed."""
    strategy = draw(st.sampled_from(["least-allocated", "most-allocated"]))
    classes = draw(st.lists(some_requirements(), min_size=1, max_size=3))
    roomy = [
        Node(f"roomy{i}", {"cpu": 6000, "memory": 200}, (Device("T4"),) * 3, {"zone": "x"})
        for i in range(2)
    ]
    nodes = [*draw(some_nodes(6)), *roomy]
    rounds: list[list[Value]] = [list(observed(nodes))]
    seq = 0
    for _ in range(draw(st.integers(1, 8))):
        inputs: list[Value] = []
        for _ in range(draw(st.integers(1, 4))):
            what = draw(st.integers(0, 9))
            if what <= 5:
                seq += 1
                binding = draw(st.sampled_from(BINDINGS))
                inputs.append(
                    AssignmentsDecided(
                        CLUSTER,
                        "fleet/0",
                        seq,
                        (
                            Assigned(
                                seq,
                                f"d{seq}",
                                binding,
                                binding,
                                draw(st.integers(0, 6)),
                                draw(st.sampled_from(classes)),
                                draw(st.integers(0, 2)),
                            ),
                        ),
                    )
                )
            elif what == 6 and nodes:
                nodes = [n for n in nodes if draw(st.integers(0, 3))]
                inputs += observed(nodes)
            elif what == 7 and nodes:
                at = draw(st.integers(0, len(nodes) - 1))
                old = nodes[at]
                tainted = draw(
                    st.sampled_from([(), (Taint("a", "NoExecute"),), (Taint("b", "NoSchedule"),)])
                )
                part = draw(st.sampled_from([1, 1, 2, 3]))
                has = {name: amount // part for name, amount in old.allocatable.items()}
                devices = old.devices[: draw(st.integers(0, len(old.devices)))]
                nodes[at] = Node(
                    old.name,
                    has if part > 1 else old.allocatable,
                    devices if part > 1 else old.devices,
                    old.labels,
                    tainted,
                    old.unschedulable,
                )
                inputs += observed(nodes)
            elif what == 8 and nodes and pods:
                name = draw(st.sampled_from(nodes)).name
                inputs.append(
                    PodsObserved(
                        CLUSTER,
                        name,
                        tuple(
                            Pod(
                                f"p{i}",
                                f"p{i}",
                                draw(st.sampled_from(classes)),
                                name,
                                draw(st.sampled_from(["", *BINDINGS])),
                                draw(st.integers(-1, 3)),
                                draw(st.sampled_from([(), ((0, 500),), ((1, 1000), (9, 3))])),
                            )
                            for i in range(draw(st.integers(0, 3)))
                        ),
                    )
                )
            elif nodes:
                inputs.append(
                    NodeRemovalProposed(STREAM, CLUSTER, draw(st.sampled_from(nodes)).name, "empty")
                )
        rounds.append(inputs)
    return strategy, rounds


def run(strategy: str, rounds: Sequence[Sequence[Value]]) -> Harness:
    plane = Harness(strategy)
    for inputs in rounds:
        plane.feed(*inputs)
    return plane


def check_capacity(state: ClusterStageState) -> None:
    """Every node, each resource, each device, added up from the book alone."""
    book = state.book
    for name, on_node in book.on_node.items():
        node = book.nodes[name]
        used: dict[str, int] = {}
        devices = [0] * len(node.devices)
        for replica in on_node.values():
            requests = replica.cls.requirements.requests
            for resource, amount in requests.items():
                used[resource] = used.get(resource, 0) + amount
            used["pods"] = used.get("pods", 0) + (0 if "pods" in requests else 1)
            for index, milli in replica.devices:
                devices[index] += milli
        for resource, amount in used.items():
            if resource != "pods" or "pods" in node.allocatable:
                assert amount <= node.allocatable.get(resource, 0) or amount == 0
        assert max(devices, default=0) <= 1000


@settings(max_examples=examples(150), deadline=None)
@given(histories(pods=False))
def test_no_resource_and_no_device_is_given_away_twice(
    history: tuple[str, list[list[Value]]],
) -> None:
    plane = Harness(history[0])
    for inputs in history[1]:
        plane.feed(*inputs)
        check_capacity(plane.state)


@settings(max_examples=examples(150), deadline=None)
@given(histories())
def test_every_assignment_is_placed_or_given_back_and_nothing_stays_open(
    history: tuple[str, list[list[Value]]],
) -> None:
    plane = Harness(history[0])
    for inputs in history[1]:
        before = {b: len(h.placed) for b, h in plane.state.book.held.items()}
        wanted = {b: h.desired for b, h in plane.state.book.held.items()}
        for one in inputs:
            if isinstance(one, AssignmentsDecided):
                wanted.update({i.binding: i.replicas for i in one.items if isinstance(i, Assigned)})
        decisions = plane.feed(*inputs)
        after = {b: len(h.placed) for b, h in plane.state.book.held.items()}
        for binding in wanted:
            placed = released = refused = 0
            for d in decisions:
                if d.subject != binding:
                    continue
                match d.data:
                    case ReplicasPlaced() as p:
                        placed += len(replicas_in(p.placed))
                    case ReplicasReleased() as r:
                        released += len(replicas_in(r.released))
                    case ReplicasRefused() as r:
                        refused += r.count
            assert before.get(binding, 0) + placed - released == after.get(binding, 0)
            assert after.get(binding, 0) + refused == wanted[binding]
        assert not plane.state.book.unsettled
        assert plane.feed() == []


@settings(max_examples=examples(100), deadline=None)
@given(histories())
def test_what_is_derived_from_placements_agrees_with_them(
    history: tuple[str, list[list[Value]]],
) -> None:
    plane = Harness(history[0])
    for inputs in history[1]:
        plane.feed(*inputs)
        book = plane.state.book
        placed = Counter(held.priority for held in book.held.values() if held.placed)
        assert book.placed_priorities == dict(placed)
        table = book.table
        for row in table.rows.values():
            assert table.free[:, row.slot].tolist() == row.free
            assert table.scored[:, row.slot].tolist() == row.scored
            left = table.device_free[row.slot].tolist()
            assert left == row.device_free + [-1] * (len(left) - len(row.device_free))


@settings(max_examples=examples(120), deadline=None)
@given(histories(), st.integers(0, 8))
def test_a_stored_state_goes_on_as_the_live_one_and_recovery_arrives_at_the_same(
    history: tuple[str, list[list[Value]]], cut: int
) -> None:
    plane = run(*history)
    decider = plane.decider
    live = decider.dump(plane.state)
    assert decider.dump(recover(decider, decider.initial(STREAM), plane.rounds)) == live
    half = decider.initial(STREAM)
    cut = min(cut, len(plane.rounds))
    recover(decider, half, plane.rounds[:cut])
    loaded = decider.load(STREAM, decider.dump(half))
    assert decider.dump(loaded) == decider.dump(half)
    head = plane.rounds[cut - 1].round.head() if cut else empty_head(STREAM)
    for recorded in plane.rounds[cut:]:
        again = step(decider, loaded, head, recorded.events, recorded.round.at, {})
        assert again.decisions == recorded.round.decisions
        assert again.hash == recorded.round.hash
        head = again.head()
    assert decider.dump(loaded) == live
    result = audit(decider, decider.initial(STREAM), empty_head(STREAM), plane.rounds)
    assert result.divergences == []


@settings(max_examples=examples(120), deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_redelivery_changes_nothing(
    history: tuple[str, list[list[Value]]], chance: random.Random
) -> None:
    """Facts and assignments delivered again right after themselves; a proposal is known by its id,
    which the shell asks."""
    plain, again = Harness(history[0]), Harness(history[0])
    for inputs in history[1]:
        events = [event(one, len(plain.rounds), i) for i, one in enumerate(inputs)]
        first = plain.feed_events(events)
        twice = []
        for e in events:
            twice.append(e)
            if chance.random() < 0.5:
                twice.append(e)
        assert again.feed_events(twice) == first
    assert plain.decider.dump(plain.state) == again.decider.dump(again.state)
    late = [
        e
        for recorded in plain.rounds
        for e in recorded.events
        if isinstance(e.data, AssignmentsDecided)
    ]
    assert again.feed_events(late) == []
    assert plain.decider.dump(plain.state) == again.decider.dump(again.state)


@settings(max_examples=examples(80), deadline=None)
@given(histories())
def test_its_own_decisions_coming_back_change_nothing(
    history: tuple[str, list[list[Value]]],
) -> None:
    plane = Harness(history[0])
    for inputs in history[1]:
        told = as_items(plane.feed(*inputs))
        before = plane.decider.dump(plane.state)
        if told is not None:
            assert plane.feed(told) == []
        assert plane.decider.dump(plane.state) == before


# --- hostile input: anything that decodes

wild = st.one_of(
    st.integers(-5, 5), st.sampled_from([-(2**70), -(2**63), 2**53, 2**63, 2**64, 10**40])
)
words = st.sampled_from(
    [
        "",
        "cpu",
        "memory",
        "pods",
        "x",
        "a",
        "nvidia.com/gpu",
        "é\x00\n",
        "n" * 253,
        "\U0001f6a2" * 400,
    ]
)
wild_requirements = st.builds(
    Requirements,
    requests=st.dictionaries(words, wild, max_size=4),
    devices=st.lists(
        st.builds(
            DeviceRequest,
            count=wild,
            milli=wild,
            models=st.lists(words, max_size=1).map(tuple),
            kind=words,
        ),
        max_size=3,
    ).map(tuple),
    node_selector=st.dictionaries(words, words, max_size=1),
    tolerations=st.lists(
        st.builds(
            Toleration,
            key=words,
            operator=st.sampled_from(["Exists", "Equal"]),
            seconds=st.none() | wild,
        ),
        max_size=2,
    ).map(tuple),
)
wild_nodes = st.builds(
    Node,
    name=words,
    allocatable=st.dictionaries(words, wild, max_size=4),
    devices=st.lists(st.builds(Device, words, words), max_size=3).map(tuple),
    labels=st.dictionaries(words, words, max_size=2),
    taints=st.lists(
        st.builds(Taint, words, st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])),
        max_size=2,
    ).map(tuple),
    unschedulable=st.booleans(),
)
wild_pods = st.builds(
    Pod,
    uid=words,
    name=words,
    requirements=wild_requirements,
    node=words,
    binding=st.sampled_from(["", "a", "b"]),
    ordinal=wild,
    devices=st.lists(st.tuples(wild, wild), max_size=3).map(tuple),
)
wild_items: st.SearchStrategy[AssignmentItem] = st.one_of(
    st.builds(
        Assigned,
        seq=wild,
        decision=words,
        binding=st.sampled_from(["a", "b", "n" * 300]),
        uid=words,
        replicas=st.integers(-3, 40) | st.sampled_from([-(10**30)]),
        requirements=wild_requirements,
        priority=wild,
    ),
    st.builds(Placed, seq=wild, decision=words, binding=words, placed=st.just(())),
    st.builds(Released, seq=wild, decision=words, binding=words, unbound=wild),
)
clusters = st.sampled_from([CLUSTER, CLUSTER, CLUSTER, "", "bergen"])
wild_events: st.SearchStrategy[Value] = st.one_of(
    st.builds(
        NodesObserved,
        cluster=clusters,
        bucket=st.integers(-1, 2) | wild,
        buckets=st.sampled_from([1, 1, 2, 2, 0, -1, 2**70]),
        nodes=st.lists(wild_nodes, max_size=5).map(tuple),
    ),
    st.builds(
        PodsObserved, cluster=clusters, node=words, pods=st.lists(wild_pods, max_size=4).map(tuple)
    ),
    st.builds(
        AssignmentsDecided,
        cluster=clusters,
        stream=st.sampled_from(["fleet/0", "fleet/1", STREAM, "", "intake"]),
        through=wild,
        items=st.lists(wild_items, max_size=3).map(tuple),
    ),
    st.builds(
        NodeRemovalProposed,
        stream=st.sampled_from([STREAM, "cluster/", ""]),
        cluster=clusters,
        node=words,
        reason=words,
    ),
    st.builds(Ticked, st.sampled_from([STREAM, ""]), wild),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.lists(wild_events, max_size=4), max_size=8))
def test_nothing_that_decodes_brings_the_stage_down(rounds: list[list[Value]]) -> None:
    plane = Harness()
    for inputs in rounds:
        for d in plane.feed(*inputs):
            assert len(canonical(getattr(d.data, "explanation", None))) <= 2048
        plane.decider.next_due(plane.state)
    dumped = plane.decider.dump(plane.state)
    loaded = plane.decider.load(STREAM, dumped)
    assert plane.decider.dump(loaded) == dumped
    assert plane.decider.next_due(loaded) == plane.decider.next_due(plane.state)
    recovered = recover(plane.decider, plane.decider.initial(STREAM), plane.rounds)
    assert plane.decider.dump(recovered) == dumped


@settings(max_examples=examples(60), deadline=None)
@given(histories())
def test_a_removed_node_gets_nothing_more(history: tuple[str, list[list[Value]]]) -> None:
    plane = Harness(history[0])
    for inputs in history[1]:
        for d in plane.feed(*inputs):
            if isinstance(d.data, NodeRemovalDecided):
                assert d.data.node in plane.state.book.closed
        for name in plane.state.book.closed:
            assert name not in plane.state.book.on_node
