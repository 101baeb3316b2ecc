"""Batches of pods placed in sight of each other, and what is asked of the framework's own plugins
on the way."""

from __future__ import annotations

import pytest
from tests.cluster_world import a_node, needs, observed

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import (
    PodTerm,
    PodTraits,
    TopologySpread,
    VolumeUse,
    WeightedPodTerm,
)
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.profile import default_profile
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.nodes.count import Counter
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.place import NodeChoice, PlacementContext, Placer
from wharfinger.events.cluster_state import PodsObserved
from wharfinger.events.decisions import NodeShare

HOST = "kubernetes.io/hostname"


def book_of(*nodes: Node) -> Occupancy:
    book = Occupancy()
    for bucket in observed(nodes):
        book.observe_nodes(bucket, 0)
    return book


def names(found: list[list[NodeChoice]]) -> list[list[str]]:
    return [[choice.row.name for choice in choices] for choices in found]


def test_together_fits_what_one_at_a_time_does_not() -> None:
    """The small ones spread over both nodes first, and leave no room for the large one; placed
    after it, they all fit."""
    book = book_of(a_node("a", cpu=2000, pods=2), a_node("b", cpu=2000, pods=2))
    small, large = book.class_of(needs(cpu=500)), book.class_of(needs(cpu=2000))
    placer = Placer(book.table, default_profile())
    one_by_one = [list(placer.fill(small, 2)), list(placer.fill(large, 1))]
    for choices, cls in zip(one_by_one, (small, large), strict=True):
        for choice in choices:
            book.table.charge(choice.row, cls, -1, ())
    assert [len(choices) for choices in one_by_one] == [2, 0]
    together = placer.place_batch([(small, 2), (large, 1)])
    assert [len(choices) for choices in together] == [2, 1]
    assert len({choice.row.name for choice in together[0]} | {together[1][0].row.name}) == 2


def test_the_more_important_go_first_in_every_order() -> None:
    book = book_of(a_node("a", cpu=2000), a_node("b", cpu=2000))
    small, large = book.class_of(needs(cpu=500)), book.class_of(needs(cpu=2000))
    placer = Placer(book.table, default_profile())
    found = placer.place_batch([(small, 5), (large, 2)], priorities=[10, 0])
    assert [len(choices) for choices in found] == [5, 0]


def test_a_batch_sees_what_it_has_placed_of_others() -> None:
    """The second class avoids the first, the third goes where the second is."""
    nodes = [Node(name, {"cpu": 8000, "memory": 2**34}, labels={HOST: name}) for name in "abc"]
    book = book_of(*nodes)
    first = Requirements({"cpu": 100}, pod=PodTraits(labels={"app": "first"}))
    avoiding = PodTraits(
        labels={"app": "second"}, anti_affinity=(PodTerm(HOST, LabelSelector({"app": "first"})),)
    )
    seeking = PodTraits(affinity=(PodTerm(HOST, LabelSelector({"app": "second"})),))
    requests = [
        (book.class_of(first), 2),
        (book.class_of(Requirements({"cpu": 100}, pod=avoiding)), 1),
        (book.class_of(Requirements({"cpu": 100}, pod=seeking)), 2),
    ]
    one, two, three = names(Placer(book.table, default_profile()).place_batch(requests))
    assert len(set(one)) == 2
    assert set(two) == {"a", "b", "c"} - set(one)
    assert three == two * 2


ZONE = "topology.kubernetes.io/zone"
OF_APP = LabelSelector({"app": "run"})
RELATED = {
    "spread over zones": PodTraits(
        labels={"app": "run"}, spread=(TopologySpread(ZONE, 1, selector=OF_APP),)
    ),
    "one a host": PodTraits(labels={"app": "run"}, anti_affinity=(PodTerm(HOST, OF_APP),)),
    "one zone": PodTraits(labels={"app": "run"}, affinity=(PodTerm(ZONE, OF_APP),)),
    "rather one zone": PodTraits(
        labels={"app": "run"}, preferred_affinity=(WeightedPodTerm(10, PodTerm(ZONE, OF_APP)),)
    ),
}


