"""Laws of the node engine: it agrees with a plain reference, never gives away what is not there,
and counts what it can place."""

from __future__ import annotations

from collections import Counter as Tally

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, PlainCluster, observed, replicas_in
from tests.hunting import examples

from wharfinger.domain.node import Node
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.count import COUNT_MAX, Counter
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.place import Placer
from wharfinger.engine.nodes.score import Strategy
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.decisions import NodeShare

MODELS = ("T4", "V100", "A10")
KINDS = ("nvidia.com/gpu", "amd.com/gpu")

devices = st.lists(
    st.builds(Device, st.sampled_from(MODELS), st.sampled_from(KINDS[:1] * 5 + KINDS)), max_size=4
)
homogeneous = st.builds(
    lambda model, n: [Device(model)] * n, st.sampled_from(MODELS), st.integers(0, 4)
)
taints = st.lists(
    st.builds(
        Taint,
        st.sampled_from("ab"),
        st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    ),
    max_size=1,
)


@st.composite
def some_nodes(draw: st.DrawFn, most: int = 14) -> list[Node]:
    nodes = []
    for i in range(draw(st.integers(0, most))):
        allocatable = {
            "cpu": draw(st.sampled_from([0, 1000, 2000, 4000, 4001])),
            "memory": draw(st.sampled_from([0, 64, 100, 128])),
        }
        if draw(st.booleans()):
            allocatable["pods"] = draw(st.integers(0, 6))
        if draw(st.booleans()):
            allocatable["example.com/port"] = draw(st.integers(0, 3))
        nodes.append(
            Node(
                f"n{i}",
                allocatable,
                tuple(draw(st.one_of(homogeneous, devices))),
                {
                    "zone": draw(st.sampled_from("xyz")),
                    "size": draw(st.sampled_from(["1", "5", "big"])),
                },
                tuple(draw(taints)) if draw(st.booleans()) else (),
                draw(st.integers(0, 9)) == 0,
            )
        )
    return nodes


@st.composite
def some_requirements(draw: st.DrawFn, claims: bool = True) -> Requirements:
    requests = {
        "cpu": draw(st.sampled_from([0, 300, 500, 1000])),
        "memory": draw(st.sampled_from([0, 8, 10, 33])),
    }
    if draw(st.integers(0, 4)) == 0:
        requests["example.com/port"] = 1
    asked: list[DeviceRequest] = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 1, 2]))):
        count = draw(st.integers(1, 3))
        milli = (
            draw(st.sampled_from([1000, 1000, 333, 500, 77]))
            if count == 1 or draw(st.booleans())
            else 1000
        )
        models = tuple(sorted(draw(st.sets(st.sampled_from(MODELS), max_size=2))))
        asked.append(
            DeviceRequest(count, milli, models, draw(st.sampled_from(KINDS[:1] * 4 + KINDS)))
        )
    selector: dict[str, str] = {}
    terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    if claims and draw(st.integers(0, 2)) == 0:
        selector = {"zone": draw(st.sampled_from("xyz"))}
    if claims and draw(st.integers(0, 3)) == 0:
        terms = (
            NodeTerm((Requirement("size", "Gt", ("2",)),)),
            NodeTerm((), (Requirement("metadata.name", "In", ("n1", "n2")),)),
        )
    if claims and draw(st.booleans()):
        tolerations = (Toleration(draw(st.sampled_from(["a", "b", ""])), "Exists"),)
    return Requirements(requests, tuple(asked), selector, terms, tolerations)


def book_of(nodes: list[Node], buckets: int = 4) -> Occupancy:
    book = Occupancy()
    for bucket in observed(nodes, buckets):
        book.observe_nodes(bucket, 0)
    return book


strategies = st.sampled_from(["least-allocated", "most-allocated"])


@settings(max_examples=examples(250), deadline=None)
@given(some_nodes(), st.lists(some_requirements(), min_size=1, max_size=4), st.data(), strategies)
def test_every_replica_goes_where_the_plain_reference_puts_it(
    nodes: list[Node], classes: list[Requirements], data: st.DataObject, strategy: Strategy
) -> None:
    book, plain = book_of(nodes), PlainCluster(nodes, strategy)
    placer = Placer(book.table, strategy)
    on: list[tuple[str, int, NodeShare, Requirements]] = []
    for i in range(data.draw(st.integers(1, 30))):
        r = data.draw(st.sampled_from(classes))
        cls = book.class_of(r)
        if on and data.draw(st.integers(0, 3)) == 0:
            binding, _, share, theirs = on.pop(data.draw(st.integers(0, len(on) - 1)))
            book.release(binding, (share,))
            plain.put(share.node, theirs, share.devices[0], -1)
        refused = Tally(why for name in plain.nodes if (why := plain.why_not(name, r)))
        diagnosis = placer.diagnose(cls)
        assert diagnosis.refused == refused
        assert diagnosis.feasible == len(nodes) - refused.total()
        choice = placer.choose(cls)
        expected = plain.place(r)
        if expected is None:
            assert choice is None
            continue
        assert choice is not None
        assert (choice.row.name, choice.devices) == expected
        share = NodeShare(choice.row.name, (0,), (choice.devices,))
        book.place(f"b{i}", (share,), r, 0)
        on.append((f"b{i}", 0, share, r))
        for name in plain.nodes:
            row = book.table.rows[name]
            assert all(
                row.free[book.table.resource(k)] == v
                for k, v in plain.free[name].items()
                if k != "pods"
            )
            assert row.device_free == plain.devices[name]
            assert min(row.free) >= 0
            assert min(row.device_free, default=0) >= 0


