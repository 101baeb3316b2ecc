"""NodeVolumeLimits has no array form: asked node by node it decides what the framework says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import agree_when_asked, some_nodes, some_volumes

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.storage import CSINode, PersistentVolume, PersistentVolumeClaim

DRIVER = "csi.example.com"
NAMES = ("a", "b", "c")


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), st.lists(st.integers(0, 2), min_size=7, max_size=7), st.data())
def test_asked_node_by_node_it_decides_the_same(
    nodes: list[Node], limits: list[int], data: st.DataObject
) -> None:
    objects = ClusterObjects.of(
        [
            *(PersistentVolume(f"v-{name}", driver=DRIVER, handle=name) for name in NAMES),
            *(
                PersistentVolumeClaim("default", name, volume=f"v-{name}", bound=True)
                for name in NAMES
            ),
            *(
                CSINode(node.name, {DRIVER: limit})
                for node, limit in zip(nodes, limits, strict=False)
                if limit
            ),
        ]
    )
    agree_when_asked("NodeVolumeLimits", nodes, objects, some_volumes(NAMES), data)
