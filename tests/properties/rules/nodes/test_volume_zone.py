"""VolumeZone has no array form: asked node by node it decides what the framework says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.framework_world import ZONE
from tests.hunting import examples
from tests.node_rules import agree_when_asked, some_nodes, some_volumes

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.storage import PersistentVolume, PersistentVolumeClaim

ZONES = ("x", "y", "x__z")
VOLUMES = ClusterObjects.of(
    [
        *(PersistentVolume(f"v-{zone}", labels={ZONE: zone}) for zone in ZONES),
        *(PersistentVolumeClaim("default", zone, volume=f"v-{zone}", bound=True) for zone in ZONES),
        PersistentVolumeClaim("default", "unbound"),
    ]
)


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), st.data())
def test_asked_node_by_node_it_decides_the_same(nodes: list[Node], data: st.DataObject) -> None:
    agree_when_asked("VolumeZone", nodes, VOLUMES, some_volumes((*ZONES, "unbound")), data)
