"""VolumeRestrictions has no array form: asked node by node it decides what the framework says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import agree_when_asked, some_nodes, some_volumes

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.storage import PersistentVolumeClaim

CLAIMS = ClusterObjects.of(
    [
        PersistentVolumeClaim("default", "exclusive", access_modes=("ReadWriteOncePod",)),
        PersistentVolumeClaim("default", "shared", access_modes=("ReadWriteOnce",)),
    ]
)


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), st.data())
def test_asked_node_by_node_it_decides_the_same(nodes: list[Node], data: st.DataObject) -> None:
    asked = some_volumes(
        ("exclusive", "shared", "missing"), ("gcePersistentDisk/a", "gcePersistentDisk/b")
    )
    agree_when_asked("VolumeRestrictions", nodes, CLAIMS, asked, data)