@pytest.mark.parametrize("related", RELATED)
def test_requests_of_one_class_are_placed_as_each_by_itself(related: str) -> None:
    """With the same nodes, scores and diagnoses, also where not all have a place."""
    nodes = [
        Node(f"n{i}", {"cpu": 1000, "memory": 2**34}, labels={HOST: f"n{i}", ZONE: "xyz"[i % 3]})
        for i in range(7)
    ]
    asks = Requirements({"cpu": 150 + len(related)}, pod=RELATED[related])
    counts = [1, 1, 2, 1, 0, 1, 3, 1, 1, 30, 1]
    together, apart = book_of(*nodes), book_of(*nodes)
    cls = together.class_of(asks)
    other = together.class_of(Requirements({"cpu": 100}))
    run = Placer(together.table, default_profile()).place_batch_seen(
        [*((cls, n) for n in counts), (other, 1)], None, 3
    )
    placer, one_by_one = Placer(apart.table, default_profile()), []
    for each, n in [
        *((apart.class_of(asks), n) for n in counts),
        (apart.class_of(other.requirements), 1),
    ]:
        ((choices, seen),) = placer.place_batch_seen([(each, n)], None, 3)
        one_by_one.append((choices, seen))
        for choice in choices:
            apart.table.charge(choice.row, each, 1, ())
    assert [_plain(*found) for found in run] == [_plain(*found) for found in one_by_one]


def _plain(choices: list[NodeChoice], seen: PlacementContext | None) -> tuple[object, ...]:
    ranked = None if seen is None else [(one.row.name, one.score) for one in seen.ranked]
    where = [(choice.row.name, choice.score) for choice in choices]
    return where, None if seen is None else seen.diagnosis, ranked


def a_disk(name: str) -> Requirements:
    return Requirements(
        {"cpu": 100}, pod=PodTraits(volumes=(VolumeUse(disk=f"gcePersistentDisk/{name}"),))
    )


def test_volumes_are_asked_of_the_plugins_that_know_them() -> None:
    """A disk goes to one node at a time: whoever holds it already keeps its node from the next, in
    the batch, too."""
    nodes = [a_node("a"), a_node("b")]
    held = Pod("p", "p", a_disk("data"), "a")
    book = book_of(*nodes)
    placer = Placer(book.table, default_profile(), lambda: Snapshot.of(nodes, [held]))
    assert names(placer.place_batch([(book.class_of(a_disk("data")), 3)])) == [["b"]]
    assert placer.diagnose(book.class_of(a_disk("data"))).refused == {"Volumes": 1}
    assert len(placer.place_batch([(book.class_of(a_disk("other")), 1)])[0]) == 1


def test_without_a_way_to_read_the_cluster_nothing_is_skipped_in_silence() -> None:
    book = book_of(a_node("a"))
    placer = Placer(book.table, default_profile())
    with pytest.raises(ValueError, match="snapshot"):
        placer.choose(book.class_of(a_disk("data")))


def test_a_new_look_of_pods_is_charged_to_the_same_nodes() -> None:
    """Labels changed, needs did not: replicas stay, and others count them by their new labels."""
    nodes = [Node(name, {"cpu": 8000, "memory": 2**34}, labels={HOST: name}) for name in "ab"]
    book = book_of(*nodes)
    blue, green = (
        Requirements({"cpu": 100}, pod=PodTraits(labels={"colour": c})) for c in ("blue", "green")
    )
    shy = Requirements(
        pod=PodTraits(anti_affinity=(PodTerm(HOST, LabelSelector({"colour": "green"})),))
    )
    book.assign("web", "u", "a1", 1, blue, 0)
    placer = Placer(book.table, default_profile())
    choice = placer.place_batch([(book.class_of(blue), 1)])[0][0]
    book.place("web", (NodeShare(choice.row.name, (0,)),), blue, 0)
    assert placer.diagnose(book.class_of(shy)).feasible == 2
    book.assign("web", "u", "a2", 1, green, 0)
    assert not book.held["web"].replace
    assert placer.diagnose(book.class_of(shy)).feasible == 1
    assert choice.row.free[0] == 7900


def test_who_asks_for_whole_devices_is_counted_by_what_he_asks_whatever_he_says_he_holds() -> None:
    book = book_of(a_node("a", gpus=3))
    two = book.class_of(needs(gpus=2))
    pod = Pod("p", "p", needs(gpus=2), "a", devices=((0, 500),))
    book.observe_pods(PodsObserved("oslo", "a", (pod,)))
    counter = Counter(book.table)
    counter.keep([two])
    assert counter.count() == [0]
    assert Placer(book.table, default_profile()).place_batch([(two, 1)]) == [[]]
