"""Images reported apart from their nodes do what images of the nodes themselves do."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node
from tests.hunting import examples

from wharfinger.domain.node import Node
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.value import Value, stable_hash
from wharfinger.domain.workload import Requirements
from wharfinger.events.cluster_state import (
    ImageOnNodes,
    NodeImagesObserved,
    NodesObserved,
    into_buckets,
)

MIB = 1 << 20
NAMES = ("n1", "n2", "n3", "n4")
IMAGES = ("db:1", "web:1", "web:2")
WEB = Requirements({"cpu": 100}, pod=PodTraits(labels={"app": "web"}, images=("web:1",)))

image_sets = st.dictionaries(
    st.sampled_from(IMAGES), st.sampled_from((30 * MIB, 300 * MIB, 900 * MIB)), max_size=3
)
fleets = st.dictionaries(st.sampled_from(NAMES), image_sets, min_size=1)


def apart(nodes: dict[str, Node], buckets: int) -> list[NodeImagesObserved]:
    """The images of these nodes, as a collector reports them."""
    found: list[list[ImageOnNodes]] = [[] for _ in range(buckets)]
    for image in IMAGES:
        sizes: dict[int, list[str]] = {}
        for name, node in sorted(nodes.items()):
            if image in node.images:
                sizes.setdefault(node.images[image], []).append(name)
        found[stable_hash(image) % buckets] += [
            ImageOnNodes(image, size, tuple(on)) for size, on in sorted(sizes.items())
        ]
    return [NodeImagesObserved(CLUSTER, i, buckets, tuple(part)) for i, part in enumerate(found)]


def check(world: Harness) -> None:
    """A state that is loaded is the state that was dumped, and so is one that is recovered."""
    dumped = world.decider.dump(world.state)
    loaded = world.decider.load(STREAM, dumped)
    assert world.decider.dump(loaded) == dumped
    assert loaded.book.nodes == world.state.book.nodes
    again = Harness()
    for recorded in world.rounds:
        again.at = recorded.round.at - 1
        made = again.feed_events(recorded.events)
        assert [d.body for d in made] == [d.body for d in recorded.round.decisions]
    assert again.decider.dump(again.state) == dumped


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(fleets, min_size=1, max_size=4), st.integers(1, 3), st.randoms())
def test_replicas_go_where_they_go_with_images_of_the_nodes_themselves(
    history: list[dict[str, dict[str, int]]], image_buckets: int, random: st.DataObject
) -> None:
    """Each step: the nodes there are, with their images. The facts of a step come in any order."""
    whole, split = Harness(), Harness()
    for number, fleet in enumerate(history):
        nodes = {n: msgspec.structs.replace(a_node(n), images=i) for n, i in fleet.items()}
        bare = [msgspec.structs.replace(node, images={}) for node in nodes.values()]
        whole.nodes(*nodes.values(), buckets=2)
        facts: list[Value] = [*into_buckets(CLUSTER, bare, 2), *apart(nodes, image_buckets)]
        random.shuffle(facts)  # type: ignore[attr-defined]
        split.feed(*facts)
        for world in (whole, split):
            world.assign(f"web-{number}", 2, WEB)
        assert split.state.book.nodes == whole.state.book.nodes
        assert split.where(f"web-{number}") == whole.where(f"web-{number}")
    check(split)


def test_a_pod_goes_to_the_node_that_has_its_image() -> None:
    """The facts that a stage had before images came: of equal nodes the first one by tie-break."""
    world = Harness()
    world.nodes(*map(a_node, NAMES))
    world.assign("first", 1, WEB)
    (elsewhere, *_) = [name for name in NAMES if name not in world.where("first").values()]
    world.feed(NodeImagesObserved(CLUSTER, 0, 1, (ImageOnNodes("web:1", 900 * MIB, (elsewhere,)),)))
    world.assign("second", 1, WEB)
    assert world.where("second") == {0: elsewhere}
    check(world)


def test_what_is_no_longer_reported_is_gone_and_what_is_not_a_bucket_is_nothing() -> None:
    world = Harness()
    world.nodes(*map(a_node, NAMES))
    web = ImageOnNodes("web:1", 900 * MIB, ("n1", "n2", "gone"))
    world.feed(NodeImagesObserved(CLUSTER, 0, 2, (web,)))
    assert {n: v.images for n, v in world.state.book.nodes.items() if v.images} == {
        "n1": {"web:1": 900 * MIB},
        "n2": {"web:1": 900 * MIB},
    }
    for odd in (NodeImagesObserved(CLUSTER, 2, 2, (web,)), NodeImagesObserved(CLUSTER, -1, 1, ())):
        before = world.decider.dump(world.state)
        world.feed(odd)
        assert world.decider.dump(world.state) == before
    world.feed(NodeImagesObserved(CLUSTER, 1, 3, ()))
    assert not any(node.images for node in world.state.book.nodes.values())
    check(world)


def test_images_of_a_node_that_comes_later_are_kept_for_it() -> None:
    world = Harness()
    world.feed(NodeImagesObserved(CLUSTER, 0, 1, (ImageOnNodes("web:1", MIB, ("n1",)),)))
    world.feed(NodesObserved(CLUSTER, 0, 1, (a_node("n1"),)))
    assert world.state.book.nodes["n1"].images == {"web:1": MIB}
    check(world)