@settings(max_examples=examples(150), deadline=None)
@given(some_nodes(), st.lists(some_requirements(), min_size=1, max_size=5), st.data())
def test_the_count_of_a_class_is_how_many_can_be_placed_one_after_another(
    nodes: list[Node], classes: list[Requirements], data: st.DataObject
) -> None:
    """Resources and devices alike, on a cluster already half full, counted from scratch and counted
    on."""
    book = book_of(nodes)
    placer = Placer(book.table, "most-allocated")
    compiled = list({c.key: c for c in (book.class_of(r) for r in classes)}.values())
    kept = Counter(book.table)
    kept.keep(compiled)
    kept.count()
    for i in range(data.draw(st.integers(0, 8))):
        cls = data.draw(st.sampled_from(compiled))
        choice = placer.choose(cls)
        if choice is not None:
            book.place(
                f"b{i}", (NodeShare(choice.row.name, (0,), (choice.devices,)),), cls.requirements, 0
            )
    for cls, count in zip(compiled, kept.count(), strict=True):
        assert Counter(book.table).how_many(cls) == count
        if count < COUNT_MAX // 2:
            placed = list(placer.fill(cls, count + 1))
            assert len(placed) == count
            for choice in placed:
                book.table.charge(choice.row, cls, -1, [(i, -m) for i, m in choice.devices])
        else:
            assert not any(amount for code, amount in cls.amounts if code != 2)


@settings(max_examples=examples(100), deadline=None)
@given(
    some_nodes(),
    some_requirements(),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
    strategies,
)
def test_the_order_in_which_nodes_are_reported_changes_nothing(
    nodes: list[Node], r: Requirements, buckets: int, random: object, strategy: Strategy
) -> None:
    def placed(events: list[NodesObserved]) -> list[tuple[str, int]]:
        book = Occupancy()
        for e in events:
            book.observe_nodes(e, 0)
        return [
            (c.row.name, c.score) for c in Placer(book.table, strategy).fill(book.class_of(r), 20)
        ]

    events = observed(nodes, buckets)
    shuffled = [
        NodesObserved(CLUSTER, e.bucket, e.buckets, tuple(reversed(e.nodes)))
        for e in reversed(events)
    ]
    assert placed(events) == placed(shuffled + events)
    assert placed(events) == placed(observed(nodes, buckets + 1) if buckets == 1 else shuffled)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(some_requirements(), min_size=1, max_size=3), st.data())
def test_many_touched_nodes_and_few_give_the_same_answer(
    classes: list[Requirements], data: st.DataObject
) -> None:
    """Columns, single rows and a forgotten log are three ways to the same keys."""
    nodes = [
        Node(f"n{i}", {"cpu": 1000 + i % 7, "memory": 50 + i % 3}, (Device(),) * (i % 3))
        for i in range(90)
    ]
    book = book_of(nodes)
    kept = Placer(book.table, "least-allocated")
    compiled = [book.class_of(r) for r in classes]
    for cls in compiled:
        kept.choose(cls)
    for i in range(data.draw(st.sampled_from([3, 30, 150]))):
        cls = compiled[i % len(compiled)]
        fresh = Placer(book.table, "least-allocated").choose(cls)
        if fresh is None:
            continue
        if data.draw(st.integers(0, 9)) == 0 or i % 25 == 0:
            assert kept.choose(cls) == fresh
        book.place(
            f"b{i}", (NodeShare(fresh.row.name, (0,), (fresh.devices,)),), cls.requirements, 0
        )
    for cls in compiled:
        assert kept.choose(cls) == Placer(book.table, "least-allocated").choose(cls)
        assert kept.diagnose(cls) == Placer(book.table, "least-allocated").diagnose(cls)


@settings(max_examples=examples(40), deadline=None)
@given(
    some_requirements(),
    strategies,
    st.lists(st.tuples(st.booleans(), st.integers(0, 89)), max_size=60),
)
def test_the_best_few_are_the_best_of_all_while_nodes_fill_and_empty(
    r: Requirements, strategy: Strategy, steps: list[tuple[bool, int]]
) -> None:
    """What is kept of a class follows one node at a time; a placer that has kept nothing ranks
    every node again."""
    nodes = [
        Node(f"n{i}", {"cpu": 1000 + 9 * i, "memory": 50 + i % 3}, (Device(),) * (i % 3))
        for i in range(90)
    ]
    book = book_of(nodes)
    cls = book.class_of(r)
    filler = Requirements({"cpu": 400, "memory": 20})
    kept = Placer(book.table, strategy)
    for number, (best, at) in enumerate(steps):
        # Filling the best drains what is kept from the top; filling and emptying any node lets
        # others rise.
        ranked = kept.ranked(cls, 1)
        name = ranked[0].row.name if best and ranked else f"n{at}"
        share = NodeShare(name, (0,))
        book.place(f"b{number}", (share,), filler, 0)
        if not best:
            assert kept.ranked(cls, 4)[:1] == kept.ranked(cls, 1)
            book.release(f"b{number}", (share,))
        fresh = Placer(book.table, strategy)
        assert [(c.row.name, c.score) for c in kept.ranked(cls, 4)] == [
            (c.row.name, c.score) for c in fresh.ranked(cls, len(nodes))[:4]
        ]
        assert kept.diagnose(cls) == fresh.diagnose(cls)


def test_replicas_of_shares_are_read_in_order() -> None:
    assert replicas_in([NodeShare("a", (2, 5), (((0, 1000),), ((1, 500),)))]) == [
        ("a", 2, ((0, 1000),)),
        ("a", 5, ((1, 500),)),
    ]
